"""The part that CPU engines share: partitioning, parcels and the walk over the buckets.

Where the exchange is pipelined, a frame travels in pieces. The first rows of the left chunk go first, all buckets of
them, so that the wire has something to carry as early as can be; then both frames by ranges of buckets, so that the
first range can be joined while the others are on their way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from merge_bench.merge.arena import Arena
from merge_bench.merge.engines.base import WHOLE, JoinShape, Outgoing, Piece, PipelinedEngine, Side
from merge_bench.merge.frame import Bytes, Frame
from merge_bench.merge.parcel import Layout, Parcel, header_shape
from merge_bench.merge.partition import BucketReader, Partitioner, bucket_groups

MOST_STREAMS = 512  # write streams of a scatter: beyond it their cache lines are more than L1, and the pass slows down
FEWEST_STREAMS = 256  # below it successive rows often go to one stream, and wait for its position to be written back
ALIASING = 1 / 128  # how near to a power of two, or half as much again, the distance of streams may not come
FEWEST_ROWS = 1 << 10  # of a bucket, where there would be fewer streams
MOST_PARTS = 32  # what is left to join when the last byte has come is one part
PIECE_BYTES = 1 << 20  # to one worker; shorter messages do not reach what a link can carry
HEADS = (0.0, 1 / 16, 1 / 4)  # of the left rows: on a slow link each takes longer than to partition the next
VARIABLE_BYTES = 16  # guessed of a value of variable width, where all workers have to guess the same


def bucket_count(rows: int, workers: int, join_rows: int) -> int:
    """Buckets of each worker for `rows` of both frames together, `join_rows` of which are joined best at once.

    A few fewer are taken where streams would lie so evenly in memory that they contend for the same places of a cache.
    """
    per_worker = -(-rows // workers)
    wanted = max(-(-per_worker // join_rows), min(FEWEST_STREAMS // workers, per_worker // FEWEST_ROWS))
    count = max(1, min(wanted, MOST_STREAMS // workers))
    fewer = range(count, count * 7 // 8, -1)
    return next((some for some in fewer if not _aliased(per_worker, some * workers)), count)


def _aliased(rows: int, streams: int) -> bool:
    halves = 4 * math.frexp(rows / streams)[0]  # 2 to 4: of the power of two below
    return abs(halves - round(halves)) < 2 * ALIASING


class HostEngine:
    """Base of engines whose frames lie in host memory; a subclass joins two Arrow tables.

    `join_rows` is the number of left and right rows that its library joins best at once.
    """

    name: ClassVar[str]
    join_rows: ClassVar[int] = 1 << 17

    def __init__(self, shape: JoinShape) -> None:
        self.shape = shape
        self.buckets = bucket_count(shape.rows, shape.workers, self.join_rows)
        self._cuts = _cuts(shape, self.buckets)
        split = partial(
            Partitioner, workers=shape.workers, buckets=self.buckets, threads=shape.threads, scratch=Arena()
        )
        self._partitioners = {side: split(shape.fields(side), shape.keys) for side in Side}
        self._pool = ThreadPoolExecutor(shape.threads) if shape.threads > 1 else None
        self._chunks: dict[Side, Frame] = {}
        self._out, self._in = Arena(), Arena()
        self._arenas = [self._out, self._in]
        self._parcels = self._no_parcels()
        self._away: dict[Side, list[Parcel]] = {}
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
        self._parcels, self._away = self._no_parcels(), {}
        for arena in self._arenas:  # first of all: what is made then has their place
            arena.release()
        for arena in self._arenas:
            arena.reset()

    def partition(self, side: Side) -> list[Outgoing]:
        """Split a chunk into a parcel per worker."""
        parcels = self._split(side, [WHOLE])[0]
        self._away[side] = [parcel for rank, parcel in enumerate(parcels) if rank != self.shape.rank]
        return [_outgoing(parcel) for parcel in parcels]

    def inbox(self, side: Side, source: int, header: Bytes) -> Bytes:
        """Room for the parcel that `header` describes."""
        return self.inbox_of(Piece(side, WHOLE), source, header)

    def sent(self, side: Side) -> None:
        """Use the memory of what was sent again: of the left side to receive the right one, of that for the result."""
        rooms = [parcel.room for parcel in self._away.pop(side) if parcel.room is not None]
        if side is Side.LEFT:
            self._in.lend(rooms)
        else:
            self.lend(rooms)

    def lend(self, rooms: Sequence[Bytes]) -> None:
        """Memory that lies idle until the next `begin`, for engines that write the result themselves."""

    def join(self) -> int:
        """Join bucket by bucket; each piece of the result stays in memory."""
        self.join_buckets(0, self.buckets, *(self._parcels[side][WHOLE] for side in Side))
        return self.result_rows()

    @property
    def parts(self) -> int:
        """Ranges of buckets."""
        return len(self._cuts) - 1

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The first rows of the left chunk, then the rest of it and all of the right one by ranges of buckets."""
        heads = [Piece(Side.LEFT, WHOLE)] * (len(HEADS) - 1)
        return (*heads, *(Piece(side, part) for side in Side for part in range(self.parts)))

    def split(self) -> Iterator[list[Outgoing]]:
        """Partition both chunks, giving each piece as soon as it is made."""
        rows = self._chunks[Side.LEFT].rows
        edges = [int(rows * share) for share in HEADS]
        for head in itertools.pairwise(edges):
            yield from self._pieces(Side.LEFT, [WHOLE], rows=head)
        parts = list(range(self.parts))
        yield from self._pieces(Side.LEFT, parts, rows=(edges[-1], rows))
        yield from self._pieces(Side.RIGHT, parts)

    def inbox_of(self, piece: Piece, source: int, header: Bytes) -> Bytes:
        """Room for the parcel of one piece."""
        fields = self.shape.fields(piece.side)
        counts = header.view(np.int64).reshape(header_shape(fields, self.buckets))
        layout = Layout.of(fields, counts)
        parcel = Parcel(layout, self._in.take(layout.size))
        self._parcels[piece.side][piece.part].append(parcel)
        return parcel.data

    def join_part(self, part: int) -> None:
        """Join one range of buckets."""
        held = ([*self._parcels[side][WHOLE], *self._parcels[side][part]] for side in Side)
        self.join_buckets(self._cuts[part], self._cuts[part + 1], *held)

    def join_buckets(self, first: int, last: int, left: Sequence[Parcel], right: Sequence[Parcel]) -> None:
        """Join buckets first…last-1 of these parcels, which may hold others too."""
        readers = BucketReader(self.shape.left, left), BucketReader(self.shape.right, right)
        for start, stop in bucket_groups(*readers, last, self.join_rows, first=first):
            ours, theirs = (reader.table(start, stop) for reader in readers)
            self._results.append(self.join_tables(ours, theirs, self.shape.keys))

    def result_rows(self) -> int:
        """Rows of the result so far."""
        return sum(len(piece) for piece in self._results)

    def _no_parcels(self) -> dict[Side, dict[int, list[Parcel]]]:
        return {side: {part: [] for part in range(WHOLE, self.parts)} for side in Side}

    def _pieces(self, side: Side, parts: Sequence[int], rows: tuple[int, int] | None = None) -> list[list[Outgoing]]:
        return [[_outgoing(parcel) for parcel in parcels] for parcels in self._split(side, parts, rows)]

    def _split(self, side: Side, parts: Sequence[int], rows: tuple[int, int] | None = None) -> list[list[Parcel]]:
        """What of a chunk (or of its rows first…last-1) goes to each worker, for each of `parts`."""
        cuts = () if parts == [WHOLE] else self._cuts
        made = self._partitioners[side].split_parts(self._chunks[side], self._out, self._pool, rows=rows, cuts=cuts)
        for part, parcels in zip(parts, made, strict=True):
            self._parcels[side][part].append(parcels[self.shape.rank])
        return made

    def received_rows(self) -> dict[str, int]:
        """Rows of each side that this worker had to join, its own included."""
        held = {side: itertools.chain.from_iterable(self._parcels[side].values()) for side in Side}
        return {side.value: sum(parcel.rows for parcel in held[side]) for side in Side}

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


_COMPLETE: type[PipelinedEngine] = HostEngine  # for the type checker: it has every method


def _outgoing(parcel: Parcel) -> Outgoing:
    return Outgoing(np.ascontiguousarray(parcel.layout.header).view(np.uint8).reshape(-1), parcel.data)


def _cuts(shape: JoinShape, buckets: int) -> tuple[int, ...]:
    """Where ranges of buckets begin and end, so that a range's parcel to one worker has about `PIECE_BYTES` or more."""
    widths = [sum((field.width or VARIABLE_BYTES) + field.nullable for field in shape.fields(side)) for side in Side]
    share = shape.rows / 2 / shape.workers**2 * sum(widths) / 2
    parts = max(1, min(MOST_PARTS, buckets, int(share / PIECE_BYTES)))
    return tuple(buckets * part // parts for part in range(parts + 1))
