"""Every kind of join that Dask has, as the baseline asks for it, against DuckDB; without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dask
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.merge.distribution import RowDistribution, broadcastable_sides
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.exchange import dask as dask_steps
from merge_bench.merge.exchange import find_data_plane
from merge_bench.merge.frame import Frame
from tests.helpers.examples import examples
from tests.helpers.joins import SOME_TABLES, by_duckdb, random_tables, tidy
from tests.helpers.merge_cases import CASES, Tables, canonical, chunks, rows_of

JOINS = tuple(how for how in JoinKind if find_data_plane("dask").supports_join(how.value))

SEVERAL = ("duplicates", "strings", "nulls and NaN", "several keys", "every type", "no rows")
WAYS: list[tuple[JoinKind, Side | None]] = [(how, sent) for how in JOINS for sent in (None, *broadcastable_sides(how))]
"""Kinds of join, and the side that is sent whole; None: a shuffle."""
FOR_DASK = {
    **{name: each for name, each in SOME_TABLES.items() if name not in ("how", "parts")},
    "way": st.sampled_from(WAYS),
}


def pieces(
    tables: Tables, keys: tuple[str, ...], how: JoinKind, sent: Side | None, workers: int, shuffle: str = "tasks"
) -> list[pa.Table]:
    """The partitions of Dask's own result, with the rows that are kept out of its merge."""
    plan: Any = SimpleNamespace(
        engine="pandas", how=how, keys=keys, shuffle=shuffle, distribution=RowDistribution(sent)
    )
    sides: list[list[Frame]] = [chunks(table, workers) for table in tables]
    fields = (sides[0][0].fields, sides[1][0].fields)
    pairs = list(zip(*sides, strict=True))
    parts: Any = [[dask.delayed(dask_steps.make_side_dataframe)(pair, side, plan) for pair in pairs] for side in Side]
    alone: Any = []
    if dask_steps.may_have_null_key_result(fields, plan):
        alone = [dask.delayed(dask_steps.null_key_result_dataframe)(*pair, plan) for pair in pairs]
    result = dask_steps.plan_dask_join(parts, dask_steps.empty_pandas_frames(fields, plan), plan, alone)
    return [dask_steps.partition_to_arrow(part, fields, plan) for part in dask.compute(*result.to_delayed())]


def merged(tables: Tables, keys: tuple[str, ...], how: JoinKind, sent: Side | None, workers: int) -> pa.Table:
    """The result, computed in this thread."""
    with dask.config.set(scheduler="synchronous"):
        found = pieces(tables, keys, how, sent, workers)
    return pa.concat_tables(tidy(part, *tables, keys, how) for part in found)


@pytest.mark.slow
@pytest.mark.parametrize("case", SEVERAL)
@pytest.mark.parametrize(("how", "sent"), WAYS)
def test_rows_are_those_of_duckdb(how: JoinKind, sent: Side | None, case: str) -> None:
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    assert rows_of(merged((left, right), keys, how, sent, 2)) == by_duckdb(left, right, keys, how)


def check_random(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], way: tuple[JoinKind, Side | None]
) -> None:
    keys = tuple(f"c{number}" for number in range(len(key)))
    tables = random_tables(seed, rows, key)
    assert rows_of(merged(tables, keys, *way, workers)) == by_duckdb(*tables, keys, way[0])


@given(**FOR_DASK)
@examples(10)
def test_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], way: tuple[JoinKind, Side | None]
) -> None:
    check_random(seed, rows, workers, key, way)


@pytest.mark.soak
@given(**FOR_DASK)
@settings(max_examples=500, deadline=None)
def test_hundreds_of_random_tables(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], way: tuple[JoinKind, Side | None]
) -> None:
    check_random(seed, rows, workers, key, way)
