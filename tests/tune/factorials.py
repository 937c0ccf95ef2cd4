"""Full factorials with known effects: what a strategy must find in them is known."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from merge_bench.tune.space import Setting, SettingValue, TuningSpace

BLOCKS = 24


def value(name: str) -> SettingValue:
    """A setting with one value."""
    return SettingValue(name, "y", ((f"UCX_{name.upper()}", "y"),))


def space_of(names: Sequence[str], conflicts: Mapping[str, tuple[str, ...]] | None = None) -> TuningSpace:
    """A space of settings with one value each."""
    declared = conflicts or {}
    return TuningSpace(
        tuple(Setting(name, (value(name),), conflicts=declared.get(name, ())) for name in names), "0" * 64
    )


@dataclass(frozen=True)
class Truth:
    """What settings do: `gains` alone, as ratios; `together`: what a combination does beyond the product of its parts.

    `spread`: standard deviation of the logarithm of one launch; `drift`: that of what a block does to all its launches;
    `outliers`: the share of launches that are slower by 5 to 30 %. `crashes`: settings that fail, and how often.
    """

    gains: Mapping[str, float]
    together: Mapping[frozenset[str], float] = field(default_factory=dict)
    spread: float = 0.02
    drift: float = 0.05
    outliers: float = 0.03
    crashes: Mapping[str, float] = field(default_factory=dict)

    @property
    def space(self) -> TuningSpace:
        """The space of these settings."""
        return space_of(tuple(self.gains))

    def speed(self, names: frozenset[str]) -> float:
        """The true ratio of a combination to the baseline."""
        product = math.prod(self.gains[name] for name in names)
        return product * math.prod(factor for parts, factor in self.together.items() if parts <= names)

    @property
    def best(self) -> frozenset[str]:
        """The fastest combination; of equally fast ones the smallest."""
        return max(self._all(), key=lambda names: (round(self.speed(names), 9), -len(names)))

    def recorded(self, seed: int) -> dict[frozenset[str], list[float | None]]:
        """Launches of every combination, by the ids of its values."""
        rng = random.Random(seed)
        blocks = [rng.gauss(0.0, self.drift) for _ in range(BLOCKS)]
        return {
            frozenset(f"{name}=y" for name in names): [self._launch(names, block, rng) for block in blocks]
            for names in self._all()
        }

    def _launch(self, names: frozenset[str], block: float, rng: random.Random) -> float | None:
        if any(rng.random() < self.crashes.get(name, 0.0) for name in sorted(names)):
            return None
        slow = math.log(1 - rng.uniform(0.05, 0.30)) if rng.random() < self.outliers else 0.0
        return 1e9 * self.speed(names) * math.exp(block + rng.gauss(0.0, self.spread) + slow)

    def _all(self) -> list[frozenset[str]]:
        names = list(self.gains)
        return [frozenset(chosen) for size in range(len(names) + 1) for chosen in itertools.combinations(names, size)]
