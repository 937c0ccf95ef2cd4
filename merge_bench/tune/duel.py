"""Two candidates held against each other block by block until it is clear whether one is worth it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from merge_bench.analysis.statistics.effect import Effect, paired
from merge_bench.records.schema import TuneLine
from merge_bench.tune.bench import Bench, Candidate, Options, Sample

MOST_FAILURES = 2
UNDECIDED = "undecided"
"""How the reason begins where the blocks did not suffice."""


class State(Enum):
    """What is known of a candidate."""

    OPEN = "open"
    GAIN = "gain"
    NONE = "none"
    LOSS = "loss"
    FAILED = "failed"


@dataclass(frozen=True)
class Bar:
    """What a gain has to clear: a smaller one than `threshold` is not worth it, one below `floor` may be noise."""

    threshold: float
    floor: float = 0.0


@dataclass
class Duel:
    """A candidate against another, one log-ratio a block; a block in which either failed gives none."""

    candidate: Candidate
    against: Candidate
    ratios: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wrong: bool = False

    def add(self, candidate: Sample, against: Sample) -> None:
        """Take in what one block gave. Where both failed, that says nothing of the candidate, unless it was wrong."""
        if candidate.value is None:
            self.wrong = self.wrong or candidate.wrong
            if against.value is not None or candidate.wrong:
                self.failures.append(candidate.reason)
        elif against.value is not None:
            self.ratios.append(math.log(candidate.value / against.value))

    @property
    def effect(self) -> Effect | None:
        """The paired effect; None before the first whole block."""
        return paired(self.ratios) if self.ratios else None

    def state(self, bar: Bar, *, least: int) -> State:
        """What the blocks so far say.

        The interval has the level that so few blocks can give, 1 - 2 ÷ 2ⁿ, up to 95 %: with 3 blocks it reaches from
        the worst to the best. Up to 5 blocks a gain counts if even its lower end is worth it, from 6 on if that is
        above 1, as in the verdicts; and its estimate has to be above the noise. Whoever fails twice is out, and whoever
        gives a wrong result at once.
        """
        if self.wrong or len(self.failures) >= MOST_FAILURES:
            return State.FAILED
        effect, n = self.effect, len(self.ratios)
        if effect is None or n < least:
            return State.OPEN
        worth, noise = math.log1p(bar.threshold), math.log1p(max(bar.threshold, bar.floor))
        interval = effect.interval(level(n))
        assert interval is not None
        low, high = interval
        if (low >= worth or (n >= 6 and low > 0)) and effect.estimate >= noise:
            return State.GAIN
        if high <= -worth:
            return State.LOSS
        return State.NONE if high < worth else State.OPEN

    def line(self, bench: Bench, phase: str, decision: str, reason: str, *, plan: int, setting: str | None) -> TuneLine:
        """The record of what was decided."""
        effect = self.effect
        interval = effect.interval(level(len(self.ratios))) if effect and len(self.ratios) > 1 else None
        return TuneLine(
            phase=phase, config=self.candidate.name(bench.baseline), against=self.against.name(bench.baseline),
            plan=plan, setting=setting, ratio=math.exp(effect.estimate) if effect else None,
            low=math.exp(interval[0]) if interval else None, high=math.exp(interval[1]) if interval else None,
            launches=len(self.ratios), decision=decision, reason=reason,
        )  # fmt: skip


def held(blocks: Sequence[Mapping[Candidate, Sample]], candidate: Candidate, against: Candidate) -> Duel:
    """The two against each other by `blocks` that were made; both are in each."""
    duel = Duel(candidate, against)
    for samples in blocks:
        duel.add(samples[candidate], samples[against])
    return duel


def level(blocks: int) -> float:
    """α of the interval for so many blocks: 0.05, or as small as they can give."""
    return max(0.05, 2.0 ** (1 - blocks))


def fight(bench: Bench, duel: Duel, options: Options, bar: Bar, *, plan: int = 0) -> State:
    """Blocks of the two until the state is clear, at most half as many again as `options.most`.

    A block is two launches, so patience costs little here: one slow launch of eight leaves a gain of a tenth undecided.
    """
    for _ in range(options.most + options.most // 2):
        candidate, against = bench.block([duel.candidate, duel.against], plan=plan)
        duel.add(candidate, against)
        state = duel.state(bar, least=options.least)
        if state is not State.OPEN:
            return state
    return State.OPEN


def bar_of(twin: Duel, threshold: float) -> Bar:
    """The bar, with the noise that the baseline's twin shows.

    That is the difference that the same config seems to have from itself, estimated as those of the candidates are,
    from as many blocks. Its whole interval (`verdict.noise_floor`) would be the largest of a few ratios where the race
    decides, so that one slow launch would hide every gain.
    """
    effect = twin.effect
    return Bar(threshold, math.expm1(abs(effect.estimate)) if effect else 0.0)


def shown(state: State, duel: Duel, bar: Bar) -> str:
    """The reason of a decision as a sentence."""
    if state is State.FAILED:
        times = "once" if len(duel.failures) == 1 else f"{len(duel.failures)} times"
        return f"it failed {times}: {duel.failures[-1]}"
    n = f"{len(duel.ratios)} blocks"
    if state is State.GAIN:
        return f"faster by {bar.threshold:.1%} and more in {n}"
    if state is State.LOSS:
        return f"slower by {bar.threshold:.1%} and more in {n}"
    if state is State.NONE:
        return f"no gain of {bar.threshold:.1%} in {n}"
    if duel.effect is not None and 0.0 < duel.effect.estimate < math.log1p(bar.floor):
        return f"{UNDECIDED} after {n}: it does not stand out of the noise of {bar.floor:.1%}"
    return f"{UNDECIDED} after {n}, which is not enough to keep it"


def ranked(duels: Sequence[Duel]) -> list[Duel]:
    """The largest effect first; equal ones by name, so that the order is always the same."""
    return sorted(duels, key=lambda d: (-(d.effect.estimate if d.effect else 0.0), d.candidate.name("")))
