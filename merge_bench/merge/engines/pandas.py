"""pandas, which Dask's own merge uses, too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, cast

import pandas as pd
import pyarrow as pa

from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.engines.join_columns import text_as_binary_type

ENGINE = EngineDescription(
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
    """Joins with `pandas.DataFrame.merge`, several buckets at a time."""

    name = ENGINE.name
    join_rows = 1 << 19

    @staticmethod
    def storage_type(arrow_type: pa.DataType) -> pa.DataType:
        return text_as_binary_type(arrow_type)

    def join_tables(self, left: pa.Table, right: pa.Table) -> pd.DataFrame:
        how, keys = self.shape.how, list(self.columns.keys)
        if not how.has_right_columns:
            ours = to_pandas(left)
            distinct = to_pandas(right)[keys].drop_duplicates()
            marked = ours[keys].merge(distinct, on=keys, how="left", indicator=True)
            return ours[(marked["_merge"] == ("both" if how is JoinKind.SEMI else "left_only")).to_numpy()]
        ours = to_pandas(left, nullable_columns=_non_key_column_names(left, keys) if how.keeps_unmatched_right else ())
        theirs = to_pandas(
            right, nullable_columns=_non_key_column_names(right, keys) if how.keeps_unmatched_left else ()
        )
        return ours.merge(theirs, on=keys, how=cast(Literal["inner", "left", "right", "outer"], how.value))

    def result_to_arrow(self, result_piece: pd.DataFrame) -> pa.Table:
        return from_pandas(result_piece)


def _non_key_column_names(table: pa.Table, keys: Sequence[str]) -> list[str]:
    """Return the names of the columns that are not keys; an unmatched row of the other table gets nulls in these."""
    return [name for name in table.column_names if name not in keys]


def _arrow_compatible_values(column: pd.Series[Any]) -> Any:
    """Return the values of a pandas column in a form that `pyarrow.array` accepts."""
    return column.array if isinstance(column.dtype, pd.ArrowDtype) else column.to_numpy()


def from_pandas(frame: pd.DataFrame) -> pa.Table:
    """Convert a pandas dataframe to an Arrow table; NaN stays NaN, while `Table.from_pandas` would make it null."""
    return pa.table(
        {name: pa.array(_arrow_compatible_values(frame[name]), from_pandas=False) for name in frame.columns}
    )


def to_pandas(table: pa.Table, *, nullable_columns: Collection[str] = ()) -> pd.DataFrame:
    """Convert an Arrow table to pandas: NumPy columns for numbers without nulls, Arrow-backed ones otherwise.

    `nullable_columns`: names of columns that are Arrow-backed even without nulls, so that all parts of a table have one
    type.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        plain = numeric and column.null_count == 0 and name not in nullable_columns
        columns[name] = column.to_numpy() if plain else pd.arrays.ArrowExtensionArray(column)
    return pd.DataFrame(columns, copy=False)
