"""Ranks that hold the others up: too many rows, a slow phase, a slow link, too few cores.

All ranks wait for the slowest one, so that a merge is as slow as that rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from merge_bench.analysis.aggregate import WorkerFigures, pair_figures
from merge_bench.host import machine
from merge_bench.records.campaign import Launch

OVERLOAD = 1.05
"""A rank is overloaded if it has more than this many times the rows of the other ranks' mean..."""

NOISE = 6.0
"""...and more than this many standard deviations of an even hash (√rows) above it."""

SLOWER = 1.2
"""A rank is a straggler if a phase takes it this many times as long as the others' median..."""

OF_WALL = 0.05
"""...and that costs it at least this share of the time that a worker usually needs."""

SLOW_LINK = 2.0
"""A rank's link is slow if the others exchange this many times as fast among each other as with it."""


@dataclass(frozen=True)
class WorkerTimes:
    """One worker's seconds in each phase, for `find_straggler`.

    ``overlap``: seconds in which partition and exchange overlap; ``join_overlap``: join and exchange.
    """

    partition: float
    exchange: float
    join: float
    overlap: float = 0.0
    join_overlap: float = 0.0

    @property
    def exchange_end(self) -> float:
        """Seconds from the opening barrier to the end of the exchange."""
        return self.partition + self.exchange - self.overlap


@dataclass(frozen=True)
class Overload:
    """A rank with ``factor`` times the other ranks' mean of ``what``: rows ``received``, or rows of the ``result``."""

    rank: int
    what: str
    rows: float
    factor: float


@dataclass(frozen=True)
class Straggler:
    """The rank that costs the most time: ``seconds`` in ``phase`` against the other ranks' median.

    ``excess``: the seconds by which it holds the others up.
    """

    rank: int
    phase: str
    seconds: float
    others: float
    excess: float

    @property
    def factor(self) -> float:
        """How many times as long as the other ranks' median the phase takes this rank."""
        return self.seconds / self.others if self.others > 0 else float("inf")


@dataclass(frozen=True)
class SlowLink:
    """A rank whose pairs carry ``rate`` bytes per second each, while the other pairs carry ``others``."""

    rank: int
    rate: float
    others: float

    @property
    def factor(self) -> float:
        """How many times as fast the other pairs are."""
        return self.others / self.rate if self.rate > 0 else float("inf")


def overloaded_ranks(workers: Sequence[WorkerFigures]) -> tuple[Overload, ...]:
    """The ranks that receive, or produce, far more rows than the others, the worst first."""
    return find_overloads(
        {w.rank: w.received_rows for w in workers if w.received_rows is not None},
        {w.rank: w.result_rows for w in workers if w.result_rows is not None},
    )


def straggling_rank(workers: Sequence[WorkerFigures]) -> Straggler | None:
    """The rank that holds the others up most; None if there is none, or if it only has more rows to partition."""
    times = {
        w.rank: WorkerTimes(w.partition, w.exchange, w.join, w.overlap or 0.0, w.join_overlap or 0.0)
        for w in workers
        if w.partition is not None and w.exchange is not None and w.join is not None
    }
    straggler, inputs = find_straggler(times), {w.rank: w.memory.input or 0 for w in workers}
    if straggler is not None and straggler.phase == "partition":
        others = median([size for rank, size in inputs.items() if rank != straggler.rank])
        return None if inputs[straggler.rank] > SLOWER * others else straggler
    return straggler


def short_of_cores(launches: Sequence[Launch]) -> machine.Shortage | None:
    """The first host found with fewer cores than workers, which therefore take turns; None if every host has enough."""
    lines = (launch.line for launch in launches if launch.line is not None)
    shortages = (machine.core_shortage((each.host, each.hardware) for each in line.workers) for line in lines)
    return next(filter(None, shortages), None)


def rank_with_slow_link(launches: Sequence[Launch], workers: Sequence[WorkerFigures]) -> SlowLink | None:
    """The rank whose link is slow, as `find_slow_link` finds it; None if there is none."""
    pairs = pair_figures(launches).items()
    rates = {pair: each.bytes / each.seconds for pair, each in pairs if each.seconds and each.bytes}
    return find_slow_link(rates, {worker.rank: worker.host for worker in workers})


def find_overloads(received: Mapping[int, float], result: Mapping[int, float]) -> tuple[Overload, ...]:
    """The ranks with clearly more rows than the others, the worst first; each with the count that exceeds most.

    Skewed keys show in the rows that a rank receives, and more in the rows of the result that it has to make.
    """
    worst: dict[int, Overload] = {}
    for what, rows in (("received", received), ("result", result)):
        total = sum(rows.values())
        for rank, own in rows.items():
            others = (total - own) / (len(rows) - 1) if len(rows) > 1 else 0.0
            if others > 0 and own > OVERLOAD * others and own - others > NOISE * others**0.5:
                suspect = Overload(rank, what, own, own / others)
                if rank not in worst or suspect.factor > worst[rank].factor:
                    worst[rank] = suspect
    return tuple(sorted(worst.values(), key=lambda overload: (-overload.factor, overload.rank)))


def find_straggler(times: Mapping[int, WorkerTimes]) -> Straggler | None:
    """The rank that holds the others up most, and in which phase; ``None`` if they are even.

    A rank that is late with its partition makes the others wait in *their* exchange, where each of them then looks
    slow. So time in the exchange counts only as far as the rank also ends its exchange later than the others do.
    """
    if len(times) < 2:
        return None
    usual = medians_of_others({rank: own.exchange_end + own.join - own.join_overlap for rank, own in times.items()})
    exchanged = medians_of_others({rank: own.exchange_end for rank, own in times.items()})
    stragglers: list[Straggler] = []
    for phase in ("partition", "exchange", "join"):
        own_seconds: dict[int, float] = {rank: getattr(own, phase) for rank, own in times.items()}
        for rank, middle in medians_of_others(own_seconds).items():
            seconds = own_seconds[rank]
            late = times[rank].exchange_end - exchanged[rank]
            excess = seconds - middle if phase != "exchange" else min(seconds - middle, late)
            if excess > OF_WALL * usual[rank] and middle + excess > SLOWER * middle:
                stragglers.append(Straggler(rank, phase, seconds, middle, excess))
    return max(stragglers, key=lambda each: (each.excess, -each.rank), default=None)


def find_slow_link(rates: Mapping[tuple[int, int], float], hosts: Mapping[int, str]) -> SlowLink | None:
    """The rank with which all others exchange far more slowly than among each other.

    All ranks wait for it, so the times of phases do not show it; single pairs do. `rates`: bytes per second by
    (from, to). `hosts`: of each rank; pairs within a host are compared with such pairs only, and pairs of two hosts
    likewise. ``None`` below three ranks, where the rates do not show whose link it is.
    """
    links: list[SlowLink] = []
    for rank in sorted({rank for pair in rates for rank in pair}):
        for within in (False, True):
            alike = {pair: rate for pair, rate in rates.items() if (hosts.get(pair[0]) == hosts.get(pair[1])) == within}
            own = [rate for pair, rate in alike.items() if rank in pair]
            others = [rate for pair, rate in alike.items() if rank not in pair]
            if own and others and median(others) > SLOW_LINK * median(own):
                links.append(SlowLink(rank, median(own), median(others)))
    return max(links, key=lambda link: link.factor) if links else None


def medians_of_others(values: Mapping[int, float]) -> dict[int, float]:
    """For every rank the median over the other ranks, from one sorting of them all."""
    ordered = sorted(values.items(), key=lambda item: item[1])
    numbers = [value for _, value in ordered]
    low, high = (len(numbers) - 2) // 2, (len(numbers) - 1) // 2  # the middle of one value fewer

    def without(place: int) -> float:
        return (numbers[low + (place <= low)] + numbers[high + (place <= high)]) / 2

    return {rank: without(place) for place, (rank, _) in enumerate(ordered)}
