"""The charts of one campaign, chosen by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from merge_bench.analysis.compare.document import compare
from merge_bench.errors import UsageError
from merge_bench.probe.shared.stored_rows import rows_in_order
from merge_bench.probe.view.charts import panels_of
from merge_bench.records.campaign import Campaign
from merge_bench.report.page.results import SourceRun, group_by_problem, source_runs
from merge_bench.tune.result import steps_of
from merge_bench.tune.view import phase_charts
from merge_bench.view.plot import merge, timeline
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.source import with_source
from merge_bench.view.titles import size_of


def charts_of_kind(campaign: Campaign, kind: str) -> Sequence[Chart]:
    """The charts of a campaign of one kind, such as ``throughput``, without empty ones.

    Raises
    ------
    UsageError
        If there is no such kind, or the campaign's configs cannot be compared.
    """
    sources = source_runs([campaign])
    problems = group_by_problem(sources)
    groups = [(name, [source.labelled for source in found]) for name, found in problems.items()]
    several = len(problems) > 1

    def each_run(make: Callable[[SourceRun], Chart]) -> list[Chart]:
        """A chart of each run, whose title names the run, and its problem where there are several."""
        names = {id(source): name for name, found in problems.items() for source in found if several}
        charts = [(source, make(source)) for source in sources]
        return [
            replace(chart, title=": ".join(filter(None, (chart.title, source.label, names.get(id(source))))))
            for source, chart in charts
        ]

    kinds: Mapping[str, Callable[[], Sequence[Chart]]] = {
        "throughput": lambda: [merge.rates_chart(merge.THROUGHPUT, groups, {})],
        "bandwidth": lambda: [merge.rates_chart(merge.BANDWIDTH, groups, {})],
        "speed-up": lambda: [
            merge.speedups(compare([campaign]), "throughput", {source.name: source.look for source in sources})
        ],
        "iterations": lambda: [merge.iterations(runs, name if several else "") for name, runs in groups],
        "workers": lambda: each_run(lambda source: merge.workers(source.run)),
        "phases": lambda: each_run(lambda source: merge.phases(source.run)),
        "timeline": lambda: each_run(lambda source: timeline.timeline(campaign, source.run)),
        "pairs": lambda: each_run(lambda source: merge.pairs(source.run, source.document.lanes)),
        "tuning": lambda: phase_charts(steps_of(campaign), partial(size_of, campaign)),
        "network": lambda: panels_of(rows_in_order(campaign)),
    }
    if kind not in kinds:
        raise UsageError(f"there is no plot {kind!r}; choose from {', '.join(kinds)}")
    least = merge.LEAST_MAPPED
    if kind == "pairs" and all((run.plan.workers or least) < least for run in campaign.runs):
        raise UsageError(f"a map of pairs needs at least {least} workers; Result.pairs() has their figures")
    return with_source([chart for chart in kinds[kind]() if not chart.empty], [campaign])
