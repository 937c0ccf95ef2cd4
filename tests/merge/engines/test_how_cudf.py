"""Every kind of join on the engine cudf, with its libraries replaced by host memory, against DuckDB."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings

from merge_bench.merge.engines.base import JoinKind
from tests.helpers import fake_rapids, joins, merge_cases
from tests.helpers.examples import examples

KINDS = [how for how in JoinKind if how is not JoinKind.INNER]


@pytest.fixture(scope="module", autouse=True)
def rapids() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in fake_rapids.modules().items():
            patch.setitem(sys.modules, name, module)
        yield


def merged(
    tables: merge_cases.Tables, keys: tuple[str, ...], how: JoinKind, workers: int, iterations: int = 1
) -> pa.Table:
    pieces = merge_cases.merge_tables("cudf", tables, keys, workers, fake_rapids.copy, iterations, how)
    return pa.concat_tables(joins.tidy(piece, *tables, keys, how) for piece in pieces)


@pytest.mark.parametrize("case", ["duplicates", "strings", "nulls and NaN", "several keys", "every type", "no rows"])
@pytest.mark.parametrize("how", KINDS)
def test_rows_are_those_of_duckdb(how: JoinKind, case: str) -> None:
    make, keys = merge_cases.CASES[case]
    left, right = (merge_cases.canonical(table) for table in make())
    for workers in (1, 3):
        found = merged((left, right), keys, how, workers, iterations=2)
        assert merge_cases.rows_of(found) == joins.of_case(case, how)


def check_random(seed: int, rows: tuple[int, int], workers: int, key: list[str], how: JoinKind, parts: bool) -> None:
    keys = tuple(f"c{number}" for number in range(len(key)))
    tables = joins.random_tables(seed, rows, key)
    assert merge_cases.rows_of(merged(tables, keys, how, workers)) == joins.by_duckdb(*tables, keys, how)


@given(**joins.SOME_TABLES)
@examples(15)
def test_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], how: JoinKind, parts: bool
) -> None:
    check_random(seed, rows, workers, key, how, parts)


@pytest.mark.soak
@given(**joins.SOME_TABLES)
@settings(max_examples=1000)
def test_thousands_of_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], how: JoinKind, parts: bool
) -> None:
    check_random(seed, rows, workers, key, how, parts)
