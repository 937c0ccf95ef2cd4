"""What runs inside a Dask worker: the one plugin, and the steps that the driver submits to it.

The driver submits each step to all workers at once and in the same order; a step runs on the worker's task thread and
may wait for the other workers over the data plane. Meanwhile the worker's event loop answers: heartbeats and aborts.
Every measured iteration is sent as an event as soon as it is done, so that nothing measured is lost.
"""

from __future__ import annotations

import functools
import gc
import logging
import operator
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from merge_bench import facts
from merge_bench.columns import Field, Frame
from merge_bench.counters import Counts
from merge_bench.counters import read as read_counters
from merge_bench.engines import JoinShape, make_engine
from merge_bench.errors import RunFailed, UsageError
from merge_bench.exchange.abort import Abort
from merge_bench.exchange.protocols import Range
from merge_bench.memory import PeakMeter, available_bytes
from merge_bench.merge import Measured, Merger
from merge_bench.plan import Plan
from merge_bench.verify import Check, ResultCheck
from merge_bench.workload import synthetic
from merge_bench.workload.synthetic import SyntheticSpec

if TYPE_CHECKING:  # the driver imports this module to name its functions, and needs no UCX
    from merge_bench.exchange.ucx import UcxExchange

PLUGIN = "merge_bench"
RESERVE_FRACTION = 0.03  # of the machine's memory: below this a run ends before the kernel ends it
GUARD_SECONDS = 0.1


@dataclass(frozen=True)
class Prepared:
    """What a worker says after it has its chunk."""

    rank: int
    input_bytes: int
    rows: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: synthetic.Expectation | None


class Child(Protocol):
    """What a step leaves for a later one: a program beside the worker, or memory that peers put into."""

    def end(self) -> object:
        """Make sure that it is gone."""


@dataclass
class _State:
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
        self.state: _State | None = None
        self.children: dict[str, Child] = {}

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
    """The plugin of the worker that this runs on."""
    plugin: MergeWorker = get_worker().plugins[PLUGIN]
    return plugin


def describe(modules: Sequence[str], variables: Sequence[str] = ()) -> dict[str, Any]:
    """Load the engine's and the data plane's libraries, and tell what this worker runs on.

    `variables`: names to be told of the environment beside those that are always told.
    """
    import importlib

    for name in modules:
        importlib.import_module(name)
    return {
        **facts.identity(),
        "environment": facts.environment(variables),
        "versions": facts.versions(),
        "ucx": facts.ucx_library(),
        "hardware": facts.hardware(),
    }


def set_up_device(pool_bytes: int | None, sharers: int) -> int:
    """Give this worker its pool of device memory before anything uses the GPU; gives the pool's size in bytes.

    `sharers`: how many workers there are on its GPU.
    """
    from merge_bench.engines.cudf import set_up_pool

    return set_up_pool(pool_bytes, sharers)


def prepare(plan: Plan, rank: int, topic: str) -> Prepared:
    """Generate or read this worker's chunks."""
    plugin = here()
    let_go(plugin)
    meter = PeakMeter()
    expected = None
    if isinstance(plan.workload, SyntheticSpec):
        left, right, expected = synthetic.generate(plan.workload, rank, plan.workers)
    else:
        from merge_bench.workload.tables import load_chunk

        left, right = load_chunk(plan.workload, rank)
    input_bytes = left.nbytes + right.nbytes
    plugin.state = _State(rank, plan, topic, meter, (left, right), input_bytes)
    threading.Thread(target=_guard, args=(plugin, plugin.state), name="memory-guard", daemon=True).start()
    return Prepared(rank, input_bytes, left.rows + right.rows, (left.fields, right.fields), expected)


def open_data_plane(rows: int, threads: int) -> bytes:
    """Set up the engine and UCX. Gives the UCX address.

    `rows`: of both frames over all workers; `threads`: this worker's share of its host's cores.
    """
    plugin = here()
    state = plugin.state
    if state is None or state.frames is None:
        raise RunFailed("the merge was not set up on this worker")
    plan = state.plan
    left, right = state.frames
    shape = JoinShape(
        left.fields, right.fields, plan.keys, workers=plan.workers, rank=state.rank, rows=rows, threads=threads
    )
    from merge_bench.pipelining import make_merger

    engine = make_engine(plan.engine, shape)
    engine.load(left, right)
    state.frames = None
    state.merger = make_merger(engine, state.rank, plan, plugin.abort)
    state.exchange = state.merger.exchange
    state.check = ResultCheck(plan.workload, full=plan.verify == "full")
    return state.exchange.address


def open_bare(plan: Plan, rank: int, topic: str, *, puts: bool = False) -> bytes:
    """Set up UCX alone, without chunks and without an engine; gives the UCX address. `puts`: for one-sided ones too."""
    plugin = here()
    let_go(plugin)
    from merge_bench.exchange.ucx import UcxExchange

    exchange = UcxExchange.of_plan(plan, rank, plugin.abort, puts=puts)
    plugin.state = _State(rank, plan, topic, PeakMeter(), None, 0, exchange=exchange)
    return exchange.address


def connect(addresses: Sequence[bytes]) -> dict[str, Any]:
    """Connect to all other workers; gives UCX's effective settings and the barrier's round trip in seconds."""
    exchange = here().exchange
    exchange.connect(addresses)
    return {"ucx_config": exchange.effective_config, "round_trip": exchange.round_trip()}


def endpoints() -> dict[int, tuple[list[str], list[Range]]]:
    """Of each peer: the lanes that UCX selected, and the protocols for tag messages by size."""
    exchange = here().exchange
    lanes, protocols = exchange.lanes(), exchange.protocols()
    return {peer: (found, protocols[peer]) for peer, found in lanes.items()}


def available_transports() -> dict[str, tuple[str, ...]]:
    """Devices by transport that this host's UCX could use, whatever is configured; {} where it cannot be asked."""
    from merge_bench.config.ucx_info import locate, read_installed

    try:
        return read_installed(locate("auto", os.environ)).transports
    except UsageError:
        return {}


def counters() -> Counts:
    """What this host's devices have counted so far."""
    return read_counters()


def swap_device_memory(size: int) -> None:
    """Send `size` bytes of GPU memory to every other worker, so that UCX chooses its protocols for it."""
    import rmm

    exchange = here().exchange
    peers = [peer for peer in range(exchange.workers) if peer != exchange.rank]
    outgoing = rmm.DeviceBuffer(size=size)
    exchange.transfer(dict.fromkeys(peers, outgoing), {peer: rmm.DeviceBuffer(size=size) for peer in peers})


def iterate(first: int, count: int, *, warmup: bool, verify: bool) -> None:
    """Merge `count` times; each iteration's measurement goes out as an event of its own.

    With `verify` the result of each is checked too, outside the timed interval.
    """
    plugin = here()
    gc.collect()
    gc.disable()
    try:
        for index in range(first, first + count):
            measured = plugin.merger.merge()
            plugin.send("iteration", index=index, warmup=warmup, measured=measured.to_json())
            if verify:
                check = _verify(plugin)
                plugin.send("verification", index=index, warmup=warmup, check=check.to_json())
    finally:
        gc.enable()


def verify() -> Check:
    """Check this worker's rows of the last result."""
    return _verify(here())


def _verify(plugin: MergeWorker) -> Check:
    state, merger = plugin.state, plugin.merger
    assert state is not None
    assert state.check is not None
    state.meter.pause()
    try:
        return state.check.run(merger.engine.results(), plugin.abort)
    finally:
        state.meter.restart()


def baseline_frame(side: str) -> Any:
    """This worker's chunk of ``left`` or ``right`` as a dataframe of Dask's engine, rows with null keys left out.

    pandas and cuDF match null with null; SQL, and every engine here, does not.
    """
    state = here().state
    if state is None or state.frames is None:
        raise RunFailed("the merge was not set up on this worker")
    table = state.frames[side == "right"].to_arrow()
    if state.plan.engine == "cudf":
        import cudf

        frame = cudf.DataFrame.from_arrow(table)
    else:
        from merge_bench.engines.pandas import to_pandas

        frame = to_pandas(table)
    # Column by column: over rows cuDF would go through CuPy.
    whole = functools.reduce(operator.and_, (frame[key].notna() for key in state.plan.keys))
    return frame if bool(whole.all()) else frame[whole]


def baseline_loaded() -> None:
    """Both chunks are dataframes now: let go of the originals."""
    state = here().state
    if state is not None:
        state.frames = None


def baseline_check(frame: Any) -> Check:
    """Check one partition of Dask's result."""
    plugin = here()
    state = plugin.state
    assert state is not None
    state.meter.pause()
    try:
        cudf = state.plan.engine == "cudf"
        convert = frame.to_arrow if cudf else functools.partial(pa.Table.from_pandas, frame)
        table = convert(preserve_index=False)
        return ResultCheck(state.plan.workload, full=state.plan.verify == "full").run([table], plugin.abort)
    finally:
        state.meter.restart()


def measure_link(rounds: int) -> list[Measured]:
    """Repeat the last iteration's exchange alone `rounds` times."""
    merger = here().merger
    return [merger.exchange_only() for _ in range(rounds)]


def finish() -> dict[str, Any]:
    """Peak memory."""
    plugin = here()
    state = plugin.state
    assert state is not None
    merger = state.merger
    return {
        "peak_bytes": state.meter.peak,
        "peak_above_imports_bytes": max(state.meter.peak - state.meter.at_start, 0),
        "device_peak_bytes": merger.engine.peak_device_bytes() if merger else None,
        "input_bytes": state.input_bytes,
    }


def close() -> None:
    """Let go of data and endpoints, for clusters that go on living."""
    let_go(here())


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


def _guard(plugin: MergeWorker, state: _State) -> None:
    """End this process before the kernel ends it, or another one, for want of memory."""
    reserve = max(int(RESERVE_FRACTION * facts.hardware()["memory_bytes"]), 256 << 20)
    while not state.guard.wait(GUARD_SECONDS):
        left = available_bytes()
        if left >= reserve:
            continue
        message = f"only {left >> 20} MiB of memory were left on {facts.identity()['host']}"
        plugin.abort.set(message)
        plugin.send("out-of-memory", message=message)
        time.sleep(1.0)
        if available_bytes() < reserve:
            os._exit(1)
