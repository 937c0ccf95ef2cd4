"""pandas, which Dask's own merge uses, too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from merge_bench.merge.engines import Description
from merge_bench.merge.engines.cpu_base import HostEngine

ENGINE = Description(
    name="pandas",
    help="pandas' merge",
    attribute="PandasEngine",
    packages=("pandas",),
    place=3,
    in_parts=True,
    dask_backend="pandas",
    result_copies=1.25,
    kept_bytes=2,
)


class PandasEngine(HostEngine):
    """Joins with `pandas.DataFrame.merge`, in groups of buckets, between which heartbeats are sent."""

    name = ENGINE.name
    join_rows = 1 << 19

    def join_tables(self, left: pa.Table, right: pa.Table, keys: Sequence[str]) -> pd.DataFrame:
        """Inner join of two tables without null or NaN keys."""
        return to_pandas(left).merge(to_pandas(right), on=list(keys), how="inner")

    def to_arrow(self, piece: pd.DataFrame) -> pa.Table:
        """One joined piece as an Arrow table."""
        # Not Table.from_pandas, which makes every NaN a null.
        return pa.table({name: pa.array(_values(piece[name]), from_pandas=False) for name in piece.columns})


def _values(column: pd.Series[Any]) -> Any:
    return column.array if isinstance(column.dtype, pd.ArrowDtype) else column.to_numpy()


def to_pandas(table: pa.Table, *, nullable: Collection[str] = ()) -> pd.DataFrame:
    """NumPy columns for numbers without nulls, Arrow-backed columns for everything else, so that no value changes.

    `nullable`: columns that are Arrow-backed even where they hold no null, so that all parts of a table have one type.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        plain = numeric and column.null_count == 0 and name not in nullable
        columns[name] = column.to_numpy() if plain else pd.arrays.ArrowExtensionArray(column)
    return pd.DataFrame(columns, copy=False)
