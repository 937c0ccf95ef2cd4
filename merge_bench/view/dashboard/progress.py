"""How far a campaign is, and how long the rest of it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.analysis.statistics import median
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.plan import Plan


@dataclass(frozen=True)
class Progress:
    """How far a campaign is. `share` from 0 to 1; `seconds_left` None: ended, or not known yet."""

    launches: int
    planned_launches: int
    iterations: int
    planned_iterations: int
    share: float
    seconds_left: float | None
    doing: str


def progress_of(campaign: Campaign, *, running: bool = True) -> Progress:
    """How far `campaign` is, and how long the rest takes if it goes on as until now."""
    runs = [(run.planned_launches, run.plan.iterations or 0, run.launches) for run in campaign.runs]
    planned = sum(launches for launches, _, _ in runs)
    planned_iterations = sum(launches * each for launches, each, _ in runs)
    done = sum(min(sum(_over(each) for each in made), launches) for launches, _, made in runs)
    iterations = sum(len(each.timed) for _, _, made in runs for each in made)
    share = sum(
        sum(1.0 if _over(each) else len(each.timed) / max(every, 1) for each in made) for _, every, made in runs
    ) / max(planned, 1)
    over = campaign.end is not None
    return Progress(
        launches=done,
        planned_launches=planned,
        iterations=iterations,
        planned_iterations=planned_iterations,
        share=1.0 if over and campaign.end is not None and campaign.end.status == 0 else min(share, 0.99),
        seconds_left=None if over or not running else _seconds_left(campaign),
        doing=_doing(campaign, running=running),
    )


def _seconds_left(campaign: Campaign) -> float | None:
    """Launches that are left, each as long as those of its run took; of the one that is up, what is left of it."""
    lengths = {key: _lengths(run.launches) for key, run in enumerate(campaign.runs)}
    known = [length for each in lengths.values() for length in each]
    total = 0.0
    for key, run in enumerate(campaign.runs):
        over = sum(map(_over, run.launches))
        up = next((each for each in run.launches if not _over(each) and each.line is not None), None)
        usual = median(lengths[key] or known) if lengths[key] or known else _estimate(up, run.plan)
        if run.planned_launches > over:
            if usual is None:
                return None
            total += usual * (run.planned_launches - over) - (_age(up) if up else 0.0)
    return max(total, 0.0)


def _lengths(launches: Sequence[Launch]) -> list[float]:
    """Seconds that whole launches took, from starting their processes to their end."""
    return [
        each.end.time - each.line.time + (each.line.startup_seconds or 0.0)
        for each in launches
        if each.line is not None and each.end is not None and each.complete
    ]


def _estimate(up: Launch | None, plan: Plan) -> float | None:
    """How long the first launch will have taken, judged by the iterations that it has made."""
    if up is None or up.line is None or len(up.iterations) < 2:
        return None
    every = (up.iterations[-1].time - up.iterations[0].time) / (len(up.iterations) - 1)  # written in bursts: no median
    count = (plan.iterations or 0) + (plan.warmup or 0)
    return (up.line.startup_seconds or 0.0) + every * max(count, len(up.iterations))


def _age(launch: Launch) -> float:
    """Seconds from the start of a launch's processes to its last iteration, both on the driver's clock."""
    if launch.line is None:
        return 0.0
    last = launch.iterations[-1].time if launch.iterations else launch.line.time
    return last - launch.line.time + (launch.line.startup_seconds or 0.0)


def _doing(campaign: Campaign, *, running: bool) -> str:
    if campaign.end is not None:
        return "ended well" if campaign.end.status == 0 else f"ended with status {campaign.end.status}"
    last = campaign.launches[-1] if campaign.launches else None
    where = "launching" if last is None or _over(last) or last.line is None else f"launch {last.index}: {_step(last)}"
    return where if running else f"no end was recorded; the last was {where}"


def _step(launch: Launch) -> str:
    planned = max((iteration.index for iteration in launch.timed), default=-1) + 1
    if launch.link is not None or launch.memory is not None:
        return "ending"
    if launch.probes:
        return f"{len(launch.probes)} rows measured"
    if launch.timed:
        return f"{planned} iterations timed"
    return "warming up" if launch.iterations else "its cluster is up"


def _over(launch: Launch) -> bool:
    return launch.end is not None or bool(launch.failures)
