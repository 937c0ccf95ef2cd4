"""What the commands are made of: click options, types of values, kinds of command."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import click

from merge_bench.campaign.registry_options import complete
from merge_bench.config import parsers
from merge_bench.config.option import Option, Options
from merge_bench.config.options import BY_KEY
from merge_bench.config.parsers import Parser

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class ParsedValue(click.ParamType[object]):
    """A type of click that reads a text with `parse`, and shows the message of that function if the text is wrong."""

    def __init__(self, placeholder: str, parse: Parser) -> None:
        self.parse = parse
        self.name = placeholder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


PATH = ParsedValue("PATH", parsers.path)
"""The type of every option and argument that names a file or a folder."""

Decorator = Callable[[Any], Any]


def combine_decorators(*decorators: Decorator) -> Decorator:
    """Make one decorator of several, the first outermost."""

    def decorate(command: Any) -> Any:
        for each in reversed(decorators):
            command = each(command)
        return command

    return decorate


def add_options(name: str, kind: type[Options], table: Sequence[Option] | None = None) -> Decorator:
    """Decorate a click command with the options of `table`, by default all of `kind`.

    The command gets them as one argument called `name`. Options that were not given are not in `Options.sources`.
    """
    options = kind.table() if table is None else table

    def gather(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(*arguments: Any, **values: Any) -> Any:
            parsed = {option.key: values.pop(option.key) for option in options}
            return command(*arguments, **values, **{name: kind.from_command_line(parsed)})

        return gathered

    return combine_decorators(*(_click_option(complete(option)) for option in options), gather)


def _click_option(option: Option) -> Decorator:
    """Make the option of click for an option of a table."""
    names = (*(f"--{key.replace('_', '-')}" for key in option.keys), option.key)
    plain = option.flag or option.default in (None, ()) or "[" in option.help
    shown = option.help if plain else f"{option.help} [{option.default}]"
    if option.flag:
        return click.option(*names, is_flag=True, default=None, help=shown)
    kind = ParsedValue(option.placeholder, option.parse)
    settings: dict[str, Any] = {}
    if isinstance(option.parse, parsers.ColumnNames):
        kind = ParsedValue(option.placeholder, str)
        settings = {"multiple": True, "callback": _read_column_names(option)}
    elif isinstance(option.parse, parsers.Names):
        settings = {"multiple": True, "callback": lambda ctx, param, lists: _join_lists(lists) or None}
    return click.option(*names, type=kind, default=None, metavar=option.placeholder, help=shown, **settings)


def _read_column_names(option: Option) -> Callable[[click.Context, click.Parameter, Sequence[str]], object]:
    """The callback of click for an option of column names: one text is a list of names, of several each is one name."""

    def names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> object:
        if texts and len(texts) == 1:
            return ParsedValue(option.placeholder, option.parse).convert(texts[0], param, ctx)
        return _join_lists([texts or ()]) or None

    return names


def _join_lists(lists: Sequence[Sequence[object]] | None) -> tuple[object, ...]:
    """The items of several lists in one, each once, as for an option that takes a list and can be repeated."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(lists or ())))


def json_option(help: str = "Print one JSON document on standard output.") -> Decorator:
    """Make the option ``--json`` for a command that takes no options of ``run``."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def plot_option(what: str) -> Decorator:
    """Make the option ``--plot``; `what` says in its help what is drawn."""
    help = f"Plot {what} into this .png, .svg or .html file; may be repeated."
    return click.option("--plot", "plots", multiple=True, type=PATH, metavar="FILE", help=help)


def choice_option(name: str, choices: Sequence[str], help: str) -> Decorator:
    """Make an option with fixed values, of which the first is the default."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=help)


def count_option(
    name: str, metavar: str, help: str, *, least: int = 1, default: int | None = None, required: bool = False
) -> Decorator:
    """Make an option that takes a whole number of at least `least`."""
    settings: dict[str, Any] = {} if default is None else {"default": default}  # click takes None for a default as well
    return click.option(
        name, type=click.IntRange(least), show_default=bool(settings), required=required, metavar=metavar, help=help,
        **settings,
    )  # fmt: skip


def percent_option(name: str, default: str, help: str) -> Decorator:
    """Make an option that takes a share such as ``2%``, of which the command gets a fraction of 1."""
    kind = ParsedValue("PERCENT", parsers.percent)
    return click.option(name, type=kind, default=default, show_default=True, metavar="PERCENT", help=help)


def port_option(default: int) -> Decorator:
    """Make the option ``--port`` for a command that serves pages."""
    help, kind = "Port; 0: any free port.", click.IntRange(0, 65535)
    return click.option("--port", type=kind, default=default, show_default=True, metavar="N", help=help)


def results_option(help: str) -> Decorator:
    """Make the option ``--results`` for a command that takes no other option of ``run``; its variable counts, too."""
    option = BY_KEY["results"]
    return click.option(
        "--results",
        type=PATH,
        default=str(option.default),
        envvar=option.variable,
        show_default=True,
        metavar="DIR",
        help=help,
    )


class ListedGroup(click.Group):
    """A group whose help lists the whole first sentence of each command's help, which click would cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in commands])


class KeepsArguments(click.Command):
    """A command that keeps its arguments, as they were typed, as the object of its context."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


class SectionedCommand(KeepsArguments):
    """A command whose help lists options by section; options without a section come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                option = BY_KEY.get(parameter.name or "")
                sections.setdefault(option.section if option else "Other", []).append(record)
        for title, records in sorted(sections.items(), key=lambda section: section[0] == "Other"):
            with formatter.section(title):
                formatter.write_dl(records)
