"""The warning of rows that match nothing because their key is null."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from merge_bench.campaign.machine_checks import check_tables_fit
from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.merge.verification import duckdb_reference
from tests.helpers.plans import given
from tests.merge.workload.parquet_samples import NAN, plan, write


def warnings(folder: Path, left: pa.Array, right: pa.Array) -> list[tuple[str, str]]:
    paths = [write(folder / f"{name}.parquet", pa.table({"k": keys}), 2) for name, keys in (("l", left), ("r", right))]
    return [(each.code, each.message) for each in check_tables_fit(plan(*paths, "k"), 2, 1 << 40)]


@pytest.mark.parametrize(
    ("left", "right", "type", "counted"),
    [
        ([1, None, 2, None], [1, None, 3], pa.int64(), ["2 of 4 rows of the left table", "1 of 3 rows of the right"]),
        ([1.0, 2.0], [1.0, NAN, None], pa.float64(), ["2 of 3 rows of the right table have a null or NaN key"]),
    ],
    ids=["both tables", "NaN"],
)
def test_rows_with_null_keys_are_counted(
    tmp_path: Path, left: list[float | None], right: list[float | None], type: pa.DataType, counted: list[str]
) -> None:
    ((code, message),) = warnings(tmp_path, pa.array(left, type), pa.array(right, type))
    assert code == "null-keys"
    assert [each for each in counted if each not in message] == []
    assert ("left" in message) == (None in left)


def test_tables_without_null_keys_have_no_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path, pa.array([1, 2]), pa.array([2, 3])) == []


def test_a_sweep_over_engines_reads_the_keys_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = (write(tmp_path / f"{name}.parquet", pa.table({"k": [1, None]}), 2) for name in "lr")
    count, counted = duckdb_reference.count_result_rows, []

    def counting(*given: Any) -> duckdb_reference.ResultRowCounts:
        counted.append(given)
        return count(*given)

    monkeypatch.setattr(duckdb_reference, "count_result_rows", counting)
    options = given(left=str(left), right=str(right), on=("k",), workers=2, engine=("native", "polars"))
    found = plan_runs(None, options)
    assert [[each.code for each in prepared.warnings].count("null-keys") for prepared in found] == [1, 1]
    assert len(counted) == 1
