"""The group of commands about the configs that come with the package."""

from __future__ import annotations

import sys

import click

from merge_bench.cli.parameters import CONTEXT


@click.group(context_settings=CONTEXT, invoke_without_command=True)
@click.option("--json", "json_output", is_flag=True, help="Print the list as one JSON document on standard output.")
@click.pass_context
def configs(context: click.Context, json_output: bool) -> None:
    """List the shipped configs and the tuning space, or show or copy one.

    Every command finds a shipped config by its bare name, from any folder; a file of that name in the working folder
    wins.
    """
    if context.invoked_subcommand is not None:
        if json_output:
            raise click.UsageError(f"--json is for the list; configs {context.invoked_subcommand} has no such option")
        return
    from merge_bench.commands import list_configs_command

    sys.exit(list_configs_command(json_output=json_output))


@configs.command(context_settings=CONTEXT)
@click.argument("name")
def show(name: str) -> None:
    """Print the shipped file NAME, with or without .cfg."""
    from merge_bench.commands import show_config_command

    sys.exit(show_config_command(name))


@configs.command(context_settings=CONTEXT)
@click.argument("name")
@click.argument("destination", required=False, metavar="[DEST]")
@click.option("--force", is_flag=True, help="Replace DEST if it exists.")
def copy(name: str, destination: str | None, force: bool) -> None:
    """Copy the shipped file NAME to DEST, a file or a folder (by default the working folder), and print its path."""
    from merge_bench.commands import copy_config_command

    sys.exit(copy_config_command(name, destination, force=force))
