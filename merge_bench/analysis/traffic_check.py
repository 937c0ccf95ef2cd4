"""Compares the transports that UCX selected with what the devices of the hosts counted.

Only network devices can be checked: shared memory has no counter, and neither has PCIe, which GPUs of one host may use.
Counters include control messages and other programs, so only large contradictions are reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from merge_bench.config import allowed_transports
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import HostTraffic, LanePair, LanesLine
from merge_bench.units import format_bytes

LEAST_BYTES = 4 << 20  # that a host's ranks must have sent; below this control messages weigh too much
SHARE = 0.5  # of the bytes in question: as much on the wrong side is a contradiction
HEADERS = 0.15  # more than the payload may cross a network: headers, acknowledgements
LOOPBACK = "lo"
_NO_NETWORK = allowed_transports.SHARED_MEMORY | {"cuda_ipc", "rocm_ipc", "ze_ipc"}
_TRANSPORT = re.compile(r"(\w+)/([\w.:-]+)")


@dataclass(frozen=True)
class Contradiction:
    """Counters of `host` that do not fit the lanes. Bytes: `selected` is what should (not) have crossed `devices`."""

    host: str
    message: str
    selected: int
    counted: int


@dataclass
class _Expected:
    """Bytes that a host's ranks sent, by what the lanes let them cross."""

    total: int = 0
    must: int = 0
    may: int = 0
    transports: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)


def contradictions(launch: Launch) -> list[Contradiction]:
    """Those of the timed iterations of `launch`; [] where lanes or counters are missing."""
    counted = next((line for line in launch.traffic if line.during == "iterations"), None)
    if counted is None or launch.lanes is None or launch.line is None:
        return []
    hosts = {worker.rank: worker.host for worker in launch.line.workers}
    sent: Counter[tuple[int, int]] = Counter()
    for iteration in launch.timed:
        for pair in iteration.pairs:
            sent[pair.from_rank, pair.to_rank] += pair.bytes
    expected = _expected(launch.lanes, sent, hosts)
    return [found for host in counted.hosts for found in _judge(host, expected.get(host.host, _Expected()))]


def carriers(pair: LanePair, line: LanesLine) -> set[tuple[str, str]]:
    """Transports and devices that may carry a pair's messages: those of its protocols, else of its lanes."""
    ranges = line.protocols[pair.protocols] if pair.protocols is not None else []
    texts = [each.transports for each in ranges] if ranges and all(each.transports for each in ranges) else []
    matches = {match for text in texts or pair.transports for match in _TRANSPORT.findall(text)}
    return {
        (transport, device) for transport, device in matches if transport not in allowed_transports.WITHIN_A_PROCESS
    }


def _expected(line: LanesLine, sent: Counter[tuple[int, int]], hosts: Mapping[int, str]) -> dict[str, _Expected]:
    by_host: dict[str, _Expected] = {}
    for pair in line.pairs:
        size, of_host = sent[pair.from_rank, pair.to_rank], hosts.get(pair.from_rank)
        if of_host is None:
            continue
        all_carriers = carriers(pair, line)
        network = {(transport, device) for transport, device in all_carriers if transport not in _NO_NETWORK}
        host = by_host.setdefault(of_host, _Expected())
        host.total += size
        if not network:
            host.elsewhere |= {f"{transport}/{device}" for transport, device in all_carriers}
            continue
        host.may += size
        host.must += size if network == all_carriers else 0
        host.transports |= {f"{transport}/{device}" for transport, device in network}
        host.devices |= {device for _, device in network}
        if pair.placement == "same host" and any(transport == "tcp" for transport, _ in network):
            host.devices.add(LOOPBACK)  # the kernel sends what is for this host through it, whatever UCX names
    return by_host


def _judge(host: HostTraffic, expected: _Expected) -> Iterator[Contradiction]:
    if expected.total < LEAST_BYTES:
        return
    seen = {each.device: each.sent_bytes for each in host.devices if not each.device.startswith("nvlink")}
    if expected.must and expected.devices <= set(seen):
        crossed = sum(seen[device] for device in expected.devices)
        if crossed < SHARE * expected.must:
            yield Contradiction(
                host.host,
                f"on {host.host} UCX selected {_listed(expected.transports)} to carry"
                f" {format_bytes(expected.must)}, but {_listed(expected.devices)} counted {format_bytes(crossed)} sent",
                expected.must,
                crossed,
            )
            return
    rest = expected.total - expected.may
    # Not the sum of all devices: a bond and its members count the same bytes.
    busiest = max(seen, key=lambda device: seen[device], default=None)
    if busiest is not None and rest and seen[busiest] > (1 + HEADERS) * expected.may + SHARE * rest:
        yield Contradiction(
            host.host,
            f"on {host.host} UCX selected {_listed(expected.elsewhere)} for {format_bytes(rest)}, but {busiest} counted"
            f" {format_bytes(seen[busiest])} sent",
            rest,
            seen[busiest],
        )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
