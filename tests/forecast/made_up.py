"""Campaigns of a made-up cluster, simulated event by event, so that what the model has to find is known.

Every worker partitions, with a log-normal time; when the last one is done all meet; each frame crosses at the pace of
the busiest host's link; then every worker joins. Nothing here uses the model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.host.description import Gpu, Hardware
from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter

ROW_BYTES = 16


@dataclass(frozen=True)
class Cluster:
    """The truth: rates in rows and bytes a second, seconds, and the spread of logarithms between workers."""

    partition_rate: float = 40e6
    join_rate: float = 20e6
    fixed: float = 0.0
    spread: float = 0.0
    local_rate: float = 8e9
    nic_rate: float = 1e9
    overhead: float = 0.0
    meeting: float = 2e-3
    noise: float = 0.0
    """Of whole iterations, as a spread of the logarithm."""
    overlap: float = 0.0
    """Share of the shorter of exchange and computing that runs behind the other; for clusters without spread."""
    host_cores: int | None = None
    """Cores that the workers of a host share, each with an equal part; None: each worker has what it needs."""
    link_limit: float | None = None
    """What the link measurement of every launch finds for a worker; None: as fast as the frames, with overlap only."""


@dataclass(frozen=True)
class Setup:
    """One run: workers of each host, rows per chunk."""

    per_host: tuple[int, ...] = (1, 1)
    rows: int = 1_000_000
    launches: int = 3
    iterations: int = 5
    config: str = "tuned"
    engine: str = ""
    """By default Polars, or cuDF with a GPU."""
    gpu: str | None = None
    plan: tuple[tuple[str, Any], ...] = ()
    uneven: float = 1.0
    """Rows that rank 0 receives ÷ those that it should."""

    @property
    def hosts(self) -> list[str]:
        """The host of each rank."""
        return [f"node{host}" for host, count in enumerate(self.per_host) for _ in range(count)]

    def share(self, rank: int) -> float:
        """Of the right rows that a rank should receive, those that it does."""
        return self.uneven if rank == 0 else 1.0


def frame_seconds(cluster: Cluster, setup: Setup) -> tuple[float, float]:
    """Seconds of a frame within the busiest host, and through the busiest host's link; 0 where nothing travels."""
    workers = sum(setup.per_host)
    message = setup.rows * ROW_BYTES / workers
    _, turns = turns_on_cores(cluster, setup)
    within = max((each - 1) * turns * (message / cluster.local_rate + cluster.overhead) for each in setup.per_host)
    between = max(
        each * (workers - each) * message / cluster.nic_rate + (workers - each) * turns * cluster.overhead
        for each in setup.per_host
    )
    return within, between


def turns_on_cores(cluster: Cluster, setup: Setup) -> tuple[int, float]:
    """Threads of a worker, and how many times as long its threads take as on cores of their own."""
    if cluster.host_cores is None:
        return 1, 1.0
    most = max(setup.per_host)
    threads = max(1, cluster.host_cores // most)
    return threads, max(1.0, most * threads / cluster.host_cores)


def simulate(cluster: Cluster, setup: Setup, chance: random.Random) -> tuple[list[dict[str, float]], float]:
    """Each worker's partition, exchange and join, and the wall, of one iteration."""
    workers = len(setup.hosts)
    slow = chance.lognormvariate(0, cluster.noise)
    threads, turns = turns_on_cores(cluster, setup)
    rows = 2 * setup.rows / threads

    def work(rate: float) -> float:
        return slow * turns * (cluster.fixed + rows / rate) * chance.lognormvariate(0, cluster.spread)

    partitions = [work(cluster.partition_rate) for _ in range(workers)]
    exchanged = max(partitions)
    if workers > 1:
        exchanged += slow * (turns * cluster.meeting + 2 * max(frame_seconds(cluster, setup)))
    joins = [work(cluster.join_rate) for _ in range(workers)]
    if cluster.overlap:
        exchange, computing = exchanged - partitions[0], partitions[0] + joins[0]
        exchanged -= cluster.overlap * min(exchange, computing)
        each = {"partition": partitions[0], "exchange": exchange, "join": joins[0], "seconds": exchanged + joins[0]}
        return [each] * workers, each["seconds"]
    told = [
        {"partition": partition, "exchange": exchanged - partition, "join": join, "seconds": exchanged + join}
        for partition, join in zip(partitions, joins, strict=True)
    ]
    return told, max(each["seconds"] for each in told)


def iteration(cluster: Cluster, setup: Setup, launch: int, index: int, chance: random.Random) -> s.IterationLine:
    """The record of one simulated iteration."""
    told, wall = simulate(cluster, setup, chance)
    workers = len(told)
    frame = setup.rows * ROW_BYTES // workers
    within, between = frame_seconds(cluster, setup)
    flight = max(within, between)
    hosts = setup.hosts
    return s.IterationLine(
        launch=launch,
        index=index,
        wall_seconds=wall,
        workers=[
            s.WorkerIteration(
                rank=rank,
                seconds=each["seconds"],
                phases_seconds=s.PhaseSeconds(
                    partition=each["partition"], exchange=each["exchange"], join=each["join"]
                ),
                overlap_seconds=0.5 * cluster.overlap * each["partition"],
                sent_bytes=s.FrameCounts(left=frame * (workers - 1), right=frame * (workers - 1)),
                flight_seconds=s.TransferSeconds(left=flight, right=flight, union=2 * flight),
                received_rows=s.FrameCounts(left=setup.rows, right=int(setup.rows * setup.share(rank))),
            )
            for rank, each in enumerate(told)
        ],
        pairs=[
            s.PairTraffic(from_rank=a, to_rank=b, bytes=2 * frame, seconds=2 * (within if same else between))
            for a in range(workers)
            for b in range(workers)
            if a != b
            for same in [hosts[a] == hosts[b]]
        ],
    )


def write(results: Path, cluster: Cluster, *setups: Setup, seed: int = 1) -> Path:
    """A campaign of all `setups`, its folder."""
    chance = random.Random(seed)
    plans = [
        {
            "rows_per_chunk": each.rows,
            "workers": len(each.hosts),
            "iterations": each.iterations,
            "warmup": 0,
            "launches": each.launches,
            "engine": each.engine or ("cudf" if each.gpu else "polars"),
            "exchange": "ucx",
            "verify": "every",
            **dict(each.plan),
        }
        for each in setups
    ]
    with CampaignWriter.create(results, setups[0].config) as writer:
        configs = list(dict.fromkeys(each.config for each in setups))
        runs = [s.RunKey(config=each.config, plan=number) for number, each in enumerate(setups)]
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=[],
                version="0.1",
                configs=[s.Config(name=n) for n in configs],
                plans=plans,
                runs=runs,
            )
        )
        count = 0
        for number, setup in enumerate(setups):
            for _ in range(setup.launches):
                _launch(writer, cluster, setup, count, number, chance)
                count += 1
        writer.write(s.CampaignEndLine(status=0))
    return writer.folder


def _launch(
    writer: CampaignWriter, cluster: Cluster, setup: Setup, launch: int, plan: int, chance: random.Random
) -> None:
    hosts = setup.hosts
    cores = cluster.host_cores
    hardware = Hardware(
        gpus=[Gpu(name=setup.gpu)] if setup.gpu else None,
        cores=cores,
        affinity=None if cores is None else ",".join(map(str, range(cores))),
    )
    rows = 2 * len(hosts) * setup.rows
    writer.write(
        s.LaunchLine(
            launch=launch,
            config=setup.config,
            plan=plan,
            cluster=s.Cluster(launcher="ssh", protocol="tls"),
            workers=[
                s.Worker(rank=rank, host=host, pid=rank + 1, name=f"worker-{rank}", hardware=hardware)
                for rank, host in enumerate(hosts)
            ],
            data_bytes=rows * ROW_BYTES,
            rows=rows,
        )
    )
    for index in range(setup.iterations):
        writer.write(iteration(cluster, setup, launch, index, chance))
        writer.write(s.VerificationLine(launch=launch, after=index, ok=True, how="made up"))
    if cluster.overlap or cluster.link_limit:
        sent = 2 * setup.rows * ROW_BYTES // len(hosts) * (len(hosts) - 1)
        seconds = 2 * max(frame_seconds(cluster, setup))
        writer.write(
            s.LinkLimitLine(
                launch=launch,
                bytes=[sent] * len(hosts),
                rounds=[[seconds] * len(hosts)] * 3,
                limit_bytes_per_second=cluster.link_limit or sent / seconds,
            )
        )
    writer.write(s.LaunchEndLine(launch=launch, status=0, seconds=1.0))


def write_probe(
    results: Path, rows: Sequence[tuple[str, str, int, float]], launches: int = 3, config: str = "tuned"
) -> Path:
    """A campaign of `probe p2p` with rows of (test, placement, size, seconds or rate), the same in every launch."""
    with CampaignWriter.create(results, "p2p") as writer:
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=[],
                version="0.1",
                configs=[s.Config(name=config)],
                plans=[{"probe": "p2p", "launches": launches}],
                runs=[s.RunKey(config=config, plan=0)],
            )
        )
        for launch in range(launches):
            writer.write(
                s.LaunchLine(
                    launch=launch,
                    config=config,
                    plan=0,
                    cluster=s.Cluster(launcher="ssh", protocol="tls"),
                    workers=[],
                    data_bytes=0,
                    rows=0,
                )
            )
            for test, placement, size, value in rows:
                latency = test == "tag_lat"
                writer.write(
                    s.ProbeLine(
                        launch=launch,
                        probe="p2p",
                        test=test,
                        method="made up",
                        placement=placement,
                        ranks=[0, 1],
                        size=size,
                        iterations=10,
                        seconds=value if latency else size / value,
                        bandwidth_bytes_per_second=None if latency else value,
                        messages_per_second=None if latency else value / size,
                    )
                )
            writer.write(s.LaunchEndLine(launch=launch, status=0, seconds=1.0))
        writer.write(s.CampaignEndLine(status=0))
    return writer.folder
