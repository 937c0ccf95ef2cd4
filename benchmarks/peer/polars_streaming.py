"""Polars: a lazy join collected into memory, by its streaming engine or (`engine=in-memory`) the other one.

The number of threads and the allocator's settings are read from the environment when Polars is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.peer.inprocess import Joiner, measure
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve


class PolarsJoin(Joiner):
    """`LazyFrame.join(...).collect(engine=...)` over two frames of one chunk each; `on`: the keys' names."""

    name = "polars"
    version = pl.__version__

    def __init__(self, engine: Any, on: Sequence[str]) -> None:
        self.engine, self.on = engine, list(on)

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over without a copy."""
        self._left, self._right = pl.DataFrame(left).lazy(), pl.DataFrame(right).lazy()

    def merge(self) -> None:
        """Join and collect."""
        self._result = self._left.join(self._right, on=self.on, how="inner").collect(engine=self.engine)

    def result(self) -> pa.Table:
        """The result as Arrow, its strings and integers not copied."""
        return self._result.to_arrow()


def run(job: Job) -> Outcome:
    """The job, by the engine in `options`."""
    if pl.thread_pool_size() != job.threads:
        raise PeerError(f"Polars has {pl.thread_pool_size()} threads instead of {job.threads}: set POLARS_MAX_THREADS")
    return measure(job, PolarsJoin(job.options["engine"], job.on))


if __name__ == "__main__":
    serve(run)
