"""How much of what the network can do a merge's exchange gets, and what takes the rest.

The network is measured by `probe all-to-all` over the same data plane. A result of it belongs to a merge if config with
its settings, hosts by rank and number of workers are the same, and its messages are the merge's parcels, or as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import Phase
from merge_bench.merge.engines import descriptions
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import IterationLine, ProbeLine, WorkerIteration

PROBE, TEST = "all-to-all", "ucx_alltoall"
SAME = 0.02
"""Parcels whose mean sizes differ by less than this share count as equally large."""
ALIKE = 2.0
"""A measurement with messages of one size stands for parcels at most this many times as large or as small."""


@dataclass(frozen=True)
class ExchangeShare:
    """The bandwidth of a merge's exchange beside that of `probe all-to-all`, and where the exchange's time goes.

    `size`, `parcels`: mean bytes of a message of all-to-all, and whether the messages are parcels of the same sizes.
    `all_to_all`, `exchange`: bytes per second that a worker sends to others, mean over workers: alone, and in the merge
    while transfers of its slowest worker are in flight. `phase`: seconds of the exchange on its slowest worker, in the
    median iteration, and its parts: `ideal`, what the bytes need at the rate of all-to-all; `slower`, what transfers
    take beyond that; `waiting`, for the slowest partition; `other`, headers, barriers and making room. All None where
    phases overlap.
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
        """The share of all-to-all's bandwidth that the merge reaches while transfers are in flight."""
        return self.exchange / self.all_to_all

    @property
    def share_of_phase(self) -> float | None:
        """The share of all-to-all's bandwidth that the merge reaches in the whole phase, if known."""
        return self.ideal / self.phase if self.phase and self.ideal is not None else None


def find(run: Run, probes: Iterable[Campaign]) -> ExchangeShare | None:
    """Compare the exchange of `run` with the all-to-all measurements in `probes` that belong to it; None without."""
    launches = aggregate.complete_launches(run)
    timed = [each for launch in launches for each in launch.timed if _is_fully_measured(each)]
    if not recorded_plane(run.plan.exchange).endpoints or not timed:
        return None
    # a parcel is what one worker sends to one other of one frame
    size = mean(_sent_bytes(each) / 2 / (len(each.workers) - 1) for each in timed)
    lines = [line for campaign in probes for line in _matching_probe_lines(campaign, run, launches[0])]
    chosen_lines = _lines_nearest_in_size(lines, size, run.plan.rows_per_chunk)
    rates = [line.bandwidth_bytes_per_second for line in chosen_lines if line.bandwidth_bytes_per_second]
    if not rates:
        return None
    rate = median(rates)
    share = ExchangeShare(
        size=chosen_lines[0].size,
        parcels=chosen_lines[0].count is not None,
        all_to_all=rate,
        exchange=median(_sent_bytes(each) / max(_flight_seconds(worker) for worker in each.workers) for each in timed),
    )
    return share if run.plan.pipeline else _with_phase_parts(share, timed)


def _with_phase_parts(share: ExchangeShare, timed: Sequence[IterationLine]) -> ExchangeShare:
    """Add the seconds of the exchange phase's parts, taken from the iteration whose exchange is the median."""
    slowest = [(max(each.workers, key=lambda own: _phase_seconds(own, "exchange")), each) for each in timed]
    by_time = sorted(slowest, key=lambda pair: _phase_seconds(pair[0], "exchange"))
    worker, iteration = by_time[(len(slowest) - 1) // 2]
    phase, flight = _phase_seconds(worker, "exchange"), _flight_seconds(worker)
    ideal = _sent_bytes(iteration) / share.all_to_all
    late = max(_phase_seconds(each, "partition") for each in iteration.workers) - _phase_seconds(worker, "partition")
    waiting = min(late, max(phase - flight, 0.0))
    other = phase - flight - waiting
    return replace(share, phase=phase, ideal=ideal, slower=flight - ideal, waiting=waiting, other=other)


def _matching_probe_lines(campaign: Campaign, run: Run, launch: Launch) -> list[ProbeLine]:
    """The all-to-all rows of a campaign that have the settings, the hosts and the kind of memory of a merge."""
    settings = [  # without the variables of a config that are options of this program
        {name: value for name, value in each.variables.items() if not name.startswith("MERGE_BENCH_")}
        for each in (run.config, *campaign.head.configs)
    ]
    alike = [each.name for each, own in zip(campaign.head.configs, settings[1:], strict=True) if own == settings[0]]
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


def _lines_nearest_in_size(lines: Sequence[ProbeLine], size: float, rows: int | None) -> list[ProbeLine]:
    """The lines whose messages have the sizes of the merge's parcels, or else equal messages of the nearest size."""
    same = [line for line in lines if line.count == rows is not None and abs(line.size / size - 1) < SAME]
    if same or not size:
        return same
    alike = [line for line in lines if line.count is None and 1 / ALIKE <= line.size / size <= ALIKE]
    best = min({line.size for line in alike}, key=lambda each: max(each / size, size / each), default=None)
    return [line for line in alike if line.size == best]


def _is_fully_measured(iteration: IterationLine) -> bool:
    """Whether several workers took part, and all have sent bytes, seconds in flight and phases."""
    workers = iteration.workers
    return len(workers) > 1 and all(
        each.sent_bytes and each.flight_seconds and each.flight_seconds.union > 0 and each.phases_seconds
        for each in workers
    )


def _sent_bytes(iteration: IterationLine) -> float:
    """Mean bytes of both frames that a worker sends to others in an iteration."""
    return mean(each.sent_bytes.left + each.sent_bytes.right for each in iteration.workers if each.sent_bytes)


def _flight_seconds(worker: WorkerIteration) -> float:
    return worker.flight_seconds.union if worker.flight_seconds else 0.0


def _phase_seconds(worker: WorkerIteration, name: Phase) -> float:
    return getattr(worker.phases_seconds, name, None) or 0.0
