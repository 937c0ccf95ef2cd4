"""Which merger a plan gets, and which plans with overlapping phases are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from merge_bench.campaign.machine_checks import Machine
from merge_bench.errors import UsageError
from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.frame import Frame
from merge_bench.merge.merger import Merger, PipelinedMerger, make_merger
from merge_bench.merge.partition import LINES, most_total_buckets
from merge_bench.merge.plan import Plan
from tests.helpers.members import install_empty
from tests.helpers.plans import plan_of
from tests.merge.exchange.test_schedule import Noted


def plan(**options: Any) -> Plan:
    return plan_of(**{"chunk": 1000, "workers": 2, **options})


def test_phases_are_apart_unless_asked_for() -> None:
    assert not plan().pipeline
    assert plan(pipeline="on").pipeline
    assert plan(pipeline="on").to_json()["pipeline"] is True


def test_one_worker_has_nothing_to_overlap_with() -> None:
    assert not plan(pipeline="on", workers=(1,)).pipeline


def test_dask_orders_its_steps_itself() -> None:
    with pytest.raises(UsageError, match="--pipeline on needs --exchange ucx"):
        plan(pipeline="on", exchange="dask")


def test_an_engine_that_joins_all_at_once_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(gpus=2)
    install_empty(monkeypatch, tmp_path, "pylibcudf")
    assert plan(engine="cudf", machine=machine).engine == "cudf"
    with pytest.raises(UsageError, match="--engine cudf cannot overlap phases"):
        plan(engine="cudf", pipeline="on", machine=machine)


def test_the_merger_is_the_one_of_the_plan() -> None:
    fields = Frame.from_arrow(pa.table({"key": [1]})).fields
    engine = import_engine_class("polars")(JoinShape(fields, fields, ("key",), 2, 0, 2))
    assert type(make_merger(engine, 0, plan(), AbortFlag())) is Merger
    assert type(make_merger(engine, 0, plan(pipeline="on"), AbortFlag())) is PipelinedMerger

    class Whole:
        name = "whole"

    with pytest.raises(UsageError, match="--engine whole cannot overlap phases; use --pipeline off"):
        make_merger(Whole(), 0, plan(pipeline="on"), AbortFlag())
    with pytest.raises(UsageError, match="--engine whole has no runtime filter; use --runtime-filter off"):
        make_merger(Whole(), 0, plan(runtime_filter="on"), AbortFlag())


def test_headers_have_the_buckets_that_the_engine_has_by_then() -> None:
    """The way of writing parcels is chosen after the merger was made, and more buckets make longer headers.

    The other worker has no rows, so that this one has the result of its own.
    """
    frame = Frame.from_arrow(pa.table({"key": range(100)}))
    engine = import_engine_class("native")(JoinShape(frame.fields, frame.fields, ("key",), 2, 0, 400_000_000))
    assert isinstance(engine, HostEngine)
    engine.load_chunks(frame, frame)
    exchange = Noted(0, 2)
    merger = PipelinedMerger(engine, exchange, plan(pipeline="on"))
    before = engine.parcel_header_bytes(Side.LEFT)
    engine.use_parcel_writer(LINES, most_total_buckets([LINES]))
    after = engine.parcel_header_bytes(Side.LEFT)
    assert after > before
    assert 0 < merger.merge().worker.result_rows < 100
    assert sum(size == after + 8 for _, size in exchange.messages) == len(engine.pieces)  # after a number of the piece
