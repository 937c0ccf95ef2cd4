"""The steps of the engine cudf, with pylibcudf and RMM replaced by host memory; and its errors without a GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.distribution import broadcastable_sides
from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.engines.cudf import CudfEngine
from merge_bench.merge.engines.gpu_memory import (
    DeviceBytes,
    GpuMemoryUsage,
    inspect_gpu_memory,
    pool_bytes_per_worker,
    set_up_memory_pool,
)
from merge_bench.merge.frame import Frame
from tests.helpers import fake_columns, fake_rapids, merge_cases
from tests.helpers.fake_cuda import Driver
from tests.helpers.fake_device import Memory, room_for
from tests.helpers.joins import of_case, tidy
from tests.helpers.process_pair import big_tables, check_pair, run_pair


def pretend(monkeypatch: pytest.MonkeyPatch, driver: Driver | None = None) -> None:
    for name, module in fake_rapids.modules(driver).items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def rapids(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("case", merge_cases.CASES)
def test_same_rows_as_polars(case: str, workers: int) -> None:
    ours = merge_cases.merge("cudf", case, workers, fake_rapids.copy, iterations=2)
    theirs = merge_cases.merge("polars", case, workers, merge_cases.copy_host)
    assert ours.schema.names == theirs.schema.names
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


@pytest.mark.slow
@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("how", "sent"), [(how, side) for how in JoinKind for side in broadcastable_sides(how)])
@pytest.mark.parametrize("case", ["strings", "nulls and NaN", "several keys", "decimals", "no rows"])
def test_a_side_is_sent_whole(case: str, how: JoinKind, sent: Side, workers: int) -> None:
    make, keys = merge_cases.CASES[case]
    left, right = (merge_cases.canonical(table) for table in make())
    pieces = merge_cases.merge_tables("cudf", (left, right), keys, workers, fake_rapids.copy, 2, how, sent)
    found = pa.concat_tables(tidy(piece, left, right, keys, how) for piece in pieces)
    assert merge_cases.rows_of(found) == of_case(case, how)


@pytest.mark.usefixtures("rapids")
def test_the_chunk_that_stays_is_joined_where_it_is() -> None:
    left = Frame.from_arrow(pa.table({"key": np.arange(20), "a": np.arange(20)}))
    right = Frame.from_arrow(pa.table({"key": np.arange(10), "c": [None, *range(9)]}))
    shape = replace(merge_cases.shapes(left, right, ("key",), 3)[1], sent=Side.RIGHT, sent_rows=30)
    engine = CudfEngine(shape)
    engine.load_chunks(left, right)
    engine.begin_iteration()
    before = Memory.used
    outgoing = engine.partition_chunks()
    assert [part.data.nbytes for part in outgoing[Side.LEFT]] == [0, 0, 0]
    assert len({part.data.nbytes for part in outgoing[Side.RIGHT]}) == 1
    assert Memory.used - before < 20 * 16  # nothing of the left chunk is copied
    for side in Side:
        boxes = engine.make_receive_buffers(side, {source: outgoing[side][source].header for source in (0, 2)})
        for box in boxes.values():
            merge_cases.hand_over_runs(outgoing[side][0].data, box, fake_rapids.copy)
    assert engine.join_received_rows() == 30
    assert engine.received_row_counts() == {"left": 20, "right": 30}


@pytest.mark.slow
@pytest.mark.parametrize("message_bytes", [pytest.param(0, marks=pytest.mark.soak), 5000])
def test_two_processes_exchange_over_ucx(message_bytes: int) -> None:
    left, right, keys = big_tables(4000)
    check_pair(left, right, keys, run_pair(left, right, keys, message_bytes, prepare=fake_rapids.install))


@pytest.mark.usefixtures("rapids")
def test_result_types_are_those_of_the_fields() -> None:
    left, _ = merge_cases.CASES["every type"][0]()
    result = merge_cases.merge("cudf", "every type", 2, fake_rapids.copy)
    assert [result.schema.field(name).type for name in left.column_names] == [
        merge_cases.canonical(left).schema.field(name).type for name in left.column_names
    ]


@pytest.mark.usefixtures("rapids")
def test_results_come_in_bounded_pieces() -> None:
    class SmallPieces(CudfEngine):
        piece_rows = 7

    engine = loaded(kind=SmallPieces)
    engine.begin_iteration()
    engine.partition_chunks()
    assert engine.join_received_rows() == 20
    assert [piece.num_rows for piece in engine.result_tables()] == [7, 7, 6]
    assert engine.peak_device_bytes() >= 20 * 8 * 7  # chunks and result, of which each column has 20 rows


def loaded(
    workers: int = 1,
    *,
    nulls: bool = False,
    rank: int = 0,
    key_bytes: int = 8,
    kind: type[CudfEngine] = CudfEngine,
) -> CudfEngine:
    """An engine with 20 rows a side; `nulls`: in the left payload; `key_bytes`: said of left keys, which have 8."""
    left = Frame.from_arrow(pa.table({"key": np.arange(20), "a": [None if nulls else 0, *range(1, 20)]}))
    right = Frame.from_arrow(pa.table({"key": np.arange(20), "c": np.arange(20)}))
    shape = merge_cases.shapes(left, right, ("key",), workers)[rank]
    key, *others = shape.left
    engine = kind(replace(shape, left=(replace(key, width=key_bytes), *others)))
    engine.load_chunks(left, right)
    return engine


@pytest.mark.usefixtures("rapids")
def test_what_an_iteration_held_is_given_back() -> None:
    engine = loaded(workers=2)
    before = Memory.used
    for _ in range(3):
        engine.begin_iteration()
        assert Memory.used == before
        outgoing = engine.partition_chunks()
        engine.make_receive_buffers(Side.LEFT, {1: outgoing[Side.LEFT][1].header})
        assert Memory.used > before
        del outgoing


@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_that_match_nothing_do_not_travel(missing: float | None) -> None:
    frame = Frame.from_arrow(pa.table({"key": pa.array([missing] * 9, pa.float64())}))
    engine = CudfEngine(merge_cases.shapes(frame, frame, ("key",), 3)[1])
    engine.load_chunks(frame, frame)
    engine.begin_iteration()
    outgoing = engine.partition_chunks()
    for side in Side:
        assert [part.data.nbytes for part in outgoing[side]] == [0, 0, 0]
        engine.make_receive_buffers(side, {source: outgoing[side][source].header for source in (0, 2)})
    assert engine.join_received_rows() == 0
    assert [piece.num_rows for piece in engine.result_tables()] == [0]


@pytest.mark.usefixtures("rapids")
def test_a_full_gpu_is_one_sentence() -> None:
    engine = loaded(workers=2)
    engine.begin_iteration()
    message = "rank 0 ran out of GPU memory while partitioning the left frame; use"
    with room_for(0), pytest.raises(RunFailed, match=message):
        engine.partition_chunks()


@pytest.mark.usefixtures("rapids")
def test_a_description_longer_than_its_room_is_told() -> None:
    engine = loaded(workers=2, nulls=True)
    engine.begin_iteration()
    message = r"needs 1016 bytes to describe the columns of the left frame, but .* only 192"
    with fake_columns.columns_described_in(1000), pytest.raises(RunFailed, match=message):
        engine.partition_chunks()


@pytest.mark.usefixtures("rapids")
def test_a_column_of_another_size_than_its_field_s_is_told() -> None:
    engine = loaded(workers=2, key_bytes=4)
    engine.begin_iteration()
    with pytest.raises(
        RunFailed, match="holds column 'key' in 160 bytes, but engine cudf expects 80; use another --engine"
    ):
        engine.partition_chunks()


@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("numbers", [(-1, 10, 5), (3, -1, 5), (3, 10**6, 5), (3, 10, -5)])
def test_a_header_of_something_else_is_refused(numbers: tuple[int, int, int]) -> None:
    engine = loaded(workers=2, nulls=True)
    engine.begin_iteration()
    engine.partition_chunks()
    header = np.zeros(engine.parcel_header_bytes(Side.LEFT), np.uint8)
    header[:24].view(np.int64)[:] = numbers
    with pytest.raises(RunFailed, match="rank 0 received an invalid header from rank 1"):
        engine.make_receive_buffers(Side.LEFT, {1: header})


@pytest.mark.usefixtures("rapids")
def test_more_rows_than_a_table_holds_are_refused_before_memory_is_taken() -> None:
    engine = loaded(workers=2)
    engine.begin_iteration()
    engine.partition_chunks()
    before = Memory.used
    header = np.zeros(engine.parcel_header_bytes(Side.LEFT), np.uint8)
    header[:24].view(np.int64)[:] = 2**31, 0, 0
    with pytest.raises(RunFailed, match=r"rank 0 received 2,147,483,... rows of the left table"):
        engine.make_receive_buffers(Side.LEFT, {1: header})
    assert Memory.used == before


@pytest.mark.usefixtures("rapids")
def test_columns_without_nulls_are_sent_from_the_partition_and_received_in_one_buffer_each() -> None:
    first, second = (loaded(workers=2, nulls=True, rank=rank) for rank in range(2))
    for engine in (first, second):
        engine.begin_iteration()
    ours, theirs = (engine.partition_chunks()[Side.LEFT] for engine in (first, second))
    assert [run.nbytes % 8 for run in ours[1].data.runs[:-1]] == [0]  # the key; the other column has nulls
    (key, packed), (key_of_own, _) = ours[1].data.runs, ours[0].data.runs
    assert key.ptr == key_of_own.ptr + key_of_own.nbytes
    assert key.owner is key_of_own.owner
    box = first.make_receive_buffers(Side.LEFT, {1: theirs[0].header})[1]
    assert [run.nbytes for run in box.runs] == [run.nbytes for run in theirs[0].data.runs]
    assert box.runs[0].owner.size == key_of_own.nbytes + box.runs[0].nbytes
    assert packed.nbytes > 0


@pytest.mark.usefixtures("rapids")
def test_too_many_rows_for_one_table_are_refused() -> None:
    engine = loaded()
    frame = Frame(engine.shape.left, (), 2**31)
    with pytest.raises(UsageError, match="the left chunk has 2,147,483,648 rows, but engine cudf can hold only"):
        engine.load_chunks(frame, frame)


def test_slices_of_device_bytes() -> None:
    whole = DeviceBytes(1000, 100, "owner")
    part = whole[30:40][2:]
    assert (part.ptr, part.nbytes, part.owner) == (1032, 8, "owner")
    assert whole[90:200].size == 10
    assert whole[100:].size == 0
    with pytest.raises(ValueError, match="no steps"):
        whole[::2]


def test_without_a_gpu_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Driver(installed=False))
    shape = merge_cases.shapes(*[Frame.from_arrow(pa.table({"key": [1]}))] * 2, ("key",), 1)[0]
    for start in (lambda: import_engine_class("cudf")(shape), lambda: set_up_memory_pool(None)):
        with pytest.raises(UsageError, match="engine cudf needs an NVIDIA GPU"):
            start()


def test_without_the_packages_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(UsageError, match="engine cudf cannot be loaded: "):
        set_up_memory_pool(None)


def test_importing_the_module_needs_none_of_it() -> None:
    code = (
        "import sys, merge_bench.merge.engines.cudf; print({'pylibcudf', 'rmm', 'cuda', 'pynvml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("asked", "workers", "free", "size"),
    [
        (None, 1, 95, 90_000_000_000),  # of the whole
        (None, 4, 95, 22_500_000_000),
        (None, 1, 80, 72_000_000_000),  # of what is free, where others have more than the rest
        (None, 4, 20, 4_500_000_000),
        (30 * 10**9 + 7, 1, 80, 30 * 10**9),  # rounded down to RMM's alignment
        (20 * 10**9, 4, 80, 20 * 10**9),
    ],
)
def test_size_of_the_pools_on_one_gpu(asked: int | None, workers: int, free: int, size: int) -> None:
    found = [GpuMemoryUsage((free + other) * 10**9, 100 * 10**9) for other in range(workers)]
    each = pool_bytes_per_worker(asked, found)
    assert size - 256 < each <= size
    assert each % 256 == 0
    assert each * workers <= free * 10**9


def test_pools_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"3 RMM pools of 27\.94 GiB do not fit on the GPU, which has 74\.5. GiB of 93\.1. GiB"
    ):
        pool_bytes_per_worker(30 * 10**9, [GpuMemoryUsage(80 * 10**9, 100 * 10**9)] * 3)


@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize(("asked", "size"), [(None, 72_000_000_000), (30 * 10**9 + 7, 30 * 10**9)])
def test_the_pool_that_is_made(asked: int | None, size: int) -> None:
    assert inspect_gpu_memory() == GpuMemoryUsage(80 * 10**9, 100 * 10**9)
    made = set_up_memory_pool(asked)
    assert size - 256 < made <= size
    pool = fake_rapids.Device.resource
    assert isinstance(pool, fake_rapids.PoolMemoryResource)
    assert isinstance(pool.get_upstream(), fake_rapids.CudaMemoryResource)
    assert pool.maximum == made  # RMM's pool grows to what is free on the GPU, where another worker may have its share
    assert inspect_gpu_memory() is None
    assert set_up_memory_pool(None) == made
    assert fake_rapids.Device.resource is pool


@pytest.mark.usefixtures("rapids")
def test_a_pool_that_does_not_fit() -> None:
    with pytest.raises(
        UsageError, match=r"an RMM pool of 83\.8. GiB does not fit on the GPU, which has 74\.5. GiB of 93\.1. GiB"
    ):
        set_up_memory_pool(90 * 10**9)


@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("base", [fake_rapids.CudaAsyncMemoryResource, fake_rapids.ManagedMemoryResource])
def test_memory_that_no_other_process_can_open_is_refused(base: type[fake_rapids.DeviceMemoryResource]) -> None:
    fake_rapids.Device.set(fake_rapids.UpstreamResourceAdaptor(base()))
    with pytest.raises(UsageError, match=f"CUDA IPC cannot send device memory allocated by RMM's {base.__name__}"):
        set_up_memory_pool(None)
