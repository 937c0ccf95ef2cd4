"""The tables of the goals about string keys and two keys, and what the libraries' results of them are held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.goal import tables
from benchmarks.goal.bench import Bench
from benchmarks.goal.table_join import checksum
from merge_bench.errors import WrongResult


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_tables_match_in_as_many_rows_as_they_should(
    tmp_path: Path, keys: tables.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", 999)
    made = tables.make(tmp_path, keys, 5000, seed=3)
    left, right = pq.read_table(made.left), pq.read_table(made.right)
    assert left.num_rows == right.num_rows == 5000
    assert pq.ParquetFile(made.left).num_row_groups == 6
    joined = left.join(right, list(keys.on), join_type="inner")
    assert joined.num_rows == made.rows == 1500
    pairs = zip(joined["left_payload"].to_pylist(), joined["right_payload"].to_pylist(), strict=True)
    assert sum(one * other for one, other in pairs) % 2**64 == made.checksum
    assert left["left_payload"].to_pylist() == list(range(5000))


def test_string_keys_are_names_with_nine_digits() -> None:
    assert tables.STRINGS.columns(np.array([7, 123456789]))["key"].to_pylist() == [
        "customer-000000007",
        "customer-123456789",
    ]


def test_a_checksum_tells_other_pairs_of_the_same_rows() -> None:
    left, right = np.array([1, 2**40, 3]), np.array([5, 2**40, 7])
    assert checksum(left, right) == (5 + 2**80 + 21) % 2**64
    assert checksum(left[::-1], right[::-1]) == checksum(left, right)
    assert checksum(left, right[::-1]) != checksum(left, right)


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_libraries_join_the_tables_and_a_wrong_result_is_an_error(
    tmp_path: Path, keys: tables.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_own", lambda *_: {"wall_seconds": 1e-6, "rows": 600})
    here = Bench(tmp_path)
    found = tables.against_libraries(here, keys, rows=2000)
    polars = tables.TARGETS[keys.name]["polars"].name
    assert found[polars] == here.details[polars]["wall_seconds"]["polars"] / 1e-6
    assert found.keys() == {target.name for target in tables.TARGETS[keys.name].values()}
    assert min(found.values()) > 1
    monkeypatch.setattr(tables, "_own", lambda *_: {"wall_seconds": 1e-6, "rows": 599})
    with pytest.raises(WrongResult, match="merge_bench found 599 rows where 600 match"):
        tables.against_libraries(Bench(tmp_path), keys, rows=2000)
    monkeypatch.setattr(tables, "_own", lambda *_: {"wall_seconds": 1e-6, "rows": 600})
    monkeypatch.setattr(tables, "_library", lambda *_: {"wall_seconds": 1e-6, "rows": 600, "checksum": 1})
    with pytest.raises(WrongResult, match="found 600 rows, and not those that match"):
        tables.against_libraries(Bench(tmp_path), keys, rows=2000)
