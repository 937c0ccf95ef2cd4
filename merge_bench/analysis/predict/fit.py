"""Samples → parameters, by medians and two-parameter least squares, and their intervals by resampling. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis.predict.parameters import Values
from merge_bench.analysis.predict.samples import Measured, Sample, Transfer
from merge_bench.analysis.statistics import median

APART = 3.0
"""Sizes this many times apart tell what is paid once from what is paid by size."""

REPLICATES = 200
_MOST_BEFORE = 0.9
"""Of a transfer's seconds: no more is taken for latency, whatever another measurement says."""


@dataclass(frozen=True)
class Point:
    """`seconds` = what is paid `once` · x + what is paid by `size` · y."""

    once: float
    size: float
    seconds: float


def fit(runs: Sequence[Measured], links: Values, computing: Sequence[Measured] | None = None) -> dict[str, float]:
    """The parameters that these runs tell.

    `links`: latencies, overheads and rates that network measurements tell; latencies and overheads of them are taken
    as they are, rates only where no run tells one. `computing`: the runs that tell partition and join; by default all.
    """
    found: dict[str, float] = dict(links)
    source = list(runs if computing is None else computing)
    for name, seconds in _PHASES.items():
        found |= _phase(name, source, seconds)
    for name, transfer in _LINKS.items():
        found |= _link(name, runs, transfer, links)
    overlaps = [sample.overlap for run in runs for sample in run.samples if sample.overlap is not None]
    if overlaps:
        found["overlap"] = median(overlaps)
    meetings = [_meeting(run, found) for run in runs if any(sample.meeting is not None for sample in run.samples)]
    if meetings:
        found["meeting"] = max(median(meetings), 0.0)
    return found


def replicates(
    runs: Sequence[Measured], links: Sequence[Values], computing: Sequence[Measured] | None = None, *,
    count: int = REPLICATES, seed: int = 0,
) -> list[dict[str, float]]:  # fmt: skip
    """`count` fits of resampled records: launches with replacement, and within each its iterations (Davison & Hinkley,
    "Bootstrap Methods and their Application" 1997, section 3.8). `links`: of each network measurement's launches one.
    """
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        again = {id(run): _resampled(run, chance) for run in (*runs, *(computing or ()))}
        chosen = None if computing is None else [again[id(run)] for run in computing]
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
    """Whether sizes differ enough to tell what is paid once from what is paid by size."""
    return bool(sizes) and max(sizes) >= APART * min(sizes)


_PHASES: Mapping[str, Callable[[Sample], tuple[float, float | None]]] = {
    "partition": lambda sample: (sample.partition, sample.partition_spread),
    "join": lambda sample: (sample.join, sample.join_spread),
}
_LINKS: Mapping[str, Callable[[Sample], Transfer | None]] = {
    "local": lambda sample: sample.local,
    "nic": lambda sample: sample.nic,
}


def _phase(
    name: str, runs: Sequence[Measured], of: Callable[[Sample], tuple[float, float | None]]
) -> dict[str, float]:  # fmt: skip
    points = [
        Point(1.0, median([sample.rows for sample in run.samples]), median([of(sample)[0] for sample in run.samples]))
        for run in runs
    ]
    if not points:
        return {}
    once, by_row = line(points)
    variances = [variance for run in runs if (variance := _variance(run, of)) is not None]
    found = {f"{name}_fixed": once, f"{name}_rate": 1 / by_row if by_row > 0 else float("inf")}
    return found | ({f"{name}_spread": median(variances) ** 0.5} if variances else {})


def _variance(run: Measured, of: Callable[[Sample], tuple[float, float | None]]) -> float | None:
    """Of the logarithms over a run's workers: the median over its iterations, which one bad iteration does not move.

    A variance of W normal values is the true one · χ² ÷ k with k = W - 1, of which the median is near (1 - 2 ÷ 9k)³
    (Wilson & Hilferty, "The Distribution of Chi-Square", 1931): divided by that, it is the true one.
    """
    found = [variance for sample in run.samples if (variance := of(sample)[1]) is not None]
    return median(found) / (1 - 2 / (9 * (run.shape.workers - 1))) ** 3 if found else None


def _link(
    name: str, runs: Sequence[Measured], of: Callable[[Sample], Transfer | None], links: Values
) -> dict[str, float]:  # fmt: skip
    """The rate, given latency and overhead; without them the overhead too, where sizes tell it."""
    points = []
    for run in runs:
        transfers = [transfer for sample in run.samples if (transfer := of(sample)) is not None and transfer.size > 0]
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


def _meeting(run: Measured, values: Mapping[str, float]) -> float:
    """What is left of the meeting when its messages' latency and overhead are taken off."""
    most = max(run.shape.per_host)
    far = run.shape.workers - most
    explained = max(
        (values.get(f"{link}_latency", 0.0) + peers * values.get(f"{link}_overhead", 0.0))
        for link, peers in (("local", most - 1), ("nic", far)) if peers
    )  # fmt: skip
    return median([sample.meeting for sample in run.samples if sample.meeting is not None]) - explained


def _resampled(run: Measured, chance: random.Random) -> Measured:
    launches = [chance.choice(run.launches) for _ in run.launches]
    return replace(run, launches=tuple(tuple(chance.choices(launch, k=len(launch))) for launch in launches))
