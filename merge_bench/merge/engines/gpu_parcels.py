"""Parcels between GPUs: what travels as it lies, where it is received, and the header that says so.

The partition of a chunk leaves each worker's rows of a column in one run. A column of fixed width without nulls is sent
as it lies, and received at its place in the whole column. The other columns of a parcel are packed into one run more.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from merge_bench.merge.engines.gpu_memory import DeviceBytes, allocate
from merge_bench.merge.frame import Bytes, Field
from merge_bench.merge.partition import Runs

NOTHING = DeviceBytes(0, 0)

_COUNTS = 24  # bytes of the numbers at the beginning of a header, int64 each
# libcudf 26.10 describes a table in 16 bytes and each column in 40; the offsets of strings are a column (its pack.cpp).
# Other releases may need more, so there is room to grow.
_TABLE_BYTES, _COLUMN_BYTES = 128, 64


@dataclass(frozen=True, eq=False)
class GpuParcel:
    """One worker's rows of another's chunk, at the sender or at the receiver.

    `runs`: the values of each column that lies as it is sent. `packed`: the other columns, and their `description`.
    """

    rows: int
    runs: tuple[DeviceBytes, ...] = ()
    packed: DeviceBytes = NOTHING
    description: bytes = b""

    @property
    def data(self) -> Runs:
        return Runs((*self.runs, self.packed))


@dataclass(frozen=True, eq=False)
class ReceivedSide:
    """One side of what a worker joins: the whole `columns` that are received in place, and all `parcels` by rank."""

    columns: tuple[DeviceBytes, ...]
    parcels: tuple[GpuParcel, ...]

    @property
    def rows(self) -> int:
        return sum(parcel.rows for parcel in self.parcels)


class ParcelHeader(NamedTuple):
    """What a header says of its parcel. `packed`: the bytes of its packed columns."""

    rows: int
    description: bytes
    packed: int


class GpuLayout:
    """How the columns of one side travel between GPUs.

    Attributes
    ----------
    in_place
        Positions of the fields that travel as they lie.
    packed
        Positions of the others.
    description_room
        Bytes of every header for libcudf's description of what is packed.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        plain = [not (field.variable or field.nullable) for field in fields]
        self.in_place = [at for at, is_plain in enumerate(plain) if is_plain]
        self.packed = [at for at, is_plain in enumerate(plain) if not is_plain]
        self._widths = [fields[at].width for at in self.in_place]
        columns = sum(2 if fields[at].variable else 1 for at in self.packed)
        self.description_room = _TABLE_BYTES + columns * _COLUMN_BYTES if columns else 0

    @property
    def header_bytes(self) -> int:
        """Length in bytes of every header of this side: three numbers and `description_room`."""
        return _COUNTS + self.description_room

    def make_header(self, parcel: GpuParcel) -> Bytes:
        """The bytes of a parcel's header; the parcel's description has to fit into `description_room`."""
        size = len(parcel.description)
        header = np.zeros(self.header_bytes, np.uint8)
        header[:_COUNTS].view(np.int64)[:] = parcel.rows, size, parcel.packed.size
        header[_COUNTS : _COUNTS + size] = np.frombuffer(parcel.description, np.uint8)
        return header

    def read_header(self, header: Bytes) -> ParcelHeader:
        """What the bytes of a header say of its parcel; `ValueError` if they are no header."""
        rows, size, packed = (int(n) for n in np.frombuffer(header[:_COUNTS].tobytes(), np.int64))
        if rows < 0 or not 0 <= size <= self.description_room or packed < 0:
            raise ValueError(f"{rows} rows described in {size} bytes, {packed} bytes packed")
        return ParcelHeader(rows, header[_COUNTS : _COUNTS + size].tobytes(), packed)

    def slice_runs(self, columns: Sequence[DeviceBytes], span: tuple[int, int]) -> tuple[DeviceBytes, ...]:
        """The memory of rows start…stop-1 of `span` in each of the columns that travel as they lie."""
        start, stop = span
        return tuple(each[start * width : stop * width] for each, width in zip(columns, self._widths, strict=True))

    def make_room(self, own: GpuParcel, rank: int, others: Mapping[int, ParcelHeader]) -> ReceivedSide:
        """Allocate device memory, out of the pool, for all parcels of a side.

        Parameters
        ----------
        own
            This worker's rows of its own chunk. What is packed of them stays where it is; the other columns are still
            to be copied into their runs.
        rank
            This worker's number.
        others
            What every other worker announced, by rank.
        """
        rows = [own.rows if source == rank else others[source].rows for source in range(len(others) + 1)]
        edges = [0, *itertools.accumulate(rows)]
        whole = [edges[-1] * width for width in self._widths]
        memory = allocate([*whole, *(each.packed for each in others.values())])
        columns = tuple(memory[: len(whole)])
        packed = dict(zip(others, memory[len(whole) :], strict=True)) | {rank: own.packed}
        described = {source: each.description for source, each in others.items()} | {rank: own.description}
        parcels = (
            GpuParcel(rows[source], self.slice_runs(columns, span), packed[source], described[source])
            for source, span in enumerate(itertools.pairwise(edges))
        )
        return ReceivedSide(columns, tuple(parcels))
