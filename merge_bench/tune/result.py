"""The outcome of a tuning, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.documents.tune import PrunedValue, TuneDocument, Winner
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ConfigLine, TuneLine
from merge_bench.tune.evaluator import ABLATE, AGAIN, COMBINE, CONFIRM, NOISE, SCREEN
from merge_bench.tune.head_to_head import UNDECIDED

STOPPED = "stopped"
"""The decision of the line that the search ends with if the budget is spent before."""
LEFT_OUT = "left out"
"""The decision of the line of a setting, or of a size, that the budget has no time for."""


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
    interactions
        Settings that gain alone and lose together.
    noise_floor
        The step that compared the baseline with itself.
    stopped
        Why the search ended early.
    screened
        How many candidates were compared with the baseline.
    undecided
        Those of them that could not be judged with the blocks that were made.
    left_out
        Settings that were not tried, and sizes that were not confirmed, because the budget has no time for them.
    """

    baseline: str
    singles: list[TuneLine]
    noise_floor: TuneLine | None
    combined: list[TuneLine]
    ablated: list[TuneLine]
    confirmed: list[TuneLine]
    interactions: list[TuneLine]
    failures: list[TuneLine]
    winner: ConfigLine | None
    contributions: dict[str, TuneLine | None]
    stopped: str | None
    screened: int
    undecided: list[str]
    left_out: list[PrunedValue]

    @property
    def outcome(self) -> str:
        """The outcome, as a heading."""
        if self.winner is not None:
            return "Found: " + " ".join(self.winner.settings)
        if self.confirmed:
            return f"No config is faster than {self.baseline}: the best candidate was not confirmed"
        if self.undecided:
            more = "; a larger budget may decide them" if self.stopped else ""
            return (
                f"Found no config faster than {self.baseline}: {len(self.undecided)} of {self.screened} candidates are"
                f" undecided{more}"
            )
        if self.stopped:
            return f"Found no config faster than {self.baseline} before the budget was used up"
        return f"No config is faster than {self.baseline}"

    @property
    def confirmation(self) -> list[TuneLine]:
        """The last confirmation, a line for each size."""
        return [line for line in self.confirmed if line.config == self.confirmed[-1].config]

    def document(
        self, records: Path, written: Path | None, pruned: Sequence[PrunedValue], error: Failure | None
    ) -> TuneDocument:
        """The document of ``tune --json``; `written`: the file of the config that was found."""
        won = self.winner
        return TuneDocument(
            records=str(records), config=None if written is None else str(written), pruned=list(pruned), error=error,
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
    singles = [line for line in screened if line.setting is not None]
    twin = next((line for line in screened if line.config.endswith(AGAIN)), None)
    accepted = [line.config for line in confirmed if line.decision == "accepted"]
    winner = next((each for each in campaign.added if each.config.name in accepted[-1:]), None)
    gained = {line.setting for line in singles if line.decision == "kept"}
    against_baseline = [line for line in screened if line is not twin]
    return Result(
        baseline=campaign.head.configs[0].name, singles=singles, noise_floor=twin, combined=combined, ablated=ablated,
        confirmed=confirmed,
        interactions=[
            line for line in combined
            if line.setting in gained and line.decision == "dropped" and line.high is not None and line.high < 1
        ],
        failures=[line for line in lines if line.decision == "failed"], winner=winner,
        contributions={} if winner is None else {each: _contribution(each, winner, lines) for each in winner.settings},
        stopped=next((line.reason for line in reversed(lines) if line.decision == STOPPED), None),
        screened=len(against_baseline),
        undecided=[
            line.config for line in against_baseline
            if line.decision == "dropped" and line.reason.startswith(UNDECIDED)
        ],
        left_out=[
            PrunedValue(value=line.setting or f"confirmation at size {line.plan + 1}", reason=line.reason)
            for line in lines if line.decision == LEFT_OUT
        ],
    )  # fmt: skip


def decision_of(line: TuneLine) -> str:
    """The decision of a step; older records call the baseline compared with itself ``kept``."""
    return NOISE if line.config.endswith(AGAIN) else line.decision


def _contribution(setting: str, winner: ConfigLine, lines: Sequence[TuneLine]) -> TuneLine | None:
    """The step that shows the effect of a winner's setting; see `Result`."""
    name = winner.config.name
    if len(winner.settings) == 1:
        return next(line for line in lines if line.decision == "accepted" and line.config == name)
    of_setting = [line for line in lines if line.setting == setting]
    taken_out = [line for line in of_setting if line.phase == ABLATE and line.config == name]
    found = taken_out or [line for line in of_setting if line.phase == SCREEN]
    return found[-1] if found else None
