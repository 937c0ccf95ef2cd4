"""Merges by other keys than one integer: Parquet tables, joined by merge_bench and by libraries in turn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.goal import targets
from benchmarks.goal.bench import Bench
from benchmarks.goal.measures import WORKERS, Values, against
from benchmarks.peer.inprocess import checksum
from benchmarks.peer.protocol import Tables

ROWS = 25_000_000  # of a worker's chunk
ITERATIONS, FRACTION = 3, 0.3
GROUP_ROWS = 1_000_000
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: numbers times this, modulo 2**64, differ, and have no order


@dataclass(frozen=True)
class Keys:
    """What the tables are joined by: the names of the keys, and how they are made of numbers."""

    name: str
    on: tuple[str, ...]

    def columns(self, numbers: np.ndarray) -> dict[str, pa.Array]:
        """The key columns of rows with these numbers; another number is another key."""
        if self.name == "strings":
            digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width=9, padding="0")
            return {"key": pc.binary_join_element_wise("customer-", digits, "")}
        if self.name == "columns":
            return {"place": pa.array(numbers // 1000, pa.int32()), "number": pa.array(numbers % 1000, pa.int64())}
        if self.name == "spread":
            return {"key": pa.array((numbers.astype(np.uint64) * SPREAD).view(np.int64))}
        return {"key": pa.array(numbers, pa.int64())}


STRINGS, COLUMNS = Keys("strings", ("key",)), Keys("columns", ("place", "number"))
TARGETS = {
    STRINGS: (targets.STRING_POLARS, targets.STRING_DUCKDB),
    COLUMNS: (targets.COLUMNS_POLARS, targets.COLUMNS_DUCKDB),
}


def make(
    folder: Path,
    keys: Keys,
    rows: int,
    seed: int,
    repeats: int = 1,
    fraction: float = FRACTION,
    group_rows: int = GROUP_ROWS,
) -> Tables:
    """Write both tables of about `rows` rows in random order; `fraction` of the right keys match.

    Each key occurs `repeats` times in each table that has it. `group_rows`: the most rows of a row group of the files.
    """
    rng = np.random.default_rng(seed)
    count = rows // repeats
    matching = round(fraction * count)
    found = rng.permutation(count)[:matching]
    left, right = (
        rng.permutation(np.repeat(each, repeats))
        for each in (np.arange(count), np.concatenate([found, np.arange(count, 2 * count - matching)]))
    )
    paths = folder / "left.parquet", folder / "right.parquet"
    sums = np.zeros((2, 2 * count), np.uint64)  # of the payloads of each key: its pairs add up to their product
    for path, numbers, of_side in zip(paths, (left, right), sums, strict=True):
        np.add.at(of_side, numbers, np.arange(len(numbers), dtype=np.uint64))
        _write(path, keys, numbers, group_rows)
    return Tables(str(paths[0]), str(paths[1]), keys.on, matching * repeats**2, checksum(*sums))


def _write(path: Path, keys: Keys, numbers: np.ndarray, group_rows: int) -> None:
    """Write a row group at a time; a row's payload is its place."""
    payload = f"{path.stem}_payload"
    schema = pa.table({**keys.columns(numbers[:0]), payload: pa.array([], pa.int64())}).schema
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, len(numbers), group_rows):
            part = numbers[start : start + group_rows]
            writer.write_table(pa.table({**keys.columns(part), payload: np.arange(start, start + len(part))}))


def against_libraries(bench: Bench, keys: Keys, rows: int = ROWS) -> Values:
    """One block: the libraries' median wall ÷ merge_bench's, by the target's name; `rows`: of a worker's chunk."""
    made = make(bench.folder, keys, rows * WORKERS, bench.seed)
    polars, duckdb = TARGETS[keys]
    return against(bench, {"polars-streaming": polars, "duckdb-table": duckdb}, ITERATIONS, tables=made)
