"""The tables of the db-benchmark's join task: keys, shares and sizes as its own generator makes them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from merge_bench.config.options import TableOptions
from merge_bench.errors import UsageError
from merge_bench.merge.workload import h2o, import_benchmark
from merge_bench.merge.workload.h2o import H2O, H2O_VERSION, H2oGenerator, h2o_tables

ROWS = 100_000
COLUMNS = {
    "x": ["id1", "id2", "id3", "id4", "id5", "id6", "v1"],
    "small": ["id1", "id4", "v2"],
    "medium": ["id1", "id2", "id4", "id5", "v2"],
    "big": ["id1", "id2", "id3", "id4", "id5", "id6", "v2"],
}
KEYS = {"id1": 10, "id2": ROWS // 1000, "id3": ROWS}  # of one side


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return dict(zip(COLUMNS, h2o_tables(ROWS, list(COLUMNS), tmp_path_factory.mktemp("h2o")), strict=True))


@pytest.fixture(scope="module")
def tables(paths: dict[str, Path]) -> dict[str, pa.Table]:
    return {name: pq.read_table(path) for name, path in paths.items()}


def values(table: pa.Table, column: str) -> np.ndarray:
    return table[column].to_numpy()


def test_columns_types_and_rows(tables: dict[str, pa.Table]) -> None:
    assert {name: table.column_names for name, table in tables.items()} == COLUMNS
    assert {name: table.num_rows for name, table in tables.items()} == {
        "x": ROWS,
        "small": 10,
        "medium": ROWS // 1000,
        "big": ROWS,
    }
    for table in tables.values():
        found = {str(field.type) for field in table.schema if field.name in ("id1", "id2", "id3")}
        assert found == {"int32"}
        assert {str(field.type) for field in table.schema if field.name in ("id4", "id5", "id6")} == {"string"}
        assert str(table.schema[-1].type) == "double"
        assert not any(column.null_count for column in table.columns)


def test_strings_name_the_numbers_and_values_have_six_decimals(tables: dict[str, pa.Table]) -> None:
    for table in tables.values():
        for at in (1, 2, 3):
            if f"id{at}" in table.column_names:
                digits = pc.utf8_replace_slice(table[f"id{at + 3}"], 0, 2, "")
                assert pc.all(pc.starts_with(table[f"id{at + 3}"], "id")).as_py()
                assert np.array_equal(pc.cast(digits, pa.int32()).to_numpy(), values(table, f"id{at}"))
    found = values(tables["x"], "v1")
    assert np.array_equal(found, np.round(found, 6))
    assert 0 <= found.min() < 0.1 < 99.9 < found.max() <= 100
    assert abs(found.mean() - 50) < 5 * 100 / math.sqrt(12 * ROWS)


@pytest.mark.parametrize(("column", "other"), [("id1", "small"), ("id2", "medium"), ("id3", "big")])
def test_nine_tenths_of_the_keys_are_common(tables: dict[str, pa.Table], column: str, other: str) -> None:
    count = KEYS[column]
    x, right = (np.unique(values(tables[name], column)) for name in ("x", other))
    assert len(x) == len(right) == count
    assert tables[other].num_rows == count  # so each of them occurs once
    assert len(np.intersect1d(x, right)) == 0.9 * count
    assert np.array_equal(np.union1d(x, right), np.arange(1, 1.1 * count + 0.5))


@pytest.mark.parametrize(
    ("name", "column"), [("x", "id1"), ("x", "id2"), ("big", "id1"), ("big", "id2"), ("medium", "id1")]
)
def test_a_column_with_fewer_keys_than_rows_has_all_of_them_about_equally_often(
    tables: dict[str, pa.Table], name: str, column: str
) -> None:
    keys, counts = np.unique(values(tables[name], column), return_counts=True)
    rows, count = tables[name].num_rows, KEYS[column]
    assert len(keys) == count
    squares = float(((counts - rows / count) ** 2).sum() / (rows / count))
    assert squares < count + 5 * math.sqrt(2 * count)  # chi-squared with count - 1 degrees of freedom


@pytest.mark.parametrize(("name", "column"), [("x", "id3"), ("big", "id3"), ("medium", "id2"), ("x", "id2")])
def test_rows_are_in_random_order(tables: dict[str, pa.Table], name: str, column: str) -> None:
    """Neither sorted, nor with the keys of one side at one end, nor in the order of the other table."""
    found = values(tables[name], column).astype(float)
    rows = len(found)
    shared = np.isin(values(tables[name], column), values(tables["x" if name != "x" else "big"], column))
    limit = 5 / math.sqrt(rows)
    assert abs(np.corrcoef(found, np.arange(rows))[0, 1]) < limit
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < limit
    if not shared.all():
        assert abs(np.corrcoef(shared, np.arange(rows))[0, 1]) < limit
    if column == "id3":
        other = values(tables["big" if name == "x" else "x"], column)
        assert abs(np.corrcoef(found, other)[0, 1]) < limit


def test_sizes_of_the_results(tables: dict[str, pa.Table]) -> None:
    """As published for 1e7 rows: q1, q2, q4 have about 0.9 N rows, q3 N, q5 0.9 N; 9, 11, 11, 11 and 13 columns."""
    spread = 5 * math.sqrt(0.09 * ROWS)
    expected = {"q1": (spread, 9), "q2": (spread, 11), "q4": (spread, 11), "q5": (0, 13)}
    for question in H2O.questions:
        left, right = tables[question.left], tables[question.right]
        how = "left outer" if question.how == "left" else "inner"
        joined = left.join(right, question.left_on, question.right_on, how, "_left", "_right")
        if question.name == "q3":
            assert joined.shape == (ROWS, 11)
            continue
        tolerance, columns = expected[question.name]
        assert joined.num_columns == columns
        assert abs(joined.num_rows - 0.9 * ROWS) <= tolerance
    assert [question.how for question in H2O.questions] == ["inner", "inner", "left", "inner", "inner"]


def test_row_groups_do_not_depend_on_each_other(tables: dict[str, pa.Table], paths: dict[str, Path]) -> None:
    made = H2oGenerator(ROWS)
    for name, path in paths.items():
        groups = pq.ParquetFile(path)
        last = groups.num_row_groups - 1
        assert last >= min(h2o.ROW_GROUPS, tables[name].num_rows) - 1
        assert groups.read_row_group(last).equals(made.make_row_group(name, last))


def test_large_tables_are_made_in_pieces() -> None:
    made = H2oGenerator(10**9)
    assert made.rows == {"x": 10**9, "small": 1000, "medium": 10**6, "big": 10**9}
    assert made.rows_per_row_group("x") == h2o.MOST_GROUP_ROWS
    group = made.make_row_group("big", 999)
    assert group.num_rows == h2o.MOST_GROUP_ROWS
    assert pc.max(group["id3"]).as_py() > 10**9  # keys that only big has


def test_only_the_tables_of_a_question_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = TableOptions(rows=1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x, small = H2O.make(options, ("x", "small"))
    folder = tmp_path / "merge_bench" / "h2o" / f"1000-{H2O_VERSION}"
    assert {path.name for path in folder.iterdir()} == {"x.parquet", "small.parquet"}
    before = x.stat().st_mtime_ns
    assert H2O.make(options, ("x", "medium"))[0].stat().st_mtime_ns == before
    assert small.is_file()


def test_a_disk_too_small(tmp_path: Path) -> None:
    said = r"^h2o with 1,000,000,000,000,000 rows needs about \S+ PiB, but .*; use a smaller --rows, or"
    with pytest.raises(UsageError, match=said):
        h2o_tables(10**15, ["x"], tmp_path)


@pytest.mark.parametrize(("asked", "found"), [((), ("q1", "q2", "q3", "q4", "q5")), (("3", "Q1"), ("q3", "q1"))])
def test_questions_by_number_or_name(asked: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert H2O.choose_questions(asked) == found


@pytest.mark.parametrize(
    ("workload", "asked", "said"),
    [
        ("h2o", ("6",), "--workload h2o has no question 'q6'"),
        ("h2o", ("1", "q1"), "--question names q1 twice"),
        ("tpch", ("customer-order",), "did you mean customer-orders"),
    ],
)
def test_questions_that_are_none(workload: str, asked: tuple[str, ...], said: str) -> None:
    benchmark = import_benchmark(workload)
    assert benchmark is not None
    with pytest.raises(UsageError, match=said):
        benchmark.choose_questions(asked)
