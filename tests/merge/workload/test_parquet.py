"""One table out of files whose columns, types and partitions differ."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.workload import parquet
from merge_bench.merge.workload.parquet import read_footers
from merge_bench.merge.workload.tables import BINARY_KEYS, FILES_LEFT_OUT, cast_to_file_types, load_chunk
from tests.merge.workload.parquet_samples import plan, to_arrow, write


def parts(folder: Path, *tables: pa.Table | dict[str, Any], **options: Any) -> Path:
    """A folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables):
        write(folder / f"{number}.parquet", pa.table(table) if isinstance(table, dict) else table, **options)
    return folder


def loaded(folder: Path, key: str = "id", **options: Any) -> dict[str, list[Any]]:
    """The left table as one worker loads it, columns by their own names."""
    one = write(folder.parent / "one.parquet", pa.table({key: pa.array([], read_type(folder, key))}))
    spec = plan(folder, one, key, workers=1, **options)
    names = {column.field.name: column.source for column in spec.left.columns}
    return {names[name]: values for name, values in to_arrow(load_chunk(spec, 0)[0]).to_pydict().items()}


def read_type(folder: Path, key: str) -> pa.DataType:
    return next(column.type for column in read_footers(str(folder)).columns if column.name == key)


def refusal(path: Path, *more: Any, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        plan(path, path, "id", *more, **options)
    return str(caught.value)


UNIFIED: dict[str, tuple[pa.Array, pa.Array, pa.DataType]] = {
    "null first": (pa.nulls(1), pa.array(["a"]), pa.large_string()),
    "null last": (pa.array([1.5]), pa.nulls(1), pa.float64()),
    "widths": (pa.array([1], pa.int8()), pa.array([2**40]), pa.int64()),
    "signs": (pa.array([1], pa.uint32()), pa.array([-1], pa.int8()), pa.int64()),
    "gaps": (pa.array([2**53]), pa.array([None, 0.5]), pa.float64()),
    "dictionary": (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.large_string()),
    "bytes": (pa.array([b"\xff"]), pa.array(["b"]), pa.large_binary()),
    "units": (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("us")), pa.timestamp("us")),
    "decimals": (pa.array([Decimal("1.5")]), pa.array([Decimal("12.25")]), pa.decimal128(4, 2)),
}


@pytest.mark.parametrize("kind", UNIFIED)
def test_types_of_parts_are_unified_and_said(tmp_path: Path, kind: str) -> None:
    one, other, wanted = UNIFIED[kind]
    tables = [pa.table({"id": range(len(values)), "x": values}) for values in (one, other)]
    folder = parts(tmp_path / "t", *tables)
    found = read_footers(str(folder))
    assert [column.type for column in found.columns] == [pa.int64(), wanted]
    assert loaded(folder)["x"] == pa.concat_arrays([one.cast(wanted), other.cast(wanted)]).to_pylist()
    assert [each.code for each in found.cautions] == [] if kind == "dictionary" else [parquet.PARTS_DIFFER]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1]), pa.array(["a"])),
        (pa.array([True]), pa.array([1])),
        (pa.array([Decimal("0.1")]), pa.array([0.1])),
        (pa.array([Decimal("9" * 38)]), pa.array([Decimal("0." + "1" * 38)])),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
        (pa.array([2**53 + 1]), pa.array([0.5])),
        (pa.array([-(2**53) - 1]), pa.array([0.5], pa.float32())),
    ],
)
def test_types_whose_unification_would_lose_values_are_refused(tmp_path: Path, one: pa.Array, other: pa.Array) -> None:
    folder = parts(tmp_path / "t", {"id": [1], "x": one}, {"id": [1], "x": other})
    said = refusal(folder)
    assert "column 'x'" in said
    assert str(folder / "0.parquet") in said
    assert "--columns" in said


def test_without_statistics_a_value_that_would_be_rounded_is_refused_when_it_is_read(tmp_path: Path) -> None:
    folder = parts(tmp_path / "t", {"id": [1], "x": [2**53 + 1]}, {"id": [1], "x": [0.5]}, write_statistics=False)
    with pytest.raises(UsageError, match=r"0\.parquet: column 'x' has a value that does not fit double"):
        load_chunk(plan(folder, folder, "id", workers=1), 0)


def test_a_column_that_only_some_parts_have_is_null_in_the_others(tmp_path: Path) -> None:
    folder = parts(tmp_path / "t", {"id": [1]}, {"extra": ["a"], "id": [2]}, {"id": [3]})
    found = read_footers(str(folder))
    assert [(column.name, column.nullable) for column in found.columns] == [("id", False), ("extra", True)]
    assert loaded(folder) == {"id": [1, 2, 3], "extra": [None, "a", None]}
    assert "column 'extra' is missing in 2 of 3 files" in found.cautions[0].message


def test_a_column_without_values_travels(tmp_path: Path) -> None:
    folder = parts(tmp_path / "t", {"id": [1, 2], "x": pa.nulls(2)})
    assert loaded(folder) == {"id": [1, 2], "x": [None, None]}
    strings = parts(tmp_path / "s", {"id": ["a"], "x": ["b"]})
    spec = plan(folder, strings, "x", workers=1)
    assert [side.columns[1].field.type for side in (spec.left, spec.right)] == [pa.large_string()] * 2
    assert to_arrow(load_chunk(spec, 0)[0])["x"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    "values", [["eu", "us"], ["1", "-2"], ["01", "2"], ["1", "3000000000"], ["1", "+2"], ["2", "x"]]
)
def test_partitions_have_the_types_that_pyarrow_infers(tmp_path: Path, values: list[str]) -> None:
    folder = tmp_path / "t"
    for number, value in enumerate((*values, "__HIVE_DEFAULT_PARTITION__")):
        parts(folder / f"k={value}", {"id": [number]})
    known = ds.dataset(str(folder), format="parquet", partitioning="hive").to_table().sort_by("id").to_pydict()
    found = loaded(folder)
    assert dict(sorted(zip(found["id"], found["k"], strict=True))) == dict(zip(known["id"], known["k"], strict=True))


def test_a_partition_is_a_key_or_payload_as_any_column(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for number, value in enumerate(("eu", "us")):
        parts(folder / f"region={value}", {"id": [number, number]})
    parts(folder / "plain", {"id": [7]})
    bosses = parts(tmp_path / "b", {"region": ["us"], "boss": ["x"]})
    spec = plan(folder, bosses, "region", workers=2)
    rows = [to_arrow(load_chunk(spec, rank)[0]) for rank in range(2)]
    assert sorted(map(str, pa.concat_tables(rows)["region"].to_pylist())) == ["None", "eu", "eu", "us", "us"]
    assert [column.source for column in spec.left.columns] == ["id", "region"]


def test_a_partition_that_is_also_a_column_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    folder = parts(tmp_path / "t" / "x=1", {"id": [1], "x": [2], "y": [3]}).parent
    assert "'x' is a column of the files" in refusal(folder)
    assert loaded_columns(plan(folder, folder, "id", columns=["y"])) == ["id", "y"]


def loaded_columns(spec: Any) -> list[str]:
    return [column.source for column in spec.left.columns]


def test_columns_keeps_payload_by_name_and_the_keys(tmp_path: Path) -> None:
    nested = {"s": [{"a": 1, "b": [1]}], "id": [1], "a,b": [2], " x": ["y"], "a.b": [3], "": [4]}
    path = write(tmp_path / "n.parquet", pa.table(nested))
    other = write(tmp_path / "o.parquet", pa.table({"id": [1], " x": ["z"]}))
    said = refusal(path)
    assert said.startswith(f"{path}: column 's' has type struct<")
    assert "--columns" in said
    spec = plan(path, other, "id", columns=["a,b", " x", ""], workers=1)
    assert loaded_columns(spec) == ["id", "a,b", " x", ""]
    assert to_arrow(load_chunk(spec, 0)[0]).to_pydict() == {"id": [1], "a,b": [2], " x_left": ["y"], "": [4]}
    assert not spec.left.columns[0].field.nullable
    with pytest.raises(UsageError, match="--columns names 'nope'"):
        plan(path, other, "id", columns=["nope"])


EXTENSIONS: dict[str, tuple[pa.DataType, list[Any], pa.DataType]] = {
    "uuid": (pa.uuid(), [b"0123456789abcdef", None], pa.large_binary()),
    "json": (pa.json_(), ['{"a": 1}', None], pa.large_string()),
    "bool8": (pa.bool8(), [1, None], pa.int8()),
    "unknown": (pa.opaque(pa.int32(), "odd", "vendor"), [5, None], pa.int32()),
    "fixed": (pa.binary(4), [b"abcd", None], pa.large_binary()),
}


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_extension_types_travel_as_what_they_are_stored_as(tmp_path: Path, kind: str) -> None:
    arrow_type, values, travels = EXTENSIONS[kind]
    array = pa.array(values, getattr(arrow_type, "storage_type", arrow_type))
    if isinstance(arrow_type, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(arrow_type, array)
    path = write(tmp_path / "t.parquet", pa.table({"id": [1, 2], "x": array}))
    for key, payload in (("id", "x"), ("x", "id")):
        spec = plan(path, path, key, workers=1)
        column = next(each for each in spec.left.columns if each.source == "x")
        kept = pq.read_schema(path).field("x").type
        assert (column.field.type, column.stored) == (travels, None if kept == travels else kept)
        rows = to_arrow(load_chunk(spec, 0)[0])
        assert rows[column.field.name].to_pylist() == values
        assert cast_to_file_types(spec, rows)[column.field.name].type == kept
        assert payload in {each.source for each in spec.left.columns}


def test_a_uuid_is_no_key_beside_text_but_binary_is(tmp_path: Path) -> None:
    text = write(tmp_path / "s.parquet", pa.table({"id": ["a"]}))
    uuid = write(tmp_path / "u.parquet", pa.table({"id": pa.array([b"0" * 16], pa.uuid())}))
    binary = write(tmp_path / "b.parquet", pa.table({"id": [b"a"]}))
    with pytest.raises(UsageError, match="cannot be compared exactly"):
        plan(text, uuid, "id")
    spec = plan(text, binary, "id", workers=1)
    assert [each.code for each in spec.warnings] == [BINARY_KEYS]
    assert [to_arrow(frame)["id"].to_pylist() for frame in load_chunk(spec, 0)] == [[b"a"], [b"a"]]


def test_int96_times_far_from_now_are_right(tmp_path: Path) -> None:
    far = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), dt.datetime(2024, 1, 1, 12, 34, 56, 789)]
    table = pa.table({"id": pa.array(far, pa.timestamp("us"))})
    path = write(tmp_path / "t.parquet", table, use_deprecated_int96_timestamps=True)
    spec = plan(path, path, "id", workers=1)
    assert spec.left.fields[0].type == pa.timestamp("us")
    assert to_arrow(load_chunk(spec, 0)[0])["id"].to_pylist() == far
    assert [each.code for each in spec.warnings] == [parquet.INT96] * 2


def test_damaged_pages_fail_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"id": range(1000)}), write_page_checksum=True, compression="none")
    spec = plan(path, path, "id", workers=1)
    damaged = bytearray(path.read_bytes())
    damaged[2000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(RunFailed, match=rf"^{path} cannot be read: ") as caught:
        load_chunk(spec, 0)
    assert caught.value.exit_status == 3


def test_what_was_left_out_is_said_and_recorded(tmp_path: Path) -> None:
    folder = parts(tmp_path / "t", {"id": [1]}, {"id": [2]})
    (folder / "_SUCCESS").touch()
    spec = plan(folder, folder / "0.parquet", "id", workers=1)
    (caution,) = spec.warnings
    assert caution.code == FILES_LEFT_OUT
    assert "read 2 of 3 files of the left table" in caution.message
    assert spec.to_json()["left"]["left_out"] == [{"reason": "hidden", "count": 1, "names": ["_SUCCESS"]}]


def test_a_fingerprint_is_of_what_a_table_is_and_not_of_its_name(tmp_path: Path) -> None:
    rows = [{"id": [1, 2], "x": [0.5, 1.5]}, {"id": [3], "x": [2.5]}]
    one = parts(tmp_path / "a", *rows)
    known = read_footers(str(one)).fingerprint
    assert read_footers(f"{tmp_path}/../{tmp_path.name}/a/*.parquet").fingerprint == known
    assert read_footers(str(parts(tmp_path / "copy", *reversed(rows)))).fingerprint == known
    assert read_footers(str(parts(tmp_path / "other", rows[0], {"id": [4], "x": [2.5]}))).fingerprint != known
    assert read_footers(str(parts(tmp_path / "fewer", rows[0]))).fingerprint != known
    parts(tmp_path / "p" / "k=1", *rows)
    parts(tmp_path / "q" / "k=2", *rows)
    assert len({known, *(read_footers(str(tmp_path / name)).fingerprint for name in "pq")}) == 3
