"""Finds the value of every option of ``run``: from command line, else config, else environment, else the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from merge_bench.config.old_names import translate_config
from merge_bench.config.option import Option, parse_text
from merge_bench.config.options import OPTIONS, RunOptions, option_problem
from merge_bench.config.reader import ConfigFile
from merge_bench.config.trust import refuse_code
from merge_bench.errors import UsageError


def resolve(
    given: RunOptions, config: ConfigFile | None, environ: Mapping[str, str], table: Sequence[Option] = OPTIONS
) -> RunOptions:
    """Take each option from the first source that sets it; refuses an untrusted config that brings code.

    Parameters
    ----------
    given
        The options that the command line gave.
    config
        The config of the run, if any. Unknown ``MERGE_BENCH_…`` names in it are errors.
    environ
        The environment. An empty value counts as unset, and unknown names are ignored.
    table
        The options, completed by `campaign.registry_options`.

    Raises
    ------
    UsageError
        If an option is wrong; names the option, or file and line of the config.
    """
    if config is not None and not given.trust_config:
        refuse_code(config)
    options = read_sources(given, config, environ, table)
    if options.workload == "auto":
        options = replace(options, workload="synthetic" if options.left is None else "tables")
    _check_combinations(options)
    return options


def read_sources(
    given: RunOptions, config: ConfigFile | None, environ: Mapping[str, str], table: Sequence[Option] = OPTIONS
) -> RunOptions:
    """Take each option from the first source that sets it, without checks of combinations or of code in the config."""
    settings = {} if config is None else translate_config(config).options
    allowed = {variable for option in table if option.in_config for variable in option.variables}
    for variable in settings.values():
        problem = option_problem(variable, table)
        if config is not None and problem is not None and variable.name not in allowed:
            raise UsageError(f"{config.where(variable.line)}: {variable.name}: {problem[1]}")
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for option in table:
        if option.key in given.sources:
            continue
        in_config = [settings[name] for name in option.variables if name in settings]
        in_environment = [name for name in option.variables if option.in_config and environ.get(name)]
        if config is not None and in_config:
            setting = in_config[0]
            where = config.where(setting.line)
            _refuse_repeated_option([each.name for each in in_config], where)
            values[option.key] = parse_text(option.parse, setting.value, f"{where}: {setting.name}")
            sources[option.key] = f"config {where}"
        elif in_environment:
            name = in_environment[0]
            _refuse_repeated_option(in_environment, "the environment")
            values[option.key] = parse_text(option.parse, environ[name], f"environment variable {name}")
            sources[option.key] = f"environment {name}"
    return given.updated(values, sources)


def _refuse_repeated_option(names: Sequence[str], where: str) -> None:
    if len(names) > 1:
        raise UsageError(f"{where}: {' and '.join(names)} are one option; set one of them")


def _check_combinations(options: RunOptions) -> None:
    """Refuse options that contradict each other."""

    def both(key: str, other: str) -> None:
        if getattr(options, key) is not None and getattr(options, other) is not None:
            raise UsageError(f"{options.shown(key)} and {options.shown(other)} cannot be combined")

    def needs(key: str, other: str) -> None:
        if getattr(options, key) is not None and getattr(options, other) is None:
            raise UsageError(f"{options.shown(key)} also needs --{other.replace('_', '-')}")

    on = options.on or ()
    if any("://" in name for name in on) and not options.source("on").startswith("environment"):
        raise UsageError(
            f"{options.shown('on')} {','.join(on)} names no columns; the commands run, probe and tune take the address"
            " of a service as --service"
        )
    if options.extend is not None and options.fresh:
        raise UsageError("--extend adds to a stored result, and --fresh starts a new one; use one of them")
    both("config", "configs")
    both("scheduler_address", "scheduler_file")
    both("on", "left_on")
    both("on", "right_on")
    for left, right in (("left", "right"), ("left_on", "right_on")):
        needs(left, right)
        needs(right, left)
    left_on, right_on = options.left_on or (), options.right_on or ()
    if len(left_on) != len(right_on):
        raise UsageError(f"--left-on has {len(left_on)} columns, but --right-on has {len(right_on)}")
    tables = options.left is not None
    if tables and options.workload != "tables":
        raise UsageError(f"{options.shown('left')} cannot be combined with --workload {options.workload}")
    if options.workload == "tables" and not tables:
        named = options.shown("workload").replace("--workload", "--workload tables", 1)
        raise UsageError(f"{named} needs --left and --right")
    if tables and not options.on and not left_on:
        raise UsageError(f"{options.shown('left')} needs --on, or --left-on and --right-on")
