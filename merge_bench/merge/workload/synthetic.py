"""The synthetic workload of the 2022 program, in which every row can be checked by itself.

Of N rows a side, the left keys are 0…N-1 in pseudo-random order; left row i has the key σ(i). Right row j has the key
σ'(j) where that is below M = round(fraction × N), else N + σ'(j), which matches nothing; σ and σ' are bijections of
[0, N) made from the seed. So exactly M right rows match, their partners spread evenly over all left chunks. The first
payload of a row is its number (i or j), the others are functions of it. Row numbers run over the whole frame: the table
depends on N, the fraction, the skew and the seed, and not on how many workers share it.

With a skew `zipf:S` the M matching right rows take their key from a Zipf law of exponent S over the left keys, by
inverting its continuous form at a pseudo-random point that depends on j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merge_bench.merge.frame import Column, Field, Frame, memory_of

KEY = "key"


@dataclass(frozen=True)
class SyntheticSpec:
    """The whole synthetic table.

    `rows`: of each frame. `fraction`: of right rows that match. `zipf`: exponent of the skew, 0 for none.
    """

    rows: int
    fraction: float
    seed: int
    payload_columns: int = 1
    zipf: float = 0.0

    @property
    def matches(self) -> int:
        """Rows of the merge's result."""
        return round(self.fraction * self.rows)

    @property
    def hottest(self) -> float:
        """The part of the matching right rows with the most frequent key: rank 1 of the law of `_law`."""
        if self.zipf == 0.0:
            return 1 / max(self.matches, 1)
        exponent = 1.0 - self.zipf
        if exponent == 0.0:
            return math.log(2.0) / math.log(self.rows + 1.0)
        return float((2.0**exponent - 1.0) / ((self.rows + 1.0) ** exponent - 1.0))

    def fields(self, side: str) -> tuple[Field, ...]:
        """Key and payload columns of ``left`` or ``right``: all int64."""
        names = [KEY] + [f"{side}_payload_{k}" for k in range(self.payload_columns)]
        return tuple(Field(name, pa.int64(), 8) for name in names)

    @property
    def bytes_per_row(self) -> int:
        """Bytes of a row of either frame."""
        return 8 * (1 + self.payload_columns)


@dataclass(frozen=True)
class Expectation:
    """A worker's part of the expected result, from its own right rows; to be added up over the workers."""

    rows: int
    checksum: int


def generate(spec: SyntheticSpec, rank: int, workers: int) -> tuple[Frame, Frame, Expectation]:
    """This worker's chunks, and its part of the expected count and checksum.

    Chunk `rank` holds rows [N·rank ÷ W, N·(rank + 1) ÷ W) of both frames.
    """
    from merge_bench.merge.workload import synthetic_loops as loops

    first, last = spec.rows * rank // workers, spec.rows * (rank + 1) // workers
    size = last - first
    sides = []
    expected = np.zeros(2, np.uint64)
    for side in ("left", "right"):
        columns = [np.empty(size, np.int64) for _ in range(1 + spec.payload_columns)]
        if side == "left":
            loops.left_keys(first, columns[0], spec.rows, _root(spec.rows), spec.seed)
        else:
            law = _law(spec)
            loops.right_keys(first, columns[0], spec.rows, _root(spec.rows), spec.matches, spec.seed, law, expected)
        for number, payload in enumerate(columns[1:]):
            loops.payload(first, payload, number)
        sides.append(Frame(spec.fields(side), tuple(Column(c.view(np.uint64)) for c in columns), size))
    return sides[0], sides[1], Expectation(int(expected[0]), int(expected[1]))


def check(spec: SyntheticSpec, table: pa.Table) -> tuple[int, int, int]:
    """Check result rows one by one.

    Returns
    -------
    rows, checksum, bad rows
        The checksum is over the right rows' numbers, modulo 2**64, in any order. A row is bad if its key is not the one
        that its left and right row numbers have, or a payload is not the one of its row.
    """
    from merge_bench.merge.workload import synthetic_loops as loops

    arrays = {name: _int64(table, name) for name in table.column_names}
    out = np.zeros(3, np.uint64)
    left, right = arrays["left_payload_0"], arrays["right_payload_0"]
    root, law = _root(spec.rows), _law(spec)
    loops.check_rows(arrays[KEY], left, right, spec.rows, root, spec.matches, spec.seed, law, out)
    bad = int(out[2])
    for number in range(1, spec.payload_columns):
        bad += int(loops.check_payload(left, arrays[f"left_payload_{number}"], number))
        bad += int(loops.check_payload(right, arrays[f"right_payload_{number}"], number))
    return int(out[0]), int(out[1]), bad


def _int64(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """A column's values without a copy. (Arrow's `to_numpy` imports pandas, which takes half a second.)"""
    column = table.column(name)
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.null_count or column.type != pa.int64():
        column = column.cast(pa.int64(), safe=False).fill_null(-1)  # the number of no row
    return memory_of(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))].view(np.int64)


def _root(rows: int) -> int:
    return math.isqrt(max(rows - 1, 0)) + 1


def _law(spec: SyntheticSpec) -> Any:
    """Exponent s and (N+1)^(1-s), for inverting the Zipf law over ranks 1…N; s = 0 stands for no skew."""
    s = spec.zipf
    return np.array([s, (spec.rows + 1.0) ** (1.0 - s) if s not in (0.0, 1.0) else math.log(spec.rows + 1.0)])
