"""The commands about results that are there: compared, forecast from, taken in, shown."""

from __future__ import annotations

import sys
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, results_option


@click.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option(
    "--threshold", default="2%", show_default=True, metavar="PERCENT", help="Smaller differences do not count."
)
@click.option(
    "--metric",
    type=click.Choice(["throughput", "bandwidth", "wall", "partition", "exchange", "join"]),
    default="throughput",
    show_default=True,
    help="Metric of --fail-on and of the conclusions.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["slower", "inconclusive", "not-faster"]),
    help="End with status 5 if any candidate has this verdict; may be repeated.",
)
@click.option("--anyway", is_flag=True, help="Compare even if hosts, problems or UCX versions differ.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def compare(results: tuple[str, ...], **asked: Any) -> None:
    """Tell whether candidates are faster than, slower than or equivalent to a baseline, or what is needed to know.

    A RESULT is a campaign's folder or its records. One: its configs against its first. Several: the others' runs
    against those of the first.
    """
    from merge_bench.cli.compare_command import compare_command

    sys.exit(compare_command(results, **asked))


@click.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option(
    "--workers", type=click.IntRange(1), required=True, metavar="W", help="Workers of the cluster to forecast."
)
@click.option(
    "--hosts",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="Number of hosts that the workers are spread over.",
)
@click.option(
    "--chunk", metavar="ROWS", help="Rows of each frame on each worker before the merge; by default as measured."
)
@click.option("--config", metavar="NAME", help="Which of the results' configs to use; required if there are several.")
@click.option(
    "--what-if",
    multiple=True,
    metavar="NAME=4x[,...]",
    help="nic, local, compute, partition, join, latency, spread times a factor; overlap=0.9; gpu=h200.",
)
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="NAME=RATE[,LATENCY]",
    help="Rate and latency of the link nic or local, as nic=12.5GB/s,2us, in place of measured ones; may be repeated.",
)
@click.option(
    "--plot",
    "plots",
    multiple=True,
    metavar="FILE",
    help="Plot the scaling into this .png, .svg or .html file; may be repeated.",
)
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def predict(results: tuple[str, ...], **asked: Any) -> None:
    """Forecast this merge on W workers of N hosts, from RESULTs of `run` and `probe p2p` on smaller clusters.

    A RESULT is a campaign's folder or its records. Says what limits the merge, how sure the numbers are, and what is
    not known.
    """
    from merge_bench.cli.predict_command import predict_command

    sys.exit(predict_command(results, **asked))


@click.command("import", context_settings=CONTEXT)
@click.argument("file", metavar="FILE")
@results_option("Folder that campaigns go to.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output, as run does.")
def import_(file: str, results: str, json_output: bool) -> None:
    """Make a result of FILE, the text that cudf-merge of 2022 or ucxx.benchmarks.cudf_merge printed; unverified."""
    from merge_bench.cli.run_command import import_command

    sys.exit(import_command(file, results=results, json_output=json_output))


@click.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, metavar="RESULT...")
@click.option("--output", metavar="FILE.html", help="The page; report.html in the first RESULT's folder by default.")
@click.option("--markdown", metavar="FILE.md", help="Also write the page as Markdown.")
@click.option("--figures", metavar="FOLDER", help="Also write every plot as PNG and SVG.")
@click.option("--reference", "references", multiple=True, metavar="NAME",
              help="Published results to show as well; may be repeated; `list` prints their names.")  # fmt: skip
def report(results: tuple[str, ...], references: tuple[str, ...], **outputs: str | None) -> None:
    """Make a page of RESULTs, campaigns' folders or their records.jsonl: one file that needs no network."""
    from merge_bench.cli.report_command import report_command

    sys.exit(report_command(results, references=references, **outputs))


@click.command(context_settings=CONTEXT)
@results_option("Folder of the campaigns to show.")
@click.option("--port", type=click.IntRange(0, 65535), default=5006, show_default=True, metavar="N", help="0: any.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on; by default only this machine can connect.",
)
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--allow-run", is_flag=True, help="Print a token with which runs can be started from the view.")
def dashboard(**values: Any) -> None:
    """Show results in a browser, live while a run goes on, and start runs from there."""
    from merge_bench.cli.run_command import dashboard_command

    sys.exit(dashboard_command(**values))
