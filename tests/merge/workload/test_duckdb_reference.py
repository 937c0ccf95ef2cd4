"""DuckDB's answer, checked by hand, against Polars, and against every engine that merges."""

from __future__ import annotations

import datetime as dt
import functools
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import RunFailed, UsageError, WrongResult
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.frame import Frame, arrow_schema
from merge_bench.merge.verification import duckdb_reference
from merge_bench.merge.verification.duckdb_reference import compute_expected_batches
from merge_bench.merge.workload.tables import TableSpec, estimate_output_bytes, load_chunk, mean_row_bytes
from tests.helpers.examples import examples
from tests.merge.workload.parquet_samples import NAN, VALUES, plan, run_engine, two_tables, write


@pytest.fixture(scope="module", autouse=True)
def asked_once() -> Iterator[None]:
    """DuckDB is asked once for the rows of a plan, however often something is compared with them."""
    with pytest.MonkeyPatch.context() as patch:
        answers = functools.cache(lambda spec, how: list(compute_expected_batches(spec, how)))
        patch.setattr(
            duckdb_reference, "compute_expected_batches", lambda spec, how=JoinKind.INNER, raw=None: answers(spec, how)
        )
        yield


def merge(spec: TableSpec) -> list[dict[str, Any]]:
    """DuckDB's rows."""
    return pa.concat_tables(duckdb_reference.compute_expected_batches(spec)).to_pylist()


def tables(folder: Path, left: dict[str, Any], right: dict[str, Any]) -> tuple[Path, Path]:
    return write(folder / "l.parquet", pa.table(left), 2), write(folder / "r.parquet", pa.table(right), 2)


def polars_join(spec: TableSpec) -> pa.Table:
    """The merge by Polars over whole files: a third opinion, with keys that are NaN taken out by hand."""
    frames = []
    for side in (spec.left, spec.right):
        table = pa.concat_tables([pq.read_table(file) for file in side.files])
        columns = {c.field.name: table[c.source] for c in side.columns}
        for column in side.columns:
            if column.field.name in spec.keys:
                values = columns[column.field.name]
                if pa.types.is_dictionary(values.type):
                    values = values.cast(values.type.value_type)
                columns[column.field.name] = values.cast(column.field.type)
        frame = pl.from_arrow(pa.table(columns))
        assert isinstance(frame, pl.DataFrame)
        for key in spec.keys:
            if frame[key].dtype.is_float():
                frame = frame.filter(pl.col(key).is_not_nan())
        frames.append(frame)
    return frames[0].join(frames[1], on=list(spec.keys), how="inner", nulls_equal=False).to_arrow()


# By hand


def test_duplicates_on_both_sides(tmp_path: Path) -> None:
    paths = tables(tmp_path, {"k": [1, 1, 2, 3], "a": [10, 11, 12, 13]}, {"k": [1, 2, 1, 1, 4], "b": [5, 6, 7, 8, 9]})
    spec = plan(*paths, "k")
    pairs = [(1, a, b) for a in (10, 11) for b in (5, 7, 8)] + [(2, 12, 6)]
    assert Counter((r["k"], r["a"], r["b"]) for r in merge(spec)) == Counter(pairs)
    assert duckdb_reference.count_result_rows(spec).rows == 7
    assert duckdb_reference.compute_expected_result(spec)[0] == 7


def test_null_and_nan_match_nothing_and_zeros_match(tmp_path: Path) -> None:
    paths = tables(
        tmp_path, {"k": [None, NAN, -0.0, 1.0], "a": [0, 1, 2, 3]}, {"k": [None, NAN, NAN, 0.0], "b": [0, 1, 2, 3]}
    )
    spec = plan(*paths, "k")
    assert [(r["a"], r["b"]) for r in merge(spec)] == [(2, 3)]
    assert duckdb_reference.count_result_rows(spec).rows == 1


def test_one_missing_part_of_a_key_is_enough(tmp_path: Path) -> None:
    left = {"k": [1, 1, None], "f": [1.0, NAN, 1.0], "a": [0, 1, 2]}
    spec = plan(*tables(tmp_path, left, {"k": [1, 1, None], "f": [1.0, NAN, 1.0], "b": [0, 1, 2]}), ["k", "f"])
    assert [(r["a"], r["b"]) for r in merge(spec)] == [(0, 0)]
    assert duckdb_reference.count_result_rows(spec).rows == 1


def test_keys_of_different_widths_match_by_value(tmp_path: Path) -> None:
    left = {"k": pa.array([-1, 255, 3], pa.int16()), "a": [0, 1, 2]}
    right = {"q": pa.array([255, 3, 2**32 - 1], pa.uint32()), "b": [0, 1, 2]}
    spec = plan(*tables(tmp_path, left, right), "k", "q")
    assert sorted((r["k"], r["a"], r["b"]) for r in merge(spec)) == [(3, 2, 1), (255, 1, 0)]


def test_instants_match_whatever_their_zone_and_unit(tmp_path: Path) -> None:
    left = {"k": pa.array([0, 1500], pa.timestamp("ms", "Asia/Tokyo"))}
    right = {"k": pa.array([1_500_000, 7], pa.timestamp("us", "America/New_York"))}
    spec = plan(*tables(tmp_path, left, right), "k")
    assert merge(spec) == [{"k": dt.datetime.fromtimestamp(1.5, dt.UTC)}]


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    spec = plan(*tables(tmp_path, {"k": [1], "K": [2], "v": [3]}, {"k": [1], "V": [4], "select": [5]}), "k")
    assert merge(spec) == [{"k": 1, "K": 2, "v": 3, "V": 4, "select": 5}]


def test_empty_sides(tmp_path: Path) -> None:
    spec = plan(*tables(tmp_path, {"k": pa.array([], pa.int64())}, {"k": [1, 2]}), "k")
    assert duckdb_reference.count_result_rows(spec).rows == 0
    assert duckdb_reference.compute_expected_result(spec) == (0, 0)
    assert duckdb_reference.compare_result_rows(spec, []) is None
    assert estimate_output_bytes(spec, 0) == 0


def test_rows_are_counted_without_being_made(tmp_path: Path) -> None:
    rows = 200_000  # 4e10 pairs
    path = write(tmp_path / "t.parquet", pa.table({"k": pa.array([7] * rows + [None])}))
    assert duckdb_reference.count_result_rows(plan(path, path, "k")).rows == rows * rows


# Against Polars and against the engines


@pytest.fixture(scope="module", params=VALUES)
def typed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TableSpec:
    """The plan of a merge on keys of one type."""
    return plan(*two_tables(tmp_path_factory.mktemp("typed"), request.param), "k", "q", workers=3)


@pytest.mark.slow
def test_every_key_type_agrees_with_polars(typed: TableSpec) -> None:
    other = polars_join(typed)
    assert other.num_rows > 20
    assert duckdb_reference.count_result_rows(typed).rows == other.num_rows
    assert duckdb_reference.compute_expected_result(typed) == (
        other.num_rows,
        duckdb_reference.result_checksum(typed, other),
    )
    assert duckdb_reference.compare_result_rows(typed, [other]) is None


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["polars", pytest.param("pandas", marks=pytest.mark.soak)])
def test_every_engine_gives_the_expected_rows(typed: TableSpec, engine: str) -> None:
    results = run_engine(engine, typed)
    assert duckdb_reference.compare_result_rows(typed, results) is None
    found = sum(t.num_rows for t in results), sum(duckdb_reference.result_checksum(typed, t) for t in results) % 2**64
    assert found == duckdb_reference.compute_expected_result(typed)


@pytest.mark.parametrize("engine", ["polars", "pandas"])
def test_several_keys_of_several_types(tmp_path: Path, engine: str) -> None:
    left, right = two_tables(tmp_path, "int8", rows=200)
    on, right_on = ["k", "l_bool", "l_string"], ["q", "r_bool", "r_string"]
    spec = plan(left, right, on, right_on, workers=2, engine=engine)
    assert duckdb_reference.compare_result_rows(spec, [polars_join(spec)]) is None
    results = run_engine(engine, spec)
    assert sum(t.num_rows for t in results) > 20
    assert duckdb_reference.compare_result_rows(spec, results) is None


KEYS = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=30)


@examples(15)
@given(left=KEYS, right=KEYS, workers=st.integers(1, 4))
def test_any_keys_match_by_the_definition(
    tmp_path_factory: pytest.TempPathFactory, left: list[int | None], right: list[int | None], workers: int
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    a = {"k": pa.array(left, pa.int32()), "a": pa.array(range(len(left)), pa.int64())}
    b = {"k": pa.array(right, pa.int64()), "b": pa.array(range(len(right)), pa.int64())}
    spec = plan(*tables(folder, a, b), "k", workers=workers)
    pairs = Counter((x, i, j) for i, x in enumerate(left) for j, y in enumerate(right) if x is not None and x == y)
    nulls = {Side.LEFT: left.count(None), Side.RIGHT: right.count(None)}
    assert duckdb_reference.count_result_rows(spec) == duckdb_reference.ResultRowCounts(pairs.total(), nulls)
    results = [row for table in run_engine("polars", spec) for row in table.to_pylist()]
    for rows in (merge(spec) if pairs else [], results):
        assert Counter((r["k"], r["a"], r["b"]) for r in rows) == pairs


# What the checksum and the full comparison see


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[TableSpec, pa.Table]:
    """A small merge, and its right result."""
    spec = plan(*two_tables(tmp_path_factory.mktemp("merged"), "string"), "k", "q")
    return spec, pa.concat_tables(duckdb_reference.compute_expected_batches(spec)).combine_chunks()


@pytest.fixture(scope="module")
def right(merged: tuple[TableSpec, pa.Table]) -> int:
    """The checksum of that result."""
    return duckdb_reference.compute_expected_result(merged[0])[1]


def with_value(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    """The table with one value changed."""
    column = table[name]
    mask = pa.array([i == row for i in range(table.num_rows)])
    changed = pc.if_else(mask, pa.scalar(value, column.type), column)
    return table.set_column(table.column_names.index(name), name, changed)


def test_order_does_not_matter(merged: tuple[TableSpec, pa.Table]) -> None:
    spec, table = merged
    order = random.Random(1).sample(range(table.num_rows), table.num_rows)
    shuffled = table.take(order)
    assert duckdb_reference.result_checksum(spec, shuffled) == duckdb_reference.compute_expected_result(spec)[1]
    assert duckdb_reference.compare_result_rows(spec, [shuffled.slice(10), shuffled.slice(0, 10)]) is None


def test_a_dropped_row_is_seen(merged: tuple[TableSpec, pa.Table]) -> None:
    spec, table = merged
    assert duckdb_reference.result_checksum(spec, table.slice(1)) != duckdb_reference.compute_expected_result(spec)[1]
    message = duckdb_reference.compare_result_rows(spec, [table.slice(1)])
    assert message is not None
    assert message.startswith("the result has 1 copy too few of the row k=")
    assert message.endswith("(1 distinct rows differ)")


def test_a_doubled_row_is_seen(merged: tuple[TableSpec, pa.Table]) -> None:
    spec, table = merged
    doubled = pa.concat_tables([table, table.slice(3, 1), table.slice(3, 1)])
    assert duckdb_reference.result_checksum(spec, doubled) != duckdb_reference.compute_expected_result(spec)[1]
    message = duckdb_reference.compare_result_rows(spec, [doubled])
    assert message is not None
    assert message.startswith("the result has 2 copies too many of the row k=")


def test_a_row_in_the_place_of_another_is_seen(merged: tuple[TableSpec, pa.Table]) -> None:
    spec, table = merged
    swapped = pa.concat_tables([table.slice(1), table.slice(5, 1)])
    assert swapped.num_rows == table.num_rows
    assert duckdb_reference.result_checksum(spec, swapped) != duckdb_reference.compute_expected_result(spec)[1]
    assert "(2 distinct rows differ)" in str(duckdb_reference.compare_result_rows(spec, [swapped]))


def differ(one: object, other: object) -> bool:
    """Whether two values count as different: 0.0 and -0.0 are one value, every NaN is one. Rows come in any order."""
    return one != other and not (one != one and other != other)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("side", ["l", "r"])
def test_a_changed_value_of_any_type_is_seen(
    merged: tuple[TableSpec, pa.Table], right: int, kind: str, side: str
) -> None:
    spec, table = merged
    name = f"{side}_{kind}"
    present = [i for i, valid in enumerate(pc.is_valid(table[name]).to_pylist()) if valid]
    other = next(i for i in present if differ(table[name][i].as_py(), table[name][present[0]].as_py()))
    for value in (table[name][other], None):
        changed = with_value(table, name, present[0], value)
        assert duckdb_reference.result_checksum(spec, changed) != right
        assert "(2 distinct rows differ)" in str(duckdb_reference.compare_result_rows(spec, [changed]))


def test_a_row_of_zeros_counts(tmp_path: Path) -> None:
    """Zeros must not vanish in a sum of hashes."""
    spec = plan(*tables(tmp_path, {"k": [0], "a": [0]}, {"k": [0], "b": [0]}), "k")
    assert duckdb_reference.compute_expected_result(spec)[1] != 0


def test_both_zeros_and_every_nan_are_one_value(tmp_path: Path) -> None:
    spec = plan(*tables(tmp_path, {"k": [1, 2], "a": [-0.0, NAN]}, {"k": [1, 2]}), "k")
    table = pa.table({"k": [1, 2], "a": [0.0, -NAN]})
    assert duckdb_reference.compare_result_rows(spec, [table]) is None
    assert duckdb_reference.result_checksum(spec, table) == duckdb_reference.compute_expected_result(spec)[1]


# What engines give


def test_results_are_brought_to_the_canonical_schema(tmp_path: Path) -> None:
    left = {
        "k": ["a", "b"],
        "t": pa.array([1, None], pa.timestamp("ms", "UTC")),
        "d": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
        "c": pa.array([1, 2], pa.time32("ms")),
    }
    spec = plan(*tables(tmp_path, left, {"k": ["a", "b"], "day": pa.array([1, 2], pa.int32()).cast(pa.date32())}), "k")
    engine = pa.table(
        {
            "day": pa.array([1, 2], pa.int32()).cast(pa.date32()),
            "k": pa.array(["a", "b"], pa.string_view()),
            "c": pa.array([1_000_000, 2_000_000], pa.time64("ns")),
            "d": pa.array([Decimal("1.5"), None], pa.decimal128(38, 1)),
            "t": pa.array([1, None], pa.timestamp("ms")),
        }
    )
    output = JoinKind.INNER.output_fields(spec.left.fields, spec.right.fields, spec.keys)
    assert duckdb_reference.to_expected_columns(spec, engine).schema == arrow_schema(output)
    assert duckdb_reference.compare_result_rows(spec, [engine]) is None


def test_a_result_that_is_not_of_the_schema(tmp_path: Path) -> None:
    spec = plan(*tables(tmp_path, {"k": [1], "a": pa.array([1], pa.int8())}, {"k": [1]}), "k")
    with pytest.raises(WrongResult, match="the result has no column 'a'"):
        duckdb_reference.to_expected_columns(spec, pa.table({"k": [1]}))
    with pytest.raises(WrongResult, match="column 'a' of the result does not fit type int8: "):
        duckdb_reference.to_expected_columns(spec, pa.table({"k": [1], "a": [300]}))


@pytest.mark.parametrize("ask", [duckdb_reference.count_result_rows, duckdb_reference.compute_expected_result])
def test_a_file_that_cannot_be_read(tmp_path: Path, ask: Any) -> None:
    left, right = tables(tmp_path, {"k": [1]}, {"k": [1]})
    spec = plan(left, right, "k")
    right.unlink()
    with pytest.raises(UsageError, match=r"r\.parquet cannot be read: [^\n]*$"):
        ask(spec)


@pytest.mark.parametrize("ask", [duckdb_reference.count_result_rows, duckdb_reference.compute_expected_result])
def test_a_key_value_that_does_not_fit(tmp_path: Path, ask: Any) -> None:
    far = {"k": pa.array([253_402_300_799_000], pa.timestamp("ms"))}
    spec = plan(*tables(tmp_path, far, {"k": pa.array([1], pa.timestamp("ns"))}), "k")
    with pytest.raises(UsageError, match=r"column 'k' has a value that does not fit timestamp\[ns\]"):
        ask(spec)


def test_too_little_memory_for_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_reference, "duckdb_memory_limit", lambda: 1 << 20)
    path = write(tmp_path / "t.parquet", pa.table({"k": list(range(100_000))}))
    with pytest.raises(RunFailed, match=r"^DuckDB could not compute the expected result: [^\n]*$"):
        duckdb_reference.count_result_rows(plan(path, path, "k"))


# Sizes


def test_sizes_are_those_of_the_frames(tmp_path: Path) -> None:
    """Estimates from one row group of each side, against what is really held."""
    left = {"k": list(range(400)), "s": ["abc", None] * 200, "d": [Decimal("1.5")] * 400, "b": [True] * 400}
    right = {"k": list(range(400)), "c": pa.array(["left", "north"] * 200).dictionary_encode()}
    paths = write(tmp_path / "l.parquet", pa.table(left), 50), write(tmp_path / "r.parquet", pa.table(right), 50)
    spec = plan(*paths, "k")

    def held(table: pa.Table | None, frame: Any) -> int:
        arrays = [(c.values, c.offsets, c.valid) for c in frame.columns]
        return sum(a.nbytes for triple in arrays for a in triple if a is not None)

    frames = load_chunk(spec, 0)
    for side, frame in zip((spec.left, spec.right), frames, strict=True):
        assert mean_row_bytes(side) * frame.rows == pytest.approx(held(None, frame), rel=0.01)
    result = Frame.from_arrow(pa.concat_tables(duckdb_reference.compute_expected_batches(spec)))
    assert estimate_output_bytes(spec, 400) == pytest.approx(held(None, result), rel=0.01)


@pytest.mark.parametrize("engine", ["native", "pandas", "polars", "duckdb"])
def test_text_that_is_not_utf8_matches_by_its_bytes(tmp_path: Path, engine: str) -> None:
    """pandas failed on it while the workers merged."""
    values = pa.array([b"caf\xe9", b"caf\xe8", b"plain", None, b"caf\xe9"], pa.binary()).view(pa.string())
    sides = {"k": values, "a": [0, 1, 2, 3, 4]}, {"k": values, "b": [0, 1, 2, 3, 4]}
    spec = plan(*tables(tmp_path, *sides), "k", engine=engine)
    found = sorted(
        (row["a"], row["b"]) for table in run_engine(engine, spec) for row in table.select(["a", "b"]).to_pylist()
    )
    assert found == [(0, 0), (0, 4), (1, 1), (2, 2), (4, 0), (4, 4)]
