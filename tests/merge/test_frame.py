"""Frames from Arrow and back to Arrow, to the bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.merge.frame import Frame, arrow_schema, canonical_type, empty_table, make_field
from tests.helpers.examples import examples
from tests.helpers.frames import KINDS, bits, frame, kinds, random_table, seeds


@given(rows=st.integers(0, 70), kinds=kinds, seed=seeds, nulls=st.booleans())
@examples(80)
def test_there_and_back(rows: int, kinds: list[str], seed: int, nulls: bool) -> None:
    table = random_table(rows, kinds, seed, nulls=nulls)
    back = frame(table).to_arrow()
    back.validate(full=True)
    assert back.schema.equals(table.schema)
    assert bits(back) == bits(table)


@given(kinds=kinds, seed=seeds, start=st.integers(0, 40), length=st.integers(0, 40), cut=st.integers(0, 80))
@examples(60)
def test_slices_and_chunks(kinds: list[str], seed: int, start: int, length: int, cut: int) -> None:
    """A table that begins in the middle of its buffers, or that comes in several chunks, is the same rows."""
    table = random_table(80, kinds, seed)
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert bits(frame(chunked).to_arrow()) == bits(table)
    part = table.slice(start, length)
    assert bits(frame(part).to_arrow()) == bits(table)[start : start + length]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_type(kind: str) -> None:
    table = random_table(50, [kind], 1)
    flat = frame(table)
    assert flat.fields[0].type == table.schema.field(0).type
    assert flat.fields[0].nullable
    assert bits(flat.to_arrow()) == bits(table)


def test_bytes_are_counted_as_arrow_stores_them() -> None:
    table = pa.table(
        {
            "whole": np.arange(100, dtype=np.int32),
            "flag": [True] * 100,
            "text": pa.array(["abc"] * 99 + [None], pa.large_string()),
            "amount": pa.array([None] * 100, pa.decimal128(9, 2)),
        }
    )
    assert frame(table).nbytes == 400 + 13 + (297 + 808 + 13) + (1600 + 13)


def test_validity_where_other_workers_need_it() -> None:
    flat = frame(pa.table({"a": [1, 2], "b": [1.0, None]}))
    assert [field.nullable for field in flat.fields] == [False, True]
    wide = flat.with_nullable_fields({"a": True, "b": True})
    assert [field.nullable for field in wide.fields] == [True, True]
    assert wide.columns[0].valid is not None
    assert bits(wide.to_arrow()) == bits(flat.to_arrow())


def test_columns_by_name() -> None:
    flat = frame(pa.table({"a": [1], "b": [2]}))
    assert flat.column("b")[0].name == "b"
    with pytest.raises(KeyError):
        flat.column("c")


@pytest.mark.parametrize(
    ("given_type", "travels_as"),
    [
        (pa.string(), pa.large_string()),
        (pa.string_view(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.int32()), pa.int32()),
        (pa.date64(), pa.date32()),
        (pa.decimal64(9, 2), pa.decimal128(9, 2)),
        (pa.decimal256(38, 9), pa.decimal128(38, 9)),
        (pa.float16(), pa.float32()),
        (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.uint16(), pa.uint16()),
        (pa.binary(16), pa.large_binary()),
        (pa.uuid(), pa.large_binary()),
        (pa.json_(), pa.large_string()),
        (pa.bool8(), pa.int8()),
        (pa.opaque(pa.int32(), "odd", "vendor"), pa.int32()),
    ],
)
def test_canonical_types(given_type: pa.DataType, travels_as: pa.DataType) -> None:
    assert canonical_type(given_type, "c") == travels_as
    assert make_field("c", travels_as, nullable=False).has_variable_width == pa.types.is_large_string(travels_as) | (
        pa.types.is_large_binary(travels_as)
    )


REFUSED = (
    pa.list_(pa.int8()),
    pa.struct([("a", pa.int8())]),
    pa.map_(pa.string(), pa.int8()),
    pa.null(),
    pa.decimal256(50, 2),
    pa.month_day_nano_interval(),
)


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_a_type_that_no_engine_can_merge_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match=r"column 'odd' has type .* no engine can merge"):
        canonical_type(kind, "odd")


def test_validity_is_read_from_the_frame() -> None:
    flat = Frame.from_arrow(pa.table({"key": [1, 2]})).with_nullable_fields({"key": True})
    assert flat.to_arrow().column("key").null_count == 0
    flat.columns[0].valid[1] = 0
    assert flat.to_arrow().column("key").to_pylist() == [1, None]


def test_no_rows() -> None:
    table = random_table(3, sorted(KINDS), 4).slice(0, 0)
    flat = Frame.from_arrow(table)
    assert flat.rows == 0
    assert flat.to_arrow().equals(table)
    assert Frame.from_arrow(pa.table({"a": pa.chunked_array([], pa.large_string())})).rows == 0


@pytest.mark.parametrize("rows", [0, 3])
def test_a_copy_of_the_first_row_keeps_no_memory_of_the_frame(rows: int) -> None:
    table = pa.table(
        {
            "k": pa.array(range(rows), pa.int64()),
            "s": pa.array(["héllo", None, "x"][:rows], pa.large_string()),
        }
    )
    frame = Frame.from_arrow(table)
    first = frame.copy_first_row()
    assert first.to_arrow().to_pylist() == table.slice(0, 1).to_pylist()
    for mine, theirs in zip(first.columns, frame.columns, strict=True):
        assert not np.shares_memory(mine.values, theirs.values)


def test_a_table_without_rows_needs_no_pandas() -> None:
    """Half of what a worker loads by itself would be pandas: `pa.Schema.empty_table` imports it."""
    fields = [
        make_field(kind, random_table(3, [kind], 1).schema.field(0).type, nullable=True) for kind in sorted(KINDS)
    ]
    assert empty_table(fields).schema.equals(arrow_schema(fields))
    assert empty_table(fields).num_rows == 0
    make = "from merge_bench.merge.frame import *; import pyarrow as pa, sys; "
    make += "empty_table([make_field('a', pa.int8(), nullable=False)])"
    subprocess.run([sys.executable, "-c", f"{make}; assert 'pandas' not in sys.modules"], check=True, timeout=60)
