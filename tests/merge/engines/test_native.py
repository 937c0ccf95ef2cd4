"""The compiled join of one bucket, against DuckDB; what it must not do is shown where a table's shape invites it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.engines import import_engine_class, native
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.hash_join_loops import find_matching_pairs
from merge_bench.merge.engines.native import BucketJoin, NativeEngine, can_join_natively
from merge_bench.merge.frame import Frame
from merge_bench.merge.memory import BufferPool
from tests.helpers.examples import examples
from tests.helpers.merge_cases import chunks
from tests.merge.in_process import engines_of, result, run_once, simulate


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def answer(left: pa.Table, right: pa.Table) -> pa.Table:
    database().register("l", left)
    database().register("r", right)
    return database().sql("SELECT l.k, a, b FROM l JOIN r ON l.k = r.k ORDER BY ALL").to_arrow_table()


def in_chunks(table: pa.Table, parts: int) -> list[Frame]:
    """A table's rows in frames of one set of fields; those without rows are left out."""
    nullable = {field.name: field.nullable for field in Frame.from_arrow(table).fields}
    edges = itertools.pairwise(table.num_rows * part // parts for part in range(parts + 1))
    frames = (
        Frame.from_arrow(table.slice(first, last - first)).with_nullable_fields(nullable) for first, last in edges
    )
    return [frame for frame in frames if frame.rows]


def joined(left: pa.Table, right: pa.Table, *, parts: int = 1, join: BucketJoin | None = None) -> pa.Table:
    ours, theirs = Frame.from_arrow(left), Frame.from_arrow(right)
    join = join or BucketJoin(JoinShape(ours.fields, theirs.fields, ("k",), 1, 0, 0))
    pieces = [
        piece.to_arrow() for piece in join.join_chunks(in_chunks(left, parts), in_chunks(right, parts), BufferPool())
    ]
    result = (
        pa.concat_tables(pieces) if pieces else pa.table({"k": left["k"][:0], "a": left["a"][:0], "b": right["b"][:0]})
    )
    return result.sort_by([("k", "ascending"), ("a", "ascending"), ("b", "ascending")])


def tables(left: Sequence[int], right: Sequence[int], kind: pa.DataType | None = None) -> tuple[pa.Table, pa.Table]:
    kind = kind or pa.int64()
    return (
        pa.table({"k": pa.array(left, kind), "a": np.arange(len(left))}),
        pa.table({"k": pa.array(right, kind), "b": np.arange(len(right))}),
    )


KINDS = (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())


@pytest.mark.slow
@given(
    kind=st.sampled_from(KINDS),
    parts=st.integers(1, 3),
    data=st.data(),
    step=st.sampled_from([1, 1 << 20, 1 << 40]),
    size=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    at_once=st.sampled_from([1, 3, 7, native.LOOKED_UP]),
)
@examples(150)
def test_a_bucket_is_joined_as_duckdb_joins_it(
    kind: pa.DataType, parts: int, data: st.DataObject, step: int, size: tuple[int, int], at_once: int
) -> None:
    info = np.iinfo(kind.to_pandas_dtype())
    key = st.integers(-3, 8).map(lambda number: int(min(max(number * step, info.min), info.max)))
    left, right = tables(*(data.draw(st.lists(key, min_size=n, max_size=n)) for n in size), kind)
    expected = answer(left, right).cast(pa.schema([("k", kind), ("a", pa.int64()), ("b", pa.int64())]))
    with mock.patch.object(native, "LOOKED_UP", at_once):
        assert joined(left, right, parts=parts).equals(expected)


def test_extremes_are_keys_like_any_other() -> None:
    ends = [-(2**63), 2**63 - 1, 0, -1, 1 << 32, -(1 << 32)]
    result = joined(*tables(ends, ends[::-1]))
    assert sorted(result["k"].to_pylist()) == sorted(ends)


@pytest.mark.slow
def test_one_key_a_thousand_times_on_both_sides_overflows_no_room() -> None:
    """A million pairs, where there is room for a thousand at a time."""
    left, right = tables([7] * 1000 + [8], [9] + [7] * 1000)
    result = joined(left, right, parts=3)
    assert result.num_rows == 1_000_000
    assert result["a"].to_numpy().sum() == 1000 * np.arange(1000).sum()
    assert np.unique(result["a"].to_numpy() * 10_000 + result["b"].to_numpy()).size == 1_000_000


def test_left_columns_are_copied_once_where_many_left_rows_match_few_right_ones() -> None:
    """The left columns are copied for each piece of the result."""
    left, right = tables([1, 2, 3] * 1000, [1, 2, 3])
    ours, theirs = Frame.from_arrow(left), Frame.from_arrow(right)
    join = BucketJoin(JoinShape(ours.fields, theirs.fields, ("k",), 1, 0, 0))
    pieces = list(join.join_chunks(in_chunks(left, 2), in_chunks(right, 2), BufferPool()))
    assert [piece.rows for piece in pieces] == [3000]


def test_a_smaller_bucket_after_a_larger_one_sees_nothing_of_it() -> None:
    large, small = tables(range(5000), range(5000)), tables([1, 2], range(5000))
    left, right = (Frame.from_arrow(table).fields for table in large)
    join = BucketJoin(JoinShape(left, right, ("k",), 1, 0, 0))
    assert joined(*large, join=join).num_rows == 5000
    assert joined(*small, join=join)["k"].to_pylist() == [1, 2]
    assert joined(*large, parts=2, join=join).equals(answer(*large))


def test_payload_of_every_width_and_with_nulls_arrives() -> None:
    rows, rng = 300, np.random.default_rng(0)
    hidden = rng.random(rows) < 0.3
    columns = {
        "i8": pa.array(rng.integers(-9, 9, rows), pa.int8()),
        "u16": pa.array(rng.integers(0, 9, rows), pa.uint16(), mask=hidden),
        "f32": pa.array(rng.random(rows), pa.float32()),
        "flag": pa.array(rng.random(rows) < 0.5, mask=~hidden),
        "money": pa.array([None if n % 7 == 0 else n for n in range(rows)], pa.decimal128(30, 2)),
        "when": pa.array(rng.integers(0, 10**9, rows), pa.timestamp("us")),
    }
    left = pa.table({"k": rng.permutation(rows), **columns})
    right = pa.table(
        {**{f"r_{name}": column for name, column in columns.items()}, "k": rng.integers(0, 2 * rows, rows)}
    )
    ours, theirs = chunks(left, 3), chunks(right, 3)
    native, polars = (simulate(engine, ours, theirs, ("k",), iterations=2) for engine in ("native", "polars"))
    order = [("k", "ascending"), ("r_when", "ascending")]
    assert native.num_rows > 50
    assert native.sort_by(order).equals(polars.select(native.column_names).cast(native.schema).sort_by(order))


def test_what_it_joins_itself_and_what_polars_joins() -> None:
    columns = {"f": [1.0], "s": pa.array(["x"], pa.large_string()), "d": pa.array([1], pa.date32())}
    frame = Frame.from_arrow(pa.table({"k": [1], **columns}))
    fields = {field.name: field for field in frame.fields}

    def shape(left: str, right: str, keys: str) -> JoinShape:
        return JoinShape(*(tuple(fields[name] for name in side) for side in (left, right)), tuple(keys), 2, 0, 10)

    assert can_join_natively(shape("kf", "kd", "k"))
    assert can_join_natively(shape("dk", "d", "d"))
    assert not can_join_natively(shape("fk", "fd", "f"))  # both zeros are one value, and NaN is none
    assert not can_join_natively(shape("kf", "kf", "kf"))
    assert can_join_natively(shape("kd", "dk", "kd"))
    assert can_join_natively(shape("ks", "kd", "k"))
    assert can_join_natively(shape("ks", "s", "s"))
    other = dataclasses.replace(fields["k"], type=pa.int32(), width=4)
    assert not can_join_natively(JoinShape((fields["k"],), (other,), ("k",), 2, 0, 10))


class NeverPolars(NativeEngine):
    """Joins by itself, or not at all."""

    def join_tables(self, left: pa.Table, right: pa.Table) -> Any:
        raise AssertionError("Polars was asked")


@pytest.mark.parametrize("threads", [1, 3])
def test_its_own_join_is_what_ran(threads: int) -> None:
    left, right = tables(range(70_000), range(35_000, 105_000))
    made = engines_of(NeverPolars, chunks(left, 2), chunks(right, 2), ("k",), threads=threads, join_rows=1000)
    for _ in range(3):
        assert run_once(made) == 35_000
    assert result(made).sort_by("k").equals(answer(left, right))


def test_a_bucket_too_long_for_its_table_goes_to_polars() -> None:
    class ShortTables(NativeEngine):
        table_rows = 400
        asked = 0

        def join_tables(self, left: pa.Table, right: pa.Table) -> Any:
            self.asked += 1
            return super().join_tables(left, right)

    left, right = tables([1] * 500 + [2, 3], [1, 2, 2, 3])
    engines = engines_of(ShortTables, chunks(left, 1), chunks(right, 1), ("k",))
    run_once(engines)
    assert [engine.asked for engine in engines if isinstance(engine, ShortTables)] == [1]
    found = result(engines)
    order = [(name, "ascending") for name in ("k", "a", "b")]
    assert found.select(["k", "a", "b"]).sort_by(order).equals(answer(left, right))
    assert NativeEngine.table_rows < 2**24  # what a head's lower bits can number


def test_the_result_lies_in_memory_that_is_used_again() -> None:
    left, right = (chunks(table, 1)[0] for table in tables(range(3000), range(3000)))
    engine = import_engine_class("native")(JoinShape(left.fields, right.fields, ("k",), 1, 0, 6000))
    engine.load_chunks(left, right)
    places = []
    for _ in range(4):
        run_once([engine])
        places.append({piece["a"].chunk(0).buffers()[1].address for piece in engine.result_tables()})
    assert places[-1] == places[-2]
    assert engine.received_row_counts() == {side.value: 3000 for side in Side}


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_chains_longer_than_there_is_room_are_followed_in_several_calls_of_one_kind(at_once: int) -> None:
    """Three right rows with five matches each, and room for four pairs: signed counts, or a call compiles again."""
    keys = np.zeros(3, np.uint64)
    heads = np.zeros(16, np.uint32)
    heads[0] = 1 << 24 | 5
    links, copies = np.arange(5, dtype=np.uint32), np.zeros(5, np.uint64)  # row 5 leads to 4, … to 1
    candidates, entries = np.empty(at_once, np.int32), np.empty(at_once, np.int32)
    lefts, rights = np.empty(4, np.int32), np.empty(4, np.int32)
    pairs, at, count = [], 0, 0
    while count or at < keys.size:
        rows, at, count = find_matching_pairs(
            keys, at, count, np.uint64(60), heads, links, copies, candidates, entries, lefts, rights
        )
        assert all(isinstance(number, int) for number in (rows, at, count))
        pairs += list(zip(lefts[:rows].tolist(), rights[:rows].tolist(), strict=True))
    assert sorted(pairs) == [(left, right) for left in range(5) for right in range(3)]
