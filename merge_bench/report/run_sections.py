"""The sections of a run's report, in the order they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import NOT_BY_US, UNVERIFIED, VerificationState, WorkerFigures, worker_pair_traffic
from merge_bench.analysis.documents import (
    CountedTraffic,
    GpuEnergy,
    PairTransports,
    RunDocument,
    SelectedProtocols,
    WorkerPeakMemory,
)
from merge_bench.analysis.statistics import outlier_flags
from merge_bench.errors import WarningMessage
from merge_bench.host.gpu import THROTTLING
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import UcxProtocolRange
from merge_bench.units import count_with_noun
from merge_bench.view.content import Column, PageBuilder, columns_from_rows, group_by_key, rank_matrix_columns
from merge_bench.view.text import NULL, format_cell, format_gib, format_mib, format_ms, format_number, format_row_count
from merge_bench.view.titles import merge_keys_text, merged_tables_text

_MOST_ROWS, _MOST_WORKERS = 20, 64
_ROWS_AT_ENDS = 5
_PAIRS_SHOWN = 6
_PERIOD_HEADINGS = {"iterations": "Timed\niterations (MiB)", "link": "Link\nmeasurement (MiB)"}
_SHOWN_OF_A_KIND = 3
"""Warnings of one kind that are shown at most."""

NOT_MEASURED = "not measured"
ALL_WARNINGS = "All warnings"

PIPELINED = ", overlapped with partition and join (--pipeline on)"


def why_worker_figures_absent(document: RunDocument) -> str:
    """Say why a run has no bandwidth or phases of workers."""
    if document.imported is not None:
        return "not in the imported text"
    if not find_recorded_plane(RecordedPlan.from_options(document.plan).exchange).workers_exchange_rows:
        return "not measured, because Dask's own shuffle reports no bytes, transfer times or phases of workers"
    if len(document.bandwidth_bytes_per_second.per_worker) < 2:
        return "one worker sends nothing to others"
    return "not in the records"


def hosts_of_run(document: RunDocument) -> list[str]:
    return list(dict.fromkeys(worker.host for worker in document.bandwidth_bytes_per_second.per_worker))


def write_run_header(page: PageBuilder, document: RunDocument) -> None:
    """Put a heading on a page, and what a run merged and with which options, as names with values."""
    plan, config = RecordedPlan.from_options(document.plan), document.config
    facts = [
        ("Workers", format_cell(plan.workers) + _on_hosts_text(hosts_of_run(document))),
        ("Rows per chunk", _chunk_size_text(plan)),
    ]
    facts += [("Question", plan.question)] if plan.question else []
    work = plan.workload
    for name, table in (("Left table", work.left), ("Right table", work.right)) if work is not None else ():
        facts += (
            [(name, f"{table.path}, {format_row_count(table.rows)} rows")] if table is not None and table.path else []
        )
    facts += [("Keys", merge_keys_text(work))] if work is not None and work.keys else []
    facts += [("Engine", plan.engine or NULL)]
    facts += [("Exchange", (plan.exchange or NULL) + (PIPELINED if plan.pipeline else ""))]
    broadcast = plan.distribution == "broadcast"
    if broadcast or plan.distribution_reason:  # why a table is broadcast or not; nothing for the default, a shuffle
        what = f"broadcast: the {plan.broadcast_side} table goes whole to every worker" if broadcast else "shuffle"
        reason = f" (auto: {plan.distribution_reason})" if plan.distribution_reason else ""
        facts += [("Distribution", what + reason)]
    if plan.runtime_filter:
        facts += [("Runtime filter", "on: rows that cannot have a match were dropped first")]
    page.add_heading(f"merge_bench · {document.run_id}")
    page.add_named_values(
        *facts,
        ("Protocol", document.measured.protocol or NULL),
        ("Data processed per iteration (GiB)", format_gib(document.measured.data_bytes)),
        ("Iterations", f"{document.measured.iterations:,} {_launch_counts_text(document)}"),
        ("Config", config.name + (f" ({config.path})" if config.path else "")),
    )
    for name, value in config.variables.items():
        page.add_paragraph(f"{name}={value}", indent=2)
    if document.measured.data_bytes is None:
        page.collect_footnote("unknown: no launch started")


def write_import_origin(page: PageBuilder, document: RunDocument) -> None:
    source = document.imported
    if source is None:
        return
    head = source.headline
    if head is None:
        page.add_heading(f"Printed by {source.program} (imported; not verified by merge_bench)")
        page.add_named_values(("File", source.file), row_mark=UNVERIFIED)
        return
    page.add_heading(f"Summary printed by {source.program} (imported; not verified by merge_bench)")
    page.add_named_values(
        ("File", source.file),
        ("Wall-clock of all iterations (s)", format_number(head.wall_seconds)),
        ("Bandwidth (GiB/s)", format_gib(head.bandwidth_bytes_per_second)),
        ("Throughput: all bytes ÷ that wall-clock (GiB/s)", format_gib(head.throughput_bytes_per_second)),
        row_mark=UNVERIFIED,
    )


def _chunk_size_text(plan: RecordedPlan) -> str:
    if plan.rows_per_chunk is not None:
        return format_row_count(plan.rows_per_chunk)
    return f"as in the {(plan.workload and plan.workload.name) or 'tables'}"


def describe_run(document: RunDocument) -> str:
    """A sentence with the tables of a run, its workers, hosts, engine, exchange and config, and its iterations."""
    plan, data = RecordedPlan.from_options(document.plan), document.measured.data_bytes
    what = merged_tables_text(plan) or _chunk_size_text(plan) + (
        " rows per chunk" if plan.rows_per_chunk is not None else ""
    )
    what = what if plan.how in (None, "inner") else f"{plan.how} join, {what}"
    workers = f"{NULL} workers" if plan.workers is None else count_with_noun(plan.workers, "worker")
    of_data = f" of {format_gib(data)} GiB" if data is not None else ""
    side = f" of the {plan.broadcast_side} table" if plan.distribution == "broadcast" else ""
    how = f" with {plan.distribution}{side}" if side or plan.distribution_reason else ""  # nothing for the default
    how += " (auto)" if plan.distribution_reason else ""
    return (
        f"{what}; {workers}{_on_hosts_text(hosts_of_run(document))}; engine {plan.engine or NULL}"
        f", exchange {plan.exchange or NULL}{how}, config {document.config.name};"
        f" {count_with_noun(document.measured.iterations, 'iteration')}{of_data} {_launch_counts_text(document)}"
    )


def _on_hosts_text(hosts: Sequence[str]) -> str:
    """The hosts of a run, as text: `` on node0, node1``; of many the first four and their number."""
    if not hosts:
        return ""
    names = ", ".join(hosts[:4]) + (f", … ({len(hosts)} hosts)" if len(hosts) > 4 else "")
    return f" on {names}"


def _launch_counts_text(document: RunDocument) -> str:
    """The launches of a run, as text: ``in 1 launch, after 1 warm-up``."""
    launched, planned, warmup = document.measured.launches, document.measured.planned_launches, document.measured.warmup
    launches = count_with_noun(launched, "launch") if launched == planned else f"{launched:,} of {planned:,} launches"
    return f"in {launches}" + (f", after {' or '.join(map(str, warmup))} warm-up" if any(warmup) else "")


def write_time_and_rates_table(page: PageBuilder, document: RunDocument, unverified_mark: str | None) -> None:
    printed = ", as printed" if document.imported is not None else ""
    parts = (
        ("Wall-clock", "ms", format_ms, document.wall_seconds),
        ("Throughput", "GiB/s", format_gib, document.throughput_bytes_per_second),
        ("Bandwidth", "GiB/s", format_gib, document.bandwidth_bytes_per_second.spread),
    )
    cells = []
    for name, unit, form, spread in parts:
        if spread is not None:
            least_most = (spread.min, spread.max)
            ends = ((spread.quartiles, NULL), (least_most, NULL), (spread.ci95, ""))
            texts = [without if not both or None in both else "–".join(map(form, both)) for both, without in ends]
            cells.append((f"{name}{printed} ({unit})", form(spread.median), *texts))
    page.add_table(
        *columns_from_rows(("", "Median", "Quartiles", "Min–max", "95 % interval"), cells, [0]),
        row_mark=unverified_mark,
    )


def write_totals_with_interval(page: PageBuilder, document: RunDocument, unverified_mark: str | None) -> None:
    """Put a table of a run's wall-clock time, throughput and bandwidth on a page, and a line about the interval."""
    page.add_heading("Totals (median over launches; quartiles, min and max over iterations)")
    write_time_and_rates_table(page, document, unverified_mark)
    write_interval_note(page, document)


def write_interval_note(page: PageBuilder, document: RunDocument) -> None:
    """Put a line about the 95 % interval of a run's medians on a page, or keep a note on why there is no interval."""
    wall, launches = document.wall_seconds, document.measured.launches
    if wall.ci95_ranks is None or wall.ci95_coverage is None:
        page.collect_footnote(f"95 % interval: needs at least 6 launches; this run has {launches}")
    else:
        first, last = wall.ci95_ranks
        page.add_paragraph(
            f"The interval ends at ranks {first} and {last} of {launches} sorted launches; "
            f"it contains the median with {100 * wall.ci95_coverage:.1f} % confidence.",
            "dim",
        )


def percent_of_limit(share: float | None) -> str:
    """A share of a limit in percent as text; ``> 100`` where it exceeds the limit by more than noise."""
    return NULL if share is None else "> 100" if share > aggregate.EXCEEDED else f"{100 * share:.0f}"


def describe_bottleneck(document: RunDocument) -> str:
    """A text with the bottleneck of a merge and its evidence, or why the bottleneck is not known."""
    bottleneck = document.bottleneck
    return (
        f"unknown: {why_worker_figures_absent(document)}"
        if bottleneck is None
        else f"{bottleneck.what}: {bottleneck.because}"
    )


def write_iterations_table(page: PageBuilder, launches: Sequence[Launch], unverified_mark: str | None) -> None:
    cells: list[Sequence[str]] = []
    for launch in launches:
        number = str(launch.index) if len(launches) > 1 else ""
        for iteration, far in zip(
            launch.timed_iterations, outlier_flags([each.wall_seconds for each in launch.timed_iterations]), strict=True
        ):
            bandwidth, throughput = aggregate.iteration_bandwidth(iteration), aggregate.throughput(launch, iteration)
            figures = (format_ms(iteration.wall_seconds), format_gib(bandwidth), format_gib(throughput))
            cells.append((number, str(iteration.index), *figures, "outlier" if far else ""))
    count, long = len(cells), len(cells) > _MOST_ROWS and not page.whole
    if long:
        first, last = cells[:_ROWS_AT_ENDS], cells[-_ROWS_AT_ENDS:]
        cells = [*first, ["…" if any(column) else "" for column in zip(*first, *last, strict=True)], *last]
    page.add_heading("Iterations")
    headings = ("Launch", "Iteration", "Wall-clock\n(ms)", "Bandwidth\n(GiB/s)", "Throughput\n(GiB/s)", "")
    page.add_table(*columns_from_rows(headings, cells, [5]), row_mark=unverified_mark)
    if long:
        page.add_paragraph(
            f"Shown: the first and last {_ROWS_AT_ENDS} of {count:,} iterations; the records contain all.", "dim"
        )


def write_link_limit(page: PageBuilder, document: RunDocument, unverified_mark: str | None) -> None:
    """Put the link limit of a worker, and the share of it that the exchange reached, on a page."""
    limits = document.link
    if limits is None and len(document.bandwidth_bytes_per_second.per_worker) == 1:
        page.collect_footnote(f"link, transports: {why_worker_figures_absent(document)}")
        return
    page.add_heading("Link")
    if limits is None:
        page.add_named_values(
            ("Link limit of a worker (GiB/s)", NULL),
            ("Exchange speed (% of link limit)", NULL),
            row_mark=unverified_mark,
        )
        page.collect_footnote(f"link limit: {why_worker_figures_absent(document)}")
        return
    doubt = f"; disturbed: {limits.disturbed}" if limits.disturbed else ""
    limit, pipelined = limits.limit_bytes_per_second, RecordedPlan.from_options(document.plan).pipeline
    shown = [
        (
            "Link limit of a worker (GiB/s)",
            format_gib(limit) + doubt + (f"; {limits.not_checked}" if limits.not_checked else ""),
        )
    ]
    if limits.check_bytes_per_second and limit:
        shown.append(("Link limit by ucx_perftest (GiB/s)", format_gib(limits.check_bytes_per_second)))
    shown.append(("Exchange speed (% of link limit)", percent_of_limit(limits.fraction)))
    if pipelined:
        shown.append(("Wall-clock ÷ bytes at the link limit (×)", format_number(limits.wall_ratio)))
    page.add_named_values(*shown, row_mark=unverified_mark)
    if pipelined:
        page.add_paragraph(
            "Both frames are sent at the same time, so each gets only a share of the link's bandwidth.", "dim"
        )


def write_memory_copy_rates(page: PageBuilder, document: RunDocument, unverified_mark: str | None) -> None:
    rates = document.memory_rate
    if rates is not None:
        page.add_heading("Memory")
        page.add_named_values(
            ("Copy rate of a worker (GiB/s)", format_gib(rates.copy_bytes_per_second)),
            ("Partition (% of the copy rate)", percent_of_limit(rates.partition_fraction)),
            ("Join (% of the copy rate)", percent_of_limit(rates.join_fraction)),
            row_mark=unverified_mark,
        )


def write_verification(page: PageBuilder, document: RunDocument) -> None:
    proof = document.verification
    match VerificationState(proof.state):
        case VerificationState.OFF:
            page.add_paragraph("UNVERIFIED: the merge result was not checked (--verify off)", "bold yellow")
        case VerificationState.IMPORTED:
            page.add_paragraph(f"{UNVERIFIED}: {NOT_BY_US}", "bold yellow")
        case VerificationState.WRONG:
            page.add_paragraph(f"WRONG RESULT: {proof.message or 'the merge result was wrong'}", "bold red")
            page.add_paragraph(
                f"rows {format_row_count(proof.rows)}, expected {format_row_count(proof.expected_rows)}", indent=2
            )
            page.add_paragraph(
                f"checksum {format_cell(proof.checksum)}, expected {format_cell(proof.expected_checksum)}", indent=2
            )
        case VerificationState.VERIFIED:
            passed = f"all {proof.checks} checks passed" if proof.checks > 1 else "1 check passed"
            checksum = f"checksum {format_cell(proof.checksum)}"
            page.add_paragraph(
                f"verified: {format_row_count(proof.rows)} rows, {checksum}; {passed} ({proof.how})", "green"
            )
        case VerificationState.MISSING:
            passed = f"{count_with_noun(proof.checks, 'check')} passed"
            page.add_paragraph(f"UNVERIFIED: {passed}, but other requested checks are missing", "yellow")


def write_errors_and_warnings(
    page: PageBuilder, documents: Sequence[RunDocument], other_warnings: Sequence[WarningMessage] = ()
) -> None:
    """Put the errors and warnings of all runs, and `other_warnings`, on a page, each once."""
    errors = error_lines(documents)
    if errors:
        page.add_heading("Error")
    for text in errors:
        page.add_paragraph(text, "bold red")
    of_runs = [caution for one in documents for caution in one.warnings]
    write_warnings_by_kind(page, list(dict.fromkeys([*of_runs, *other_warnings])))


def write_warnings_by_kind(page: PageBuilder, cautions: Sequence[WarningMessage]) -> None:
    """Put the first warnings of each kind, with remedies, and the number of further warnings on a page."""
    if cautions:
        page.add_heading("Warnings")
    for code, alike in group_by_key(cautions, lambda caution: caution.code).items():
        for remedy, some in group_by_key(alike[:_SHOWN_OF_A_KIND], lambda caution: caution.remedy).items():
            for caution in some:
                page.add_paragraph(f"{code}: {caution.message}", "yellow")
            if remedy:
                page.add_paragraph(f"→ {remedy}", indent=2)
        if len(alike) > _SHOWN_OF_A_KIND:
            more = len(alike) - _SHOWN_OF_A_KIND
            page.add_paragraph(f"{more} more of this kind, listed under {ALL_WARNINGS}", "dim", indent=2)


def omits_warnings(cautions: Sequence[WarningMessage]) -> bool:
    """Whether `write_warnings_by_kind` would omit some of these warnings."""
    return any(len(alike) > _SHOWN_OF_A_KIND for alike in group_by_key(cautions, lambda caution: caution.code).values())


def error_lines(documents: Sequence[RunDocument]) -> list[str]:
    lines = []
    for error in {one.error.message: one.error for one in documents if one.error}.values():
        rank = f"rank {error.rank}" if error.rank is not None else None
        where = ", ".join(filter(None, (rank, error.host)))
        has_code = error.message.startswith(error.code)  # interrupted by SIGINT
        text = error.message if has_code else f"{error.code}: {error.message}"
        lines.append(text + (f" ({where})" if where else ""))
    return lines


def write_workers_table(
    page: PageBuilder, document: RunDocument, workers: Sequence[WorkerFigures], unverified_mark: str | None
) -> None:
    shown = list(workers)
    if len(workers) > _MOST_WORKERS and not page.whole:
        slowest = sorted(workers, key=lambda w: (w.bandwidth.mean is None, w.bandwidth.mean or 0.0, w.rank))
        shown = slowest[: _MOST_WORKERS // 2]
    remarks = [(slowest_rank(workers), "slowest")]
    remarks += [
        (overload.rank, f"overloaded {overload.factor:.2f} ×") for overload in diagnostics.overloaded_ranks(workers)
    ]
    remarks += [(slow.rank, f"slow {slow.phase}")] if (slow := diagnostics.straggling_rank(workers)) else []
    remarks_of = group_by_key(remarks, lambda remark: remark[0])
    who = [Column("Rank", [str(w.rank) for w in shown]), Column("Host", [w.host for w in shown], text=True)]
    speed = [
        Column("Left\n(GiB/s)", [format_gib(w.bandwidth.left) for w in shown]),
        Column("Right\n(GiB/s)", [format_gib(w.bandwidth.right) for w in shown]),
        Column("Mean\n(GiB/s)", [format_gib(w.bandwidth.mean) for w in shown]),
        Column("Partition\n(ms)", [format_ms(w.partition) for w in shown]),
        Column("Exchange\n(ms)", [format_ms(w.exchange) for w in shown]),
        Column("Join\n(ms)", [format_ms(w.join) for w in shown]),
    ]
    on_gpu = any(w.memory.device_peak is not None for w in shown)
    load = [
        Column("Received\n(rows)", [format_row_count(w.received_rows) for w in shown]),
        Column("Peak memory\n(GiB)", [format_gib(w.memory.peak) for w in shown]),
        Column("Peak above\nimports (GiB)", [format_gib(w.memory.above_imports) for w in shown]),
        Column("of its\ninput (×)", [format_number(peak_memory_per_input_byte(w.memory)) for w in shown]),
        Column("Device peak\n(GiB)", [format_gib(w.memory.device_peak) for w in shown] if on_gpu else []),
        Column("", [", ".join(text for _, text in remarks_of.get(w.rank, ())) for w in shown], text=True),
    ]
    page.add_heading("Workers (medians; bandwidth: bytes sent to other workers ÷ seconds in flight)")
    page.add_wide_table(who, speed, load, row_mark=unverified_mark)
    if len(shown) < len(workers):
        page.add_paragraph(
            f"Shown: the {len(shown)} slowest of {len(workers)} workers; the records contain all.", "dim"
        )
    columns = (("bandwidth", "bandwidth.mean"), ("phases", "partition"), ("received rows", "received_rows"))
    lacking = [name for name, field in columns if any(attrgetter(field)(w) is None for w in shown)]
    if lacking:
        page.collect_footnote(f"{', '.join(lacking)}: {why_worker_figures_absent(document)}")
    if any(w.memory.peak is None for w in shown):
        page.collect_footnote("peak memory: not measured")


def write_worker_pair_tables(page: PageBuilder, launches: Sequence[Launch], unverified_mark: str | None) -> None:
    """Put tables of bytes and rates from each worker to each other on a page, if workers are few."""
    traffic = worker_pair_traffic(launches)
    if not traffic or not (
        sizes := rank_matrix_columns({pair: format_mib(figures.bytes) for pair, figures in traffic.items()})
    ):
        return
    page.add_heading("Pairs: data sent per iteration (MiB), from row to column")
    page.add_table(*sizes, row_mark=unverified_mark)
    rates = {pair: figures.bytes / figures.seconds for pair, figures in traffic.items() if figures.seconds}
    if rates:
        page.add_heading("Pairs: bytes ÷ seconds in flight (GiB/s), from row to column")
        page.add_table(
            *rank_matrix_columns({pair: format_gib(rate) for pair, rate in rates.items()}), row_mark=unverified_mark
        )


def slowest_rank(workers: Sequence[WorkerFigures]) -> int | None:
    """The rank of the worker with the least bandwidth; None unless bandwidths differ."""
    rates = {worker.rank: rate for worker in workers if (rate := worker.bandwidth.mean) is not None}
    return min(rates, key=lambda rank: rates[rank]) if len(set(rates.values())) > 1 else None


def why_no_bandwidth(
    launches: Sequence[Launch], workers: Sequence[WorkerFigures], *, more_iterations_to_come: bool = False
) -> dict[int, str]:
    """Why workers have no bandwidth, as texts by rank; only ranks without a bandwidth are in it.

    `more_iterations_to_come`: whether the run is still going on.
    """
    sent: dict[int, list[tuple[int, int] | None]] = {}
    for launch in launches:
        for iteration in launch.timed_iterations:
            for part in iteration.workers:
                sizes = part.sent_bytes
                sent.setdefault(part.rank, []).append(None if sizes is None else (sizes.left, sizes.right))
    lacking = [worker.rank for worker in workers if worker.bandwidth.mean is None]
    none = "no figure yet" if more_iterations_to_come else NOT_MEASURED
    return {rank: _sent_frames_text(sent[rank]) if rank in sent else none for rank in lacking}


def _sent_frames_text(sent_bytes: Sequence[tuple[int, int] | None]) -> str:
    """What a worker did not send, as text: ``sent no left rows in these 4 iterations``.

    `sent_bytes`: bytes of the left and the right frame in each iteration; None: not measured.
    """
    measured = [each for each in sent_bytes if each is not None]
    if len(measured) < len(sent_bytes):
        return NOT_MEASURED
    left, right = (sum(frame) for frame in zip(*measured, strict=True))
    if left and right:
        return NOT_MEASURED
    what = "no right rows" if left else "no left rows" if right else "nothing"
    return f"sent {what} in {'this iteration' if len(sent_bytes) == 1 else f'these {len(sent_bytes)} iterations'}"


def peak_memory_per_input_byte(peak_memory: WorkerPeakMemory) -> float | None:
    """A worker's peak memory above that of its imports ÷ bytes of its input; None if either is not known."""
    return (
        peak_memory.above_imports / peak_memory.input
        if peak_memory.above_imports is not None and peak_memory.input
        else None
    )


def write_energy(page: PageBuilder, document: RunDocument, unverified_mark: str | None) -> None:
    """Put the energy of a merge, and a row for each GPU, on a page; nothing where no GPU or energy could be read."""
    energy = document.energy
    if energy is None or (energy.joules_per_merge is None and not energy.gpus and not energy.hosts):
        return
    page.add_heading("Energy and clocks during the timed iterations")
    of = f" ({energy.counts})" if energy.counts else ""
    page.add_named_values(
        ("Energy per merge (J)", format_number(energy.joules_per_merge) + of), row_mark=unverified_mark
    )
    gpus = energy.gpus
    if gpus:
        several = len({gpu.host for gpu in gpus}) > 1
        page.add_table(
            Column("Host", [gpu.host for gpu in gpus] if several else [], text=True),
            Column("GPU", [str(gpu.index) for gpu in gpus]),
            Column("Energy per\nmerge (J)", [format_number(gpu.joules_per_merge) for gpu in gpus]),
            Column("Mean power\n(W)", [_value_of_limit_text(gpu.watts, gpu.limit_watts) for gpu in gpus]),
            Column("SM clock\n(MHz)", [_value_of_limit_text(gpu.sm_mhz, gpu.max_sm_mhz) for gpu in gpus]),
            Column("Memory clock\n(MHz)", [_value_of_limit_text(gpu.memory_mhz, gpu.max_memory_mhz) for gpu in gpus]),
            Column("Temperature\n(°C)", [format_cell(gpu.celsius) for gpu in gpus]),
            Column("Throttled", [_throttling_text(gpu) for gpu in gpus], text=True),
            row_mark=unverified_mark,
        )
        page.add_paragraph(
            "Power and clocks: of the most that the GPU may take. Clocks: as read before and after.", "dim"
        )
    if energy.hosts:
        page.add_table(
            Column("Host", [host.host for host in energy.hosts], text=True),
            Column("Packages", [str(host.packages) for host in energy.hosts]),
            Column("Energy per\nmerge (J)", [format_number(host.joules_per_merge) for host in energy.hosts]),
            Column("Mean power\n(W)", [format_number(host.watts) for host in energy.hosts]),
            row_mark=unverified_mark,
        )
    for reason in energy.unknown:
        page.collect_footnote(f"energy unknown: {reason}")


def _value_of_limit_text(value: float | None, limit: float | None) -> str:
    """A value of a GPU with its limit, in watts or MHz: ``412 of 700``; without a limit the value alone."""
    shown = NULL if value is None else f"{value:.0f}"
    return shown if limit is None else f"{shown} of {limit:.0f}"


def _throttling_text(gpu: GpuEnergy) -> str:
    """How long and why a GPU was throttled: ``23 % (power cap)``; ``no``; ``-`` if not known."""
    shares = gpu.throttled_share or {}
    counted = [f"{share:.0%} ({cause})" for cause, share in shares.items() if share >= 0.001]
    seen = [cause for cause in gpu.reasons or () if cause in THROTTLING and cause not in shares]
    return ", ".join([*counted, *seen]) or (NULL if gpu.throttled_share is None and gpu.reasons is None else "no")


def write_selected_transports(page: PageBuilder, lanes: Sequence[PairTransports], requested: Mapping[str, str]) -> None:
    """Put the configured and the selected UCX transports on a page; pairs with the same transports share a row."""
    if not lanes:
        return
    write_configured_transports(page, requested)
    groups = group_by_key(lanes, lambda lane: (", ".join(lane.transports) or "none", lane.placement or ""))
    if len(groups) == 1:
        transports, placement = next(iter(groups))
        where = f", {placement}" if placement else ""
        page.add_paragraph(f"selected: {transports} (all {len(lanes)} pairs{where})")
        return
    rows = [
        (_rank_pairs_text([(lane.from_rank, lane.to_rank) for lane in alike]), placement, transports)
        for (transports, placement), alike in groups.items()
    ]
    page.add_table(*columns_from_rows(("Pairs", "Placement", "Transports selected"), rows, range(3)))


def write_configured_transports(page: PageBuilder, requested: Mapping[str, str]) -> None:
    """Put the heading of the selected transports and the settings about transports on a page."""
    page.add_heading("Transports that UCX selected")
    if requested:
        page.add_paragraph("configured: " + ", ".join(f"{name}={value}" for name, value in requested.items()))


def write_selected_protocols(page: PageBuilder, protocols: Sequence[SelectedProtocols]) -> None:
    """Put a table of the protocols that UCX selected, by memory and message size, on a page."""
    rows = [(one.pairs, each) for one in protocols for each in one.ranges]
    if not rows:
        return
    several = len(protocols) > 1
    page.add_heading("Protocols that UCX selected, by message size")
    page.add_table(
        Column("Pairs", [_rank_pairs_text(pairs) for pairs, _ in rows] if several else [], text=True),
        Column("Memory", [each.memory for _, each in rows], text=True),
        Column("Bytes", [_size_range_text(each) for _, each in rows]),
        Column("Protocol", [each.protocol + (" *" if each.estimated else "") for _, each in rows], text=True),
        Column("Transports", [each.transports for _, each in rows], text=True),
    )
    if any(each.estimated for _, each in rows):
        page.add_paragraph(
            "* Expected by the sender; in a rendezvous transfer, the receiver chooses the protocol.", "dim"
        )


def write_counted_traffic(page: PageBuilder, counted_traffic: Sequence[CountedTraffic]) -> None:
    if not counted_traffic:
        return
    hosts = list(dict.fromkeys(one.host for one in counted_traffic))
    periods = [period for period in _PERIOD_HEADINGS if any(one.during == period for one in counted_traffic)]
    by_key = {(one.host, one.during): one for one in counted_traffic}
    rows: list[list[str]] = []
    for host in hosts:
        counts_here = [by_key.get((host, period)) for period in periods]
        rows.append([host, "sent by its ranks", *(format_mib(one.sent if one else None) for one in counts_here)])
        devices = [one.devices if one else {} for one in counts_here]
        moved = [name for each in devices for name, count in each.items() if count.sent or count.received]
        for name in dict.fromkeys(moved):
            cells = [format_mib(each[name].sent if name in each else None) for each in devices]
            rows.append([host, f"counted by {name}", *cells])
    page.add_heading("Bytes sent, as counted by ranks and by network devices")
    page.add_table(
        *columns_from_rows(("Host", "Bytes", *(_PERIOD_HEADINGS[period] for period in periods)), rows, range(2))
    )
    page.add_paragraph(
        "Device counters include headers and all programs of the host; shared memory has no counter.", "dim"
    )


def _rank_pairs_text(rank_pairs: Sequence[tuple[int, int]]) -> str:
    """Pairs of ranks as text: ``0→1, 0→2``; of many, the first ones and their number."""
    more = f", … ({len(rank_pairs)} pairs)" if len(rank_pairs) > _PAIRS_SHOWN else ""
    return ", ".join(f"{a}→{b}" for a, b in rank_pairs[:_PAIRS_SHOWN]) + more


def _size_range_text(sizes: UcxProtocolRange) -> str:
    """A range of message sizes in bytes as text: ``1,024 to 8,191``."""
    first, last = sizes.first_bytes, sizes.last_bytes
    if last is None:
        return f"{first:,} and more"
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
