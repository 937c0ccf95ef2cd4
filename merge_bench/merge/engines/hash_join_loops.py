"""Compiled loops of the join: chains of left rows, look-ups of right ones, and the values of the pairs found.

Positions that are loaded or counted are unsigned, because a signed one costs a check whether it counts from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.frame import Column
from merge_bench.merge.jit import (
    compile_inline,
    compile_loop,
    copy_16_bytes,
    copy_32_bytes,
    copy_bytes,
    load_uint64,
    low_bytes_mask,
)

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
FOLD = np.uint64(0xD1342543DE82EF95)  # odd, from Steele and Vigna, "Computationally easy, spectrally good multipliers"
ROW_MASK = np.uint32(0x00FFFFFF)
TAG_MASK = np.uint32(0xFF000000)


@compile_inline
def multiplicative_hash(key: Any) -> Any:
    """Hash a 64-bit key by Knuth's multiplicative hashing (The Art of Computer Programming 3, section 6.4).

    The upper bits of the hash are the number of the key's slot in the hash table.
    """
    x = np.uint64(key)
    return (x ^ (x >> np.uint64(32))) * MULTIPLIER


@compile_loop
def combine_key_column(words: Any, values: Any, out: Any) -> None:
    """Combine the 64-bit words of rows with the values of one more key column into one word per row.

    Rows whose words are equal before have equal words afterwards only if their values are equal.
    """
    for i in range(out.size):
        out[i] = np.uint64(words[i]) * FOLD + np.uint64(values[i])


@compile_loop
def build_hash_chains(keys: Any, first_row: int, hash_shift: Any, heads: Any, links: Any, entered_keys: Any) -> None:
    """Insert rows, numbered from `first_row` on, into the chains of the hash table.

    `entered_keys` gets a copy of their keys. Chains number rows from 1. A head has the row inserted last in its lower
    24 bits, and in the upper 8 a tag for every row of the chain.
    """
    for i in range(keys.size):
        key = np.uint64(keys[i])
        hashed = multiplicative_hash(key)
        slot = hashed >> hash_shift
        tag = np.uint32(1) << np.uint32(np.uint64(24) + ((hashed >> (hash_shift - np.uint64(3))) & np.uint64(7)))
        head = heads[slot]
        row = np.uint64(first_row + i)
        entered_keys[row] = key
        links[row] = head & ROW_MASK
        heads[slot] = (head & TAG_MASK) | tag | np.uint32(row + np.uint64(1))


@compile_loop
def find_matching_pairs(
    keys: Any,
    next_row: Any,
    candidate_count: Any,
    hash_shift: Any,
    heads: Any,
    links: Any,
    entered_keys: Any,
    candidates: Any,
    chain_entries: Any,
    left_rows: Any,
    right_rows: Any,
) -> tuple[Any, Any, Any]:
    """Look up right rows in the hash table and write the row numbers of pairs with equal keys, while there is room.

    Rows are looked up block by block, so that a block's candidates stay in the L1 cache. Returns the number of pairs,
    and where to go on: rows before `next_row` were looked up, and the chains of `candidate_count` candidates are not
    yet at their end.
    """
    pairs = 0
    while candidate_count > 0 or next_row < keys.size:
        if candidate_count == 0:
            block = keys[next_row : next_row + candidates.size]
            candidate_count = _find_candidate_rows(block, next_row, hash_shift, heads, candidates, chain_entries)
            next_row += block.size
        if pairs + candidate_count > left_rows.size:
            break
        size, candidate_count = _follow_chains(
            keys, candidates, chain_entries, candidate_count, links, entered_keys, left_rows[pairs:], right_rows[pairs:]
        )
        pairs += size
    return pairs, next_row, candidate_count


@compile_loop
def _find_candidate_rows(
    keys: Any, first_row: int, hash_shift: Any, heads: Any, candidates: Any, chain_entries: Any
) -> Any:
    """Find the rows that can have a match, by the tags in the heads.

    Writes the numbers of these candidates and the first entries of their chains. Rows are numbered from `first_row` on.
    Returns the number of candidates.
    """
    count = 0
    for i in range(keys.size):
        hashed = multiplicative_hash(keys[i])
        head = heads[hashed >> hash_shift]
        candidates[count] = first_row + i
        chain_entries[count] = head & ROW_MASK
        bit = np.uint32(np.uint64(24) + ((hashed >> (hash_shift - np.uint64(3))) & np.uint64(7)))
        count += int((head >> bit) & np.uint32(1))
    return count


@compile_loop
def _follow_chains(
    keys: Any,
    candidates: Any,
    chain_entries: Any,
    candidate_count: Any,
    links: Any,
    entered_keys: Any,
    left_rows: Any,
    right_rows: Any,
) -> tuple[Any, Any]:
    """Follow the chains of all candidates, one link of each at a time, and write pairs with equal keys.

    Returns the number of pairs, and of candidates whose chains continue: these are moved to the front, with their next
    entries. A pair that does not match is overwritten by the next one, so that there is no branch to predict.
    """
    pairs = np.uint64(0)
    while candidate_count > 0 and np.int64(pairs) + candidate_count <= left_rows.size:
        kept = np.uint64(0)
        for c in range(candidate_count):
            i, entry = np.uint64(candidates[c]), np.uint64(chain_entries[c] - 1)
            left_rows[pairs] = entry
            right_rows[pairs] = i
            pairs += np.uint64(entered_keys[entry] == np.uint64(keys[i]))
            link = links[entry]
            candidates[kept] = i
            chain_entries[kept] = link
            kept += np.uint64(link != 0)
        candidate_count = np.int64(kept)  # numba's int() leaves it unsigned, and both kinds together become a float
    return np.int64(pairs), candidate_count


@compile_loop
def mark_matching_rows(
    keys: Any,
    hash_shift: Any,
    heads: Any,
    links: Any,
    entered_keys: Any,
    candidates: Any,
    chain_entries: Any,
    marks: Any,
) -> None:
    """Mark the rows whose keys are in the hash table; each row's chain is followed up to the first match."""
    for at in range(0, keys.size, candidates.size):
        count = _find_candidate_rows(keys[at : at + candidates.size], at, hash_shift, heads, candidates, chain_entries)
        while count > 0:
            kept = np.uint64(0)
            for c in range(count):
                i, entry = np.uint64(candidates[c]), np.uint64(chain_entries[c] - 1)
                equal = entered_keys[entry] == np.uint64(keys[i])
                marks[i] |= np.uint8(equal)
                link = links[entry]
                candidates[kept] = i
                chain_entries[kept] = link
                kept += np.uint64((link != 0) & (not equal))
            count = np.int64(kept)


@compile_loop
def find_next_pairs(
    keys: Any,
    next_row: Any,
    candidate_count: Any,
    hash_shift: Any,
    heads: Any,
    links: Any,
    entered_keys: Any,
    candidates: Any,
    chain_entries: Any,
    left_rows: Any,
    right_rows: Any,
) -> tuple[Any, Any, Any]:
    """Find pairs as `find_matching_pairs` does, but return after the first step that finds any.

    A step follows one link of each candidate's chain.
    `left_rows` and `right_rows` have room for as many pairs as there are candidates.
    """
    pairs = np.int64(0)
    while pairs == 0 and (candidate_count > 0 or next_row < keys.size):
        if candidate_count == 0:
            block = keys[next_row : next_row + candidates.size]
            candidate_count = _find_candidate_rows(block, next_row, hash_shift, heads, candidates, chain_entries)
            next_row += block.size
        pairs, candidate_count = _follow_one_link(
            keys, candidates, chain_entries, candidate_count, links, entered_keys, left_rows, right_rows
        )
    return pairs, next_row, candidate_count


@compile_loop
def _follow_one_link(
    keys: Any,
    candidates: Any,
    chain_entries: Any,
    candidate_count: Any,
    links: Any,
    entered_keys: Any,
    left_rows: Any,
    right_rows: Any,
) -> tuple[Any, Any]:
    """Follow one link of each candidate's chain; returns the numbers of pairs found and of candidates that continue."""
    pairs = kept = np.uint64(0)
    for c in range(candidate_count):
        i, entry = np.uint64(candidates[c]), np.uint64(chain_entries[c] - 1)
        left_rows[pairs] = entry
        right_rows[pairs] = i
        pairs += np.uint64(entered_keys[entry] == np.uint64(keys[i]))
        link = links[entry]
        candidates[kept] = i
        chain_entries[kept] = link
        kept += np.uint64(link != 0)
    return np.int64(pairs), np.int64(kept)


@compile_loop
def drop_marked_candidates(candidates: Any, chain_entries: Any, candidate_count: int, marks: Any) -> int:
    """Move the candidates whose rows are not marked to the front of the arrays; returns their number."""
    kept = np.uint64(0)
    for c in range(candidate_count):
        i = np.uint64(candidates[c])
        candidates[kept], chain_entries[kept] = i, chain_entries[c]
        kept += np.uint64(marks[i] == 0)
    return int(kept)


def keep_equal_pairs(left: Column, right: Column, left_rows: Any, right_rows: Any) -> int:
    """Of pairs of row numbers, move those whose values are equal to the front of both arrays, in order.

    Returns their number.
    """
    if left.offsets is not None:
        return int(
            _keep_equal_byte_strings(left.values, left.offsets, right.values, right.offsets, left_rows, right_rows)
        )
    if left.values.itemsize == 16:
        return int(_keep_equal_16_bytes(left.word_pairs, right.word_pairs, left_rows, right_rows))
    return int(_keep_equal_fixed_width(left.values, right.values, left_rows, right_rows))


@compile_loop
def _keep_equal_fixed_width(left: Any, right: Any, left_rows: Any, right_rows: Any) -> int:
    """Move the pairs of rows with equal values, of up to 8 bytes each, to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(left_rows.size):
        ours, theirs = np.uint64(left_rows[i]), np.uint64(right_rows[i])
        left_rows[kept], right_rows[kept] = ours, theirs
        kept += np.uint64(left[ours] == right[theirs])
    return int(kept)


@compile_loop
def _keep_equal_16_bytes(left: Any, right: Any, left_rows: Any, right_rows: Any) -> int:
    """Move the pairs of rows with equal 16-byte values to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(left_rows.size):
        ours, theirs = np.uint64(left_rows[i]), np.uint64(right_rows[i])
        left_rows[kept], right_rows[kept] = ours, theirs
        kept += np.uint64(left[ours, 0] == right[theirs, 0] and left[ours, 1] == right[theirs, 1])
    return int(kept)


@compile_loop
def _keep_equal_byte_strings(
    left: Any, left_offsets: Any, right: Any, right_offsets: Any, left_rows: Any, right_rows: Any
) -> int:
    """Move the pairs of rows with equal byte strings to the front; returns their number."""
    kept = np.uint64(0)
    for i in range(left_rows.size):
        ours, theirs = np.uint64(left_rows[i]), np.uint64(right_rows[i])
        left_rows[kept], right_rows[kept] = ours, theirs
        a, b = np.uint64(left_offsets[ours]), np.uint64(right_offsets[theirs])
        size = np.uint64(left_offsets[ours + np.uint64(1)]) - a
        equal = size == np.uint64(right_offsets[theirs + np.uint64(1)]) - b
        at = np.uint64(0)
        while equal and at + np.uint64(8) <= size:
            equal = load_uint64(left, a + at) == load_uint64(right, b + at)
            at += np.uint64(8)
        rest = at + np.uint64(8)
        if equal and a + rest <= np.uint64(left.size) and b + rest <= np.uint64(right.size):
            differing = load_uint64(left, a + at) ^ load_uint64(right, b + at)
            equal = (differing & low_bytes_mask(size - at)) == np.uint64(0)
        else:
            while equal and at < size:
                equal = left[a + at] == right[b + at]
                at += np.uint64(1)
        kept += np.uint64(equal)
    return int(kept)


@compile_loop
def mark_rows(row_numbers: Any, marks: Any) -> None:
    """Set the marks of the rows with these numbers to 1."""
    for i in range(row_numbers.size):
        marks[np.uint64(row_numbers[i])] = 1


@compile_loop
def find_rows_by_mark(marks: Any, mark: int, row_numbers: Any) -> int:
    """Write the numbers of the rows that have this mark to `row_numbers`, in order; returns how many there are."""
    size = np.uint64(0)
    for i in range(marks.size):
        row_numbers[size] = i
        size += np.uint64(marks[i] == mark)
    return int(size)


@compile_loop
def gather_values(values: Any, row_numbers: Any, out: Any) -> None:
    """Copy the values of the rows with these numbers to `out`."""
    for i in range(row_numbers.size):
        out[i] = values[np.uint64(row_numbers[i])]


@compile_loop
def gather_offsets(offsets: Any, row_numbers: Any, out: Any) -> None:
    """Write the end offsets of the values of these rows to out[1:], for storing them end to end from out[0] on."""
    at = out[0]
    for i in range(row_numbers.size):
        row = np.uint64(row_numbers[i])
        at += offsets[row + np.uint64(1)] - offsets[row]
        out[i + 1] = at


@compile_loop
def gather_byte_strings(data: Any, offsets: Any, row_numbers: Any, out_offsets: Any, out: Any) -> None:
    """Copy the byte strings of the rows with these numbers to `out`, each to its offset in `out_offsets`, in order.

    Of a short string 16 or 32 bytes are copied, in half to a fifth of the time; the next string overwrites what was
    too much. Within 32 bytes of the end of `data` or of `out`, exactly the string is copied.
    """
    last_start, last_place = np.int64(data.size) - 32, np.int64(out.size) - 32
    for i in range(row_numbers.size):
        row = np.uint64(row_numbers[i])
        start, place = offsets[row], out_offsets[i]
        size = offsets[row + np.uint64(1)] - start
        if size <= 32 and start <= last_start and place <= last_place:
            if size <= 16:
                copy_16_bytes(data, np.uint64(start), out, np.uint64(place))
            else:
                copy_32_bytes(data, np.uint64(start), out, np.uint64(place))
        else:
            copy_bytes(data, start, size, out, place)
