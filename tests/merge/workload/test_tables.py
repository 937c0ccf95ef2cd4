"""Planning from footers, and reading each worker's row groups."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.frame import canonical_type
from merge_bench.merge.workload.parquet import RowGroup, read_footers
from merge_bench.merge.workload.tables import assign_row_groups, load_chunk, plan_tables
from tests.helpers.examples import examples
from tests.merge.workload.parquet_samples import VALUES, column, plan, to_arrow, two_tables, write


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    """A file with one int64 column `id` in three row groups."""
    return write(tmp_path / "ids.parquet", pa.table({"id": list(range(10))}), 4)


def refusal(left: Path, right: Path, on: str, right_on: str | None = None, engine: str = "polars") -> str:
    with pytest.raises(UsageError) as caught:
        plan(left, right, on, right_on, engine=engine)
    assert caught.value.exit_status == 2
    return str(caught.value)


# Which rows a worker gets


@given(sizes=st.lists(st.integers(0, 1000), max_size=40), workers=st.integers(1, 20))
def test_every_row_group_goes_to_one_worker(sizes: list[int], workers: int) -> None:
    groups = [RowGroup(f"f{i % 3}", i, size) for i, size in enumerate(sizes)]
    chunks = assign_row_groups(groups, workers)
    assert len(chunks) == workers
    assert sorted(g.index for chunk in chunks for g in chunk) == list(range(len(sizes)))
    loads = [sum(g.rows for g in chunk) for chunk in chunks]
    assert max(loads) - min(loads) <= max(sizes, default=0)


@examples(30)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12), workers=st.integers(1, 5), files=st.integers(1, 3))
def test_chunks_cover_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], workers: int, files: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    schema, start = pa.schema([("id", pa.int64())]), 0
    for part in range(files):
        with pq.ParquetWriter(folder / f"{part}.parquet", schema) as writer:
            for size in sizes[part::files]:
                writer.write_table(pa.table({"id": range(start, start + size)}, schema=schema))
                start += size
    spec = plan(folder, folder, "id", workers=workers)
    loaded = [load_chunk(spec, rank)[0] for rank in range(workers)]
    assert tuple(frame.rows for frame in loaded) == spec.left.chunk_rows
    assert sorted(np.concatenate([f.columns[0].values for f in loaded]).tolist()) == list(range(sum(sizes)))
    assert spec.left.rows == sum(sizes)


def test_rows_are_balanced(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"id": list(range(100))}), 10)
    assert plan(path, path, "id", workers=4).left.chunk_rows == (30, 30, 20, 20)


def test_a_worker_reads_only_its_row_groups(ids: Path) -> None:
    """All others of the file are damaged, so that who reads them fails."""
    spec = plan(ids, ids, "id", workers=2)
    own = {index for _, index in spec.left.chunks[1]}
    footer, content = pq.read_metadata(ids), bytearray(ids.read_bytes())
    assert 0 < len(own) < footer.num_row_groups
    for index in set(range(footer.num_row_groups)) - own:
        column = footer.row_group(index).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    ids.write_bytes(content)
    left, right = load_chunk(spec, 1)
    assert left.rows == right.rows == sum(footer.row_group(index).num_rows for index in own)
    with pytest.raises(RunFailed, match=r"is damaged|cannot be read"):
        load_chunk(spec, 0)


def test_fewer_row_groups_than_workers_is_a_warning(ids: Path) -> None:
    spec = plan(ids, ids, "id", workers=5)
    assert spec.left.chunk_rows == (4, 4, 2, 0, 0)
    assert [w.code for w in spec.warnings] == ["few-row-groups", "few-row-groups"]
    assert spec.warnings[0].message == (
        f"the left table {ids} has only 3 row groups for 5 workers, so 2 of them start without rows"
    )
    left, right = load_chunk(spec, 4)
    assert (left.rows, right.rows, left.fields) == (0, 0, load_chunk(spec, 0)[0].fields)


def test_empty_tables_and_empty_row_groups(tmp_path: Path, ids: Path) -> None:
    empty = write(
        tmp_path / "empty.parquet", pa.table({"id": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    )
    spec = plan(empty, ids, "id")
    assert (spec.left.rows, spec.left.chunks) == (0, ((), ()))
    assert [(each.code, "left table" in each.message) for each in spec.warnings] == [("empty-table", True)]
    left, right = load_chunk(spec, 0)
    assert left.rows == 0
    assert right.rows > 0


# Values


def test_load_chunk_keeps_every_value(tmp_path: Path) -> None:
    table = pa.table({kind: column(kind, 50, number) for number, kind in enumerate(VALUES)})
    path = write(tmp_path / "all.parquet", table, 9)
    spec = plan(path, path, "int64", workers=3)
    loaded = pa.concat_tables([to_arrow(load_chunk(spec, rank)[0]) for rank in range(3)])
    groups = [index for chunk in spec.left.chunks for _, index in chunk]
    assert groups != sorted(groups)
    stored = pa.concat_tables([table.slice(index * 9, 9) for index in groups])
    for kind, name in zip(VALUES, loaded.column_names, strict=True):
        wanted = stored[kind].cast(canonical_type(table[kind].type, kind)).combine_chunks()
        got = loaded[name].combine_chunks()
        assert got.type == wanted.type
        if pa.types.is_floating(got.type):  # to the bit, NaN and both zeros included
            bits = pa.int32() if kind == "float" else pa.int64()
            got, wanted = got.view(bits), wanted.view(bits)
        assert got.equals(wanted), kind


def test_all_workers_have_the_same_fields(tmp_path: Path) -> None:
    """One worker's rows hold nulls, the other's do not."""
    path = write(tmp_path / "t.parquet", pa.table({"id": [1, 2, None, 4], "s": ["a", "b", "c", "d"]}), 2)
    spec = plan(path, path, "id")
    frames = [load_chunk(spec, rank)[0] for rank in range(2)]
    assert frames[0].fields == frames[1].fields == spec.left.fields
    assert [f.nullable for f in spec.left.fields] == [True, False]
    assert [None if f.columns[0].valid is None else f.columns[0].valid.tolist() for f in frames] == [[1, 1], [0, 1]]
    assert all(f.columns[1].valid is None for f in frames)


def test_without_statistics_a_column_counts_as_nullable(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("required", pa.int64(), nullable=False)])
    path = write(tmp_path / "t.parquet", pa.table({"id": [1], "required": [1]}, schema), write_statistics=False)
    assert [f.nullable for f in plan(path, path, "id").left.fields] == [True, False]


def test_keys_of_different_widths_travel_in_one_type(tmp_path: Path) -> None:
    left = write(tmp_path / "l.parquet", pa.table({"id": pa.array([-1, 7], pa.int16()), "x": [1, 2]}))
    right = write(tmp_path / "r.parquet", pa.table({"rid": pa.array([7, 2**32 - 1], pa.uint32()), "x": [3, 4]}))
    spec = plan(left, right, "id", "rid", workers=1)
    assert spec.keys == ("id",)
    assert [column.field.name for column in spec.left.columns] == ["id", "x_left"]
    assert [column.field.name for column in spec.right.columns] == ["id", "x_right"]
    assert {field.type for field in (*spec.left.fields, *spec.right.fields)} == {pa.int64()}
    frames = load_chunk(spec, 0)
    assert to_arrow(frames[0]).to_pydict() == {"id": [-1, 7], "x_left": [1, 2]}
    assert to_arrow(frames[1]).to_pydict() == {"id": [7, 2**32 - 1], "x_right": [3, 4]}


def test_decimal_keys_meet_integer_keys(tmp_path: Path) -> None:
    left = write(
        tmp_path / "l.parquet", pa.table({"id": pa.array([Decimal("7.50"), Decimal("7")], pa.decimal128(5, 2))})
    )
    right = write(tmp_path / "r.parquet", pa.table({"id": pa.array([7], pa.int32())}))
    spec = plan(left, right, "id", workers=1)
    assert spec.left.fields == spec.right.fields
    assert to_arrow(load_chunk(spec, 0)[1]).to_pydict() == {"id": [Decimal("7.00")]}


def test_uint64_meets_signed_where_its_values_are_small(tmp_path: Path) -> None:
    small = pa.table({"id": pa.array([0, 2**63 - 1, None], pa.uint64())})
    large = pa.table({"id": pa.array([2**63], pa.uint64())})
    signed = write(tmp_path / "signed.parquet", pa.table({"id": [-1, 2**63 - 1]}))
    left = write(tmp_path / "small.parquet", small)
    spec = plan(left, signed, "id", workers=1)
    assert to_arrow(load_chunk(spec, 0)[0])["id"].to_pylist() == [0, 2**63 - 1, None]
    path = write(tmp_path / "large.parquet", large)
    assert refusal(path, signed, "id") == (
        "key 'id' (uint64) cannot be compared with 'id' (int64):"
        " its largest value, 9223372036854775808, is not below 2**63"
    )
    path = write(tmp_path / "unknown.parquet", small, write_statistics=False)
    assert refusal(signed, path, "id").endswith(
        "its Parquet file does not state the largest value; write the file with statistics"
    )
    assert plan(path, path, "id").left.fields[0].type == pa.uint64()


def test_a_key_value_beyond_the_common_type_is_a_sentence(tmp_path: Path) -> None:
    far = write(tmp_path / "far.parquet", pa.table({"t": pa.array([253_402_300_799_000], pa.timestamp("ms"))}))
    fine = write(tmp_path / "fine.parquet", pa.table({"t": pa.array([1], pa.timestamp("ns"))}))
    spec = plan(far, fine, "t", workers=1)
    with pytest.raises(UsageError) as caught:
        load_chunk(spec, 0)
    assert str(caught.value) == (
        f"{far}: column 't' has a value that does not fit timestamp[ns], the common type of the keys or of the table's"
        " files"
    )


def test_plan_is_plain_data(tmp_path: Path) -> None:
    spec = plan(*two_tables(tmp_path, "string"), "k", "q")
    assert pickle.loads(pickle.dumps(spec)) == spec
    text = json.loads(json.dumps(spec.to_json()))
    assert text["keys"] == ["k"]
    assert text["left"]["columns"][0] == {"source": "k", "name": "k", "type": "large_string", "nullable": True}
    assert text["right"]["columns"][1] == {"source": "row", "name": "row_right", "type": "int64", "nullable": False}
    assert sum(text["left"]["chunk_rows"]) == 60


# Paths


@pytest.mark.parametrize("content", [b"", b"id\n1\n", b"PAR1" + b"\xff" * 64 + b"PAR1"])
def test_not_parquet(tmp_path: Path, ids: Path, content: bytes) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    message = refusal(ids, path, "id")
    assert message.startswith(f"{path} is not a readable Parquet file: ")
    assert "\n" not in message


def test_truncated_parquet(tmp_path: Path, ids: Path) -> None:
    path = tmp_path / "cut.parquet"
    path.write_bytes(ids.read_bytes()[:-20])
    assert refusal(path, ids, "id").startswith(f"{path} is not a readable Parquet file: ")


def test_files_may_order_and_encode_their_columns_differently(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder / "1.parquet", pa.table({"id": [1], "s": ["a"]}))
    write(folder / "2.parquet", pa.table({"s": pa.array(["b"]).dictionary_encode(), "id": [2]}))
    spec = plan(folder, folder, "id", workers=1)
    assert to_arrow(load_chunk(spec, 0)[0]).to_pydict() == {"id": [1, 2], "s_left": ["a", "b"]}


def test_a_column_whose_name_has_a_dot(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"a.b": [1, 2], "a": ["x", "y"], "": [0, 1]}))
    spec = plan(path, path, "a", workers=1)
    assert to_arrow(load_chunk(spec, 0)[0]).to_pydict() == {"a.b_left": [1, 2], "a": ["x", "y"], "_left": [0, 1]}


# Keys and types


def test_a_key_that_is_not_there_names_the_nearest_and_the_columns(tmp_path: Path, ids: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"Order_ID": [1], "price": [1], "zz": [1]}))
    columns = "its columns: Order_ID, price, zz"
    missing = f"{path} has no column 'order_idx' to merge on; similar names: Order_ID; {columns}"
    assert refusal(path, ids, "order_idx", "id") == missing
    assert refusal(ids, path, "id", "xyw") == f"{path} has no column 'xyw' to merge on; {columns}"


@pytest.mark.parametrize(
    ("on", "right_on", "advice"),
    [
        ("cust,id", None, """for its column "cust, id", write --on '"cust, id"'; """),
        ("n,cust,id", "x,y,z", """for its column "cust, id", write --left-on 'n,"cust, id"'"""),
        ("blank", None, """for its column " blank", write --on '" blank"'; """),
        ("zz", "id", """; its columns: n, "cust, id", " blank", "a""b\""""),
    ],
)
def test_a_column_that_needs_quotes_is_named_as_an_option_takes_it(
    tmp_path: Path, ids: Path, on: str, right_on: str | None, advice: str
) -> None:
    names = ["n", "cust, id", " blank", 'a"b']
    path = write(tmp_path / "t.parquet", pa.table({name: [1] for name in names}))
    right = right_on.split(",") if right_on else on.split(",")
    with pytest.raises(UsageError) as caught:
        plan_tables(str(path), str(ids), on.split(","), right, 1, "polars", None)
    assert advice in str(caught.value)


def test_a_name_of_columns_that_was_cut_at_its_comma_is_shown_whole(tmp_path: Path, ids: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"id": [1], "a, b": [1]}))
    with pytest.raises(UsageError, match=r"""; for column "a, b", write --columns '"a, b"'$"""):
        plan_tables(str(path), str(ids), ["id"], ["id"], 1, "polars", ["a", "b"])


def test_names_that_contain_the_missing_key_come_first_and_long_lists_are_cut(tmp_path: Path, ids: Path) -> None:
    names = ["d", "order_id", "idle_seconds", *(f"c{number}" for number in range(12))]
    path = write(tmp_path / "t.parquet", pa.table({name: [1] for name in names}))
    said = refusal(path, ids, "id", "id")
    assert "; similar names: order_id, idle_seconds; its columns: d, order_id, " in said
    assert "c6 and 5 more; " in said
    assert said.endswith("use --left-on and --right-on")


def test_keys_come_in_pairs(ids: Path) -> None:
    with pytest.raises(UsageError, match="left has 1, right has 2"):
        plan_tables(str(ids), str(ids), ["id"], ["id", "x"], 1, "polars")
    with pytest.raises(UsageError, match="same number of key columns"):
        plan_tables(str(ids), str(ids), [], [], 1, "polars")
    with pytest.raises(UsageError, match=r"column 'id' of .* is used as a key more than once"):
        plan_tables(str(ids), str(ids), ["id", "id"], ["id", "id"], 1, "polars")


def test_keys_that_do_not_compare(tmp_path: Path, ids: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"s": ["1"], "f": [1.0]}))
    reason = "convert one column to the type of the other"
    assert (
        refusal(ids, path, "id", "s")
        == f"keys 'id' (int64) and 's' (large_string) cannot be compared exactly; {reason}"
    )
    assert refusal(path, ids, "f", "id") == f"keys 'f' (double) and 'id' (int64) cannot be compared exactly; {reason}"


def test_types_are_refused_by_column_name(tmp_path: Path, ids: Path) -> None:
    nested = write(tmp_path / "nested.parquet", pa.table({"id": [1], "tags": [[1, 2]]}))
    said = refusal(ids, nested, "id")
    assert said.startswith(f"{nested}: column 'tags' has type list<")
    assert said.endswith("; name the columns to keep with --columns")
    time = write(tmp_path / "time.parquet", pa.table({"id": [1], "at": pa.array([1], pa.time64("us"))}))
    assert refusal(ids, time, "id", engine="cudf") == (
        "column 'at' has type time64[us], which engine cudf cannot merge (cuDF has no type for a time of day);"
        " use --engine native, polars, pandas or duckdb"
    )
    assert plan(ids, time, "id", engine="pandas").right.rows == 1


def test_two_columns_of_one_name(tmp_path: Path, ids: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"]))
    assert refusal(path, ids, "id") == f"{path} has two columns called 'id'"


# Files that change between plan and load


def test_files_that_change_after_planning(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", pa.table({"id": [1, 2, 3], "x": [1, 2, 3]}), 2)
    spec = plan(path, path, "id", workers=1)
    write(path, pa.table({"id": [1, 2, 3, 4], "x": [1, 2, 3, 4]}), 2)
    with pytest.raises(UsageError, match=r"worker 0 read 4 rows of .* instead of 3; give every host the same files"):
        load_chunk(spec, 0)
    write(path, pa.table({"id": [1, 2, 3]}), 2)
    with pytest.raises(UsageError, match="no longer has column 'x'"):
        load_chunk(spec, 0)
    write(path, pa.table({"id": [1, 2, None], "x": [1, 2, 3]}), 2)
    with pytest.raises(UsageError, match=r"column 'id' of .* has nulls, although the Parquet statistics showed none"):
        load_chunk(spec, 0)
    write(path, pa.table({"id": [1], "x": [1]}))
    with pytest.raises(RunFailed, match=r"t\.parquet cannot be read"):
        load_chunk(spec, 0)
    path.unlink()
    with pytest.raises(RunFailed, match=r"t\.parquet cannot be read"):
        load_chunk(spec, 0)


def test_footers_tell_the_largest_unsigned_value(tmp_path: Path) -> None:
    values = [pa.array([5, 2**63], pa.uint64()), pa.array([None, None], pa.uint64()), pa.array([7, None], pa.uint64())]
    path = write(tmp_path / "t.parquet", pa.table({"u": pa.chunked_array(values), "i": [1] * 6}), 2)
    facts = read_footers(str(path)).columns
    assert [(c.name, c.largest, c.nullable) for c in facts] == [("u", 2**63, True), ("i", 0, False)]
