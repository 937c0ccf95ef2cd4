"""Several releases of UCX in one campaign: each run's plan, processes and checks are those of its release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from merge_bench.campaign import planned_launches
from merge_bench.campaign.planned_launches import load_sweep, plan_runs
from merge_bench.cluster.host_check import check_ucx_folder
from merge_bench.cluster.launchers import make_launcher
from merge_bench.config.parsers import parse_ucx
from merge_bench.config.ucx_choice import LIBRARY_PATH, PREFER, VARIABLE, UcxChoice
from merge_bench.config.ucx_releases import find_release
from merge_bench.errors import UsageError
from merge_bench.host.description import Ucx
from merge_bench.probe.p2p import P2PProbe
from merge_bench.probe.shared.options import PairPlacements
from merge_bench.probe.shared.probe_campaign import describe_dry_run, plan_probe_campaign
from merge_bench.records.campaign import label_planned_runs
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import Worker
from merge_bench.tune.tuning_plan import plan_baseline_runs
from tests.helpers.command_line import exit_status
from tests.helpers.plans import given
from tests.helpers.ucx_wheels import put_into_cache

RELEASES = ("1.19.0", "1.22.0")
PLUGIN = """
#
# syntax:    boolean
#
UCX_PRINT_TRANSPORT_TABLES=auto
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two releases in an empty cache, of which the newer one has a setting more; UCXX is said to load them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (VARIABLE, PREFER, LIBRARY_PATH):
        monkeypatch.delenv(name, raising=False)

    def choose(ucx: str | None, environ: Mapping[str, str], *, device_memory: bool = False, **more: Any) -> UcxChoice:
        if ucx in (None, "auto", "wheel"):
            return UcxChoice("wheel")
        release = find_release(parse_ucx(ucx))
        return UcxChoice(str(release.folder), None, None, release)

    monkeypatch.setattr(planned_launches, "choose_ucx", choose)
    more = {"1.22.0": PLUGIN}
    return {version: put_into_cache(tmp_path, version, more_settings=more.get(version, "")) for version in RELEASES}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "a.cfg"
    path.write_text("UCX_PRINT_TRANSPORT_TABLES=y\n")
    return path


def test_each_release_is_a_run_with_its_own_processes(folders: dict[str, Path]) -> None:
    sweep = load_sweep(given(ucx=RELEASES, chunk=(1000, 2000), launches=2))
    line = sweep.campaign_line()
    assert [
        (run.config, plan["ucx"], plan["rows_per_chunk"]) for run, plan in zip(line.runs, line.plans, strict=True)
    ] == [("default", release, rows) for rows in (1000, 2000) for release in RELEASES]
    assert list(label_planned_runs(line).values()) == [f"UCX {release}" for release in RELEASES] * 2
    assert [RecordedPlan.from_options(plan).ucx for plan in line.plans] == list(RELEASES) * 2
    for planned in sweep.prepared.values():
        folder = str(folders[planned.plan.ucx or ""])
        assert planned.settings.ucx_origin == folder
        for command in make_launcher(planned.settings).commands(planned.plan, planned.settings):
            assert command.environment[VARIABLE] == folder
            assert command.environment[PREFER] == "true"
            assert command.environment[LIBRARY_PATH].split(":")[0] == f"{folder}/lib"


def test_a_release_alone_is_in_the_plan_and_an_origin_is_not(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (planned,) = plan_runs(None, given(ucx="1.19.0"))
    assert (planned.plan.ucx, planned.plan.to_json()["ucx"]) == ("1.19.0", "1.19.0")
    (planned,) = plan_runs(None, given(ucx="wheel"))
    assert planned.settings.ucx_origin is None
    assert "ucx" not in planned.plan.to_json()


def test_two_names_of_one_ucx_are_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="--ucx auto and wheel mean the same here"):
        plan_runs(None, given(ucx=("auto", "wheel")))


def test_configs_are_checked_against_each_release(folders: dict[str, Path], config: Path) -> None:
    older, newer = plan_runs(str(config), given(ucx=RELEASES))
    assert [caution.code for caution in newer.warnings if "UCX_PRINT" in caution.message] == []
    (caution,) = [caution for caution in older.warnings if "UCX_PRINT" in caution.message]
    assert "needs UCX 1.22 or newer; this UCX is 1.19.0" in caution.message


def test_libraries_that_a_trusted_config_names_come_after_the_release(folders: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "own.cfg"
    path.write_text("LD_LIBRARY_PATH=/mine\n")
    (planned,) = plan_runs(str(path), given(ucx="1.19.0", trust_config=True))
    first, *_ = make_launcher(planned.settings).commands(planned.plan, planned.settings)
    assert first.environment[LIBRARY_PATH] == f"{folders['1.19.0']}/lib:/mine"


def test_a_probe_measures_each_release_as_a_config(
    folders: dict[str, Path], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in folders.values():
        (folder / "bin/ucx_perftest").touch()
    probe = P2PProbe((), (8,), PairPlacements())
    head, jobs = plan_probe_campaign(probe, [None], given(ucx=RELEASES))
    assert [line.name for line in head.configs] == [f"UCX {release}" for release in RELEASES]
    assert [plan["ucx"] for plan in head.plans] == list(RELEASES)
    assert {(job.config, job.prepared.settings.ucx_origin) for job in jobs} == {
        (f"UCX {release}", str(folder)) for release, folder in folders.items()
    }
    assert f"{folders['1.19.0']}/lib" in describe_dry_run(probe, head, jobs)
    head, _ = plan_probe_campaign(probe, [None, str(config)], given(ucx=RELEASES))
    assert [line.name for line in head.configs] == [
        f"{name} with UCX {each}" for name in ("default", "a") for each in RELEASES
    ]
    (folders["1.22.0"] / "bin/ucx_perftest").unlink()
    with pytest.raises(UsageError, match=r"ucx_perftest is not in the folder of .*1\.22\.0"):
        plan_probe_campaign(probe, [None], given(ucx=RELEASES))


def test_tune_takes_one_release(folders: dict[str, Path]) -> None:
    with pytest.raises(
        UsageError, match="only `run`, `probe` and `exec` accept several values of --ucx; use one value"
    ):
        plan_baseline_runs(None, given(ucx=RELEASES))
    assert {planned.plan.ucx for planned in plan_baseline_runs(None, given(ucx="1.19.0"))} == {"1.19.0"}


def test_a_worker_with_another_ucx_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "1.19.0"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)

    def workers(*paths: str | None) -> list[Worker]:
        return [Worker(rank=n, host="far", pid=1, name="w", ucx=Ucx(path=path)) for n, path in enumerate(paths)]

    inside = f"{folder}/lib/libucp.so"
    check_ucx_folder(workers(inside, None), str(folder))
    check_ucx_folder(workers(inside), str(tmp_path / "link"))
    check_ucx_folder(workers("/usr/lib/libucp.so"), None)
    check_ucx_folder(workers("/usr/lib/libucp.so"), "wheel")
    with pytest.raises(UsageError, match=r"rank 1 on far loaded /usr/lib/libucp\.so instead of the UCX in"):
        check_ucx_folder(workers(inside, "/usr/lib/libucp.so"), str(folder))


def test_check_compares_the_releases_in_the_cache(
    folders: dict[str, Path], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("check", config, "--json") == 0
    releases = {each["ucx"]: each for each in json.loads(capsys.readouterr().out)["releases"]}
    assert list(releases) == ["1.19.0 (wheel)", "1.22.0 (wheel)"]
    for each in releases.values():
        assert each["ok"] is True
    (newer,) = releases["1.22.0 (wheel)"]["variables"]
    assert (newer["name"], newer["state"]) == ("UCX_PRINT_TRANSPORT_TABLES", "known")
    exit_status("check", config)
    assert "UCX 1.22.0 (wheel) reads these settings otherwise" in capsys.readouterr().out


def test_configs_lists_what_the_cache_has(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("configs", "--json") == 0
    cached = json.loads(capsys.readouterr().out)["ucx"]
    assert [(each["version"], each["path"]) for each in cached] == [(name, str(path)) for name, path in folders.items()]
    assert all(len(each["sha256"]) == 64 for each in cached)
    exit_status("configs")
    assert "1.22.0" in capsys.readouterr().out
