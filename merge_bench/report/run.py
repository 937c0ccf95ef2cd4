"""The report of a campaign: every table with `--details`, then the conclusion. `command` has what is of commands alone.

The conclusion says whether the result is verified, how fast the merge is, where the time goes, what limits it, and what
to do next. That of one run fits a terminal of 24 lines of 80 columns.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import VerificationState
from merge_bench.analysis.compare import common_metrics, compare_campaigns
from merge_bench.analysis.documents import Comparison, Document, RunDocument, SweepDocument, run_documents
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.errors import UsageError, WarningMessage, WrongResult
from merge_bench.records.campaign import WAYS, Campaign, Run
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.report import run_sections as sections
from merge_bench.report.next_step import (
    next_step_after_command,
    next_step_after_run,
    next_step_after_sweep,
    timeline_export_command,
)
from merge_bench.report.run_sections import write_energy
from merge_bench.units import count_with_noun
from merge_bench.view import comparison as comparing
from merge_bench.view.content import Column, PageBuilder, warning_paragraphs
from merge_bench.view.plot import merge
from merge_bench.view.suggested_command import SuggestedCommand, service_machine_suffix, typed_command_unless_in_job
from merge_bench.view.terminal import height_in_lines, print_page_at_exit
from merge_bench.view.text import (
    format_cell,
    format_gib,
    format_ms,
    format_number,
    format_ratio,
    format_row_count,
    shorten_path,
)

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
    warnings_above: Collection[WarningMessage] = (),
    text_below: str = "",
) -> None:
    """Print the conclusion of `campaign`, and with `details` every table, on `file` (standard output).

    `document`: that of `summarize_campaign`, made here if not given; `details`: every table of every run before the
    conclusion; `file`, `width`: as of `print_page_at_exit`; `warnings_above`, `text_below`: as of `write_conclusion`.
    """
    summary = summarize_campaign(campaign) if document is None else document
    with print_page_at_exit(file, width) as page:
        if details:
            for run, run_document in zip(campaign.runs, run_documents(summary), strict=True):
                write_run_details(page, campaign, run, run_document)
            if not isinstance(summary, SweepDocument) or campaign.command is not None:
                page.add_paragraph("")
        write_conclusion(
            page,
            campaign,
            run_documents(summary),
            summary.records,
            all_warnings=details,
            warnings_above=warnings_above,
            text_below=text_below,
        )


def write_run_details(page: PageBuilder, campaign: Campaign, run: Run, document: RunDocument) -> None:
    """Put every table of a run on a page."""
    if run.plan.command is not None:
        from merge_bench.report.command_sections import CommandRun, write_command_details

        write_command_details(page, CommandRun(run.config.name, 0, run, document))
        return
    launches = aggregate.complete_launches(run)
    mark = VerificationState(document.verification.state).unverified_mark
    sections.write_run_header(page, document)
    sections.write_import_origin(page, document)
    if launches:
        sections.write_totals_with_interval(page, document, mark)
        if page.whole:  # text has it in the conclusion
            page.add_named_values(("Limited by", sections.describe_bottleneck(document)))
        sections.write_iterations_table(page, launches, mark)
        if run.is_imported:
            page.collect_footnote(f"workers, phases, link: {sections.why_worker_figures_absent(document)}")
        else:
            sections.write_workers_table(page, document, aggregate.worker_figures(launches), mark)
            page.add_lazy_chart(lambda: merge.worker_bandwidth_chart(run))
            page.add_lazy_chart(lambda: merge.worker_phases_chart(run))
            if page.whole and not (chart := merge.timeline_chart(campaign, run)).is_empty:
                page.add_lazy_chart(lambda: chart)
                page.add_paragraph(
                    f"For https://ui.perfetto.dev, with all recorded iterations: {timeline_export_command(campaign)}"
                )
            sections.write_worker_pair_tables(page, launches, mark)
            page.add_lazy_chart(lambda: merge.pair_rates_chart(run, document.lanes))
            sections.write_link_limit(page, document, mark)
            sections.write_memory_copy_rates(page, document, mark)
            write_energy(page, document, mark)
    sections.write_selected_transports(page, document.lanes, document.requested_transports)
    sections.write_selected_protocols(page, document.protocols)
    sections.write_counted_traffic(page, document.traffic)
    page.add_heading("Verification")
    sections.write_verification(page, document)
    page.add_collected_footnotes()


def write_conclusion(
    page: PageBuilder,
    campaign: Campaign,
    documents: Sequence[RunDocument],
    records_path: str,
    *,
    all_warnings: bool = False,
    warnings_above: Collection[WarningMessage] = (),
    text_below: str = "",
) -> None:
    """Put the conclusion of `campaign` on a page; `documents`: those of its runs.

    `all_warnings`: whether to show all warnings, or only as many as fit into a terminal; `warnings_above`: warnings
    that are already printed above, and not repeated; `text_below`: an error or outcome of gates that will be printed
    below.
    """
    began = len(page.blocks)
    if campaign.command is not None:
        step, room = _write_command_conclusion(page, campaign, documents, text_below), LINES
    elif len(documents) == 1:
        step, room = next_step_after_run(campaign, documents[0]), LINES
        _write_run_conclusion(page, campaign.runs[0], documents[0])
    else:
        step, room = _write_sweep_conclusion(page, campaign, documents, text_below), LINES // 2
        began = len(page.blocks)
    for text in sections.error_lines(
        [one for one in documents if one.error is None or one.error.message != text_below]
    ):
        page.add_paragraph(text, "bold red")
    end = PageBuilder(plain=page.plain, whole=page.whole)
    if step is not None:
        quietly, step = step.quiet_host_advice(campaign), step.with_service_advice(campaign)
        if not page.whole:  # a report is read elsewhere, too
            step = typed_command_unless_in_job(step)
        if step is not None and not (page.whole and step.reports):
            end.add_next_command(step.command, step.does)
            if quietly:
                end.add_paragraph(f"      ({quietly})", "dim")
    if not page.whole:  # a report names them with the environment
        end.add_unwrapped_line(f"Records: {records_path}{service_machine_suffix()}")
    warnings = list(dict.fromkeys(each for one in documents for each in one.warnings if each not in warnings_above))
    if all(one.imported is not None for one in documents):  # the line above the figures says so
        warnings = [each for each in warnings if each.code != diagnostics.UNVERIFIED]
    if page.whole:
        sections.write_warnings_by_kind(page, warnings)
    else:
        used = height_in_lines([*page.blocks[began:], *end.blocks], COLUMNS)
        _write_first_warnings(page, warnings, None if all_warnings else room - used, campaign)
    page.sections[-1].blocks += end.blocks


_SMALL_INPUT_BYTES = 16 << 20
"""A worker of the native engine takes about 130 MiB above its imports for an input of 8 kB, so most of it is fixed."""
_FIXED_MEMORY = ", mostly a fixed amount: its input is small"


def headline_sentence(documents: Sequence[RunDocument], campaigns: Sequence[Campaign]) -> tuple[str, bool]:
    """A sentence on the outcome of runs, and whether anything was decided; empty if one sentence is not enough.

    The sentence on a single run has its figures and its bottleneck; that on a comparison has the verdict.
    """
    if len(documents) == 1:
        from merge_bench.report.command_sections import command_headline

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
    better = comparing.improvement_adjective(verdict.unit)
    much = f", {format_ratio(verdict.ratio)} × as {better} in {metric}" if verdict.ratio is not None else ""
    return (
        f"{verdict.verdict}: {comparing.title_of_comparison(verdict)}{much}",
        verdict.verdict != Verdict.INCONCLUSIVE.value,
    )


def _write_run_conclusion(page: PageBuilder, run: Run, document: RunDocument) -> None:
    """Put the description, the verification and the figures of one run on a page."""
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
        mark = None if document.imported is not None else VerificationState(proof.state).unverified_mark
        sections.write_time_and_rates_table(page, document, mark)
        page.add_named_values(*_conclusion_rows(document), row_mark=mark)
        if page.whole:
            measured_phases, runs = merge.worker_phases_chart(run), [merge.LabelledRun(document.config.name, 0, run)]
            page.add_chart(merge.iteration_throughput_chart(runs) if measured_phases.is_empty else measured_phases)


def _conclusion_rows(document: RunDocument) -> Iterable[tuple[str, str]]:
    """Yield names and texts for a run's phases, bottleneck, share of the link limit, and peak memory."""
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
        over = f", over {', '.join(link.transports)}" if link.transports else ""
        if link.disturbed is not None:
            rate = format_gib(link.limit_bytes_per_second)
            yield "Link", f"disturbed: {rate} GiB/s, {link.disturbed}{over}"
        else:
            share = "" if link.fraction is None else f"{sections.percent_of_limit(link.fraction)}% of the "
            yield "Link", share + limit + over + (_why_link_share_differs(document) if share else "")
    peaks = [worker for worker in document.peak_memory_bytes.per_worker if worker.peak is not None]
    if peaks:
        most = max(peaks, key=lambda worker: worker.peak or 0)
        times = sections.peak_memory_per_input_byte(most)
        above = "" if times is None else f", {format_number(times)} × its input above imports"
        above = _FIXED_MEMORY if times is not None and (most.input or 0) < _SMALL_INPUT_BYTES else above
        on_gpu = max((worker.device_peak for worker in peaks if worker.device_peak is not None), default=None)
        device = f"; {format_gib(on_gpu)} GiB of GPU memory" if on_gpu is not None else ""
        yield "Peak memory", f"{format_gib(most.peak)} GiB in a worker{above}{device}"


def _why_link_share_differs(document: RunDocument) -> str:
    """Say why the share of the link limit differs from bandwidth ÷ link limit; empty if the two agree."""
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
    page: PageBuilder, campaign: Campaign, documents: Sequence[RunDocument], text_below: str
) -> SuggestedCommand | None:
    """Put a table of the runs, and a verdict on each config, on a page; returns the next command."""
    if not page.whole:
        write_runs_table(page, documents, campaign.run_labels)
    style_by_label = {name: at for at, name in enumerate(dict.fromkeys(campaign.run_labels))}
    comparisons = write_verdicts(page, [campaign], style_by_label, text_below) if len(style_by_label) > 1 else []
    if page.whole:
        write_runs_table(page, documents, campaign.run_labels)
    return next_step_after_sweep(campaign, documents, comparisons)


def _write_command_conclusion(
    page: PageBuilder, campaign: Campaign, documents: Sequence[RunDocument], text_below: str
) -> SuggestedCommand | None:
    """Put the command, its figures, and a verdict on each config on a page; returns the next command."""
    from merge_bench.report.command_sections import make_command_runs, write_command_summary

    if not page.whole:  # a report has a title
        page.add_paragraph(f"merge_bench · {campaign.head.campaign_id}", "bold cyan")
    style_by_label = {name: at for at, name in enumerate(dict.fromkeys(campaign.run_labels))}
    write_command_summary(page, make_command_runs(campaign, documents, style_by_label))
    comparisons = write_verdicts(page, [campaign], style_by_label, text_below) if len(documents) > 1 else []
    return next_step_after_command(campaign, documents, comparisons)


def main_metric_name(campaigns: Sequence[Campaign]) -> str:
    """The name of the metric that a verdict on campaigns is about."""
    return common_metrics(run for campaign in campaigns for run in campaign.runs)[0].name


def write_verdicts(
    page: PageBuilder, campaigns: Sequence[Campaign], style_by_label: Mapping[str, int], text_below: str = ""
) -> list[Comparison]:
    """Put the verdict on each run against its baseline, and a chart of the verdicts, on a page.

    Returns the comparisons. `style_by_label`: the number of each run's colour and marker in charts; `text_below`: as of
    `write_conclusion`.
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
        comparing.write_verdict(page, comparison, indent=2, text_below=text_below)
    page.add_lazy_chart(lambda: merge.speedup_chart(document, metric, style_by_label))
    return comparisons


def _write_first_warnings(
    page: PageBuilder, warnings: Sequence[WarningMessage], max_lines: int | None, campaign: Campaign
) -> None:
    """Put as many warnings on a page as fit in `max_lines` lines, but at least one; None: all warnings of `campaign`.

    If some do not fit, the last line has the command that shows them.
    """
    details_command = f"show {shlex.quote(shorten_path(str(campaign.folder)))} --details"
    for at, caution in enumerate(warnings):
        lines = warning_paragraphs(caution)
        if max_lines is not None:
            left = len(warnings) - at
            others = PageBuilder(plain=page.plain)
            others.add_unwrapped_line(f"{count_with_noun(left, 'more warning')} with `{details_command}`", "dim")
            max_lines -= height_in_lines(lines, COLUMNS)
            if at and max_lines < (height_in_lines(others.blocks, COLUMNS) if left > 1 else 0):
                page.sections[-1].blocks += others.blocks
                return
        page.sections[-1].blocks += lines


def write_runs_table(
    page: PageBuilder, documents: Sequence[RunDocument], run_names: Sequence[str], *, several_campaigns: bool = False
) -> None:
    """Put a table on a page: a row for each run, with the options that differ and are not in the runs' `run_names`.

    `several_campaigns`: whether the runs are of several campaigns; then an option that is missing in one of them is no
    difference.
    """
    verified = all(one.verified for one in documents)
    page.add_heading(
        (f"All {len(documents)} runs" if len(documents) > 1 else "Run") + (", verified" if verified else "")
    )
    questions = [RecordedPlan.from_options(one.plan).question for one in documents]
    several = len(set(questions)) > 1
    states = [VerificationState(one.verification.state).unverified_mark or "verified" for one in documents]
    shares = [sections.percent_of_limit(one.link.fraction if one.link else None) for one in documents]
    has_config = any(one.config.name in name for one, name in zip(documents, run_names, strict=True))
    page.add_table(
        Column("Config" if has_config else "Run", run_names, text=True),
        Column("Question", questions if several else [], text=True),
        *_option_columns(documents, run_names, {None} if several_campaigns else set()),
        Column("Wall-clock\n(ms)", [format_ms(one.wall_seconds.median) for one in documents]),
        Column("Bandwidth\n(GiB/s)", [format_gib(one.bandwidth_bytes_per_second.harmonic_mean) for one in documents]),
        Column("Throughput\n(GiB/s)", [format_gib(one.throughput_bytes_per_second.median) for one in documents]),
        Column("Of link\n(%)", shares),
        Column("Result\nrows", [format_row_count(one.result_rows) for one in documents] if several else []),
        Column("Limited\nby", [one.bottleneck.what if one.bottleneck else "" for one in documents], text=True),
        Column("Result", [] if verified else states, text=True),
    )


def _option_columns(
    documents: Sequence[RunDocument], run_names: Sequence[str], ignored_values: set[None]
) -> Iterator[Column]:
    """Yield a column for each option that differs between runs.

    Left out are options about the length of the measurement, and those that `run_names` contain: engine and exchange,
    and with the latter also shuffle and timeline, which only some exchanges have.
    """
    plans = [one.plan for one in documents]
    in_names = {
        way for way in WAYS if all(str(plan.get(way)) in name for plan, name in zip(plans, run_names, strict=True))
    }
    in_names |= {"shuffle", "timeline"} if "exchange" in in_names else set()
    for option in dict.fromkeys(name for plan in plans for name in plan):
        values = [plan.get(option) for plan in plans]
        if option in _OPTIONS_WITHOUT_COLUMN | in_names or any(isinstance(value, (dict, list)) for value in values):
            continue
        if len({*values} - ignored_values) > 1:
            heading, *more = option.capitalize().split("_")
            cells = [
                format_row_count(each) if isinstance(each, int) and not isinstance(each, bool) else format_cell(each)
                for each in values
            ]
            yield Column("\n".join(filter(None, (heading, " ".join(more)))), cells)
