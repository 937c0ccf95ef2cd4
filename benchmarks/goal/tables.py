"""Merges by other keys than one integer: Parquet tables, joined by merge_bench and by libraries in turn."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.goal import targets
from benchmarks.goal.bench import ROOT, Bench, surroundings
from benchmarks.goal.table_join import checksum
from benchmarks.goal.targets import Target
from benchmarks.peer.children import run_limited
from benchmarks.peer.contenders import CONTENDERS
from benchmarks.peer.protocol import Job
from merge_bench.analysis.statistics import median
from merge_bench.cluster.supervisor import tail
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.host.memory import usable_cores

ROWS = 25_000_000  # of a worker's chunk
WORKERS, ITERATIONS, FRACTION = 2, 3, 0.3
GROUP_ROWS = 1_000_000
LIBRARIES = {"polars": "polars-streaming", "duckdb": "duckdb-table"}


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
        return {"place": pa.array(numbers // 1000, pa.int32()), "number": pa.array(numbers % 1000, pa.int64())}


STRINGS, COLUMNS = Keys("strings", ("key",)), Keys("columns", ("place", "number"))
TARGETS: Mapping[str, Mapping[str, Target]] = {
    "strings": {"polars": targets.STRING_POLARS, "duckdb": targets.STRING_DUCKDB},
    "columns": {"polars": targets.COLUMNS_POLARS, "duckdb": targets.COLUMNS_DUCKDB},
}


@dataclass(frozen=True)
class Tables:
    """Both files, and the right result: its number of rows, and Σ left payload · right payload modulo 2⁶⁴."""

    left: Path
    right: Path
    rows: int
    checksum: int


def make(folder: Path, keys: Keys, rows: int, seed: int) -> Tables:
    """Write both tables of `rows` rows: keys in random order, `FRACTION` of the right ones match, each once."""
    rng = np.random.default_rng(seed)
    matching = round(FRACTION * rows)
    left = rng.permutation(rows)
    right = rng.permutation(np.concatenate([rng.permutation(rows)[:matching], np.arange(rows, 2 * rows - matching)]))
    where = np.empty(rows, np.int64)  # each number's place among the left rows, which is the payload there
    where[left] = np.arange(rows)
    found = np.flatnonzero(right < rows)
    made = Tables(folder / "left.parquet", folder / "right.parquet", matching, checksum(where[right[found]], found))
    for path, numbers in ((made.left, left), (made.right, right)):
        _write(path, keys, numbers)
    return made


def _write(path: Path, keys: Keys, numbers: np.ndarray) -> None:
    """A row group at a time; a row's payload is its place."""
    writer = None
    for start in range(0, len(numbers), GROUP_ROWS):
        part = numbers[start : start + GROUP_ROWS]
        payload = pa.array(np.arange(start, start + len(part)))
        table = pa.table({**keys.columns(part), f"{path.stem}_payload": payload})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def against_libraries(bench: Bench, keys: Keys, rows: int = ROWS * WORKERS) -> dict[str, float]:
    """One block: the libraries' median wall ÷ merge_bench's, by the target's name.

    Raises
    ------
    WrongResult
        If one of them gives another number of rows, or other rows.
    """
    made = make(bench.folder, keys, rows, bench.seed)
    order = ["merge_bench", *LIBRARIES]
    random.Random(f"{bench.seed}/{keys.name}").shuffle(order)
    walls = {}
    for name in order:
        ran = _own(bench, keys, made) if name == "merge_bench" else _library(bench, keys, made, name)
        walls[name] = ran["wall_seconds"]
        if ran["rows"] != made.rows:
            raise WrongResult(f"{name} found {ran['rows']} rows where {made.rows} match")
        if ran.get("checksum", made.checksum) != made.checksum:
            raise WrongResult(f"{name} found {made.rows} rows, and not those that match")
    for name, target in TARGETS[keys.name].items():
        bench.details[target.name] = {"wall_seconds": {each: walls[each] for each in ("merge_bench", name)}}
    return {target.name: walls[name] / walls["merge_bench"] for name, target in TARGETS[keys.name].items()}


def _own(bench: Bench, keys: Keys, made: Tables) -> dict[str, Any]:
    """Its result has been verified, or the run has failed."""
    ran = bench.merge(
        "--left", str(made.left), "--right", str(made.right), "--on", ",".join(keys.on), "--workers", str(WORKERS),
        "--iterations", str(ITERATIONS), "--link-rounds", "0", "--config", "optimized.cfg",
    )  # fmt: skip
    return {"wall_seconds": ran.document["wall_seconds"]["median"], "rows": ran.document["result_rows"]}


def _library(bench: Bench, keys: Keys, made: Tables, name: str) -> dict[str, Any]:
    threads = usable_cores() // WORKERS * WORKERS
    job = Job(1, 1, threads, ITERATIONS, warmup=1, fraction=FRACTION, seed=bench.seed)
    contender = next(each for each in CONTENDERS if each.name == LIBRARIES[name])
    output, errors = bench.folder / f"{name}.out", bench.folder / f"{name}.err"
    argv = [
        sys.executable, "-m", "benchmarks.goal.table_join", name, str(made.left), str(made.right), ",".join(keys.on),
        str(ITERATIONS), str(threads),
    ]  # fmt: skip
    environment = {**surroundings(), **contender.surroundings(job), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    ended = run_limited(argv, environment, ROOT, output, errors, bench.limit)
    if ended.timed_out or ended.status:
        raise RunFailed(f"{name} failed: {tail(errors, 1) or 'it was not done in time'}")
    answer = json.loads(output.read_text())
    return {**answer, "wall_seconds": median(answer["wall_seconds"])}
