"""Records what a launch ran under: settings that differ, lanes that UCX selected, bytes that devices counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from merge_bench.campaign import gates, settings_check
from merge_bench.campaign.iteration_record import lanes_line, traffic_line
from merge_bench.campaign.session import Session
from merge_bench.config.tls import REQUESTED
from merge_bench.merge import steps
from merge_bench.records.schema import WarningLine


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
        gates.check_pairs(session.plan.require_transport, session.lanes.pairs)


def compare_environment(session: Session) -> list[WarningLine]:
    """Warn of every setting of config and launcher that a worker does not have; what was written down."""
    canonical = settings_check.installed_here()
    facts = session.facts
    contexts = [
        fact["ucx"].get("config", {}) if fact["ucx"].get("version") == canonical.version else {} for fact in facts
    ]
    environments = [fact["environment"] for fact in facts]
    found = settings_check.differences(_asked(session), environments, contexts, canonical)
    lines = [
        WarningLine(launch=session.launch, code=settings_check.CODE, message=each.message, remedy=settings_check.REMEDY)
        for each in found
    ]
    for line in lines:
        session.writer.write(line)
    return lines


def _asked(session: Session) -> list[Mapping[str, str]]:
    """What each rank was to have: what its own process was started with, as far as workers tell of it."""
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
    """Write what UCX selected, unless it is what was written last; nothing where there are no pairs."""
    if session.plan.workers == 1:
        return
    hosts = [member.host for member in session.members]
    line = lanes_line(session.launch, hosts, session.workers.on_all(steps.endpoints), requested(session.facts[0]))
    if session.lanes is None or (line.pairs, line.protocols) != (session.lanes.pairs, session.lanes.protocols):
        session.lanes = line
        session.writer.write(line)


def requested(fact: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, str]:
    """The settings about transports that a worker's UCX context holds."""
    config = fact["ucx"].get("config", {})
    return {name: config[name] for name in REQUESTED if name in config}


@contextmanager
def counted(session: Session, during: str) -> Iterator[None]:
    """Record what the hosts' devices counted meanwhile, if it ends well."""
    if session.plan.workers == 1:
        yield
        return
    before = session.workers.on_all(steps.counters)
    yield
    after = session.workers.on_all(steps.counters)
    first = {member.host: member.rank for member in reversed(session.members)}
    hosts = {host: (before[rank], after[rank]) for host, rank in sorted(first.items(), key=lambda item: item[1])}
    session.writer.write(traffic_line(session.launch, during, hosts))
