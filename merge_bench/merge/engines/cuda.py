"""CUDA kernels of our own for the commonest join, on NVIDIA GPUs; everything else is libcudf's, as in the engine cudf.

Ours is an inner join on one key that is no float, where every column has at most 8 bytes a value and no nulls. It steps
back to libcudf's join where a key occurs in too many rows of the smaller side (`cuda_join.MOST_EQUAL`) or marks free
slots, and where memory is short: the hash table takes 32 bytes for each row of the smaller side, and the result has
room for as many rows as the larger side has.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from merge_bench.merge.engines import Description, cuda_join
from merge_bench.merge.engines.base import Engine, How, JoinShape, Side
from merge_bench.merge.engines.cuda_join import SLOT_BYTES, THREADS, WIDTHS, State, Widths
from merge_bench.merge.engines.cuda_kernels import Kernels, load_kernels, processors
from merge_bench.merge.engines.cudf import MOST_ROWS, CudfEngine
from merge_bench.merge.engines.gpu_memory import DeviceBytes, download
from merge_bench.merge.frame import Frame

ENGINE = Description(
    name="cuda",
    help="kernels of our own for inner joins on a number, else as cudf (experimental)",
    attribute="CudaEngine",
    packages=("pylibcudf",),
    place=2,
    device_memory=True,
    refuses=(
        ("time", "cuDF has no type for a time of day"),
        ("large_binary", "cuDF has no type for byte strings"),
    ),
    result_copies=1.25,
)

NAMES = ("clear", "build", "probe")
MOST_COLUMNS = 200  # of both sides: each is a parameter or two of a kernel, and parameters take at most 4 KB
BLOCKS = 60  # of a kernel on each multiprocessor: whole waves where 4, 5 or 6 run at once


class CudaEngine(CudfEngine):
    """As `CudfEngine`, with the join of `cuda_join` where the columns allow it.

    Its two programs, one for each side that may be the smaller one, are compiled when the chunks are loaded.
    """

    name: ClassVar[str] = ENGINE.name

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        self._own_join = supports(shape)
        # Of each side, the positions of its columns, the key first, and the bytes of their values.
        self._order = {side: [*at, *(set(range(len(shape.fields(side)))) - set(at))] for side, at in self._keys.items()}
        self._width = {side: [shape.fields(side)[at].width for at in order] for side, order in self._order.items()}

    def load(self, left: Frame, right: Frame) -> None:
        super().load(left, right)
        if self._own_join:
            for build in Side:
                self._kernels(build)

    def _join_tables(self, tables: dict[Side, Any]) -> list[Any]:
        """By our kernels, until they step back once: later joins are of the same rows."""
        if self._own_join:
            columns = self._join_by_kernels(tables)
            if columns is not None:
                return columns
            self._own_join = False
        return super()._join_tables(tables)

    def _join_by_kernels(self, tables: dict[Side, Any]) -> list[Any] | None:
        """The columns of the result, left ones first; None, and no table taken out, if it is a join for libcudf."""
        build = min((Side.RIGHT, Side.LEFT), key=lambda side: int(tables[side].num_rows()))
        if not tables[build].num_rows():
            return None
        try:
            found = self._write_result(tables, build)
        except MemoryError:
            return None
        if found is None:
            return None
        rows, outputs = found
        probes = len(self._order[build.other])
        values = {build.other: outputs[:probes], build: [outputs[0], *outputs[probes:]]}
        columns = []
        for side in Side:
            types = [column.type() for column in tables.pop(side).columns()]
            places = dict(zip(self._order[side], values[side], strict=True))
            wanted = range(len(types)) if side is Side.LEFT else self.shape.payload_positions
            columns += [self._plc.Column(types[at], rows, places[at], None, 0, 0, []) for at in wanted]
        return columns

    def _write_result(self, tables: dict[Side, Any], build: Side) -> tuple[int, list[DeviceBytes]] | None:
        """The number of rows of the result, and its key, probe payloads and build payloads; None if kernels refuse."""
        rows, probed = (int(tables[side].num_rows()) for side in (build, build.other))
        built, sources = (self._addresses(tables[side], side) for side in (build, build.other))
        widths, kernels = self._widths(build), self._kernels(build)
        if not widths.inlined:
            sources += built[1:]
        stream, most = int(self._stream.__cuda_stream__()[1]), BLOCKS * processors()
        slots = cuda_join.table_slots(rows)
        table, state = self._allocate(slots * SLOT_BYTES), self._allocate(8 * len(State))
        kernels.launch("clear", min(most, blocks(slots)), THREADS, stream, [table.ptr, slots, state.ptr])
        kernels.launch("build", blocks(rows), THREADS, stream, [table.ptr, rows, state.ptr, *built])
        room, numbers = probed, np.zeros(len(State), np.uint64)
        for attempt in (State.FOUND, State.AGAIN):
            outputs = [self._allocate(room * width) for width in widths.output]
            sizes = [table.ptr, rows, state.ptr, attempt, room, probed]
            targets = [each.ptr for each in outputs]
            grid = min(most, blocks(probed, cuda_join.PROBE_ROWS))
            kernels.launch("probe", grid, THREADS, stream, [*sizes, *sources, *targets])
            download(state, numbers.view(np.uint8))
            count = int(numbers[attempt])
            if numbers[State.REFUSED] or count > MOST_ROWS:
                return None
            if count <= room:
                return count, outputs
            room = count
            del outputs
        raise RuntimeError("the same rows had more matches when they were looked up again")

    def _widths(self, build: Side) -> Widths:
        (key, *probe), (_, *built) = self._width[build.other], self._width[build]
        return Widths(key, tuple(probe), tuple(built))

    def _kernels(self, build: Side) -> Kernels:
        return load_kernels(cuda_join.write_source(self._widths(build)), NAMES)

    def _addresses(self, table: Any, side: Side) -> list[int]:
        """The first value of each column, the key first."""
        columns = [table.columns()[at] for at in self._order[side]]
        return [
            int(column.data().ptr) + int(column.offset()) * width
            for column, width in zip(columns, self._width[side], strict=True)
        ]

    def _allocate(self, size: int) -> DeviceBytes:
        """Memory in the order of the stream, which nobody else may use before the stream is drained."""
        memory = self._rmm.DeviceBuffer(size=size, stream=self._stream)
        return DeviceBytes(memory.ptr, memory.size, memory)


_COMPLETE: type[Engine] = CudaEngine  # for the type checker: it has every method


def supports(shape: JoinShape) -> bool:
    """Whether our kernels can do this join, unless its rows are against it."""
    fields = (*shape.left, *shape.right)
    keys = [shape.fields(side)[at] for side in Side for at in shape.key_positions(side)]
    return (
        shape.how is How.INNER
        and len(keys) == 2
        and keys[0].type == keys[1].type
        and not keys[0].floating
        and len(fields) <= MOST_COLUMNS
        and all(field.width in WIDTHS and not field.nullable for field in fields)
    )


def blocks(rows: int, per_thread: int = 1) -> int:
    """Blocks with a thread for every `per_thread` rows."""
    return -(-rows // (THREADS * per_thread))
