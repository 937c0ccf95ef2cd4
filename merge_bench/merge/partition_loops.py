"""Compiled loops over columns: hashing, histograms, scatter and the row checksum, and hashes of whole rows by them.

Loops do plain arithmetic on NumPy arrays. They run without the interpreter's lock, so that heartbeats and aborts get
through meanwhile. Indices that are loaded or computed are unsigned, and loops count from 0 over slices: an index
that may be negative costs a check whether it counts from the end, and keeps the compiler from using vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from merge_bench.merge.frame import BLOCK, Column, Field, Frame
from merge_bench.merge.jit import (
    LINE,
    compile_inline,
    compile_loop,
    copy_bytes,
    fence_stores,
    item_size,
    load_uint64,
    low_bytes_mask,
    store_cache_lines,
)

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
SEED = np.uint64(0x2545F4914F6CDD1D)
HISTOGRAMS = 4
ASSIGNED = 1 << 14  # rows whose bucket is found before they are counted: their numbers are still in the L1 cache
COLLECTED = 2 * LINE  # bytes of a bucket and column that are written at once


@compile_inline
def mix64(x: Any) -> Any:
    """Scramble 64 bits bijectively: Pelle Evensen's rrmxmx family constant, two xor-shift-multiply rounds."""
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x


@compile_loop
def hash_fixed_width(values: Any, hashes: Any) -> None:
    """Combine the values of a key column (widths of 1 to 8 bytes) with the hashes of their rows."""
    for i in range(hashes.size):
        hashes[i] = mix64(hashes[i] ^ np.uint64(values[i]))


@compile_loop
def hash_16_bytes(words: Any, hashes: Any) -> None:
    """Combine 16-byte values with the hashes of their rows; `words`: shape (n, 2), two 64-bit words for each value."""
    for i in range(hashes.size):
        hashes[i] = mix64(mix64(hashes[i] ^ words[i, 0]) ^ words[i, 1])


@compile_loop
def hash_floats(values: Any, hashes: Any, missing: Any) -> None:
    """Combine floats with the hashes of their rows: 0.0 equals -0.0, and a NaN marks its row in `missing`."""
    for i in range(hashes.size):
        value = np.float64(values[i])
        if value != value:
            missing[i] = 1
            bits: Any = np.uint64(0x7FF8000000000000)
        elif value == 0.0:
            bits = np.uint64(0)
        else:
            bits = np.float64(value).view(np.uint64)
        hashes[i] = mix64(hashes[i] ^ bits)


@compile_loop
def hash_byte_strings(data: Any, offsets: Any, hashes: Any) -> None:
    """Combine byte strings with the hashes of their rows, eight bytes at a time and the length last."""
    for i in range(hashes.size):
        at, last = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        size = last - at
        h = hashes[i]
        while at + np.uint64(8) <= last:
            h = mix64(h ^ load_uint64(data, at))
            at += np.uint64(8)
        word, left = np.uint64(0), last - at
        if at + np.uint64(8) <= np.uint64(data.size):
            word = load_uint64(data, at) & low_bytes_mask(left)
        else:
            for k in range(left):
                word |= np.uint64(data[at + k]) << (np.uint64(8) * k)
        hashes[i] = mix64(mix64(h ^ word) ^ size)


@compile_loop
def hash_nulls(valid: Any, previous_hashes: Any, hashes: Any, missing: Any) -> None:
    """Where a value is null, replace its row's hash, and mark the row in `missing`.

    The hash is that of null on top of `previous_hashes`.
    """
    for i in range(hashes.size):
        if valid[i] == 0:
            hashes[i] = mix64(previous_hashes[i] ^ NULL_HASH)
            missing[i] = 1


@compile_loop
def assign_buckets(hashes: Any, missing: Any, buckets: int, bucket_ids: Any, counts: Any) -> None:
    """Write the bucket of each row to `bucket_ids`: its hash's upper half scaled to [0, buckets) (Lemire's fast range).

    A row that is marked in `missing` gets the number `buckets`. `counts`: shape (`HISTOGRAMS`, buckets + 1); their sum
    over the first axis grows by the rows of each bucket.
    """
    scale = np.uint64(buckets)
    for i in range(bucket_ids.size):
        bucket = ((hashes[i] >> np.uint64(32)) * scale) >> np.uint64(32)
        bucket_ids[i] = bucket if missing[i] == 0 else scale
    count_rows_per_bucket(bucket_ids, counts)


@compile_loop
def assign_buckets_one_key(values: Any, buckets: int, bucket_ids: Any, counts: Any) -> None:
    """Hash a single key column without nulls and assign buckets, in one pass.

    It does the same as `hash_fixed_width` and `assign_buckets`.
    """
    for start in range(0, bucket_ids.size, ASSIGNED):
        block_ids = bucket_ids[start : start + ASSIGNED]
        _assign_block_buckets(values[start : start + ASSIGNED], np.uint64(buckets), block_ids)
        count_rows_per_bucket(block_ids, counts)


@compile_loop
def _assign_block_buckets(values: Any, scale: Any, bucket_ids: Any) -> None:
    for i in range(bucket_ids.size):
        bucket_ids[i] = ((mix64(SEED ^ np.uint64(values[i])) >> np.uint64(32)) * scale) >> np.uint64(32)


@compile_loop
def load_cache_lines(values: Any) -> Any:
    """Read one value of each cache line, so that all lines are in the cache; returns a checksum that nobody needs.

    A loop that computes much for each row has too few loads in flight to read two columns from memory at full speed.
    """
    total = np.uint64(0)
    for i in range(0, values.size, LINE // values.itemsize):
        total ^= np.uint64(values[i])
    return total


@compile_loop
def hash_first_key(values: Any, hashes: Any) -> None:
    """Hash the first key column, as `hash_fixed_width` does, into memory whose contents do not matter."""
    for i in range(hashes.size):
        hashes[i] = mix64(SEED ^ np.uint64(values[i]))


@compile_loop
def assign_buckets_last_key(hashes: Any, values: Any, buckets: int, bucket_ids: Any, counts: Any) -> None:
    """Hash the last key column, without nulls, and assign buckets, in one pass.

    It does the same as `hash_fixed_width` and `assign_buckets`.
    """
    scale = np.uint64(buckets)
    for i in range(bucket_ids.size):
        bucket_ids[i] = ((mix64(hashes[i] ^ np.uint64(values[i])) >> np.uint64(32)) * scale) >> np.uint64(32)
    count_rows_per_bucket(bucket_ids, counts)


@compile_loop
def count_rows_per_bucket(bucket_ids: Any, counts: Any) -> None:
    """Count the rows of each bucket, in several histograms in turn.

    Rows of one bucket then need not wait for each other.
    """
    whole = bucket_ids.size // HISTOGRAMS * HISTOGRAMS
    for i in range(0, whole, HISTOGRAMS):
        for k in range(HISTOGRAMS):
            counts[k, bucket_ids[i + k]] += 1
    for i in range(whole, bucket_ids.size):
        counts[0, bucket_ids[i]] += 1


@compile_loop
def scatter_rows(columns: Any, bucket_ids: Any, positions: Any, out: Any, gaps: Any) -> None:
    """Write each row's values to `out` at its bucket's next position (counted in values).

    Rows of no bucket are left out. `columns`: a tuple of arrays of one type. Column c's values go gaps[bucket * columns
    + c] elements after the first one's; gaps[bucket * columns] is 0.
    """
    buckets, count = positions.size, np.uint64(len(columns))
    for i in range(bucket_ids.size):
        bucket = bucket_ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[at] = columns[0][i]
            for c in range(1, len(columns)):
                out[at + gaps[np.uint64(bucket) * count + np.uint64(c)]] = columns[c][i]
            positions[bucket] = at + np.uint64(1)


# Scatter by whole lines. The loop collects rows for each bucket in `collected_rows`, which stays in the cache, and
# writes them to memory past the cache, a whole line of each column. So the processor does not fetch the lines of memory
# first. A row's values lie side by side, so that collecting it touches one line or two, not one for each column. Two
# lines of a column at a time: whether a bucket's are full is a branch that the processor guesses wrong each time they
# are.
# The first lines of a bucket may begin with rows of another bucket, and the last ones may not be full. Of these the
# loop writes only the bucket's own rows, with plain stores. `starts` are the positions at the beginning. `out` is
# aligned to `LINE` bytes, and gaps are whole lines.


@compile_loop
def scatter_cache_lines(
    columns: Any, bucket_ids: Any, positions: Any, starts: Any, collected_rows: Any, out: Any, gaps: Any
) -> None:
    """Write rows to their buckets as `scatter_rows` does, but only full cache lines, past the caches.

    Rows of unfinished lines stay in `collected_rows`, which has `COLLECTED` bytes for each bucket and column.
    """
    buckets, count = np.uint64(positions.size), np.uint64(len(columns))
    collected = np.uint64(COLLECTED) // item_size(collected_rows)
    line = np.uint64(LINE) // item_size(collected_rows)
    last = collected - np.uint64(1)
    for i in range(bucket_ids.size):
        bucket = np.uint64(bucket_ids[i])
        if bucket < buckets:
            at, held = positions[bucket], bucket * collected * count
            row = held + (at & last) * count
            for c in range(len(columns)):
                collected_rows[row + np.uint64(c)] = columns[c][i]
            positions[bucket] = at + np.uint64(1)
            if (at & last) == last:
                if at - last >= starts[bucket]:
                    for k in range(np.uint64(0), collected, line):
                        store_cache_lines(
                            columns, collected_rows, held + k * count, out, at - last + k, gaps, bucket * count
                        )
                else:
                    _write_collected_rows(
                        starts[bucket], at + np.uint64(1), bucket, len(columns), collected_rows, out, gaps
                    )


@compile_loop
def write_partial_lines(columns: int, positions: Any, starts: Any, collected_rows: Any, out: Any, gaps: Any) -> None:
    """Write the cache lines that are not full after the last `scatter_cache_lines` of so many columns."""
    last = np.uint64(COLLECTED) // item_size(collected_rows) - np.uint64(1)
    for i in range(positions.size):
        bucket = np.uint64(i)
        at = positions[bucket]
        _write_collected_rows(max(at & ~last, starts[bucket]), at, bucket, columns, collected_rows, out, gaps)
    fence_stores()


@compile_loop
def _write_collected_rows(
    first: Any, end: Any, bucket: Any, columns: int, collected_rows: Any, out: Any, gaps: Any
) -> None:
    collected = np.uint64(COLLECTED) // item_size(collected_rows)
    count = np.uint64(columns)
    for k in range(first, end):
        row = (bucket * collected + (k & (collected - np.uint64(1)))) * count
        for c in range(count):
            out[k + gaps[bucket * count + c]] = collected_rows[row + c]


@compile_loop
def count_bytes_per_bucket(offsets: Any, bucket_ids: Any, totals: Any) -> None:
    """Add the length in bytes of each row's variable-width value to the total of its bucket."""
    buckets = totals.size
    for i in range(bucket_ids.size):
        bucket = bucket_ids[i]
        if bucket < buckets:
            totals[bucket] += offsets[i + 1] - offsets[i]


@compile_loop
def scatter_byte_strings(data: Any, offsets: Any, bucket_ids: Any, positions: Any, out: Any) -> None:
    """Write each row's byte string to `out` at its bucket's next position (in bytes)."""
    buckets = positions.size
    for i in range(bucket_ids.size):
        bucket = bucket_ids[i]
        if bucket < buckets:
            at, size = positions[bucket], np.uint64(offsets[i + 1] - offsets[i])
            copy_bytes(data, offsets[i], size, out, at)
            positions[bucket] = at + size


@compile_loop
def sum_row_hashes(hashes: Any) -> Any:
    """Return the sum of the row hashes modulo 2**64, which does not depend on the order of rows."""
    total = np.uint64(0)
    for i in range(hashes.size):
        total += mix64(hashes[i])
    return total


class RowHasher:
    """Hashes rows block by block with its own scratch memory: one for each thread.

    Equal values have equal hashes on every worker, engine and machine. Null has its own hash, and 0.0 and -0.0 are one
    value, as SQL compares them.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(BLOCK, np.uint64)
        self._before = np.empty(BLOCK, np.uint64)
        self._missing = np.empty(BLOCK, np.uint8)

    def hash_rows(
        self, columns: Sequence[tuple[Field, Column]], start: int, rows: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Return the hashes of rows start…start+rows-1, and 1 for each row with a null or NaN.

        Both are valid until the next call.
        """
        hashes, missing, before = self._hashes[:rows], self._missing[:rows], self._before[:rows]
        hashes[:] = SEED  # not 0, which the mixing leaves 0: rows of zeros must count in the checksum
        missing[:] = 0
        for field, column in columns:
            if column.valid is not None:
                before[:] = hashes
            values, hashed = column.values, slice(start, start + rows)
            if column.offsets is not None:
                hash_byte_strings(values, column.offsets[start : start + rows + 1], hashes)
            elif field.width == 16:
                hash_16_bytes(column.word_pairs[hashed], hashes)
            elif field.is_floating:
                floats = values.view(np.float32 if field.width == 4 else np.float64)
                hash_floats(floats[hashed], hashes, missing)
            else:
                hash_fixed_width(values[hashed], hashes)
            if column.valid is not None:
                hash_nulls(column.valid[hashed], before, hashes, missing)
        return hashes, missing


def can_hash_key_directly(field: Field, column: Column) -> bool:
    """Whether `hash_first_key` can hash a key column: values of up to 8 bytes, no floats and no nulls."""
    return 0 < field.width <= 8 and not field.is_floating and column.valid is None


def frame_checksum(frame: Frame, column_names: Sequence[str]) -> int:
    """Return the sum of all rows' hashes over the named columns, modulo 2**64; the order of rows does not matter."""
    columns = [frame.column(name) for name in column_names]
    hasher, total = RowHasher(), 0
    for start in range(0, frame.rows, BLOCK):
        hashes, _ = hasher.hash_rows(columns, start, min(BLOCK, frame.rows - start))
        total += int(sum_row_hashes(hashes))
    return total % 2**64
