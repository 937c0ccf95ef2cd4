"""Records the conditions of a launch: settings that differ, lanes that UCX selected, bytes that devices counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from merge_bench.campaign import require_transport, settings_check
from merge_bench.campaign.cluster_session import Session
from merge_bench.campaign.iteration_record import lanes_line, traffic_line
from merge_bench.config import tls
from merge_bench.errors import Caution
from merge_bench.host import counters
from merge_bench.merge import steps
from merge_bench.records.schema import WarningLine, Worker


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
    canonical = settings_check.installed_here()
    contexts = [each.ucx.config if each.ucx.version == canonical.version else {} for each in session.facts]
    environments = [each.environment for each in session.facts]
    differing = settings_check.differences(_asked(session), environments, contexts, canonical)
    found = [Caution(settings_check.CODE, each.message, settings_check.REMEDY) for each in differing]
    for caution in found:
        session.writer.write(WarningLine.of(caution, session.launch))
    return found


def _asked(session: Session) -> list[Mapping[str, str]]:
    """The settings that each rank should have: those that its process was started with."""
    commands = session.launcher.commands(session.plan, session.settings)
    started = {command.role: command.environment for command in commands}
    told = session.settings.environment
    return [
        {
            name: value
            for name, value in started.get(member.name, told).items()
            if name in told or name.startswith("UCX")
        }
        for member in session.members
    ]


def record_lanes(session: Session) -> None:
    """Write the lanes that UCX selected, unless they were already written; with one worker there are none."""
    if session.plan.workers == 1:
        return
    hosts = [member.host for member in session.members]
    line = lanes_line(session.launch, hosts, session.workers.on_all(steps.endpoints), requested(session.facts[0]))
    if session.lanes is None or (line.pairs, line.protocols) != (session.lanes.pairs, session.lanes.protocols):
        session.lanes = line
        session.writer.write(line)


def requested(worker: Worker) -> dict[str, str]:
    """The settings about transports that a worker's UCX context holds."""
    return tls.requested(worker.ucx.config)


@contextmanager
def counted(session: Session, during: str) -> Iterator[None]:
    """Record what the devices of the hosts counted during the block, if it ends well."""
    if session.plan.workers == 1:
        yield
        return
    before = session.workers.on_all(counters.read)
    yield
    after = session.workers.on_all(counters.read)
    first = {member.host: member.rank for member in reversed(session.members)}
    hosts = {host: (before[rank], after[rank]) for host, rank in sorted(first.items(), key=lambda item: item[1])}
    session.writer.write(traffic_line(session.launch, during, hosts))
