"""As much of pylibcudf and RMM as the cudf engine uses, in host memory.

Arguments have the names and the order that they have in release 26.10, so that a call which the real libraries would
not take fails here too. It shows that the engine's own steps are right; what the real libraries do with them, only the
tests in tests/gpu show.
"""

from __future__ import annotations

import ctypes
import enum
import math
import sys
import types
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tests import fake_cuda
from tests.fake_cuda import Driver


class Stream:
    """Notes when it was drained, and how much was allocated or packed since."""

    def __init__(self) -> None:
        self.pending = 0

    def synchronize(self) -> None:
        Process.driver.require_context()
        self.pending = 0


class Process:
    """The driver that the process has loaded."""

    driver = Driver()


DEFAULT_STREAM = Stream()


def use(stream: Any) -> None:
    Process.driver.require_context()
    assert stream is DEFAULT_STREAM, "every call names the engine's one stream"
    DEFAULT_STREAM.pending += 1


class Memory:
    """Bookkeeping of device memory: `limit` makes allocations fail, as a full GPU would."""

    limit = 2**30
    used = 0


class DeviceBuffer:
    def __init__(self, *, ptr: int = 0, size: int = 0, stream: Any = DEFAULT_STREAM, mr: Any = None) -> None:
        if Memory.used + size > Memory.limit:
            raise MemoryError("std::bad_alloc: out_of_memory: CUDA error")
        use(stream)
        self.array = np.full(size, 0xAA, np.uint8)
        self.ptr, self.size = self.array.ctypes.data if size else 0, size
        Memory.used += size

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        Memory.used -= getattr(self, "size", 0)


class gpumemoryview:
    def __init__(self, obj: DeviceBuffer) -> None:
        self.obj, self.ptr, self.nbytes, self.size = obj, obj.ptr, obj.size, obj.size


class Column:
    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def size(self) -> int:
        return len(self.array)


class Table:
    def __init__(self, columns: Any, num_rows: int | None = None) -> None:
        self._columns = tuple(columns)
        self._rows = self._columns[0].size() if self._columns else num_rows or 0

    def columns(self) -> tuple[Column, ...]:
        return self._columns

    def num_rows(self) -> int:
        return self._rows

    @staticmethod
    def from_arrow(obj: pa.Table, dtype: Any = None, stream: Any = None, mr: Any = None) -> Table:
        use(stream)
        for field in obj.schema:
            kind = field.type
            known = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            assert known or pa.types.is_decimal128(kind) or pa.types.is_large_string(kind), kind
        return _table(obj)

    def to_arrow(self, metadata: list[str] | None = None, stream: Any = None) -> pa.Table:
        use(stream)
        arrays = []
        for column in self._columns:
            kind = column.array.type
            if pa.types.is_large_string(kind):
                kind = pa.string()
            elif pa.types.is_decimal(kind):
                kind = pa.decimal128(38, kind.scale)
            arrays.append(column.array.cast(kind))
        return pa.Table.from_arrays(arrays, names=metadata)

    def arrow(self) -> pa.Table:
        return pa.Table.from_arrays([c.array for c in self._columns], names=[str(n) for n in range(len(self._columns))])


def _table(table: pa.Table) -> Table:
    whole = table.combine_chunks()
    return Table([Column(pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type)) for c in whole.columns])


def _values(table: Table, keys: list[int]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.columns()[key].array.to_pylist() for key in keys), strict=True))


def _keep(table: Table, good: list[bool]) -> Table:
    return _table(table.arrow().filter(pa.array(good, pa.bool_())))


def drop_nulls(source_table: Table, keys: list[int], keep_threshold: int, stream: Any = None, mr: Any = None) -> Table:
    use(stream)
    rows = _values(source_table, keys)
    return _keep(source_table, [sum(v is not None for v in row) >= keep_threshold for row in rows])


def drop_nans(source_table: Table, keys: list[int], keep_threshold: int, stream: Any = None, mr: Any = None) -> Table:
    use(stream)
    assert all(pa.types.is_floating(source_table.columns()[key].array.type) for key in keys)
    rows = _values(source_table, keys)
    return _keep(source_table, [sum(v is None or not math.isnan(v) for v in row) >= keep_threshold for row in rows])


def hash_partition(
    input: Table, keys: list[int], num_partitions: int, hash_function: Any = None, seed: int = 0, stream: Any = None,
    mr: Any = None,
) -> tuple[Table, list[int]]:  # fmt: skip
    use(stream)
    assert 0 < seed < 2**32
    homes = np.array([hash(row) % num_partitions for row in _values(input, keys)], np.int64)
    counts = np.bincount(homes, minlength=num_partitions)
    order = np.argsort(homes, kind="stable")
    return _table(input.arrow().take(pa.array(order))), [0, *np.cumsum(counts).tolist()]


def slice_(input: Table, indices: list[int], stream: Any = None) -> list[Table]:
    use(stream)
    pairs = zip(indices[::2], indices[1::2], strict=True)
    assert all(0 <= start <= stop <= input.num_rows() for start, stop in zip(indices[::2], indices[1::2], strict=True))
    return [_table(input.arrow().slice(start, stop - start)) for start, stop in pairs]


class OutOfBoundsPolicy(enum.IntEnum):
    NULLIFY = 0
    DONT_CHECK = 1


class NullEquality(enum.IntEnum):
    EQUAL = 0
    UNEQUAL = 1


def gather(
    source_table: Table, gather_map: Column, bounds_policy: OutOfBoundsPolicy, stream: Any = None, mr: Any = None
) -> Table:
    use(stream)
    assert isinstance(bounds_policy, OutOfBoundsPolicy)
    return _table(source_table.arrow().take(gather_map.array))


def inner_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> tuple[Column, Column]:
    use(stream)
    assert nulls_equal is NullEquality.UNEQUAL
    assert [c.array.type for c in left_keys.columns()] == [c.array.type for c in right_keys.columns()]
    every = list(range(len(left_keys.columns())))
    places = defaultdict(list)
    for place, row in enumerate(_values(right_keys, every)):
        places[_with_equal_nans(row)].append(place)
    rows = enumerate(_values(left_keys, every))
    pairs = [(place, other) for place, row in rows if None not in row for other in places[_with_equal_nans(row)]]
    return tuple(Column(pa.array([pair[n] for pair in pairs], pa.int32())) for n in (0, 1))  # type: ignore[return-value]


def _with_equal_nans(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As libcudf compares: a NaN equals a NaN."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


def concatenate(objects: list[Table], stream: Any = None, mr: Any = None) -> Table:
    use(stream)
    assert objects, "input list may not be empty"
    return _table(pa.concat_tables([table.arrow() for table in objects]))


DESCRIPTION_BYTES = [40]  # per column; a test raises it


class PackedColumns:
    def __init__(self, description: bytes, data: DeviceBuffer) -> None:
        self.description, self.data = description, data

    def release(self) -> tuple[memoryview, gpumemoryview]:
        return memoryview(self.description), gpumemoryview(self.data)


def pack(input: Table, stream: Any = None, mr: Any = None) -> PackedColumns:
    table = input.arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = np.frombuffer(sink.getvalue(), np.uint8)
    data = DeviceBuffer(size=-(-body.size // 64) * 64, stream=stream)
    data.array[: body.size] = body
    columns = sum(2 if pa.types.is_large_string(kind) else 1 for kind in table.schema.types)
    return PackedColumns(bytes([7]) * (16 + columns * DESCRIPTION_BYTES[0]), data)


def unpack_from_memoryviews(metadata: memoryview, gpu_data: Any, stream: Any = None) -> Table:
    use(stream)
    assert isinstance(metadata, memoryview)
    assert set(metadata) == {7}
    body = ctypes.string_at(gpu_data.ptr, gpu_data.size)
    return _table(pa.ipc.open_stream(body).read_all())


class DeviceMemoryResource: ...


class CudaMemoryResource(DeviceMemoryResource): ...


class CudaAsyncMemoryResource(DeviceMemoryResource): ...


class CudaAsyncViewMemoryResource(DeviceMemoryResource): ...


class ManagedMemoryResource(DeviceMemoryResource): ...


class UpstreamResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource) -> None:
        self.upstream = upstream_mr

    def get_upstream(self) -> DeviceMemoryResource:
        return self.upstream


class StatisticsResourceAdaptor(UpstreamResourceAdaptor): ...


class PoolMemoryResource(UpstreamResourceAdaptor):
    def __init__(
        self, upstream_mr: DeviceMemoryResource, initial_pool_size: int | None = None, maximum_pool_size: Any = None
    ) -> None:
        super().__init__(upstream_mr)
        assert isinstance(initial_pool_size, int)
        assert initial_pool_size % 256 == 0
        self.initial = initial_pool_size

    def pool_size(self) -> int:
        return self.initial


@dataclass
class Statistics:
    peak_bytes: int


class Device:
    """The one fake GPU: what RMM allocates from, and how much of it is free."""

    resource: DeviceMemoryResource = CudaMemoryResource()
    free, total = 80 * 10**9, 100 * 10**9
    pushed = 0  # how often the counters were set to zero

    @classmethod
    def set(cls, mr: DeviceMemoryResource) -> None:
        cls.resource = mr


def enable_statistics() -> None:
    if not isinstance(Device.resource, StatisticsResourceAdaptor):
        Device.resource = StatisticsResourceAdaptor(Device.resource)


def push_statistics() -> Statistics | None:
    Device.pushed += 1
    return get_statistics()


def get_statistics() -> Statistics | None:
    return Statistics(123) if isinstance(Device.resource, StatisticsResourceAdaptor) else None


def _module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


def modules(driver: Driver | None = None) -> dict[str, types.ModuleType]:
    """What to put into `sys.modules`, in a process whose driver is `driver`; no thread has a context yet."""
    Process.driver = driver or Driver()
    statistics = _module(
        "rmm.statistics",
        enable_statistics=enable_statistics,
        get_statistics=get_statistics,
        push_statistics=push_statistics,
    )
    stream = _module("rmm.pylibrmm.stream", DEFAULT_STREAM=DEFAULT_STREAM)
    pylibrmm = _module("rmm.pylibrmm", stream=stream)
    mr = _module(
        "rmm.mr",
        get_current_device_resource=lambda: Device.resource,
        set_current_device_resource=Device.set,
        available_device_memory=lambda: (Device.free, Device.total),
        **{
            kind.__name__: kind
            for kind in (
                CudaMemoryResource, CudaAsyncMemoryResource, CudaAsyncViewMemoryResource, ManagedMemoryResource,
                UpstreamResourceAdaptor, PoolMemoryResource, StatisticsResourceAdaptor,
            )
        },
    )  # fmt: skip
    rmm = _module("rmm", DeviceBuffer=DeviceBuffer, mr=mr, statistics=statistics, pylibrmm=pylibrmm)
    pylibcudf = _module(
        "pylibcudf",
        Table=Table,
        stream_compaction=_module("stream_compaction", drop_nulls=drop_nulls, drop_nans=drop_nans),
        partitioning=_module("partitioning", hash_partition=hash_partition),
        copying=_module("copying", slice=slice_, gather=gather, OutOfBoundsPolicy=OutOfBoundsPolicy),
        contiguous_split=_module("contiguous_split", pack=pack, unpack_from_memoryviews=unpack_from_memoryviews),
        concatenate=_module("concatenate", concatenate=concatenate),
        join=_module("join", inner_join=inner_join),
        types=_module("types", NullEquality=NullEquality),
    )
    # `importlib.util.find_spec` wants one of every loaded module.
    pylibcudf.__spec__ = types.SimpleNamespace(name="pylibcudf")  # type: ignore[assignment]
    return {
        **fake_cuda.modules(Process.driver),
        "rmm": rmm, "rmm.mr": mr, "rmm.statistics": statistics, "rmm.pylibrmm": pylibrmm,
        "rmm.pylibrmm.stream": stream, "pylibcudf": pylibcudf,
    }  # fmt: skip


def install() -> None:
    """For a process of its own."""
    sys.modules.update(modules())


def copy(source: Any, target: Any, piece: int = 100) -> None:
    """Hand one run of device bytes over in pieces, as the exchange cuts messages; nothing may be pending."""
    assert DEFAULT_STREAM.pending == 0, "the stream is drained before memory changes hands"
    for start in range(0, source.nbytes, piece):
        one, other = source[start : start + piece], target[start : start + piece]
        (ours, _), (theirs, _) = one.__cuda_array_interface__["data"], other.__cuda_array_interface__["data"]
        assert one.__cuda_array_interface__["shape"] == other.__cuda_array_interface__["shape"] == (one.nbytes,)
        ctypes.memmove(theirs, ours, one.nbytes)
