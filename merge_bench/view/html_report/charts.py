"""The drawings of one campaign, chosen by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from merge_bench.analysis.compare.document import compare
from merge_bench.errors import UsageError
from merge_bench.probe.shared.stored_rows import in_order
from merge_bench.records.campaign import Campaign
from merge_bench.tune.stage import steps_of
from merge_bench.view.html_report.results import Source, by_problem, sources_of
from merge_bench.view.plot import merge, timeline
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.network import panels_of
from merge_bench.view.plot.source import of_results
from merge_bench.view.titles import size_of


def charts(campaign: Campaign, kind: str) -> Sequence[Chart]:
    """The drawings of `kind` that have anything to show.

    Raises
    ------
    UsageError
        If there is no such kind, or the campaign's configs cannot be compared.
    """
    if kind == "pairs" and all((run.plan.workers or merge.LEAST_MAPPED) < merge.LEAST_MAPPED for run in campaign.runs):
        raise UsageError(
            f"a map of pairs needs at least {merge.LEAST_MAPPED} workers; Result.pairs() has their figures"
        )
    if kind == "network":
        return of_results(panels_of(in_order(campaign)), [campaign])
    make = _KINDS.get(kind)
    if make is None:
        raise UsageError(f"there is no plot {kind!r}; choose from {', '.join([*_KINDS, 'network'])}")
    found = [chart for chart in make(campaign, sources_of([campaign])) if not chart.empty]
    return of_results(found, [campaign])


def _rates(metric: merge.Metric, sources: Sequence[Source]) -> list[Chart]:
    groups = [(name, [source.labelled for source in found]) for name, found in by_problem(sources).items()]
    return [merge.rates(metric, groups, {})]


def _speedup(campaign: Campaign, sources: Sequence[Source]) -> list[Chart]:
    looks = {source.name: source.look for source in sources}
    return [merge.speedups(compare([campaign]), "throughput", looks)]


def _iterations(campaign: Campaign, sources: Sequence[Source]) -> list[Chart]:
    problems = by_problem(sources)
    return [
        merge.iterations([source.labelled for source in found], name * (len(problems) > 1))
        for name, found in problems.items()
    ]


def _of_runs(sources: Sequence[Source], make: Callable[[Source], Chart]) -> list[Chart]:
    """A chart of each run, whose title names the run, and its problem where there are several."""
    problems = by_problem(sources)
    names = {id(one): name for name, found in problems.items() for one in found} if len(problems) > 1 else {}
    made = [(one, make(one)) for one in sources]
    return [
        replace(each, title=": ".join(filter(None, (each.title, one.label, names.get(id(one)))))) for one, each in made
    ]


_KINDS: Mapping[str, Callable[[Campaign, Sequence[Source]], Sequence[Chart]]] = {
    "throughput": lambda campaign, sources: _rates(merge.THROUGHPUT, sources),
    "bandwidth": lambda campaign, sources: _rates(merge.BANDWIDTH, sources),
    "speed-up": _speedup,
    "iterations": _iterations,
    "workers": lambda campaign, sources: _of_runs(sources, lambda one: merge.workers(one.run)),
    "phases": lambda campaign, sources: _of_runs(sources, lambda one: merge.phases(one.run)),
    "timeline": lambda campaign, sources: _of_runs(sources, lambda one: timeline.timeline(campaign, one.run)),
    "pairs": lambda campaign, sources: _of_runs(sources, lambda one: merge.pairs(one.run, one.document.lanes)),
    "tuning": lambda campaign, sources: merge.tunings(steps_of(campaign), partial(size_of, campaign)),
}
