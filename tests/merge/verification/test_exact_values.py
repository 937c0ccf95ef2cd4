"""Values that DuckDB's own types do not hold, or that Parquet stores in another form: exact, or refused by name."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.frame import arrow_schema, canonical_type, make_field
from merge_bench.merge.verification import duckdb_files, duckdb_reference
from merge_bench.merge.workload.tables import TableColumn, TableSide, TableSpec
from tests.merge.workload.parquet_samples import write

FAR = 2**62


def side(path: Path, table: pa.Table, types: dict[str, pa.DataType]) -> TableSide:
    """A hand-made plan of one file in one row group."""
    columns = [TableColumn(n, make_field(n, canonical_type(types[n], n), nullable=True)) for n in table.column_names]
    return TableSide(str(path), (str(path),), tuple(columns), (((str(path), 0),),), (table.num_rows,))


def spec_of(folder: Path, table: pa.Table, **options: Any) -> TableSpec:
    """A merge of a table of `k`, which numbers rows, and `v`, with the row numbers alone."""
    storage = {f.name: getattr(f.type, "storage_type", f.type) for f in table.schema}
    left = side(write(folder / "l.parquet", table, **options), table, storage)
    numbers = pa.table({"k": range(table.num_rows)})
    right = side(write(folder / "r.parquet", numbers), numbers, {"k": pa.int64()})
    return TableSpec(left, right, ("k",))


def strings(*values: bytes | None) -> pa.Array:
    """Text whose bytes need not be UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


VALUES: dict[str, pa.Array] = {
    "text that is no UTF-8": strings(b"caf\xe9", b"he\xffllo", None, b"\xf0\x9f\x98", b""),
    "microseconds at the ends": pa.array([FAR, -FAR, 2**63 - 1, -(2**63) + 1, -(2**63), None], pa.timestamp("us")),
    "nanoseconds at the ends": pa.array([2**63 - 1, -(2**63) + 1, -(2**63), None], pa.timestamp("ns")),
    "zoned nanoseconds": pa.array([1_700_000_000_000_000_001, 2**63 - 1, None], pa.timestamp("ns", "UTC")),
    "milliseconds beyond microseconds": pa.array([FAR, -FAR, 2**63 - 1, None], pa.timestamp("ms", "UTC")),
    "days at the ends": pa.array([2**31 - 1, -(2**31), -(2**31) + 1, None], pa.int32()).cast(pa.date32()),
    "times of more than a day": pa.array([86_400_000, -1, 2**31 - 1, None], pa.int32()).cast(pa.time32("ms")),
    "times in microseconds": pa.array([FAR, 86_399_999_999, None], pa.time64("us")),
    "times in nanoseconds": pa.array([FAR, -1, 86_399_999_999_999, None], pa.time64("ns")),
    "durations": pa.array([FAR, -FAR, None], pa.duration("ms")),
    "UUIDs": pa.array([uuid.UUID(int=2**127 + 1).bytes, bytes(16), None], pa.uuid()),
    "JSON": pa.array(['{"a": 1}', "null", None], pa.json_()),
    "bytes of one width": pa.array([b"\xff\0\1", b"abc", None], pa.binary(3)),
    "one byte a truth": pa.array([1, 0, None], pa.bool8()),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    values = VALUES[kind]
    table = pa.table({"k": range(len(values)), "v": values})
    spec = spec_of(tmp_path, table)
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    wanted = table.set_column(1, "v", storage.cast(pa.binary()) if pa.types.is_string(storage.type) else storage)
    assert duckdb_reference.compare_result_rows(spec, [in_types(spec, wanted)]) is None
    assert duckdb_reference.compute_expected_result(spec) == (
        len(values),
        duckdb_reference.result_checksum(spec, in_types(spec, wanted)),
    )


def in_types(spec: TableSpec, table: pa.Table) -> pa.Table:
    columns = []
    output = JoinKind.INNER.output_fields(spec.left.fields, spec.right.fields, spec.keys)
    for field in output:
        column = table[field.name].combine_chunks()
        if pa.types.is_large_string(field.type):
            columns.append(column.cast(pa.large_binary()).view(field.type))
        else:
            columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=arrow_schema(output))


def test_keys_that_are_no_text_match_by_their_bytes(tmp_path: Path) -> None:
    keys = strings(b"caf\xe9", b"he\xffllo", b"plain", None)
    left, right = pa.table({"k": keys, "a": range(4)}), pa.table({"k": keys[::-1], "b": range(4)})
    spec = TableSpec(
        side(write(tmp_path / "l.parquet", left), left, {"k": pa.string(), "a": pa.int64()}),
        side(write(tmp_path / "r.parquet", right), right, {"k": pa.string(), "b": pa.int64()}),
        ("k",),
    )
    assert duckdb_reference.count_result_rows(spec).rows == duckdb_reference.compute_expected_result(spec)[0] == 3


def test_bytes_beside_text(tmp_path: Path) -> None:
    left, right = pa.table({"k": pa.array([b"a", b"\xff"])}), pa.table({"k": ["a", "b"]})
    kind = {"k": pa.binary()}
    spec = TableSpec(
        side(write(tmp_path / "l.parquet", left), left, kind),
        side(write(tmp_path / "r.parquet", right), right, kind),
        ("k",),
    )
    assert duckdb_reference.compute_expected_result(spec)[0] == 1


def test_int96_is_read_in_microseconds(tmp_path: Path) -> None:
    instants = [dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1), None, dt.datetime(1969, 12, 31, 23, 59, 59, 5)]
    table = pa.table({"k": range(4), "v": pa.array(instants, pa.timestamp("us"))})
    spec = spec_of(tmp_path, table, use_deprecated_int96_timestamps=True)
    assert duckdb_reference.compare_result_rows(spec, [table]) is None


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**63 - 1]), pa.float64()),
        (pa.array([300]), pa.int8()),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("ms")),
        (pa.array([FAR], pa.timestamp("us")), pa.timestamp("ns")),
    ],
)
def test_a_value_that_the_common_type_does_not_hold_is_refused(
    tmp_path: Path, stored: pa.Array, wanted: pa.DataType
) -> None:
    table = pa.table({"k": [0], "v": stored})
    left = side(write(tmp_path / "l.parquet", table), table, {"k": pa.int64(), "v": wanted})
    right = side(write(tmp_path / "r.parquet", table), table.select(["k"]), {"k": pa.int64()})
    with pytest.raises(UsageError, match=r"l\.parquet: column 'v' has a value that does not fit"):
        duckdb_reference.compute_expected_result(TableSpec(left, right, ("k",)))


def test_types_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    table = pa.table({"k": [0], "v": [1.5]})
    left = side(write(tmp_path / "l.parquet", table), table, {"k": pa.int64(), "v": pa.decimal128(9, 2)})
    right = side(write(tmp_path / "r.parquet", table), table.select(["k"]), {"k": pa.int64()})
    with pytest.raises(UsageError, match="column 'v', stored as DOUBLE"):
        duckdb_reference.compute_expected_result(TableSpec(left, right, ("k",)))


def test_columns_of_any_names_and_nested_ones_beside_them(tmp_path: Path) -> None:
    names = ["k", "K", "v", "V", 'a"b', "filename", "file0", "select", "ü.x"]
    table = pa.table({name: [number] for number, name in enumerate(names)} | {"s": [{"k": 1, "t": [{"u": 2}]}]})
    flat = table.select(names)
    left = side(write(tmp_path / "l.parquet", table.select(["s", *names])), flat, dict.fromkeys(names, pa.int64()))
    right = side(write(tmp_path / "r.parquet", flat), flat.select(["k"]), {"k": pa.int64()})
    assert duckdb_reference.compare_result_rows(TableSpec(left, right, ("k",)), [flat]) is None


def test_a_raw_copy_has_the_pages_and_no_types(tmp_path: Path) -> None:
    table = pa.table({"t": strings(b"\xff", b"x"), "at": pa.array([1, 2], pa.timestamp("us")), "n": pa.array([1, 2])})
    source, target = write(tmp_path / "a.parquet", table, 1), tmp_path / "raw.parquet"
    duckdb_files.copy_without_logical_types(str(source), str(target), ["t", "at"])
    with duckdb.connect() as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(target)]).fetchall()
    assert found == [(b"\xff", 1, 1), (b"x", 2, 2)]
    assert pq.read_metadata(target).num_row_groups == 2


def test_units_of_durations_come_from_arrows_schema() -> None:
    schema = pa.schema([("a", pa.duration("ns")), ("b", pa.int64())])
    assert duckdb_files.read_duration_units(base64.b64encode(schema.serialize())) == {"a": "ns"}
