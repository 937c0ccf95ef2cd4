"""The loops over byte strings of a join, which read and write more bytes than a string has, against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.engines import hash_join_loops as loops
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.join_columns import FEW_BYTES, gather_column_rows
from merge_bench.merge.engines.native import BucketJoin
from merge_bench.merge.frame import Column, Frame
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.partition import ChunkBlockReader
from merge_bench.merge.partition_loops import hash_byte_strings
from tests.helpers.examples import examples
from tests.helpers.frames import bits, seeds

strings = st.lists(st.binary(max_size=40), min_size=1, max_size=60)


def column(values: list[bytes]) -> Column:
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])]).astype(np.int64)
    return Column(np.frombuffer(b"".join(values), np.uint8).copy(), offsets)


def values_of(strings: Column) -> list[bytes]:
    assert strings.offsets is not None
    data, edges = strings.values.tobytes(), strings.offsets.tolist()
    return [data[first:last] for first, last in itertools.pairwise(edges)]


@given(first=strings, second=strings, seed=seeds, repeated=st.sampled_from([1, 400]))
@examples(80)
def test_gathered_strings_are_those_of_the_rows(
    first: list[bytes], second: list[bytes], seed: int, repeated: int
) -> None:
    """Also at the ends of what is read and written, next to memory that belongs to others."""
    rng = np.random.default_rng(seed)
    parts = [(column(values * repeated), values * repeated) for values in (first, second)]
    rows = [rng.integers(0, len(values), rng.integers(0, 200)).astype(np.int32) for _, values in parts]
    out = BufferPool()
    joined = gather_column_rows([(strings, numbers) for (strings, _), numbers in zip(parts, rows, strict=True)], out)
    expected = [values[row] for (_, values), numbers in zip(parts, rows, strict=True) for row in numbers]
    assert values_of(joined) == expected


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33])
def test_nothing_is_written_behind_the_last_string(size: int) -> None:
    source, rows = column([b"x" * size] * (FEW_BYTES + 1)), np.arange(5, dtype=np.int32)
    places = np.arange(6, dtype=np.int64) * size
    room = np.full(5 * size + 64, 7, np.uint8)
    loops.gather_byte_strings(source.values, source.offsets, rows, places, room[: 5 * size])
    assert room.tobytes() == b"x" * (5 * size) + b"\7" * 64


@given(left=strings, right=strings)
@examples(80)
def test_equal_pairs_are_those_of_equal_strings(left: list[bytes], right: list[bytes]) -> None:
    pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
    ours, theirs = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    kept = loops.keep_equal_pairs(column(left), column(right), ours, theirs)
    found = list(zip(ours[:kept].tolist(), theirs[:kept].tolist(), strict=True))
    assert found == [(i, j) for i, j in pairs if left[i] == right[j]]


@given(values=strings)
@examples(80)
def test_the_hash_of_a_string_does_not_depend_on_what_follows_it(values: list[bytes]) -> None:
    followed, alone = np.zeros(len(values), np.uint64), np.zeros(len(values), np.uint64)
    whole = column(values)
    hash_byte_strings(whole.values, whole.offsets, followed)
    for number, value in enumerate(values):
        hash_byte_strings(column([value]).values, column([value]).offsets, alone[number : number + 1])
    assert followed.tolist() == alone.tolist()


def test_blocks_of_a_chunk_are_its_rows() -> None:
    """As tables for libraries, and as views for the compiled join."""
    table = pa.table({"text": pa.array([f"{n}" * (n % 7) for n in range(5000)], pa.large_string()), "n": range(5000)})
    reader = ChunkBlockReader(Frame.from_arrow(table), 700, 1)
    tables = [reader.read_buckets_as_table(block, block + 1) for block in range(reader.count)]
    views = [rows for block in range(reader.count) for rows in reader.read_buckets_as_frames(block, block + 1)]
    assert reader.count == len(views) == 8
    assert bits(pa.concat_tables(tables).combine_chunks()) == bits(table.combine_chunks())
    numbers = [np.arange(view.rows, dtype=np.int32) for view in views]
    texts = gather_column_rows(
        [(view.columns[0], rows) for view, rows in zip(views, numbers, strict=True)], BufferPool()
    )
    assert [text.decode() for text in values_of(texts)] == table["text"].to_pylist()


def test_a_column_of_several_views_is_one_column() -> None:
    table = pa.table({"text": pa.array([f"{n}" * (n % 7) for n in range(90)], pa.large_string()), "n": range(90)})
    whole = Frame.from_arrow(table)
    views = [whole.view_rows(first, last) for first, last in ((10, 40), (40, 41), (41, 41), (60, 90))]
    join = BucketJoin(JoinShape(whole.fields, whole.fields, ("n",), 1, 0, 180))
    together = join._contiguous_column(views, 0, "views")
    expected = [*table["text"].to_pylist()[10:41], *table["text"].to_pylist()[60:]]
    assert [text.decode() for text in values_of(together)] == expected
