"""What a strategy works with: candidates, their launches block by block, contests of two of them, and decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from merge_bench.analysis.compare import METRIC, METRICS, Metric, metrics_of_command
from merge_bench.analysis.statistics import Effect, paired_effect
from merge_bench.errors import MergeBenchError, WrongResult
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.space import SettingValue
from merge_bench.units import plural

SCREEN, COMBINE, ABLATE, CONFIRM = "screen", "combine", "ablate", "confirm"
"""The phases of a tuning, as the records name them."""
AGAIN = " again"
"""The end of the name of the baseline's twin: the same config a second time, which shows the noise."""
NO_GAIN = "no gain of at least "
"""What the reason begins with, before the threshold, if even the upper end of the interval is below it."""
NO_GAIN_SEEN = "no gain seen"
"""The decision about a candidate whose estimate is not above 1, but whose interval does not rule out a gain."""
NOISE = "noise"
"""The decision of the step of the twin, which decides nothing."""
UNDECIDED = "undecided"
"""The decision of a candidate that too few blocks were made of, and what the reason of every such step begins with."""
MOST_FAILURES = 2
WHOLE_LEVEL = 6
"""From so many blocks on an interval has the level of 95 %."""


@dataclass(frozen=True)
class Candidate:
    """The baseline with some values of the space, in the order of their ids; `twin`: the baseline a second time."""

    values: tuple[SettingValue, ...] = ()
    twin: bool = False

    @classmethod
    def from_values(cls, *values: SettingValue) -> Candidate:
        return cls(tuple(sorted(values, key=lambda value: value.id)))

    def config_name(self, baseline_name: str) -> str:
        """The name of this candidate's config: ``mutex=y+transports=sysv``, or `baseline_name` if it has no values."""
        if self.twin:
            return baseline_name + AGAIN
        return "+".join(value.id for value in self.values) or baseline_name

    def with_value(self, value: SettingValue) -> Candidate:
        return Candidate.from_values(*self.values, value)

    def without_value(self, value: SettingValue) -> Candidate:
        return Candidate.from_values(*(each for each in self.values if each != value))


@dataclass(frozen=True)
class LaunchSample:
    """The result of one launch: the metric, larger is better; None if the launch failed, with the `reason`.

    `wrong`: it failed because the result of the merge was wrong. `of_command`: it is the launch of a command, of which
    no config may win that failed where the baseline did not.
    """

    value: float | None
    reason: str = ""
    wrong: bool = False
    of_command: bool = False


def tuned_metric(plan: RecordedPlan) -> Metric:
    """The metric that a tuning with this plan improves: of merges throughput, unless the plan names another."""
    name = plan.tune.metric if plan.tune is not None else None
    metrics = METRICS if plan.command is None else metrics_of_command(plan.command.metrics)
    return next((metric for metric in metrics if metric.name == (name or METRIC)), metrics[0])


def sample_launch(launch: Launch, metric: Metric, *, of_command: bool = False) -> LaunchSample:
    """Make the sample of a launch in `metric`; a time becomes its reciprocal, so that larger is better.

    `of_command`: whether it is the launch of a command, not of a merge.
    """
    wrong = any(not check.ok for check in launch.verifications)
    if wrong or any(failure.code == WrongResult.code for failure in launch.failures):
        return LaunchSample(None, "the merge result was wrong", wrong=True)
    if not launch.complete:
        reason = launch.failures[0].message if launch.failures else "the launch did not finish"
        return LaunchSample(None, reason, of_command=of_command)
    value = metric.launch_value(launch)
    if not value:
        return LaunchSample(None, f"{metric.name} was not measured", of_command=of_command)
    return LaunchSample(value if metric.higher_is_better else 1.0 / value, of_command=of_command)


class BudgetSpent(MergeBenchError):
    """The budget allows no further launch."""

    exit_status = 0
    code = "budget-spent"


class Evaluator(Protocol):
    """Makes the launches that a strategy asks for, or takes them from records.

    `baseline`: the name of the baseline's config. `timed`: launches of the baseline's twin and of the baseline that
    were made before the search, to time them.
    """

    baseline: str
    timed: Sequence[tuple[LaunchSample, LaunchSample]]

    @property
    def plan_count(self) -> int:
        """The number of plans: one for each problem size."""

    @property
    def has_budget_limit(self) -> bool:
        """Whether there is a budget, which may end the search before each candidate has all its blocks."""

    def make_block(
        self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True, reserved_confirmations: int = 1
    ) -> list[LaunchSample]:
        """Launch each candidate once, in random order; returns samples in the order of `candidates`.

        `reserved_confirmations`: for how many candidates the search leaves time to confirm them; fewer if there is no
        time for so many, but one at least unless it is 0. Raises BudgetSpent if `search` and the budget has no time for
        the block, so that nothing was launched; or if the budget is spent before a launch of it.
        """

    def joining_values(self, pending_launches: int) -> Sequence[SettingValue]:
        """Return values that the budget had no time for at first, and now has; they join the screening.

        `pending_launches`: launches until each of those that are screened now can be judged, without the baseline's.
        """

    def record_step(self, line: TuningStepLine) -> None:
        """Record a step of the search, with its decision."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search: thresholds, numbers of blocks, and error probability.

    `threshold`: smaller gains do not count (0.02 for 2 %). `least`, `most`: a candidate is judged after at least and
    at most this many blocks. `confirm`: blocks of the confirmation. `alpha`: error probability of its verdicts.
    """

    threshold: float = 0.02
    least: int = 3
    most: int = 8
    confirm: int = 8
    alpha: float = 0.05


class ContestState(Enum):
    """What the blocks of a contest show about its candidate."""

    OPEN = "open"
    GAIN = "gain"
    NONE = "none"
    LOSS = "loss"
    FAILED = "failed"


@dataclass(frozen=True)
class GainBar:
    """What a gain must exceed: below `threshold` it is not worth having, below `floor` it may be noise."""

    threshold: float
    floor: float = 0.0

    @property
    def least_gain(self) -> float:
        return max(self.threshold, self.floor)


@dataclass
class Contest:
    """A candidate compared with another at one size: a log-ratio for each block in which neither failed.

    `excluded`: whether it failed in a way that excludes it at once.
    """

    candidate: Candidate
    against: Candidate
    ratios: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    excluded: bool = False
    plan: int = 0

    def add_block(self, candidate: LaunchSample, against: LaunchSample) -> None:
        """Add both samples of a block; if both failed, only a wrong result counts against the candidate."""
        if candidate.value is None:
            if against.value is not None or candidate.wrong:
                self.failures.append(candidate.reason)
                self.excluded = self.excluded or candidate.wrong or candidate.of_command
        elif against.value is not None:
            self.ratios.append(math.log(candidate.value / against.value))

    @property
    def effect(self) -> Effect | None:
        """The paired effect; None before the first complete block."""
        return paired_effect(self.ratios) if self.ratios else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the log-ratio, at the level of `interval_alpha`; None before the second complete block."""
        return paired_effect(self.ratios).interval(interval_alpha(len(self.ratios))) if len(self.ratios) > 1 else None

    @property
    def differing_value_id(self) -> str | None:
        """The id of the value that the two differ in; None if they differ in none or in several."""
        differing = set(self.candidate.values) ^ set(self.against.values)
        return differing.pop().id if len(differing) == 1 else None

    def judge_state(self, bar: GainBar, *, least: int) -> ContestState:
        """Judge the candidate by the blocks so far.

        Up to 5 blocks a gain counts if even the lower end of its interval reaches the threshold; from 6 on if that end
        is above 1, as in the verdicts of `compare`. The estimate must also exceed the noise. Two failures or one wrong
        result exclude a candidate, of a command one failure.
        """
        if self.excluded or len(self.failures) >= MOST_FAILURES:
            return ContestState.FAILED
        effect, interval = self.effect, self.interval
        if effect is None or interval is None or len(self.ratios) < least:
            return ContestState.OPEN
        worth, noise = math.log1p(bar.threshold), math.log1p(bar.least_gain)
        low, high = interval
        if (low >= worth or (len(self.ratios) >= WHOLE_LEVEL and low > 0)) and effect.estimate >= noise:
            return ContestState.GAIN
        if high <= -worth:
            return ContestState.LOSS
        return ContestState.NONE if high < worth else ContestState.OPEN

    def may_gain(self, least: int) -> bool:
        """Whether at least `least` blocks suggest a gain, so that the candidate is worth a confirmation."""
        return self.effect is not None and len(self.ratios) >= least and self.effect.estimate > 0.0

    def ratio_fields(self, interval: tuple[float, float] | None = None) -> dict[str, Any]:
        """Return ratio, interval and blocks as fields of a line; `interval`: of the log-ratio, if not the contest's."""
        effect, interval = self.effect, interval or self.interval
        return {
            "ratio": math.exp(effect.estimate) if effect else None,
            "low": math.exp(interval[0]) if interval else None,
            "high": math.exp(interval[1]) if interval else None,
            "launches": len(self.ratios),
        }

    def record_decision(
        self, evaluator: Evaluator, phase: str, decision: str, reason: str, interval: tuple[float, float] | None = None
    ) -> None:
        """Record the decision of a step; a confirmation is about a whole config, so it names no setting."""
        fields: dict[str, Any] = {"phase": phase, "decision": decision, "reason": reason, "plan": self.plan}
        fields |= {"setting": None if phase == CONFIRM else self.differing_value_id, **self.ratio_fields(interval)}
        config, against = (each.config_name(evaluator.baseline) for each in (self.candidate, self.against))
        evaluator.record_step(TuningStepLine(config=config, against=against, **fields))


def contest_from_blocks(
    blocks: Sequence[Mapping[Candidate, LaunchSample]], candidate: Candidate, against: Candidate
) -> Contest:
    """Make the contest of two candidates from blocks that were measured."""
    contest = Contest(candidate, against)
    for samples in blocks:
        contest.add_block(samples[candidate], samples[against])
    return contest


def interval_alpha(blocks: int) -> float:
    """Error probability α of an interval from n `blocks`: 0.05, or the smallest that they can give, 2 ÷ 2ⁿ.

    With 3 blocks the interval reaches from the smallest to the largest ratio.
    """
    return max(0.05, 2.0 ** (1 - blocks))


def make_blocks_until_decided(
    evaluator: Evaluator, contest: Contest, options: SearchOptions, bar: GainBar, *, reserved_confirmations: int = 1
) -> ContestState:
    """Make blocks of both candidates until the state is clear, at most 1.5 times `options.most`.

    `reserved_confirmations`: candidates for whose confirmation the search leaves time. A block is only two launches, so
    more of them are affordable: one slow launch of eight can leave a gain of 10 % undecided.
    """
    for _ in range(options.most + options.most // 2):
        candidate, against = evaluator.make_block(
            [contest.candidate, contest.against], plan=contest.plan, reserved_confirmations=reserved_confirmations
        )
        contest.add_block(candidate, against)
        state = contest.judge_state(bar, least=options.least)
        if state is not ContestState.OPEN:
            return state
    return ContestState.OPEN


def gain_bar_from_twin(twin: Contest, threshold: float) -> GainBar:
    """Make the bar for a gain from the `threshold` and the noise that the baseline's twin shows.

    The noise is the apparent difference of one config from itself, estimated like that of a candidate, from as many
    blocks. Its whole interval (`verdict.noise_floor`) would not do: from few ratios it is the largest of them, so one
    slow launch would hide every gain.
    """
    effect = twin.effect
    return GainBar(threshold, math.expm1(abs(effect.estimate)) if effect else 0.0)


def decision_reason(state: ContestState, contest: Contest, bar: GainBar, ended: str = "") -> str:
    """The reason of a decision, as a text for people; `ended`: why there were no more blocks."""
    if state is ContestState.FAILED:
        times = "once" if len(contest.failures) == 1 else f"{len(contest.failures)} times"
        return f"failed {times}: {contest.failures[-1]}"
    n, threshold, effect = plural(len(contest.ratios), "block"), f"{bar.threshold:.1%}", contest.effect
    if state is not ContestState.OPEN:
        outcomes = {
            ContestState.GAIN: f"at least {threshold} faster",
            ContestState.LOSS: f"at least {threshold} slower",
        }
        return f"{outcomes.get(state, f'{NO_GAIN}{threshold}')} in {n}"
    if effect is not None and effect.estimate <= 0.0 and len(contest.ratios) >= SearchOptions.least:
        return f"not faster in {n}{ended}"
    in_noise = effect is not None and 0.0 < effect.estimate < math.log1p(bar.floor)
    return f"{UNDECIDED} after {n}{ended}" + f": the gain is within the noise of {bar.floor:.1%}" * in_noise


def sort_by_effect(contests: Sequence[Contest]) -> list[Contest]:
    """Sort contests by effect, the largest first; equal ones by name, so that the order is always the same."""
    return sorted(
        contests, key=lambda each: (-(each.effect.estimate if each.effect else 0.0), each.candidate.config_name(""))
    )
