"""A campaign's records as tidy tables, a row an observation: what data frames for Python are made of.

Seconds, bytes, rows and bytes per second; None where something was not measured. Warm-up iterations and launches that
were interrupted and made again are left out. Names of columns are identifiers, so that ``frame.wall_seconds`` works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from merge_bench.analysis import aggregate, energy, metrics
from merge_bench.analysis.transport_summary import lanes
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import ProbeLine, WorkerIteration

Rows = Iterator[dict[str, Any]]


def iterations(campaign: Campaign) -> Rows:
    """A row for every timed iteration."""
    for run, launch in _runs_with_launches(campaign):
        for iteration in launch.timed:
            yield _launch_cells(campaign, run, launch) | {
                "iteration": iteration.index,
                "wall_seconds": iteration.wall_seconds,
                "throughput": aggregate.throughput(launch, iteration),
                "bandwidth": metrics.iteration_bandwidth(iteration),
                "link_fraction": aggregate.link_fraction(launch, iteration),
            }


def workers(campaign: Campaign) -> Rows:
    """A row for every worker in every timed iteration."""
    for run, launch in _runs_with_launches(campaign):
        hosts = {worker.rank: worker.host for worker in launch.line.workers} if launch.line else {}
        for iteration in launch.timed:
            frames = metrics.frames_sent(iteration.workers)
            for worker in iteration.workers:
                own = {"iteration": iteration.index, "rank": worker.rank, "host": hosts.get(worker.rank)}
                yield _launch_cells(campaign, run, launch) | own | _worker_cells(worker, frames)


def pairs(campaign: Campaign) -> Rows:
    """A row for every ordered pair of workers in every launch: medians over its timed iterations."""
    for run, launch in _runs_with_launches(campaign):
        by_pair = {(lane.from_rank, lane.to_rank): lane for lane in lanes([launch.lanes] if launch.lanes else [])}
        for (sender, receiver), figures in aggregate.pair_figures([launch]).items():
            lane = by_pair.get((sender, receiver))
            yield _launch_cells(campaign, run, launch) | {
                "from_rank": sender,
                "to_rank": receiver,
                "bytes": float(figures.bytes),
                "seconds": figures.seconds,
                "rate": figures.bytes / figures.seconds if figures.seconds else None,
                "placement": lane.placement if lane else None,
                "transports": ",".join(lane.transports) if lane else None,
            }


def launches(campaign: Campaign) -> Rows:
    """A row for every launch: what statistics are made of."""
    for run, launch in _runs_with_launches(campaign):
        phases = {name: aggregate.launch_median(launch, aggregate.phase_seconds(name)) for name in aggregate.PHASES}
        peaks = [worker.peak_bytes or 0 for worker in launch.memory.workers] if launch.memory else []
        yield _launch_cells(campaign, run, launch) | {
            "failure": launch.failures[0].code if launch.failures else None,
            "iterations": len(launch.timed),
            "wall_seconds": aggregate.launch_median(launch, aggregate.wall_seconds),
            "throughput": aggregate.launch_median(launch, aggregate.throughput),
            "bandwidth": aggregate.launch_median(launch, aggregate.bandwidth),
            **{f"{name}_seconds": seconds for name, seconds in phases.items()},
            "link_limit": aggregate.link_limit([launch]),
            "link_fraction": aggregate.launch_median(launch, aggregate.link_fraction),
            "peak_memory_bytes": max(peaks, default=None),
            "gpu_joules_per_merge": energy.gpu_joules(launch),
            "cpu_joules_per_merge": energy.cpu_joules(launch),
            "startup_seconds": launch.line.startup_seconds if launch.line else None,
            "seconds": launch.end.seconds if launch.end else None,
        }


def probes(campaign: Campaign) -> Rows:
    """A row for every line of a network measurement, with the numbers that its tool gave."""
    for launch in campaign.standing:
        for line in launch.probes:
            config = launch.line.config if launch.line else None
            yield {"campaign": campaign.head.campaign_id, "config": config, "launch": launch.index} | _probe_cells(line)


def _runs_with_launches(campaign: Campaign) -> Iterator[tuple[Run, Launch]]:
    return ((run, launch) for run in campaign.runs for launch in run.launches)


def _launch_cells(campaign: Campaign, run: Run, launch: Launch) -> dict[str, Any]:
    """The columns that identify a launch; `complete`: reports use complete launches only."""
    return {
        "campaign": campaign.head.campaign_id,
        "config": run.config.name,
        "plan": run.plan_index,
        "engine": run.plan.engine,
        "exchange": run.plan.exchange,
        "rows_per_chunk": run.plan.rows_per_chunk,
        "question": run.plan.question or None,
        "workers": run.plan.workers,
        "launch": launch.index,
        "block": launch.block,
        "complete": launch.complete,
    }


def _worker_cells(worker: WorkerIteration, frames: tuple[bool, bool]) -> dict[str, Any]:
    bandwidth = metrics.worker_bandwidth(worker, frames)
    return {
        "seconds": worker.seconds,
        **{f"{name}_seconds": getattr(worker.phases_seconds, name, None) for name in aggregate.PHASES},
        "overlap_seconds": worker.overlap_seconds,
        "join_overlap_seconds": worker.join_overlap_seconds,
        "sent_left_bytes": getattr(worker.sent_bytes, "left", None),
        "sent_right_bytes": getattr(worker.sent_bytes, "right", None),
        "flight_seconds": getattr(worker.flight_seconds, "union", None),
        "bandwidth_left": bandwidth.left,
        "bandwidth_right": bandwidth.right,
        "bandwidth": bandwidth.mean,
        "received_left_rows": getattr(worker.received_rows, "left", None),
        "received_right_rows": getattr(worker.received_rows, "right", None),
        "result_rows": worker.result_rows,
        "cpu_seconds": worker.cpu_seconds,
    }


def _probe_cells(line: ProbeLine) -> dict[str, Any]:
    names = ("probe", "test", "method", "placement", "memory", "size", "count", "iterations", "seconds")
    return {
        **{name: getattr(line, name) for name in names},
        "bandwidth": line.bandwidth_bytes_per_second,
        "messages_per_second": line.messages_per_second,
        "ranks": ",".join(map(str, line.ranks)),
        "hosts": ",".join(line.hosts),
        "selected": ",".join(line.selected),
        "protocol": line.protocol,
        "link_limit": line.limit_bytes_per_second,
        "wrong": line.wrong,
        "as_requested": line.as_requested,
    }
