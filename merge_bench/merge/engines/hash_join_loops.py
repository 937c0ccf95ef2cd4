"""Compiled loops of the join: chains of left rows, look-ups of right ones, and the values of the pairs found.

Positions that are loaded or counted are unsigned, because a signed one costs a check whether it counts from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.frame import Column
from merge_bench.merge.jit import compile_loop, copy_bytes, inline_expression, load_word

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
FOLD = np.uint64(0xD1342543DE82EF95)  # odd, from Steele and Vigna, "Computationally easy, spectrally good multipliers"
ROW_MASK = np.uint32(0x00FFFFFF)
TAG_MASK = np.uint32(0xFF000000)


@inline_expression
def slot_hash(key: Any) -> Any:
    """Knuth's multiplicative hashing (The Art of Computer Programming 3, section 6.4): its upper bits are the slot."""
    x = np.uint64(key)
    return (x ^ (x >> np.uint64(32))) * MULTIPLIER


@compile_loop
def fold_key(words: Any, values: Any, out: Any) -> None:
    """Combine the words of rows with the values of one more key column into one word a row.

    Of two rows whose words are equal before, the words are equal afterwards only where the values are.
    """
    for i in range(out.size):
        out[i] = np.uint64(words[i]) * FOLD + np.uint64(values[i])


@compile_loop
def build_chains(keys: Any, first: int, shift: Any, heads: Any, links: Any, copies: Any) -> None:
    """Enter the rows from number `first` on into the chains of their slots; `copies` gets their keys.

    Chains number rows from 1. A head has the row entered last in its lower 24 bits, and in the upper 8 a tag for every
    row of the chain.
    """
    for i in range(keys.size):
        key = np.uint64(keys[i])
        hashed = slot_hash(key)
        slot = hashed >> shift
        tag = np.uint32(1) << np.uint32(np.uint64(24) + ((hashed >> (shift - np.uint64(3))) & np.uint64(7)))
        head = heads[slot]
        row = np.uint64(first + i)
        copies[row] = key
        links[row] = head & ROW_MASK
        heads[slot] = (head & TAG_MASK) | tag | np.uint32(row + np.uint64(1))


@compile_loop
def find_pairs(
    keys: Any,
    at: Any,
    count: Any,
    shift: Any,
    heads: Any,
    links: Any,
    copies: Any,
    candidates: Any,
    entries: Any,
    lefts: Any,
    rights: Any,
) -> tuple[Any, Any, Any]:
    """Find pairs of rows with equal keys, as long as there is room in `lefts` and `rights`.

    A block of right rows after the other, so that what is known of its candidates stays in the L1 cache. Returns the
    number of pairs, and where to go on: rows before `at` were looked up, and `count` candidates have chains left.
    """
    pairs = 0
    while count > 0 or at < keys.size:
        if count == 0:
            block = keys[at : at + candidates.size]
            count = _find_candidates(block, at, shift, heads, candidates, entries)
            at += block.size
        if pairs + count > lefts.size:
            break
        size, count = _follow_chains(keys, candidates, entries, count, links, copies, lefts[pairs:], rights[pairs:])
        pairs += size
    return pairs, at, count


@compile_loop
def _find_candidates(keys: Any, first: int, shift: Any, heads: Any, candidates: Any, entries: Any) -> Any:
    """Find the rows that can have a match, numbered from `first`, and where their chains begin; returns how many."""
    count = 0
    for i in range(keys.size):
        hashed = slot_hash(keys[i])
        head = heads[hashed >> shift]
        candidates[count] = first + i
        entries[count] = head & ROW_MASK
        bit = np.uint32(np.uint64(24) + ((hashed >> (shift - np.uint64(3))) & np.uint64(7)))
        count += int((head >> bit) & np.uint32(1))
    return count


@compile_loop
def _follow_chains(
    keys: Any, candidates: Any, entries: Any, count: Any, links: Any, copies: Any, lefts: Any, rights: Any
) -> tuple[Any, Any]:
    """Follow all `count` candidates' chains, one link of all at a time, while there is room.

    Returns the number of pairs, and of candidates whose chains continue: these are moved to the front, with their next
    entries. A pair that does not match is overwritten by the next one, so that there is no branch to predict.
    """
    pairs = np.uint64(0)
    while count > 0 and np.int64(pairs) + count <= lefts.size:
        kept = np.uint64(0)
        for c in range(count):
            i, entry = np.uint64(candidates[c]), np.uint64(entries[c] - 1)
            lefts[pairs] = entry
            rights[pairs] = i
            pairs += np.uint64(copies[entry] == np.uint64(keys[i]))
            link = links[entry]
            candidates[kept] = i
            entries[kept] = link
            kept += np.uint64(link != 0)
        count = np.int64(kept)  # numba's int() leaves it unsigned, and both kinds together become a float
    return np.int64(pairs), count


@compile_loop
def mark_matches(
    keys: Any, shift: Any, heads: Any, links: Any, copies: Any, candidates: Any, entries: Any, marks: Any
) -> None:
    """Mark the rows whose keys are in the table; a row's chain is followed up to the first match."""
    for at in range(0, keys.size, candidates.size):
        count = _find_candidates(keys[at : at + candidates.size], at, shift, heads, candidates, entries)
        while count > 0:
            kept = np.uint64(0)
            for c in range(count):
                i, entry = np.uint64(candidates[c]), np.uint64(entries[c] - 1)
                equal = copies[entry] == np.uint64(keys[i])
                marks[i] |= np.uint8(equal)
                link = links[entry]
                candidates[kept] = i
                entries[kept] = link
                kept += np.uint64((link != 0) & (not equal))
            count = np.int64(kept)


@compile_loop
def follow_links(
    keys: Any,
    at: Any,
    count: Any,
    shift: Any,
    heads: Any,
    links: Any,
    copies: Any,
    candidates: Any,
    entries: Any,
    lefts: Any,
    rights: Any,
) -> tuple[Any, Any, Any]:
    """Find pairs of rows as `find_pairs` does, but return once a step, one link of each candidate, has found some.

    `lefts` and `rights` have room for as many pairs as there are candidates.
    """
    pairs = np.int64(0)
    while pairs == 0 and (count > 0 or at < keys.size):
        if count == 0:
            block = keys[at : at + candidates.size]
            count = _find_candidates(block, at, shift, heads, candidates, entries)
            at += block.size
        pairs, count = _follow_once(keys, candidates, entries, count, links, copies, lefts, rights)
    return pairs, at, count


@compile_loop
def _follow_once(
    keys: Any, candidates: Any, entries: Any, count: Any, links: Any, copies: Any, lefts: Any, rights: Any
) -> tuple[Any, Any]:
    """Follow one link of each candidate; returns the numbers of pairs found and of candidates that go on."""
    pairs = kept = np.uint64(0)
    for c in range(count):
        i, entry = np.uint64(candidates[c]), np.uint64(entries[c] - 1)
        lefts[pairs] = entry
        rights[pairs] = i
        pairs += np.uint64(copies[entry] == np.uint64(keys[i]))
        link = links[entry]
        candidates[kept] = i
        entries[kept] = link
        kept += np.uint64(link != 0)
    return np.int64(pairs), np.int64(kept)


@compile_loop
def keep_unmarked(candidates: Any, entries: Any, count: int, marks: Any) -> int:
    """Move the candidates whose rows are not marked to the front; returns their number."""
    kept = np.uint64(0)
    for c in range(count):
        i = np.uint64(candidates[c])
        candidates[kept], entries[kept] = i, entries[c]
        kept += np.uint64(marks[i] == 0)
    return int(kept)


def keep_equal(left: Column, right: Column, lefts: Any, rights: Any) -> int:
    """Move the pairs whose values are equal to the front of `lefts` and `rights`, in order; returns their number."""
    if left.offsets is not None:
        return int(_keep_equal_bytes(left.values, left.offsets, right.values, right.offsets, lefts, rights))
    if left.values.itemsize == 16:
        return int(_keep_equal_wide(left.words, right.words, lefts, rights))
    return int(_keep_equal_fixed(left.values, right.values, lefts, rights))


@compile_loop
def _keep_equal_fixed(left: Any, right: Any, lefts: Any, rights: Any) -> int:
    """Move the pairs with equal values of a fixed width to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(lefts.size):
        ours, theirs = np.uint64(lefts[i]), np.uint64(rights[i])
        lefts[kept], rights[kept] = ours, theirs
        kept += np.uint64(left[ours] == right[theirs])
    return int(kept)


@compile_loop
def _keep_equal_wide(left: Any, right: Any, lefts: Any, rights: Any) -> int:
    """Move the pairs with equal 16-byte values to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(lefts.size):
        ours, theirs = np.uint64(lefts[i]), np.uint64(rights[i])
        lefts[kept], rights[kept] = ours, theirs
        kept += np.uint64(left[ours, 0] == right[theirs, 0] and left[ours, 1] == right[theirs, 1])
    return int(kept)


@compile_loop
def _keep_equal_bytes(left: Any, left_offsets: Any, right: Any, right_offsets: Any, lefts: Any, rights: Any) -> int:
    """Move the pairs with equal byte strings to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(lefts.size):
        ours, theirs = np.uint64(lefts[i]), np.uint64(rights[i])
        lefts[kept], rights[kept] = ours, theirs
        a, b = np.uint64(left_offsets[ours]), np.uint64(right_offsets[theirs])
        size = np.uint64(left_offsets[ours + np.uint64(1)]) - a
        equal = size == np.uint64(right_offsets[theirs + np.uint64(1)]) - b
        at = np.uint64(0)
        while equal and at + np.uint64(8) <= size:
            equal = load_word(left, a + at) == load_word(right, b + at)
            at += np.uint64(8)
        while equal and at < size:
            equal = left[a + at] == right[b + at]
            at += np.uint64(1)
        kept += np.uint64(equal)
    return int(kept)


@compile_loop
def mark_rows(rows: Any, marks: Any) -> None:
    """Set the marks of the rows with these numbers to 1."""
    for i in range(rows.size):
        marks[np.uint64(rows[i])] = 1


@compile_loop
def find_marked(marks: Any, wanted: int, rows: Any) -> int:
    """Put the numbers of the rows whose mark is `wanted` in `rows`, in order; returns how many there are."""
    size = np.uint64(0)
    for i in range(marks.size):
        rows[size] = i
        size += np.uint64(marks[i] == wanted)
    return int(size)


@compile_loop
def gather(values: Any, rows: Any, out: Any) -> None:
    """Copy the values of the rows with these numbers to `out`."""
    for i in range(rows.size):
        out[i] = values[np.uint64(rows[i])]


@compile_loop
def gather_offsets(offsets: Any, rows: Any, out: Any) -> None:
    """Write to out[1:] where the values of these rows end if they are stored end to end from out[0] on."""
    at = out[0]
    for i in range(rows.size):
        row = np.uint64(rows[i])
        at += offsets[row + np.uint64(1)] - offsets[row]
        out[i + 1] = at


@compile_loop
def gather_bytes(data: Any, offsets: Any, rows: Any, places: Any, out: Any) -> None:
    """Copy the bytes of the rows with these numbers to `out`, each to its offset in `places` (`gather_offsets`)."""
    for i in range(rows.size):
        row = rows[i]
        copy_bytes(data, offsets[row], offsets[row + 1] - offsets[row], out, places[i])
