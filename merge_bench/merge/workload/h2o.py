"""The join task of the db-benchmark of H2O.ai, today kept by DuckDB Labs: four tables and five questions.

Table x of N rows is joined with small (N ÷ 10⁶ rows), medium (N ÷ 10³) and big (N). For each of them there is a set of
1.1 n keys in random order, where n is its number of rows: 0.9 n occur on both sides, 0.1 n only in x, 0.1 n only in the
other table. A column that has fewer keys than rows has each key once and then keys drawn at random. The benchmark's own
generator is an R program; this one draws other random numbers, but by the same rules, and makes any row group of a
table by itself: a random order is a pseudo-random bijection of row numbers, so that no table is ever held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_bench.config.files import user_cache_folder
from merge_bench.merge.workload import Workload
from merge_bench.merge.workload.benchmarks import Benchmark, BenchmarkQuestion, make_tables_once
from merge_bench.units import format_count

WORKLOAD = Workload(
    name="h2o",
    help="the join task of the db-benchmark, with --rows",
    place=4,
    attribute="H2O",
    questions="1 to 5",
    default="all",
    rows=10_000_000,
)

H2O_BYTES_PER_ROW = 55  # of x, on disk for all four tables
H2O_VERSION = 1  # of the generator: other tables, another number
LEAST_KEYS = 10  # of small and medium: with fewer there would be no key that only one side has
SEED = 108
MOST_GROUP_ROWS = 1_000_000
ROW_GROUPS = 128  # of a table at least, if it has so many rows, so that workers get equal shares
H2O_TABLES = {"x": 3, "small": 1, "medium": 2, "big": 3}
"""Number of key columns: id1 has the keys of small, id2 those of medium, id3 those of big."""

Numbers = npt.NDArray[np.int64]


class H2oGenerator:
    """Generates the tables of the h2o benchmark, one row group at a time; `rows`: of table x."""

    def __init__(self, rows: int) -> None:
        least = LEAST_KEYS
        self.rows = {"x": rows, "small": max(least, rows // 10**6), "medium": max(least, rows // 1000), "big": rows}

    def rows_per_row_group(self, table: str) -> int:
        """Return the number of rows of a table's row groups; the last one may have fewer."""
        return min(MOST_GROUP_ROWS, max(1, self.rows[table] // ROW_GROUPS))

    def make_row_group(self, table: str, number: int) -> pa.Table:
        size, place = self.rows_per_row_group(table), list(H2O_TABLES).index(table)
        first = number * size
        rows = np.arange(first, min(first + size, self.rows[table]))
        random = np.random.default_rng((SEED, place, number))
        ids = [self._draw_keys(table, column, rows, random) for column in range(1, H2O_TABLES[table] + 1)]
        columns = {f"id{at}": pa.array(values, pa.int32()) for at, values in enumerate(ids, 1)}
        for at, values in enumerate(ids, 4):
            columns[f"id{at}"] = pc.binary_join_element_wise("id", pc.cast(pa.array(values), pa.string()), "")
        values = np.round(random.uniform(0.0, 100.0, len(rows)), 6)
        return pa.table({**columns, "v1" if table == "x" else "v2": values})

    def write_table(self, table: str, path: Path) -> None:
        with pq.ParquetWriter(path, self.make_row_group(table, 0).schema, compression="zstd") as writer:
            for number in range(-(-self.rows[table] // self.rows_per_row_group(table))):
                writer.write_table(self.make_row_group(table, number))

    def _draw_keys(self, table: str, column: int, rows: Numbers, random: np.random.Generator) -> Numbers:
        """Draw the values of key column id1, id2 or id3 for these rows."""
        keys = self.rows[("small", "medium", "big")[column - 1]]
        shared, seed = round(0.9 * keys), 1000 * SEED + 10 * column  # shared: keys that the other side has, too
        places = _shuffled_positions(rows, self.rows[table], seed + 1 + list(H2O_TABLES).index(table))
        drawn = places >= keys
        places[drawn] = random.integers(0, keys, int(drawn.sum()))
        if table != "x":
            places[places >= shared] += keys - shared
        return 1 + _shuffled_positions(places, 2 * keys - shared, seed)


def _shuffled_positions(numbers: Numbers, count: int, seed: int) -> Numbers:
    """Return the positions of these numbers in a pseudo-random order of 0…count-1."""
    from merge_bench.merge.workload.synthetic import permute_numbers

    places = numbers.copy()
    permute_numbers(places, count, math.isqrt(count - 1) + 1, seed)
    return places


def h2o_tables(rows: int, names: Sequence[str], folder: Path | None = None) -> tuple[Path, ...]:
    """Return the Parquet files of the h2o tables called `names`, made if they do not exist; `rows`: of table x.

    It raises what `make_tables_once` raises.
    """

    def make_missing_tables(folder: Path, names: Sequence[str]) -> None:
        generator = H2oGenerator(rows)
        for name in names:
            generator.write_table(name, folder / f"{name}.parquet")

    target = (folder or user_cache_folder() / "h2o") / f"{rows}-{H2O_VERSION}"
    return make_tables_once(
        f"h2o with {format_count(rows)} rows", target, names, make_missing_tables, H2O_BYTES_PER_ROW * rows, "--rows"
    )


def _h2o_question(name: str, right: str, key: str, how: str = "inner") -> BenchmarkQuestion:
    return BenchmarkQuestion(name, "x", right, (key,), (key,), how)


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
    make=lambda options, names: h2o_tables(options.rows or WORKLOAD.rows, names),
)
