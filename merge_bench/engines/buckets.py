"""A hash join of one bucket with an integer key, compiled; what `merge_bench.engines.native` is made of.

The left rows of a bucket are entered into a table of chains, the right rows looked up in it. What is reached at random,
heads, links and left keys, is about the size of the L2 cache for a bucket of 65,000 rows a side. The loops are laid out
so that the processor has many look-ups under way at once: the first one decides without a branch, by a tag of three
further bits of the hash, which right rows can have a match at all (after the tagged chain heads of Leis et al.,
"Morsel-Driven Parallelism", SIGMOD 2014, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from merge_bench.columns import Column, Field, Frame
from merge_bench.kernels import build_chains, find_candidates, follow_chains, gather, gather_wide
from merge_bench.memory import Arena

MOST_ROWS = (1 << 24) - 2
"""Left rows that a table can number: a head holds 24 bits of row and 8 of tags."""
Columns = Sequence[Column]


class BucketJoin:
    """Joins bucket after bucket with the same scratch memory; for use by one thread.

    Parameters
    ----------
    left, right
        Fields of both sides, all of fixed width.
    key
        The key's name: a column of integers of up to 8 bytes, without nulls, of the same type on both sides.
    """

    def __init__(self, left: Sequence[Field], right: Sequence[Field], key: str) -> None:
        self._left, self._right = tuple(left), tuple(right)
        self._left_key = [field.name for field in left].index(key)
        self._right_key = [field.name for field in right].index(key)
        self.fields = (*self._left, *(field for at, field in enumerate(right) if at != self._right_key))
        self._heads = np.zeros(0, np.uint32)
        self._links = self._keys = np.zeros(0, np.uint64)
        self._found: list[npt.NDArray[Any]] = [np.zeros(0, np.int32)] * 4
        self._side: dict[int, npt.NDArray[Any]] = {}

    def join(self, left: Sequence[Columns], right: Sequence[Columns], out: Arena) -> Iterator[Frame]:
        """The matching rows, a piece at a time, in memory of `out`.

        `left`, `right`: the bucket's rows in chunks, of each the columns of all fields.
        """
        rows = sum(chunk[self._left_key].values.size for chunk in left)
        if not rows:
            return
        shift = self._enter(left, rows)
        columns = self._contiguous(left, rows)
        for chunk in right:
            yield from self._look_up(chunk, columns, shift, out)

    def _enter(self, left: Sequence[Columns], rows: int) -> Any:
        bits = max(4, int(2 * rows - 1).bit_length())
        if self._heads.size < 1 << bits:
            self._heads = np.zeros(1 << bits, np.uint32)
        if self._keys.size < rows:
            self._links, self._keys = np.empty(rows, np.uint32), np.empty(rows, np.uint64)
        self._heads[: 1 << bits] = 0
        shift, first = np.uint64(64 - bits), 0
        for chunk in left:
            keys = chunk[self._left_key].values
            build_chains(keys, first, shift, self._heads, self._links, self._keys)
            first += keys.size
        return shift

    def _contiguous(self, left: Sequence[Columns], rows: int) -> list[Column]:
        """The left columns but the key as one chunk each."""
        found: list[Column] = []
        for at in range(len(self._left)):
            if at == self._left_key:
                found.append(Column(self._keys[:rows]))
                continue
            values = self._joined([chunk[at].values for chunk in left], 2 * at)
            valids = [chunk[at].valid for chunk in left]
            known = [valid for valid in valids if valid is not None]
            found.append(Column(values, None, self._joined(known, 2 * at + 1) if known else None))
        return found

    def _joined(self, chunks: list[npt.NDArray[Any]], slot: int) -> npt.NDArray[Any]:
        if len(chunks) == 1:
            return chunks[0]
        rows = sum(map(len, chunks))
        room = self._side.get(slot)
        if room is None or len(room) < rows:
            room = self._side[slot] = np.empty((rows, *chunks[0].shape[1:]), chunks[0].dtype)
        return np.concatenate(chunks, out=room[:rows])

    def _look_up(self, chunk: Columns, left: list[Column], shift: Any, out: Arena) -> Iterator[Frame]:
        keys = chunk[self._right_key].values
        if self._found[0].size <= keys.size:
            self._found = [np.empty(keys.size + 1, np.int32) for _ in range(4)]
        candidates, entries, lefts, rights = self._found
        count = find_candidates(keys, shift, self._heads, candidates, entries)
        at = 0
        while at < count:
            rows, at = follow_chains(keys, candidates, entries, at, count, self._links, self._keys, lefts, rights)
            if rows:
                yield self._piece(chunk, left, lefts[:rows], rights[:rows], out)

    def _piece(
        self, chunk: Columns, left: list[Column], lefts: npt.NDArray[Any], rights: npt.NDArray[Any], out: Arena
    ) -> Frame:
        columns = []
        for at, column in enumerate(left):
            # The key comes from the right, where it is read in order.
            source, rows = (chunk[self._right_key], rights) if at == self._left_key else (column, lefts)
            columns.append(_taken(source, rows, out))
        columns += [_taken(column, rights, out) for at, column in enumerate(chunk) if at != self._right_key]
        return Frame(self.fields, tuple(columns), lefts.size)


def _taken(column: Column, rows: npt.NDArray[Any], out: Arena) -> Column:
    values = column.values
    room = out.take(rows.size * values.dtype.itemsize * (2 if values.ndim == 2 else 1)).view(values.dtype)
    (gather_wide if values.ndim == 2 else gather)(values, rows, room)
    valid = None
    if column.valid is not None:
        valid = out.take(rows.size)
        gather(column.valid, rows, valid)
    return Column(room.reshape(-1, 2) if values.ndim == 2 else room, None, valid)
