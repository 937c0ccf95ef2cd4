"""Every option of every command, from the table of options and the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from merge_bench.campaign import options_of_run
from merge_bench.cli import cli
from merge_bench.config.option import Option
from tools.reference import page, table

_INTRO = """\
Counts can be written as `25e6`, `1_000_000` or `25M`; sizes as `30GB` (powers of 1000), `28GiB` or `64k` (powers of
1024, as in UCX); durations as `15`, `500ms`, `5m` or `10:00`. A value on the command line overrides the config, which
overrides the environment ([configs.md](../configs.md#which-value-is-used)). An option of names separated by commas,
such as `--fail-on`, can be repeated: all the names count.

All commands exit with 0 (done), 2 (wrong usage or config), 3 (the run failed; what was measured is kept), 4 (a merge
result was wrong) or 5 (a requested gate was not met)."""


def text() -> str:
    """The page."""
    parts = [_INTRO]
    for name, command in sorted(commands(cli), key=lambda found: found[0] != "run"):
        usage = " ".join(command.get_usage(click.Context(command, info_name=f"merge-bench {name}")).split())
        parts += [f"## `{name}`", f"`{usage.removeprefix('Usage: ')}`", _help(command)]
        parts += list(_of_run() if name == "run" else _of(name, command))
    return page("Options of all commands", *parts)


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands below `group` that do something, with their names, in the order of the help."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group):
            yield " ".join((*words, name)), command
            continue
        if command.invoke_without_command:
            yield " ".join((*words, name)), command
        yield from commands(command, (*words, name))


def _help(command: click.Command) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _of_run() -> Iterator[str]:
    section = ""
    rows: list[list[str]] = []
    for option in options_of_run():
        if option.section != section:
            section = option.section
            rows.append([f"**{section}**", "", "", ""])
        rows.append(
            [
                _shown(option),
                f"`{option.environment_variable}`" if option.in_config else "no",
                _default(option),
                option.help,
            ]
        )
    yield table(["option", "in a config", "default", "means"], rows)


def _shown(option: Option) -> str:
    value = "" if option.flag else f" {option.placeholder}"
    return ", ".join(f"`--{key.replace('_', '-')}{value}`" for key in option.key_and_aliases)


def _default(option: Option) -> str:
    if "[" in option.help or option.default in (None, ()):
        return ""
    if option.flag:
        return "no"
    return f"{option.default:,g}" if isinstance(option.default, int | float) else str(option.default)


def _of(name: str, command: click.Command) -> Iterator[str]:
    """The command's own options, then the names of those that mean the same as for `run`."""
    context = click.Context(command, info_name=name)
    same = {option.key: option for option in options_of_run()}
    own, shared = [], []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        option = same.get(parameter.name or "")
        if record is None or isinstance(parameter, click.Argument):
            continue
        if option is not None and record[1].startswith(option.help):
            shared.append(f"`--{option.command_line_name}`")
        else:
            own.append([f"`{record[0]}`", record[1]])
    if own:
        yield table(["option", "means"], own)
    if shared:
        yield f"Options of [`run`](#run) that it also takes: {', '.join(shared)}."
