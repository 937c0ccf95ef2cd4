"""Measures one launch of a run: how parcels are written, the merge, the link limit, and the memory.

What a host writes parcels fastest with is measured by all workers at once, as they will work at once, and is kept in
the user's cache by everything that it depends on: the processor and how many workers share it, the shape of the merge,
and the code. With ``--check-link`` one ``ucx_perftest`` from every worker to the next, all at once, measures the link
limit again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import replace

from merge_bench.analysis.metrics import link_limit
from merge_bench.campaign.cluster_session import Session
from merge_bench.campaign.recording import (
    IterationAssembler,
    MergeRecord,
    Tables,
    counted,
    decide,
    make_tables,
    most_share,
    record_connections,
    record_lanes,
    record_timeline,
)
from merge_bench.cluster import ucx_perftest, worker_programs
from merge_bench.cluster.ucx_perftest import BANDWIDTH, WINDOW, Kind
from merge_bench.config.allowed_transports import requested
from merge_bench.config.files import read_regular
from merge_bench.errors import Caution, RunFailed, UsageError
from merge_bench.host import machine
from merge_bench.host.files import cache_folder
from merge_bench.host.memory import parse_cores
from merge_bench.merge import partition, worker
from merge_bench.merge.exchange.base import longest_message_bytes
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification.verify import Check
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.records.outputs import replacing
from merge_bench.records.schema import LinkLine, MemoryLine, ProbeLine, Stores, Worker
from merge_bench.units import format_bytes, format_rate

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
        session.workers.on_all(worker_programs.ready)  # finds a missing tool before the merge
    tables = make_tables(session)
    merge = Merge(session, tables)
    merge.connect()
    session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
    record_connections(session)
    merge.run()
    link = _measure_link(session)
    if plan.check_link and link is not None:
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
        self.timeline = decide(session.plan, [], session.launch)
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
            checks = session.workers.on_all(worker.write_result, self._tables.fields)
            self._record.verdict(plan.iterations - 1, checks, plan.write_result)

    def _iterate(self, count: int, *, warmup: bool) -> None:
        """Merge `count` times; decides about the timeline by what it has cost."""
        plan = self._session.plan
        share, every = most_share(plan, self.timeline), plan.verify == "every"
        costs = self._session.workers.on_all(worker.iterate, 0, count, warmup=warmup, verify=every, timeline=share)
        if share:
            notes = [cost for cost in costs if cost is not None]
            self.timeline = decide(plan, notes, self._session.launch)

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
        self._record.verdict(after, self._session.workers.on_all(worker.verify))


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
    (first, *_) = zip(*session.workers.on_all(worker.measure_link, 1), strict=True)
    count = link_rounds(plan.link_rounds, max(each.seconds.union for each in first))
    with counted(session, "link"):
        measured = session.workers.on_all(worker.measure_link, count)
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
        session.workers.on_all(worker.measure_copy)


def _finish(session: Session) -> None:
    """Record the lanes, if there are more of them now, and the memory; free the data."""
    ends = session.workers.on_all(worker.finish)
    record_lanes(session)
    session.writer.write(MemoryLine(launch=session.launch, workers=ends))
    session.workers.on_all(worker.close)


MEASURED_CODE = ("partition.py", "partition_loops.py", "jit.py")
MOST_KEPT = 1000
CLEAR = 1.1  # ratio of the two times: a smaller one may be noise, so the next launch measures again

Nanoseconds = Mapping[str, float]


def choose_stores(session: Session) -> None:
    """Have every worker use the way that was asked for, or the fastest one on its host, and describe it."""
    plan, calls = session.plan, session.workers
    if plan.device_memory:
        return
    if plan.stores == "auto":
        chosen = _fastest(session)
    else:
        chosen = [Stores(way=plan.stores, because="asked for") for _ in session.descriptions]
    ways = [each.way if each else partition.PLAIN for each in chosen]
    streams, caches = partition.most_streams(ways), [worker.hardware.l2_bytes for worker in session.descriptions]
    sizes = [each for each in caches if each is not None]
    least = min(sizes) if sizes and len(sizes) == len(caches) else None
    calls.results(calls.submit(worker.use_stores, [(way, streams, least) for way in ways]))
    session.descriptions = [
        replace(worker, stores=each) for worker, each in zip(session.descriptions, chosen, strict=True)
    ]


def _fastest(session: Session) -> list[Stores | None]:
    """The fastest way on each worker's host, measured if that is not known of all; None if there is no choice."""
    keys = [_key(each, session.descriptions, session.plan) for each in session.descriptions]
    try:
        file = cache_folder() / "stores.json"
    except RuntimeError:
        file = None
    times, because = read_known(file) if file else {}, "known"
    if not times.keys() >= set(keys):
        times, because = _by_key(keys, session.workers.on_all(worker.measure_stores)), "measured"
        if file is not None:
            keep_known(
                file, {key: each for key, each in times.items() if max(each.values()) > CLEAR * min(each.values())}
            )
    return [
        Stores(way=min(by_way, key=by_way.__getitem__), because=because, nanoseconds=by_way) if by_way else None
        for by_way in map(times.get, keys)
    ]


def read_known(file: Path) -> dict[str, dict[str, float]]:
    """What earlier launches found; empty if that cannot be read, and without ways that there no longer are."""
    try:
        times = msgspec.json.decode(read_regular(file), type=dict[str, dict[str, float]])
    except (OSError, UsageError, msgspec.MsgspecError):
        return {}
    return {key: each for key, each in times.items() if each.keys() == partition.WAYS.keys()}


def keep_known(file: Path, times: Mapping[str, Nanoseconds]) -> None:
    """Add to what is known, the oldest first to go. A cache that cannot be written costs the next launch a moment."""
    both = {**read_known(file), **{key: dict(each) for key, each in times.items()}}
    kept = dict(list(both.items())[-MOST_KEPT:])
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(file) as stream:
            stream.write(msgspec.json.encode(kept))


def _by_key(keys: Sequence[str], times: Sequence[Nanoseconds]) -> dict[str, dict[str, float]]:
    """For each key the median over its workers; a worker without rows found nothing, nor did an engine of one way."""
    by_key: dict[str, list[Nanoseconds]] = {}
    for key, measured in zip(keys, times, strict=True):
        by_key.setdefault(key, []).extend([measured] if measured else [])
    return {
        key: {way: median(one[way] for one in measured) for way in measured[0]}
        for key, measured in by_key.items()
        if measured
    }


def _key(worker: Worker, workers: Sequence[Worker], plan: Plan) -> str:
    """All that decides which way is faster, as text; rows only by their power of two."""
    here, hardware, tables = [each.host for each in workers].count(worker.host), worker.hardware, plan.workload
    if isinstance(tables, SyntheticSpec):
        rows, shape = 2 * tables.rows, [str(tables.payload_columns), f"{tables.zipf:g}"]
    else:
        sides = tables.left, tables.right
        rows = sum(side.rows for side in sides)
        shape = [f"{field.type} {field.nullable}" for side in sides for field in side.fields]
    facts = [
        hardware.cpu_model,
        hardware.cpu_id,
        hardware.cache_bytes,
        hardware.cores,
        here,
        plan.workers,
        plan.engine,
        plan.keys,
        plan.distribution.name,
        (rows // plan.workers).bit_length(),
        shape,
        _code(),
    ]
    return json.dumps(facts)


@functools.cache
def _code() -> str:
    """A checksum of the code that was measured."""
    checksum = hashlib.sha256(importlib.metadata.version("numba").encode())
    for name in MEASURED_CODE:
        checksum.update((Path(partition.__file__).parent / name).read_bytes())
    return checksum.hexdigest()[:12]


NAME = "link"
TOLERANCE = 0.10
SECONDS = 2.0
LINK_CHECK = "link-check"
TURNS = "with UCX's rendezvous over TCP, workers that send to each other take turns"


def check_link(session: Session, link: LinkLine) -> None:
    """Measure the link limit again with ``ucx_perftest``.

    Every worker sends messages of the merge's own size to the next rank while it receives from the one before: with
    two workers, two opposite tests at once. Rows are recorded; a difference of more than a tenth is a warning that
    names possible causes. If a host has fewer cores than polling processes, nothing is measured: the rate would show
    how the kernel schedules them, not what the link carries.
    """
    if machine.crowded((each.host, each.hardware) for each in session.descriptions):
        return  # the report says so, from the same data
    limit = link.limit_bytes_per_second
    if limit is None:
        session.warn(Caution(LINK_CHECK, "--check-link was skipped, because the link measurement sent no data"))
        return
    test = Kind("tag", BANDWIDTH)
    ranks = range(len(session.members))
    after = {rank: (rank + 1) % len(ranks) for rank in ranks}
    size = _message(session, link)
    memory = "cuda" if session.plan.device_memory else "host"
    count = max(8, int(limit * SECONDS / size))
    text = ucx_perftest.batch(test, [size], memory=memory, count=count, error_handling=session.plan.error_handling)
    limits = [2 * session.plan.timeout + 20 * SECONDS]
    servers = session.workers.on_all(worker_programs.listen, text)
    outputs = session.workers.on_some(
        {rank: (worker_programs.ask, servers[after[rank]], text, limits) for rank in ranks}
    )
    session.workers.on_some({rank: (worker_programs.serve, servers[rank]) for rank in ranks})
    rates, lanes, protocols = [], [], []
    for rank, output in enumerate(outputs):
        log = ucx_perftest.parse_log(output.log, test)
        (figures,) = ucx_perftest.parse_all(output.text, [size])
        rates.append(figures.bandwidth)
        lanes.append(log.lanes)
        protocols.append(log.protocol(size) or "")
        to = after[rank]
        session.writer.write(
            ProbeLine(
                launch=session.launch,
                probe=NAME,
                test=test.name,
                ranks=[rank, to],
                method=f"ucx_perftest of UCX {log.version}, window {WINDOW}, every worker to the next at once",
                placement="one-host" if session.members[rank].host == session.members[to].host else "two-hosts",
                hosts=[session.members[rank].host, session.members[to].host],
                memory=memory,
                size=size,
                iterations=figures.iterations,
                seconds=figures.seconds,
                bandwidth_bytes_per_second=figures.bandwidth,
                messages_per_second=figures.messages,
                requested=requested(session.descriptions[rank].ucx.config),
                selected=list(log.lanes),
                protocol=log.protocol(size),
            )
        )
    mean_rate = len(rates) / sum(1 / rate for rate in rates)
    if abs(mean_rate / limit - 1) > TOLERANCE:
        causes = _reasons(session, lanes, protocols, size, memory)
        shown = f"possible causes: {'; '.join(causes)}" if causes else "the cause is unknown"
        message = (
            f"ucx_perftest measured {format_rate(mean_rate)} per worker with messages of {format_bytes(size)}, but the"
            f" link limit is {format_rate(limit)}; {shown}"
        )
        session.warn(Caution(LINK_CHECK, message, remedy_for(causes)))


def _message(session: Session, link: LinkLine) -> int:
    """The length of most of the merge's messages."""
    parcel = max(link.bytes) // (2 * max(1, len(session.members) - 1))
    longest = session.plan.message_bytes
    if session.plan.pipeline:
        longest = longest_message_bytes(len(session.members), longest)
    return max(1, min(parcel, longest or parcel))


def _reasons(session: Session, lanes: list[tuple[str, ...]], protocols: list[str], size: int, memory: str) -> list[str]:
    selected = {tuple(pair.transports) for pair in session.lanes.pairs} if session.lanes is not None else None
    one_host = len({member.host for member in session.members}) == 1
    cache = session.descriptions[0].hardware.cache_bytes if memory == "host" and one_host else None
    return reasons(set(lanes), selected, workers=len(session.members), size=size, cache=cache, protocols=set(protocols))


def remedy_for(causes: Sequence[str]) -> str | None:
    """What to do about a difference with these `causes`; None if nothing is wrong, because the two differ by design."""
    if TURNS in causes:
        return "add UCX_RNDV_SCHEME=get_zcopy to the config, or use ethernet.cfg: over TCP, UCX then uses no rendezvous"
    return None if causes else "run again on a quiet machine, with --link-rounds 20"


def reasons(
    lanes: set[tuple[str, ...]],
    selected: set[tuple[str, ...]] | None,
    *,
    workers: int,
    size: int,
    cache: int | None,
    protocols: set[str],
) -> list[str]:
    """What makes the two differ, as far as it holds in a launch.

    `lanes` are the tool's and `selected` the data plane's, None where they are not known; `cache` is the processor's
    in bytes, None where messages do not stay in it: on GPUs, between hosts. `protocols`: the tool's, as UCX names them.
    """
    causes = []
    if all(lane.startswith("tcp/") for each in lanes for lane in each) and any(
        "rendezvous" in each for each in protocols
    ):
        causes.append(TURNS)
    if selected is not None and selected != lanes:
        causes.append("ucx_perftest used other transports than the merge")
    if workers > 2:
        causes.append("ucx_perftest sends to one peer, but the merge sends to all")
    if cache is not None and size <= cache:
        causes.append(
            f"ucx_perftest sends the same buffer of {format_bytes(size)} repeatedly, which fits into the processor "
            f"cache ({format_bytes(cache)}), but the merge sends new data"
        )
    return causes
