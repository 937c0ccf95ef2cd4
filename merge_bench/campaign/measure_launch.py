"""Measures one launch: the merge, the link limit and the memory, or only the transports (command `transports`)."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from merge_bench.analysis.aggregate import limit_of_rounds
from merge_bench.analysis.documents import Pair, TransportsDocument
from merge_bench.analysis.transports import staged_memory_warnings
from merge_bench.campaign import recording
from merge_bench.campaign.calling_program import Caller, Progress
from merge_bench.campaign.choose_stores import choose_stores
from merge_bench.campaign.cluster_session import Session, host_cautions
from merge_bench.campaign.launch import stop_on_exit
from merge_bench.campaign.link_check import check_link
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Job
from merge_bench.cluster import worker_programs
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.files import parse_cores
from merge_bench.host.pinning import describe_binding
from merge_bench.merge import worker
from merge_bench.merge.result import Check
from merge_bench.records.schema import LinkLine, MemoryLine, Worker
from merge_bench.records.writer import CampaignWriter

DEVICE_MESSAGE_BYTES = 1 << 20
LINK_SECONDS, MOST_LINK_ROUNDS = 0.1, 50
"""Short rounds of the link measurement are repeated for about this many seconds, at most this often: Dask, which has
just started them, disturbs the first rounds."""


def measure(session: Session) -> None:
    """Merge as the plan says, and record every measurement of the launch."""
    plan = session.plan
    if not plan.data_plane.by_workers:
        from merge_bench.campaign.dask_baseline import measure_baseline

        measure_baseline(session)
        return
    if plan.check_link:
        session.workers.on_all(worker_programs.prepare_worker)  # finds a missing tool before the merge
    tables = recording.make_tables(session)
    merge = Merge(session, tables)
    merge.connect()
    session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
    recording.record_connections(session)
    merge.run()
    link = _measure_link(session)
    if plan.check_link and link is not None:
        session.progress.phase("checking the link limit")
        check_link(session, link)
    recording.record_timeline(session, merge.timeline, merge.skew)
    if plan.link_rounds and not plan.device_memory:
        session.progress.phase("measuring the copy rate of memory")
        session.workers.on_all(worker.measure_copy)
    ends = session.workers.on_all(worker.finish)
    recording.record_lanes(session)  # also of lanes that UCX opened during the merge
    session.writer.write(MemoryLine(launch=session.launch, workers=ends))
    session.workers.on_all(worker.close)


class Merge:
    """The merge over the data plane: connected, warmed up, timed, verified."""

    def __init__(self, session: Session, tables: recording.Tables) -> None:
        self._session, self._tables = session, tables
        self._record = recording.MergeRecord(session, tables)
        self._assembler = recording.IterationAssembler(session.launch, session.plan.workers)
        self._checks: dict[int | None, dict[int, Check]] = {}  # of one iteration, by rank
        self.timeline = recording.decide_timeline(session.plan, [], session.launch)
        session.on_event("iteration", self._collect_iteration)
        session.on_event("verification", self._collect_check)

    def connect(self) -> None:
        """Set up engine and UCX on every worker, and connect every worker with every other."""
        session = self._session
        session.progress.phase("connecting")
        arguments = [(self._tables.rows, threads) for threads in thread_shares(session.descriptions)]
        addresses = session.workers.results(session.workers.submit(worker.open_data_plane, arguments))
        self._assembler.skew = session.connect(addresses)
        choose_stores(session)

    @property
    def skew(self) -> float | None:
        """The most seconds by which workers can leave a barrier one after the other."""
        return self._assembler.skew

    def run(self) -> None:
        """Make the warm-up merges and the timed merges, and verify results as the plan says."""
        session, plan = self._session, self._session.plan
        every = plan.verify == "every"
        if plan.warmup:
            session.progress.phase("warming up")
            self._iterate(plan.warmup, warmup=True)
            if plan.verify != "off" and not every:
                self._verify(None)
        session.progress.phase("merging")
        with recording.record_traffic(session, "iterations"), recording.record_power(session):
            self._iterate(plan.iterations, warmup=False)
        self._wait_for_events(plan.warmup + plan.iterations)
        if plan.verify != "off" and not every:
            self._verify(plan.iterations - 1)
        if plan.write_result is not None:
            session.progress.phase("writing the merged table")
            checks = session.workers.on_all(worker.write_result, self._tables.fields)
            self._record.write_verdict(plan.iterations - 1, checks, plan.write_result)

    def _iterate(self, count: int, *, warmup: bool) -> None:
        """Merge `count` times, then decide by the cost of its notes whether the timeline goes on."""
        plan = self._session.plan
        share, every = recording.most_note_share(plan, self.timeline), plan.verify == "every"
        costs = self._session.workers.on_all(worker.iterate, 0, count, warmup=warmup, verify=every, timeline=share)
        if share:
            notes = [cost for cost in costs if cost is not None]
            self.timeline = recording.decide_timeline(plan, notes, self._session.launch)

    def _collect_iteration(self, event: Mapping[str, Any]) -> None:
        line = self._assembler.add(event)
        if line is not None:
            self._record.write_iteration(line)

    def _collect_check(self, event: Mapping[str, Any]) -> None:
        after = None if event["warmup"] else event["index"]
        checks = self._checks.setdefault(after, {})
        checks[event["rank"]] = msgspec.convert(event["check"], Check)
        workers = self._session.plan.workers
        if len(checks) == workers:
            del self._checks[after]
            self._record.write_verdict(after, [checks[rank] for rank in range(workers)])

    def _wait_for_events(self, count: int) -> None:
        plan = self._session.plan
        checks = count if plan.verify == "every" else 0
        deadline = time.monotonic() + plan.timeout

        def arrived() -> bool:
            return self._assembler.complete >= count and self._record.verdicts >= checks

        self._session.workers.until(lambda: arrived() or time.monotonic() > deadline)
        if not arrived():
            late = f"the merge ended, but its measurements did not arrive within {plan.timeout:g} s"
            raise RunFailed(f"{late}: the connection to the scheduler was interrupted")

    def _verify(self, after: int | None) -> None:
        self._session.progress.phase("verifying")
        self._record.write_verdict(after, self._session.workers.on_all(worker.verify))


def thread_shares(workers: Sequence[Worker]) -> list[int]:
    """The number of threads for each worker: its share of its host's cores, at most the cores it may run on."""
    here = Counter(each.host for each in workers)
    own = [(each.host, parse_cores(each.hardware.affinity or "")) for each in workers]
    cores: dict[str, frozenset[int]] = {}
    for host, its in own:
        cores[host] = cores.get(host, frozenset()) | its
    return [max(1, min(len(its), len(cores[host]) // here[host])) for host, its in own]


def _measure_link(session: Session) -> LinkLine | None:
    """Measure and record the link limit with messages as the merge sends them; None if the plan has no such step."""
    plan = session.plan
    if plan.workers == 1 or not plan.link_rounds or not plan.data_plane.link_limit:
        return None
    session.progress.phase("measuring the link limit")
    (first, *_) = zip(*session.workers.on_all(worker.measure_link, 1), strict=True)
    count = rounds_to_measure(plan.link_rounds, max(each.seconds.union for each in first))
    with recording.record_traffic(session, "link"):
        measured = session.workers.on_all(worker.measure_link, count)
    sent = [rounds[0].sent_bytes.left + rounds[0].sent_bytes.right for rounds in measured]
    seconds = [[each.seconds.union for each in of_round] for of_round in zip(*measured, strict=True)]
    limit = limit_of_rounds(sent, seconds)
    line = LinkLine(launch=session.launch, bytes=sent, rounds=seconds, limit_bytes_per_second=limit)
    session.writer.write(line)
    return line


def rounds_to_measure(least: int, seconds: float) -> int:
    """The number of link rounds, at least `least`, if one takes `seconds` (0: no worker has anything to send)."""
    enough = math.ceil(LINK_SECONDS / seconds) if seconds > 0 else 0
    return max(least, min(enough, MOST_LINK_ROUNDS))


def survey_transports(planned: PlannedRun, name: str, progress: Progress, caller: Caller) -> TransportsDocument:
    """Start and connect a cluster as `run` does, ask its workers for their transports, and stop it.

    `name`: of the config. Raises UsageError if there would be only one worker; LaunchFailed if the cluster does not
    start or its workers do not connect.
    """
    if planned.plan.workers < 2:
        raise UsageError("`transports` checks pairs of workers; use --workers 2 or more")
    with (
        tempfile.TemporaryDirectory(prefix="merge-bench-transports-") as scratch,
        CampaignWriter.create(Path(scratch), name) as writer,
        caller.surround(writer.logs / "driver.log"),
    ):
        session = Session(Job(planned, name), writer, progress)
        with stop_on_exit(session, writer):
            session.start()
            return _ask_workers(session)


def _ask_workers(session: Session) -> TransportsDocument:
    plan, workers = session.plan, session.workers
    session.progress.phase("connecting")
    session.connect(workers.on_all(worker.open_ucx, plan, ranked=True, after=(session.topic,)))
    if plan.device_memory:
        workers.on_all(worker.swap_device_memory, DEVICE_MESSAGE_BYTES)
    warnings = [*host_cautions(session.launcher, plan, session.settings), *recording.compare_environment(session)]
    recording.record_lanes(session)
    answers = workers.on_all(worker.available_transports)
    bindings = workers.on_all(describe_binding)
    workers.on_all(worker.close)
    lanes = session.lanes
    assert lanes is not None
    available, bound = {}, []
    for member, answer, binding in zip(session.members, answers, bindings, strict=True):
        available[member.host] = {name: list(devices) for name, devices in answer.items()}
        bound.append(replace(binding, rank=member.rank, worker=member.name, host=member.host))
    pairs = [
        Pair(**{**asdict(pair), "protocols": [] if pair.protocols is None else lanes.protocols[pair.protocols]})
        for pair in lanes.pairs
    ]
    warnings += staged_memory_warnings(lanes.pairs, lanes.protocols)
    return TransportsDocument(
        requested=lanes.requested, available=available, pairs=pairs, bindings=bound, warnings=warnings
    )
