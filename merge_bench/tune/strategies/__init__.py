"""Ways to search a space, one file each behind `bench.Strategy`."""

from __future__ import annotations

import importlib

from merge_bench.tune.bench import Strategy

NAMES = ("race", "one-at-a-time", "exhaustive")


def make_strategy(name: str) -> Strategy:
    """The strategy of this name."""
    module = importlib.import_module(f"merge_bench.tune.strategies.{name.replace('-', '_')}")
    made: Strategy = module.make()
    return made
