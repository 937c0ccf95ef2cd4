"""What is said of a command that was measured: what ran, the values of its metrics, every launch, and why some failed.

The conclusion of a command stands beside that of merges in `run`; pages have the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import NOT_BY_US, UNVERIFIED, VerificationState
from merge_bench.analysis.compare import Metric, common_metrics, main_metric
from merge_bench.analysis.documents import CommandMetricSummary, MetricSummary, RunDocument, command_metric_summaries
from merge_bench.records import ONE_HOST, TWO_HOSTS
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.recorded_plan import CommandPlan, RecordedPlan
from merge_bench.report import run_sections as sections
from merge_bench.units import count_with_noun, format_limit
from merge_bench.view.content import Column, PageBuilder, columns_from_rows
from merge_bench.view.plot.command import metric_bar_chart, metric_by_launch_chart
from merge_bench.view.plot.merge import LabelledRun
from merge_bench.view.text import NULL, DisplayUnit, format_cell
from merge_bench.view.titles import join_names_in_words, shell_command_text

_PLACEMENTS = {ONE_HOST: "same host", TWO_HOSTS: "between hosts"}


@dataclass(frozen=True)
class CommandRun:
    """A run of a command with its document and its name in tables and charts.

    `look`: the number of its colour and marker in charts; `part`: the letter of its campaign, empty for the only one.
    """

    name: str
    look: int
    run: Run
    document: RunDocument
    part: str = ""

    @property
    def failed_launch_count(self) -> int:
        return sum(launch.failed for launch in self.run.launches)

    @property
    def as_labelled_run(self) -> LabelledRun:
        """The run as the functions that make charts take it."""
        return LabelledRun(self.name, self.look, self.run, self.part)


def metric_median_text(metric_summary: CommandMetricSummary) -> str:
    """The name and the median of a metric with its unit: ``busbw 12.37 GB/s``."""
    unit = DisplayUnit.for_recorded_unit(metric_summary.unit)
    return f"{metric_summary.name} {unit.format_value(metric_summary.spread.median, with_unit=True)}"


def describe_command(runs: Sequence[CommandRun]) -> str:
    """A sentence with the command that ran, its configs, its number of launches, and its hosts."""
    command = ", ".join(dict.fromkeys(shell_command_text(each.run.plan.command or CommandPlan()) for each in runs))
    configs = list(dict.fromkeys(each.run.config.name for each in runs))
    planned = max((each.document.measured.planned_launches for each in runs), default=0)
    hosts = list(dict.fromkeys(host for each in runs for host in each.document.plan["hosts"]))
    names = f"config {configs[0]}" if len(configs) == 1 else f"configs {join_names_in_words(configs)}"
    launches = count_with_noun(planned, "launch") + (" of each" if len(runs) > 1 else "")
    return f"{command}; {names}; {launches}" + (f" on {join_names_in_words(hosts)}" if hosts else "")


def write_command_summary(page: PageBuilder, runs: Sequence[CommandRun]) -> None:
    """Put on a page which command ran, how many launches passed their checks, and the values of all metrics."""
    page.add_paragraph(describe_command(runs))
    for text, style in launch_outcome_sentences(runs):
        page.add_paragraph(text, style)
    if not any(each.document.measured.launches for each in runs):
        return
    if len(runs) == 1:
        write_metric_summaries_table(page, runs[0].document)
    else:
        write_command_runs_table(page, runs)
    page.add_lazy_chart(
        lambda: metric_by_launch_chart([each.as_labelled_run for each in runs], main_metric(runs[0].run))
    )


def launch_outcome_sentences(runs: Sequence[CommandRun]) -> Iterable[tuple[str, str]]:
    """Yield sentences, each with its style, on how many launches passed which checks; runs that agree share one."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        sentences.setdefault(_launch_outcome_sentence(run), []).append(run.name)
    for (text, style), names in sentences.items():
        yield (f"{join_names_in_words(names)}: " if len(sentences) > 1 else "") + text, style


def _launch_outcome_sentence(run: CommandRun) -> tuple[str, str]:
    """A sentence on how many launches of a run passed which checks, and its style."""
    measured, proof = run.document.measured, run.document.verification
    if proof.state == VerificationState.WRONG.value:
        return f"WRONG RESULT: {proof.message or 'a check found the result wrong'}", "bold red"
    if proof.state == VerificationState.IMPORTED.value:
        return f"{UNVERIFIED}: {NOT_BY_US}", "bold yellow"
    planned, failed = measured.planned_launches, run.failed_launch_count
    counts = f"{measured.launches:,} of {count_with_noun(planned, 'launch')}"
    if measured.launches == planned:
        counts = "the launch" if planned == 1 else f"all {planned:,} launches"
    lost = f"; {failed:,} failed" if failed else ""
    if not measured.launches:
        return _why_no_figures_text(planned, failed), "bold red" if failed else ""
    if not run.document.verified:
        return f"{UNVERIFIED}: {counts} ended, but a check is missing{lost}", "yellow"
    checks = proof.how or "exit status"
    if failed:
        return f"{counts} passed ({checks}){lost}", "yellow"
    return f"verified: {counts} {'passed' if measured.launches == planned else 'made, all passed'} ({checks})", "green"


def _why_no_figures_text(planned_launches: int, failed_launches: int) -> str:
    """Why a run has no figures: how many of its planned launches failed."""
    if failed_launches >= planned_launches:
        return "the launch failed" if planned_launches == 1 else f"all {planned_launches:,} launches failed"
    return (
        f"no launch passed; {failed_launches:,} of {planned_launches:,} failed"
        if failed_launches
        else "no launch has ended yet"
    )


def write_metric_summaries_table(page: PageBuilder, document: RunDocument) -> None:
    """Put a table on a page: a row for each metric of one run, with its median, interval and quartiles."""
    cells = []
    for figure in command_metric_summaries(document):
        spread, unit = figure.spread, DisplayUnit.for_recorded_unit(figure.unit)
        ends = [_interval_text(unit, each) for each in (spread.ci95, spread.quartiles, (spread.min, spread.max))]
        cells.append((unit.metric_heading(figure.name), unit.format_value(spread.median), *ends))
    headings = ("Metric", "Median", "95 % interval", "Quartiles", "Min–max")
    page.add_table(*columns_from_rows(headings, cells, [0]), row_mark=unverified_mark_of_run(document))


def unverified_mark_of_run(document: RunDocument) -> str | None:
    """``UNVERIFIED`` or ``WRONG RESULT``, for every figure of a run; None if it is verified or has no figures."""
    return VerificationState(document.verification.state).unverified_mark if document.measured.launches else None


def _interval_text(unit: DisplayUnit, interval: tuple[float | None, float | None] | None) -> str:
    if interval is None or None in interval:
        return NULL
    return "–".join(map(unit.format_value, interval))


def write_command_runs_table(page: PageBuilder, runs: Sequence[CommandRun]) -> None:
    """Put a table on a page: a row for each run, the median and interval of each metric, and its launches."""
    verified = all(each.document.verified for each in runs)
    page.add_heading("Medians over launches")
    values = [_metric_columns(runs, metric) for metric in common_metrics(each.run for each in runs)]
    lost = [str(each.failed_launch_count) for each in runs] if any(each.failed_launch_count for each in runs) else []
    marks = [
        unverified_mark_of_run(each.document) or ("verified" if each.document.verified else "no figures")
        for each in runs
    ]
    counts = (
        Column("Launches", [str(each.document.measured.launches) for each in runs]),
        Column("Failed", lost),
        Column("Result", [] if verified else marks, text=True),
    )
    page.add_wide_table([Column("Config", [each.name for each in runs], text=True)], *values, counts)


def _metric_columns(runs: Sequence[CommandRun], metric: Metric) -> list[Column]:
    """The columns of a metric: its median, and its interval if any run has one."""
    unit = DisplayUnit.for_recorded_unit(metric.unit)
    spreads = [_find_metric_summary(each.document, metric.name) for each in runs]
    medians = [unit.format_value(each.median if each else None) for each in spreads]
    ends = [_interval_text(unit, each.ci95 if each else None) for each in spreads]
    known_ends = ends if set(ends) != {NULL} else []
    return [Column(unit.metric_heading(metric.name, "\n"), medians), Column("95 %\ninterval", known_ends)]


def _find_metric_summary(document: RunDocument, metric_name: str) -> MetricSummary | None:
    return next((each.spread for each in command_metric_summaries(document) if each.name == metric_name), None)


def write_command_details(page: PageBuilder, run: CommandRun) -> None:
    """Put every table of one run of a command on a page."""
    document, command = run.document, run.run.plan.command or CommandPlan()
    _write_command_header(page, document, command)
    launches = aggregate.complete_launches(run.run)
    if launches:
        page.add_heading("Values of each metric, over launches")
        write_metric_summaries_table(page, document)
        sections.write_interval_note(page, document)
    (_write_iterations_table if run.run.is_imported else _write_launches_table)(page, run.run)
    _write_lanes(page, document)
    sections.write_selected_protocols(page, document.protocols)
    page.add_heading("Verification")
    for text, style in launch_outcome_sentences([run]):
        page.add_paragraph(text, style)
    page.add_collected_footnotes()


def _write_command_header(page: PageBuilder, document: RunDocument, command: CommandPlan) -> None:
    """Put the command, its hosts, launches, checks, metrics and config on a page, as names with values."""
    plan, config, measured = RecordedPlan.from_options(document.plan), document.config, document.measured
    rows = [("Command", (document.imported and document.imported.command) or command.shell_line)]
    rows += [("Hosts", ", ".join(hosts))] if (hosts := document.plan["hosts"]) else []
    if (source := document.imported) is not None:
        rows += [("Imported from", source.file), ("Iterations", f"{measured.iterations:,}")]
    else:
        rows += [("Launches", f"{measured.launches:,} of {measured.planned_launches:,} complete")]
        rows += [("Checks", "; ".join([f"exit status {command.expect_status}", *command.checks]))]
    rows += [("Timeout", format_limit(command.timeout))] if command.timeout is not None else []
    rows += [("Required transports", ", ".join(required))] if (required := plan.require_transport) else []
    rows += [
        (
            f"Metric {each.name}",
            "; ".join(filter(None, (_better_direction_text(each.better), each.source, _picked_match_text(each.pick)))),
        )
        for each in command.metrics
        if each.source
    ]
    rows += [("Config", config.name + (f" ({config.path})" if config.path else ""))]
    page.add_heading(f"merge_bench · {document.run_id}")
    page.add_named_values(*rows)
    for name, value in config.variables.items():
        page.add_paragraph(f"{name}={value}", indent=2)


def _better_direction_text(better: str) -> str:
    return f"{better} is better"


def _picked_match_text(pick: str) -> str:
    """Which of several matches of a metric counts, as text; empty for the last match, the default."""
    return "" if pick == "last" else f"{pick} of all matches"


def _write_launches_table(page: PageBuilder, run: Run) -> None:
    """Put a table of all launches of a run on a page: the value of each metric, and how each launch ended."""
    if not run.launches:
        return
    metrics = common_metrics([run])
    page.add_heading("Launches")
    columns = [Column("Launch", [str(launch.index) for launch in run.launches])]
    columns += [Column("Block", [format_cell(launch.block_index) for launch in run.launches])]
    for metric in metrics:
        unit = DisplayUnit.for_recorded_unit(metric.unit)
        values = [unit.format_value(metric.launch_value(launch)) for launch in run.launches]
        columns.append(Column(unit.metric_heading(metric.name, "\n"), values))
    columns.append(Column("Ended", [launch_outcome_text(launch) for launch in run.launches], text=True))
    page.add_table(*columns)


def _write_iterations_table(page: PageBuilder, run: Run) -> None:
    """Put a table of the iterations of an imported run on a page: the value of each metric in each iteration."""
    iterations = [(launch, iteration) for launch in run.launches for iteration in launch.timed_iterations]
    page.add_heading("Iterations")
    columns = [Column("Iteration", [str(iteration.index) for _, iteration in iterations])]
    for metric in common_metrics([run]):
        unit = DisplayUnit.for_recorded_unit(metric.unit)
        values = [unit.format_value(metric.value(launch, iteration)) for launch, iteration in iterations]
        columns.append(Column(unit.metric_heading(metric.name, "\n"), values))
    page.add_table(*columns)


def _write_lanes(page: PageBuilder, document: RunDocument) -> None:
    """Put the configured and the selected transports of a command's processes on a page, if any were logged."""
    if not document.lanes:
        return
    sections.write_configured_transports(page, document.requested_transports)
    for lane in document.lanes:
        about = [_PLACEMENTS.get(lane.placement, lane.placement)] if lane.placement else []
        if not isinstance(lane.processes, msgspec.UnsetType):
            about.append(f"in the UCX logs of {count_with_noun(lane.processes, 'process')}")
        page.add_paragraph(f"selected: {', '.join(lane.transports)}" + (f" ({', '.join(about)})" if about else ""))


def launch_outcome_text(launch: Launch) -> str:
    """How a launch ended, in a few words: ``passed``, or the code of its failure."""
    if launch.complete:
        return "passed"
    return next((failure.code for failure in launch.failures), "not ended" if launch.end is None else "failed")


def write_command_charts(page: PageBuilder, runs: Sequence[CommandRun], command_title: str = "") -> None:
    """Put charts of every metric on a page: the medians of all runs, and each launch in their order.

    `command_title`: named in the titles of the charts, empty unless there are charts of several commands.
    """
    labelled = [each.as_labelled_run for each in runs]
    for metric in common_metrics(each.run for each in runs):
        if len(runs) > 1:
            page.add_chart(metric_bar_chart(labelled, metric, command_title))
        page.add_chart(metric_by_launch_chart(labelled, metric, command_title))


def command_headline(document: RunDocument) -> str:
    """The medians of a run's metrics as a text: ``busbw 12.37 GB/s, wall 1,234 ms``; empty without values."""
    return ", ".join(
        metric_median_text(each) for each in command_metric_summaries(document) if each.spread.median is not None
    )


def command_runs_best_first(campaign: Campaign) -> list[tuple[str, Run]]:
    """The measured runs of a command with their labels: the best in the main metric first, runs with failures last."""
    measured = [
        each for each in zip(campaign.run_labels, campaign.runs, strict=True) if aggregate.complete_launches(each[1])
    ]

    def sort_key(named_run: tuple[str, Run]) -> tuple[bool, float]:
        run, metric = named_run[1], main_metric(named_run[1])
        value = aggregate.run_median(aggregate.complete_launches(run), metric.value)
        least_first = math.inf if value is None else -value if metric.higher_is_better else value
        return any(launch.failed for launch in run.launches), least_first

    return sorted(measured, key=sort_key)


def make_command_runs(
    campaign: Campaign, documents: Sequence[RunDocument], style_by_label: Mapping[str, int]
) -> list[CommandRun]:
    """The runs of a campaign with their documents; `style_by_label`: the number of each run's look by its label."""
    labelled = zip(campaign.run_labels, campaign.runs, documents, strict=True)
    return [CommandRun(label, style_by_label.get(label, 0), run, document) for label, run, document in labelled]
