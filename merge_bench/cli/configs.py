"""The group of commands about the configs that come with the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from merge_bench.cli.parameters import CONTEXT
from merge_bench.config.shipped import SPACE, find_shipped, shipped_files
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.outputs import check_writable, replacing


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
    files = shipped_files()
    if json_output:
        described = [{"name": each.name, "about": each.about, "path": str(each.path)} for each in files]
        shown = [each for each in described if each["name"] != SPACE.name]
        print(json.dumps({"configs": shown, "space": described[-1]}))
        return
    width = max(len(each.name) for each in files)
    for each in files:
        print(f"{each.name:{width}}  {each.about}")


@configs.command(context_settings=CONTEXT)
@click.argument("name")
def show(name: str) -> None:
    """Print the shipped file NAME, with or without .cfg."""
    sys.stdout.write(find_shipped(name).read_text(encoding="utf-8"))


@configs.command(context_settings=CONTEXT)
@click.argument("name")
@click.argument("destination", required=False, metavar="[DEST]")
@click.option("--force", is_flag=True, help="Replace DEST if it exists.")
def copy(name: str, destination: str | None, force: bool) -> None:
    """Copy the shipped file NAME to DEST, a file or a folder (by default the working folder), and print its path."""
    print(copy_shipped(name, destination, force=force))


def copy_shipped(name: str, destination: str | None, *, force: bool = False) -> Path:
    """Copy a shipped file to `destination`, a file or a folder, by default the working folder; gives the new file.

    Raises
    ------
    UsageError
        If there is no such file, or the destination exists and may not be replaced (`force`), or cannot be written.
    RunFailed
        If writing fails all the same.
    """
    source = find_shipped(name)
    target = Path(destination or ".")
    if target.is_dir():
        target = target / source.name
    if target.exists() and target.resolve() == source:
        raise UsageError(f"{target} is the shipped file itself; name another destination")
    if target.exists() and not force:
        raise UsageError(f"{target} exists; --force replaces it")
    check_writable("DEST", target)
    try:
        with replacing(target) as draft:
            draft.write_bytes(source.read_bytes())
    except OSError as error:
        raise RunFailed(f"{target} was not written: {error.strerror}") from error
    return target
