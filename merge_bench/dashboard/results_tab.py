"""The Results tab: every campaign in a table; chosen ones are compared, with published results beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import aggregate, diagnostics, published
from merge_bench.analysis.comparable_runs import NotComparable
from merge_bench.analysis.compare import common_metrics, compare_campaigns
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import CachedLastResult
from merge_bench.dashboard.components import make_data_frame
from merge_bench.errors import MergeBenchError, WarningMessage
from merge_bench.records.campaign import Campaign
from merge_bench.records.results_folder import COMMAND, YOURS, ResultEntry
from merge_bench.report.campaign_figures import CampaignCache, CampaignFigures, LoadedCampaign, campaign_status_text
from merge_bench.report.page.results import (
    ReportedRun,
    group_runs_by_command,
    group_runs_by_problem,
    make_reported_runs,
    published_bars,
)
from merge_bench.report.run import main_metric_name
from merge_bench.units import count_with_noun
from merge_bench.view import comparison
from merge_bench.view.content import Column, columns_from_rows
from merge_bench.view.plot import Chart, merge
from merge_bench.view.plot.command import metric_bar_chart, metric_by_launch_chart
from merge_bench.view.text import DisplayUnit, as_html, capitalize, format_gib, shorten_middle
from merge_bench.view.titles import add_result_source_lines, measured_workload_text, utc_time, workload_text

ABSOLUTE, OF_LINK = "GiB/s", "% of the link limit"
METRICS = {metric.title: metric for metric in (merge.THROUGHPUT, merge.BANDWIDTH)}
MOST_CHOSEN = 12
_PAGE_ROWS = 10
MOST_LISTED = 3000
PATIENCE_SECONDS = 5.0
"""After this, a table that has not reported that it is built is replaced by one with the new rows, by default."""
_TABLE_HEIGHT = 480
_WIDTHS = dict.fromkeys(("Kind", "Status"), 92) | dict.fromkeys(("Configs", "Fastest config"), 115)
_WIDTHS |= {"Started (UTC)": 152, "Throughput (GiB/s)": 125, "Bandwidth (GiB/s)": 120, "Folder": 130}
_PROBLEM_PIXELS = 165
"""The width of the column Problem, at least; it takes the room that the others leave."""
NOTHING = ui.empty_state_html("result", "run --chunk 1e6")
HINT = "Click a row to see the figures of its configs, or several rows to compare them; the oldest is the baseline."
_MOST_PROBLEMS = 4


@dataclass(frozen=True)
class ResultsContent:
    """What the Results tab shows of the chosen campaigns.

    `figures`: the table of merges; `of_commands`: a table for each command; `unjudged`: why there is no verdict;
    `doubts`: configs with a warning that they exceeded the limit of the link.
    """

    figures: tuple[Column, ...] = ()
    of_commands: tuple[tuple[Column, ...], ...] = ()
    doubts: tuple[tuple[str, WarningMessage], ...] = ()
    charts: tuple[Chart, ...] = ()
    verdicts: tuple[tuple[str, str], ...] = ()
    unjudged: str = ""
    judged: tuple[Column, ...] = ()
    differences: tuple[tuple[str, tuple[Column, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def campaigns_data_frame(
    entries: Sequence[ResultEntry],
    figures_of_entry: Callable[[ResultEntry], CampaignFigures | None],
    *,
    deleted_ids: Collection[str] = (),
) -> pd.DataFrame:
    """Make a table of campaigns, a row for each of `entries`, in their order.

    `figures_of_entry`: gives the figures of a campaign, if they are known; `deleted_ids`: ids of deleted campaigns.
    """
    all_figures = [figures_of_entry(entry) or CampaignFigures() for entry in entries]
    listed = list(zip(entries, all_figures, strict=True))
    columns: dict[str, list[Any]] = {
        "Started (UTC)": [f"{began:%Y-%m-%d %H:%M:%S}" if (began := utc_time(e.started)) else "" for e in entries],
        "Configs": [shorten_middle(", ".join(entry.configs), 60) for entry in entries],
        "Kind": [entry.kind + f" ({entry.origin})" * (entry.origin != YOURS) for entry in entries],
        "Problem": [_listed_workload_text(entry, each) for entry, each in listed],
        "Throughput (GiB/s)": [each.throughput for each in all_figures],
        "Bandwidth (GiB/s)": [each.bandwidth for each in all_figures],
        "Status": [
            "deleted" if entry.id in deleted_ids else campaign_status_text(entry, each) for entry, each in listed
        ],
        "Main metric": [" ".join(each.main_metric or ()) for each in all_figures],
        "Fastest config": [shorten_middle(each.fastest, 60) for each in all_figures],
        "Folder": [entry.folder.name for entry in entries],
    }
    return make_data_frame(columns, float_columns=("Throughput (GiB/s)", "Bandwidth (GiB/s)"))


def make_results_content(
    loaded_campaigns: Sequence[LoadedCampaign], *, metric: str, axis_unit: str, dataset_names: Sequence[str]
) -> ResultsContent:
    """Make what the Results tab shows of some campaigns.

    `metric`: its name; `axis_unit`: absolute rates or shares of the link limit; `dataset_names`: published results to
    show beside them.
    """
    problems = tuple(one.problem for one in loaded_campaigns if one.problem)
    readable = [one.campaign for one in loaded_campaigns if one.campaign is not None]
    campaigns = [campaign for campaign in readable if campaign.probe is None]
    probes = len(readable) - len(campaigns)
    notes = [f"{count_with_noun(probes, 'network measurement')} selected; see the Network tab."] if probes else []
    if not campaigns:
        return ResultsContent(notes=tuple(notes), problems=problems)
    all_sources = make_reported_runs(campaigns)
    sources = [source for source in all_sources if source.run.plan.command is None]
    commands = group_runs_by_command([source for source in all_sources if source.run.plan.command is not None])
    cells = [cell for name in dataset_names for cell in published.merge_results(name)] if axis_unit == ABSOLUTE else []
    shown_problems = group_runs_by_problem(sources)
    if len(shown_problems) > _MOST_PROBLEMS:
        notes.append(f"Only the first {_MOST_PROBLEMS} of {len(shown_problems)} problems have a chart of iterations.")
    notes += [f"{cell.config} {cell.published}: {cell.note}" for cell in cells if cell.note]
    unlimited = [source.label for source in sources if not source.launch_values(merge.OF_LINK)]
    if axis_unit == OF_LINK and unlimited:
        notes.append(f"No link limit was measured: {', '.join(dict.fromkeys(unlimited))}.")
    doubts = tuple(
        (source.label, caution)
        for source in sources
        for caution in diagnostics.link_limit_exceeded_warnings(aggregate.complete_launches(source.run))
    )
    drawn = (*(_metric_charts(sources, metric, axis_unit, cells) if sources else ()), *_command_charts(commands))
    content = ResultsContent(
        tuple(_merge_median_columns(sources)) if sources else (),
        tuple(tuple(_command_median_columns(command, runs)) for command, runs in commands.items()),
        doubts,
        drawn,
        notes=tuple(notes),
        problems=problems,
    )
    if len(all_sources) > 1:
        compared = main_metric_name(campaigns) if commands else metric.lower()
        content = _add_comparison(
            content, campaigns, {source.name: source.style_index for source in all_sources}, compared
        )
    return replace(content, charts=tuple(add_result_source_lines(content.charts, campaigns)))


def _merge_median_columns(runs: Sequence[ReportedRun]) -> list[Column]:
    """The columns of a table with a row for each config and problem: medians over launches, in GiB/s."""
    problems = [(name, source) for name, found in group_runs_by_problem(runs).items() for source in found]
    several = len({name for name, _ in problems}) > 1
    rows = []
    for name, source in problems:
        launches = aggregate.complete_launches(source.run)
        rates = [format_gib(aggregate.run_median(launches, metric.value)) for metric in METRICS.values()]
        rows.append((source.label, name * several, *rates, str(len(launches))))
    return columns_from_rows(("Config", "Problem", *(f"{name} (GiB/s)" for name in METRICS), "Launches"), rows, (0, 1))


def _command_median_columns(command: str, runs: Sequence[ReportedRun]) -> list[Column]:
    """The columns of a table with a row for each run of a command: the medians of its metrics, over launches."""
    columns = [Column(command, [source.label for source in runs], text=True)]
    for metric in common_metrics(source.run for source in runs):
        unit = DisplayUnit.for_recorded_unit(metric.unit)
        medians = [aggregate.run_median(aggregate.complete_launches(source.run), metric.value) for source in runs]
        columns.append(Column(unit.metric_heading(metric.name), [unit.format_value(median) for median in medians]))
    columns.append(Column("Launches", [str(len(aggregate.complete_launches(source.run))) for source in runs]))
    failed = [source.as_command_run.failed_launch_count for source in runs]
    return [*columns, Column("Failed", [str(count) for count in failed] if any(failed) else [])]


def _command_charts(commands: Mapping[str, Sequence[ReportedRun]]) -> Iterator[Chart]:
    """Yield the charts of each command: for every metric the medians of several runs, and each launch."""
    for command, runs in islice(commands.items(), _MOST_PROBLEMS):
        for metric in common_metrics(source.run for source in runs):
            name = command if len(commands) > 1 else ""
            charts = [metric_bar_chart(runs, metric, name)] if len(runs) > 1 else []
            yield from (chart for chart in [*charts, metric_by_launch_chart(runs, metric, name)] if not chart.is_empty)


def _metric_charts(
    runs_of_merges: Sequence[ReportedRun],
    metric: str,
    axis_unit: str,
    published_results: Sequence[published.PublishedMergeResult],
) -> list[Chart]:
    problems = group_runs_by_problem(runs_of_merges)
    if axis_unit == OF_LINK:
        return [chart for chart in [merge.metric_by_problem_chart(merge.OF_LINK, problems, {})] if not chart.is_empty]
    beside = published_bars(published_results, METRICS[metric], runs_of_merges)
    charts: list[Chart] = [merge.metric_by_problem_chart(METRICS[metric], problems, beside)]
    if metric == merge.THROUGHPUT.title:
        several = len(problems) > 1
        charts += [
            merge.iteration_throughput_chart(runs, name * several)
            for name, runs in islice(problems.items(), _MOST_PROBLEMS)
        ]
    return [chart for chart in charts if not chart.is_empty]


def _add_comparison(
    content: ResultsContent, campaigns: Sequence[Campaign], style_indexes: Mapping[str, int], metric: str
) -> ResultsContent:
    """Return `content` with differences and verdicts of `campaigns`, or why they cannot be compared."""
    try:
        document = compare_campaigns(campaigns)
    except MergeBenchError as reason:
        content = replace(content, unjudged=f"Not compared: {str(reason).removeprefix('not comparable: ')}.")
        if not isinstance(reason, NotComparable):
            return content
        document = compare_campaigns(campaigns, allow_incomparable=True)
    chosen = [pair for pair, _ in comparison.comparisons_by_candidate(document, metric)]
    titles = [comparison.title_of_comparison(one) for one in chosen]
    differences = [
        (name, comparison.recorded_differences(document, one)) for name, one in zip(titles, chosen, strict=True)
    ]
    shown = ((name, tuple(comparison.difference_columns(each))) for name, each in differences if each)
    content = replace(content, differences=tuple(shown))
    if content.unjudged:
        return content
    speedups = merge.speedup_chart(document, metric, style_indexes)
    return replace(
        content,
        charts=content.charts if speedups.is_empty else (*content.charts, speedups),
        verdicts=tuple(
            (name, ". ".join([comparison.verdict_sentence(one), *map(capitalize, one.caveats)]))
            for name, one in zip(titles, chosen, strict=True)
        ),
        judged=(Column("Compared", titles, text=True), *comparison.verdict_columns(chosen)),
        notes=(*content.notes, *document.notes),
    )


def _listed_workload_text(entry: ResultEntry, figures: CampaignFigures) -> str:
    """What a campaign merged: rows per chunk, or the files of the tables with keys and rows; workers and engine.

    For a campaign of a command: the command.
    """
    if entry.kind == COMMAND:
        return workload_text(entry.plans)
    merges = [plan for plan in entry.plans if plan.probe is None]
    engines = dict.fromkeys(plan.engine for plan in merges if plan.engine)
    return ", ".join([measured_workload_text(merges, figures.measured), *engines]) if merges else ""


@dataclass(frozen=True)
class ResultsUpdate:
    """What `ResultsView` reads for an update: the table's rows, the content for the chosen campaigns, and their count.

    `rows` and `content` are the objects of the last update if nothing in them has changed. `own`: whether any campaign
    is in the folder itself, not only shipped or published ones.
    """

    rows: pd.DataFrame
    content: ResultsContent
    count: int
    own: bool


class ResultsView:
    """The Results tab. The first campaign by time is the baseline of a comparison.

    The table reports chosen rows by their places, and messages to and from it can cross. So a campaign keeps its place
    until the page is closed: new ones are added below, the browser sorts them, and only the page changes the choice.

    Rows that change while a browser builds the table are lost. So a table is made with the known rows, and they change
    only after the table has reported how many fit on a page, which it does once it is built. If it does not report
    this for `patience` seconds, another table with the new rows replaces it: what is shown is right either way.
    """

    def __init__(
        self, entries: Callable[[], Sequence[ResultEntry]], cache: CampaignCache, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._entries, self._cache, self._patience = entries, cache, patience
        self._contents = CachedLastResult(
            self._content_of_chosen_campaigns, lambda problem: ResultsContent(problems=(problem,))
        )
        self._last_content = ResultsContent()
        self._shown_content: ResultsContent | None = None
        self._known_entries = tuple(entries())
        self._placed: tuple[ResultEntry, ...] = ()
        self._shown_rows = self._rows = self._make_table_rows(self._known_entries)
        self.table = self._make_table([])
        self._table = pn.Column(self.table, sizing_mode=ui.WIDE, margin=0)
        self.metric = ui.make_radio_buttons(list(METRICS))
        self.axis = ui.make_radio_buttons([ABSOLUTE, OF_LINK])
        self.datasets = ui.make_dataset_select("Published results to show as well", published.MERGE, width=420)
        self.parts = pn.Column(sizing_mode=ui.WIDE, min_height=300, margin=0)
        self._problems = ui.make_html_widget()
        self._hint = ui.make_html_widget(f"<p>{as_html(HINT)}</p>", min_height=24)
        titled = [
            pn.Column(pn.widgets.StaticText(value=title, margin=(5, 10, 0, 10)), widget)
            for title, widget in (("Metric", self.metric), ("Axis", self.axis))
        ]
        self._choices = ui.make_wrapping_row(*titled, self.datasets)  # of merges alone
        self.layout = pn.Column(self._hint, self._table, self._choices, self._problems, self.parts, sizing_mode=ui.WIDE)

    @property
    def chosen_campaigns(self) -> list[ResultEntry]:
        """The chosen campaigns, the oldest first."""
        chosen = [self._placed[place] for place in self.table.selection if 0 <= place < len(self._placed)]
        return sorted(chosen, key=lambda entry: entry.started or entry.modified)

    def choose_campaigns(self, names: Sequence[str]) -> None:
        """Select the campaigns in the folders with these names, and no others, however old they are."""
        self._rows = self._make_table_rows(tuple(self._entries()), names)
        places = [place for place, entry in enumerate(self._placed) if entry.folder.name in names]
        self._shown_rows, self.table.selection = self._rows, places

    def replace_table(self) -> None:
        """Replace the table by a new one, as a browser does when the tab comes into the page; the choice stays."""
        self._shown_rows = self._rows
        self.table = self._make_table(self.table.selection)
        self._table.objects = [self.table]

    def _make_table(self, selected_rows: Sequence[int]) -> Any:
        self._built, self._made_at = False, time.monotonic()
        # A field under each heading of text filters the rows.
        texts = [name for name in self._shown_rows if not str(name).endswith("(GiB/s)")]
        filters = {name: {"type": "input", "func": "like", "placeholder": "contains"} for name in texts}
        columns = {"sorterParams": {"alignEmptyValues": "bottom"}, "tooltip": True, "minWidth": 90}
        boxes = {"formatter": "rowSelection", "headerSort": False, "width": 36, "minWidth": 36}
        table = ui.make_table_widget(
            self._shown_rows.copy(),
            height=_TABLE_HEIGHT,
            pagination="local",
            page_size=None,
            selectable="toggle",
            selection=list(selected_rows),
            header_filters=filters,
            layout="fit_columns",
            stylesheets=[ui.style_sheet("table"), ui.style_sheet("whole_table")],
            widths=_WIDTHS,
            configuration={
                "columnDefaults": columns,
                "columns": [{"field": "Problem", "minWidth": _PROBLEM_PIXELS}],
                "rowHeader": boxes,
            },
            sorters=[{"field": "Started (UTC)", "dir": "desc"}],
        )

        def record_that_table_is_built(_: Any) -> None:
            table.param.update(page_size=_PAGE_ROWS, height=None)  # whatever the browser reported
            self._built = self._built or table is self.table

        table.param.watch(record_that_table_is_built, "page_size")
        return table

    def read_update(self) -> ResultsUpdate:
        """Read the chosen campaigns, and some whose figures the table lacks; called in a thread."""
        entries = tuple(self._entries())
        if self._cache.read_small_campaigns(entries[:MOST_LISTED]) or entries != self._known_entries:
            rows, self._known_entries = self._make_table_rows(entries), entries
            self._rows = self._rows if rows.equals(self._rows) else rows
        current = {entry.id: entry for entry in entries}
        chosen = tuple(current[entry.id] for entry in self.chosen_campaigns if entry.id in current)
        content = self._contents(chosen, self.metric.value, self.axis.value, tuple(self.datasets.value))
        if content is not self._last_content:
            self._last_content = content
            self._known_entries = ()  # because the figures of large campaigns may be known now
        return ResultsUpdate(self._rows, content, len(entries), any(entry.origin == YOURS for entry in entries))

    def _make_table_rows(self, entries: Sequence[ResultEntry], added_names: Collection[str] = ()) -> pd.DataFrame:
        """Make the table's rows: new campaigns get the next positions, deleted ones keep theirs.

        `added_names`: folders to list even if they are too old for it.
        """
        current = {entry.id: entry for entry in entries}
        placed = {entry.id for entry in self._placed}
        listed = (
            entry for place, entry in enumerate(entries) if place < MOST_LISTED or entry.folder.name in added_names
        )
        new = tuple(entry for entry in listed if entry.id not in placed)
        self._placed = (*(current.get(entry.id, entry) for entry in self._placed), *new)
        return campaigns_data_frame(self._placed, self._cache.cached_figures, deleted_ids=placed - current.keys())

    def _content_of_chosen_campaigns(
        self, chosen: tuple[ResultEntry, ...], metric: str, axis_unit: str, dataset_names: tuple[str, ...]
    ) -> ResultsContent:
        if len(chosen) > MOST_CHOSEN:
            return ResultsContent(problems=(f"Select at most {MOST_CHOSEN} campaigns.",))
        return make_results_content(
            self._cache.load(chosen), metric=metric, axis_unit=axis_unit, dataset_names=dataset_names
        )

    def show_update(self, update: ResultsUpdate) -> None:
        """Show in the Results tab what `read_update` returned; called under the document's lock."""
        cut = f" The newest {MOST_LISTED:,} of {update.count:,} are listed." if update.count > MOST_LISTED else ""
        self._hint.value = f"{'' if update.own else NOTHING}<p>{as_html(HINT + cut)}</p>"
        if update.rows is not self._shown_rows:
            if self._built:
                self._shown_rows = update.rows
                self.table.value = update.rows.copy()
            elif self._shown_rows.empty or time.monotonic() > self._made_at + self._patience:
                self.replace_table()
        if update.content is not self._shown_content:
            self._shown_content = update.content
            self._problems.value = ui.problems_html(update.content.problems)
            self.parts.objects = _make_widgets(update.content)
            self._choices.visible = bool(update.content.figures) or not update.content.of_commands


def _make_widgets(content: ResultsContent) -> list[Any]:
    """Make the tables, charts and texts of the chosen campaigns."""
    parts: list[Any] = []
    if content.verdicts:
        rows = "".join(f"<li><b>{as_html(title)}</b>: {as_html(text)}</li>" for title, text in content.verdicts)
        parts.append(
            ui.make_html_widget(ui.heading_html("Verdicts", ["Verdict", "Speed-up", "Interval"]) + f"<ul>{rows}</ul>")
        )
        parts.append(ui.make_html_widget(ui.html_table_from_columns(content.judged)))
    elif content.unjudged:
        parts.append(ui.make_html_widget(f"<p>{as_html(content.unjudged)}</p>"))
    if content.figures:
        title = ui.heading_html("Figures of each config", ["Throughput", "Bandwidth", "Launch"])
        doubts = "".join(ui.warning_html(each, config=name) for name, each in content.doubts)
        parts.append(ui.make_html_widget(title + ui.html_table_from_columns(content.figures) + doubts))
    if content.of_commands:
        title = ui.heading_html("Figures of each config", ["Metric", "Launch"])
        parts.append(ui.make_html_widget(title + "".join(map(ui.html_table_from_columns, content.of_commands))))
    parts.append(ui.make_card_row(*map(ui.make_chart_card, content.charts)))
    if content.differences:
        body = "".join(
            f"<h2>{as_html(title)}</h2>{ui.html_table_from_columns(columns)}" for title, columns in content.differences
        )
        parts.append(
            ui.make_html_widget(f"<details open><summary>Differences between the runs</summary>{body}</details>")
        )
    if content.notes:
        parts.append(
            ui.make_html_widget("<h2>Notes</h2>" + "".join(f"<p>{as_html(note)}</p>" for note in content.notes))
        )
    return parts
