"""What a Dask worker holds of a merge, in the one plugin: between the steps that the driver submits (`steps.py`).

A step runs on the worker's task thread and may wait for the other workers over the data plane. Meanwhile the worker's
event loop answers: heartbeats and aborts.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from merge_bench.errors import RunFailed
from merge_bench.host import affinity, cuda_context, machine
from merge_bench.host.memory import PeakMeter, available_bytes
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.frame import Frame
from merge_bench.merge.merger import Merger
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification.verify import ResultCheck

if TYPE_CHECKING:  # the driver imports this module to name its functions, and needs no UCX
    from merge_bench.merge.exchange.ucx import UcxExchange

PLUGIN = "merge_bench"
RESERVE_FRACTION = 0.03  # of the machine's memory: below this a run ends before the kernel ends it
GUARD_SECONDS = 0.1


class Child(Protocol):
    """What a step leaves for a later one: a program beside the worker, or memory that peers put into."""

    def end(self) -> object:
        """Make sure that it is gone."""


@dataclass
class State:
    """What a worker holds during one launch."""

    rank: int
    plan: Plan
    topic: str
    meter: PeakMeter
    frames: tuple[Frame, Frame] | None
    input_bytes: int
    merger: Merger | None = None
    exchange: UcxExchange | None = None
    check: ResultCheck | None = None
    empty: dict[str, Any] = field(default_factory=dict)  # of each side a frame of Dask's engine without rows
    guard: threading.Event = field(default_factory=threading.Event)


class MergeWorker(WorkerPlugin):  # type: ignore[misc]
    """Holds this worker's end of the merge between the driver's steps."""

    name = PLUGIN
    idempotent = True

    def setup(self, worker: Worker) -> None:
        """Called by Dask when the plugin arrives."""
        logging.getLogger("distributed.worker").addFilter(_no_heartbeats)
        self.worker = worker
        self.abort = Abort()
        self.state: State | None = None
        self.children: dict[str, Child] = {}
        self.uses_gpu = False
        affinity.keep_cores()
        # Dask tells of what fails here; the modules of a task it loads while it reads messages.
        import merge_bench.merge.steps  # noqa: F401

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the worker closes: whatever waits, stops."""
        self.abort.set("the worker is closing")
        for child in self.children.values():
            child.end()
        if self.state is not None:
            self.state.guard.set()

    @property
    def merger(self) -> Merger:
        """The connected merger."""
        if self.state is None or self.state.merger is None:
            raise RunFailed("the merge was not set up on this worker")
        return self.state.merger

    @property
    def exchange(self) -> UcxExchange:
        """The data plane's end here."""
        if self.state is None or self.state.exchange is None:
            raise RunFailed("the data plane was not set up on this worker")
        return self.state.exchange

    def send(self, kind: str, **fields: Any) -> None:
        """Tell the driver, without waiting for it."""
        if self.state is not None:
            message = {"event": kind, "rank": self.state.rank, **fields}
            self.worker.loop.add_callback(self.worker.log_event, self.state.topic, message)


def _no_heartbeats(record: logging.LogRecord) -> bool:
    """Keep Dask from noting every heartbeat of the driver in the worker's log."""
    return not str(record.msg).startswith("Run out-of-band function")


def here() -> MergeWorker:
    """The plugin of the worker that this runs on; every step begins with it.

    A worker may run each step in another of its task threads. On a GPU the context is therefore bound in this thread.
    """
    plugin: MergeWorker = get_worker().plugins[PLUGIN]
    if plugin.uses_gpu:
        cuda_context.bind()
    return plugin


def let_go(plugin: MergeWorker) -> None:
    """Forget a run: one that ended, or one that was aborted on a cluster that goes on living.

    Endpoints are closed first, so that nothing is under way to or from the memory that goes after them.
    """
    plugin.abort.clear()
    state, plugin.state = plugin.state, None
    if state is not None:
        state.guard.set()
        if state.exchange is not None:
            state.exchange.close()
    while plugin.children:
        plugin.children.popitem()[1].end()
    del state
    gc.collect()


async def heartbeat(dask_worker: Worker) -> None:
    """The driver is there. Runs on the event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.heartbeat()


async def abort(reason: str, dask_worker: Worker) -> None:
    """Make whatever waits on this worker stop. Runs on the event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.set(reason)


def guard_memory(plugin: MergeWorker, state: State) -> None:
    """Watch this host's memory until `state` is let go of."""
    threading.Thread(target=_guard, args=(plugin, state), name="memory-guard", daemon=True).start()


def _guard(plugin: MergeWorker, state: State) -> None:
    """End this process before the kernel ends it, or another one, for want of memory."""
    reserve = max(int(RESERVE_FRACTION * machine.hardware()["memory_bytes"]), 256 << 20)
    while not state.guard.wait(GUARD_SECONDS):
        left = available_bytes()
        if left >= reserve:
            continue
        message = f"only {left >> 20} MiB of memory were left on {machine.identity()['host']}"
        plugin.abort.set(message)
        plugin.send("out-of-memory", message=message)
        time.sleep(1.0)
        if available_bytes() < reserve:
            os._exit(1)
