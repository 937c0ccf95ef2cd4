"""What a campaign will do: its head, one job for each launch, and the order of a `run` of several configs or sizes."""

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
    """The part of the records' first line that says what will be done."""

    configs: Sequence[Config]
    plans: Sequence[dict[str, Any]]
    runs: Sequence[RunKey]
    seed: int


@dataclass(frozen=True)
class Job:
    """One launch to make: of which config (by its name in the campaign) and plan (by its index), in which block.

    `label`: what its run is called beside the others.
    """

    prepared: PlannedRun
    config: str
    plan: int = 0
    block: int = 0
    label: str = ""


def in_blocks(runs: Sequence[_T], *, blocks: int, seed: int) -> list[tuple[int, _T]]:
    """Block by block (from 0) all `runs`, in an order that only the seed decides: the same on every machine."""
    launches = []
    for block in range(blocks):
        order = list(runs)
        random.Random(f"{seed}/{block}").shuffle(order)
        launches += [(block, run) for run in order]
    return launches


def add_config(configs: list[Config], config: Config) -> None:
    """Append a config to those of a campaign, where each has a name of its own.

    Raises
    ------
    UsageError
        If another one has this name: two files of one name in different folders, or one file twice.
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
    """Configs, plans as the records name them, and what each (config, plan index) needs to begin."""

    configs: list[Config] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    prepared: dict[tuple[str, int], PlannedRun] = field(default_factory=dict)

    def add(self, planned: Sequence[PlannedRun], config: Config) -> None:
        """Add a config with its plans.

        Raises
        ------
        UsageError
            If another config has its name, or other results or launches, or a running cluster would have to be launched
            more than once.
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
        """The baseline's first plan."""
        return next(iter(self.prepared.values()))

    @property
    def options(self) -> RunOptions:
        """The options of the first run, for what is about the whole."""
        return self.first.options

    @property
    def results(self) -> Path:
        """The folder that campaigns are written to."""
        return self.first.settings.results

    def named(self) -> dict[tuple[str, int], str]:
        """What each run is called beside the others."""
        runs = [(config, self.plans[plan]) for config, plan in self.prepared]
        return dict(zip(self.prepared, labels(runs), strict=True))

    @property
    def labels(self) -> list[str]:
        """The names of what is compared, each once: configs, or engines and exchanges."""
        return list(dict.fromkeys(self.named().values()))

    def head(self) -> Head:
        """What the records begin with."""
        keys = [RunKey(config=config, plan=plan) for config, plan in self.prepared]
        return Head(self.configs, self.plans, keys, self.first.plan.seed)

    def jobs(self) -> list[Job]:
        """In each block every config with every plan once."""
        plan = self.first.plan
        order = in_blocks(list(self.prepared.items()), blocks=plan.launches, seed=plan.seed)
        named = self.named()
        return [Job(prepared, *key, block, named[key]) for block, (key, prepared) in order]
