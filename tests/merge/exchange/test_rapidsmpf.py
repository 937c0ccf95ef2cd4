"""The data plane rapidsmpf: what it refuses, and whole merges with fakes."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
import pytest

from merge_bench.campaign import machine_checks
from merge_bench.campaign.machine_checks import MachineResources
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.exchange import find_data_plane
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.records.schema import LaunchLine, MemoryLine
from tests.cluster.test_gpu_workers import PRETENCE, WITHOUT_DRIVER
from tests.helpers import fake_rapids, fake_rapidsmpf, merge_cases, plans
from tests.helpers.joins import of_case, tidy
from tests.helpers.members import install_empty
from tests.helpers.plans import settled
from tests.helpers.rapidsmpf_ranks import merge_ranks, plan_of
from tests.helpers.runs import run, start


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "native"}, "--exchange rapidsmpf needs --engine cudf, not native"),
        ({"pipeline": "on"}, "--pipeline on needs --exchange ucx, not rapidsmpf; use --pipeline off"),
        ({"runtime_filter": "on"}, "--exchange rapidsmpf has no runtime filter"),
        ({"timeline": "on"}, "--timeline on needs --exchange ucx"),
        ({"distribution": "broadcast"}, "--exchange rapidsmpf sends no table whole; use --distribution shuffle"),
        ({"require_transport": ("cuda_ipc",)}, "--require-transport needs --exchange ucx"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    from merge_bench.campaign.make_plan import options_of_each_run

    with pytest.raises(UsageError, match=message):
        options_of_each_run(settled({"exchange": "rapidsmpf", "workers": 2, **options}), {})


def test_without_gpus_auto_is_no_engine_for_it() -> None:
    from merge_bench.campaign.make_plan import choose_engine

    with pytest.raises(UsageError, match="--exchange rapidsmpf needs --engine cudf"):
        choose_engine(settled({"exchange": "rapidsmpf"}), has_gpus=False)


def test_auto_chooses_a_shuffle_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_empty(monkeypatch, tmp_path, "pylibcudf")
    options = {"exchange": "rapidsmpf", "engine": "cudf", "distribution": "auto", "chunk": 1000, "workers": 2}
    chosen = plans.plan_of(MachineResources(gpus=2), **options).distribution
    assert (chosen.sent, chosen.reason) == (None, "--exchange rapidsmpf needs a shuffle")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_empty(monkeypatch, tmp_path, "pylibcudf", "rapidsmpf")
    monkeypatch.setitem(sys.modules, "cudf_streaming", None)
    assert find_data_plane("rapidsmpf").missing_package == "cudf_streaming"
    with pytest.raises(UsageError, match="--exchange rapidsmpf needs the package cudf_streaming, which is not inst"):
        machine_checks.check_packages_installed(plan_of(2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "workers"),
    [
        ("integers", 2),
        ("decimals", 1),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("integers", 4), ("strings", 2), ("strings", 4), ("no match", 4), ("no rows", 2))
        ),
    ],
)
def test_same_rows_as_polars(case: str, workers: int) -> None:
    make, keys = merge_cases.CASES[case]
    ranks = merge_ranks(make(), keys, workers, prepare=fake_rapidsmpf.install)
    theirs = merge_cases.merge("polars", case, workers, merge_cases.copy_host)
    ours = pa.concat_tables([rank.table for rank in ranks])
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [JoinKind.OUTER, *(pytest.param(how, marks=pytest.mark.soak) for how in JoinKind if how is not JoinKind.OUTER)],
)
def test_every_kind_of_join(how: JoinKind) -> None:
    make, keys = merge_cases.CASES["nulls and NaN"]
    left, right = (merge_cases.canonical(table) for table in make())
    ranks = merge_ranks((left, right), keys, 2, how=how, prepare=fake_rapidsmpf.install)
    found = pa.concat_tables(tidy(rank.table, left, right, keys, how) for rank in ranks)
    assert merge_cases.rows_of(found) == of_case("nulls and NaN", how)


@pytest.mark.slow
def test_what_is_recorded_of_a_merge() -> None:
    make, keys = merge_cases.CASES["integers"]
    first, second = merge_ranks(make(), keys, 2, prepare=fake_rapidsmpf.install, iterations=3)
    for ours, theirs in ((first, second), (second, first)):
        worker, (pair,) = ours.measured.worker, ours.measured.pairs
        sent = worker.sent_bytes.left + worker.sent_bytes.right
        assert ours.statistics[fake_rapidsmpf.SENT] == 3 * sent > 0  # three iterations of the same rows
        assert (pair.from_rank, pair.to_rank) == (theirs.measured.worker.rank, worker.rank)
        assert pair.bytes == theirs.measured.worker.sent_bytes.left + theirs.measured.worker.sent_bytes.right
        assert 0 < worker.flight_seconds.union <= worker.phases_seconds.exchange <= worker.seconds
    assert first.measured.worker.received_rows.left + second.measured.worker.received_rows.left == 5000


@pytest.mark.cluster
def test_a_run_is_verified_and_records_its_statistics(tmp_path: Path) -> None:
    pytest.importorskip("dask_cuda")
    words = ("--exchange", "rapidsmpf", "--engine", "cudf", "--workers", "2", "--workers-per-gpu", "2")
    environ = {"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER}
    finished = run(tmp_path, *words, "--chunk", "3000", "--iterations", "2", environ=environ).check_ended(0)
    assert finished.document["verified"]
    assert finished.document["plan"]["exchange"] == "rapidsmpf"
    assert finished.document["bandwidth_bytes_per_second"]["harmonic_mean"] > 0
    (memory,) = finished.of(MemoryLine)
    assert all(worker.exchange_statistics[fake_rapidsmpf.RECEIVED] > 0 for worker in memory.workers)


@pytest.mark.cluster
@pytest.mark.soak
def test_a_worker_that_dies_ends_the_run(tmp_path: Path) -> None:
    pytest.importorskip("dask_cuda")
    words = ("--exchange", "rapidsmpf", "--engine", "cudf", "--workers", "2", "--workers-per-gpu", "2")
    environ = {"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER}
    endless = ("--chunk", "1000", "--iterations", "1_000_000", "--verify", "off")
    running = start(tmp_path, *words, *endless, environ=environ)
    try:
        running.until_merging(1)
        (launch,) = [line for line in running.lines() if isinstance(line, LaunchLine)]
        psutil.Process(launch.workers[1].pid).kill()
        finished = running.finish(60).check_ended(3)
    finally:
        running.end()
    assert finished.failure.rank == 1


# --- waits --------------------------------------------------------------------------------------------------------


class Alone:
    """The control of a rank whose peers answer every barrier, and send no row."""

    workers, address = 2, b"alone"

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def connect(self, addresses: Any) -> None: ...

    def transfer(self, sends: Any, receives: Any, *, note_batches: bool = False) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """RAPIDS' libraries, played, with a context in this thread."""
    from merge_bench.merge.engines import gpu_memory

    for name, module in (fake_rapids.modules() | fake_rapidsmpf.modules()).items():
        monkeypatch.setitem(sys.modules, name, module)
    gpu_memory.bind_cuda_context()


def lonely(abort: AbortFlag, timeout: float) -> Any:
    """A data plane of two ranks that is connected; the other rank sends nothing."""
    from merge_bench.merge.exchange.rapidsmpf import RapidsmpfExchange

    plane = RapidsmpfExchange(Alone(), abort=abort, timeout=timeout)
    _, root = msgspec.msgpack.decode(plane.address)
    threading.Thread(target=_join_and_leave, args=(Path(root.decode()),), daemon=True).start()
    plane.connect([plane.address, plane.address])
    return plane


def _join_and_leave(folder: Path) -> None:
    fake_rapidsmpf.barrier(_join(folder))


def _join(folder: Path) -> fake_rapidsmpf.Communicator:
    return fake_rapidsmpf.Communicator(folder, 2, fake_rapidsmpf.Statistics(enable=True))


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("aborted", [True, False])
def test_a_peer_that_sends_nothing_ends_the_wait(aborted: bool) -> None:
    abort = AbortFlag()
    plane = lonely(abort, 30.0 if aborted else 0.5)
    table = fake_rapids.Table.from_arrow(pa.table({"key": [1, 2, 3], "a": [4, 5, 6]}))
    packed = plane.partition_and_pack_table(table, [0])
    if aborted:
        threading.Timer(0.2, abort.abort_run, ("rank 1 died",)).start()
    message = "rank 1 died" if aborted else "rank 0 was waiting for rows over rapidsmpf for . s without progress"
    with pytest.raises(RunFailed, match=message):
        plane.shuffle([packed])
    plane.close()


@pytest.mark.usefixtures("libraries")
def test_a_failing_shuffle_does_not_free_the_shuffler() -> None:
    plane = lonely(AbortFlag(), 30.0)
    table = fake_rapids.Table.from_arrow(pa.table({"key": [1, 2, 3]}))
    packed = plane.partition_and_pack_table(table, [0])
    used = replace(packed, chunks={rank: _used(chunk) for rank, chunk in packed.chunks.items()})
    with pytest.raises(RunFailed, match="rapidsmpf failed on rank 0 while exchanging rows: PackedData was empty"):
        plane.shuffle([used])  # freed before `insert_finished`, the `Shuffler` would have ended this process


def _used(chunk: Any) -> Any:
    chunk.content = None
    return chunk


@pytest.mark.usefixtures("libraries")
def test_a_rank_that_rapidsmpf_numbers_differently_is_an_error(tmp_path: Path) -> None:
    """Ranks are numbered as they come, and before rank 1 there came another one than the root."""
    from merge_bench.merge.exchange.rapidsmpf import RapidsmpfExchange

    for _ in range(2):
        _join(tmp_path)
    (tmp_path / "barrier-1-0").touch()  # the root waits for ranks to join
    plane = RapidsmpfExchange(Alone(rank=1), abort=AbortFlag(), timeout=30.0)
    root = msgspec.msgpack.encode((b"alone", str(tmp_path).encode()))
    with pytest.raises(RunFailed, match="rapidsmpf numbers rank 1 of 2 as 2 of 2"):
        plane.connect([root, plane.address])
