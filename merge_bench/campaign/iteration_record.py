"""What workers report, turned into lines of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merge_bench.analysis.metrics import link_limit
from merge_bench.host.counters import Counts, difference
from merge_bench.merge.exchange.protocols import Range
from merge_bench.merge.merger import Measured
from merge_bench.merge.verification.verify import Verdict
from merge_bench.records.schema import (
    DeviceTraffic,
    Flight,
    FrameCounts,
    HostTraffic,
    IterationLine,
    LanePair,
    LanesLine,
    LinkLine,
    MemoryLine,
    PairTraffic,
    Phases,
    SizeRange,
    TrafficLine,
    VerificationLine,
    WorkerIteration,
    WorkerMemory,
)


class IterationAssembler:
    """Collects the workers' events of each iteration; the last one to arrive completes its line.

    `skew`: the bound on the barrier's skew, seconds. `complete`: iterations whose line was given out.
    """

    def __init__(self, launch: int, workers: int) -> None:
        self._launch, self._workers = launch, workers
        self._open: dict[tuple[bool, int], dict[int, dict[str, Any]]] = {}
        self.skew: float | None = None
        self.complete = 0

    def add(self, event: Mapping[str, Any]) -> IterationLine | None:
        """Take one worker's event; the iteration's line if it was the last."""
        key = (bool(event["warmup"]), int(event["index"]))
        parts = self._open.setdefault(key, {})
        parts[int(event["rank"])] = event["measured"]
        if len(parts) < self._workers:
            return None
        del self._open[key]
        self.complete += 1
        return iteration_line(self._launch, key[1], parts, warmup=key[0], skew=self.skew)


def iteration_line(
    launch: int, index: int, parts: Mapping[int, Mapping[str, Any]], *, warmup: bool, skew: float | None
) -> IterationLine:
    """The line of one iteration from every worker's part; wall is the slowest worker's own time."""
    pairs = [
        PairTraffic(from_rank=int(source), to_rank=rank, bytes=int(size), seconds=float(seconds))
        for rank, part in sorted(parts.items())
        for source, size, seconds in sorted(part["arrived"])
    ]
    return IterationLine(
        launch=launch,
        index=index,
        warmup=warmup,
        wall_seconds=max(part["seconds"] for part in parts.values()),
        barrier_skew_seconds=skew,
        workers=[_worker(rank, part) for rank, part in sorted(parts.items())],
        pairs=pairs,
    )


def _worker(rank: int, part: Mapping[str, Any]) -> WorkerIteration:
    left, right = part["flights"]["left"], part["flights"]["right"]
    return WorkerIteration(
        rank=rank,
        seconds=part["seconds"],
        phases_seconds=Phases(**part["phases"]),
        overlap_seconds=part["overlap"],
        join_overlap_seconds=part["join_overlap"],
        sent_bytes=FrameCounts(left=left[0], right=right[0]),
        flight_seconds=Flight(left=left[1], right=right[1], union=part["union_seconds"]),
        received_rows=FrameCounts(**part["received_rows"]),
        result_rows=part["result_rows"],
        cpu_seconds=part["cpu"],
    )


def link_line(launch: int, measured: Sequence[Sequence[Measured]]) -> LinkLine:
    """The link limit: every worker's rounds of the exchange alone."""
    sent = [sum(size for size, _ in rounds[0].flights.values()) for rounds in measured]
    seconds = [[worker[number].union_seconds for worker in measured] for number in range(len(measured[0]))]
    return LinkLine(launch=launch, bytes=sent, rounds=seconds, limit_bytes_per_second=link_limit(sent, seconds))


def lanes_line(
    launch: int,
    hosts: Sequence[str],
    endpoints: Sequence[Mapping[int, tuple[Sequence[str], Sequence[Range]]]],
    requested: Mapping[str, str],
) -> LanesLine:
    """The transports and protocols of every ordered pair; equal protocols are written once."""
    tables: list[list[SizeRange]] = []
    pairs = []
    for rank, peers in enumerate(endpoints):
        for peer, (lanes, ranges) in sorted(peers.items()):
            table = [_size_range(each) for each in ranges]
            if table and table not in tables:
                tables.append(table)
            pairs.append(
                LanePair(
                    from_rank=rank,
                    to_rank=peer,
                    placement="same host" if hosts[rank] == hosts[peer] else "between hosts",
                    transports=list(lanes),
                    protocols=tables.index(table) if table else None,
                )
            )
    return LanesLine(launch=launch, requested=dict(requested), pairs=pairs, protocols=tables)


def _size_range(found: Range) -> SizeRange:
    return SizeRange(
        memory=found.memory,
        first_bytes=found.first,
        last_bytes=found.last,
        protocol=found.protocol,
        transports=found.transports,
        estimated=found.estimated,
    )


def traffic_line(launch: int, during: str, hosts: Mapping[str, tuple[Counts, Counts]]) -> TrafficLine:
    """What each host's devices counted between two readings."""
    return TrafficLine(
        launch=launch,
        during=during,
        hosts=[
            HostTraffic(
                host=host,
                devices=[
                    DeviceTraffic(device=device, sent_bytes=sent, received_bytes=received)
                    for device, (sent, received) in difference(before, after).items()
                ],
            )
            for host, (before, after) in hosts.items()
        ],
    )


def memory_line(launch: int, ends: Sequence[Mapping[str, Any]]) -> MemoryLine:
    """Peak memory of every worker."""
    return MemoryLine(
        launch=launch,
        workers=[
            WorkerMemory(
                rank=rank,
                peak_bytes=end["peak_bytes"],
                peak_above_imports_bytes=end["peak_above_imports_bytes"],
                device_peak_bytes=end["device_peak_bytes"],
                input_bytes=end["input_bytes"],
            )
            for rank, end in enumerate(ends)
        ],
    )


def verification_line(launch: int, after: int | None, verdict: Verdict, how: str) -> VerificationLine:
    """The line of one proof."""
    return VerificationLine(
        launch=launch,
        after=after,
        ok=verdict.ok,
        how=how,
        rows=verdict.rows,
        expected_rows=verdict.expected_rows,
        checksum=f"{verdict.checksum:016x}",
        expected_checksum=f"{verdict.expected_checksum:016x}",
        bad_rows=verdict.bad_rows,
        message=verdict.message,
    )
