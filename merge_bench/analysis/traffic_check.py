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
    """Counters of `host` that contradict the selected transports: bytes that were to be sent, bytes `counted`."""

    host: str
    message: str
    selected: int
    counted: int


@dataclass
class _Expected:
    """Bytes that a host's ranks sent: in `total`, and those that `must` or `may` have crossed its network `devices`."""

    total: int = 0
    must: int = 0
    may: int = 0
    transports: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)


def traffic_contradictions(launch: Launch) -> list[Contradiction]:
    """The contradictions in the timed iterations of `launch`; none where lanes or counters were not recorded."""
    counted = next((line for line in launch.traffic if line.during == "iterations"), None)
    if counted is None or launch.lanes is None or launch.line is None:
        return []
    hosts = {worker.rank: worker.host for worker in launch.line.workers}
    sent: Counter[tuple[int, int]] = Counter()
    for iteration in launch.timed:
        for pair in iteration.pairs:
            sent[pair.from_rank, pair.to_rank] += pair.bytes
    expected = _expected_bytes(launch.lanes, sent, hosts)
    return [each for host in counted.hosts for each in _judge_host(host, expected.get(host.host, _Expected()))]


def carriers_of_pair(pair: LanePair, line: LanesLine) -> set[tuple[str, str]]:
    """The (transport, device) that may carry messages between two ranks, by their protocols, else by their lanes."""
    ranges = line.protocols[pair.protocols] if pair.protocols is not None else []
    texts = [each.transports for each in ranges] if ranges and all(each.transports for each in ranges) else []
    matches = {match for text in texts or pair.transports for match in _TRANSPORT.findall(text)}
    return {
        (transport, device) for transport, device in matches if transport not in allowed_transports.WITHIN_A_PROCESS
    }


def _expected_bytes(line: LanesLine, sent: Counter[tuple[int, int]], hosts: Mapping[int, str]) -> dict[str, _Expected]:
    """By host, the bytes of `sent` (from rank, to rank) that must, or may, have crossed its network devices."""
    by_host: dict[str, _Expected] = {}
    for pair in line.pairs:
        size, of_host = sent[pair.from_rank, pair.to_rank], hosts.get(pair.from_rank)
        if of_host is None:
            continue
        all_carriers = carriers_of_pair(pair, line)
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


def _judge_host(host: HostTraffic, expected: _Expected) -> Iterator[Contradiction]:
    """The contradiction, if there is one, between a host's device counters and what its ranks sent."""
    if expected.total < LEAST_BYTES:
        return
    seen = {each.device: each.sent_bytes for each in host.devices if not each.device.startswith("nvlink")}
    if expected.must and expected.devices <= set(seen):
        crossed = sum(seen[device] for device in expected.devices)
        if crossed < SHARE * expected.must:
            yield Contradiction(
                host.host,
                f"on {host.host} UCX selected {_name_list(expected.transports)} to carry"
                f" {format_bytes(expected.must)}, but {_name_list(expected.devices)} counted"
                f" {format_bytes(crossed)} sent",
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
            f"on {host.host} UCX selected {_name_list(expected.elsewhere)} for {format_bytes(rest)}, but {busiest}"
            f" counted {format_bytes(seen[busiest])} sent",
            rest,
            seen[busiest],
        )


def _name_list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
