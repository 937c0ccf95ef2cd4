"""Writes campaigns as a driver would, with numbers chosen so that the results can be worked out by hand.

The base case: W workers; in iteration i the wall is 0.1 s + i · 10 ms, data are 2 · W · 16 MB. Every worker sends
8 MB of the left frame and 4 MB of the right to each other worker, in flight for 20 ms each, 30 ms together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter

CHUNK_BYTES = 16_000_000
COPIED_BYTES = 2 * 2 * CHUNK_BYTES
LEFT_BYTES = 8_000_000
RIGHT_BYTES = 4_000_000
LANES = ["sysv/memory", "tcp/lo"]
REQUESTED = {"UCX_TLS": "sm,tcp"}
PROTOCOLS = [
    s.UcxProtocolRange(memory="host", first_bytes=0, last_bytes=8191, protocol="eager", transports="sysv/memory"),
    s.UcxProtocolRange(memory="host", first_bytes=8192, protocol="rendezvous", transports="tcp/lo", estimated=True),
]
LOOPBACK_TRAFFIC = s.DeviceTraffic(device="lo", sent_bytes=73 << 20, received_bytes=73 << 20)
HOW = "count, every row, checksum"


def plan(workers: int = 2, **changes: Any) -> dict[str, Any]:
    """A plan as it stands in a campaign line."""
    return {
        "rows_per_chunk": 1_000_000,
        "workers": workers,
        "hosts": ["node0"],
        "iterations": 3,
        "warmup": 1,
        "launches": 1,
        "engine": "polars",
        "exchange": "ucx",
        "protocol": "tcp",
        "verify": "ends",
        "seed": 7,
    } | changes


def host_of(rank: int) -> str:
    """Four workers a host."""
    return f"node{rank // 4}"


@dataclass(frozen=True)
class Script:
    """What a launch is made of; the functions may change a worker or an iteration before it is written."""

    index: int = 0
    config: str = "optimized"
    plan_index: int = 0
    plan: dict[str, Any] = field(default_factory=plan)
    walls: Sequence[float] = (0.10, 0.11, 0.12)
    worker: Callable[[s.WorkerIteration], s.WorkerIteration] = lambda worker: worker
    check: Callable[[s.VerificationLine], s.VerificationLine] = lambda check: check
    measure_link: bool = True
    end_status: int | None = 0
    block: int = 0
    variables: dict[str, str] = field(default_factory=lambda: {"UCX_TLS": "sm,tcp"})
    machine: Callable[[s.Worker], s.Worker] = lambda worker: worker
    failure: str | None = None
    dashboard: str | None = None
    seconds: float = 4.0
    one_row_merge_seconds: Sequence[float] = ()
    copy_seconds: Sequence[float] = ()  # for COPIED_BYTES, which is what a worker's partition reads and writes

    @property
    def workers(self) -> int:
        """W of the plan."""
        return int(self.plan["workers"])


def worker_iteration(rank: int, workers: int, wall: float) -> s.WorkerIteration:
    """One worker's part; with one worker nothing is sent."""
    others = workers - 1
    flight = (
        s.TransferSeconds(left=0.02, right=0.02, union=0.03) if others else s.TransferSeconds(left=0, right=0, union=0)
    )
    return s.WorkerIteration(
        rank=rank,
        seconds=wall,
        phases_seconds=s.PhaseSeconds(partition=0.02, exchange=0.03, join=0.04),
        overlap_seconds=0.0,
        sent_bytes=s.FrameCounts(left=LEFT_BYTES * others, right=RIGHT_BYTES * others),
        flight_seconds=flight,
        received_rows=s.FrameCounts(left=1_000_000, right=1_000_000),
        result_rows=300_000,
    )


def iteration(script: Script, index: int, wall: float, *, warmup: bool = False) -> s.IterationLine:
    """One iteration of the base case, changed by the script."""
    ranks = range(script.workers)
    dask = script.plan["exchange"] == "dask"
    return s.IterationLine(
        launch=script.index,
        index=index,
        warmup=warmup,
        wall_seconds=wall,
        barrier_skew_seconds=None if dask else 1e-4,
        workers=[] if dask else [script.worker(worker_iteration(rank, script.workers, wall)) for rank in ranks],
        pairs=[]
        if dask
        else [
            s.PairTraffic(from_rank=a, to_rank=b, bytes=LEFT_BYTES + RIGHT_BYTES, seconds=0.03)
            for a in ranks
            for b in ranks
            if a != b
        ],
    )


def write_head(
    writer: CampaignWriter,
    keys: Sequence[tuple[str, int]],
    plans: Sequence[dict[str, Any]],
    variables: Mapping[str, dict[str, str]] | None = None,
) -> None:
    """The campaign line; every config sets one variable, or those of its name in `variables`."""
    names = list(dict.fromkeys(name for name, _ in keys))
    own = variables or {}
    configs = [
        s.Config(name=name, path=f"configs/{name}.cfg", variables=own.get(name, {"UCX_TLS": "sm,tcp"}))
        for name in names
    ]
    writer.write(
        s.CampaignLine(
            campaign_id=writer.campaign_id,
            argv=["run"],
            version="0.1",
            configs=configs,
            seed=7,
            plans=list(plans),
            runs=[s.RunKey(config=name, plan=index) for name, index in keys],
        )
    )


def write_start(writer: CampaignWriter, script: Script) -> None:
    """The launch line."""
    workers = script.workers
    writer.write(
        s.LaunchLine(
            launch=script.index,
            config=script.config,
            plan=script.plan_index,
            block=script.block,
            cluster=s.Cluster(
                launcher="local", protocol="tcp", scheduler="tcp://127.0.0.1:8786", dashboard=script.dashboard
            ),
            workers=[
                script.machine(s.Worker(rank=rank, host=host_of(rank), pid=1000 + rank, name=f"worker-{rank}"))
                for rank in range(workers)
            ],
            data_bytes=2 * workers * CHUNK_BYTES,
            rows=2 * workers * int(script.plan["rows_per_chunk"] or 1000),
            startup_seconds=1.5,
        )
    )


def check(script: Script, after: int | None) -> s.VerificationLine:
    """A check that finds everything right, unless the script says otherwise."""
    rows = 300_000 * script.workers
    line = s.VerificationLine(
        launch=script.index,
        after=after,
        ok=True,
        how=HOW,
        rows=rows,
        expected_rows=rows,
        checksum="0x00c0ffee",
        expected_checksum="0x00c0ffee",
        bad_rows=0,
    )
    return script.check(line)


def write_launch(writer: CampaignWriter, script: Script) -> None:
    """All lines of one launch; ``end_status`` None leaves its end out, as a killed driver would."""
    verify = script.plan["verify"]
    write_start(writer, script)
    if script.failure is not None:
        writer.write(
            s.FailureLine(launch=script.index, code="run-failed", message=script.failure, host="node0", rank=0)
        )
        writer.write(s.LaunchEndLine(launch=script.index, status=3, seconds=4.0))
        return
    for index in range(int(script.plan["warmup"])):
        writer.write(iteration(script, index, 0.5, warmup=True))
    if verify != "off" and script.plan["warmup"]:
        writer.write(check(script, None))
    for index, wall in enumerate(script.walls):
        writer.write(iteration(script, index, wall))
        if verify == "every" or (verify == "ends" and index == int(script.plan["iterations"]) - 1):
            writer.write(check(script, index))
    if script.plan["exchange"] != "dask":
        _write_network(writer, script)
    writer.write(
        s.MemoryLine(
            launch=script.index,
            workers=[
                s.WorkerMemory(
                    rank=rank,
                    peak_bytes=200_000_000 + rank,
                    peak_above_imports_bytes=96_000_000,
                    input_bytes=2 * CHUNK_BYTES,
                    copied_bytes=COPIED_BYTES if script.copy_seconds else None,
                    copy_seconds=list(script.copy_seconds),
                    one_row_merge_seconds=list(script.one_row_merge_seconds),
                )
                for rank in range(script.workers)
            ],
        )
    )
    if script.end_status is not None:
        writer.write(s.LaunchEndLine(launch=script.index, status=script.end_status, seconds=script.seconds))


def _write_network(writer: CampaignWriter, script: Script) -> None:
    """Lanes of every pair and the link limit; in its rounds every worker is in flight for 25, 24 and 26 ms."""
    ranks = range(script.workers)
    pairs = [
        s.WorkerPairLanes(from_rank=a, to_rank=b, placement="same host", transports=LANES, protocols=0)
        for a in ranks
        for b in ranks
        if a != b
    ]
    writer.write(s.LanesLine(launch=script.index, requested=REQUESTED, pairs=pairs, protocols=[PROTOCOLS]))
    hosts = sorted({host_of(rank) for rank in ranks})
    writer.write(
        s.TrafficLine(
            launch=script.index,
            during="iterations",
            hosts=[s.HostTraffic(host=host, devices=[LOOPBACK_TRAFFIC]) for host in hosts],
        )
    )
    if script.workers < 2 or not script.measure_link:
        return
    sent = (LEFT_BYTES + RIGHT_BYTES) * (script.workers - 1)
    writer.write(
        s.LinkLimitLine(
            launch=script.index,
            bytes=[sent] * script.workers,
            rounds=[[seconds] * script.workers for seconds in (0.025, 0.024, 0.026)],
            limit_bytes_per_second=sent / 0.025,
        )
    )


def write_campaign(results: Path, *scripts: Script, end: int | None = 0) -> Path:
    """A campaign of `scripts`, its folder. ``end`` None: it was killed."""
    scripts = scripts or (Script(),)
    last_plan = max(script.plan_index for script in scripts)
    plans = [next((x.plan for x in scripts if x.plan_index == i), plan()) for i in range(last_plan + 1)]
    keys = list(dict.fromkeys((script.config, script.plan_index) for script in scripts))
    with CampaignWriter.create(results, scripts[0].config) as writer:
        write_head(writer, keys, plans, {script.config: script.variables for script in scripts})
        for script in scripts:
            write_launch(writer, script)
        if end is not None:
            writer.write(s.CampaignEndLine(status=end))
    return writer.folder


def launches(count: int, **changes: Any) -> list[Script]:
    """`count` launches of one run; launch k is slower by k · 10 ms than launch 0."""
    base = Script(plan=plan(launches=count))
    return [
        replace(base, index=k, block=k, walls=tuple(w + 0.01 * k for w in base.walls), **changes) for k in range(count)
    ]


def interleaved(
    walls: Mapping[str, Sequence[float]], *, plan_index: int = 0, first: int = 0, **plan_changes: Any
) -> list[Script]:
    """A launch of every config in every block; `walls`: of each config, the median wall of its launch in each block.

    Every config sets its own name as ``UCX_TLS``; `first`: index of the first launch.
    """
    count = len(next(iter(walls.values())))
    made = plan(launches=count, **plan_changes)
    return [
        Script(
            index=first + block * len(walls) + place,
            config=name,
            plan_index=plan_index,
            plan=made,
            walls=(0.99 * seconds[block], seconds[block], 1.02 * seconds[block]),
            block=block,
            variables={"UCX_TLS": name},
        )
        for block in range(count)
        for place, (name, seconds) in enumerate(walls.items())
    ]
