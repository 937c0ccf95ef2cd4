"""Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind, JoinShape
from merge_bench.merge.engines.cpu_base import HostEngine

if TYPE_CHECKING:
    import polars as pl

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

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        if self.needs_polars(shape):
            import polars  # noqa: F401  # now, and not in a timed merge

    @staticmethod
    def needs_polars(shape: JoinShape) -> bool:
        """Whether merges of this shape need Polars, which takes a process 0.07 s of CPU to load."""
        return True

    def join_tables(self, left: pa.Table, right: pa.Table) -> pl.DataFrame:
        how: Any = "full" if self.shape.how is JoinKind.OUTER else self.shape.how.value
        return _to_polars(left).join(_to_polars(right), on=list(self.columns.keys), how=how, coalesce=True)

    def result_to_arrow(self, result_piece: pl.DataFrame) -> pa.Table:
        return result_piece.to_arrow()


def _to_polars(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
