"""The group of commands that measure the network beside the merge."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, SectionedCommand, add_options
from merge_bench.config.options import PROBE_OPTIONS


@click.group(context_settings=CONTEXT)
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
_MPIRUN = click.option(
    "--mpirun", metavar="PATH",
    help="The mpirun that starts the ranks. [default: that of ucc_perftest's MPI if that tool runs, else this"
    " environment's, else the first on PATH]",
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
@_MPIRUN
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
@_MPIRUN
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
