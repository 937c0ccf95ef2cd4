"""The compiled join by several keys and by strings, against DuckDB and nested loops; also where all hashes collide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.hash_join_loops import FOLD
from merge_bench.merge.engines.native import BucketJoin
from merge_bench.merge.frame import Frame
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.partition import BucketReader, Parcel, ParcelLayout
from tests.helpers.examples import examples
from tests.helpers.frames import seeds
from tests.helpers.merge_cases import chunks, rows_of
from tests.merge.engines.test_native import NeverPolars, in_chunks
from tests.merge.in_process import simulate

WORDS = (
    *("", "ä", "äö", "seven b", "8 bytes.", "8 bytes!", "nine byte", "sixteen bytes, 1", "sixteen bytes, 2", "ending"),
    *("endinG", "a longer text that ends in 1", "a longer text that ends in 2", "\0", "\0\0", "日本語のキー"),
)
VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.large_string(): WORDS,
    pa.large_binary(): [word.encode() for word in WORDS],
    pa.int8(): range(-3, 3),
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2**32, 2**63 - 1],
    pa.date32(): range(5),
    pa.bool_(): [False, True],
    pa.decimal128(38, 0): [-(10**30), -1, 0, 1, 2**64, 10**30],
}


class CollidingJoin(BucketJoin):
    """Gives all rows one hash, so that only their keys tell them apart.

    Of keys that are folded into a word only the last one is left in it, which is what a fold must keep.
    """

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        self.shape = shape

    def make_key_words(self, side: Side, chunk: Frame) -> Any:
        positions = self.shape.key_positions(side)
        if all(0 < self.shape.fields(side)[at].width <= 8 for at in positions):
            return chunk.columns[positions[-1]].values.astype(np.uint64)
        return np.full(chunk.rows, 7, np.uint64)


def joined(
    left: pa.Table, right: pa.Table, keys: Sequence[str], parts: int = 1, kind: type[BucketJoin] = BucketJoin
) -> Counter[tuple[Any, ...]]:
    ours, theirs = (Frame.from_arrow(table).fields for table in (left, right))
    join = kind(JoinShape(ours, theirs, tuple(keys), 1, 0, 0))
    found: Counter[tuple[Any, ...]] = Counter()
    for piece in join.join_chunks(in_chunks(left, parts), in_chunks(right, parts), BufferPool()):
        table = piece.to_arrow()
        table.validate(full=True)
        found += rows_of(table)
    return found


def expected(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """The rows by nested loops."""
    ours, theirs = ([tuple(row.values()) for row in side.select(keys).to_pylist()] for side in (left, right))
    pairs = [(i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs) if one == other]
    both = left.take(pa.array([i for i, _ in pairs], pa.int64()))
    for name in right.column_names:
        if name not in keys:
            both = both.append_column(name, right[name].take(pa.array([j for _, j in pairs], pa.int64())))
    return rows_of(both)


@pytest.mark.parametrize("join", [BucketJoin, CollidingJoin])
@given(
    kinds=st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3),
    parts=st.integers(1, 4),
    rows=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    seed=seeds,
)
@examples(100)
def test_a_bucket_is_joined_as_nested_loops_join_it(
    join: type[BucketJoin], kinds: list[pa.DataType], parts: int, rows: tuple[int, int], seed: int
) -> None:
    keys = [f"k{number}" for number in range(len(kinds))]
    rng = np.random.default_rng(seed)
    sides = []
    for count, payload in zip(rows, ("a", "b"), strict=True):
        columns = {
            key: pa.array([VALUES[kind][n] for n in rng.integers(0, len(VALUES[kind]), count)], kind)
            for key, kind in zip(keys, kinds, strict=True)
        }
        text = [None if n < 0 else WORDS[n] for n in rng.integers(-3, len(WORDS), count)]
        sides.append(pa.table({payload: pa.array(text, pa.large_string()), **columns}))
    # The keys of the right side stand in another order.
    left, right = sides[0], sides[1].select([*reversed(keys), "b"])
    assert joined(left, right, keys, parts, join) == expected(left, right, keys)


@pytest.mark.parametrize("join", [BucketJoin, CollidingJoin])
@pytest.mark.parametrize("parts", [1, 3])
def test_keys_many_times_on_both_sides_give_every_pair(parts: int, join: type[BucketJoin]) -> None:
    """Far more pairs than there is room for at a time, of which none may be lost where the room ends."""
    words = ["one and the same", "one and the samE", "other"]
    left = pa.table({"k": pa.array(np.take(words, np.arange(200) % 3), pa.large_string()), "a": np.arange(200)})
    right = pa.table({"b": np.arange(150), "k": pa.array(np.take(words, np.arange(150) % 2), pa.large_string())})
    assert joined(left, right, ["k"], parts, join) == expected(left, right, ["k"])


def test_columns_whose_bytes_only_look_alike_end_to_end_do_not_match() -> None:
    left = pa.table({"k": ["ab", "a", ""], "l": ["c", "bc", "abc"], "a": [1, 2, 3]})
    right = pa.table({"k": ["a", "", "abc"], "l": ["bc", "abc", ""], "b": [4, 5, 6]})
    left, right = (table.cast(canonical_text(table)) for table in (left, right))
    assert joined(left, right, ["k", "l"]) == Counter([("a", "bc", 2, 4), ("", "abc", 3, 5)])


def test_different_keys_with_one_folded_word_do_not_match() -> None:
    step = int(FOLD)  # 1 · FOLD + 5 and 0 · FOLD + (5 + FOLD) are one word
    left = pa.table({"a": pa.array([1, 0], pa.uint64()), "b": pa.array([5, 6], pa.uint64()), "x": [1, 2]})
    right = pa.table({"a": pa.array([0, 0], pa.uint64()), "b": pa.array([5 + step, 6], pa.uint64()), "y": [3, 4]})
    assert joined(left, right, ["a", "b"]) == Counter([(0, 6, 2, 4)])


def canonical_text(table: pa.Table) -> pa.Schema:
    return pa.schema([(f.name, pa.large_string() if pa.types.is_string(f.type) else f.type) for f in table.schema])


def test_one_join_for_buckets_of_changing_size_sees_nothing_of_earlier_ones() -> None:
    def table(rows: int, payload: str) -> pa.Table:
        return pa.table(
            {"k": pa.array([f"key {n}" * (n % 4) for n in range(rows)], pa.large_string()), payload: np.arange(rows)}
        )

    ours, theirs = (Frame.from_arrow(table(1, name)).fields for name in "ab")
    join = BucketJoin(JoinShape(ours, theirs, ("k",), 1, 0, 0))
    for rows in (500, 3, 700, 0, 40):
        left, right = table(rows, "a"), table(rows, "b")
        pieces = list(join.join_chunks(in_chunks(left, 3), in_chunks(right, 2), BufferPool()))
        found = sum((rows_of(piece.to_arrow()) for piece in pieces), Counter())
        assert found == expected(left, right, ["k"])


@pytest.mark.parametrize("workers", [1, 3])
def test_text_of_every_length_arrives_whole_through_partition_and_join(workers: int) -> None:
    """Lengths 0 to 40, so that words of eight bytes end everywhere in them; rows of one hash after the other."""
    rng = np.random.default_rng(workers)
    rows = 4000
    words = ["".join(map(chr, rng.integers(65, 400, n % 41))) + str(n) * (n % 3 > 0) for n in range(rows)]
    left = pa.table({"k": pa.array(words, pa.large_string()), "place": pa.array(np.arange(rows) % 7, pa.int32())})
    left = left.append_column(
        "text", pa.array([None if n % 5 == 0 else words[-n] for n in range(rows)], pa.large_string())
    )
    order = rng.permutation(rows)[: rows // 2]
    right = left.select(["place", "k"]).take(order).append_column("b", pa.array(order))
    result = simulate(NeverPolars, chunks(left, workers), chunks(right, workers), ("k", "place"), iterations=2)
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        query = "SELECT l.k, l.place, text, b FROM l JOIN r ON l.k = r.k AND l.place = r.place"
        answer = connection.sql(query).to_arrow_table()
    assert result.num_rows >= rows // 2
    assert rows_of(result) == rows_of(answer)


def test_a_bucket_without_rows_or_without_bytes_can_be_read() -> None:
    left = Frame.from_arrow(pa.table({"k": pa.array(["", "", "abc"], pa.large_string()), "n": [1, 2, 3]}))
    header = np.array([[2, 0, 1, 0], [0, 0, 3, 0]], np.int64)
    layout = ParcelLayout.from_header(left.fields, header)
    data = np.zeros(layout.size, np.uint8)
    (lengths, body, _), (numbers, _, _) = layout.starts
    data[lengths : lengths + 12].view(np.int32)[:] = [0, 0, 3]
    data[body : body + 3] = list(b"abc")
    data[numbers : numbers + 24].view(np.int64)[:] = [1, 2, 3]
    reader = BucketReader(left.fields, [Parcel(layout, data)])
    assert reader.read_buckets_as_table(0, 1)["k"].to_pylist() == ["", ""]
    assert reader.read_buckets_as_frames(1, 2) == []
    assert reader.read_buckets_as_table(1, 2).num_rows == 0
    assert reader.read_buckets_as_table(1, 4).to_pylist() == [{"k": "abc", "n": 3}]


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_join_strings_and_columns_as_one_does(threads: int) -> None:
    numbers = np.arange(9000)
    ours, theirs = (pa.array([f"k{n % some}" for n in numbers], pa.large_string()) for some in (3000, 5000))
    left = pa.table({"s": ours, "i": numbers % 5, "a": numbers})
    right = pa.table({"i": numbers % 4, "s": theirs, "b": numbers})
    frames = chunks(left, 2), chunks(right, 2)
    result = simulate(NeverPolars, *frames, ("i", "s"), iterations=2, threads=threads, join_rows=500)
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        count, total = connection.sql(
            "SELECT count(*), sum(a * 10007 + b) FROM l JOIN r ON l.s = r.s AND l.i = r.i"
        ).fetchall()[0]
    assert result.num_rows == count
    assert int((result["a"].to_numpy() * 10007 + result["b"].to_numpy()).sum()) == total
