"""What a tuning's launches alone lead to: its strategy once more over its records, without what it had decided."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from merge_bench.analysis.compare import METRICS, Metric
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS, CampaignWriter
from merge_bench.tune.evaluator import Candidate, LaunchSample, SearchOptions
from merge_bench.tune.search_steps import confirm_or_repair
from merge_bench.tune.space import TuningSpace
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import ClusterEvaluator, TuningBudget

LaunchKey = tuple[str, int, int | None]
"""A launch's config, plan and block."""


@dataclass
class Replayed:
    """`campaign`: the copy with the decisions made anew; `asked`: the launches they took, as config, plan, block."""

    campaign: Campaign
    asked: list[LaunchKey]


@dataclass
class _Recorded(ClusterEvaluator):
    """An evaluator that notes which launches are asked for."""

    asked: list[LaunchKey] = field(default_factory=list)
    blocks: int = 0

    def make_block(
        self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True, reserved_confirmations: int = 1
    ) -> list[LaunchSample]:
        samples = super().make_block(
            candidates, plan=plan, search=search, reserved_confirmations=reserved_confirmations
        )
        self.asked += [(candidate.config_name(self.baseline), plan, self.blocks) for candidate in candidates]
        self.blocks += 1
        return samples


def replay(
    campaign: Campaign,
    folder: Path,
    space: TuningSpace,
    options: SearchOptions,
    *,
    strategy: str = "race",
    metric: Metric = METRICS[0],
) -> Replayed:
    """Decide again by the launches of `campaign`, in a copy under `folder`; AssertionError if one is missing."""
    copy = folder / campaign.folder.name
    copy.mkdir(parents=True)
    lines = campaign.records.read_bytes().splitlines(keepends=True)
    (copy / RECORDS).write_bytes(b"".join(line for line in lines if json.loads(line)["kind"] not in ("tune", "end")))

    def launch(job: PlannedLaunch, index: int) -> int:
        raise AssertionError(f"{job.config} is not recorded, and would be launched")

    unused: Any = [SimpleNamespace(settings=SimpleNamespace(environment={}))] * len(campaign.head.plans)
    with CampaignWriter.resume(copy) as writer:
        evaluator = _Recorded(
            writer=writer,
            baseline=campaign.head.configs[0].name,
            text="",
            prepared=unused,
            load=lambda path: unused,
            launch=launch,
            metric=metric,
            seed=campaign.head.seed or 0,
            budget=TuningBudget(),
        )
        confirm_or_repair(strategies()[strategy].tune(space, space.values, evaluator, options), evaluator, options)
    return Replayed(read_campaign(copy), evaluator.asked)
