"""Rules over types and names."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.workload.tables import common_comparable_type, name_output_columns, refuse_unsupported_types

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def limits(arrow_type: pa.DataType) -> tuple[int, int]:
    bits = arrow_type.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(arrow_type) else (0, 2**bits - 1)


@pytest.mark.parametrize("left", INTEGERS, ids=str)
@pytest.mark.parametrize("right", INTEGERS, ids=str)
def test_integers_meet_in_the_narrowest_type_that_holds_both(left: pa.DataType, right: pa.DataType) -> None:
    common = common_comparable_type(left, right)
    low = min(limits(left)[0], limits(right)[0])
    high = max(limits(left)[1], limits(right)[1])
    holding = [t for t in INTEGERS if limits(t)[0] <= low and limits(t)[1] >= high]
    # uint64 beside a signed type: nothing holds both, and the statistics decide whether int64 will do.
    assert common == (min(holding, key=lambda t: t.bit_width) if holding else pa.int64())


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 0), pa.decimal128(10, 6), pa.decimal128(16, 6)),
        (pa.decimal128(38, 0), pa.decimal128(5, 1), None),
        (pa.decimal128(38, 0), pa.int64(), pa.decimal128(38, 0)),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.uint64(), pa.decimal128(38, 20), None),
        (pa.time32("ms"), pa.time64("ns"), pa.time64("ns")),
        (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), None),
        (pa.duration("s"), pa.duration("us"), pa.duration("us")),
        (pa.date32(), pa.date32(), pa.date32()),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.large_string(), pa.int64(), None),
        (pa.large_string(), pa.large_binary(), pa.large_binary()),
        (pa.null(), pa.date32(), pa.date32()),
        (pa.int64(), pa.float64(), None),
        (pa.float64(), pa.decimal128(10, 2), None),
        (pa.bool_(), pa.int8(), None),
        (pa.duration("us"), pa.timestamp("us"), None),
        (pa.date32(), pa.int32(), None),
    ],
    ids=str,
)
def test_common_type_of_keys(left: pa.DataType, right: pa.DataType, common: pa.DataType | None) -> None:
    assert common_comparable_type(left, right) == common
    assert common_comparable_type(right, left) == common


@pytest.mark.parametrize("refused", [pa.time32("ms"), pa.time64("us"), pa.large_binary()], ids=str)
def test_cudf_refuses_what_libcudf_has_no_type_for(refused: pa.DataType) -> None:
    others = [engine.name for engine in engine_descriptions() if not engine.device_memory]
    for engine in others:
        refuse_unsupported_types(engine, [("c", refused)])
    with pytest.raises(UsageError) as caught:
        refuse_unsupported_types("cudf", [("fine", pa.int64()), ("c", refused)])
    message = str(caught.value)
    assert message.startswith(f"column 'c' has type {refused}, which engine cudf cannot merge (cuDF has no type for")
    assert message.endswith(f"use --engine {', '.join(others[:-1])} or {others[-1]}")


def test_cudf_takes_the_rest() -> None:
    rest = [
        pa.date32(),
        pa.timestamp("ns", "UTC"),
        pa.duration("s"),
        pa.decimal128(38, 2),
        pa.large_string(),
        pa.bool_(),
    ]
    refuse_unsupported_types("cudf", [(str(t), t) for t in [*rest, *INTEGERS, pa.float32(), pa.float64()]])


def test_names_of_the_result() -> None:
    left, right = name_output_columns(["id", "x", "a"], ["rid", "x", "id", "b"], ["id"], ["rid"])
    assert left == ["id", "x_left", "a"]
    assert right == ["id", "x_right", "id_right", "b"]


def test_a_suffix_is_repeated_until_the_name_is_free() -> None:
    left, right = name_output_columns(["id", "x", "x_left"], ["id", "x", "x_right", "x_right_right"], ["id"], ["id"])
    assert left == ["id", "x_left_left", "x_left"]
    assert right == ["id", "x_right_right_right", "x_right", "x_right_right"]


NAMES = st.lists(
    st.sampled_from(["k", "x", "y", "x_left", "x_right", "k_right", "x_left_left", "z"]), min_size=1, unique=True
)


@given(left=NAMES, right=NAMES, data=st.data())
def test_names_never_collide(left: list[str], right: list[str], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, min(len(left), len(right))))
    left_on = data.draw(st.permutations(left))[:count]
    right_on = data.draw(st.permutations(right))[:count]
    new_left, new_right = name_output_columns(left, right, left_on, right_on)
    payload = [new for old, new in zip(right, new_right, strict=True) if old not in right_on]
    assert len(set(new_left + payload)) == len(left) + len(right) - count
    for left_key, right_key in zip(left_on, right_on, strict=True):
        assert new_left[left.index(left_key)] == new_right[right.index(right_key)] == left_key
    for old, new in zip(left, new_left, strict=True):
        assert new == old or (old in right and new.startswith(old + "_left"))
