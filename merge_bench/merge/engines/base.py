"""What every engine offers: the steps of one merge on one worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from merge_bench.merge.frame import Bytes, Field, Frame


class Side(Enum):
    """Which of the two frames."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class JoinShape:
    """What all workers agree on before the first row moves.

    `keys` are names in both sides' fields; other names differ between the sides. `rows`: of both frames over all
    workers. `threads`: this worker's share of the cores.
    """

    left: tuple[Field, ...]
    right: tuple[Field, ...]
    keys: tuple[str, ...]
    workers: int
    rank: int
    rows: int
    threads: int = 1

    def fields(self, side: Side) -> tuple[Field, ...]:
        """The fields of one side."""
        return self.left if side is Side.LEFT else self.right


WHOLE = -1
"""The part of a piece that holds all buckets."""


@dataclass(frozen=True)
class Piece:
    """Some of a frame that travels by itself where the exchange is pipelined: the buckets of one part, or `WHOLE`."""

    side: Side
    part: int


@dataclass(frozen=True)
class Outgoing:
    """What goes to one worker: `header` tells the receiver how to read `data`. Both are contiguous."""

    header: Bytes
    data: Any


class Engine(Protocol):
    """One worker's dataframe library.

    An iteration calls `begin`, `partition` for both sides, then for one side after the other `inbox` for every header
    that arrived and `sent` when its data has been exchanged, and at last `join`. The result then lies in memory until
    the next `begin`.
    """

    name: ClassVar[str]

    def load(self, left: Frame, right: Frame) -> None:
        """Take this worker's chunks."""

    def header_bytes(self, side: Side) -> int:
        """Length of every header of a side, the same on all workers."""

    def begin(self) -> None:
        """Forget the last result and get the buffers ready."""

    def partition(self, side: Side) -> list[Outgoing]:
        """Split a chunk by the hash of its keys: one entry per worker, in rank order, this worker's own included."""

    def inbox(self, side: Side, source: int, header: Bytes) -> Any:
        """A buffer of the right size for what `source` sends; its contents are the engine's once `join` is called."""

    def sent(self, side: Side) -> None:
        """Nothing that `partition` gave for a side has to stay as it is: the others have it."""

    def join(self) -> int:
        """Join what this worker owns; returns the number of result rows."""

    def received_rows(self) -> dict[str, int]:
        """Rows of ``left`` and ``right`` that this worker had to join, its own included."""

    def results(self) -> Iterator[pa.Table]:
        """The result, in pieces, as Arrow tables in host memory: for verification."""

    def peak_device_bytes(self) -> int | None:
        """High-water mark of device memory, or None for host engines."""


@runtime_checkable
class PipelinedEngine(Engine, Protocol):
    """An engine that can join some rows while others are on their way.

    Instead of `partition` and `join`, an iteration goes through `split`, whose pieces are those of `pieces`, in that
    order and the same on all workers. A part is joined when all workers' pieces of it, and all `WHOLE` ones, are here.
    """

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What travels by itself."""

    @property
    def parts(self) -> int:
        """How many parts there are to join: 0…parts-1."""

    def split(self) -> Iterator[list[Outgoing]]:
        """Partition both chunks, giving each piece as soon as it is made: one entry per worker, in rank order."""

    def inbox_of(self, piece: Piece, source: int, header: Bytes) -> Any:
        """`inbox` for one piece. Called from the thread that exchanges."""

    def join_part(self, part: int) -> None:
        """Join the buckets of one part."""

    def result_rows(self) -> int:
        """Rows of the result so far."""
