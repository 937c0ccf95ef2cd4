"""The libraries that tests play fail where real ones do: an engine that is broken on purpose does not pass."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.errors import MergeBenchError, RunFailed
from merge_bench.merge.engines import cudf as real
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.base import OutgoingParcel, Side
from merge_bench.merge.frame import Frame
from tests.helpers import fake_columns, fake_device, fake_rapids, merge_cases
from tests.helpers.fake_cuda import Driver
from tests.helpers.fake_device import (
    DEFAULT_STREAM,
    RELEASE,
    Block,
    CudaStreamFlags,
    Memory,
    Stream,
    at,
    counts,
    is_drained,
    read,
    room_for,
)
from tests.merge.engines.test_cuda_context import in_a_thread, install

WORKERS = 2
MODULES = ("gpu_memory", "cudf")  # in the order of their imports
LATE = "            self._stream.synchronize()\n"
SENT = "for side, maps in self._maps.items()]\n"
ROOM = "    stream.synchronize()  # until then kernels in the stream may use the same memory\n"
LOADED = "(maps, stream=self._stream)\n"
PACKED = "DeviceBytes(data.ptr, data.nbytes, data)"
LYING = "DeviceBytes(values.ptr, values.size, values)"
BEGIN = "        self._whole, self._own"
OWN = "            copy_device_bytes(source, target)\n"
MISTAKES = {
    "no context is bound": ("    bind_cuda_context()\n", ""),
    "the chunks may still be under way after load": (f"{LOADED}                self._stream.synchronize()\n", LOADED),
    "parcels are sent before they are partitioned": (f"{SENT}{LATE}", SENT),
    "room is given out while the stream may use it": (ROOM, ""),
    "the join may still be under way after join": (f"{LATE}        self._result =", "        self._result ="),
    "packed columns that are sent are freed": (PACKED, "DeviceBytes(data.ptr, data.nbytes)"),
    "a column that is sent is freed": (LYING, "DeviceBytes(values.ptr, values.size)"),
    "a parcel that arrives is freed": (
        "[DeviceBytes(memory.ptr, memory.size, memory) for",
        "[DeviceBytes(memory.ptr, memory.size) for",
    ),
    "packed columns are what pack gives": (PACKED, "data"),
    "a column is what libcudf gives": (LYING, "values"),
    "a call names no stream": ("pack(table, stream=self._stream)", "pack(table)"),
    "room is taken on the default stream": ("(size=size, stream=stream) for", "(size=size) for"),
    "own rows are copied on another stream": ("source.size, process_cuda_stream())", "source.size)"),
    "own rows are not copied": (OWN, "            pass\n"),
    "own rows are copied where others' lie": ("received.parcels[self.shape.rank]", "received.parcels[-1]"),
    "rows are received in another order than they are put together": (
        "enumerate(itertools.pairwise(edges))",
        "reversed(list(enumerate(itertools.pairwise(edges))))",
    ),
    "an iteration keeps the last one's result": (f"        self._result = None\n{BEGIN}", BEGIN),
}


@pytest.fixture(autouse=True)
def rapids(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver())
    fake_device.forget()


def engine_with(text: str, other: str) -> ModuleType:
    """The engine's modules with one text in them replaced."""
    sources = {path: inspect.getsource(sys.modules[f"merge_bench.merge.engines.{path}"]) for path in MODULES}
    assert sum(source.count(text) for source in sources.values()) == 1, "the engine has changed: mend the mistake"
    broken = ModuleType("")
    for name, source in sources.items():
        broken = sys.modules[f"broken_{name}"] = ModuleType(f"broken_{name}")
        ours = source.replace(text, other).replace("from merge_bench.merge.engines.gpu_", "from broken_gpu_")
        exec(compile(ours, f"broken_{name}.py", "exec"), vars(broken))
    return broken


def merge_whole(module: ModuleType) -> None:
    """Two workers merge twice; what each promises between its calls holds, and the rows are right."""
    for case in ("strings", "integers"):
        merge_case(module, case)


def merge_case(module: ModuleType, case: str) -> None:
    left, right = merge_cases.CASES[case][0]()
    lefts, rights = (merge_cases.chunks(table, WORKERS) for table in (left, right))
    engines = [module.CudfEngine(shape) for shape in merge_cases.shapes(lefts[0], rights[0], ("key",), WORKERS)]
    for engine, *frames in zip(engines, lefts, rights, strict=True):
        engine.load_chunks(*frames)
        assert is_drained()
    held = Memory.used
    for _ in range(2):
        for engine in engines:
            engine.begin_iteration()
        assert Memory.used == held
        exchange(engines)
        for engine in engines:
            engine.join_received_rows()
            assert is_drained()
    ours = pa.concat_tables([piece for engine in engines for piece in engine.result_tables()])
    assert counts[fake_device.ON_DEFAULT] == 0
    theirs = merge_cases.merge("polars", case, WORKERS, merge_cases.copy_host)
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


def exchange(engines: list[real.CudfEngine]) -> None:
    """As a run does it: partition both sides, make room, and only then let the bytes go."""
    outgoing: list[dict[Side, list[OutgoingParcel]]] = []
    for engine in engines:
        outgoing.append(engine.partition_chunks())
        assert is_drained()
    for side in Side:
        sent = [outgoing[1 - rank][side][rank] for rank in range(WORKERS)]
        boxes = [
            engine.make_receive_buffers(side, {1 - rank: sent[rank].header}) for rank, engine in enumerate(engines)
        ]
        for rank, box in enumerate(boxes):
            merge_cases.hand_over_runs(sent[rank].data, box[1 - rank], fake_rapids.copy)


@pytest.mark.slow
def test_the_engine_as_it_is_passes() -> None:
    merge_whole(real)


def test_it_passes_with_a_thread_for_each_worker() -> None:
    in_a_thread(lambda: merge_whole(real))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    module = engine_with(*MISTAKES[mistake])
    with pytest.raises((MergeBenchError, RuntimeError, AssertionError, TypeError, pa.ArrowInvalid)):
        merge_whole(module)


def test_without_a_context_the_reason_is_that_of_cuda() -> None:
    module = engine_with(*MISTAKES["no context is bound"])
    with pytest.raises(RunFailed, match=r"CUDA could not create a stream: .*invalid device context \(201\)"):
        merge_whole(module)


def test_in_a_thread_without_a_context_the_reason_is_that_of_cuda() -> None:
    frame = Frame.from_arrow(pa.table({"key": [1]}))
    engine = real.CudfEngine(merge_cases.shapes(frame, frame, ("key",), 1)[0])
    with pytest.raises(
        RunFailed, match=r"failed while copying the chunks to the GPU: .*invalid device context \(201\)"
    ):
        in_a_thread(lambda: engine.load_chunks(frame, frame))


@pytest.mark.parametrize("room", [1 << 20, 1 << 24])
def test_result_columns_fill_the_gpu_too(room: int) -> None:
    frame = Frame.from_arrow(pa.table({"key": [7] * 200, "a": range(200)}))
    other = Frame.from_arrow(pa.table({"key": [7] * 200, "c": range(200)}))
    engines = [real.CudfEngine(shape) for shape in merge_cases.shapes(frame, other, ("key",), WORKERS)]
    for engine in engines:
        engine.load_chunks(frame, other)
        engine.begin_iteration()
    exchange(engines)
    with room_for(room):  # one of them has 160,000 rows of 24 bytes, and their maps
        if room == 1 << 20:
            with pytest.raises(RunFailed, match="ran out of GPU memory while joining; use a smaller --chunk"):
                [engine.join_received_rows() for engine in engines]
        else:
            assert sorted(engine.join_received_rows() for engine in engines) == [0, 160_000]


def test_what_is_put_on_the_stream_is_not_done_until_it_is_drained() -> None:
    gpu_memory.bind_cuda_context()
    table = fake_columns.Table.from_arrow(pa.table({"a": [5]}), stream=DEFAULT_STREAM)
    part = table.columns()[0].data()
    assert at(part.ptr, 8).tobytes() != b"\5" + bytes(7)
    assert read(part.ptr, 8).tobytes() == b"\5" + bytes(7)
    DEFAULT_STREAM.synchronize()
    assert at(part.ptr, 8).tobytes() == b"\5" + bytes(7)


def test_a_view_keeps_the_memory_of_all_and_freed_memory_is_given_out_again() -> None:
    gpu_memory.bind_cuda_context()
    before = Memory.used
    whole = fake_columns.Table.from_arrow(pa.table({"a": range(100)}), stream=DEFAULT_STREAM)
    (half,) = fake_rapids.slice_(whole, [0, 50], stream=DEFAULT_STREAM)
    del whole
    assert Memory.used == before + 800
    assert half.to_arrow(["a"], stream=DEFAULT_STREAM)["a"].to_pylist() == list(range(50))
    place = half.columns()[0].data().ptr
    del half
    assert Memory.used == before
    DEFAULT_STREAM.synchronize()
    assert set(at(place, 800)) == {fake_device.FREED}
    assert Block(800, DEFAULT_STREAM).ptr == place


def test_work_on_one_stream_does_not_wait_for_another() -> None:
    gpu_memory.bind_cuda_context()
    ours, other = Stream(flags=CudaStreamFlags.NON_BLOCKING), Stream(flags=CudaStreamFlags.NON_BLOCKING)
    table = fake_columns.Table.from_arrow(pa.table({"a": [5]}), stream=ours)
    assert table.to_arrow(["a"], stream=ours)["a"].to_pylist() == [5]
    for stream in (other, None):
        assert table.to_arrow(["a"], stream=stream)["a"].to_pylist() != [5]
    ours.synchronize()
    assert table.to_arrow(["a"], stream=other)["a"].to_pylist() == [5]


def test_memory_that_one_stream_freed_is_another_s_when_it_is_given_out() -> None:
    gpu_memory.bind_cuda_context()
    ours, other = Stream(flags=CudaStreamFlags.NON_BLOCKING), Stream(flags=CudaStreamFlags.NON_BLOCKING)
    first = Block(8, ours)
    place = first.ptr
    del first
    second = Block(8, other, np.full(8, 7, np.uint8))
    assert second.ptr == place
    other.synchronize()
    ours.synchronize()
    assert set(at(place, 8)) == {7}


@pytest.mark.parametrize(("own", "waits"), [(True, 0), (False, 5)])
def test_what_libcudf_makes_on_the_default_stream_is_waited_for(own: bool, waits: int) -> None:
    gpu_memory.bind_cuda_context()
    stream = Stream(flags=CudaStreamFlags.NON_BLOCKING) if own else DEFAULT_STREAM
    words = pa.array(["x", None], pa.large_string())
    table = fake_columns.Table.from_arrow(pa.table({"a": [5, 6], "b": words}), stream=stream)
    assert counts[RELEASE] == 0  # it stays libcudf's
    fake_rapids.concatenate([table, table], stream=stream)  # values; validity, offsets and bytes
    fake_columns.pack(table, stream=stream).release()
    assert counts[RELEASE] == waits
    assert is_drained() is not own


@pytest.mark.parametrize("values", [[1, 2, 3], [1, None, 3]])
def test_a_column_without_nulls_has_no_mask(values: list[int | None]) -> None:
    gpu_memory.bind_cuda_context()
    with_mask = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\7"), pa.array([1, 2, 3]).buffers()[1]])
    array = with_mask if None not in values else pa.array(values)
    table = fake_columns.Table.from_arrow(pa.table({"a": array}), stream=DEFAULT_STREAM)
    description, data = fake_columns.pack(table, stream=DEFAULT_STREAM).release()
    back = fake_columns.unpack_from_memoryviews(description, data, stream=DEFAULT_STREAM)
    for each in (table, back):
        assert (each.columns()[0].null_mask() is None) == (None not in values)
        assert each.to_arrow(["a"], stream=DEFAULT_STREAM)["a"].to_pylist() == values
