"""DuckDB's answer for each kind of join, against a join written out in Python."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.verification import duckdb_reference
from tests.merge.workload.parquet_samples import NAN, plan, write

Row = tuple[Any, ...]


def by_hand(left: list[Row], right: list[Row], keys: int, how: JoinKind) -> Counter[Row]:
    """Every left row beside every right one; the first `keys` values of a row are its keys."""

    def equal(one: Row, other: Row) -> bool:
        return all(a is not None and a == b for a, b in zip(one[:keys], other[:keys], strict=True))

    matched_left = {i for i, one in enumerate(left) for other in right if equal(one, other)}
    matched_right = {j for j, other in enumerate(right) for one in left if equal(one, other)}
    if how in (JoinKind.SEMI, JoinKind.ANTI):
        return Counter(shown(one) for i, one in enumerate(left) if (i in matched_left) == (how is JoinKind.SEMI))
    rows = [(*one, *other[keys:]) for one in left for other in right if equal(one, other)]
    if how in (JoinKind.LEFT, JoinKind.OUTER):
        rows += [(*one, None) for i, one in enumerate(left) if i not in matched_left]
    if how in (JoinKind.RIGHT, JoinKind.OUTER):
        rows += [(*other[:keys], None, other[keys]) for j, other in enumerate(right) if j not in matched_right]
    return Counter(map(shown, rows))


def shown(row: Row) -> Row:
    """A row that can be counted: NaN as text, because it equals nothing."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)


whole_numbers = st.one_of(st.none(), st.integers(0, 4))
numbers = st.one_of(st.none(), st.sampled_from([0.0, 1.0, NAN]))


def sides(*keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*keys, st.one_of(st.none(), st.integers(0, 9))), max_size=12)


@pytest.mark.slow
@pytest.mark.parametrize("how", JoinKind)
@given(data=st.data(), two=st.booleans())
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tables(tmp_path: Path, how: JoinKind, data: st.DataObject, two: bool) -> None:
    kinds = [pa.int64(), pa.float64()] if two else [pa.float64()]
    keys = [whole_numbers, numbers] if two else [numbers]
    names = [f"k{at}" for at in range(len(keys))]
    left, right = (data.draw(sides(*keys)) for _ in range(2))
    paths = []
    for side, rows in (("a", left), ("b", right)):
        schema = pa.schema([*zip(names, kinds, strict=True), (side, pa.int64())])
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
        paths.append(write(tmp_path / f"{side}.parquet", table, 3))
    spec = plan(*paths, names)
    wanted = by_hand(left, right, len(keys), how)
    batches = list(duckdb_reference.compute_expected_batches(spec, how))
    found = Counter(shown(tuple(row.values())) for batch in batches for row in batch.to_pylist())
    assert found == wanted
    assert duckdb_reference.count_result_rows(spec, how).rows == wanted.total()
    rows, checksum = duckdb_reference.compute_expected_result(spec, how)
    assert rows == wanted.total()
    assert sum(duckdb_reference.result_checksum(spec, batch, how) for batch in batches) % 2**64 == checksum
    assert duckdb_reference.compare_result_rows(spec, batches, how) is None
    if batches and rows:
        assert duckdb_reference.compare_result_rows(spec, batches[1:] or [batches[0][1:]], how) is not None


def test_keys_of_rows_that_only_the_right_table_has(tmp_path: Path) -> None:
    left = write(tmp_path / "l.parquet", pa.table({"a": [1, 2], "id": ["x", "y"]}), 1)
    right = write(tmp_path / "r.parquet", pa.table({"b": [5, 6], "name": ["y", "z"]}), 1)
    spec = plan(left, right, "id", "name")
    table = pa.concat_tables(duckdb_reference.compute_expected_batches(spec, JoinKind.OUTER))
    assert sorted(map(str, table.to_pylist())) == [
        "{'a': 1, 'id': 'x', 'b': None}",
        "{'a': 2, 'id': 'y', 'b': 5}",
        "{'a': None, 'id': 'z', 'b': 6}",
    ]
