"""How long a tuning takes, and what fits the time that it may take.

That is decided before the first launch, from how long launches take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.analysis.statistics import median
from merge_bench.campaign.expected_time import ExpectedTime, launch_seconds_by_rule, rule_of_thumb_seconds
from merge_bench.campaign.planned_launches import Job
from merge_bench.config.shipped import SPACE
from merge_bench.errors import UsageError, say
from merge_bench.host.machine import usable_cores
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import Options
from merge_bench.tune.result import LEFT_OUT
from merge_bench.tune.space import Value, read_space
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuning_plan import Task
from merge_bench.units import format_duration, plural

_SPARE = 1.2
"""How much longer than needed a budget is that is advised: no two launches take the same time."""
LAUNCH_MARGIN = 1.2
"""Factor by which a launch may take longer than expected before fewer settings fit the budget."""


@dataclass(frozen=True)
class Costs:
    """How many launches a tuning makes, and how long they take.

    `launch_seconds`: seconds of a launch at each size; `first_block_launches`: launches of the first block with these
    values; `confirm_blocks`: blocks of the confirmation.
    """

    launch_seconds: Sequence[float]
    first_block_launches: Callable[[Sequence[Value]], int]
    confirm_blocks: int

    def search_seconds(self, values: Sequence[Value]) -> float:
        """Seconds until each of `values` can be judged, after the least number of blocks."""
        return Options.least * self.first_block_launches(values) * self.launch_seconds[0]

    def confirmation_seconds(self, sizes: int | None = None) -> float:
        """Seconds of the confirmation of one candidate at the first `sizes`, by default at all."""
        return (
            2 * self.confirm_blocks * sum(self.launch_seconds[: len(self.launch_seconds) if sizes is None else sizes])
        )


@dataclass(frozen=True)
class AffordableSearch:
    """What a budget has time for: to try `values`, and to confirm at the first `sizes`."""

    values: tuple[Value, ...]
    sizes: int


def fit_to_budget(values: Sequence[Value], costs: Costs, budget: float) -> AffordableSearch:
    """The first `values`, as many as can be judged within `budget` seconds, with one of them confirmed.

    Sizes of the confirmation are left out, the last first, if not all values fit with them. Raises UsageError if one
    value at one size does not fit; it names a budget that suffices, with some to spare.
    """
    fewer = [(len(values), sizes) for sizes in range(len(costs.launch_seconds), 1, -1)]
    fewer += [(count, 1) for count in range(len(values), 0, -1)]
    for count, sizes in fewer:
        if costs.search_seconds(values[:count]) + costs.confirmation_seconds(sizes) <= budget:
            return AffordableSearch(tuple(values[:count]), sizes)
    least = costs.search_seconds(values[:1]) + costs.confirmation_seconds(1)
    launches = Options.least * costs.first_block_launches(values[:1]) + 2 * costs.confirm_blocks
    raise UsageError(
        f"--budget {_duration_option(budget)} is too short to judge and confirm even one setting, which takes"
        f" {launches} launches of about {format_duration(costs.launch_seconds[0])}; use --budget"
        f" {round_up_duration(_SPARE * least)} or more, or a smaller --chunk or --confirm"
    )


def _duration_option(seconds: float) -> str:
    """A duration as ``--budget`` takes it: ``90s``, ``3m``."""
    return f"{seconds / 60:g}m" if seconds >= 120 else f"{seconds:g}s"


def round_up_duration(seconds: float) -> str:
    """A duration as ``--budget`` takes it, rounded up to ten seconds or half a minute: ``90s``, ``3.5m``."""
    return _duration_option(math.ceil(seconds / 10) * 10 if seconds <= 110 else math.ceil(seconds / 30) * 30)


@dataclass
class Timing:
    """How long the launches of a tuning take, and what of it was printed.

    `expected`: how long a launch takes; `jobs`: a launch of each size; `has_noted`: whether a launch has ended;
    `printed`: what was said to fit; `measured`: seconds of a launch at the first sizes, once they are measured.
    """

    task: Task
    expected: ExpectedTime
    jobs: list[Job]
    has_noted: bool = False
    printed: AffordableSearch | None = None
    measured: Sequence[float] = ()

    @classmethod
    def of(cls, task: Task) -> Timing:
        """The timing of a tuning that has not begun."""
        jobs = [Job(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
        results = task.prepared[0].settings.results
        return cls(task, ExpectedTime(results, task.head.plans, launch_seconds_by_rule), jobs)

    @property
    def weights(self) -> tuple[float, ...]:
        """Time of a launch at each size as a multiple of that at the first: as measured, else by the rule of thumb.

        So it stays the same when the tuning is resumed.
        """
        usual = [launch_seconds_by_rule(job) for job in self.jobs]
        ruled = ((each or 1.0) / (usual[0] or each or 1.0) for each in usual)
        measured = [seconds / self.measured[0] for seconds in self.measured]
        return (*measured, *tuple(ruled)[len(measured) :])

    def fit(self, launch: float | None = None) -> AffordableSearch:
        """What fits the budget: everything without a budget, or if nothing is known about the time of a launch.

        `launch`: seconds of a launch at the first size, once it is measured. Raises UsageError if the budget is too
        short for one setting.
        """
        costs, budget = self._costs(LAUNCH_MARGIN, launch), self.task.options.budget
        if costs is None or budget is None:
            return AffordableSearch(self.task.values, len(self.jobs))
        return fit_to_budget(self.task.values, costs, budget)

    def note_launch(self, job: Job, seconds: float) -> None:
        """Note the seconds of a launch; after the first one the forecast is printed again, unless there is a budget."""
        baseline_job = Job(self.jobs[job.plan].prepared, self.task.baseline, job.plan)
        self.expected.note_launch(baseline_job, seconds)
        if not self.has_noted:
            self.has_noted = True
            if self.task.options.budget is None:
                self.print_forecast(AffordableSearch(self.task.values, len(self.jobs)))

    def print_forecast(self, fitting: AffordableSearch) -> None:
        """Print how long the tuning takes, and what has to wait; nothing if the same was printed before."""
        if fitting != self.printed:
            for sentence in self.describe_forecast(fitting):
                say(sentence)
        self.printed = None if self.expected.launch_seconds(self.jobs[0]) is None else fitting

    def describe_forecast(self, fitting: AffordableSearch) -> list[str]:
        """Sentences on how long the tuning takes, and which candidates and sizes have to wait."""
        costs, budget = self._costs(), self.task.options.budget
        limit = "" if budget is None else f"this ends within the budget of {format_duration(budget)}"
        if costs is None:
            unknown = "how long a launch takes is not known before the first has ended"
            return [f"{limit}; {unknown}" if limit else unknown]
        first = costs.first_block_launches(fitting.values)
        quick, confirming = Options.least * first, 2 * costs.confirm_blocks * fitting.sizes
        most = self.task.options.most_blocks * first
        slow = most / quick * costs.search_seconds(fitting.values) + costs.confirmation_seconds(fitting.sizes)
        source = "as the first launches took" if self.has_noted else self.expected.describe_source(self.jobs)
        count = len(fitting.values)
        candidates = f"{plural(count, 'candidate')} {'has' if count == 1 else 'have'}"
        sentences = [
            f"this takes about {format_duration(costs.search_seconds(fitting.values))} ({quick} launches) if each"
            f" candidate is decided after {Options.least} blocks and none gains, about {format_duration(slow)}"
            f" ({most + confirming}) if they need {self.task.options.most_blocks} blocks and one is confirmed"
            f" ({source})"
            if budget is None
            else f"{limit}: about {format_duration(costs.search_seconds(fitting.values))} ({quick} launches) until"
            f" {candidates} {Options.least} blocks, about {format_duration(costs.confirmation_seconds(fitting.sizes))}"
            f" ({confirming}) to confirm one"
            f" ({source})"
        ]
        missing = [value.id for value in self.task.values if value not in fitting.values]
        if missing:
            sentences.append(
                f"{len(missing)} of {len(self.task.values)} candidates wait until there is time for them: "
                + ", ".join(missing)
            )
        if fitting.sizes < len(self.jobs):
            sentences.append(
                "the budget has no time for a confirmation at " + " and ".join(self.task.sizes[fitting.sizes :])
            )
        return sentences

    def _costs(self, margin: float = 1.0, launch: float | None = None) -> Costs | None:
        seconds: list[float | None] = [self.expected.launch_seconds(job) for job in self.jobs]
        if launch is not None:
            seconds = [launch * weight for weight in self.weights]
        launches = [margin * each for each in seconds if each is not None]
        strategy, space = strategies()[self.task.options.strategy], self.task.space
        if len(launches) < len(seconds):
            return None
        return Costs(launches, lambda values: strategy.first_block(space, values), self.task.options.confirm)


def left_out_lines(task: Task, fitting: AffordableSearch, budget: float | None) -> list[TuneLine]:
    """A line of the records for each value and each size that the budget leaves out."""
    reason = "" if budget is None else f"the budget of {format_duration(budget)} has no time for it"
    lines = [
        TuneLine(
            phase="search", config=value.id, against=task.baseline, setting=value.id, decision=LEFT_OUT, reason=reason
        )
        for value in task.values
        if value not in fitting.values
    ]
    sizes = range(fitting.sizes, len(task.prepared))
    return lines + [
        TuneLine(
            phase="search", config=task.baseline, against=task.baseline, plan=plan, decision=LEFT_OUT, reason=reason
        )
        for plan in sizes
    ]


def time_to_decide_all(campaign: Campaign, space: Path | None = None) -> float | None:
    """Seconds in which a recorded tuning could give each candidate all its blocks, and confirm one.

    None if that is not known: without a launch of the baseline, or with another `space` than the one that was tuned.
    """
    plan, baseline = campaign.plans[0].tune, campaign.head.configs[0].name
    lengths = [each.end.seconds for each in campaign.launches if each.end is not None and each.key == (baseline, 0)]
    known_lengths = [seconds for seconds in lengths if seconds is not None]
    strategy = strategies().get(plan.strategy or "") if plan is not None else None
    if plan is None or strategy is None or plan.blocks is None or plan.confirm is None or not known_lengths:
        return None
    try:
        tuned_space = read_space(space or SPACE)
    except UsageError:
        return None
    values = [value for value in tuned_space.values if value.id in plan.values]
    if tuned_space.sha256 != plan.space or len(values) < len(plan.values):
        return None
    usual = [_rule_of_thumb_seconds(plan) for plan in campaign.plans]
    launch = [LAUNCH_MARGIN * median(known_lengths) * (each or 1.0) / (usual[0] or each or 1.0) for each in usual]
    costs = Costs(launch, lambda chosen: strategy.first_block(tuned_space, chosen), plan.confirm)
    return plan.blocks / Options.least * costs.search_seconds(values) + costs.confirmation_seconds()


def _rule_of_thumb_seconds(plan: RecordedPlan) -> float | None:
    """Seconds of a launch by the rule of thumb, of use only as a ratio of two sizes; None for tables."""
    if plan.rows_per_chunk is None or plan.iterations is None or not recorded_plane(plan.exchange).by_workers:
        return None
    return rule_of_thumb_seconds(plan.rows_per_chunk * max((plan.workers or 1) / usable_cores(), 1.0), plan.iterations)
