"""The steps of a merge on a Dask worker, and the plugin that keeps the worker's state between them.

The driver submits each step to all workers at once, in the same order. A step runs on the worker's task thread and may
wait for other workers over the data plane. Meanwhile the worker's event loop handles heartbeats and aborts.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from merge_bench.errors import RunFailed
from merge_bench.host import machine
from merge_bench.host.description import ProcessFacts
from merge_bench.host.machine import PeakMemoryMeter, available_memory_bytes
from merge_bench.merge import engines
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.base import CopyingEngine, JoinShape, ParcelWritingEngine
from merge_bench.merge.exchange import exchange_class
from merge_bench.merge.exchange.base import STALL_FACTOR, AbortFlag, Exchange
from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.memory import CopyRounds
from merge_bench.merge.merger import Merger, TransferTotals, WorkerMeasurement, make_merger
from merge_bench.merge.plan import Plan
from merge_bench.merge.time_notes import KeptTimelines, TimeNotes, note_seconds
from merge_bench.merge.verification import (
    Check,
    check_result,
    make_result_parts_folder,
    read_result_part,
    write_result_part,
)
from merge_bench.merge.workload import Expectation, SyntheticSpec
from merge_bench.merge.workload.tables import load_chunk
from merge_bench.records.schema import UcxProtocolRange, WorkerMemory
from merge_bench.records.timeline import WorkerTimeline

PLUGIN = "merge_bench"
RESERVE_FRACTION = 0.03  # of the machine's memory: below this a run ends before the kernel ends it
GUARD_SECONDS = 0.1

Part = TypeVar("Part")


class StepResource(Protocol):
    """A resource that a step leaves for later steps: a program beside the worker, or memory for peers' puts."""

    def end(self) -> object:
        """End the program, or free the memory."""


@dataclass
class LaunchState:
    """The state that a worker keeps between the steps of one launch."""

    rank: int
    plan: Plan
    topic: str
    meter: PeakMemoryMeter
    frames: tuple[Frame, Frame] | None
    input_bytes: int
    merger: Merger | None = None
    exchange: Exchange | None = None
    copied: CopyRounds | None = None
    timelines: KeptTimelines | None = None
    empty: dict[str, Any] = field(default_factory=dict)  # for each side a frame of Dask's engine without rows
    guard: threading.Event = field(default_factory=threading.Event)

    def write_and_check_result_part(
        self, pieces: Iterable[pa.Table], number: int, fields: tuple[Sequence[Field], Sequence[Field]], abort: AbortFlag
    ) -> Check:
        """Write part `number` of the result to the plan's folder, and check what can be read from it.

        `fields`: of both frames. The memory that this takes is not counted.
        """
        output = self.plan.how.output_fields(*fields, self.plan.keys)
        self.meter.pause()
        try:
            path = write_result_part(self.plan, number, pieces, output)
        finally:
            self.meter.restart()
        return self.check_result_part(read_result_part(path, output), abort)

    def check_result_part(self, pieces: Iterable[pa.Table], abort: AbortFlag) -> Check:
        """Check this worker's part of the result; the memory that this takes is not counted."""
        self.meter.pause()
        try:
            return check_result(self.plan, pieces, abort)
        finally:
            self.meter.restart()


class MergeWorker(WorkerPlugin):  # type: ignore[misc]
    """The Dask plugin that keeps a worker's state between the driver's steps."""

    name = PLUGIN
    idempotent = True
    kept_bytes = 0  # of aborted runs, which are never freed
    thaws = False

    def setup(self, worker: Worker) -> None:
        """Set up the empty state; Dask calls this when it installs the plugin on a worker."""
        logging.getLogger("distributed.worker").addFilter(_is_no_heartbeat)
        self.worker = worker
        self.abort = AbortFlag()
        self.state: LaunchState | None = None
        self.children: dict[str, StepResource] = {}
        self.uses_gpu = False
        machine.restore_launcher_cores()

    def freeze_libraries(self) -> None:
        """Leave what is there already, 140,000 objects of libraries, out of garbage collections, which
        take 0.08 s otherwise: until `release_launch`, or for good in a process that launchers started or that is
        frozen.
        """
        self.thaws = not gc.get_freeze_count()
        gc.freeze()

    def teardown(self, worker: Worker) -> None:
        """Make every wait end, and free what steps left; Dask calls this when the worker closes."""
        self.abort.set("the worker is closing")
        for child in self.children.values():
            child.end()
        if self.state is not None:
            self.state.guard.set()

    @property
    def launch_state(self) -> LaunchState:
        """The state of this launch; this and the properties below raise `RunFailed` between launches."""
        return _require_set_up(self.state, "the merge")

    @property
    def frames(self) -> tuple[Frame, Frame]:
        return _require_set_up(self.launch_state.frames, "the merge")

    @property
    def merger(self) -> Merger:
        return _require_set_up(self.launch_state.merger, "the merge")

    @property
    def exchange(self) -> Exchange:
        return _require_set_up(self.launch_state.exchange, "the data plane")

    def send_event(self, kind: str, **fields: Any) -> None:
        """Send an event to the driver, without waiting for an answer."""
        if self.state is not None:
            message = {"event": kind, "rank": self.state.rank, **fields}
            self.worker.loop.add_callback(self.worker.log_event, self.state.topic, message)

    @contextlib.contextmanager
    def report_if_stuck(self, doing: str, seconds: float) -> Iterator[None]:
        """Tell the driver if the block takes longer than `seconds`: native code that hangs checks no flag."""
        timer = threading.Timer(seconds, self.send_event, ("stuck",), {"how": f"is still {doing} after {seconds:g} s"})
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _require_set_up(part: Part | None, what: str) -> Part:
    """Return `part`; raises `RunFailed` if it is None, because `what` is not set up."""
    if part is None:
        raise RunFailed(f"{what} is not set up on this worker; the worker may have restarted, so run again")
    return part


def _is_no_heartbeat(record: logging.LogRecord) -> bool:
    """Whether a line of the worker's log is to be kept: it is not about the driver's heartbeats."""
    return not str(record.msg).startswith("Run out-of-band function")


def current_plugin() -> MergeWorker:
    """The plugin of this worker; every step calls this first.

    Dask may run each step in another task thread, so on a GPU this binds the CUDA context in the present thread.
    """
    plugin: MergeWorker = get_worker().plugins[PLUGIN]
    if plugin.uses_gpu:
        gpu_memory.bind_context()
    return plugin


def release_launch(plugin: MergeWorker) -> None:
    """Free all data, connections and programs of a launch, whether it ended or was aborted.

    Endpoints are closed first, so that no transfer is in flight when its memory is freed.
    """
    if plugin.thaws:
        gc.unfreeze()
        plugin.thaws = False
    held = plugin.state is not None or bool(plugin.children)
    state, plugin.state = plugin.state, None
    if state is not None:
        state.guard.set()
        if state.exchange is not None:
            state.exchange.close()
            plugin.kept_bytes += state.exchange.kept_bytes
    plugin.abort.clear()
    while plugin.children:
        plugin.children.popitem()[1].end()
    del state
    if held:
        gc.collect()


async def note_heartbeat(dask_worker: Worker) -> None:
    """Note on this worker that the driver is alive. It runs on the worker's event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.note_heartbeat()


async def abort_waits(reason: str, dask_worker: Worker) -> None:
    """Make every wait on this worker end with `reason`. It runs on the worker's event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.set(reason)


def start_memory_guard(plugin: MergeWorker, state: LaunchState) -> None:
    """Start a thread that watches this host's free memory until `state` is released."""
    threading.Thread(target=_watch_memory, args=(plugin, state), name="memory-guard", daemon=True).start()


def _watch_memory(plugin: MergeWorker, state: LaunchState) -> None:
    """End this process when memory is short, before the kernel's out-of-memory killer ends it or another."""
    reserve = max(int(RESERVE_FRACTION * machine.total_memory_bytes()), 256 << 20)
    while not state.guard.wait(GUARD_SECONDS):
        left = available_memory_bytes()
        if left >= reserve:
            continue
        message = f"only {left >> 20} MiB of memory were left on {socket.gethostname()}"
        plugin.abort.set(message)
        plugin.send_event("out-of-memory", message=message)
        time.sleep(1.0)
        if available_memory_bytes() < reserve:
            os._exit(1)


HELD_SECONDS = 0.1
"""Iterations shorter than this are sent several at a time."""


@dataclass(frozen=True)
class PreparedChunks:
    """A worker's report on its chunks, once it has made or read them: bytes, rows, fields.

    `kept_bytes`: memory of aborted runs that it never frees, because peers may still use it.
    """

    rank: int
    input_bytes: int
    rows: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: Expectation | None
    kept_bytes: int = 0


@dataclass(frozen=True)
class ConnectionReport:
    """A worker's report after it has connected: UCX's settings (empty without UCX), and a barrier's seconds."""

    ucx_config: dict[str, str]
    round_trip_seconds: float


@dataclass(frozen=True)
class NoteCost:
    """The cost of a timeline's notes: most notes of an iteration, seconds of one, and the shortest iteration."""

    notes: int
    note_seconds: float
    iteration_seconds: float

    @property
    def share(self) -> float:
        """The share of the shortest iteration that notes take at most."""
        return self.notes * self.note_seconds / self.iteration_seconds

    def with_iteration(self, notes: int, seconds: float) -> NoteCost:
        """The cost with one more iteration, which took `seconds` and in which the worker made `notes`."""
        return NoteCost(max(self.notes, notes), self.note_seconds, min(self.iteration_seconds, seconds))


@dataclass(frozen=True)
class WorkerTimelines:
    """The timelines that a worker kept of a launch, and the Unix time at which its monotonic clock was 0."""

    unix_seconds: float
    iterations: dict[int, WorkerTimeline]
    rounds: list[WorkerTimeline]


def describe_process(engine: str | None, exchange: str | None, variables: Sequence[str] = ()) -> ProcessFacts:
    """Load the libraries that a launch needs; returns a description of this worker's machine and environment.

    `engine`, `exchange`: names of the engine and the data plane to load; None for none. `variables`: names of
    environment variables to include besides those that are always included.
    """
    if engine is not None:
        engines.engine_class(engine)
    if exchange is not None:
        exchange_class(exchange)
    return machine.describe_process(variables)


def make_cuda_context() -> None:
    """Make the CUDA context on this worker's GPU. Every later step binds it in its thread."""
    gpu_memory.bind_context()
    current_plugin().uses_gpu = True


def prepare_chunks(plan: Plan, rank: int, topic: str) -> PreparedChunks:
    """Generate or read this worker's chunks; returns their bytes, rows and fields."""
    import merge_bench.merge.partition_loops  # noqa: F401  # before the meter, so that numba's memory does not count

    plugin = current_plugin()
    release_launch(plugin)
    plugin.freeze_libraries()
    meter = PeakMemoryMeter()
    expected = None
    if isinstance(plan.workload, SyntheticSpec):
        from merge_bench.merge.workload.synthetic import generate_chunks

        left, right, expected = generate_chunks(plan.workload, rank, plan.workers, plan.how)
    else:
        left, right = load_chunk(plan.workload, rank)
    input_bytes = left.nbytes + right.nbytes
    plugin.state = LaunchState(rank, plan, topic, meter, (left, right), input_bytes)
    start_memory_guard(plugin, plugin.state)
    return PreparedChunks(
        rank, input_bytes, left.rows + right.rows, (left.fields, right.fields), expected, plugin.kept_bytes
    )


def open_data_plane(rows: int, threads: int) -> bytes:
    """Set up the engine and the data plane; returns this worker's address in the data plane.

    `rows`: of both frames over all workers; `threads`: this worker's share of its host's cores.
    """
    plugin = current_plugin()
    state, (left, right) = plugin.launch_state, plugin.frames
    plan = state.plan
    if not plan.how.has_right_columns:
        right = right.only_columns(plan.keys)  # its other columns are not in the result
    sent = plan.distribution.sent
    shape = JoinShape(
        left.fields, right.fields, plan.keys, plan.workers, state.rank, rows, threads, plan.how, sent, plan.sent_rows
    )
    engine = engines.engine_class(plan.engine)(shape)
    engine.load_chunks(left, right)
    state.frames = None
    with plugin.report_if_stuck(f"opening {exchange_class(plan.exchange).title}", STALL_FACTOR * plan.timeout):
        state.merger = make_merger(engine, state.rank, plan, plugin.abort)
    state.exchange = state.merger.exchange
    return state.exchange.address


def open_ucx(plan: Plan, rank: int, topic: str, *, puts: bool = False) -> bytes:
    """Set up UCX without chunks and engine; returns this worker's UCX address. `puts`: for one-sided puts, too."""
    plugin = current_plugin()
    release_launch(plugin)
    from merge_bench.merge.exchange.ucx import UcxExchange

    plugin.freeze_libraries()
    plugin.state = LaunchState(rank, plan, topic, PeakMemoryMeter(), None, 0)
    with plugin.report_if_stuck("opening UCX", STALL_FACTOR * plan.timeout):
        plugin.state.exchange = UcxExchange.of_plan(plan, rank, plugin.abort, puts=puts)
    return plugin.state.exchange.address


def connect_peers(addresses: Sequence[bytes]) -> ConnectionReport:
    """Connect to all other workers, whose addresses are in rank order."""
    exchange = current_plugin().exchange
    exchange.connect(addresses)
    return ConnectionReport(exchange.effective_config, exchange.round_trip_seconds())


def measure_parcel_writers() -> dict[str, float]:
    """Measure the nanoseconds per row of the partition, by way of writing parcels; {}: the engine has no choice."""
    plugin = current_plugin()
    engine = plugin.merger.engine
    if not isinstance(engine, ParcelWritingEngine):
        return {}
    plugin.exchange.barrier()
    return engine.measure_parcel_writers()


def use_parcel_writer(way: str, streams: int, l2_bytes: int | None) -> None:
    """Set the engine's way of writing parcels, ``plain`` or ``lines``, if it has a choice."""
    engine = current_plugin().merger.engine
    if isinstance(engine, ParcelWritingEngine):
        engine.use_parcel_writer(way, streams, l2_bytes)


def describe_endpoints() -> dict[int, tuple[list[str], list[UcxProtocolRange]]]:
    """For each peer the lanes that UCX selected, and the protocols of messages by size."""
    return current_plugin().exchange.endpoints()


def available_transports() -> dict[str, tuple[str, ...]]:
    """The devices of each transport that this host's UCX offers, configured or not; {} if `ucx_info` does not run."""
    from merge_bench.config.ucx_info import find_installed_ucx

    installed = find_installed_ucx()
    return installed.transports if installed else {}


def exchange_device_memory(size: int) -> None:
    """Send `size` bytes of GPU memory to every other worker, so that UCX chooses protocols for GPU memory."""
    exchange = current_plugin().exchange
    payload, *rooms = gpu_memory.allocate_buffers([size] * exchange.workers)
    exchange.transfer(dict.fromkeys(exchange.peers, payload), dict(zip(exchange.peers, rooms, strict=True)))


def iterate(first: int, count: int, *, warmup: bool, verify: bool, timeline: float | None = None) -> NoteCost | None:
    """Merge `count` times, and send an event with the measurement of each iteration (`run_iterations`)."""
    return run_iterations(current_plugin(), first, count, warmup=warmup, verify=verify, timeline=timeline)


def run_iterations(
    plugin: MergeWorker,
    first: int,
    count: int,
    *,
    warmup: bool,
    verify: bool,
    timeline: float | None = None,
    note_cost: Callable[[], float] = note_seconds,
    clock: Callable[[], float] = time.monotonic,
) -> NoteCost | None:
    """Merge `count` times on the worker of this plugin, and send the measurements.

    What short iterations measured is sent every `HELD_SECONDS`, from the first one on, and in any case before this
    returns or fails: sending it takes time of the cores on which the next iteration runs.

    `verify`: also check the result of each iteration, outside the timed interval. `timeline`: also note and keep what
    begins and ends when, until that takes more than this share of an iteration; returns what it costs. `note_cost`:
    gives the seconds of a note.
    """
    keeper = plugin.launch_state.timelines = KeptTimelines(plugin.launch_state.plan.workers) if timeline else None
    cost = NoteCost(0, note_cost(), math.inf) if timeline else None
    held: list[tuple[int, WorkerMeasurement]] = []
    gc.collect()
    gc.disable()
    sent = -math.inf
    try:
        for index in range(first, first + count):
            notes = plugin.merger.notes = TimeNotes() if keeper and keeper.wants_iteration(index) else None
            held.append((index, plugin.merger.merge()))
            if timeline and keeper and cost and notes:
                cost = cost.with_iteration(notes.count, held[-1][1].worker.seconds)
                keeper.keep_iteration(index, notes.timeline(plugin.launch_state.rank, plugin.merger.piece_sides))
                if cost.share > timeline:
                    keeper = plugin.launch_state.timelines = None
            if verify or clock() - sent >= HELD_SECONDS:
                _send_measurements(plugin, held, warmup)
                sent = clock()
            if verify:
                check = plugin.launch_state.check_result_part(plugin.merger.engine.result_tables(), plugin.abort)
                plugin.send_event("verification", index=index, warmup=warmup, check=msgspec.to_builtins(check))
    finally:
        plugin.merger.notes = None
        _send_measurements(plugin, held, warmup)
        gc.enable()
    return cost


def _send_measurements(plugin: MergeWorker, held: list[tuple[int, WorkerMeasurement]], warmup: bool) -> None:
    """Send the held measurements as events, and remove them from `held`."""
    while held:
        index, measured = held.pop(0)
        plugin.send_event("iteration", index=index, warmup=warmup, measured=msgspec.to_builtins(measured))


def verify_result() -> Check:
    """Check this worker's rows of the last result."""
    plugin = current_plugin()
    return plugin.launch_state.check_result_part(plugin.merger.engine.result_tables(), plugin.abort)


def make_result_folder() -> None:
    """Make the folder for the written result on this host, if the plan has one."""
    folder = current_plugin().launch_state.plan.write_result
    if folder is not None:
        make_result_parts_folder(folder)


def write_and_check_result(fields: tuple[Sequence[Field], Sequence[Field]]) -> Check:
    """Write this worker's rows of the last result, and check what can be read back; `fields`: of both frames."""
    plugin = current_plugin()
    return plugin.launch_state.write_and_check_result_part(
        plugin.merger.engine.result_tables(), plugin.launch_state.rank, fields, plugin.abort
    )


def measure_link(rounds: int) -> list[TransferTotals]:
    """Repeat only the exchange of the last iteration, `rounds` times; returns bytes and seconds of each."""
    plugin = current_plugin()
    merger, keeper, transfers = plugin.merger, plugin.launch_state.timelines, list[TransferTotals]()
    for _ in range(rounds):
        notes = merger.notes = TimeNotes() if keeper else None
        transfers.append(merger.repeat_exchange())
        if keeper and notes:
            keeper.keep_round(notes.timeline(plugin.launch_state.rank, merger.piece_sides))
    return transfers


def collect_timelines() -> WorkerTimelines:
    """Return the timelines that this worker kept of iterations and of the link measurement."""
    keeper = current_plugin().launch_state.timelines
    zero = time.time() - time.perf_counter()
    return WorkerTimelines(zero, keeper.iterations if keeper else {}, keeper.rounds if keeper else [])


def measure_copy() -> None:
    """Measure how fast this worker copies its chunks, if the engine can. The last result is lost."""
    plugin = current_plugin()
    engine = plugin.merger.engine
    if isinstance(engine, CopyingEngine):
        plugin.launch_state.copied = engine.measure_copy(plugin.exchange.barrier)


def report_memory() -> WorkerMemory:
    """Return this worker's peak memory in this launch, in bytes, and the speed of memory copies."""
    state = current_plugin().launch_state
    merger, copied = state.merger, state.copied
    return WorkerMemory(
        rank=state.rank,
        peak_bytes=state.meter.peak_bytes,
        peak_above_imports_bytes=max(state.meter.peak_bytes - state.meter.start_bytes, 0),
        device_peak_bytes=merger.engine.peak_device_bytes() if merger else None,
        input_bytes=state.input_bytes,
        copied_bytes=copied.bytes if copied else None,
        copy_seconds=list(copied.seconds) if copied else [],
        exchange_statistics=state.exchange.statistics() if state.exchange else {},
    )


def close_launch() -> None:
    """Free the data and connections of a launch; needed on clusters that keep running."""
    release_launch(current_plugin())
