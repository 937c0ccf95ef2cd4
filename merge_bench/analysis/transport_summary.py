"""Transports of a run: requested, selected by pair and by message size, and the bytes that devices counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from merge_bench.analysis.documents.run import Counted, Lane, Protocols, Traffic
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import LanesLine, SizeRange


def requested_settings(lines: Iterable[LanesLine]) -> dict[str, str]:
    """UCX's settings about transports, as rank 0 held them; where launches differ, all their values."""
    by_name: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, value in line.requested.items():
            by_name.setdefault(name, {})[value] = None
    return {name: " or ".join(values) for name, values in by_name.items()}


def lanes(lines: Iterable[LanesLine]) -> list[Lane]:
    """The transports selected for each pair of workers; where launches differ, those of all launches."""
    by_pair: dict[tuple[int, int], Lane] = {}
    for line in lines:
        for pair in line.pairs:
            key = pair.from_rank, pair.to_rank
            new = Lane(from_rank=key[0], to_rank=key[1], placement=pair.placement, transports=[])
            transports = by_pair.setdefault(key, new).transports
            transports += [transport for transport in pair.transports if transport not in transports]
    return [by_pair[key] for key in sorted(by_pair)]


def protocols(lines: Iterable[LanesLine]) -> list[Protocols]:
    """How messages travel by memory and size, for pairs of workers that are alike; where launches differ, a pair is in
    several entries."""
    pairs_of: dict[tuple[SizeRange, ...], set[tuple[int, int]]] = {}
    for line in lines:
        tables = [pairs_of.setdefault(tuple(ranges), set()) for ranges in line.protocols]
        for pair in line.pairs:
            if pair.protocols is not None:
                tables[pair.protocols].add((pair.from_rank, pair.to_rank))
    return [Protocols(pairs=sorted(pairs), ranges=list(ranges)) for ranges, pairs in pairs_of.items() if pairs]


def traffic(launches: Sequence[Launch]) -> list[Traffic]:
    """By host and period, the bytes that the host's ranks sent in all `launches`, and that its devices counted."""
    by_host: dict[tuple[str, str], Traffic] = {}
    for launch in launches:
        hosts = {worker.rank: worker.host for worker in launch.line.workers} if launch.line else {}
        for line in launch.traffic:
            exchanged = _sent_bytes_by_rank(launch, line.during)
            for host in line.hosts:
                counted_on = by_host.setdefault((host.host, line.during), Traffic(host=host.host, during=line.during))
                counted_on.sent += sum(size for rank, size in exchanged.items() if hosts.get(rank) == host.host)
                for device in host.devices:
                    counted = counted_on.devices.setdefault(device.device, Counted())
                    counted.sent += device.sent_bytes
                    counted.received += device.received_bytes
    return [by_host[key] for key in sorted(by_host)]


def _sent_bytes_by_rank(launch: Launch, during: str) -> dict[int, int]:
    """Bytes that each rank sent to others in the timed iterations, or in the rounds of the link measurement."""
    if during == "link":
        link = launch.link
        return {rank: size * len(link.rounds) for rank, size in enumerate(link.bytes)} if link else {}
    sent: Counter[int] = Counter()
    for iteration in launch.timed:
        for worker in iteration.workers:
            if worker.sent_bytes is not None:
                sent[worker.rank] += worker.sent_bytes.left + worker.sent_bytes.right
    return sent
