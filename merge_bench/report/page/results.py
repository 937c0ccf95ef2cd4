"""The tables of results: one metric a table, problems and configs, published results beside them.

Then, beside `probe all-to-all`, what of the network's bandwidth an exchange gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis import aggregate, exchange_share
from merge_bench.analysis.compare.properties import problem, same_problem
from merge_bench.analysis.compare.select import letter_of, run_labels
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.exchange_share import ExchangeShare
from merge_bench.analysis.published import MergeResult
from merge_bench.analysis.summary import summarize_run
from merge_bench.analysis.verification_state import state_of
from merge_bench.records.campaign import Campaign, Run
from merge_bench.units import GIB
from merge_bench.view.content import Column, Page, by_row, grouped
from merge_bench.view.numbers import NULL, binary, gib, number
from merge_bench.view.plot import merge
from merge_bench.view.plot.charts import Bar
from merge_bench.view.plot.merge import BANDWIDTH, THROUGHPUT, Labelled, Metric
from merge_bench.view.plot.source import source_of
from merge_bench.view.titles import option_of, tables_of, tunes

_USUAL = ("workload name", "synthetic")
_LAUNCHES = "Launches"
_BESIDE = ("95 %\ninterval", _LAUNCHES)
_MOST_COLUMNS = 6
"""Configs that stand side by side; more of them are rows."""


@dataclass(frozen=True, eq=False)
class Source:
    """A run of one of the campaigns: its document, and what it is called in every table and drawing.

    `name`: as `compare` calls it, with the campaign's letter where there are several; `label`: the same,
    marked where it is not verified; `look`: which colour and marker it has; `part`: that letter.
    """

    campaign: Campaign
    run: Run
    document: RunDocument
    name: str
    label: str
    look: int
    part: str

    @property
    def labelled(self) -> Labelled:
        """For drawings."""
        return Labelled(self.label, self.look, self.run, self.part)

    def samples(self, metric: Metric) -> list[float]:
        """One value a launch."""
        return aggregate.launch_medians(aggregate.complete_launches(self.run), metric.value)


def sources_of(campaigns: Sequence[Campaign]) -> list[Source]:
    """Every run of `campaigns`; a config, or an engine, of a campaign has one look, whatever it merges.

    A tuning plans a confirmation at every size, and launches only those that it has a config and time for.
    """
    sources: list[Source] = []
    looks: dict[str, int] = {}
    for at, (campaign, names) in enumerate(zip(campaigns, run_labels(campaigns), strict=True)):
        short = letter_of(at, len(campaigns))
        for config in names:
            looks.setdefault(config, len(looks))
        for index, (name, run) in enumerate(zip(names, campaign.runs, strict=True)):
            if tunes(campaign) and not run.launches:
                continue
            run_id = campaign.head.campaign_id + ("" if len(campaign.runs) == 1 else f"/{index}")
            mark = state_of(run, aggregate.complete_launches(run)).mark
            label = f"{name} ({mark})" if mark else name
            sources.append(
                Source(campaign, run, summarize_run(campaign, run, run_id), name, label, looks[name], short or "")
            )
    return sources


def by_problem(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """The runs of each problem, by a title that names how the problem differs from the others."""
    groups: list[list[Source]] = []
    for source in sources:
        mine = next((group for group in groups if same_problem(group[0].run, source.run)), None)
        if mine is None:
            groups.append(mine := [])
        mine.append(source)
    problems = [problem(group[0].run) for group in groups]
    names = dict.fromkeys(name for values in problems for name in values)
    values_of = {name: {values[name] for values in problems if name in values} for name in names}
    varying = [name for name in names if name == "rows_per_chunk" or len(values_of[name]) > 1]
    files = [tables_of(group[0].run.plan) for group in groups]
    short = [_short_title(values, varying, tables) for values, tables in zip(problems, files, strict=True)]
    titled: dict[str, list[Source]] = {}
    for group, values, title in zip(groups, problems, short, strict=True):
        if short.count(title) > 1:
            title = ", ".join(_named_value(name, values[name]) for name in varying if name in values)
        titled.setdefault(title or "the tables", []).extend(group)
    return titled


def _short_title(values: Mapping[str, str], varying: Sequence[str], tables: str) -> str:
    """What varies, in few words: files by their names, keys and rows; of generated tables what is not as usual."""
    shown = [name for name in varying if name in values and not (tables and name.startswith("workload "))]
    parts = [_named_value(name, values[name]) for name in shown if (name, values[name]) != _USUAL]
    return ", ".join([*([tables] if tables else []), *parts])


def write_results(
    page: Page, sources: Sequence[Source], published: Sequence[MergeResult], campaigns: Sequence[Campaign]
) -> None:
    """Throughput and bandwidth, each as a table and as bars; then every iteration. `campaigns`: all of the report.

    The figures of a single run alone are those of the conclusion.
    """
    problems = by_problem(sources)
    beside = _published_by_problem(published)
    for metric in (THROUGHPUT, BANDWIDTH) if len(sources) > 1 or published else ():
        if not any(source.samples(metric) for source in sources):
            continue
        page.heading(f"{metric.title} by problem and config (GiB/s, medians over launches)")
        _table(page, metric, problems, beside)
        _note_missing_intervals(page, sources)
        _note_published(page, [each for each in published if each.metric == metric.title.lower()])
        groups = [(name, [source.labelled for source in runs]) for name, runs in problems.items()]
        page.chart(merge.rates(metric, groups, published_bars(published, metric, sources)))
    whole = page.source
    for name, runs in problems.items():
        page.heading(f"Every iteration: {name}" if len(problems) > 1 else "Every iteration")
        shown = [each for each in campaigns if any(each is source.campaign for source in runs)]
        page.source = source_of(shown, campaigns)
        page.chart(merge.iterations([source.labelled for source in runs], name if len(problems) > 1 else ""))
    page.source = whole


def _table(
    page: Page,
    metric: Metric,
    problems: Mapping[str, Sequence[Source]],
    beside: Mapping[str, Sequence[MergeResult]],
) -> None:
    """A row a problem and columns for each config; the other way round for many configs."""
    names = list(dict.fromkeys([*problems, *beside]))
    labels = list(dict.fromkeys(source.label for found in problems.values() for source in found))
    configs = list(dict.fromkeys(e.config for found in beside.values() for e in found if e.metric == _key(metric)))

    def measured(name: str, label: str) -> tuple[str, str, str]:
        return _measured(next((each for each in problems.get(name, ()) if each.label == label), None), metric)

    def printed(name: str, config: str) -> str:
        values = (e for e in beside.get(name, ()) if (e.config, e.metric) == (config, _key(metric)))
        return next((gib(each.value) for each in values), "")

    if len(labels) <= _MOST_COLUMNS:
        columns = [Column("Problem", names, text=True)]
        for label in labels:
            columns += by_row((label, *_BESIDE), [measured(name, label) for name in names])
        columns += [Column(f"{config}\n(published)", [printed(name, config) for name in names]) for config in configs]
    else:
        columns = [Column("Config", [*labels, *(f"{config} (published)" for config in configs)], text=True)]
        for name in names:
            rows = [measured(name, label) for label in labels]
            columns += by_row((name, *_BESIDE), [*rows, *((printed(name, each), "", "") for each in configs)])
    counts = {count for column in columns if column.heading == _LAUNCHES for count in column.cells if count}
    if len(counts) == 1:
        columns = [column for column in columns if column.heading != _LAUNCHES]
    page.table(*columns)
    if len(counts) == 1:
        page.line(f"Launches per config: {counts.pop()}.", "dim")


def _measured(source: Source | None, metric: Metric) -> tuple[str, str, str]:
    """Median, interval and launches."""
    if source is None:
        return "", "", ""
    spread = source.document.bandwidth_bytes_per_second.spread
    if metric is THROUGHPUT or spread is None:
        spread = source.document.throughput_bytes_per_second
    ends = f"{gib(spread.ci95[0])} to {gib(spread.ci95[1])}" if spread.ci95 else ""
    launches = 0 if spread.median is None else source.document.measured.launches
    return gib(spread.median), ends, str(launches)


def _key(metric: Metric) -> str:
    return metric.title.lower()


def _named_value(name: str, value: str) -> str:
    return option_of(name, int(value) if value.isdecimal() else value)


def _note_missing_intervals(page: Page, sources: Sequence[Source]) -> None:
    few = dict.fromkeys(each.name for each in sources if each.document.throughput_bytes_per_second.ci95 is None)
    if few:
        named = ", ".join(few) if len(few) <= _MOST_COLUMNS else f"{len(few)} configs"
        page.line(f"No 95 % interval for {named}: it needs at least 6 launches.", "dim")


def _note_published(page: Page, shown: Sequence[MergeResult]) -> None:
    for source in dict.fromkeys(f"Published: {each.source}; {each.hardware}." for each in shown):
        page.line(source, "dim")
    for note, noted in grouped(shown, lambda each: each.note).items():
        if note:
            page.line(f"{', '.join(f'{each.config} {each.published}' for each in noted)}: {note}.", "dim", indent=2)


def published_bars(published: Sequence[MergeResult], metric: Metric, sources: Sequence[Source]) -> dict[str, list[Bar]]:
    """Published values of `metric`, under the names that `by_problem` gives to the same numbers of rows."""
    looks = {source.name: source.look for source in sources}
    return {name: _bars(found, metric, looks) for name, found in _published_by_problem(published).items()}


def _published_by_problem(published: Sequence[MergeResult]) -> dict[str, list[MergeResult]]:
    return grouped(published, lambda each: _named_value("rows_per_chunk", str(each.rows_per_chunk)))


def _bars(published: Sequence[MergeResult], metric: Metric, looks: Mapping[str, int]) -> list[Bar]:
    """Published bars, in the colour of the config of the same name."""
    colours = dict(looks)
    return [
        Bar(
            f"{each.config} (published)",
            colours.setdefault(each.config, len(colours)),
            each.value / GIB,
            remark=each.source,
            published=True,
        )
        for each in published
        if each.metric == _key(metric) and each.value is not None
    ]


PARTS = (
    "Parts of the exchange phase, on its slowest worker in the median iteration. At all-to-all rate: bytes ÷ what the"
    " network carried in probe all-to-all. Slower transfers: what transfers took beyond that. Waiting: until the last"
    " worker had partitioned. Rest: headers, barriers, room for what arrives."
)
NONE = (
    "No all-to-all belongs to a merge here: config, hosts, number of workers and message size have to be the same."
    " Measure it with probe all-to-all --chunk ROWS."
)


def write_exchange_share(page: Page, sources: Sequence[Source], probes: Sequence[Campaign]) -> None:
    """A section for merges and all-to-all that belong together, if both are there."""
    measured = [campaign for campaign in probes if campaign.probe == exchange_share.PROBE]
    if not measured or not sources:
        return
    page.section("Exchange and all-to-all")
    shares = [(source, share) for source in sources if (share := exchange_share.find(source.run, measured)) is not None]
    if not shares:
        page.line(NONE)
        return
    headings = ("Run", "Workers", "All-to-all\n(GB/s a worker)", "measured with", "Exchange of\nthe merge (GB/s)")
    rates = [(source.label, str(source.run.plan.workers), *_rates(share)) for source, share in shares]
    page.table(*by_row((*headings, "of all-to-all"), rates, (0, 3)))
    apart = [(source, share) for source, share in shares if share.phase is not None]
    if apart:
        spent = ("Run", "Exchange\nphase (ms)", "at all-to-all\nrate (ms)", "slower\ntransfers (ms)")
        parts = [(source.label, *_parts(share)) for source, share in apart]
        page.table(*by_row((*spent, "waiting\n(ms)", "rest (ms)", "of all-to-all"), parts, (0,)))
        page.line(PARTS, "dim")
    if len(apart) < len(shares):
        page.line("With --pipeline on, the exchange overlaps partition and join and has no phase of its own.", "dim")


def _rates(share: ExchangeShare) -> tuple[str, str, str, str]:
    messages = f"{'the same parcels' if share.parcels else 'equal messages'} ({binary(share.size)})"
    return number(share.all_to_all / 1e9), messages, number(share.exchange / 1e9), f"{share.share:.0%}"


def _parts(share: ExchangeShare) -> list[str]:
    seconds = (share.phase, share.ideal, share.slower, share.waiting, share.other)
    part = share.share_of_phase
    return [
        *(number(None if each is None else each * 1e3) for each in seconds),
        NULL if part is None else f"{part:.0%}",
    ]
