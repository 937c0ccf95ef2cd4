"""Compares two candidates block by block until it is clear whether one of them is faster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from merge_bench.analysis.statistics.effect import Effect, paired_effect
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import CONFIRM, NO_GAIN, UNDECIDED, Candidate, Evaluator, Options, Sample
from merge_bench.units import plural

MOST_FAILURES = 2
WHOLE_LEVEL = 6
"""From so many blocks on an interval has the level of 95 %."""


class State(Enum):
    """What the blocks show about a candidate."""

    OPEN = "open"
    GAIN = "gain"
    NONE = "none"
    LOSS = "loss"
    FAILED = "failed"


@dataclass(frozen=True)
class Bar:
    """What a gain must exceed: below `threshold` it is not worth having, below `floor` it may be noise."""

    threshold: float
    floor: float = 0.0

    @property
    def height(self) -> float:
        return max(self.threshold, self.floor)


@dataclass
class Contest:
    """A candidate compared with another at one size: a log-ratio for each block in which neither failed."""

    candidate: Candidate
    against: Candidate
    ratios: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wrong: bool = False
    plan: int = 0

    def add(self, candidate: Sample, against: Sample) -> None:
        """Add both samples of a block; if both failed, only a wrong result counts against the candidate."""
        if candidate.value is None:
            self.wrong = self.wrong or candidate.wrong
            if against.value is not None or candidate.wrong:
                self.failures.append(candidate.reason)
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
    def setting(self) -> str | None:
        """The id of the value that the two differ in; None if they differ in none or in several."""
        differing = set(self.candidate.values) ^ set(self.against.values)
        return differing.pop().id if len(differing) == 1 else None

    def state(self, bar: Bar, *, least: int) -> State:
        """What the blocks show so far.

        Up to 5 blocks a gain counts if even the lower end of its interval reaches the threshold; from 6 on if that end
        is above 1, as in the verdicts of `compare`. The estimate must also exceed the noise. Two failures or one wrong
        result exclude a candidate.
        """
        if self.wrong or len(self.failures) >= MOST_FAILURES:
            return State.FAILED
        effect, interval = self.effect, self.interval
        if effect is None or interval is None or len(self.ratios) < least:
            return State.OPEN
        worth, noise = math.log1p(bar.threshold), math.log1p(bar.height)
        low, high = interval
        if (low >= worth or (len(self.ratios) >= WHOLE_LEVEL and low > 0)) and effect.estimate >= noise:
            return State.GAIN
        if high <= -worth:
            return State.LOSS
        return State.NONE if high < worth else State.OPEN

    def may_gain(self, least: int) -> bool:
        """Whether at least so many blocks suggest a gain: then the candidate is worth a confirmation."""
        return self.effect is not None and len(self.ratios) >= least and self.effect.estimate > 0.0

    def step_figures(self, interval: tuple[float, float] | None = None) -> dict[str, Any]:
        """Ratio, interval and blocks as fields of a line; `interval`: of the log-ratio, by default the contest's."""
        effect, interval = self.effect, interval or self.interval
        return {
            "ratio": math.exp(effect.estimate) if effect else None,
            "low": math.exp(interval[0]) if interval else None,
            "high": math.exp(interval[1]) if interval else None,
            "launches": len(self.ratios),
        }

    def note(
        self, evaluator: Evaluator, phase: str, decision: str, reason: str, interval: tuple[float, float] | None = None
    ) -> None:
        """Record the decision of a step; a confirmation is about a whole config, so it names no setting."""
        evaluator.note(
            TuneLine(
                phase=phase,
                config=self.candidate.name(evaluator.baseline),
                against=self.against.name(evaluator.baseline),
                plan=self.plan,
                setting=None if phase == CONFIRM else self.setting,
                decision=decision,
                reason=reason,
                **self.step_figures(interval),
            )
        )


def contest_from_blocks(
    blocks: Sequence[Mapping[Candidate, Sample]], candidate: Candidate, against: Candidate
) -> Contest:
    """The contest of two candidates in blocks that were made."""
    contest = Contest(candidate, against)
    for samples in blocks:
        contest.add(samples[candidate], samples[against])
    return contest


def interval_alpha(blocks: int) -> float:
    """Error probability α of an interval from n `blocks`: 0.05, or the smallest that they can give, 2 ÷ 2ⁿ.

    With 3 blocks the interval reaches from the smallest to the largest ratio.
    """
    return max(0.05, 2.0 ** (1 - blocks))


def run_until_decided(evaluator: Evaluator, contest: Contest, options: Options, bar: Bar, *, keep: int = 1) -> State:
    """Make blocks of both candidates until the state is clear, at most 1.5 times `options.most`.

    `keep`: candidates for whose confirmation the search leaves time. A block is only two launches, so more of them are
    affordable: one slow launch of eight can leave a gain of 10 % undecided.
    """
    for _ in range(options.most + options.most // 2):
        candidate, against = evaluator.block([contest.candidate, contest.against], plan=contest.plan, keep=keep)
        contest.add(candidate, against)
        state = contest.state(bar, least=options.least)
        if state is not State.OPEN:
            return state
    return State.OPEN


def bar_from_twin(twin: Contest, threshold: float) -> Bar:
    """The bar for a gain: the `threshold`, and the noise that the baseline's twin shows.

    The noise is the apparent difference of one config from itself, estimated like that of a candidate, from as many
    blocks. Its whole interval (`verdict.noise_floor`) would not do: from few ratios it is the largest of them, so one
    slow launch would hide every gain.
    """
    effect = twin.effect
    return Bar(threshold, math.expm1(abs(effect.estimate)) if effect else 0.0)


def reason_text(state: State, contest: Contest, bar: Bar, ended: str = "") -> str:
    """The reason of a decision, as a text for people; `ended`: why there were no more blocks."""
    if state is State.FAILED:
        times = "once" if len(contest.failures) == 1 else f"{len(contest.failures)} times"
        return f"failed {times}: {contest.failures[-1]}"
    n = plural(len(contest.ratios), "block")
    threshold = f"{bar.threshold:.1%}"
    if state is not State.OPEN:
        outcomes = {State.GAIN: f"at least {threshold} faster", State.LOSS: f"at least {threshold} slower"}
        return f"{outcomes.get(state, f'{NO_GAIN}{threshold}')} in {n}"
    if contest.effect is not None and contest.effect.estimate <= 0.0 and len(contest.ratios) >= Options.least:
        return f"not faster in {n}{ended}"
    if contest.effect is not None and 0.0 < contest.effect.estimate < math.log1p(bar.floor):
        return f"{UNDECIDED} after {n}{ended}: the gain is within the noise of {bar.floor:.1%}"
    return f"{UNDECIDED} after {n}{ended}"


def largest_effect_first(contests: Sequence[Contest]) -> list[Contest]:
    """The contests by effect, the largest first; equal ones by name, so that the order is always the same."""
    return sorted(contests, key=lambda each: (-(each.effect.estimate if each.effect else 0.0), each.candidate.name("")))
