"""Campaigns → the report as data: its sections in the order in which they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.select import letter
from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.published import MergeResult, SettingEffect
from merge_bench.analysis.verification_state import UNVERIFIED
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared.stored_rows import label_rows
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import Row
from merge_bench.records.schema import FailureLine
from merge_bench.view.plot import merge
from merge_bench.view.plot.network import panels_of
from merge_bench.view.plot.source import source_of
from merge_bench.view.probe.show import write_rows
from merge_bench.view.report import comparison, run_sections
from merge_bench.view.report.blocks import Recorder, Section
from merge_bench.view.report.full import tuning_sections
from merge_bench.view.report.full.environment import write_command, write_environment
from merge_bench.view.report.full.results import Source, by_problem, sources_of, write_results
from merge_bench.view.report.layout import Column
from merge_bench.view.report.run import overview, report_run

MOST_RUNS = 24
"""Runs that get a section of their own."""

_OPEN = 3
"""Sections of runs are open if there are no more than this many."""


@dataclass(frozen=True)
class References:
    """Published results to show beside the measured ones."""

    merges: tuple[MergeResult, ...] = ()
    settings: tuple[SettingEffect, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Report:
    """The whole report as data.

    `state`: ``verified``, or why the numbers are not; `alarm`: whether that is shown as an alarm.
    """

    title: str
    state: str
    alarm: bool
    sections: tuple[Section, ...]


def build(campaigns: Sequence[Campaign], references: References, defaults: Mapping[str, str] | None) -> Report:
    """The report of `campaigns`; `defaults`: of the UCX that they ran with, where it can be asked."""
    page = Recorder()
    page.source = source_of(campaigns)
    probes = [campaign for campaign in campaigns if _is_probe(campaign)]
    merges = [campaign for campaign in campaigns if not _is_probe(campaign)]
    sources = sources_of(merges)
    state, alarm = _state(sources, probes)
    _summary(page, campaigns, sources)
    if sources:
        page.section("Results")
        write_results(page, sources, references.merges)
        _comparisons(page, merges, sources)
    if references.settings:
        page.source = ""  # of others, as its title and its lines say
        tuning_sections.write_published(page, references.settings)
        page.source = source_of(campaigns)
    for campaign in merges:
        if campaign.tuning:
            tuning_sections.write_tuning(page, campaign)
    if probes:
        _network(page, probes, references.rows)
    _runs(page, sources)
    _failures(page, campaigns)
    _environment(page, campaigns, defaults)
    return Report(_title(campaigns), state, alarm, tuple(section for section in page.sections if section.blocks))


def _is_probe(campaign: Campaign) -> bool:
    return campaign.probe is not None or any(launch.probes and not launch.timed for launch in campaign.launches)


def _title(campaigns: Sequence[Campaign]) -> str:
    first, *more = campaigns
    return first.head.campaign_id + (f" and {len(more)} more" if more else "")


def _state(sources: Sequence[Source], probes: Sequence[Campaign]) -> tuple[str, bool]:
    """In words, and whether it is an alarm."""
    marks = {source.name: source.label[len(source.name) :].strip(" ()") for source in sources}
    wrong = [name for name, mark in marks.items() if mark.startswith("WRONG")]
    loose = [name for name, mark in marks.items() if mark and name not in wrong]
    broken = [source.document.error.message for source in sources if source.document.error]
    sentences = [f"WRONG RESULT: {', '.join(wrong)}; do not use these numbers"] if wrong else []
    sentences += [f"UNVERIFIED: {', '.join(loose)}"] if loose else []
    sentences += [f"Incomplete: {message}" for message in dict.fromkeys(broken)] if not wrong else []
    if sentences:
        return ". ".join(sentences), True
    if not sources:
        return f"Network measurements: {', '.join(str(one.probe) for one in probes)}", False
    return "Verified: every check of the merge results was made and passed", False


def _summary(page: Recorder, campaigns: Sequence[Campaign], sources: Sequence[Source]) -> None:
    page.section("Summary")
    several = len(campaigns) > 1
    if sources:
        names = [source.name for source in sources] if several else []
        overview(page, [source.run for source in sources], [source.document for source in sources], names)
    run_sections.findings(page, [source.document for source in sources])
    page.heading("How to repeat the measurement")
    for number, campaign in enumerate(campaigns):
        if several:
            page.line(f"{letter(number, len(campaigns))}: {campaign.head.campaign_id}")
        write_command(page, campaign)
        run_sections.warnings(page, campaign.cautions if _is_probe(campaign) else ())


def _comparisons(page: Recorder, merges: Sequence[Campaign], sources: Sequence[Source]) -> None:
    """Verdicts between the configs, within each campaign and between campaigns; why not, where there are none."""
    alone = [[campaign] for campaign in merges if len(campaign.runs) > 1 and not campaign.tuning]
    together = len(merges) > 1
    for group in [list(merges)] if together else alone:
        page.section("Comparison")
        try:
            document = compare(group)
        except MergeBenchError as reason:
            page.line(f"Not compared: {str(reason).partition('; use --anyway')[0]}", "yellow")
        else:
            _comparison(page, document, {source.name: source.look for source in sources})
            return
    for group in alone if together else ():
        mine = [source for source in sources if source.campaign is group[0]]
        try:
            document = compare(group)
        except MergeBenchError:
            continue  # the reason stands above
        page.section(f"Comparison within {mine[0].part}")
        _comparison(page, document, {source.run.config.name: source.look for source in mine})


def _comparison(page: Recorder, document: CompareDocument, looks: Mapping[str, int]) -> None:
    mark = None if document.verified else UNVERIFIED
    page.drawing(partial(merge.speedups, document, "throughput", looks))
    chosen = [comparison.about(each, "throughput") for each in comparison.by_pair(document)]
    pairs = Column("Throughput", [comparison.title(each) for each in chosen], text=True)
    page.table(pairs, *comparison.judged_columns(chosen), mark=mark)
    for note in document.notes:
        page.line(note, "dim")
    page.section("Comparison in detail", folded=len(chosen) > _OPEN)
    for comparisons in comparison.by_pair(document):
        one = comparison.about(comparisons, "throughput")
        page.heading(comparison.title(one))
        page.line(comparison.sentence(one), comparison.STYLES.get(one.verdict, "bold"))
        page.table(*comparison.metric_columns(comparisons), mark=mark)
        if found := comparison.of_pair(document, one):
            page.table(*comparison.difference_columns(found))


def _network(page: Recorder, probes: Sequence[Campaign], references: Sequence[Row]) -> None:
    page.section("Network")
    rows = label_rows(probes)
    if not rows:
        page.line("Nothing was measured.", "bold red")
        return
    configs = list(dict.fromkeys(row.config for row in rows))
    both = [*rows, *references]
    write_rows(page, both, baseline=configs[0] if len(configs) > 1 else None)
    for panel in panels_of(both):
        page.drawing(lambda panel=panel: panel)  # type: ignore[misc]


def _runs(page: Recorder, sources: Sequence[Source]) -> None:
    """A section for each run; of many, for those that were confirmed and the first ones."""
    confirmed = {step.config for source in sources for step in source.campaign.tuning if step.phase == "confirm"}
    first = [source for source in sources if source.run.config.name in confirmed]
    chosen = [*first, *(source for source in sources if source not in first)][:MOST_RUNS]
    problems = {id(source): name for name, found in by_problem(sources).items() for source in found}
    for source in sources:
        if source in chosen:
            page.section(f"{source.label}: {problems[id(source)]}", folded=len(sources) > _OPEN)
            page.source = source_of([source.campaign])
            report_run(page, source.run, source.document)
    if len(chosen) < len(sources):
        left = len(sources) - len(chosen)
        page.line(f"{left} more runs have no separate section; the tables above contain their numbers.", "dim")


def _failures(page: Recorder, campaigns: Sequence[Campaign]) -> None:
    page.section("Failures")
    for campaign in campaigns:
        name = campaign.head.campaign_id if len(campaigns) > 1 else None
        for failure in [*campaign.failures, *(each for launch in campaign.standing for each in launch.failures)]:
            _failure(page, failure, name)


def _failure(page: Recorder, failure: FailureLine, campaign: str | None) -> None:
    launch = f"launch {failure.launch}" if failure.launch is not None else None
    rank = f"rank {failure.rank}" if failure.rank is not None else None
    where = ", ".join(filter(None, (campaign, launch, failure.config, failure.host, rank)))
    page.line(f"{failure.code}: {failure.message}" + (f" ({where})" if where else ""), "bold red")
    if failure.log_tail:
        page.code(failure.log_tail)


def _environment(page: Recorder, campaigns: Sequence[Campaign], defaults: Mapping[str, str] | None) -> None:
    for number, campaign in enumerate(campaigns):
        short = letter(number, len(campaigns))
        page.section(f"Environment of {short}" if short else "Environment", folded=True)
        write_environment(page, campaign, defaults)
        page.heading("Records")
        page.line(str(campaign.records))
        if campaign.truncated:
            page.line("The last line of the records is incomplete and was ignored.", "yellow")
