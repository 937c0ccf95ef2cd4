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
from merge_bench.merge import written_result
from merge_bench.merge.frame import Frame, canonical_type
from merge_bench.merge.how import How
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


def plan_of(columns: tuple[TableColumn, ...], keys: tuple[str, ...] = ()) -> Any:
    left, right = (TableSide("t", (), each, ((),), (0,)) for each in (columns, ()))
    return SimpleNamespace(workload=TableSpec(left, right, keys), how=How.INNER, keys=keys)


def stored_tables() -> tuple[pa.Table, pa.Table, tuple[TableColumn, ...]]:
    """As in the files, as it travels, and the columns of its plan."""
    files = pa.table({name: pa.array(values, kind) for name, (kind, values) in STORED.items()})
    travels = canonical(files)
    fields = Frame.from_arrow(travels).fields
    return files, travels, tuple(TableColumn(f.name, f, STORED[f.name][0]) for f in fields)


def test_the_types_of_the_files_come_back(tmp_path: Path) -> None:
    files, travels, columns = stored_tables()
    fields = tuple(column.field for column in columns)
    schema = written_result.stored_schema(plan_of(columns), (fields, ()))
    path = written_result.write_part(str(tmp_path), 3, [travels.slice(0, 1), travels.slice(1)], schema)
    assert path.name == "part-00003.parquet"
    found = pq.read_table(path)
    assert found.to_pylist() == files.to_pylist()
    # Parquet has no wide offsets in dictionaries, and one type for dates.
    wanted = {name: kind for name, (kind, _) in STORED.items()}
    wanted |= {"string": pa.large_string(), "dictionary": pa.dictionary(pa.int32(), pa.string())}
    wanted |= {"date64": pa.date32()}
    assert {field.name: field.type for field in found.schema} == wanted
    assert pa.concat_tables(written_result.read_part(path, fields)).equals(travels)


@pytest.mark.parametrize("storage", [pa.uuid(), pa.binary(16)])
def test_identifiers_are_identifiers_again(tmp_path: Path, storage: pa.DataType) -> None:
    values = [UUID(int=5).bytes, None, b"\xff" * 16]
    travels = pa.table({"id": pa.array(values, pa.large_binary())})
    kind = storage.storage_type if isinstance(storage, pa.BaseExtensionType) else storage
    assert written_result._under(travels["id"], storage).type == storage
    path = written_result.write_part(str(tmp_path), 0, [travels], pa.schema([("id", storage)]))
    found = pq.read_table(path)
    assert found.schema.field("id").type == storage
    assert found["id"].cast(kind).to_pylist() == values
    again = pa.concat_tables(written_result.read_part(path, Frame.from_arrow(travels).fields))
    assert again.equals(travels)


def test_a_key_that_was_cast_keeps_its_type() -> None:
    """The left key was narrower than the right one: rows that only the right table has would not fit it."""
    assert canonical_type(pa.int32(), "") != pa.int64()
    (field,) = Frame.from_arrow(pa.table({"id": [1]})).fields
    schema = written_result.stored_schema(plan_of((TableColumn("id", field, pa.int32()),), ("id",)), ((field,), ()))
    assert schema.field("id").type == pa.int64()


def test_no_rows_are_a_file_without_rows(tmp_path: Path) -> None:
    path = written_result.write_part(str(tmp_path), 0, [], pa.schema([("a", pa.int64())]))
    assert pq.read_table(path).schema.names == ["a"]
    assert (
        list(written_result.read_part(path, Frame.from_arrow(pa.table({"a": pa.array([], pa.int64())})).fields)) == []
    )


def test_only_a_new_or_an_empty_folder_is_taken(tmp_path: Path) -> None:
    written_result.make_folder(str(tmp_path / "a" / "b"))
    written_result.make_folder(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "file").touch()
    for bad in ("a", "a/file", "a/file/below"):
        with pytest.raises(UsageError) as caught:
            written_result.make_folder(str(tmp_path / bad))
        assert str(tmp_path / bad) in str(caught.value)


def test_nothing_is_written_over_or_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "part-00000.parquet").symlink_to(target)
    with pytest.raises(RunFailed):
        written_result.write_part(str(tmp_path), 0, [], pa.schema([("a", pa.int64())]))
    assert not target.exists()


def test_a_part_that_cannot_be_written_whole_is_not_there(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield pa.table({"a": [1]})
        raise OSError(28, "No space left on device")

    with pytest.raises(RunFailed, match="No space left"):
        written_result.write_part(str(tmp_path), 0, pieces(), pa.schema([("a", pa.int64())]))
    assert list(tmp_path.iterdir()) == []
