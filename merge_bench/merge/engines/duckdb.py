"""DuckDB, which reads buckets as Arrow without copies, and joins them in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import duckdb
import pyarrow as pa

from merge_bench.errors import RunFailed, first_message_line
from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind, JoinShape
from merge_bench.merge.engines.cpu_base import HostEngine

ENGINE = EngineDescription(
    name="duckdb",
    help="DuckDB's hash join",
    attribute="DuckdbEngine",
    packages=("duckdb",),
    place=4,
    in_parts=True,
    result_copies=1.25,
    kept_bytes=2,
)


class DuckdbEngine(HostEngine):
    """Joins ranges of buckets with SQL in an in-memory DuckDB database.

    `settings`: of that database, besides its threads.
    """

    name = ENGINE.name
    join_rows = 1 << 19
    settings: ClassVar[Mapping[str, str | int | bool]] = {
        "async_threads": 0,  # by default 8, to read files
        "pin_threads": "off",  # the launcher decides about cores
        "temp_directory": "",  # no spilling: a join that does not fit in memory fails
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": False,
        "arrow_large_buffer_size": True,  # 64-bit offsets, as the columns travel
    }

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        self._database = duckdb.connect(":memory:", config={"threads": shape.threads, **self.settings})
        self._database.execute("SET enable_progress_bar = false")
        keys, how = self.columns.keys, shape.how
        condition = " AND ".join(f"l.{key} = r.{key}" for key in keys)
        merged = "coalesce(l.{0}, r.{0}) AS {0}" if how.keeps_unmatched_right else "l.{0}"
        columns = [merged.format(each.name) if each.name in keys else each.name for each in self.columns.output]
        join = "FULL" if how is JoinKind.OUTER else how.value
        self._query = f"SELECT {', '.join(columns)} FROM left_rows l {join} JOIN right_rows r ON {condition}"

    def join_tables(self, left: pa.Table, right: pa.Table) -> pa.Table:
        try:
            self._database.register("left_rows", left.to_reader())
            self._database.register("right_rows", right.to_reader())
            return self._database.sql(self._query).to_arrow_table()
        except duckdb.Error as error:
            raise RunFailed(
                f"DuckDB's join of the tables failed on rank {self.shape.rank}: {first_message_line(error)}"
            ) from error
