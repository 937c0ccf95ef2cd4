"""The group of commands that measure the network beside the merge."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from merge_bench.cli.parameters import CONTEXT, SectionedCommand, add_options
from merge_bench.config.options import PROBE_OPTIONS
from merge_bench.probe import probes

if TYPE_CHECKING:
    from merge_bench.probe.shared.base import ProbeKind
    from merge_bench.probe.shared.options import Option


class _Probes(click.Group):
    """A command for each probe beside those of the group, made when any of them is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_probes()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self._add_probes()
        return super().get_command(ctx, cmd_name)

    def _add_probes(self) -> None:
        for name, found in probes().items():
            if name not in self.commands:
                self.add_command(_command(found))


@click.group(cls=_Probes, context_settings=CONTEXT)
def probe() -> None:
    """Measure the network beside the merge, on the same launchers, under the same configs, into the same records."""


def _probe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every network measurement takes."""
    decorators = (
        click.option("--baseline", metavar="CFG", help="The config that the others are compared with; shown first."),
        click.option("--config", "configs", multiple=True, metavar="CFG", help="A config; may be repeated."),
        click.option("--repetitions", type=click.IntRange(1), metavar="N",
                     help="Number of launches of each config, in random order. [3, or 1 on a running cluster]"),
        _output_options,
        add_options(PROBE_OPTIONS),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _own_option(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that a probe declares."""
    kind: click.ParamType[Any] | None = click.Choice(option.choices) if option.choices else None
    if option.least is not None:
        kind = click.IntRange(option.least)
    return click.option(
        f"--{option.name}", type=kind, default=option.default, show_default=option.default is not None,
        metavar=option.placeholder, help=option.help,
    )  # fmt: skip


def _command(found: ProbeKind) -> click.Command:
    def measure(**values: Any) -> None:
        from merge_bench.cli.probe_command import probe_command

        sys.exit(probe_command(found.name, values))

    decorated = _probe_options(measure)
    for option in reversed(found.options):
        decorated = _own_option(option)(decorated)
    made = click.command(found.name, cls=SectionedCommand, context_settings=CONTEXT, help=found.help)
    return made(decorated)


def _output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is made of the rows beside the tables."""
    decorators = (
        click.option("--csv", "csv_file", metavar="FILE", help="Write the rows as CSV."),
        click.option("--plot", "plots", multiple=True, metavar="FILE",
                     help="Plot results over message size into this .png, .svg or .html file; may be repeated."),
        click.option("--reference", "references", multiple=True, metavar="NAME",
                     help="Show these published results as well; `list` prints their names."),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@probe.command(context_settings=CONTEXT)
@click.argument("results", nargs=-1, metavar="RESULT...")
@_output_options
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
def show(**values: Any) -> None:
    """Show stored campaigns of `probe` again, several together, without measuring.

    A RESULT is a campaign's folder or its records, or a CSV file of the ping-pong; its name says where it was measured.
    """
    from merge_bench.cli.probe_command import show_command

    sys.exit(show_command(values))
