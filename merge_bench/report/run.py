"""The report of a campaign: every table with `--details`, then the conclusion. `command` has what is of commands alone.

The conclusion says whether the result is verified, how fast the merge is, where the time goes, what limits it, and what
to do next. That of one run fits a terminal of 24 lines of 80 columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import VerificationState
from merge_bench.analysis.compare import compare_campaigns, metrics_of
from merge_bench.analysis.documents import Comparison, Document, RunDocument, SweepDocument, run_documents
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.errors import Caution, UsageError, WrongResult
from merge_bench.records.campaign import WAYS, Campaign, Run
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.report import run_sections as sections
from merge_bench.report.command import (
    CommandRun,
    command_headline,
    command_runs,
    write_command_details,
    write_command_figures,
)
from merge_bench.report.next_step import (
    export_command,
    next_step_after_command,
    next_step_after_run,
    next_step_after_sweep,
)
from merge_bench.report.run_sections import write_energy
from merge_bench.units import plural
from merge_bench.view import comparison as comparing
from merge_bench.view.content import Column, Page, caution_paragraphs
from merge_bench.view.next_command import NextStep, service_machine_note, step_as_typed
from merge_bench.view.plot import merge
from merge_bench.view.terminal import height_in_lines, open_page
from merge_bench.view.text import format_cell, format_gib, format_ms, format_number, format_ratio, format_row_count

LINES, COLUMNS = 23, 80
"""Lines and columns of a terminal that the report of one run may take; the last line is for the prompt."""
_SIMILAR_SHARE = 0.1
"""Two rates that differ by at most this share need no explanation."""
_OPTIONS_WITHOUT_COLUMN = frozenset(("hosts", "iterations", "warmup", "launches", "timeout", "distribution_reason"))


def print_campaign_report(
    campaign: Campaign,
    document: Document | None = None,
    *,
    details: bool = True,
    file: TextIO | None = None,
    width: int | None = None,
    above: Collection[Caution] = (),
    below: str = "",
) -> None:
    """Print the conclusion of `campaign`, and with `details` every table, on `file` (standard output).

    `document`: its `summarize`, made here if not given; `details`: every table of every run before the conclusion;
    `file`, `width`: as of `open_page`; `above`, `below`: as of `write_conclusion`.
    """
    summary = summarize_campaign(campaign) if document is None else document
    with open_page(file, width) as page:
        if details:
            for run, run_document in zip(campaign.runs, run_documents(summary), strict=True):
                write_run_details(page, campaign, run, run_document)
            if not isinstance(summary, SweepDocument) or campaign.command is not None:
                page.add_paragraph("")
        write_conclusion(
            page, campaign, run_documents(summary), summary.records, whole=details, above=above, below=below
        )


def write_run_details(page: Page, campaign: Campaign, run: Run, document: RunDocument) -> None:
    """Put every table of a run on a page."""
    if run.plan.command is not None:
        write_command_details(page, CommandRun(run.config.name, 0, run, document))
        return
    launches = aggregate.complete_launches(run)
    mark = VerificationState(document.verification.state).figure_mark
    sections.write_run_header(page, document)
    sections.write_import_origin(page, document)
    if launches:
        sections.write_totals(page, document, mark)
        if page.whole:  # text has it in the conclusion
            page.add_named_values(("Limited by", sections.describe_bottleneck(document)))
        sections.write_iterations(page, launches, mark)
        if run.is_imported:
            page.keep_note(f"workers, phases, link: {sections.why_figures_absent(document)}")
        else:
            sections.write_workers(page, document, aggregate.worker_figures(launches), mark)
            page.add_drawing(lambda: merge.worker_bandwidth_chart(run))
            page.add_drawing(lambda: merge.phases_chart(run))
            if page.whole and not (chart := merge.timeline_chart(campaign, run)).empty:
                page.add_drawing(lambda: chart)
                page.add_paragraph(
                    f"For https://ui.perfetto.dev, with all recorded iterations: {export_command(campaign)}"
                )
            sections.write_pair_tables(page, launches, mark)
            page.add_drawing(lambda: merge.pair_rates_chart(run, document.lanes))
            sections.write_link_limit(page, document, mark)
            sections.write_memory_rate(page, document, mark)
            write_energy(page, document, mark)
    sections.write_selected_transports(page, document.lanes, document.requested_transports)
    sections.write_protocols(page, document.protocols)
    sections.write_traffic(page, document.traffic)
    page.add_heading("Verification")
    sections.write_verification(page, document)
    page.add_kept_notes()


def write_conclusion(
    page: Page,
    campaign: Campaign,
    documents: Sequence[RunDocument],
    records: str,
    *,
    whole: bool = False,
    above: Collection[Caution] = (),
    below: str = "",
) -> None:
    """Put the conclusion of `campaign` on a page; `documents`: those of its runs.

    `records`: the path of the records; `whole`: whether to put all warnings there, not only as many as a terminal has
    room for; `above`: warnings that are printed above already; `below`: an error, or what gates found, that is printed
    below.
    """
    began = len(page.blocks)
    if campaign.command is not None:
        step, room = _write_command_conclusion(page, campaign, documents, below), LINES
    elif len(documents) == 1:
        step, room = next_step_after_run(campaign, documents[0]), LINES
        _write_run_conclusion(page, campaign.runs[0], documents[0])
    else:
        step, room = _write_sweep_conclusion(page, campaign, documents, below), LINES // 2
        began = len(page.blocks)
    for text in sections.error_lines([one for one in documents if one.error is None or one.error.message != below]):
        page.add_paragraph(text, "bold red")
    end = Page(plain=page.plain, whole=page.whole)
    if step is not None:
        quietly, step = step.quiet_host_advice(campaign), step.with_service_advice(campaign)
        if not page.whole:  # a report is read elsewhere, too
            step = step_as_typed(step)
        if step is not None and not (page.whole and step.reports):
            end.add_next_command(step.command, step.does)
            if quietly:
                end.add_paragraph(f"      ({quietly})", "dim")
    if not page.whole:  # a report names them with the environment
        end.add_unwrapped(f"Records: {records}{service_machine_note()}")
    warnings = list(dict.fromkeys(each for one in documents for each in one.warnings if each not in above))
    if all(one.imported is not None for one in documents):  # the line above the figures says so
        warnings = [each for each in warnings if each.code != diagnostics.UNVERIFIED]
    if page.whole:
        sections.write_warnings_by_kind(page, warnings)
    else:
        used = height_in_lines([*page.blocks[began:], *end.blocks], COLUMNS)
        _write_first_warnings(page, warnings, None if whole else room - used)
    page.sections[-1].blocks += end.blocks


def headline_sentence(documents: Sequence[RunDocument], campaigns: Sequence[Campaign]) -> tuple[str, bool]:
    """A sentence on the outcome of runs, and whether they decided anything; empty if no sentence is enough.

    Of a single run, the sentence has the figures and what limits it; of a comparison, the verdict.
    """
    if len(documents) == 1:
        (document,) = documents
        if document.wall_seconds.median is None:
            return "", True
        if values := command_headline(document):
            return values, True
        throughput = document.throughput_bytes_per_second.median
        bandwidth = document.bandwidth_bytes_per_second.harmonic_mean
        parts = [f"Wall-clock {format_ms(document.wall_seconds.median)} ms"]
        parts += [f"throughput {format_gib(throughput)} GiB/s"] if throughput else []
        parts += [f"bandwidth {format_gib(bandwidth)} GiB/s"] if bandwidth else []
        return ", ".join(parts) + (f"; limited by {document.bottleneck.what}" if document.bottleneck else ""), True
    metric = main_metric_name(campaigns)
    try:
        comparisons = (
            [each for each in compare_campaigns(campaigns).comparisons if each.metric == metric] if documents else []
        )
    except (UsageError, WrongResult):
        comparisons = []
    if len(comparisons) != 1:
        return "", True
    (verdict,) = comparisons
    better = comparing.word_for_better(verdict.unit)
    much = f", {format_ratio(verdict.ratio)} × as {better} in {metric}" if verdict.ratio is not None else ""
    return (
        f"{verdict.verdict}: {comparing.title_of_comparison(verdict)}{much}",
        verdict.verdict != Verdict.INCONCLUSIVE.value,
    )


def _write_run_conclusion(page: Page, run: Run, document: RunDocument) -> None:
    """Put what ran, the verification and the figures of one run on a page."""
    if not page.whole:  # a report has a title
        page.add_paragraph(f"merge_bench · {document.run_id}", "bold cyan")
    page.add_paragraph(sections.describe_run(document))
    measured, proof = document.measured, document.verification
    if document.verified:
        passed = f"all {proof.checks} checks passed" if proof.checks > 1 else "checked once"
        page.add_paragraph(f"verified: {format_row_count(document.result_rows)} rows, {passed}", "green")
        several = len(sections.hosts_of_run(document)) > 1
        apart = "; on each host the parts of its workers, unless they share the folder" if several else ""
        for folder in proof.folders:
            page.add_paragraph(f"Merged table: {folder} (read back and verified{apart})")
    elif measured.launches or document.error is None or proof.state == VerificationState.WRONG.value:
        sections.write_verification(page, document)
    if measured.launches:
        mark = None if document.imported is not None else VerificationState(proof.state).figure_mark
        sections.write_time_and_rates_table(page, document, mark)
        page.add_named_values(*_conclusion_values(document), mark=mark)
        if page.whole:
            measured_phases, runs = merge.phases_chart(run), [merge.LabelledRun(document.config.name, 0, run)]
            page.add_chart(merge.iterations_chart(runs) if measured_phases.empty else measured_phases)


def _conclusion_values(document: RunDocument) -> Iterable[tuple[str, str]]:
    """Names and texts of a run's phases, what limits the merge, its share of the link limit, and peak memory."""
    plan, wall = RecordedPlan.from_options(document.plan), document.wall_seconds.median
    seconds = {name: getattr(document.phases_seconds, name) for name in aggregate.PHASES}
    if wall and None not in seconds.values():
        shares = ", ".join(f"{name} {format_ms(each)} ({each / wall:.0%})" for name, each in seconds.items())
        whose = "" if plan.workers == 1 else "; slowest worker of each phase"
        if whose and not plan.pipeline and sum(round(100 * each / wall) for each in seconds.values()) > 100:
            whose += ", so more than 100% in all"
        yield "Phases (ms)", shares + (", overlapped" if plan.pipeline else "") + whose
    yield "Limited by", sections.describe_bottleneck(document)
    link = document.link
    if link is not None:
        limit = f"link limit of {format_gib(link.limit_bytes_per_second)} GiB/s at this size"
        share = "" if link.fraction is None else f"{sections.percent_of_limit(link.fraction)}% of the "
        over = f", over {', '.join(link.transports)}" if link.transports else ""
        yield "Link", share + limit + over + (_why_unlike_bandwidth(document) if share else "")
    peaks = [worker for worker in document.peak_memory_bytes.per_worker if worker.peak is not None]
    if peaks:
        most = max(peaks, key=lambda worker: worker.peak or 0)
        times = sections.peak_per_input(most)
        above = "" if times is None else f", {format_number(times)} × its input above imports"
        on_gpu = max((worker.device_peak for worker in peaks if worker.device_peak is not None), default=None)
        device = f"; {format_gib(on_gpu)} GiB of GPU memory" if on_gpu is not None else ""
        yield "Peak memory", f"{format_gib(most.peak)} GiB in a worker{above}{device}"


def _why_unlike_bandwidth(document: RunDocument) -> str:
    """Say why the share of the link limit is not bandwidth ÷ limit; empty where it is."""
    link, bandwidth = document.link, document.bandwidth_bytes_per_second
    if link is None:
        return ""
    if ranks := link.silent_ranks:
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {len(bandwidth.per_worker)} workers"
        return f"; share and limit count {who}, which sent nothing; Bandwidth does not"
    rate, mean = link.bytes_per_second, bandwidth.harmonic_mean
    if rate is None or not mean or abs(rate / mean - 1) <= _SIMILAR_SHARE:
        return ""
    return f"; all bytes together: {format_gib(rate)} GiB/s, where Bandwidth is a mean over frames and workers"


def _write_sweep_conclusion(
    page: Page, campaign: Campaign, documents: Sequence[RunDocument], below: str
) -> NextStep | None:
    """Put a table of the runs, and a verdict on each config, on a page; returns the next command."""
    if not page.whole:
        write_runs_table(page, documents, campaign.run_labels)
    looks = {name: at for at, name in enumerate(dict.fromkeys(campaign.run_labels))}
    comparisons = write_verdicts(page, [campaign], looks, below) if len(looks) > 1 else []
    if page.whole:
        write_runs_table(page, documents, campaign.run_labels)
    return next_step_after_sweep(campaign, documents, comparisons)


def _write_command_conclusion(
    page: Page, campaign: Campaign, documents: Sequence[RunDocument], below: str
) -> NextStep | None:
    """Put what ran, its figures, and a verdict on each config on a page; returns the next command."""
    if not page.whole:  # a report has a title
        page.add_paragraph(f"merge_bench · {campaign.head.campaign_id}", "bold cyan")
    looks = {name: at for at, name in enumerate(dict.fromkeys(campaign.run_labels))}
    write_command_figures(page, command_runs(campaign, documents, looks))
    comparisons = write_verdicts(page, [campaign], looks, below) if len(documents) > 1 else []
    return next_step_after_command(campaign, documents, comparisons)


def main_metric_name(campaigns: Sequence[Campaign]) -> str:
    """The name of the metric that a verdict on campaigns is about."""
    return metrics_of(run for campaign in campaigns for run in campaign.runs)[0].name


def write_verdicts(
    page: Page, campaigns: Sequence[Campaign], looks: Mapping[str, int], below: str = ""
) -> list[Comparison]:
    """Put the verdict on each run against its baseline, and a drawing of them, on a page; returns the comparisons.

    `looks`: the number of each run's look in all drawings; `below`: an error, or what gates found, printed below.
    """
    try:
        document = compare_campaigns(campaigns)
    except (UsageError, WrongResult) as why:
        page.add_paragraph(f"No verdict: {why}", "yellow")
        return []
    metric = main_metric_name(campaigns)
    comparisons = [comparison for comparison in document.comparisons if comparison.metric == metric]
    if comparisons:
        page.add_heading(f"Verdicts on {metric}")
    for comparison in comparisons:
        page.add_paragraph(comparing.title_of_comparison(comparison))
        comparing.write_verdict(page, comparison, indent=2, below=below)
    page.add_drawing(lambda: merge.speedup_chart(document, metric, looks))
    return comparisons


def _write_first_warnings(page: Page, warnings: Sequence[Caution], room: int | None) -> None:
    """Put as many warnings on a page as fit in `room` lines, but at least one; None: all of them."""
    for at, caution in enumerate(warnings):
        lines = caution_paragraphs(caution)
        if room is not None:
            left = len(warnings) - at
            room -= height_in_lines(lines, COLUMNS)
            if at and room < (left > 1):
                page.add_paragraph(f"{plural(left, 'more warning')} with `show --details`, and in the report", "dim")
                return
        page.sections[-1].blocks += lines


def write_runs_table(
    page: Page, documents: Sequence[RunDocument], names: Sequence[str], *, apart: bool = False
) -> None:
    """Put a table on a page: a row for each run, with the options that differ and are not in the runs' `names`.

    `apart`: whether the runs are of several campaigns; an option that one did not record is then no difference.
    """
    verified = all(one.verified for one in documents)
    page.add_heading(
        (f"All {len(documents)} runs" if len(documents) > 1 else "Run") + (", verified" if verified else "")
    )
    questions = [RecordedPlan.from_options(one.plan).question for one in documents]
    several = len(set(questions)) > 1
    states = [VerificationState(one.verification.state).figure_mark or "verified" for one in documents]
    shares = [sections.percent_of_limit(one.link.fraction if one.link else None) for one in documents]
    has_config = any(one.config.name in name for one, name in zip(documents, names, strict=True))
    page.add_table(
        Column("Config" if has_config else "Run", names, text=True),
        Column("Question", questions if several else [], text=True),
        *_option_columns(documents, names, {None} if apart else set()),
        Column("Wall-clock\n(ms)", [format_ms(one.wall_seconds.median) for one in documents]),
        Column("Bandwidth\n(GiB/s)", [format_gib(one.bandwidth_bytes_per_second.harmonic_mean) for one in documents]),
        Column("Throughput\n(GiB/s)", [format_gib(one.throughput_bytes_per_second.median) for one in documents]),
        Column("Of link\n(%)", shares),
        Column("Result\nrows", [format_row_count(one.result_rows) for one in documents] if several else []),
        Column("Limited\nby", [one.bottleneck.what if one.bottleneck else "" for one in documents], text=True),
        Column("Result", [] if verified else states, text=True),
    )


def _option_columns(documents: Sequence[RunDocument], names: Sequence[str], ignored: set[None]) -> Iterator[Column]:
    """Make a column for each option that differs between runs.

    Without options that say how long runs were measured, and without those that the runs' `names` contain: the way of
    each run, or with Dask's exchange, which has a shuffle and no timeline.
    """
    plans = [one.plan for one in documents]
    in_names = {way for way in WAYS if all(str(plan.get(way)) in name for plan, name in zip(plans, names, strict=True))}
    in_names |= {"shuffle", "timeline"} if "exchange" in in_names else set()
    for option in dict.fromkeys(name for plan in plans for name in plan):
        values = [plan.get(option) for plan in plans]
        if option in _OPTIONS_WITHOUT_COLUMN | in_names or any(isinstance(value, (dict, list)) for value in values):
            continue
        if len({*values} - ignored) > 1:
            heading, *more = option.capitalize().split("_")
            cells = [
                format_row_count(each) if isinstance(each, int) and not isinstance(each, bool) else format_cell(each)
                for each in values
            ]
            yield Column("\n".join(filter(None, (heading, " ".join(more)))), cells)
