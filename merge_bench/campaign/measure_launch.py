"""Measures one launch of a run: the merge, the link limit, and the memory."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from merge_bench.analysis.metrics import link_limit
from merge_bench.campaign.choose_stores import choose_stores
from merge_bench.campaign.cluster_session import Session
from merge_bench.campaign.iteration_record import IterationAssembler
from merge_bench.campaign.launch_record import counted, record_connections, record_lanes
from merge_bench.campaign.merge_record import MergeRecord, Tables, make_tables
from merge_bench.campaign.record_timeline import decide, most_share, record_timeline
from merge_bench.errors import RunFailed
from merge_bench.host.memory import parse_cores
from merge_bench.merge import steps
from merge_bench.merge.verification.verify import Check
from merge_bench.records.schema import LinkLine, MemoryLine, Worker

LINK_SECONDS, MOST_LINK_ROUNDS = 0.1, 50
"""Short rounds of the link measurement are repeated for about so long, at most so often: the first of them are
disturbed by Dask, which has just started them."""


def measure(session: Session) -> None:
    """Merge as the plan says, and record all that is measured."""
    plan = session.plan
    if not plan.data_plane.by_workers:
        from merge_bench.campaign.dask_baseline import measure_baseline

        measure_baseline(session)
        return
    if plan.check_link:
        from merge_bench.cluster import worker_programs

        session.workers.on_all(worker_programs.ready)  # finds a missing tool before the merge
    tables = make_tables(session)
    merge = Merge(session, tables)
    merge.connect()
    session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
    record_connections(session)
    merge.run()
    link = _measure_link(session)
    if plan.check_link and link is not None:
        from merge_bench.campaign.link_check import check_link

        session.progress.phase("checking the link limit")
        check_link(session, link)
    record_timeline(session, merge.timeline, merge.skew)
    _measure_copy(session)
    _finish(session)


class Merge:
    """The merge over the data plane: connected, warmed up, timed, verified."""

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session, self._tables = session, tables
        self._record = MergeRecord(session, tables)
        self._assembler = IterationAssembler(session.launch, session.plan.workers)
        self._checks: dict[int | None, dict[int, Check]] = {}  # of one iteration, by rank
        self.timeline = decide(session.plan, [])
        session.listen("iteration", self._collect_iteration)
        session.listen("verification", self._collect_check)

    def connect(self) -> None:
        """Set up engine and UCX on every worker, and connect every worker with every other."""
        session = self._session
        session.progress.phase("connecting")
        each = [(self._tables.rows, threads) for threads in thread_shares(session.descriptions)]
        addresses = session.workers.results(session.workers.submit(steps.open_data_plane, each))
        self._assembler.skew = session.connect(addresses)
        choose_stores(session)

    @property
    def skew(self) -> float | None:
        """The bound on the skew of the barriers, seconds."""
        return self._assembler.skew

    def run(self) -> None:
        """Warm up, measure, verify."""
        session, plan = self._session, self._session.plan
        every = plan.verify == "every"
        if plan.warmup:
            session.progress.phase("warming up")
            self._iterate(plan.warmup, warmup=True)
            if plan.verify != "off" and not every:
                self._verify(None)
        session.progress.phase("merging")
        with counted(session, "iterations"):
            self._iterate(plan.iterations, warmup=False)
        self._wait_for_events(plan.warmup + plan.iterations)
        if plan.verify != "off" and not every:
            self._verify(plan.iterations - 1)
        if plan.write_result is not None:
            session.progress.phase("writing the merged table")
            checks = session.workers.on_all(steps.write_result, self._tables.fields)
            self._record.verdict(plan.iterations - 1, checks, plan.write_result)

    def _iterate(self, count: int, *, warmup: bool) -> None:
        """Merge `count` times; decides about the timeline by what it has cost."""
        plan = self._session.plan
        share, every = most_share(plan, self.timeline), plan.verify == "every"
        costs = self._session.workers.on_all(steps.iterate, 0, count, warmup=warmup, verify=every, timeline=share)
        self.timeline = decide(plan, [cost for cost in costs if cost is not None]) if share else self.timeline

    def _collect_iteration(self, event: Mapping[str, Any]) -> None:
        line = self._assembler.add(event)
        if line is not None:
            self._record.iteration(line)

    def _collect_check(self, event: Mapping[str, Any]) -> None:
        after = None if event["warmup"] else event["index"]
        checks = self._checks.setdefault(after, {})
        checks[event["rank"]] = msgspec.convert(event["check"], Check)
        workers = self._session.plan.workers
        if len(checks) == workers:
            del self._checks[after]
            self._record.verdict(after, [checks[rank] for rank in range(workers)])

    def _wait_for_events(self, count: int) -> None:
        """Wait until the events of `count` iterations are there."""
        plan = self._session.plan
        checks = count if plan.verify == "every" else 0
        deadline = time.monotonic() + plan.timeout

        def arrived() -> bool:
            return self._assembler.complete >= count and self._record.verdicts >= checks

        self._session.workers.until(lambda: arrived() or time.monotonic() > deadline)
        if not arrived():
            raise RunFailed(
                f"the merge ended, but its measurements did not arrive within {plan.timeout:g} s: the connection to"
                " the scheduler was interrupted"
            )

    def _verify(self, after: int | None) -> None:
        self._session.progress.phase("verifying")
        self._record.verdict(after, self._session.workers.on_all(steps.verify))


def thread_shares(workers: Sequence[Worker]) -> list[int]:
    """Every worker's share of the cores that its host's workers may run on, at most those it may run on itself."""
    here = Counter(each.host for each in workers)
    own = [(each.host, parse_cores(each.hardware.affinity or "")) for each in workers]
    cores: dict[str, frozenset[int]] = {}
    for host, its in own:
        cores[host] = cores.get(host, frozenset()) | its
    return [max(1, min(len(its), len(cores[host]) // here[host])) for host, its in own]


def _measure_link(session: Session) -> LinkLine | None:
    """Measure the link limit with the messages of the merge."""
    plan = session.plan
    if plan.workers == 1 or not plan.link_rounds or not plan.data_plane.link_limit:
        return None
    session.progress.phase("measuring the link limit")
    (first, *_) = zip(*session.workers.on_all(steps.measure_link, 1), strict=True)
    count = link_rounds(plan.link_rounds, max(each.seconds.union for each in first))
    with counted(session, "link"):
        measured = session.workers.on_all(steps.measure_link, count)
    sent = [rounds[0].sent_bytes.left + rounds[0].sent_bytes.right for rounds in measured]
    seconds = [[each.seconds.union for each in of_round] for of_round in zip(*measured, strict=True)]
    limit = link_limit(sent, seconds)
    line = LinkLine(launch=session.launch, bytes=sent, rounds=seconds, limit_bytes_per_second=limit)
    session.writer.write(line)
    return line


def link_rounds(least: int, seconds: float) -> int:
    """How many rounds to make if one takes `seconds`, which is 0 where no worker has anything to send."""
    enough = math.ceil(LINK_SECONDS / seconds) if seconds > 0 else 0
    return max(least, min(enough, MOST_LINK_ROUNDS))


def _measure_copy(session: Session) -> None:
    """Measure how fast memory is copied; `_finish` records it."""
    if session.plan.link_rounds and not session.plan.device_memory:
        session.progress.phase("measuring the copy rate of memory")
        session.workers.on_all(steps.measure_copy)


def _finish(session: Session) -> None:
    """Record the lanes, if there are more of them now, and the memory; free the data."""
    ends = session.workers.on_all(steps.finish)
    record_lanes(session)
    session.writer.write(MemoryLine(launch=session.launch, workers=ends))
    session.workers.on_all(steps.close)
