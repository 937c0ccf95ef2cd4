"""NVTX ranges: one for each phase of a merge on a GPU, in our domain, none elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

from merge_bench.merge import merger as merger_module
from merge_bench.merge.engines import engine_class
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.exchange.base import Abort, Flight
from merge_bench.merge.frame import Frame
from merge_bench.merge.merger import Merger, phase_ranges
from tests.helpers import fake_nvtx
from tests.merge.test_pipelined_merger import plan

Seen = list[tuple[str, str | None, str | None]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What began and ended, in the domain of whom."""
    monkeypatch.setitem(sys.modules, "nvtx", fake_nvtx.modules()["nvtx"])
    fake_nvtx.seen.clear()
    return fake_nvtx.seen


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker exchanges nothing, and UCX does not start in the process of the tests."""
    exchange = SimpleNamespace(
        workers=1, peers=(), barrier=lambda: None, transfer=lambda sent, received, noted=False: Flight()
    )
    monkeypatch.setattr("merge_bench.merge.exchange.ucx.UcxExchange.of_plan", lambda *about: exchange)


def merger() -> Merger:
    table = pa.table({"key": [1, 2, 3], "value": [4, 5, 6]})
    frame = Frame.from_arrow(table)
    engine = engine_class("polars")(JoinShape(frame.fields, frame.fields, ("key",), 1, 0, 3))
    engine.load(frame, frame)
    return Merger(engine, 0, plan(workers=(1,)), Abort())


def test_each_phase_of_each_iteration_on_a_gpu_is_a_range(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merger_module, "describe", lambda name: SimpleNamespace(device_memory=True))
    made = merger()
    for _ in range(2):
        assert made.merge().worker.result_rows == 3
    once = [(edge, phase, "merge_bench") for phase in ("partition", "exchange", "join") for edge in ("begin", "end")]
    assert seen == 2 * once


def test_without_a_gpu_there_is_none_and_without_the_package_either(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    merger().merge()
    assert seen == []
    monkeypatch.delitem(sys.modules, "nvtx")
    monkeypatch.setattr(merger_module.importlib.util, "find_spec", lambda name: None)
    with phase_ranges("cudf")("join"):
        assert "nvtx" not in sys.modules
