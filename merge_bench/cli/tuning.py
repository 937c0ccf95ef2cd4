"""The command that searches for a config."""

from __future__ import annotations

import sys
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, DURATION, PERCENT, SectionedCommand, add_options
from merge_bench.config.options import TUNE_OPTIONS


@click.command(cls=SectionedCommand, context_settings=CONTEXT)
@click.argument("baseline", required=False, metavar="[BASELINE]")
@click.option("--space", metavar="FILE", help="What may be set; by default the shipped space.toml.")
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
@click.option("--output", metavar="FILE", help="The config to write; by default ./tuned-HOST.cfg.")
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
