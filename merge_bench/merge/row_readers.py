"""Reads rows for a join: of one frame a chunk where it lies, block by block, of the other all rows each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.hashing import BLOCK
from merge_bench.merge.parcel_layout import Parcel
from merge_bench.merge.partition import BucketReader


class RowReader(Protocol):
    """Reads rows that are joined with each other, by the number of their bucket or block."""

    def table(self, first: int, last: int) -> pa.Table:
        """The rows of numbers first…last-1 as one table."""

    def chunks(self, first: int, last: int) -> list[Frame]:
        """The same rows as frames, none of them empty."""


class WholeReader:
    """Reads all rows of some parcels, whatever numbers are asked for."""

    def __init__(self, fields: tuple[Field, ...], parcels: Sequence[Parcel]) -> None:
        buckets = len(parcels[0].layout.header[0])
        self._table = BucketReader(fields, parcels).table(0, buckets).combine_chunks()
        frame = Frame.from_arrow(self._table).with_nullable({field.name: field.nullable for field in fields})
        self._chunks = [frame] if frame.rows else []
        self.rows = frame.rows

    def table(self, first: int, last: int) -> pa.Table:
        """All rows."""
        return self._table

    def chunks(self, first: int, last: int) -> list[Frame]:
        """All rows."""
        return self._chunks


class BlockReader:
    """Reads a chunk where it lies, in blocks of `rows` rows at most, and in one for each thread at least."""

    def __init__(self, frame: Frame, rows: int, threads: int) -> None:
        self._frame = frame
        self.count = max(-(-frame.rows // rows), min(threads, frame.rows // BLOCK), 1)

    def table(self, first: int, last: int) -> pa.Table:
        """The rows of blocks first…last-1."""
        return self._slice(first, last).to_arrow()

    def chunks(self, first: int, last: int) -> list[Frame]:
        """The rows of blocks first…last-1, without a copy."""
        found = self._slice(first, last)
        return [found] if found.rows else []

    def _slice(self, first: int, last: int) -> Frame:
        start, stop = (self._frame.rows * edge // self.count for edge in (first, last))
        return self._frame.slice(start, stop)
