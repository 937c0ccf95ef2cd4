"""How long a tuning takes, and what of it fits the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.campaign.expected_time import ExpectedTime, merge_seconds
from merge_bench.campaign.planned_launches import Job
from merge_bench.errors import say
from merge_bench.records.schema import TuneLine
from merge_bench.tune.budget import Costs, Fitting, fit
from merge_bench.tune.evaluator import Options
from merge_bench.tune.result import LEFT_OUT
from merge_bench.tune.space import Value
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuning_plan import Task
from merge_bench.units import format_duration

MARGIN = 1.2
"""What a launch may take longer than expected before settings that were to be tried no longer fit the budget."""


@dataclass
class Timing:
    """`values`: options by key; `expected`: how long a launch takes; `jobs`: one of each size."""

    task: Task
    values: Mapping[str, Any]
    expected: ExpectedTime
    jobs: list[Job]
    noted: bool = False
    left_out: bool = False

    @classmethod
    def of(cls, task: Task, values: Mapping[str, Any]) -> Timing:
        """The timing of a tuning before its first launch."""
        jobs = [Job(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
        results = task.prepared[0].settings.results
        return cls(task, values, ExpectedTime(results, task.head.plans, merge_seconds), jobs)

    @property
    def weights(self) -> tuple[float, ...]:
        """Time of a launch at each size as a multiple of the first, by the rule alone, so that it stays the same."""
        usual = [merge_seconds(job) for job in self.jobs]
        return tuple((each or 1.0) / (usual[0] or each or 1.0) for each in usual)

    def fit(self, launch: float | None = None) -> Fitting:
        """What fits the budget; everything without one, or if nothing is known about the time of a launch.

        `launch`: seconds of a launch at the first size, once it is measured.

        Raises
        ------
        UsageError
            If the budget is too short for one setting.
        """
        costs, budget = self._costs(MARGIN, launch), self.values["budget"]
        if costs is None or budget is None:
            return Fitting(self.task.values, len(self.jobs))
        return fit(self.task.values, costs, budget)

    def fit_rest(self, values: Sequence[Value], sizes: int, launch: float, spent: float) -> tuple[Value, ...]:
        """As many of the first `values` as can be judged in what is left of the budget; none if not even one can.

        A confirmation at `sizes` has to fit as well, unless not even one value fits with it: then it shows at least
        whether there is something to confirm. `launch`, `spent`: seconds of a launch, and of all launches so far.
        """
        costs, budget = self._costs(MARGIN, launch), self.values["budget"]
        if costs is None or budget is None:
            return ()
        for kept in (costs.confirmation(sizes), 0.0):
            for count in range(len(values), 0, -1):
                if spent + costs.search(values[:count]) + kept <= budget:
                    return tuple(values[:count])
        return ()

    def note(self, job: Job, seconds: float) -> None:
        """A launch took so long; the first one corrects what was printed, unless there is a budget to correct first."""
        known = Job(self.jobs[job.plan].prepared, self.task.baseline, job.plan)
        self.expected.note(known, seconds)
        if not self.noted:
            self.noted = True
            if self.values["budget"] is None:
                self.say(Fitting(self.task.values, len(self.jobs)))

    def say(self, fitting: Fitting) -> None:
        """Print how long it takes, and what was left out."""
        found = self.sentences(fitting)
        if self.left_out and fitting.values == self.task.values:
            found.append(f"the first launch shows that there is time for all {len(fitting.values)} candidates")
        self.left_out = fitting.values != self.task.values
        for sentence in found:
            say(sentence)

    def sentences(self, fitting: Fitting) -> list[str]:
        """How long it takes, and what was left out."""
        costs, budget = self._costs(), self.values["budget"]
        limit = "" if budget is None else f"; it ends within the budget of {format_duration(budget)}"
        if costs is None:
            return [f"how long this takes is not known before the first launch has ended{limit}"]
        first = costs.first_block(fitting.values)
        quick, confirming = Options.least * first, 2 * costs.confirm * fitting.sizes
        most, slow = self.values["most_blocks"] * first, self._longest(costs, fitting)
        source = "as the first launch took" if self.noted else self.expected.source(self.jobs)
        found = [
            f"this takes about {format_duration(costs.search(fitting.values))} ({quick} launches) if each candidate is"
            f" decided after {Options.least} blocks and none gains, about {format_duration(slow)} ({most + confirming})"
            f" if they need {self.values['most_blocks']} blocks and one is confirmed ({source}){limit}"
        ]
        missing = [value.id for value in self.task.values if value not in fitting.values]
        if missing:
            found.append(f"the budget has no time for {len(missing)} of {len(self.task.values)} candidates: "
                         + ", ".join(missing))  # fmt: skip
        if fitting.sizes < len(self.jobs):
            found.append(
                "the budget has no time for a confirmation at " + " and ".join(self.task.sizes[fitting.sizes :])
            )
        return found

    def enough(self, launch: float) -> float:
        """Seconds in which each candidate can have all its blocks, and one be confirmed; `launch`: as in `fit`."""
        costs = self._costs(MARGIN, launch)
        assert costs is not None
        return self._longest(costs, Fitting(self.task.values, len(self.jobs)))

    def _longest(self, costs: Costs, fitting: Fitting) -> float:
        blocks: float = self.values["most_blocks"] / Options.least
        return blocks * costs.search(fitting.values) + costs.confirmation(fitting.sizes)

    def _costs(self, margin: float = 1.0, launch: float | None = None) -> Costs | None:
        seconds: list[float | None] = [self.expected.of(job) for job in self.jobs]
        if launch is not None:
            seconds = [launch * weight for weight in self.weights]
        known = [margin * each for each in seconds if each is not None]
        strategy, space = strategies()[self.values["strategy"]], self.task.space
        if len(known) < len(seconds):
            return None
        return Costs(known, lambda values: strategy.first_block(space, values), self.values["confirm"])


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
