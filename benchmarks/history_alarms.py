"""How often `history` reports a shift that is not there, how soon it finds one, and whether it closes what ended.

    python -m benchmarks.history_alarms [--series 600] [--nights 30,100,400] [--only normal,ar-0.8] [--rule 304bede6]

Made-up results, fed one at a time: no cluster is started. The default takes half an hour of a core. The noise is 2 %
from launch to launch, and where the series has one, of the whole.
"""

from __future__ import annotations

import subprocess
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from merge_bench.regressions.shifts import find_shifts

NOISE = 0.02
"""From launch to launch."""
LOSS, SOON = 0.05, 5
"""The shift that is to be found, and within how many results."""
BEFORE, LONGEST = 20, 395
"""Results before a shift."""
LATER = 24
"""Results after a loss that ended."""

Random: TypeAlias = np.random.Generator
Launches: TypeAlias = NDArray[np.float64]
"""Logarithms of values, a row a result."""
Rule: TypeAlias = Callable[[Sequence[float]], Iterable[Any]]
"""Values of results to shifts, each with the result `at` which it is and the one with which it was `found`."""


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


def tail(random: Random, results: int, launches: int) -> Launches:
    """A slow log-normal tail: most nights agree within 1 %, and some are 3 to 10 % slower."""
    return np.asarray(normal(random, results, launches) / 4.0 - 0.01 * random.lognormal(0.0, 1.0, (results, 1)))


def tenth(random: Random, results: int, launches: int) -> Launches:
    """One night in ten is 8 % slower; the noise is 1 %."""
    return np.asarray(normal(random, results, launches) / 2.0 - 0.08 * (random.random((results, 1)) < 0.1))


def weekends(random: Random, results: int, launches: int) -> Launches:
    """Two nights of seven are 3 % faster."""
    night = (np.arange(results) + random.integers(7)) % 7
    return np.asarray(normal(random, results, launches) + 0.03 * (night < 2)[:, None])


def ties(random: Random, results: int, launches: int) -> Launches:
    """Values that are rounded to 2 %."""
    return np.asarray(np.round(normal(random, results, launches) / NOISE) * NOISE)


def memory(share: float) -> Callable[[Random, int, int], Launches]:
    """A night keeps this share of the deviation of the night before; 2 % in all."""

    def made(random: Random, results: int, launches: int) -> Launches:
        from scipy.signal import lfilter

        new = random.normal(0.0, NOISE * np.sqrt(1.0 - share**2), results + 60)
        return np.asarray(lfilter([1.0], [1.0, -share], new)[60:, None] + np.zeros(launches))

    return made


def states(nights: int) -> Callable[[Random, int, int], Launches]:
    """The host is in another state every so many nights (2 %), with 1 % a night of its own."""

    def made(random: Random, results: int, launches: int) -> Launches:
        each = np.repeat(random.normal(0.0, NOISE, results // nights + 2), nights)[random.integers(nights) :][:results]
        return np.asarray(each[:, None] + normal(random, results, launches) / 2.0)

    return made


def doubled(random: Random, results: int, launches: int) -> Launches:
    """The noise doubles half-way."""
    grown = np.where(np.arange(results) < results // 2, 1.0, 2.0)
    return np.asarray(normal(random, results, launches) * grown[:, None])


def slope(nightly: float) -> Callable[[Random, int, int], Launches]:
    """Every night is slower than the one before by this share."""

    def made(random: Random, results: int, launches: int) -> Launches:
        return np.asarray(normal(random, results, launches) - nightly * np.arange(results)[:, None])

    return made


FAMILIES: Mapping[str, Callable[[Random, int, int], Launches]] = {
    **{each.__name__: each for each in (normal, heavy, outliers, drift, tail, tenth, weekends, ties)},
    **{f"ar-{share}": memory(share) for share in (0.3, 0.5, 0.8)},
    **{f"states-{nights}": states(nights) for nights in (2, 3, 5, 7)},
    "doubled": doubled,
    "slope-0.01%": slope(1e-4),
    "slope-0.05%": slope(5e-4),
}


def rule_of(commit: str | None) -> Rule:
    """`find_shifts` as it is here, or as it was in a commit in which it was one file."""
    if commit is None:
        return find_shifts
    if commit == "otava":
        return otava
    if commit == "ruptures":
        return kernel
    path = f"{commit}:merge_bench/analysis/history/shifts.py"
    text = subprocess.run(["git", "show", path], cwd=command.ROOT, check=True, capture_output=True, text=True).stdout
    module = types.ModuleType("shifts_of_commit")
    sys.modules[module.__name__] = module
    exec(compile(text, path, "exec"), module.__dict__)

    def rule(values: Sequence[float]) -> Iterator[_Seen]:
        return (_Seen(shift.at, shift.found, shift.level) for shift in module.find_shifts(values))

    return rule


class _Seen:
    """A shift that another rule finds; `newest`: the result with which it does."""

    def __init__(self, at: int, newest: int, level: int = 1) -> None:
        self.at, self.newest, self.level = at, newest, level


def _each_night(points: Callable[[NDArray[np.float64]], Sequence[int]]) -> Rule:
    """Ask a rule for whole series on every fifth night; a shift is found when it is named first."""

    def rule(values: Sequence[float]) -> Iterator[_Seen]:
        seen: set[int] = set()
        for count in sorted({*range(15, len(values), 5), *range(len(values) - 4, len(values) + 1)}):
            new = [at for at in points(np.array(values[:count])) if at not in seen]
            seen.update(new)
            yield from (_Seen(at, count - 1) for at in new)

    return rule


def _otava(values: NDArray[np.float64]) -> Sequence[int]:
    from otava.analysis import compute_change_points  # type: ignore[import-not-found]

    try:
        return [int(each.index) for each in compute_change_points(values.tolist())[0]]
    except ValueError:  # version 0.8, where two of its windows find the same place
        return []


def _ruptures(values: NDArray[np.float64]) -> Sequence[int]:
    import ruptures

    # exact, and in C: `Pelt(model="rbf")` tries only every fifth place and takes ten times as long
    return [int(at) for at in ruptures.KernelCPD(kernel="rbf").fit(values).predict(pen=10)[:-1]]


otava, kernel = _each_night(_otava), _each_night(_ruptures)


def values(launches: Launches) -> list[float]:
    """The results: medians over launches."""
    return [float(value) for value in np.exp(np.median(launches, axis=1))]


def _random(seed: int, *names: object) -> Random:
    return np.random.default_rng([seed, *(zlib.crc32(str(name).encode()) for name in names)])


def false_alarms(
    family: str, series: int, launches: int, seed: int, *, nights: int = 400, rule: Rule = find_shifts
) -> int:
    """In how many of so many unchanged `series` any shift is ever reported."""
    random = _random(seed, family, launches, nights)
    return sum(any(True for _ in rule(values(FAMILIES[family](random, nights, launches)))) for _ in range(series))


def detections(
    series: int,
    launches: int,
    seed: int,
    *,
    family: str = "normal",
    loss: float = LOSS,
    scale: float = 1.0,
    before: tuple[int, int] = (BEFORE, LONGEST),
    soon: int = SOON,
    rule: Rule = find_shifts,
) -> tuple[int, int]:
    """In how many `series` a loss is found `soon`, and in how many of these also at the right result.

    `before`: results before it, from and to; `scale`: of the noise.
    """
    random = _random(seed, family, launches, loss, scale, before, soon)
    found_soon = right = 0
    for count in random.integers(before[0], before[1] + 1, series).tolist():
        made = scale * FAMILIES[family](random, count + soon, launches)
        made[count:] += np.log1p(-loss)
        found = [shift for shift in rule(values(made)) if shift.newest >= count]
        found_soon += bool(found)
        right += bool(found) and found[0].at == count
    return found_soon, right


def closed(
    series: int,
    length: int,
    seed: int,
    *,
    before: int = 30,
    loss: float = LOSS,
    scale: float = 0.5,
    rule: Rule = find_shifts,
) -> tuple[int, int]:
    """How many losses that last so long are found meanwhile, and how many are closed within 3 nights of their end."""
    random = _random(seed, "closed", length, before, loss, scale)
    found = ended = 0
    for _ in range(series):
        made = scale * normal(random, before + length + LATER, 1)
        made[before : before + length] += np.log1p(-loss)
        shifts = rule(values(made))
        found += any(shift.newest <= before + length for shift in shifts)
        ended += any(abs(shift.at - before - length) <= 1 and shift.newest < before + length + 3 for shift in shifts)
    return found, ended


def both_named(series: int, seed: int, *, apart: int = 6, before: int = 60, rule: Rule = find_shifts) -> int:
    """Of two losses of 5 % so many nights apart, at 1 % noise, in how many series both are named at the right night."""
    random = _random(seed, "two", apart, before)
    both = 0
    for _ in range(series):
        made = normal(random, before + apart + LATER, 1) / 2.0
        for at in (before, before + apart):
            made[at:] += np.log1p(-LOSS)
        both += {before, before + apart} <= {shift.at for shift in rule(values(made))}
    return both


def best_possible(series: int, seed: int, alarms: Sequence[float]) -> list[float]:
    """Of 100 losses, how many a rule finds `SOON` that reports a shift in so many of 100 series whose noise doubles.

    The rule knows the level, the noise, the size of the loss and that noise doubles if it changes; only whether, when
    and in which direction it does not know. By Bayes' rule with a small chance of doubling no other does better.
    """
    random = _random(seed, "best possible")
    known, later = 60, 50
    doubles = random.normal(size=(series, known + later)) * np.repeat([1.0, 2.0], (known, later))
    loses = random.normal(size=(series, known + SOON)) + np.repeat([0.0, np.log1p(-LOSS) / NOISE], (known, SOON))
    wrong, right = (_odds(each)[:, known:].max(axis=1) for each in (doubles, loses))
    limits = np.quantile(wrong, 1.0 - np.array(alarms) / 100.0)
    return [100.0 * float((right > limit).mean()) for limit in limits]


def _odds(values: Launches, doubling: float = 1e-3) -> Launches:
    """Of a shift so far, to noise that doubled or did not, as logarithms; `values` in standard deviations."""

    def sums(mean: float, spread: float) -> Launches:
        each = -0.5 * ((values - mean) / spread) ** 2 - np.log(spread)
        return np.concatenate([np.zeros((len(values), 1)), each.cumsum(axis=1)], axis=1)

    loss = np.log1p(-LOSS) / NOISE
    same, twice = sums(0.0, 1.0), sums(0.0, 2.0)
    # doubled before the result with this number, at any earlier one
    begun = np.log(doubling) + np.logaddexp.accumulate(same - twice, axis=1)[:, :-1]
    odds = np.full(values.shape, -np.inf)
    for mean in (loss, -loss):
        shifted = {1.0: (same, sums(mean, 1.0)), 2.0: (twice, sums(mean, 2.0))}
        for count in range(4, values.shape[1] + 1):
            at = np.arange(max(1, count - 40), count - 2)
            parts = [before[:, at] + after[:, [count]] - after[:, at] for before, after in shifted.values()]
            parts[1] = parts[1] + begun[:, at - 1]
            odds[:, count - 1] = np.logaddexp(
                odds[:, count - 1], np.logaddexp.reduce(np.concatenate(parts, axis=1), axis=1)
            )
    return np.asarray(odds - np.logaddexp(same[:, 1:], begun + twice[:, 1:]))


def _share(count: int, series: int) -> str:
    return f"{100 * count / series:.1f}"


@click.command(context_settings=command.CONTEXT)
@command.option("--series", click.IntRange(1), 600, "Series of each kind.")
@command.option("--nights", command.listed("N", int), "30,100,400", "Nights of the unchanged series.")
@command.option("--only", command.NAMES, None, f"Kinds of noise: {', '.join(FAMILIES)}; none: no false alarms.")
@command.option("--part", command.NAMES, "alarms,power,ended", "Tables: alarms, power, ended, best.")
@command.option(
    "--rule", str, None, "Judge as this commit, otava (0.8) or ruptures did.", metavar="COMMIT|otava|ruptures"
)
@command.SEED
def history_alarms(
    series: int, nights: Sequence[int], only: Sequence[str] | None, part: Sequence[str], rule: str | None, seed: int
) -> None:
    """Print tables, in 100 series."""
    judge = rule_of(rule)
    if "alarms" in part:
        click.echo(f"| any shift, of 100 unchanged series | {' | '.join(f'{count} nights' for count in nights)} |")
        click.echo("| --- |" + " --- |" * len(nights))
        families = command.chosen(only, FAMILIES)
        for name in (each for each in FAMILIES if each in families):
            counts = [false_alarms(name, series, 1, seed, nights=count, rule=judge) for count in nights]
            click.echo(f"| {name} | {' | '.join(_share(count, series) for count in counts)} |")
    if "power" in part:
        click.echo("| a loss is found, of 100 series | within 5 results | and at the right one |\n| --- | --- | --- |")
        cases: dict[str, dict[str, Any]] = {
            "5 %, normal noise of 2 %": {},
            "the same, 20 to 40 results before": {"before": (20, 40)},
            "the same, 5 launches a result": {"launches": 5},
            "5 %, normal noise of 1 %, 20 to 40 results before": {"before": (20, 40), "scale": 0.5},
            "5 %, ar-0.5 of 1 %": {"family": "ar-0.5", "scale": 0.5},
            "5 %, ar-0.8 of 1 %": {"family": "ar-0.8", "scale": 0.5},
            "10 %, tail": {"family": "tail", "loss": 0.1},
            "10 %, tenth": {"family": "tenth", "loss": 0.1},
            "10 %, tenth, within 8 results": {"family": "tenth", "loss": 0.1, "soon": 8},
        }
        for name, case in cases.items():
            found, right = detections(series, case.pop("launches", 1), seed, rule=judge, **case)
            click.echo(f"| {name} | {_share(found, series)} | {_share(right, series)} |")
    if "ended" in part:
        click.echo(
            "| a loss of 5 % at 1 % noise that ends, of 100 | found | closed within 3 results |\n| --- | --- | --- |"
        )
        for before in (30, 60, 100):
            for length in (4, 5, 6, 8, 11):
                found, ended = closed(series, length, seed, before=before, rule=judge)
                click.echo(f"| {length} nights, after {before} | {_share(found, series)} | {_share(ended, series)} |")
        both = both_named(series, seed, rule=judge)
        click.echo(f"| two losses, 6 nights apart | {_share(both, series)} | |")
    if "best" in part:
        alarms = (1.0, 2.0, 4.0, 6.0, 8.0)
        click.echo("| doubled noise, of 100 series a shift | a loss of 5 % is found at best |\n| --- | --- |")
        for limit, found_at_best in zip(alarms, best_possible(5 * series, seed, alarms), strict=True):
            click.echo(f"| {limit:.0f} | {found_at_best:.1f} |")


if __name__ == "__main__":
    command.run(history_alarms, "history_alarms")
