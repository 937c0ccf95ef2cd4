"""Row hashes: equal values hash alike, and the checksum sees every change but no order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.frame import BLOCK
from merge_bench.merge.partition_loops import RowHasher, frame_checksum
from tests.helpers.examples import examples
from tests.helpers.frames import KINDS, as_value, frame, kinds, random_table, seeds


def hashes(table: pa.Table, start: int = 0, rows: int | None = None) -> tuple[list[int], list[bool]]:
    flat = frame(table)
    columns = [flat.column(name) for name in table.column_names]
    found, missing = RowHasher().hash_rows(columns, start, flat.rows if rows is None else rows)
    return found.tolist(), (missing != 0).tolist()


@given(kinds=kinds, seed=seeds)
@examples(80)
def test_equal_keys_hash_alike_and_others_do_not(kinds: list[str], seed: int) -> None:
    """Both zeros are one value; a key with a null or a NaN is marked."""
    table = random_table(120, kinds, seed, distinct=12)
    found, missing = hashes(table)
    values = as_value(table, table.column_names)
    assert missing == [value is None for value in values]
    by_value: dict[object, int] = {}
    for value, one in zip(values, found, strict=True):
        if value is not None:
            assert by_value.setdefault(value, one) == one
    assert len(set(by_value.values())) == len(by_value)


@given(kinds=kinds, seed=seeds, start=st.integers(0, 30))
@examples(30)
def test_a_hash_does_not_depend_on_where_the_row_lies(kinds: list[str], seed: int, start: int) -> None:
    table = random_table(60, kinds, seed)
    whole, _ = hashes(table)
    assert hashes(table, start, 60 - start)[0] == whole[start:]
    assert hashes(table.slice(start))[0] == whole[start:]


def test_what_lies_under_a_null_does_not_count() -> None:
    mask = np.array([True, False])
    one = pa.table({"k": pa.array([1, 5], mask=mask), "t": pa.array(["x", "y"], pa.large_string(), mask=mask)})
    two = pa.table({"k": pa.array([2, 5], mask=mask), "t": pa.array(["zz", "y"], pa.large_string(), mask=mask)})
    assert hashes(one) == hashes(two)


def test_null_is_not_zero_and_order_of_columns_counts() -> None:
    rows = pa.table({"a": pa.array([None, 0, 0, 1], pa.int64()), "b": pa.array([0, None, 1, 0], pa.int64())})
    assert len(set(hashes(rows)[0])) == 4


def test_strings_are_not_joined_across_columns() -> None:
    rows = pa.table(
        {
            "a": pa.array(["ab", "a", "", "abcdefgh", "abcdefgh\0"], pa.large_string()),
            "b": pa.array(["c", "bc", "abc", "", ""], pa.large_string()),
        }
    )
    assert len(set(hashes(rows)[0])) == 5


def test_hashes_are_the_same_on_every_machine() -> None:
    """A worker on another host must agree: these numbers may change only together with the records' schema."""
    table = pa.table({"k": pa.array([0, 1, -1], pa.int64()), "t": pa.array(["", "a", "ü" * 9], pa.large_string())})
    assert hashes(table)[0] == EXPECTED


def mixed(x: int) -> int:
    """The scrambling of 64 bits, in plain Python."""
    x ^= x >> 32
    x = x * 0xD6E8FEB86659FD93 % 2**64
    x ^= x >> 32
    x = x * 0xD6E8FEB86659FD93 % 2**64
    return x ^ x >> 32


def plain_hash(number: int, text: str) -> int:
    h = mixed(0x2545F4914F6CDD1D ^ number % 2**64)
    data = text.encode()
    for at in range(0, len(data) - 7, 8):
        h = mixed(h ^ int.from_bytes(data[at : at + 8], "little"))
    return mixed(mixed(h ^ int.from_bytes(data[len(data) // 8 * 8 :], "little")) ^ len(data))


EXPECTED = [plain_hash(0, ""), plain_hash(1, "a"), plain_hash(-1, "ü" * 9)]


@given(kinds=kinds, seed=seeds)
@examples(40)
def test_checksum_knows_no_order(kinds: list[str], seed: int) -> None:
    table = random_table(90, kinds, seed)
    shuffled = table.take(np.random.default_rng(seed).permutation(90))
    total = frame_checksum(frame(table), table.column_names)
    assert frame_checksum(frame(shuffled), table.column_names) == total
    halves = [frame_checksum(frame(table.slice(*part)), table.column_names) for part in ((0, 31), (31, 59))]
    assert sum(halves) % 2**64 == total
    assert 0 <= total < 2**64


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_checksum_sees_a_row_lost_doubled_or_changed(kind: str) -> None:
    table = random_table(40, ["int64", kind], 7, nulls=False, distinct=1000)
    names = table.column_names
    total = frame_checksum(frame(table), names)
    assert frame_checksum(frame(table.slice(1)), names) != total
    assert frame_checksum(frame(pa.concat_tables([table, table.slice(3, 1)])), names) != total
    order = list(range(40))
    order[0], order[1] = 1, 0
    swapped = table.set_column(1, "c1", table["c1"].take(order))
    same = table["c1"][0].equals(table["c1"][1])
    assert (frame_checksum(frame(swapped), names) == total) == same
    assert frame_checksum(frame(table), names[::-1]) != total


def test_a_row_of_zeros_counts() -> None:
    one, two = ({"a": np.zeros(rows, np.int64)} for rows in (1, 2))
    sums = [frame_checksum(frame(pa.table(data)), ["a"]) for data in (one, two)]
    assert 0 not in sums
    assert sums[1] == 2 * sums[0] % 2**64


def test_more_rows_than_a_block() -> None:
    table = pa.table({"a": np.arange(BLOCK + 77)})
    parts = [frame_checksum(frame(table.slice(*part)), ["a"]) for part in ((0, 5), (5, BLOCK + 72))]
    assert frame_checksum(frame(table), ["a"]) == sum(parts) % 2**64
