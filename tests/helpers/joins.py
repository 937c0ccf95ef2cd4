"""What each kind of join gives as DuckDB finds it, and made-up tables to join."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from merge_bench.merge.engines.base import JoinKind
from tests.helpers.frames import random_table, seeds
from tests.helpers.merge_cases import CASES, Tables, canonical, rows_of

KEY_KINDS = ("int64", "uint8", "double", "float", "large_string", "decimal128(38, 6)", "timestamp[us]", "bool")
SQL = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN", JoinKind.RIGHT: "RIGHT JOIN", JoinKind.OUTER: "FULL JOIN"}


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all joins of the process: to make one takes longer than a small join."""
    return duckdb.connect()


def by_duckdb(left: pa.Table, right: pa.Table, keys: tuple[str, ...], how: JoinKind) -> Counter[tuple[Any, ...]]:
    """The rows as DuckDB finds them. Row numbers go in and come out, so DuckDB changes no value."""
    connection = _database()
    for name, table in (("l", left), ("r", right)):
        columns: dict[str, Any] = {"row": np.arange(table.num_rows)}
        for number, key in enumerate(keys):
            column = table[key]
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
            if pa.types.is_floating(column.type):  # DuckDB takes NaN to equal itself; SQL's null is meant
                column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
            columns[f"k{number}"] = column
        connection.register(name, pa.table(columns))
    condition = " AND ".join(f"l.k{number} = r.k{number}" for number in range(len(keys)))
    if how in SQL:
        query = f"SELECT l.row, r.row FROM l {SQL[how]} r ON {condition}"
    else:
        no = "NOT" if how is JoinKind.ANTI else ""
        query = f"SELECT l.row, NULL FROM l WHERE {no} EXISTS (SELECT 1 FROM r WHERE {condition})"
    found = connection.execute(query).fetchall()
    ours, theirs = (pa.array([row[side] for row in found], pa.int64()) for side in (0, 1))
    both = left.take(ours)
    for at, key in enumerate(left.column_names):
        if key in keys:
            both = both.set_column(at, key, pc.if_else(ours.is_valid(), both[key], right[key].take(theirs)))
    if how in SQL:
        for name in right.column_names:
            if name not in keys:
                both = both.append_column(name, right[name].take(theirs))
    return rows_of(both)


def tidy(found: pa.Table, left: pa.Table, right: pa.Table, keys: tuple[str, ...], how: JoinKind) -> pa.Table:
    """A result under the tables' own types, in the order of columns that `by_duckdb` has."""
    fields = list(left.schema)
    fields += [field for field in right.schema if how in SQL and field.name not in keys]
    assert set(found.column_names) == {field.name for field in fields}
    return found.select([field.name for field in fields]).cast(pa.schema([(f.name, f.type) for f in fields]))


def random_tables(seed: int, rows: tuple[int, int], key: list[str]) -> Tables:
    """Duplicates and nulls on both sides, NaN, a skew, and right keys of which some are the left ones.

    `key`: the kinds of the key columns c0, c1…
    """
    left = random_table(rows[0], [*key, "int32", "large_binary"], seed, distinct=8)
    rng = np.random.default_rng(seed + 1)
    ours = left.select(range(len(key))).take(rng.integers(0, rows[0], 25 if rows[0] else 0))
    source = pa.concat_tables([ours, random_table(40 - ours.num_rows, key, seed + 1, distinct=12)])
    right = source.take(rng.permutation(40)[np.minimum(rng.zipf(1.3, rows[1]) - 1, 39)])
    right = right.append_column("payload", pa.array(np.arange(rows[1]), mask=rng.random(rows[1]) < 0.1))
    return left, right


SOME_TABLES = {
    "seed": seeds,
    "rows": st.tuples(st.integers(0, 60), st.integers(0, 60)),
    "workers": st.integers(1, 4),
    "key": st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2),
    "how": st.sampled_from(JoinKind),
    "parts": st.booleans(),
}


@functools.cache
def of_case(case: str, how: JoinKind) -> Counter[tuple[Any, ...]]:
    """What `by_duckdb` finds in one of `merge_cases.CASES`."""
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    return by_duckdb(left, right, keys, how)
