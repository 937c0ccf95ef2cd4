"""What is recorded of a launch that merges.

The tables with their expected result, iterations and verdicts; settings that differ, lanes that UCX selected, bytes
that devices counted; the timeline.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from merge_bench.campaign.cluster_session import Session
from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import Installed, effective, find_installed
from merge_bench.errors import Caution, GateNotMet, RunFailed, WrongResult
from merge_bench.host import machine
from merge_bench.merge import worker
from merge_bench.merge.frame import Field
from merge_bench.merge.merger import Measured
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification.verify import MODULUS, Check, deserialize_tables, judge
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.schema import (
    DeviceTraffic,
    HostTraffic,
    IterationLine,
    LanePair,
    LanesLine,
    SizeRange,
    TimelineLine,
    TrafficLine,
    VerificationLine,
)
from merge_bench.records.timeline import (
    Timeline,
    TimelineHead,
    TimelineIteration,
    TimelineRound,
    WorkerClock,
    encode,
    file_name,
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
        check_pairs(session.plan.require_transport, session.lanes.pairs)


def check_pairs(required: Sequence[str], pairs: Sequence[LanePair]) -> None:
    """Refuse to go on where a pair uses none of `required`.

    Raises
    ------
    GateNotMet
        Naming the first such pair and what it uses.
    """
    if not required:
        return
    wanted = allowed_transports.resolve_aliases(required)
    failing = [pair for pair in pairs if not wanted & {lane.partition("/")[0] for lane in pair.transports}]
    if failing:
        first = failing[0]
        uses = ", ".join(first.transports) or "no transport that UCX reports"
        others = f" ({len(failing)} of {len(pairs)} pairs fail)" if len(pairs) > 1 else ""
        raise GateNotMet(
            f"--require-transport {','.join(required)} is not met: the connection from rank {first.from_rank} to rank"
            f" {first.to_rank} ({first.placement or 'placement unknown'}) uses {uses}{others}"
        )


def compare_environment(session: Session) -> list[Caution]:
    """Record a warning for each setting of config and launcher that a worker does not have; gives the warnings."""
    canonical = Canonical(find_installed())  # the UCX that a worker here loads
    contexts = [each.ucx.config if each.ucx.version == canonical.version else {} for each in session.descriptions]
    environments = [each.environment for each in session.descriptions]
    differing = differences(_asked(session), environments, contexts, canonical)
    cautions = [Caution(ENVIRONMENT_DIFFERS, difference.message, REMEDY) for difference in differing]
    for caution in cautions:
        session.warn(caution)
    return cautions


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
    for rank, peers in enumerate(session.workers.on_all(worker.endpoints)):
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
        transports = allowed_transports.requested(session.descriptions[0].ucx.config)
        session.lanes = LanesLine(launch=session.launch, requested=transports, pairs=pairs, protocols=protocols)
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


ENVIRONMENT_DIFFERS = "environment-differs"
REMEDY = (
    "find what else sets this variable: an alias of the variable, a ucx.conf file, a login script or a launcher option"
)


@dataclass(frozen=True)
class Difference:
    """`name` was to be `wanted`, and is `actual` (None: not set) on these ranks, under the name `as_name`."""

    name: str
    wanted: str
    actual: str | None
    ranks: tuple[int, ...]
    as_name: str

    @property
    def message(self) -> str:
        """One sentence."""
        ranks = ", ".join(str(rank) for rank in self.ranks)
        who = f"rank {ranks} has" if len(self.ranks) == 1 else f"ranks {ranks} have"
        has = f"no {self.as_name}" if self.actual is None else f"{self.as_name}={self.actual}"
        return f"{self.name}={self.wanted} was requested, but {who} {has}"


class Canonical:
    """How UCX writes settings; without an installed UCX to ask, only environments can be compared."""

    def __init__(self, installed: Installed | None) -> None:
        self._installed = installed
        self._effective = functools.cache(lambda asked: effective(installed, dict(asked)) if installed else {})

    @property
    def version(self) -> str | None:
        """Of the UCX that is asked: only a context of the same one can be compared."""
        return self._installed.version if self._installed else None

    def name(self, name: str) -> str:
        """The name under which UCX itself keeps a setting."""
        setting = self._installed.settings.get(name) if self._installed else None
        return (setting.alias_of if setting else None) or name

    def values(self, settings: Mapping[str, str]) -> dict[str, str]:
        """What UCX makes of `settings`, under its own names; {} where it cannot be asked."""
        return self._effective(frozenset(settings.items()))


def differences(
    wanted_settings: Iterable[Mapping[str, str]],
    environments: Iterable[Mapping[str, str]],
    contexts: Iterable[Mapping[str, str]],
    canonical: Canonical,
) -> list[Difference]:
    """What differs, in the order of `wanted_settings`.

    Settings of UCX's context are compared with those that the context holds, because these take effect whatever the
    environment says. UCX writes values in its own form (``8192`` becomes ``8K``), so the same UCX is asked for it.

    Parameters
    ----------
    wanted_settings, environments, contexts
        Of each rank: what it was to have, the environment of its process (all of these names that are set in it),
        and the settings that its UCX context holds (empty if there is none).
    canonical
        How UCX writes settings.
    """
    ranks_by_difference: dict[tuple[str, str, str | None, str], list[int]] = {}
    for rank, (wanted, environment, context) in enumerate(zip(wanted_settings, environments, contexts, strict=True)):
        own = {name: value for name, value in wanted.items() if canonical.name(name) in context}
        expected = canonical.values(own) if own else {}
        for name, value in wanted.items():
            has, as_name = environment.get(name), canonical.name(name)
            if name in own and as_name in expected and context[as_name] != expected[as_name]:
                has = context[as_name]
            elif has != value:
                as_name = name
            else:
                continue
            ranks_by_difference.setdefault((name, value, has, as_name), []).append(rank)
    return [
        Difference(name, value, has, tuple(ranks), at) for (name, value, has, at), ranks in ranks_by_difference.items()
    ]


@dataclass(frozen=True)
class Expected:
    """The right number of rows, the right checksum, and how they were found."""

    rows: int
    checksum: int
    how: str


@dataclass(frozen=True)
class Tables:
    """Both frames over all workers: their rows and bytes, the fields of the left and the right one, and what a merge of
    them gives (None: not to be verified).
    """

    rows: int
    data_bytes: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: Expected | None


def make_tables(session: Session) -> Tables:
    """Have every worker generate or read its chunks."""
    session.progress.phase("creating the tables")
    prepared = session.workers.on_all(worker.prepare, session.plan, ranked=True, after=(session.topic,))
    if session.plan.write_result is not None:
        session.workers.on_all(worker.make_result_folder)  # finds one that cannot be used before the merge
    other = next((p.rank for p in prepared if p.fields != prepared[0].fields), None)
    if other is not None:
        raise RunFailed(
            f"rank {prepared[0].rank} and rank {other} read tables with different columns; give every host the same"
            " files"
        )
    return Tables(
        rows=sum(p.rows for p in prepared),
        data_bytes=sum(p.input_bytes for p in prepared),
        fields=prepared[0].fields,
        expected=None if session.plan.verify == "off" else _expectation(session.plan, prepared),
    )


def _expectation(plan: Plan, prepared: Sequence[worker.Prepared]) -> Expected:
    """The expected result, computed without this package's partition, exchange or join.

    For the synthetic workload from the generator, for real tables from DuckDB.
    """
    if isinstance(plan.workload, TableSpec):
        from merge_bench.merge.verification import duckdb_reference

        rows, total = duckdb_reference.expected_result(plan.workload, plan.how)
        return Expected(rows, total, "row count and checksum compared with DuckDB")
    parts = [p.expected for p in prepared if p.expected is not None]
    return Expected(
        sum(part.rows for part in parts),
        sum(part.checksum for part in parts) % MODULUS,
        "every row, row count and checksum",
    )


class MergeRecord:
    """Writes the iterations and verdicts of one launch, and shows them.

    `verdicts`: how many were written.
    """

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session, self._tables = session, tables
        self.verdicts = 0

    def iteration(self, line: IterationLine) -> None:
        """Write an iteration and show it."""
        session = self._session
        session.writer.write(line)
        if not line.warmup:
            rate = self._tables.data_bytes / line.wall_seconds
            session.progress.iteration(line.index, session.plan.iterations, line.wall_seconds, rate)

    def verdict(self, after: int | None, checks: Sequence[Check], folder: str | None = None) -> None:
        """Judge what the workers found after this iteration (None: the warm-up) and write it; raises `WrongResult`.

        `folder`: where the workers read the result that they checked; None: it was in memory.
        """
        session, expected = self._session, self._tables.expected
        assert expected is not None
        whole, message = judge(checks, expected.rows, expected.checksum)
        workload = session.plan.workload
        if message is None and session.plan.verify == "full" and isinstance(workload, TableSpec):
            from merge_bench.merge.verification import duckdb_reference

            tables = [table for check in checks for table in deserialize_tables(check.tables)]
            message = duckdb_reference.compare_full(workload, tables, session.plan.how)
        session.writer.write(
            VerificationLine(
                launch=session.launch,
                after=after,
                ok=message is None,
                how=expected.how,
                rows=whole.rows,
                expected_rows=expected.rows,
                checksum=f"{whole.checksum:016x}",
                expected_checksum=f"{expected.checksum:016x}",
                bad_rows=whole.bad_rows,
                message=message,
                folder=folder,
            )
        )
        self.verdicts += 1
        if message is not None:
            raise WrongResult(message)


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
        message = msgspec.convert(event, IterationEvent)
        key = message.warmup, message.index
        parts = self._open.setdefault(key, {})
        parts[message.rank] = message.measured
        if len(parts) < self._workers:
            return None
        del self._open[key]
        self.complete += 1
        by_rank = [part for _, part in sorted(parts.items())]
        return IterationLine(
            launch=self._launch,
            index=message.index,
            warmup=message.warmup,
            wall_seconds=max(part.worker.seconds for part in by_rank),  # the slowest worker's own time
            barrier_skew_seconds=self.skew,
            workers=[part.worker for part in by_rank],
            pairs=[pair for part in by_rank for pair in part.pairs],
        )


MOST_SHARE = 0.01
"""Of an iteration that notes may take, with ``--timeline auto``."""


def decide(plan: Plan, costs: Sequence[worker.NoteCost], launch: int = 0) -> TimelineLine:
    """Whether to record a timeline, and why.

    That is decided by what notes cost the workers: notes of an iteration × seconds of one ÷ its seconds.
    The worker for which that is most decides for all, because messages need both of their ends. `costs`: of the
    iterations so far; none before the first one, which a timeline has unless it is ``off``.
    """
    dearest = max(costs, key=lambda cost: cost.share, default=None)
    cheap = dearest is None or dearest.share <= MOST_SHARE
    recorded = plan.timeline == "on" or (plan.timeline == "auto" and cheap)
    because = "asked for" if plan.timeline != "auto" else "cheap" if cheap else "expensive"
    line = TimelineLine(launch=launch, recorded=recorded, because=because)
    if dearest is None:
        return line
    return replace(line, notes=dearest.notes, note_seconds=dearest.note_seconds, share=dearest.share)


def most_share(plan: Plan, decision: TimelineLine) -> float | None:
    """The share of an iteration that notes may take from now on; None: nothing is noted."""
    if not decision.recorded:
        return None
    return math.inf if plan.timeline == "on" else MOST_SHARE


def record_timeline(session: Session, decision: TimelineLine, skew: float | None) -> None:
    """Write what the workers kept into the file beside the records, and record the decision."""
    if session.plan.timeline == "off":
        return
    if decision.recorded:
        name, timeline = file_name(session.launch), gathered(session, skew)
        if timeline.iterations:
            session.writer.write_beside(name, encode(timeline))
            lines = [*timeline.iterations, *timeline.rounds]
            events = sum(worker.events for line in lines for worker in line.workers)
            kept = [iteration.index for iteration in timeline.iterations]
            decision = replace(decision, file=name, events=events, iterations=kept)
        else:
            decision = replace(decision, recorded=False, because="too many events")
    session.writer.write(decision)


def gathered(session: Session, skew: float | None) -> Timeline:
    """The iterations that all workers kept, and the rounds of the link measurement."""
    by_rank = session.workers.on_all(worker.timelines)
    kept = sorted(set.intersection(*(set(each.iterations) for each in by_rank)))
    rounds = zip(*(each.rounds for each in by_rank), strict=True)
    clocks = zip(session.descriptions, by_rank, strict=True)
    return Timeline(
        head=TimelineHead(
            launch=session.launch,
            clocks=[
                WorkerClock(rank=worker.rank, host=worker.host, unix_seconds=each.unix_seconds)
                for worker, each in clocks
            ],
            skew_seconds=skew,
        ),
        iterations=[
            TimelineIteration(index=index, workers=[each.iterations[index] for each in by_rank]) for index in kept
        ],
        rounds=[TimelineRound(index=index, workers=list(workers)) for index, workers in enumerate(rounds)],
    )
