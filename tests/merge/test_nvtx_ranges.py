"""NVTX ranges: one for each phase of a merge on a GPU, in our domain, none elsewhere."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from types import SimpleNamespace

import pyarrow as pa
import pytest

from merge_bench.merge import nvtx_ranges
from merge_bench.merge.engines import engine_class
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.in_flight import Flight
from merge_bench.merge.frame import Frame
from merge_bench.merge.merger import Merger
from merge_bench.merge.nvtx_ranges import ranges_of
from tests.merge.test_pipelined_merger import plan


class Profiler(types.ModuleType):
    """The package nvtx 0.2.16, whose `annotate` has this signature; keeps what began and ended."""

    def __init__(self) -> None:
        super().__init__("nvtx")
        self.__spec__ = importlib.machinery.ModuleSpec("nvtx", None)
        self.seen: list[tuple[str, str | None, str | None]] = []

    def annotate(
        self, message: str | None = None, color: str | int | None = None, domain: str | None = None,
        category: str | int | None = None, payload: object = None,
    ) -> object:  # fmt: skip
        assert color is category is payload is None
        seen = self.seen

        class Range:
            def __enter__(self) -> None:
                seen.append(("begin", message, domain))

            def __exit__(self, *problem: object) -> None:
                seen.append(("end", message, domain))

        return Range()


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> Profiler:
    found = Profiler()
    monkeypatch.setitem(sys.modules, "nvtx", found)
    return found


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker exchanges nothing, and UCX does not start in the process of the tests."""
    exchange = SimpleNamespace(
        workers=1, peers=(), barrier=lambda: None, transfer=lambda sent, received, noted=False: Flight()
    )  # fmt: skip
    monkeypatch.setattr("merge_bench.merge.exchange.ucx.UcxExchange.of_plan", lambda *about: exchange)


def merger() -> Merger:
    table = pa.table({"key": [1, 2, 3], "value": [4, 5, 6]})
    frame = Frame.from_arrow(table)
    engine = engine_class("polars")(JoinShape(frame.fields, frame.fields, ("key",), 1, 0, 3))
    engine.load(frame, frame)
    return Merger(engine, 0, plan(workers=(1,)), Abort())


def test_each_phase_of_each_iteration_on_a_gpu_is_a_range(profiler: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvtx_ranges, "describe", lambda name: SimpleNamespace(device_memory=True))
    made = merger()
    for _ in range(2):
        assert made.merge().worker.result_rows == 3
    once = [(edge, phase, "merge_bench") for phase in ("partition", "exchange", "join") for edge in ("begin", "end")]
    assert profiler.seen == 2 * once


def test_without_a_gpu_there_is_none_and_without_the_package_either(
    profiler: Profiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    merger().merge()
    assert profiler.seen == []
    monkeypatch.delitem(sys.modules, "nvtx")
    monkeypatch.setattr(nvtx_ranges.importlib.util, "find_spec", lambda name: None)
    with ranges_of("cudf")("join"):
        assert "nvtx" not in sys.modules
