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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merge_bench.merge.engines.base import How
from merge_bench.merge.frame import Column, Field, Frame, buffer_bytes
from merge_bench.merge.workload import Workload

WORKLOAD = Workload(name="synthetic", help="generated from --chunk and --seed", place=1)

KEY = "key"
BLOCK_ROWS = 1 << 20
"""Rows whose keys are made at once for `parcel_bytes`, so that memory does not depend on the chunk."""


@dataclass(frozen=True)
class SyntheticSpec:
    """What determines both synthetic tables.

    `rows`: of each frame. `fraction`: of right rows that match. `zipf`: exponent of the skew, 0 for none.
    """

    rows: int
    fraction: float
    seed: int
    payload_columns: int = 1
    zipf: float = 0.0

    @property
    def matches(self) -> int:
        """Rows of an inner merge's result: the right rows that match."""
        return round(self.fraction * self.rows)

    @property
    def hottest(self) -> float:
        """The part of the matching right rows with the most frequent key: rank 1 of the law of `_zipf_law`."""
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
        return 8 * (1 + self.payload_columns)


@dataclass(frozen=True)
class Expectation:
    """A worker's part of the expected result, from its own right rows; to be added up over the workers."""

    rows: int
    checksum: int


def generate(spec: SyntheticSpec, rank: int, workers: int, how: How = How.INNER) -> tuple[Frame, Frame, Expectation]:
    """This worker's chunks, and its part of the expected count and checksum of a merge of this kind.

    Chunk `rank` holds rows [N·rank ÷ W, N·(rank + 1) ÷ W) of both frames.
    """
    from merge_bench.merge.workload import synthetic_loops as loops

    first, last = spec.rows * rank // workers, spec.rows * (rank + 1) // workers
    size, root = last - first, _feistel_root(spec.rows)
    sides = []
    expected = np.zeros(2, np.uint64)
    for side in ("left", "right"):
        columns = [np.empty(size, np.int64) for _ in range(1 + spec.payload_columns)]
        if side == "left":
            loops.make_left_keys(first, columns[0], spec.rows, root, spec.seed)
        else:
            law = _zipf_law(spec)
            loops.make_right_keys(first, columns[0], spec.rows, root, spec.matches, spec.seed, law, expected)
        for number, payload in enumerate(columns[1:]):
            loops.make_payload(first, payload, number)
        sides.append(Frame(spec.fields(side), tuple(Column(c.view(np.uint64)) for c in columns), size))
    if not how.pairs:
        expected[:] = 0
    if _needs_partners(how):
        keys = sides[0].columns[0].values
        loops.expect_left(first, keys, spec.matches, partner_bits(spec, how), how is How.SEMI, expected)
    if how.keeps_right:
        loops.expect_right(first, sides[1].columns[0].values, spec.rows, expected)
    return sides[0], sides[1], Expectation(int(expected[0]), int(expected[1]))


def partner_bits(spec: SyntheticSpec, how: How) -> npt.NDArray[np.uint64]:
    """A bit for each left key: whether a right row has it. Empty where nobody needs it, or the key itself says so."""
    from merge_bench.merge.workload import synthetic_loops as loops

    if spec.zipf == 0.0 or not _needs_partners(how):
        return np.zeros(0, np.uint64)
    marks = np.zeros(spec.rows // 64 + 1, np.uint64)
    loops.mark_partners(spec.rows, _feistel_root(spec.rows), spec.matches, spec.seed, _zipf_law(spec), marks)
    return marks


def _needs_partners(how: How) -> bool:
    return how.keeps_left or not how.pairs


def check(
    spec: SyntheticSpec, table: pa.Table, how: How = How.INNER, marks: npt.NDArray[np.uint64] | None = None
) -> tuple[int, int, int]:
    """Check the rows of a result one by one. `marks`: those of `partner_bits`, which None stands for.

    Returns
    -------
    rows, checksum, bad rows
        The checksum is over the right rows' numbers, and those of left rows that have no right one beside them, modulo
        2**64, in any order. A row is bad if its key is not the one that its left and right row numbers have, if it has
        nulls in one side's columns though that side has a partner for it, or if a payload is not the one of its row.
    """
    from merge_bench.merge.workload import synthetic_loops as loops

    marks = partner_bits(spec, how) if marks is None else marks
    sizes = (spec.rows, _feistel_root(spec.rows), spec.matches, spec.seed)
    law, out = _zipf_law(spec), np.zeros(3, np.uint64)
    misplaced = 0
    for alone, rows in _rows_by_kind(table, how):
        sides = ["left", "right"] if alone is None else [alone]
        other = [name for name in rows.column_names if name != KEY and name.partition("_")[0] not in sides]
        misplaced += sum(rows.num_rows - rows.column(name).null_count for name in other)
        arrays = {name: _int64_values(rows, name) for name in rows.column_names}
        numbers = {side: arrays[f"{side}_payload_0"] for side in sides}
        if alone is None:
            loops.check_rows(arrays[KEY], numbers["left"], numbers["right"], *sizes, law, out)
        elif alone == "left":
            loops.check_left(arrays[KEY], numbers["left"], *sizes, marks, how is How.SEMI, out)
        else:
            loops.check_right(arrays[KEY], numbers["right"], *sizes, law, out)
        for number in range(1, spec.payload_columns):
            for side in sides:
                misplaced += int(loops.check_payload(numbers[side], arrays[f"{side}_payload_{number}"], number))
    return int(out[0]), int(out[1]), int(out[2]) + misplaced


def _rows_by_kind(table: pa.Table, how: How) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows that only one side has, with its name, where such are kept; then all others, with None."""
    if not how.pairs:
        yield "left", table
        return
    missing = {side: table.column(f"{side}_payload_0").is_null() for side in ("left", "right")}
    others = None
    for side, other, kept in (("left", "right", how.keeps_left), ("right", "left", how.keeps_right)):
        if kept and table.column(f"{other}_payload_0").null_count:
            alone = pc.and_not(missing[other], missing[side])
            others = pc.invert(alone) if others is None else pc.and_not(others, alone)
            yield side, table.filter(alone)
    yield None, table if others is None else table.filter(others)


def _int64_values(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """A column's values without a copy. (Arrow's `to_numpy` imports pandas, which takes half a second.)"""
    column = table.column(name)
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.null_count or column.type != pa.int64():
        column = column.cast(pa.int64(), safe=False).fill_null(-1)  # the number of no row
    return buffer_bytes(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))].view(np.int64)


def _feistel_root(rows: int) -> int:
    """The side of the smallest square of numbers that has so many or more: see `synthetic_loops._permute`."""
    return math.isqrt(max(rows - 1, 0)) + 1


def _zipf_law(spec: SyntheticSpec) -> Any:
    """Exponent s and (N+1)^(1-s), by which loops invert the Zipf law over ranks 1…N; s = 0 stands for no skew."""
    s = spec.zipf
    return np.array([s, (spec.rows + 1.0) ** (1.0 - s) if s not in (0.0, 1.0) else math.log(spec.rows + 1.0)])


def parcel_bytes(spec: SyntheticSpec, rank: int, workers: int) -> tuple[list[int], list[int]]:
    """Bytes of this worker's parcels to each worker, by rank, itself included: of the left and of the right frame.

    They follow from the keys of a chunk, their hash and the layout of a parcel, and are those of a real merge.
    """
    from merge_bench.merge import partition_loops as loops
    from merge_bench.merge.partition import Layout

    keys_only, parts = replace(spec, payload_columns=0), max(1, -(-spec.rows // workers // BLOCK_ROWS))
    histograms = np.zeros((2, loops.HISTOGRAMS, workers + 1), np.int64)
    ids = np.empty(BLOCK_ROWS + 1, np.uint16 if workers < 2**16 else np.uint32)
    for part in range(parts):  # chunk `rank` of `workers` has the rows of these chunks of `workers` × `parts`
        frames = generate(keys_only, rank * parts + part, workers * parts)[:2]
        for frame, counts in zip(frames, histograms, strict=True):
            loops.assign_fixed(frame.columns[0].values, workers, ids[: frame.rows], counts)
    left, right = (
        [Layout.of(spec.fields(side), np.array([[rows]])).size for rows in counts.sum(axis=0)[:workers]]
        for side, counts in zip(("left", "right"), histograms, strict=True)
    )
    return left, right
