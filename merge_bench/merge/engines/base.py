"""The protocol of engines: the kind of join, its shape, and the steps of one merge on one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from merge_bench.merge.frame import Bytes, Field, Frame

if TYPE_CHECKING:
    import pyarrow as pa

    from merge_bench.merge.memory import CopyMeasurement


class Side(Enum):
    """A side of a merge: the left or the right frame (table)."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def opposite(self) -> Side:
        """The other side of the merge: right for left, and left for right."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinKind(Enum):
    """The kind of join, named as in SQL; `semi` and `anti` join the left frame with the right one."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"
    SEMI = "semi"
    ANTI = "anti"

    def keeps_unmatched(self, side: Side) -> bool:
        """Whether the result keeps the rows of `side` without a match, those with null keys included."""
        return self.keeps_unmatched_left if side is Side.LEFT else self.keeps_unmatched_right

    @property
    def keeps_unmatched_left(self) -> bool:
        """Whether the result keeps left rows without a match."""
        return self in (JoinKind.LEFT, JoinKind.OUTER, JoinKind.ANTI)

    @property
    def keeps_unmatched_right(self) -> bool:
        """Whether the result keeps right rows without a match."""
        return self in (JoinKind.RIGHT, JoinKind.OUTER)

    @property
    def has_right_columns(self) -> bool:
        """Whether the result has the columns of both sides, with a row for each pair of matching rows.

        Otherwise (semi and anti join) it has left columns only, and each left row at most once.
        """
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    def output_fields(self, left: Sequence[Field], right: Sequence[Field], keys: Sequence[str]) -> tuple[Field, ...]:
        """Return the fields of the result: left ones, then right ones except keys, if the result has right columns.

        Fields are nullable where the result keeps unmatched rows of the other side. A row that only the right side has
        gets its key from the right side.
        """
        never_null = {field.name for field in right if field.name in keys and not field.nullable}
        ours = (
            replace(field, nullable=field.nullable or (self.keeps_unmatched_right and field.name not in never_null))
            for field in left
        )
        theirs = (
            replace(field, nullable=field.nullable or self.keeps_unmatched_left)
            for field in right
            if field.name not in keys
        )
        return (*ours, *theirs) if self.has_right_columns else tuple(ours)


@dataclass(frozen=True)
class JoinShape:
    """The description of a join, the same on all workers but for the rank: fields, keys, row counts, join kind."""

    left: tuple[Field, ...]
    right: tuple[Field, ...]
    keys: tuple[str, ...]  # names in both sides' fields; other names differ between the sides
    workers: int
    rank: int
    rows: int  # of both frames over all workers
    threads: int = 1  # this worker's share of the cores
    how: JoinKind = JoinKind.INNER
    sent: Side | None = (
        None  # whole to every worker, while the other side stays where it is; None: both are partitioned
    )
    sent_rows: int = 0  # of the side that is sent, over all workers

    def fields(self, side: Side) -> tuple[Field, ...]:
        """The fields (columns) of one side."""
        return self.left if side is Side.LEFT else self.right

    def key_positions(self, side: Side) -> list[int]:
        """The positions of the key columns among the fields of one side, in the order of `keys`."""
        names = [field.name for field in self.fields(side)]
        return [names.index(key) for key in self.keys]

    @property
    def right_payload_positions(self) -> list[int]:
        """The positions of the right columns that are not keys."""
        return [at for at, field in enumerate(self.right) if field.name not in self.keys]

    @property
    def stationary_side(self) -> Side | None:
        """The side that is not sent in a broadcast, whose rows stay on their workers; None in a shuffle."""
        return None if self.sent is None else self.sent.opposite

    @property
    def destination_count(self) -> int:
        """The number of workers among which a worker's rows are partitioned: 1 in a broadcast."""
        return self.workers if self.sent is None else 1

    @property
    def joined_rows_per_worker(self) -> int:
        """The number of rows of both sides together that each worker joins, if rows and keys are spread evenly."""
        return self.sent_rows + -(-(self.rows - self.sent_rows) // self.workers)

    @property
    def output_fields(self) -> tuple[Field, ...]:
        """The fields (columns) of the join's result."""
        return self.how.output_fields(self.left, self.right, self.keys)


WHOLE = -1
"""What `FramePiece.part` is for a piece with all buckets."""


@dataclass(frozen=True)
class FramePiece:
    """A part of a frame that a pipelined exchange sends separately: the buckets of one part, or all (`WHOLE`)."""

    side: Side
    part: int


@dataclass(frozen=True)
class OutgoingParcel:
    """A parcel (rows for one worker): `header` describes the layout of `data`, a contiguous buffer or `ByteRuns`."""

    header: Bytes
    data: Any


class Engine(Protocol):
    """The dataframe library of one worker, which partitions and joins its rows.

    An iteration calls `begin_iteration`, `partition_chunks`, then for one side after the other `make_receive_buffers`
    with the headers that arrived and `reuse_sent_parcel_memory` when its data has been exchanged, and at last
    `join_received_rows`. The result stays in memory until the next `begin_iteration`.
    """

    name: ClassVar[str]

    def load_chunks(self, left: Frame, right: Frame) -> None:
        """Store this worker's chunks of the left and the right frame, for all iterations."""

    def parcel_header_bytes(self, side: Side) -> int:
        """Return the length in bytes of every parcel header of a side, the same on all workers."""

    def begin_iteration(self) -> None:
        """Free the result of the last iteration and prepare the buffers of the next one."""

    def partition_chunks(self) -> dict[Side, list[OutgoingParcel]]:
        """Split both chunks by the hash of their keys into one parcel per worker (this one included), in rank order.

        In a broadcast every parcel of the side that is sent (`JoinShape.sent`) is the whole chunk; those of the other
        side are empty.
        """

    def make_receive_buffers(self, side: Side, headers: Mapping[int, Bytes]) -> dict[int, Any]:
        """Make a buffer for the parcel from each source rank, of the size that its header states.

        Returns them by rank.
        """

    def reuse_sent_parcel_memory(self, side: Side) -> None:
        """Allow the engine to reuse the memory of one side's parcels, once all of them were sent."""

    def join_received_rows(self) -> int:
        """Join the rows that this worker received with those that it kept; returns the number of result rows."""

    def received_row_counts(self) -> dict[str, int]:
        """Return how many rows of ``left`` and ``right`` this worker joins, its own included."""

    def result_tables(self) -> Iterator[pa.Table]:
        """Yield the rows of the result as Arrow tables in host memory, for verification."""

    def peak_device_bytes(self) -> int | None:
        """Return the peak device memory of the engine, in bytes; None for engines in host memory."""


AllGather: TypeAlias = Callable[[Bytes], list[Bytes]]
"""Gives some bytes to all workers, and returns those of every worker, in rank order; all give equally many."""


@runtime_checkable
class FilteringEngine(Protocol):
    """An engine that can leave out rows before an iteration partitions them (`merge_bench.merge.runtime_filter`)."""

    def filter_rows(self, all_gather: AllGather) -> None:
        """Leave out rows that can have no match, for the rest of the iteration.

        All workers have to call this at once.
        """


@runtime_checkable
class ParcelWritingEngine(Protocol):
    """An engine with two methods of writing rows into parcels, ``plain`` and ``lines`` (`merge/partition.py`)."""

    def measure_partition_ns_per_row(self) -> dict[str, float]:
        """Measure the nanoseconds per row of partitioning, for each method of writing parcels."""

    def use_parcel_writer(self, writer_name: str, most_total_buckets: int, l2_bytes: int | None = None) -> None:
        """Set the method of writing parcels (``plain`` or ``lines``), and the most buckets of all workers together.

        Only `writer_name` may differ between workers. `l2_bytes`: the smallest L2 cache of their cores; None if
        unknown.
        """


@runtime_checkable
class CopyMeasuringEngine(Protocol):
    """An engine whose chunks are in host memory, so that the speed of memory copies can be measured with them."""

    def measure_copy_speed(self, barrier: Callable[[], object]) -> CopyMeasurement | None:
        """Measure how fast the chunks are copied in host memory: bytes and seconds per round; None without rows."""


@runtime_checkable
class TableExchangingEngine(Engine, Protocol):
    """An engine that exchanges rows with a data plane as tables of the engine's library (`TableExchange`).

    Instead of `partition_chunks` and `make_receive_buffers`, an iteration calls `chunk_tables` and, for each side,
    `set_received_table`.
    """

    shape: JoinShape

    def chunk_tables(self) -> dict[Side, Any]:
        """The rows of both chunks that can have a match, as tables of the engine's library."""

    def set_received_table(self, side: Side, table: Any) -> None:
        """Set the rows of one side for `join_received_rows`, as a table of the engine's library; None: no rows."""

    def wait_for_device(self) -> None:
        """Wait until the GPU has finished all work of this engine."""


@runtime_checkable
class PipelinedEngine(Engine, Protocol):
    """An engine that can join some rows while others are in flight.

    Instead of `partition_chunks` and `join_received_rows`, an iteration calls `partition_pieces`, which yields the
    `pieces` in their order, the same on all workers. `join_part` is called when all workers' pieces of a part, and all
    `WHOLE` ones, have arrived.
    """

    @property
    def pieces(self) -> tuple[FramePiece, ...]:
        """The pieces of both frames that are sent separately, in the order of sending."""

    @property
    def join_part_count(self) -> int:
        """The number of parts (ranges of buckets) that are joined one after the other."""

    def partition_pieces(self) -> Iterator[list[OutgoingParcel]]:
        """Partition both chunks; yields each piece as soon as it is ready, as one parcel per worker in rank order."""

    def make_receive_buffer(self, piece: FramePiece, source_rank: int, header: Bytes) -> Any:
        """Make a buffer for one piece from one source rank, of the size that its header states."""

    def join_part(self, part_number: int) -> None:
        """Join the buckets of one part of both frames, and add the rows to the result."""

    def result_row_count(self) -> int:
        """Return the number of rows of the result as far as it has been joined."""
