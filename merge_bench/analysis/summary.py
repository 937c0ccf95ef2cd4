"""Makes the document of ``run --json`` from the records of a campaign.

Everything is computed from the records, so that a result is the same at any time and on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from merge_bench.analysis import aggregate, bottleneck, diagnostics, documents, transports
from merge_bench.analysis.aggregate import VerificationState, verification_state
from merge_bench.analysis.compare import Metric, metrics_of_command
from merge_bench.analysis.core_loss import find_core_loss
from merge_bench.analysis.diagnostics import first_core_shortage, launches_with_undisturbed_limit
from merge_bench.analysis.energy import merge_energy
from merge_bench.analysis.statistics import median, median_interval, quartiles
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import PhaseSeconds


def summarize_campaign(campaign: Campaign) -> documents.Document:
    """Make the ``run --json`` document of `campaign`: of its one run, or of every run of a sweep."""
    runs = campaign.runs
    if len(runs) == 1:
        return summarize_run(campaign, runs[0], campaign.head.campaign_id)
    return documents.SweepDocument(
        records=str(campaign.records),
        runs=[summarize_run(campaign, run, f"{campaign.head.campaign_id}/{index}") for index, run in enumerate(runs)],
    )


def summarize_run(campaign: Campaign, run: Run, run_id: str) -> documents.RunDocument:
    """Make the ``run --json`` document of one run of `campaign`; `run_id`: its identifier in the document."""
    launches = aggregate.complete_launches(run)
    state = verification_state(run, launches)
    command = run.plan.command
    workers = aggregate.worker_figures(launches) if command is None else ()
    line = next((launch.line for launch in launches if launch.line is not None), None)
    lines = [launch.lanes for launch in launches or run.launches if launch.lanes is not None]
    lanes = transports.selected_lanes(lines)
    link, memory_rate = _link_utilization(run, launches, lanes), _memory_copy_rates(run, launches)
    hosts = dict.fromkeys(worker.host for launch in launches if launch.line for worker in launch.line.workers)
    phases = {name: aggregate.run_median(launches, aggregate.phase_seconds(name)) for name in aggregate.PHASES}
    return documents.RunDocument(
        run_id=run_id,
        records=str(campaign.records),
        config=run.config,
        plan={"hosts": list(hosts), **run.options},
        verified=state is VerificationState.VERIFIED,
        result_rows=_result_row_count(launches),
        wall_seconds=_summarize_metric(launches, aggregate.wall_seconds),
        throughput_bytes_per_second=_summarize_metric(launches, aggregate.throughput),
        bandwidth_bytes_per_second=documents.BandwidthSummary(  # medians keep the order of the figures
            harmonic_mean=aggregate.run_median(launches, aggregate.bandwidth),
            min=aggregate.run_median(launches, aggregate.slowest_worker_bandwidth),
            max=aggregate.run_median(launches, aggregate.fastest_worker_bandwidth),
            per_worker=[worker.bandwidth for worker in workers],
            spread=_summarize_metric(launches, aggregate.bandwidth),
        ),
        phases_seconds=PhaseSeconds(**phases),
        bottleneck=bottleneck.find_bottleneck(run, launches, workers, link, memory_rate),
        link=link,
        memory_rate=memory_rate,
        lanes=lanes,
        requested_transports=transports.requested_transport_settings(lines),
        protocols=transports.selected_protocols(lines),
        traffic=transports.counted_traffic(launches),
        peak_memory_bytes=documents.PeakMemory(
            max=aggregate.max_or_none(worker.memory.peak for worker in workers),
            per_worker=[worker.memory for worker in workers],
        ),
        energy=merge_energy(launches),
        imported=campaign.head.imported_from,
        warnings=diagnostics.warnings_of_run(campaign, run, launches, workers, state),
        error=diagnostics.failure_of_run(campaign, run),
        measured=documents.MeasurementCounts(
            launches=len(launches),
            planned_launches=run.planned_launches,
            iterations=sum(len(launch.timed_iterations) for launch in launches),
            warmup=sorted({sum(iteration.warmup for iteration in launch.iterations) for launch in launches}),
            data_bytes=line.data_bytes if line and command is None else None,
            protocol=line.cluster.protocol if line else run.plan.protocol,
        ),
        verification=_summarize_verification(run, launches, state),
        metrics=msgspec.UNSET
        if command is None
        else _summarize_command_metrics(launches, metrics_of_command(command.metrics)),
    )


def _summarize_command_metrics(
    launches: Sequence[Launch], metrics: Sequence[Metric]
) -> list[documents.CommandMetricSummary]:
    """Summarize each metric of a command over its launches."""
    return [
        documents.CommandMetricSummary(
            name=metric.name,
            unit=metric.unit,
            better=metric.better,
            spread=_summarize_metric(launches, metric.value),
        )
        for metric in metrics
    ]


def _summarize_verification(
    run: Run, launches: Sequence[Launch], verification_state: VerificationState
) -> documents.VerificationSummary:
    checks = [check for launch in run.launches for check in launch.verifications]
    counted = [check for launch in launches for check in launch.verifications]
    wrong = next((check for check in checks if not check.ok), None)
    check = wrong or (counted[-1] if counted else None)
    compared = ("how", "rows", "expected_rows", "checksum", "expected_checksum", "message")
    return documents.VerificationSummary(
        state=verification_state.value,
        checks=len(checks),
        folders=[each.folder for each in counted if each.folder],
        **{name: getattr(check, name, None) for name in compared},
    )


def _summarize_metric(
    launches: Sequence[Launch], iteration_metric: aggregate.IterationMetric
) -> documents.MetricSummary:
    """Summarize a metric: median and interval over launches; quartiles, minimum and maximum over all iterations."""
    samples, iterations = (
        aggregate.launch_medians(launches, iteration_metric),
        aggregate.iteration_values(launches, iteration_metric),
    )
    interval = median_interval(samples)
    lower, _, upper = quartiles(iterations) if iterations else (None, None, None)
    return documents.MetricSummary(
        median=median(samples) if samples else None,
        ci95=None if interval is None else (interval.low, interval.high),
        quartiles=None if lower is None or upper is None else (lower, upper),
        min=min(iterations, default=None),
        max=max(iterations, default=None),
        ci95_ranks=None if interval is None else interval.ranks,
        ci95_coverage=None if interval is None else interval.coverage,
    )


def _link_utilization(
    run: Run, launches: Sequence[Launch], lanes: Sequence[documents.PairTransports]
) -> documents.LinkUtilization | None:
    undisturbed = launches_with_undisturbed_limit(launches)
    counted = undisturbed or launches
    limit = aggregate.link_limit(counted)
    if limit is None:
        return None
    disturbed = None
    if not undisturbed:
        ratio = aggregate.median_or_none(map(aggregate.exchange_above_limit, counted)) or 0.0
        disturbed = f"exchanges ran {ratio:.1f} × as fast"
    elif find_core_loss(run.plan, launches) is not None:
        disturbed = "the workers did not have their cores"
    return documents.LinkUtilization(
        limit_bytes_per_second=limit,
        fraction=None if disturbed else aggregate.run_median(counted, aggregate.link_limit_fraction),
        check_bytes_per_second=aggregate.perftest_link_limit(counted),
        not_checked=aggregate.why_link_limit_not_checked(run, counted),
        wall_ratio=None if disturbed else aggregate.run_median(counted, aggregate.wall_to_link_time_ratio),
        transports=sorted({transport for lane in lanes for transport in lane.transports}),
        bytes_per_second=aggregate.run_median(launches, aggregate.in_flight_bandwidth),
        silent_ranks=sorted(rank for rank, sent in aggregate.sent_bytes_by_rank(launches).items() if not sent),
        disturbed=disturbed,
    )


def _memory_copy_rates(run: Run, launches: Sequence[Launch]) -> documents.MemoryCopyRates | None:
    """The copy rate of memory and the shares of that rate that partition and join reach; None if workers share cores.

    With a runtime filter, a broadcast, a semi or an anti join no share is known: a worker moves only some of its bytes.
    """
    rate = aggregate.memory_copy_rate(launches)
    if rate is None or first_core_shortage(launches) is not None:
        return None
    less = run.plan.runtime_filter or run.plan.how in ("semi", "anti") or run.plan.distribution == "broadcast"
    whole = [] if less else launches  # less is moved than `aggregate.memory_copy_rate_fractions` assumes
    return documents.MemoryCopyRates(
        copy_bytes_per_second=rate,
        partition_fraction=aggregate.run_median(whole, aggregate.phase_copy_rate_fraction("partition")),
        join_fraction=aggregate.run_median(whole, aggregate.phase_copy_rate_fraction("join")),
    )


def _result_row_count(launches: Sequence[Launch]) -> int | None:
    """The number of rows of the merged table, as the workers or else the verification counted them; None: unknown."""
    for launch in reversed(launches):
        for iteration in reversed(launch.timed_iterations):
            rows = [worker.result_rows for worker in iteration.workers]
            if rows and None not in rows:
                return sum(row for row in rows if row is not None)
        for check in reversed(launch.verifications):
            if check.rows is not None:
                return check.rows
    return None
