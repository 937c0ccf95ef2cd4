"""What a strategy works with: candidates, their launches block by block, comparisons of two of them, and decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from merge_bench.analysis.compare import METRIC, METRICS, Metric, metrics_of_command
from merge_bench.analysis.statistics import EffectEstimate, paired_effect
from merge_bench.errors import MergeBenchError, WrongResult
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.space import SettingValue
from merge_bench.units import count_with_noun

SCREEN, COMBINE, ABLATE, CONFIRM = "screen", "combine", "ablate", "confirm"
"""The phases of a tuning, as the records name them."""
AGAIN = " again"
"""The end of the name of the baseline's twin: the same config a second time, which shows the noise."""
NO_GAIN = "no gain of at least "
"""What the reason begins with, before the threshold, if even the upper end of the interval is below it."""
NO_LOSS = "not slower by "
"""What the reason begins with, before the threshold, if a config that is faster at another size does not lose here."""
MAY_LOSE = "may be slower by "
"""What the reason begins with, before the threshold, if it may lose here, so that it is not accepted."""
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
    """A config that the search tries: the baseline's config with some values of the tuning space.

    `values`: in the order of their ids. `twin`: whether this is the baseline a second time, which shows the noise.
    """

    values: tuple[SettingValue, ...] = ()
    twin: bool = False

    @classmethod
    def from_values(cls, *values: SettingValue) -> Candidate:
        return cls(tuple(sorted(values, key=lambda value: value.value_id)))

    def config_name(self, baseline_name: str) -> str:
        """The name of this candidate's config: ``mutex=y+transports=sysv``, or `baseline_name` if it has no values."""
        if self.twin:
            return baseline_name + AGAIN
        return "+".join(value.value_id for value in self.values) or baseline_name

    def with_value(self, value: SettingValue) -> Candidate:
        return Candidate.from_values(*self.values, value)

    def without_value(self, value: SettingValue) -> Candidate:
        return Candidate.from_values(*(each for each in self.values if each != value))


@dataclass(frozen=True)
class LaunchSample:
    """The result of one launch for the search: the value of the metric, where larger is better.

    `value`: None if the launch failed, with the `reason`. `wrong`: whether it failed because the result of the merge
    was wrong. `of_command`: whether it is the launch of a command; no config may win that failed where the baseline did
    not.
    """

    value: float | None
    reason: str = ""
    wrong: bool = False
    of_command: bool = False


def tuned_metric(plan: RecordedPlan) -> Metric:
    """The metric that a tuning improves: the one that its plan names, else throughput or the command's first metric."""
    name = plan.tune.metric if plan.tune is not None else None
    metrics = METRICS if plan.command is None else metrics_of_command(plan.command.metrics)
    return next((metric for metric in metrics if metric.name == (name or METRIC)), metrics[0])


def make_launch_sample(launch: Launch, metric: Metric, *, of_command: bool = False) -> LaunchSample:
    """Make the sample of a recorded launch: its value of `metric`; a time becomes its reciprocal: larger is better.

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
    """Raised if the budget of a tuning allows no further launch."""

    exit_status = 0
    code = "budget-spent"


class Evaluator(Protocol):
    """What a search strategy calls to launch candidates; the launches are made on a cluster or taken from records.

    `baseline`: the name of the baseline's config. `timed`: launches of the baseline's twin and of the baseline that
    were made before the search, to time them.
    """

    baseline: str
    timed: Sequence[tuple[LaunchSample, LaunchSample]]

    @property
    def plan_count(self) -> int:
        """The number of problem sizes, each of which has a plan."""

    @property
    def has_budget_limit(self) -> bool:
        """Whether there is a budget, which may end the search before each candidate was launched in all its blocks."""

    def launch_block(
        self,
        candidates: Sequence[Candidate],
        *,
        plan: int = 0,
        for_search: bool = True,
        reserved_confirmations: int = 1,
    ) -> list[LaunchSample]:
        """Launch each candidate once, in random order; returns samples in the order of `candidates`.

        `plan`: index of the problem size. `for_search`: whether the block belongs to the search, not to the
        confirmation. `reserved_confirmations`: for how many candidates the search leaves time to confirm them; fewer if
        there is no time for so many, but one at least unless it is 0. Raises BudgetSpent if `for_search` and the budget
        has no time for the block, so that nothing was launched; or if the budget is spent before a launch of it.
        """

    def newly_affordable_values(self, pending_launches: int) -> Sequence[SettingValue]:
        """Return values that the budget had no time for at first, and now has; they join the screening.

        `pending_launches`: launches until each value that is screened now can be judged, without the baseline's.
        """

    def record_step(self, line: TuningStepLine) -> None:
        """Write a step of the search with its decision to the records."""


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search: the threshold of a gain, numbers of blocks, and the error probability.

    `threshold`: smaller gains do not count (0.02 for 2 %). `least`, `most`: a candidate is judged after at least and at
    most this many blocks. `confirm`: blocks of the confirmation. `alpha`: error probability of its verdicts.
    """

    threshold: float = 0.02
    least: int = 3
    most: int = 8
    confirm: int = 8
    alpha: float = 0.05


class ComparisonState(Enum):
    """What the blocks of a paired comparison show about its candidate: a gain, no gain, a loss, failures …"""

    OPEN = "open"
    GAIN = "gain"
    NONE = "none"
    LOSS = "loss"
    FAILED = "failed"


@dataclass(frozen=True)
class RequiredGain:
    """The gain that a candidate must exceed to count.

    `threshold`: below it a gain is not worth having. `floor`: below it a gain may be noise.
    """

    threshold: float
    floor: float = 0.0

    @property
    def least_gain(self) -> float:
        return max(self.threshold, self.floor)


@dataclass
class PairedComparison:
    """A candidate compared with another config at one problem size, in blocks with a launch of each.

    `ratios`: the logarithm of candidate ÷ other for each block in which neither failed. `failures`: reasons of the
    candidate's failures. `excluded`: whether it failed in a way that excludes it at once. `plan`: index of the problem
    size.
    """

    candidate: Candidate
    against: Candidate
    ratios: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    excluded: bool = False
    plan: int = 0

    def add_block(self, candidate_sample: LaunchSample, reference_sample: LaunchSample) -> None:
        """Add both samples of a block; if both launches failed, only a wrong result counts against the candidate."""
        if candidate_sample.value is None:
            if reference_sample.value is not None or candidate_sample.wrong:
                self.failures.append(candidate_sample.reason)
                self.excluded = self.excluded or candidate_sample.wrong or candidate_sample.of_command
        elif reference_sample.value is not None:
            self.ratios.append(math.log(candidate_sample.value / reference_sample.value))

    @property
    def effect(self) -> EffectEstimate | None:
        """The paired effect: the estimated log-ratio of candidate to other; None before the first complete block."""
        return paired_effect(self.ratios) if self.ratios else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval of the log-ratio, at the level of `interval_alpha`; None before 2 complete blocks."""
        return paired_effect(self.ratios).interval(interval_alpha(len(self.ratios))) if len(self.ratios) > 1 else None

    @property
    def differing_value_id(self) -> str | None:
        """The id of the only value in which the two configs differ; None if they differ in none or in several."""
        differing = set(self.candidate.values) ^ set(self.against.values)
        return differing.pop().value_id if len(differing) == 1 else None

    def judge_candidate(self, required_gain: RequiredGain, *, min_blocks: int) -> ComparisonState:
        """Judge the candidate by the blocks so far: a gain, no gain, a loss, failed, or still open.

        Up to 5 blocks a gain counts if even the lower end of its interval reaches the threshold; from 6 on if that end
        is above 1, as in the verdicts of `compare`. The estimate must also exceed the noise. Two failures or one wrong
        result exclude a candidate, of a command one failure.
        """
        if self.excluded or len(self.failures) >= MOST_FAILURES:
            return ComparisonState.FAILED
        effect, interval = self.effect, self.interval
        if effect is None or interval is None or len(self.ratios) < min_blocks:
            return ComparisonState.OPEN
        worth, noise = math.log1p(required_gain.threshold), math.log1p(required_gain.least_gain)
        low, high = interval
        if (low >= worth or (len(self.ratios) >= WHOLE_LEVEL and low > 0)) and effect.estimate >= noise:
            return ComparisonState.GAIN
        if high <= -worth:
            return ComparisonState.LOSS
        return ComparisonState.NONE if high < worth else ComparisonState.OPEN

    def seems_to_gain(self, min_blocks: int) -> bool:
        """Whether at least `min_blocks` blocks suggest a gain, so that the candidate is worth a confirmation."""
        return self.effect is not None and len(self.ratios) >= min_blocks and self.effect.estimate > 0.0

    def ratio_fields(self, interval: tuple[float, float] | None = None) -> dict[str, Any]:
        """Return ratio, interval and number of blocks as fields of a record line.

        `interval`: that of the log-ratio, if not the comparison's own.
        """
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
        """Write the decision about the candidate to the records as a step of the search.

        A confirmation is about a whole config, so its line names no setting.
        """
        fields: dict[str, Any] = {"phase": phase, "decision": decision, "reason": reason, "plan": self.plan}
        fields |= {"setting": None if phase == CONFIRM else self.differing_value_id, **self.ratio_fields(interval)}
        config, against = (each.config_name(evaluator.baseline) for each in (self.candidate, self.against))
        evaluator.record_step(TuningStepLine(config=config, against=against, **fields))


def comparison_from_blocks(
    blocks: Sequence[Mapping[Candidate, LaunchSample]], candidate: Candidate, reference: Candidate
) -> PairedComparison:
    """Make the paired comparison of `candidate` with `reference` from blocks of launches that were measured."""
    comparison = PairedComparison(candidate, reference)
    for samples in blocks:
        comparison.add_block(samples[candidate], samples[reference])
    return comparison


def interval_alpha(blocks: int) -> float:
    """Error probability α of a confidence interval from n blocks: 0.05, or the smallest that they can give, 2 ÷ 2ⁿ.

    With 3 blocks the interval reaches from the smallest to the largest ratio.
    """
    return max(0.05, 2.0 ** (1 - blocks))


def make_blocks_until_decided(
    evaluator: Evaluator,
    comparison: PairedComparison,
    options: SearchOptions,
    required_gain: RequiredGain,
    *,
    reserved_confirmations: int = 1,
) -> ComparisonState:
    """Launch blocks of both candidates of a comparison until its state is clear, at most 1.5 times `options.most`.

    `reserved_confirmations`: candidates for whose confirmation the search leaves time. A block is only two launches, so
    more of them are affordable: one slow launch of eight can leave a gain of 10 % undecided.
    """
    for _ in range(options.most + options.most // 2):
        candidate, against = evaluator.launch_block(
            [comparison.candidate, comparison.against],
            plan=comparison.plan,
            reserved_confirmations=reserved_confirmations,
        )
        comparison.add_block(candidate, against)
        state = comparison.judge_candidate(required_gain, min_blocks=options.least)
        if state is not ComparisonState.OPEN:
            return state
    return ComparisonState.OPEN


def required_gain_from_twin(twin_comparison: PairedComparison, threshold: float) -> RequiredGain:
    """Make the gain that candidates must exceed from the threshold, and from the noise that the baseline's twin shows.

    The noise is the apparent difference of one config from itself, estimated like that of a candidate, from as many
    blocks. Its whole interval (`verdict.noise_floor`) would not do: from few ratios it is the largest of them, so one
    slow launch would hide every gain.
    """
    effect = twin_comparison.effect
    return RequiredGain(threshold, math.expm1(abs(effect.estimate)) if effect else 0.0)


def decision_reason(
    state: ComparisonState, comparison: PairedComparison, required_gain: RequiredGain, end_reason: str = ""
) -> str:
    """The reason of a decision about a candidate, as a text for people.

    `end_reason`: why no more blocks were made.
    """
    if state is ComparisonState.FAILED:
        times = "once" if len(comparison.failures) == 1 else f"{len(comparison.failures)} times"
        return f"failed {times}: {comparison.failures[-1]}"
    n, threshold, effect = (
        count_with_noun(len(comparison.ratios), "block"),
        f"{required_gain.threshold:.1%}",
        comparison.effect,
    )
    if state is not ComparisonState.OPEN:
        outcomes = {
            ComparisonState.GAIN: f"at least {threshold} faster",
            ComparisonState.LOSS: f"at least {threshold} slower",
        }
        return f"{outcomes.get(state, f'{NO_GAIN}{threshold}')} in {n}"
    if effect is not None and effect.estimate <= 0.0 and len(comparison.ratios) >= SearchOptions.least:
        return f"not faster in {n}{end_reason}"
    in_noise = effect is not None and 0.0 < effect.estimate < math.log1p(required_gain.floor)
    return (
        f"{UNDECIDED} after {n}{end_reason}" + f": the gain is within the noise of {required_gain.floor:.1%}" * in_noise
    )


def sort_comparisons_by_effect(comparisons: Sequence[PairedComparison]) -> list[PairedComparison]:
    """Sort comparisons by the candidate's gain, the largest first; equal ones by name, so that the order is fixed."""
    return sorted(
        comparisons, key=lambda each: (-(each.effect.estimate if each.effect else 0.0), each.candidate.config_name(""))
    )
