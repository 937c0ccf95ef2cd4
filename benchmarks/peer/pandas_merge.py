"""pandas: `DataFrame.merge` in one process, which is one thread whatever there is."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from benchmarks.peer.inprocess import Joiner, measure
from benchmarks.peer.protocol import Job, Outcome, serve
from merge_bench.merge.engines.pandas import to_pandas
from merge_bench.merge.workload.synthetic import KEY


class PandasJoin(Joiner):
    """NumPy columns on both sides."""

    name = "pandas"
    version = str(pd.__version__)

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over without a copy."""
        self._left, self._right = to_pandas(left), to_pandas(right)

    def merge(self) -> None:
        """Join."""
        self._result = self._left.merge(self._right, on=KEY, how="inner")

    def result(self) -> pa.Table:
        """The result as Arrow."""
        return pa.Table.from_pandas(self._result, preserve_index=False)


def run(job: Job) -> Outcome:
    """The job."""
    return measure(job, PandasJoin())


if __name__ == "__main__":
    serve(run)
