"""Merges in which every rank is given all rows of one side, against DuckDB, and the choice of that side."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.merge.distribution import broadcastable_sides
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.frame import Frame
from tests.helpers.examples import examples
from tests.helpers.frames import random_table, seeds
from tests.helpers.joins import KEY_KINDS, by_duckdb, tidy
from tests.helpers.merge_cases import CASES, Tables, canonical, chunks, rows_of
from tests.merge.in_process import engines_of, result, run_once, simulate

ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]
WAYS = [(how, side) for how in JoinKind for side in broadcastable_sides(how)]
SEVERAL = ("nulls and NaN", "several keys", "every type", "no rows")
IN_PLACE, IN_BUCKETS = 200, 16
"""Rows of a bucket with which sides of up to 100 rows are joined without a partition, and of more than 8 with one."""


def uneven(table: pa.Table, workers: int, rng: np.random.Generator) -> list[Frame]:
    """Chunks of any length, of which some are empty, for every rank."""
    edges = [0, *sorted(rng.integers(0, table.num_rows + 1, workers - 1).tolist()), table.num_rows]
    parts = [table.slice(first, last - first).combine_chunks() for first, last in itertools.pairwise(edges)]
    nullable = {name: table[name].null_count > 0 for name in table.column_names}
    return [Frame.from_arrow(part).with_nullable_fields(nullable) for part in parts]


def check(
    engine: str,
    tables: Tables,
    frames: Sequence[Sequence[Frame]],
    keys: tuple[str, ...],
    how: JoinKind,
    sent: Side,
    *,
    threads: int = 1,
    join_rows: int | None = None,
) -> list[Any]:
    """Two merges through the same engines, which it returns."""
    engines = engines_of(engine, *frames, keys, threads=threads, how=how, sent=sent, join_rows=join_rows)
    for _ in range(2):
        count = run_once(engines)
    pieces = [piece for one in engines for piece in one.result_tables()]
    assert count == sum(piece.num_rows for piece in pieces)
    found = pa.concat_tables(tidy(piece, *tables, keys, how) for piece in pieces)
    assert rows_of(found) == by_duckdb(*tables, keys, how), engine
    return engines


@pytest.mark.slow
@pytest.mark.parametrize("case", SEVERAL)
@pytest.mark.parametrize(("how", "sent"), WAYS)
def test_cases(how: JoinKind, sent: Side, case: str) -> None:
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    for rows in (1 << 17, IN_BUCKETS):
        frames = [chunks(table, 3) for table in (left, right)]
        check("native", (left, right), frames, keys, how, sent, threads=2, join_rows=rows)


def large_and_small() -> Tables:
    """Enough rows for several blocks and threads; each key of the small table is in it once to three times."""
    rng = np.random.default_rng(5)
    large = pa.table({"key": rng.integers(0, 5000, 240_000), "a": np.arange(240_000)})
    small = pa.table({"key": np.repeat(np.arange(0, 4000, 3), 2)[:2000], "b": np.arange(2000)})
    return large, small


@pytest.mark.parametrize(("how", "sent"), WAYS)
def test_many_blocks_for_several_threads(how: JoinKind, sent: Side) -> None:
    """The rows of a shuffle; each rank has its rows of the large table and all rows of the small one."""
    tables = large_and_small() if sent is Side.RIGHT else large_and_small()[::-1]
    frames = [chunks(table, 2) for table in tables]
    engines = engines_of("native", *frames, ("key",), threads=3, how=how, sent=sent)
    assert run_once(engines) == sum(piece.num_rows for one in engines for piece in one.result_tables())
    assert all(len(list(one.result_tables())) >= 3 for one in engines)
    assert [one.received_row_counts() for one in engines] == [{sent.value: 2000, sent.opposite.value: 120_000}] * 2
    names = result(engines).column_names
    shuffled = simulate("native", *frames, ("key",), how=how).select(names)
    order = [(name, "ascending") for name in names]
    assert result(engines).sort_by(order).equals(shuffled.sort_by(order))


def check_random(
    seed: int, rows: tuple[int, int], workers: int, key: list[str], way: tuple[JoinKind, Side], bucket: int, nulls: bool
) -> None:
    """Duplicates, nulls and skew; right keys of which some are the left ones; chunks of which some are empty."""
    keys, rng = tuple(f"c{number}" for number in range(len(key))), np.random.default_rng(seed)
    source = random_table(60, key, seed, distinct=12, nulls=nulls)
    sides = []
    for number, (count, name) in enumerate(zip(rows, ("a", "b"), strict=True)):
        taken = source.take(np.minimum(rng.zipf(1.3, count) - 1 + 5 * number, 59))
        values = pa.array(np.arange(count), mask=rng.random(count) < 0.1 * nulls)
        sides.append(taken.append_column(name, values).append_column(f"{name} text", values.cast(pa.large_string())))
    left, right = sides
    frames = [uneven(table, workers, rng) for table in (left, right)]
    for engine in ENGINES:
        check(engine, (left, right), frames, keys, *way, join_rows=bucket)


some_merges = {
    "seed": seeds,
    "rows": st.one_of(
        st.tuples(st.integers(0, 12), st.integers(0, 400)),
        st.tuples(st.integers(0, 400), st.integers(0, 12)),
        st.tuples(st.integers(0, 90), st.integers(0, 90)),
    ),
    "workers": st.integers(1, 4),
    "key": st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2),
    "way": st.sampled_from(WAYS),
    "bucket": st.sampled_from([IN_PLACE, IN_BUCKETS]),
    "nulls": st.booleans(),
}


@pytest.mark.slow
@given(**some_merges)
@examples(15)
def test_random_tables(**merge: Any) -> None:
    check_random(**merge)


@pytest.mark.soak
@given(**some_merges)
@settings(deadline=None, max_examples=2000)
def test_thousands_of_random_tables(**merge: Any) -> None:
    check_random(**merge)
