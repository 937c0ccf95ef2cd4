"""What the driver has every Dask worker do for a merge, step by step.

The driver submits each step to all workers at once and in the same order; what a worker holds between two of them is in
its plugin (`worker.py`). Every measured iteration is sent as an event as soon as it is done, so that nothing measured
is lost.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import RunFailed, UsageError
from merge_bench.host import cuda_context, machine
from merge_bench.host.counters import Counts
from merge_bench.host.counters import read as read_counters
from merge_bench.host.memory import PeakMeter
from merge_bench.merge.engines import gpu_memory, make_engine
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.gpu_memory import GpuMemory
from merge_bench.merge.exchange.protocols import Range
from merge_bench.merge.frame import Field
from merge_bench.merge.merger import Measured
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification.verify import Check, ResultCheck
from merge_bench.merge.worker import MergeWorker, State, guard_memory, here, let_go
from merge_bench.merge.workload import synthetic
from merge_bench.merge.workload.synthetic import SyntheticSpec


@dataclass(frozen=True)
class Prepared:
    """What a worker says after it has its chunk."""

    rank: int
    input_bytes: int
    rows: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: synthetic.Expectation | None


def describe(modules: Sequence[str], variables: Sequence[str] = ()) -> dict[str, Any]:
    """Load the engine's and the data plane's libraries, and tell what this worker runs on.

    `variables`: names to be told of the environment beside those that are always told.
    """
    import importlib

    for name in modules:
        importlib.import_module(name)
    return {
        **machine.identity(),
        "environment": machine.environment(variables),
        "versions": machine.versions(),
        "ucx": machine.ucx_library(),
        "hardware": machine.hardware(),
    }


def open_device() -> None:
    """Make the CUDA context of this worker's GPU, which takes memory there; every later step binds it in its thread."""
    cuda_context.bind()
    here().uses_gpu = True


def inspect_device() -> GpuMemory | None:
    """The memory of this worker's GPU, or None if the worker has a pool of it already."""
    here()
    return gpu_memory.inspect()


def set_up_device(pool_bytes: int | None) -> int:
    """Give this worker its pool of device memory before anything uses the GPU; gives the pool's size in bytes."""
    here()
    return gpu_memory.set_up_pool(pool_bytes)


def prepare(plan: Plan, rank: int, topic: str) -> Prepared:
    """Generate or read this worker's chunks."""
    import merge_bench.merge.kernels  # noqa: F401  # before the meter: numba is no part of what a merge takes

    plugin = here()
    let_go(plugin)
    meter = PeakMeter()
    expected = None
    if isinstance(plan.workload, SyntheticSpec):
        left, right, expected = synthetic.generate(plan.workload, rank, plan.workers)
    else:
        from merge_bench.merge.workload.tables import load_chunk

        left, right = load_chunk(plan.workload, rank)
    input_bytes = left.nbytes + right.nbytes
    plugin.state = State(rank, plan, topic, meter, (left, right), input_bytes)
    guard_memory(plugin, plugin.state)
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
    from merge_bench.merge.pipelined import make_merger

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
    from merge_bench.merge.exchange.ucx import UcxExchange

    exchange = UcxExchange.of_plan(plan, rank, plugin.abort, puts=puts)
    plugin.state = State(rank, plan, topic, PeakMeter(), None, 0, exchange=exchange)
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
    exchange = here().exchange
    peers = [peer for peer in range(exchange.workers) if peer != exchange.rank]
    exchange.transfer(
        dict.fromkeys(peers, gpu_memory.allocate(size)), {peer: gpu_memory.allocate(size) for peer in peers}
    )


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
