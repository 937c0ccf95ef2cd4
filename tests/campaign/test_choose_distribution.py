"""Which table is sent whole, what is refused, and what of it the plan and other commands know."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.campaign.machine_checks import check_tables_fit_in_memory
from merge_bench.errors import UsageError
from merge_bench.merge.distribution import (
    SHUFFLED,
    RowDistribution,
    broadcastable_sides,
    bytes_between_workers,
    choose_distribution,
)
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.plan import PROCESS_BYTES, Plan, synthetic_worker_bytes
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.recorded_plan import RecordedPlan, find_unreadable_options
from tests.helpers.plans import plan_of


def planned(**options: Any) -> Plan:
    size = {} if "left" in options else {"chunk": (1000,)}
    return plan_of(**{**size, "workers": 2, **options})


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """A left table of 8000 rows and a right one of 10, with strings."""
    for name, rows in (("left", 8000), ("right", 10)):
        table = pa.table({"key": np.arange(rows), name: [f"text {row}" for row in range(rows)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1000)
    return {"left": str(tmp_path / "left.parquet"), "right": str(tmp_path / "right.parquet"), "on": ("key",)}


def test_without_the_option_synthetic_tables_are_shuffled_and_a_small_table_is_sent_whole(
    tables: dict[str, Any],
) -> None:
    alike = planned(**{**tables, "right": tables["left"], "on": ("key", "left")}).distribution
    assert alike.sent is None
    assert alike.reason is not None
    for options in ({}, {"how": "semi", "payload_columns": 9}, {**tables, "distribution": "shuffle"}):
        plan = planned(**options)
        assert plan.distribution == SHUFFLED, options
        assert plan.sent_rows == 0
        assert plan.to_json()["distribution"] == "shuffle"
    assert planned(distribution="auto", how="semi", payload_columns=9).distribution.sent is Side.RIGHT
    plan = planned(**tables)
    assert plan.distribution.sent is Side.RIGHT
    assert plan.to_json()["distribution_reason"].startswith("a broadcast of the right table sends ")


@pytest.mark.parametrize(
    ("how", "sides"),
    [
        ("inner", (Side.LEFT, Side.RIGHT)),
        ("left", (Side.RIGHT,)),
        ("right", (Side.LEFT,)),
        ("outer", ()),
        ("semi", (Side.RIGHT,)),
        ("anti", (Side.RIGHT,)),
    ],
)
def test_a_side_whose_rows_without_a_match_are_kept_is_not_sent(
    how: str, sides: tuple[Side, ...], tables: dict[str, Any]
) -> None:
    assert broadcastable_sides(JoinKind(how)) == sides
    for distribution in ("broadcast", "auto"):
        if not sides and distribution == "broadcast":
            with pytest.raises(UsageError, match="--distribution broadcast cannot be used with --how outer"):
                planned(how=how, distribution=distribution, **tables)
            continue
        plan = planned(how=how, distribution=distribution, **tables)
        small = Side.RIGHT in sides
        expected = (Side.RIGHT if small else Side.LEFT) if small or distribution == "broadcast" else None
        assert plan.distribution.sent is expected
        assert plan.sent_rows == {Side.LEFT: 8000, Side.RIGHT: 10, None: 0}[expected]
        assert (plan.distribution.reason is None) == (distribution == "broadcast")


def test_the_records_have_what_was_chosen_and_why(tables: dict[str, Any]) -> None:
    found = planned(distribution="auto", **tables).to_json()
    recorded = RecordedPlan.from_options(found)
    assert not find_unreadable_options(found)
    assert (recorded.distribution, recorded.broadcast_side) == ("broadcast", "right")
    # A key and an offset of 8 bytes each, and the text: 6 bytes in the right table, in the left one's first row group
    # 7.89 on average. Half of 10 × 22 + 8000 × 23.89 bytes is 93.43 KiB.
    assert recorded.distribution_reason is not None
    assert "broadcast of the right table sends 220 B per iteration, a shuffle 93.43 KiB" in recorded.distribution_reason


@given(
    st.sampled_from(JoinKind),
    st.integers(1, 64),
    st.floats(0, 1e12, allow_nan=False),
    st.floats(0, 1e12, allow_nan=False),
)
def test_auto_sends_fewer_bytes_and_leaves_fewer_on_a_worker(
    how: JoinKind, workers: int, left: float, right: float
) -> None:
    sizes = {Side.LEFT: left, Side.RIGHT: right}
    found = choose_distribution("auto", how, workers, lambda: sizes, incompatible_option=None)
    assert found.reason
    bytes_of = {sent: bytes_between_workers(sizes, workers, sent) for sent in (None, *broadcastable_sides(how))}
    if found.sent is None:
        assert workers == 1 or bytes_of[None] <= 2 * min(bytes_of.values()) * (1 + 1e-12)
    else:
        assert 2 * bytes_of[found.sent] < bytes_of[None]
        assert bytes_of[found.sent] == min(bytes_of.values())
        assert sizes[found.sent] <= (left + right) / workers / 2  # of a shuffle, a worker has twice as much


@pytest.mark.parametrize(
    ("options", "says"),
    [({"pipeline": "on"}, "--pipeline on cannot be used"), ({"runtime_filter": "on"}, "--runtime-filter on cannot be")],
)
def test_options_that_need_a_shuffle(options: dict[str, str], says: str, tables: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{says}.* --distribution broadcast"):
        planned(distribution="broadcast", **options, **tables)
    found = planned(distribution="auto", **options, **tables).distribution
    assert found.sent is None
    assert found.reason is not None
    assert says.partition(" cannot")[0] in found.reason


def test_one_worker_sends_nothing() -> None:
    assert planned(distribution="auto", workers=(1,)).distribution.sent is None
    assert planned(distribution="broadcast", workers=(1,)).distribution.sent is Side.LEFT


def test_equal_tables_are_shuffled_where_a_broadcast_sends_as_much() -> None:
    assert planned(distribution="auto").distribution.sent is None
    assert planned(distribution="auto", how="semi").distribution.sent is None  # keys alone: two thirds of a shuffle
    assert planned(distribution="auto", how="semi", payload_columns=8).distribution.sent is Side.RIGHT


def test_a_table_that_does_not_fit_on_every_worker_is_refused(tables: dict[str, Any]) -> None:
    """The left table of 0.2 MB on 16 workers, where the 3 copies of a shuffle would fit."""
    memory = 16 * PROCESS_BYTES + 2_000_000
    for distribution in ("shuffle", "broadcast"):
        plan = planned(distribution=distribution, workers=16, how="right", **tables)
        assert isinstance(plan.workload, TableSpec)
        if distribution == "shuffle":
            check_tables_fit_in_memory(plan.workload, 16, memory, plan.how, plan.distribution.sent)
            continue
        with pytest.raises(UsageError, match="does not copy the left table to all 16 workers"):
            check_tables_fit_in_memory(plan.workload, 16, memory, plan.how, plan.distribution.sent)


@given(st.integers(2, 64), st.floats(0, 1), st.integers(1, 8), st.sampled_from(Side))
def test_the_estimate_of_memory_counts_the_whole_side(workers: int, fraction: float, payload: int, sent: Side) -> None:
    spec = SyntheticSpec(10**6 * workers, fraction, 0, payload)
    plan = dataclasses.replace(planned(), workload=spec, workers=workers, engine="native", pipeline=True)
    shuffled, whole = (
        synthetic_worker_bytes(dataclasses.replace(plan, distribution=RowDistribution(side))) for side in (None, sent)
    )
    row = 8 * (1 + payload)
    # All rows of the others, instead of an even share of both sides.
    assert whole - shuffled == pytest.approx(10**6 * row * (workers - 1) * (1 - 2 / workers), abs=4)


def test_the_plan_is_frozen_data() -> None:
    plan = planned(distribution="broadcast")
    assert dataclasses.replace(plan, distribution=SHUFFLED) == planned()
