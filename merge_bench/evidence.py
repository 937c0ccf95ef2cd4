"""What a launch writes down beside its measurements so that nobody is fooled: settings, lanes, and counted bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from merge_bench import gates, readback, steps
from merge_bench.config.tls import REQUESTED
from merge_bench.observe import lanes_line, traffic_line
from merge_bench.record.schema import WarningLine

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun


def after_connecting(run: LaunchRun) -> None:
    """Record lanes and differing settings before anything is measured.

    Raises
    ------
    GateNotMet
        If a pair does not use a transport that was required.
    """
    compare_environment(run)
    record_lanes(run)
    if run.lanes is not None:
        gates.check_pairs(run.plan.require_transport, run.lanes.pairs)


def record_cautions(run: LaunchRun) -> None:
    """Write down what the hosts told of themselves that will spoil the numbers."""
    for line in cautions(run):
        run.writer.write(line)


def cautions(run: LaunchRun) -> list[WarningLine]:
    """The launcher's cautions about UCX as lines of the records; none where nothing goes over UCX."""
    if run.plan.exchange != "ucx" and run.plan.protocol != "ucx":
        return []
    return [
        WarningLine(launch=run.launch, code=each.code, message=each.message, remedy=each.remedy)
        for each in run.launcher.cautions(run.settings)
    ]


def compare_environment(run: LaunchRun) -> list[WarningLine]:
    """Warn of every setting of config and launcher that a worker does not have; what was written down."""
    canonical = readback.installed_here()
    contexts = [
        fact["ucx"].get("config", {}) if fact["ucx"].get("version") == canonical.version else {} for fact in run.facts
    ]
    environments = [fact["environment"] for fact in run.facts]
    found = readback.differences(_asked(run), environments, contexts, canonical)
    lines = [
        WarningLine(launch=run.launch, code=readback.CODE, message=each.message, remedy=readback.REMEDY)
        for each in found
    ]
    for line in lines:
        run.writer.write(line)
    return lines


def _asked(run: LaunchRun) -> list[Mapping[str, str]]:
    """What each rank was to have: what its own process was started with, as far as workers tell of it."""
    started = {command.role: command.environment for command in run.launcher.commands(run.plan, run.settings)}
    told = run.settings.environment
    return [
        {
            name: value
            for name, value in started.get(member.name, told).items()
            if name in told or name.startswith("UCX")
        }
        for member in run.members
    ]


def record_lanes(run: LaunchRun) -> None:
    """Write what UCX selected, unless it is what was written last; nothing where there are no pairs."""
    if run.plan.workers == 1:
        return
    line = lanes_line(
        run.launch, [member.host for member in run.members], run.on_all(steps.endpoints), requested(run.facts[0])
    )  # fmt: skip
    if run.lanes is None or (line.pairs, line.protocols) != (run.lanes.pairs, run.lanes.protocols):
        run.lanes = line
        run.writer.write(line)


def requested(fact: Mapping[str, Mapping[str, Mapping[str, str]]]) -> dict[str, str]:
    """The settings about transports that a worker's UCX context holds."""
    config = fact["ucx"].get("config", {})
    return {name: config[name] for name in REQUESTED if name in config}


@contextmanager
def counted(run: LaunchRun, during: str) -> Iterator[None]:
    """Record what the hosts' devices counted meanwhile, if it ends well."""
    if run.plan.workers == 1:
        yield
        return
    before = run.on_all(steps.counters)
    yield
    after = run.on_all(steps.counters)
    first = {member.host: member.rank for member in reversed(run.members)}
    hosts = {host: (before[rank], after[rank]) for host, rank in sorted(first.items(), key=lambda item: item[1])}
    run.writer.write(traffic_line(run.launch, during, hosts))
