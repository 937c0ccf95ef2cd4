"""The report of a campaign: every table with `--details`, then the conclusion.

The conclusion says whether the result is verified, how fast the merge is, where the time goes, what limits it, and what
to do next. That of one run fits a terminal of 24 lines of 80 columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TextIO

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.judging import METRIC
from merge_bench.analysis.documents.compare import Comparison
from merge_bench.analysis.documents.run import Document, RunDocument, SweepDocument, runs_of
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.analysis.summary import summarize
from merge_bench.analysis.verification_state import State
from merge_bench.errors import Caution, UsageError, WrongResult
from merge_bench.records.campaign import WAYS, Campaign, Run
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.report import run_sections, transports, workers
from merge_bench.report.next_step import after_run, after_sweep, export_command
from merge_bench.units import plural
from merge_bench.view import comparison as comparing
from merge_bench.view.content import Block, Column, Line, Page
from merge_bench.view.next_command import NextStep, elsewhere, typed
from merge_bench.view.numbers import cell, gib, ms, number, ratio, rows
from merge_bench.view.plot import merge, timeline
from merge_bench.view.plot.marks import Chart
from merge_bench.view.terminal import height, page_on

LINES, COLUMNS = 23, 80
"""What one run may take of a terminal, whose last line is the prompt's."""
_ALIKE = 0.1
"""Rates that differ by at most this share look alike beside a share of the link limit."""
_NO_COLUMNS = frozenset(("hosts", "iterations", "warmup", "launches", "timeout", "distribution_reason"))


def print_report(
    campaign: Campaign,
    document: Document | None = None,
    *,
    details: bool = True,
    file: TextIO | None = None,
    width: int | None = None,
    above: Collection[Caution] = (),
    below: str = "",
) -> None:
    """Print the report of `campaign` on `file` (standard output).

    `document`: its `summarize`, made here if not given; `details`: every table of every run before the conclusion;
    `file`, `width`: as of `page_on`; `above`, `below`: as of `conclude`.
    """
    summary = summarize(campaign) if document is None else document
    with page_on(file, width) as page:
        if details:
            for run, run_document in zip(campaign.runs, runs_of(summary), strict=True):
                report_run(page, campaign, run, run_document)
            if not isinstance(summary, SweepDocument):
                page.line("")
        conclude(page, campaign, runs_of(summary), summary.records, whole=details, above=above, below=below)


def report_run(page: Page, campaign: Campaign, run: Run, document: RunDocument) -> None:
    """Everything about one run."""
    launches = aggregate.complete_launches(run)
    mark = State(document.verification.state).mark
    run_sections.header(page, document)
    run_sections.imported(page, document)
    if launches:
        run_sections.totals(page, document, mark)
        if page.whole:  # text has it in the conclusion
            page.pairs(("Limited by", run_sections.limited_by(document)))
        run_sections.iterations(page, launches, mark)
        if run.imported:
            page.note(f"workers, phases, link: {run_sections.absent(document)}")
        else:
            workers.table(page, document, aggregate.worker_figures(launches), mark)
            page.drawing(lambda: merge.workers(run))
            page.drawing(lambda: merge.phases(run))
            if page.whole and not (chart := timeline.timeline(campaign, run)).empty:
                page.drawing(lambda: chart)
                page.line(f"For https://ui.perfetto.dev, with all recorded iterations: {export_command(campaign)}")
            workers.pairs(page, launches, mark)
            page.drawing(lambda: merge.pairs(run, document.lanes))
            run_sections.link(page, document, mark)
            run_sections.memory_rate(page, document, mark)
    transports.selected(page, document.lanes, document.requested_transports)
    transports.protocols(page, document.protocols)
    transports.traffic(page, document.traffic)
    page.heading("Verification")
    run_sections.verification(page, document)
    page.end()


def conclude(
    page: Page,
    campaign: Campaign,
    documents: Sequence[RunDocument],
    records: str,
    *,
    whole: bool = False,
    above: Collection[Caution] = (),
    below: str = "",
) -> None:
    """Put the conclusion of `campaign` on a page, with `documents` of its runs.

    `records`: where they are, as it is printed; `whole`: all warnings, not only as many as there is room for;
    `above`: warnings that stand above it already; `below`: an error, or what gates found, that is
    printed below it.
    """
    began = len(page.blocks)
    if len(documents) == 1:
        step, room = after_run(campaign, documents[0]), LINES
        _conclude_run(page, campaign.runs[0], documents[0])
    else:
        step, room = _conclude_sweep(page, campaign, documents, below), LINES // 2
        began = len(page.blocks)
    for text in run_sections.error_lines([one for one in documents if one.error is None or one.error.message != below]):
        page.line(text, "bold red")
    end = Page(plain=page.plain, whole=page.whole)
    if step is not None:
        quietly, step = step.quietly(campaign), step.after(campaign)
        if not page.whole:  # a report is read elsewhere, too
            step = typed(step)
        if step is not None and not (page.whole and step.reports):
            end.next_step(step.command, step.does)
            if quietly:
                end.line(f"      ({quietly})", "dim")
    if not page.whole:  # a report names them with the environment
        end.unbroken(f"Records: {records}{elsewhere()}")
    warnings = list(dict.fromkeys(each for one in documents for each in one.warnings if each not in above))
    if all(one.imported is not None for one in documents):  # the line above the figures says so
        warnings = [each for each in warnings if each.code != diagnostics.UNVERIFIED]
    if page.whole:
        run_sections.warnings_by_kind(page, warnings)
    else:
        used = height([*page.blocks[began:], *end.blocks], COLUMNS)
        _first_warnings(page, warnings, None if whole else room - used)
    page.sections[-1].blocks += end.blocks


def headline(documents: Sequence[RunDocument], campaigns: Sequence[Campaign]) -> tuple[str, bool]:
    """One sentence about the runs of `documents`, and whether anything was decided; empty if there is none so short.

    A single run has its figures and what limits it, a comparison its verdict.
    """
    if len(documents) == 1:
        (document,) = documents
        if document.wall_seconds.median is None:
            return "", True
        throughput = document.throughput_bytes_per_second.median
        bandwidth = document.bandwidth_bytes_per_second.harmonic_mean
        parts = [f"Wall-clock {ms(document.wall_seconds.median)} ms"]
        parts += [f"throughput {gib(throughput)} GiB/s"] if throughput else []
        parts += [f"bandwidth {gib(bandwidth)} GiB/s"] if bandwidth else []
        return ", ".join(parts) + (f"; limited by {document.bottleneck.what}" if document.bottleneck else ""), True
    try:
        comparisons = [each for each in compare(campaigns).comparisons if each.metric == METRIC] if documents else []
    except (UsageError, WrongResult):
        comparisons = []
    if len(comparisons) != 1:
        return "", True
    (verdict,) = comparisons
    much = f", {ratio(verdict.ratio)} × as fast in {METRIC}" if verdict.ratio is not None else ""
    return f"{verdict.verdict}: {comparing.title(verdict)}{much}", verdict.verdict != Verdict.INCONCLUSIVE.value


def _conclude_run(page: Page, run: Run, document: RunDocument) -> None:
    """One run without its errors, warnings and what comes next."""
    if not page.whole:  # a report has a title
        page.line(f"merge_bench · {document.run_id}", "bold cyan")
    page.line(run_sections.what_ran(document))
    measured, proof = document.measured, document.verification
    if document.verified:
        passed = f"all {proof.checks} checks passed" if proof.checks > 1 else "checked once"
        page.line(f"verified: {rows(document.result_rows)} rows, {passed}", "green")
        several = len(run_sections.hosts_of(document)) > 1
        apart = "; on each host the parts of its workers, unless they share the folder" if several else ""
        for folder in proof.folders:
            page.line(f"Merged table: {folder} (read back and verified{apart})")
    elif measured.launches or document.error is None or proof.state == State.WRONG.value:
        run_sections.verification(page, document)
    if measured.launches:
        mark = None if document.imported is not None else State(proof.state).mark
        run_sections.figures(page, document, mark)
        page.pairs(*_facts(document), mark=mark)
        page.drawing(lambda: _key_chart(run, document))


def _key_chart(run: Run, document: RunDocument) -> Chart:
    """Where the time of a merge goes; without phases, every iteration."""
    phases = merge.phases(run)
    return merge.iterations([merge.Labelled(document.config.name, 0, run)]) if phases.empty else phases


def _facts(document: RunDocument) -> Iterable[tuple[str, str]]:
    """Where the time goes, what limits the merge, its share of the link, and peak memory."""
    plan, wall = RecordedPlan.of(document.plan), document.wall_seconds.median
    seconds = {name: getattr(document.phases_seconds, name) for name in aggregate.PHASES}
    if wall and None not in seconds.values():
        shares = ", ".join(f"{name} {ms(each)} ({each / wall:.0%})" for name, each in seconds.items())
        whose = "" if plan.workers == 1 else "; slowest worker of each phase"
        if whose and not plan.pipeline and sum(round(100 * each / wall) for each in seconds.values()) > 100:
            whose += ", so more than 100% in all"
        yield "Phases (ms)", shares + (", overlapped" if plan.pipeline else "") + whose
    yield "Limited by", run_sections.limited_by(document)
    link = document.link
    if link is not None:
        limit = f"link limit of {gib(link.limit_bytes_per_second)} GiB/s at this size"
        share = "" if link.fraction is None else f"{run_sections.of_limit(link.fraction)}% of the "
        over = f", over {', '.join(link.transports)}" if link.transports else ""
        yield "Link", share + limit + over + (_beside_bandwidth(document) if share else "")
    peaks = [worker for worker in document.peak_memory_bytes.per_worker if worker.peak is not None]
    if peaks:
        most = max(peaks, key=lambda worker: worker.peak or 0)
        times = most.above_imports / most.input if most.above_imports is not None and most.input else None
        above = "" if times is None else f", {number(times)} × its input above imports"
        on_gpu = max((worker.device_peak for worker in peaks if worker.device_peak is not None), default=None)
        device = f"; {gib(on_gpu)} GiB of GPU memory" if on_gpu is not None else ""
        yield "Peak memory", f"{gib(most.peak)} GiB in a worker{above}{device}"


def _beside_bandwidth(document: RunDocument) -> str:
    """Why the share of the link limit does not follow from the bandwidth, where it does not."""
    link, bandwidth = document.link, document.bandwidth_bytes_per_second
    if link is None:
        return ""
    if ranks := link.silent_ranks:
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {len(bandwidth.per_worker)} workers"
        return f"; share and limit count {who}, which sent nothing; Bandwidth does not"
    rate, mean = link.bytes_per_second, bandwidth.harmonic_mean
    if rate is None or not mean or abs(rate / mean - 1) <= _ALIKE:
        return ""
    return f"; all bytes together: {gib(rate)} GiB/s, where Bandwidth is a mean over frames and workers"


def _conclude_sweep(page: Page, campaign: Campaign, documents: Sequence[RunDocument], below: str) -> NextStep | None:
    """A row for each run, and a verdict for each config against the first, which a report begins with."""
    if not page.whole:
        overview(page, documents, campaign.labels)
    looks = {name: at for at, name in enumerate(dict.fromkeys(campaign.labels))}
    comparisons = verdicts(page, [campaign], looks, below) if len(looks) > 1 else []
    if page.whole:
        overview(page, documents, campaign.labels)
    return after_sweep(campaign, documents, comparisons)


def verdicts(page: Page, campaigns: Sequence[Campaign], looks: Mapping[str, int], below: str = "") -> list[Comparison]:
    """The verdict on each run against its baseline, and their drawing.

    `looks`: of each run in all drawings; `below`: as in `conclude`.
    """
    try:
        document = compare(campaigns)
    except (UsageError, WrongResult) as why:
        page.line(f"No verdict: {why}", "yellow")
        return []
    comparisons = [comparison for comparison in document.comparisons if comparison.metric == METRIC]
    if comparisons:
        page.heading(f"Verdicts on {METRIC}")
    for comparison in comparisons:
        page.line(comparing.title(comparison))
        comparing.write_verdict(page, comparison, indent=2, below=below)
    page.drawing(lambda: merge.speedups(document, METRIC, looks))
    return comparisons


def _first_warnings(page: Page, warnings: Sequence[Caution], room: int | None) -> None:
    """The first of the warnings, with their remedies, as far as `room` for lines goes, but one at least."""
    for at, caution in enumerate(warnings):
        lines: list[Block] = [Line(f"{caution.code}: {caution.message}", "yellow")]
        lines += [Line(f"→ {caution.remedy}", indent=2)] if caution.remedy else []
        if room is not None:
            left = len(warnings) - at
            room -= height(lines, COLUMNS)
            if at and room < (left > 1):
                page.line(f"{plural(left, 'more warning')} with `show --details`, and in the report", "dim")
                return
        page.sections[-1].blocks += lines


def overview(page: Page, documents: Sequence[RunDocument], names: Sequence[str], *, apart: bool = False) -> None:
    """One row a run, with what differs between their plans and is not in their `names`.

    `apart`: they are of several campaigns; an option that one of them did not record is then no difference.
    """
    proven = all(one.verified for one in documents)
    page.heading((f"All {len(documents)} runs" if len(documents) > 1 else "Run") + (", verified" if proven else ""))
    questions = [RecordedPlan.of(one.plan).question for one in documents]
    several = len(set(questions)) > 1
    named = any(one.config.name in name for one, name in zip(documents, names, strict=True))
    page.table(
        Column("Config" if named else "Run", names, text=True),
        Column("Question", questions if several else [], text=True),
        *(
            Column(_heading(name), [_cell(one.plan.get(name)) for one in documents])
            for name in _varying(documents, names, {None} if apart else set())
        ),
        Column("Wall-clock\n(ms)", [ms(one.wall_seconds.median) for one in documents]),
        Column("Bandwidth\n(GiB/s)", [gib(one.bandwidth_bytes_per_second.harmonic_mean) for one in documents]),
        Column("Throughput\n(GiB/s)", [gib(one.throughput_bytes_per_second.median) for one in documents]),
        Column("Of link\n(%)", [run_sections.of_limit(one.link.fraction if one.link else None) for one in documents]),
        Column("Result\nrows", [rows(one.result_rows) for one in documents] if several else []),
        Column("Limited\nby", [one.bottleneck.what if one.bottleneck else "" for one in documents], text=True),
        Column(
            "Result",
            [] if proven else [State(one.verification.state).mark or "verified" for one in documents],
            text=True,
        ),
    )


def _varying(documents: Sequence[RunDocument], names: Sequence[str], ignored: set[None]) -> list[str]:
    """The options that differ between the runs, except those that say how long they were measured, and sentences.

    Nor those that `names` have: the way of each run, or with Dask's exchange, which has a shuffle and no timeline.
    """
    plans = [one.plan for one in documents]
    named = {way for way in WAYS if all(str(plan.get(way)) in name for plan, name in zip(plans, names, strict=True))}
    named |= {"shuffle", "timeline"} if "exchange" in named else set()
    options = dict.fromkeys(name for plan in plans for name in plan if name not in _NO_COLUMNS | named)
    plain = [name for name in options if not any(isinstance(plan.get(name), (dict, list)) for plan in plans)]
    return [name for name in plain if len({plan.get(name) for plan in plans} - ignored) > 1]


def _heading(name: str) -> str:
    first, *more = name.capitalize().split("_")
    return f"{first}\n{' '.join(more)}" if more else first


def _cell(value: object) -> str:
    return rows(value) if isinstance(value, int) and not isinstance(value, bool) else cell(value)
