"""What workers report, turned into lines of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from merge_bench.analysis.metrics import link_limit
from merge_bench.host.counters import Counts, difference
from merge_bench.merge.merger import Measured, Transfers
from merge_bench.merge.verification.verify import Verdict
from merge_bench.records.schema import (
    DeviceTraffic,
    HostTraffic,
    IterationLine,
    LanePair,
    LanesLine,
    LinkLine,
    SizeRange,
    TrafficLine,
    VerificationLine,
)


class IterationEvent(msgspec.Struct, frozen=True):
    """What a worker sends as soon as an iteration is done."""

    rank: int
    index: int
    warmup: bool
    measured: Measured


class IterationAssembler:
    """Collects the workers' events of each iteration; the last one to arrive completes its line.

    `skew`: the bound on the barrier's skew, seconds. `complete`: iterations whose line was given out.
    """

    def __init__(self, launch: int, workers: int) -> None:
        self._launch, self._workers = launch, workers
        self._open: dict[tuple[bool, int], dict[int, Measured]] = {}
        self.skew: float | None = None
        self.complete = 0

    def add(self, event: Mapping[str, Any]) -> IterationLine | None:
        """Take one worker's event; the iteration's line if it was the last."""
        found = msgspec.convert(event, IterationEvent)
        key = found.warmup, found.index
        parts = self._open.setdefault(key, {})
        parts[found.rank] = found.measured
        if len(parts) < self._workers:
            return None
        del self._open[key]
        self.complete += 1
        return iteration_line(self._launch, key[1], parts, warmup=key[0], skew=self.skew)


def iteration_line(
    launch: int, index: int, parts: Mapping[int, Measured], *, warmup: bool, skew: float | None
) -> IterationLine:
    """The line of one iteration from every worker's part; wall is the slowest worker's own time."""
    by_rank = [part for _, part in sorted(parts.items())]
    return IterationLine(
        launch=launch,
        index=index,
        warmup=warmup,
        wall_seconds=max(part.worker.seconds for part in by_rank),
        barrier_skew_seconds=skew,
        workers=[part.worker for part in by_rank],
        pairs=[pair for part in by_rank for pair in part.pairs],
    )


def link_line(launch: int, measured: Sequence[Sequence[Transfers]]) -> LinkLine:
    """The link limit: every worker's rounds of the exchange alone."""
    sent = [rounds[0].sent_bytes.left + rounds[0].sent_bytes.right for rounds in measured]
    seconds = [[worker[number].seconds.union for worker in measured] for number in range(len(measured[0]))]
    return LinkLine(launch=launch, bytes=sent, rounds=seconds, limit_bytes_per_second=link_limit(sent, seconds))


def lanes_line(
    launch: int,
    hosts: Sequence[str],
    endpoints: Sequence[Mapping[int, tuple[list[str], list[SizeRange]]]],
    requested: Mapping[str, str],
) -> LanesLine:
    """The transports and protocols of every ordered pair; equal protocols are written once."""
    tables: list[list[SizeRange]] = []
    pairs = []
    for rank, peers in enumerate(endpoints):
        for peer, (lanes, table) in sorted(peers.items()):
            if table and table not in tables:
                tables.append(table)
            pairs.append(
                LanePair(
                    from_rank=rank,
                    to_rank=peer,
                    placement="same host" if hosts[rank] == hosts[peer] else "between hosts",
                    transports=lanes,
                    protocols=tables.index(table) if table else None,
                )
            )
    return LanesLine(launch=launch, requested=dict(requested), pairs=pairs, protocols=tables)


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
