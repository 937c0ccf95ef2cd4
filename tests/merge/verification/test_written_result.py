"""The merged table as Parquet: the types of the files come back, a part is new, and what is read is what was merged."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import verification
from merge_bench.merge.frame import Field, canonical_type, make_field
from merge_bench.merge.workload.tables import TableColumn, TableSide, TableSpec
from tests.helpers.merge_cases import canonical

STORED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["a", None, "ä"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", "x", None]),
    "date64": (pa.date64(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "zone": (pa.timestamp("ms", "Asia/Tokyo"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None, None]),
    "decimal32": (pa.decimal32(5, 2), [decimal.Decimal("1.25"), None, decimal.Decimal("-999.99")]),
    "decimal256": (pa.decimal256(38, 37), [decimal.Decimal(10) ** -37, None, decimal.Decimal(-9)]),
    "half": (pa.float16(), [1.5, None, float("inf")]),
    "": (pa.int8(), [1, None, 3]),
}


def plan_of(folder: Path, **stored: pa.DataType) -> tuple[Any, tuple[Field, ...]]:
    """A plan whose left table has these types in its files, and the fields under which its columns travel."""
    fields = tuple(make_field(name, canonical_type(kind, name), nullable=True) for name, kind in stored.items())
    columns = tuple(TableColumn(field.name, field, kind) for field, kind in zip(fields, stored.values(), strict=True))
    left, right = (TableSide("t", (), each, ((),), (0,)) for each in (columns, ()))
    return SimpleNamespace(workload=TableSpec(left, right, ()), write_result=str(folder)), fields


def test_the_types_of_the_files_come_back(tmp_path: Path) -> None:
    files = pa.table({name: pa.array(values, kind) for name, (kind, values) in STORED.items()})
    travels = canonical(files)
    plan, fields = plan_of(tmp_path, **{name: kind for name, (kind, _) in STORED.items()})
    path = verification.write_result_part(plan, 3, [travels.slice(0, 1), travels.slice(1)], fields)
    assert path.name == "part-00003.parquet"
    found = pq.read_table(path)
    assert found.to_pylist() == files.to_pylist()
    wanted = {name: kind for name, (kind, _) in STORED.items()}
    # All files together can have more values than indices of 8 bits count; Parquet has one type for dates.
    wanted |= {"dictionary": pa.dictionary(pa.int32(), pa.string()), "date64": pa.date32()}
    assert {field.name: field.type for field in found.schema} == wanted
    assert pa.concat_tables(verification.read_result_part(path, fields)).equals(travels)


def test_identifiers_are_identifiers_again(tmp_path: Path) -> None:
    values = [UUID(int=5).bytes, None, b"\xff" * 16]
    travels = pa.table({name: pa.array(values, pa.large_binary()) for name in ("uuid", "fixed")})
    plan, fields = plan_of(tmp_path, uuid=pa.uuid(), fixed=pa.binary(16))
    path = verification.write_result_part(plan, 0, [travels], fields)
    found = pq.read_table(path)
    assert found.schema.types == [pa.uuid(), pa.binary(16)]
    assert found["uuid"].cast(pa.binary(16)).to_pylist() == found["fixed"].to_pylist() == values
    assert pa.concat_tables(verification.read_result_part(path, fields)).equals(travels)


def test_dictionaries_of_several_files_can_have_more_values_than_one(tmp_path: Path) -> None:
    plan, fields = plan_of(tmp_path, c=pa.dictionary(pa.int8(), pa.string()))
    travels = pa.table({"c": pa.array(map(str, range(300)), pa.large_string())})
    path = verification.write_result_part(plan, 0, [travels], fields)
    assert pq.read_table(path)["c"].to_pylist() == travels["c"].to_pylist()


def test_no_rows_are_a_file_without_rows(tmp_path: Path) -> None:
    plan, fields = plan_of(tmp_path, a=pa.int8())
    path = verification.write_result_part(plan, 0, [], fields)
    assert pq.read_table(path).schema.names == ["a"]
    assert list(verification.read_result_part(path, fields)) == []


def test_only_a_new_or_an_empty_folder_is_taken(tmp_path: Path) -> None:
    verification.make_result_parts_folder(str(tmp_path / "a" / "b"))
    verification.make_result_parts_folder(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "file").touch()
    for bad in ("a", "a/file", "a/file/below"):
        with pytest.raises(UsageError) as caught:
            verification.make_result_parts_folder(str(tmp_path / bad))
        assert str(tmp_path / bad) in str(caught.value)


def test_nothing_is_written_over_or_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "part-00000.parquet").symlink_to(target)
    plan, fields = plan_of(tmp_path, a=pa.int64())
    with pytest.raises(RunFailed):
        verification.write_result_part(plan, 0, [], fields)
    assert not target.exists()


def test_a_part_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield pa.table({"a": [1]})
        raise OSError(28, "No space left on device")

    plan, fields = plan_of(tmp_path, a=pa.int64())
    with pytest.raises(RunFailed, match="No space left"):
        verification.write_result_part(plan, 0, pieces(), fields)
    assert list(tmp_path.iterdir()) == []
