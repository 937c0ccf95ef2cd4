"""An evaluator without a cluster: recorded launches are given again, so that strategies can be tested."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.analysis.compare import METRICS
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import AGAIN, BudgetSpent, Candidate, LaunchSample
from merge_bench.tune.space import SettingValue

Recorded = Mapping[frozenset[str], Sequence[float | None]]
"""By the ids of a candidate's values: the metric of its launch in each block, None where it failed."""


class ReplayEvaluator:
    """Gives the launches of a recorded full factorial, block by block; after the last block the first comes again.

    `launches` counts what a real evaluator would have made. The baseline's twin gets the baseline's launches of other
    blocks, as there is none of its own.
    """

    def __init__(self, recorded: Recorded, *, most_launches: int | None = None, offset: int = 0) -> None:
        self.recorded, self.most_launches = recorded, most_launches
        self.baseline, self.plan_count = "default", 1
        self.launches, self._block = 0, offset
        self.timed: Sequence[tuple[LaunchSample, LaunchSample]] = ()
        self.notes: list[TuningStepLine] = []

    def make_block(
        self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True, reserved_confirmations: int = 1
    ) -> list[LaunchSample]:
        """The samples of the next block."""
        if search and self.most_launches is not None and self.launches + len(candidates) > self.most_launches:
            raise BudgetSpent("the budget of launches is spent")
        self.launches += len(candidates)
        found = [self._sample(candidate) for candidate in candidates]
        self._block += 1
        return found

    @property
    def has_budget_limit(self) -> bool:
        """Whether there is a budget."""
        return self.most_launches is not None

    def joining_values(self, pending_launches: int) -> Sequence[SettingValue]:
        """None: the budget is one of launches."""
        return ()

    def record_step(self, line: TuningStepLine) -> None:
        """Keep the line."""
        self.notes.append(line)

    def _sample(self, candidate: Candidate) -> LaunchSample:
        ids = frozenset(value.id for value in candidate.values)
        if ids not in self.recorded:
            raise UsageError(f"nothing was recorded of {candidate.config_name(self.baseline)}")
        values = self.recorded[ids]
        at = self._block + (len(values) // 2 if candidate.twin else 0)
        value = values[at % len(values)]
        return LaunchSample(value, "" if value is not None else "the recorded launch failed")


def recorded_in(
    campaign: Campaign, *, metric: str = "throughput", plan: int = 0
) -> dict[frozenset[str], list[float | None]]:
    """The launches of a campaign of `tune`, by settings, in the order of their blocks; without the baseline's twin."""
    of_launch = next(each.launch_value for each in METRICS if each.name == metric)
    settings = {line.config.name: frozenset(line.settings) for line in campaign.added}
    settings.pop(campaign.head.configs[0].name + AGAIN, None)
    settings[campaign.head.configs[0].name] = frozenset()
    found: dict[frozenset[str], dict[int, float | None]] = {}
    for run in campaign.runs:
        if run.config.name not in settings:
            continue
        for launch in run.launches:
            if launch.run_key is not None and launch.run_key[1] == plan and launch.block_index is not None:
                value = of_launch(launch) if launch.complete else None
                found.setdefault(settings[run.config.name], {})[launch.block_index] = value
    return {ids: [blocks[block] for block in sorted(blocks)] for ids, blocks in found.items()}


def read_recorded(path: Path) -> dict[frozenset[str], list[float | None]]:
    """A full factorial from CSV with the columns ``settings`` (ids with spaces between), ``block``, ``value``."""
    found: dict[frozenset[str], list[float | None]] = {}
    with path.open(newline="") as stream:
        for row in sorted(csv.DictReader(stream), key=lambda row: int(row["block"])):
            value = float(row["value"]) if row["value"] else None
            found.setdefault(frozenset(row["settings"].split()), []).append(value)
    return found
