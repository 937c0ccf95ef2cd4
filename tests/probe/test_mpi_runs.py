"""Real campaigns of `probe mpi` and `probe reduce-scatter` on this machine, with both mpiruns."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merge_bench.config.allowed_transports import REGISTER_NO_MEMORY
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.host import network
from merge_bench.records.schema import LaunchEndLine, LaunchLine, ProbeLine, WarningLine
from tests.helpers import leftovers
from tests.helpers.mpiruns import OWN, OWN_ELSE_SOAK, name_of
from tests.helpers.runs import ROOT, Finished, Running, command, start

pytestmark = pytest.mark.cluster

MPI, REDUCE_SCATTER = ("probe", "mpi"), ("probe", "reduce-scatter")
IN_TIME = 20.0
TIMEOUT = 3  # seconds; a launch is given up after twice that without a word
Begin = Callable[..., Running]


def run(folder: Path, verb: tuple[str, ...], *options: str | Path, **more: Any) -> Finished:
    """A whole campaign of one launch a config; only its ranks are processes of their own."""
    return command(folder, "--repetitions", "1", *options, verb=verb, **more)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a ping-pong that goes on until it is stopped."""
    started: list[Running] = []

    def begin(*options: str | Path) -> Running:
        endless = ("--sizes", "64K", "--iterations", "1000000000", "--repetitions", "1", "--timeout", str(TIMEOUT))
        started.append(start(tmp_path, *endless, *options, verb=MPI))
        return started[-1]

    yield begin
    for running in started:
        running.end()


def up(running: Running) -> list[int]:
    """Process ids of both ranks, once they measure."""

    def workers() -> list[int]:
        return [worker.pid for line in running.lines() if isinstance(line, LaunchLine) for worker in line.workers]

    running.until(lambda: len(workers()) == 2, "ranks")
    time.sleep(0.3)
    return workers()


@pytest.fixture(scope="module", params=OWN_ELSE_SOAK)
def ping_pong(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Finished:
    """One launch of a config with the usual iterations; with the other mpirun one of each of two configs with 20."""
    folder = tmp_path_factory.mktemp("mpi")
    config = folder / "mine.cfg"
    config.write_text("export UCX_TLS=sysv,self\nexport UCX_RNDV_THRESH=4096\nexport UCX_MEM_EVENTS=y\n")
    options = ("--config", config, "--sizes", "1,1000,64K", "--mpirun", request.param)
    more = () if request.param == OWN else ("--config", "default", "--iterations", "20")
    return run(folder, MPI, *options, *more).check_ended(0)


def _memory_events() -> str | None:
    """What ranks on this machine get: nothing where a transport registers memory."""
    installed = find_installed_ucx()
    return "n" if installed is not None and REGISTER_NO_MEMORY.issuperset(installed.transports) else None


def test_every_launch_records_ranks_and_rows(ping_pong: Finished) -> None:
    launches = ping_pong.of(LaunchLine)
    (mpirun,) = {line.cluster.mpirun for line in launches}
    assert mpirun is not None
    usual = mpirun == OWN
    assert sorted(line.config for line in launches) == (["mine"] if usual else ["default", "mine"])
    for line in launches:
        assert (line.cluster.launcher, line.cluster.protocol) == ("mpirun", "mpi")
        assert [worker.rank for worker in line.workers] == [0, 1]
        assert len({worker.pid for worker in line.workers}) == 2
        told = line.workers[0].environment
        assert told["UCX_TLS"] == ("sysv,self" if line.config == "mine" else "^tcp")
        assert told.get("UCX_MEM_EVENTS") == ("y" if line.config == "mine" else _memory_events())
        assert "PATH" not in told
        assert line.workers[0].versions["mpi"] == name_of(mpirun)
        assert {row.method.partition(",")[0] for row in ping_pong.of(ProbeLine)} == {f"{name_of(mpirun)} ({mpirun})"}
        rows = [row for row in ping_pong.of(ProbeLine) if row.launch == line.launch]
        assert [(row.test, row.size) for row in rows] == [
            *(("std", size) for size in (1, 1000, 65536)),
            ("std-delay", 1),
            *(("buff", size) for size in (1, 1000, 65536)),
            ("buff-delay", 1),
        ]
        assert [row.iterations for row in rows if "delay" in row.test] == [10_000 if usual else 20] * 2
        assert all(20 <= row.iterations <= (3000 if usual else 20) for row in rows if "delay" not in row.test)
    assert [line.status for line in ping_pong.of(LaunchEndLine)] == [0] * len(launches)


def test_lanes_are_those_that_ucx_logged(ping_pong: Finished) -> None:
    configs = {line.launch: line.config for line in ping_pong.of(LaunchLine)}
    for row in ping_pong.of(ProbeLine):
        assert row.selected
        if configs[row.launch] == "mine":
            assert {lane.partition("/")[0] for lane in row.selected} == {"sysv"}
            assert row.as_requested is True
            assert row.requested == {"UCX_NET_DEVICES": "lo", "UCX_TLS": "sysv,self", "UCX_RNDV_THRESH": "4096"}
        else:  # nothing of UCXX's own settings, which the driver may have in its environment
            assert row.requested == {"UCX_NET_DEVICES": "lo", "UCX_TLS": "^tcp"}
            assert row.as_requested is True
        assert "UCX 1." in row.method
        assert "numba" in row.method


def test_rates_follow_from_times(ping_pong: Finished) -> None:
    for row in ping_pong.of(ProbeLine):
        assert row.seconds > 0
        if "delay" in row.test:
            assert row.bandwidth_bytes_per_second is None
        else:
            assert row.bandwidth_bytes_per_second == pytest.approx(row.size / row.seconds)


def test_csv_agrees_with_the_records(ping_pong: Finished) -> None:
    files = {path.name: path.read_text().splitlines() for path in ping_pong.folder.glob("*.csv")}
    assert len(files) == 4 * len(ping_pong.of(LaunchLine))
    for row in ping_pong.of(ProbeLine):
        name, _, delay = row.test.partition("-")
        lines = files[f"{'delay' if delay else 'throughput'}-{name}-one-host-launch-{row.launch:03d}.csv"]
        cells = [line.split(",") for line in lines]
        if delay:
            assert cells[0] == ["type", "time"]
            assert float(cells[1][1]) == pytest.approx(row.seconds * 1e6, abs=1e-5)
        else:
            assert cells[0] == ["type", "msgsize", "time", "throughput"]
            (found,) = [cell for cell in cells[1:] if cell[1] == str(row.size)]
            assert float(found[2]) == pytest.approx(row.seconds * 2 * row.iterations * 1e6, rel=1e-6)
            assert float(found[3]) == pytest.approx(row.bandwidth_bytes_per_second * 8 / 1e6, rel=1e-5, abs=1e-6)


@pytest.mark.soak  # three ranks that poll on two cores take long
def test_osu_s_tests_between_every_pair(tmp_path: Path) -> None:
    options = ("--pattern", "osu", "--sizes", "8193", "--placement", "every-pair", "--workers", "3")
    found = run(tmp_path, MPI, *options, "--iterations", "10").check_ended(0)
    rows = found.of(ProbeLine)
    assert [tuple(row.ranks) for row in rows] == [(0, 1)] * 2 + [(0, 2)] * 2 + [(1, 2)] * 2
    assert [row.test for row in rows[:2]] == ["osu_latency", "osu_bw"]
    assert {row.iterations for row in rows} == {10}
    for row in rows:
        if row.test == "osu_bw":
            assert row.bandwidth_bytes_per_second == pytest.approx(row.size / row.seconds)
    assert len(found.document["rows"]) == 6
    assert len(found.of(LaunchLine)[0].workers) == 3


@pytest.mark.soak
def test_osu_repeats_as_often_as_osu_does(tmp_path: Path) -> None:
    rows = run(tmp_path, MPI, "--pattern", "osu", "--sizes", "8193").check_ended(0).of(ProbeLine)
    assert [(row.test, row.size, row.iterations) for row in rows] == [("osu_latency", 8193, 1000), ("osu_bw", 8193, 20)]


@pytest.mark.soak
def test_without_shared_memory_it_runs_over_tcp(tmp_path: Path) -> None:
    if not set(network.addresses_by_interface()) - {"lo"}:
        pytest.skip("this machine has only lo, over which UCX 1.20 finds no way")
    options = ("--sizes", "1K", "--iterations", "20")
    rows = run(tmp_path, MPI, *options, environ={"UCX_TLS": "tcp"}).check_ended(0).of(ProbeLine)
    assert all(lane.startswith("tcp/") for row in rows for lane in row.selected)
    assert {row.as_requested for row in rows} == {True}


def check_failed(finished: Finished, *parts: str) -> None:
    finished.check_ended(3)
    assert len(finished.of(LaunchEndLine)) == 1
    for part in parts:
        assert part in finished.failure.message
        assert part in finished.errors.splitlines()[0]


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_a_killed_rank_is_named(begin: Begin, mpirun: str) -> None:
    running = begin("--mpirun", mpirun)
    ranks = up(running)
    os.kill(ranks[1], signal.SIGKILL)
    since = time.monotonic()
    finished = running.finish()
    assert time.monotonic() - since < IN_TIME
    check_failed(finished, f"rank 1 (process {ranks[1]})", "was killed by signal 9")
    assert finished.failure.rank == 1
    assert finished.failure.host
    assert finished.failure.log_tail


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_a_frozen_rank_ends_the_launch(begin: Begin, mpirun: str) -> None:
    running = begin("--timeout", "2", "--mpirun", mpirun)
    os.kill(up(running)[1], signal.SIGSTOP)
    since = time.monotonic()
    finished = running.finish()
    assert time.monotonic() - since < IN_TIME
    check_failed(finished, "the ranks reported nothing for 4 s")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_signal_leaves_nothing_behind(begin: Begin, number: signal.Signals) -> None:
    running = begin()
    up(running)
    os.kill(running.process.pid, number)
    check_failed(running.finish(), f"interrupted by {number.name}")


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_a_killed_driver_leaves_no_rank_behind(begin: Begin, mpirun: str) -> None:
    running = begin("--mpirun", mpirun)
    up(running)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    deadline = time.monotonic() + 10
    while left := leftovers.processes(running.temp):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_settings_that_leave_ucx_no_way_are_refused_before_ranks_start(tmp_path: Path) -> None:
    """What mpirun prints where its own UCX has no way is in `test_mpirun_messages.py`."""
    found = run(tmp_path, MPI, "--sizes", "1", environ={"UCX_TLS": "tcp", "UCX_NET_DEVICES": "nosuch0"})
    assert found.status == 2
    assert "UCX_TLS=tcp with UCX_NET_DEVICES=nosuch0 leaves no transport" in found.errors


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_reduce_scatter_is_verified_and_rounds_up(tmp_path: Path, mpirun: str) -> None:
    options = ("--counts", "1001,16Ki", "--workers", "2", "--iterations", "20", "--mpirun", mpirun)
    found = run(tmp_path, REDUCE_SCATTER, *options)
    rows = found.check_ended(0).of(ProbeLine)
    assert [(row.test, row.count, row.size) for row in rows] == [
        ("mpi", 1002, 4008),
        ("mpi", 16384, 65536),
        ("reduces", 1002, 4008),
        ("reduces", 16384, 65536),
    ]
    for row in rows:
        assert row.wrong == 0
        assert (row.ranks, row.placement, row.iterations) == ([0, 1], "one-host", 20)
        assert row.seconds_min <= row.seconds <= row.seconds_max
        for rate, seconds in (
            (row.bandwidth_bytes_per_second, row.seconds),
            (row.bandwidth_max, row.seconds_min),
            (row.bandwidth_min, row.seconds_max),
        ):
            assert rate == pytest.approx(row.size / seconds / 2)
    told = [line for line in found.of(WarningLine) if line.code == "count-rounded"]
    assert ["1,001 elements are rounded up to 1,002" in line.message for line in told] == [True]


SABOTAGE = """
import sys
if any("probe.ranks.rank import" in word for word in sys.orig_argv):
    from merge_bench.probe.shared import exchange_matrix
    honest = exchange_matrix.fill_contributed_vector
    def contribute(vector, rank):
        honest(vector, rank)
        if rank == 1:
            vector[5] += 1
    exchange_matrix.fill_contributed_vector = contribute
"""


def test_one_wrong_element_ends_the_campaign_with_status_4(tmp_path: Path) -> None:
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SABOTAGE)
    found = run(
        tmp_path, REDUCE_SCATTER, "--counts", "64,128", "--iterations", "3", environ={"PYTHONPATH": f"{folder}:{ROOT}"}
    ).check_ended(4)
    assert [(row.count, row.wrong) for row in found.of(ProbeLine)] == [(64, 1)]
    assert found.failure.code == "wrong-result"
    assert "algorithm mpi: 1 of 64 elements in the result are wrong" in found.errors
