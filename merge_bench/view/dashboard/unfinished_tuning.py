"""A tuning that ended early: what it measured, what it did not, and the command that continues it."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.analysis import aggregate
from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.recorded_plan import Tuning
from merge_bench.tune.evaluator import CONFIRM
from merge_bench.tune.result import LEFT_OUT
from merge_bench.tune.stage import stage_of
from merge_bench.view.numbers import NULL, gib
from merge_bench.view.report.content import Column
from merge_bench.view.report.next_step import after_recorded_tuning
from merge_bench.view.text import capitalized, plural, short
from merge_bench.view.titles import size_of

_MOST_NAMED = 8


@dataclass(frozen=True)
class Unfinished:
    """`missing`: sentences; `measured`: a row for each config and size, medians over launches; `command`: continues."""

    measured: tuple[Column, ...]
    missing: tuple[str, ...]
    command: str


def unfinished(campaign: Campaign) -> Unfinished:
    """What there is of a tuning whose records have no end, and which no process writes."""
    return Unfinished(measured(campaign), _missing(campaign), after_recorded_tuning(campaign).command)


def measured(campaign: Campaign) -> tuple[Column, ...]:
    """A row for each config and size that has measured anything, with its throughput in GiB/s."""
    runs = [run for run in campaign.runs if aggregate.counted(run)]
    if not runs:
        return ()
    sizes = {run.plan_index for run in runs}
    size = Column("Problem", [size_of(campaign, run.plan_index) for run in runs], text=True)
    return (
        Column("Config", [run.config.name for run in runs], text=True),
        *([size] if len(sizes) > 1 else []),
        Column("Launches", [str(len(aggregate.counted(run))) for run in runs]),
        Column("Throughput (GiB/s)", list(map(_throughput, runs))),
    )


def _throughput(run: Run) -> str:
    rate = aggregate.of_run(aggregate.counted(run), aggregate.throughput)
    return NULL if rate is None else gib(rate)


def _missing(campaign: Campaign) -> tuple[str, ...]:
    asked = campaign.plans[0].tune or Tuning()
    left_out = {line.setting for line in campaign.tuning if line.decision == LEFT_OUT}
    candidates = [name for name in asked.values if name not in left_out]
    counted = {run.config.name for run in campaign.runs if aggregate.counted(run)}
    absent = [name for name in candidates if name not in counted]
    named = ", ".join(absent[:_MOST_NAMED]) + f" and {len(absent) - _MOST_NAMED} more" * (len(absent) > _MOST_NAMED)
    found = [f"{capitalized(stage_of(campaign).doing)}: this step is not finished."]
    if absent:
        found.append(f"Not measured: {len(absent)} of {plural(len(candidates), 'candidate')}: {short(named, 600)}.")
    if not any(line.phase == CONFIRM for line in campaign.tuning):
        found.append("Nothing is confirmed yet.")
    return tuple(found)
