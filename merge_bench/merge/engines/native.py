"""This package's own compiled hash join, for all keys but floats; Polars joins the rest.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines import hash_join_loops as loops
from merge_bench.merge.engines.base import JoinKind, JoinShape, Side
from merge_bench.merge.engines.join_columns import gather_column_rows, make_unmatched_result
from merge_bench.merge.engines.polars import PolarsEngine
from merge_bench.merge.frame import BLOCK, Array, Bytes, Column, Frame, empty_table
from merge_bench.merge.memory import ALIGN, BufferPool, allocate_aligned_bytes
from merge_bench.merge.partition import RowReader
from merge_bench.merge.partition_loops import RowHasher

ENGINE = EngineDescription(
    name="native",
    help="this package's own compiled hash join",
    attribute="NativeEngine",
    packages=("polars",),
    place=1,
    in_parts=True,
    reuses_sent=True,
)

LOOKED_UP = 1 << 11  # rows at a time: their keys and candidates stay in the L1 cache

_HashTable: TypeAlias = tuple[Any, Array, Array, Array, Array, Array]
"""What loops look rows up in: the shift of hashes, heads, links and keys; and room for candidates and entries."""
_MatchedChunk: TypeAlias = tuple[Frame, slice]
"""A chunk of right rows, and which of the pairs of rows found belong to it."""


def hash_table_bits(rows: int) -> int:
    """Return the number of bits of a slot number in a hash table: for more than 1.25 × rows slots, at least 16."""
    return max(4, int(1.25 * rows).bit_length())


class BucketJoin:
    """Joins bucket after bucket with the same scratch memory; only for use by one thread.

    The keys of `shape` are columns of one type on both sides, without nulls, and none is a float: values are equal
    exactly if their bytes are.
    """

    def __init__(self, shape: JoinShape) -> None:
        self._shape, self._output = shape, shape.output_fields
        self._keys = {side: shape.key_positions(side) for side in Side}
        self._fixed = all(0 < shape.left[at].width <= 8 for at in self._keys[Side.LEFT])
        self._compared = slice(-1 if self._fixed else None)
        self._hasher = RowHasher()
        self._heads = np.zeros(0, np.uint32)
        self._links = self._entered = np.zeros(0, np.uint64)
        self._hashes: Array = np.zeros(0, np.uint64)
        self._candidates, self._entries = np.empty(LOOKED_UP, np.int32), np.empty(LOOKED_UP, np.int32)
        self._found: list[Array] = [np.zeros(0, np.int32)] * 2
        self._rooms: dict[str, Bytes] = {}

    def join_chunks(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """Join the left and right chunks of a bucket; yields the result in pieces, in memory from `out`."""
        how = self._shape.how
        left_marks = (
            self._zeroed_row_marks(Side.LEFT, left) if how.keeps_unmatched_left or not how.has_right_columns else None
        )
        right_marks = self._zeroed_row_marks(Side.RIGHT, right) if how.keeps_unmatched_right else None
        if how.has_right_columns:
            yield from self._join_matching_pairs(left, right, out, left_marks, right_marks)
        elif left_marks is not None:
            self._mark_matched_left_rows(left, right, left_marks)
        if left_marks is not None:
            yield from self._one_sided_result(Side.LEFT, left, left_marks, int(how is JoinKind.SEMI), out)
        if right_marks is not None:
            yield from self._one_sided_result(Side.RIGHT, right, right_marks, 0, out)

    def _mark_matched_left_rows(self, left: Sequence[Frame], right: Sequence[Frame], marks: Bytes) -> None:
        """Set the marks of the left rows that have a match among the right rows."""
        rows = sum(chunk.rows for chunk in right)
        if not rows:
            return
        table, compared = (
            self._build_hash_table(Side.RIGHT, right, rows),
            self._key_columns_to_compare(Side.RIGHT, right),
        )
        theirs, ours = (np.empty(LOOKED_UP, np.int32) for _ in range(2))
        first = 0
        for chunk in left:
            words, chunk_marks = self.make_key_words(Side.LEFT, chunk), marks[first : first + chunk.rows]
            if not compared:
                loops.mark_matching_rows(words, *table, chunk_marks)
            at = count = 0
            while compared and (count or at < chunk.rows):
                pairs, at, count = loops.find_next_pairs(words, at, count, *table, theirs, ours)
                for column, place in compared:
                    pairs = loops.keep_equal_pairs(column, chunk.columns[place], theirs[:pairs], ours[:pairs])
                loops.mark_rows(ours[:pairs], chunk_marks)
                count = loops.drop_marked_candidates(self._candidates, self._entries, count, chunk_marks)
            first += chunk.rows

    def _zeroed_row_marks(self, side: Side, chunks: Sequence[Frame]) -> Bytes:
        """Return an array of zeros with one mark for each row of the chunks of a side."""
        marks = self._scratch_bytes(f"marks of {side.value}", sum(chunk.rows for chunk in chunks))
        marks[:] = 0
        return marks

    def _one_sided_result(
        self, side: Side, chunks: Sequence[Frame], marks: Bytes, mark: int, out: BufferPool
    ) -> Iterator[Frame]:
        """Yield the result rows of one side's rows with this mark, with nulls for the columns of the other side."""
        parts, first = [], 0
        for chunk in chunks:
            rows = np.empty(chunk.rows + 1, np.int32)  # one more, because it writes before it knows
            size = loops.find_rows_by_mark(marks[first : first + chunk.rows], mark, rows)
            first += chunk.rows
            if size:
                parts.append((chunk, rows[:size]))
        if parts:
            yield make_unmatched_result(self._shape, side, parts, out)

    def _join_matching_pairs(
        self,
        left: Sequence[Frame],
        right: Sequence[Frame],
        out: BufferPool,
        left_marks: Bytes | None,
        right_marks: Bytes | None,
    ) -> Iterator[Frame]:
        """Yield the result rows of all pairs of matching rows, in pieces.

        Matched rows are marked where marks are given.
        """
        rows = sum(chunk.rows for chunk in left)
        if not rows:
            return
        table, compared = self._build_hash_table(Side.LEFT, left, rows), self._key_columns_to_compare(Side.LEFT, left)
        lefts, rights = self._row_number_buffers(rows, right)
        parts: list[_MatchedChunk] = []
        pairs = first = 0
        for chunk in right:
            words = self.make_key_words(Side.RIGHT, chunk)
            at = count = 0
            while count or at < chunk.rows:
                if pairs + count > lefts.size:
                    yield self._make_result_piece(left, parts, lefts, rights, out)
                    parts, pairs = [], 0
                ours, theirs = lefts[pairs:], rights[pairs:]
                size, at, count = loops.find_matching_pairs(words, at, count, *table, ours, theirs)
                for column, place in compared:
                    size = loops.keep_equal_pairs(column, chunk.columns[place], ours[:size], theirs[:size])
                if left_marks is not None:
                    loops.mark_rows(ours[:size], left_marks)
                if right_marks is not None:
                    loops.mark_rows(theirs[:size], right_marks[first:])
                if size:
                    parts.append((chunk, slice(pairs, pairs + size)))
                    pairs += size
            first += chunk.rows
        if parts:
            yield self._make_result_piece(left, parts, lefts, rights, out)

    def _build_hash_table(self, side: Side, chunks: Sequence[Frame], row_count: int) -> _HashTable:
        """Insert the rows of one side into a hash table, and return that table."""
        bits = hash_table_bits(row_count)
        if self._heads.size < 1 << bits:
            self._heads = np.zeros(1 << bits, np.uint32)
        if self._entered.size < row_count:
            self._links, self._entered = np.empty(row_count, np.uint32), np.empty(row_count, np.uint64)
        self._heads[: 1 << bits] = 0
        shift, first = np.uint64(64 - bits), 0
        for chunk in chunks:
            loops.build_hash_chains(
                self.make_key_words(side, chunk), first, shift, self._heads, self._links, self._entered
            )
            first += chunk.rows
        return shift, self._heads, self._links, self._entered, self._candidates, self._entries

    def _key_columns_to_compare(self, side: Side, chunks: Sequence[Frame]) -> list[tuple[Column, int]]:
        """Return the key columns whose values must be compared, too, when 64-bit words are equal.

        Each comes with the position of the key on the other side.
        """
        keys = zip(self._keys[side][self._compared], self._keys[side.opposite][self._compared], strict=True)
        return [(self._contiguous_column(chunks, at, f"key {at}"), place) for at, place in keys]

    def make_key_words(self, side: Side, chunk: Frame) -> Array:
        """Make the 64-bit words by which the rows of a chunk are inserted and looked up; valid until the next call.

        Rows with equal keys have equal words, and others may have. Where all keys have up to 8 bytes, rows that differ
        in the last key alone have different words: that key is not compared again.
        """
        keys = self._keys[side]
        if self._fixed and len(keys) == 1:
            return chunk.columns[keys[0]].values
        if self._hashes.size < chunk.rows:
            self._hashes = np.empty(chunk.rows, np.uint64)
        if self._fixed:
            words = chunk.columns[keys[0]].values
            for at in keys[1:]:
                loops.combine_key_column(words, chunk.columns[at].values, self._hashes[: chunk.rows])
                words = self._hashes[: chunk.rows]
            return words
        columns = [(self._shape.fields(side)[at], replace(chunk.columns[at], valid=None)) for at in keys]
        for start in range(0, chunk.rows, BLOCK):
            hashes, _ = self._hasher.hash_rows(columns, start, min(BLOCK, chunk.rows - start))
            self._hashes[start : start + hashes.size] = hashes
        return self._hashes[: chunk.rows]

    def _contiguous_column(self, chunks: Sequence[Frame], position: int, scratch_name: str) -> Column:
        """Return a column of several chunks as one, valid until another one uses the same scratch memory."""
        if len(chunks) == 1:
            return chunks[0].columns[position]
        columns = [chunk.columns[position].from_first_byte() for chunk in chunks]
        offsets = [column.offsets for column in columns if column.offsets is not None]
        valids = [column.valid for column in columns if column.valid is not None]
        return Column(
            self._concatenate_values([column.values for column in columns], f"values of {scratch_name}"),
            self._concatenate_offsets(offsets, f"offsets of {scratch_name}") if offsets else None,
            self._concatenate_values(valids, f"validity of {scratch_name}") if valids else None,
        )

    def _concatenate_values(self, arrays: list[Array], scratch_name: str) -> Array:
        return np.concatenate(arrays, out=self._scratch_for_arrays(scratch_name, arrays))

    def _concatenate_offsets(self, arrays: list[Array], scratch_name: str) -> Array:
        room, rows = self._scratch_for_arrays(scratch_name, arrays), 0
        room[0] = 0
        for chunk in arrays:
            np.add(chunk[1:], room[rows], out=room[rows + 1 : rows + chunk.size])
            rows += chunk.size - 1
        return room[: rows + 1]

    def _scratch_for_arrays(self, scratch_name: str, arrays: list[Array]) -> Array:
        return self._scratch_bytes(scratch_name, sum(chunk.nbytes for chunk in arrays)).view(arrays[0].dtype)

    def _scratch_bytes(self, scratch_name: str, size: int) -> Bytes:
        """Return scratch memory of `size` bytes, the same memory for every call with this name."""
        if scratch_name not in self._rooms or self._rooms[scratch_name].size < size:
            self._rooms[scratch_name] = allocate_aligned_bytes(size)
        return self._rooms[scratch_name][:size]

    def _row_number_buffers(self, left_row_count: int, right: Sequence[Frame]) -> list[Array]:
        """Return two arrays for the left and the right row numbers of pairs, reused by later calls.

        They have room for as many pairs as either side has rows. So for n pairs, pieces of the result are made, and
        left columns copied, at most n / `left_row_count` times.
        """
        size = max(left_row_count, sum(chunk.rows for chunk in right))
        self._found = [room if room.size >= size else np.empty(size, np.int32) for room in self._found]
        return self._found

    def _make_result_piece(
        self,
        left: Sequence[Frame],
        matched_chunks: Sequence[_MatchedChunk],
        left_rows: Array,
        right_rows: Array,
        out: BufferPool,
    ) -> Frame:
        """Make the result rows of all pairs found in these chunks.

        They are made column by column, so that a left column stays in the cache.
        """
        pairs = matched_chunks[-1][1].stop
        keys = dict(zip(self._keys[Side.LEFT], self._keys[Side.RIGHT], strict=True))

        def right_column(position: int) -> Column:
            return gather_column_rows(
                [(chunk.columns[position], right_rows[found]) for chunk, found in matched_chunks], out
            )

        def left_column(position: int) -> Column:
            if position in keys:  # from the right, where keys are read in order
                return right_column(keys[position])
            return gather_column_rows([(self._contiguous_column(left, position, "payload"), left_rows[:pairs])], out)

        ours, theirs = (
            map(left_column, range(len(self._shape.left))),
            map(right_column, self._shape.right_payload_positions),
        )
        return Frame(self._output, (*ours, *theirs), pairs)


EXCHANGED = {JoinKind.INNER: JoinKind.INNER, JoinKind.LEFT: JoinKind.RIGHT}
"""Joins that look right rows up in a table of the left ones, and what they are with the sides exchanged."""


class SwappedSidesJoin(BucketJoin):
    """A `BucketJoin` with the sides swapped: its hash table has the right rows, and left rows are looked up."""

    def __init__(self, shape: JoinShape) -> None:
        exchanged = replace(shape, left=shape.right, right=shape.left, how=EXCHANGED[shape.how])
        super().__init__(exchanged)
        names = [field.name for field in exchanged.output_fields]
        self._fields, self._places = shape.output_fields, [names.index(field.name) for field in shape.output_fields]

    def join_chunks(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """Join a block of left rows with all right rows; yields the result in pieces, in memory from `out`."""
        for piece in super().join_chunks(right, left, out):
            columns = tuple(piece.columns[at] for at in self._places)
            yield Frame(self._fields, columns, piece.rows)


def can_join_natively(shape: JoinShape) -> bool:
    """Whether the compiled join supports these keys: each has one type on both sides, and none is a float.

    Such keys are equal exactly if their bytes are. Floats are not: 0.0 equals -0.0, and a NaN equals nothing.
    """
    keys = zip(*([shape.fields(side)[at] for at in shape.key_positions(side)] for side in Side), strict=True)
    return all(left.type == right.type and not left.is_floating for left, right in keys)


class NativeEngine(PolarsEngine):
    """A compiled hash join, bucket by bucket, whose result is written to reused memory."""

    name = ENGINE.name
    table_rows: ClassVar[int] = (1 << 24) - 2  # at most: a head has 24 bits for the row and 8 for tags
    join_rows = 96_000  # with 52,000 left rows or fewer a table has 65,536 chains, half as many as with more

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        few_right = self._in_place and shape.sent is Side.RIGHT and shape.how in EXCHANGED
        kind = SwappedSidesJoin if few_right else BucketJoin
        # One for each thread: neither a join nor a pool of buffers may be used by two threads at once.
        self._joins = [(kind(shape), BufferPool()) for _ in range(shape.threads)] if can_join_natively(shape) else []
        self._buffer_pools += [out for _, out in self._joins]

    @staticmethod
    def needs_polars(shape: JoinShape) -> bool:
        """Whether a key is a float, or has different types on both sides."""
        return not can_join_natively(shape)

    def add_result_memory(self, buffers: Sequence[Bytes]) -> None:
        """Use these buffers for the result first; each thread gets a share of every buffer."""
        for number, (_, out) in enumerate(self._joins):
            shares = [room.size // len(self._joins) // ALIGN * ALIGN for room in buffers]
            out.add_lent_buffers([room[number * size :][:size] for room, size in zip(buffers, shares, strict=True)])

    def join_bucket_ranges(self, ranges: Iterable[tuple[int, int]], left: RowReader, right: RowReader) -> Iterable[Any]:
        if not self._joins:
            return super().join_bucket_ranges(ranges, left, right)
        all_groups = list(ranges)

        def join_thread_share(thread: int) -> list[Any]:
            return list(self._join_on_thread(thread, all_groups[thread :: len(self._joins)], left, right))

        run = map if self._pool is None else self._pool.map
        pieces = list(itertools.chain.from_iterable(run(join_thread_share, range(len(self._joins)))))
        if not pieces and not self._results:
            pieces = [Frame.from_arrow(empty_table(self.shape.output_fields))]
        return pieces

    def _join_on_thread(
        self, thread: int, ranges: Sequence[tuple[int, int]], left: RowReader, right: RowReader
    ) -> Iterable[Any]:
        """Join ranges of buckets or blocks on one thread; yields the pieces of the result."""
        join, out = self._joins[thread]
        for first, last in ranges:
            chunks = left.read_buckets_as_frames(first, last), right.read_buckets_as_frames(first, last)
            entered, _ = chunks if self.shape.how.has_right_columns else reversed(chunks)
            if sum(chunk.rows for chunk in entered) > self.table_rows:
                yield self.join_with_library(
                    left.read_buckets_as_table(first, last), right.read_buckets_as_table(first, last)
                )
                continue
            yield from join.join_chunks(*chunks, out)
