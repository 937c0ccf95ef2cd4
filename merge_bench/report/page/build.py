"""Campaigns → the report as data: its sections in the order in which they are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import msgspec

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import UNVERIFIED
from merge_bench.analysis.comparable_runs import OF_A_PROCESS, join_values_by_name, result_letter
from merge_bench.analysis.compare import METRIC, compare_campaigns
from merge_bench.analysis.documents import CompareDocument, command_metric_summaries
from merge_bench.analysis.published import PublishedMergeResult, PublishedSettingEffect
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared import RowQuantity, placement_text
from merge_bench.probe.shared.stored_rows import rows_with_campaigns, table_quantities_of_row
from merge_bench.probe.view.charts import make_panels_with_sources
from merge_bench.probe.view.show import write_row_tables
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.records.schema import Worker
from merge_bench.report import run_sections as sections
from merge_bench.report.command_sections import metric_median_text, write_command_runs_table
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.report.page.results import (
    ReportedRun,
    group_runs_by_problem,
    make_reported_runs,
    write_command_results,
    write_exchange_comparison,
    write_merge_results,
)
from merge_bench.report.run import (
    headline_sentence,
    main_metric_name,
    write_conclusion,
    write_run_details,
    write_runs_table,
    write_verdicts,
)
from merge_bench.tune import view as tuning
from merge_bench.tune.result import ended_tuning_result_of
from merge_bench.units import count_with_noun
from merge_bench.view import comparison, titles
from merge_bench.view.content import Column, PageBuilder, ReportContent, columns_from_rows, group_by_key
from merge_bench.view.plot import Chart, merge
from merge_bench.view.text import NULL, capitalize, format_cell, format_gib, format_with_binary_prefix, uncapitalize
from merge_bench.view.text import format_number as rounded

MOST_RUNS = 24
"""Runs that get a section of their own, at most."""

_MOST_UNFOLDED = 3
"""Comparisons in detail are folded if there are more than this."""


@dataclass(frozen=True)
class PublishedReferences:
    """Published results that a report shows beside the measured ones."""

    merges: tuple[PublishedMergeResult, ...] = ()
    settings: tuple[PublishedSettingEffect, ...] = ()
    rows: tuple[ProbeRow, ...] = ()


def build_report(
    campaigns: Sequence[Campaign], published: PublishedReferences, ucx_defaults: Mapping[str, str] | None
) -> ReportContent:
    """Build the report of `campaigns`: the conclusion first, then the figures, then runs, commands and environments.

    `published`: results to show beside the measured ones; `ucx_defaults`: the default settings of the UCX of the
    campaigns, if known.
    """
    page = PageBuilder(whole=True)
    merge_campaigns = [campaign for campaign in campaigns if not _is_probe(campaign)]
    probes = [campaign for campaign in campaigns if _is_probe(campaign)]
    campaigns = [*merge_campaigns, *probes]  # the merges first, so that each result has one letter everywhere
    page.source = titles.result_source_lines(merge_campaigns, campaigns)
    reported_runs = make_reported_runs(merge_campaigns)
    letters = _result_letters(campaigns)
    rows = rows_with_campaigns(probes, letters[len(merge_campaigns) :] if len(campaigns) > 1 else ()) if probes else []
    state, alarm = _verification_sentence(reported_runs, probes, bool(rows))
    network_charts = make_panels_with_sources(rows, published.rows, campaigns) if rows else ()
    both = [*(row for _, row in rows), *published.rows]
    _write_conclusion(page, campaigns, merge_campaigns, reported_runs, both, network_charts)
    for campaign in merge_campaigns:
        if titles.is_tuning_campaign(campaign):
            page.source = titles.result_source_lines([campaign], campaigns)
            tuning.write_tuning_section(page, campaign)
    page.source = titles.result_source_lines(merge_campaigns, campaigns)
    if reported_runs:
        page.start_section("Results")
        if len(campaigns) == 1 and titles.is_tuning_campaign(
            merge_campaigns[0]
        ):  # of several results the conclusion has it
            _write_tables_of_runs(page, reported_runs)
        of_merges = [source for source in reported_runs if source.run.plan.command is None]
        if published.merges or any(source.launch_values(merge.THROUGHPUT) for source in of_merges):
            write_merge_results(page, of_merges, published.merges, campaigns)
        write_command_results(page, [source for source in reported_runs if source not in of_merges], campaigns)
        _write_comparisons(page, merge_campaigns, reported_runs)
    if published.settings:
        page.source = ""  # of others, as its title and its lines say
        tuning.write_published_effects(page, published.settings)
    if probes:
        _write_network_section(page, both, network_charts, any_measured=bool(rows))
        write_exchange_comparison(page, reported_runs, probes)
    _write_failures(page, campaigns)
    _write_all_warnings(page, campaigns, reported_runs)
    _write_run_sections(page, reported_runs, campaigns)
    _write_repeat_commands(page, campaigns)
    _write_environments(page, campaigns, ucx_defaults)
    more = len(campaigns) - 1
    title = campaign_titles(campaigns)[0] + (f", and {count_with_noun(more, 'more result')}" if more else "")
    shown = tuple(section for section in page.sections if section.blocks)
    of_commands = all(campaign.command is not None for campaign in campaigns)
    report = ReportContent(title, _date_and_hosts_line(campaigns), state, alarm, shown, of_commands=of_commands)
    if alarm:
        return report
    results = [
        (at, ended_tuning_result_of(each)) for at, each in enumerate(campaigns) if titles.is_tuning_campaign(each)
    ]
    if rows and not reported_runs and (best := _network_headline([row for _, row in rows if not row.wrong])):
        return replace(report, state=best, verified=state)
    if not results:
        sentence, decided = headline_sentence([source.document for source in reported_runs], merge_campaigns)
        return replace(report, state=sentence, verified=state, decided=decided) if sentence else report
    outcomes = (": ".join(filter(None, (letters[at], result.outcome_heading))) for at, result in results)
    decided = all(result.winner is not None for _, result in results)
    return replace(report, state=". ".join(outcomes), verified=state, decided=decided)


def _is_probe(campaign: Campaign) -> bool:
    return campaign.probe is not None or any(
        launch.probes and not launch.timed_iterations for launch in campaign.launches
    )


def _result_letters(campaigns: Sequence[Campaign]) -> list[str]:
    """The letters of the results of a report; the letter of a single result is empty."""
    return [result_letter(at, len(campaigns)) or "" for at in range(len(campaigns))]


def campaign_titles(campaigns: Sequence[Campaign]) -> list[str]:
    """A title for each campaign: its configs, what it merged, and by how many workers."""
    measured = [{run.plan_index for run in campaign.runs if aggregate.complete_launches(run)} for campaign in campaigns]
    return [
        titles.title_of_campaign(one.head, one.plans, sizes) for one, sizes in zip(campaigns, measured, strict=True)
    ]


def _date_and_hosts_line(campaigns: Sequence[Campaign]) -> str:
    """A line with the dates and hosts of campaigns, and the versions of UCX and merge_bench."""
    dates = [titles.date_text(time) for time in sorted(campaign.head.time for campaign in campaigns)]
    hosts = titles.join_names_in_words(
        dict.fromkeys(host for campaign in campaigns if (host := titles.campaign_hosts_text(campaign)))
    )
    parts = [
        " to ".join(dict.fromkeys((dates[0], dates[-1]))) if len(dates) < 3 else f"{len(dates)} results",
        f"on {hosts}" if hosts else "",
        titles.join_names_in_words(
            dict.fromkeys(ucx for campaign in campaigns if (ucx := titles.campaign_ucx_versions_text(campaign)))
        ),
        f"merge_bench {titles.join_names_in_words(dict.fromkeys(campaign.head.version for campaign in campaigns))}",
        campaigns[0].head.campaign_id if len(campaigns) == 1 else "",
    ]
    return " · ".join(filter(None, parts))


def _verification_sentence(
    reported_runs: Sequence[ReportedRun], probe_campaigns: Sequence[Campaign], network_measured: bool
) -> tuple[str, bool]:
    """A sentence that says whether the results are verified, and whether the sentence is an alarm.

    `network_measured`: whether the `probe_campaigns` measured anything.
    """
    marks = {source.name: source.label[len(source.name) :].strip(" ()") for source in reported_runs}
    wrong = [name for name, mark in marks.items() if mark.startswith("WRONG")]
    measured = {source.name for source in reported_runs if aggregate.complete_launches(source.run)}
    loose = [name for name, mark in marks.items() if mark and name in measured and name not in wrong]
    broken = [source.document.error.message for source in reported_runs if source.document.error]
    sentences = [f"WRONG RESULT: {', '.join(wrong)}; do not use these numbers"] if wrong else []
    sentences += [f"UNVERIFIED: {', '.join(loose)}"] if loose else []
    sentences += [f"Incomplete: {message}" for message in dict.fromkeys(broken)] if not wrong else []
    if sentences:
        return ". ".join(sentences), True
    if not measured and not network_measured:
        return "Nothing was measured", bool(probe_campaigns)
    if not measured:
        return f"Network measurements: {', '.join(str(one.probe) for one in probe_campaigns)}", False
    if all(source.run.plan.command is not None for source in reported_runs):
        return "Verified: every launch that counts ended as expected and passed its checks", False
    return "Verified: every check of the merge results was made and passed", False


def _write_conclusion(
    page: PageBuilder,
    campaigns: Sequence[Campaign],
    merge_campaigns: Sequence[Campaign],
    reported_runs: Sequence[ReportedRun],
    network_rows: Sequence[ProbeRow],
    network_charts: Sequence[Chart],
) -> None:
    """Put the section "Conclusion" on a page: what `run` printed, or the verdicts on several campaigns."""
    page.start_section("Conclusion")
    if len(campaigns) > 1:
        rows_of = []
        for letter, campaign, title in zip(
            _result_letters(campaigns), campaigns, campaign_titles(campaigns), strict=True
        ):
            parts = (title, titles.date_text(campaign.head.time), titles.campaign_hosts_text(campaign))
            rows_of.append((letter, " · ".join(filter(None, parts))))
        page.add_named_values(*rows_of)
    documents = [source.document for source in reported_runs]
    probed = [caution for campaign in campaigns if _is_probe(campaign) for caution in campaign.cautions]
    tunings = [campaign for campaign in merge_campaigns if titles.is_tuning_campaign(campaign)]
    for campaign in tunings:
        page.source = titles.result_source_lines([campaign], campaigns)
        tuning.write_recorded_tuning_outcome(page, campaign, next_step_after_recorded_tuning(campaign).note)
    page.source = titles.result_source_lines(merge_campaigns, campaigns)
    if len(campaigns) == 1 and merge_campaigns and not tunings:
        write_conclusion(page, merge_campaigns[0], documents, str(merge_campaigns[0].records), all_warnings=True)
    elif merge_campaigns:
        if len(merge_campaigns) > 1:
            write_verdicts(page, merge_campaigns, {source.name: source.style_index for source in reported_runs})
        if len(campaigns) > 1:
            _write_tables_of_runs(page, reported_runs, several_campaigns=True)
        sections.write_errors_and_warnings(page, documents, probed)
    if tunings and len(campaigns) == 1 and not (step := next_step_after_recorded_tuning(tunings[0])).reports:
        page.add_next_command(step.command, step.does)
    if not merge_campaigns:
        _write_best_network_values(page, network_rows)
        _write_charts(page, network_charts[:1])
        sections.write_warnings_by_kind(page, list(dict.fromkeys(probed)))


def _write_tables_of_runs(
    page: PageBuilder, reported_runs: Sequence[ReportedRun], *, several_campaigns: bool = False
) -> None:
    """Put a table of the runs of merges, and one of the runs of commands, on a page."""
    merges = [each for each in reported_runs if each.run.plan.command is None]
    if merges:
        write_runs_table(
            page,
            [each.document for each in merges],
            [each.name for each in merges],
            several_campaigns=several_campaigns,
        )
    if commands := [each.as_command_run for each in reported_runs if each.run.plan.command is not None]:
        write_command_runs_table(page, commands)


def _best_network_values(network_rows: Sequence[ProbeRow]) -> Iterator[tuple[RowQuantity, float, ProbeRow]]:
    """Yield the best median of each network test, config and placement in each quantity, with its row."""
    for series in group_by_key(network_rows, lambda row: (row.test, row.config, row.placement, row.source)).values():
        for measure in table_quantities_of_row(series[0]):
            values = [
                (ranges.median, row.size, row) for row in series if (ranges := measure.value_range(row)) is not None
            ]
            if values:
                value, _, row = (min if measure.less_is_better else max)(values, key=lambda each: each[:2])
                yield measure, value, row


def _network_headline(network_rows: Sequence[ProbeRow]) -> str:
    """A sentence with the best value of each network quantity, and its message size; empty without values."""
    parts = []
    for measure, best_values in group_by_key(_best_network_values(network_rows), lambda best: best[0]).items():
        _, value, row = (min if measure.less_is_better else max)(best_values, key=lambda best: best[1])
        word = "least" if measure.less_is_better else "highest"
        reached = ", ".join((row.test, row.config, placement_text(row.placement)))
        size = format_with_binary_prefix(row.size)
        parts.append(f"{word} {uncapitalize(measure.title)}: {rounded(value)} {measure.unit} at {size} ({reached})")
    return capitalize("; ".join(parts))


def _write_best_network_values(page: PageBuilder, network_rows: Sequence[ProbeRow]) -> None:
    """Put a table on a page: the best value of each network test, config and placement, and its message size."""
    cells = [
        (
            *(row.test, row.config, placement_text(row.placement), f"{measure.title} ({measure.unit})"),
            *(rounded(value), format_with_binary_prefix(row.size), row.source or "measured"),
        )
        for measure, value, row in _best_network_values(network_rows)
    ]
    if cells:
        headings = ("Test", "Config", "Placement", "What", "Best median", "At message size", "From")
        columns = columns_from_rows(headings, cells, (0, 1, 2, 3, 6))
        page.add_table(*(columns if any(row.source for row in network_rows) else columns[:-1]))


def _write_comparisons(
    page: PageBuilder, merge_campaigns: Sequence[Campaign], reported_runs: Sequence[ReportedRun]
) -> None:
    """Put comparisons of configs, within each campaign and between campaigns, on a page, or why nothing is compared."""
    alone = [
        [campaign] for campaign in merge_campaigns if len(campaign.runs) > 1 and not titles.is_tuning_campaign(campaign)
    ]
    together = len(merge_campaigns) > 1
    for group in [list(merge_campaigns)] if together else alone:
        page.start_section("Comparison")
        try:
            document = compare_campaigns(group)
        except MergeBenchError as reason:
            page.add_paragraph(f"Not compared: {str(reason).removeprefix('not comparable: ')}", "yellow")
        else:
            _write_comparison(
                page, document, {source.name: source.style_index for source in reported_runs}, main_metric_name(group)
            )
            return
    for group in alone if together else ():
        own_sources = [source for source in reported_runs if source.campaign is group[0]]
        try:
            document = compare_campaigns(group)
        except MergeBenchError:
            continue  # the reason stands above
        page.start_section(f"Comparison within {own_sources[0].part}")
        style_by_label = dict(zip(group[0].run_labels, (source.style_index for source in own_sources), strict=True))
        _write_comparison(page, document, style_by_label, main_metric_name(group))


def _write_comparison(
    page: PageBuilder, document: CompareDocument, style_by_label: Mapping[str, int], metric_name: str
) -> None:
    mark = None if document.verified else UNVERIFIED
    page.add_chart(merge.speedup_chart(document, metric_name, style_by_label))
    chosen = [pair for pair, _ in comparison.comparisons_by_candidate(document, metric_name)]
    pairs = Column(
        capitalize(metric_name) if metric_name == METRIC else metric_name,
        [comparison.title_of_comparison(each) for each in chosen],
        text=True,
    )
    page.add_table(pairs, *comparison.verdict_columns(chosen), row_mark=mark)
    for note in document.notes:
        page.add_paragraph(note, "dim")
    page.start_section("Comparison in detail", folded=len(chosen) > _MOST_UNFOLDED, nested=True)
    comparison.write_comparisons(page, document, metric_name)


def _write_network_section(
    page: PageBuilder, network_rows: Sequence[ProbeRow], network_charts: Sequence[Chart], *, any_measured: bool
) -> None:
    page.start_section("Network")
    if not any_measured:
        page.add_paragraph("Nothing was measured.", "bold red")
        return
    configs = list(dict.fromkeys(row.config for row in network_rows if row.source is None))
    _write_charts(page, network_charts)
    write_row_tables(page, network_rows, baseline=configs[0] if len(configs) > 1 else None)


def _write_charts(page: PageBuilder, charts: Sequence[Chart]) -> None:
    for panel in charts:
        page.source = panel.source
        page.add_chart(panel)


def _write_run_sections(page: PageBuilder, reported_runs: Sequence[ReportedRun], campaigns: Sequence[Campaign]) -> None:
    """Put a folded section for each run on a page; of more than `MOST_RUNS` only for the confirmed and first runs."""
    confirmed = {step.config for source in reported_runs for step in source.campaign.tuning if step.phase == "confirm"}
    first = [source for source in reported_runs if source.run.config.name in confirmed]
    chosen = [*first, *(source for source in reported_runs if source not in first)][:MOST_RUNS]
    problems = {source: name for name, alike in group_runs_by_problem(reported_runs).items() for source in alike}
    if not reported_runs:
        return
    page.start_section("Every run")
    what = "Workers, pairs of workers, transports, iterations and checks of each run"
    if all(source.run.plan.command is not None for source in reported_runs):
        what = "Launches, checks and settings of each run"
    page.add_paragraph(f"{what}; open one to see them.", "dim")
    if len(chosen) < len(reported_runs):
        left = len(reported_runs) - len(chosen)
        page.add_paragraph(f"{left} more runs have no separate section; the tables above contain their numbers.", "dim")
    for source in reported_runs:
        if source in chosen:
            document = source.document
            rate = document.throughput_bytes_per_second.median
            notes = [f"{format_gib(rate)} GiB/s"] if rate is not None else []
            notes += [f"limited by {document.bottleneck.what}"] if document.bottleneck else []
            notes += [metric_median_text(figure) for figure in command_metric_summaries(document)[:1]]
            title = source.label + (f": {problems[source]}" if len(set(problems.values())) > 1 else "")
            page.start_section(title, folded=True, note=", ".join(notes), nested=True)
            page.source = titles.result_source_lines([source.campaign], campaigns)
            write_run_details(page, source.campaign, source.run, source.document)


def _write_repeat_commands(page: PageBuilder, campaigns: Sequence[Campaign]) -> None:
    page.start_section("How to repeat the measurement")
    for letter, campaign in zip(_result_letters(campaigns), campaigns, strict=True):
        if letter:
            page.add_paragraph(f"{letter}: {campaign.head.campaign_id}")
        _write_repeat_command(page, campaign)


def _write_failures(page: PageBuilder, campaigns: Sequence[Campaign]) -> None:
    page.start_section("Failures")
    for campaign in campaigns:
        name = campaign.head.campaign_id if len(campaigns) > 1 else None
        for failure in [
            *campaign.failures,
            *(each for launch in campaign.launches_not_replaced for each in launch.failures),
        ]:
            where = ", ".join(filter(None, (name, titles.failure_location_text(failure, campaign))))
            page.add_paragraph(f"{failure.code}: {failure.message}" + (f" ({where})" if where else ""), "bold red")
            if failure.log_tail:
                page.add_code_block(failure.log_tail)
            if logs := titles.failure_logs_path(failure, campaign):
                page.add_paragraph(f"Logs: {logs}")


def _write_all_warnings(page: PageBuilder, campaigns: Sequence[Campaign], reported_runs: Sequence[ReportedRun]) -> None:
    """Put a folded section with all warnings on a page, if the conclusion shows only some of them."""
    cautions = [caution for source in reported_runs for caution in source.document.warnings]
    cautions += [caution for campaign in campaigns if _is_probe(campaign) for caution in campaign.cautions]
    distinct = dict.fromkeys(cautions)
    if sections.omits_warnings(list(distinct)):
        page.start_section(sections.ALL_WARNINGS, folded=True, note=count_with_noun(len(distinct), "warning"))
        page.add_warnings(distinct, heading="")


def _write_environments(
    page: PageBuilder, campaigns: Sequence[Campaign], ucx_defaults: Mapping[str, str] | None
) -> None:
    for letter, campaign in zip(_result_letters(campaigns), campaigns, strict=True):
        page.start_section(f"Environment of {letter}" if letter else "Environment", folded=True)
        _write_environment(page, campaign, ucx_defaults)
        page.add_heading("Records")
        page.add_paragraph(str(campaign.records))
        if campaign.truncated:
            page.add_paragraph("The last line of the records is incomplete and was ignored.", "yellow")


def shell_command_line(argv: Sequence[str]) -> str:
    """Quote `argv` as a command line for a shell; merge_bench is called as ``python -m merge_bench``."""
    program, *words = argv or ("",)
    if PurePath(program).name in ("__main__.py", "merge-bench"):
        return shlex.join(["python", "-m", "merge_bench", *words])
    return shlex.join([PurePath(program).name, *words])


def _write_repeat_command(page: PageBuilder, campaign: Campaign) -> None:
    """Put the command that repeats a campaign, and the version of merge_bench that it ran with, on a page."""
    imported = campaign.head.imported_from
    if imported is not None:
        page.add_paragraph(f"Imported from {imported.file}, which {imported.program} printed.")
        page.add_code_block(imported.command or "the imported text does not contain the command line")
        return
    words = list(campaign.head.argv)
    if campaign.extensions and "--extend" in words:  # what adds launches does not measure it again
        del words[(at := words.index("--extend")) : at + 2]
    words = [word for word in words if not word.startswith("--extend=")]
    page.add_code_block(shell_command_line(words))
    git = campaign.head.git
    commit = (git and git.commit) or "not known"
    changed = ", with local changes" if git and git.dirty else ""
    page.add_paragraph(f"merge_bench {campaign.head.version}, commit {commit}{changed}.", "dim")


def _write_environment(page: PageBuilder, campaign: Campaign, ucx_defaults: Mapping[str, str] | None) -> None:
    """Put hosts, packages, UCX settings and configs of a campaign on a page; `ucx_defaults`: of the settings."""
    # Every worker of every launch. Launches on the same hosts record the same values, so sets of values stay small.
    workers = titles.recorded_workers(campaign.launches)
    if workers:
        _write_hosts(page, workers)
        _write_devices(page, workers)
        page.add_heading("Packages")
        page.add_named_values(*sorted(join_values_by_name(worker.versions for worker in workers).items()))
        _write_ucx_settings(page, workers, ucx_defaults)
    else:
        page.add_paragraph(
            "The records do not describe the machine: no launch started, or the result was imported.", "dim"
        )
    _write_configs(page, campaign)


def _write_hosts(page: PageBuilder, workers: Sequence[Worker]) -> None:
    hosts = group_by_key(workers, lambda worker: worker.host)
    page.add_heading("Hosts")
    rows = []
    for host, workers_here in hosts.items():
        ranks, hardware = sorted({worker.rank for worker in workers_here}), workers_here[0].hardware
        complete = len(ranks) > 2 and ranks[-1] - ranks[0] + 1 == len(ranks)
        listed_ranks = f"{ranks[0]} to {ranks[-1]}" if complete else ", ".join(map(str, ranks))
        counts = map(format_cell, (hardware.cpu_model, hardware.cores_online, hardware.numa_nodes))
        settings = map(format_cell, (hardware.kernel, hardware.huge_pages, hardware.tcp_congestion_control))
        rows.append((host, listed_ranks, *counts, format_gib(hardware.memory_bytes), *settings))
    headings = ("Host", "Ranks", "Processor", "Cores", "NUMA nodes", "Memory\n(GiB)", "Kernel", "Huge pages", "TCP")
    page.add_table(*columns_from_rows(headings, rows, (0, 1, 2, 6, 7, 8)))


def _write_devices(page: PageBuilder, workers: Sequence[Worker]) -> None:
    rows: dict[tuple[str, str, str], None] = {}
    for worker in workers:
        hardware = worker.hardware
        for name, about in (hardware.interfaces or {}).items():
            if about.up:
                speed = about.megabits_per_second
                rate = f"{speed:,} Mbit/s" if speed is not None else "speed not known"
                rows[worker.host, f"network {name}", f"{rate}, MTU {about.mtu}"] = None
        for name in hardware.infiniband or ():
            rows[worker.host, "InfiniBand", name] = None
        for gpu in hardware.gpus or ():
            rows[worker.host, "GPU", _known_values_text(msgspec.to_builtins(gpu))] = None
    if rows:
        page.add_heading("Devices")
        page.add_table(*columns_from_rows(("Host", "Device", "Description"), rows, range(3)))


def _write_ucx_settings(page: PageBuilder, workers: Sequence[Worker], ucx_defaults: Mapping[str, str] | None) -> None:
    ucx = [worker.ucx for worker in workers]
    about = join_values_by_name({"version": each.version, "origin": each.origin, "path": each.path} for each in ucx)
    settings = join_values_by_name(each.config for each in ucx)
    if about:
        page.add_heading("UCX")
        page.add_named_values(*about.items())
    if not settings:
        return
    environment = join_values_by_name(worker.environment for worker in workers)
    if ucx_defaults is not None:
        shown = {name for name in settings if settings[name] != ucx_defaults.get(name)} - set(OF_A_PROCESS)
        page.add_heading("UCX settings that differ from the defaults")
    else:
        shown = {name for name, value in settings.items() if name in environment or " / " in value}
        page.add_heading("UCX settings that the environment sets or that differ between workers")
        page.add_paragraph("The defaults are unknown: this machine has no UCX of that version.", "dim")
    absent = NULL if ucx_defaults else ""
    rows = [(name, value, (ucx_defaults or {}).get(name, absent)) for name, value in settings.items() if name in shown]
    page.add_table(*columns_from_rows(("Setting", "Value", "Default"), rows, range(3)))
    if not shown:
        page.add_paragraph("None.")
    page.add_paragraph(
        f"The records contain all {len(settings)} settings; a / separates values of different workers.", "dim"
    )


def _write_configs(page: PageBuilder, campaign: Campaign) -> None:
    page.add_heading("Configs")
    for config in (*campaign.head.configs, *(line.config for line in campaign.added)):
        page.add_paragraph(f"{config.name}" + (f" ({config.path})" if config.path else ""))
        if config.variables:
            page.add_code_block("\n".join(f"{name}={shlex.quote(value)}" for name, value in config.variables.items()))


def _known_values_text(values: Mapping[str, object]) -> str:
    """The known values with their names, as text: ``index 0, name H200, nvlink bus 2 4``."""
    texts = {name: _known_values_text(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return ", ".join(f"{name} {value}" for name, value in texts.items() if value is not None)
