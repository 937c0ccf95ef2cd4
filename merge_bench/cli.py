"""The commands. No logic: options in, a call, an exit status out; heavy imports happen inside the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from merge_bench import __version__
from merge_bench.config import values
from merge_bench.config.options import (
    CLUSTER_OPTIONS,
    PROBE_OPTIONS,
    TUNE_OPTIONS,
    Parsed,
    SectionedCommand,
    add_options,
    add_run_options,
)
from merge_bench.errors import MergeBenchError, UsageError

PERCENT = Parsed("PERCENT", values.percent)
DURATION = Parsed("DURATION", values.duration)
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class _DefaultRun(click.Group):
    """A group in which `run` is meant where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


class _AsTyped(click.Command):
    """A command that keeps its words as they were typed, as its context's object."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


@click.group(name="merge-bench", cls=_DefaultRun, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="merge_bench")
def cli() -> None:
    """Measures, explains and tunes distributed dataframe merges over UCX.

    Without a command it is `run`: a merge on a cluster that it launches on this machine.
    """


@cli.command(cls=SectionedCommand, context_settings=CONTEXT)
@add_run_options
def run(**values: Any) -> None:
    """Merge a left with a right distributed frame, prove the result right, and report how fast it was."""
    from merge_bench.commands import run_command

    sys.exit(run_command(values))


@cli.command(context_settings=CONTEXT)
@click.argument("config")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
@click.option("--ucx", type=click.Choice(["auto", "wheel", "system"]), default=None, help="Whose UCX to check against.")
def check(config: str, json_output: bool, ucx: str | None) -> None:
    """Say what the installed UCX makes of each setting of CONFIG, a file or the bare name of a shipped one."""
    from merge_bench.commands import check_command

    sys.exit(check_command(config, json_output=json_output, ucx=ucx))


@cli.command(cls=_AsTyped, context_settings={**CONTEXT, "ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG] [OPTION]...")
@click.option("--launcher", type=click.Choice(["slurm", "pbs"]), required=True, help="The batch system.")
@click.option("--nodes", type=click.IntRange(1), required=True, metavar="N", help="Nodes of the job.")
@click.option("--gpus-per-node", type=click.IntRange(0), default=0, metavar="G", help="GPUs of each; workers, too.")
@click.option("--cores-per-node", type=click.IntRange(1), metavar="C", help="Cores of each; 12 a GPU by default.")
@click.option("--time", required=True, metavar="MM:SS", help="Time limit, also HH:MM:SS.")
@click.option("--account", metavar="NAME", help="Whose account it is.")
@click.option("--queue", "--partition", "queue", metavar="NAME", help="The queue, or SLURM's partition.")
@click.option("--storage", metavar="WORD", help="File systems that the job needs (PBS).")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="A module to load; may be repeated.")
@click.option("--now", is_flag=True, help="Submit the job instead of printing it.")
@click.pass_obj
def submit(typed: list[str], /, words: tuple[str, ...], launcher: str, now: bool, **asked: Any) -> None:
    """Print, or with --now submit, a batch job that runs ./run-cluster.sh CONFIG (optimized.cfg).

    Options that are not listed here, and all after `--`, go to the merge: `submit … tcp.cfg --chunk 25e6`.
    """
    from merge_bench.commands import submit_command

    sys.exit(submit_command(launcher, words, typed=typed, now=now, asked=asked))


@cli.command(cls=SectionedCommand, context_settings=CONTEXT)
@add_options(CLUSTER_OPTIONS)
@click.option("--available", "show_available", is_flag=True, help="Also list what each host's UCX could use.")
def transports(show_available: bool, **values: Any) -> None:
    """Launch the cluster that `run` would, without a merge, and say which transports UCX selects between workers."""
    from merge_bench.commands import transports_command

    sys.exit(transports_command(values, show_available=show_available))


@cli.command(context_settings=CONTEXT)
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
@click.option("--strict", is_flag=True, help="End with status 5 if anything is bad.")
@click.option("--scheduler-address", metavar="ADDRESS", default=None, help="Look at each host of this running cluster.")
@click.option("--scheduler-file", metavar="PATH", default=None, help="The same, by the scheduler's file.")
def doctor(json_output: bool, strict: bool, scheduler_address: str | None, scheduler_file: str | None) -> None:
    """Say what on this host, or on each host of a running cluster, would spoil a run, and what helps."""
    from merge_bench.commands import doctor_command

    status = doctor_command(
        json_output=json_output, strict=strict, scheduler_address=scheduler_address, scheduler_file=scheduler_file
    )
    sys.exit(status)


@cli.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("--threshold", default="2%", show_default=True, metavar="PERCENT", help="A smaller difference is none.")
@click.option(
    "--metric",
    type=click.Choice(["throughput", "bandwidth", "wall", "partition", "exchange", "join"]),
    default="throughput",
    show_default=True,
    help="What --fail-on and the sentences are about.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(["slower", "inconclusive", "not-faster"]),
    help="End with status 5 if any candidate is; may be repeated.",
)
@click.option("--anyway", is_flag=True, help="Compare what is not comparable: other hosts, problems, UCX versions.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def compare(results: tuple[str, ...], **asked: Any) -> None:
    """Say whether candidates are faster, slower or equivalent to a baseline, or what it takes to know.

    A RESULT is a campaign's folder or its records. One: its configs against its first. Several: the others' runs
    against those of the first.
    """
    from merge_bench.comparing.command import compare_command

    sys.exit(compare_command(results, **asked))


@cli.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...")
@click.option("--workers", type=click.IntRange(1), required=True, metavar="W", help="Workers of the cluster to be.")
@click.option("--hosts", type=click.IntRange(1), required=True, metavar="N", help="Hosts that they are spread over.")
@click.option("--chunk", metavar="ROWS", help="Rows of one frame that start on one worker; as measured by default.")
@click.option("--config", metavar="NAME", help="Of the results' configs this one; needed where there are several.")
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
    help="What nic or local carries, as nic=12.5GB/s,2us, instead of a measurement; may be repeated.",
)
@click.option(
    "--plot", "plots", multiple=True, metavar="FILE", help="Draw the scaling; .png, .svg or .html; may be repeated."
)
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def predict(results: tuple[str, ...], **asked: Any) -> None:
    """Forecast this merge on W workers of N hosts, from RESULTs of `run` and `probe p2p` on smaller clusters.

    A RESULT is a campaign's folder or its records. Says what limits the merge, how sure the numbers are, and what is
    not known.
    """
    from merge_bench.predicting.command import predict_command

    sys.exit(predict_command(results, **asked))


@cli.command("import", context_settings=CONTEXT)
@click.argument("file", metavar="FILE")
@click.option("--results", default="results", show_default=True, metavar="DIR", help="Folder that campaigns go to.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output, as run does.")
def import_(file: str, results: str, json_output: bool) -> None:
    """Make a result of FILE, the text that cudf-merge of 2022 or ucxx.benchmarks.cudf_merge printed; unverified."""
    from merge_bench.commands import import_command

    sys.exit(import_command(file, results=results, json_output=json_output))


@cli.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, metavar="RESULT...")
@click.option("--output", metavar="FILE.html", help="The page; report.html in the first RESULT's folder by default.")
@click.option("--markdown", metavar="FILE.md", help="Write the same as Markdown, too.")
@click.option("--figures", metavar="FOLDER", help="Write every drawing as PNG and SVG, too.")
@click.option("--reference", "references", multiple=True, metavar="NAME",
              help="Published results to show beside them; may be repeated; `list` names them.")  # fmt: skip
def report(results: tuple[str, ...], references: tuple[str, ...], **outputs: str | None) -> None:
    """Make a page of RESULTs, campaigns' folders or their records.jsonl: one file that needs no network."""
    from merge_bench.report.full.command import report_command

    sys.exit(report_command(results, references=references, **outputs))


@cli.command(cls=SectionedCommand, context_settings=CONTEXT)
@click.argument("baseline", required=False, metavar="[BASELINE]")
@click.option("--space", metavar="FILE", help="What may be set; by default configs/space.toml.")
@click.option("--only", metavar="NAME[,NAME]", help="These settings of the space alone.")
@click.option(
    "--strategy",
    type=click.Choice(["race", "one-at-a-time", "exhaustive"]),
    default="race",
    show_default=True,
    help="How the space is searched.",
)
@click.option(
    "--metric",
    type=click.Choice(["throughput", "bandwidth"]),
    default="throughput",
    show_default=True,
    help="What is to become better.",
)
@click.option(
    "--threshold", type=PERCENT, default="2%", show_default=True, metavar="PERCENT", help="A smaller gain is none."
)
@click.option(
    "--most-blocks",
    type=click.IntRange(3),
    default=8,
    show_default=True,
    metavar="N",
    help="Blocks after which a candidate is judged, whatever is known.",
)
@click.option(
    "--confirm",
    type=click.IntRange(6),
    default=8,
    show_default=True,
    metavar="N",
    help="Blocks of the confirmation, at every size.",
)
@click.option("--budget", type=DURATION, metavar="DURATION", help="Seconds of launches for searching, as 30m or 1h.")
@click.option("--max-launches", type=click.IntRange(1), metavar="N", help="Launches for searching.")
@click.option("--output", metavar="FILE", help="The config to write; by default configs/tuned-HOST.cfg.")
@click.option(
    "--plot",
    "plots",
    multiple=True,
    metavar="FILE",
    help="Draw the speed-up by setting here too; .png, .svg or .html; may be repeated.",
)
@add_options(TUNE_OPTIONS)
def tune(**values: Any) -> None:
    """Find the config that is really faster than BASELINE, a config or the built-in defaults, and confirm it.

    The search runs at the first size of --chunk (1e6 and 25e6 by default); the confirmation at all of them.
    """
    from merge_bench.tune.command import tune_command

    sys.exit(tune_command(values))


@cli.group(context_settings=CONTEXT)
def probe() -> None:
    """Measure the network beside the merge, on the same launchers, under the same configs, into the same records."""


def _probe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every network measurement takes."""
    decorators = (
        click.option("--baseline", metavar="CFG", help="The config that the others are held against; shown first."),
        click.option("--config", "configs", multiple=True, metavar="CFG", help="A config; may be repeated."),
        click.option("--repetitions", type=click.IntRange(1), metavar="N",
                     help="Launches of each config, interleaved in random order. [3; 1 on a running cluster]"),
        _output_options,
        add_options(PROBE_OPTIONS),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is made of the rows beside the tables."""
    decorators = (
        click.option("--csv", "csv_file", metavar="FILE", help="Write the rows as CSV."),
        click.option("--plot", "plots", multiple=True, metavar="FILE",
                     help="Draw over message size; .png, .svg or .html; may be repeated."),
        click.option("--reference", "references", multiple=True, metavar="NAME",
                     help="Show published results beside these; `list` names them."),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


_SIZES = click.option("--sizes", metavar="SIZES", help="Message sizes in bytes: 8,65536 or 1..4M or 1K..100K+1K.")
_PLACEMENT = click.option(
    "--placement", metavar="WHERE", default=None,
    help="one-host, two-hosts, both with a comma between, or every-pair. [one-host; two-hosts where there are two]",
)  # fmt: skip
_OWN = click.option(
    "--iterations", type=click.IntRange(1), metavar="N", help="Of every size; by default fewer for large ones."
)


@probe.command(cls=SectionedCommand, context_settings=CONTEXT)
@_SIZES
@_PLACEMENT
@_OWN
@click.option("--tests", default="tag", show_default=True, metavar="KIND[,KIND]", help="tag, am, stream.")
@click.option(
    "--memory", default="host", show_default=True, type=click.Choice(["host", "cuda"]), help="Where messages lie."
)
@_probe_options
def p2p(**values: Any) -> None:
    """Latency and bandwidth between two workers' places over message size, with UCX's own ucx_perftest."""
    from merge_bench.probe.command import probe_command

    sys.exit(probe_command("p2p", values))


@probe.command(cls=SectionedCommand, context_settings=CONTEXT)
@_SIZES
@_PLACEMENT
@_OWN
@_probe_options
def rma(**values: Any) -> None:
    """Mean time of a put over message size: 1000 puts and one flush, and a flush after every put."""
    from merge_bench.probe.command import probe_command

    sys.exit(probe_command("rma", values))


@probe.command(cls=SectionedCommand, context_settings=CONTEXT)
@_SIZES
@_PLACEMENT
@_OWN
@click.option(
    "--pattern",
    default="ping-pong",
    show_default=True,
    type=click.Choice(["ping-pong", "osu"]),
    help="ping-pong: standard and buffered sends; osu: latency and bandwidth as OSU defines them.",
)
@_probe_options
def mpi(**values: Any) -> None:
    """Point-to-point over MPI: ping-pong with standard and buffered sends, or OSU's latency and bandwidth."""
    from merge_bench.probe.command import probe_command

    sys.exit(probe_command("mpi", values))


@probe.command("reduce-scatter", cls=SectionedCommand, context_settings=CONTEXT)
@click.option("--counts", metavar="COUNTS", help="Elements (float32) of a whole vector: 16Ki..128Mi, doubling.")
@_OWN
@click.option(
    "--algorithms",
    default="mpi,reduces",
    show_default=True,
    metavar="NAME[,NAME]",
    help="mpi, reduces, ucc-ucp, ucc-sharp.",
)
@_probe_options
def reduce_scatter(**values: Any) -> None:
    """Time and bus bandwidth of reduce-scatter over the number of elements, results verified."""
    from merge_bench.probe.command import probe_command

    sys.exit(probe_command("reduce-scatter", values))


@probe.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, metavar="RESULT...")
@_output_options
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def show(**values: Any) -> None:
    """Show stored campaigns of `probe` again, several together, without measuring.

    A RESULT is a campaign's folder or its records, or a CSV file of the ping-pong; its name says where it was measured.
    """
    from merge_bench.probe.command import show_command

    sys.exit(show_command(values))


@cli.command(context_settings=CONTEXT)
@click.option("--results", default="results", show_default=True, metavar="DIR", help="Folder of the campaigns to show.")
@click.option("--port", type=click.IntRange(0, 65535), default=5006, show_default=True, metavar="N", help="0: any.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen; only this machine reaches the default.",
)
@click.option("--no-open", is_flag=True, help="Open no browser.")
@click.option("--allow-run", is_flag=True, help="Print a token with which runs can be started from the view.")
def dashboard(**values: Any) -> None:
    """Show results in a browser, live while a run goes on, and start runs from there."""
    from merge_bench.commands import dashboard_command

    sys.exit(dashboard_command(**values))


def main() -> None:
    """The entry point: a user's mistake is a sentence and an exit status, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.Abort:
        sys.exit(3)
    except click.ClickException as error:
        _say_error(UsageError(error.format_message()))
    except MergeBenchError as error:
        _say_error(error)


def _say_error(error: MergeBenchError) -> None:
    click.echo(f"merge_bench: {error}", err=True)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "host": None, "rank": None}}))
    sys.exit(error.exit_status)
