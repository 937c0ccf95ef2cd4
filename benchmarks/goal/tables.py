"""Merges by other keys than one integer: Parquet tables, joined by merge_bench and by libraries in turn."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.goal import targets
from benchmarks.goal.bench import ROOT, Bench, surroundings
from benchmarks.goal.targets import Target
from benchmarks.peer.children import run_limited
from benchmarks.peer.contenders import CONTENDERS
from benchmarks.peer.protocol import Job
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.launch.processes import tail
from merge_bench.memory import usable_cores
from merge_bench.statistics import median

ROWS = 4_000_000  # of a worker's chunk
WORKERS, ITERATIONS, FRACTION = 2, 3, 0.3
GROUP_ROWS = 500_000
LIBRARIES = {"polars": "polars-streaming", "duckdb": "duckdb-table"}


@dataclass(frozen=True)
class Keys:
    """What the tables are joined by: the names of the keys, and how they are made of numbers."""

    name: str
    on: tuple[str, ...]

    def columns(self, numbers: np.ndarray) -> dict[str, pa.Array]:
        """The key columns of rows with these numbers; another number is another key."""
        if self.name == "strings":
            text = np.char.add("customer-", np.char.zfill(numbers.astype(str), 9))
            return {"key": pa.array(text, pa.string())}
        return {"place": pa.array(numbers // 1000, pa.int32()), "number": pa.array(numbers % 1000, pa.int64())}


STRINGS, COLUMNS = Keys("strings", ("key",)), Keys("columns", ("place", "number"))
TARGETS: Mapping[str, Mapping[str, Target]] = {
    "strings": {"polars": targets.STRING_POLARS, "duckdb": targets.STRING_DUCKDB},
    "columns": {"polars": targets.COLUMNS_POLARS, "duckdb": targets.COLUMNS_DUCKDB},
}


def make(folder: Path, keys: Keys, rows: int, seed: int) -> tuple[Path, Path]:
    """Write both tables of `rows` rows: keys in random order, `FRACTION` of the right ones match, each once."""
    rng = np.random.default_rng(seed)
    matching = round(FRACTION * rows)
    right = rng.permutation(np.concatenate([rng.permutation(rows)[:matching], np.arange(rows, 2 * rows - matching)]))
    paths = folder / "left.parquet", folder / "right.parquet"
    for path, numbers in zip(paths, (rng.permutation(rows), right), strict=True):
        columns = {**keys.columns(numbers), f"{path.stem}_payload": pa.array(np.arange(rows))}
        pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS, compression="none")
    return paths


def against_libraries(bench: Bench, keys: Keys, rows: int = ROWS * WORKERS) -> dict[str, float]:
    """One block: the libraries' median wall ÷ merge_bench's, by the target's name.

    Raises
    ------
    WrongResult
        If one of them gives another number of rows.
    """
    left, right = make(bench.folder, keys, rows, bench.seed)
    order = ["merge_bench", *LIBRARIES]
    random.Random(f"{bench.seed}/{keys.name}").shuffle(order)
    walls = {}
    for name in order:
        walls[name], found = (
            _own(bench, keys, left, right) if name == "merge_bench" else _library(bench, keys, left, right, name)
        )
        if found != round(FRACTION * rows):
            raise WrongResult(f"{name} found {found} rows where {round(FRACTION * rows)} match")
    return {target.name: walls[name] / walls["merge_bench"] for name, target in TARGETS[keys.name].items()}


def _own(bench: Bench, keys: Keys, left: Path, right: Path) -> tuple[float, int]:
    ran = bench.merge(
        "--left", str(left), "--right", str(right), "--on", ",".join(keys.on), "--workers", str(WORKERS),
        "--iterations", str(ITERATIONS), "--link-rounds", "0", "--config", "optimized.cfg",
    )  # fmt: skip
    return ran.document["wall_seconds"]["median"], ran.document["result_rows"]


def _library(bench: Bench, keys: Keys, left: Path, right: Path, name: str) -> tuple[float, int]:
    threads = usable_cores() // WORKERS * WORKERS
    job = Job(1, 1, threads, ITERATIONS, warmup=1, fraction=FRACTION, seed=bench.seed)
    contender = next(each for each in CONTENDERS if each.name == LIBRARIES[name])
    output, errors = bench.folder / f"{name}.out", bench.folder / f"{name}.err"
    argv = [
        sys.executable, "-m", "benchmarks.goal.table_join", name, str(left), str(right), ",".join(keys.on),
        str(ITERATIONS), str(threads),
    ]  # fmt: skip
    environment = {**surroundings(), **contender.surroundings(job), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    ended = run_limited(argv, environment, ROOT, output, errors, bench.limit)
    if ended.timed_out or ended.status:
        raise RunFailed(f"{name} failed: {tail(errors, 1) or 'it was not done in time'}")
    answer = json.loads(output.read_text())
    return median(answer["wall_seconds"]), int(answer["rows"])
