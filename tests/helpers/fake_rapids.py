"""As much of pylibcudf and RMM as the cudf engine uses, in host memory.

Arguments have the names and the order that they have in release 26.10, so that a call which the real libraries would
not take fails here too. It shows that the engine's own steps are right, in a thread that has a context, on memory that
is freed and streams that are late (`fake_cuda`, `fake_device`, `fake_columns`); what the real libraries do with them,
only the tests in tests/gpu show.
"""

from __future__ import annotations

import ctypes
import enum
import math
import sys
import types
import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.helpers import fake_cuda, fake_nvtx
from tests.helpers.fake_columns import (
    Column,
    DeviceBuffer,
    PackedColumns,
    Table,
    arrow,
    as_array,
    copy_device_to_ptr,
    gpumemoryview,
    new_column,
    pack,
    result,
    unpack_from_memoryviews,
    view,
)
from tests.helpers.fake_cuda import Driver
from tests.helpers.fake_device import DEFAULT_STREAM, CudaStreamFlags, Memory, Process, Stream, use


def _values(table: Table, keys: list[int]) -> list[tuple[Any, ...]]:
    return list(zip(*(as_array(table.columns()[key]).to_pylist() for key in keys), strict=True))


def _keep(table: Table, good: list[bool]) -> Table:
    return result(arrow(table).filter(pa.array(good, pa.bool_())))


def drop_nulls(source_table: Table, keys: list[int], keep_threshold: int, stream: Any = None, mr: Any = None) -> Table:
    use(stream)
    rows = _values(source_table, keys)
    return _keep(source_table, [sum(v is not None for v in row) >= keep_threshold for row in rows])


def drop_nans(source_table: Table, keys: list[int], keep_threshold: int, stream: Any = None, mr: Any = None) -> Table:
    use(stream)
    assert all(pa.types.is_floating(source_table.columns()[key].type().kind) for key in keys)
    rows = _values(source_table, keys)
    return _keep(source_table, [sum(v is None or not math.isnan(v) for v in row) >= keep_threshold for row in rows])


def hash_partition(
    input: Table,
    keys: list[int],
    num_partitions: int,
    hash_function: int = 1,
    seed: int = 0,
    stream: Any = None,
    mr: Any = None,
) -> tuple[Table, list[int]]:
    use(stream)
    assert 0 < seed < 2**32
    homes = np.array([_hash(row, seed) % num_partitions for row in _values(input, keys)], np.int64)
    counts = np.bincount(homes, minlength=num_partitions)
    order = np.argsort(homes, kind="stable")
    return result(arrow(input).take(pa.array(order))), [0, *np.cumsum(counts).tolist()]


def _hash(row: tuple[Any, ...], seed: int) -> int:
    """The same in every process; both zeros have one hash."""
    return zlib.crc32(repr([value + 0.0 if isinstance(value, float) else value for value in row]).encode(), seed)


def slice_(input: Table, indices: list[int], stream: Any = None) -> list[Table]:
    use(stream)
    pairs = list(zip(indices[::2], indices[1::2], strict=True))
    if not all(0 <= start <= stop <= input.num_rows() for start, stop in pairs):
        raise IndexError("Slice range out of bounds")
    return [Table([view(column, start, stop) for column in input.columns()]) for start, stop in pairs]


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
    rows = as_array(gather_map).to_numpy()
    rows = np.where(rows < 0, rows + source_table.num_rows(), rows)  # a negative number counts from the end
    outside = (rows < 0) | (rows >= source_table.num_rows())
    assert bounds_policy is OutOfBoundsPolicy.NULLIFY or not outside.any(), "kernels would read beyond the table"
    return result(arrow(source_table).take(pa.array(rows, pa.int64(), mask=outside)))


NO_ROW = -(2**31)  # JoinNoneValue of libcudf
Map = list[int]


def _matches(left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any) -> list[Map]:
    """For each left row the right rows with equal keys."""
    use(stream)
    assert nulls_equal is NullEquality.UNEQUAL
    assert [c.type() for c in left_keys.columns()] == [c.type() for c in right_keys.columns()]
    every = list(range(len(left_keys.columns())))
    places = defaultdict(list)
    for place, row in enumerate(_values(right_keys, every)):
        places[_with_equal_nans(row)].append(place)
    return [[] if None in row else places.get(_with_equal_nans(row), []) for row in _values(left_keys, every)]


def _map(rows: Map) -> Column:
    return new_column(pa.int32(), [pa.array(rows, pa.int32())])


def inner_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> tuple[Column, Column]:
    found = _matches(left_keys, right_keys, nulls_equal, stream)
    pairs = [(place, other) for place, others in enumerate(found) for other in others]
    return _map([left for left, _ in pairs]), _map([right for _, right in pairs])


def left_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> tuple[Column, Column]:
    found = _matches(left_keys, right_keys, nulls_equal, stream)
    pairs = [(place, other) for place, others in enumerate(found) for other in others or [NO_ROW]]
    return _map([left for left, _ in pairs]), _map([right for _, right in pairs])


def full_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> tuple[Column, Column]:
    found = _matches(left_keys, right_keys, nulls_equal, stream)
    pairs = [(place, other) for place, others in enumerate(found) for other in others or [NO_ROW]]
    seen = {right for _, right in pairs}
    pairs += [(NO_ROW, other) for other in range(right_keys.num_rows()) if other not in seen]
    return _map([left for left, _ in pairs]), _map([right for _, right in pairs])


def left_semi_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> Column:
    found = _matches(left_keys, right_keys, nulls_equal, stream)
    return _map([place for place, others in enumerate(found) if others])


def left_anti_join(
    left_keys: Table, right_keys: Table, nulls_equal: NullEquality, stream: Any = None, mr: Any = None
) -> Column:
    found = _matches(left_keys, right_keys, nulls_equal, stream)
    return _map([place for place, others in enumerate(found) if not others])


def replace_nulls(source_column: Column, replacement: Column, stream: Any = None, mr: Any = None) -> Column:
    use(stream)
    ours, theirs = as_array(source_column), as_array(replacement)
    assert source_column.type() == replacement.type()
    assert len(ours) == len(theirs)
    return new_column(ours.type, [pc.coalesce(ours, theirs)])


def _with_equal_nans(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As libcudf compares: a NaN equals a NaN."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


def concatenate(objects: list[Table], stream: Any = None, mr: Any = None) -> Table:
    use(stream, "concatenate")
    if not objects:
        raise ValueError("input list may not be empty")
    return result(pa.concat_tables([arrow(table) for table in objects]))


class DeviceMemoryResource: ...


class CudaMemoryResource(DeviceMemoryResource): ...


class CudaAsyncMemoryResource(DeviceMemoryResource): ...


class CudaAsyncViewMemoryResource(DeviceMemoryResource): ...


class ManagedMemoryResource(DeviceMemoryResource): ...


class UpstreamResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource) -> None:
        self._upstream = upstream_mr

    def get_upstream(self) -> DeviceMemoryResource:
        return self._upstream


class StatisticsResourceAdaptor(UpstreamResourceAdaptor): ...


class PoolMemoryResource(UpstreamResourceAdaptor):
    def __init__(
        self, upstream_mr: DeviceMemoryResource, initial_pool_size: int | None = None, maximum_pool_size: Any = None
    ) -> None:
        super().__init__(upstream_mr)
        assert isinstance(initial_pool_size, int)
        assert initial_pool_size % 256 == 0
        self._initial, self.maximum = initial_pool_size, maximum_pool_size

    def pool_size(self) -> int:
        return self._initial


@dataclass
class Statistics:
    peak_bytes: int


class Device:
    """The one fake GPU: what RMM allocates from, and how much of it is free."""

    resource: DeviceMemoryResource = CudaMemoryResource()
    free, total = 80 * 10**9, 100 * 10**9
    base = 0  # what was in use when the counters were last set to zero

    @classmethod
    def set(cls, mr: DeviceMemoryResource) -> None:
        cls.resource = mr


def enable_statistics() -> None:
    if not isinstance(Device.resource, StatisticsResourceAdaptor):
        Device.resource = StatisticsResourceAdaptor(Device.resource)


def push_statistics() -> Statistics | None:
    before = get_statistics()
    Memory.peak = Memory.used
    Device.base = Memory.used
    return before


def get_statistics() -> Statistics | None:
    return Statistics(Memory.peak - Device.base) if isinstance(Device.resource, StatisticsResourceAdaptor) else None


def _module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


def modules(driver: Driver | None = None) -> dict[str, types.ModuleType]:
    """What to put into `sys.modules`, in a process whose driver is `driver`.

    No thread has a context yet, and RMM has the memory resource with which it begins.
    """
    Process.driver = driver or Driver()
    Device.resource = CudaMemoryResource()
    statistics = _module(
        "rmm.statistics",
        enable_statistics=enable_statistics,
        get_statistics=get_statistics,
        push_statistics=push_statistics,
    )
    stream = _module(
        "rmm.pylibrmm.stream", DEFAULT_STREAM=DEFAULT_STREAM, CudaStreamFlags=CudaStreamFlags, Stream=Stream
    )
    buffers = _module(
        "rmm.pylibrmm.device_buffer",
        copy_device_to_ptr=copy_device_to_ptr,
    )
    pylibrmm = _module("rmm.pylibrmm", stream=stream, device_buffer=buffers)
    mr = _module(
        "rmm.mr",
        get_current_device_resource=lambda: Device.resource,
        set_current_device_resource=Device.set,
        available_device_memory=lambda: (Device.free, Device.total),
        **{
            kind.__name__: kind
            for kind in (
                CudaMemoryResource,
                CudaAsyncMemoryResource,
                CudaAsyncViewMemoryResource,
                ManagedMemoryResource,
                UpstreamResourceAdaptor,
                PoolMemoryResource,
                StatisticsResourceAdaptor,
            )
        },
    )
    rmm = _module("rmm", DeviceBuffer=DeviceBuffer, mr=mr, statistics=statistics, pylibrmm=pylibrmm)
    pylibcudf = _module(
        "pylibcudf",
        Table=Table,
        Column=Column,
        gpumemoryview=_module("pylibcudf.gpumemoryview", gpumemoryview=gpumemoryview),
        stream_compaction=_module("stream_compaction", drop_nulls=drop_nulls, drop_nans=drop_nans),
        partitioning=_module("partitioning", hash_partition=hash_partition),
        copying=_module("copying", slice=slice_, gather=gather, OutOfBoundsPolicy=OutOfBoundsPolicy),
        contiguous_split=_module(
            "contiguous_split", PackedColumns=PackedColumns, pack=pack, unpack_from_memoryviews=unpack_from_memoryviews
        ),
        concatenate=_module("concatenate", concatenate=concatenate),
        join=_module(
            "join",
            inner_join=inner_join,
            left_join=left_join,
            full_join=full_join,
            left_semi_join=left_semi_join,
            left_anti_join=left_anti_join,
        ),
        replace=_module("replace", replace_nulls=replace_nulls),
        types=_module("types", NullEquality=NullEquality),
    )
    # `importlib.util.find_spec` wants one of every loaded module.
    pylibcudf.__spec__ = types.SimpleNamespace(name="pylibcudf")
    return {
        **fake_cuda.modules(Process.driver),
        **fake_nvtx.modules(),
        "rmm": rmm,
        "rmm.mr": mr,
        "rmm.statistics": statistics,
        "rmm.pylibrmm": pylibrmm,
        "rmm.pylibrmm.stream": stream,
        "rmm.pylibrmm.device_buffer": buffers,
        "pylibcudf": pylibcudf,
    }


def install() -> None:
    """For a process of its own."""
    sys.modules.update(modules())


def copy(source: Any, target: Any, piece: int = 100) -> None:
    """Hand one run of device bytes over in pieces, as UCX does: not on the engine's stream, and waiting for nothing."""
    for start in range(0, source.nbytes, piece):
        one, other = source[start : start + piece], target[start : start + piece]
        (ours, _), (theirs, _) = one.__cuda_array_interface__["data"], other.__cuda_array_interface__["data"]
        assert one.__cuda_array_interface__["shape"] == other.__cuda_array_interface__["shape"] == (one.nbytes,)
        ctypes.memmove(theirs, ours, one.nbytes)
