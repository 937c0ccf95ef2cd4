"""Libraries that join in one process: Polars, DuckDB and pandas. Each is loaded only where it is the peer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.peer.inprocess import Joiner, measure
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve


class Polars(Joiner):
    """A lazy join of two frames of one chunk each, collected into memory by its streaming engine or the other one.

    The number of threads and the allocator's settings are read from the environment when Polars is loaded.
    """

    name = "polars"

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over without a copy."""
        import polars as pl

        if pl.thread_pool_size() != self.job.threads:
            raise PeerError(
                f"Polars has {pl.thread_pool_size()} threads instead of {self.job.threads}: set POLARS_MAX_THREADS"
            )
        self._left, self._right = pl.DataFrame(left).lazy(), pl.DataFrame(right).lazy()

    def merge(self) -> None:
        """Join and collect."""
        engine: Any = self.job.options["engine"]
        self._result = self._left.join(self._right, on=list(self.job.on), how=self.job.how).collect(engine=engine)

    def result(self) -> pa.Table:
        """The result as Arrow, its strings and integers not copied."""
        return self._result.to_arrow()


class DuckDB(Joiner):
    """The join in SQL, in a database in memory; the result is a temporary table or (`result=arrow`) an Arrow table.

    Native tables are what DuckDB scans fastest, and the order of rows is left to it, as our merge has none either.
    """

    name = "duckdb"

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Copy both into native tables."""
        import duckdb

        columns, on = (", ".join(names) for names in (self.job.columns, self.job.on))
        self._join = f"SELECT {columns} FROM left_frame {self.job.how.upper()} JOIN right_frame USING ({on})"
        self._connection = duckdb.connect(":memory:")
        self._connection.execute(f"SET threads = {self.job.threads}")
        self._connection.execute("SET preserve_insertion_order = false")
        for name, table in (("left_frame", left), ("right_frame", right)):
            self._connection.register("arriving", table)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arriving")
            self._connection.unregister("arriving")

    def merge(self) -> None:
        """Join into an Arrow table or a temporary table."""
        if self.job.options["result"] == "arrow":
            self._result = self._connection.sql(self._join).to_arrow_table()
        else:
            self._connection.execute(f"CREATE TEMP TABLE result AS {self._join}")

    def result(self) -> pa.Table:
        """The result as Arrow."""
        made = self._result
        return self._connection.sql("SELECT * FROM result").to_arrow_table() if made is None else made

    def release(self) -> None:
        """Drop the result."""
        super().release()
        self._connection.execute("DROP TABLE IF EXISTS result")


class Pandas(Joiner):
    """`DataFrame.merge` of NumPy columns, which is one thread whatever there is."""

    name = "pandas"

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over without a copy."""
        from merge_bench.merge.engines.pandas import to_pandas

        self._left, self._right = to_pandas(left), to_pandas(right)

    def merge(self) -> None:
        """Join."""
        how: Any = self.job.how  # inner or left: pandas has no semi and anti joins of this name
        self._result = self._left.merge(self._right, on=list(self.job.on), how=how)

    def result(self) -> pa.Table:
        """The result as Arrow."""
        return pa.Table.from_pandas(self._result, preserve_index=False)


def run(job: Job) -> Outcome:
    """The job; its options tell which library does it: `engine` is Polars', `result` DuckDB's."""
    library = Polars if "engine" in job.options else DuckDB if "result" in job.options else Pandas
    return measure(library(job))


if __name__ == "__main__":
    serve(run)
