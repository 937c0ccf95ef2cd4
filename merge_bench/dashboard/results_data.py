"""What the Results tab shows, as plain data: the table of campaigns, and the chosen campaigns compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from merge_bench.analysis import aggregate, diagnostics, published
from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.select import NotComparable
from merge_bench.dashboard.components import frame_of
from merge_bench.errors import Caution, MergeBenchError
from merge_bench.records.campaign import Campaign
from merge_bench.records.results_folder import YOURS, Entry
from merge_bench.report.campaign_figures import Figures, Loaded, status_of
from merge_bench.report.page.results import SourceRun, group_by_problem, published_bars, source_runs
from merge_bench.units import plural
from merge_bench.view import comparison
from merge_bench.view.content import Column
from merge_bench.view.numbers import NULL, gib
from merge_bench.view.plot import merge
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.source import with_source
from merge_bench.view.text import capitalized, short
from merge_bench.view.titles import measured_problem, utc_time

ABSOLUTE, OF_LINK = "GiB/s", "% of the link limit"
METRICS = {metric.title: metric for metric in (merge.THROUGHPUT, merge.BANDWIDTH)}
MOST_CHOSEN = 12
_MOST_PROBLEMS = 4


@dataclass(frozen=True)
class Content:
    """What the tab shows of the chosen campaigns: figures by config, charts, verdicts, differences, notes, problems.

    `unjudged`: why there is no verdict; `doubts`: configs with a warning that they exceeded the limit of the link.
    """

    figures: tuple[Column, ...] = ()
    doubts: tuple[tuple[str, Caution], ...] = ()
    charts: tuple[Chart, ...] = ()
    verdicts: tuple[tuple[str, str], ...] = ()
    unjudged: str = ""
    judged: tuple[Column, ...] = ()
    differences: tuple[tuple[str, tuple[Column, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def campaign_table(
    entries: Sequence[Entry], figures: Callable[[Entry], Figures | None], *, gone: Collection[str] = ()
) -> pd.DataFrame:
    """A table with a row for each of `entries`, in their order; `gone`: ids of those that were deleted."""
    all_figures = [figures(entry) or Figures() for entry in entries]
    columns: dict[str, list[Any]] = {
        "Started (UTC)": [
            f"{began:%Y-%m-%d %H:%M:%S}" if (began := utc_time(each.started)) else "" for each in entries
        ],
        "Configs": [short(", ".join(entry.configs), 60) for entry in entries],
        "Kind": [entry.kind + f" ({entry.origin})" * (entry.origin != YOURS) for entry in entries],
        "Problem": [_problem_text(entry, each) for entry, each in zip(entries, all_figures, strict=True)],
        "Throughput (GiB/s)": [each.throughput for each in all_figures],
        "Bandwidth (GiB/s)": [each.bandwidth for each in all_figures],
        "Status": [
            "deleted" if entry.id in gone else status_of(entry, each)
            for entry, each in zip(entries, all_figures, strict=True)
        ],
        "Fastest config": [short(each.fastest, 60) for each in all_figures],
        "Folder": [entry.folder.name for entry in entries],
    }
    return frame_of(columns, numbers=("Throughput (GiB/s)", "Bandwidth (GiB/s)"))


def content_of(loaded: Sequence[Loaded], *, metric: str, axis: str, datasets: Sequence[str]) -> Content:
    """What to show of `loaded` campaigns, in `metric`; `datasets`: published results to show beside them."""
    problems = tuple(one.problem for one in loaded if one.problem)
    readable = [one.campaign for one in loaded if one.campaign is not None]
    campaigns = [campaign for campaign in readable if campaign.probe is None]
    probes = len(readable) - len(campaigns)
    notes = [f"{plural(probes, 'network measurement')} selected; see the Network tab."] if probes else []
    if not campaigns:
        return Content(notes=tuple(notes), problems=problems)
    sources = source_runs(campaigns)
    cells = [cell for name in datasets for cell in published.merge_results(name)] if axis == ABSOLUTE else []
    shown_problems = group_by_problem(sources)
    if len(shown_problems) > _MOST_PROBLEMS:
        notes.append(f"Only the first {_MOST_PROBLEMS} of {len(shown_problems)} problems have a chart of iterations.")
    notes += [f"{cell.config} {cell.published}: {cell.note}" for cell in cells if cell.note]
    unlimited = [source.label for source in sources if not source.samples(merge.OF_LINK)]
    if axis == OF_LINK and unlimited:
        notes.append(f"No link limit was measured: {', '.join(dict.fromkeys(unlimited))}.")
    drawn = tuple(_charts(sources, metric, axis, cells))
    content = Content(
        figures=tuple(_figure_columns(sources)), charts=drawn, notes=tuple(notes), problems=problems,
        doubts=tuple(
            (source.label, caution)
            for source in sources
            for caution in diagnostics.limit_exceeded_warning(aggregate.complete_launches(source.run))
        ),
    )  # fmt: skip
    if len(sources) > 1:
        content = _add_comparison(content, campaigns, {source.name: source.look for source in sources}, metric.lower())
    return replace(content, charts=tuple(with_source(content.charts, campaigns)))


def _figure_columns(sources: Sequence[SourceRun]) -> list[Column]:
    """The columns of a table with a row for each config and problem: medians over launches, in GiB/s."""
    problems = [(name, source) for name, found in group_by_problem(sources).items() for source in found]
    rates = {f"{metric.title} (GiB/s)": metric for metric in METRICS.values()}

    def median_text(source: SourceRun, metric: merge.Metric) -> str:
        rate = aggregate.run_median(aggregate.complete_launches(source.run), metric.value)
        return NULL if rate is None else gib(rate)

    return [
        Column("Config", [source.label for _, source in problems], text=True),
        *([Column("Problem", [name for name, _ in problems], text=True)] if len({n for n, _ in problems}) > 1 else []),
        *(Column(title, [median_text(source, metric) for _, source in problems]) for title, metric in rates.items()),
        Column("Launches", [str(len(aggregate.complete_launches(source.run))) for _, source in problems]),
    ]


def _charts(
    sources: Sequence[SourceRun], metric: str, axis: str, cells: Sequence[published.MergeResult]
) -> list[Chart]:
    problems = group_by_problem(sources)
    groups = [(name, [source.labelled for source in found]) for name, found in problems.items()]
    if axis == OF_LINK:
        return [chart for chart in [merge.rates_chart(merge.OF_LINK, groups, {})] if not chart.empty]
    beside = published_bars(cells, METRICS[metric], sources)
    charts: list[Chart] = [merge.rates_chart(METRICS[metric], groups, beside)]
    if metric == merge.THROUGHPUT.title:
        several = len(groups) > 1
        charts += [merge.iterations(runs, name * several) for name, runs in groups[:_MOST_PROBLEMS]]
    return [chart for chart in charts if not chart.empty]


def _add_comparison(content: Content, campaigns: Sequence[Campaign], looks: Mapping[str, int], metric: str) -> Content:
    """`content` with differences and verdicts of `campaigns`, or with the reason why they cannot be compared."""
    try:
        document = compare(campaigns)
    except MergeBenchError as reason:
        content = replace(content, unjudged=f"Not compared: {str(reason).removeprefix('not comparable: ')}.")
        if not isinstance(reason, NotComparable):
            return content
        document = compare(campaigns, anyway=True)
    chosen = [comparison.comparison_in_metric(each, metric) for each in comparison.group_by_pair(document)]
    titles = [comparison.title_of_comparison(one) for one in chosen]
    differences = [
        (name, comparison.differences_of_pair(document, one)) for name, one in zip(titles, chosen, strict=True)
    ]
    shown = ((name, tuple(comparison.difference_columns(each))) for name, each in differences if each)
    content = replace(content, differences=tuple(shown))
    if content.unjudged:
        return content
    speedups = merge.speedups(document, metric, looks)
    return replace(
        content,
        charts=content.charts if speedups.empty else (*content.charts, speedups),
        verdicts=tuple(
            (name, ". ".join([comparison.verdict_sentence(one), *map(capitalized, one.caveats)]))
            for name, one in zip(titles, chosen, strict=True)
        ),
        judged=(Column("Compared", titles, text=True), *comparison.judged_columns(chosen)),
        notes=(*content.notes, *document.notes),
    )


def _problem_text(entry: Entry, figures: Figures) -> str:
    """What a campaign merged: rows per chunk, or the files of the tables with keys and rows; workers and engine."""
    merges = [plan for plan in entry.plans if plan.probe is None]
    engines = dict.fromkeys(plan.engine for plan in merges if plan.engine)
    return ", ".join([measured_problem(merges, figures.measured), *engines]) if merges else ""
