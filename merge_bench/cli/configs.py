"""The commands about the configs that come with the package."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from merge_bench.cli.parameters import CONTEXT, PATH, ListedGroup, json_option
from merge_bench.config.shipped import find_shipped, shipped_files
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.outputs import check_writable, replacing


@click.group(cls=ListedGroup, context_settings=CONTEXT, invoke_without_command=True)
@json_option("Print the list as one JSON document on standard output.")
@click.pass_context
def configs(context: click.Context, as_json: bool) -> None:
    """List, show or copy the shipped configs and the tuning space.

    Every command accepts the name of a shipped config, from any folder. A file of the same name in the working folder
    takes precedence.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"`configs {context.invoked_subcommand}` has no option --json; omit --json")
        return
    files = shipped_files()
    if as_json:
        from merge_bench.analysis.documents import ConfigsDocument, ShippedFile
        from merge_bench.view.document import print_document

        *shown, space = (ShippedFile(name=each.name, about=each.about, path=str(each.path)) for each in files)
        print_document(ConfigsDocument(configs=shown, space=space))
        return
    width = max(len(each.name) for each in files)
    for each in files:
        print(f"{each.name:{width}}  {each.about}")


@configs.command(context_settings=CONTEXT)
@click.argument("name")
def show(name: str) -> None:
    """Print the shipped file NAME; the suffix .cfg may be left out."""
    sys.stdout.write(find_shipped(name).read_text(encoding="utf-8"))


@configs.command(context_settings=CONTEXT)
@click.argument("name")
@click.argument("destination", type=PATH, required=False, metavar="[DEST]")
@click.option("--force", is_flag=True, help="Replace DEST if it exists.")
def copy(name: str, destination: str | None, force: bool) -> None:
    """Copy the shipped file NAME to DEST, and print the path of the copy.

    DEST is a file or a folder; by default the working folder.
    """
    source = find_shipped(name)
    target = Path(destination or ".")
    if target.is_dir():
        target = target / source.name
    if target.exists() and target.resolve() == source:
        raise UsageError(f"{target} is the shipped file itself and would be overwritten; name another destination")
    if target.exists() and not force:
        raise UsageError(f"{target} already exists; use --force to replace it")
    check_writable("DEST", target)
    try:
        with replacing(target) as stream:
            stream.write(source.read_bytes())
    except OSError as error:
        raise RunFailed(f"{target} was not written: {error.strerror}") from error
    print(target)
