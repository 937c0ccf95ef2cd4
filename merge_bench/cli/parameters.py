"""What the commands are made of: click options from the table of `run`, types of values, kinds of command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from merge_bench.campaign.choices import complete
from merge_bench.config import values
from merge_bench.config.options import BY_KEY, OPTIONS, Option
from merge_bench.config.values import Parser

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class Parsed(click.ParamType[object]):
    """Makes click use a parser of `values`, and its sentence when the text is wrong."""

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


PERCENT = Parsed("PERCENT", values.percent)
DURATION = Parsed("DURATION", values.duration)

_F = TypeVar("_F", bound=Callable[..., Any])


def add_run_options(command: _F) -> _F:
    """Decorate a click command with every option of ``run``.

    Click passes each one under its `Option.key`, and None for what was not given, so that `resolve` can tell.
    """
    return add_options(OPTIONS)(command)


def add_options(options: Sequence[Option]) -> Callable[[_F], _F]:
    """A decorator like `add_run_options`, for some of the options."""

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = _add(complete(option), command)
        return command

    return decorate


def _add(option: Option, command: _F) -> _F:
    names = (f"--{option.name}", option.key)
    plain = option.flag or option.default in (None, ()) or "[" in option.help
    shown = option.help if plain else f"{option.help} [{option.default}]"
    if option.flag:
        return click.option(*names, is_flag=True, default=None, help=shown)(command)
    kind = Parsed(option.placeholder, option.parse)
    return click.option(*names, type=kind, default=None, metavar=option.placeholder, help=shown)(command)


def results_option(help: str) -> Callable[[_F], _F]:
    """``--results`` for commands that take no other option of ``run``; the environment counts here, too."""
    option = BY_KEY["results"]
    return click.option(
        "--results", default=str(option.default), envvar=option.variable, show_default=True, metavar="DIR", help=help
    )


class SectionedCommand(click.Command):
    """A command whose help lists the options of ``run`` by section (``@click.command(cls=SectionedCommand)``)."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                option = BY_KEY.get(parameter.name or "")
                sections.setdefault(option.section if option else "Other", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class AsTyped(click.Command):
    """A command that keeps its words as they were typed, as its context's object."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)
