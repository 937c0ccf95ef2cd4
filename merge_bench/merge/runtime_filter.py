"""A runtime filter: rows that can have no match are left out before anything is partitioned and sent.

Databases do this, too (Spark and Impala call it a runtime filter, DuckDB a dynamic one). Two steps:

1. Workers tell each other the least and greatest keys of both frames. A row whose key lies outside of the other frame's
   has no match. Where nine of ten rows would remain if keys were spread evenly, this step is left out.
2. If few rows of one side are left, and many of the other, each worker enters the keys of the few in a Bloom filter
   (Bloom 1970) and sends it to all others, unless it is larger than its share of the many rows. All workers join these
   filters, and test the keys of the many.

A frame of which more than half remains is used as it is, because copying would take longer than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merge_bench.merge.engines.base import AllGather, JoinShape, Side
from merge_bench.merge.engines.join_columns import gather_column_rows
from merge_bench.merge.frame import BLOCK, Array, Bytes, Field, Frame
from merge_bench.merge.jit import compile_inline, compile_loop, load_uint64
from merge_bench.merge.memory import BufferPool, aligned_size
from merge_bench.merge.partition import divide_rows
from merge_bench.merge.partition_loops import RowHasher, can_hash_key_directly, hash_first_key

KEY_BITS = 16  # of the Bloom filter for each key. With two of them set in one word, 2 % of other keys pass
NEARLY_ALL = 0.9  # of the rows: if so many would remain with keys spread evenly, the first step is left out
FEWER = 8  # times as few rows as the other side: otherwise the Bloom filter costs more than it saves

Span: TypeAlias = tuple[int, int]
Limits: TypeAlias = tuple[int, int]  # the least and the greatest
Mark: TypeAlias = Callable[[Span, Bytes], None]


class RuntimeFilter:
    """Removes rows that can have no match from both chunks of one worker, before they are partitioned and sent.

    All workers have to call `filter_chunks` at once. `scratch`: memory that is used during a call only. The remaining
    values of each column are in memory of its own pool (`column_pools`) until the next `reset_pool` of that pool.
    """

    most_bytes: ClassVar[int] = 1 << 20  # of the Bloom filter, which is read at random and has to stay in the L2 cache
    most_rows: ClassVar[int] = 2**31 - 1  # of a chunk that is filtered: kept rows are numbered with 32 bits

    def __init__(self, shape: JoinShape, scratch: BufferPool) -> None:
        self._shape, self._scratch = shape, scratch
        self._pools = {side: [BufferPool() for _ in shape.fields(side)] for side in Side}
        # Keys of both columns that are compared as integers. What lies under a null can only widen the limits.
        keys = zip(*(shape.key_positions(side) for side in Side), strict=True)
        fields = ((places, shape.left[places[0]], shape.right[places[1]]) for places in keys)
        self._integers = [
            places
            for places, left, right in fields
            if left.type == right.type and 0 < left.width <= 8 and not left.is_floating
        ]

    @property
    def column_pools(self) -> list[BufferPool]:
        """The buffer pools of the columns of both sides, one each, with the memory of the remaining values."""
        return [*self._pools[Side.LEFT], *self._pools[Side.RIGHT]]

    def filter_chunks(
        self, chunks: Mapping[Side, Frame], all_gather: AllGather, pool: ThreadPoolExecutor | None = None
    ) -> dict[Side, Frame]:
        """Return both chunks without rows that were found to have no match."""
        remaining = dict(chunks)
        if self._integers:
            remaining = self._filter_by_key_range(remaining, all_gather, pool)
        return self._filter_by_bloom(remaining, all_gather, pool)

    def _filter_by_key_range(
        self, chunks: dict[Side, Frame], all_gather: AllGather, pool: ThreadPoolExecutor | None
    ) -> dict[Side, Frame]:
        """Keep the rows whose keys lie between the least and the greatest key of the other side."""
        values = [self._integer_key_values(side, chunks[side]) for side in Side]
        own = np.array([[self._least_and_greatest(each, pool) for each in keys] for keys in values], np.int64)
        ends = np.stack([each.view(np.int64).reshape(own.shape) for each in all_gather(_view_as_bytes(own))])
        lows, highs = ends[..., 0].min(axis=0), ends[..., 1].max(axis=0)  # shape (sides, keys)
        limits = list(zip(lows.max(axis=0).tolist(), highs.min(axis=0).tolist(), strict=True))

        def mark_keys_in_limits(keys: list[Array], row_range: Span, marks: Bytes) -> None:
            marks[:] = 1
            for values, (low, high) in zip(keys, limits, strict=True):
                unmark_outside_range(values[slice(*row_range)], low, high, marks)

        for side, keys, ranges in zip(Side, values, zip(lows.tolist(), highs.tolist(), strict=True), strict=True):
            if (
                not self._shape.how.keeps_unmatched(side)
                and _fraction_within_limits(limits, zip(*ranges, strict=True)) < NEARLY_ALL
            ):
                chunks[side] = self._keep_marked_rows(side, chunks[side], partial(mark_keys_in_limits, keys), pool)
        return chunks

    def _filter_by_bloom(
        self, chunks: dict[Side, Frame], all_gather: AllGather, pool: ThreadPoolExecutor | None
    ) -> dict[Side, Frame]:
        """Filter the larger side by a Bloom filter of the smaller side's keys, if the smaller side has few rows."""
        own = np.array([chunks[side].rows for side in Side], np.int64)
        totals = np.sum([part.view(np.int64) for part in all_gather(_view_as_bytes(own))], axis=0)
        few, many = (list(Side)[at] for at in np.argsort(totals, kind="stable"))
        fewest, most = sorted(totals.tolist())
        words = 1 << max(0, -(-fewest * KEY_BITS // 64) - 1).bit_length()
        others = self._shape.workers - 1
        saved = most * sum(field.assumed_width for field in self._shape.fields(many)) / self._shape.workers
        costly = 8 * words > self.most_bytes or 8 * words * others > saved
        if self._shape.how.keeps_unmatched(many) or most < FEWER * fewest or costly:
            return chunks
        entered = np.zeros(words, np.uint64)
        for _, hashes, _ in self._hash_blocks(chunks[few], (0, chunks[few].rows)):
            insert_into_bloom_filter(hashes, entered)
        words_of_all = np.zeros(words, np.uint64)
        for part in all_gather(_view_as_bytes(entered)):
            words_of_all |= part.view(np.uint64)

        def mark_bloom_members(row_range: Span, marks: Bytes) -> None:
            for start, hashes, missing in self._hash_blocks(chunks[many], row_range):
                block_marks = marks[start - row_range[0] :][: hashes.size]
                mark_bloom_filter_members(hashes, words_of_all, block_marks)
                if missing is not None:
                    block_marks &= missing ^ 1

        chunks[many] = self._keep_marked_rows(many, chunks[many], mark_bloom_members, pool)
        return chunks

    def _integer_key_values(self, side: Side, frame: Frame) -> list[Array]:
        """Return the values of one side's integer keys, an array for each key, of a signed type for signed keys."""
        at = list(Side).index(side)
        fields = self._shape.fields(side)
        return [frame.columns[places[at]].values.view(_integer_dtype(fields[places[at]])) for places in self._integers]

    def _hash_blocks(self, frame: Frame, row_range: Span) -> Iterator[tuple[int, Array, Bytes | None]]:
        """Yield the first row, the hashes, and the marks of rows with null or NaN keys of each block of rows.

        The marks are None if no key can be null.
        """
        keys, hasher, room = [frame.column(name) for name in self._shape.keys], RowHasher(), np.empty(BLOCK, np.uint64)
        plain = len(keys) == 1 and can_hash_key_directly(*keys[0])
        for start in range(*row_range, BLOCK):
            end = min(start + BLOCK, row_range[1])
            if plain:  # the same hashes, in one pass
                hash_first_key(keys[0][1].values[start:end], room[: end - start])
                yield start, room[: end - start], None
            else:
                yield start, *hasher.hash_rows(keys, start, end - start)

    def _least_and_greatest(self, values: Array, pool: ThreadPoolExecutor | None) -> tuple[int, int]:
        """Return the least and the greatest of the values, as Python integers."""
        spans = divide_rows(0, values.size, self._shape.threads)
        ranges = list(_map_on_threads(pool, lambda span: key_range(values[slice(*span)]), spans))
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def _keep_marked_rows(self, side: Side, frame: Frame, mark_rows: Mark, pool: ThreadPoolExecutor | None) -> Frame:
        """Return a frame of the rows that `mark_rows` marks, or the whole frame if they are more than half of it."""
        if frame.rows > self.most_rows:
            return frame
        most = frame.rows // 2
        self._scratch.reserve_bytes(aligned_size(frame.rows) + 4 * (most + 1))
        marks = self._scratch.take_bytes(frame.rows)

        def count_marked(row_range: Span) -> int:
            mark_rows(row_range, marks[slice(*row_range)])
            return int(np.count_nonzero(marks[slice(*row_range)]))

        kept = sum(_map_on_threads(pool, count_marked, divide_rows(0, frame.rows, self._shape.threads)))
        if kept > most:
            return frame
        rows = self._scratch.take_bytes(4 * (kept + 1)).view(np.int32)
        write_marked_row_numbers(marks, rows)
        columns = _map_on_threads(
            pool, lambda column, out: gather_column_rows([(column, rows[:kept])], out), frame.columns, self._pools[side]
        )
        return Frame(frame.fields, tuple(columns), kept)


def _map_on_threads(
    pool: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: Iterable[Any]
) -> Iterator[Any]:
    """Apply a function to arguments on the threads of a pool, or on this thread if the pool is None."""
    return map(function, *arguments) if pool is None else pool.map(function, *arguments)


def _fraction_within_limits(limits: Iterable[Limits], key_ranges: Iterable[Limits]) -> float:
    """Estimate the fraction of rows whose keys are within the limits, if keys are spread evenly over their ranges."""
    share = 1.0
    for (low, high), (least, greatest) in zip(limits, key_ranges, strict=True):
        share *= max(0, high - low + 1) / max(1, greatest - least + 1)
    return share


def _integer_dtype(field: Field) -> np.dtype[Any]:
    """Return the NumPy integer type of a field's values: signed for signed integers, dates and times."""
    signed = pa.types.is_signed_integer(field.type) or pa.types.is_temporal(field.type)
    return np.dtype(f"{'i' if signed else 'u'}{field.width}")


def _view_as_bytes(values: npt.NDArray[Any]) -> Bytes:
    return values.view(np.uint8).reshape(-1)


BIT = np.uint64(1)
LOW = np.uint64(63)


@compile_loop
def key_range(values: Any) -> tuple[Any, Any]:
    """Return the least and the greatest value as int64; without values, the greatest and the least int64."""
    least, greatest = np.int64(2**63 - 1), np.int64(-(2**63))
    for i in range(values.size):
        least = min(least, np.int64(values[i]))
        greatest = max(greatest, np.int64(values[i]))
    return least, greatest


@compile_loop
def unmark_outside_range(values: Any, least: Any, greatest: Any, marks: Any) -> None:
    """Set the marks of rows whose value is not within least…greatest to 0."""
    for i in range(values.size):
        value = np.int64(values[i])
        marks[i] &= np.uint8((value >= least) & (value <= greatest))


@compile_inline
def _bloom_bits(row_hash: Any) -> Any:
    """Return a word with the one or two bits that a row sets in the Bloom filter, by the upper 12 bits of its hash."""
    return (BIT << (row_hash >> np.uint64(58))) | (BIT << ((row_hash >> np.uint64(52)) & LOW))


@compile_loop
def insert_into_bloom_filter(hashes: Any, filter_words: Any) -> None:
    """Insert the hashes of rows into a Bloom filter, which has all bits of a key in one 64-bit word.

    The method is that of Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007), section
    3: one access for a key. The lower bits of the hash are the number of the word; there are a power of two of words.
    """
    last = np.uint64(filter_words.size - 1)
    for i in range(hashes.size):
        filter_words[hashes[i] & last] |= _bloom_bits(hashes[i])


@compile_loop
def mark_bloom_filter_members(hashes: Any, filter_words: Any, marks: Any) -> None:
    """Mark the rows that may be in the Bloom filter with 1, and all others with 0."""
    last = np.uint64(filter_words.size - 1)
    for i in range(hashes.size):
        bits = _bloom_bits(hashes[i])
        marks[i] = np.uint8((filter_words[hashes[i] & last] & bits) == bits)


@compile_loop
def write_marked_row_numbers(marks: Any, rows: Any) -> None:
    """Write the numbers of the marked rows to `rows`, which has room for one more."""
    count, whole = np.uint64(0), marks.size // 8 * 8
    for start in range(0, whole, 8):
        if load_uint64(marks, np.uint64(start)) != 0:  # often none of eight is marked
            for i in range(start, start + 8):
                rows[count] = i
                count += np.uint64(marks[i])
    for i in range(whole, marks.size):
        rows[count] = i
        count += np.uint64(marks[i])
