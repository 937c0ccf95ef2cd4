"""When a worker sends what it has measured."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge import worker
from merge_bench.merge.merger import WorkerMeasurement
from merge_bench.records.schema import Flight, FrameCounts, Phases, WorkerIteration


class Plugin:
    """A worker whose iterations take `seconds` each; the merge of `failing` fails. It notes what happens, in order."""

    def __init__(self, seconds: float, failing: int | None = None) -> None:
        self.seconds, self.failing, self.now = seconds, failing, 0.0
        self.happened: list[str] = []
        self.merger = SimpleNamespace(merge=self.merge_once, engine=SimpleNamespace(result_tables=list))
        self.launch_state = SimpleNamespace(check_result_part=self.check)
        self.abort = None

    def merge_once(self) -> WorkerMeasurement:
        self.now += self.seconds
        number = sum(each.startswith("merge") for each in self.happened)
        self.happened.append(f"merge {number}")
        if number == self.failing:
            raise RunFailed("a peer is gone")
        none = FrameCounts(left=0, right=0)
        worker = WorkerIteration(
            rank=0,
            seconds=self.seconds,
            phases_seconds=Phases(partition=0, exchange=0, join=0),
            sent_bytes=none,
            flight_seconds=Flight(left=0, right=0, union=0),
            received_rows=none,
            result_rows=number,
        )
        return WorkerMeasurement(worker, [])

    def check(self, results: Any, abort: Any) -> dict[str, int]:
        self.happened.append("verify")
        return {}

    def send_event(self, kind: str, **fields: Any) -> None:
        self.happened.append(f"{kind} {fields['index']}")
        if kind == "iteration":
            assert fields["measured"]["worker"]["result_rows"] == fields["index"]


def happened(plugin: Plugin, count: int, *, verify: bool = False) -> list[str]:
    made: Any = plugin
    with contextlib.nullcontext() if plugin.failing is None else pytest.raises(RunFailed):
        worker.run_iterations_on_plugin(made, 0, count, warmup=False, verify=verify, clock=lambda: plugin.now)
    return plugin.happened


def test_a_long_iteration_is_sent_at_once() -> None:
    long = 1.5 * worker.HELD_SECONDS
    assert happened(Plugin(long), 2) == ["merge 0", "iteration 0", "merge 1", "iteration 1"]


def test_short_iterations_are_sent_several_at_a_time_so_that_sending_disturbs_few() -> None:
    found = happened(Plugin(worker.HELD_SECONDS / 2.5), 5)
    assert found == [
        "merge 0",
        "iteration 0",
        "merge 1",
        "merge 2",
        "merge 3",
        "iteration 1",
        "iteration 2",
        "iteration 3",
        "merge 4",
        "iteration 4",
    ]


def test_what_was_measured_before_a_failure_is_sent() -> None:
    found = happened(Plugin(worker.HELD_SECONDS / 10, failing=2), 5)
    assert found == ["merge 0", "iteration 0", "merge 1", "merge 2", "iteration 1"]


def test_each_iteration_is_sent_before_its_result_is_checked() -> None:
    found = happened(Plugin(worker.HELD_SECONDS / 10), 2, verify=True)
    one = ["merge 0", "iteration 0", "verify", "verification 0"]
    assert found == [*one, *(each.replace("0", "1") for each in one)]


FREEZING = """
import gc, sys
from merge_bench.merge import worker
from merge_bench.merge.exchange.base import AbortFlag
plugin = worker.MergeWorker()
plugin.state, plugin.children, plugin.abort = None, {}, AbortFlag()
if sys.argv[1] == "frozen":
    gc.freeze()
plugin.freeze_garbage_collector()
during = gc.get_freeze_count()
worker.release_launch(plugin)
print(during > 10_000, gc.get_freeze_count() > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["not frozen", "frozen"])
def test_a_launch_leaves_the_garbage_collector_of_a_running_cluster_as_it_was(before: str) -> None:
    done = subprocess.run([sys.executable, "-c", FREEZING, before], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(before == "frozen")]
