"""What is said of a command that was measured: what ran, the values of its metrics, every launch, and why some failed.

The conclusion of a command stands beside that of merges in `run`; pages have the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import NOT_BY_US, UNVERIFIED, VerificationState
from merge_bench.analysis.compare import Metric, main_metric, metrics_of
from merge_bench.analysis.documents import CommandFigure, RunDocument, Spread, command_figures
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.recorded_plan import CommandPlan, RecordedPlan
from merge_bench.report import run_sections as sections
from merge_bench.units import format_duration, plural
from merge_bench.view.content import Column, Page, columns_from_rows
from merge_bench.view.plot.command import launches_chart, metric_chart
from merge_bench.view.plot.merge import LabelledRun
from merge_bench.view.text import NULL, ShownUnit, format_cell
from merge_bench.view.titles import command_text, join_in_words


@dataclass(frozen=True)
class CommandRun:
    """A run of a command with its document and its name in tables and charts.

    `look`: the number of its look there; `part`: its campaign's letter, empty if there is only one.
    """

    name: str
    look: int
    run: Run
    document: RunDocument
    part: str = ""

    @property
    def failed_launches(self) -> int:
        return sum(launch.failed for launch in self.run.launches)

    @property
    def labelled(self) -> LabelledRun:
        """The run as charts have it."""
        return LabelledRun(self.name, self.look, self.run, self.part)


def figure_text(figure: CommandFigure) -> str:
    """The name and the median of a metric with its unit: ``busbw 12.37 GB/s``."""
    return f"{figure.name} {ShownUnit.of(figure.unit).format_value(figure.spread.median, with_unit=True)}"


def describe_command(runs: Sequence[CommandRun]) -> str:
    """A sentence on what ran, with which configs, how often and where."""
    command = ", ".join(dict.fromkeys(command_text(each.run.plan.command or CommandPlan()) for each in runs))
    configs = list(dict.fromkeys(each.run.config.name for each in runs))
    planned = max((each.document.measured.planned_launches for each in runs), default=0)
    hosts = list(dict.fromkeys(host for each in runs for host in each.document.plan["hosts"]))
    names = f"config {configs[0]}" if len(configs) == 1 else f"configs {join_in_words(configs)}"
    launches = plural(planned, "launch") + (" of each" if len(runs) > 1 else "")
    return f"{command}; {names}; {launches}" + (f" on {join_in_words(hosts)}" if hosts else "")


def write_command_figures(page: Page, runs: Sequence[CommandRun]) -> None:
    """Put what ran, whether it went well, and the values of all metrics on a page."""
    page.add_paragraph(describe_command(runs))
    for text, style in outcome_sentences(runs):
        page.add_paragraph(text, style)
    if not any(each.document.measured.launches for each in runs):
        return
    if len(runs) == 1:
        write_metric_spreads(page, runs[0].document)
    else:
        write_runs_of_command(page, runs)
    page.add_drawing(lambda: launches_chart([each.labelled for each in runs], main_metric(runs[0].run)))


def outcome_sentences(runs: Sequence[CommandRun]) -> Iterable[tuple[str, str]]:
    """Sentences, with their styles, on how many launches passed which checks, the same for all configs as one."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        sentences.setdefault(_outcome(run), []).append(run.name)
    for (text, style), names in sentences.items():
        yield (f"{join_in_words(names)}: " if len(sentences) > 1 else "") + text, style


def _outcome(run: CommandRun) -> tuple[str, str]:
    """A sentence on how many launches of a run passed which checks, with its style."""
    measured, proof = run.document.measured, run.document.verification
    if proof.state == VerificationState.WRONG.value:
        return f"WRONG RESULT: {proof.message or 'a check found the result wrong'}", "bold red"
    if proof.state == VerificationState.IMPORTED.value:
        return f"{UNVERIFIED}: {NOT_BY_US}", "bold yellow"
    planned, failed = measured.planned_launches, run.failed_launches
    counts = f"{measured.launches:,} of {plural(planned, 'launch')}"
    if measured.launches == planned:
        counts = "the launch" if planned == 1 else f"all {planned:,} launches"
    lost = f"; {failed:,} failed" if failed else ""
    if not measured.launches:
        return _no_launch_text(planned, failed), "bold red" if failed else ""
    if not run.document.verified:
        return f"{UNVERIFIED}: {counts} ended, but a check is missing{lost}", "yellow"
    checks = proof.how or "exit status"
    if failed:
        return f"{counts} passed ({checks}){lost}", "yellow"
    return f"verified: {counts} {'passed' if measured.launches == planned else 'made, all passed'} ({checks})", "green"


def _no_launch_text(planned: int, failed: int) -> str:
    """Why a run of so many planned launches has no figures."""
    if failed >= planned:
        return "the launch failed" if planned == 1 else f"all {planned:,} launches failed"
    return f"no launch passed; {failed:,} of {planned:,} failed" if failed else "no launch has ended yet"


def write_metric_spreads(page: Page, document: RunDocument) -> None:
    """Put a table on a page: a row for each metric of one run, with its median, interval and quartiles."""
    cells = []
    for figure in command_figures(document):
        spread, unit = figure.spread, ShownUnit.of(figure.unit)
        ends = [_ends_text(unit, each) for each in (spread.ci95, spread.quartiles, (spread.min, spread.max))]
        cells.append((unit.heading(figure.name), unit.format_value(spread.median), *ends))
    headings = ("Metric", "Median", "95 % interval", "Quartiles", "Min–max")
    page.add_table(*columns_from_rows(headings, cells, [0]), mark=figures_mark(document))


def figures_mark(document: RunDocument) -> str | None:
    """The word that stands beside every figure of a run; None if its checks were made and passed, or it has none."""
    return VerificationState(document.verification.state).figure_mark if document.measured.launches else None


def _ends_text(unit: ShownUnit, ends: tuple[float | None, float | None] | None) -> str:
    if ends is None or None in ends:
        return NULL
    return "–".join(map(unit.format_value, ends))


def write_runs_of_command(page: Page, runs: Sequence[CommandRun]) -> None:
    """Put a table on a page: a row for each run, the median and interval of each metric, and its launches."""
    verified = all(each.document.verified for each in runs)
    page.add_heading("Medians over launches")
    values = [_metric_columns(runs, metric) for metric in metrics_of(each.run for each in runs)]
    lost = [str(each.failed_launches) for each in runs] if any(each.failed_launches for each in runs) else []
    marks = [figures_mark(each.document) or ("verified" if each.document.verified else "no figures") for each in runs]
    counts = (
        Column("Launches", [str(each.document.measured.launches) for each in runs]),
        Column("Failed", lost),
        Column("Result", [] if verified else marks, text=True),
    )
    page.add_wide_table([Column("Config", [each.name for each in runs], text=True)], *values, counts)


def _metric_columns(runs: Sequence[CommandRun], metric: Metric) -> list[Column]:
    """The columns of a metric: its median, and its interval if any run has one."""
    unit = ShownUnit.of(metric.unit)
    spreads = [_spread_of(each.document, metric.name) for each in runs]
    medians = [unit.format_value(each.median if each else None) for each in spreads]
    ends = [_ends_text(unit, each.ci95 if each else None) for each in spreads]
    known_ends = ends if set(ends) != {NULL} else []
    return [Column(unit.heading(metric.name, "\n"), medians), Column("95 %\ninterval", known_ends)]


def _spread_of(document: RunDocument, metric: str) -> Spread | None:
    return next((each.spread for each in command_figures(document) if each.name == metric), None)


def write_command_details(page: Page, run: CommandRun) -> None:
    """Put every table of one run of a command on a page."""
    document, command = run.document, run.run.plan.command or CommandPlan()
    _write_header(page, document, command)
    launches = aggregate.complete_launches(run.run)
    if launches:
        page.add_heading("Values of each metric, over launches")
        write_metric_spreads(page, document)
        sections.write_interval_note(page, document)
    (_write_iterations if run.run.is_imported else _write_launches)(page, run.run)
    sections.write_selected_transports(page, document.lanes, document.requested_transports)
    sections.write_protocols(page, document.protocols)
    page.add_heading("Verification")
    for text, style in outcome_sentences([run]):
        page.add_paragraph(text, style)
    page.add_kept_notes()


def _write_header(page: Page, document: RunDocument, command: CommandPlan) -> None:
    """Put names and values of a command, of how it was checked and of its config on a page."""
    plan, config, measured = RecordedPlan.from_options(document.plan), document.config, document.measured
    rows = [("Command", (document.imported and document.imported.command) or command.shell_line)]
    rows += [("Hosts", ", ".join(hosts))] if (hosts := document.plan["hosts"]) else []
    if (source := document.imported) is not None:
        rows += [("Imported from", source.file), ("Iterations", f"{measured.iterations:,}")]
    else:
        rows += [("Launches", f"{measured.launches:,} of {measured.planned_launches:,} complete")]
        rows += [("Checks", "; ".join([f"exit status {command.expect_status}", *command.checks]))]
    rows += [("Timeout", format_duration(command.timeout))] if command.timeout is not None else []
    rows += [("Required transports", ", ".join(required))] if (required := plan.require_transport) else []
    rows += [
        (f"Metric {each.name}", "; ".join(filter(None, (_direction(each.better), each.source, _pick_text(each.pick)))))
        for each in command.metrics
        if each.source
    ]
    rows += [("Config", config.name + (f" ({config.path})" if config.path else ""))]
    page.add_heading(f"merge_bench · {document.run_id}")
    page.add_named_values(*rows)
    for name, value in config.variables.items():
        page.add_paragraph(f"{name}={value}", indent=2)


def _direction(better: str) -> str:
    return f"{better} is better"


def _pick_text(pick: str) -> str:
    """Which of several matches counts; empty for the last, which is the default."""
    return "" if pick == "last" else f"{pick} of all matches"


def _write_launches(page: Page, run: Run) -> None:
    """Put a table of all launches of a run on a page, with the values that they have, and how they ended."""
    if not run.launches:
        return
    metrics = metrics_of([run])
    page.add_heading("Launches")
    columns = [Column("Launch", [str(launch.index) for launch in run.launches])]
    columns += [Column("Block", [format_cell(launch.block_index) for launch in run.launches])]
    for metric in metrics:
        unit = ShownUnit.of(metric.unit)
        values = [unit.format_value(metric.launch_value(launch)) for launch in run.launches]
        columns.append(Column(unit.heading(metric.name, "\n"), values))
    columns.append(Column("Ended", [launch_end_text(launch) for launch in run.launches], text=True))
    page.add_table(*columns)


def _write_iterations(page: Page, run: Run) -> None:
    """Put a table of the iterations of an imported run on a page, with the values that each has."""
    iterations = [(launch, iteration) for launch in run.launches for iteration in launch.timed_iterations]
    page.add_heading("Iterations")
    columns = [Column("Iteration", [str(iteration.index) for _, iteration in iterations])]
    for metric in metrics_of([run]):
        unit = ShownUnit.of(metric.unit)
        values = [unit.format_value(metric.value(launch, iteration)) for launch, iteration in iterations]
        columns.append(Column(unit.heading(metric.name, "\n"), values))
    page.add_table(*columns)


def launch_end_text(launch: Launch) -> str:
    """How a launch ended, in a few words: ``passed``, or the code of its failure."""
    if launch.complete:
        return "passed"
    return next((failure.code for failure in launch.failures), "not ended" if launch.end is None else "failed")


def write_command_charts(page: Page, runs: Sequence[CommandRun], command: str = "") -> None:
    """Put charts of every metric on a page: the medians of all runs, and each launch in their order.

    `command`: for their titles, where there are charts of several commands.
    """
    labelled = [each.labelled for each in runs]
    for metric in metrics_of(each.run for each in runs):
        if len(runs) > 1:
            page.add_chart(metric_chart(labelled, metric, command))
        page.add_chart(launches_chart(labelled, metric, command))


def command_headline(document: RunDocument) -> str:
    """The values of one run in a sentence: ``busbw 12.37 GB/s, wall 1,234 ms``; empty without any."""
    return ", ".join(figure_text(each) for each in command_figures(document) if each.spread.median is not None)


def runs_of_command_by_rank(campaign: Campaign) -> list[tuple[str, Run]]:
    """The measured runs of a command with their labels, the best in the main metric first; those with failures last."""
    measured = [
        each for each in zip(campaign.run_labels, campaign.runs, strict=True) if aggregate.complete_launches(each[1])
    ]

    def rank(named_run: tuple[str, Run]) -> tuple[bool, float]:
        run, metric = named_run[1], main_metric(named_run[1])
        value = aggregate.run_median(aggregate.complete_launches(run), metric.value)
        least_first = math.inf if value is None else -value if metric.higher_is_better else value
        return any(launch.failed for launch in run.launches), least_first

    return sorted(measured, key=rank)


def command_runs(campaign: Campaign, documents: Sequence[RunDocument], looks: Mapping[str, int]) -> list[CommandRun]:
    """The runs of a campaign with their documents; `looks`: the number of each run's look by its label."""
    labelled = zip(campaign.run_labels, campaign.runs, documents, strict=True)
    return [CommandRun(label, looks.get(label, 0), run, document) for label, run, document in labelled]
