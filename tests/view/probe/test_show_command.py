"""`probe show` and the outputs of every `probe`: seen to before, written after, and never instead of the results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from merge_bench.analysis.published import datasets, network_rows
from merge_bench.cli import cli, probe
from merge_bench.errors import UsageError
from tests.probe.samples import write_campaign

Show = Callable[..., int]


def show(*results: Path, **options: Any) -> int:
    given = {"results": tuple(map(str, results)), "csv_file": None, "plots": (), "references": (), "as_json": False}
    assert probe.show_probes.callback is not None
    return int(probe.show_probes.callback(**given | options))


NETWORK = {name: data for name, data in datasets().items() if data.kind == "network"}
"""Published results that hold network measurements."""


def test_a_stored_campaign_is_shown_with_its_first_config_as_the_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_campaign(tmp_path)
    assert show(folder) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.lstrip().startswith("8 "))
    assert row.split() == ["8", "2.00", "1.00", "2.00"]
    assert str(folder / "records.jsonl") in out


def test_medians_are_over_launches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(write_campaign(tmp_path, launches=3))
    assert "medians over 3 launches" in capsys.readouterr().out


def test_campaigns_whose_configs_have_one_name_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = write_campaign(tmp_path, ["default"], micros=[2]), write_campaign(tmp_path, ["default"], micros=[4])
    assert show(one, other, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    names = [row["config"] for row in document["rows"]]
    assert len(set(names)) == 2
    assert all(name.endswith(f"-{folder.name[-6:]})") for name, folder in zip(names, (one, other), strict=True))
    assert document["records"] == [str(one / "records.jsonl"), str(other / "records.jsonl")]
    show(one, other)
    assert "different times" in capsys.readouterr().out


def test_the_same_campaign_twice_is_refused(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    with pytest.raises(UsageError, match="twice"):
        show(folder, folder / "records.jsonl")


def test_a_warning_of_the_records_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_campaign(tmp_path, launches=3, warning=("rdma-unused", "eth0 has no RDMA device", "--interface ib0"))
    show(folder)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = lines.index("Warnings")
    assert lines[at + 1 : at + 3] == ["rdma-unused: eth0 has no RDMA device", "→ --interface ib0"]
    assert lines.count("rdma-unused: eth0 has no RDMA device") == 1
    show(folder, as_json=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == [
        {"code": "rdma-unused", "message": "eth0 has no RDMA device", "remedy": "--interface ib0"}
    ]


def test_an_unfinished_campaign_and_its_failures_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(write_campaign(tmp_path, finished=False, failure="rank 1 died"))
    told = capsys.readouterr()
    assert "did not finish" in told.out
    assert "rank 1 died" in told.err


def test_files_are_written_and_told_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [tmp_path / "drawing.svg", tmp_path / "drawing.html"]
    status = show(write_campaign(tmp_path), csv_file=str(tmp_path / "rows.csv"), plots=tuple(map(str, names)))
    told = capsys.readouterr()
    assert status == 0
    for name in (tmp_path / "rows.csv", *names):
        assert name.stat().st_size > 0
        assert f"wrote {name}" in told.err
        assert str(name) not in told.out


def test_a_drawing_that_fails_is_a_sentence_after_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("merge_bench.view.plot.static.draw_image", fails)
    plot, table = tmp_path / "drawing.png", tmp_path / "rows.csv"
    plot.write_text("before")
    folder = write_campaign(tmp_path)
    assert show(folder, plots=(str(plot),), csv_file=str(table)) == 3
    told = capsys.readouterr()
    assert "tag_lat" in told.out
    assert f"merge_bench: {plot} was not written: no ink; the records contain all measurements" in told.err
    assert plot.read_text() == "before"
    assert table.exists()
    assert show(folder, plots=(str(plot),), as_json=True) == 3
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 2
    assert document["error"]["code"] == "not-written"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"plots": ("{}/nowhere/a.png",)}, "there is no folder"),
        ({"plots": ("{}/a.pdf",)}, "must end in .png, .svg or .html"),
        ({"csv_file": "{}"}, "is a folder"),
        ({"csv_file": "/proc/rows.csv"}, "cannot be written"),
        ({"plots": ("{0}/a.png", "{0}/./a.png")}, "two options write to"),
    ],
)
def test_a_file_that_cannot_be_written_stops_it_before_anything_is_measured(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    """No result is begun; a cluster that starts in a test without the mark `cluster` is a failure."""
    names = {"csv_file": "--csv", "plots": "--plot"}
    asked = [(names[key], [value] if isinstance(value, str) else value) for key, value in options.items()]
    words = [word for name, files in asked for file in files for word in (name, file.format(tmp_path))]
    with pytest.raises(UsageError, match=sentence):
        probe.probe_commands.main(["p2p", "--results", str(tmp_path / "results"), *words], standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_published_rows_stand_beside_the_measured_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, theirs = write_campaign(tmp_path), network_rows("nthu-hw4-latency")
    assert show(folder, references=("nthu-hw4-latency",)) == 0
    out = capsys.readouterr().out
    for config in {row.config for row in theirs}:
        assert re.search(rf"{re.escape(config)}, (one host|two hosts) \(published\): ", out)
    assert show(folder, references=("nthu-hw4-latency",), as_json=True) == 0
    sources = [row["source"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert sources == [None, None, *(NETWORK["nthu-hw4-latency"].cite for _ in theirs)]


def test_a_published_result_that_is_unknown_is_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--reference: there is no published dataset 'ours'; "):
        show(write_campaign(tmp_path), references=("ours",))


@pytest.mark.parametrize("command", [["p2p"], ["show"], ["reduce-scatter"]])
def test_the_list_of_references_needs_nothing_else(command: list[str]) -> None:
    cites = {name: data.cite for name, data in NETWORK.items()}
    done = CliRunner().invoke(cli, ["probe", *command, "--reference", "list"])
    assert done.exit_code == 0
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines()] == [[*each] for each in cites.items()]
    done = CliRunner().invoke(cli, ["probe", *command, "--reference", "list", "--json"])
    assert json.loads(done.stdout) == {"document_version": 1, "references": cites}


def test_show_without_a_result_and_with_a_campaign_of_merges_is_wrong_usage(tmp_path: Path) -> None:
    from tests.helpers.synthetic_campaigns import write_campaign as write_merges

    with pytest.raises(UsageError, match="no RESULT given"):
        show()
    with pytest.raises(UsageError, match="results of merges"):
        show(write_merges(tmp_path))
