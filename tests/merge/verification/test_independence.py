"""What a reader or a list of files shared with the engines would hide, and the proof finds by itself.

Each test takes a right plan and spoils what the engines read: their list of files, or their values.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.campaign.machine_checks import check_tables_fit
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.frame import make_field
from merge_bench.merge.verification import duckdb_reference
from merge_bench.merge.workload.tables import TableColumn, TableSide, TableSpec
from tests.merge.workload.parquet_samples import plan, write


@pytest.fixture
def spec(tmp_path: Path) -> TableSpec:
    """Two files of 10 rows each, joined with 100 rows on `k`."""
    folder = tmp_path / "left"
    folder.mkdir()
    for part in range(2):
        write(folder / f"part-{part}.parquet", rows(10 * part))
    return plan(folder, write(tmp_path / "right.parquet", pa.table({"k": range(100), "b": range(100)})), "k")


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"k": range(first, first + count), "a": range(count)})


def without(side: TableSide, name: str) -> TableSide:
    """A side whose plan lacks a file of 10 rows."""
    chunks = tuple(tuple(group for group in chunk if not group[0].endswith(name)) for chunk in side.chunks)
    files = tuple(file for file in side.files if not file.endswith(name))
    return replace(side, files=files, chunks=chunks, chunk_rows=tuple(10 * len(chunk) for chunk in chunks))


def with_file(side: TableSide, file: Path, count: int = 10) -> TableSide:
    """A side whose plan has one more file with one row group."""
    chunks = ((*side.chunks[0], (str(file), 0)), *side.chunks[1:])
    return replace(
        side,
        files=(*side.files, str(file)),
        chunks=chunks,
        chunk_rows=(side.chunk_rows[0] + count, *side.chunk_rows[1:]),
    )


def assert_refused(spec: TableSpec, *words: str) -> None:
    """Before the run and in the proof itself; with the names of the files that differ."""
    for ask in (lambda: check_tables_fit(spec, 2, 1 << 40), lambda: duckdb_reference.compute_expected_result(spec)):
        with pytest.raises(UsageError, match=r"cannot be read whole: [^\n]*$") as caught:
            ask()
        assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "name",
    [
        "part-1.PARQUET",
        "part-1.parq",
        "part-1.parquet.snappy",
        "000001_0",
        "below/part-1.parquet",
        "2026-01.parquet/part-0.snappy.parquet",
        "what's %41*[1].parquet",
        os.fsdecode(b"caf\xe9.parquet"),
    ],
)
def test_files_that_a_list_by_ending_lacks(spec: TableSpec, name: str) -> None:
    """Other endings, folders, folders that are called like files, names that are patterns or no text."""
    added = Path(spec.left.path, name)
    added.parent.mkdir(exist_ok=True)
    write(made := added.with_name("written"), rows(50))
    made.rename(added)
    assert_refused(spec, "20 rows in 2 file(s)", "30 rows in 3 file(s)", "the plan lacks ")
    whole = replace(spec, left=with_file(spec.left, added))
    check_tables_fit(whole, 2, 1 << 40)
    assert duckdb_reference.compute_expected_result(whole)[0] == 30


def test_a_part_that_is_a_link(spec: TableSpec, tmp_path: Path) -> None:
    blob = write(tmp_path / "blob", rows(50))
    Path(spec.left.path, "part-2.parquet").symlink_to(blob)
    assert_refused(spec, "30 rows in 3 file(s)", "part-2.parquet")


def test_a_file_left_out_of_the_list(spec: TableSpec) -> None:
    assert_refused(replace(spec, left=without(spec.left, "part-1.parquet")), "10 rows in 1 file(s)", "part-1.parquet")


def test_a_row_group_planned_twice_and_one_never(spec: TableSpec) -> None:
    first = spec.left.chunks[0][0]
    assert_refused(replace(spec, left=replace(spec.left, chunks=((first,), (first,)))), "planned twice: ")


@pytest.mark.parametrize("name", [".part-2.parquet", "_part-2.parquet", "_temporary/0/part-2.parquet"])
def test_hidden_copies_in_the_list(spec: TableSpec, name: str) -> None:
    hidden = Path(spec.left.path, name)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    write(hidden, rows(10))
    assert duckdb_reference.compute_expected_result(spec)[0] == 20
    assert_refused(replace(spec, left=with_file(spec.left, hidden)), "20 rows in 2 file(s)", "only the plan has ", name)


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie", "metadata/v3.metadata.json"])
def test_tables_whose_log_says_which_files_count(spec: TableSpec, log: str) -> None:
    path = Path(spec.left.path, log)
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}") if path.suffix else path.mkdir()
    with pytest.raises(UsageError, match="log"):
        check_tables_fit(spec, 2, 1 << 40)


@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("gone"), lambda path: path.symlink_to(path.name), os.mkfifo],
    ids=["dangling link", "link to itself", "pipe"],
)
def test_parts_that_cannot_be_read(spec: TableSpec, make: Callable[[Path], object]) -> None:
    make(Path(spec.left.path, "part-2.parquet"))
    with pytest.raises(UsageError, match=r"part-2\.parquet"):
        check_tables_fit(spec, 2, 1 << 40)


def test_hive_partitions_are_columns(spec: TableSpec, tmp_path: Path) -> None:
    """The plan of a table without partitions is given the column that folders hold: wrong values there are seen."""
    folder = tmp_path / "sales"
    for part, region in enumerate(("region=eu%20west", "region=__HIVE_DEFAULT_PARTITION__")):
        (folder / region).mkdir(parents=True)
        write(folder / region / "part-0", rows(10 * part))
    column = TableColumn("region", make_field("region", pa.large_string(), nullable=True))
    left = replace(
        spec.left,
        path=str(folder),
        files=tuple(str(file) for file in sorted(folder.rglob("part-0"))),
        columns=(*spec.left.columns, column),
        chunks=(((str(folder / "region=eu%20west/part-0"), 0),), ((str(sorted(folder.rglob("part-0"))[0]), 0),)),
    )
    found = pa.concat_tables(duckdb_reference.compute_expected_batches(replace(spec, left=left)))
    assert dict(zip(found["k"].to_pylist(), found["region"].to_pylist(), strict=True)) == {
        **dict.fromkeys(range(10), "eu west"),
        **dict.fromkeys(range(10, 20)),
    }
    wrong = found.set_column(found.schema.get_field_index("region"), "region", pa.array(["eu west"] * 20))
    whole = replace(spec, left=left)
    assert duckdb_reference.result_checksum(whole, wrong) != duckdb_reference.compute_expected_result(whole)[1]


def instants(folder: Path, name: str, *, int96: bool) -> Path:
    values = [dt.datetime(2024, 1, 1, 12, 34, 56), dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)]
    table = pa.table({"at": pa.array(values, pa.timestamp("us")), name: range(3)})
    return write(folder / f"{name}.parquet", table, use_deprecated_int96_timestamps=int96)


def in_microseconds(spec: TableSpec) -> TableSpec:
    """The plan with all timestamps in microseconds."""
    sides = []
    for side in (spec.left, spec.right):
        columns = tuple(
            replace(each, field=replace(each.field, type=pa.timestamp("us")))
            if pa.types.is_timestamp(each.field.type)
            else each
            for each in side.columns
        )
        sides.append(replace(side, columns=columns))
    return replace(spec, left=sides[0], right=sides[1])


def wrapped(microseconds: int) -> int:
    """What is left of an instant when 64 bits of nanoseconds hold it."""
    return ((microseconds * 1000 + 2**63) % 2**64 - 2**63) // 1000


def test_int96_times_that_wrap_in_a_shared_reader(tmp_path: Path) -> None:
    left, right = instants(tmp_path, "a", int96=True), instants(tmp_path, "b", int96=False)
    spec = in_microseconds(plan(left, right, "at"))
    assert duckdb_reference.count_result_rows(spec).rows == 3
    rows, checksum = duckdb_reference.compute_expected_result(spec)
    table = pa.concat_tables(duckdb_reference.compute_expected_batches(spec))
    assert (rows, checksum) == (3, duckdb_reference.result_checksum(spec, table))
    assert {value.year for value in table["at"].to_pylist()} == {1, 2024, 9999}
    ticks = [wrapped(value) for value in table["at"].cast(pa.int64()).to_pylist()]
    spoiled = table.set_column(0, "at", pa.array(ticks).cast(pa.timestamp("us")))
    assert duckdb_reference.result_checksum(spec, spoiled) != checksum
    assert duckdb_reference.compare_result_rows(spec, [spoiled]) is not None


def test_instants_that_wrapped_match_nothing(tmp_path: Path) -> None:
    """A plan in microseconds, beside a file that holds what wrapping left: only 2024 is in both."""
    left = instants(tmp_path, "a", int96=True)
    ticks = [wrapped(dt_ticks) for dt_ticks in (1704112496000000, 253402214400000000, -62135596800000000)]
    right = write(tmp_path / "r.parquet", pa.table({"at": pa.array(ticks).cast(pa.timestamp("us")), "b": range(3)}))
    assert duckdb_reference.count_result_rows(in_microseconds(plan(left, right, "at"))).rows == 1


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str], Path]:
    """A file with a damaged page in a column, whose footer is whole."""
    table = pa.table({"k": range(1000), "a": [f"value {n}" for n in range(1000)]})

    def damage(column: str) -> Path:
        path = write(tmp_path / "left.parquet", table, use_dictionary=False)
        place = pq.read_metadata(path).row_group(0).column(["k", "a"].index(column)).data_page_offset
        data = bytearray(path.read_bytes())
        data[place + 60 : place + 400] = b"\xff" * 340
        path.write_bytes(data)
        return path

    return damage


def test_damaged_keys_end_before_the_run(tmp_path: Path, damaged: Callable[[str], Path]) -> None:
    left = damaged("k")
    spec = plan(left, write(tmp_path / "r.parquet", pa.table({"k": range(10)})), "k")
    with pytest.raises(RunFailed, match=r"left\.parquet is damaged: column 'k' cannot be read: [^\n]*$"):
        check_tables_fit(spec, 2, 1 << 40)


def test_damaged_values_end_the_proof(tmp_path: Path, damaged: Callable[[str], Path]) -> None:
    left = damaged("a")
    spec = plan(left, write(tmp_path / "r.parquet", pa.table({"k": range(10)})), "k")
    assert duckdb_reference.count_result_rows(spec).rows == 10
    with pytest.raises(RunFailed, match=r"left\.parquet is damaged: column 'a' cannot be read: [^\n]*$"):
        duckdb_reference.compute_expected_result(spec)


def test_a_folder_for_temporary_files_whose_name_is_a_pattern_and_a_quote(
    spec: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "it's [a] *"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert duckdb_reference.compute_expected_result(spec)[0] == 20
    assert list(folder.iterdir()) == []


def test_statistics_that_leave_nan_out_are_not_believed(tmp_path: Path) -> None:
    """DuckDB took `isnan` for false where the file's least and greatest values are numbers, and matched NaN keys."""
    rng = np.random.default_rng(3)
    rows: dict[str, list[tuple[int, float]]] = {}
    for side, count in (("left", 900), ("right", 600)):
        keys = rng.integers(0, 500, count)
        parts = np.where(rng.random(count) < 0.1, np.nan, keys % 3)
        write(tmp_path / f"{side}.parquet", pa.table({"k": keys, "f": parts, side: keys}), row_group_size=200)
        rows[side] = [(int(key), float(part)) for key, part in zip(keys, parts, strict=True) if part == part]
    spec = plan(tmp_path / "left.parquet", tmp_path / "right.parquet", ["k", "f"])
    matches = Counter(rows["right"])
    assert duckdb_reference.count_result_rows(spec).rows == sum(matches[key] for key in rows["left"])
    found = pa.concat_tables(duckdb_reference.compute_expected_batches(spec))
    assert not np.isnan(found["f"].to_numpy()).any()
