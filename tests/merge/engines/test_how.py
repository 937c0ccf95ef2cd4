"""Every kind of join on every engine for CPUs, phases apart and in parts, against DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.engines.cpu_base import HostEngine
from tests.helpers.examples import examples
from tests.helpers.joins import SOME_TABLES, by_duckdb, of_case, random_tables, tidy
from tests.helpers.merge_cases import CASES, Tables, canonical, chunks, rows_of
from tests.merge.engines.test_parts import join_parts
from tests.merge.in_process import engines_of, run_once

ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]
SMALL = 200
"""Rows of a bucket, so that even small tables have several."""
SEVERAL = ("duplicates", "strings", "nulls and NaN", "several keys", "every type", "times as keys", "no rows")


def merged(
    engine: str,
    tables: Tables,
    keys: tuple[str, ...],
    how: JoinKind,
    workers: int,
    *,
    parts: bool,
    threads: int = 1,
    join_rows: int | None = None,
) -> pa.Table:
    """Pieces may differ in types and in the order of columns: some are the library's, some this package's."""
    lefts, rights = (chunks(table, workers) for table in tables)
    engines = engines_of(engine, lefts, rights, keys, threads=threads, how=how, join_rows=join_rows)
    if parts:
        assert all(isinstance(one, HostEngine) for one in engines)
        join_parts(engines)
    else:
        for _ in range(2):
            count = run_once(engines)
        assert count == sum(piece.num_rows for one in engines for piece in one.result_tables())
    return pa.concat_tables(tidy(piece, *tables, keys, how) for one in engines for piece in one.result_tables())


def marks_of(engine: str, case: str) -> tuple[pytest.MarkDecorator, ...]:
    """Strings are among the several keys, and times in every type."""
    again = (pytest.mark.soak,) if case in ("strings", "times as keys") else ()
    return () if engine == "native" else (pytest.mark.slow, *again)


@pytest.mark.parametrize("how", [how for how in JoinKind if how is not JoinKind.INNER])
@pytest.mark.parametrize(
    ("engine", "case"),
    [pytest.param(engine, case, marks=marks_of(engine, case)) for engine in ENGINES for case in SEVERAL],
)
def test_rows_are_those_of_duckdb(engine: str, how: JoinKind, case: str) -> None:
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    found = merged(engine, (left, right), keys, how, 3, parts=False, threads=2, join_rows=SMALL)
    assert rows_of(found) == of_case(case, how)


def check_random(
    seed: int,
    rows: tuple[int, int],
    workers: int,
    key: list[str],
    how: JoinKind,
    parts: bool,
    join_rows: int | None = None,
) -> None:
    keys = tuple(f"c{number}" for number in range(len(key)))
    left, right = random_tables(seed, rows, key)
    wanted = by_duckdb(left, right, keys, how)
    for engine in ENGINES:
        found = merged(engine, (left, right), keys, how, workers, parts=parts, join_rows=join_rows)
        assert rows_of(found) == wanted, engine


@given(**SOME_TABLES)
@examples(15)
def test_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], how: JoinKind, parts: bool
) -> None:
    check_random(seed, rows, workers, key, how, parts)


@pytest.mark.soak
@given(**SOME_TABLES)
@settings(max_examples=2500)
def test_thousands_of_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], how: JoinKind, parts: bool
) -> None:
    check_random(seed, rows, workers, key, how, parts)


def test_rows_without_a_key_do_not_travel() -> None:
    left = pa.table({"key": pa.array([None] * 1000 + list(range(10))), "a": range(1010)})
    right = pa.table({"key": list(range(5)), "b": range(5)})
    lefts, rights = (chunks(table, 2) for table in (left, right))
    engines = engines_of("native", lefts, rights, ("key",), how=JoinKind.LEFT)
    assert run_once(engines) == 1010
    assert sum(one.received_row_counts()["left"] for one in engines) == 10
