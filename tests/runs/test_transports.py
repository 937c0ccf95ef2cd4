"""What a run says of transports, beside what UCX itself logs; gates on them; and the command that only looks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from merge_bench.config import tls
from merge_bench.config.ucx_info import locate, read_installed
from merge_bench.errors import UsageError
from merge_bench.records.schema import IterationLine, LanesLine, LaunchLine, TrafficLine, WarningLine
from tests.helpers import leftovers
from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import LIMIT, SMALL, Finished, environment, run

pytestmark = pytest.mark.cluster

# UCX's own line about an endpoint; several of one endpoint are steps of its wiring, and the last one holds.
_LOGGED = re.compile(r"(intra|inter)-node cfg#\d+ tag\(([^)]*)\)")
SHIPPED = {"tcp": (), "default": (), "optimized": ("--require-transport", "sysv")}


@pytest.fixture(scope="module")
def absent() -> str:
    """A transport that the UCX installed here does not have."""
    try:
        there = read_installed(locate()).transports
    except UsageError as error:
        pytest.skip(f"needs a UCX to ask: {error}")
    return next(name for name in ("rc", "knem", "ugni") if not tls.meant([name]) & set(there))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """The same run under three shipped configs, UCX logging what it selects."""
    return {
        name: run(
            tmp_path_factory.mktemp(name), *SMALL, "--workers", "2", "--config", f"{name}.cfg", *options,
            environ={"UCX_LOG_LEVEL": "info"},
        )
        for name, options in SHIPPED.items()
    }  # fmt: skip


def logged(one: Finished) -> dict[str, set[str]]:
    """The lanes in each worker's log, by the worker's name."""
    found = {}
    for log in (one.folder / "logs").glob("*worker-*.log"):
        (*_, last) = _LOGGED.findall(log.read_text(errors="replace"))
        name = re.search(r"worker-\d+", log.name)
        assert name is not None
        found[name[0]] = set(last[1].split())
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_recorded_lanes_are_those_that_ucx_logs(finished: dict[str, Finished], name: str) -> None:
    one = finished[name].check_ended(0)
    (launch,) = one.of(LaunchLine)
    seen = logged(one)
    assert set(seen) == {worker.name for worker in launch.workers}
    names = {worker.rank: worker.name for worker in launch.workers}
    line = one.of(LanesLine)[-1]
    assert [(pair.from_rank, pair.to_rank) for pair in line.pairs] == [(0, 1), (1, 0)]
    for pair in line.pairs:
        assert set(pair.transports) == seen[names[pair.from_rank]]
        assert pair.placement == "same host"
    assert one.document["lanes"] == [
        {"from": a, "to": 1 - a, "placement": "same host", "transports": line.pairs[a].transports} for a in range(2)
    ]


def test_what_is_configured_decides_what_is_selected(finished: dict[str, Finished]) -> None:
    def used(name: str) -> set[str]:
        return {lane.partition("/")[0] for lane in finished[name].document["link"]["transports"]}

    assert used("tcp") == {"tcp"}
    assert used("default") & tls.SHARED_MEMORY
    assert used("optimized") & tls.SHARED_MEMORY
    assert finished["tcp"].document["requested_transports"]["UCX_TLS"].startswith("^sm")
    assert finished["default"].document["requested_transports"]["UCX_TLS"] == "all"


def test_protocols_cover_every_size_and_use_the_lanes(finished: dict[str, Finished]) -> None:
    for one in finished.values():
        line = one.of(LanesLine)[-1]
        for pair in line.pairs:
            assert pair.protocols is not None
            ranges = line.protocols[pair.protocols]
            assert ranges[0].first_bytes == 0
            assert ranges[-1].last_bytes is None
            assert all(any(lane in each.transports for lane in pair.transports) for each in ranges)


def test_counters_stand_beside_the_lanes(finished: dict[str, Finished]) -> None:
    for name, one in finished.items():
        lines = one.of(TrafficLine)
        assert [line.during for line in lines] == ["iterations", "link"]
        during = {each["during"]: each for each in one.document["traffic"]}
        sent = sum(
            worker.sent_bytes.left + worker.sent_bytes.right
            for line in one.of(IterationLine)
            if not line.warmup
            for worker in line.workers
        )
        assert during["iterations"]["sent"] == sent
        if name == "tcp":
            assert during["iterations"]["devices"]["lo"]["sent"] >= sent
            assert during["link"]["devices"]["lo"]["sent"] >= during["link"]["sent"] > 0


def test_no_setting_differs_under_the_shipped_configs(finished: dict[str, Finished]) -> None:
    for one in finished.values():
        assert [line for line in one.of(WarningLine) if line.code == "environment-differs"] == []


def test_effective_settings_are_in_the_records(finished: dict[str, Finished]) -> None:
    for one in finished.values():
        (launch,) = one.of(LaunchLine)
        for worker in launch.workers:
            assert worker.ucx.config["UCX_NET_DEVICES"] == "lo"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A gate that the pairs do not meet, under a config with a setting that loses against one of UCXX's."""
    folder = tmp_path_factory.mktemp("gate")
    config = folder / "mine.cfg"
    config.write_text("UCX_TLS=tcp\nUCX_MAX_RNDV_LANES=2\n")
    return run(folder, *SMALL, "--workers", "2", "--config", config, "--require-transport", "sm,cuda_ipc")


def test_a_gate_that_is_not_met_ends_the_run_before_anything_is_measured(stopped: Finished) -> None:
    stopped.check_ended(5)
    error = stopped.document["error"]
    assert error["code"] == "gate-not-met"
    for part in ("sm,cuda_ipc", "rank 0 to rank 1 (same host)", "tcp/lo"):
        assert part in error["message"]
    assert stopped.of(IterationLine) == []
    assert stopped.failure.code == "gate-not-met"
    assert {lane for pair in stopped.document["lanes"] for lane in pair["transports"]} == {"tcp/lo"}


def test_a_setting_that_lost_is_told_with_what_was_found(stopped: Finished) -> None:
    (warning,) = [line for line in stopped.of(WarningLine) if line.code == "environment-differs"]
    assert warning.message == "UCX_MAX_RNDV_LANES=2 was asked for, but ranks 0, 1 have UCX_MAX_RNDV_RAILS=1"
    assert warning.remedy
    told = [each for each in stopped.document["warnings"] if each["code"] == "environment-differs"]
    assert [each["message"] for each in told] == [warning.message]


def test_a_transport_that_cannot_be_here_is_told_before_the_run(tmp_path: Path, absent: str) -> None:
    one = run(tmp_path, *SMALL, "--require-transport", absent)
    assert one.status == 5
    assert not one.results.exists()
    assert not one.pids
    assert one.document["error"]["code"] == "gate-not-met"
    assert f"--require-transport {absent} cannot be met" in one.document["error"]["message"]
    one.check_clean()


def test_a_config_that_leaves_no_transport_is_told_before_the_run(tmp_path: Path, absent: str) -> None:
    (tmp_path / "mine.cfg").write_text(f"UCX_TLS={absent}\n")
    one = run(tmp_path, *SMALL, "--config", tmp_path / "mine.cfg")
    one.check_refused(f"UCX_TLS={absent}", "leaves nothing that could connect two workers")
    assert not one.results.exists()


def test_a_config_with_a_transport_that_is_missing_is_told_before_the_run(tmp_path: Path, absent: str) -> None:
    (tmp_path / "mine.cfg").write_text(f"UCX_TLS=tcp,{absent}\n")
    one = run(tmp_path, *SMALL, "--config", tmp_path / "mine.cfg", "--dry-run")
    assert one.status == 0
    assert not one.pids
    assert re.search(rf"warning: .*has no {absent}", one.errors)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--require-transport", "sysvv"), "sysv"),
        (("--require-transport", "tcp", "--exchange", "dask"), "--exchange dask"),
        (("--require-transport", "tcp", "--workers", "1"), "needs at least two workers"),
    ],
)
def test_gates_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], part: str) -> None:
    run(tmp_path, *SMALL, *options).check_refused("--require-transport", part)


def transports(folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "merge_bench", "transports", *map(str, options)],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def test_the_command_says_what_a_run_would_and_leaves_nothing_behind(
    tmp_path: Path, finished: dict[str, Finished]
) -> None:
    before = leftovers.Before(tmp_path)
    (tmp_path / "mine.cfg").write_text("UCX_TLS=tcp\nMERGE_BENCH_CHUNK=90e9\n")
    done = transports(tmp_path, "--config", tmp_path / "mine.cfg", "--workers", "3", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["requested"]["UCX_TLS"] == "tcp"
    assert [(pair["from"], pair["to"]) for pair in document["pairs"]] == [
        (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)
    ]  # fmt: skip
    assert all(pair["transports"] == ["tcp/lo"] for pair in document["pairs"])
    assert all(pair["placement"] == "same host" for pair in document["pairs"])
    (found,) = document["available"].values()
    assert found == {name: list(devices) for name, devices in read_installed(locate()).transports.items()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.cfg"]
    assert before.left_after(set(), 2.0) == []


def test_the_command_looks_at_a_running_cluster(tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "cluster", 2) as file:
        done = transports(tmp_path, "--scheduler-file", file, "--available")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("configured: UCX_TLS=all") for line in lines)
    assert any(re.match(r"selected: .*\(all 2 pairs, same host\)", line) for line in lines)
    assert "Transports that each host could use" in lines


def test_one_worker_has_nobody_to_connect_to(tmp_path: Path) -> None:
    done = transports(tmp_path, "--workers", "1")
    assert done.returncode == 2
    assert "pairs of workers" in done.stderr
