"""The compiled hash join of one bucket, for the engine `native`.

The left rows of a bucket are entered into a table of chains, and the right rows are looked up in it. For a bucket of
65,000 rows a side, what is read in random order (heads, links and left keys) is about the size of the L2 cache. The
processor works on many look-ups at once: the first loop finds without a branch, by a tag of three further bits of the
hash, which right rows can have a match at all (after the tagged chain heads of Leis et al.,
"Morsel-Driven Parallelism", SIGMOD 2014, section 4.2).

Where rows without a match are kept, each row of that side that is in a pair gets a mark; the others follow once all
right rows of the bucket were looked up. A semi or anti join makes no pairs: it enters the right rows, looks up the left
ones, and marks each when the first match is found.

Rows are entered and looked up by 64 bits. A single key of up to 8 bytes is used as it is. Several such keys are folded
into 64 bits, all others are hashed; of the pairs of rows that are found, those with equal keys are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from merge_bench.merge.engines.base import How, JoinShape, Side
from merge_bench.merge.engines.hash_join_loops import (
    build_chains,
    find_marked,
    find_pairs,
    fold_key,
    follow_links,
    gather,
    gather_bytes,
    gather_offsets,
    keep_equal,
    keep_unmarked,
    mark_matches,
    mark_rows,
)
from merge_bench.merge.frame import BLOCK, Array, Bytes, Column, Field, Frame, storage_dtype
from merge_bench.merge.memory import BufferPool, aligned_bytes
from merge_bench.merge.partition_loops import RowHasher, is_plain_key

Rows = Sequence[tuple[Frame, Array]]
"""Chunks of one side, each with the numbers of some of its rows."""


def rows_without_key(chunk: Frame, keys: Sequence[str]) -> npt.NDArray[np.int32]:
    """The numbers of the rows of a chunk that have a null or NaN among their keys."""
    columns = [chunk.column(key) for key in keys]
    if all(is_plain_key(*column) for column in columns):
        return np.zeros(0, np.int32)
    hasher, parts = RowHasher(), []
    for start in range(0, chunk.rows, BLOCK):
        _, missing = hasher.hash_rows(columns, start, min(BLOCK, chunk.rows - start))
        parts.append(np.flatnonzero(missing) + start)
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def unmatched_result(shape: JoinShape, side: Side, rows: Rows, out: BufferPool) -> Frame:
    """Rows of the result for these rows of `side`, which have no match, in memory of `out`.

    Where only left columns are in the result, these are its rows.
    """
    count = sum(numbers.size for _, numbers in rows)
    names = [field.name for field in shape.fields(side)]

    def column(field: Field) -> Column:
        if field.name in names:
            at = names.index(field.name)
            return take_rows([(chunk.columns[at], numbers) for chunk, numbers in rows], out)
        return null_column(field, count, out)

    output = shape.output
    return Frame(output, tuple(column(field) for field in output), count)


def null_column(field: Field, count: int, out: BufferPool) -> Column:
    """A column of `count` nulls, in memory of `out`."""
    valid = out.take(count)
    valid[:] = 0
    if field.variable:
        offsets = out.take((count + 1) * 8).view(np.int64)
        offsets[:] = 0
        return Column(out.take(0), offsets, valid)
    values = out.take(count * field.width)
    values[:] = 0
    return Column(values.view(storage_dtype(field.width)), None, valid)


MOST_ROWS = (1 << 24) - 2
"""Most rows of a table: a head has 24 bits for the row and 8 for tags."""

LOOKED_UP = 1 << 11  # rows at a time: their keys and candidates stay in the L1 cache

_MatchedChunk: TypeAlias = tuple[Frame, slice]
"""A chunk of right rows, and which of the pairs of rows found belong to it."""


def chain_bits(rows: int) -> int:
    """Bits of a slot number in the table of so many rows: a power of two above 1.25 × rows, at least 16 slots."""
    return max(4, int(1.25 * rows).bit_length())


class BucketJoin:
    """Joins bucket after bucket with the same scratch memory; for use by one thread.

    Parameters
    ----------
    shape
        Its keys are columns of one type on both sides, without nulls, and none is a float: values are equal where their
        bytes are.
    """

    def __init__(self, shape: JoinShape) -> None:
        self._shape, self._how = shape, shape.how
        self._left, self._right, self._output = shape.left, shape.right, shape.output
        self._left_keys, self._right_keys = (shape.key_positions(side) for side in Side)
        self._fixed = all(0 < shape.left[at].width <= 8 for at in self._left_keys)
        # With fixed keys, the words of two rows with equal other keys are equal only if the last keys are.
        self._compared_keys = self._left_keys[:-1] if self._fixed else self._left_keys
        self._hasher = RowHasher()
        self._heads = np.zeros(0, np.uint32)
        self._links = self._entered = np.zeros(0, np.uint64)
        self._hashes: Array = np.zeros(0, np.uint64)
        self._candidates, self._entries = np.empty(LOOKED_UP, np.int32), np.empty(LOOKED_UP, np.int32)
        self._found: list[Array] = [np.zeros(0, np.int32)] * 2
        self._rooms: dict[str, Bytes] = {}

    def join(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """The result of joining a bucket, a piece at a time, in memory of `out`.

        `left`, `right`: the bucket's rows in chunks.
        """
        how = self._how
        if how is How.INNER:
            yield from self._join_pairs(left, right, out, None, None)
            return
        left_marks = self._cleared_marks(Side.LEFT, left) if how.keeps_left or not how.pairs else None
        right_marks = self._cleared_marks(Side.RIGHT, right) if how.keeps_right else None
        if how.pairs:
            yield from self._join_pairs(left, right, out, left_marks, right_marks)
        elif left_marks is not None:
            self._mark_matched_left(left, right, left_marks)
        if left_marks is not None:
            yield from self._rows_without_match(Side.LEFT, left, left_marks, int(how is How.SEMI), out)
        if right_marks is not None:
            yield from self._rows_without_match(Side.RIGHT, right, right_marks, 0, out)

    def _mark_matched_left(self, left: Sequence[Frame], right: Sequence[Frame], marks: Bytes) -> None:
        rows = sum(chunk.rows for chunk in right)
        if not rows:
            return
        shift = self._enter_rows(right, rows, self._right, self._right_keys)
        pairs = dict(zip(self._left_keys, self._right_keys, strict=True))
        compared = {at: self._contiguous_column(right, pairs[at], f"key {at}") for at in self._compared_keys}
        table = (shift, self._heads, self._links, self._entered, self._candidates, self._entries)
        theirs, ours = (np.empty(LOOKED_UP, np.int32) for _ in range(2))
        first = 0
        for chunk in left:
            words, chunk_marks = self._key_words(chunk, self._left, self._left_keys), marks[first : first + chunk.rows]
            if not compared:
                mark_matches(words, *table, chunk_marks)
            at = count = 0
            while compared and (count or at < chunk.rows):
                pairs_found, at, count = follow_links(words, at, count, *table, theirs, ours)
                for place, column in compared.items():
                    pairs_found = keep_equal(column, chunk.columns[place], theirs[:pairs_found], ours[:pairs_found])
                mark_rows(ours[:pairs_found], chunk_marks)
                count = keep_unmarked(self._candidates, self._entries, count, chunk_marks)
            first += chunk.rows

    def _cleared_marks(self, side: Side, chunks: Sequence[Frame]) -> Bytes:
        name, rows = f"marks of {side.value}", sum(chunk.rows for chunk in chunks)
        if name not in self._rooms or self._rooms[name].size < rows:
            self._rooms[name] = aligned_bytes(rows)
        marks = self._rooms[name][:rows]
        marks[:] = 0
        return marks

    def _rows_without_match(
        self, side: Side, chunks: Sequence[Frame], marks: Bytes, wanted: int, out: BufferPool
    ) -> Iterator[Frame]:
        """Rows of the result for the rows of one side whose mark is `wanted`, with nulls beside them."""
        parts, first = [], 0
        for chunk in chunks:
            rows = np.empty(chunk.rows + 1, np.int32)  # one more, because it writes before it knows
            size = find_marked(marks[first : first + chunk.rows], wanted, rows)
            first += chunk.rows
            if size:
                parts.append((chunk, rows[:size]))
        if parts:
            yield unmatched_result(self._shape, side, parts, out)

    def _join_pairs(
        self,
        left: Sequence[Frame],
        right: Sequence[Frame],
        out: BufferPool,
        left_marks: Bytes | None,
        right_marks: Bytes | None,
    ) -> Iterator[Frame]:
        """The pairs of matching rows, a piece at a time; the rows of a side that has marks are marked."""
        rows = sum(chunk.rows for chunk in left)
        if not rows:
            return
        shift = self._enter_rows(left, rows, self._left, self._left_keys)
        compared = {at: self._contiguous_column(left, at, f"key {at}") for at in self._compared_keys}
        lefts, rights = self._room_for_pairs(rows, right)
        parts: list[_MatchedChunk] = []
        pairs = first = 0
        for chunk in right:
            words = self._key_words(chunk, self._right, self._right_keys)
            at = count = 0
            while count or at < chunk.rows:
                if pairs + count > lefts.size:
                    yield self._make_piece(left, parts, lefts, rights, out)
                    parts, pairs = [], 0
                ours, theirs = lefts[pairs:], rights[pairs:]
                size, at, count = find_pairs(
                    words,
                    at,
                    count,
                    shift,
                    self._heads,
                    self._links,
                    self._entered,
                    self._candidates,
                    self._entries,
                    ours,
                    theirs,
                )
                for place, key in zip(self._left_keys, self._right_keys, strict=True):
                    if place in compared:
                        size = keep_equal(compared[place], chunk.columns[key], ours[:size], theirs[:size])
                if left_marks is not None:
                    mark_rows(ours[:size], left_marks)
                if right_marks is not None:
                    mark_rows(theirs[:size], right_marks[first:])
                if size:
                    parts.append((chunk, slice(pairs, pairs + size)))
                    pairs += size
            first += chunk.rows
        if parts:
            yield self._make_piece(left, parts, lefts, rights, out)

    def _enter_rows(self, chunks: Sequence[Frame], rows: int, fields: Sequence[Field], keys: Sequence[int]) -> Any:
        bits = chain_bits(rows)
        if self._heads.size < 1 << bits:
            self._heads = np.zeros(1 << bits, np.uint32)
        if self._entered.size < rows:
            self._links, self._entered = np.empty(rows, np.uint32), np.empty(rows, np.uint64)
        self._heads[: 1 << bits] = 0
        shift, first = np.uint64(64 - bits), 0
        for chunk in chunks:
            build_chains(self._key_words(chunk, fields, keys), first, shift, self._heads, self._links, self._entered)
            first += chunk.rows
        return shift

    def _key_words(self, chunk: Frame, fields: Sequence[Field], keys: Sequence[int]) -> Array:
        """The 64 bits by which each row of a chunk is entered or looked up; valid until the next call."""
        if self._fixed and len(keys) == 1:
            return chunk.columns[keys[0]].values
        if self._hashes.size < chunk.rows:
            self._hashes = np.empty(chunk.rows, np.uint64)
        if self._fixed:
            words = chunk.columns[keys[0]].values
            for at in keys[1:]:
                fold_key(words, chunk.columns[at].values, self._hashes[: chunk.rows])
                words = self._hashes[: chunk.rows]
            return words
        columns = [(fields[at], replace(chunk.columns[at], valid=None)) for at in keys]
        for start in range(0, chunk.rows, BLOCK):
            hashes, _ = self._hasher.hash_rows(columns, start, min(BLOCK, chunk.rows - start))
            self._hashes[start : start + hashes.size] = hashes
        return self._hashes[: chunk.rows]

    def _contiguous_column(self, left: Sequence[Frame], at: int, room: str) -> Column:
        """A left column as one chunk, which stays valid until the next column goes into the same `room`."""
        chunks = [chunk.columns[at] for chunk in left]
        offsets = [chunk.offsets for chunk in chunks if chunk.offsets is not None]
        valids = [chunk.valid for chunk in chunks if chunk.valid is not None]
        return Column(
            self._concatenate([chunk.values for chunk in chunks], f"values of {room}"),
            self._concatenate_offsets(offsets, f"offsets of {room}") if offsets else None,
            self._concatenate(valids, f"validity of {room}") if valids else None,
        )

    def _concatenate(self, chunks: list[Array], name: str) -> Array:
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks, out=self._room_for_chunks(chunks, name))

    def _concatenate_offsets(self, chunks: list[Array], name: str) -> Array:
        if len(chunks) == 1:
            return chunks[0]
        room, rows = self._room_for_chunks(chunks, name), 0
        room[0] = 0
        for chunk in chunks:
            np.add(chunk[1:], room[rows], out=room[rows + 1 : rows + chunk.size])
            rows += chunk.size - 1
        return room[: rows + 1]

    def _room_for_chunks(self, chunks: list[Array], name: str) -> Array:
        size = sum(chunk.nbytes for chunk in chunks)
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = aligned_bytes(size)
        return self._rooms[name][:size].view(chunks[0].dtype)

    def _room_for_pairs(self, rows: int, right: Sequence[Frame]) -> list[Array]:
        """Two arrays for the left and the right row numbers of pairs of rows.

        There is room for as many pairs as either side has rows. So of n pairs with `rows` left rows, at most n / `rows`
        times are the pieces made, and the left columns copied.
        """
        size = max(rows, sum(chunk.rows for chunk in right))
        self._found = [room if room.size >= size else np.empty(size, np.int32) for room in self._found]
        return self._found

    def _make_piece(
        self, left: Sequence[Frame], parts: Sequence[_MatchedChunk], lefts: Array, rights: Array, out: BufferPool
    ) -> Frame:
        """The result rows of all `parts`, made by columns, because a copied left column stays in the cache so long."""
        pairs = parts[-1][1].stop
        keys = dict(zip(self._left_keys, self._right_keys, strict=True))
        columns = []
        for at in range(len(self._left)):
            if at in keys:  # from the right, where keys are read in order
                columns.append(take_rows([(chunk.columns[keys[at]], rights[found]) for chunk, found in parts], out))
            else:
                columns.append(take_rows([(self._contiguous_column(left, at, "payload"), lefts[:pairs])], out))
        for at in range(len(self._right)):
            if at not in self._right_keys:
                columns.append(take_rows([(chunk.columns[at], rights[found]) for chunk, found in parts], out))
        return Frame(self._output, tuple(columns), pairs)


def take_rows(sources: Sequence[tuple[Column, Array]], out: BufferPool) -> Column:
    """One column with the rows of these numbers of each source, one source after the other, in memory of `out`."""
    edges = [0, *itertools.accumulate(rows.size for _, rows in sources)]
    spans = list(itertools.pairwise(edges))
    (kind, _), count = sources[0], edges[-1]
    valid = None
    if kind.valid is not None:
        valid = out.take(count)
        for (column, rows), (first, last) in zip(sources, spans, strict=True):
            gather(column.valid, rows, valid[first:last])
    if kind.offsets is not None:
        offsets = out.take((count + 1) * 8).view(np.int64)
        offsets[0] = 0
        for (column, rows), (first, last) in zip(sources, spans, strict=True):
            gather_offsets(column.offsets, rows, offsets[first : last + 1])
        data = out.take(int(offsets[count]))
        for (column, rows), (first, _) in zip(sources, spans, strict=True):
            gather_bytes(column.values, column.offsets, rows, offsets[first:], data)
        return Column(data, offsets, valid)
    values = out.take(count * kind.values.itemsize).view(kind.values.dtype)
    for (column, rows), (first, last) in zip(sources, spans, strict=True):
        gather(column.values, rows, values[first:last])
    return Column(values, None, valid)


EXCHANGED = {How.INNER: How.INNER, How.LEFT: How.RIGHT}
"""Joins that look right rows up in a table of the left ones, and what they are with the sides exchanged."""


class FewRightRowsJoin(BucketJoin):
    """A `BucketJoin` of `EXCHANGED` that looks left rows up in a table of the right ones."""

    def __init__(self, shape: JoinShape) -> None:
        exchanged = replace(shape, left=shape.right, right=shape.left, how=EXCHANGED[shape.how])
        super().__init__(exchanged)
        names = [field.name for field in exchanged.output]
        self._fields, self._places = shape.output, [names.index(field.name) for field in shape.output]

    def join(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """The result of joining a block of left rows with all right ones, a piece at a time, in memory of `out`."""
        for piece in super().join(right, left, out):
            columns = tuple(piece.columns[at] for at in self._places)
            yield Frame(self._fields, columns, piece.rows)
