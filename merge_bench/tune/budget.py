"""What fits the time that a tuning may take: decided before the first launch, from how long launches take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from merge_bench.errors import UsageError
from merge_bench.tune.evaluator import Options
from merge_bench.tune.space import Value
from merge_bench.units import format_duration

_SPARE = 1.2
"""Of a budget that is advised: no two launches take the same time."""


@dataclass(frozen=True)
class Costs:
    """Launches of a tuning, and their time.

    `launch`: seconds of a launch at each size; `first_block`: launches of the first block with these values;
    `confirm`: blocks of the confirmation.
    """

    launch: Sequence[float]
    first_block: Callable[[Sequence[Value]], int]
    confirm: int

    def search(self, values: Sequence[Value]) -> float:
        """Seconds until each of `values` can be judged: the least number of blocks."""
        return Options.least * self.first_block(values) * self.launch[0]

    def confirmation(self, sizes: int | None = None) -> float:
        """Seconds of one confirmation at the first `sizes`, by default at all."""
        return 2 * self.confirm * sum(self.launch[: len(self.launch) if sizes is None else sizes])


@dataclass(frozen=True)
class Fitting:
    """What is tried: `values`, confirmed at the first `sizes`."""

    values: tuple[Value, ...]
    sizes: int


def fit(values: Sequence[Value], costs: Costs, budget: float) -> Fitting:
    """As many of the first `values` as can be judged, and one confirmed, within `budget` seconds.

    Sizes of the confirmation are left out, the last first, if not all values fit with them.

    Raises
    ------
    UsageError
        If one value at one size does not fit; with a budget that suffices even if launches become slower by `_SPARE`.
    """
    fewer = [(len(values), sizes) for sizes in range(len(costs.launch), 1, -1)]
    fewer += [(count, 1) for count in range(len(values), 0, -1)]
    for count, sizes in fewer:
        if costs.search(values[:count]) + costs.confirmation(sizes) <= budget:
            return Fitting(tuple(values[:count]), sizes)
    least = costs.search(values[:1]) + costs.confirmation(1)
    launches = Options.least * costs.first_block(values[:1]) + 2 * costs.confirm
    raise UsageError(
        f"--budget {_typed(budget)} is too short to judge and confirm even one setting, which takes {launches}"
        f" launches of about {format_duration(costs.launch[0])}; use --budget {upwards(_SPARE * least)} or more, or"
        " a smaller --chunk or --confirm"
    )


def _typed(seconds: float) -> str:
    """A duration as the option takes it: ``90s``, ``3m``."""
    return f"{seconds / 60:g}m" if seconds >= 120 else f"{seconds:g}s"


def upwards(seconds: float) -> str:
    """A duration as the option takes it, rounded up to ten seconds or half a minute: ``90s``, ``3.5m``."""
    return _typed(math.ceil(seconds / 10) * 10 if seconds <= 110 else math.ceil(seconds / 30) * 30)
