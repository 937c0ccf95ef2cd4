"""The synthetic tables: what they hold, that no number of workers changes them, and that their check sees mistakes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.jit import compile_loop
from merge_bench.merge.partition_loops import mix64
from merge_bench.merge.workload import KEY, SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks
from tests.helpers.examples import examples

Columns = dict[str, np.ndarray]


def whole(spec: SyntheticSpec, workers: int = 1) -> tuple[pa.Table, pa.Table, int, int]:
    """Both tables put together from all workers' chunks, and the expected rows and checksum."""
    parts = [generate_chunks(spec, rank, workers) for rank in range(workers)]
    left, right = (pa.concat_tables([part[side].to_arrow() for part in parts]) for side in (0, 1))
    rows = sum(part[2].rows for part in parts)
    return left, right, rows, sum(part[2].checksum for part in parts) % 2**64


def columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy() for name in table.column_names}


def merged(spec: SyntheticSpec) -> tuple[pa.Table, int, int]:
    """The right result by Arrow's own join."""
    left, right, rows, checksum = whole(spec)
    return left.join(right, KEY, join_type="inner").combine_chunks(), rows, checksum


specs = st.builds(
    SyntheticSpec,
    rows=st.integers(1, 700),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**31),
    payload_columns=st.integers(1, 3),
)


@given(spec=specs)
@examples(80)
def test_left_keys_are_a_permutation(spec: SyntheticSpec) -> None:
    left, _, _, _ = whole(spec)
    assert sorted(left[KEY].to_pylist()) == list(range(spec.rows))


@given(spec=specs)
@examples(80)
def test_as_many_rows_match_as_asked_for(spec: SyntheticSpec) -> None:
    _, right, rows, _ = whole(spec)
    matching = columns(right)[KEY]
    matching = matching[(matching >= 0) & (matching < spec.rows)]
    assert matching.size == rows == spec.matching_rows == round(spec.fraction * spec.rows)
    assert np.unique(matching).size == matching.size  # every partner once


@given(spec=specs, workers=st.integers(2, 7))
@examples(60)
def test_the_table_does_not_depend_on_the_workers(spec: SyntheticSpec, workers: int) -> None:
    alone, together = whole(spec), whole(spec, workers)
    assert together[0].equals(alone[0])
    assert together[1].equals(alone[1])
    assert together[2:] == alone[2:]


@given(spec=specs)
@examples(60)
def test_the_right_result_passes(spec: SyntheticSpec) -> None:
    result, rows, checksum = merged(spec)
    assert check_result_rows(spec, result) == (rows, checksum, 0)
    assert result.num_rows == spec.matching_rows


@pytest.mark.parametrize("zipf", [0.5, 1.0, 1.2, 2.5])
def test_the_right_result_of_skewed_keys_passes(zipf: float) -> None:
    spec = SyntheticSpec(5000, 0.7, 3, payload_columns=2, zipf=zipf)
    result, rows, checksum = merged(spec)
    assert rows == spec.matching_rows == 3500
    assert check_result_rows(spec, result) == (rows, checksum, 0)
    left, right, _, _ = whole(spec, 3)
    assert left.equals(whole(spec)[0])
    assert right.equals(whole(spec)[1])


def test_seeds_make_different_tables() -> None:
    keys = [columns(whole(SyntheticSpec(2000, 0.5, seed))[side])[KEY] for seed in (0, 1, 2) for side in (0, 1)]
    for n, one in enumerate(keys):
        for other in keys[n + 1 :]:
            assert np.count_nonzero(one == other) < 40


def test_keys_are_scattered() -> None:
    """Neighbours in the left table are not neighbours among the keys."""
    keys = columns(whole(SyntheticSpec(10_000, 0.3, 0))[0])[KEY].astype(np.int64)
    assert np.count_nonzero(np.abs(np.diff(keys)) < 10) < 60  # 19 expected by chance
    assert abs(np.corrcoef(np.arange(10_000), keys)[0, 1]) < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_matches_are_spread_evenly_over_left_and_right_chunks(seed: int) -> None:
    """Chi-square over 20 chunks: 19 degrees of freedom, 60 is beyond one in a hundred thousand."""
    spec = SyntheticSpec(40_000, 0.3, seed)
    left, right, _, _ = (columns(t) if isinstance(t, pa.Table) else t for t in whole(spec))
    matching = (right[KEY] >= 0) & (right[KEY] < spec.rows)
    place = np.empty(spec.rows, np.int64)
    place[left[KEY]] = np.arange(spec.rows)
    for positions in (place[right[KEY][matching]], np.flatnonzero(matching)):
        counts = np.bincount(positions * 20 // spec.rows, minlength=20)
        mean = spec.matching_rows / 20
        assert ((counts - mean) ** 2 / mean).sum() < 60


def test_zipf_has_a_heavy_head() -> None:
    spec = SyntheticSpec(50_000, 1.0, 1, zipf=1.2)
    keys = columns(whole(spec)[1])[KEY]
    counts = np.sort(np.bincount(keys, minlength=spec.rows))[::-1]
    assert counts[0] > 0.1 * spec.rows
    assert counts[:100].sum() > 0.5 * spec.rows
    assert np.count_nonzero(counts) > 1000  # and a long tail
    steeper = columns(whole(SyntheticSpec(50_000, 1.0, 1, zipf=2.0))[1])[KEY]
    assert np.bincount(steeper).max() > counts[0]


def test_zipf_counts_fall_with_the_exponent() -> None:
    """The frequency of rank k against that of rank 1 follows k^-s, as near as the continuous law comes to it."""
    keys = columns(whole(SyntheticSpec(200_000, 1.0, 5, zipf=1.2))[1])[KEY]
    counts = np.sort(np.bincount(keys))[::-1].astype(float)
    ranks = np.array([4, 16, 64, 256])
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
    assert slope == pytest.approx(-1.2, abs=0.12)


def test_columns() -> None:
    spec = SyntheticSpec(100, 0.5, 0, payload_columns=3)
    left, right, _, _ = whole(spec, 3)
    assert left.column_names == [KEY, "left_payload_0", "left_payload_1", "left_payload_2"]
    assert right.column_names == [KEY, "right_payload_0", "right_payload_1", "right_payload_2"]
    assert {field.type for field in (*left.schema, *right.schema)} == {pa.int64()}
    assert left["left_payload_0"].to_pylist() == right["right_payload_0"].to_pylist() == list(range(100))
    for number in (1, 2):
        values = left[f"left_payload_{number}"].to_pylist()
        assert values == right[f"right_payload_{number}"].to_pylist()
        assert len(set(values)) == 100
    assert spec.bytes_per_row == 32


def broken(table: pa.Table, name: str, change: np.ndarray) -> pa.Table:
    index = table.column_names.index(name)
    return table.set_column(index, name, pa.array(change))


SPEC = SyntheticSpec(3000, 0.4, 9, payload_columns=2)


@pytest.fixture(scope="module")
def right_answer() -> tuple[pa.Table, int, int]:
    return merged(SPEC)


def test_check_sees_a_dropped_row(right_answer: tuple[pa.Table, int, int]) -> None:
    table, rows, checksum = right_answer
    found = check_result_rows(SPEC, table.slice(1))
    assert found[0] == rows - 1
    assert found[1] != checksum


def test_check_sees_a_doubled_row(right_answer: tuple[pa.Table, int, int]) -> None:
    table, rows, checksum = right_answer
    found = check_result_rows(SPEC, pa.concat_tables([table, table.slice(5, 1)]))
    assert found[0] == rows + 1
    assert found[1] != checksum


def test_check_sees_a_row_in_place_of_another(right_answer: tuple[pa.Table, int, int]) -> None:
    """The count is right and every row too: only the checksum differs."""
    table, rows, checksum = right_answer
    found = check_result_rows(SPEC, pa.concat_tables([table.slice(1), table.slice(5, 1)]))
    assert (found[0], found[2]) == (rows, 0)
    assert found[1] != checksum


def test_check_sees_a_row_of_another_table(right_answer: tuple[pa.Table, int, int]) -> None:
    """Rows that are whole in themselves, of the table of another seed."""
    table, _, _ = right_answer
    foreign = merged(SyntheticSpec(3000, 0.4, 10, payload_columns=2))[0].slice(0, 20)
    assert check_result_rows(SPEC, pa.concat_tables([table, foreign]))[2] >= 19  # by chance one may be right


def test_check_sees_a_row_that_must_not_match(right_answer: tuple[pa.Table, int, int]) -> None:
    """A left and a right row that do not belong together, under either key."""
    table, _, _ = right_answer
    values = columns(table)
    for key in (values[KEY][0], values[KEY][1]):
        one = {name: column[:1].copy() for name, column in values.items()}
        for name in ("right_payload_0", "right_payload_1"):
            one[name] = values[name][1:2]
        one[KEY] = np.array([key])
        assert check_result_rows(SPEC, pa.table(one))[2] == 1


@pytest.mark.parametrize("bit", [0, 1, 13, 31, 32, 62, 63])
@pytest.mark.parametrize("name", [KEY, "left_payload_0", "right_payload_0", "left_payload_1", "right_payload_1"])
def test_check_sees_a_flipped_bit(right_answer: tuple[pa.Table, int, int], name: str, bit: int) -> None:
    table, rows, checksum = right_answer
    values = columns(table)[name].copy()
    values.view(np.uint64)[77] ^= np.uint64(1 << bit)
    found = check_result_rows(SPEC, broken(table, name, values))
    assert found[0] == rows
    assert found[2] >= 1
    assert (found[1] != checksum) == (name == "right_payload_0")


@pytest.mark.parametrize("name", ["left_payload_0", "right_payload_0", "left_payload_1", "right_payload_1", KEY])
def test_check_sees_values_swapped_between_rows(right_answer: tuple[pa.Table, int, int], name: str) -> None:
    table, rows, checksum = right_answer
    values = columns(table)[name].copy()
    values[[3, 4]] = values[[4, 3]]
    found = check_result_rows(SPEC, broken(table, name, values))
    assert found[:2] == (rows, checksum)
    assert found[2] >= 2


def test_check_sees_row_numbers_beyond_the_table() -> None:
    table = pa.table({KEY: [0], "left_payload_0": [10**9], "right_payload_0": [-1]})
    assert check_result_rows(SyntheticSpec(100, 0.5, 0), table)[2] == 1


def test_check_of_no_rows() -> None:
    empty = {name: np.zeros(0, np.int64) for name in (KEY, "left_payload_0", "right_payload_0")}
    assert check_result_rows(SyntheticSpec(100, 0.0, 0), pa.table(empty)) == (0, 0, 0)
    assert whole(SyntheticSpec(100, 0.0, 0))[2:] == (0, 0)


def test_checksum_is_over_right_row_numbers() -> None:
    """Worked out again in Python."""
    spec = SyntheticSpec(300, 0.5, 2)
    _, right, _, checksum = whole(spec)
    numbers = [n for n, key in enumerate(right[KEY].to_pylist()) if 0 <= key < spec.rows]
    assert checksum == sum(plain_mix(n + 1) for n in numbers) % 2**64


def plain_mix(x: int) -> int:
    for _ in range(2):
        x ^= x >> 32
        x = x * 0xD6E8FEB86659FD93 % 2**64
    return x ^ x >> 32


def test_scrambling_is_what_the_kernels_do() -> None:
    scrambled = compile_loop(lambda x: mix64(x))
    for x in (1, 2**40 + 3, 2**64 - 1):
        assert int(scrambled(np.uint64(x))) == plain_mix(x)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 99, 100, 101])
def test_small_tables(rows: int) -> None:
    """Around perfect squares, where the permutation's grid changes."""
    spec = SyntheticSpec(rows, 1.0, 4)
    result, expected, checksum = merged(spec)
    assert expected == rows == result.num_rows
    assert check_result_rows(spec, result) == (rows, checksum, 0)
