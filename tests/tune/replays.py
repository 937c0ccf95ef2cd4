"""What a tuning's launches alone lead to: its strategy once more over its records, without what it had decided."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merge_bench.campaign.planned_launches import Job
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS, CampaignWriter
from merge_bench.tune.evaluator import Candidate, Options, Sample
from merge_bench.tune.search_steps import confirm_or_repair
from merge_bench.tune.space import Space
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import Budget, ClusterEvaluator

AuthorizedRequest = tuple[str, int, int | None]


@dataclass
class Replayed:
    """`campaign`: the copy with the decisions made anew; `asked`: the launches they took, as config, plan, block."""

    campaign: Campaign
    asked: list[AuthorizedRequest]


@dataclass
class _Recorded(ClusterEvaluator):
    """An evaluator that launches nothing."""

    asked: list[AuthorizedRequest] = field(default_factory=list)

    def _sample_of_launch(self, candidate: Candidate, plan: int, block: int) -> Sample:
        key = candidate.name(self.baseline), plan, block
        assert key in self._samples_by_launch, f"{key} is not recorded"
        self.asked.append(key)
        return super()._sample_of_launch(candidate, plan, block)


def replay(
    campaign: Campaign,
    folder: Path,
    space: Space,
    options: Options,
    *,
    strategy: str = "race",
    metric: str = "throughput",
) -> Replayed:
    """Decide again by the launches of `campaign`, in a copy under `folder`; AssertionError if one is missing."""
    copy = folder / campaign.folder.name
    copy.mkdir(parents=True)
    lines = campaign.records.read_bytes().splitlines(keepends=True)
    (copy / RECORDS).write_bytes(b"".join(line for line in lines if json.loads(line)["kind"] not in ("tune", "end")))

    def launch(job: Job, index: int) -> int:
        raise AssertionError(f"{job.config} would be launched")

    unused: Any = [None] * len(campaign.head.plans)
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
            budget=Budget(),
        )
        confirm_or_repair(strategies()[strategy].tune(space, space.values, evaluator, options), evaluator, options)
    return Replayed(read_campaign(copy), evaluator.asked)
