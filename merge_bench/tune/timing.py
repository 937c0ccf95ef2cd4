"""How long a tuning takes, and what of it fits the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.analysis.statistics import median
from merge_bench.campaign.expected_time import ExpectedTime, merge_seconds, rule_of_thumb
from merge_bench.campaign.planned_launches import Job
from merge_bench.config.shipped import SPACE
from merge_bench.errors import UsageError, say
from merge_bench.host.memory import usable_cores
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import TuneLine
from merge_bench.tune.budget import Costs, Fitting, fit
from merge_bench.tune.evaluator import Options
from merge_bench.tune.result import LEFT_OUT
from merge_bench.tune.space import read_space
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuning_plan import Task
from merge_bench.units import format_duration, plural

MARGIN = 1.2
"""What a launch may take longer than expected before settings that were to be tried no longer fit the budget."""


@dataclass
class Timing:
    """`expected`: how long a launch takes; `jobs`: one of each size.

    `measured`: seconds of a launch at the first sizes, once they are measured.
    """

    task: Task
    expected: ExpectedTime
    jobs: list[Job]
    noted: bool = False
    said: Fitting | None = None
    measured: Sequence[float] = ()

    @classmethod
    def of(cls, task: Task) -> Timing:
        """The timing of a tuning before its first launch."""
        jobs = [Job(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
        results = task.prepared[0].settings.results
        return cls(task, ExpectedTime(results, task.head.plans, merge_seconds), jobs)

    @property
    def weights(self) -> tuple[float, ...]:
        """Time of a launch at each size as a multiple of the first: as measured, else by the rule alone.

        So it stays the same when the tuning is resumed.
        """
        usual = [merge_seconds(job) for job in self.jobs]
        ruled = ((each or 1.0) / (usual[0] or each or 1.0) for each in usual)
        known = [seconds / self.measured[0] for seconds in self.measured]
        return (*known, *tuple(ruled)[len(known) :])

    def fit(self, launch: float | None = None) -> Fitting:
        """What fits the budget; everything without one, or if nothing is known about the time of a launch.

        `launch`: seconds of a launch at the first size, once it is measured.

        Raises
        ------
        UsageError
            If the budget is too short for one setting.
        """
        costs, budget = self._costs(MARGIN, launch), self.task.options.budget
        if costs is None or budget is None:
            return Fitting(self.task.values, len(self.jobs))
        return fit(self.task.values, costs, budget)

    def note(self, job: Job, seconds: float) -> None:
        """A launch took so long; the first one corrects what was printed, unless there is a budget to correct first."""
        known = Job(self.jobs[job.plan].prepared, self.task.baseline, job.plan)
        self.expected.note(known, seconds)
        if not self.noted:
            self.noted = True
            if self.task.options.budget is None:
                self.say(Fitting(self.task.values, len(self.jobs)))

    def say(self, fitting: Fitting) -> None:
        """Print how long it takes, and what has to wait; once more only if something else fits than was said."""
        if fitting != self.said:
            for sentence in self.sentences(fitting):
                say(sentence)
        self.said = None if self.expected.of(self.jobs[0]) is None else fitting

    def sentences(self, fitting: Fitting) -> list[str]:
        """How long it takes, and what was left out."""
        costs, budget = self._costs(), self.task.options.budget
        limit = "" if budget is None else f"this ends within the budget of {format_duration(budget)}"
        if costs is None:
            unknown = "how long a launch takes is not known before the first has ended"
            return [f"{limit}; {unknown}" if limit else unknown]
        first = costs.first_block(fitting.values)
        quick, confirming = Options.least * first, 2 * costs.confirm * fitting.sizes
        most = self.task.options.most_blocks * first
        slow = most / quick * costs.search(fitting.values) + costs.confirmation(fitting.sizes)
        source = "as the first launches took" if self.noted else self.expected.source(self.jobs)
        count = len(fitting.values)
        candidates = f"{plural(count, 'candidate')} {'has' if count == 1 else 'have'}"
        found = [
            f"this takes about {format_duration(costs.search(fitting.values))} ({quick} launches) if each candidate is"
            f" decided after {Options.least} blocks and none gains, about {format_duration(slow)} ({most + confirming})"
            f" if they need {self.task.options.most_blocks} blocks and one is confirmed ({source})"
            if budget is None else
            f"{limit}: about {format_duration(costs.search(fitting.values))} ({quick} launches) until"
            f" {candidates} {Options.least} blocks, about {format_duration(costs.confirmation(fitting.sizes))}"
            f" ({confirming}) to confirm one"
            f" ({source})"
        ]  # fmt: skip
        missing = [value.id for value in self.task.values if value not in fitting.values]
        if missing:
            found.append(f"{len(missing)} of {len(self.task.values)} candidates wait until there is time for them: "
                         + ", ".join(missing))  # fmt: skip
        if fitting.sizes < len(self.jobs):
            found.append(
                "the budget has no time for a confirmation at " + " and ".join(self.task.sizes[fitting.sizes :])
            )
        return found

    def _costs(self, margin: float = 1.0, launch: float | None = None) -> Costs | None:
        seconds: list[float | None] = [self.expected.of(job) for job in self.jobs]
        if launch is not None:
            seconds = [launch * weight for weight in self.weights]
        known = [margin * each for each in seconds if each is not None]
        strategy, space = strategies()[self.task.options.strategy], self.task.space
        if len(known) < len(seconds):
            return None
        return Costs(known, lambda values: strategy.first_block(space, values), self.task.options.confirm)


def left_out(task: Task, fitting: Fitting, budget: float | None) -> list[TuneLine]:
    """A line for each setting and each size that was left out."""
    reason = "" if budget is None else f"the budget of {format_duration(budget)} has no time for it"
    lines = [
        TuneLine(phase="search", config=value.id, against=task.baseline, setting=value.id, decision=LEFT_OUT,
                 reason=reason)
        for value in task.values if value not in fitting.values
    ]  # fmt: skip
    sizes = range(fitting.sizes, len(task.prepared))
    return lines + [
        TuneLine(phase="search", config=task.baseline, against=task.baseline, plan=plan, decision=LEFT_OUT,
                 reason=reason)
        for plan in sizes
    ]  # fmt: skip


def time_to_decide_all(campaign: Campaign, space: Path | None = None) -> float | None:
    """Seconds in which each candidate can have all its blocks, and one be confirmed, from the records of a tuning.

    None if that is not known: without a launch of the baseline, or with another `space` than the one that was tuned.
    """
    asked, baseline = campaign.plans[0].tune, campaign.head.configs[0].name
    lengths = [each.end.seconds for each in campaign.launches if each.end is not None and each.key == (baseline, 0)]
    known = [seconds for seconds in lengths if seconds is not None]
    strategy = strategies().get(asked.strategy or "") if asked is not None else None
    if asked is None or strategy is None or asked.blocks is None or asked.confirm is None or not known:
        return None
    try:
        found = read_space(space or SPACE)
    except UsageError:
        return None
    values = [value for value in found.values if value.id in asked.values]
    if found.sha256 != asked.space or len(values) < len(asked.values):
        return None
    usual = [_usual(plan) for plan in campaign.plans]
    launch = [MARGIN * median(known) * (each or 1.0) / (usual[0] or each or 1.0) for each in usual]
    costs = Costs(launch, lambda some: strategy.first_block(found, some), asked.confirm)
    return asked.blocks / Options.least * costs.search(values) + costs.confirmation()


def _usual(plan: RecordedPlan) -> float | None:
    """Seconds of a launch by the rule of thumb, for the ratio of two sizes; None for tables."""
    if plan.rows_per_chunk is None or plan.iterations is None or not recorded_plane(plan.exchange).by_workers:
        return None
    return rule_of_thumb(plan.rows_per_chunk * max((plan.workers or 1) / usable_cores(), 1.0), plan.iterations)
