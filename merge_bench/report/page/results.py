"""The tables and charts of results: one metric a table, problems and configs, published results beside them.

Then, beside `probe all-to-all`, what of the network's bandwidth an exchange gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import verification_state
from merge_bench.analysis.bottleneck import ALL_TO_ALL, compare_exchange_with_probes
from merge_bench.analysis.comparable_runs import have_same_problem, problem_definition_texts, result_letter, run_labels
from merge_bench.analysis.compare import common_metrics, compare_campaigns, main_metric
from merge_bench.analysis.documents import RunDocument
from merge_bench.analysis.published import PublishedMergeResult
from merge_bench.analysis.summary import summarize_run
from merge_bench.errors import UsageError
from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
from merge_bench.probe.view.charts import make_panels
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import CommandPlan
from merge_bench.report.command_sections import CommandRun, write_command_charts
from merge_bench.tune.result import decided_steps
from merge_bench.tune.view import speed_up_charts_by_phase
from merge_bench.units import GIB
from merge_bench.view.content import Column, PageBuilder, columns_from_rows, group_by_key
from merge_bench.view.plot import Bar, Chart, merge
from merge_bench.view.plot.command import metric_by_launch_chart
from merge_bench.view.plot.merge import BANDWIDTH, THROUGHPUT, LabelledRun, LaunchMetric
from merge_bench.view.text import NULL, format_gib, format_ms, format_number, format_with_binary_prefix
from merge_bench.view.titles import (
    add_result_source_lines,
    is_tuning_campaign,
    merged_tables_text,
    plan_option_text,
    plan_workload_text,
    result_source_lines,
    shell_command_text,
)

_USUAL_WORKLOAD = ("workload name", "synthetic")
_LAUNCHES = "Launches"
_MORE_HEADINGS = ("95 %\ninterval", _LAUNCHES)
_MOST_COLUMNS = 6
"""Configs that get columns side by side; if there are more, each gets a row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportedRun(LabelledRun):
    """A run of a campaign in a report, with its document and its name in every table and drawing.

    `name`: the name that `compare` uses, with the campaign's letter if there are several campaigns; `label`: that name,
    with a mark if the run is not verified.
    """

    campaign: Campaign
    document: RunDocument
    name: str

    @property
    def as_command_run(self) -> CommandRun:
        """The run as the functions that write tables and charts of commands take it."""
        return CommandRun(self.label, self.style_index, self.run, self.document, self.part)

    def launch_values(self, metric: LaunchMetric) -> list[float]:
        return aggregate.launch_medians(aggregate.complete_launches(self.run), metric.value)


def make_reported_runs(campaigns: Sequence[Campaign]) -> list[ReportedRun]:
    """Return every run of `campaigns` with its document, name and look; runs of the same name have the same look.

    Runs that a tuning planned and never launched are left out.
    """
    reported_runs: list[ReportedRun] = []
    style_by_label: dict[str, int] = {}
    for at, (campaign, names) in enumerate(zip(campaigns, run_labels(campaigns), strict=True)):
        short = result_letter(at, len(campaigns))
        for config in names:
            style_by_label.setdefault(config, len(style_by_label))
        for index, (name, run) in enumerate(zip(names, campaign.runs, strict=True)):
            if is_tuning_campaign(campaign) and not run.launches:
                continue
            run_id = campaign.head.campaign_id + ("" if len(campaign.runs) == 1 else f"/{index}")
            mark = verification_state(run, aggregate.complete_launches(run)).unverified_mark
            label = f"{name} ({mark})" if mark else name
            document = summarize_run(campaign, run, run_id)
            reported_runs.append(
                ReportedRun(
                    label, style_by_label[name], run, short or "", campaign=campaign, document=document, name=name
                )
            )
    return reported_runs


def group_runs_by_problem(reported_runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Group runs by problem, the tables that they merge; returns them by a title that tells problems apart."""
    groups: list[list[ReportedRun]] = []
    for source in reported_runs:
        same = next((group for group in groups if have_same_problem(group[0].run, source.run)), None)
        if same is None:
            groups.append(same := [])
        same.append(source)
    problems = [problem_definition_texts(group[0].run) for group in groups]
    names = dict.fromkeys(name for values in problems for name in values)
    values_of = {name: {values[name] for values in problems if name in values} for name in names}
    varying = [name for name in names if name == "rows_per_chunk" or len(values_of[name]) > 1]
    files = [merged_tables_text(group[0].run.plan) for group in groups]
    short = [_short_problem_title(values, varying, tables) for values, tables in zip(problems, files, strict=True)]
    titled: dict[str, list[ReportedRun]] = {}
    for group, values, title in zip(groups, problems, short, strict=True):
        if short.count(title) > 1:
            title = ", ".join(_option_value_text(name, values[name]) for name in varying if name in values)
        titled.setdefault(title or "the tables", []).extend(group)
    return titled


def group_runs_by_command(reported_runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Group runs by their command, and equal commands by their metrics and checks; returns the runs by a title."""
    titled: dict[str, list[ReportedRun]] = {}
    for problem, alike in group_runs_by_problem(reported_runs).items():
        command = shell_command_text(alike[0].run.plan.command or CommandPlan())
        titled.setdefault(f"{command} ({problem})" if command in titled else command, []).extend(alike)
    return titled


def _short_problem_title(problem_texts: Mapping[str, str], varying_names: Sequence[str], table_names: str) -> str:
    """The title of a problem in few words: `table_names`, and its values of the properties in `varying_names`."""
    shown = [
        name for name in varying_names if name in problem_texts and not (table_names and name.startswith("workload "))
    ]
    parts = [
        _option_value_text(name, problem_texts[name])
        for name in shown
        if (name, problem_texts[name]) != _USUAL_WORKLOAD
    ]
    return ", ".join(filter(None, (table_names, *parts)))


def write_merge_results(
    page: PageBuilder,
    reported_runs: Sequence[ReportedRun],
    published: Sequence[PublishedMergeResult],
    campaigns: Sequence[Campaign],
) -> None:
    """Put tables and bar charts of throughput and bandwidth, and charts of every iteration, on a page.

    A single run has no tables, since the conclusion has its figures. `campaigns`: all campaigns of the report.
    """
    problems = group_runs_by_problem(reported_runs)
    beside = _published_by_problem(published)
    for metric in (THROUGHPUT, BANDWIDTH) if len(reported_runs) > 1 or published else ():
        if not any(source.launch_values(metric) for source in reported_runs):
            continue
        page.add_heading(f"{metric.title} by problem and config (GiB/s, medians over launches)")
        _write_metric_table(page, metric, problems, beside)
        _note_missing_intervals(page, reported_runs)
        _note_published_sources(page, [each for each in published if each.metric == metric.title.lower()])
        page.add_chart(
            merge.metric_by_problem_chart(metric, problems, published_bars(published, metric, reported_runs))
        )
    source_before = page.source
    for name, runs in problems.items():
        heading = f"Every iteration: {name}" if len(problems) > 1 else "Every iteration"
        shown = [each for each in campaigns if any(each is source.campaign for source in runs)]
        page.source = result_source_lines(shown, campaigns)
        page.add_chart(merge.iteration_throughput_chart(runs, name if len(problems) > 1 else ""), heading)
    page.source = source_before


def write_command_results(
    page: PageBuilder, reported_runs: Sequence[ReportedRun], campaigns: Sequence[Campaign]
) -> None:
    """Put charts of every metric of commands on a page; `campaigns`: all campaigns of the report."""
    source_before, commands = page.source, group_runs_by_command(reported_runs)
    for command, runs in commands.items():
        shown = [each for each in campaigns if any(each is source.campaign for source in runs)]
        page.source = result_source_lines(shown, campaigns)
        write_command_charts(page, [each.as_command_run for each in runs], command if len(commands) > 1 else "")
    page.source = source_before


def _write_metric_table(
    page: PageBuilder,
    metric: LaunchMetric,
    runs_by_problem: Mapping[str, Sequence[ReportedRun]],
    published_by_problem: Mapping[str, Sequence[PublishedMergeResult]],
) -> None:
    """Put a table of `metric` on a page: rows are problems and columns configs, or the reverse for many configs."""
    names = list(dict.fromkeys([*runs_by_problem, *published_by_problem]))
    labels = list(dict.fromkeys(source.label for found in runs_by_problem.values() for source in found))
    key = metric.title.lower()
    configs = list(
        dict.fromkeys(each.config for found in published_by_problem.values() for each in found if each.metric == key)
    )

    def cells_of_run(problem: str, run_label: str) -> tuple[str, str, str]:
        return _median_interval_count_cells(
            next((each for each in runs_by_problem.get(problem, ()) if each.label == run_label), None), metric
        )

    def published_cell(problem: str, config_name: str) -> str:
        values = (
            each for each in published_by_problem.get(problem, ()) if (each.config, each.metric) == (config_name, key)
        )
        return next((format_gib(each.value) for each in values), "")

    if len(labels) <= _MOST_COLUMNS:
        columns = [Column("Problem", names, text=True)]
        for label in labels:
            columns += columns_from_rows((label, *_MORE_HEADINGS), [cells_of_run(name, label) for name in names])
        columns += [
            Column(f"{config}\n(published)", [published_cell(name, config) for name in names]) for config in configs
        ]
    else:
        columns = [Column("Config", [*labels, *(f"{config} (published)" for config in configs)], text=True)]
        for name in names:
            rows = [cells_of_run(name, label) for label in labels]
            columns += columns_from_rows(
                (name, *_MORE_HEADINGS), [*rows, *((published_cell(name, each), "", "") for each in configs)]
            )
    counts = {count for column in columns if column.heading == _LAUNCHES for count in column.cells if count}
    if len(counts) == 1:
        columns = [column for column in columns if column.heading != _LAUNCHES]
    page.add_table(*columns)
    if len(counts) == 1:
        page.add_paragraph(f"Launches per config: {counts.pop()}.", "dim")


def _median_interval_count_cells(reported_run: ReportedRun | None, metric: LaunchMetric) -> tuple[str, str, str]:
    """The cells of a run in a table of `metric`: the median, its interval, and the number of launches."""
    if reported_run is None:
        return "", "", ""
    spread = reported_run.document.bandwidth_bytes_per_second.spread
    if metric is THROUGHPUT or spread is None:
        spread = reported_run.document.throughput_bytes_per_second
    ends = f"{format_gib(spread.ci95[0])} to {format_gib(spread.ci95[1])}" if spread.ci95 else ""
    launches = 0 if spread.median is None else reported_run.document.measured.launches
    return format_gib(spread.median), ends, str(launches)


def _option_value_text(option_name: str, value: str) -> str:
    return plan_option_text(option_name, int(value) if value.isdecimal() else value)


def _note_missing_intervals(page: PageBuilder, reported_runs: Sequence[ReportedRun]) -> None:
    few = dict.fromkeys(each.name for each in reported_runs if each.document.throughput_bytes_per_second.ci95 is None)
    if few:
        names = ", ".join(few) if len(few) <= _MOST_COLUMNS else f"{len(few)} configs"
        page.add_paragraph(f"No 95 % interval for {names}: it needs at least 6 launches.", "dim")


def _note_published_sources(page: PageBuilder, results: Sequence[PublishedMergeResult]) -> None:
    for source in dict.fromkeys(f"Published: {each.source}; {each.hardware}." for each in results):
        page.add_paragraph(source, "dim")
    for note, noted in group_by_key(results, lambda each: each.note).items():
        if note:
            page.add_paragraph(
                f"{', '.join(f'{each.config} {each.published}' for each in noted)}: {note}.", "dim", indent=2
            )


def published_bars(
    published: Sequence[PublishedMergeResult], metric: LaunchMetric, reported_runs: Sequence[ReportedRun]
) -> dict[str, list[Bar]]:
    """Make bars of published values of `metric`, by the title of the problem with that number of rows."""
    key = metric.title.lower()
    bars: dict[str, list[Bar]] = {}
    for name, results in _published_by_problem(published).items():
        looks, bars[name] = (
            {source.name: source.style_index for source in reported_runs},
            [],
        )  # of measured configs of the same name
        for result in results:
            if result.metric == key and result.value is not None:
                label, look = f"{result.config} (published)", looks.setdefault(result.config, len(looks))
                bars[name].append(Bar(label, look, result.value / GIB, remark=result.source, published=True))
    return bars


def _published_by_problem(published: Sequence[PublishedMergeResult]) -> dict[str, list[PublishedMergeResult]]:
    return group_by_key(published, lambda each: plan_option_text("rows_per_chunk", each.rows_per_chunk))


PARTS_NOTE = (
    "Parts of the exchange phase, on its slowest worker in the median iteration. At all-to-all rate: bytes ÷ what the"
    " network carried in probe all-to-all. Slower transfers: what transfers took beyond that. Waiting: until the last"
    " worker had partitioned. Rest: headers, barriers, room for what arrives."
)
NO_ALL_TO_ALL = (
    "No all-to-all belongs to a merge here: config, hosts, number of workers and message size have to be the same."
    " Measure it with probe all-to-all --chunk ROWS."
)


def write_exchange_comparison(
    page: PageBuilder, reported_runs: Sequence[ReportedRun], probe_campaigns: Sequence[Campaign]
) -> None:
    """Put a section on a page that compares the exchange of merges with `probe all-to-all`, if both were measured."""
    all_to_alls = [campaign for campaign in probe_campaigns if campaign.probe == ALL_TO_ALL]
    if not all_to_alls or not reported_runs:
        return
    page.start_section("Exchange and all-to-all")
    shares = [
        (source, share)
        for source in reported_runs
        if (share := compare_exchange_with_probes(source.run, all_to_alls)) is not None
    ]
    if not shares:
        page.add_paragraph(NO_ALL_TO_ALL)
        return
    headings = ("Run", "Workers", "All-to-all\n(GB/s a worker)", "measured with", "Exchange of\nthe merge (GB/s)")
    rates = []
    for source, share in shares:
        size = format_with_binary_prefix(share.size)
        messages = f"{'the same parcels' if share.parcels else 'equal messages'} ({size})"
        exchange = (
            format_number(share.all_to_all / 1e9),
            messages,
            format_number(share.exchange / 1e9),
            f"{share.share_of_probe_bandwidth:.0%}",
        )
        rates.append((source.label, str(source.run.plan.workers), *exchange))
    page.add_table(*columns_from_rows((*headings, "of all-to-all"), rates, (0, 3)))
    apart = [(source, share) for source, share in shares if share.phase is not None]
    if apart:
        spent = ("Run", "Exchange\nphase (ms)", "at all-to-all\nrate (ms)", "slower\ntransfers (ms)")
        parts = []
        for source, share in apart:
            seconds = (share.phase, share.ideal, share.slower, share.waiting, share.other)
            part = (
                NULL if share.phase_share_of_probe_bandwidth is None else f"{share.phase_share_of_probe_bandwidth:.0%}"
            )
            parts.append((source.label, *map(format_ms, seconds), part))
        page.add_table(*columns_from_rows((*spent, "waiting\n(ms)", "rest (ms)", "of all-to-all"), parts, (0,)))
        page.add_paragraph(PARTS_NOTE, "dim")
    if len(apart) < len(shares):
        page.add_paragraph(
            "With --pipeline on, the exchange overlaps partition and join and has no phase of its own.", "dim"
        )


def charts_of_kind(campaign: Campaign, kind: str) -> Sequence[Chart]:
    """The charts of a campaign of one kind, such as ``throughput``, without empty ones.

    Raises
    ------
    UsageError
        If there is no such kind, or the campaign's configs cannot be compared.
    """
    reported_runs = make_reported_runs([campaign])
    problems = group_runs_by_problem(reported_runs)
    several = len(problems) > 1

    def chart_each_run(make_chart: Callable[[ReportedRun], Chart]) -> list[Chart]:
        """A chart of each run, whose title names the run, and its problem where there are several."""
        names = {source: name for name, found in problems.items() for source in found if several}
        charts = [(source, make_chart(source)) for source in reported_runs]
        titles = [filter(None, (chart.title, source.label, names.get(source))) for source, chart in charts]
        return [replace(chart, title=": ".join(title)) for (_, chart), title in zip(charts, titles, strict=True)]

    style_by_label = {source.name: source.style_index for source in reported_runs}
    kinds: Mapping[str, Callable[[], Sequence[Chart]]] = {
        "throughput": lambda: [merge.metric_by_problem_chart(merge.THROUGHPUT, problems, {})],
        "bandwidth": lambda: [merge.metric_by_problem_chart(merge.BANDWIDTH, problems, {})],
        "speed-up": lambda: [
            merge.speedup_chart(compare_campaigns([campaign]), main_metric(campaign.runs[0]).name, style_by_label)
        ],
        "iterations": lambda: [
            merge.iteration_throughput_chart(runs, name if several else "") for name, runs in problems.items()
        ],
        "workers": lambda: chart_each_run(lambda source: merge.worker_bandwidth_chart(source.run)),
        "phases": lambda: chart_each_run(lambda source: merge.worker_phases_chart(source.run)),
        "timeline": lambda: chart_each_run(lambda source: merge.timeline_chart(campaign, source.run)),
        "pairs": lambda: chart_each_run(lambda source: merge.pair_rates_chart(source.run, source.document.lanes)),
        "tuning": lambda: speed_up_charts_by_phase(decided_steps(campaign), partial(plan_workload_text, campaign)),
        "network": lambda: make_panels(sorted_campaign_rows(campaign)),
    }
    if campaign.command is not None:
        metrics = common_metrics(campaign.runs)
        kinds = {
            "speed-up": kinds["speed-up"],
            "iterations": lambda: [metric_by_launch_chart(reported_runs, metric) for metric in metrics],
        }
    if kind not in kinds:
        raise UsageError(f"there is no plot {kind!r}; choose from {', '.join(kinds)}")
    least = merge.LEAST_MAPPED
    if kind == "pairs" and all((run.plan.workers or least) < least for run in campaign.runs):
        raise UsageError(f"a map of pairs needs at least {least} workers; Result.pairs() has their figures")
    return add_result_source_lines([chart for chart in kinds[kind]() if not chart.is_empty], [campaign])
