"""The sections of a run's report, in the order they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from merge_bench.analysis import aggregate, diagnostics, metrics
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.statistics import median_interval, outliers, quartiles
from merge_bench.analysis.verification_state import NOT_BY_US, UNVERIFIED
from merge_bench.errors import Caution
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.recorded_plan import Plan
from merge_bench.records.schema import IterationLine
from merge_bench.view.numbers import NULL, gib, ms, number, rows
from merge_bench.view.report.layout import Column, Page, by_row, grouped
from merge_bench.view.text import plural
from merge_bench.view.titles import keys_of, tables_of

_SHOWN = 20
_ENDS = 5
_ALIKE = 3
"""Warnings of a kind that are shown at once."""

ALL_WARNINGS = "All warnings"

PIPELINED = ", overlapped with partition and join (--pipeline on)"


def absent(run: Run, workers: int) -> str:
    """Why a run has no bandwidth, phases or link."""
    if run.imported:
        return "not in the imported text"
    if not recorded_plane(run.plan.exchange).by_workers:
        return "not measured, because Dask's own shuffle reports no bytes, transfer times or phases of workers"
    if workers < 2:
        return "one worker sends nothing to others"
    return "not in the records"


def header(page: Page, run: Run, launches: Sequence[Launch], document: RunDocument) -> None:
    """What ran."""
    plan, config = run.plan, document.config
    line = next((launch.line for launch in launches if launch.line is not None), None)
    hosts = list(dict.fromkeys(worker.host for worker in line.workers)) if line is not None else []
    page.heading(f"merge_bench · {document.run_id}")
    page.pairs(
        ("Workers", f"{NULL if plan.workers is None else plan.workers}{_on(hosts)}"),
        ("Rows per chunk", _chunk(plan)),
        *([("Question", plan.question)] if plan.question else []),
        *_tables(plan),
        ("Engine", plan.engine or NULL),
        ("Exchange", (plan.exchange or NULL) + (PIPELINED if plan.pipeline else "")),
        *_distribution(plan),
        *([("Runtime filter", "on: rows that cannot have a match were dropped first")] if plan.runtime_filter else []),
        ("Protocol", (line.cluster.protocol if line is not None else plan.protocol) or NULL),
        ("Data processed per iteration (GiB)", gib(line.data_bytes if line is not None else None)),
        ("Iterations", _counts(run, launches)),
        ("Config", config.name + (f" ({config.path})" if config.path else "")),
    )
    for name, value in config.variables.items():
        page.line(f"{name}={value}", indent=2)
    if line is None:
        page.note("unknown: no launch started")


def _distribution(plan: Plan) -> Iterable[tuple[str, str]]:
    """Which table is sent whole, or why ``auto`` shuffles both; nothing if nobody asked."""
    broadcast = plan.distribution == "broadcast"
    if broadcast or plan.distribution_reason:
        what = f"broadcast: the {plan.broadcast_side} table goes whole to every worker" if broadcast else "shuffle"
        yield "Distribution", what + (f" (auto: {plan.distribution_reason})" if plan.distribution_reason else "")


def imported(page: Page, document: RunDocument) -> None:
    """What the text of another program says of the whole, beside the medians that follow."""
    found = document.imported
    if found is None:
        return
    head = found.headline
    page.heading(f"Summary printed by {found.program} (imported; not verified by merge_bench)")
    page.pairs(
        ("File", found.file),
        ("Wall-clock of all iterations (s)", number(head.wall_seconds)),
        ("Bandwidth (GiB/s)", gib(head.bandwidth_bytes_per_second)),
        ("Throughput: all bytes ÷ that wall-clock (GiB/s)", gib(head.throughput_bytes_per_second)),
        mark=UNVERIFIED,
    )


def _chunk(plan: Plan) -> str:
    """Rows per chunk; real tables have none, and are named instead."""
    if plan.rows_per_chunk is not None:
        return rows(plan.rows_per_chunk)
    return f"as in the {(plan.workload and plan.workload.name) or 'tables'}"


def _tables(plan: Plan) -> Iterable[tuple[str, str]]:
    """Which tables are merged on which keys, if they are not synthetic."""
    work = plan.workload
    if work is None:
        return
    for name, table in (("Left table", work.left), ("Right table", work.right)):
        if table is not None and table.path is not None:
            yield name, f"{table.path}, {rows(table.rows)} rows"
    if work.keys:
        yield "Keys", keys_of(work)


def what_ran(run: Run, launches: Sequence[Launch], document: RunDocument) -> str:
    """The problem and where it ran, in one sentence."""
    plan = run.plan
    line = next((launch.line for launch in launches if launch.line is not None), None)
    hosts = list(dict.fromkeys(worker.host for worker in line.workers)) if line is not None else []
    what = f"{rows(plan.rows_per_chunk)} rows per chunk" if plan.rows_per_chunk is not None else _chunk(plan)
    what = tables_of(plan) or what
    what = what if plan.how in (None, "inner") else f"{plan.how} join, {what}"
    data = f" of {gib(line.data_bytes)} GiB" if line is not None else ""
    count, where = _counts(run, launches).split(" ", 1)
    workers = f"{NULL if plan.workers is None else plan.workers} worker{'s' * (plan.workers != 1)}{_on(hosts)}"
    return (
        f"{what}; {workers}; engine {plan.engine or NULL}, exchange {plan.exchange or NULL}{_sent(plan)},"
        f" config {document.config.name}; {count} iteration{'s' * (count != '1')}{data} {where}"
    )


def _sent(plan: Plan) -> str:
    how = f" of the {plan.broadcast_side} table" if plan.distribution == "broadcast" else ""
    if plan.distribution_reason:
        return f" with {plan.distribution}{how} (auto)"
    return f" with broadcast{how}" if how else ""


def _on(hosts: Sequence[str]) -> str:
    if not hosts:
        return ""
    named = ", ".join(hosts[:4]) + (f", … ({len(hosts)} hosts)" if len(hosts) > 4 else "")
    return f" on {named}"


def _counts(run: Run, launches: Sequence[Launch]) -> str:
    timed = sum(len(launch.timed) for launch in launches)
    many = len(launches)
    planned = "" if many == run.planned_launches else f" of {run.planned_launches:,}"
    warm = sorted({sum(iteration.warmup for iteration in launch.iterations) for launch in launches}) or [0]
    named = f"{timed:,} in {many:,}{planned} launch{'' if many == 1 and not planned else 'es'}"
    return f"{named}, after {' or '.join(map(str, warm))} warm-up" if warm[-1] else named


def totals(page: Page, launches: Sequence[Launch], document: RunDocument, mark: str | None) -> None:
    """Wall-clock, bandwidth and throughput, with their spread."""
    parts: tuple[tuple[str, str, Callable[[float | None], str], float | None, aggregate.Value], ...] = (
        ("Wall-clock", "ms", ms, document.wall_seconds.median, aggregate.wall),
        ("Bandwidth", "GiB/s", gib, document.bandwidth_bytes_per_second.harmonic_mean, aggregate.bandwidth),
        ("Throughput", "GiB/s", gib, document.throughput_bytes_per_second.median, aggregate.throughput),
    )
    printed = ", as printed" if document.imported else ""
    intervals = [median_interval(aggregate.samples(launches, value)) for *_, value in parts]
    cells = []
    for (what, unit, form, middle, value), interval in zip(parts, intervals, strict=True):
        values = aggregate.each(launches, value)
        low, _, high = quartiles(values) if values else (None, None, None)
        spread = [form(each) for each in (middle, low, high, min(values, default=None), max(values, default=None))]
        ends = NULL if interval is None else f"{form(interval.low)}–{form(interval.high)}"
        cells.append([f"{what}{printed} ({unit})", *spread, ends])
    page.heading("Totals (median over launches; quartiles Q1 and Q3, min and max over iterations)")
    page.table(*by_row(("", "Median", "Q1", "Q3", "Min", "Max", "95 %\ninterval"), cells, [0]), mark=mark)
    if intervals[0] is None:
        page.note(f"95 % interval: needs at least 6 launches; this run has {len(launches)}")
    else:
        first, last = intervals[0].ranks
        page.line(
            f"The interval ends at ranks {first} and {last} of {len(launches)} sorted launches; "
            f"it contains the median with {intervals[0].coverage * 100:.1f} % confidence.",
            "dim",
        )


def of_limit(share: float | None) -> str:
    """A share of a limit in %; ``> 100`` where it is more than noise beyond it, so that the limit is none."""
    return NULL if share is None else "> 100" if share > diagnostics.EXCEEDED else f"{100 * share:.0f}"


def limited_by(run: Run, document: RunDocument) -> str:
    """What limits the merge, with its reason, or why that is not known."""
    found = document.bottleneck
    if found is None:
        return f"unknown: {absent(run, len(document.bandwidth_bytes_per_second.per_worker))}"
    return f"{found.what}: {found.because}"


def iterations(page: Page, launches: Sequence[Launch], mark: str | None) -> None:
    """The table that the field knows; the first and the last rows of a long one."""
    found: list[tuple[Launch, IterationLine, bool]] = [
        (launch, iteration, far)
        for launch in launches
        for iteration, far in zip(launch.timed, outliers([i.wall_seconds for i in launch.timed]), strict=True)
    ]
    long = len(found) > _SHOWN and not page.whole
    shown = [*found[:_ENDS], *found[-_ENDS:]] if long else found
    columns = [
        Column("Launch", [str(launch.index) for launch, _, _ in shown] if len(launches) > 1 else []),
        Column("Iteration", [str(iteration.index) for _, iteration, _ in shown]),
        Column("Wall-clock\n(ms)", [ms(iteration.wall_seconds) for _, iteration, _ in shown]),
        Column("Bandwidth\n(GiB/s)", [gib(metrics.iteration_bandwidth(iteration)) for _, iteration, _ in shown]),
        Column("Throughput\n(GiB/s)", [gib(aggregate.throughput(launch, iteration)) for launch, iteration, _ in shown]),
        Column("", ["outlier" if far else "" for _, _, far in shown], text=True),
    ]
    if long:
        columns = [Column(c.heading, [*c.cells[:_ENDS], "…" * any(c.cells), *c.cells[_ENDS:]], c.text) for c in columns]
    page.heading("Iterations")
    page.table(*columns, mark=mark)
    if long:
        page.line(f"Shown: the first and last {_ENDS} of {len(found):,} iterations; the records contain all.", "dim")


def link(page: Page, run: Run, workers: int, document: RunDocument, mark: str | None) -> None:
    """What the link could carry, and which share of it the merge used."""
    found = document.link
    if found is None and workers == 1:
        page.note(f"link, transports: {absent(run, workers)}")
        return
    page.heading("Link")
    fraction = found.fraction if found else None
    limit = found.limit_bytes_per_second if found else None
    unchecked = found.not_checked if found else None
    shown = [
        ("Link limit of a worker (GiB/s)", gib(limit) + (f"; {unchecked}" if unchecked else "")),
        ("Exchange speed (% of link limit)", of_limit(fraction)),
    ]
    if found and found.check_bytes_per_second and limit:
        shown.insert(1, ("Link limit by ucx_perftest (GiB/s)", gib(found.check_bytes_per_second)))
    pipelined = found is not None and run.plan.pipeline
    if found and pipelined:
        shown.append(("Wall-clock ÷ bytes at the link limit (×)", number(found.wall_ratio)))
    page.pairs(*shown, mark=mark)
    if pipelined:
        page.line("Both frames are sent at the same time, so each gets only a share of the link's bandwidth.", "dim")
    if found is None:
        page.note(f"link limit: {absent(run, workers)}")


def memory_rate(page: Page, document: RunDocument, mark: str | None) -> None:
    """How fast memory is copied, and which share of it partition and join reach."""
    found = document.memory_rate
    if found is not None:
        page.heading("Memory")
        page.pairs(
            ("Copy rate of a worker (GiB/s)", gib(found.copy_bytes_per_second)),
            ("Partition (% of the copy rate)", of_limit(found.partition_fraction)),
            ("Join (% of the copy rate)", of_limit(found.join_fraction)),
            mark=mark,
        )


def verification(page: Page, run: Run, launches: Sequence[Launch], document: RunDocument) -> None:
    """Whether the numbers rest on a proven result, and how it was proven."""
    page.heading("Verification")
    verdict(page, run, launches, document)


def verdict(page: Page, run: Run, launches: Sequence[Launch], document: RunDocument) -> None:
    """The same without a heading."""
    checks = [check for launch in run.launches for check in launch.verifications]
    wrong = [check for check in checks if not check.ok]
    if run.verify == "off":
        page.line("UNVERIFIED: the merge result was not checked (--verify off)", "bold yellow")
    elif run.imported:
        page.line(f"{UNVERIFIED}: {NOT_BY_US}", "bold yellow")
    elif wrong:
        worst = wrong[0]
        page.line(f"WRONG RESULT: {worst.message or 'the merge result was wrong'}", "bold red")
        page.line(f"rows {rows(worst.rows)}, expected {rows(worst.expected_rows)}", indent=2)
        page.line(f"checksum {worst.checksum or NULL}, expected {worst.expected_checksum or NULL}", indent=2)
    elif document.verified:
        last = next(launch for launch in reversed(launches) if launch.verifications).verifications[-1]
        passed = f"all {len(checks)} checks passed" if len(checks) > 1 else "1 check passed"
        page.line(
            f"verified: {rows(last.rows)} rows, checksum {last.checksum or NULL}; {passed} ({last.how})",
            "green",
        )
    else:
        passed = f"{plural(len(checks), 'check')} passed"
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


def warnings_by_kind(page: Page, found: Sequence[Caution]) -> None:
    """The first warnings of each kind, with what to do about it; how many more there are."""
    if found:
        page.heading("Warnings")
    for code, alike in grouped(found, lambda caution: caution.code).items():
        for remedy, some in grouped(alike[:_ALIKE], lambda caution: caution.remedy).items():
            for caution in some:
                page.line(f"{code}: {caution.message}", "yellow")
            if remedy:
                page.line(f"→ {remedy}", indent=2)
        if len(alike) > _ALIKE:
            page.line(f"{len(alike) - _ALIKE} more of this kind, listed under {ALL_WARNINGS}", "dim", indent=2)


def too_many(found: Sequence[Caution]) -> bool:
    """Whether `warnings_by_kind` leaves some of them out."""
    return any(len(alike) > _ALIKE for alike in grouped(found, lambda caution: caution.code).values())


def error_lines(documents: Sequence[RunDocument]) -> list[str]:
    """Why runs are incomplete, each reason once."""
    lines = []
    for error in {one.error.message: one.error for one in documents if one.error}.values():
        rank = f"rank {error.rank}" if error.rank is not None else None
        where = ", ".join(filter(None, (rank, error.host)))
        said = error.message.startswith(error.code)  # interrupted by SIGINT
        lines.append((error.message if said else f"{error.code}: {error.message}") + (f" ({where})" if where else ""))
    return lines


def warnings(page: Page, found: Iterable[Caution]) -> None:
    """Code, message and remedy of each, as lines."""
    for caution in found:
        page.line(f"{caution.code}: {caution.message}", "yellow")
        if caution.remedy:
            page.line(f"→ {caution.remedy}", indent=2)
