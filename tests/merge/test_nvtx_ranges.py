"""NVTX ranges: one for each phase of a merge on a GPU, in our domain, none elsewhere."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.frame import Frame
from merge_bench.merge.merger import Merger
from merge_bench.testing import QueueExchange
from tests.helpers import fake_nvtx, fake_rapids
from tests.merge.test_pipelined_merger import plan

Seen = list[tuple[str, str | None, str | None]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What began and ended, in the domain of whom."""
    for name, module in fake_rapids.modules().items():  # nvtx is one of them
        monkeypatch.setitem(sys.modules, name, module)
    fake_nvtx.seen.clear()
    return fake_nvtx.seen


def merger(name: str) -> Merger:
    """One worker, which exchanges nothing."""
    left, right = (Frame.from_arrow(pa.table({"key": [1, 2, 3], side: [4, 5, 6]})) for side in ("left", "right"))
    engine = import_engine_class(name)(JoinShape(left.fields, right.fields, ("key",), 1, 0, 6))
    engine.load_chunks(left, right)
    return Merger(engine, QueueExchange(0, 1, abort=AbortFlag(), timeout=1.0), plan(workers=(1,)))


def test_each_phase_of_each_iteration_on_a_gpu_is_a_range(seen: Seen) -> None:
    made = merger("cudf")
    for _ in range(2):
        assert made.merge().worker.result_rows == 3
    once = [(edge, phase, "merge_bench") for phase in ("partition", "exchange", "join") for edge in ("begin", "end")]
    assert seen == 2 * once


def test_without_a_gpu_there_is_none_and_without_the_package_either(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    merger("polars").merge()
    assert seen == []
    monkeypatch.setitem(sys.modules, "nvtx", None)  # importing it is an ImportError
    merger("cudf").merge()
    assert seen == []
