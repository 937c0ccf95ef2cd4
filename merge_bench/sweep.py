"""Which launches a `run` of several configs or sizes makes, and in which order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.launching import Head, Job
from merge_bench.record.schema import Config, RunKey
from merge_bench.setup import Prepared


@dataclass(frozen=True)
class Sweep:
    """Configs, plans as the records name them, and what each (config, plan index) needs to begin.

    `options`: the effective options of the first config, for what is about the whole.
    """

    configs: list[Config]
    plans: list[dict[str, Any]]
    prepared: dict[tuple[str, int], Prepared]
    options: dict[str, object]

    def add(self, found: list[Prepared], config: Config) -> None:
        """Take a config with its plans in.

        Raises
        ------
        UsageError
            If another config has its name, or other results or launches.
        """
        if config.name in [other.name for other in self.configs]:
            raise UsageError(f"two configs are called {config.name}; rename one of them")
        self.configs.append(config)
        for each in found:
            plan = each.plan.to_json()
            if plan not in self.plans:
                self.plans.append(plan)
            self.prepared[config.name, self.plans.index(plan)] = each
        if len({each.plan.launches for each in self.prepared.values()}) > 1:
            raise UsageError("the configs ask for different numbers of launches; say --blocks")
        if len({each.settings.results for each in self.prepared.values()}) > 1:
            raise UsageError("the configs name different folders for results; say --results")

    @property
    def first(self) -> Prepared:
        """The baseline's first plan."""
        return next(iter(self.prepared.values()))

    @property
    def results(self) -> Path:
        """The folder that campaigns are written to."""
        return self.first.settings.results

    def head(self) -> Head:
        """What the records begin with."""
        keys = [RunKey(config=config, plan=plan) for config, plan in self.prepared]
        return Head(self.configs, self.plans, keys, self.first.plan.seed)

    def jobs(self) -> list[Job]:
        """Block by block, every config and plan once, in an order that only the seed decides."""
        found = []
        for block in range(self.first.plan.launches):
            each = list(self.prepared.items())
            random.Random(f"{self.first.plan.seed}/{block}").shuffle(each)
            found += [Job(prepared, config, plan, block) for (config, plan), prepared in each]
        return found
