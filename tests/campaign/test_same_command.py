"""Which campaign is the same one: not under other conditions, and not while another process writes it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import msgspec
import pytest

from merge_bench.campaign import resume
from merge_bench.campaign import run_campaign as campaigns
from merge_bench.campaign.planned_launches import PlannedLaunch, Sweep, make_campaign_line
from merge_bench.cluster.hosts import HostSpec
from merge_bench.errors import RunFailed
from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter
from tests.helpers.interruptions import (
    SOFTWARE,
    WELL,
    killed,
    killed_writing,
    make,
    sweep,
    the,
)


def first_line(head: s.CampaignLine, jobs: Sequence[PlannedLaunch], **software: Any) -> s.CampaignLine:
    """The first line of a campaign that is made with the same software, but for these changes."""
    return campaigns.complete_campaign_line(head, jobs, software=dataclasses.replace(SOFTWARE, **software))


def changed(made: Sweep, **settings: Any) -> list[PlannedLaunch]:
    return [
        dataclasses.replace(
            job,
            prepared=dataclasses.replace(job.prepared, settings=dataclasses.replace(job.prepared.settings, **settings)),
        )
        for job in made.ordered_launches()
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"hosts": (HostSpec("other", 2),)},
        {"interface": "eth1"},
        {"launcher": "ssh"},
        {"workers_per_gpu": 2},
        {"rmm_pool_bytes": 1 << 30},
    ],
)
def test_another_cluster_is_another_campaign(settings: dict[str, Any]) -> None:
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())
    assert resume.differing_campaign_fields(line, first_line(made.campaign_line(), made.ordered_launches())) == []
    assert resume.differing_campaign_fields(line, first_line(made.campaign_line(), changed(made, **settings))) == [
        "surroundings"
    ]


def test_where_records_go_makes_no_difference() -> None:
    made = sweep()
    other = changed(made, results=Path("elsewhere"), sources={"chunk": "default"})
    assert (
        resume.differing_campaign_fields(
            first_line(made.campaign_line(), made.ordered_launches()), first_line(made.campaign_line(), other)
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UCX_TLS", "tcp"),
        ("DASK_DISTRIBUTED__X", "1"),
        ("OMP_NUM_THREADS", "3"),
        ("RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "true"),
    ],
)
def test_another_environment_is_another_campaign(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv(name, raising=False)
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())
    monkeypatch.setenv(name, value)
    assert resume.differing_campaign_fields(line, first_line(made.campaign_line(), made.ordered_launches())) == [
        "surroundings"
    ]


def test_options_in_the_environment_are_in_the_plans_already(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())
    monkeypatch.setenv("MERGE_BENCH_RESULTS", "elsewhere")
    monkeypatch.setenv("TERM_PROGRAM", "x")
    monkeypatch.setenv("DASK_COILED__TOKEN", "a secret")
    assert resume.differing_campaign_fields(line, first_line(made.campaign_line(), made.ordered_launches())) == []


@pytest.mark.parametrize(
    ("software", "differing"),
    [
        ({"git": s.GitState(commit="c", dirty=True, host="h")}, ["git"]),
        ({"sources": "0123"}, ["surroundings"]),
        ({"versions": {"dask": "2"}}, ["surroundings"]),
    ],
)
def test_other_code_or_another_commit_is_another_campaign(software: dict[str, Any], differing: list[str]) -> None:
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())
    assert (
        resume.differing_campaign_fields(line, first_line(made.campaign_line(), made.ordered_launches(), **software))
        == differing
    )


def test_the_installed_software_is_read_where_none_is_given() -> None:
    made = sweep()
    line = campaigns.complete_campaign_line(made.campaign_line(), made.ordered_launches())
    assert line.git == campaigns.git_state()
    assert line.surroundings is not None
    assert line.surroundings["versions"]["dask"] == dask.__version__
    assert len(line.surroundings["sources"]) == 12


def test_other_sizes_seeds_and_settings_are_other_campaigns() -> None:
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())
    for other in (sweep(chunk=2000), sweep(blocks=3), sweep(iterations=2), sweep(seed=1), sweep(configs="ba")):
        assert resume.differing_campaign_fields(line, first_line(other.campaign_line(), other.ordered_launches()))
    head = made.campaign_line()
    variables = [s.Config(name=each.name, path=each.path, variables={"UCX_TLS": "tcp"}) for each in head.configs]
    other_head = make_campaign_line(variables, head.plans, head.runs, head.seed)
    assert resume.differing_campaign_fields(line, first_line(other_head, made.ordered_launches())) == ["configs"]


def test_a_config_may_lie_elsewhere_now() -> None:
    made = sweep()
    head = made.campaign_line()
    moved = make_campaign_line(
        [s.Config(name=each.name, path="/else/where.cfg") for each in head.configs], head.plans, head.runs, 0
    )
    assert (
        resume.differing_campaign_fields(
            first_line(head, made.ordered_launches()), first_line(moved, made.ordered_launches())
        )
        == []
    )


def test_a_campaign_that_is_being_written_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    (folder,) = tmp_path.iterdir()
    with (folder / "records.jsonl").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert len(make(tmp_path, made, [])[1]) == 4
    assert f"not resuming {folder}: another process is recording this campaign" in capsys.readouterr().err


def test_a_campaign_under_way_holds_its_lock(tmp_path: Path) -> None:
    made = sweep()
    nested: list[int] = []

    def another(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        nested.append(len(make(tmp_path, made, [killed])[1]))
        return WELL(job, writer, index)

    make(tmp_path, made, [another])
    assert nested == [1]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_system_without_locks_is_written_but_nothing_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    assert len(make(tmp_path, made, [])[1]) == 4
    assert "the records of the campaign cannot be written (No locks available)" in capsys.readouterr().err


def test_damaged_records_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    records = the(tmp_path).records
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(lines[0] + b"{}\n" + b"".join(lines[1:]))
    assert len(make(tmp_path, made, [])[1]) == 4
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\n", b"\0" * 100, b'{"kind":"campaign","schema":99}\n'])
def test_strange_folders_beside_it_do_not_matter(tmp_path: Path, content: bytes) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    strange = tmp_path / "99990101T000000Z-x-ffffff"
    strange.mkdir()
    (strange / "records.jsonl").write_bytes(content)
    assert len(make(tmp_path, made, [])[1]) == 3
    assert (strange / "records.jsonl").read_bytes() == content


def test_a_half_written_line_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed_writing])
    records = the(tmp_path).records
    before = records.read_bytes()
    whole = before[: before.rindex(b"\n") + 1]
    assert whole != before
    with CampaignWriter.resume(records.parent):
        assert records.read_bytes() == whole
    records.write_bytes(whole + b"x" * 200_000)
    with CampaignWriter.resume(records.parent) as writer:
        assert records.read_bytes() == whole
        writer.write(s.WarningLine(code="c", message="m"))
    assert records.read_bytes().startswith(whole)
    assert json.loads(records.read_bytes().splitlines()[-1])["code"] == "c"


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No such file"):
        CampaignWriter.resume(tmp_path)


def test_other_spellings_of_the_same_tables_are_the_same_command() -> None:
    made = sweep()
    line = first_line(made.campaign_line(), made.ordered_launches())

    def of_tables(path: str, fingerprint: str | None) -> s.CampaignLine:
        table = {"path": path, "files": [f"{path}/0"], "chunks": [[[f"{path}/0", 0]]], "fingerprint": fingerprint}
        workload = {"name": "tables", "keys": ["id"], "left": table, "right": table, "warnings": [{"message": path}]}
        return msgspec.structs.replace(line, plans=[{**each, "workload": workload} for each in line.plans])

    assert resume.differing_campaign_fields(of_tables("/data/a", "f1"), of_tables("../a", "f1")) == []
    assert resume.differing_campaign_fields(of_tables("/data/a", "f1"), of_tables("/data/a", "f2")) == ["plans"]
    assert resume.differing_campaign_fields(of_tables("/data/a", None), of_tables("/data/b", None)) == ["plans"]
