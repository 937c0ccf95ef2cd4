"""DuckDB: both tables in its own memory, the result as a temporary table or (`result=arrow`) as an Arrow table.

Native tables are what DuckDB scans fastest, and the order of rows is left to it, as our merge has none either.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from benchmarks.peer.inprocess import Joiner, measure
from benchmarks.peer.protocol import Job, Outcome, serve


def join(on: Sequence[str], columns: Sequence[str]) -> str:
    """The query."""
    return f"SELECT {', '.join(columns)} FROM left_frame JOIN right_frame USING ({', '.join(on)})"


class DuckDBJoin(Joiner):
    """The join in SQL, in a database that is nowhere but in memory; `on`: the keys' names, `columns`: the result's."""

    name = "duckdb"
    version = str(duckdb.__version__)

    def __init__(self, threads: int, on: Sequence[str], columns: Sequence[str], *, to_arrow: bool) -> None:
        self.to_arrow, self._join = to_arrow, join(on, columns)
        self._connection = duckdb.connect(":memory:")
        self._connection.execute(f"SET threads = {threads}")
        self._connection.execute("SET preserve_insertion_order = false")

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Copy both into native tables."""
        for name, table in (("left_frame", left), ("right_frame", right)):
            self._connection.register("arriving", table)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arriving")
            self._connection.unregister("arriving")

    def merge(self) -> None:
        """Join into an Arrow table or a temporary table."""
        if self.to_arrow:
            self._result = self._connection.sql(self._join).to_arrow_table()
        else:
            self._connection.execute(f"CREATE TEMP TABLE result AS {self._join}")

    def result(self) -> pa.Table:
        """The result as Arrow."""
        return self._result if self.to_arrow else self._connection.sql("SELECT * FROM result").to_arrow_table()

    def release(self) -> None:
        """Drop the result."""
        super().release()
        self._connection.execute("DROP TABLE IF EXISTS result")


def run(job: Job) -> Outcome:
    """The job, with the result that `options` ask for."""
    return measure(job, DuckDBJoin(job.threads, job.on, job.columns, to_arrow=job.options["result"] == "arrow"))


if __name__ == "__main__":
    serve(run)
