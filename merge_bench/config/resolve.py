"""The value of every option of ``run`` and its source: command line > config > environment > default."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.config.old_names import translate_config
from merge_bench.config.options import (
    LARGE_ITERATIONS,
    OPTIONS,
    SMALL_CHUNK_ROWS,
    SMALL_ITERATIONS,
    Option,
    option_problem,
    parse_text,
)
from merge_bench.config.reader import ConfigFile
from merge_bench.config.trust import refuse_code
from merge_bench.errors import UsageError

COMMAND_LINE = "command line"
DEFAULT = "default"
PLACES = ("command", "config", "environment", DEFAULT)
"""The first words of sources, in the order of precedence."""

SWEPT = ("chunk", "workers", "question", "engine", "exchange", "shuffle")
"""Options of which several values make a sweep; what is merged first, so that runs of one problem stand together."""


@dataclass(frozen=True)
class Resolved:
    """The effective options.

    `values`: parsed values or defaults by `Option.key`. `sources`: by the same keys, ``command line``,
    ``config FILE:LINE``, ``environment NAME`` or ``default``.
    """

    values: dict[str, object]
    sources: dict[str, str]


def resolve(
    cli_values: Mapping[str, object], config: ConfigFile | None, environ: Mapping[str, str],
    table: Sequence[Option] = OPTIONS,
) -> Resolved:  # fmt: skip
    """Take each option from the first source that sets it. A config that brings code must be trusted.

    Parameters
    ----------
    cli_values
        Parsed values by `Option.key`; None (or no entry) for an option that was not given.
    config
        The config of the run, if any. Unknown ``MERGE_BENCH_…`` names in it are errors.
    environ
        The environment. An empty value counts as unset, and unknown names are ignored.
    table
        The options, completed by `campaign.registry_options`.

    Raises
    ------
    UsageError
        Names the option, or file and line of the config.
    """
    if config is not None and not cli_values.get("trust_config"):
        refuse_code(config)
    settings = {} if config is None else translate_config(config).options
    allowed = {option.variable for option in table if option.in_config}
    for variable in settings.values():
        problem = option_problem(variable, table)
        if config is not None and problem is not None and variable.name not in allowed:
            raise UsageError(f"{config.where(variable.line)}: {variable.name}: {problem[1]}")
    found: dict[str, object] = {}
    sources: dict[str, str] = {}
    for option in table:
        setting = settings.get(option.variable)
        if cli_values.get(option.key) is not None:
            found[option.key], sources[option.key] = cli_values[option.key], COMMAND_LINE
        elif config is not None and setting is not None:
            where = config.where(setting.line)
            found[option.key] = parse_text(option.parse, setting.value, f"{where}: {setting.name}")
            sources[option.key] = f"config {where}"
        elif option.in_config and (text := environ.get(option.variable)):
            found[option.key] = parse_text(option.parse, text, f"environment variable {option.variable}")
            sources[option.key] = f"environment {option.variable}"
        else:
            found[option.key], sources[option.key] = option.default, DEFAULT
    _check_combinations(found, sources)
    _choose_launches(found, sources)
    _derive(found)
    return Resolved(found, sources)


def expand(options: Resolved) -> list[Resolved]:
    """One result for each combination of the options with several values (a sweep).

    Raises
    ------
    UsageError
        If one of these options has no effect.
    """
    values = options.values
    swept = {key: value for key in SWEPT if isinstance(value := values[key], tuple)}
    if "shuffle" in swept and "dask" not in (values["exchange"], *swept.get("exchange", ())):
        raise UsageError("several values of --shuffle need --exchange dask; only Dask's exchange has a shuffle method")
    if "chunk" in swept and values["workload"] != "synthetic":
        raise UsageError("--chunk cannot be used with real tables, whose size is fixed; omit --chunk")
    found = []
    for combination in itertools.product(*swept.values()):
        one = {**values, **dict(zip(swept, combination, strict=True))}
        if "shuffle" in swept and one["exchange"] != "dask" and one["shuffle"] != swept["shuffle"][0]:
            continue
        if swept and options.sources["iterations"] == DEFAULT:
            one["iterations"] = None
        _derive(one)
        found.append(Resolved(one, options.sources))
    return found


def _given(key: str, sources: Mapping[str, str]) -> str:
    """The option, and its source unless that is the command line."""
    option = f"--{key.replace('_', '-')}"
    return option if sources[key] == COMMAND_LINE else f"{option} ({sources[key]})"


def _check_combinations(found: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Refuse options that contradict each other."""

    def both(one: str, other: str) -> None:
        if found[one] is not None and found[other] is not None:
            raise UsageError(f"{_given(one, sources)} and {_given(other, sources)} cannot be combined")

    def needs(one: str, other: str) -> None:
        if found[one] is not None and found[other] is None:
            raise UsageError(f"{_given(one, sources)} also needs --{other.replace('_', '-')}")

    on = found["on"]
    if isinstance(on, tuple) and any("://" in name for name in on) and not sources["on"].startswith("environment"):
        why = "only the commands run, probe and tune can use a service, whose address begins with https:// or http://"
        raise UsageError(f"{_given('on', sources)} {','.join(on)} names no columns; {why}")
    if found["extend"] is not None and found["fresh"]:
        raise UsageError("--extend adds to a stored result, and --fresh starts a new one; use one of them")
    both("config", "configs")
    both("scheduler_address", "scheduler_file")
    both("on", "left_on")
    both("on", "right_on")
    for one, other in (("left", "right"), ("left_on", "right_on")):
        needs(one, other)
        needs(other, one)
    left_on, right_on = found["left_on"], found["right_on"]
    if isinstance(left_on, tuple) and isinstance(right_on, tuple) and len(left_on) != len(right_on):
        raise UsageError(f"--left-on has {len(left_on)} columns, but --right-on has {len(right_on)}")
    tables = found["left"] is not None
    if tables and found["workload"] not in ("auto", "tables"):
        raise UsageError(f"{_given('left', sources)} cannot be combined with --workload {found['workload']}")
    if found["workload"] == "tables" and not tables:
        given = _given("workload", sources).replace("--workload", "--workload tables", 1)
        raise UsageError(f"{given} needs --left and --right")
    if tables and found["on"] is None and left_on is None:
        raise UsageError(f"{_given('left', sources)} needs --on, or --left-on and --right-on")


def _choose_launches(found: dict[str, object], sources: Mapping[str, str]) -> None:
    """``--blocks`` is another name of ``--launches``; the one whose source takes precedence is used."""
    if found["blocks"] is None:
        return
    launches, blocks = (PLACES.index(sources[key].partition(" ")[0]) for key in ("launches", "blocks"))
    if launches == blocks:
        raise UsageError(f"{_given('launches', sources)} and {_given('blocks', sources)} cannot be combined")
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
