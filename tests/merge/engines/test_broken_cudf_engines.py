"""The libraries that tests play fail where real ones do: an engine that is broken on purpose does not pass."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import pyarrow as pa
import pytest

from merge_bench.errors import RunFailed
from merge_bench.host import cuda_context
from merge_bench.merge.engines import cudf as real
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.base import Outgoing, Side
from merge_bench.merge.frame import Frame
from tests.helpers import fake_columns, fake_device, fake_rapids, merge_cases
from tests.helpers.fake_device import DEFAULT_STREAM, Block, Memory, at, is_drained, room_for
from tests.host.test_cuda_context import in_a_thread, install

WORKERS = 2
LATE = "            stream.synchronize()\n"
ROOM = "    stream.synchronize()  # until then kernels in the stream may use the same memory\n"
LOADED = "stored, stream=self._stream)\n"
PACKED = "DeviceBytes(data.ptr, data.nbytes, data)"
BEGIN = "        self._whole = {}\n        self._parcels"
MISTAKES = {
    "no context is bound": ("    cuda_context.bind()\n", ""),
    "the chunks may still be under way after load": (f"{LOADED}                self._stream.synchronize()\n", LOADED),
    "parcels are sent before they are packed": (f"{LATE}        self._parcels", "        self._parcels"),
    "room is given out while the stream may use it": (ROOM, ""),
    "the join may still be under way after join": (f"{LATE}        self._result", "        self._result"),
    "a parcel that is sent is freed": (PACKED, "DeviceBytes(data.ptr, data.nbytes)"),
    "a parcel that arrives is freed": (
        "return DeviceBytes(memory.ptr, size, memory)",
        "return DeviceBytes(memory.ptr, size)",
    ),
    "a parcel is what pack gives": (PACKED, "data"),
    "a call names no stream": ("pack(part, stream=self._stream)", "pack(part)"),
    "an iteration keeps the last one's result": (f"        self._result = None\n{BEGIN}", BEGIN),
}


@pytest.fixture(autouse=True)
def rapids(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_device.Driver())
    DEFAULT_STREAM._due.clear()


def engine_with(text: str, other: str) -> ModuleType:
    """The engine's modules with one text in them replaced."""
    sources = {name: inspect.getsource(module) for name, module in (("memory", gpu_memory), ("engine", real))}
    assert sum(source.count(text) for source in sources.values()) == 1, "the engine has changed: mend the mistake"
    broken = {}
    for name, source in sources.items():
        broken[name] = sys.modules[f"broken_{name}"] = ModuleType(f"broken_{name}")
        ours = source.replace(text, other).replace("from merge_bench.merge.engines.gpu_memory", "from broken_memory")
        exec(compile(ours, f"broken_{name}.py", "exec"), vars(broken[name]))
    return broken["engine"]


def merge_whole(module: ModuleType) -> None:
    """Two workers merge twice; what each promises between its calls holds, and the rows are right."""
    left, right = merge_cases.CASES["strings"][0]()
    lefts, rights = (merge_cases.chunks(table, WORKERS) for table in (left, right))
    engines = [module.CudfEngine(shape) for shape in merge_cases.shapes(lefts[0], rights[0], ("key",), WORKERS)]
    for engine, *frames in zip(engines, lefts, rights, strict=True):
        engine.load(*frames)
        assert is_drained()
    held = Memory.used
    for _ in range(2):
        for engine in engines:
            engine.begin()
        assert Memory.used == held
        exchange(engines)
        for engine in engines:
            engine.join()
            assert is_drained()
    ours = pa.concat_tables([piece for engine in engines for piece in engine.results()])
    theirs = merge_cases.merge("polars", "strings", WORKERS, merge_cases.copy_host)
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


def exchange(engines: list[real.CudfEngine]) -> None:
    """As a run does it: partition both sides, make room, and only then let the bytes go."""
    outgoing: dict[Side, list[list[Outgoing]]] = {side: [] for side in Side}
    for side in Side:
        for engine in engines:
            outgoing[side].append(engine.partition(side))
            assert is_drained()
    for side in Side:
        boxes = [
            engine.inbox(side, 1 - rank, outgoing[side][1 - rank][rank].header) for rank, engine in enumerate(engines)
        ]
        for rank, box in enumerate(boxes):
            fake_rapids.copy(outgoing[side][1 - rank][rank].data, box)


def test_the_engine_as_it_is_passes() -> None:
    merge_whole(real)


def test_it_passes_with_a_thread_for_each_worker() -> None:
    in_a_thread(lambda: merge_whole(real))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    module = engine_with(*MISTAKES[mistake])
    with pytest.raises((RunFailed, RuntimeError, AssertionError, TypeError, pa.ArrowInvalid)):
        merge_whole(module)


def test_without_a_context_the_reason_is_that_of_cuda() -> None:
    module = engine_with(*MISTAKES["no context is bound"])
    with pytest.raises(
        RunFailed, match=r"failed while copying the chunks to the GPU: .*invalid device context \(201\)"
    ):
        merge_whole(module)


@pytest.mark.parametrize("room", [1 << 20, 1 << 24])
def test_result_columns_fill_the_gpu_too(room: int) -> None:
    frame = Frame.from_arrow(pa.table({"key": [7] * 200, "a": range(200)}))
    other = Frame.from_arrow(pa.table({"key": [7] * 200, "c": range(200)}))
    engines = [real.CudfEngine(shape) for shape in merge_cases.shapes(frame, other, ("key",), WORKERS)]
    for engine in engines:
        engine.load(frame, other)
        engine.begin()
    exchange(engines)
    owner = max(engines, key=lambda engine: sum(parcel.data.size for parcel in engine._parcels[Side.LEFT]))
    with room_for(room):  # 160,000 rows of 24 bytes, and their maps
        if room == 1 << 20:
            with pytest.raises(RunFailed, match="ran out of GPU memory while joining; use a smaller --chunk"):
                owner.join()
        else:
            assert owner.join() == 160_000


def test_what_is_put_on_the_stream_is_not_done_until_it_is_drained() -> None:
    cuda_context.bind()
    table = fake_columns.Table.from_arrow(pa.table({"a": [5]}), stream=DEFAULT_STREAM)
    (part,) = [part for part in table.columns()[0]._parts if part]
    assert at(part.ptr, 8).tobytes() != b"\5" + bytes(7)
    assert part.bytes().tobytes() == b"\5" + bytes(7)
    DEFAULT_STREAM.synchronize()
    assert at(part.ptr, 8).tobytes() == b"\5" + bytes(7)


def test_a_view_keeps_the_memory_of_all_and_freed_memory_is_given_out_again() -> None:
    cuda_context.bind()
    before = Memory.used
    whole = fake_columns.Table.from_arrow(pa.table({"a": range(100)}), stream=DEFAULT_STREAM)
    (half,) = fake_rapids.slice_(whole, [0, 50], stream=DEFAULT_STREAM)
    del whole
    assert Memory.used == before + 800
    assert half.to_arrow(["a"], stream=DEFAULT_STREAM)["a"].to_pylist() == list(range(50))
    (part,) = [part for part in half.columns()[0]._parts if part]
    place = part.ptr
    del half, part
    assert Memory.used == before
    DEFAULT_STREAM.synchronize()
    assert set(at(place, 800)) == {fake_device.FREED}
    assert Block(800).ptr == place


@pytest.mark.parametrize("values", [[1, 2, 3], [1, None, 3]])
def test_a_column_without_nulls_has_no_mask(values: list[int | None]) -> None:
    cuda_context.bind()
    with_mask = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\7"), pa.array([1, 2, 3]).buffers()[1]])
    array = with_mask if None not in values else pa.array(values)
    table = fake_columns.Table.from_arrow(pa.table({"a": array}), stream=DEFAULT_STREAM)
    description, data = fake_columns.pack(table, stream=DEFAULT_STREAM).release()
    back = fake_columns.unpack_from_memoryviews(description, data, stream=DEFAULT_STREAM)
    for each in (table, back):
        assert (each.columns()[0]._parts[0] is None) == (None not in values)
        assert each.to_arrow(["a"], stream=DEFAULT_STREAM)["a"].to_pylist() == values
