"""Records the measurements of a launch that merges.

Its tables and their expected result, iterations and verdicts; settings that differ from the requested ones, lanes that
UCX selected, bytes that devices counted; energy, clocks and throttling; the timeline.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from merge_bench.campaign.cluster_session import Session
from merge_bench.cluster.worker_calls import LaunchedWorker
from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import InstalledUcx, effective_settings, find_installed_ucx
from merge_bench.errors import GateNotMet, RunFailed, WarningMessage, WrongResult, print_warning
from merge_bench.host import machine
from merge_bench.host.machine import EnergyCounterReading
from merge_bench.merge import worker
from merge_bench.merge.frame import Field
from merge_bench.merge.merger import WorkerMeasurement
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification import MODULUS, ResultCheck, combine_and_judge_checks, deserialize_tables
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records import timeline as timelines
from merge_bench.records.schema import (
    DeviceTraffic,
    GpuPower,
    HostPower,
    HostTraffic,
    IterationLine,
    LanesLine,
    PowerLine,
    TimelineLine,
    TrafficLine,
    UcxProtocolRange,
    VerificationLine,
    WorkerPairLanes,
)
from merge_bench.units import format_bytes, plural_noun

ENVIRONMENT_DIFFERS = "environment-differs"
REMEDY = (
    "find what else sets this variable: an alias of the variable, a ucx.conf file, a login script or a launcher option"
)
KEPT = "memory-kept"


def record_connections(session: Session) -> None:
    """Record in which settings workers differ, and the UCX lanes of all pairs of workers.

    Raises GateNotMet if a pair has none of the required transports.
    """
    record_setting_differences(session)
    record_lanes(session)
    if session.lanes is not None:
        check_required_transports(session.plan.require_transport, session.lanes.pairs)


def check_required_transports(required: Sequence[str], pairs: Sequence[WorkerPairLanes]) -> None:
    """Raise GateNotMet if a pair of workers uses none of the `required` transports."""
    wanted = allowed_transports.resolve_transport_aliases(required)
    failing = [pair for pair in pairs if not wanted & {lane.partition("/")[0] for lane in pair.transports}]
    if required and failing:
        first = failing[0]
        uses = ", ".join(first.transports) or "no transport that UCX reports"
        others = f" ({len(failing)} of {len(pairs)} pairs fail)" if len(pairs) > 1 else ""
        pair = f"rank {first.from_rank} to rank {first.to_rank} ({first.placement or 'placement unknown'})"
        unmet = f"--require-transport {','.join(required)} is not met"
        raise GateNotMet(f"{unmet}: the connection from {pair} uses {uses}{others}")


def record_setting_differences(session: Session) -> list[WarningMessage]:
    """Record a warning for each requested setting that a worker's process does not have; returns the warnings."""
    # The UCX that a worker here loads.
    installed, descriptions = find_installed_ucx(session.settings.ucx_origin or "auto"), session.descriptions
    version = installed.version if installed else None
    contexts = [each.ucx.config if each.ucx.version == version else {} for each in descriptions]
    environments = [each.environment for each in descriptions]
    differing = setting_differences(_requested_settings(session), environments, contexts, installed)
    cautions = [WarningMessage(ENVIRONMENT_DIFFERS, difference.sentence, REMEDY) for difference in differing]
    for caution in cautions:
        session.record_warning(caution)
    return cautions


def _requested_settings(session: Session) -> list[Mapping[str, str]]:
    """The settings of config and launcher with which each rank's process was started, by rank."""
    config, commands = session.settings.environment, session.launcher.process_commands(session.plan, session.settings)
    started = {command.role: command.environment for command in commands}
    launched = [started.get(member.name, config) for member in session.members]
    return [
        {name: value for name, value in variables.items() if name in config or name.startswith("UCX")}
        for variables in launched
    ]


def record_lanes(session: Session) -> None:
    """Write the transports and protocols of every ordered pair of workers, unless they were already written."""
    if session.plan.workers == 1 or not session.plan.data_plane.endpoints:
        return
    hosts = [member.host for member in session.members]
    protocols: list[list[UcxProtocolRange]] = []
    pairs = []
    for rank, peers in enumerate(session.workers.run_on_all_workers(worker.describe_endpoints)):
        for peer, (lanes, ranges) in sorted(peers.items()):
            if ranges and ranges not in protocols:
                protocols.append(ranges)
            number = protocols.index(ranges) if ranges else None
            place = "same host" if hosts[rank] == hosts[peer] else "between hosts"
            pairs.append(
                WorkerPairLanes(from_rank=rank, to_rank=peer, placement=place, transports=lanes, protocols=number)
            )
    if session.lanes is None or (pairs, protocols) != (session.lanes.pairs, session.lanes.protocols):
        transports = allowed_transports.select_transport_settings(session.descriptions[0].ucx.config)
        session.lanes = LanesLine(launch=session.launch, requested=transports, pairs=pairs, protocols=protocols)
        session.writer.write(session.lanes)


@contextmanager
def record_traffic(session: Session, period: str) -> Iterator[None]:
    """Record the bytes that the hosts' network devices count during the `with` block, if no error ends the block."""
    if session.plan.workers == 1:
        yield
        return
    before = session.workers.run_on_all_workers(machine.read_device_byte_counters)
    yield
    after = session.workers.run_on_all_workers(machine.read_device_byte_counters)
    hosts = []
    for host, rank in _first_rank_by_host(session.members).items():
        devices = machine.byte_counter_difference(before[rank], after[rank]).items()
        counted = [DeviceTraffic(device=name, sent_bytes=out, received_bytes=into) for name, (out, into) in devices]
        hosts.append(HostTraffic(host=host, devices=counted))
    session.writer.write(TrafficLine(launch=session.launch, during=period, hosts=hosts))


def _first_rank_by_host(members: Sequence[LaunchedWorker]) -> dict[str, int]:
    """The rank of the first worker on each host, which reads the host's counters, by host."""
    ranks: dict[str, int] = {}
    for member in members:
        ranks.setdefault(member.host, member.rank)
    return ranks


@dataclass(frozen=True)
class SettingDifference:
    """A setting that was requested as `name`=`wanted`, of which `ranks` have `as_name`=`actual` (None: unset)."""

    name: str
    wanted: str
    actual: str | None
    ranks: tuple[int, ...]
    as_name: str

    @property
    def sentence(self) -> str:
        """The difference between the requested and the actual setting in one sentence."""
        ranks = ", ".join(str(rank) for rank in self.ranks)
        who = f"rank {ranks} has" if len(self.ranks) == 1 else f"ranks {ranks} have"
        has = f"no {self.as_name}" if self.actual is None else f"{self.as_name}={self.actual}"
        return f"{self.name}={self.wanted} was requested, but {who} {has}"


def setting_differences(
    requested_settings: Iterable[Mapping[str, str]],
    environments: Iterable[Mapping[str, str]],
    contexts: Iterable[Mapping[str, str]],
    installed_ucx: InstalledUcx | None,
) -> list[SettingDifference]:
    """Return the settings that workers have otherwise than requested, in the order of `requested_settings`.

    A setting that UCX's context holds is compared with the context, which takes effect whatever the environment says.
    UCX writes values in its own form (``8192`` becomes ``8K``), so the same UCX, `installed_ucx`, converts the
    requested value; only contexts of its version can be compared.

    `requested_settings`, `environments`, `contexts`: for each rank, the requested settings, those of these names that
    the environment of its process has, and the settings that its UCX context holds (empty without a context).
    """

    def resolve_setting_alias(name: str) -> str:
        setting = installed_ucx.settings.get(name) if installed_ucx else None
        return (setting.alias_of if setting else None) or name

    printed = functools.cache(
        lambda settings: effective_settings(installed_ucx, dict(settings)) if installed_ucx else {}
    )
    ranks_by_difference: dict[tuple[str, str, str | None, str], list[int]] = {}
    for rank, (wanted, environment, context) in enumerate(zip(requested_settings, environments, contexts, strict=True)):
        own = {name: value for name, value in wanted.items() if resolve_setting_alias(name) in context}
        expected = printed(frozenset(own.items())) if own else {}
        for name, value in wanted.items():
            has, as_name = environment.get(name), resolve_setting_alias(name)
            if name in own and as_name in expected and context[as_name] != expected[as_name]:
                has = context[as_name]
            elif has != value:
                as_name = name
            else:
                continue
            ranks_by_difference.setdefault((name, value, has, as_name), []).append(rank)
    return [
        SettingDifference(name, value, has, tuple(ranks), at)
        for (name, value, has, at), ranks in ranks_by_difference.items()
    ]


@dataclass(frozen=True)
class ExpectedResult:
    """The expected number of rows and checksum of a merge result; `how`: how they were found, in words."""

    rows: int
    checksum: int
    how: str


@dataclass(frozen=True)
class InputTables:
    """The size and columns of both input frames over all workers.

    `rows`, `data_bytes`: of the two together; `fields`: of the left and of the right frame; `expected`: the expected
    result of their merge, None: results are not verified.
    """

    rows: int
    data_bytes: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: ExpectedResult | None


def make_input_tables(session: Session) -> InputTables:
    """Have every worker generate or read its chunks of both input frames; returns size, columns and expected result."""
    session.progress.show_phase("creating the tables")
    prepared_chunks = session.workers.run_on_all_workers(
        worker.prepare_chunks, session.plan, pass_rank=True, arguments_after_rank=(session.topic,)
    )
    for caution in _unfreed_memory_warnings(prepared_chunks):
        print_warning(caution)
        session.record_warning(caution)
    if session.plan.write_result is not None:
        session.workers.run_on_all_workers(worker.make_result_folder)  # finds one that cannot be used before the merge
    other = next((p.rank for p in prepared_chunks if p.fields != prepared_chunks[0].fields), None)
    if other is not None:
        different = f"rank {prepared_chunks[0].rank} and rank {other} read tables with different columns"
        raise RunFailed(f"{different}; give every host the same files")
    return InputTables(
        rows=sum(p.rows for p in prepared_chunks),
        data_bytes=sum(p.input_bytes for p in prepared_chunks),
        fields=prepared_chunks[0].fields,
        expected=None if session.plan.verify == "off" else _expected_result(session.plan, prepared_chunks),
    )


def _unfreed_memory_warnings(prepared_chunks: Sequence[worker.PreparedChunks]) -> list[WarningMessage]:
    """A warning if workers of a running cluster cannot free memory of an aborted run; none if they can."""
    keepers = [each for each in prepared_chunks if each.kept_bytes]
    if not keepers:
        return []
    ranks = f"{plural_noun(len(keepers), 'rank')} {', '.join(str(each.rank) for each in keepers)}"
    size = format_bytes(sum(each.kept_bytes for each in keepers))
    why = "because other workers of that run did not answer and may still write there"
    what = f"{ranks} cannot free {size} of an aborted run, {why}"
    return [WarningMessage(KEPT, what, "restart the running cluster to free it")]


def _expected_result(plan: Plan, prepared_chunks: Sequence[worker.PreparedChunks]) -> ExpectedResult:
    """The expected result of the merge, computed by the generator of the tables or by DuckDB."""
    if isinstance(plan.workload, TableSpec):
        from merge_bench.merge.verification import duckdb_reference

        rows, total = duckdb_reference.compute_expected_result(plan.workload, plan.how)
        return ExpectedResult(rows, total, "row count and checksum compared with DuckDB")
    parts = [p.expected for p in prepared_chunks if p.expected is not None]
    rows, total = sum(part.rows for part in parts), sum(part.checksum for part in parts)
    return ExpectedResult(rows, total % MODULUS, "every row, row count and checksum")


class MergeRecorder:
    """Writes the records of the iterations and verifications of one launch.

    `verdicts`: the number of verifications so far.
    """

    def __init__(self, session: Session, tables: InputTables) -> None:
        self._session, self._tables = session, tables
        self.verdicts = 0

    def write_iteration(self, line: IterationLine) -> None:
        """Write the record of an iteration, and show the iteration on the display."""
        session = self._session
        session.writer.write(line)
        if not line.warmup:
            rate = self._tables.data_bytes / line.wall_seconds
            session.progress.show_iteration(line.index, session.plan.iterations, line.wall_seconds, rate)

    def write_verdict(
        self, after_iteration: int | None, checks: Sequence[ResultCheck], result_folder: str | None = None
    ) -> None:
        """Write the record of a verification from the workers' `checks`; raises `WrongResult` if the result is wrong.

        `after_iteration`: the index of the iteration that made the result; None: the warm-up. `result_folder`: the
        folder from which the workers read the result; None: the result was in memory.
        """
        session, expected = self._session, self._tables.expected
        assert expected is not None
        whole, message = combine_and_judge_checks(checks, expected.rows, expected.checksum)
        workload = session.plan.workload
        if message is None and session.plan.verify == "full" and isinstance(workload, TableSpec):
            from merge_bench.merge.verification import duckdb_reference

            tables = [table for check in checks for table in deserialize_tables(check.tables)]
            message = duckdb_reference.compare_result_rows(workload, tables, session.plan.how)
        session.writer.write(
            VerificationLine(
                launch=session.launch,
                after=after_iteration,
                ok=message is None,
                how=expected.how,
                rows=whole.rows,
                expected_rows=expected.rows,
                checksum=f"{whole.checksum:016x}",
                expected_checksum=f"{expected.checksum:016x}",
                bad_rows=whole.bad_rows,
                message=message,
                folder=result_folder,
            )
        )
        self.verdicts += 1
        if message is not None:
            raise WrongResult(message)


class IterationEvent(msgspec.Struct, frozen=True):
    """The event that a worker sends at the end of an iteration, with its measurements."""

    rank: int
    index: int
    warmup: bool
    measured: WorkerMeasurement


class IterationAssembler:
    """Makes the record of each iteration from the events that all workers send.

    `skew`: the most seconds by which workers can leave a barrier one after the other. `complete`: the number of
    complete iterations.
    """

    def __init__(self, launch: int, workers: int) -> None:
        self._launch, self._workers = launch, workers
        self._open: dict[tuple[bool, int], dict[int, WorkerMeasurement]] = {}
        self.skew: float | None = None
        self.complete = 0

    def add_event(self, event: Mapping[str, Any]) -> IterationLine | None:
        """Add one worker's event; returns the record of the iteration if this was its last event, else None."""
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


def record_timeline(session: Session, decision: TimelineLine, skew_seconds: float | None) -> None:
    """Write the workers' timelines to the file beside the records, and record the decision about the timeline."""
    if session.plan.timeline == "off":
        return
    if decision.recorded:
        name, timeline = timelines.timeline_file_name(session.launch), gather_timeline(session, skew_seconds)
        if timeline.iterations:
            session.writer.write_file_beside_records(name, timelines.encode_timeline(timeline))
            lines = [*timeline.iterations, *timeline.rounds]
            events = sum(worker.event_count for line in lines for worker in line.workers)
            kept = [iteration.index for iteration in timeline.iterations]
            decision = replace(decision, file=name, events=events, iterations=kept)
        else:
            decision = replace(decision, recorded=False, because="too many events")
    session.writer.write(decision)


def gather_timeline(session: Session, skew_seconds: float | None) -> timelines.Timeline:
    """Gather the timeline of the iterations that all workers recorded, and of the rounds of the link measurement."""
    by_rank = session.workers.run_on_all_workers(worker.collect_timelines)
    kept = sorted(set.intersection(*(set(each.iterations) for each in by_rank)))
    rounds = zip(*(each.rounds for each in by_rank), strict=True)
    clocks = [
        timelines.WorkerClock(rank=described.rank, host=described.host, unix_seconds=each.unix_seconds)
        for described, each in zip(session.descriptions, by_rank, strict=True)
    ]
    iterations = [
        timelines.TimelineIteration(index=at, workers=[each.iterations[at] for each in by_rank]) for at in kept
    ]
    return timelines.Timeline(
        head=timelines.TimelineHeader(launch=session.launch, clocks=clocks, skew_seconds=skew_seconds),
        iterations=iterations,
        rounds=[timelines.TimelineRound(index=index, workers=list(workers)) for index, workers in enumerate(rounds)],
    )


@contextmanager
def record_power(session: Session) -> Iterator[None]:
    """Record energy, clocks and throttling of GPUs and processors during the `with` block, if no error ends the block.

    Counters are read before the first timed iteration and after the last one, so reading them takes no time of either.
    """
    with_gpu, members = session.plan.device_memory, session.members
    before = session.workers.run_on_all_workers(machine.read_energy_counters, with_gpu=with_gpu)
    yield
    after = session.workers.run_on_all_workers(machine.read_energy_counters, with_gpu=with_gpu)
    gpus, hosts = (
        gpu_power_between_readings(members, before, after) if with_gpu else None,
        host_power_between_readings(members, before, after),
    )
    session.writer.write(PowerLine(launch=session.launch, gpus=gpus, hosts=hosts))


def gpu_power_between_readings(
    members: Sequence[LaunchedWorker], before: Sequence[EnergyCounterReading], after: Sequence[EnergyCounterReading]
) -> list[GpuPower]:
    """Energy, clocks and throttling of each GPU between two readings of its first worker.

    `before`, `after`: by rank. A GPU that only one reading has is left out.
    """
    gpus: dict[tuple[str, str], GpuPower] = {}
    for member in members:
        first, last = before[member.rank].gpu, after[member.rank].gpu
        if first is None or last is None or first.key != last.key:
            continue
        if (member.host, first.key) in gpus:
            gpus[member.host, first.key].ranks.append(member.rank)
            continue
        gpus[member.host, first.key] = GpuPower(
            host=member.host,
            index=first.index,
            name=first.name,
            ranks=[member.rank],
            seconds=last.at - first.at,
            joules=machine.gpu_joules(first, last),
            throttled_seconds=machine.gpu_throttled_seconds(first, last),
            before=first.state,
            after=last.state,
            limit_watts=last.limit_watts,
            max_sm_mhz=last.max_sm_mhz,
            max_memory_mhz=last.max_memory_mhz,
        )
    return list(gpus.values())


def host_power_between_readings(
    members: Sequence[LaunchedWorker], before: Sequence[EnergyCounterReading], after: Sequence[EnergyCounterReading]
) -> list[HostPower]:
    """Energy of each host's processors between two readings of its first worker; `before`, `after`: by rank."""
    hosts = []
    for host, rank in _first_rank_by_host(members).items():
        seconds, packages = after[rank].at - before[rank].at, len(before[rank].packages)
        joules, unknown = machine.processor_joules(before[rank], after[rank])
        hosts.append(HostPower(host=host, packages=packages, seconds=seconds, joules=joules, unknown=unknown))
    return hosts
