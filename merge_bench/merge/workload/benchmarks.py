"""Benchmarks whose tables are generated: their questions, each a merge of two tables, and Parquet files made once.

TPC-H's tables are made by `tpchgen-cli`; its questions are the joins of its queries 3 and 5. The merge of `orders` and
`lineitem` on the order key has as many rows as `lineitem`: 6,001,215 at scale 1.

``h2o`` is the join task of the db-benchmark of H2O.ai, today kept by DuckDB Labs: four tables and five questions. Table
x of N rows is joined with small (N ÷ 10⁶ rows), medium (N ÷ 10³) and big (N). For each of them there is a set of 1.1 n
keys in random order, where n is its number of rows: 0.9 n occur on both sides, 0.1 n only in x, 0.1 n only in the other
table. A column that has fewer keys than rows has each key once and then keys drawn at random. The benchmark's own
generator is an R program; this one draws other random numbers, but by the same rules, and makes any row group of a
table by itself: a random order is a pseudo-random bijection of row numbers, so that no table is ever held in memory.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_bench.config.files import open_without_links
from merge_bench.config.options import TableOptions
from merge_bench.config.parsers import did_you_mean
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.files import cache_folder
from merge_bench.units import format_bytes, format_count

SMALLEST_SCALE = 0.001
TPCH_BYTES_PER_SCALE = 360_000_000  # on disk: all tables at scale 1, Snappy-compressed
ROW_GROUP_BYTES_PER_SCALE = 900_000  # makes about 126 row groups of orders and 430 of lineitem, so that shares are even
LARGEST_ROW_GROUP_BYTES = 7 << 20

H2O_ROWS = 10_000_000
H2O_BYTES_PER_ROW = 55  # of x, on disk for all four tables
H2O_VERSION = 1  # of the generator: other tables, another number
LEAST_KEYS = 10  # of small and medium: with fewer there would be no key that only one side has
SEED = 108
MOST_GROUP_ROWS = 1_000_000
ROW_GROUPS = 128  # of a table at least, if it has so many rows, so that workers get equal shares
H2O_TABLES = {"x": 3, "small": 1, "medium": 2, "big": 3}
"""Number of key columns: id1 has the keys of small, id2 those of medium, id3 those of big."""

Numbers = npt.NDArray[np.int64]
Make = Callable[[Path, Sequence[str]], object]
"""Writes the files of the tables with these names to a folder."""


@dataclass(frozen=True)
class Question:
    """A merge of two tables of a benchmark; `how`: a value of ``--how``, None if the benchmark leaves it open."""

    name: str
    left: str
    right: str
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A value of ``--workload``.

    `default`: the questions of a run that names none. `make`: gives the Parquet files of the tables with these names,
    which it generates by the options if they do not exist.
    """

    name: str
    questions: tuple[Question, ...]
    default: tuple[str, ...]
    make: Callable[[TableOptions, Sequence[str]], Sequence[Path]]

    def choose(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of the questions that `names` asks for, or of the default ones; ``3`` stands for ``q3``.

        Raises `UsageError` if there is no such question, or one is named twice.
        """
        all_names = [question.name for question in self.questions]
        chosen = [f"q{name}" if name.isdigit() else name.lower() for name in names]
        for name in chosen:
            if name not in all_names:
                hint = did_you_mean(name, all_names) or f"; choose from {', '.join(all_names)}"
                raise UsageError(f"--workload {self.name} has no question {name!r}{hint}")
            if chosen.count(name) > 1:
                raise UsageError(f"--question names {name} twice")
        return tuple(chosen) or self.default

    def question(self, name: str) -> Question:
        return next(question for question in self.questions if question.name == name)


def make_once(
    what: str, target: Path, names: Sequence[str], make: Make, disk_bytes: int, smaller: str
) -> tuple[Path, ...]:
    """The files ``target/<name>.parquet``; those that do not exist are made.

    A file is there only when it is complete: `make` writes it to a folder beside `target`, from where it is moved. An
    interrupted generation is repeated, and of several processes at once one makes the files and the others wait.

    `what`: the benchmark and its size, for messages. `disk_bytes`: estimated bytes of all files of the benchmark.
    `smaller`: the option that makes them smaller.

    Raises `UsageError` if the disk is too small, or cannot be written to.
    """
    paths = {name: target / f"{name}.parquet" for name in names}
    folder = target.parent
    try:
        if not _missing_tables(paths):
            return tuple(paths.values())
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f".{target.name}.lock", "w", opener=open_without_links) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
            if missing := _missing_tables(paths):
                for stale in folder.glob(f".{target.name}.tmp-*"):
                    shutil.rmtree(stale, ignore_errors=True)
                free = shutil.disk_usage(folder).free
                if disk_bytes > free:
                    raise UsageError(
                        f"{what} needs about {format_bytes(disk_bytes)}, but {folder} has {format_bytes(free)} free;"
                        f" use a smaller {smaller}, or set XDG_CACHE_HOME to another folder"
                    )
                _make_tables(make, missing, folder / f".{target.name}.tmp-{os.getpid()}", target)
    except OSError as error:
        raise UsageError(f"cannot write the tables of {what} to {folder}: {error.strerror or error}") from None
    return tuple(paths.values())


def _missing_tables(paths: Mapping[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if not path.is_file()]


def _make_tables(make: Make, names: Sequence[str], temporary: Path, target: Path) -> None:
    temporary.mkdir()
    try:
        make(temporary, names)
        target.mkdir(exist_ok=True)
        for name in names:
            os.replace(temporary / f"{name}.parquet", target / f"{name}.parquet")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def tpch_tables(
    scale: float,
    names: Sequence[str] = ("orders", "lineitem"),
    folder: Path | None = None,
    program: str | None = None,
) -> tuple[Path, ...]:
    """The Parquet files of these tables at a scale, in `folder`/sf<scale>-<version of the generator>/.

    They are made if they do not exist: see `make_once`. `program`: the generator; None: that of this environment.

    Raises `UsageError` if the generator does not support the scale or is not installed, or if the disk is too small,
    and `RunFailed` if the generator fails.
    """
    if not math.isfinite(scale) or scale < SMALLEST_SCALE:
        raise UsageError(f"--scale must be finite and at least {SMALLEST_SCALE}, not {scale:g}")
    generator = program or find_tpch_generator()

    def make(temporary: Path, missing: Sequence[str]) -> None:
        generate_tpch(generator, scale, temporary, missing)

    target = (folder or cache_folder() / "tpch") / f"sf{scale:g}-{tpch_generator_version(generator)}"
    return make_once(f"TPC-H at scale {scale:g}", target, names, make, int(scale * TPCH_BYTES_PER_SCALE), "--scale")


def find_tpch_generator(folders: Sequence[Path] | None = None) -> str:
    """The path of `tpchgen-cli` in one of `folders` (None: those of this environment), else in the search path.

    Raises `UsageError` if it is not installed.
    """
    if folders is None:
        folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if (folder / "tpchgen-cli").is_file():
            return str(folder / "tpchgen-cli")
    program = shutil.which("tpchgen-cli")
    if program is None:
        raise UsageError(
            "--workload tpch needs the package tpchgen-cli, which is not installed; run: pip install tpchgen-cli"
        )
    return program


def tpch_generator_version(program: str) -> str:
    """The version that the generator prints.

    Raises `UsageError` if it prints none.
    """
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    words = answer.stdout.split()
    if answer.returncode != 0 or not words:
        raise UsageError(f"{program} did not print its version: {answer.stderr.strip()}")
    return words[-1]


def generate_tpch(program: str, scale: float, folder: Path, names: Sequence[str]) -> None:
    """Write the files of these tables to a folder; raises `RunFailed` if the generator fails."""
    row_group = min(LARGEST_ROW_GROUP_BYTES, max(1024, int(scale * ROW_GROUP_BYTES_PER_SCALE)))
    options = [f"--tables={','.join(names)}", f"--row-group-bytes={row_group}", "--quiet", f"--output-dir={folder}"]
    command = [program, "parquet", f"--scale-factor={scale:g}", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RunFailed(f"tpchgen-cli failed with status {done.returncode}: {lines[-1]}")


class H2oGenerator:
    """Makes the tables of h2o for `rows` rows of x, a row group at a time."""

    def __init__(self, rows: int) -> None:
        least = LEAST_KEYS
        self.rows = {"x": rows, "small": max(least, rows // 10**6), "medium": max(least, rows // 1000), "big": rows}

    def group_rows(self, table: str) -> int:
        """Rows of a row group; the last one may have fewer."""
        return min(MOST_GROUP_ROWS, max(1, self.rows[table] // ROW_GROUPS))

    def make_row_group(self, table: str, number: int) -> pa.Table:
        size, place = self.group_rows(table), list(H2O_TABLES).index(table)
        first = number * size
        rows = np.arange(first, min(first + size, self.rows[table]))
        random = np.random.default_rng((SEED, place, number))
        ids = [self._draw_keys(table, column, rows, random) for column in range(1, H2O_TABLES[table] + 1)]
        columns = {f"id{at}": pa.array(values, pa.int32()) for at, values in enumerate(ids, 1)}
        for at, values in enumerate(ids, 4):
            columns[f"id{at}"] = pc.binary_join_element_wise("id", pc.cast(pa.array(values), pa.string()), "")
        values = np.round(random.uniform(0.0, 100.0, len(rows)), 6)
        return pa.table({**columns, "v1" if table == "x" else "v2": values})

    def write(self, table: str, path: Path) -> None:
        with pq.ParquetWriter(path, self.make_row_group(table, 0).schema, compression="zstd") as writer:
            for number in range(-(-self.rows[table] // self.group_rows(table))):
                writer.write_table(self.make_row_group(table, number))

    def _draw_keys(self, table: str, column: int, rows: Numbers, random: np.random.Generator) -> Numbers:
        """Column id1, id2 or id3 of these rows; a whole table has every key of its side once, and others at random."""
        keys = self.rows[("small", "medium", "big")[column - 1]]
        shared, seed = round(0.9 * keys), 1000 * SEED + 10 * column  # shared: keys that the other side has, too
        places = _shuffled_places(rows, self.rows[table], seed + 1 + list(H2O_TABLES).index(table))
        drawn = places >= keys
        places[drawn] = random.integers(0, keys, int(drawn.sum()))
        if table != "x":
            places[places >= shared] += keys - shared
        return 1 + _shuffled_places(places, 2 * keys - shared, seed)


def _shuffled_places(numbers: Numbers, count: int, seed: int) -> Numbers:
    """The positions of these numbers in a pseudo-random order of 0…count-1."""
    from merge_bench.merge.workload.synthetic import permute

    places = numbers.copy()
    permute(places, count, math.isqrt(count - 1) + 1, seed)
    return places


def h2o_tables(rows: int, names: Sequence[str], folder: Path | None = None) -> tuple[Path, ...]:
    """The Parquet files of these tables for `rows` rows of x, in `folder`/<rows>-<version>/; made if they do not exist.

    It raises what `make_once` raises.
    """

    def make(temporary: Path, missing: Sequence[str]) -> None:
        generator = H2oGenerator(rows)
        for name in missing:
            generator.write(name, temporary / f"{name}.parquet")

    target = (folder or cache_folder() / "h2o") / f"{rows}-{H2O_VERSION}"
    return make_once(f"h2o with {format_count(rows)} rows", target, names, make, H2O_BYTES_PER_ROW * rows, "--rows")


def _tpch_question(name: str, left_key: str, right_key: str) -> Question:
    left, right = name.split("-")
    return Question(name, left, right, (left_key,), (right_key,))


def _h2o_question(name: str, right: str, key: str, how: str = "inner") -> Question:
    return Question(name, "x", right, (key,), (key,), how)


TPCH = Benchmark(
    "tpch",
    (
        _tpch_question("orders-lineitem", "o_orderkey", "l_orderkey"),  # Q3 and Q5
        _tpch_question("customer-orders", "c_custkey", "o_custkey"),  # Q3 and Q5
        _tpch_question("supplier-lineitem", "s_suppkey", "l_suppkey"),  # this and the next ones: Q5
        _tpch_question("nation-supplier", "n_nationkey", "s_nationkey"),
        _tpch_question("nation-customer", "n_nationkey", "c_nationkey"),
        _tpch_question("region-nation", "r_regionkey", "n_regionkey"),
    ),
    default=("orders-lineitem",),
    make=lambda options, names: tpch_tables(options.scale, names),
)
H2O = Benchmark(
    "h2o",
    (
        _h2o_question("q1", "small", "id1"),
        _h2o_question("q2", "medium", "id2"),
        _h2o_question("q3", "medium", "id2", "left"),
        _h2o_question("q4", "medium", "id5"),
        _h2o_question("q5", "big", "id3"),
    ),
    default=("q1", "q2", "q3", "q4", "q5"),
    make=lambda options, names: h2o_tables(H2O_ROWS if options.rows is None else options.rows, names),
)
BENCHMARKS = {benchmark.name: benchmark for benchmark in (TPCH, H2O)}
