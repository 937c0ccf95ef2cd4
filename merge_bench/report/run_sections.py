"""The sections of a run's report, in the order they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from merge_bench.analysis import aggregate, diagnostics, metrics
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.statistics import outliers
from merge_bench.analysis.verification_state import NOT_BY_US, UNVERIFIED, State
from merge_bench.errors import Caution
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.units import plural
from merge_bench.view.content import Page, by_row, grouped
from merge_bench.view.numbers import NULL, cell, gib, ms, number, rows
from merge_bench.view.titles import keys_of, tables_of

_SHOWN = 20
_ENDS = 5
_ALIKE = 3
"""Warnings of a kind that are shown at once."""

ALL_WARNINGS = "All warnings"

PIPELINED = ", overlapped with partition and join (--pipeline on)"


def absent(document: RunDocument) -> str:
    """Why a run has no bandwidth, phases or link."""
    if document.imported is not None:
        return "not in the imported text"
    if not recorded_plane(RecordedPlan.of(document.plan).exchange).by_workers:
        return "not measured, because Dask's own shuffle reports no bytes, transfer times or phases of workers"
    if len(document.bandwidth_bytes_per_second.per_worker) < 2:
        return "one worker sends nothing to others"
    return "not in the records"


def hosts_of(document: RunDocument) -> list[str]:
    """The hosts of its workers, each once."""
    return list(dict.fromkeys(worker.host for worker in document.bandwidth_bytes_per_second.per_worker))


def header(page: Page, document: RunDocument) -> None:
    """What ran."""
    plan, config = RecordedPlan.of(document.plan), document.config
    page.heading(f"merge_bench · {document.run_id}")
    page.pairs(
        ("Workers", cell(plan.workers) + _on(hosts_of(document))),
        ("Rows per chunk", _chunk(plan)),
        *([("Question", plan.question)] if plan.question else []),
        *_tables(plan),
        ("Engine", plan.engine or NULL),
        ("Exchange", (plan.exchange or NULL) + (PIPELINED if plan.pipeline else "")),
        *_distribution(plan),
        *([("Runtime filter", "on: rows that cannot have a match were dropped first")] if plan.runtime_filter else []),
        ("Protocol", document.measured.protocol or NULL),
        ("Data processed per iteration (GiB)", gib(document.measured.data_bytes)),
        ("Iterations", f"{document.measured.iterations:,} {_in_launches(document)}"),
        ("Config", config.name + (f" ({config.path})" if config.path else "")),
    )
    for name, value in config.variables.items():
        page.line(f"{name}={value}", indent=2)
    if document.measured.data_bytes is None:
        page.note("unknown: no launch started")


def _distribution(plan: RecordedPlan) -> Iterable[tuple[str, str]]:
    """Which table is sent whole, or why ``auto`` shuffles both; nothing if nobody asked."""
    broadcast = plan.distribution == "broadcast"
    if broadcast or plan.distribution_reason:
        what = f"broadcast: the {plan.broadcast_side} table goes whole to every worker" if broadcast else "shuffle"
        yield "Distribution", what + (f" (auto: {plan.distribution_reason})" if plan.distribution_reason else "")


def imported(page: Page, document: RunDocument) -> None:
    """What the text of another program says of the whole, beside the medians that follow."""
    source = document.imported
    if source is None:
        return
    head = source.headline
    page.heading(f"Summary printed by {source.program} (imported; not verified by merge_bench)")
    page.pairs(
        ("File", source.file),
        ("Wall-clock of all iterations (s)", number(head.wall_seconds)),
        ("Bandwidth (GiB/s)", gib(head.bandwidth_bytes_per_second)),
        ("Throughput: all bytes ÷ that wall-clock (GiB/s)", gib(head.throughput_bytes_per_second)),
        mark=UNVERIFIED,
    )


def _chunk(plan: RecordedPlan) -> str:
    """Rows per chunk; real tables have none, and are named instead."""
    if plan.rows_per_chunk is not None:
        return rows(plan.rows_per_chunk)
    return f"as in the {(plan.workload and plan.workload.name) or 'tables'}"


def _tables(plan: RecordedPlan) -> Iterable[tuple[str, str]]:
    """Which tables are merged on which keys, if they are not synthetic."""
    work = plan.workload
    if work is None:
        return
    for name, table in (("Left table", work.left), ("Right table", work.right)):
        if table is not None and table.path is not None:
            yield name, f"{table.path}, {rows(table.rows)} rows"
    if work.keys:
        yield "Keys", keys_of(work)


def what_ran(document: RunDocument) -> str:
    """The problem and where it ran, in one sentence."""
    plan, data = RecordedPlan.of(document.plan), document.measured.data_bytes
    what = tables_of(plan) or _chunk(plan) + (" rows per chunk" if plan.rows_per_chunk is not None else "")
    what = what if plan.how in (None, "inner") else f"{plan.how} join, {what}"
    workers = f"{NULL} workers" if plan.workers is None else plural(plan.workers, "worker")
    of_data = f" of {gib(data)} GiB" if data is not None else ""
    return (
        f"{what}; {workers}{_on(hosts_of(document))}; engine {plan.engine or NULL}, exchange {plan.exchange or NULL}"
        f"{_sent(plan)}, config {document.config.name};"
        f" {plural(document.measured.iterations, 'iteration')}{of_data} {_in_launches(document)}"
    )


def _sent(plan: RecordedPlan) -> str:
    how = f" of the {plan.broadcast_side} table" if plan.distribution == "broadcast" else ""
    if plan.distribution_reason:
        return f" with {plan.distribution}{how} (auto)"
    return f" with broadcast{how}" if how else ""


def _on(hosts: Sequence[str]) -> str:
    if not hosts:
        return ""
    named = ", ".join(hosts[:4]) + (f", … ({len(hosts)} hosts)" if len(hosts) > 4 else "")
    return f" on {named}"


def _in_launches(document: RunDocument) -> str:
    """``in 1 launch, after 1 warm-up``."""
    launched, planned, warmup = document.measured.launches, document.measured.planned_launches, document.measured.warmup
    launches = plural(launched, "launch") if launched == planned else f"{launched:,} of {planned:,} launches"
    return f"in {launches}" + (f", after {' or '.join(map(str, warmup))} warm-up" if any(warmup) else "")


def figures(page: Page, document: RunDocument, mark: str | None) -> None:
    """Wall-clock, throughput and bandwidth with their spread, a row each."""
    printed = ", as printed" if document.imported is not None else ""
    parts = (
        ("Wall-clock", "ms", ms, document.wall_seconds),
        ("Throughput", "GiB/s", gib, document.throughput_bytes_per_second),
        ("Bandwidth", "GiB/s", gib, document.bandwidth_bytes_per_second.spread),
    )
    cells = [
        (
            f"{name}{printed} ({unit})",
            form(found.median),
            *(_ends(form, ends) for ends in (found.quartiles, (found.min, found.max))),
            _ends(form, found.ci95, ""),
        )
        for name, unit, form, found in parts
        if found is not None
    ]
    page.table(*by_row(("", "Median", "Quartiles", "Min–max", "95 % interval"), cells, [0]), mark=mark)


def _ends(
    form: Callable[[float | None], str], ends: tuple[float | None, float | None] | None, absent: str = NULL
) -> str:
    return absent if ends is None or None in ends else f"{form(ends[0])}–{form(ends[1])}"


def totals(page: Page, document: RunDocument, mark: str | None) -> None:
    """The same with what the interval says."""
    page.heading("Totals (median over launches; quartiles, min and max over iterations)")
    figures(page, document, mark)
    wall, launches = document.wall_seconds, document.measured.launches
    if wall.ci95_ranks is None or wall.ci95_coverage is None:
        page.note(f"95 % interval: needs at least 6 launches; this run has {launches}")
    else:
        first, last = wall.ci95_ranks
        page.line(
            f"The interval ends at ranks {first} and {last} of {launches} sorted launches; "
            f"it contains the median with {100 * wall.ci95_coverage:.1f} % confidence.",
            "dim",
        )


def of_limit(share: float | None) -> str:
    """A share of a limit in %; ``> 100`` where it is more than noise beyond it, so that the limit is none."""
    return NULL if share is None else "> 100" if share > diagnostics.EXCEEDED else f"{100 * share:.0f}"


def limited_by(document: RunDocument) -> str:
    """What limits the merge, with its reason, or why that is not known."""
    bottleneck = document.bottleneck
    return f"unknown: {absent(document)}" if bottleneck is None else f"{bottleneck.what}: {bottleneck.because}"


def iterations(page: Page, launches: Sequence[Launch], mark: str | None) -> None:
    """The table that the field knows; the first and the last rows of a long one."""
    cells: list[Sequence[str]] = [
        (
            str(launch.index) if len(launches) > 1 else "",
            str(iteration.index),
            ms(iteration.wall_seconds),
            gib(metrics.iteration_bandwidth(iteration)),
            gib(aggregate.throughput(launch, iteration)),
            "outlier" if far else "",
        )
        for launch in launches
        for iteration, far in zip(launch.timed, outliers([i.wall_seconds for i in launch.timed]), strict=True)
    ]
    count, long = len(cells), len(cells) > _SHOWN and not page.whole
    if long:
        first, last = cells[:_ENDS], cells[-_ENDS:]
        cells = [*first, ["…" if any(column) else "" for column in zip(*first, *last, strict=True)], *last]
    page.heading("Iterations")
    headings = ("Launch", "Iteration", "Wall-clock\n(ms)", "Bandwidth\n(GiB/s)", "Throughput\n(GiB/s)", "")
    page.table(*by_row(headings, cells, [5]), mark=mark)
    if long:
        page.line(f"Shown: the first and last {_ENDS} of {count:,} iterations; the records contain all.", "dim")


def link(page: Page, document: RunDocument, mark: str | None) -> None:
    """What the link could carry, and which share of it the merge used."""
    limits = document.link
    if limits is None and len(document.bandwidth_bytes_per_second.per_worker) == 1:
        page.note(f"link, transports: {absent(document)}")
        return
    page.heading("Link")
    if limits is None:
        page.pairs(("Link limit of a worker (GiB/s)", NULL), ("Exchange speed (% of link limit)", NULL), mark=mark)
        page.note(f"link limit: {absent(document)}")
        return
    limit, pipelined = limits.limit_bytes_per_second, RecordedPlan.of(document.plan).pipeline
    shown = [("Link limit of a worker (GiB/s)", gib(limit) + (f"; {limits.not_checked}" if limits.not_checked else ""))]
    if limits.check_bytes_per_second and limit:
        shown.append(("Link limit by ucx_perftest (GiB/s)", gib(limits.check_bytes_per_second)))
    shown.append(("Exchange speed (% of link limit)", of_limit(limits.fraction)))
    if pipelined:
        shown.append(("Wall-clock ÷ bytes at the link limit (×)", number(limits.wall_ratio)))
    page.pairs(*shown, mark=mark)
    if pipelined:
        page.line("Both frames are sent at the same time, so each gets only a share of the link's bandwidth.", "dim")


def memory_rate(page: Page, document: RunDocument, mark: str | None) -> None:
    """How fast memory is copied, and which share of it partition and join reach."""
    rates = document.memory_rate
    if rates is not None:
        page.heading("Memory")
        page.pairs(
            ("Copy rate of a worker (GiB/s)", gib(rates.copy_bytes_per_second)),
            ("Partition (% of the copy rate)", of_limit(rates.partition_fraction)),
            ("Join (% of the copy rate)", of_limit(rates.join_fraction)),
            mark=mark,
        )


def verification(page: Page, document: RunDocument) -> None:
    """Whether the numbers rest on a proven result, and how it was proven."""
    proof = document.verification
    match State(proof.state):
        case State.OFF:
            page.line("UNVERIFIED: the merge result was not checked (--verify off)", "bold yellow")
        case State.IMPORTED:
            page.line(f"{UNVERIFIED}: {NOT_BY_US}", "bold yellow")
        case State.WRONG:
            page.line(f"WRONG RESULT: {proof.message or 'the merge result was wrong'}", "bold red")
            page.line(f"rows {rows(proof.rows)}, expected {rows(proof.expected_rows)}", indent=2)
            page.line(f"checksum {cell(proof.checksum)}, expected {cell(proof.expected_checksum)}", indent=2)
        case State.VERIFIED:
            passed = f"all {proof.checks} checks passed" if proof.checks > 1 else "1 check passed"
            checksum = f"checksum {cell(proof.checksum)}"
            page.line(f"verified: {rows(proof.rows)} rows, {checksum}; {passed} ({proof.how})", "green")
        case State.MISSING:
            passed = f"{plural(proof.checks, 'check')} passed"
            page.line(f"UNVERIFIED: {passed}, but other requested checks are missing", "yellow")


def findings(page: Page, documents: Sequence[RunDocument], others: Sequence[Caution] = ()) -> None:
    """Errors and warnings of all runs, and `others`, each once, with what to do about it."""
    errors = error_lines(documents)
    if errors:
        page.heading("Error")
    for text in errors:
        page.line(text, "bold red")
    of_runs = [caution for one in documents for caution in one.warnings]
    warnings_by_kind(page, list(dict.fromkeys([*of_runs, *others])))


def warnings_by_kind(page: Page, cautions: Sequence[Caution]) -> None:
    """The first warnings of each kind, with what to do about it; how many more there are."""
    if cautions:
        page.heading("Warnings")
    for code, alike in grouped(cautions, lambda caution: caution.code).items():
        for remedy, some in grouped(alike[:_ALIKE], lambda caution: caution.remedy).items():
            for caution in some:
                page.line(f"{code}: {caution.message}", "yellow")
            if remedy:
                page.line(f"→ {remedy}", indent=2)
        if len(alike) > _ALIKE:
            page.line(f"{len(alike) - _ALIKE} more of this kind, listed under {ALL_WARNINGS}", "dim", indent=2)


def too_many(cautions: Sequence[Caution]) -> bool:
    """Whether `warnings_by_kind` leaves some of them out."""
    return any(len(alike) > _ALIKE for alike in grouped(cautions, lambda caution: caution.code).values())


def error_lines(documents: Sequence[RunDocument]) -> list[str]:
    """Why runs are incomplete, each reason once."""
    lines = []
    for error in {one.error.message: one.error for one in documents if one.error}.values():
        rank = f"rank {error.rank}" if error.rank is not None else None
        where = ", ".join(filter(None, (rank, error.host)))
        said = error.message.startswith(error.code)  # interrupted by SIGINT
        lines.append((error.message if said else f"{error.code}: {error.message}") + (f" ({where})" if where else ""))
    return lines
