"""Every kind of join on every engine for CPUs, phases apart and in parts, against DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.merge.engines import cpu_base, descriptions, engine_class
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.how import How
from tests.helpers.frames import random_table, seeds
from tests.helpers.merge_cases import CASES, Tables, canonical, chunks, rows_of
from tests.merge.engines.test_parts import join_parts
from tests.merge.in_process import engines_of, run_once

ENGINES = [engine.name for engine in descriptions() if not engine.device_memory]
KEY_KINDS = ("int64", "uint8", "double", "float", "large_string", "decimal128(38, 6)", "timestamp[us]", "bool")
SEVERAL = ("duplicates", "strings", "nulls and NaN", "several keys", "every type", "times as keys", "no rows")
SQL = {How.INNER: "JOIN", How.LEFT: "LEFT JOIN", How.RIGHT: "RIGHT JOIN", How.OUTER: "FULL JOIN"}


def by_duckdb(left: pa.Table, right: pa.Table, keys: tuple[str, ...], how: How) -> Counter[tuple[Any, ...]]:
    """The rows as DuckDB finds them. Row numbers go in and come out, so DuckDB changes no value."""
    with duckdb.connect() as connection:
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
            no = "NOT" if how is How.ANTI else ""
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


def tidy(found: pa.Table, left: pa.Table, right: pa.Table, keys: tuple[str, ...], how: How) -> pa.Table:
    """A result under the tables' own types, in the order of columns that `by_duckdb` has."""
    fields = list(left.schema)
    fields += [field for field in right.schema if how in SQL and field.name not in keys]
    assert set(found.column_names) == {field.name for field in fields}
    return found.select([field.name for field in fields]).cast(pa.schema([(f.name, f.type) for f in fields]))


def merged(
    engine: str, tables: Tables, keys: tuple[str, ...], how: How, workers: int, *, parts: bool, threads: int = 1
) -> pa.Table:
    """Pieces may differ in types and in the order of columns: some are the library's, some this package's."""
    lefts, rights = (chunks(table, workers) for table in tables)
    engines = engines_of(engine, lefts, rights, keys, threads=threads, how=how)
    if parts:
        assert all(isinstance(one, HostEngine) for one in engines)
        join_parts(engines)  # type: ignore[arg-type]
    else:
        for _ in range(2):
            count = run_once(engines)
        assert count == sum(piece.num_rows for one in engines for piece in one.results())
    return pa.concat_tables(tidy(piece, *tables, keys, how) for one in engines for piece in one.results())


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets and parts even of small tables."""
    monkeypatch.setattr(cpu_base, "PIECE_BYTES", 64)
    for engine in ENGINES:
        monkeypatch.setattr(engine_class(engine), "join_rows", 200)


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("case", SEVERAL)
@pytest.mark.parametrize("how", [how for how in How if how is not How.INNER])
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_those_of_duckdb(engine: str, how: How, case: str) -> None:
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    found = merged(engine, (left, right), keys, how, 3, parts=False, threads=2)
    assert rows_of(found) == by_duckdb(left, right, keys, how)


def check_random(seed: int, rows: tuple[int, int], workers: int, key: list[str], how: How, parts: bool) -> None:
    """Duplicates and nulls on both sides, NaN, and right keys of which some are the left ones."""
    keys = tuple(f"c{number}" for number in range(len(key)))
    left = random_table(rows[0], [*key, "int32", "large_binary"], seed, distinct=8)
    rng = np.random.default_rng(seed + 1)
    source = random_table(40, key, seed, distinct=12)
    skewed = np.minimum(rng.zipf(1.3, rows[1]) - 1, 39)
    right = source.take(skewed)
    right = right.append_column("payload", pa.array(np.arange(rows[1]), mask=rng.random(rows[1]) < 0.1))
    wanted = by_duckdb(left, right, keys, how)
    for engine in ENGINES:
        found = merged(engine, (left, right), keys, how, workers, parts=parts)
        assert rows_of(found) == wanted, engine


some_tables = {
    "seed": seeds,
    "rows": st.tuples(st.integers(0, 60), st.integers(0, 60)),
    "workers": st.integers(1, 4),
    "key": st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2),
    "how": st.sampled_from(How),
    "parts": st.booleans(),
}


@given(**some_tables)
@settings(max_examples=25)
def test_random_tables(seed: int, rows: tuple[int, int], workers: int, key: list[str], how: How, parts: bool) -> None:
    check_random(seed, rows, workers, key, how, parts)


@pytest.mark.soak
@given(**some_tables)
@settings(max_examples=2500)
def test_thousands_of_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], how: How, parts: bool
) -> None:
    check_random(seed, rows, workers, key, how, parts)


def test_rows_without_a_key_do_not_travel() -> None:
    left = pa.table({"key": pa.array([None] * 1000 + list(range(10))), "a": range(1010)})
    right = pa.table({"key": list(range(5)), "b": range(5)})
    lefts, rights = (chunks(table, 2) for table in (left, right))
    engines = engines_of("native", lefts, rights, ("key",), how=How.LEFT)
    assert run_once(engines) == 1010
    assert sum(one.received_rows()["left"] for one in engines) == 10
