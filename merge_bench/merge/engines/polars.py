"""Polars."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.engines.cpu_base import HostEngine

ENGINE = EngineDescription(
    name="polars",
    help="Polars' join",
    attribute="PolarsEngine",
    packages=("polars",),
    place=2,
    in_parts=True,
    result_copies=1.25,
    kept_bytes=10,
)


class PolarsEngine(HostEngine):
    """Joins one cache-sized bucket after the other with `polars.DataFrame.join`."""

    name = ENGINE.name
    join_rows = 1 << 17

    def join_tables(self, left: pa.Table, right: pa.Table) -> pl.DataFrame:
        how: Any = "full" if self.shape.how is JoinKind.OUTER else self.shape.how.value
        return _to_polars(left).join(_to_polars(right), on=list(self.columns.keys), how=how, coalesce=True)

    def to_arrow(self, piece: pl.DataFrame) -> pa.Table:
        return piece.to_arrow()


def _to_polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
