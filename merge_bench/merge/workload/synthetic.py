"""The synthetic workload of the 2022 program, in which every row can be checked by itself.

Of N rows a side, the left keys are 0…N-1 in pseudo-random order; left row i has the key σ(i). Right row j has the key
σ'(j) where that is below M = round(fraction × N), else N + σ'(j), which matches nothing; σ and σ' are bijections of
[0, N) made from the seed. So exactly M right rows match, their partners spread evenly over all left chunks. The first
payload of a row is its number (i or j), the others are functions of it. Row numbers run over the whole frame: the table
depends on N, the fraction, the skew and the seed, and not on how many workers share it.

With a skew `zipf:S` the M matching right rows take their key from a Zipf law of exponent S over the left keys, by
inverting its continuous form at a pseudo-random point that depends on j.

A join that keeps rows without a match has nulls beside them. Without a skew, the left rows with a key below M have one
partner each. With a skew, a key does not say whether it has one: the keys of all N right rows are drawn once more. That
takes a bit for each row, outside of what is timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.frame import Column, Frame, buffer_as_array
from merge_bench.merge.jit import compile_inline, compile_loop
from merge_bench.merge.partition_loops import mix64
from merge_bench.merge.workload import KEY, ExpectedWorkerResult, SyntheticSpec, Workload

WORKLOAD = Workload(name="synthetic", help="generated from --chunk and --seed", place=1)

ROUNDS = 4


@compile_inline
def _permute_number(number: Any, rows: Any, root: Any, cipher_key: Any) -> Any:
    """Permute a number of [0, rows) by a Feistel network over root × root ≥ rows, repeated until it is < rows.

    Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002).
    """
    while True:
        left = number // root
        right = number - left * root
        for turn in range(ROUNDS):
            mixed = mix64(right ^ cipher_key ^ (np.uint64(turn + 1) << np.uint64(56)))
            turned = left + (((mixed >> np.uint64(32)) * root) >> np.uint64(32))
            left, right = right, turned - root if turned >= root else turned
        number = left * root + right
        if number < rows:
            return number


@compile_inline
def _right_row_key(row: Any, rows: Any, root: Any, matches: Any, cipher_key: Any, zipf_law: Any) -> Any:
    """Return the key of right row number `row`."""
    place = _permute_number(row, rows, root, cipher_key + np.uint64(1))
    if place >= matches:
        return rows + place
    if zipf_law[0] == 0.0:
        return place
    u = np.float64(mix64(row ^ cipher_key ^ np.uint64(0x5EED)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    rank = (
        (1.0 + u * (zipf_law[1] - 1.0)) ** (1.0 / (1.0 - zipf_law[0]))
        if zipf_law[0] != 1.0
        else np.exp(u * zipf_law[1])
    )
    return min(np.uint64(rank) - np.uint64(1), rows - np.uint64(1))


@compile_loop
def make_left_keys(first_row: int, out: Any, rows: int, root: int, seed: int) -> None:
    """Write the keys of left rows, numbered from `first_row` on, to `out`."""
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        out[k] = _permute_number(np.uint64(first_row + k), n, r, key)


@compile_loop
def permute_numbers(numbers: Any, rows: int, root: int, seed: int) -> None:
    """Permute an array of numbers of 0…rows-1 in place, pseudo-randomly."""
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(numbers.size):
        numbers[k] = _permute_number(np.uint64(numbers[k]), n, r, key)


@compile_loop
def mark_matched_left_keys(rows: int, root: int, matches: int, seed: int, zipf_law: Any, marks: Any) -> None:
    """Set the bits of all left keys that some right row has; `marks` has one 64-bit word for each 64 keys."""
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for j in range(rows):
        value = _right_row_key(np.uint64(j), n, r, m, key, zipf_law)
        if value < n:
            marks[value >> np.uint64(6)] |= np.uint64(1) << (value & np.uint64(63))


@compile_inline
def _left_key_has_match(key: Any, matches: Any, marks: Any) -> Any:
    """Whether some right row has this left key."""
    if marks.size == 0:
        return key < matches
    return (marks[key >> np.uint64(6)] >> (key & np.uint64(63))) & np.uint64(1) == np.uint64(1)


@compile_inline
def _left_checksum_term(row: Any) -> Any:
    """Return what a left row without a right row adds to the checksum; `row`: its number."""
    return mix64(~row)


@compile_loop
def add_expected_left_rows(first_row: int, keys: Any, matches: int, marks: Any, matched: bool, expected: Any) -> None:
    """Add number and checksum of the left rows with a match (or, if `matched` is false, without) to `expected`."""
    m = np.uint64(matches)
    for k in range(keys.size):
        if _left_key_has_match(np.uint64(keys[k]), m, marks) == matched:
            expected[0] += np.uint64(1)
            expected[1] += _left_checksum_term(np.uint64(first_row + k))


@compile_loop
def add_expected_right_rows(first_row: int, keys: Any, rows: int, expected: Any) -> None:
    """Add the number and checksum of the right rows without a match to `expected`."""
    n = np.uint64(rows)
    for k in range(keys.size):
        if np.uint64(keys[k]) >= n:
            expected[0] += np.uint64(1)
            expected[1] += mix64(np.uint64(first_row + k) + np.uint64(1))


@compile_loop
def check_left_only_rows(
    keys: Any, left_rows: Any, rows: int, root: int, matches: int, seed: int, marks: Any, matched: bool, totals: Any
) -> None:
    """Check result rows that have left columns only; the rows must have a match, or (if `matched` is false) none.

    Adds the number of rows, their checksum and the number of wrong rows to `totals`.
    """
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        i, value = np.uint64(left_rows[k]), np.uint64(keys[k])
        totals[0] += np.uint64(1)
        totals[1] += _left_checksum_term(i)
        if i >= n or value != _permute_number(i, n, r, key) or _left_key_has_match(value, m, marks) != matched:
            totals[2] += np.uint64(1)


@compile_loop
def check_right_only_rows(
    keys: Any, right_rows: Any, rows: int, root: int, matches: int, seed: int, zipf_law: Any, totals: Any
) -> None:
    """Check result rows that have right columns only, which must have no match.

    Adds to `totals` as `check_left_only_rows`.
    """
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        j, value = np.uint64(right_rows[k]), np.uint64(keys[k])
        totals[0] += np.uint64(1)
        totals[1] += mix64(j + np.uint64(1))
        if j >= n or value < n or value != _right_row_key(j, n, r, m, key, zipf_law):
            totals[2] += np.uint64(1)


@compile_loop
def make_right_keys(
    first_row: int, out: Any, rows: int, root: int, matches: int, seed: int, zipf_law: Any, expected: Any
) -> None:
    """Write the keys of right rows, numbered from `first_row` on, to `out`.

    Adds the number and checksum of those that match a left row to `expected`.
    """
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        j = np.uint64(first_row + k)
        value = _right_row_key(j, n, r, m, key, zipf_law)
        out[k] = value
        if value < n:
            expected[0] += np.uint64(1)
            expected[1] += mix64(j + np.uint64(1))


@compile_loop
def make_payload(first_row: int, out: Any, column_number: int) -> None:
    """Write the values of payload column `column_number` to `out`, for rows numbered from `first_row` on."""
    for k in range(out.size):
        row = np.uint64(first_row + k)
        out[k] = row if column_number == 0 else mix64(row ^ (np.uint64(column_number) << np.uint64(48)))


@compile_loop
def count_wrong_payloads(row_numbers: Any, payload: Any, column_number: int) -> Any:
    """Count the rows whose value of payload column `column_number` is wrong."""
    bad = 0
    for k in range(row_numbers.size):
        if np.uint64(payload[k]) != mix64(np.uint64(row_numbers[k]) ^ (np.uint64(column_number) << np.uint64(48))):
            bad += 1
    return bad


@compile_loop
def check_joined_rows(
    keys: Any,
    left_rows: Any,
    right_rows: Any,
    rows: int,
    root: int,
    matches: int,
    seed: int,
    zipf_law: Any,
    totals: Any,
) -> None:
    """Check result rows that join a left and a right row; adds to `totals` as `check_left_only_rows`."""
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        i, j, value = np.uint64(left_rows[k]), np.uint64(right_rows[k]), np.uint64(keys[k])
        totals[0] += np.uint64(1)
        totals[1] += mix64(j + np.uint64(1))
        if (
            i >= n
            or j >= n
            or value != _permute_number(i, n, r, key)
            or value != _right_row_key(j, n, r, m, key, zipf_law)
        ):
            totals[2] += np.uint64(1)


BLOCK_ROWS = 1 << 20
"""Rows whose keys are made at once for `synthetic_parcel_bytes`, so that memory does not depend on the chunk."""


def generate_chunks(
    spec: SyntheticSpec, rank: int, workers: int, how: JoinKind = JoinKind.INNER
) -> tuple[Frame, Frame, ExpectedWorkerResult]:
    """Generate this worker's chunks, and the number and checksum of rows that it expects in the result.

    Chunk `rank` holds rows [N·rank ÷ W, N·(rank + 1) ÷ W) of both frames.
    """
    first, last = spec.rows * rank // workers, spec.rows * (rank + 1) // workers
    size, root = last - first, _feistel_root(spec.rows)
    sides = []
    expected = np.zeros(2, np.uint64)
    for side in ("left", "right"):
        columns = [np.empty(size, np.int64) for _ in range(1 + spec.payload_columns)]
        if side == "left":
            make_left_keys(first, columns[0], spec.rows, root, spec.seed)
        else:
            law = _zipf_parameters(spec)
            make_right_keys(first, columns[0], spec.rows, root, spec.matching_rows, spec.seed, law, expected)
        for number, payload in enumerate(columns[1:]):
            make_payload(first, payload, number)
        sides.append(Frame(spec.fields(side), tuple(Column(c.view(np.uint64)) for c in columns), size))
    if not how.has_right_columns:
        expected[:] = 0
    if _needs_matched_left_keys(how):
        keys = sides[0].columns[0].values
        add_expected_left_rows(
            first, keys, spec.matching_rows, matched_left_key_bits(spec, how), how is JoinKind.SEMI, expected
        )
    if how.keeps_unmatched_right:
        add_expected_right_rows(first, sides[1].columns[0].values, spec.rows, expected)
    return sides[0], sides[1], ExpectedWorkerResult(int(expected[0]), int(expected[1]))


def matched_left_key_bits(spec: SyntheticSpec, how: JoinKind) -> npt.NDArray[np.uint64]:
    """Return one bit for each left key: whether a right row has it; an empty array if the bits are not needed."""
    if spec.zipf == 0.0 or not _needs_matched_left_keys(how):
        return np.zeros(0, np.uint64)
    marks = np.zeros(spec.rows // 64 + 1, np.uint64)
    mark_matched_left_keys(
        spec.rows, _feistel_root(spec.rows), spec.matching_rows, spec.seed, _zipf_parameters(spec), marks
    )
    return marks


def _needs_matched_left_keys(how: JoinKind) -> bool:
    """Whether the result of this kind of join depends on which left keys have a match."""
    return how.keeps_unmatched_left or not how.has_right_columns


def check_result_rows(
    spec: SyntheticSpec, table: pa.Table, how: JoinKind = JoinKind.INNER, marks: npt.NDArray[np.uint64] | None = None
) -> tuple[int, int, int]:
    """Check the rows of a result one by one; returns their number, checksum, and how many are wrong.

    Returns
    -------
    rows, checksum, bad rows
        The checksum is over the right rows' numbers, and those of left rows that have no right one beside them, modulo
        2**64, in any order. A row is bad if its key is not the one that its left and right row numbers have, if it has
        nulls in one side's columns though that side has a partner for it, or if a payload is not the one of its row.
    """
    marks = matched_left_key_bits(spec, how) if marks is None else marks
    sizes = (spec.rows, _feistel_root(spec.rows), spec.matching_rows, spec.seed)
    law, out = _zipf_parameters(spec), np.zeros(3, np.uint64)
    misplaced = 0
    for alone, rows in _split_unmatched_rows(table, how):
        sides = ["left", "right"] if alone is None else [alone]
        other = [name for name in rows.column_names if name != KEY and name.partition("_")[0] not in sides]
        misplaced += sum(rows.num_rows - rows.column(name).null_count for name in other)
        arrays = {name: _int64_values(rows, name) for name in rows.column_names}
        numbers = {side: arrays[f"{side}_payload_0"] for side in sides}
        if alone is None:
            check_joined_rows(arrays[KEY], numbers["left"], numbers["right"], *sizes, law, out)
        elif alone == "left":
            check_left_only_rows(arrays[KEY], numbers["left"], *sizes, marks, how is JoinKind.SEMI, out)
        else:
            check_right_only_rows(arrays[KEY], numbers["right"], *sizes, law, out)
        for number in range(1, spec.payload_columns):
            for side in sides:
                misplaced += int(count_wrong_payloads(numbers[side], arrays[f"{side}_payload_{number}"], number))
    return int(out[0]), int(out[1]), int(out[2]) + misplaced


def _split_unmatched_rows(table: pa.Table, how: JoinKind) -> Iterator[tuple[str | None, pa.Table]]:
    """Yield the result rows that only one side has, with that side's name, then the joined rows, with None."""
    if not how.has_right_columns:
        yield "left", table
        return
    missing = {side: table.column(f"{side}_payload_0").is_null() for side in ("left", "right")}
    others = None
    for side, other, kept in (
        ("left", "right", how.keeps_unmatched_left),
        ("right", "left", how.keeps_unmatched_right),
    ):
        if kept and table.column(f"{other}_payload_0").null_count:
            alone = pc.and_not(missing[other], missing[side])
            others = pc.invert(alone) if others is None else pc.and_not(others, alone)
            yield side, table.filter(alone)
    yield None, table if others is None else table.filter(others)


def _int64_values(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a column's values without a copy. (Arrow's `to_numpy` imports pandas, which takes half a second.)"""
    column = table.column(name)
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.null_count or column.type != pa.int64():
        column = column.cast(pa.int64(), safe=False).fill_null(-1)  # the number of no row
    return buffer_as_array(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))].view(np.int64)


def _feistel_root(rows: int) -> int:
    """Return the smallest number whose square is at least `rows`: see `_permute_number`."""
    return math.isqrt(max(rows - 1, 0)) + 1


def _zipf_parameters(spec: SyntheticSpec) -> Any:
    """Return exponent s and (N+1)^(1-s), by which loops invert the Zipf law over ranks 1…N; 0 means no skew."""
    s = spec.zipf
    return np.array([s, (spec.rows + 1.0) ** (1.0 - s) if s not in (0.0, 1.0) else math.log(spec.rows + 1.0)])


def synthetic_parcel_bytes(spec: SyntheticSpec, rank: int, workers: int) -> tuple[list[int], list[int]]:
    """Return the bytes of this worker's left and right parcels to each worker, by rank, this worker included.

    They follow from the keys of a chunk, their hash and the layout of a parcel, and are those of a real merge.
    """
    from merge_bench.merge import partition_loops as loops
    from merge_bench.merge.partition import ParcelLayout

    keys_only, parts = replace(spec, payload_columns=0), max(1, -(-spec.rows // workers // BLOCK_ROWS))
    histograms = np.zeros((2, loops.HISTOGRAMS, workers + 1), np.int64)
    ids = np.empty(BLOCK_ROWS + 1, np.uint16 if workers < 2**16 else np.uint32)
    for part in range(parts):  # chunk `rank` of `workers` has the rows of these chunks of `workers` × `parts`
        frames = generate_chunks(keys_only, rank * parts + part, workers * parts)[:2]
        for frame, counts in zip(frames, histograms, strict=True):
            loops.assign_buckets_one_key(frame.columns[0].values, workers, ids[: frame.rows], counts)
    left, right = (
        [ParcelLayout.from_header(spec.fields(side), np.array([[rows]])).size for rows in counts.sum(axis=0)[:workers]]
        for side, counts in zip(("left", "right"), histograms, strict=True)
    )
    return left, right
