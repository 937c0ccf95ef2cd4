"""Measures one launch: the merge, the link limit and the memory, or only the transports (command `transports`).

How each host writes the parcels of the partition step is chosen before: as ``--partition-writes`` says, or the fastest
way. All workers of a host measure that at once, because they will write at once; the times are kept in the user's
cache, by all that they depend on: processor, workers that share it, shape of the merge, code. The link limit can be
measured again with one ``ucx_perftest`` from every worker to the next, all at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from merge_bench.analysis.aggregate import EXCEEDED, exchange_to_limit_ratio, in_flight_rate, link_limit_of_rounds
from merge_bench.analysis.documents import PairTransportsAndProtocols, TransportsDocument
from merge_bench.analysis.transports import host_staging_warnings
from merge_bench.campaign import CallingProgram, ProgressDisplay, recording
from merge_bench.campaign.cluster_session import Session, slow_host_warnings
from merge_bench.campaign.launch import end_processes_on_exit
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import ucx_perftest, worker_programs
from merge_bench.cluster.ucx_perftest import BANDWIDTH, WINDOW, PerftestType
from merge_bench.config.allowed_transports import select_transport_settings
from merge_bench.config.files import read_regular_file, replace_file, user_cache_folder
from merge_bench.errors import RunFailed, UsageError, WarningMessage
from merge_bench.host import machine
from merge_bench.host.kernel_files import parse_core_list
from merge_bench.host.pinning import describe_binding
from merge_bench.merge import partition, timeline_recording, worker
from merge_bench.merge.exchange.base import longest_message_bytes
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification import ResultCheck
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.records.schema import (
    LinkLimitLine,
    MemoryLine,
    ParcelWriteMethod,
    ProbeLine,
    Worker,
)
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_bytes, format_rate

DEVICE_MESSAGE_BYTES = 1 << 20
LINK_SECONDS, MOST_LINK_ROUNDS = 0.1, 50
"""Short rounds of the link measurement are repeated for about this many seconds, at most this often: Dask, which has
just started them, disturbs the first rounds."""
LINK_ATTEMPTS = 3
"""How often the link limit is measured at most, while the exchanges of the merges are faster than it."""


def measure_launch(session: Session) -> None:
    """Run the merges of one launch as its plan says, and record every measurement of the launch."""
    plan = session.plan
    if not plan.data_plane.workers_exchange_rows:
        from merge_bench.campaign.dask_baseline import measure_dask_baseline

        measure_dask_baseline(session)
        return
    if plan.check_link:
        session.workers.run_on_all_workers(
            worker_programs.find_perftest_origin
        )  # finds a missing tool before the merge
    tables = recording.make_input_tables(session)
    session.end_startup_part("tables")
    merge = DataPlaneMerge(session, tables)
    merge.connect_workers()
    session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
    recording.record_connections(session)
    merge.run_merges()
    link_line = _measure_link_limit(session, merge.exchange_rates)
    if plan.check_link and link_line is not None:
        session.progress.show_phase("checking the link limit")
        check_link_with_perftest(session, link_line)
    recording.record_timeline(session, merge.timeline, merge.barrier_skew_seconds)
    if plan.link_rounds and not plan.device_memory:
        session.progress.show_phase("measuring the copy rate of memory")
        session.workers.run_on_all_workers(worker.measure_copy_speed)
    ends = session.workers.run_on_all_workers(worker.report_memory)
    try:
        if plan.link_rounds and not plan.device_memory:
            costs = session.workers.run_on_all_workers(worker.measure_fixed_costs)
            ends = [replace(end, one_row_merge_seconds=cost) for end, cost in zip(ends, costs, strict=True)]
        recording.record_lanes(session)  # also of lanes that UCX opened during the merge
    finally:
        session.writer.write(MemoryLine(launch=session.launch, workers=ends))
    session.workers.run_on_all_workers(worker.close_launch)


class DataPlaneMerge:
    """Runs the merges of one launch over the data plane: connects the workers, warms up, times and verifies merges."""

    def __init__(self, session: Session, tables: recording.InputTables) -> None:
        self._session, self._tables = session, tables
        self._record = recording.MergeRecorder(session, tables)
        self._assembler = recording.IterationAssembler(session.launch, session.plan.workers)
        self._checks: dict[int | None, dict[int, ResultCheck]] = {}  # of one iteration, by rank
        self.exchange_rates: list[float] = []
        """`in_flight_rate` of each timed iteration in which it was measured."""
        self.timeline = timeline_recording.decide_timeline_recording(session.plan.timeline, [], session.launch)
        session.register_event_handler("iteration", self._collect_iteration_event)
        session.register_event_handler("verification", self._collect_check_event)

    def connect_workers(self) -> None:
        """Have every worker set up its engine and data plane, and connect every worker with every other."""
        session = self._session
        session.progress.show_phase("connecting")
        arguments = [(self._tables.rows, threads) for threads in threads_per_worker(session.descriptions)]
        addresses = session.workers.wait_for_results(
            session.workers.submit_to_all_workers(worker.open_data_plane, arguments)
        )
        session.end_startup_part("data plane")
        self._assembler.skew = session.connect_workers(addresses)
        session.end_startup_part("connections")
        choose_parcel_writers(session)
        session.end_startup_part("parcel writers")

    @property
    def barrier_skew_seconds(self) -> float | None:
        """The most seconds by which one worker can leave a barrier after another; None: not connected yet."""
        return self._assembler.skew

    def run_merges(self) -> None:
        """Make the warm-up merges and the timed merges, and verify results as the plan says."""
        session, plan = self._session, self._session.plan
        every = plan.verify == "every"
        if plan.warmup:
            session.progress.show_phase("warming up")
            self._run_iterations(plan.warmup, warmup=True)
            if plan.verify != "off" and not every:
                self._verify_result(None)
        session.progress.show_phase("merging")
        with recording.record_traffic(session, "iterations"), recording.record_power(session):
            self._run_iterations(plan.iterations, warmup=False)
        self._wait_for_iteration_events(plan.warmup + plan.iterations)
        if plan.verify != "off" and not every:
            self._verify_result(plan.iterations - 1)
        if plan.write_result is not None:
            session.progress.show_phase("writing the merged table")
            checks = session.workers.run_on_all_workers(worker.write_and_check_result, self._tables.fields)
            self._record.write_verdict(plan.iterations - 1, checks, plan.write_result)

    def _run_iterations(self, count: int, *, warmup: bool) -> None:
        """Merge `count` times, then decide by the measured cost of the timeline whether to go on recording it."""
        plan = self._session.plan
        share, every = timeline_recording.largest_timeline_share(plan.timeline, self.timeline), plan.verify == "every"
        costs = self._session.workers.run_on_all_workers(
            worker.run_merge_iterations, 0, count, warmup=warmup, verify=every, timeline_share=share
        )
        if share:
            notes = [cost for cost in costs if cost is not None]
            self.timeline = timeline_recording.decide_timeline_recording(plan.timeline, notes, self._session.launch)

    def _collect_iteration_event(self, event: Mapping[str, Any]) -> None:
        line = self._assembler.add_event(event)
        if line is not None:
            self._record.write_iteration(line)
            rate = None if line.warmup else in_flight_rate(line)
            self.exchange_rates += [] if rate is None else [rate]

    def _collect_check_event(self, event: Mapping[str, Any]) -> None:
        after = None if event["warmup"] else event["index"]
        checks = self._checks.setdefault(after, {})
        checks[event["rank"]] = msgspec.convert(event["check"], ResultCheck)
        workers = self._session.plan.workers
        if len(checks) == workers:
            del self._checks[after]
            self._record.write_verdict(after, [checks[rank] for rank in range(workers)])

    def _wait_for_iteration_events(self, iteration_count: int) -> None:
        plan = self._session.plan
        checks = iteration_count if plan.verify == "every" else 0
        deadline = time.monotonic() + plan.timeout

        def all_events_arrived() -> bool:
            return self._assembler.complete >= iteration_count and self._record.verdicts >= checks

        self._session.workers.wait_until(lambda: all_events_arrived() or time.monotonic() > deadline)
        if not all_events_arrived():
            late = f"the merge ended, but its measurements did not arrive within {plan.timeout:g} s"
            raise RunFailed(f"{late}: the connection to the scheduler was interrupted")

    def _verify_result(self, after_iteration: int | None) -> None:
        self._session.progress.show_phase("verifying")
        self._record.write_verdict(after_iteration, self._session.workers.run_on_all_workers(worker.verify_result))


def threads_per_worker(workers: Sequence[Worker]) -> list[int]:
    """The number of threads of each worker: its share of its host's cores, at most the cores it may run on."""
    here = Counter(each.host for each in workers)
    own = [(each.host, parse_core_list(each.hardware.affinity or "")) for each in workers]
    cores: dict[str, frozenset[int]] = {}
    for host, its in own:
        cores[host] = cores.get(host, frozenset()) | its
    return [max(1, min(len(its), len(cores[host]) // here[host])) for host, its in own]


def _measure_link_limit(session: Session, exchange_rates: Sequence[float]) -> LinkLimitLine | None:
    """Measure and record the link limit with messages as the merge sends them; None if the plan has no such step.

    A limit that the exchanges exceed (`exchange_rates`: `in_flight_rate` of each) was disturbed: its rounds are then
    repeated, and the fastest of all of them count. If a repetition fails, the rounds before it are recorded.
    """
    plan = session.plan
    if plan.workers == 1 or not plan.link_rounds or not plan.data_plane.link_limit:
        return None
    session.progress.show_phase("measuring the link limit")
    (first, *_) = zip(*session.workers.run_on_all_workers(worker.measure_link, 1), strict=True)
    count = link_rounds_to_measure(plan.link_rounds, max(each.seconds.union for each in first))
    sent: list[int] = []
    seconds: list[list[float]] = []
    try:
        with recording.record_traffic(session, "link"):
            for attempt in range(LINK_ATTEMPTS):
                measured = session.workers.run_on_all_workers(worker.measure_link, count, keep_timelines=not attempt)
                sent = [rounds[0].sent_bytes.left + rounds[0].sent_bytes.right for rounds in measured]
                seconds += [[each.seconds.union for each in of_round] for of_round in zip(*measured, strict=True)]
                ratio = exchange_to_limit_ratio(exchange_rates, sent, seconds)
                if ratio is None or ratio <= EXCEEDED:
                    break
    finally:
        limit = link_limit_of_rounds(sent, seconds)
        line = LinkLimitLine(launch=session.launch, bytes=sent, rounds=seconds, limit_bytes_per_second=limit)
        if seconds:
            session.writer.write(line)
    return line


def link_rounds_to_measure(least_rounds: int, round_seconds: float) -> int:
    """The number of rounds of the link measurement: enough for a tenth of a second, at least `least_rounds`.

    `round_seconds`: the duration of one round; 0: no worker sends anything.
    """
    enough = math.ceil(LINK_SECONDS / round_seconds) if round_seconds > 0 else 0
    return max(least_rounds, min(enough, MOST_LINK_ROUNDS))


def survey_transports(
    planned_run: PlannedRun, config_name: str, progress: ProgressDisplay, caller: CallingProgram
) -> TransportsDocument:
    """Start and connect a cluster as `run` does, ask its workers for their transports, and stop the cluster.

    `config_name`: of the config. Raises UsageError if there would be only one worker; LaunchFailed if the cluster does
    not start or its workers do not connect.
    """
    if planned_run.plan.workers < 2:
        raise UsageError("`transports` checks pairs of workers; use --workers 2 or more")
    with (
        tempfile.TemporaryDirectory(prefix="merge-bench-transports-") as scratch,
        CampaignWriter.create(Path(scratch), config_name) as writer,
        caller.surround(writer.logs / "driver.log"),
    ):
        session = Session(PlannedLaunch(planned_run, config_name), writer, progress)
        with end_processes_on_exit(session, writer):
            session.start_cluster()
            return _ask_workers_for_transports(session)


def _ask_workers_for_transports(session: Session) -> TransportsDocument:
    plan, workers = session.plan, session.workers
    session.progress.show_phase("connecting")
    session.connect_workers(
        workers.run_on_all_workers(worker.open_ucx, plan, pass_rank=True, arguments_after_rank=(session.topic,))
    )
    if plan.device_memory:
        workers.run_on_all_workers(worker.exchange_gpu_buffers, DEVICE_MESSAGE_BYTES)
    warnings = [
        *slow_host_warnings(session.launcher, plan, session.settings),
        *recording.record_setting_differences(session),
    ]
    recording.record_lanes(session)
    answers = workers.run_on_all_workers(worker.available_transports)
    bindings = workers.run_on_all_workers(describe_binding)
    workers.run_on_all_workers(worker.close_launch)
    lanes = session.lanes
    assert lanes is not None
    available, bound = {}, []
    for member, answer, binding in zip(session.members, answers, bindings, strict=True):
        available[member.host] = {name: list(devices) for name, devices in answer.items()}
        bound.append(replace(binding, rank=member.rank, worker=member.name, host=member.host))
    pairs = [
        PairTransportsAndProtocols(
            **{**asdict(pair), "protocols": [] if pair.protocols is None else lanes.protocols[pair.protocols]}
        )
        for pair in lanes.pairs
    ]
    warnings += host_staging_warnings(lanes.pairs, lanes.protocols)
    return TransportsDocument(
        requested=lanes.requested, available=available, pairs=pairs, bindings=bound, warnings=warnings
    )


LINK_PROBE, LINK_CHECK = "link", "link-check"
LINK_TOLERANCE = 0.10
LINK_CHECK_SECONDS = 2.0
TURNS = "with UCX's rendezvous over TCP, workers that send to each other take turns"


def check_link_with_perftest(session: Session, link_line: LinkLimitLine) -> None:
    """Measure the link limit again with ``ucx_perftest``, and record the results.

    Every worker sends messages of the merge's own size to the next rank while it receives from the previous one: with
    two workers, these are two opposite tests at once. Each worker's result is recorded; a difference of more than a
    tenth is a warning that names possible causes. If a host has fewer cores than polling processes, nothing is
    measured: the rate would show how the kernel schedules them, not what the link carries.
    """
    if machine.perftest_core_problem((each.host, each.hardware) for each in session.descriptions):
        return  # the report says so, from the same data
    limit = link_line.limit_bytes_per_second
    if limit is None:
        session.record_warning(
            WarningMessage(LINK_CHECK, "--check-link was skipped, because the link measurement sent no data")
        )
        return
    test = PerftestType("tag", BANDWIDTH)
    ranks = range(len(session.members))
    after = {rank: (rank + 1) % len(ranks) for rank in ranks}
    size = _merge_message_bytes(session, link_line)
    memory = "cuda" if session.plan.device_memory else "host"
    count = max(8, int(limit * LINK_CHECK_SECONDS / size))
    text = ucx_perftest.perftest_batch_file_text(
        test, [size], memory=memory, iterations=count, error_handling=session.plan.error_handling
    )
    limits = [2 * session.plan.timeout + 20 * LINK_CHECK_SECONDS]
    servers = session.workers.run_on_all_workers(worker_programs.start_perftest_server, text)
    outputs = session.workers.run_on_ranks(
        {rank: (worker_programs.run_perftest_client, servers[after[rank]], text, limits) for rank in ranks}
    )
    session.workers.run_on_ranks({rank: (worker_programs.wait_for_perftest_server, servers[rank]) for rank in ranks})
    rates, lanes, protocols = [], set(), set()
    for rank, output in enumerate(outputs):
        log = ucx_perftest.parse_ucx_log(output.log, test)
        (figures,) = ucx_perftest.parse_median_figures(output.text, [size])
        rates.append(figures.bandwidth)
        lanes.add(log.lanes)
        protocols.add(log.protocol_for_message(size) or "")
        hosts = [session.members[each].host for each in (rank, after[rank])]
        session.writer.write(
            ProbeLine(
                launch=session.launch,
                probe=LINK_PROBE,
                test=test.test_name,
                ranks=[rank, after[rank]],
                method=f"ucx_perftest of UCX {log.version}, window {WINDOW}, every worker to the next at once",
                placement="one-host" if len(set(hosts)) == 1 else "two-hosts",
                hosts=hosts,
                memory=memory,
                size=size,
                iterations=figures.iterations,
                seconds=figures.seconds,
                bandwidth_bytes_per_second=figures.bandwidth,
                messages_per_second=figures.messages,
                requested=select_transport_settings(session.descriptions[rank].ucx.config),
                selected=list(log.lanes),
                protocol=log.protocol_for_message(size),
            )
        )
    mean_rate = len(rates) / sum(1 / rate for rate in rates)
    if abs(mean_rate / limit - 1) > LINK_TOLERANCE:
        causes = _find_link_difference_causes(session, lanes, protocols, size, memory)
        shown = f"possible causes: {'; '.join(causes)}" if causes else "the cause is unknown"
        measured = f"ucx_perftest measured {format_rate(mean_rate)} per worker with messages of {format_bytes(size)}"
        message = f"{measured}, but the link limit is {format_rate(limit)}; {shown}"
        session.record_warning(WarningMessage(LINK_CHECK, message, link_difference_remedy(causes)))


def _merge_message_bytes(session: Session, link_line: LinkLimitLine) -> int:
    parcel = max(link_line.bytes) // (2 * max(1, len(session.members) - 1))
    longest = session.plan.message_bytes
    if session.plan.pipeline:
        longest = longest_message_bytes(len(session.members), longest)
    return max(1, min(parcel, longest or parcel))


def _find_link_difference_causes(
    session: Session,
    perftest_lanes: set[tuple[str, ...]],
    perftest_protocols: set[str],
    message_bytes: int,
    memory: str,
) -> list[str]:
    merge_lanes = {tuple(pair.transports) for pair in session.lanes.pairs} if session.lanes is not None else None
    one_host = len({member.host for member in session.members}) == 1
    cache = session.descriptions[0].hardware.cache_bytes if memory == "host" and one_host else None
    return link_difference_causes(
        perftest_lanes,
        merge_lanes,
        workers=len(session.members),
        message_bytes=message_bytes,
        cache_bytes=cache,
        perftest_protocols=perftest_protocols,
    )


def link_difference_remedy(causes: Sequence[str]) -> str | None:
    """The remedy for a difference between ``ucx_perftest`` and the link limit; None if they differ by design."""
    if TURNS in causes:
        return "add UCX_RNDV_SCHEME=get_zcopy to the config, or use ethernet.cfg: over TCP, UCX then uses no rendezvous"
    return None if causes else "run again on a quiet machine, with --link-rounds 20"


def link_difference_causes(
    perftest_lanes: set[tuple[str, ...]],
    merge_lanes: set[tuple[str, ...]] | None,
    *,
    workers: int,
    message_bytes: int,
    cache_bytes: int | None,
    perftest_protocols: set[str],
) -> list[str]:
    """The possible causes of a difference between ``ucx_perftest`` and the link limit, a phrase each.

    `perftest_lanes`, `perftest_protocols`: what ``ucx_perftest`` used, as UCX names it; `merge_lanes`: those of the
    data plane, None if unknown; `cache_bytes`: of the processor's cache, None where messages do not stay in it (GPUs,
    several hosts).
    """
    causes = []
    only_tcp = all(lane.startswith("tcp/") for each in perftest_lanes for lane in each)
    if only_tcp and any("rendezvous" in protocol for protocol in perftest_protocols):
        causes.append(TURNS)
    if merge_lanes is not None and merge_lanes != perftest_lanes:
        causes.append("ucx_perftest used other transports than the merge")
    if workers > 2:
        causes.append("ucx_perftest sends to one peer, but the merge sends to all")
    if cache_bytes is not None and message_bytes <= cache_bytes:
        fits = f"which fits into the processor cache ({format_bytes(cache_bytes)}), but the merge sends new data"
        causes.append(f"ucx_perftest sends the same buffer of {format_bytes(message_bytes)} repeatedly, {fits}")
    return causes


MEASURED_CODE = ("partition.py", "partition_loops.py", "jit.py")
MOST_KEPT = 1000
CLEAR = 1.1  # the least ratio of the two ways' times that is kept: a smaller one may be noise

Nanoseconds = Mapping[str, float]


def choose_parcel_writers(session: Session, code_checksum: str | None = None) -> None:
    """Choose and record how each worker writes rows into parcels: as the option says, or the fastest way on its host.

    `code_checksum`: the checksum of the code that was measured; None: of the installed code.
    """
    plan, calls = session.plan, session.workers
    if plan.device_memory:
        return
    if plan.stores == "auto":
        chosen = _fastest_parcel_writers(session, code_checksum or _parcel_code_checksum())
    else:
        chosen = [ParcelWriteMethod(way=plan.stores, because="asked for") for _ in session.descriptions]
    ways = [each.way if each else partition.PLAIN for each in chosen]
    caches = [described.hardware.l2_bytes for described in session.descriptions]
    streams, least = partition.most_total_buckets(ways), min((size or 0 for size in caches), default=0) or None
    calls.wait_for_results(
        calls.submit_to_all_workers(worker.use_parcel_writer, [(way, streams, least) for way in ways])
    )
    described_and_chosen = zip(session.descriptions, chosen, strict=True)
    session.descriptions = [replace(described, stores=stores) for described, stores in described_and_chosen]


def _fastest_parcel_writers(session: Session, code_checksum: str) -> list[ParcelWriteMethod | None]:
    """Return the fastest way to write parcels for each worker, from the cache or measured; None: not measured."""
    keys = [
        _parcel_write_times_key(each, session.descriptions, session.plan, code_checksum)
        for each in session.descriptions
    ]
    try:
        file = user_cache_folder() / "stores.json"
    except RuntimeError:
        file = None
    times, because = read_parcel_write_times(file) if file else {}, "known"
    if not times.keys() >= set(keys):
        times, because = (
            _median_parcel_write_times(keys, session.workers.run_on_all_workers(worker.measure_partition_ns_per_row)),
            "measured",
        )
        clear = {key: by_way for key, by_way in times.items() if max(by_way.values()) > CLEAR * min(by_way.values())}
        if file is not None:
            cache_parcel_write_times(file, clear)
    return [
        ParcelWriteMethod(way=min(by_way, key=by_way.__getitem__), because=because, nanoseconds=by_way)
        if by_way
        else None
        for by_way in map(times.get, keys)
    ]


def read_parcel_write_times(cache_file: Path) -> dict[str, dict[str, float]]:
    """Read how many nanoseconds a row takes in each way to write it to memory, as measured on workers' hosts before.

    By the host's key, then by the name of the way; empty without a readable file.
    """
    try:
        times = msgspec.json.decode(read_regular_file(cache_file), type=dict[str, dict[str, float]])
    except (OSError, UsageError, msgspec.MsgspecError):
        return {}
    return {key: each for key, each in times.items() if each.keys() == partition.WRITERS.keys()}


def cache_parcel_write_times(cache_file: Path, times: Mapping[str, Nanoseconds], most_kept: int = MOST_KEPT) -> None:
    """Add the nanoseconds of each way to write parcels to the cache file, and keep the `most_kept` newest keys.

    If the cache cannot be written, the next launch measures again.
    """
    both = {**read_parcel_write_times(cache_file), **{key: dict(each) for key, each in times.items()}}
    kept = dict(list(both.items())[-most_kept:])
    with contextlib.suppress(OSError):
        cache_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replace_file(cache_file) as stream:
            stream.write(msgspec.json.encode(kept))


def _median_parcel_write_times(keys: Sequence[str], times: Sequence[Nanoseconds]) -> dict[str, dict[str, float]]:
    """The median nanoseconds of each way to write parcels, by key; keys without measured workers are left out."""
    by_key: dict[str, list[Nanoseconds]] = {}
    for key, measured in zip(keys, times, strict=True):
        by_key.setdefault(key, []).extend([measured] if measured else [])
    measured_keys = {key: measured for key, measured in by_key.items() if measured}
    return {key: {way: median(one[way] for one in each) for way in each[0]} for key, each in measured_keys.items()}


def _parcel_write_times_key(worker: Worker, workers: Sequence[Worker], plan: Plan, code_checksum: str) -> str:
    """The cache key of a worker's times to write parcels: all on which the faster way depends, as JSON."""
    here, hardware, tables = [each.host for each in workers].count(worker.host), worker.hardware, plan.workload
    if isinstance(tables, SyntheticSpec):
        rows, shape = 2 * tables.rows, [str(tables.payload_columns), f"{tables.zipf:g}"]
    else:
        sides = tables.left, tables.right
        rows = sum(side.rows for side in sides)
        shape = [f"{field.type} {field.nullable}" for side in sides for field in side.fields]
    processor = hardware.cpu_model, hardware.cpu_id, hardware.cache_bytes, hardware.cores
    merge = (
        plan.workers,
        plan.engine,
        plan.keys,
        plan.distribution.distribution_name,
        (rows // plan.workers).bit_length(),
        shape,
    )
    return json.dumps([*processor, here, *merge, code_checksum])


@functools.cache
def _parcel_code_checksum() -> str:
    """A checksum of the code that writes parcels, and of numba's version."""
    checksum = hashlib.sha256(importlib.metadata.version("numba").encode())
    for name in MEASURED_CODE:
        checksum.update((Path(partition.__file__).parent / name).read_bytes())
    return checksum.hexdigest()[:12]
