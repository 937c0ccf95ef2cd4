"""How far a campaign is, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis.statistics import median
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import LaunchLine
from merge_bench.tune.stage import Stage, stage_of
from merge_bench.units import format_duration


@dataclass(frozen=True)
class Progress:
    """How far a campaign is; `left`: how long the rest takes, empty if the campaign has ended or that is not known.

    `launches`, `failed`: how many launches were completed, and how many failed.

    `share`: how much is done, 0 to 1; of a tuning, which decides as it goes how much it measures, the share of its
    budget's time, and what is planned is None. `doing`: what happens now; `stage`: of a tuning that goes on.
    """

    launches: int = 0
    planned_launches: int | None = None
    iterations: int = 0
    planned_iterations: int | None = None
    share: float | None = None
    left: str = ""
    doing: str = ""
    stage: Stage | None = None
    failed: int = 0


def progress_of(campaign: Campaign, *, running: bool = True) -> Progress:
    """How far `campaign` is, and how long the rest takes at the speed until now."""
    runs = campaign.runs
    goes_on = running and campaign.end is None
    count = Progress(
        launches=sum(map(_completed, campaign.launches)),
        iterations=sum(len(launch.timed) for launch in campaign.launches),
        share=1.0 if campaign.end is not None else None,
        doing=_current_step(campaign, running=running),
        failed=sum(finished(launch) and launch.failed for launch in campaign.launches),
    )
    if any(run.plan.tune is not None for run in runs):
        stage = stage_of(campaign) if goes_on else None
        return replace(count, share=stage.share, left=stage.left, stage=stage) if stage is not None else count
    planned = sum(run.planned_launches for run in runs)
    merges = [run for run in runs if run.plan.probe is None]  # network measurements record rows, not iterations
    shares = (
        1.0 if _completed(launch) else len(launch.timed) / max(run.plan.iterations or 0, 1)
        for run in runs
        for launch in run.launches
    )
    done = campaign.end is not None and campaign.end.status == 0
    seconds = seconds_left(campaign) if goes_on else None
    return replace(
        count,
        launches=sum(min(sum(map(_completed, run.launches)), run.planned_launches) for run in runs),
        planned_launches=planned,
        iterations=sum(len(launch.timed) for run in runs for launch in run.launches),
        planned_iterations=sum(run.planned_launches * (run.plan.iterations or 0) for run in merges),
        share=1.0 if done else min(sum(shares) / max(planned, 1), 0.99),
        left="" if seconds is None else f"{format_duration(seconds)} left",
    )


def seconds_left(campaign: Campaign) -> float | None:
    """Seconds that the rest of a campaign takes, if each launch takes the median of its run; None if not known."""
    measured = [length for run in campaign.runs for length in _launch_seconds(run.launches)]
    total = 0.0
    for run in campaign.runs:
        left = run.planned_launches - sum(map(finished, run.launches))
        if left <= 0:
            continue
        current = next((each for each in run.launches if not _ended(each) and each.line is not None), None)
        lengths = _launch_seconds(run.launches) or measured
        usual = median(lengths) if lengths else _first_launch_seconds(current, run.plan)
        if usual is None:
            return None
        total += usual * left
        if current is not None and current.line is not None:
            last = current.iterations[-1] if current.iterations else current.line
            total -= _seconds_run(current.line, last.time)
    return max(total, 0.0)


def _launch_seconds(launches: Sequence[Launch]) -> list[float]:
    return [_seconds_run(each.line, each.end.time) for each in launches if each.line and each.end and each.complete]


def _first_launch_seconds(launch: Launch | None, plan: RecordedPlan) -> float | None:
    """Seconds that a first launch will take in total, estimated from its iterations so far; None if not known."""
    if launch is None or launch.line is None or len(launch.iterations) < 2:
        return None
    times = [line.time for line in launch.iterations]
    mean = (times[-1] - times[0]) / (len(times) - 1)  # not the median, because lines are written in bursts
    return (launch.line.startup_seconds or 0.0) + mean * max((plan.iterations or 0) + (plan.warmup or 0), len(times))


def _seconds_run(line: LaunchLine, until: float) -> float:
    """Seconds from the start of a launch's processes to the time `until`, both on the driver's clock."""
    return until - line.time + (line.startup_seconds or 0.0)


def _current_step(campaign: Campaign, *, running: bool) -> str:
    last = campaign.launches[-1] if campaign.launches else None
    if campaign.end is not None:
        outside = any(failure.code == INTERRUPTED for failure in campaign.failures)  # of every launch
        if campaign.end.status and (outside or (last is not None and last.interrupted)):
            return "interrupted"
        return "finished successfully" if campaign.end.status == 0 else f"ended with status {campaign.end.status}"
    where = "launching" if last is None or _ended(last) or last.line is None else f"launch {last.index}: {_step(last)}"
    return where if running else f"no end was recorded; last known step: {where}"


def _step(launch: Launch) -> str:
    if launch.link is not None or launch.memory is not None:
        return "ending"
    if launch.probes:
        return f"{len(launch.probes)} rows measured"
    if launch.timed:
        return f"{max(iteration.index for iteration in launch.timed) + 1} iterations timed"
    return "warming up" if launch.iterations else "cluster is up"


def _ended(launch: Launch) -> bool:
    return launch.end is not None or bool(launch.failures)


def _completed(launch: Launch) -> bool:
    return finished(launch) and not launch.failed


def finished(launch: Launch) -> bool:
    """Whether a launch ended or failed, and counts as made; an interrupted one does not, as it is made again."""
    return _ended(launch) and not launch.interrupted
