"""Declares options as fields of a dataclass, each with all that command line, configs and documentation need.

The help of an option is in the docstring of its class, after the name of its field:

    class Measuring(Options):
        \"\"\"Options for how often a merge is measured.

        warmup: Number of untimed merges before the timed ones.
        \"\"\"

        section = "Measuring"
        warmup: int = value_option(parsers.count_parser(0), 1, "N")
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from merge_bench.config import parsers
from merge_bench.config.parsers import Parser, suggest_similar_names
from merge_bench.config.variables import PREFIX
from merge_bench.errors import UsageError

COMMAND_LINE = "command line"
DEFAULT = "default"
_HELP = re.compile(r"^(\w+): (.+(?:\n {4}.+)*)", re.MULTILINE)
_NAMED = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Option:
    """The declaration of one option of a command.

    `parse`: converts text to a value; `default`: the value, or None if it is decided later (`help` says how);
    `placeholder`: the value's name in the help; `flag`: the option takes no value on the command line; `in_config`: a
    config can set the option as ``MERGE_BENCH_<NAME>``; `allows_sweep`: several values, separated by commas, make a
    sweep; `aliases`: other keys of the option; `key`: the name of its field; `section`: its heading in the help.
    """

    parse: Parser
    default: object
    help: str = ""
    placeholder: str = "TEXT"
    flag: bool = False
    in_config: bool = True
    allows_sweep: bool = False
    aliases: tuple[str, ...] = ()
    key: str = ""
    section: str = ""

    @property
    def command_line_name(self) -> str:
        """The option's name on the command line, without leading dashes: ``rmm-pool-size``."""
        return self.key.replace("_", "-")

    @property
    def environment_variable(self) -> str:
        """The option's name in a config and in the environment: ``MERGE_BENCH_RMM_POOL_SIZE``."""
        return PREFIX + self.key.upper()

    @property
    def key_and_aliases(self) -> tuple[str, ...]:
        """The option's key, then its aliases."""
        return (self.key, *self.aliases)

    @property
    def environment_variables(self) -> tuple[str, ...]:
        """The option's names in a config and in the environment: that of the key, then those of the aliases."""
        return tuple(PREFIX + key.upper() for key in self.key_and_aliases)

    def with_allowed_values(self, allowed: Sequence[str], help: str) -> Option:
        """Return a copy of this option that accepts only the values `allowed`, and has this `help`."""
        word, names = parsers.choice_parser(*allowed), "|".join(allowed)
        if not self.allows_sweep:
            return replace(self, parse=word, placeholder=names, help=help)
        help = help and f"{help} Several values make a sweep."
        return replace(self, parse=parsers.several_values_parser(word), placeholder=f"{names}[,…]", help=help)


def value_option(parse: Parser, default: object, placeholder: str = "TEXT", **more: Any) -> Any:
    """Declare a dataclass field for an option that takes a value.

    `more`: other attributes of `Option`, `help` if computed.
    """
    return field(default=default, metadata={"option": Option(parse, default, placeholder=placeholder, **more)})


def choice_option(allowed: str, default: str, *, allows_sweep: bool = False) -> Any:
    """Declare a dataclass field for an option that takes one of the words `allowed`, written as ``on|off``."""
    declared = Option(parsers.parse_lower_case_word, default, allows_sweep=allows_sweep).with_allowed_values(
        allowed.split("|"), ""
    )
    return field(default=default, metadata={"option": declared})


def flag_option(*, in_config: bool = True) -> Any:
    """Declare a dataclass field for an option without a value, which is True if it is given."""
    return value_option(parsers.parse_yes_or_no, False, "", flag=True, in_config=in_config)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of a command's options, each an attribute.

    `sources`: by option key, the source of each value that is not the default: ``command line``, ``config FILE:LINE``
    or ``environment NAME``. `several`: by option key, all values of an option that has several, of which the attribute
    is the first; each combination of values is a run.
    """

    section: ClassVar[str] = ""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    several: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    @functools.cache
    def declared_options(cls) -> tuple[Option, ...]:
        """The declarations of this class's options, in the order of its fields."""
        options: list[Option] = []
        for declared in fields(cls):
            if option := declared.metadata.get("option"):
                owner = next(base for base in cls.__mro__ if declared.name in vars(base))
                section, help = (
                    vars(owner).get("section", ""),
                    option.help or _help_by_option_name(owner).get(declared.name, ""),
                )
                options.append(replace(option, key=declared.name, section=section, help=help))
        return tuple(options)

    @classmethod
    def from_command_line(cls, values: Mapping[str, object]) -> Self:
        """Make options from parsed values of the command line, by key; None or no entry stands for the default."""
        return cls().with_command_line_values(**values)

    def with_command_line_values(self, **values: object) -> Self:
        """Return a copy with new `values`, as from the command line; None leaves an option unchanged."""
        values = {key: value for key, value in values.items() if value is not None}
        return self.with_sourced_values(values, dict.fromkeys(values, COMMAND_LINE))

    def with_sourced_values(self, values: Mapping[str, object], sources: Mapping[str, str]) -> Self:
        """Return a copy of these options with new `values` and their `sources`, both by option key.

        A tuple gives an option that makes a sweep several values.
        """
        swept = {each.key for each in self.declared_options() if each.allows_sweep}
        lists = {key: value for key, value in values.items() if key in swept and isinstance(value, tuple)}
        single: dict[str, Any] = {**values, **{key: value[0] for key, value in lists.items()}}
        kept = {key: value for key, value in self.several.items() if key not in values}
        more = {key: value for key, value in lists.items() if len(value) > 1}
        return replace(self, **single, sources={**self.sources, **sources}, several={**kept, **more})

    def value_source(self, key: str) -> str:
        """The source of an option's value, such as ``command line`` or ``default``."""
        return self.sources.get(key, DEFAULT)

    def option_name_with_source(self, key: str) -> str:
        """The option's name for a sentence, with its source unless that is the command line."""
        name = f"--{key.replace('_', '-')}"
        return name if self.value_source(key) == COMMAND_LINE else f"{name} ({self.value_source(key)})"

    @contextlib.contextmanager
    def naming_value_sources(self) -> Iterator[None]:
        """A ``with`` block whose UsageError also says which variable or config line sets the options that it names."""
        try:
            yield
        except UsageError as error:
            sentence = str(error)
            named = ((key, self.sources.get(key.replace("-", "_"), COMMAND_LINE)) for key in _NAMED.findall(sentence))
            sources = {key: source for key, source in named if source != COMMAND_LINE and source not in sentence}
            if not sources:
                raise
            origins = ", ".join(f"--{key} is from {source}" for key, source in sources.items())
            raise UsageError(f"{sentence} ({origins})") from error


@functools.cache
def _help_by_option_name(options_class: type) -> dict[str, str]:
    """The help of each option by its name, from the docstring of the class that declares the options."""
    return {name: " ".join(text.split()) for name, text in _HELP.findall(inspect.cleandoc(options_class.__doc__ or ""))}


def options_by_key(options: Sequence[Option]) -> dict[str, Option]:
    """The declarations of options by key, and again by each alias."""
    return {key: option for option in options for key in option.key_and_aliases}


OptionsT = TypeVar("OptionsT", bound=Options)


def parse_option_text(parse: Callable[[str], _T], text: str, error_prefix: str) -> _T:
    """Parse the text of an option's value with `parse`; a UsageError about a wrong text begins with `error_prefix`."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{error_prefix}: {error}") from None


def options_from_python(
    options_class: type[OptionsT], python_values: Mapping[str, object], known_options: Sequence[Option]
) -> OptionsT:
    """Make options of class `options_class` from Python values by key or alias.

    A list or tuple means several values, and True sets a flag; None and False mean that the option is not given. Text
    is parsed as on the command line, by the declarations `known_options`. Raises UsageError if an option does not
    exist, or does not accept its value.
    """
    options = options_by_key(known_options)
    values: dict[str, object] = {}
    for key, value in python_values.items():
        if key not in options:
            raise UsageError(f"unknown option {key!r}{suggest_similar_names(key, options)}")
        if options[key].key in values:
            raise UsageError(f"{' and '.join(options[key].key_and_aliases)} are one option; give it once")
        values[options[key].key] = _parse_python_value(options[key], key, value)
    return options_class.from_command_line(values)


def format_command_line(python_values: Mapping[str, object], known_options: Sequence[Option]) -> list[str]:
    """The words of a command line that gives the same options as the Python values `python_values`."""
    words: list[str] = []
    options = options_by_key(known_options)
    for key, value in python_values.items():
        if options[key].flag:
            words += [f"--{options[key].command_line_name}"] if value else []
        elif value is not None:
            words += [f"--{options[key].command_line_name}", format_option_value(value)]
    return words


def format_option_value(value: object) -> str:
    """Write a Python value as the command line has it: ``[1e6, 2]`` → ``1000000,2``."""
    if isinstance(value, list | tuple):
        return parsers.NamesParser.format_names(map(format_option_value, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _parse_python_value(option: Option, key: str, value: object) -> object:
    """Parse the Python value of an option; None if the option is not given."""
    if option.flag:
        return True if value else None
    return None if value is None else parse_option_text(option.parse, format_option_value(value), key)
