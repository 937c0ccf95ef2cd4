"""The outcome of a tuning, from its records alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.documents.tune import PrunedValue, TuneDocument, Winner
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ConfigLine, TuneLine
from merge_bench.tune.evaluator import ABLATE, AGAIN, COMBINE, CONFIRM, NO_GAIN, NOISE, SCREEN, UNDECIDED

STOPPED = "stopped"
"""The decision of the line that the search ends with if the budget is spent before."""
LEFT_OUT = "left out"
"""The decision of the line of a setting, or of a size, that the budget has no time for."""
GAINED = "gained"
"""What is said of a setting that gains alone, for which the records have ``kept``."""
_REJECTED = {
    Verdict.FAILED.value: "{none}: {name} failed in the confirmation",
    Verdict.SLOWER.value: "{none}: {name} is slower",
    Verdict.INCONCLUSIVE.value: "Not decided: {name} may be faster than {baseline}",
    NO_GAIN: "{none}: {name} has {why} in new launches",
    Verdict.EQUIVALENT.value: "{none}: {name} is as fast",
}
"""The outcome, by the first of these with which the reason of a rejected candidate begins at any size."""


@dataclass(frozen=True)
class Result:
    """What the steps of a tuning led to; fields that the document of ``tune --json`` has, too, are described there.

    Attributes
    ----------
    winner
        The confirmed config; None if nothing beats the baseline, or nothing is confirmed yet.
    contributions
        For each setting of the winner the step that shows its effect: its ablation out of the winner; if it is the
        only one, the confirmation; if neither was made, the setting alone.
    broken_off
        What a confirmation shows that the budget ended before a verdict, a step for each size.
    interactions
        Settings that gain alone and lose together.
    noise_floor
        The step that compared the baseline with itself.
    stopped
        Why the search ended early.
    not_combined
        Settings that gain alone, and that the search, which ended early, did not combine with its best candidate.
    screened
        How many candidates were compared with the baseline.
    undecided
        Those of them that could not be judged with the blocks that were made, and were not confirmed.
    best_undecided
        The step of the one of them with the largest estimate.
    unconfirmed
        The candidate whose confirmation the budget ended, or had no time for.
    unconfirmed_step
        The last step of the search that measured it.
    settings
        How many settings there are to try; None if the records do not tell.
    left_out
        Candidates that were not tried, because the budget has no time for them.
    sizes_left_out
        Plans at which nothing can be confirmed, because the budget has no time for them.
    finished
        Whether the tuning came to its end, with or without a result.
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
    best_undecided: TuneLine | None
    unconfirmed: str | None
    unconfirmed_step: TuneLine | None
    settings: int | None
    left_out: list[PrunedValue]
    sizes_left_out: list[int]
    finished: bool

    @property
    def doubtful(self) -> bool:
        """Whether the baseline was for sure faster or slower than itself: then other differences may be as false."""
        noise = self.noise_floor
        return noise is not None and not (noise.low or 0.0) <= 1.0 <= (noise.high or math.inf)

    @property
    def outcome(self) -> str:
        """The outcome, as a heading: no more than what was decided."""
        if self.winner is not None:
            return "Found: " + " ".join(self.winner.settings)
        all_decided = self.finished and not (self.undecided or self.left_out or self.stopped)
        none = f"{'No config is' if all_decided else 'Found no config'} faster than {self.baseline}"
        if self.confirmed:
            reasons, name = [line.reason for line in self.confirmation], self.confirmed[-1].config
            by_weight = ((why, text) for start, text in _REJECTED.items() for why in reasons if why.startswith(start))
            why, found = next(by_weight, ("", "{none}"))
            return found.format(none=none, name=name, baseline=self.baseline, why=why)
        if self.unconfirmed is not None:
            doubts = bool(self.broken_off) and all((line.ratio or 0.0) <= 1.0 for line in self.broken_off)
            may = "has too few new launches to be judged" if doubts else f"may be faster than {self.baseline}"
            return f"Not decided: {self.unconfirmed} {may}"
        if self.undecided:
            return f"Not decided: too few blocks to judge {len(self.undecided)} of {self.screened} candidates"
        if self.screened == 1 and all_decided:
            return f"{self.singles[0].config} is not faster than {self.baseline}"
        return none if self.screened else "Nothing was decided: no candidate was judged"

    @property
    def candidate(self) -> str | None:
        """The config that was confirmed or rejected, or whose confirmation the budget ended, or had no time for."""
        return self.confirmed[-1].config if self.confirmed else self.unconfirmed

    @property
    def confirmation(self) -> list[TuneLine]:
        """The last confirmation, a line for each size."""
        return [line for line in self.confirmed if line.config == self.confirmed[-1].config]

    @property
    def absent(self) -> list[PrunedValue]:
        """What the document names beside the values that cannot help: what the budget left out."""
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
            records=str(records), config=None if written is None else str(written),
            pruned=[*pruned, *self.absent], error=error,
            winner=None if won is None else Winner(
                config=won.config.name, settings=won.settings, contributions=self.contributions
            ),
            **{name: getattr(self, name) for name in _IN_DOCUMENT},
        )  # fmt: skip


_IN_DOCUMENT = {field.name for field in fields(Result)} & {*TuneDocument.__struct_fields__} - {"winner"}


def result_of(campaign: Campaign) -> Result:
    """Put the steps of a campaign together."""
    lines = campaign.tuning
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
    undecided = [
        line for line in against_baseline if decision_of(line) == UNDECIDED and line.config not in settled
    ]  # fmt: skip
    stops = [line for line in lines if line.decision == STOPPED]
    unconfirmed = [line.config for line in stops if line.config != line.against and not confirmed]
    settings = {line.config.name: line.settings for line in campaign.added}
    combined_or_best = {line.setting for line in combined} | {
        name for line in stops for name in settings.get(line.config, ())
    }
    return Result(
        baseline=campaign.head.configs[0].name, singles=singles, broken_off=broken_off,
        noise_floor=max(twins, key=lambda line: abs(math.log(line.ratio or 1.0)), default=None),
        combined=combined, ablated=ablated, confirmed=confirmed,
        interactions=[
            line for line in combined
            if line.setting in gained and line.decision == "dropped" and line.high is not None and line.high < 1
        ],
        failures=[line for line in lines if line.decision == "failed"], winner=winner,
        contributions={} if winner is None else {each: _contribution(each, winner, lines) for each in winner.settings},
        stopped=stops[-1].reason if stops else None,
        not_combined=[
            line.setting for line in singles
            if stops and line.setting and line.setting in gained and line.setting not in combined_or_best
        ],
        screened=len(against_baseline),
        undecided=[line.config for line in undecided],
        best_undecided=max(undecided, key=lambda line: line.ratio or 0.0, default=None),
        unconfirmed=unconfirmed[-1] if unconfirmed else None,
        unconfirmed_step=next(
            (line for line in reversed(lines) if line.config in unconfirmed[-1:] and line.ratio), None
        ),
        settings=len(asked.values) if (asked := campaign.plans[0].tune) is not None else None,
        left_out=[
            PrunedValue(value=line.setting, reason=line.reason) for line in lines
            if line.decision == LEFT_OUT and line.setting and line.setting not in {each.setting for each in singles}
        ],
        sizes_left_out=[line.plan for line in lines if line.decision == LEFT_OUT and not line.setting],
        finished=campaign.end is not None,
    )  # fmt: skip


def recorded_result_of(campaign: Campaign) -> Result:
    """What a search that no longer runs has decided: if it was interrupted or failed, no more than its steps."""
    result = result_of(campaign)
    regular = campaign.end is not None and campaign.end.status == 0
    return result if regular or result.stopped else replace(result, stopped="the search was interrupted")


def decision_of(line: TuneLine) -> str:
    """The decision of a step, for people: a setting that gains alone is not yet kept, and what is INCONCLUSIVE is open.

    Older records call the baseline compared with itself ``kept``, undecided ``dropped``.
    """
    if line.config.endswith(AGAIN):
        return NOISE
    if (line.phase, line.decision) == (SCREEN, "dropped") and line.reason.startswith(UNDECIDED):
        return UNDECIDED
    if (line.phase, line.decision, line.reason) == (CONFIRM, "rejected", Verdict.INCONCLUSIVE.value):
        return UNDECIDED
    return GAINED if (line.phase, line.decision) == (SCREEN, "kept") else line.decision


def _contribution(setting: str, winner: ConfigLine, lines: Sequence[TuneLine]) -> TuneLine | None:
    """The step that shows the effect of a winner's setting; see `Result`."""
    name = winner.config.name
    if len(winner.settings) == 1:
        return next(line for line in lines if line.decision == "accepted" and line.config == name)
    of_setting = [line for line in lines if line.setting == setting]
    taken_out = [line for line in of_setting if line.phase == ABLATE and line.config == name]
    found = taken_out or [line for line in of_setting if line.phase == SCREEN]
    return found[-1] if found else None
