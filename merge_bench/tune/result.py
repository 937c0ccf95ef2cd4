"""What the records of a tuning say of its outcome.

`docs/reference/records.md` describes every key of the document of ``tune --json``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import msgspec

from merge_bench.analysis.documents import Failure
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import AddedConfigLine, TuningStepLine
from merge_bench.tune.evaluator import (
    ABLATE,
    AGAIN,
    COMBINE,
    CONFIRM,
    MAY_LOSE,
    NO_GAIN,
    NO_GAIN_SEEN,
    NOISE,
    SCREEN,
    UNDECIDED,
    WHOLE_LEVEL,
    SearchOptions,
)
from merge_bench.tune.space import PrunedValue


class TuningWinner(msgspec.Struct, frozen=True, kw_only=True):
    """The config that a tuning found: its settings, and for each the step that measured its effect, if there is one."""

    config: str
    settings: list[str]
    contributions: dict[str, TuningStepLine | None]


class TuneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of ``tune --json``: what was found, and every step of the search as a line of the records.

    `config`: the path of the config file that was written.
    """

    document_version: Literal[1] = 1
    records: str
    config: str | None
    winner: TuningWinner | None
    stopped: str | None
    undecided: list[str]
    no_gain_seen: list[str]
    noise_floor: TuningStepLine | None
    singles: list[TuningStepLine]
    combined: list[TuningStepLine]
    ablated: list[TuningStepLine]
    confirmed: list[TuningStepLine]
    interactions: list[TuningStepLine]
    failures: list[TuningStepLine]
    pruned: list[PrunedValue]
    error: Failure | None


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
class TuningResult:
    """The result of a tuning, read from its recorded steps; ``tune --json`` prints most of its fields.

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
    - `of_command`: whether a command was measured, and no merges
    """

    baseline: str
    singles: list[TuningStepLine]
    noise_floor: TuningStepLine | None
    combined: list[TuningStepLine]
    ablated: list[TuningStepLine]
    confirmed: list[TuningStepLine]
    broken_off: list[TuningStepLine]
    interactions: list[TuningStepLine]
    failures: list[TuningStepLine]
    winner: AddedConfigLine | None
    contributions: dict[str, TuningStepLine | None]
    stopped: str | None
    not_combined: list[str]
    screened: int
    undecided: list[str]
    no_gain_seen: list[str]
    threshold: float
    best_undecided: TuningStepLine | None
    unconfirmed: str | None
    unconfirmed_step: TuningStepLine | None
    settings: int | None
    left_out: list[PrunedValue]
    sizes_left_out: list[int]
    finished: bool
    variables: dict[str, str]
    of_command: bool = False

    def size_phrase(self, size_name: str) -> str:
        """The phrase for a problem size or a command: ``at 1,000,000 rows per chunk``, ``of sleep 1``."""
        return f"of {size_name}" if self.of_command else f"at {size_name}"

    def measured_quantity_text(self, metric: str, size_name: str) -> str:
        """The quantity that a ratio is of, as text: ``throughput at 1,000,000 rows per chunk``.

        The metric of a command may be a time: ``speed-up in wall of sleep 1``.
        """
        return f"{'speed-up in ' * self.of_command}{metric} {self.size_phrase(size_name)}"

    @property
    def baseline_differs_from_itself(self) -> bool:
        """Whether the baseline differed from itself at the level of 95 %, so that other differences may be false, too.

        With fewer blocks the interval has a lower level, at which one of eight quiet hosts would be doubted.
        """
        noise = self.noise_floor
        if noise is None or noise.launches < WHOLE_LEVEL:
            return False
        return not (noise.low or 0.0) <= 1.0 <= (noise.high or math.inf)

    @property
    def has_tried_nothing(self) -> bool:
        """Whether the search ended before a single candidate was tried."""
        return self.stopped is not None and not self.singles and not self.confirmed

    @property
    def outcome_heading(self) -> str:
        """The outcome of the tuning as a heading: ``Found: …``, ``Not decided: …``, ``No config is faster than …``."""
        if self.winner is not None:
            sets = " ".join(filter(None, (self.variables.get(each, "") for each in self.winner.settings)))
            return f"Found: {' '.join(self.winner.settings)}" + (f" ({sets})" if sets else "")
        open_still = self.undecided or self.no_gain_seen or self.left_out or self.stopped
        all_decided = self.finished and not open_still
        none = f"{'No config is' if all_decided else 'Found no config'} faster than {self.baseline}"
        if self.unconfirmed_gains:
            return f"Not decided: {self._undecided_config_text(self.unconfirmed_gains)}"
        if self.confirmed:
            return f"{none}: {self._rejection_text}"
        if self.unconfirmed is not None:
            seen = self.broken_off or [line for line in [self.unconfirmed_step] if line is not None]
            return f"Not decided: {self._undecided_config_text(seen)}"
        if self.undecided:
            return f"Not decided: too few blocks to judge {len(self.undecided)} of {self.screened} candidates"
        if self.screened == 1 and all_decided:
            return f"{self.singles[0].config} is not faster than {self.baseline}"
        return none if self.screened else "Nothing was decided: no candidate was judged"

    def _undecided_config_text(self, steps: Sequence[TuningStepLine]) -> str:
        """A text on the best config of steps without a verdict, such as ``a=y may be faster than default``.

        It ``may be faster`` if its estimate exceeds the threshold and the baseline's difference from itself.
        """
        best = max(steps, key=self._rank_of_unconfirmed_gain, default=None)
        apart = _ratio_or_zero(self.noise_floor) or 1.0
        if best is not None and best.config in self._faster_at_one_size:
            return f"{best.config} is faster than {self.baseline} at one size, but may be slower at another"
        if best is not None and _ratio_or_zero(best) > max(1.0 + self.threshold, apart, 1 / apart):
            return f"{best.config} may be faster than {self.baseline}"
        if best is None or _ratio_or_zero(best) <= 1.0 or best.launches < SearchOptions.least:
            return f"{steps[0].config if steps else self.unconfirmed} has too few new launches to be judged"
        return f"the gain of {best.config} may be noise"

    @property
    def _rejection_text(self) -> str:
        """Describe how the confirmation rejected the candidates, if none of them is faster."""
        gain = f"{NO_GAIN}{self.threshold:.1%}"
        names = list(dict.fromkeys(line.config for line in self.confirmed))
        reasons = [line.reason for line in self.confirmed]
        if len(names) == 1 and {Verdict.FASTER.value, Verdict.SLOWER.value} <= {*reasons}:
            return f"{names[0]} is faster at one size and slower at another"
        if len(names) == 1:
            outcomes = (text for start, text in _REJECTED.items() if any(why.startswith(start) for why in reasons))
            return f"{names[0]} {next(outcomes, 'was rejected').format(gain=gain)}"
        if Verdict.FAILED.value in reasons or Verdict.FASTER.value in reasons:
            return f"none of {', '.join(names)} is faster in new launches"
        how = "showed" if Verdict.INCONCLUSIVE.value in reasons else "have"
        of = f"the best {len(names)} of {self.screened} candidates" if self.screened > len(names) else ", ".join(names)
        return f"{of} {how} {gain} in new launches"

    @property
    def unconfirmed_gains(self) -> list[TuningStepLine]:
        """Steps of the confirmation that show a gain, but too few blocks for a verdict; the best first."""
        lost = {line.config for line in self.confirmed if line.reason in (Verdict.FAILED.value, Verdict.SLOWER.value)}
        lost |= {line.config for line in self.confirmed if self.winner is not None}
        lines = [line for line in self.confirmed if decision_text(line) == UNDECIDED and line.config not in lost]
        return sorted(lines, key=self._rank_of_unconfirmed_gain, reverse=True)

    @property
    def _faster_at_one_size(self) -> set[str]:
        """The configs that are faster at a size, and rejected because they may be slower at another."""
        return {line.config for line in self.confirmed if line.reason.startswith(MAY_LOSE)}

    def _rank_of_unconfirmed_gain(self, line: TuningStepLine) -> tuple[bool, float]:
        """The rank of a step without a verdict: first those of configs that are faster at a size, then by estimate."""
        return line.config in self._faster_at_one_size, _ratio_or_zero(line)

    @property
    def best_config_name(self) -> str | None:
        """The name of the confirmed config, else of the best that was rejected or left undecided; or None."""
        if self.winner is not None:
            return self.winner.config.name
        return self.confirmed[0].config if self.confirmed else self.unconfirmed

    @property
    def confirmation_steps(self) -> list[TuningStepLine]:
        """The steps that confirmed the winner, one for each size; without a winner, those that rejected candidates."""
        won = self.winner
        return [line for line in self.confirmed if won is None or line.config == won.config.name]

    @property
    def left_out_values(self) -> list[PrunedValue]:
        """The values and sizes that the budget had no time for, in the form of values that cannot help."""
        return self.left_out + [
            PrunedValue(value=f"confirmation at size {plan + 1}", reason="the budget has no time for it")
            for plan in self.sizes_left_out
        ]

    def make_document(
        self, records: Path, config_path: Path | None, pruned: Sequence[PrunedValue], error: Failure | None
    ) -> TuneDocument:
        """The document of ``tune --json``.

        `records`: the path of the records. `config_path`: the config file that was written. `pruned`: values that were
        not tried. `error`: what went wrong.
        """
        won, config = self.winner, None if config_path is None else str(config_path)
        winner = won and TuningWinner(config=won.config.name, settings=won.settings, contributions=self.contributions)
        own = {name: getattr(self, name) for name in _IN_DOCUMENT} | {"winner": winner}
        left_out = [*pruned, *self.left_out_values]
        return TuneDocument(records=str(records), config=config, pruned=left_out, error=error, **own)


_IN_DOCUMENT = {field.name for field in fields(TuningResult)} & {*TuneDocument.__struct_fields__}


def _ratio_or_zero(line: TuningStepLine | None) -> float:
    return line.ratio or 0.0 if line is not None else 0.0


def tuning_result_of(campaign: Campaign) -> TuningResult:
    """Read the result of a tuning from the steps in a campaign's records."""
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
        [line for line in against_baseline if decision_text(line) == decision and line.config not in settled]
        for decision in (UNDECIDED, NO_GAIN_SEEN)
    )
    rejected = settled - {*accepted}
    stops = [line for line in lines if line.decision == STOPPED]
    unconfirmed = [line.config for line in stops if line.config != line.against and not confirmed]
    settings = {line.config.name: line.settings for line in campaign.added}
    combined_or_best = {line.setting for line in combined} | {
        name for line in stops for name in settings.get(line.config, ())
    }
    return TuningResult(
        baseline=campaign.head.configs[0].name,
        singles=singles,
        broken_off=broken_off,
        noise_floor=max(twins, key=lambda line: abs(math.log(line.ratio or 1.0)), default=None),
        combined=combined,
        ablated=ablated,
        confirmed=confirmed,
        interactions=[
            line for line in combined if line.setting in gained and line.decision == "dropped" and (line.high or 1) < 1
        ],
        failures=[line for line in lines if line.decision == "failed"],
        winner=winner,
        contributions={name: _step_showing_effect(name, winner, lines) for name in winner.settings} if winner else {},
        stopped=stops[-1].reason if stops else None,
        not_combined=[
            line.setting
            for line in singles
            if stops and line.setting and line.setting in gained - combined_or_best and line.config not in rejected
        ],
        screened=len(against_baseline),
        undecided=[line.config for line in undecided],
        no_gain_seen=[line.config for line in no_gain_seen],
        threshold=SearchOptions.threshold if plan is None or plan.threshold is None else plan.threshold,
        best_undecided=max(undecided, key=_ratio_or_zero, default=None),
        unconfirmed=unconfirmed[-1] if unconfirmed else None,
        unconfirmed_step=next((line for line in lines[::-1] if line.config in unconfirmed[-1:] and line.ratio), None),
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
        of_command=campaign.command is not None,
    )


def ended_tuning_result_of(campaign: Campaign) -> TuningResult:
    """Read the result of a tuning that no longer runs; one that was interrupted or failed counts as stopped."""
    result = tuning_result_of(campaign)
    regular = campaign.end is not None and campaign.end.status == 0
    return result if regular or result.stopped else replace(result, stopped="the search was interrupted")


def decision_text(line: TuningStepLine) -> str:
    """The decision of a step of the search, in the words of reports: ``gained``, ``kept``, ``dropped``, ``undecided`` …

    A setting that gains alone is ``gained``, not ``kept``. A config that may be slower at a size is undecided there. An
    INCONCLUSIVE confirmation is undecided, or shows no gain
    if its estimate is none after enough blocks. Older records call the noise ``kept``, and undecided ``dropped``.
    """
    if line.config.endswith(AGAIN):
        return NOISE
    if line.decision == "rejected" and line.reason.startswith(MAY_LOSE):
        return UNDECIDED
    if (
        line.decision == UNDECIDED
        or ((line.phase, line.decision) == (SCREEN, "dropped") and line.reason.startswith(UNDECIDED))
        or (line.phase, line.decision, line.reason) == (CONFIRM, "rejected", Verdict.INCONCLUSIVE.value)
    ):
        slower = line.ratio is not None and line.ratio <= 1.0 and line.launches >= SearchOptions.least
        return NO_GAIN_SEEN if slower else UNDECIDED
    return GAINED if (line.phase, line.decision) == (SCREEN, "kept") else line.decision


def step_name(line: TuningStepLine) -> str:
    """The name of a step in reports: its setting or config; for the baseline's twin ``default against itself``."""
    if line.config.endswith(AGAIN):
        return f"{line.config.removesuffix(AGAIN)} against itself"
    return line.setting or line.config


def _step_showing_effect(
    setting: str, winner: AddedConfigLine, all_steps: Sequence[TuningStepLine]
) -> TuningStepLine | None:
    """The step that shows the effect of a setting of the winner, by the rules of `TuningResult.contributions`."""
    name = winner.config.name
    if len(winner.settings) == 1:
        return next(line for line in all_steps if line.decision == "accepted" and line.config == name)
    of_setting = [line for line in all_steps if line.setting == setting]
    taken_out = [line for line in of_setting if line.phase == ABLATE and line.config == name]
    steps = taken_out or [line for line in of_setting if line.phase == SCREEN]
    return steps[-1] if steps else None


OPEN = "not decided yet"
"""The decision of a line about a candidate that is compared now; such lines are not in records."""


def decided_steps(campaign: Campaign) -> list[TuningStepLine]:
    """List the decided steps of a tuning, without lines on what the budget leaves out and on the early end."""
    return [line for line in campaign.tuning if line.decision not in (LEFT_OUT, STOPPED)]
