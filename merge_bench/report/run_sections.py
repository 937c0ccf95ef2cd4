"""The sections of a run's report, in the order they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import NOT_BY_US, UNVERIFIED, State
from merge_bench.analysis.documents import RunDocument
from merge_bench.analysis.statistics import outliers
from merge_bench.errors import Caution
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.units import plural
from merge_bench.view.content import Page, by_row, grouped
from merge_bench.view.numbers import NULL, cell, gib, ms, number, rows
from merge_bench.view.titles import keys_of, tables_of

_MOST_ROWS = 20
_ROWS_AT_ENDS = 5
_SHOWN_OF_A_KIND = 3
"""Warnings of one kind that are shown at most."""

ALL_WARNINGS = "All warnings"

PIPELINED = ", overlapped with partition and join (--pipeline on)"


def why_absent(document: RunDocument) -> str:
    """The reason why a run has no bandwidth, phases or link limit."""
    if document.imported is not None:
        return "not in the imported text"
    if not recorded_plane(RecordedPlan.of(document.plan).exchange).by_workers:
        return "not measured, because Dask's own shuffle reports no bytes, transfer times or phases of workers"
    if len(document.bandwidth_bytes_per_second.per_worker) < 2:
        return "one worker sends nothing to others"
    return "not in the records"


def hosts_of(document: RunDocument) -> list[str]:
    """The hosts of a run's workers, each once."""
    return list(dict.fromkeys(worker.host for worker in document.bandwidth_bytes_per_second.per_worker))


def write_header(page: Page, document: RunDocument) -> None:
    """Put a heading, and names and values of what a run merged and how, on a page."""
    plan, config = RecordedPlan.of(document.plan), document.config
    page.heading(f"merge_bench · {document.run_id}")
    page.pairs(
        ("Workers", cell(plan.workers) + _on_hosts(hosts_of(document))),
        ("Rows per chunk", _chunk_size(plan)),
        *([("Question", plan.question)] if plan.question else []),
        *_table_rows(plan),
        ("Engine", plan.engine or NULL),
        ("Exchange", (plan.exchange or NULL) + (PIPELINED if plan.pipeline else "")),
        *_distribution_row(plan),
        *([("Runtime filter", "on: rows that cannot have a match were dropped first")] if plan.runtime_filter else []),
        ("Protocol", document.measured.protocol or NULL),
        ("Data processed per iteration (GiB)", gib(document.measured.data_bytes)),
        ("Iterations", f"{document.measured.iterations:,} {_launch_counts(document)}"),
        ("Config", config.name + (f" ({config.path})" if config.path else "")),
    )
    for name, value in config.variables.items():
        page.line(f"{name}={value}", indent=2)
    if document.measured.data_bytes is None:
        page.note("unknown: no launch started")


def _distribution_row(plan: RecordedPlan) -> Iterable[tuple[str, str]]:
    """The row that says whether a table is broadcast, and why; none for the default, a shuffle."""
    broadcast = plan.distribution == "broadcast"
    if broadcast or plan.distribution_reason:
        what = f"broadcast: the {plan.broadcast_side} table goes whole to every worker" if broadcast else "shuffle"
        yield "Distribution", what + (f" (auto: {plan.distribution_reason})" if plan.distribution_reason else "")


def write_imported(page: Page, document: RunDocument) -> None:
    """Put the totals that another program printed on a page, if the run was imported."""
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


def _chunk_size(plan: RecordedPlan) -> str:
    """The rows per chunk as text; of real tables, which have none, where they come from."""
    if plan.rows_per_chunk is not None:
        return rows(plan.rows_per_chunk)
    return f"as in the {(plan.workload and plan.workload.name) or 'tables'}"


def _table_rows(plan: RecordedPlan) -> Iterable[tuple[str, str]]:
    """Rows that name the merged tables and their keys; none if the tables are synthetic."""
    work = plan.workload
    if work is None:
        return
    for name, table in (("Left table", work.left), ("Right table", work.right)):
        if table is not None and table.path is not None:
            yield name, f"{table.path}, {rows(table.rows)} rows"
    if work.keys:
        yield "Keys", keys_of(work)


def describe_run(document: RunDocument) -> str:
    """One sentence about what a run merged, where, with which options, and how often."""
    plan, data = RecordedPlan.of(document.plan), document.measured.data_bytes
    what = tables_of(plan) or _chunk_size(plan) + (" rows per chunk" if plan.rows_per_chunk is not None else "")
    what = what if plan.how in (None, "inner") else f"{plan.how} join, {what}"
    workers = f"{NULL} workers" if plan.workers is None else plural(plan.workers, "worker")
    of_data = f" of {gib(data)} GiB" if data is not None else ""
    return (
        f"{what}; {workers}{_on_hosts(hosts_of(document))}; engine {plan.engine or NULL}"
        f", exchange {plan.exchange or NULL}{_distribution_phrase(plan)}, config {document.config.name};"
        f" {plural(document.measured.iterations, 'iteration')}{of_data} {_launch_counts(document)}"
    )


def _distribution_phrase(plan: RecordedPlan) -> str:
    """`` with broadcast of the left table (auto)``; empty for the default, a shuffle."""
    how = f" of the {plan.broadcast_side} table" if plan.distribution == "broadcast" else ""
    if plan.distribution_reason:
        return f" with {plan.distribution}{how} (auto)"
    return f" with broadcast{how}" if how else ""


def _on_hosts(hosts: Sequence[str]) -> str:
    """`` on node0, node1``; of many hosts the first four and their number."""
    if not hosts:
        return ""
    names = ", ".join(hosts[:4]) + (f", … ({len(hosts)} hosts)" if len(hosts) > 4 else "")
    return f" on {names}"


def _launch_counts(document: RunDocument) -> str:
    """The numbers of launches and warm-ups: ``in 1 launch, after 1 warm-up``."""
    launched, planned, warmup = document.measured.launches, document.measured.planned_launches, document.measured.warmup
    launches = plural(launched, "launch") if launched == planned else f"{launched:,} of {planned:,} launches"
    return f"in {launches}" + (f", after {' or '.join(map(str, warmup))} warm-up" if any(warmup) else "")


def write_figures(page: Page, document: RunDocument, mark: str | None) -> None:
    """Put a table of wall-clock, throughput and bandwidth, with medians and spread, on a page."""
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
            *(_format_ends(form, ends) for ends in (found.quartiles, (found.min, found.max))),
            _format_ends(form, found.ci95, ""),
        )
        for name, unit, form, found in parts
        if found is not None
    ]
    page.table(*by_row(("", "Median", "Quartiles", "Min–max", "95 % interval"), cells, [0]), mark=mark)


def _format_ends(
    form: Callable[[float | None], str], ends: tuple[float | None, float | None] | None, absent: str = NULL
) -> str:
    return absent if ends is None or None in ends else f"{form(ends[0])}–{form(ends[1])}"


def write_totals(page: Page, document: RunDocument, mark: str | None) -> None:
    """Put a table of totals on a page, and a line about the meaning of its interval."""
    page.heading("Totals (median over launches; quartiles, min and max over iterations)")
    write_figures(page, document, mark)
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


def percent_of_limit(share: float | None) -> str:
    """A share of a limit in percent as text; ``> 100`` where it exceeds the limit by more than noise."""
    return NULL if share is None else "> 100" if share > diagnostics.EXCEEDED else f"{100 * share:.0f}"


def describe_bottleneck(document: RunDocument) -> str:
    """What limits the merge, and how that is seen; or why the limit is not known."""
    bottleneck = document.bottleneck
    return f"unknown: {why_absent(document)}" if bottleneck is None else f"{bottleneck.what}: {bottleneck.because}"


def write_iterations(page: Page, launches: Sequence[Launch], mark: str | None) -> None:
    """Put a table with a row for each timed iteration on a page; of many on a terminal, the first and the last."""
    cells: list[Sequence[str]] = [
        (
            str(launch.index) if len(launches) > 1 else "",
            str(iteration.index),
            ms(iteration.wall_seconds),
            gib(aggregate.iteration_bandwidth(iteration)),
            gib(aggregate.throughput(launch, iteration)),
            "outlier" if far else "",
        )
        for launch in launches
        for iteration, far in zip(launch.timed, outliers([i.wall_seconds for i in launch.timed]), strict=True)
    ]
    count, long = len(cells), len(cells) > _MOST_ROWS and not page.whole
    if long:
        first, last = cells[:_ROWS_AT_ENDS], cells[-_ROWS_AT_ENDS:]
        cells = [*first, ["…" if any(column) else "" for column in zip(*first, *last, strict=True)], *last]
    page.heading("Iterations")
    headings = ("Launch", "Iteration", "Wall-clock\n(ms)", "Bandwidth\n(GiB/s)", "Throughput\n(GiB/s)", "")
    page.table(*by_row(headings, cells, [5]), mark=mark)
    if long:
        page.line(f"Shown: the first and last {_ROWS_AT_ENDS} of {count:,} iterations; the records contain all.", "dim")


def write_link(page: Page, document: RunDocument, mark: str | None) -> None:
    """Put the link limit of a worker, and the share of it that the exchange reached, on a page."""
    limits = document.link
    if limits is None and len(document.bandwidth_bytes_per_second.per_worker) == 1:
        page.note(f"link, transports: {why_absent(document)}")
        return
    page.heading("Link")
    if limits is None:
        page.pairs(("Link limit of a worker (GiB/s)", NULL), ("Exchange speed (% of link limit)", NULL), mark=mark)
        page.note(f"link limit: {why_absent(document)}")
        return
    limit, pipelined = limits.limit_bytes_per_second, RecordedPlan.of(document.plan).pipeline
    shown = [("Link limit of a worker (GiB/s)", gib(limit) + (f"; {limits.not_checked}" if limits.not_checked else ""))]
    if limits.check_bytes_per_second and limit:
        shown.append(("Link limit by ucx_perftest (GiB/s)", gib(limits.check_bytes_per_second)))
    shown.append(("Exchange speed (% of link limit)", percent_of_limit(limits.fraction)))
    if pipelined:
        shown.append(("Wall-clock ÷ bytes at the link limit (×)", number(limits.wall_ratio)))
    page.pairs(*shown, mark=mark)
    if pipelined:
        page.line("Both frames are sent at the same time, so each gets only a share of the link's bandwidth.", "dim")


def write_memory_rate(page: Page, document: RunDocument, mark: str | None) -> None:
    """Put the copy rate of memory, and the shares of it that partition and join reach, on a page."""
    rates = document.memory_rate
    if rates is not None:
        page.heading("Memory")
        page.pairs(
            ("Copy rate of a worker (GiB/s)", gib(rates.copy_bytes_per_second)),
            ("Partition (% of the copy rate)", percent_of_limit(rates.partition_fraction)),
            ("Join (% of the copy rate)", percent_of_limit(rates.join_fraction)),
            mark=mark,
        )


def write_verification(page: Page, document: RunDocument) -> None:
    """Put a line on a page that says whether the merge result was verified, and how."""
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


def write_findings(page: Page, documents: Sequence[RunDocument], others: Sequence[Caution] = ()) -> None:
    """Put errors and warnings of all runs, and the warnings `others`, on a page, each once."""
    errors = error_lines(documents)
    if errors:
        page.heading("Error")
    for text in errors:
        page.line(text, "bold red")
    of_runs = [caution for one in documents for caution in one.warnings]
    write_warnings_by_kind(page, list(dict.fromkeys([*of_runs, *others])))


def write_warnings_by_kind(page: Page, cautions: Sequence[Caution]) -> None:
    """Put the first warnings of each kind, with remedies, and the number of further ones on a page."""
    if cautions:
        page.heading("Warnings")
    for code, alike in grouped(cautions, lambda caution: caution.code).items():
        for remedy, some in grouped(alike[:_SHOWN_OF_A_KIND], lambda caution: caution.remedy).items():
            for caution in some:
                page.line(f"{code}: {caution.message}", "yellow")
            if remedy:
                page.line(f"→ {remedy}", indent=2)
        if len(alike) > _SHOWN_OF_A_KIND:
            page.line(
                f"{len(alike) - _SHOWN_OF_A_KIND} more of this kind, listed under {ALL_WARNINGS}", "dim", indent=2
            )


def leaves_warnings_out(cautions: Sequence[Caution]) -> bool:
    """Whether `write_warnings_by_kind` would leave some of `cautions` out."""
    return any(len(alike) > _SHOWN_OF_A_KIND for alike in grouped(cautions, lambda caution: caution.code).values())


def error_lines(documents: Sequence[RunDocument]) -> list[str]:
    """The lines that say why runs are incomplete, each error once."""
    lines = []
    for error in {one.error.message: one.error for one in documents if one.error}.values():
        rank = f"rank {error.rank}" if error.rank is not None else None
        where = ", ".join(filter(None, (rank, error.host)))
        has_code = error.message.startswith(error.code)  # interrupted by SIGINT
        lines.append(
            (error.message if has_code else f"{error.code}: {error.message}") + (f" ({where})" if where else "")
        )
    return lines
