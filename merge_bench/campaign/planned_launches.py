"""The planned launches of a campaign: its head, one job for each launch, and the order of the launches of a sweep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.run_options import refuse_more_launches
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.records.campaign import labels
from merge_bench.records.schema import Config, RunKey

_T = TypeVar("_T")


@dataclass(frozen=True)
class Head:
    """The configs, plans, runs and seed of a campaign, as the first record has them."""

    configs: Sequence[Config]
    plans: Sequence[dict[str, Any]]
    runs: Sequence[RunKey]
    seed: int


@dataclass(frozen=True)
class Job:
    """One launch to make.

    `config`: the name of its config in the campaign; `plan`: the index of its plan; `block`: the number of its block,
    in which every run is launched once; `label`: the name that distinguishes its run from the others.
    """

    prepared: PlannedRun
    config: str
    plan: int = 0
    block: int = 0
    label: str = ""


def order_in_blocks(runs: Sequence[_T], *, blocks: int, seed: int) -> list[tuple[int, _T]]:
    """Every run once in each block, with the block's number from 0, in a random order that only `seed` decides."""
    launches = []
    for block in range(blocks):
        order = list(runs)
        random.Random(f"{seed}/{block}").shuffle(order)
        launches += [(block, run) for run in order]
    return launches


def add_config(configs: list[Config], config: Config) -> None:
    """Append a config to those of a campaign, which all have different names.

    Raises
    ------
    UsageError
        If another config has this name: files of one name in different folders, or one file twice.
    """
    for other in configs:
        if other.name == config.name:
            where = f"{other.path} and {config.path}" if other.path != config.path else f"{config.path}, twice"
            raise UsageError(
                f"two configs have the name {config.name} ({where}); give every config of a campaign a different name"
            )
    configs.append(config)


@dataclass(frozen=True)
class Sweep:
    """The runs of a campaign: configs and plans as in the records, and the planned run of each (config, plan index)."""

    configs: list[Config] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    prepared: dict[tuple[str, int], PlannedRun] = field(default_factory=dict)

    def add(self, planned: Sequence[PlannedRun], config: Config) -> None:
        """Add a config with its plans.

        Raises
        ------
        UsageError
            If another config has this name, another results folder or another number of launches, or if a running
            cluster would have to be launched more than once.
        """
        add_config(self.configs, config)
        for run in planned:
            plan = run.plan.to_json()
            if plan not in self.plans:
                self.plans.append(plan)
            self.prepared[config.name, self.plans.index(plan)] = run
        if len({each.plan.launches for each in self.prepared.values()}) > 1:
            raise UsageError(
                "the configs set different numbers of launches; use --launches N to launch each config N times"
            )
        if len({each.settings.results for each in self.prepared.values()}) > 1:
            raise UsageError("the configs set different folders for results; choose one folder with --results")
        for run in self.prepared.values():
            refuse_more_launches(run.settings.launcher, len(self.prepared))

    @property
    def first(self) -> PlannedRun:
        """The first run, which is of the baseline config."""
        return next(iter(self.prepared.values()))

    @property
    def options(self) -> RunOptions:
        """The options of the first run, which also apply to the whole campaign."""
        return self.first.options

    @property
    def results(self) -> Path:
        """The folder that campaigns are written to."""
        return self.first.settings.results

    def run_labels(self) -> dict[tuple[str, int], str]:
        """The name of each run that distinguishes it from the others."""
        runs = [(config, self.plans[plan]) for config, plan in self.prepared]
        return dict(zip(self.prepared, labels(runs), strict=True))

    @property
    def labels(self) -> list[str]:
        """The distinct labels of the runs that are compared, such as names of configs, or of engines and exchanges."""
        return list(dict.fromkeys(self.run_labels().values()))

    def head(self) -> Head:
        """The configs, plans, runs and seed for the first record."""
        keys = [RunKey(config=config, plan=plan) for config, plan in self.prepared]
        return Head(self.configs, self.plans, keys, self.first.plan.seed)

    def jobs(self) -> list[Job]:
        """The launches to make in their order: every run once in each block."""
        plan = self.first.plan
        order = order_in_blocks(list(self.prepared.items()), blocks=plan.launches, seed=plan.seed)
        run_labels = self.run_labels()
        return [Job(prepared, *key, block, run_labels[key]) for block, (key, prepared) in order]
