"""The layout of a parcel: one contiguous run of bytes that goes from one worker to another.

For every column its values in bucket order, then its validity (a byte per row) if the column can be null; for variable
width the lengths (int32) and then all bytes. The header says how many rows (and variable bytes) each bucket has, which
is all that a receiver needs to find everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from merge_bench.merge.buffer_pool import align
from merge_bench.merge.frame import Bytes, Field

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Offsets in a parcel, computed from its header.

    `header`: shape (1 + variable columns, buckets), int64: rows of each bucket, then bytes of each variable column.
    """

    header: Counts
    starts: tuple[tuple[int, int, int], ...]  # per field: byte offset of values (or lengths), of bytes, of validity
    size: int

    @staticmethod
    def of(fields: tuple[Field, ...], header: Counts) -> Layout:
        """Lay out a parcel of these fields."""
        rows, at, variable = int(header[0].sum()), 0, 0
        starts = []
        for field in fields:
            values, at = at, align(at + rows * (field.width or 4))
            data = at
            if field.variable:
                variable += 1
                at = align(at + int(header[variable].sum()))
            valid = at
            if field.nullable:
                at = align(at + rows)
            starts.append((values, data, valid))
        return Layout(header, tuple(starts), at)


def header_shape(fields: Sequence[Field], buckets: int) -> tuple[int, int]:
    """Shape of a parcel's header."""
    return 1 + sum(field.variable for field in fields), buckets


@dataclass(frozen=True)
class Runs:
    """A parcel in several runs of bytes, on whose lengths sender and receiver agree: each is sent by itself."""

    runs: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all runs together."""
        return sum(run.nbytes for run in self.runs)


def runs_of(data: Any) -> tuple[Any, ...]:
    """The contiguous buffers of a parcel's data, in the order in which they are sent."""
    return data.runs if isinstance(data, Runs) else (data,)


@dataclass(frozen=True)
class Parcel:
    """A parcel's header and bytes, at the sender or at the receiver.

    `room`: the memory that is free once the parcel was sent: `data` and a little more.
    """

    layout: Layout
    data: Bytes
    room: Bytes | None = None

    @property
    def rows(self) -> int:
        """Rows in all buckets together."""
        return int(self.layout.header[0].sum())
