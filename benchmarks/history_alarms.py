"""How often `history` reports a shift that is not there, and how soon and where one that is there.

    python -m benchmarks.history_alarms [--series 1000] [--launches 1,5] [--only normal,heavy]

Made-up results, fed one at a time: no cluster is started. The default takes a quarter of an hour of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from merge_bench.analysis.history.shifts import find_shifts

NOISE = 0.02
"""From launch to launch."""
LOSS, SOON = 0.05, 5
"""The shift that is to be found, and within how many results."""
SHORTEST, LONGEST = 30, 400
BEFORE = 20
"""Results before a shift, at least."""

Random: TypeAlias = np.random.Generator
Launches: TypeAlias = NDArray[np.float64]
"""Logarithms of values, a row a result."""


def normal(random: Random, results: int, launches: int) -> Launches:
    """Normal noise."""
    return random.normal(0.0, NOISE, (results, launches))


def heavy(random: Random, results: int, launches: int) -> Launches:
    """Student's t with 3 degrees of freedom, for launches and for whole nights."""
    launch, night = random.standard_t(3, (results, launches)), random.standard_t(3, (results, 1))
    return np.asarray(NOISE * (launch + night))


def outliers(random: Random, results: int, launches: int) -> Launches:
    """Every twentieth night is far off, by 10 to 50 %."""
    off = random.uniform(0.1, 0.5, (results, 1)) * random.choice([-1.0, 1.0], (results, 1))
    return np.asarray(normal(random, results, launches) + off * (random.random((results, 1)) < 0.05))


def drift(random: Random, results: int, launches: int) -> Launches:
    """The host gets faster or slower within a night, by up to 10 %; one launch is made anywhere in it."""
    slope = random.uniform(-0.1, 0.1, (results, 1))
    place = random.random((results, 1)) if launches == 1 else np.linspace(0.0, 1.0, launches)
    return np.asarray(normal(random, results, launches) + slope * place)


FAMILIES: Mapping[str, Callable[[Random, int, int], Launches]] = {
    each.__name__: each for each in (normal, heavy, outliers, drift)
}


def values(launches: Launches) -> list[float]:
    """The results: medians over launches."""
    return [float(value) for value in np.exp(np.median(launches, axis=1))]


def false_alarms(family: str, series: int, launches: int, seed: int) -> int:
    """In how many of so many unchanged `series` any shift is ever reported."""
    random = np.random.default_rng([seed, launches, *family.encode()])
    lengths = random.integers(SHORTEST, LONGEST + 1, series).tolist()
    return sum(bool(find_shifts(values(FAMILIES[family](random, length, launches)))) for length in lengths)


def detections(series: int, launches: int, seed: int) -> tuple[int, int]:
    """In how many `series` a loss is found soon, and in how many of these also at the right result."""
    random = np.random.default_rng([seed, launches])
    soon = right = 0
    for before in random.integers(BEFORE, LONGEST - SOON + 1, series).tolist():
        made = normal(random, before + SOON, launches)
        made[before:] += np.log1p(-LOSS)
        found = [shift for shift in find_shifts(values(made)) if shift.found >= before]
        soon += bool(found)
        right += bool(found) and found[0].at == before
    return soon, right


@click.command(context_settings=command.CONTEXT)
@command.option("--series", click.IntRange(1), 1000, "Series of each family.")
@command.option("--launches", command.listed("N", int), "1,5", "Launches of a result.")
@command.option("--only", command.NAMES, None, f"Families of noise: {', '.join(FAMILIES)}.")
@command.SEED
def history_alarms(series: int, launches: Sequence[int], only: Sequence[str] | None, seed: int) -> None:
    """Print the counts."""
    families = [name for name in FAMILIES if name in command.chosen(only, FAMILIES)]
    for count in launches:
        for name in families:
            alarms = false_alarms(name, series, count, seed)
            click.echo(f"{name}, launches {count}: any shift in {alarms} of {series} unchanged series")
        soon, right = detections(series, count, seed)
        click.echo(
            f"normal, launches {count}: a loss of {LOSS:.0%} found within {SOON} results in {soon} of {series} series,"
            f" at the right one in {right}"
        )


if __name__ == "__main__":
    command.run(history_alarms, "history_alarms")
