"""How much of what the network can do a merge's exchange gets, and what takes the rest.

The network is measured by `probe all-to-all` over the same data plane. A result of it belongs to a merge if config with
its settings, hosts by rank and number of workers are the same, and its messages are the merge's parcels, or as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from merge_bench.analysis import aggregate
from merge_bench.merge.engines import descriptions
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import IterationLine, ProbeLine, WorkerIteration

PROBE, TEST = "all-to-all", "ucx_alltoall"
SAME = 0.02
"""Parcels whose mean sizes differ by less than this share are those of the same merge."""
ALIKE = 2.0
"""Equal messages stand for parcels that are at most this many times as large or as small."""


@dataclass(frozen=True)
class ExchangeShare:
    """The exchange of a run beside all-to-all.

    Attributes
    ----------
    size, parcels
        Mean bytes of a message of the all-to-all, and whether the messages are parcels of the same sizes.
    all_to_all, exchange
        Bytes per second that a worker sends to others, mean over workers: alone, and in the merge while transfers of
        its slowest worker are in flight.
    phase, ideal, slower, waiting, other
        Seconds of the exchange phase on its slowest worker, in the median iteration, and its parts: what the bytes need
        at the rate of all-to-all, what transfers take beyond that, waiting for the slowest partition, and headers,
        barriers and making room. All None where phases overlap.
    """

    size: int
    parcels: bool
    all_to_all: float
    exchange: float
    phase: float | None = None
    ideal: float | None = None
    slower: float | None = None
    waiting: float | None = None
    other: float | None = None

    @property
    def share(self) -> float:
        """Of all-to-all's bandwidth, what the merge reaches while transfers are in flight."""
        return self.exchange / self.all_to_all

    @property
    def share_of_phase(self) -> float | None:
        """The same over the whole exchange phase."""
        return self.ideal / self.phase if self.phase and self.ideal is not None else None


def find(run: Run, probes: Iterable[Campaign]) -> ExchangeShare | None:
    """The exchange of `run` beside the all-to-all among `probes` that belongs to it; None if none does."""
    launches = aggregate.complete_launches(run)
    timed = [each for launch in launches for each in launch.timed if _known(each)]
    if not recorded_plane(run.plan.exchange).endpoints or not timed:
        return None
    size = mean(_parcel(each) for each in timed)
    lines = [line for campaign in probes for line in _lines_of(campaign, run, launches[0])]
    chosen = _nearest(lines, size, run.plan.rows_per_chunk)
    rates = [line.bandwidth_bytes_per_second for line in chosen if line.bandwidth_bytes_per_second]
    if not rates:
        return None
    rate = median(rates)
    share = ExchangeShare(
        size=chosen[0].size,
        parcels=chosen[0].count is not None,
        all_to_all=rate,
        exchange=median(_sent(each) / max(_flight(worker) for worker in each.workers) for each in timed),
    )
    return share if run.plan.pipeline else _with_parts(share, timed)


def _with_parts(share: ExchangeShare, timed: Sequence[IterationLine]) -> ExchangeShare:
    """Add the parts of the exchange phase, which add up to it: those of the iteration with the median phase."""
    slowest = [(max(each.workers, key=_exchange), each) for each in timed]
    worker, iteration = sorted(slowest, key=lambda one: _exchange(one[0]))[(len(slowest) - 1) // 2]
    phase, flight = _exchange(worker), _flight(worker)
    ideal = _sent(iteration) / share.all_to_all
    late = max(_partition(each) for each in iteration.workers) - _partition(worker)
    waiting = min(late, max(phase - flight, 0.0))
    return ExchangeShare(
        size=share.size,
        parcels=share.parcels,
        all_to_all=share.all_to_all,
        exchange=share.exchange,
        phase=phase,
        ideal=ideal,
        slower=flight - ideal,
        waiting=waiting,
        other=phase - flight - waiting,
    )


def _lines_of(campaign: Campaign, run: Run, launch: Launch) -> list[ProbeLine]:
    """The rows of our data plane with the config, on the hosts and in the memory of a merge."""
    alike = [
        each.name for each in campaign.head.configs if _settings(each.variables) == _settings(run.config.variables)
    ]
    if campaign.probe != PROBE or run.config.name not in alike or launch.line is None:
        return []
    hosts = [worker.host for worker in launch.line.workers]
    on_gpus = any(each.device_memory for each in descriptions() if each.name == run.plan.engine)
    return [
        line
        for each in campaign.standing
        if each.complete and each.line is not None and each.line.config == run.config.name
        for line in each.probes
        if line.test.startswith(TEST) and line.hosts == hosts and not line.wrong and (line.memory == "cuda") == on_gpus
    ]


def _settings(variables: dict[str, str]) -> dict[str, str]:
    """The variables of a config that are not options of this program."""
    return {name: value for name, value in variables.items() if not name.startswith("MERGE_BENCH_")}


def _nearest(lines: Sequence[ProbeLine], size: float, rows: int | None) -> list[ProbeLine]:
    """The lines, one of each launch, whose messages are the parcels, or else equal ones of the nearest size."""
    same = [line for line in lines if line.count == rows is not None and abs(line.size / size - 1) < SAME]
    if same or not size:
        return same
    alike = [line for line in lines if line.count is None and 1 / ALIKE <= line.size / size <= ALIKE]
    best = min({line.size for line in alike}, key=lambda each: max(each / size, size / each), default=None)
    return [line for line in alike if line.size == best]


def _known(iteration: IterationLine) -> bool:
    workers = iteration.workers
    return len(workers) > 1 and all(
        each.sent_bytes and each.flight_seconds and each.flight_seconds.union > 0 and each.phases_seconds
        for each in workers
    )


def _sent(iteration: IterationLine) -> float:
    """Mean bytes that a worker sends to others, of both frames."""
    return mean(each.sent_bytes.left + each.sent_bytes.right for each in iteration.workers if each.sent_bytes)


def _parcel(iteration: IterationLine) -> float:
    """Mean bytes of a parcel of one frame."""
    return _sent(iteration) / 2 / (len(iteration.workers) - 1)


def _flight(worker: WorkerIteration) -> float:
    return worker.flight_seconds.union if worker.flight_seconds else 0.0


def _exchange(worker: WorkerIteration) -> float:
    return (worker.phases_seconds.exchange or 0.0) if worker.phases_seconds else 0.0


def _partition(worker: WorkerIteration) -> float:
    return (worker.phases_seconds.partition or 0.0) if worker.phases_seconds else 0.0
