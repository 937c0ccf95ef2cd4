"""Compiled loops over columns: hashing, histograms, scatter and the row checksum.

Everything here is plain arithmetic on NumPy arrays, compiled by numba without the GIL, so that heartbeats and abort
requests get through while a loop runs. The first call in a fresh checkout compiles and stores the
code beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba as nb
import numpy as np

Loop = TypeVar("Loop", bound=Callable[..., Any])


def _jit(loop: Loop) -> Loop:
    compiled: Loop = nb.njit(nogil=True, cache=True)(loop)
    return compiled


def _inline(expression: Loop) -> Loop:
    compiled: Loop = nb.njit(nogil=True, cache=True, inline="always")(expression)
    return compiled


NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
SEED = np.uint64(0x2545F4914F6CDD1D)


@_inline
def mix64(x: Any) -> Any:
    """A bijective scrambling of 64 bits: Pelle Evensen's rrmxmx family constant, two xor-shift-multiply rounds."""
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x


@_jit
def hash_fixed(values: Any, start: int, hashes: Any) -> None:
    """Fold the values of rows start… into hashes[:]; widths of 1 to 8 bytes."""
    for i in range(hashes.size):
        hashes[i] = mix64(hashes[i] ^ np.uint64(values[start + i]))


@_jit
def hash_wide(values: Any, start: int, hashes: Any) -> None:
    """The same for 16-byte values of shape (n, 2)."""
    for i in range(hashes.size):
        hashes[i] = mix64(mix64(hashes[i] ^ values[start + i, 0]) ^ values[start + i, 1])


@_jit
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


@_jit
def hash_variable(data: Any, offsets: Any, start: int, hashes: Any) -> None:
    """The same for byte strings, eight bytes at a time and the length last."""
    for i in range(hashes.size):
        first, last = offsets[start + i], offsets[start + i + 1]
        h = hashes[i]
        at = first
        while at + 8 <= last:
            word = np.uint64(0)
            for k in range(8):
                word |= np.uint64(data[at + k]) << np.uint64(8 * k)
            h = mix64(h ^ word)
            at += 8
        word = np.uint64(0)
        shift = np.uint64(0)
        while at < last:
            word |= np.uint64(data[at]) << shift
            shift += np.uint64(8)
            at += 1
        hashes[i] = mix64(mix64(h ^ word) ^ np.uint64(last - first))


@_jit
def fold_nulls(valid: Any, start: int, before: Any, hashes: Any, missing: Any) -> None:
    """Where a value is null, take the null's hash instead of the one of whatever lies under it, and mark the row."""
    for i in range(hashes.size):
        if valid[start + i] == 0:
            hashes[i] = mix64(before[i] ^ NULL_HASH)
            missing[i] = 1


@_jit
def assign_buckets(hashes: Any, missing: Any, buckets: int, start: int, ids: Any, counts: Any) -> None:
    """Bucket of each row: the hash's upper half scaled to [0, buckets) (Lemire's fast range); missing: `buckets`."""
    scale = np.uint64(buckets)
    for i in range(hashes.size):
        bucket = ((hashes[i] >> np.uint64(32)) * scale) >> np.uint64(32)
        if missing[i] != 0:
            bucket = scale
        ids[start + i] = bucket
        counts[bucket] += 1


@_jit
def assign_fixed(values: Any, first: int, last: int, buckets: int, ids: Any, counts: Any) -> None:
    """`hash_fixed` and `assign_buckets` in one pass, for a single key column without nulls."""
    scale = np.uint64(buckets)
    for i in range(first, last):
        bucket = ((mix64(SEED ^ np.uint64(values[i])) >> np.uint64(32)) * scale) >> np.uint64(32)
        ids[i] = bucket
        counts[bucket] += 1


@_jit
def scatter(values: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """Write rows first…last-1 to out at their bucket's next position (in elements); rows of no bucket are left out."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[at] = values[i]
            positions[bucket] = at + 1


@_jit
def scatter_wide(values: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` for 16-byte values: `values` (n, 2), `out` flat uint64, positions in 16-byte units."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[2 * at] = values[i, 0]
            out[2 * at + 1] = values[i, 1]
            positions[bucket] = at + 1


@_jit
def scatter_pair(
    first_values: Any, second_values: Any, ids: Any, first: int, last: int, positions: Any, out: Any, gaps: Any
) -> None:
    """`scatter` for two 8-byte columns at once; a bucket's second column lies gaps[bucket] elements after the first."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[at] = first_values[i]
            out[at + gaps[bucket]] = second_values[i]
            positions[bucket] = at + 1


@_jit
def count_bytes(offsets: Any, ids: Any, first: int, last: int, totals: Any) -> None:
    """Add the byte lengths of rows first…last-1 to their bucket's total."""
    buckets = totals.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            totals[bucket] += offsets[i + 1] - offsets[i]


@_jit
def scatter_lengths(offsets: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` of byte lengths (int32)."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            out[at] = offsets[i + 1] - offsets[i]
            positions[bucket] = at + 1


@_jit
def scatter_bytes(data: Any, offsets: Any, ids: Any, first: int, last: int, positions: Any, out: Any) -> None:
    """`scatter` of the bytes themselves; positions in bytes."""
    buckets = positions.size
    for i in range(first, last):
        bucket = ids[i]
        if bucket < buckets:
            at = positions[bucket]
            for k in range(offsets[i], offsets[i + 1]):
                out[at] = data[k]
                at += 1
            positions[bucket] = at


@_jit
def sum_hashes(hashes: Any) -> Any:
    """Sum of the row hashes modulo 2**64, which no order of rows changes."""
    total = np.uint64(0)
    for i in range(hashes.size):
        total += mix64(hashes[i])
    return total


MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
ROW_MASK = np.uint32(0x00FFFFFF)
TAG_MASK = np.uint32(0xFF000000)


@_inline
def slot_hash(key: Any) -> Any:
    """Knuth's multiplicative hashing (The Art of Computer Programming 3, section 6.4): its upper bits are the slot."""
    x = np.uint64(key)
    return (x ^ (x >> np.uint64(32))) * MULTIPLIER


@_jit
def build_chains(keys: Any, first: int, shift: Any, heads: Any, links: Any, copies: Any) -> None:
    """Enter rows first… into the chains of their slots, rows numbered from 1; `copies` gets their keys.

    A head is the row entered last, in its lower 24 bits, and a tag for every row of the chain in the upper 8.
    """
    for i in range(keys.size):
        key = np.uint64(keys[i])
        hashed = slot_hash(key)
        slot = hashed >> shift
        tag = np.uint32(1) << np.uint32(np.uint64(24) + ((hashed >> (shift - np.uint64(3))) & np.uint64(7)))
        head = heads[slot]
        row = first + i
        copies[row] = key
        links[row] = head & ROW_MASK
        heads[slot] = (head & TAG_MASK) | tag | np.uint32(row + 1)


@_jit
def find_candidates(keys: Any, shift: Any, heads: Any, candidates: Any, entries: Any) -> Any:
    """Which rows can have a match, and the first row of the chain that it would be in; gives their number."""
    count = 0
    for i in range(keys.size):
        hashed = slot_hash(keys[i])
        head = heads[hashed >> shift]
        candidates[count] = i
        entries[count] = head & ROW_MASK
        bit = np.uint32(np.uint64(24) + ((hashed >> (shift - np.uint64(3))) & np.uint64(7)))
        count += int((head >> bit) & np.uint32(1))
    return count


@_jit
def follow_chains(
    keys: Any, candidates: Any, entries: Any, at: int, count: int, links: Any, copies: Any, lefts: Any, rights: Any
) -> tuple[int, int]:
    """Pairs of rows with equal keys of candidates at…count-1, until there is no more room for them.

    Gives the number of pairs, and the candidate to go on with: its entry says where in the chain.
    """
    found = 0
    for c in range(at, count):
        i = candidates[c]
        key = np.uint64(keys[i])
        entry = entries[c]
        while entry != 0:
            if copies[entry - 1] == key:
                if found == lefts.size:
                    entries[c] = entry
                    return found, c
                lefts[found] = entry - 1
                rights[found] = i
                found += 1
            entry = links[entry - 1]
    return found, count


@_jit
def gather(values: Any, rows: Any, out: Any) -> None:
    """The values of the given rows."""
    for i in range(rows.size):
        out[i] = values[rows[i]]


@_jit
def gather_wide(values: Any, rows: Any, out: Any) -> None:
    """`gather` for 16-byte values: `values` (n, 2), `out` flat."""
    for i in range(rows.size):
        out[2 * i] = values[rows[i], 0]
        out[2 * i + 1] = values[rows[i], 1]
