"""What a tuning came to, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ConfigLine, TuneLine
from merge_bench.tune.bench import AGAIN
from merge_bench.tune.confirm import CONFIRM
from merge_bench.tune.duel import UNDECIDED
from merge_bench.tune.steps import ABLATE, COMBINE, SCREEN

STOPPED = "stopped"
"""The decision of the line that says that the budget was spent before the search was done."""


@dataclass(frozen=True)
class Result:
    """`winner`: the config that was confirmed; None where nothing beats the baseline, or nothing was confirmed yet.

    `contributions`: of each setting of the winner, the step that tells what it is worth: its ablation out of the
    winner; where it is the only one, the confirmation; where neither was made, itself alone. `interactions`:
    settings that gain alone and lose together. `screened`: how many candidates were held against the baseline, and
    `undecided`: those of them that many blocks could not judge. `stopped`: why the search ended before its time.
    """

    baseline: str
    singles: tuple[TuneLine, ...]
    twin: TuneLine | None
    combined: tuple[TuneLine, ...]
    ablated: tuple[TuneLine, ...]
    confirmed: tuple[TuneLine, ...]
    interactions: tuple[TuneLine, ...]
    failures: tuple[TuneLine, ...]
    winner: ConfigLine | None
    contributions: Mapping[str, TuneLine | None]
    stopped: str | None = None
    screened: int = 0
    undecided: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """What came out, as a heading."""
        if self.winner is not None:
            return "Found: " + " ".join(self.winner.settings)
        if self.confirmed:
            return f"Nothing beats {self.baseline}: what was found was not confirmed"
        if self.stopped:
            return f"Nothing found that beats {self.baseline}, as far as the budget went"
        if self.undecided:
            return (
                f"Nothing found that beats {self.baseline}: {len(self.undecided)} of {self.screened} candidates stayed"
                " undecided"
            )
        return f"Nothing beats {self.baseline}"

    @property
    def confirmation(self) -> tuple[TuneLine, ...]:
        """The last confirmation, a line for each size."""
        if not self.confirmed:
            return ()
        last = self.confirmed[-1].config
        return tuple(line for line in self.confirmed if line.config == last)

    def to_json(self) -> dict[str, Any]:
        """The document of ``tune --json``, as far as it is about the outcome."""
        plain = msgspec.to_builtins
        return {
            "winner": None if self.winner is None else {
                "config": self.winner.config.name, "settings": list(self.winner.settings),
                "contributions": {
                    name: plain(line) if line else None for name, line in self.contributions.items()
                },
            },
            "stopped": self.stopped, "undecided": list(self.undecided),
            "noise_floor": plain(self.twin) if self.twin else None,
            "singles": [plain(line) for line in self.singles], "combined": [plain(line) for line in self.combined],
            "ablated": [plain(line) for line in self.ablated], "confirmed": [plain(line) for line in self.confirmed],
            "interactions": [plain(line) for line in self.interactions],
            "failures": [plain(line) for line in self.failures],
        }  # fmt: skip


def result_of(campaign: Campaign) -> Result:
    """Put a campaign's steps together."""
    lines = campaign.tuning
    of_phase = {
        phase: tuple(line for line in lines if line.phase == phase) for phase in (SCREEN, COMBINE, ABLATE, CONFIRM)
    }
    singles = tuple(line for line in of_phase[SCREEN] if line.setting is not None)
    twin = next((line for line in of_phase[SCREEN] if line.config.endswith(AGAIN)), None)
    accepted = [line for line in of_phase[CONFIRM] if line.decision == "accepted"]
    winner = None
    if accepted:
        winner = next((each for each in campaign.added if each.config.name == accepted[-1].config), None)
    contributions: dict[str, TuneLine | None] = {}
    if winner is not None:
        for setting in winner.settings:
            contributions[setting] = _contribution(setting, winner, lines, accepted)
    gained = {line.setting for line in singles if line.decision == "kept"}
    hurts = tuple(
        line for line in of_phase[COMBINE]
        if line.setting in gained and line.decision == "dropped" and line.high is not None and line.high < 1
    )  # fmt: skip
    failed = tuple(line for line in lines if line.decision == "failed")
    screened = [line for line in of_phase[SCREEN] if line is not twin]
    undecided = tuple(
        line.config for line in screened if line.decision == "dropped" and line.reason.startswith(UNDECIDED)
    )
    return Result(
        campaign.head.configs[0].name, singles, twin, of_phase[COMBINE], of_phase[ABLATE], of_phase[CONFIRM], hurts,
        failed, winner, contributions, next((line.reason for line in lines if line.decision == STOPPED), None),
        len(screened), undecided,
    )  # fmt: skip


def _contribution(
    setting: str, winner: ConfigLine, lines: Sequence[TuneLine], accepted: Sequence[TuneLine]
) -> TuneLine | None:
    if len(winner.settings) == 1:
        return next(line for line in accepted if line.config == winner.config.name)
    name = winner.config.name
    taken_out = [line for line in lines if line.phase == ABLATE and line.setting == setting and line.config == name]
    alone = [line for line in lines if line.phase == SCREEN and line.setting == setting]
    found = taken_out or alone
    return found[-1] if found else None
