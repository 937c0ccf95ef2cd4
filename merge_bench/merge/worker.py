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
from merge_bench.merge.engines.base import CopyMeasuringEngine, JoinShape, ParcelWritingEngine
from merge_bench.merge.exchange import import_exchange_class
from merge_bench.merge.exchange.base import STALL_FACTOR, AbortFlag, Exchange
from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.memory import CopyMeasurement
from merge_bench.merge.merger import Merger, TransferTotals, WorkerMeasurement, make_merger
from merge_bench.merge.plan import Plan
from merge_bench.merge.timeline_recording import TimelineCost, TimelineKeeper, TimelineNotes, measure_note_seconds
from merge_bench.merge.verification import (
    ResultCheck,
    check_result,
    make_result_parts_folder,
    read_result_part,
    write_result_part,
)
from merge_bench.merge.workload import ExpectedWorkerResult, SyntheticSpec
from merge_bench.merge.workload.tables import load_chunk
from merge_bench.records.schema import UcxProtocolRange, WorkerMemory
from merge_bench.records.timeline import WorkerTimeline

PLUGIN = "merge_bench"
RESERVE_FRACTION = 0.03  # of the machine's memory: below this a run ends before the kernel ends it
GUARD_SECONDS = 0.1

Value = TypeVar("Value")


class StepResource(Protocol):
    """A resource that one step leaves to later steps, such as a running program, or memory into which peers put."""

    def end(self) -> object:
        """Release the resource: end the program, or free the memory."""


@dataclass
class LaunchState:
    """The state of one launch that a worker keeps between steps: plan, frames, engine and data plane."""

    rank: int
    plan: Plan
    topic: str
    meter: PeakMemoryMeter
    frames: tuple[Frame, Frame] | None
    input_bytes: int
    merger: Merger | None = None
    exchange: Exchange | None = None
    copied: CopyMeasurement | None = None
    first_rows: tuple[Frame, Frame] | None = None  # a copy of the first row of each frame, for `measure_fixed_costs`
    timelines: TimelineKeeper | None = None
    empty: dict[str, Any] = field(default_factory=dict)  # for each side a frame of Dask's engine without rows
    guard: threading.Event = field(default_factory=threading.Event)

    def write_and_check_result_part(
        self,
        pieces: Iterable[pa.Table],
        part_number: int,
        fields: tuple[Sequence[Field], Sequence[Field]],
        abort: AbortFlag,
    ) -> ResultCheck:
        """Write one part of the result to the plan's folder, and check the rows that can be read back from it.

        `fields`: of both frames. The memory that this takes is not counted.
        """
        output = self.plan.how.output_fields(*fields, self.plan.keys)
        self.meter.pause_measurement()
        try:
            path = write_result_part(self.plan, part_number, pieces, output)
        finally:
            self.meter.restart_measurement()
        return self.check_result_part(read_result_part(path, output), abort)

    def check_result_part(self, pieces: Iterable[pa.Table], abort: AbortFlag) -> ResultCheck:
        """Check this worker's part of the result; the memory that the check takes is not counted as the merge's."""
        self.meter.pause_measurement()
        try:
            return check_result(self.plan, pieces, abort)
        finally:
            self.meter.restart_measurement()


class MergeWorker(WorkerPlugin):  # type: ignore[misc]
    """The Dask plugin that keeps a worker's state between the driver's steps."""

    name = PLUGIN
    idempotent = True
    kept_bytes = 0  # of aborted runs, which are never freed
    thaws = False

    def setup(self, worker: Worker) -> None:
        """Set up the worker without a launch; Dask calls this when it installs the plugin on a worker."""
        logging.getLogger("distributed.worker").addFilter(_is_not_heartbeat_log)
        self.worker = worker
        self.abort = AbortFlag()
        self.state: LaunchState | None = None
        self.children: dict[str, StepResource] = {}
        self.uses_gpu = False
        machine.restore_launcher_core_binding()

    def freeze_garbage_collector(self) -> None:
        """Exclude all present objects (140,000 of libraries) from garbage collections, which take 0.08 s otherwise.

        This lasts until `release_launch`, or for good in a process that launchers started or that is frozen.
        """
        self.thaws = not gc.get_freeze_count()
        gc.freeze()

    def teardown(self, worker: Worker) -> None:
        """Make every wait end, and release the resources of steps; Dask calls this when the worker closes."""
        self.abort.abort_run("the worker is closing")
        for child in self.children.values():
            child.end()
        if self.state is not None:
            self.state.guard.set()

    @property
    def launch_state(self) -> LaunchState:
        """The state of the present launch; this property and those below raise `RunFailed` between launches."""
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
    def report_if_stuck(self, activity: str, seconds: float) -> Iterator[None]:
        """Send the driver an event if the block takes more than `seconds`.

        Native code that hangs checks no flag.
        """
        timer = threading.Timer(
            seconds, self.send_event, ("stuck",), {"how": f"is still {activity} after {seconds:g} s"}
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _require_set_up(value: Value | None, description: str) -> Value:
    """Return `value`; raises `RunFailed` with this description if it is None, because it was not set up."""
    if value is None:
        raise RunFailed(f"{description} is not set up on this worker; the worker may have restarted, so run again")
    return value


def _is_not_heartbeat_log(record: logging.LogRecord) -> bool:
    """Whether a line of the worker's log should be kept: all but those that Dask logs for each heartbeat."""
    return not str(record.msg).startswith("Run out-of-band function")


def current_plugin() -> MergeWorker:
    """Return the plugin of this worker; every step calls this first.

    Dask may run each step in another task thread, so on a GPU this binds the CUDA context in the present thread.
    """
    plugin: MergeWorker = get_worker().plugins[PLUGIN]
    if plugin.uses_gpu:
        gpu_memory.bind_cuda_context()
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
    plugin.abort.clear_abort()
    while plugin.children:
        plugin.children.popitem()[1].end()
    del state
    if held:
        gc.collect()


async def note_heartbeat(dask_worker: Worker) -> None:
    """Note on this worker that the driver is alive. This runs on the worker's event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.note_heartbeat()


async def abort_waits(reason: str, dask_worker: Worker) -> None:
    """Make every wait on this worker end with an error that has this reason. This runs on the worker's event loop."""
    plugin = dask_worker.plugins.get(PLUGIN)
    if plugin is not None:
        plugin.abort.abort_run(reason)


def start_memory_guard(plugin: MergeWorker, state: LaunchState) -> None:
    """Start a thread that watches this host's free memory until the launch is released."""
    threading.Thread(target=_end_on_low_memory, args=(plugin, state), name="memory-guard", daemon=True).start()


def _end_on_low_memory(plugin: MergeWorker, state: LaunchState) -> None:
    """End this process when memory runs out, before the kernel's out-of-memory killer ends it or another process."""
    reserve = max(int(RESERVE_FRACTION * machine.total_memory_bytes()), 256 << 20)
    while not state.guard.wait(GUARD_SECONDS):
        left = available_memory_bytes()
        if left >= reserve:
            continue
        message = f"only {left >> 20} MiB of memory were left on {socket.gethostname()}"
        plugin.abort.abort_run(message)
        plugin.send_event("out-of-memory", message=message)
        time.sleep(1.0)
        if available_memory_bytes() < reserve:
            os._exit(1)


ONE_ROW_WARMUPS, ONE_ROW_MERGES = 2, 10
HELD_SECONDS = 0.1
"""Iterations shorter than this are sent several at a time."""


@dataclass(frozen=True)
class PreparedChunks:
    """A worker's report after it has generated or read its chunks: bytes, rows, fields, and the expected rows.

    `kept_bytes`: memory of aborted runs that it never frees, because peers may still use it.
    """

    rank: int
    input_bytes: int
    rows: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: ExpectedWorkerResult | None
    kept_bytes: int = 0


@dataclass(frozen=True)
class ConnectionReport:
    """A worker's report after it has connected: UCX's settings (empty without UCX), and seconds of a barrier."""

    ucx_config: dict[str, str]
    round_trip_seconds: float


@dataclass(frozen=True)
class WorkerTimelines:
    """The timelines that a worker kept during a launch, and the Unix time at which its clock of timelines was 0."""

    unix_seconds: float
    iterations: dict[int, WorkerTimeline]
    rounds: list[WorkerTimeline]


def describe_process(engine: str | None, exchange: str | None, variables: Sequence[str] = ()) -> ProcessFacts:
    """Load the libraries that a launch needs; returns a description of this worker's machine and environment.

    `engine`, `exchange`: names of the engine and the data plane to load; None for none. `variables`: names of
    environment variables to include besides those that are always included.
    """
    if engine is not None:
        engines.import_engine_class(engine)
    if exchange is not None:
        import_exchange_class(exchange)
    return machine.describe_process(variables)


def make_cuda_context() -> None:
    """Make the CUDA context on this worker's GPU; every later step binds it in its thread."""
    gpu_memory.bind_cuda_context()
    current_plugin().uses_gpu = True


def prepare_chunks(plan: Plan, rank: int, topic: str) -> PreparedChunks:
    """Generate or read this worker's chunks; returns their bytes, rows and fields."""
    import merge_bench.merge.partition_loops  # noqa: F401  # before the meter, so that numba's memory does not count

    plugin = current_plugin()
    release_launch(plugin)
    plugin.freeze_garbage_collector()
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
        right = right.select_columns(plan.keys)  # its other columns are not in the result
    sent = plan.distribution.sent
    shape = JoinShape(
        left.fields, right.fields, plan.keys, plan.workers, state.rank, rows, threads, plan.how, sent, plan.sent_rows
    )
    engine = engines.import_engine_class(plan.engine)(shape)
    engine.load_chunks(left, right)
    state.first_rows = left.copy_first_row(), right.copy_first_row()
    state.frames = None
    with plugin.report_if_stuck(f"opening {import_exchange_class(plan.exchange).title}", STALL_FACTOR * plan.timeout):
        state.merger = make_merger(engine, state.rank, plan, plugin.abort)
    state.exchange = state.merger.exchange
    return state.exchange.address


def open_ucx(plan: Plan, rank: int, topic: str, *, puts: bool = False) -> bytes:
    """Set up UCX without chunks and engine; returns this worker's UCX address. `puts`: allow one-sided puts, too."""
    plugin = current_plugin()
    release_launch(plugin)
    from merge_bench.merge.exchange.ucx import UcxExchange

    plugin.freeze_garbage_collector()
    plugin.state = LaunchState(rank, plan, topic, PeakMemoryMeter(), None, 0)
    with plugin.report_if_stuck("opening UCX", STALL_FACTOR * plan.timeout):
        plugin.state.exchange = UcxExchange.from_plan(plan, rank, plugin.abort, puts=puts)
    return plugin.state.exchange.address


def connect_peers(addresses: Sequence[bytes]) -> ConnectionReport:
    """Connect to all other workers; `addresses`: of all workers, in rank order."""
    exchange = current_plugin().exchange
    exchange.connect(addresses)
    return ConnectionReport(exchange.effective_config, exchange.measure_barrier_seconds())


def measure_partition_ns_per_row() -> dict[str, float]:
    """Measure the nanoseconds per row of partitioning, for each method of writing parcels.

    {} if the engine has only one.
    """
    plugin = current_plugin()
    engine = plugin.merger.engine
    if not isinstance(engine, ParcelWritingEngine):
        return {}
    plugin.exchange.barrier()
    return engine.measure_partition_ns_per_row()


def use_parcel_writer(writer_name: str, most_total_buckets: int, l2_bytes: int | None) -> None:
    """Set the engine's method of writing parcels, ``plain`` or ``lines``, if it has several."""
    engine = current_plugin().merger.engine
    if isinstance(engine, ParcelWritingEngine):
        engine.use_parcel_writer(writer_name, most_total_buckets, l2_bytes)


def describe_endpoints() -> dict[int, tuple[list[str], list[UcxProtocolRange]]]:
    """Return the lanes that UCX selected for each peer, and the protocols of messages by size."""
    return current_plugin().exchange.describe_endpoints()


def available_transports() -> dict[str, tuple[str, ...]]:
    """Return the devices of each transport that this host's UCX offers; {} if `ucx_info` does not run."""
    from merge_bench.config.ucx_info import find_installed_ucx

    installed = find_installed_ucx()
    return installed.transports if installed else {}


def exchange_gpu_buffers(size_bytes: int) -> None:
    """Send `size_bytes` bytes of GPU memory to every other worker, so that UCX chooses protocols for GPU memory."""
    exchange = current_plugin().exchange
    payload, *rooms = gpu_memory.allocate_device_buffers([size_bytes] * exchange.workers)
    exchange.transfer(dict.fromkeys(exchange.peers, payload), dict(zip(exchange.peers, rooms, strict=True)))


def run_merge_iterations(
    first_index: int, count: int, *, warmup: bool, verify: bool, timeline_share: float | None = None
) -> TimelineCost | None:
    """Merge `count` times, and send the measurement of each iteration to the driver; see `run_iterations_on_plugin`."""
    return run_iterations_on_plugin(
        current_plugin(), first_index, count, warmup=warmup, verify=verify, timeline_share=timeline_share
    )


def run_iterations_on_plugin(
    plugin: MergeWorker,
    first_index: int,
    count: int,
    *,
    warmup: bool,
    verify: bool,
    timeline_share: float | None = None,
    measure_note_cost: Callable[[], float] = measure_note_seconds,
    clock: Callable[[], float] = time.monotonic,
) -> TimelineCost | None:
    """Merge `count` times on the worker of this plugin, and send the measurements to the driver.

    The measurements of short iterations are sent together every `HELD_SECONDS`, from the first one on, and all are sent
    before this returns or fails. Sending takes time of the cores on which the next iteration runs.

    `verify`: also check the result of each iteration, outside the timed interval. `timeline_share`: also note and keep
    what begins and ends when, until that takes more than this share of an iteration; returns the cost of these notes.
    `measure_note_cost`: returns the seconds of one note.
    """
    keeper = plugin.launch_state.timelines = (
        TimelineKeeper(plugin.launch_state.plan.workers) if timeline_share else None
    )
    cost = TimelineCost(0, measure_note_cost(), math.inf) if timeline_share else None
    held: list[tuple[int, WorkerMeasurement]] = []
    gc.collect()
    gc.disable()
    sent = -math.inf
    try:
        for index in range(first_index, first_index + count):
            notes = plugin.merger.notes = TimelineNotes() if keeper and keeper.wants_iteration(index) else None
            held.append((index, plugin.merger.merge()))
            if timeline_share and keeper and cost and notes:
                cost = cost.with_iteration(notes.count, held[-1][1].worker.seconds)
                keeper.keep_iteration(index, notes.make_timeline(plugin.launch_state.rank, plugin.merger.piece_sides))
                if cost.iteration_share > timeline_share:
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


def _send_measurements(plugin: MergeWorker, measurements: list[tuple[int, WorkerMeasurement]], warmup: bool) -> None:
    """Send the measurements of iterations as events, and remove them from the list."""
    while measurements:
        index, measured = measurements.pop(0)
        plugin.send_event("iteration", index=index, warmup=warmup, measured=msgspec.to_builtins(measured))


def verify_result() -> ResultCheck:
    """Check this worker's rows of the last merge's result."""
    plugin = current_plugin()
    return plugin.launch_state.check_result_part(plugin.merger.engine.result_tables(), plugin.abort)


def make_result_folder() -> None:
    """Make the folder for the written result on this host, if the plan has one."""
    folder = current_plugin().launch_state.plan.write_result
    if folder is not None:
        make_result_parts_folder(folder)


def write_and_check_result(fields: tuple[Sequence[Field], Sequence[Field]]) -> ResultCheck:
    """Write this worker's rows of the last result, and check the rows that can be read back.

    `fields`: of both frames.
    """
    plugin = current_plugin()
    return plugin.launch_state.write_and_check_result_part(
        plugin.merger.engine.result_tables(), plugin.launch_state.rank, fields, plugin.abort
    )


def measure_link(rounds: int, *, keep_timelines: bool = True) -> list[TransferTotals]:
    """Repeat only the exchange of the last iteration `rounds` times; returns bytes and seconds of each round.

    `keep_timelines`: whether to keep the rounds' timelines, if timelines are recorded.
    """
    plugin = current_plugin()
    merger, transfers = plugin.merger, list[TransferTotals]()
    keeper = plugin.launch_state.timelines if keep_timelines else None
    for _ in range(rounds):
        notes = merger.notes = TimelineNotes() if keeper else None
        transfers.append(merger.repeat_exchange())
        if keeper and notes:
            keeper.keep_link_round(notes.make_timeline(plugin.launch_state.rank, merger.piece_sides))
    return transfers


def collect_timelines() -> WorkerTimelines:
    """Return the timelines that this worker kept of iterations and of the link measurement."""
    keeper = current_plugin().launch_state.timelines
    zero = time.time() - time.perf_counter()
    return WorkerTimelines(zero, keeper.iterations if keeper else {}, keeper.rounds if keeper else [])


def measure_copy_speed() -> None:
    """Measure how fast this worker copies its chunks in memory, if the engine can. The last result is lost."""
    plugin = current_plugin()
    engine = plugin.merger.engine
    if isinstance(engine, CopyMeasuringEngine):
        plugin.launch_state.copied = engine.measure_copy_speed(plugin.exchange.barrier)


def measure_fixed_costs() -> list[float]:
    """Return the seconds of merges of one row of each frame per worker. The chunks and the last result are lost.

    Engine, buckets and connections stay as they are, so this is the time that a merge takes whatever its rows.
    """
    state = current_plugin().launch_state
    merger = current_plugin().merger
    assert state.first_rows is not None  # as `open_data_plane` has set them
    merger.engine.load_chunks(*state.first_rows)
    merger.notes = None
    gc.disable()
    try:
        seconds = [merger.merge().worker.seconds for _ in range(ONE_ROW_WARMUPS + ONE_ROW_MERGES)]
    finally:
        gc.enable()
    return seconds[ONE_ROW_WARMUPS:]


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
    """Free the data and connections of a launch, on clusters that keep running."""
    release_launch(current_plugin())
