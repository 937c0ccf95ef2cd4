"""What the commands have in common: click options, types of values, kinds of command, and what campaigns need."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from merge_bench.config import parsers
from merge_bench.config.option import Option, Options
from merge_bench.config.options import BY_KEY
from merge_bench.config.parsers import Parser
from merge_bench.errors import UsageError, print_message, stdout_and_stderr_are_same, warnings_already_printed

if TYPE_CHECKING:
    from merge_bench.analysis.documents import CompareDocument, Failure
    from merge_bench.campaign import CallingProgram
    from merge_bench.config.options import RunOptions
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.schema import FailureLine, GivenOptions

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class ParsedValue(click.ParamType[object]):
    """The type of a click option whose text a function parses; the function's message is shown if the text is wrong."""

    def __init__(self, placeholder: str, parse: Parser) -> None:
        self.parse = parse
        self.name = placeholder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            if param and ctx and ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
                raise UsageError(f"environment variable {param.envvar}: {error}") from None
            self.fail(str(error), param, ctx)


PATH = ParsedValue("PATH", parsers.parse_path)
"""The type of every option and argument that names a file or a folder."""

RESULT = ParsedValue("RESULT", parsers.parse_result)
"""The type of every argument that names a result."""

Decorator = Callable[[Any], Any]


def combine_decorators(*decorators: Decorator) -> Decorator:
    """Combine several decorators into one, of which the first is the outermost."""

    def decorate_command(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate_command


def add_options(
    parameter_name: str, options_class: type[Options], option_table: Sequence[Option] | None = None
) -> Decorator:
    """Decorate a click command with the options of `option_table`, by default all of `options_class`.

    The command gets them as one argument called `parameter_name`. Options that were not given are not in
    `Options.sources`.
    """
    options = options_class.declared_options() if option_table is None else option_table

    def gather_options(command: Callable[..., Any]) -> Callable[..., Any]:
        """Have the command called with one object of options instead of one argument for each option."""

        @functools.wraps(command)
        def call_with_options(*arguments: Any, **values: Any) -> Any:
            parsed = {option.key: values.pop(option.key) for option in options}
            return command(*arguments, **values, **{parameter_name: options_class.from_command_line(parsed)})

        return call_with_options

    return combine_decorators(*map(_make_click_option, options), gather_options)


def _make_click_option(option: Option) -> Decorator:
    """Make the click option for an option of a table."""
    if not option.help:  # its values are the members of a registry, which has its help
        from merge_bench.campaign import add_allowed_values

        option = add_allowed_values(option)
    names = (*(f"--{key.replace('_', '-')}" for key in option.key_and_aliases), option.key)
    plain = option.flag or option.default in (None, ()) or "[" in option.help
    shown = option.help if plain else f"{option.help} [{option.default}]"
    if option.flag:
        return click.option(*names, is_flag=True, default=None, help=shown)
    kind = ParsedValue(option.placeholder, option.parse)
    if not isinstance(option.parse, parsers.NamesParser):
        return click.option(*names, type=kind, default=None, metavar=option.placeholder, help=shown)

    columns = isinstance(option.parse, parsers.ColumnNamesParser)

    def join_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str] | None) -> object:
        """Return the names in all texts, each once; of several texts for column names, each text is one name."""
        one_each = len(texts or ()) > 1 and columns
        lists: Any = [texts] if one_each else [kind.convert(text, param, ctx) for text in texts or ()]
        return tuple(dict.fromkeys(itertools.chain.from_iterable(lists))) or None

    text = ParsedValue(option.placeholder, str) if columns else kind
    return click.option(*names, type=text, multiple=True, callback=join_names, metavar=option.placeholder, help=shown)


def flag_option(names: str, help: str) -> Decorator:
    """Make an option without a value; `names`: as for `text_option`."""
    return click.option(*names.split(), is_flag=True, help=help)


def text_option(names: str, metavar: str, help: str, **settings: Any) -> Decorator:
    """Make an option with a value.

    `names`: separated by blanks, the option's names and, if it differs from them, the parameter's (``--json as_json``).
    """
    return click.option(*names.split(), metavar=metavar, help=help, **settings)


def path_option(names: str, metavar: str, help: str, **settings: Any) -> Decorator:
    """Make an option whose value is the path of a file or a folder; `names`: as for `text_option`."""
    return text_option(names, metavar, help, type=PATH, **settings)


def json_option(help: str = "Print one JSON document on standard output.") -> Decorator:
    """Make the option ``--json`` for a command that takes no options of ``run``."""
    return flag_option("--json as_json", help)


def plot_option(content: str) -> Decorator:
    """Make the option ``--plot``; `content` says in its help what is drawn."""
    help = f"Plot {content} into this .png, .svg or .html file; may be repeated."
    return path_option("--plot plots", "FILE", help, multiple=True)


def choice_option(name: str, choices: Sequence[str], help: str) -> Decorator:
    """Make an option with fixed values, of which the first is the default."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=help)


def count_option(
    name: str, metavar: str, help: str, *, minimum: int = 1, default: int | None = None, required: bool = False
) -> Decorator:
    """Make an option that takes a whole number of at least `minimum`."""
    settings: dict[str, Any] = {} if default is None else {"default": default}  # click takes None for a default as well
    kind = ParsedValue(metavar, parsers.count_parser(minimum))
    settings |= {"type": kind, "show_default": default is not None, "required": required}
    return text_option(name, metavar, help, **settings)


def percent_option(name: str, default: str, help: str) -> Decorator:
    """Make an option that takes a share such as ``2%``, of which the command gets a fraction of 1."""
    kind = ParsedValue("PERCENT", parsers.parse_percent)
    return text_option(name, "PERCENT", help, type=kind, default=default, show_default=True)


def port_option(default: int) -> Decorator:
    """Make the option ``--port`` for a command that serves pages."""
    kind = ParsedValue("N", parsers.count_parser(0, 65535))
    return text_option("--port", "N", "Port; 0: any free port.", type=kind, default=default, show_default=True)


def address_option(help: str) -> Decorator:
    """Make the option ``--address`` for a command that serves pages."""
    return text_option("--address", "ADDRESS", help, default="127.0.0.1", show_default=True)


def results_option(help: str) -> Decorator:
    """Make the option ``--results`` for a command that takes no other option of ``run``.

    Its environment variable counts, too.
    """
    option = BY_KEY["results"]
    source: dict[str, Any] = {
        "default": str(option.default),
        "envvar": option.environment_variable,
        "show_default": True,
    }
    return path_option("--results", "DIR", help, **source)


class FullHelpGroup(click.Group):
    """A group whose help lists the whole first sentence of each command's help, which click would cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in commands])


class TypedArgumentsCommand(click.Command):
    """A click command that stores its arguments, as they were typed, in `ctx.obj`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


class SectionedHelpCommand(TypedArgumentsCommand):
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


@contextlib.contextmanager
def _handle_signals_and_redirect_output(log: Path) -> Iterator[None]:
    """Within a `with` block, raise signals as errors, and write the output of libraries into the file `log`."""
    from merge_bench.cluster import scheduler_client, signals

    with signals.raise_on_signals(), scheduler_client.redirect_library_output(log):
        yield


def make_calling_program() -> CallingProgram:
    """Describe this command as the program that runs a campaign: it handles signals and the output of libraries.

    It begins to measure the load of this host, so call it early.
    """
    from merge_bench.campaign import CallingProgram
    from merge_bench.cluster import signals
    from merge_bench.host.other_load import begin_load_measurement

    return CallingProgram(
        tuple(sys.argv),
        typed_options(),
        signals.raise_on_signals,
        _handle_signals_and_redirect_output,
        begin_load_measurement(),
    )


def typed_options() -> GivenOptions:
    """Return the options of the present command as they were typed, for the records."""
    context = click.get_current_context()
    typed_values, _, _ = context.command.make_parser(context).parse_args(list(context.obj or ()))
    options: GivenOptions = {}
    for key, value in typed_values.items():
        if key in ("config_names", "baseline"):  # given without an option
            key, value = "config", value[0] if isinstance(value, tuple) and value else value
        if value is True or isinstance(value, str) or (isinstance(value, list) and value):
            options[key] = value
    return options


def print_launched_campaign(
    campaign: Campaign,
    verdict: CompareDocument | None,
    error: Failure | None,
    options: RunOptions,
    *,
    details: bool,
) -> None:
    """Print a campaign that was just measured, as a report or as the document of ``--json``, and its failures.

    `verdict`: the comparison of its gates, if it has any; `error`: the reason why the job of a service ended.
    """
    from msgspec.structs import replace

    from merge_bench.analysis.documents import run_documents
    from merge_bench.analysis.summary import summarize_campaign
    from merge_bench.regressions.gates import gate_summary
    from merge_bench.report.run import main_metric_name, print_campaign_report
    from merge_bench.view.comparison import gate_or_error_text, print_comparison
    from merge_bench.view.streams import print_document

    document = summarize_campaign(campaign)
    if verdict is not None:
        document = replace(document, comparisons=verdict.comparisons, error=document.error or verdict.error)
    if error is not None:
        document = replace(document, error=document.error or error)
    if options.json:
        print_document(document)
    else:
        metric = main_metric_name([campaign])
        gates = gate_summary(verdict, metric_name=metric, fail_on=options.fail_on) if verdict is not None else ""
        below = gate_or_error_text(verdict, gates) if verdict is not None else ""
        print_campaign_report(
            campaign, document, details=details, warnings_above=warnings_already_printed(), text_below=below
        )
        if verdict is not None and verdict.comparisons:
            print_comparison(verdict, metric=metric, details=details, gate_text=gates)
        elif gates:
            print(gates)
    if verdict is not None and verdict.error is not None:
        print_message(verdict.error.message)
    printed = () if options.json else [one.error.message for one in run_documents(document) if one.error]
    print_failures(unrepeated_failures([campaign]), printed_texts=printed)


def unrepeated_failures(campaigns: Sequence[Campaign]) -> list[FailureLine]:
    """List the failures in the records of campaigns, without those of launches that were repeated."""
    return [
        failure
        for campaign in campaigns
        for failure in (
            *campaign.failures,
            *(each for launch in campaign.launches_not_replaced for each in launch.failures),
        )
    ]


def print_failures(failures: Sequence[FailureLine], *, printed_texts: Collection[str] = ()) -> None:
    """Print failures, each with the end of its log, on standard error; equal ones once, with their number.

    `printed_texts`: messages on standard output; they are not printed again if both streams go to the same place.
    """
    from merge_bench.view.streams import print_log_tail

    messages_seen = printed_texts if stdout_and_stderr_are_same() else ()
    counts = Counter((failure.message, failure.log_tail) for failure in failures)  # in their order
    for (message, log_tail), count in counts.items():
        if not any(message in text for text in messages_seen):
            print_message(f"{message} (in {count} launches)" if count > 1 else message)
        print_log_tail(log_tail)
