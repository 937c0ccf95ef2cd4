"""Merges of W ranks in one process, against DuckDB and Arrow, on every engine for CPUs.

Each engine partitions on every rank; headers and bytes are handed over as the exchange does; each joins what it owns.
The cases are those of `tests.helpers.merge_cases`, and random ones.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.merge.engines import engine_descriptions, import_engine_class
from merge_bench.merge.engines.base import Engine, JoinKind, JoinShape
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.frame import Frame
from merge_bench.merge.partition import LINES, WRITERS
from tests.helpers import merge_cases
from tests.helpers.examples import examples
from tests.helpers.frames import as_value, multiset, random_table, seeds
from tests.helpers.joins import of_case, tidy
from tests.helpers.merge_cases import CASES, canonical, chunks, copy_host, merge, rows_of
from tests.merge import in_process
from tests.merge.in_process import engine_type, engines_of, run_once, simulate

ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]


def marks_of(engine: str, workers: int) -> tuple[pytest.MarkDecorator, ...]:
    """Engines partition and exchange alike, so with 2 and 4 workers the quickest one stands for all."""
    return () if engine == "native" else (pytest.mark.slow if workers in (1, 3) else pytest.mark.soak,)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("engine", "workers"),
    [pytest.param(engine, n, marks=marks_of(engine, n)) for engine in ENGINES for n in (1, 2, 3, 4)],
)
def test_rows_are_those_of_duckdb(engine: str, case: str, workers: int) -> None:
    result = merge(engine, case, workers, copy_host)
    make, keys = CASES[case]
    left, right = (canonical(table) for table in make())
    assert rows_of(tidy(result, left, right, keys, JoinKind.INNER)) == of_case(case, JoinKind.INNER)


def test_the_cases_have_answers() -> None:
    """So that the test above compares something: every case but two has rows."""
    empty = {case for case in CASES if not of_case(case, JoinKind.INNER)}
    assert empty == {"no match", "no rows"}


KEY_KINDS = ("int64", "uint8", "double", "float", "large_string", "decimal128(38, 6)", "timestamp[us]", "bool")


@given(
    seed=seeds,
    rows=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    workers=st.integers(1, 4),
    key=st.lists(st.sampled_from(KEY_KINDS), min_size=1, max_size=2),
    engine=st.sampled_from(ENGINES),
)
@examples(30)
def test_random_tables(seed: int, rows: tuple[int, int], workers: int, key: list[str], engine: str) -> None:
    """Against a join in plain Python; payload of several types with nulls, duplicates on both sides."""
    keys = tuple(f"c{number}" for number in range(len(key)))
    left = random_table(rows[0], [*key, "int32", "large_binary"], seed, distinct=8)
    # The right table's keys are drawn from the left one's, so that some meet.
    rng = np.random.default_rng(seed + 1)
    source = random_table(40, [*key, "int32"], seed, distinct=8).select(list(keys))
    right = source.take(rng.integers(0, 40, rows[1]))
    right = right.append_column("payload", pa.array(np.arange(rows[1]), mask=rng.random(rows[1]) < 0.1))
    result = simulate(engine, chunks(left, workers), chunks(right, workers), keys)
    names = [*left.column_names, "payload"]
    result = result.select(names).cast(pa.schema([*left.schema, right.schema.field("payload")]))
    ours, theirs = as_value(left, list(keys)), as_value(right, list(keys))
    pairs = [(i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs) if one is not None and one == other]
    both = left.take(pa.array([i for i, _ in pairs], pa.int64()))
    both = both.append_column("payload", right["payload"].take(pa.array([j for _, j in pairs], pa.int64())))
    assert rows_of(result) == rows_of(both)


@pytest.mark.parametrize("engine", ENGINES)
def test_buffers_used_again(engine: str) -> None:
    """Other tables of other sizes through the same engines: nothing of an earlier iteration comes back."""
    tables = []
    for seed, rows in ((1, 300), (2, 40), (3, 500), (4, 7)):
        left = random_table(rows, ["int64", "large_string", "bool"], seed, distinct=30)
        numbers = left["c0"].take(np.arange(rows) // 2)
        tables.append((left, pa.table({"c0": numbers, "n": np.arange(rows)})))
    nullable = {"c0": True, "c1": True, "c2": True, "n": False}
    frames = [
        [[chunk.with_nullable_fields(nullable) for chunk in chunks(table, 3)] for table in pair] for pair in tables
    ]
    engines: list[Engine] = []
    for rank in range(3):
        shape = JoinShape(frames[0][0][0].fields, frames[0][1][0].fields, ("c0",), 3, rank, 600)
        engines.append(import_engine_class(engine)(shape))
    for turn in (0, 1, 2, 3, 0, 2):
        for rank, one in enumerate(engines):
            one.load_chunks(frames[turn][0][rank], frames[turn][1][rank])
        count = run_once(engines)
        result = in_process.result(engines)
        left, right = tables[turn]
        answer = left.filter(left["c0"].is_valid()).join(right, "c0", join_type="inner")
        assert count == result.num_rows == answer.num_rows > 0
        result = result.select(answer.column_names).cast(answer.schema)
        assert multiset(result) == multiset(answer)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_buckets_and_threads(engine: str) -> None:
    """Joining 2000 rows at a time gives what joining all at once gives."""
    rows = 70_000
    rng = np.random.default_rng(0)
    left = pa.table({"key": rng.permutation(rows), "a": np.arange(rows)})
    right = pa.table({"key": rng.integers(0, 2 * rows, rows), "c": np.arange(rows)})
    answer = left.join(right, "key", join_type="inner").select(["key", "a", "c"])
    one_bucket = simulate(engine, chunks(left, 2), chunks(right, 2), ("key",))
    shape = JoinShape(chunks(left, 2)[0].fields, chunks(right, 2)[0].fields, ("key",), 2, 0, 2 * rows)
    made = engine_type(engine, 2000)(shape)
    assert isinstance(made, HostEngine)
    assert made.buckets == 67
    many = simulate(engine, chunks(left, 2), chunks(right, 2), ("key",), iterations=2, threads=3, join_rows=2000)
    order = [(name, "ascending") for name in answer.column_names]
    for result in (one_bucket, many):
        assert result.select(answer.column_names).sort_by(order).equals(answer.sort_by(order))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "way"), [(engine, way) for engine in ENGINES for way in WRITERS if engine == "native" or way == LINES]
)
def test_more_buckets_once_the_way_of_writing_is_chosen(engine: str, way: str) -> None:
    """As `choose_parcel_writes` does after the engines were made: the result is the same."""
    rows = 20_000
    rng = np.random.default_rng(1)
    left = pa.table({"key": rng.permutation(rows), "a": np.arange(rows)})
    right = pa.table({"key": rng.integers(0, 2 * rows, rows), "b": np.arange(rows), "c": np.arange(rows)})
    frames, stores = (chunks(left, 2), chunks(right, 2)), (way, 520)
    few = simulate(engine, *frames, ("key",))
    made = engines_of(engine, *frames, ("key",), stores=stores, join_rows=60)
    counts = [each.buckets for each in made if isinstance(each, HostEngine)]
    assert counts[0] == counts[1] > 256
    again = 2 if engine == "native" else 1  # some calls of the other engines' libraries take ms
    many = simulate(engine, *frames, ("key",), again, threads=2, stores=stores, join_rows=60)
    order = [(name, "ascending") for name in few.column_names]
    assert few.num_rows > 0
    assert many.sort_by(order).equals(few.sort_by(order))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_without_rows(engine: str) -> None:
    """All rows start on one of three workers, and all have one key."""
    left = pa.table({"key": [5] * 30, "a": range(30)})
    right = pa.table({"key": [5] * 20, "c": range(20)})
    empty = [Frame.from_arrow(table.slice(0, 0)) for table in (left, right)]
    full = [Frame.from_arrow(table) for table in (left, right)]
    result = simulate(engine, [full[0], empty[0], empty[0]], [empty[1], empty[1], full[1]], ("key",))
    assert result.num_rows == 600
    assert multiset(result.select(["a", "c"])) == Counter(
        {(a.to_bytes(8, "little"), c.to_bytes(8, "little")): 1 for a in range(30) for c in range(20)}
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_let_go_at_the_next_begin(engine: str) -> None:
    left, right = (chunks(table, 1)[0] for table in merge_cases.CASES["integers"][0]())
    made = import_engine_class(engine)(merge_cases.shapes(left, right, ("key",), 1)[0])
    made.load_chunks(left, right)
    assert run_once([made]) > 0
    assert made.received_row_counts() == {"left": left.rows, "right": right.rows}
    made.begin_iteration()
    assert list(made.result_tables()) == []
    assert made.received_row_counts() == {"left": 0, "right": 0}
    assert made.peak_device_bytes() is None


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match="engine polars needs the package polars"):
        import_engine_class("polars")(None)
