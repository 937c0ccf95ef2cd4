"""Compiled loops of the synthetic workload: the keys and payloads of rows, and the check of rows of a result."""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.jit import compiled, inlined
from merge_bench.merge.partition_loops import mix64

ROUNDS = 4


@inlined
def _permute(x: Any, rows: Any, root: Any, key: Any) -> Any:
    """A bijection of [0, rows): a Feistel network over root × root ≥ rows, walked until it lands inside.

    Black and Rogaway, "Ciphers with Arbitrary Finite Domains" (CT-RSA 2002).
    """
    while True:
        left = x // root
        right = x - left * root
        for turn in range(ROUNDS):
            mixed = mix64(right ^ key ^ (np.uint64(turn + 1) << np.uint64(56)))
            turned = left + (((mixed >> np.uint64(32)) * root) >> np.uint64(32))
            left, right = right, turned - root if turned >= root else turned
        x = left * root + right
        if x < rows:
            return x


@inlined
def _right_key(j: Any, rows: Any, root: Any, matches: Any, key: Any, law: Any) -> Any:
    place = _permute(j, rows, root, key + np.uint64(1))
    if place >= matches:
        return rows + place
    if law[0] == 0.0:
        return place
    u = np.float64(mix64(j ^ key ^ np.uint64(0x5EED)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
    rank = (1.0 + u * (law[1] - 1.0)) ** (1.0 / (1.0 - law[0])) if law[0] != 1.0 else np.exp(u * law[1])
    return min(np.uint64(rank) - np.uint64(1), rows - np.uint64(1))


@compiled
def make_left_keys(first: int, out: Any, rows: int, root: int, seed: int) -> None:
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        out[k] = _permute(np.uint64(first + k), n, r, key)


@compiled
def permute(numbers: Any, rows: int, root: int, seed: int) -> None:
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(numbers.size):
        numbers[k] = _permute(np.uint64(numbers[k]), n, r, key)


@compiled
def mark_partners(rows: int, root: int, matches: int, seed: int, law: Any, marks: Any) -> None:
    """Set the bit of every left key that a right row has; `marks` has a word for each 64 keys."""
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for j in range(rows):
        value = _right_key(np.uint64(j), n, r, m, key, law)
        if value < n:
            marks[value >> np.uint64(6)] |= np.uint64(1) << (value & np.uint64(63))


@inlined
def _has_partner(value: Any, matches: Any, marks: Any) -> Any:
    """Whether a right row has this left key; without `marks` (of no skew) the keys below `matches` have one."""
    if marks.size == 0:
        return value < matches
    return (marks[value >> np.uint64(6)] >> (value & np.uint64(63))) & np.uint64(1) == np.uint64(1)


@inlined
def _left_checksum_term(i: Any) -> Any:
    """What left row `i` alone adds to the checksum; a pair of rows, and right row `j` alone, add `mix64(j + 1)`."""
    return mix64(~i)


@compiled
def expect_left(first: int, keys: Any, matches: int, marks: Any, partner: bool, expected: Any) -> None:
    """Add number and checksum of the left rows that have a partner, or (`partner` false) none, to `expected`."""
    m = np.uint64(matches)
    for k in range(keys.size):
        if _has_partner(np.uint64(keys[k]), m, marks) == partner:
            expected[0] += np.uint64(1)
            expected[1] += _left_checksum_term(np.uint64(first + k))


@compiled
def expect_right(first: int, keys: Any, rows: int, expected: Any) -> None:
    """Add number and checksum of the right rows without a partner to `expected`."""
    n = np.uint64(rows)
    for k in range(keys.size):
        if np.uint64(keys[k]) >= n:
            expected[0] += np.uint64(1)
            expected[1] += mix64(np.uint64(first + k) + np.uint64(1))


@compiled
def check_left(
    keys: Any, left: Any, rows: int, root: int, matches: int, seed: int, marks: Any, partner: bool, out: Any
) -> None:
    """Check left rows without a right one beside them, which have a partner, or (`partner` false) have none."""
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        i, value = np.uint64(left[k]), np.uint64(keys[k])
        out[0] += np.uint64(1)
        out[1] += _left_checksum_term(i)
        if i >= n or value != _permute(i, n, r, key) or _has_partner(value, m, marks) != partner:
            out[2] += np.uint64(1)


@compiled
def check_right(keys: Any, right: Any, rows: int, root: int, matches: int, seed: int, law: Any, out: Any) -> None:
    """Check right rows without a left one beside them, which have no partner."""
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        j, value = np.uint64(right[k]), np.uint64(keys[k])
        out[0] += np.uint64(1)
        out[1] += mix64(j + np.uint64(1))
        if j >= n or value < n or value != _right_key(j, n, r, m, key, law):
            out[2] += np.uint64(1)


@compiled
def make_right_keys(
    first: int, out: Any, rows: int, root: int, matches: int, seed: int, law: Any, expected: Any
) -> None:
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        j = np.uint64(first + k)
        value = _right_key(j, n, r, m, key, law)
        out[k] = value
        if value < n:
            expected[0] += np.uint64(1)
            expected[1] += mix64(j + np.uint64(1))


@compiled
def make_payload(first: int, out: Any, number: int) -> None:
    for k in range(out.size):
        row = np.uint64(first + k)
        out[k] = row if number == 0 else mix64(row ^ (np.uint64(number) << np.uint64(48)))


@compiled
def check_payload(numbers: Any, payload: Any, number: int) -> Any:
    bad = 0
    for k in range(numbers.size):
        if np.uint64(payload[k]) != mix64(np.uint64(numbers[k]) ^ (np.uint64(number) << np.uint64(48))):
            bad += 1
    return bad


@compiled
def check_rows(
    keys: Any, left: Any, right: Any, rows: int, root: int, matches: int, seed: int, law: Any, out: Any
) -> None:
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(keys.size):
        i, j, value = np.uint64(left[k]), np.uint64(right[k]), np.uint64(keys[k])
        out[0] += np.uint64(1)
        out[1] += mix64(j + np.uint64(1))
        if i >= n or j >= n or value != _permute(i, n, r, key) or value != _right_key(j, n, r, m, key, law):
            out[2] += np.uint64(1)
