"""Records the conditions of a launch: settings that differ, lanes that UCX selected, bytes that devices counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from merge_bench.campaign import require_transport, settings_check
from merge_bench.campaign.cluster_session import Session
from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import find_installed
from merge_bench.errors import Caution
from merge_bench.host import machine
from merge_bench.merge import steps
from merge_bench.records.schema import (
    DeviceTraffic,
    HostTraffic,
    LanePair,
    LanesLine,
    SizeRange,
    TrafficLine,
)


def record_connections(session: Session) -> None:
    """Record lanes and differing settings before anything is measured.

    Raises
    ------
    GateNotMet
        If a pair does not use a transport that was required.
    """
    compare_environment(session)
    record_lanes(session)
    if session.lanes is not None:
        require_transport.check_pairs(session.plan.require_transport, session.lanes.pairs)


def compare_environment(session: Session) -> list[Caution]:
    """Record a warning for each setting of config and launcher that a worker does not have; gives the warnings."""
    canonical = settings_check.Canonical(find_installed())  # the UCX that a worker here loads
    contexts = [each.ucx.config if each.ucx.version == canonical.version else {} for each in session.descriptions]
    environments = [each.environment for each in session.descriptions]
    differing = settings_check.differences(_asked(session), environments, contexts, canonical)
    found = [Caution(settings_check.CODE, each.message, settings_check.REMEDY) for each in differing]
    for caution in found:
        session.warn(caution)
    return found


def _asked(session: Session) -> list[Mapping[str, str]]:
    """The settings that each rank should have: those that its process was started with."""
    commands = session.launcher.commands(session.plan, session.settings)
    started = {command.role: command.environment for command in commands}
    config = session.settings.environment
    return [
        {
            name: value
            for name, value in started.get(member.name, config).items()
            if name in config or name.startswith("UCX")
        }
        for member in session.members
    ]


def record_lanes(session: Session) -> None:
    """Write the transports and protocols of every ordered pair, unless they were already written.

    Equal protocols are written once. With one worker, or without UCX, there is no pair.
    """
    if session.plan.workers == 1 or not session.plan.data_plane.endpoints:
        return
    hosts = [member.host for member in session.members]
    protocols: list[list[SizeRange]] = []
    pairs = []
    for rank, peers in enumerate(session.workers.on_all(steps.endpoints)):
        for peer, (lanes, ranges) in sorted(peers.items()):
            if ranges and ranges not in protocols:
                protocols.append(ranges)
            pairs.append(
                LanePair(
                    from_rank=rank,
                    to_rank=peer,
                    placement="same host" if hosts[rank] == hosts[peer] else "between hosts",
                    transports=lanes,
                    protocols=protocols.index(ranges) if ranges else None,
                )
            )
    if session.lanes is None or (pairs, protocols) != (session.lanes.pairs, session.lanes.protocols):
        asked = allowed_transports.requested(session.descriptions[0].ucx.config)
        session.lanes = LanesLine(launch=session.launch, requested=asked, pairs=pairs, protocols=protocols)
        session.writer.write(session.lanes)


@contextmanager
def counted(session: Session, during: str) -> Iterator[None]:
    """Record what the devices of the hosts counted during the block, if it ends well."""
    if session.plan.workers == 1:
        yield
        return
    before = session.workers.on_all(machine.read_counters)
    yield
    after = session.workers.on_all(machine.read_counters)
    hosts: dict[str, HostTraffic] = {}  # by the first worker of each
    for member in session.members:
        if member.host not in hosts:
            devices = machine.difference(before[member.rank], after[member.rank])
            traffic = [
                DeviceTraffic(device=name, sent_bytes=sent, received_bytes=received)
                for name, (sent, received) in devices.items()
            ]
            hosts[member.host] = HostTraffic(host=member.host, devices=traffic)
    session.writer.write(TrafficLine(launch=session.launch, during=during, hosts=list(hosts.values())))
