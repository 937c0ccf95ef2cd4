"""Joins that keep rows without a match, or leave out the right columns: the synthetic tables know their results."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.workload import KEY, SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks
from tests.helpers.examples import examples

ARROW = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left outer",
    JoinKind.RIGHT: "right outer",
    JoinKind.OUTER: "full outer",
    JoinKind.SEMI: "left semi",
    JoinKind.ANTI: "left anti",
}
KEEPING = (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER)


def joined(spec: SyntheticSpec, how: JoinKind, workers: int = 1) -> tuple[pa.Table, int, int]:
    """The right result by Arrow's own join, and the expected rows and checksum."""
    parts = [generate_chunks(spec, rank, workers, how) for rank in range(workers)]
    left, right = (pa.concat_tables([part[side].to_arrow() for part in parts]) for side in (0, 1))
    result = left.join(right, KEY, join_type=ARROW[how]).combine_chunks()
    return result, sum(part[2].rows for part in parts), sum(part[2].checksum for part in parts) % 2**64


specs = st.builds(
    SyntheticSpec,
    rows=st.integers(1, 300),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**31),
    payload_columns=st.integers(1, 3),
    zipf=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
)


@pytest.mark.slow
@given(spec=specs, how=st.sampled_from(JoinKind), workers=st.integers(1, 5))
@examples(200)
def test_the_right_result_passes(spec: SyntheticSpec, how: JoinKind, workers: int) -> None:
    result, rows, checksum = joined(spec, how, workers)
    assert result.num_rows == rows
    assert check_result_rows(spec, result, how) == (rows, checksum, 0)


@pytest.mark.parametrize(
    ("how", "rows"), [("inner", 300), ("left", 1000), ("right", 1000), ("outer", 1700), ("semi", 300), ("anti", 700)]
)
def test_rows_of_each_kind(how: str, rows: int) -> None:
    assert joined(SyntheticSpec(1000, 0.3, 5), JoinKind(how), 3)[1] == rows


@pytest.mark.parametrize("zipf", [0.0, 1.1])
@pytest.mark.parametrize("how", [JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER, JoinKind.SEMI, JoinKind.ANTI])
def test_a_lost_or_doubled_row_is_seen(how: JoinKind, zipf: float) -> None:
    spec = SyntheticSpec(400, 0.4, 1, zipf=zipf)
    result, rows, checksum = joined(spec, how)
    one = alone(result, how)[:1]
    lost = result.filter(pa.array(np.arange(rows) != one[0]))
    assert check_result_rows(spec, lost, how)[1] != checksum
    assert check_result_rows(spec, pa.concat_tables([result, result.take(one)]), how)[1] != checksum
    other = int(alone(result, how)[1])
    swapped = result.take(np.where(np.arange(rows) == other, one[0], np.arange(rows)))
    assert check_result_rows(spec, swapped, how)[0] == rows
    assert check_result_rows(spec, swapped, how)[1] != checksum


@pytest.mark.parametrize("zipf", [0.0, 1.1])
@pytest.mark.parametrize("how", KEEPING)
def test_a_pair_shown_as_a_row_without_a_match_is_bad(how: JoinKind, zipf: float) -> None:
    spec = SyntheticSpec(400, 0.4, 1, payload_columns=2, zipf=zipf)
    result, rows, _ = joined(spec, how)
    pair = next(at for at in range(rows) if at not in set(alone(result, how).tolist()))
    side = "right" if how is JoinKind.LEFT else "left"
    assert check_result_rows(spec, with_nulls(result, pair, side), how)[2] > 0


@pytest.mark.parametrize("how", [JoinKind.SEMI, JoinKind.ANTI])
def test_the_rows_of_the_opposite_join_are_bad(how: JoinKind) -> None:
    spec = SyntheticSpec(400, 0.4, 1)
    result, rows, _ = joined(spec, JoinKind.ANTI if how is JoinKind.SEMI else JoinKind.SEMI)
    assert check_result_rows(spec, result, how)[2] == rows


def test_a_row_of_the_side_that_is_not_kept_is_bad() -> None:
    spec = SyntheticSpec(400, 0.4, 1)
    result, _, _ = joined(spec, JoinKind.OUTER)
    for how in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT):
        assert check_result_rows(spec, result, how)[2] >= 240


def test_values_beside_a_row_without_a_match_are_bad() -> None:
    spec = SyntheticSpec(400, 0.4, 1, payload_columns=2)
    result, _, _ = joined(spec, JoinKind.LEFT)
    at = result.column_names.index("right_payload_1")
    filled = result.set_column(at, "right_payload_1", result["right_payload_1"].fill_null(7))
    assert check_result_rows(spec, filled, JoinKind.LEFT)[2] == 240


def alone(result: pa.Table, how: JoinKind) -> np.ndarray:
    """Where rows are that only one side has; of a semi or anti join, all."""
    if not how.has_right_columns:
        return np.arange(result.num_rows)
    missing = [result[f"{side}_payload_0"].is_null().to_numpy() for side in ("left", "right")]
    return np.flatnonzero(missing[0] | missing[1])


def with_nulls(result: pa.Table, row: int, side: str) -> pa.Table:
    """The result with nulls in one side's payload of a row."""
    for at, name in enumerate(result.column_names):
        if name.startswith(side):
            values = result[name].to_pylist()
            values[row] = None
            result = result.set_column(at, name, pa.array(values, pa.int64()))
    return result
