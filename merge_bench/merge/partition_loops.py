"""Compiled loops over columns: hashing, histograms, scatter and the row checksum.

They do plain arithmetic on NumPy arrays. They run without the interpreter's lock, so that heartbeats and abort requests
get through meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.jit import compiled, copy_bytes, inlined, load_word

NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
SEED = np.uint64(0x2545F4914F6CDD1D)


@inlined
def mix64(x: Any) -> Any:
    """A bijective scrambling of 64 bits: Pelle Evensen's rrmxmx family constant, two xor-shift-multiply rounds."""
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x


@compiled
def hash_fixed(values: Any, start: int, hashes: Any) -> None:
    """Fold the values of rows start… into hashes[:]; widths of 1 to 8 bytes."""
    for i in range(hashes.size):
        hashes[i] = mix64(hashes[i] ^ np.uint64(values[start + i]))


@compiled
def hash_wide(words: Any, start: int, hashes: Any) -> None:
    """The same for 16-byte values, as words of shape (n, 2)."""
    for i in range(hashes.size):
        hashes[i] = mix64(mix64(hashes[i] ^ words[start + i, 0]) ^ words[start + i, 1])


@compiled
def hash_float(values: Any, start: int, hashes: Any, missing: Any) -> None:
    """The same for floats: both zeros are one value, every NaN is one value and marks its row in `missing`."""
    for i in range(hashes.size):
        value = np.float64(values[start + i])
        if value != value:
            missing[i] = 1
            bits: Any = np.uint64(0x7FF8000000000000)
        elif value == 0.0:
            bits = np.uint64(0)
        else:
            bits = np.float64(value).view(np.uint64)
        hashes[i] = mix64(hashes[i] ^ bits)


@compiled
def hash_variable(data: Any, offsets: Any, start: int, hashes: Any) -> None:
    """The same for byte strings, eight bytes at a time and the length last."""
    for i in range(hashes.size):
        # With unsigned positions the loop need not check whether an index counts from the end.
        at, last = np.uint64(offsets[start + i]), np.uint64(offsets[start + i + 1])
        size = last - at
        h = hashes[i]
        while at + np.uint64(8) <= last:
            h = mix64(h ^ load_word(data, at))
            at += np.uint64(8)
        word, left = np.uint64(0), last - at
        if left > np.uint64(0) and size >= np.uint64(8):
            word = load_word(data, last - np.uint64(8)) >> (np.uint64(64) - np.uint64(8) * left)
        else:
            for k in range(left):
                word |= np.uint64(data[at + k]) << (np.uint64(8) * k)
        hashes[i] = mix64(mix64(h ^ word) ^ size)


@compiled
def fold_nulls(valid: Any, start: int, before: Any, hashes: Any, missing: Any) -> None:
    """Where a value is null, use the hash of null instead of that of the bytes there, and mark the row."""
    for i in range(hashes.size):
        if valid[start + i] == 0:
            hashes[i] = mix64(before[i] ^ NULL_HASH)
            missing[i] = 1


@compiled
def assign_buckets(hashes: Any, missing: Any, buckets: int, start: int, ids: Any, counts: Any) -> None:
    """Bucket of each row: the hash's upper half scaled to [0, buckets) (Lemire's fast range); missing: `buckets`."""
    scale = np.uint64(buckets)
    for i in range(hashes.size):
        bucket = ((hashes[i] >> np.uint64(32)) * scale) >> np.uint64(32)
        if missing[i] != 0:
            bucket = scale
        ids[start + i] = bucket
        counts[bucket] += 1


@compiled
def assign_fixed(values: Any, first: int, last: int, buckets: int, ids: Any, counts: Any) -> None:
    """`hash_fixed` and `assign_buckets` in one pass, for a single key column without nulls."""
    scale = np.uint64(buckets)
    for i in range(first, last):
        bucket = ((mix64(SEED ^ np.uint64(values[i])) >> np.uint64(32)) * scale) >> np.uint64(32)
        ids[i] = bucket
        counts[bucket] += 1


@compiled
def scatter(values: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """Write rows first…last-1 to out at their bucket's next position (in elements); rows of no bucket are left out."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[np.uint64(at)] = values[i]
            positions[bucket] = at + 1


@compiled
def scatter_wide(values: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` for 16-byte values: `values` (n, 2), `out` flat uint64, positions in 16-byte units."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[np.uint64(2 * at)] = values[i, 0]
            out[np.uint64(2 * at + 1)] = values[i, 1]
            positions[bucket] = at + 1


@compiled
def scatter_pair(
    first_values: Any, second_values: Any, ids: Any, first: int, last: int, positions: Any, out: Any, gaps: Any
) -> None:
    """`scatter` for two 8-byte columns at once; a bucket's second column lies gaps[bucket] elements after the first."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[np.uint64(at)] = first_values[i]
            out[np.uint64(at + gaps[bucket])] = second_values[i]
            positions[bucket] = at + 1


@compiled
def count_bytes(offsets: Any, ids: Any, first: int, last: int, totals: Any) -> None:
    """Add the byte lengths of rows first…last-1 to their bucket's total."""
    buckets = totals.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            totals[bucket] += offsets[i + 1] - offsets[i]


@compiled
def scatter_lengths(offsets: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` of byte lengths (int32)."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[np.uint64(at)] = offsets[i + 1] - offsets[i]
            positions[bucket] = at + 1


@compiled
def scatter_bytes(data: Any, offsets: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` of the bytes themselves; positions in bytes."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at, size = positions[bucket], offsets[i + 1] - offsets[i]
            copy_bytes(data, offsets[i], size, out, at)
            positions[bucket] = at + size


@compiled
def sum_hashes(hashes: Any) -> Any:
    """Sum of the row hashes modulo 2**64, which no order of rows changes."""
    total = np.uint64(0)
    for i in range(hashes.size):
        total += mix64(hashes[i])
    return total
