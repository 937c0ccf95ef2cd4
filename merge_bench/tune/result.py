"""The outcome of a tuning, from its records alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from merge_bench.analysis.documents import Failure
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ConfigLine, TuneLine
from merge_bench.tune.documents import PrunedValue, TuneDocument, Winner
from merge_bench.tune.evaluator import (
    ABLATE,
    AGAIN,
    COMBINE,
    CONFIRM,
    NO_GAIN,
    NO_GAIN_SEEN,
    NOISE,
    SCREEN,
    UNDECIDED,
    Options,
)
from merge_bench.tune.head_to_head import WHOLE_LEVEL

STOPPED = "stopped"
"""The decision of the line that the search ends with if the budget is spent before."""
LEFT_OUT = "left out"
"""The decision of the line of a setting, or of a size, that the budget has no time for."""
GAINED = "gained"
"""What people read for a setting that gains alone; the records have ``kept``."""
_REJECTED = {
    Verdict.FAILED.value: "failed in the confirmation",
    Verdict.SLOWER.value: "is slower",
    Verdict.INCONCLUSIVE.value: "showed {gain} in new launches",
    NO_GAIN: "has {gain} in new launches",
    Verdict.EQUIVALENT.value: "is as fast",
}
"""What people read of the only rejected candidate, by how its reason begins at any size; the first that fits counts."""


PHASE_NAMES = {
    SCREEN: "each alone",
    COMBINE: "combined",
    ABLATE: "removed again",
    CONFIRM: "confirmation on new launches",
}
"""What people read instead of the words for the steps in the records."""


@dataclass(frozen=True)
class Result:
    """What the steps of a tuning led to; fields that the document of ``tune --json`` has, too, are described there.

    - `winner`: the confirmed config; None if nothing beats the baseline, or nothing is confirmed yet
    - `contributions`: for each setting of the winner the step that shows its effect: its ablation out of the winner; if
      it is the only one, the confirmation; if neither was made, the setting alone
    - `broken_off`: what a confirmation shows that the budget ended before a verdict, a step for each size
    - `interactions`: settings that gain alone and lose together
    - `noise_floor`: the step that compared the baseline with itself
    - `stopped`: why the search ended early
    - `not_combined`: settings that gain alone, and that the search, which ended early, did not combine with its best
      candidate
    - `screened`: how many candidates were compared with the baseline
    - `undecided`: those of them that may gain by their estimate, could not be judged with the blocks that were made,
      and were not confirmed
    - `no_gain_seen`: those of them whose estimate is no gain, which their interval does not rule out; they were not
      confirmed either
    - `best_undecided`: the step of the one of `undecided` with the largest estimate
    - `unconfirmed`: the candidate whose confirmation the budget ended, or had no time for
    - `unconfirmed_step`: the last step of the search that measured it
    - `threshold`: a smaller gain does not count
    - `settings`: how many settings there are to try; None if the records do not tell
    - `left_out`: candidates that were not tried, because the budget has no time for them
    - `sizes_left_out`: plans at which nothing can be confirmed, because the budget has no time for them
    - `finished`: whether the tuning came to its end, with or without a result
    - `variables`: what each candidate of one setting sets: ``transports=posix`` → ``UCX_TLS=posix,self``
    """

    baseline: str
    singles: list[TuneLine]
    noise_floor: TuneLine | None
    combined: list[TuneLine]
    ablated: list[TuneLine]
    confirmed: list[TuneLine]
    broken_off: list[TuneLine]
    interactions: list[TuneLine]
    failures: list[TuneLine]
    winner: ConfigLine | None
    contributions: dict[str, TuneLine | None]
    stopped: str | None
    not_combined: list[str]
    screened: int
    undecided: list[str]
    no_gain_seen: list[str]
    threshold: float
    best_undecided: TuneLine | None
    unconfirmed: str | None
    unconfirmed_step: TuneLine | None
    settings: int | None
    left_out: list[PrunedValue]
    sizes_left_out: list[int]
    finished: bool
    variables: dict[str, str]

    @property
    def doubtful(self) -> bool:
        """Whether the baseline differed from itself at the level of 95 %: then other differences may be as false.

        With fewer blocks the interval has a lower level, at which one of eight quiet hosts would be doubted.
        """
        noise = self.noise_floor
        if noise is None or noise.launches < WHOLE_LEVEL:
            return False
        return not (noise.low or 0.0) <= 1.0 <= (noise.high or math.inf)

    @property
    def untried(self) -> bool:
        """Whether the search ended before it had tried anything."""
        return self.stopped is not None and not self.singles and not self.confirmed

    @property
    def outcome(self) -> str:
        """The outcome as a heading, which says no more than was decided."""
        if self.winner is not None:
            sets = " ".join(filter(None, (self.variables.get(each, "") for each in self.winner.settings)))
            return f"Found: {' '.join(self.winner.settings)}" + (f" ({sets})" if sets else "")
        open_still = self.undecided or self.no_gain_seen or self.left_out or self.stopped
        all_decided = self.finished and not open_still
        none = f"{'No config is' if all_decided else 'Found no config'} faster than {self.baseline}"
        if self.open_in_confirmation:
            return f"Not decided: {self._open_text(self.open_in_confirmation)}"
        if self.confirmed:
            return f"{none}: {self._rejection_text}"
        if self.unconfirmed is not None:
            seen = self.broken_off or [line for line in [self.unconfirmed_step] if line is not None]
            return f"Not decided: {self._open_text(seen)}"
        if self.undecided:
            return f"Not decided: too few blocks to judge {len(self.undecided)} of {self.screened} candidates"
        if self.screened == 1 and all_decided:
            return f"{self.singles[0].config} is not faster than {self.baseline}"
        return none if self.screened else "Nothing was decided: no candidate was judged"

    def _open_text(self, lines: Sequence[TuneLine]) -> str:
        """What can be said of the best config in `lines`, which are steps without a verdict.

        It ``may be faster`` if its estimate exceeds the threshold and the baseline's difference from itself.
        """
        names = [line.config for line in lines] or [str(self.unconfirmed)]
        best = max(lines, key=lambda line: line.ratio or 0.0, default=None)
        noise = self.noise_floor
        apart = (noise.ratio if noise is not None else None) or 1.0
        floor = max(1.0 + self.threshold, apart, 1 / apart)
        if best is not None and (best.ratio or 0.0) > floor:
            return f"{best.config} may be faster than {self.baseline}"
        if best is None or (best.ratio or 0.0) <= 1.0 or best.launches < Options.least:
            return f"{names[0]} has too few new launches to be judged"
        return f"the gain of {best.config} may be noise"

    @property
    def _rejection_text(self) -> str:
        """What new launches showed of the candidates, if none of them is faster."""
        gain = f"{NO_GAIN}{self.threshold:.1%}"
        names = list(dict.fromkeys(line.config for line in self.confirmed))
        reasons = [line.reason for line in self.confirmed]
        if len(names) == 1:
            outcomes = (text for start, text in _REJECTED.items() if any(why.startswith(start) for why in reasons))
            return f"{names[0]} {next(outcomes, 'was rejected').format(gain=gain)}"
        if Verdict.FAILED.value in reasons:
            return f"none of {', '.join(names)} is faster in new launches"
        how = "showed" if Verdict.INCONCLUSIVE.value in reasons else "have"
        of = f"the best {len(names)} of {self.screened} candidates" if self.screened > len(names) else ", ".join(names)
        return f"{of} {how} {gain} in new launches"

    @property
    def open_in_confirmation(self) -> list[TuneLine]:
        """Steps of the confirmation that show a gain without a verdict, the best first."""
        lost = {line.config for line in self.confirmed if line.reason in (Verdict.FAILED.value, Verdict.SLOWER.value)}
        lost |= {line.config for line in self.confirmed if self.winner is not None}
        lines = [line for line in self.confirmed if decision_of(line) == UNDECIDED and line.config not in lost]
        return sorted(lines, key=lambda line: -(line.ratio or 0.0))

    @property
    def candidate(self) -> str | None:
        """The config that was confirmed, or the best that was rejected, or whose confirmation the budget prevented."""
        if self.winner is not None:
            return self.winner.config.name
        return self.confirmed[0].config if self.confirmed else self.unconfirmed

    @property
    def confirmation(self) -> list[TuneLine]:
        """The confirmation of the winner, a line for each size; if there is none, of all that were rejected."""
        won = self.winner
        return [line for line in self.confirmed if won is None or line.config == won.config.name]

    @property
    def left_out_values(self) -> list[PrunedValue]:
        """Values and sizes that the budget left out, which the document names beside values that cannot help."""
        return self.left_out + [
            PrunedValue(value=f"confirmation at size {plan + 1}", reason="the budget has no time for it")
            for plan in self.sizes_left_out
        ]

    def document(
        self, records: Path, written: Path | None, pruned: Sequence[PrunedValue], error: Failure | None
    ) -> TuneDocument:
        """The document of ``tune --json``; `written`: the file of the config that was found."""
        won = self.winner
        return TuneDocument(
            records=str(records),
            config=None if written is None else str(written),
            pruned=[*pruned, *self.left_out_values],
            error=error,
            winner=None
            if won is None
            else Winner(config=won.config.name, settings=won.settings, contributions=self.contributions),
            **{name: getattr(self, name) for name in _IN_DOCUMENT},
        )


_IN_DOCUMENT = {field.name for field in fields(Result)} & {*TuneDocument.__struct_fields__} - {"winner"}


def result_of(campaign: Campaign) -> Result:
    """What the steps in the records of a tuning led to."""
    lines, plan, base = campaign.tuning, campaign.plans[0].tune, campaign.head.configs[0].variables
    screened, combined, ablated, confirmed = (
        [line for line in lines if line.phase == phase] for phase in (SCREEN, COMBINE, ABLATE, CONFIRM)
    )
    broken_off = [line for line in confirmed if line.decision == UNDECIDED]
    confirmed = [line for line in confirmed if line.decision != UNDECIDED]
    singles = [line for line in screened if line.setting is not None]
    twins = [line for line in screened if line.config.endswith(AGAIN)]
    accepted = [line.config for line in confirmed if line.decision == "accepted"]
    winner = next((each for each in campaign.added if each.config.name in accepted[-1:]), None)
    gained = {line.setting for line in singles if line.decision == "kept"}
    against_baseline = [line for line in screened if line not in twins]
    settled = {line.config for line in confirmed}
    undecided, no_gain_seen = (
        [line for line in against_baseline if decision_of(line) == decision and line.config not in settled]
        for decision in (UNDECIDED, NO_GAIN_SEEN)
    )
    rejected = settled - {*accepted}
    stops = [line for line in lines if line.decision == STOPPED]
    unconfirmed = [line.config for line in stops if line.config != line.against and not confirmed]
    settings = {line.config.name: line.settings for line in campaign.added}
    combined_or_best = {line.setting for line in combined} | {
        name for line in stops for name in settings.get(line.config, ())
    }
    return Result(
        baseline=campaign.head.configs[0].name,
        singles=singles,
        broken_off=broken_off,
        noise_floor=max(twins, key=lambda line: abs(math.log(line.ratio or 1.0)), default=None),
        combined=combined,
        ablated=ablated,
        confirmed=confirmed,
        interactions=[
            line
            for line in combined
            if line.setting in gained and line.decision == "dropped" and line.high is not None and line.high < 1
        ],
        failures=[line for line in lines if line.decision == "failed"],
        winner=winner,
        contributions={}
        if winner is None
        else {each: _contribution_step(each, winner, lines) for each in winner.settings},
        stopped=stops[-1].reason if stops else None,
        not_combined=[
            line.setting
            for line in singles
            if stops and line.setting and line.setting in gained - combined_or_best and line.config not in rejected
        ],
        screened=len(against_baseline),
        undecided=[line.config for line in undecided],
        no_gain_seen=[line.config for line in no_gain_seen],
        threshold=Options.threshold if plan is None or plan.threshold is None else plan.threshold,
        best_undecided=max(undecided, key=lambda line: line.ratio or 0.0, default=None),
        unconfirmed=unconfirmed[-1] if unconfirmed else None,
        unconfirmed_step=next(
            (line for line in reversed(lines) if line.config in unconfirmed[-1:] and line.ratio), None
        ),
        settings=len(plan.values) if plan is not None else None,
        left_out=[
            PrunedValue(value=line.setting, reason=line.reason)
            for line in lines
            if line.decision == LEFT_OUT and line.setting and line.setting not in {each.setting for each in singles}
        ],
        sizes_left_out=[line.plan for line in lines if line.decision == LEFT_OUT and not line.setting],
        finished=campaign.end is not None,
        variables={
            each.settings[0]: " ".join(
                f"{name}={value}" for name, value in each.config.variables.items() if base.get(name) != value
            )
            for each in campaign.added
            if len(each.settings) == 1
        },
    )


def recorded_result_of(campaign: Campaign) -> Result:
    """The result of a tuning that no longer runs; one that was interrupted or failed counts as stopped."""
    result = result_of(campaign)
    regular = campaign.end is not None and campaign.end.status == 0
    return result if regular or result.stopped else replace(result, stopped="the search was interrupted")


def decision_of(line: TuneLine) -> str:
    """The decision of a step in the words that people read.

    A setting that gains alone is ``gained``, not ``kept``. An INCONCLUSIVE confirmation is undecided, or shows no gain
    if its estimate is none after enough blocks. Older records call the noise ``kept``, and undecided ``dropped``.
    """
    if line.config.endswith(AGAIN):
        return NOISE
    if (
        line.decision == UNDECIDED
        or ((line.phase, line.decision) == (SCREEN, "dropped") and line.reason.startswith(UNDECIDED))
        or (line.phase, line.decision, line.reason) == (CONFIRM, "rejected", Verdict.INCONCLUSIVE.value)
    ):
        slower = line.ratio is not None and line.ratio <= 1.0 and line.launches >= Options.least
        return NO_GAIN_SEEN if slower else UNDECIDED
    return GAINED if (line.phase, line.decision) == (SCREEN, "kept") else line.decision


def step_name(line: TuneLine) -> str:
    """What people call a step: its setting, or its config; that of the baseline's twin ``default against itself``."""
    if line.config.endswith(AGAIN):
        return f"{line.config.removesuffix(AGAIN)} against itself"
    return line.setting or line.config


def _contribution_step(setting: str, winner: ConfigLine, lines: Sequence[TuneLine]) -> TuneLine | None:
    """The step that shows the effect of a setting of the winner; None if there is none. `Result` has the rules."""
    name = winner.config.name
    if len(winner.settings) == 1:
        return next(line for line in lines if line.decision == "accepted" and line.config == name)
    of_setting = [line for line in lines if line.setting == setting]
    taken_out = [line for line in of_setting if line.phase == ABLATE and line.config == name]
    steps = taken_out or [line for line in of_setting if line.phase == SCREEN]
    return steps[-1] if steps else None
