"""What a tuning came to, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from merge_bench.record.campaign import Campaign
from merge_bench.record.schema import ConfigLine, TuneLine
from merge_bench.tune.confirm import CONFIRM
from merge_bench.tune.strategies.race import ABLATE, COMBINE, SCREEN


@dataclass(frozen=True)
class Result:
    """`winner`: the config that was confirmed; None where nothing beats the baseline, or nothing was confirmed yet.

    `contributions`: of each setting of the winner, the step that tells what it is worth (its ablation, or where it is
    the only one, the confirmation). `interactions`: settings that gain alone and lose together.
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
    contributions: Mapping[str, TuneLine]

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
                "contributions": {name: plain(line) for name, line in self.contributions.items()},
            },
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
    twin = next((line for line in of_phase[SCREEN] if line.config.endswith(" again")), None)
    accepted = [line for line in of_phase[CONFIRM] if line.decision == "accepted"]
    winner = None
    if accepted:
        winner = next((each for each in campaign.added if each.config.name == accepted[-1].config), None)
    contributions: dict[str, TuneLine] = {}
    if winner is not None:
        for setting in winner.settings:
            found = [line for line in of_phase[ABLATE] if line.setting == setting and line.decision == "kept"]
            contributions[setting] = found[-1] if found else accepted[0]
    gained = {line.setting for line in singles if line.decision == "kept"}
    hurts = tuple(
        line for line in of_phase[COMBINE]
        if line.setting in gained and line.decision == "dropped" and line.high is not None and line.high < 1
    )  # fmt: skip
    failed = tuple(line for line in lines if line.decision == "failed")
    return Result(
        campaign.head.configs[0].name, singles, twin, of_phase[COMBINE], of_phase[ABLATE], of_phase[CONFIRM], hurts,
        failed, winner, contributions,
    )  # fmt: skip
