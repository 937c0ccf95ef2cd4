"""The command line: the group of all commands, and how an error becomes a sentence and an exit status.

No command has logic: options in, a call, an exit status out; heavy imports happen inside the commands.
"""

from __future__ import annotations

import json
import sys
from typing import NoReturn

import click

from merge_bench.cli import clusters, configs, probing, results, tuning
from merge_bench.cli.parameters import CONTEXT
from merge_bench.config.version import __version__
from merge_bench.errors import MergeBenchError, UsageError

COMMANDS: tuple[click.Command, ...] = (
    clusters.run,
    clusters.check,
    configs.configs,
    clusters.submit,
    clusters.transports,
    clusters.doctor,
    results.compare,
    results.predict,
    results.import_,
    results.report,
    results.dashboard,
    tuning.tune,
    probing.probe,
)


class _DefaultRun(click.Group):
    """A group in which `run` is meant where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(name="merge-bench", cls=_DefaultRun, commands=COMMANDS, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="merge_bench")
def cli() -> None:
    """Measures, explains and tunes distributed dataframe merges over UCX.

    Without a command: `run`, which launches a cluster on this machine and merges on it.
    """


class _WithinDask(_DefaultRun):
    """The group as a command of `dask`, which knows nothing of our errors."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except MergeBenchError as error:
            _say_error(error)


within_dask = _WithinDask(
    name=cli.name, commands=cli.commands, params=cli.params, callback=cli.callback, help=cli.help,
    context_settings=CONTEXT,
)  # fmt: skip


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


def _say_error(error: MergeBenchError) -> NoReturn:
    click.echo(f"merge_bench: {error}", err=True)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": {"code": error.code, "message": str(error), "host": None, "rank": None}}))
    sys.exit(error.exit_status)
