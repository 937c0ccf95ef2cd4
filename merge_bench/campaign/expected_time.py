"""Estimates how long launches take: from earlier launches of the same merge on this host, else by a rule of thumb."""

from __future__ import annotations

import math
import socket
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merge_bench.analysis.diagnostics import busy_warnings
from merge_bench.campaign.planned_launches import Job
from merge_bench.errors import MergeBenchError
from merge_bench.host.machine import usable_cores
from merge_bench.merge.engines import describe
from merge_bench.records.campaign import Launch
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import without_table_names
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.units import format_duration, plural

START_SECONDS = 4.0
"""From starting the processes of a small launch to their end: 3.9 and 4.2 s on two cores."""
ROW_SECONDS, ROW_ONCE_SECONDS = 22e-9, 150e-9
"""Core seconds for a row of each frame in one merge (0.17 s for 2 × 8e6 rows on two cores), and once in a launch, for
generating, warming up and verifying."""
RULE = (
    f"by a rule of thumb: {START_SECONDS:g} s a launch, and {ROW_SECONDS * 1e9:g} ns of a core for each row and merge"
)
ENOUGH_LAUNCHES, MOST_READ, FEW = 6, 12, 3
_COUNTS = ("launches", "iterations", "warmup", "tune", "seed", "timeout")
_CHECKS = ("require_transport", "verify", "link_rounds", "check_link", "write_result")


def launch_seconds_by_rule(job: Job) -> float | None:
    """Seconds that a launch takes by the rule of thumb; None for GPUs, Dask's merge and tables of files."""
    plan = job.prepared.plan
    if plan.rows_per_chunk is None or not plan.data_plane.by_workers or describe(plan.engine).device_memory:
        return None
    workers_of_core = plan.workers / usable_cores() if job.prepared.launcher.starts_here else 1.0
    return rule_of_thumb_seconds(plan.rows_per_chunk * max(workers_of_core, 1.0), plan.iterations)


def rule_of_thumb_seconds(rows: float, iterations: int) -> float:
    """Seconds that a launch takes by the rule of thumb; `rows`: of each input frame for each core."""
    return START_SECONDS + rows * (ROW_SECONDS * iterations + ROW_ONCE_SECONDS)


def earlier_launch_seconds(results: Path, plan: Mapping[str, Any], config: str) -> list[float]:
    """Seconds that earlier launches of the same merge took on this host, scaled to the iterations of `plan`.

    The newest is first. Only launches with the same config count, or, if there are none, those with any config; and
    those of campaigns on a busy host only if there are no others. At most `MOST_READ` results in the folder `results`
    are read.
    """
    problem, host, read = _timing_fields(plan), socket.gethostname(), 0
    seconds: dict[tuple[bool, bool], list[float]] = {}  # by whether the host was busy and the config is another
    for folder, head in ResultsFolder(results).newest(lambda head: head.host == host):
        if len(seconds.get((False, False), ())) >= ENOUGH_LAUNCHES or read >= MOST_READ:
            break
        alike = [index for index, recorded in enumerate(head.plans) if _timing_fields(recorded) == problem]
        if not alike:
            continue
        read += 1
        try:
            campaign = read_campaign(folder)
        except MergeBenchError:
            continue
        busy = bool(busy_warnings(campaign))
        for launch in campaign.launches:
            its, number = launch.key or (campaign.head.configs[0].name, 0)
            total = launch.end.seconds if launch.complete and launch.end else None
            if total and number in alike:
                scaled = _scaled_seconds(launch, total, plan.get("iterations"))
                seconds.setdefault((busy, its != config), []).append(scaled)
    return seconds[min(seconds)][:ENOUGH_LAUNCHES] if seconds else []


def _scaled_seconds(launch: Launch, total: float, iterations: object) -> float:
    """Seconds that a launch, which took `total`, would have taken with this number of timed iterations."""
    walls = [each.wall_seconds for each in launch.timed]
    if not walls or not isinstance(iterations, int):
        return total
    return max(total - sum(walls), 0.0) + iterations * statistics.median(walls)


def _timing_fields(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a plan that decide how long one merge takes."""
    kept = {name: value for name, value in without_table_names(plan).items() if name not in _COUNTS + _CHECKS}
    if "probe" in kept:
        return {**kept, "iterations": plan.get("iterations")}
    kept.setdefault("how", "inner")  # older records have no other
    workload = kept.get("workload")
    if isinstance(workload, Mapping):
        kept["workload"] = {name: value for name, value in workload.items() if name != "seed"}
    return kept


@dataclass
class ExpectedTime:
    """Estimates the seconds of each launch before and while a campaign runs.

    `results`: the folder with earlier results. `plans`: the campaign's plans as its records have them. `rule_seconds`:
    returns the seconds of a launch by a rule of thumb, None where the rule does not apply. `rule`: the rule in words.
    """

    results: Path
    plans: Sequence[Mapping[str, Any]]
    rule_seconds: Callable[[Job], float | None]
    rule: str = RULE
    _estimates: dict[tuple[str, int], tuple[float | None, int]] = field(default_factory=dict)
    _measured: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    _ratios: list[float] = field(default_factory=list)

    def launch_seconds(self, job: Job) -> float | None:
        """The estimated seconds of this launch; None if nothing is known about it."""
        key = job.config, job.plan
        if key in self._measured:
            return statistics.median(self._measured[key])
        before = self._first_estimate(job)[0]
        if before is None:
            others = [seconds for measured in self._measured.values() for seconds in measured]
            return statistics.median(others) if others else None
        return before * (statistics.median(self._ratios) if self._ratios else 1.0)

    def _first_estimate(self, job: Job) -> tuple[float | None, int]:
        """The seconds estimated before the campaign, and the number of earlier launches they are from (0: the rule)."""
        key = job.config, job.plan
        if key not in self._estimates:
            earlier = earlier_launch_seconds(self.results, self.plans[job.plan], job.config)
            # The least of few: the first launch of all also compiles its loops.
            usual = min if len(earlier) < FEW else statistics.median
            self._estimates[key] = (usual(earlier), len(earlier)) if earlier else (self.rule_seconds(job), 0)
        return self._estimates[key]

    def note_launch(self, job: Job, seconds: float) -> None:
        """Take into account that a launch of `job` took this many seconds."""
        before = self._first_estimate(job)[0]
        if before:
            self._ratios.append(seconds / before)
        self._measured.setdefault((job.config, job.plan), []).append(seconds)

    def total_seconds(self, jobs: Sequence[Job]) -> float | None:
        """The estimated seconds of all `jobs` together; None if there is no estimate for one of them."""
        seconds = [self.launch_seconds(job) for job in jobs]
        return math.fsum(each or 0.0 for each in seconds) if None not in seconds else None

    def describe(self, jobs: Sequence[Job]) -> str:
        """A sentence with the estimate: ``12 launches take about 2 minutes (as earlier launches …)``."""
        count = f"{plural(len(jobs), 'launch')} {'take' if len(jobs) > 1 else 'takes'}"
        total = self.total_seconds(jobs)
        if total is None:
            new = ", ".join(dict.fromkeys(job.config for job in jobs if self.launch_seconds(job) is None))
            why = f"no earlier result here has the same tables, engine and workers as {new}"
            return f"{count} a time that is not known before the first one has ended: {why}"
        return f"{count} about {format_duration(total)} ({self.describe_source(jobs)})"

    def describe_source(self, jobs: Sequence[Job]) -> str:
        """What the estimate for `jobs` is based on, as part of a sentence."""
        sources = {self._first_estimate(job)[1] for job in jobs}
        if 0 not in sources:
            return "as earlier launches of the same problem here"
        return self.rule if sources == {0} else f"as earlier launches here; what is new, {self.rule}"
