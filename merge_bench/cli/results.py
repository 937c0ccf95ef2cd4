"""The commands about stored results: results, show, compare, history, predict, import, export, report, dashboard."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merge_bench.campaign import importers
from merge_bench.cli import common
from merge_bench.config import parsers
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.errors import RunFailed, UsageError, print_message, require_library
from merge_bench.view import export as exports

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign
    from merge_bench.report.page.build import PublishedReferences
    from merge_bench.view.plot import Chart

RESULTS = click.argument("results", nargs=-1, type=common.RESULT, required=True, metavar="RESULT...")
_METRICS = "throughput, bandwidth, wall, partition, exchange or join, or a command's own"
_MAIN_METRIC = "[default: throughput, or the first metric of a command]"
_ROWS = common.ParsedValue("ROWS", parsers.count_parser(1))


@click.command("compare", context_settings=common.CONTEXT)
@RESULTS
@common.percent_option("--threshold", "2%", "Ignore differences below this.")
@common.text_option("--metric", "NAME", f"Metric for --fail-on and for the conclusions: {_METRICS}. {_MAIN_METRIC}")
@common.add_options("options", RunOptions, (BY_KEY["fail_on"], BY_KEY["allow_no_baseline"]))
@common.flag_option("--anyway", "Compare even if hosts, workloads or UCX versions differ.")
@common.flag_option("--markdown", "Print the comparison as Markdown.")
@common.json_option()
def compare_results(
    results: Sequence[str],
    threshold: float,
    metric: str | None,
    options: RunOptions,
    anyway: bool,
    markdown: bool,
    as_json: bool,
) -> int:
    """Compare candidates with a baseline: is each faster, slower or equivalent?

    If a verdict needs more launches, the output says how many.

    A RESULT is a campaign folder, its name in results/, or its records.jsonl. With one RESULT, the baseline is its
    first config. With several RESULTs, the baseline is the first RESULT. Network measurements are shown side by side,
    without a verdict.
    """
    from merge_bench.analysis.comparable_runs import NotComparable
    from merge_bench.analysis.compare import common_metrics, compare_campaigns
    from merge_bench.records.reader import read_campaign
    from merge_bench.regressions.gates import apply_gates, compare_for_gates, gate_summary
    from merge_bench.view.streams import print_document

    if markdown and as_json:
        raise UsageError("--markdown and --json cannot be combined")
    campaigns = [read_campaign(result) for result in results]
    if all(campaign.probe for campaign in campaigns) and not options.fail_on and not markdown:
        from merge_bench.cli.probe import compare_probe_campaigns

        return compare_probe_campaigns(campaigns, as_json=as_json)
    metric_names = [each.name for each in common_metrics(run for campaign in campaigns for run in campaign.runs)]
    metric = metric or metric_names[0]
    if metric not in metric_names:
        raise UsageError(f"metric {metric!r} is none of {', '.join(metric_names)}")
    compared = functools.partial(compare_campaigns, campaigns, threshold=threshold, allow_incomparable=anyway)
    try:
        document = compare_for_gates(options.fail_on, compared, threshold=threshold)
    except NotComparable as why:
        raise UsageError(f"{why}; use --anyway to compare them nevertheless") from None
    measured = {each.pair for each in document.comparisons if each.metric == metric}
    pairs = {each.pair for each in document.comparisons}
    if measured < pairs and (options.fail_on or not measured):
        raise UsageError(f"--metric {metric} cannot be compared: {'; '.join(document.notes)}")
    document, status = apply_gates(
        document, metric_name=metric, fail_on=options.fail_on, allow_no_baseline=options.allow_no_baseline
    )
    if as_json:
        print_document(document)
    elif markdown:
        from merge_bench.view.comparison import comparison_as_markdown as render

        print(render(document, metric=metric))
    else:
        from merge_bench.report.next_step import report_command_step
        from merge_bench.view.comparison import print_comparison

        gates = gate_summary(document, metric_name=metric, fail_on=options.fail_on)
        print_comparison(
            document,
            metric=metric,
            next_command=report_command_step(*campaigns).with_program_as_typed(),
            gate_text=gates,
        )
    if document.error is not None:
        print_message(document.error.message)
    return status


@click.command("history", context_settings=common.CONTEXT)
@click.argument("folders", nargs=-1, type=common.PATH, metavar="[FOLDER...]")
@common.results_option("Folder of the results, if no FOLDER is given.")
@common.text_option("--metric", "NAME", f"Metric whose level is looked at: {_METRICS}. {_MAIN_METRIC}")
@common.text_option("--config", "NAME", "Only results of this config.")
@common.text_option("--command", "TEXT", "Only commands that contain this text.")
@common.text_option("--chunk", "ROWS", "Only merges of so many rows per chunk.", type=_ROWS)
@common.count_option("--workers", "W", "Only merges by so many workers.")
@common.count_option("--hosts", "N", "Only merges on so many hosts.")
@common.text_option("--engine", "NAME", "Only merges by this engine.")
@common.text_option("--exchange", "NAME", "Only merges with this exchange.")
@common.percent_option("--threshold", "2%", "Ignore shifts below this.")
@common.flag_option("--details", "Print every result, and everything that differs across a shift.")
@common.text_option(
    "--accept",
    "REASON",
    "Accept a loss: from now on, --against history compares with the level that one series has now. Who and why is kept"
    " in accepted.jsonl in the results folder.",
)
@common.text_option("--by", "NAME", "Who accepts. [default: the user's name]")
@common.plot_option("each series with its levels")
@common.json_option()
def show_history(
    folders: Sequence[str],
    results: str,
    details: bool,
    accept: str | None,
    by: str | None,
    plots: Sequence[str],
    as_json: bool,
    **selection: Any,
) -> int:
    """Show when the level of repeated merges or commands changed, and what differs since then.

    A FOLDER is a results folder. All results in it of the same problem, or command, and config are one series. A shift
    is found by results that came after it, so that one bad night is none.
    """
    from merge_bench.regressions.document import accept_level
    from merge_bench.regressions.document import load_history as history_of
    from merge_bench.regressions.view import history_charts, print_history

    make = functools.partial(history_of, folders or (results,), **selection)
    show = None if as_json else functools.partial(print_history, details=details)
    if accept is not None:
        accept_level(make(), accepted_by=by, reason=accept)
    elif by is not None:
        raise UsageError("--by needs --accept REASON")
    return _show_document(make, show, history_charts, plots)


def _show_document(
    make_document: Callable[[], Any],
    print_as_text: Callable[[Any], None] | None,
    make_charts: Callable[[Any], Sequence[Chart]],
    plots: Sequence[str],
    campaigns: Sequence[Campaign] = (),
) -> int:
    """Make a document, draw its charts, and print it; returns the exit status.

    `print_as_text`: prints the document as text; None: as JSON.
    """
    from msgspec.structs import replace

    from merge_bench.analysis.documents import Failure
    from merge_bench.view.plot.draw import check_plot_files, draw_charts_into_file, write_files_and_list_failures
    from merge_bench.view.streams import print_document

    files = check_plot_files(list(dict.fromkeys(plots)))
    document = make_document()
    problems = write_files_and_list_failures(
        dict.fromkeys(files, lambda file: draw_charts_into_file(make_charts(document), file, campaigns))
    )
    if problems:
        document = replace(document, error=Failure(RunFailed.code, "; ".join(problems)))
    (print_as_text or print_document)(document)
    for problem in problems:
        print_message(problem)
    return RunFailed.exit_status if problems else 0


@click.command("predict", context_settings=common.CONTEXT)
@RESULTS
@common.count_option("--workers", "W", "Number of workers to forecast for.", required=True)
@common.count_option(
    "--hosts", "N", "Number of hosts that the workers are spread over; by default those of the RESULTs."
)
@common.text_option("--chunk", "ROWS", "Rows per worker in each input frame. [default: as in the RESULTs]", type=_ROWS)
@common.text_option("--config", "NAME", "Use only results of this config; required if the RESULTs have more than one.")
@common.text_option(
    "--what-if",
    "NAME=4x[,...]",
    "Forecast with changes, such as nic=4x (links four times as fast), cores=64 (of a host), overlap=0.9 or gpu=h200."
    " docs/predict.md lists all.",
    multiple=True,
)
@common.text_option(
    "--link links",
    "NAME=RATE[,LATENCY]",
    "Replace the measured rate and latency of a link, for example nic=12.5GB/s,2us (between hosts) or local=20GB/s"
    " (within a host); may be repeated.",
    multiple=True,
)
@common.plot_option("the forecast scaling")
@common.json_option()
def predict_merge(results: tuple[str, ...], plots: Sequence[str], as_json: bool, **forecast: Any) -> int:
    """Forecast a merge on W workers and N hosts, from RESULTs of `run` and `probe p2p` on smaller clusters.

    A RESULT is a campaign folder, its name in results/, or its records.jsonl. The output shows what limits the merge,
    how certain the numbers are, and what is unknown.
    """
    from merge_bench.forecast.document import predict as predict_from
    from merge_bench.forecast.view import forecast_charts, print_forecast
    from merge_bench.records.reader import read_campaign

    campaigns = [read_campaign(result) for result in results]
    show = None if as_json else print_forecast
    return _show_document(lambda: predict_from(campaigns, **forecast), show, forecast_charts, plots, campaigns)


@click.command("import", context_settings=common.CONTEXT)
@click.argument("file", type=common.PATH, metavar="FILE")
@common.results_option("Folder that campaigns are written to.")
@common.choice_option("--format", [importers.AUTO, *importers.importers()], importers.format_option_help())
@common.json_option("Print one JSON document on standard output, like `show --json`.")
def import_output(file: str, results: str, format: str, as_json: bool) -> int:
    """Convert FILE, the output of another benchmark, into a result.

    The format is recognised. The result is marked as unverified.
    """
    from merge_bench.campaign.importing import import_file
    from merge_bench.records.reader import read_campaign

    campaign = read_campaign(import_file(Path(file), Path(results), sys.argv, format=format))
    return _show_campaign(campaign, as_json=as_json, details=False)


@click.command("export", context_settings=common.CONTEXT)
@RESULTS
@common.choice_option("--format", list(exports.exporters()), exports.export_formats_help())
@common.path_option("--output", "FILE", "File to write; by default standard output, for formats that are text.")
def export_results(results: tuple[str, ...], format: str, output: str | None) -> None:
    """Write RESULTS in a format that other programs read.

    A RESULT is a campaign folder, its name in results/, or its records.jsonl: of merges, a network measurement, a
    tuning, or an import.
    """
    from merge_bench.config.files import check_output_file, replace_file
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.streams import write_standard_output

    exporter = exports.exporters()[format]
    if output is None and exporter.binary:
        raise UsageError(f"--format {format} is not text; name a file with --output FILE")
    if output is not None:
        check_output_file("--output", Path(output))
    contents = exporter.encode([read_campaign(result) for result in dict.fromkeys(results)])
    if output is None:
        write_standard_output(contents)
        return
    with replace_file(Path(output)) as stream:
        stream.write(contents)
    print(output)


@click.command("report", context_settings=common.CONTEXT)
@click.argument("results", nargs=-1, type=common.RESULT, metavar="RESULT...")
@common.path_option(
    "--output", "FILE.html", "File to write the page to; by default report.html in the folder of the first RESULT."
)
@common.path_option("--markdown", "FILE.md", "Also write the report as Markdown.")
@common.path_option("--figures", "FOLDER", "Also write every plot as PNG and SVG.")
@common.text_option(
    "--reference references",
    "NAME",
    "Published results to show beside the measured ones; may be repeated; `--reference list` prints their names.",
    multiple=True,
)
def write_html_report(
    results: tuple[str, ...], references: Sequence[str], output: str | None, markdown: str | None, figures: str | None
) -> int:
    """Write an HTML report about RESULTs; the page is one file and needs no network.

    A RESULT is a campaign folder, its name in results/, or its records.jsonl.
    """
    from merge_bench.records.reader import read_campaign
    from merge_bench.report.page import (
        REPORT,
        ReportPaths,
        check_report_files,
        read_ucx_defaults,
        refuse_repeated_campaigns,
        write_report,
    )

    if "list" in references:
        _print_reference_list()
        return 0
    if not results:
        raise UsageError("no RESULT given; give the path of a campaign folder or of its records.jsonl")
    campaigns = [read_campaign(result) for result in results]
    refuse_repeated_campaigns(campaigns)
    page = Path(output) if output else campaigns[0].folder / REPORT
    outputs = ReportPaths(page, Path(markdown) if markdown else None, Path(figures) if figures else None)
    check_report_files(outputs, campaigns)
    published = _read_published_references(references)
    if sys.stderr.isatty():  # a person waits some seconds for it
        print_message(f"writing {page} …")
    from merge_bench.report.page.build import build_report

    return write_report(build_report(campaigns, published, read_ucx_defaults(campaigns)), outputs)


def _read_published_references(names: Sequence[str]) -> PublishedReferences:
    """Read the published results with these names; raises UsageError for the name of a campaign."""
    from merge_bench.analysis import published
    from merge_bench.report.page.build import PublishedReferences

    kinds = {name: published.find_dataset(name).kind for name in names}
    for name, kind in kinds.items():
        if kind == published.CAMPAIGN:
            folder = published.campaign_folder(name)
            raise UsageError(f"--reference {name} is not possible; give {folder} as a RESULT instead")

    def read_references_of_kind(wanted_kind: str, read_rows: Any) -> tuple[Any, ...]:
        return tuple(row for name, kind in kinds.items() if kind == wanted_kind for row in read_rows(name))

    return PublishedReferences(
        read_references_of_kind(published.MERGE, published.merge_results),
        read_references_of_kind(published.SETTINGS, published.settings_effects),
        read_references_of_kind(published.NETWORK, published.network_rows),
    )


def _print_reference_list() -> None:
    from merge_bench.analysis.published import CAMPAIGN, datasets

    shown = {name: dataset for name, dataset in sorted(datasets().items()) if dataset.kind != CAMPAIGN}
    width = max(map(len, shown), default=0)
    for name, dataset in shown.items():
        print(f"{name:{width}}  {dataset.kind}: {dataset.title} ({dataset.cite})")


@click.command("results", context_settings=common.CONTEXT)
@click.argument("result", type=common.PATH, required=False, metavar="[RESULT]")
@common.results_option("Folder of the campaigns to list.")
@click.pass_context
def list_results(ctx: click.Context, /, result: str | None, results: str) -> int:
    """List the results of a folder, the newest last: when, what, whether it is verified, and its throughput.

    With a RESULT, show that one, as `show` does.
    """
    from merge_bench.report.campaign_figures import print_results_list

    if result is not None:
        result = parsers.find_stored_result(result, results)
        return int(ctx.invoke(show_result, result=result, details=False, as_json=False))
    print_results_list(Path(results))
    return 0


@click.command("show", context_settings=common.CONTEXT)
@click.argument("result", type=common.RESULT, metavar="RESULT")
@common.flag_option("--details", "Print every table before the conclusion.")
@common.json_option("Print the JSON document of the command that made it.")
def show_result(result: str, details: bool, as_json: bool) -> int:
    """Show a stored RESULT as the command that made it did: `run`, `tune`, a `probe` or `import`.

    A RESULT is a campaign folder, its name in results/, or its records.jsonl. Nothing is measured or written.
    """
    from merge_bench.records.reader import read_campaign

    return _show_campaign(read_campaign(result), as_json=as_json, details=details)


def _show_campaign(campaign: Campaign, *, as_json: bool, details: bool) -> int:
    """Print a campaign as the command that made it does; returns the exit status."""
    from merge_bench.cli.probe import show_probe_campaign
    from merge_bench.cli.tune import show_tuning
    from merge_bench.view.titles import is_tuning_campaign

    if campaign.probe:
        details = details or campaign.head.imported_from is not None
        return show_probe_campaign(campaign, as_json=as_json, details=details)
    printed = (show_tuning if is_tuning_campaign(campaign) else _show_merges)(
        campaign, as_json=as_json, details=details
    )
    common.print_failures(common.unrepeated_failures([campaign]), printed_texts=printed)
    return 0


def _show_merges(campaign: Campaign, *, as_json: bool, details: bool) -> Sequence[str]:
    """Print the runs of a campaign; returns the messages of errors that it printed on standard output."""
    from merge_bench.analysis.documents import run_documents
    from merge_bench.analysis.summary import summarize_campaign
    from merge_bench.report.run import print_campaign_report
    from merge_bench.view.streams import print_document

    document = summarize_campaign(campaign)
    if as_json:
        print_document(document)
        return ()
    print_campaign_report(campaign, document, details=details)
    return [one.error.message for one in run_documents(document) if one.error]


@click.command("dashboard", context_settings=common.CONTEXT)
@common.results_option("Folder of the campaigns to show.")
@common.port_option(5006)
@common.address_option("Address to listen on; by default only this machine can connect.")
@common.flag_option("--no-open", "Do not open a browser.")
@common.flag_option(
    "--allow-run",
    "Ask for a login with the token in RESULTS/.service/token before a run is started from the page. With --address,"
    " runs can be started only with this option.",
)
def serve_dashboard(results: str, port: int, address: str, no_open: bool, allow_run: bool) -> int:
    """Show results in a browser, follow running campaigns live, and start runs."""
    require_library("panel", "dashboard", "the dashboard")
    with contextlib.suppress(FileNotFoundError):  # the first run makes it
        os.scandir(results).close()
    from merge_bench.dashboard.app import make_dashboard_application
    from merge_bench.service.serve import DashboardUser, ServiceSettings, serve_until_signal

    person = DashboardUser(allow_run=allow_run, open_browser=not no_open)
    settings = ServiceSettings(Path(results), port, address, person=person)
    return serve_until_signal(settings, make_dashboard_application)
