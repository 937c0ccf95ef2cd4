"""Partitioning: every row lands once, equal keys land together, and a parcel reads back as what went in."""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.frame import BLOCK, Bytes, Frame
from merge_bench.merge.memory import ALIGN, BufferPool
from merge_bench.merge.partition import (
    LINES,
    PLAIN,
    WRITERS,
    BucketReader,
    Parcel,
    ParcelLayout,
    Partitioner,
    group_buckets,
    parcel_header_shape,
)
from merge_bench.merge.partition_loops import ASSIGNED
from tests.helpers.examples import examples
from tests.helpers.frames import KINDS, as_value, bits, frame, kinds, multiset, random_table, seeds

ways = st.sampled_from(sorted(WRITERS))


def split(
    flat: Frame,
    keys: list[str],
    workers: int,
    buckets: int,
    threads: int = 1,
    buffers: BufferPool | None = None,
    stores: str = PLAIN,
) -> list[Parcel]:
    partitioner = Partitioner(flat.fields, keys, workers=workers, buckets=buckets, threads=threads, stores=stores)
    if threads == 1:
        return partitioner.split_into_parcels(flat, buffers or BufferPool())[0]
    with ThreadPoolExecutor(threads) as pool:
        return partitioner.split_into_parcels(flat, buffers or BufferPool(), pool)[0]


def received(flat: Frame, parcel: Parcel, buckets: int) -> Parcel:
    """What the other side makes of a header and bytes that crossed a network."""
    header = np.ascontiguousarray(parcel.layout.header).tobytes()
    counts = np.frombuffer(header, np.int64).reshape(parcel_header_shape(flat.fields, buckets))
    layout = ParcelLayout.from_header(flat.fields, counts)
    assert layout.starts == parcel.layout.starts
    assert layout.size == parcel.layout.size == parcel.data.nbytes
    data = np.full(layout.size + ALIGN, 0xAA, np.uint8)
    data = data[-data.ctypes.data % ALIGN :][: layout.size]
    data[:] = parcel.data
    return Parcel(layout, data)


def by_bucket(flat: Frame, parcels: list[Parcel], buckets: int) -> list[pa.Table]:
    """The table of every bucket of every worker."""
    tables = []
    for parcel in parcels:
        reader = BucketReader(flat.fields, [received(flat, parcel, buckets)])
        for bucket in range(buckets):
            table = reader.read_buckets_as_table(bucket, bucket + 1)
            table.validate(full=True)
            tables.append(table)
    return tables


@pytest.mark.slow
@given(
    rows=st.integers(0, 200),
    seed=seeds,
    workers=st.integers(1, 4),
    buckets=st.integers(1, 24),
    threads=st.sampled_from([1, 3]),
    stores=ways,
    data=st.data(),
)
@examples(15)
def test_parts_hold_what_one_parcel_holds(
    rows: int, seed: int, workers: int, buckets: int, threads: int, stores: str, data: st.DataObject
) -> None:
    """Cut into runs of buckets, and into rows before and after some row: together the same buckets as uncut."""
    flat = frame(random_table(rows, ["int64", "large_string", "decimal128(38, 6)", "bool"], seed, distinct=30))
    inner = data.draw(st.sets(st.integers(1, buckets), max_size=4).map(sorted))
    cuts = (0, *[cut for cut in inner if cut < buckets], buckets)
    row = data.draw(st.integers(0, rows))
    partitioner = Partitioner(flat.fields, ["c0"], workers=workers, buckets=buckets, threads=threads, stores=stores)
    made = [
        part
        for span in ((0, row), (row, rows))
        for part in partitioner.split_into_parcels(flat, BufferPool(), row_range=span, bucket_edges=cuts)
    ]
    runs = list(itertools.pairwise(cuts))
    whole = split(flat, ["c0"], workers, buckets)
    for worker in range(workers):
        parcels = [received(flat, parts[worker], buckets) for parts in made]
        for parcel, (first, last) in zip(parcels, [*runs, *runs], strict=True):
            assert int(parcel.layout.header[0, first:last].sum()) == parcel.rows
        reader, uncut = (BucketReader(flat.fields, found) for found in (parcels, [whole[worker]]))
        for bucket in range(buckets):
            assert bits(reader.read_buckets_as_table(bucket, bucket + 1)) == bits(
                uncut.read_buckets_as_table(bucket, bucket + 1)
            )


@pytest.mark.slow
@given(
    rows=st.integers(0, 150),
    kinds=kinds,
    seed=seeds,
    nulls=st.booleans(),
    key_count=st.integers(1, 3),
    workers=st.integers(1, 5),
    buckets=st.integers(1, 64),
    stores=ways,
)
@examples(40)
def test_every_row_once_and_equal_keys_together(
    rows: int, kinds: list[str], seed: int, nulls: bool, key_count: int, workers: int, buckets: int, stores: str
) -> None:
    table = random_table(rows, kinds, seed, nulls=nulls, distinct=15)
    flat, keys = frame(table), table.column_names[:key_count]
    parcels = split(flat, keys, workers, buckets, stores=stores)
    assert len(parcels) == workers
    tables = by_bucket(flat, parcels, buckets)
    values = as_value(table, keys)
    kept = table.filter(pa.array([value is not None for value in values], pa.bool_()))
    assert sum((multiset(one) for one in tables), Counter()) == multiset(kept)
    homes: dict[Any, int] = {}
    for number, one in enumerate(tables):
        for value in as_value(one, keys):
            assert value is not None
            assert homes.setdefault(value, number) == number


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [1, 2, 5, 9])
@pytest.mark.parametrize("stores", WRITERS)
def test_columns_one_by_one_or_several_at_once(
    stores: str, columns: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many columns of one type are written at once is a question of speed: the parcels are the same."""
    flat = Frame.from_arrow(random_table(5000, ["int64", "int8", *["int64"] * columns, "int8"], 5, nulls=True))

    class OneByOne(WRITERS[stores]):
        def __init__(self, buckets: int) -> None:
            super().__init__(buckets)
            self.most_columns = 1

    monkeypatch.setitem(WRITERS, "one by one", OneByOne)
    at_once, one_by_one = (
        split(flat, ["c0"], 3, 20, threads, stores=way, buffers=Filled()) for way in (stores, "one by one")
    )
    for one, other in zip(at_once, one_by_one, strict=True):
        assert np.array_equal(one.layout.header, other.layout.header)
        assert np.array_equal(one.data, other.data)


@pytest.mark.slow
@given(
    rows=st.integers(0, 3000),
    kinds=kinds,
    seed=seeds,
    nulls=st.booleans(),
    workers=st.integers(1, 3),
    buckets=st.integers(1, 70),
    threads=st.sampled_from([1, 3]),
    more=st.integers(2, 8),
)
@examples(100)
def test_plain_stores_and_whole_lines_write_the_same(
    rows: int, kinds: list[str], seed: int, nulls: bool, workers: int, buckets: int, threads: int, more: int
) -> None:
    """Of every type, with and without nulls: buckets that begin and end within lines, full and empty."""
    flat = frame(random_table(rows, [*kinds, *["int64"] * more], seed, nulls=nulls, distinct=50))
    plain, lines = (
        split(flat, ["c0"], workers, buckets, threads, stores=stores, buffers=Filled()) for stores in (PLAIN, LINES)
    )
    for one, other in zip(plain, lines, strict=True):
        assert np.array_equal(one.layout.header, other.layout.header)
        assert np.array_equal(one.data, other.data)  # what lies between columns included: nobody writes there


class Filled(BufferPool):
    """Gives memory of known contents."""

    def take_bytes(self, size: int) -> Bytes:
        taken = super().take_bytes(size)
        taken[:] = 0x5A
        return taken


@given(seed=seeds, kind=st.sampled_from(sorted(KINDS)), workers=st.integers(1, 5), buckets=st.integers(1, 64))
@examples(60)
def test_all_workers_and_both_sides_agree(seed: int, kind: str, workers: int, buckets: int) -> None:
    """Different chunks, with and without nulls, other columns beside the key: a key's bucket is the same."""
    left = random_table(60, [kind, "int8", "large_string"], seed, distinct=9)
    right = random_table(60, ["double", kind], seed + 1, nulls=False, distinct=9)
    right = right.set_column(1, "c1", left["c0"].take(np.arange(60) % 30))
    homes: dict[Any, int] = {}
    for table, key in ((left.slice(0, 20), "c0"), (left.slice(20), "c0"), (right, "c1")):
        flat = frame(table)
        for number, one in enumerate(by_bucket(flat, split(flat, [key], workers, buckets), buckets)):
            for value in as_value(one, [key]):
                assert homes.setdefault(value, number) == number


@pytest.mark.parametrize("stores", WRITERS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_give_the_same_parcels(threads: int, workers: int, stores: str) -> None:
    """Enough rows that every thread has a span."""
    rows = 3 * BLOCK + 11
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "key": pa.array(rng.integers(0, 5000, rows), mask=rng.random(rows) < 0.01),
            "a": rng.integers(0, 9, rows),
            "b": np.arange(rows),
            "flag": rng.random(rows) < 0.5,
            "text": pa.array([f"{n % 701}" for n in range(rows)], pa.large_string()),
        }
    )
    flat = frame(table)
    one = split(flat, ["key"], workers, 7)
    many = split(flat, ["key"], workers, 7, threads, stores=stores)
    for mine, theirs in zip(many, one, strict=True):
        assert np.array_equal(mine.layout.header, theirs.layout.header)
        ours, expected = (BucketReader(flat.fields, [parcel]) for parcel in (mine, theirs))
        # Rows keep the order of their chunk.
    assert ours.read_buckets_as_table(0, 7).equals(expected.read_buckets_as_table(0, 7))
    assert sum(parcel.rows for parcel in many) == rows - table["key"].null_count


def test_null_and_nan_keys_stay_behind() -> None:
    table = pa.table({"k": [1.0, float("nan"), None, -0.0, 0.0, float("inf")], "row": range(6)})
    flat = frame(table)
    parcels = split(flat, ["k"], 2, 3)
    rows = [row for one in by_bucket(flat, parcels, 3) for row in one["row"].to_pylist()]
    assert sorted(rows) == [0, 3, 4, 5]


def test_a_null_in_a_column_that_is_no_key_travels() -> None:
    table = pa.table({"k": [1, 2, 3], "v": [None, 2.5, None], "t": pa.array([None, "", "x"], pa.large_string())})
    flat = frame(table)
    assert sum((multiset(one) for one in by_bucket(flat, split(flat, ["k"], 3, 2), 2)), Counter()) == multiset(table)


def test_all_rows_to_one_place() -> None:
    """One key on all rows: all other parcels are empty, and their readers too."""
    table = pa.table({"k": [7] * 500, "t": pa.array(["x" * (n % 5) for n in range(500)], pa.large_string())})
    flat = frame(table)
    parcels = split(flat, ["k"], 4, 16)
    assert sorted(parcel.rows for parcel in parcels) == [0, 0, 0, 500]
    assert sum(np.count_nonzero(parcel.layout.header[0]) for parcel in parcels) == 1
    empty = next(parcel for parcel in parcels if not parcel.rows)
    assert BucketReader(flat.fields, [empty]).read_buckets_as_table(0, 16).num_rows == 0
    assert BucketReader(flat.fields, [empty]).parcels == []


def test_keys_spread_over_workers_and_buckets() -> None:
    """10,000 keys one after the other over 5 × 16 places: each count within six standard deviations."""
    flat = frame(pa.table({"k": np.arange(10_000)}))
    counts = np.concatenate([parcel.layout.header[0] for parcel in split(flat, ["k"], 5, 16)])
    mean = 10_000 / 80
    assert np.abs(counts - mean).max() < 6 * np.sqrt(mean)


def test_parcels_are_aligned_and_lie_apart() -> None:
    table = random_table(200, ["int64", "bool", "large_string", "decimal128(38, 6)", "int16"], 5, nulls=False)
    flat = frame(table)
    parcels = split(flat, ["c0"], 3, 4)
    spans = sorted((parcel.data.ctypes.data, parcel.data.nbytes) for parcel in parcels)
    for (start, size), (following, _) in itertools.pairwise(spans):
        assert start + size <= following
    for parcel in parcels:
        assert parcel.data.ctypes.data % ALIGN == 0
        assert all(start % ALIGN == 0 for starts in parcel.layout.starts for start in starts)


def test_several_parcels_read_as_one_table() -> None:
    tables = [random_table(50, ["int64", "large_string", "bool"], seed, distinct=20) for seed in range(3)]
    frames = [frame(table, nullable=True) for table in tables]
    parcels = [received(flat, split(flat, ["c0"], 2, 8)[1], 8) for flat in frames]
    reader = BucketReader(frames[0].fields, parcels)
    whole, counts = reader.read_buckets_as_table(0, 8), sum(parcel.layout.header[0] for parcel in parcels)
    assert whole.num_rows == sum(parcel.rows for parcel in parcels) == counts.sum()
    pieces = [reader.read_buckets_as_table(first, first + 2) for first in range(0, 8, 2)]
    assert multiset(pa.concat_tables(pieces)) == multiset(whole)
    assert [piece.num_rows for piece in pieces] == counts.reshape(4, 2).sum(axis=1).tolist()


def test_buffers_used_again_hold_nothing_stale() -> None:
    """A second, shorter chunk through the same buffers and the same partitioner."""
    buffers = BufferPool()
    first, second = (random_table(rows, ["int64", "large_string"], rows, distinct=30) for rows in (400, 90))
    flats = [frame(table, nullable=True) for table in (first, second)]
    partitioner = Partitioner(flats[0].fields, ["c0"], workers=2, buckets=4)
    for flat, table in (*zip(flats, (first, second), strict=True), (flats[0], first)):
        buffers.reset_pool()
        (parcels,) = partitioner.split_into_parcels(flat, buffers)
        kept = table.filter(table["c0"].is_valid())
        assert sum((multiset(one) for one in by_bucket(flat, parcels, 4)), Counter()) == multiset(kept)


@given(left=st.lists(st.integers(0, 50), min_size=1, max_size=40), right=st.data(), limit=st.integers(0, 120))
@examples(100)
def test_bucket_groups_cover_every_bucket_once(left: list[int], right: Any, limit: int) -> None:
    buckets = len(left)
    others = right.draw(st.lists(st.integers(0, 50), min_size=buckets, max_size=buckets))
    readers = [reader_of(counts) for counts in (left, others)]
    groups = list(group_buckets(*readers, buckets, limit))
    assert [bucket for first, last in groups for bucket in range(first, last)] == list(range(buckets))
    for first, last in groups:
        rows = sum(left[first:last]) + sum(others[first:last])
        assert rows <= limit or last - first == 1  # only a bucket that is too large by itself goes beyond
    for (first, last), (_, following) in itertools.pairwise(groups):
        assert following > last > first
        assert sum(left[first : last + 1]) + sum(others[first : last + 1]) > limit


def reader_of(counts: list[int]) -> BucketReader:
    header = np.array([counts], np.int64)
    flat = frame(pa.table({"k": np.zeros(1, np.int64)}))
    layout = ParcelLayout.from_header(flat.fields, header)
    return BucketReader(flat.fields, [Parcel(layout, np.zeros(layout.size, np.uint8))])


def test_rows_read_back_to_the_bit() -> None:
    """NaN with a payload, both zeros, and decimals keep their bits on the way."""
    strange = np.array([0x7FF8000000000ABC, 0x8000000000000000, 0, 0xFFF0000000000000], np.uint64).view(np.float64)
    table = pa.table({"k": np.arange(4), "v": strange})
    flat = frame(table)
    (parcel,) = split(flat, ["k"], 1, 1)
    assert bits(BucketReader(flat.fields, [received(flat, parcel, 1)]).read_buckets_as_table(0, 1)) == bits(table)


@pytest.mark.parametrize(
    "kinds_of_keys",
    [["uint8"], ["int32"], ["int64"], ["bool"], ["timestamp[us]"], ["int32", "int64"], ["int64", "bool", "uint8"]],
)
@pytest.mark.parametrize("rows", [500, ASSIGNED + 500])
def test_keys_that_may_be_null_go_where_the_same_keys_without_nulls_go(kinds_of_keys: list[str], rows: int) -> None:
    """One takes few passes, the other is hashed column by column; workers must agree all the same."""
    flat = frame(random_table(rows, [*kinds_of_keys, "int64"], 3, distinct=100, nulls=False))
    keys = [f"c{number}" for number in range(len(kinds_of_keys))]
    assert all(column.valid is None for column in flat.columns)
    other = flat.with_nullable_fields({field.name: field.name == "c0" for field in flat.fields})
    ours, theirs = (by_bucket(each, split(each, keys, 3, 7), 7) for each in (flat, other))
    assert [multiset(table) for table in ours] == [multiset(table) for table in theirs]
    assert sum(table.num_rows > 0 for table in ours) > 1 or kinds_of_keys == ["bool"]
