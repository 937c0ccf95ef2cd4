"""The protocol of engines: the kind of join, its shape, and the steps of one merge on one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from merge_bench.merge.frame import Bytes, Field, Frame
from merge_bench.merge.memory import CopyRounds


class Side(Enum):
    """Which of the two frames (tables) of a merge."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> Side:
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class How(Enum):
    """The kind of join, named as in SQL; `semi` and `anti` join the left frame with the right one."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"
    SEMI = "semi"
    ANTI = "anti"

    def keeps(self, side: Side) -> bool:
        """Whether the result has the rows of `side` that have no match, those with null keys included."""
        return self.keeps_left if side is Side.LEFT else self.keeps_right

    @property
    def keeps_left(self) -> bool:
        return self in (How.LEFT, How.OUTER, How.ANTI)

    @property
    def keeps_right(self) -> bool:
        return self in (How.RIGHT, How.OUTER)

    @property
    def pairs(self) -> bool:
        """Whether the result has a row for every pair of matching rows, with the right columns beside the left ones.

        Otherwise it has left columns only, and every left row once at most.
        """
        return self not in (How.SEMI, How.ANTI)

    def output(self, left: Sequence[Field], right: Sequence[Field], keys: Sequence[str]) -> tuple[Field, ...]:
        """The fields of the result: all left ones, then the right ones that are no keys if it has `pairs`.

        A side's fields are nullable where rows of the other side are kept that it has no match for. The key of a row
        that only the right side has is the right one.
        """
        never_null = {field.name for field in right if field.name in keys and not field.nullable}
        ours = (
            replace(field, nullable=field.nullable or (self.keeps_right and field.name not in never_null))
            for field in left
        )
        theirs = (
            replace(field, nullable=field.nullable or self.keeps_left) for field in right if field.name not in keys
        )
        return (*ours, *theirs) if self.pairs else tuple(ours)


@dataclass(frozen=True)
class JoinShape:
    """The join as all workers agree on it before any row is sent."""

    left: tuple[Field, ...]
    right: tuple[Field, ...]
    keys: tuple[str, ...]  # names in both sides' fields; other names differ between the sides
    workers: int
    rank: int
    rows: int  # of both frames over all workers
    threads: int = 1  # this worker's share of the cores
    how: How = How.INNER
    sent: Side | None = (
        None  # whole to every worker, while the other side stays where it is; None: both are partitioned
    )
    sent_rows: int = 0  # of the side that is sent, over all workers

    def fields(self, side: Side) -> tuple[Field, ...]:
        return self.left if side is Side.LEFT else self.right

    def key_positions(self, side: Side) -> list[int]:
        """The positions of the key columns among the fields of one side, in the order of `keys`."""
        names = [field.name for field in self.fields(side)]
        return [names.index(key) for key in self.keys]

    @property
    def payload_positions(self) -> list[int]:
        """The positions of the right columns that are no keys."""
        return [at for at, field in enumerate(self.right) if field.name not in self.keys]

    @property
    def staying_side(self) -> Side | None:
        """The side whose rows stay on their workers in a broadcast; None in a shuffle."""
        return None if self.sent is None else self.sent.other

    @property
    def destinations(self) -> int:
        """The number of workers among which a worker's rows are partitioned: 1 in a broadcast."""
        return self.workers if self.sent is None else 1

    @property
    def joined_rows(self) -> int:
        """The rows of both sides that a worker joins, if rows and keys are spread evenly."""
        return self.sent_rows + -(-(self.rows - self.sent_rows) // self.workers)

    @property
    def output(self) -> tuple[Field, ...]:
        return self.how.output(self.left, self.right, self.keys)


WHOLE = -1
"""What `Piece.part` is for a piece with all buckets."""


@dataclass(frozen=True)
class Piece:
    """A part of a frame that a pipelined exchange sends by itself: the buckets of one part, or `WHOLE`."""

    side: Side
    part: int


@dataclass(frozen=True)
class Outgoing:
    """A parcel for one worker: its `header` describes the layout of `data`, which is contiguous or `Runs`."""

    header: Bytes
    data: Any


class Engine(Protocol):
    """One worker's dataframe library.

    An iteration calls `begin`, `partition`, then for one side after the other `make_inboxes` with the headers that
    arrived and `release_sent` when its data has been exchanged, and at last `join`. The result stays in memory until
    the next `begin`.
    """

    name: ClassVar[str]

    def load(self, left: Frame, right: Frame) -> None:
        """Store this worker's chunks."""

    def header_bytes(self, side: Side) -> int:
        """Length of every header of a side, the same on all workers."""

    def begin(self) -> None:
        """Free the last result and prepare the buffers."""

    def partition(self) -> dict[Side, list[Outgoing]]:
        """Split both chunks by the hash of their keys: one entry per worker, in rank order, its own included.

        Of a side that is `JoinShape.sent` whole, all entries are the whole chunk; of the other side, all are empty.
        """

    def make_inboxes(self, side: Side, headers: Mapping[int, Bytes]) -> dict[int, Any]:
        """A buffer of the right size for the parcel of each source; the engine reads them in `join`."""

    def release_sent(self, side: Side) -> None:
        """Use the memory of this side's parcels again, all of which were sent."""

    def join(self) -> int:
        """Join the rows that this worker received and kept; returns the number of result rows."""

    def received_rows(self) -> dict[str, int]:
        """Rows of ``left`` and ``right`` that this worker had to join, its own included."""

    def results(self) -> Iterator[pa.Table]:
        """The result, in pieces, as Arrow tables in host memory: for verification."""

    def peak_device_bytes(self) -> int | None:
        """The most bytes of device memory that were in use at once; None for engines in host memory."""


Share: TypeAlias = Callable[[Bytes], list[Bytes]]
"""Gives some bytes to all workers, and returns those of every worker, in rank order; all give equally many."""


@runtime_checkable
class FilteringEngine(Protocol):
    """An engine that can leave out rows before an iteration partitions them (`merge_bench.merge.runtime_filter`)."""

    def filter_rows(self, share: Share) -> None:
        """Leave out rows that can have no match, until the next `begin`. All workers call it at once."""


@runtime_checkable
class StoringEngine(Protocol):
    """An engine that can write rows into parcels in several ways (`merge_bench.merge.partition`)."""

    def measure_stores(self) -> dict[str, float]:
        """For each way of writing, the nanoseconds that the partition of a row of the chunk takes here and now."""

    def use_stores(self, way: str, streams: int, l2_bytes: int | None = None) -> None:
        """Write parcels this way from now on, into at most `streams` buckets of all workers.

        The arguments are the same on every worker but for the way. `l2_bytes`: the least L2 cache of their cores.
        """


@runtime_checkable
class CopyingEngine(Protocol):
    """An engine whose chunks lie in host memory (`merge_bench.merge.memory`)."""

    def measure_copy(self, barrier: Callable[[], object]) -> CopyRounds | None:
        """Copy the chunks into the buffers of the parcels, whose contents are lost; `barrier` waits for all workers."""


@runtime_checkable
class TableEngine(Engine, Protocol):
    """An engine whose rows a data plane can take and give as tables of the engine's library (`TableExchange`).

    Instead of `partition` and `make_inboxes`, an iteration calls `tables` and, for each side, `take_table`.
    """

    shape: JoinShape

    def tables(self) -> dict[Side, Any]:
        """The rows of both chunks that can have a match."""

    def take_table(self, side: Side, table: Any) -> None:
        """Join this table's rows in `join`, which are all that this worker received and kept; None: no rows."""

    def synchronize(self) -> None:
        """Wait until the device has done what was asked of it."""


@runtime_checkable
class PipelinedEngine(Engine, Protocol):
    """An engine that can join some rows while others are in flight.

    Instead of `partition` and `join`, an iteration calls `split`, which yields the pieces of `pieces` in that order, as
    on all workers. `join_part` is called when all workers' pieces of a part, and all `WHOLE` ones, have arrived.
    """

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of both frames that are sent by themselves, in the order of sending."""

    @property
    def parts(self) -> int:
        """The number of parts to join: 0…parts-1."""

    def split(self) -> Iterator[list[Outgoing]]:
        """Partition both chunks; yields each piece as soon as it is made: a parcel per worker, in rank order."""

    def make_inbox(self, piece: Piece, source: int, header: Bytes) -> Any:
        """A buffer of the right size for one piece from one source; the thread that exchanges calls it."""

    def join_part(self, part: int) -> None:
        """Join the buckets of one part."""

    def result_rows(self) -> int:
        """The number of rows that the result has so far."""
