"""Transports of a run: requested, selected by pair and by message size, and whether devices' counters agree with them.

Only network devices can be checked: shared memory has no counter, and neither has PCIe, which GPUs of one host may use.
Counters include control messages and other programs, so only large contradictions are reported.

With GPUDirect an adapter reads and writes device memory itself. Without it UCX copies each message to the host, sends
it from there, and copies it to the device again: GPUs then exchange at the rate of these copies, which is warned of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from merge_bench.analysis.aggregate import sent_bytes_by_rank
from merge_bench.analysis.documents import DeviceBytes, PairTransports, Protocols, Traffic
from merge_bench.config import allowed_transports
from merge_bench.errors import Caution
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import HostTraffic, LanesLine, UcxProtocolRange, WorkerPairLanes
from merge_bench.units import format_bytes

LEAST_BYTES = 4 << 20  # that a host's ranks must have sent; below this control messages weigh too much
SHARE = 0.5  # of the bytes in question: as much on the wrong side is a contradiction
HEADERS = 0.15  # more than the payload may cross a network: headers, acknowledgements
LOOPBACK = "lo"
_NO_NETWORK = allowed_transports.SHARED_MEMORY | {"cuda_ipc", "rocm_ipc", "ze_ipc"}
_TRANSPORT = re.compile(r"(\w+)/([\w.:-]+)")

STAGED_MEMORY, NOT_CARRIED = "device-memory-staged", "not-carried"
"""Codes of warnings."""
DEVICE = ("cuda", "rocm", "ze-")  # how UCX names kinds of device memory
BETWEEN_HOSTS = "between hosts"
_STAGED = ("frag host", "copy-in", "copy-out")
"""Words in names of UCX protocols (src/ucp) that copy device memory through the host: fragments, bounce buffers."""
_SHOWN = 4


def requested_transport_settings(lanes_lines: Iterable[LanesLine]) -> dict[str, str]:
    """The values of UCX's settings about transports on rank 0, by name; different values of launches are joined."""
    by_name: dict[str, dict[str, None]] = {}
    for line in lanes_lines:
        for name, value in line.requested.items():
            by_name.setdefault(name, {})[value] = None
    return {name: " or ".join(values) for name, values in by_name.items()}


def selected_lanes(lanes_lines: Iterable[LanesLine]) -> list[PairTransports]:
    """The transports that UCX selected for each pair of workers, in any launch."""
    by_pair: dict[tuple[int, int], PairTransports] = {}
    for line in lanes_lines:
        for pair in line.pairs:
            key = pair.from_rank, pair.to_rank
            new = PairTransports(from_rank=key[0], to_rank=key[1], placement=pair.placement, transports=[])
            transports = by_pair.setdefault(key, new).transports
            transports += [transport for transport in pair.transports if transport not in transports]
    return [by_pair[key] for key in sorted(by_pair)]


def selected_protocols(lanes_lines: Iterable[LanesLine]) -> list[Protocols]:
    """The protocols that UCX selected by memory and message size, each list with the pairs of workers that have it.

    Where launches differ, a pair is in several entries.
    """
    pairs_of: dict[tuple[UcxProtocolRange, ...], set[tuple[int, int]]] = {}
    for line in lanes_lines:
        tables = [pairs_of.setdefault(tuple(ranges), set()) for ranges in line.protocols]
        for pair in line.pairs:
            if pair.protocols is not None:
                tables[pair.protocols].add((pair.from_rank, pair.to_rank))
    return [Protocols(pairs=sorted(pairs), ranges=list(ranges)) for ranges, pairs in pairs_of.items() if pairs]


def counted_traffic(launches: Sequence[Launch]) -> list[Traffic]:
    """The bytes that each host's ranks sent and its network devices counted, by host and period, over `launches`."""
    by_host: dict[tuple[str, str], Traffic] = {}
    for launch in launches:
        hosts = {worker.rank: worker.host for worker in launch.line.workers} if launch.line else {}
        for line in launch.traffic:
            if line.during == "link":
                link = launch.link
                exchanged = {rank: size * len(link.rounds) for rank, size in enumerate(link.bytes)} if link else {}
            else:
                exchanged = dict(sent_bytes_by_rank([launch]))
            for host in line.hosts:
                counted_on = by_host.setdefault((host.host, line.during), Traffic(host=host.host, during=line.during))
                counted_on.sent += sum(size for rank, size in exchanged.items() if hosts.get(rank) == host.host)
                for device in host.devices:
                    counted = counted_on.devices.setdefault(device.device, DeviceBytes())
                    counted.sent += device.sent_bytes
                    counted.received += device.received_bytes
    return [by_host[key] for key in sorted(by_host)]


@dataclass
class _ExpectedTraffic:
    """Bytes that a host's ranks sent: in `total`, and those that `must` or `may` have used its network `devices`."""

    total: int = 0
    must: int = 0
    may: int = 0
    transports: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)


def traffic_contradiction_warnings(launch: Launch) -> Iterator[Caution]:
    """A warning for each host whose counters contradict the selected transports in the timed iterations of `launch`.

    None where lanes or counters were not recorded.
    """
    counted = next((line for line in launch.traffic if line.during == "iterations"), None)
    if counted is None or launch.lanes is None or launch.line is None:
        return
    hosts = {worker.rank: worker.host for worker in launch.line.workers}
    sent: Counter[tuple[int, int]] = Counter()
    for iteration in launch.timed_iterations:
        for pair in iteration.pairs:
            sent[pair.from_rank, pair.to_rank] += pair.bytes
    expected = _expected_traffic_by_host(launch.lanes, sent, hosts)
    for host in counted.hosts:
        if contradiction := _contradiction_text(host, expected.get(host.host, _ExpectedTraffic())):
            message = f"on {host.host} UCX selected {contradiction} sent"
            yield Caution(NOT_CARRIED, message, "run again while no other program uses the device")


def carriers_of_pair(pair: WorkerPairLanes, lanes_line: LanesLine) -> set[tuple[str, str]]:
    """The transports, each with its device, that may carry the messages from one rank to another."""
    ranges = lanes_line.protocols[pair.protocols] if pair.protocols is not None else []
    texts = [each.transports for each in ranges] if ranges and all(each.transports for each in ranges) else []
    matches = {match for text in texts or pair.transports for match in _TRANSPORT.findall(text)}
    return {
        (transport, device) for transport, device in matches if transport not in allowed_transports.WITHIN_A_PROCESS
    }


def _expected_traffic_by_host(
    lanes_line: LanesLine, sent_bytes: Counter[tuple[int, int]], hosts: Mapping[int, str]
) -> dict[str, _ExpectedTraffic]:
    """The bytes that must, or may, have crossed the network devices of each host, by host.

    `sent_bytes`: by (from rank, to rank).
    """
    by_host: dict[str, _ExpectedTraffic] = {}
    for pair in lanes_line.pairs:
        size, of_host = sent_bytes[pair.from_rank, pair.to_rank], hosts.get(pair.from_rank)
        if of_host is None:
            continue
        all_carriers = carriers_of_pair(pair, lanes_line)
        network = {(transport, device) for transport, device in all_carriers if transport not in _NO_NETWORK}
        host = by_host.setdefault(of_host, _ExpectedTraffic())
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


def _contradiction_text(host: HostTraffic, expected: _ExpectedTraffic) -> str:
    """A text with what UCX selected on a host and what its devices counted instead; empty if they agree."""
    if expected.total < LEAST_BYTES:
        return ""
    seen = {each.device: each.sent_bytes for each in host.devices if not each.device.startswith("nvlink")}
    if expected.must and expected.devices <= set(seen):
        crossed = sum(seen[device] for device in expected.devices)
        if crossed < SHARE * expected.must:
            selected = f"{_joined_names(expected.transports)} to carry {format_bytes(expected.must)}"
            return f"{selected}, but {_joined_names(expected.devices)} counted {format_bytes(crossed)}"
    rest = expected.total - expected.may
    # Not the sum of all devices: a bond and its members count the same bytes.
    busiest = max(seen, key=lambda device: seen[device], default=None)
    if busiest is not None and rest and seen[busiest] > (1 + HEADERS) * expected.may + SHARE * rest:
        selected = f"{_joined_names(expected.elsewhere)} for {format_bytes(rest)}"
        return f"{selected}, but {busiest} counted {format_bytes(seen[busiest])}"
    return ""


def _joined_names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def staged_memory_warnings(
    pairs: Sequence[WorkerPairLanes], protocols: Sequence[Sequence[UcxProtocolRange]]
) -> list[Caution]:
    """One warning about the pairs of workers between which UCX copies GPU memory through the host; [] if none.

    Only the largest messages count: small ones are copied on purpose.
    """
    ranks_of: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.placement != BETWEEN_HOSTS or pair.protocols is None:
            continue
        for sizes in protocols[pair.protocols]:
            if (
                sizes.last_bytes is None
                and sizes.memory.startswith(DEVICE)
                and any(word in sizes.protocol for word in _STAGED)
            ):
                how = f"{sizes.protocol} over {sizes.transports}" if sizes.transports else sizes.protocol
                ranks_of.setdefault(how, []).append(f"{pair.from_rank}→{pair.to_rank}")
    if not ranks_of:
        return []
    ranks = list(dict.fromkeys(rank for each in ranks_of.values() for rank in each))
    more = f", … ({len(ranks)} pairs)" if len(ranks) > _SHOWN else ""
    return [
        Caution(
            STAGED_MEMORY,
            f"device memory goes through host memory between {', '.join(ranks[:_SHOWN])}{more}: {'; '.join(ranks_of)}",
            "use a UCX with CUDA and RDMA (--ucx system), load nvidia_peermem or use a kernel with dma-buf, and check"
            " each host with doctor (GPU peer memory, GPU adapters)",
        )
    ]
