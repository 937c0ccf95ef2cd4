"""Campaigns of tuning without a cluster: launches that write real records, and may be cut off."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from merge_bench.analysis.compare import METRICS
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch, make_campaign_line
from merge_bench.campaign.resume import write_ends_of_killed_launches
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.evaluator import AGAIN, Candidate, SearchOptions
from merge_bench.tune.search_steps import confirm_or_repair
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import ClusterEvaluator, TuningBudget
from tests.helpers.synthetic_campaigns import Script, plan, write_launch, write_start
from tests.tune.factorials import Truth
from tests.tune.replay_evaluator import Recorded

TRUTH = Truth({"a": 1.5, "b": 1.2, "c": 1.0}, spread=0.01, outliers=0.0)
SPEED = TRUTH.recorded(5)
OPTIONS = SearchOptions(confirm=7)
PLANS = [plan(), plan(rows_per_chunk=25_000_000)]


class Cut(BaseException):
    """The driver is gone."""


@dataclass
class _Plan:
    rows_per_chunk: int


@dataclass
class _Settings:
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class _Prepared:
    plan: _Plan
    settings: _Settings = field(default_factory=_Settings)


PREPARED = cast("list[PlannedRun]", [_Prepared(_Plan(1_000_000)), _Prepared(_Plan(25_000_000))])


def begin(folder: Path, *words: str, **asked: Any) -> CampaignWriter:
    """A campaign with a baseline and two sizes; `words`, `asked`: its command line, and options of it in its plans."""
    writer = CampaignWriter.create(folder, "tune")
    keys = [s.RunKey(config="default", plan=number) for number in range(2)]
    plans = [{**each, "tune": asked} for each in PLANS] if asked else PLANS
    head = make_campaign_line([s.Config(name="default")], plans, keys, 7)
    argv = ["/opt/merge_bench/__main__.py", "tune", *words]
    writer.write(msgspec.structs.replace(head, campaign_id=writer.campaign_id, argv=argv, version="0"))
    return writer


def reopened(folder: Path) -> CampaignWriter:
    """As `reopen_newest_campaign` does."""
    writer = CampaignWriter.resume(folder)
    write_ends_of_killed_launches(writer, read_campaign(folder))
    return writer


@dataclass
class Cluster:
    """Launches that write what real ones write, as fast as `speed` says. The launch number `cut` does not end.

    `where`: ``before`` its first line, in the ``middle``, in a ``half`` line, or ``after`` its last.
    """

    writer: CampaignWriter
    cut: int | None = None
    where: str = "middle"
    how: type[BaseException] = Cut
    made: int = 0
    speed: Recorded = field(default_factory=lambda: SPEED)
    seconds: float = 4.0

    def launch(self, job: PlannedLaunch, index: int) -> int:
        settings = frozenset(part for part in job.config.split("+") if "=" in part)
        values = self.speed[settings]
        speed = values[job.block % len(values)]
        assert speed is not None
        wall = 1e9 / speed
        script = Script(
            index=index,
            config=job.config,
            plan_index=job.plan,
            plan=PLANS[job.plan],
            block=job.block,
            walls=(wall, wall, wall),
            measure_link=False,
            seconds=self.seconds,
        )
        now = self.made == self.cut
        self.made += 1
        if now and self.where == "before":
            raise self.how("cut")
        if now and self.where in ("middle", "half"):
            write_start(self.writer, script)
            if self.where == "half":
                with self.writer.records.open("ab") as stream:
                    stream.write(b'{"kind":"iterat')
            raise self.how("cut")
        write_launch(self.writer, script)
        if now:
            raise self.how("cut")
        return 0


def evaluator_of(writer: CampaignWriter, launch: Any, **changes: Any) -> ClusterEvaluator:
    given: dict[str, Any] = {
        "writer": writer,
        "baseline": "default",
        "text": "",
        "prepared": PREPARED,
        "load": lambda path: PREPARED,
        "launch": launch,
        "metric": METRICS[0],
        "seed": 7,
        "budget": TuningBudget(),
    }
    return ClusterEvaluator(**{**given, **changes})


def search(evaluator: ClusterEvaluator) -> Candidate:
    found = strategies()["race"].tune(TRUTH.space, TRUTH.space.values, evaluator, OPTIONS)
    return confirm_or_repair(found, evaluator, OPTIONS)


def steps(campaign: Campaign) -> list[s.TuningStepLine]:
    return [msgspec.structs.replace(line, time=0.0) for line in campaign.tuning]


def made(campaign: Campaign) -> Counter[tuple[str, int, int | None]]:
    """How often each launch was made to its end."""
    return Counter(
        (*launch.run_key, launch.block_index) for launch in campaign.launches if launch.run_key and launch.complete
    )


def failing(writer: CampaignWriter, config: str, code: str, message: str) -> Any:
    cluster = Cluster(writer)

    def launch(job: PlannedLaunch, index: int) -> int:
        if job.config.removesuffix(AGAIN) != config:
            return cluster.launch(job, index)
        writer.write(
            s.FailureLine(launch=index, config=job.config, plan=job.plan, block=job.block, code=code, message=message)
        )
        writer.write(s.LaunchEndLine(launch=index, status=3, seconds=1.0))
        return 3

    return launch
