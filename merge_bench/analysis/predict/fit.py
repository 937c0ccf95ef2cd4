"""Samples → parameters, by medians and two-parameter least squares, and their intervals by resampling. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis.predict.model import announcing
from merge_bench.analysis.predict.parameters import Values
from merge_bench.analysis.predict.samples import Measured, Transfer
from merge_bench.analysis.statistics import median

APART = 3.0
"""Only sizes this many times apart show which cost is paid once and which by size."""

REPLICATES = 200
_MOST_BEFORE = 0.9
"""Of a transfer's seconds: latency is never taken for more, even if a network measurement gives more."""


@dataclass(frozen=True)
class Point:
    """`seconds` = what is paid `once` · x + what is paid by `size` · y."""

    once: float
    size: float
    seconds: float


def fit(runs: Sequence[Measured], links: Values, computing: Sequence[Measured] | None = None) -> dict[str, float]:
    """The parameters that follow from these runs.

    `links`: latencies, overheads and rates from network measurements; latencies and overheads are taken as they are,
    rates only if no run gives one. `computing`: the runs that partition and join are fitted to; by default all.
    """
    found: dict[str, float] = dict(links)
    source = list(runs if computing is None else computing)
    for phase in ("partition", "join"):
        found |= _phase(phase, source)
    for link in ("local", "nic"):
        found |= _link(link, runs, links)
    overlaps = [sample.overlap for run in runs for sample in run.samples if sample.overlap is not None]
    if overlaps:
        found["overlap"] = median(overlaps)
    meetings = [_meeting(run, found) for run in runs if any(sample.meeting is not None for sample in run.samples)]
    if meetings:
        found["meeting"] = max(median(meetings), 0.0)
    return found


def replicates(
    runs: Sequence[Measured], links: Sequence[Values], computing: Sequence[Measured]
) -> list[dict[str, float]]:  # fmt: skip
    """Fits of resampled records: launches with replacement, and within each its iterations (Davison & Hinkley,
    "Bootstrap Methods and their Application" 1997, section 3.8). `links`: of each network measurement's launches one.
    """
    chance = random.Random(0)
    found = []
    for _ in range(REPLICATES):
        again = {id(run): _resampled(run, chance) for run in (*runs, *computing)}
        chosen = [again[id(run)] for run in computing]
        found.append(fit([again[id(run)] for run in runs], chance.choice(links) if links else {}, chosen))
    return found


def line(points: Sequence[Point]) -> tuple[float, float]:
    """What is paid once and what by size, neither below 0: least squares of the relative errors.

    Minimises Σ ((seconds - a · once - b · size) ÷ seconds)². Where the sizes are not `APART`, or an estimate would be
    below 0, a is 0 and b the median of seconds ÷ size.
    """
    through_zero = 0.0, median([point.seconds / point.size for point in points])
    if not apart([point.size for point in points]):
        return through_zero
    scaled = [(point.once / point.seconds, point.size / point.seconds) for point in points if point.seconds > 0]
    aa, ab, bb = (sum(x[i] * x[j] for x in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = sum(x for x, _ in scaled), sum(y for _, y in scaled)
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return through_zero
    once, by_size = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    return (once, by_size) if once >= 0 and by_size > 0 else through_zero


def apart(sizes: Sequence[float]) -> bool:
    """Whether sizes differ enough to show which cost is paid once and which by size."""
    return bool(sizes) and max(sizes) >= APART * min(sizes)


def _phase(name: str, runs: Sequence[Measured]) -> dict[str, float]:
    points = []
    for run in runs:
        rows = median([sample.rows for sample in run.samples])
        points.append(Point(1.0, rows, median([getattr(sample, name) for sample in run.samples])))
    if not points:
        return {}
    once, by_row = line(points)
    variances = [variance for run in runs if (variance := _variance(run, name)) is not None]
    found = {f"{name}_fixed": once, f"{name}_rate": 1 / by_row if by_row > 0 else float("inf")}
    return found | ({f"{name}_spread": median(variances) ** 0.5} if variances else {})


def _variance(run: Measured, phase: str) -> float | None:
    """Of the logarithms over a run's workers: the median over its iterations, which one bad iteration does not move.

    A variance of W normal values is the true one · χ² ÷ k with k = W - 1, of which the median is near (1 - 2 ÷ 9k)³
    (Wilson & Hilferty, "The Distribution of Chi-Square", 1931): divided by that, it is the true one.
    """
    found = [variance for sample in run.samples if (variance := getattr(sample, f"{phase}_spread")) is not None]
    return median(found) / (1 - 2 / (9 * (run.shape.workers - 1))) ** 3 if found else None


def _link(name: str, runs: Sequence[Measured], links: Values) -> dict[str, float]:
    """The rate, given latency and overhead; without them the overhead too, if sizes are `apart`."""
    points = []
    for run in runs:
        known: list[Transfer | None] = [getattr(sample, name) for sample in run.samples]
        transfers = [transfer for transfer in known if transfer is not None and transfer.size > 0]
        if transfers:
            middle = median([transfer.seconds for transfer in transfers])
            points.append(Point(transfers[0].messages, median([transfer.size for transfer in transfers]), middle))
    if not points:
        return {}
    if f"{name}_latency" in links:
        latency, overhead = links[f"{name}_latency"], links.get(f"{name}_overhead", 0.0)
        rates = []
        for point in points:
            before = min(2 * latency + overhead * point.once, _MOST_BEFORE * point.seconds)
            rates.append(point.size / (point.seconds - before))
        return {f"{name}_rate": median(rates)}
    overhead, by_byte = line(points)
    return {f"{name}_overhead": overhead, f"{name}_rate": 1 / by_byte}


def _meeting(run: Measured, values: Values) -> float:
    """What is left of the meeting when its messages' latency and overhead are taken off."""
    meetings = [sample.meeting for sample in run.samples if sample.meeting is not None]
    return median(meetings) - announcing(max(run.shape.per_host), run.shape.workers, values)


def _resampled(run: Measured, chance: random.Random) -> Measured:
    launches = [chance.choice(run.launches) for _ in run.launches]
    return replace(run, launches=tuple(tuple(chance.choices(launch, k=len(launch))) for launch in launches))
