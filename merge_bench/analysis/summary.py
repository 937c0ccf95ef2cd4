"""Makes the document of ``run --json`` from the records of a campaign.

Everything is computed from the records, so that a result is the same at any time and on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.analysis import aggregate, bottleneck, diagnostics, transport_summary
from merge_bench.analysis.documents import run as documents
from merge_bench.analysis.energy import energy_of
from merge_bench.analysis.statistics import median, median_interval, quartiles
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import Phases


def summarize(campaign: Campaign) -> documents.Document:
    """The ``run --json`` document of `campaign`: of its one run, or of every run of a sweep."""
    runs = campaign.runs
    if len(runs) == 1:
        return summarize_run(campaign, runs[0], campaign.head.campaign_id)
    return documents.SweepDocument(
        records=str(campaign.records),
        runs=[summarize_run(campaign, run, f"{campaign.head.campaign_id}/{index}") for index, run in enumerate(runs)],
    )


def summarize_run(campaign: Campaign, run: Run, run_id: str) -> documents.RunDocument:
    """The document of one run of `campaign`."""
    launches = aggregate.complete_launches(run)
    state = state_of(run, launches)
    workers = aggregate.worker_figures(launches)
    lines = [launch.lanes for launch in launches or run.launches if launch.lanes is not None]
    lanes = transport_summary.lanes(lines)
    link, memory_rate = _link_figures(run, launches, lanes), _memory_rate(run, launches)
    phases = {name: aggregate.run_median(launches, aggregate.phase_seconds(name)) for name in aggregate.PHASES}
    return documents.RunDocument(
        run_id=run_id,
        records=str(campaign.records),
        config=run.config,
        plan={"hosts": _hosts_by_rank(launches), **run.options},
        verified=state is State.VERIFIED,
        result_rows=_result_rows(launches),
        wall_seconds=_spread(launches, aggregate.wall_seconds),
        throughput_bytes_per_second=_spread(launches, aggregate.throughput),
        bandwidth_bytes_per_second=_bandwidth_figures(workers, launches),
        phases_seconds=Phases(**phases),
        bottleneck=bottleneck.find(run, launches, workers, link, memory_rate),
        link=link,
        memory_rate=memory_rate,
        lanes=lanes,
        requested_transports=transport_summary.requested_settings(lines),
        protocols=transport_summary.protocols(lines),
        traffic=transport_summary.traffic(launches),
        peak_memory_bytes=_peak_memory(workers),
        energy=energy_of(launches),
        imported=campaign.head.imported_from,
        warnings=diagnostics.warnings(campaign, run, launches, workers, state),
        error=diagnostics.run_failure(campaign, run),
        measured=_measured_counts(run, launches),
        verification=_verification(run, launches, state),
    )


def _hosts_by_rank(launches: Sequence[Launch]) -> list[str]:
    """The names of the workers' hosts in the order of ranks, each once."""
    lines = [launch.line for launch in launches if launch.line is not None]
    return list(dict.fromkeys(worker.host for line in lines for worker in line.workers))


def _measured_counts(run: Run, launches: Sequence[Launch]) -> documents.Measured:
    line = next((launch.line for launch in launches if launch.line is not None), None)
    return documents.Measured(
        launches=len(launches),
        planned_launches=run.planned_launches,
        iterations=sum(len(launch.timed) for launch in launches),
        warmup=sorted({sum(iteration.warmup for iteration in launch.iterations) for launch in launches}),
        data_bytes=None if line is None else line.data_bytes,
        protocol=run.plan.protocol if line is None else line.cluster.protocol,
    )


def _verification(run: Run, launches: Sequence[Launch], state: State) -> documents.Verification:
    checks = [check for launch in run.launches for check in launch.verifications]
    counted = [check for launch in launches for check in launch.verifications]
    wrong = next((check for check in checks if not check.ok), None)
    check = wrong or (counted[-1] if counted else None)
    if check is None:
        return documents.Verification(state=state.value, checks=len(checks))
    return documents.Verification(
        state=state.value,
        checks=len(checks),
        how=check.how,
        rows=check.rows,
        expected_rows=check.expected_rows,
        checksum=check.checksum,
        expected_checksum=check.expected_checksum,
        message=check.message,
        folders=[each.folder for each in counted if each.folder],
    )


def _spread(launches: Sequence[Launch], value: aggregate.Value) -> documents.Spread:
    """Median and interval of `value` over launches; quartiles, minimum and maximum over all their iterations."""
    samples, iterations = aggregate.launch_medians(launches, value), aggregate.iteration_values(launches, value)
    interval = median_interval(samples)
    lower, _, upper = quartiles(iterations) if iterations else (None, None, None)
    return documents.Spread(
        median=median(samples) if samples else None,
        ci95=None if interval is None else (interval.low, interval.high),
        quartiles=None if lower is None or upper is None else (lower, upper),
        min=min(iterations, default=None),
        max=max(iterations, default=None),
        ci95_ranks=None if interval is None else interval.ranks,
        ci95_coverage=None if interval is None else interval.coverage,
    )


def _bandwidth_figures(workers: Sequence[aggregate.WorkerFigures], launches: Sequence[Launch]) -> documents.Bandwidth:
    """Medians of the iterations' slowest, mean and fastest bandwidth, which keep that order; and each worker's own."""
    return documents.Bandwidth(
        harmonic_mean=aggregate.run_median(launches, aggregate.bandwidth),
        min=aggregate.run_median(launches, aggregate.slowest_bandwidth),
        max=aggregate.run_median(launches, aggregate.fastest_bandwidth),
        per_worker=[worker.bandwidth for worker in workers],
        spread=_spread(launches, aggregate.bandwidth),
    )


def _link_figures(run: Run, launches: Sequence[Launch], lanes: Sequence[documents.Lane]) -> documents.Link | None:
    limit = aggregate.link_limit(launches)
    if limit is None:
        return None
    transports = {transport for lane in lanes for transport in lane.transports}
    return documents.Link(
        limit_bytes_per_second=limit,
        fraction=aggregate.run_median(launches, aggregate.link_fraction),
        check_bytes_per_second=aggregate.perftest_link_limit(launches),
        not_checked=aggregate.why_link_not_checked(run, launches),
        wall_ratio=aggregate.run_median(launches, aggregate.wall_over_wire),
        transports=sorted(transports),
        bytes_per_second=aggregate.run_median(launches, aggregate.flight_rate),
        silent_ranks=aggregate.ranks_without_traffic(launches),
    )


def _memory_rate(run: Run, launches: Sequence[Launch]) -> documents.MemoryRate | None:
    """The rate of copying memory and the shares of it that partition and join reach; None where workers share cores.

    With a runtime filter, a broadcast, a semi or an anti join no share is known: a worker moves less than it has.
    """
    rate = aggregate.copy_rate(launches)
    if rate is None or diagnostics.short_of_cores(launches) is not None:
        return None
    less = run.plan.runtime_filter or run.plan.how in ("semi", "anti") or run.plan.distribution == "broadcast"
    whole = [] if less else launches  # less is moved than `metrics.memory_fractions` assumes
    return documents.MemoryRate(
        copy_bytes_per_second=rate,
        partition_fraction=aggregate.run_median(whole, aggregate.copy_rate_fraction("partition")),
        join_fraction=aggregate.run_median(whole, aggregate.copy_rate_fraction("join")),
    )


def _peak_memory(workers: Sequence[aggregate.WorkerFigures]) -> documents.Memory:
    peaks = [worker.memory.peak for worker in workers if worker.memory.peak is not None]
    return documents.Memory(max=max(peaks, default=None), per_worker=[worker.memory for worker in workers])


def _result_rows(launches: Sequence[Launch]) -> int | None:
    """Number of rows of the merged table: as the workers counted them last, else as the verification did."""
    for launch in reversed(launches):
        for iteration in reversed(launch.timed):
            rows = [worker.result_rows for worker in iteration.workers]
            if rows and None not in rows:
                return sum(row for row in rows if row is not None)
        for check in reversed(launch.verifications):
            if check.rows is not None:
                return check.rows
    return None
