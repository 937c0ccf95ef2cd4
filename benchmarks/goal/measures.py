"""How the goals are measured: each function makes one block's values, one a target, by the target's name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.goal import targets
from benchmarks.goal.bench import SETTINGS, Bench, Ran, two_hosts
from benchmarks.goal.targets import Target
from benchmarks.on_gpu.figures import host_bytes_of_worker
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import REFERENCE
from benchmarks.peer.protocol import Job, PeerError, Tables
from benchmarks.processes import ROOT, surroundings
from merge_bench.analysis import aggregate
from merge_bench.analysis.statistics import median
from merge_bench.errors import RunFailed
from merge_bench.host.machine import available_memory_bytes, usable_core_count

LARGE, WORKERS = 25_000_000, 2
ENGINE = "native"  # what `run` takes on CPUs
FAST_RATE = "8gbit"
FIRST_SIZE, LINEAR_FROM, LAST_SIZE = 1_000_000, 4_000_000, 64_000_000
NOT_MEASURED = "not_measured"
"""In a goal's details: why it has no value."""
Values = Mapping[str, float]


@dataclass(frozen=True)
class Measure:
    """One way of measuring. `seconds`: what a block takes on two cores that do nothing else."""

    name: str
    targets: tuple[Target, ...]
    seconds: float
    do: Callable[[Bench], Values]


def shared_memory(bench: Bench) -> Values:
    """The data plane on one host, its limit checked, and peak memory."""
    ran = bench.merge(
        chunk=LARGE,
        workers=WORKERS,
        iterations=5,
        check_link=True,
        config="optimized.cfg",
        pipeline="off",
        require_transport="sysv,posix,cma",
    )
    return {
        **link_values(bench, ran, targets.SHARED_MEMORY, targets.CHECK_SHARED_MEMORY),
        targets.MEMORY.name: memory_ratio(ran),
    }


def shaped_tcp(bench: Bench, make_hosts: Callable[[], AbstractContextManager[Any]] = two_hosts) -> Values:
    """The data plane between two hosts, its limit checked."""
    with make_hosts() as hosts:
        ran = across(bench, hosts, chunk="5e6", check_link=True, pipeline="off", require_transport="tcp")
    return link_values(bench, ran, targets.TCP, targets.CHECK_TCP)


def across(bench: Bench, hosts: Any, *, iterations: int = 5, **chosen: object) -> Ran:
    """A run between two hosts."""
    return bench.merge(workers=WORKERS, config="ethernet.cfg", iterations=iterations, hosts=hosts, **chosen)


def link_values(bench: Bench, ran: Ran, fraction: Target, check: Target) -> dict[str, float]:
    """Fraction of the link limit, and the limit ÷ what `ucx_perftest` found, or the report's reason why it did not run.

    A limit whose measurement was disturbed counts for neither goal: its reason stands in `bench.details`.

    Raises
    ------
    RunFailed
        If there is no limit.
    """
    link = ran.document["link"]
    if link is not None and link["disturbed"] is not None:
        reason = {NOT_MEASURED: f"the link limit was disturbed: {link['disturbed']}"}
        bench.details |= {fraction.name: reason, check.name: reason}
        return {}
    if link is None or link["fraction"] is None:
        raise RunFailed("the link limit was not measured")
    found = {fraction.name: float(link["fraction"])}
    if link["check_bytes_per_second"]:
        found[check.name] = link["limit_bytes_per_second"] / link["check_bytes_per_second"]
    elif link["not_checked"]:
        bench.details[check.name] = {NOT_MEASURED: link["not_checked"]}
    return found


def memory_ratio(ran: Ran) -> float:
    """The largest worker's peak above imports ÷ its input."""
    workers = ran.document["peak_memory_bytes"]["per_worker"]
    return max(float(worker["above_imports"]) / float(worker["input"]) for worker in workers)


def slow_link(bench: Bench) -> Values:
    """How much longer a merge takes than its bytes alone would, across a link that is the bottleneck."""
    with two_hosts() as hosts:
        ran = across(bench, hosts, chunk="5e6", pipeline="on")
    return {targets.OVERLAP.name: wall_over_bytes(ran)}


def fast_link(bench: Bench) -> Values:
    """The same across a link so fast that cores may limit the merge, with the report's bottleneck beside it."""
    with two_hosts(FAST_RATE, one_core=True) as hosts:
        ran = across(bench, hosts, chunk="4e6", iterations=20, pipeline="on")
    link = ran.document["link"]
    bench.details[targets.FAST_LINK.name] = {
        "bottleneck": (ran.document["bottleneck"] or {}).get("what"),
        "link_limit_bytes_per_second": link["limit_bytes_per_second"],
        "wall_seconds": ran.document["wall_seconds"]["median"],
        "cores_used": aggregate.run_median(ran.campaign.launches, aggregate.busy_cores_share),
        "computing": aggregate.run_median(ran.campaign.launches, aggregate.computing_share),
    }
    return {targets.FAST_LINK.name: wall_over_bytes(ran)}


def wall_over_bytes(ran: Ran) -> float:
    """The median wall ÷ (the bytes of the busiest link ÷ the link limit).

    Raises
    ------
    RunFailed
        If there is no limit, or its measurement was disturbed.
    """
    link = ran.document["link"]
    if link is not None and link["disturbed"] is not None:
        raise RunFailed(f"the link limit was disturbed: {link['disturbed']}")
    if link is None or link["wall_ratio"] is None:
        raise RunFailed("the link limit was not measured")
    return float(link["wall_ratio"])


def in_one_process(bench: Bench) -> Values:
    """Against Polars streaming and DuckDB, whose result is a table of its own or Arrow."""
    duckdb = dict.fromkeys(("duckdb-table", "duckdb-arrow"), targets.DUCKDB)
    return against(bench, {"polars-streaming": targets.POLARS, **duckdb}, iterations=3)


def dask(bench: Bench) -> Values:
    """Against the faster of Dask's shuffles, over its fastest protocol here."""
    names = ("exchange-dask-tasks-tcp", "exchange-dask-p2p-tcp")
    return against(bench, dict.fromkeys(names, targets.DASK), iterations=1)


def against(bench: Bench, peers: Mapping[str, Target], iterations: int, tables: Tables | None = None) -> Values:
    """One block of `benchmarks/peers.py`; of several peers with one target the fastest counts.

    Raises
    ------
    PeerError
        If any of them failed.
    """
    threads = usable_core_count() // WORKERS * WORKERS
    job = Job(LARGE, WORKERS, threads, iterations, warmup=1, fraction=0.3, seed=bench.seed, tables=tables)
    comparison = Comparison.of(list(peers), job, bench.folder, bench.limit)
    comparison.without = SETTINGS
    try:
        comparison.run(1, bench.seed)
    finally:
        comparison.finish()
    found: dict[str, float] = {}
    lines = comparison.standings()
    walls = {line.contender: line.wall for line in lines}
    for line in lines:
        if line.contender == REFERENCE:
            continue
        if line.ratio is None:
            raise PeerError(f"no ratio to {line.contender}: {line.contender} or merge_bench failed")
        name = peers[line.contender].name
        found[name] = min(found.get(name, line.ratio.median), line.ratio.median)
        details = bench.details.setdefault(name, {"wall_seconds": {REFERENCE: walls[REFERENCE]}})
        details["wall_seconds"][line.contender] = line.wall
    return found


def linear(bench: Bench, available: int | None = None) -> Values:
    """Time per row over sizes that double as long as they fit `available` bytes; None: the memory that is free."""
    seconds: dict[int, float] = {}
    for rows in sizes(available_memory_bytes() if available is None else available):
        ran = bench.merge(chunk=rows, workers=WORKERS, iterations=5, link_rounds=0, config="optimized.cfg")
        seconds[rows] = ran.document["wall_seconds"]["median"] / (rows * WORKERS)
    bench.details[targets.LINEAR.name] = {
        "sizes": [{"rows_per_chunk": rows, "nanoseconds_per_row": each * 1e9} for rows, each in seconds.items()]
    }
    return {targets.LINEAR.name: targets.spread_of_sizes(seconds, LINEAR_FROM)}


def sizes(available: int) -> list[int]:
    """Rows per chunk, doubling, as long as the chunks of all workers fit into 80 % of `available` bytes."""
    doubled = [FIRST_SIZE << power for power in range((LAST_SIZE // FIRST_SIZE).bit_length())]
    each = 0.8 * available / WORKERS
    return [rows for rows in doubled if host_bytes_of_worker(rows, WORKERS, 0.3, ENGINE) <= each]


def launch(bench: Bench) -> Values:
    """Seconds from the start of the process to the beginning of the first timed iteration."""
    ran = bench.merge(chunk="1e6", workers=WORKERS, iterations=5, warmup=1)
    line = ran.campaign.launches[0].timed_iterations[0]  # its time is that at which the iteration had ended
    return {targets.LAUNCH.name: line.time - line.wall_seconds - ran.began}


def show_help(bench: Bench) -> Values:
    """The median of five."""
    seconds = []
    for _ in range(5):
        start = time.monotonic()
        subprocess.run(
            [sys.executable, "-P", "-m", "merge_bench", "--help"],
            env=surroundings(*SETTINGS),
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        seconds.append(time.monotonic() - start)
    return {targets.HELP.name: median(seconds)}
