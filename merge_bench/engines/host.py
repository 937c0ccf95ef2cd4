"""The part that CPU engines share: partitioning, parcels and the walk over the buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from merge_bench.columns import Bytes, Frame
from merge_bench.engines.base import JoinShape, Outgoing, Side
from merge_bench.memory import Arena
from merge_bench.partition import BucketReader, Layout, Parcel, Partitioner, bucket_groups, header_shape

MOST_STREAMS = 512  # write streams of a scatter: beyond it the TLB no longer covers them and the pass slows down


class HostEngine:
    """Base of engines whose frames lie in host memory; a subclass joins two Arrow tables.

    `join_rows` is the number of left and right rows that its library joins best at once.
    """

    name: ClassVar[str]
    join_rows: ClassVar[int] = 1 << 17

    def __init__(self, shape: JoinShape) -> None:
        self.shape = shape
        per_worker = -(-shape.rows // shape.workers)
        wanted = -(-per_worker // self.join_rows)
        self.buckets = max(1, min(wanted, MOST_STREAMS // shape.workers))
        self._partitioners = {
            side: Partitioner(
                shape.fields(side), shape.keys, workers=shape.workers, buckets=self.buckets, threads=shape.threads
            )
            for side in Side
        }
        self._pool = ThreadPoolExecutor(shape.threads) if shape.threads > 1 else None
        self._chunks: dict[Side, Frame] = {}
        self._out, self._in = Arena(), Arena()
        self._parcels: dict[Side, list[Parcel]] = {side: [] for side in Side}
        self._results: list[Any] = []

    def load(self, left: Frame, right: Frame) -> None:
        """Take this worker's chunks."""
        self._chunks = {Side.LEFT: left, Side.RIGHT: right}

    def header_bytes(self, side: Side) -> int:
        """Length of every header of a side."""
        return int(np.prod(header_shape(self.shape.fields(side), self.buckets))) * 8

    def begin(self) -> None:
        """Forget the last result and get the buffers ready."""
        self._results = []
        self._parcels = {side: [] for side in Side}
        self._out.reset()
        self._in.reset()

    def partition(self, side: Side) -> list[Outgoing]:
        """Split a chunk into a parcel per worker."""
        parcels = self._partitioners[side].split(self._chunks[side], self._out, self._pool)
        self._parcels[side].append(parcels[self.shape.rank])
        return [Outgoing(np.ascontiguousarray(p.layout.header).view(np.uint8).reshape(-1), p.data) for p in parcels]

    def inbox(self, side: Side, source: int, header: Bytes) -> Bytes:
        """Room for the parcel that `header` describes."""
        fields = self.shape.fields(side)
        counts = header.view(np.int64).reshape(header_shape(fields, self.buckets))
        layout = Layout.of(fields, counts)
        parcel = Parcel(layout, self._in.take(layout.size))
        self._parcels[side].append(parcel)
        return parcel.data

    def join(self) -> int:
        """Join bucket by bucket; each piece of the result stays in memory."""
        left = BucketReader(self.shape.left, self._parcels[Side.LEFT])
        right = BucketReader(self.shape.right, self._parcels[Side.RIGHT])
        for first, last in bucket_groups(left, right, self.buckets, self.join_rows):
            self._results.append(self.join_tables(left.table(first, last), right.table(first, last), self.shape.keys))
        return sum(len(piece) for piece in self._results)

    def received_rows(self) -> dict[str, int]:
        """Rows of each side that this worker had to join, its own included."""
        return {side.value: sum(parcel.rows for parcel in self._parcels[side]) for side in Side}

    def results(self) -> Iterator[pa.Table]:
        """The result in pieces, as Arrow tables."""
        for piece in self._results:
            yield self.to_arrow(piece)

    def peak_device_bytes(self) -> int | None:
        """None: there is no device."""
        return None

    def join_tables(self, left: pa.Table, right: pa.Table, keys: Sequence[str]) -> Any:
        """Inner join of two tables without null or NaN keys, wholly in memory."""
        raise NotImplementedError

    def to_arrow(self, piece: Any) -> pa.Table:
        """One joined piece as an Arrow table."""
        raise NotImplementedError
