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
def left_keys(first: int, out: Any, rows: int, root: int, seed: int) -> None:
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        out[k] = _permute(np.uint64(first + k), n, r, key)


@compiled
def permute(numbers: Any, rows: int, root: int, seed: int) -> None:
    n, r, key = np.uint64(rows), np.uint64(root), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(numbers.size):
        numbers[k] = _permute(np.uint64(numbers[k]), n, r, key)


@compiled
def right_keys(first: int, out: Any, rows: int, root: int, matches: int, seed: int, law: Any, expected: Any) -> None:
    n, r, m, key = np.uint64(rows), np.uint64(root), np.uint64(matches), mix64(np.uint64(seed) + np.uint64(17))
    for k in range(out.size):
        j = np.uint64(first + k)
        value = _right_key(j, n, r, m, key, law)
        out[k] = value
        if value < n:
            expected[0] += np.uint64(1)
            expected[1] += mix64(j + np.uint64(1))


@compiled
def payload(first: int, out: Any, number: int) -> None:
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
