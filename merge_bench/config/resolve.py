"""Command line > config > environment > default: the value of every option of ``run``, and where it comes from."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.config.names import translate_config
from merge_bench.config.options import (
    BY_VARIABLE,
    LARGE_ITERATIONS,
    OPTIONS,
    SMALL_CHUNK_ROWS,
    SMALL_ITERATIONS,
    Option,
)
from merge_bench.config.reader import ConfigFile, Variable
from merge_bench.config.trust import refuse_code
from merge_bench.errors import UsageError

COMMAND_LINE = "command line"
DEFAULT = "default"
PLACES = ("command", "config", "environment", DEFAULT)
"""The first words of sources, the first that counts first."""

SWEPT = ("chunk", "workers")


@dataclass(frozen=True)
class Resolved:
    """The effective options.

    `values`: by `Option.key`, each of the type that the option's parser gives, or its default. `sources`: by the same
    keys: ``command line``, ``config FILE:LINE``, ``environment NAME`` or ``default``.
    """

    values: dict[str, object]
    sources: dict[str, str]


def resolve(
    cli_values: Mapping[str, object], config: ConfigFile | None, environ: Mapping[str, str],
    table: Sequence[Option] = OPTIONS,
) -> Resolved:  # fmt: skip
    """Take each option from the first place that gives it; the config must be trusted, or bring no code.

    Parameters
    ----------
    cli_values
        Parsed values by `Option.key`; None (or no entry) for what was not given.
    config
        The config of the run, if any. Unknown ``MERGE_BENCH_…`` names in it are errors.
    environ
        The environment; an empty value counts as not set, and names that are no option are left alone.
    table
        The options; `campaign.choices` completes those whose values only other rooms know.

    Raises
    ------
    UsageError
        Names the option, or file and line for a value of the config.
    """
    if config is not None and not cli_values.get("trust_config"):
        refuse_code(config)
    settings = _settings(config)
    found: dict[str, object] = {}
    sources: dict[str, str] = {}
    for option in table:
        variable = settings.get(option.variable)
        if cli_values.get(option.key) is not None:
            found[option.key], sources[option.key] = cli_values[option.key], COMMAND_LINE
        elif config is not None and variable is not None:
            where = config.where(variable.line)
            found[option.key] = _parse(option, variable.value, f"{where}: {variable.name}")
            sources[option.key] = f"config {where}"
        elif option.in_config and environ.get(option.variable):
            found[option.key] = _parse(option, environ[option.variable], f"environment variable {option.variable}")
            sources[option.key] = f"environment {option.variable}"
        else:
            found[option.key], sources[option.key] = option.default, DEFAULT
    _check_combinations(found, sources)
    _choose_launches(found, sources)
    _derive(found)
    return Resolved(found, sources)


def expand(options: Resolved) -> list[Resolved]:
    """One for every combination of the options that name several values (a sweep); `options` itself where none does."""
    values = options.values
    swept = {key: value for key in SWEPT if isinstance(value := values[key], tuple)}
    found = []
    for combination in itertools.product(*swept.values()):
        one = {**values, **dict(zip(swept, combination, strict=True))}
        if swept and options.sources["iterations"] == DEFAULT:
            one["iterations"] = None
        _derive(one)
        found.append(Resolved(one, options.sources))
    return found


def unknown_options(config: ConfigFile) -> tuple[tuple[Variable, str], ...]:
    """The ``MERGE_BENCH_…`` settings of `config` that are no option, each with a sentence."""
    found: list[tuple[Variable, str]] = []
    for variable in translate_config(config).options.values():
        option = BY_VARIABLE.get(variable.name)
        if option is None:
            near = difflib.get_close_matches(variable.name, BY_VARIABLE, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            found.append((variable, f"there is no such option of run{hint}"))
        elif not option.in_config:
            found.append((variable, f"--{option.name} can be given on the command line only"))
    return tuple(found)


def check_option(variable: Variable, table: Sequence[Option] = OPTIONS) -> str | None:
    """The sentence about a ``MERGE_BENCH_…`` value that its option in `table` does not take, or None."""
    option = next(option for option in table if option.variable == variable.name)
    try:
        option.parse(variable.value)
    except ValueError as error:
        return str(error)
    return None


def _settings(config: ConfigFile | None) -> dict[str, Variable]:
    if config is None:
        return {}
    for variable, sentence in unknown_options(config):
        raise UsageError(f"{config.where(variable.line)}: {variable.name}: {sentence}")
    return translate_config(config).options


def _parse(option: Option, text: str, where: str) -> object:
    try:
        return option.parse(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _given(key: str, sources: Mapping[str, str]) -> str:
    """How a person finds the option: where it comes from, if not from the command line."""
    option = f"--{key.replace('_', '-')}"
    return option if sources[key] == COMMAND_LINE else f"{option} ({sources[key]})"


def _check_combinations(found: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Refuse options that contradict each other."""

    def both(one: str, other: str) -> None:
        if found[one] is not None and found[other] is not None:
            raise UsageError(f"{_given(one, sources)} and {_given(other, sources)} exclude each other")

    def needs(one: str, other: str) -> None:
        if found[one] is not None and found[other] is None:
            raise UsageError(f"{_given(one, sources)} needs --{other.replace('_', '-')} too")

    both("config", "configs")
    both("scheduler_address", "scheduler_file")
    both("on", "left_on")
    both("on", "right_on")
    for one, other in (("left", "right"), ("left_on", "right_on")):
        needs(one, other)
        needs(other, one)
    left_on, right_on = found["left_on"], found["right_on"]
    if isinstance(left_on, tuple) and isinstance(right_on, tuple) and len(left_on) != len(right_on):
        raise UsageError(f"--left-on names {len(left_on)} columns and --right-on {len(right_on)}")
    tables = found["left"] is not None
    if tables and found["workload"] not in ("auto", "tables"):
        raise UsageError(f"{_given('left', sources)} cannot go with --workload {found['workload']}")
    if found["workload"] == "tables" and not tables:
        raise UsageError(f"{_given('workload', sources)} tables needs --left and --right")
    if tables and found["on"] is None and left_on is None:
        raise UsageError(f"{_given('left', sources)} needs --on, or --left-on and --right-on")


def _choose_launches(found: dict[str, object], sources: Mapping[str, str]) -> None:
    """``--blocks`` is another name of ``--launches``: the one from the place that comes first counts."""
    if found["blocks"] is None:
        return
    launches, blocks = (PLACES.index(sources[key].partition(" ")[0]) for key in ("launches", "blocks"))
    if launches == blocks:
        raise UsageError(f"{_given('launches', sources)} and {_given('blocks', sources)} exclude each other")
    if blocks < launches:
        found["launches"] = found["blocks"]


def _derive(found: dict[str, object]) -> None:
    """Fill the defaults that depend on other options."""
    if found["workload"] == "auto":
        found["workload"] = "tables" if found["left"] is not None else "synthetic"
    if found["iterations"] is None:
        chunk = found["chunk"]
        small = found["workload"] == "synthetic" and isinstance(chunk, int) and chunk <= SMALL_CHUNK_ROWS
        found["iterations"] = SMALL_ITERATIONS if small else LARGE_ITERATIONS
