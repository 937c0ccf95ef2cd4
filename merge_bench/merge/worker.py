"""The plugin that keeps a Dask worker's part of a merge between the steps that the driver submits (`steps.py`).

A step runs on the worker's task thread and may wait for other workers over the data plane. Meanwhile the worker's event
loop handles heartbeats and aborts.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from merge_bench.errors import RunFailed
from merge_bench.host import cuda_context, machine
from merge_bench.host.memory import PeakMeter, available_bytes
from merge_bench.merge.copy_rate import CopyRounds
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.base import Exchange
from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.merger import Merger
from merge_bench.merge.plan import Plan
from merge_bench.merge.time_notes import KeptTimelines
from merge_bench.merge.verification.verify import Check, check_result

PLUGIN = "merge_bench"
RESERVE_FRACTION = 0.03  # of the machine's memory: below this a run ends before the kernel ends it
GUARD_SECONDS = 0.1

Held = TypeVar("Held")


class Child(Protocol):
    """What a step leaves for a later step: a program beside the worker, or memory that peers put into."""

    def end(self) -> object:
        """End the program, or free the memory."""


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
    exchange: Exchange | None = None
    copied: CopyRounds | None = None
    timelines: KeptTimelines | None = None
    empty: dict[str, Any] = field(default_factory=dict)  # for each side a frame of Dask's engine without rows
    guard: threading.Event = field(default_factory=threading.Event)

    def write(
        self, pieces: Iterable[pa.Table], number: int, fields: tuple[Sequence[Field], Sequence[Field]], abort: Abort
    ) -> Check:
        """Write part `number` of the result to the plan's folder, and check what can be read from it.

        `fields`: of both frames. The memory that this takes is not counted.
        """
        from merge_bench.merge import written_result

        output = self.plan.how.output(*fields, self.plan.keys)
        self.meter.pause()
        try:
            path = written_result.write_part(self.plan, number, pieces, output)
        finally:
            self.meter.restart()
        return self.verify(written_result.read_part(path, output), abort)

    def verify(self, pieces: Iterable[pa.Table], abort: Abort) -> Check:
        """Check this worker's part of the result; the memory that this takes is not counted."""
        self.meter.pause()
        try:
            return check_result(self.plan.workload, self.plan.how, pieces, abort, full=self.plan.verify == "full")
        finally:
            self.meter.restart()


class MergeWorker(WorkerPlugin):  # type: ignore[misc]
    """Keeps this worker's state between the driver's steps."""

    name = PLUGIN
    idempotent = True

    def setup(self, worker: Worker) -> None:
        """Initialize; Dask calls this when it installs the plugin."""
        logging.getLogger("distributed.worker").addFilter(_no_heartbeats)
        self.worker = worker
        self.abort = Abort()
        self.state: State | None = None
        self.children: dict[str, Child] = {}
        self.uses_gpu = False
        machine.keep_cores()
        # Imported here, because Dask reports what fails here, but not what fails when it reads a task.
        import merge_bench.merge.steps  # noqa: F401

    def teardown(self, worker: Worker) -> None:
        """Stop whatever waits; Dask calls this when the worker closes."""
        self.abort.set("the worker is closing")
        for child in self.children.values():
            child.end()
        if self.state is not None:
            self.state.guard.set()

    @property
    def launch(self) -> State:
        """What this worker holds during a launch; this and the properties below raise `RunFailed` between launches."""
        return _present(self.state, "the merge")

    @property
    def frames(self) -> tuple[Frame, Frame]:
        """The chunks of the left and the right frame."""
        return _present(self.launch.frames, "the merge")

    @property
    def merger(self) -> Merger:
        """The connected merger."""
        return _present(self.launch.merger, "the merge")

    @property
    def exchange(self) -> Exchange:
        """This worker's end of the data plane."""
        return _present(self.launch.exchange, "the data plane")

    def send(self, kind: str, **fields: Any) -> None:
        """Send an event to the driver without waiting for an answer."""
        if self.state is not None:
            message = {"event": kind, "rank": self.state.rank, **fields}
            self.worker.loop.add_callback(self.worker.log_event, self.state.topic, message)

    @contextlib.contextmanager
    def limited(self, doing: str, seconds: float) -> Iterator[None]:
        """Tell the driver if the block lasts longer than that: native code that hangs looks at no flag."""
        timer = threading.Timer(seconds, self.send, ("stuck",), {"how": f"is still {doing} after {seconds:g} s"})
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _present(held: Held | None, what: str) -> Held:
    if held is None:
        raise RunFailed(f"{what} is not set up on this worker; the worker may have restarted, so run again")
    return held


def _no_heartbeats(record: logging.LogRecord) -> bool:
    """Filter the driver's heartbeats out of the worker's log."""
    return not str(record.msg).startswith("Run out-of-band function")


def current_plugin() -> MergeWorker:
    """The plugin of this worker; every step calls this first.

    Dask may run each step in another task thread, so on a GPU this binds the CUDA context in the present thread.
    """
    plugin: MergeWorker = get_worker().plugins[PLUGIN]
    if plugin.uses_gpu:
        cuda_context.bind()
    return plugin


def release(plugin: MergeWorker) -> None:
    """Free everything that belongs to a run, whether it ended or was aborted.

    Endpoints are closed first, so that no transfer is in flight when its memory is freed.
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
    """Note that the driver is alive. Runs on the event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.heartbeat()


async def abort(reason: str, dask_worker: Worker) -> None:
    """Stop whatever waits on this worker. Runs on the event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.set(reason)


def guard_memory(plugin: MergeWorker, state: State) -> None:
    """Watch this host's memory until `state` is released."""
    threading.Thread(target=_guard, args=(plugin, state), name="memory-guard", daemon=True).start()


def _guard(plugin: MergeWorker, state: State) -> None:
    """End this process before the kernel's out-of-memory killer ends it or another one."""
    reserve = max(int(RESERVE_FRACTION * machine.memory_bytes()), 256 << 20)
    while not state.guard.wait(GUARD_SECONDS):
        left = available_bytes()
        if left >= reserve:
            continue
        message = f"only {left >> 20} MiB of memory were left on {socket.gethostname()}"
        plugin.abort.set(message)
        plugin.send("out-of-memory", message=message)
        time.sleep(1.0)
        if available_bytes() < reserve:
            os._exit(1)
