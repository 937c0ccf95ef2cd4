"""The command that searches for a config."""

from __future__ import annotations

import sys
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, DURATION, PERCENT, SectionedCommand, add_options
from merge_bench.config.options import TUNE_OPTIONS
from merge_bench.tune.strategies import strategies


@click.command(cls=SectionedCommand, context_settings=CONTEXT)
@click.argument("baseline", required=False, metavar="[BASELINE]")
@click.option("--space", metavar="FILE", help="File that lists the settings to try; by default the shipped space.toml.")
@click.option("--only", metavar="NAME[,NAME]", help="Try only these settings of the space.")
@click.option(
    "--strategy",
    type=click.Choice(list(strategies())),
    default=next(iter(strategies())),
    show_default=True,
    help="Search strategy.",
)
@click.option(
    "--metric",
    type=click.Choice(["throughput", "bandwidth"]),
    default="throughput",
    show_default=True,
    help="Metric to improve.",
)
@click.option(
    "--threshold", type=PERCENT, default="2%", show_default=True, metavar="PERCENT", help="Smaller gains do not count."
)
@click.option(
    "--most-blocks",
    type=click.IntRange(3),
    default=8,
    show_default=True,
    metavar="N",
    help="Judge a candidate after this many blocks at the latest.",
)
@click.option(
    "--confirm",
    type=click.IntRange(6),
    default=8,
    show_default=True,
    metavar="N",
    help="Blocks of the confirmation at each size.",
)
@click.option(
    "--budget",
    type=DURATION,
    metavar="DURATION",
    help="Time limit for all launches of the search together, such as 30m or 1h.",
)
@click.option(
    "--max-launches", type=click.IntRange(1), metavar="N", help="Largest number of launches that the search may make."
)
@click.option("--output", metavar="FILE", help="The config to write; by default ./tuned-HOST.cfg.")
@click.option(
    "--plot",
    "plots",
    multiple=True,
    metavar="FILE",
    help="Plot the speed-up of each setting into this .png, .svg or .html file; may be repeated.",
)
@add_options(TUNE_OPTIONS)
def tune(**values: Any) -> None:
    """Find a config that is faster than BASELINE (a config, or the built-in defaults), and confirm it.

    The search runs at the first size of --chunk (1e6 and 25e6 by default); the confirmation at all of them.
    """
    from merge_bench.cli.tune_command import tune_command

    sys.exit(tune_command(values))
