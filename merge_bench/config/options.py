"""Declares the options of ``run``, from which command line, configs and documentation are made, and finds their values.

A value is from the command line, else from the config, else from the environment, else it is the default. The help of
an option is in the docstring of its class. `campaign` adds the values of options such as ``--engine``, which are the
files of a folder; functions that parse text take the table that is completed so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from merge_bench.config import parsers
from merge_bench.config.option import (
    Option,
    Options,
    choice_option,
    flag_option,
    options_by_key,
    parse_option_text,
    value_option,
)
from merge_bench.config.parsers import suggest_similar_names
from merge_bench.config.reader import ConfigFile, ConfigVariable
from merge_bench.config.variables import PREFIX, refuse_code_in_config, translate_config
from merge_bench.errors import UsageError

# The help of `iterations` has these numbers, too.
SMALL_CHUNK_ROWS = 2_000_000
SMALL_ITERATIONS = 100
LARGE_ITERATIONS = 10
_PARTITION_WRITES = parsers.choice_parser("auto", "plain", "streaming", lines="streaming")


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions(Options):
    """Options of the tables to merge and of the kind of merge.

    chunk: Rows per worker in each input frame. Several values make a sweep.
    frac_match: Fraction of keys in the right frame that match a key in the left one.
    payload_columns: Number of int64 columns besides the key, in each frame.
    skew: Skew of the right table's matching keys: none (each occurs once), or zipf:S (a Zipf law with exponent S).
        [none]
    how: Rows of the result. inner: the pairs of rows with equal keys; left, right, outer: also the rows of the left,
        the right or both tables that have no match, with nulls beside them; semi, anti: the rows of the left table that
        have a match or have none, without the right table's columns.
    seed: Random seed of the synthetic tables and of the order of measurements.
    """

    section = "The problem"
    chunk: int = value_option(
        parsers.several_values_parser(parsers.count_parser(1)), 1_000_000, "ROWS[,ROWS]", allows_sweep=True
    )
    frac_match: float = value_option(parsers.number_parser(0, 1), 0.3, "F")
    payload_columns: int = value_option(parsers.count_parser(1), 1, "N")
    skew: float = value_option(parsers.parse_skew, 0.0, "none|zipf:S")
    how: str = choice_option("inner|left|right|outer|semi|anti", "inner")
    seed: int = value_option(parsers.count_parser(0), 0, "N")
    workload: str = value_option(parsers.parse_lower_case_word, "auto", "NAME")


@dataclass(frozen=True, kw_only=True)
class InputTableOptions(Options):
    """Options that name the tables to merge, if they are not synthetic.

    left: Parquet file, folder or pattern of the left table.
    right: Parquet file, folder or pattern of the right table.
    on: Key column or columns (a,b), with the same names in both tables. Given again, each value is one name with all
        its commas and blanks.
    left_on: Key columns of the left table.
    right_on: Key columns of the right table.
    columns: Columns of both tables to merge besides the keys, and no others; repeated as --on. [all]
    scale: Scale factor of --workload tpch.
    """

    section = "Real tables"
    left: str | None = value_option(parsers.parse_path, None, "PATH")
    right: str | None = value_option(parsers.parse_path, None, "PATH")
    on: tuple[str, ...] | None = value_option(parsers.parse_columns, None, "KEY[,KEY]")
    left_on: tuple[str, ...] | None = value_option(parsers.parse_columns, None, "KEY[,KEY]")
    right_on: tuple[str, ...] | None = value_option(parsers.parse_columns, None, "KEY[,KEY]")
    columns: tuple[str, ...] | None = value_option(parsers.parse_columns, None, "NAME[,NAME]")
    scale: float = value_option(parsers.number_parser(0, 1e5, exclude_minimum=True), 1.0, "S")
    rows: int | None = value_option(parsers.count_parser(100, 10**9), None, "ROWS")
    question: str | None = value_option(parsers.parse_names, None, "Q[,Q]", allows_sweep=True)


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions(Options):
    """Options for how often a merge is measured, and which conditions the result has to meet.

    iterations: Timed merges per launch; by default 100 for synthetic chunks of up to 2,000,000 rows, else 10.
    warmup: Number of untimed merges before the timed ones.
    launches: Number of cluster launches of each run; several runs take turns, in random order. Confidence intervals
        need at least 6.
    extend: Add launches to this stored result of the same command, until each of its runs has --launches of them.
    fresh: Start a new campaign instead of resuming an interrupted one.
    wait_for_quiet: Before the first launch, wait for at most this long, such as 5m, until other processes keep less
        than a quarter of this host's cores busy. If they still do then, measure all the same, with a warning. Looks at
        this host only, and only if the workers run on it. [default: warn without waiting]
    verify: When to verify results. every: after each iteration; ends: after the warm-up and the last iteration; full:
        after the warm-up and the last iteration, comparing all rows; off: never.
    link_rounds: Least number of rounds of the link measurement of each launch, short rounds are repeated up to 50
        times; 0: no measurement of link and memory.
    check_link: Measure the link limit a second time, with ucx_perftest, and warn if the two values differ by more than
        10 %.
    against: Earlier result to compare this run with, or a folder that contains only that one; history: the present
        level of all results of this merge in --results.
    fail_on: Exit with status 5 if a comparison has a verdict named here: slower, inconclusive or not-faster.
    allow_no_baseline: Exit with status 0 instead of 5 if --fail-on or --against history finds nothing to compare with,
        such as the first nights of a merge.
    threshold: For --fail-on: ignore differences below this. [2%]
    require_transport: UCX transports; every pair of workers must use one of them, otherwise the exit status is 5.
    """

    section = "Measuring"
    iterations: int | None = value_option(parsers.count_parser(1), None, "N")
    warmup: int = value_option(parsers.count_parser(0), 1, "N")
    launches: int = value_option(parsers.count_parser(1), 1, "N", aliases=("blocks", "repetitions"))
    extend: str | None = value_option(parsers.parse_result, None, "RESULT", in_config=False)
    fresh: bool = flag_option(in_config=False)
    wait_for_quiet: float | None = value_option(parsers.parse_positive_duration, None, "DURATION", in_config=False)
    verify: str = choice_option("every|ends|full|off", "ends")
    link_rounds: int = value_option(parsers.count_parser(0), 5, "N")
    check_link: bool = flag_option()
    against: str | None = value_option(parsers.parse_path, None, "RESULT", in_config=False)
    fail_on: tuple[str, ...] = value_option(
        parsers.choices_parser("slower", "inconclusive", "not-faster"), (), "VERDICT[,VERDICT]"
    )
    allow_no_baseline: bool = flag_option(in_config=False)
    threshold: float = value_option(parsers.parse_percent, 0.02, "PERCENT")
    require_transport: tuple[str, ...] = value_option(parsers.parse_names, (), "NAME[,NAME]")


@dataclass(frozen=True, kw_only=True)
class DataPlaneOptions(Options):
    """Options for how workers partition, exchange and join rows.

    distribution: How rows reach their matches. shuffle: rows of both tables go to the worker that owns their key;
        broadcast: the smaller table goes whole to every worker, and the other stays where it is; auto: broadcast if
        that sends less than half of the bytes. Unless this option is given, synthetic tables are shuffled.
    pipeline: on: partition and join during the exchange; off: one phase after the other.
    partition_writes: How the partition step of a merge writes rows to memory. plain: value by value; streaming: whole
        cache lines, bypassing the cache; auto: whichever is faster on this host.
    runtime_filter: on: drop rows that cannot have a match before the frames are partitioned; off: partition and send
        every row.
    timeline: Record when each phase, batch of messages and barrier of each worker begins and ends; auto: unless that
        would take 1% of an iteration or more.
    error_handling: Error handling mode of UCX between workers. With peer, UCX uses only transports that report dead
        peers.
    message_size: Maximum message size; by default each partition is sent in as few messages as possible.
    """

    section = "Data plane"
    engine: str = value_option(parsers.parse_lower_case_word, "auto", "NAME", allows_sweep=True)
    exchange: str = value_option(parsers.parse_lower_case_word, "ucx", "NAME", allows_sweep=True)
    distribution: str = choice_option("auto|shuffle|broadcast", "auto")
    pipeline: str = choice_option("on|off", "off")
    partition_writes: str = value_option(_PARTITION_WRITES, "auto", "auto|plain|streaming", aliases=("stores",))
    runtime_filter: str = choice_option("on|off", "off")
    timeline: str = choice_option("auto|on|off", "auto")
    error_handling: str = choice_option("none|peer", "none")
    message_size: int | None = value_option(parsers.parse_size, None, "BYTES")


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options that workers get as they are: each is a field of their plan, `merge.plan.Plan`, and of the recorded one.

    shuffle: Shuffle method of Dask for --exchange dask. Several values make a sweep.
    """

    section: ClassVar[str] = "Data plane"
    shuffle: str = choice_option("p2p|tasks", "p2p", allows_sweep=True)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Options):
    """Options for how a cluster starts and connects.

    workers: Number of workers; several values make a sweep. [default: one per GPU; without GPUs, one per core and at
        most 2]
    workers_per_gpu: Workers per GPU.
    rmm_pool_size: Device memory of each worker's RMM pool, allocated at start.
    protocol: Protocol of Dask's own messages; auto: tls with a certificate of the run, but tcp for --exchange dask on
        loopback. tcp and ucx let everyone who can connect to the ports run code as you.
    insecure: Allow unencrypted control messages over the network. Anyone who can connect to the port can then run code.
    dask_dashboard: Serve Dask's own dashboard from the scheduler; this slows down the measurement.
    hosts: File with one host per line: NAME [slots=N] [gpus=N]. NAME may be a list such as node[01-04,07].
    ssh_config: ssh configuration file to use instead of the user's.
    ucx: UCX to load. wheel: the package libucx, without InfiniBand support; system: the UCX installed on this host;
        auto: the installed one where it supports the host's InfiniBand, elsewhere the package; a release (1.21.0): the
        package of that release, which pip installs once into the user's cache; a folder (/opt/ucx): the UCX that is
        installed there. run, probe and exec compare several ones. [$MERGE_BENCH_UCX, else auto]
    interface: Network interface that all processes bind to.
    scheduler_address: Use the running Dask cluster whose scheduler has this address.
    scheduler_file: Use the running Dask cluster whose scheduler wrote this file.
    start_timeout: Time limit for starting all workers.
    timeout: Fail if neither data nor a heartbeat arrives for this long.
    """

    section = "Cluster"
    workers: int | None = value_option(
        parsers.several_values_parser(parsers.count_parser(1)), None, "N[,N]", allows_sweep=True
    )
    workers_per_gpu: int = value_option(parsers.count_parser(1), 1, "N")
    rmm_pool_size: int | None = value_option(parsers.parse_size, None, "BYTES")
    protocol: str = choice_option("auto|tcp|tls|ucx", "auto")
    insecure: bool = flag_option()
    dask_dashboard: bool = flag_option()
    launcher: str = value_option(parsers.parse_lower_case_word, "auto", "NAME")
    hosts: str | None = value_option(parsers.parse_path, None, "PATH")
    ssh_config: str | None = value_option(parsers.parse_path, None, "PATH")
    ucx: str | None = value_option(
        parsers.several_values_parser(parsers.parse_ucx_origin),
        None,
        "auto|wheel|system|VERSION|/opt/ucx[,…]",
        in_config=False,
        allows_sweep=True,
    )
    interface: str | None = value_option(parsers.parse_interface_name, None, "NAME")
    scheduler_address: str | None = value_option(parsers.parse_nonblank_text, None, "ADDRESS")
    scheduler_file: str | None = value_option(parsers.parse_path, None, "PATH")
    start_timeout: float = value_option(parsers.parse_positive_duration, 60.0, "SECONDS")
    timeout: float = value_option(parsers.parse_positive_duration, 15.0, "SECONDS")


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Options for configs and the output of results.

    service: Address of a service (https://…) that runs the command instead of this machine; also in the environment, as
        MERGE_BENCH_SERVICE.
    config: A .cfg file, or the name of a shipped config.
    configs: Configs to compare, launched in turn; the first is the baseline.
    allow_unknown: Continue if the config contains unknown or invalid settings.
    trust_config: Trust the config: accept variables that can load code (such as LD_PRELOAD), and pass all its variables
        to the cluster's processes.
    write_result: New or empty folder for the merged table, as Parquet files, one per worker. They are written after the
        timed merges, and verified again when read back. On several hosts, each has the parts of its own workers, unless
        the hosts share the folder. [default: the merged table is verified, then dropped]
    results: Folder in which campaigns are stored.
    details: Print every table before the conclusion.
    json: Print one JSON document on standard output.
    dry_run: Print what would be started, without starting it.
    """

    section = "Output"
    service: str | None = value_option(parsers.parse_service_address, None, "URL", in_config=False)
    config: str | None = value_option(parsers.parse_path, None, "CFG", in_config=False)
    configs: tuple[str, ...] | None = value_option(parsers.parse_paths, None, "CFG[,CFG]", in_config=False)
    allow_unknown: bool = flag_option()
    trust_config: bool = flag_option(in_config=False)
    write_result: str | None = value_option(parsers.parse_path, None, "FOLDER", in_config=False)
    results: str = value_option(parsers.parse_path, "results", "PATH")
    details: bool = flag_option()
    json: bool = flag_option(in_config=False)
    dry_run: bool = flag_option(in_config=False)


@dataclass(frozen=True, kw_only=True)
class RunOptions(
    OutputOptions,
    ClusterOptions,
    WorkerOptions,
    DataPlaneOptions,
    MeasurementOptions,
    InputTableOptions,
    WorkloadOptions,
):  # the fields of the last base come first
    """All options of `run`; other commands make their plans from them, too."""

    @property
    def timed_iteration_count(self) -> int:
        """The number of timed merges: `iterations`, or by default a number that suits the size of the tables."""
        if self.iterations is not None:
            return self.iterations
        small = self.workload == "synthetic" and self.chunk <= SMALL_CHUNK_ROWS
        return SMALL_ITERATIONS if small else LARGE_ITERATIONS

    def worker_option_values(self) -> dict[str, Any]:
        """The values of the options that workers get, by key."""
        return {field.name: getattr(self, field.name) for field in fields(WorkerOptions)}


OPTIONS: tuple[Option, ...] = RunOptions.declared_options()
BY_KEY = options_by_key(OPTIONS)
BY_VARIABLE = {variable: option for option in OPTIONS for variable in option.environment_variables}
_CLUSTER = tuple(option.key for option in ClusterOptions.declared_options())
_ALWAYS = ("allow_unknown", "trust_config", "json")


def _options_with_keys(*keys: str) -> tuple[Option, ...]:
    """The declarations of the options with these keys, in the order of `OPTIONS`."""
    return tuple(option for option in OPTIONS if option.key in keys)


CLUSTER_OPTIONS = _options_with_keys("engine", "error_handling", "config", *_ALWAYS, *_CLUSTER)
"""The options of `transports`: how a cluster starts and connects."""
PROBE_LAUNCHES = "Number of launches of each config, in random order. [3, or 1 on a running cluster]"
PROBE_OPTIONS = (
    replace(BY_KEY["launches"], help=PROBE_LAUNCHES),
    *_options_with_keys("service", "seed", "results", "fresh", "wait_for_quiet", "dry_run", *_ALWAYS, *_CLUSTER),
)
"""The options of all network measurements, which take several configs."""
# Tuning decides about launches and configs itself.
TUNE_OPTIONS = _options_with_keys(
    *set(BY_KEY)
    - {"config", "configs", "launches", "link_rounds", "check_link", "require_transport"}
    - {"extend", "timeline", "write_result", "against", "fail_on", "allow_no_baseline", "threshold"}
)


def reset_merge_options(options: RunOptions, kept_options: Sequence[Option]) -> RunOptions:
    """A copy of `options` for a command that does not merge: all but those in `kept_options` get their default."""
    fixed = {option.key: option.default for option in OPTIONS if option not in kept_options}
    return options.with_sourced_values({**fixed, "workload": "synthetic", "chunk": 1, "iterations": 1}, {})


def config_option_problem(
    variable: ConfigVariable, known_options: Sequence[Option] = OPTIONS
) -> tuple[str, str] | None:
    """Why a config cannot set this ``MERGE_BENCH_…`` variable: ``unknown`` or ``invalid``, with a sentence; or None."""
    option = next((option for option in known_options if variable.name in option.environment_variables), None)
    if option is None:
        # What a variable may mean, by what follows the prefix that all have.
        names = (known.removeprefix(PREFIX) for known in BY_VARIABLE)
        near = suggest_similar_names(variable.name.removeprefix(PREFIX), names, prefix=PREFIX)
        return "unknown", f"merge-bench run has no such option{near}"
    if not option.in_config:
        return "invalid", f"--{option.command_line_name} can be set only on the command line"
    try:
        option.parse(variable.value)
    except ValueError as error:
        return "invalid", str(error)
    return None


def resolve_options(
    command_line_options: RunOptions,
    config: ConfigFile | None,
    environ: Mapping[str, str],
    known_options: Sequence[Option] = OPTIONS,
) -> RunOptions:
    """Find the value of each option in the first source that sets it: command line, config or environment.

    Refuses an untrusted config that brings code.

    `config`: that of the run, in which unknown ``MERGE_BENCH_…`` names are errors; `environ`: the environment, in which
    they are ignored, and an empty value counts as unset; `known_options`: the options, completed by `campaign`. Raises
    UsageError, which names the option, or file and line of the config, if an option is wrong.
    """
    if config is not None and not command_line_options.trust_config:
        refuse_code_in_config(config)
    options = read_option_sources(command_line_options, config, environ, known_options)
    if options.workload == "auto":
        options = replace(options, workload="synthetic" if options.left is None else "tables")
    with options.naming_value_sources():
        _check_option_combinations(options)
    return options


def read_option_sources(
    command_line_options: RunOptions,
    config: ConfigFile | None,
    environ: Mapping[str, str],
    known_options: Sequence[Option] = OPTIONS,
) -> RunOptions:
    """Find the value of each option in the first source that sets it, without checks of combinations or of code."""
    settings = {} if config is None else translate_config(config).options
    if config is not None:
        _refuse_wrong_options(config, settings.values(), known_options, command_line_options)
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for option in known_options:
        if option.key in command_line_options.sources:
            continue
        in_config = [settings[name] for name in option.environment_variables if name in settings]
        in_environment = [name for name in option.environment_variables if option.in_config and environ.get(name)]
        if config is not None and in_config:
            setting = in_config[0]
            where = config.format_position(setting.line)
            _refuse_repeated_option([each.name for each in in_config], where)
            values[option.key] = parse_option_text(option.parse, setting.value, f"{where}: {setting.name}")
            sources[option.key] = f"config {where}"
        elif in_environment:
            name = in_environment[0]
            _refuse_repeated_option(in_environment, "the environment")
            values[option.key] = parse_option_text(option.parse, environ[name], f"environment variable {name}")
            sources[option.key] = f"environment {name}"
    return command_line_options.with_sourced_values(values, sources)


def _refuse_wrong_options(
    config: ConfigFile,
    settings: Iterable[ConfigVariable],
    known_options: Sequence[Option],
    command_line_options: RunOptions,
) -> None:
    """Raise UsageError with a line for each of the config's ``MERGE_BENCH_…`` variables that is wrong.

    A value that the command line replaces is not looked at.
    """
    replaced = {
        name
        for option in known_options
        if option.in_config and option.key in command_line_options.sources
        for name in option.environment_variables
    }
    problems = (
        (variable, config_option_problem(variable, known_options))
        for variable in sorted(settings, key=lambda variable: variable.line)
        if variable.name not in replaced
    )
    if lines := [
        f"{config.format_position(variable.line)}: {variable.name}: {problem[1]}"
        for variable, problem in problems
        if problem is not None
    ]:
        raise UsageError("\n".join(lines))


def _refuse_repeated_option(names: Sequence[str], source_text: str) -> None:
    """Raise UsageError if several names of one option are set."""
    if len(names) > 1:
        raise UsageError(f"{source_text}: {' and '.join(names)} are one option; set one of them")


def refuse_address_as_columns(options: RunOptions) -> None:
    """Raise UsageError if ``--on`` or its variable has the address of a service instead of key columns."""
    names = options.on or ()
    if any("://" in name for name in names):
        raise UsageError(
            f"{options.option_name_with_source('on')} {','.join(names)} names no columns;"
            " the commands run, probe, tune and exec take the address"
            " of a service as --service, or from MERGE_BENCH_SERVICE"
        )


def _check_option_combinations(options: RunOptions) -> None:
    """Raise UsageError if options contradict each other."""

    def refuse_both(first_key: str, second_key: str) -> None:
        if getattr(options, first_key) is not None and getattr(options, second_key) is not None:
            first, second = map(options.option_name_with_source, (first_key, second_key))
            raise UsageError(f"{first} and {second} cannot be combined")

    def require_other(key: str, required_key: str) -> None:
        if getattr(options, key) is not None and getattr(options, required_key) is None:
            raise UsageError(f"{options.option_name_with_source(key)} also needs --{required_key.replace('_', '-')}")

    refuse_address_as_columns(options)
    if options.extend is not None and options.fresh:
        raise UsageError("--extend adds to a stored result, and --fresh starts a new one; use one of them")
    refuse_both("config", "configs")
    refuse_both("scheduler_address", "scheduler_file")
    refuse_both("on", "left_on")
    refuse_both("on", "right_on")
    for left, right in (("left", "right"), ("left_on", "right_on")):
        require_other(left, right)
        require_other(right, left)
    left_on, right_on = options.left_on or (), options.right_on or ()
    if len(left_on) != len(right_on):
        raise UsageError(f"--left-on has {len(left_on)} columns, but --right-on has {len(right_on)}")
    tables = options.left is not None
    if tables and options.workload != "tables":
        raise UsageError(
            f"{options.option_name_with_source('left')} cannot be combined with --workload {options.workload}"
        )
    if options.workload == "tables" and not tables:
        named = options.option_name_with_source("workload").replace("--workload", "--workload tables", 1)
        raise UsageError(f"{named} needs --left and --right")
    if tables and not options.on and not left_on:
        raise UsageError(f"{options.option_name_with_source('left')} needs --on, or --left-on and --right-on")
