"""DuckDB, which reads buckets as Arrow without copies, and joins them in memory."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from merge_bench.errors import RunFailed, first_line
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.frame import arrow_schema, integer_type, viewed
from merge_bench.merge.how import How

ENGINE = Description(
    name="duckdb",
    help="DuckDB's hash join",
    attribute="DuckdbEngine",
    packages=("duckdb",),
    place=4,
    in_parts=True,
    result_copies=1.25,
    kept_bytes=2,
)

_JOINS = {How.OUTER: "FULL"}


class DuckdbEngine(HostEngine):
    """Joins groups of buckets with a query, in an in-memory database of its own."""

    name = ENGINE.name
    join_rows = 1 << 19

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        self._database = duckdb.connect(
            ":memory:",
            config={
                "threads": shape.threads,
                "async_threads": 0,  # by default 8, to read files
                "pin_threads": "off",  # the launcher decides about cores
                "temp_directory": "",  # no spilling: a join that does not fit in memory fails
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
                "arrow_large_buffer_size": True,  # 64-bit offsets, as the columns travel
            },
        )
        self._database.execute("SET enable_progress_bar = false")
        # Columns have numbered names, because DuckDB's names do not distinguish `a` from `A`.
        keys = dict(zip(*(shape.key_places(side) for side in Side), strict=True))
        condition = " AND ".join(f"l{left} = r{right}" for left, right in keys.items())
        both = keys if shape.how.keeps_right else {}
        columns = [f"coalesce(l{at}, r{both[at]})" if at in both else f"l{at}" for at in range(len(shape.left))]
        columns += [f"r{at}" for at in shape.payload] if shape.how.pairs else []
        join = _JOINS.get(shape.how, shape.how.value)
        self._query = f"SELECT {', '.join(columns)} FROM left_rows {join} JOIN right_rows ON {condition}"
        self._output = arrow_schema(shape.output)

    def join_tables(self, left: pa.Table, right: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Join two tables without null or NaN keys."""
        try:
            self._database.register("left_rows", _reader(left, "l"))
            self._database.register("right_rows", _reader(right, "r"))
            return self._database.sql(self._query).to_arrow_table()
        except duckdb.Error as error:
            raise RunFailed(
                f"DuckDB's join of the tables failed on rank {self.shape.rank}: {first_line(error)}"
            ) from error

    def to_arrow(self, piece: pa.Table) -> pa.Table:
        """One joined piece as an Arrow table, under the columns' own names and types."""
        columns = [viewed(column, kind) for column, kind in zip(piece.columns, self._output.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=self._output)


def _reader(table: pa.Table, prefix: str) -> pa.RecordBatchReader:
    """The rows of a table without copies, under the names ``l0``, ``l1``… or ``r0``… and with integers for dates.

    DuckDB's own types for dates, times and durations would round them, or refuse them.
    """
    columns = [viewed(column, integer_type(column.type)) for column in table.columns]
    return pa.Table.from_arrays(columns, names=[f"{prefix}{at}" for at in range(len(columns))]).to_reader()
