"""Declares the options of ``run`` as fields, from which command line, configs and documentation are made.

`campaign.registry_options` adds the values of options such as ``--engine``, which are the files of a folder; functions
that parse text take the table that is completed so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from merge_bench.config import parsers
from merge_bench.config.old_names import PREFIX
from merge_bench.config.option import Option, Options, choice, flag, option, options_by_key
from merge_bench.config.parsers import did_you_mean
from merge_bench.config.reader import Variable

SMALL_CHUNK_ROWS = 2_000_000
SMALL_ITERATIONS = 100
LARGE_ITERATIONS = 10


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(Options):
    """Options of the tables to merge and of the kind of merge."""

    section = "The problem"
    chunk: int = option(
        parsers.counts(1),
        1_000_000,
        "Rows per worker in each input frame. Several values make a sweep.",
        "ROWS[,ROWS]",
        swept=True,
    )
    frac_match: float = option(
        parsers.number(0, 1), 0.3, "Fraction of keys in the right frame that match a key in the left one.", "F"
    )
    payload_columns: int = option(parsers.count(1), 1, "Number of int64 columns besides the key, in each frame.", "N")
    skew: float = option(
        parsers.skew,
        0.0,
        "Skew of the right table's matching keys: none (each occurs once), or zipf:S (a Zipf law with exponent S)."
        " [none]",
        "none|zipf:S",
    )
    how: str = choice(
        "inner|left|right|outer|semi|anti",
        "inner",
        "Rows of the result. inner: the pairs of rows with equal keys; left, right, outer: also the rows of the left,"
        " the right or both tables that have no match, with nulls beside them; semi, anti: the rows of the left table"
        " that have a match or have none, without the right table's columns.",
    )
    seed: int = option(
        parsers.count(0), 0, "Random seed of the synthetic tables and of the order of measurements.", "N"
    )
    workload: str = choice(
        "auto|synthetic|tables|tpch|h2o",
        "auto",
        "Tables to merge. synthetic: generated from --chunk and --seed; tables: the files of --left and --right; tpch:"
        " TPC-H at --scale; h2o: the join task of the db-benchmark, with --rows; auto: tables if --left and --right are"
        " given, else synthetic.",
    )


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """Options that name the tables to merge, if they are not synthetic."""

    section = "Real tables"
    left: str | None = option(parsers.path, None, "Parquet file, folder or pattern of the left table.", "PATH")
    right: str | None = option(parsers.path, None, "Parquet file, folder or pattern of the right table.", "PATH")
    on: tuple[str, ...] | None = option(
        parsers.columns,
        None,
        "Key column or columns (a,b), with the same names in both tables. Given again, each value is one name with all"
        " its commas and blanks.",
        "KEY[,KEY]",
    )
    left_on: tuple[str, ...] | None = option(parsers.columns, None, "Key columns of the left table.", "KEY[,KEY]")
    right_on: tuple[str, ...] | None = option(parsers.columns, None, "Key columns of the right table.", "KEY[,KEY]")
    columns: tuple[str, ...] | None = option(
        parsers.columns,
        None,
        "Columns of both tables to merge beside the keys, and no others; repeated as --on. [all]",
        "NAME[,NAME]",
    )
    scale: float = option(parsers.number(0, 1e5, above=True), 1.0, "Scale factor of --workload tpch.", "S")
    rows: int | None = option(
        parsers.count(100, 10**9), None, "Rows of the left table of --workload h2o. [10,000,000]", "ROWS"
    )
    question: str | None = option(
        parsers.names,
        None,
        "Questions of --workload h2o (1 to 5) or tpch (joins of TPC-H's queries 3 and 5: orders-lineitem,"
        " customer-orders, supplier-lineitem, nation-supplier, nation-customer, region-nation). Several values make a"
        " sweep. [h2o: all; tpch: orders-lineitem]",
        "Q[,Q]",
        swept=True,
    )


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(Options):
    """Options for how often a merge is measured, and which conditions the result has to meet."""

    section = "Measuring"
    iterations: int | None = option(
        parsers.count(1),
        None,
        f"Timed merges per launch; by default {SMALL_ITERATIONS} for synthetic chunks of up to {SMALL_CHUNK_ROWS:,}"
        f" rows, else {LARGE_ITERATIONS}.",
        "N",
    )
    warmup: int = option(parsers.count(0), 1, "Number of untimed merges before the timed ones.", "N")
    launches: int = option(
        parsers.count(1),
        1,
        "Number of cluster launches of each run; several runs take turns, in random order. Confidence intervals need at"
        " least 6.",
        "N",
        aliases=("blocks", "repetitions"),
    )
    extend: str | None = option(
        parsers.path,
        None,
        "Add launches to this stored result of the same command, until each of its runs has --launches of them.",
        "RESULT",
        in_config=False,
    )
    fresh: bool = flag("Start a new campaign instead of resuming an interrupted one.", in_config=False)
    wait_for_quiet: float | None = option(
        parsers.duration,
        None,
        "Before the first launch, wait for at most this long, such as 5m, until other processes keep less than a"
        " quarter of this host's cores busy. If they still do then, measure all the same, with a warning. Looks at this"
        " host only, and only if the workers run on it. [default: warn without waiting]",
        "DURATION",
        in_config=False,
    )
    verify: str = choice(
        "every|ends|full|off",
        "ends",
        "When to verify results. every: after each iteration; ends: after the warm-up and the last iteration; full:"
        " after the warm-up and the last iteration, comparing all rows; off: never.",
    )
    link_rounds: int = option(
        parsers.count(0),
        5,
        "Least number of rounds of the link measurement of each launch, short rounds are repeated up to 50 times; 0: no"
        " measurement of link and memory.",
        "N",
    )
    check_link: bool = flag(
        "Measure the link limit a second time, with ucx_perftest, and warn if the two values differ by more than 10 %."
    )
    against: str | None = option(
        parsers.path,
        None,
        "Earlier result to compare this run with, or a folder that contains only that one; history: the present level"
        " of all results of this merge in --results.",
        "RESULT",
        in_config=False,
    )
    fail_on: tuple[str, ...] = option(
        parsers.choices("slower", "inconclusive", "not-faster"),
        (),
        "Exit with status 5 if a comparison has a verdict named here: slower, inconclusive or not-faster.",
        "VERDICT[,VERDICT]",
    )
    allow_no_baseline: bool = flag(
        "Exit with status 0 instead of 5 if --fail-on or --against history finds nothing to compare with, such as the"
        " first nights of a merge.",
        in_config=False,
    )
    threshold: float = option(parsers.percent, 0.02, "For --fail-on: ignore differences below this. [2%]", "PERCENT")
    require_transport: tuple[str, ...] = option(
        parsers.names,
        (),
        "UCX transports; every pair of workers must use one of them, otherwise the exit status is 5.",
        "NAME[,NAME]",
    )


@dataclass(frozen=True, kw_only=True)
class DataPlaneOptions(Options):
    """Options for how workers partition, exchange and join rows."""

    section = "Data plane"
    engine: str = option(parsers.word, "auto", "", "NAME", swept=True)
    exchange: str = option(parsers.word, "ucx", "", "NAME", swept=True)
    distribution: str = choice(
        "shuffle|broadcast|auto",
        "shuffle",
        "How rows reach their matches. shuffle: rows of both tables go to the worker that owns their key; broadcast:"
        " the smaller table goes whole to every worker, and the other stays where it is; auto: broadcast if that sends"
        " less than half of the bytes.",
    )
    shuffle: str = choice("p2p|tasks", "p2p", "Shuffle method of Dask for --exchange dask.", swept=True)
    pipeline: str = choice(
        "on|off", "off", "on: partition and join during the exchange; off: one phase after the other."
    )
    stores: str = choice(
        "auto|plain|lines",
        "auto",
        "How the partition step of a merge writes rows to memory. plain: value by value; lines: whole cache lines,"
        " bypassing the cache; auto: whichever is faster on this host.",
    )
    runtime_filter: str = choice(
        "on|off",
        "off",
        "on: drop rows that cannot have a match before the frames are partitioned; off: partition and send every row.",
    )
    timeline: str = choice(
        "auto|on|off",
        "auto",
        "Record when each phase, batch of messages and barrier of each worker begins and ends; auto: unless that would"
        " take 1% of an iteration or more.",
    )
    error_handling: str = choice(
        "none|peer",
        "none",
        "Error handling mode of UCX between workers. With peer, UCX uses only transports that report dead peers.",
    )
    message_size: int | None = option(
        parsers.size,
        None,
        "Maximum message size; by default each partition is sent in as few messages as possible.",
        "BYTES",
    )


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Options):
    """Options for how a cluster starts and connects."""

    section = "Cluster"
    workers: int | None = option(
        parsers.counts(1),
        None,
        "Number of workers; several values make a sweep. [default: one per GPU; without GPUs, one per core and at"
        " most 2]",
        "N[,N]",
        swept=True,
    )
    workers_per_gpu: int = option(parsers.count(1), 1, "Workers per GPU.", "N")
    rmm_pool_size: int | None = option(
        parsers.size, None, "Device memory of each worker's RMM pool, allocated at start.", "BYTES"
    )
    protocol: str = choice(
        "auto|tcp|tls|ucx",
        "auto",
        "Protocol of Dask's own messages; auto: tls with a certificate of the run, but tcp for --exchange dask on"
        " loopback. tcp and ucx let everyone who can connect to the ports run code as you.",
    )
    insecure: bool = flag(
        "Allow unencrypted control messages over the network. Anyone who can connect to the port can then run code."
    )
    dask_dashboard: bool = flag("Serve Dask's own dashboard from the scheduler; this slows down the measurement.")
    launcher: str = option(parsers.word, "auto", "", "NAME")
    hosts: str | None = option(
        parsers.path,
        None,
        "File with one host per line: NAME [slots=N] [gpus=N]. NAME may be a list such as node[01-04,07].",
        "PATH",
    )
    ssh_config: str | None = option(parsers.path, None, "ssh configuration file to use instead of the user's.", "PATH")
    ucx: str | None = option(
        parsers.choice("auto", "wheel", "system"),
        None,
        "UCX to load. wheel: the package libucx, without InfiniBand support; system: the UCX installed on this"
        " host; auto: the installed one where it supports the host's InfiniBand, elsewhere the package."
        " [$MERGE_BENCH_UCX, else auto]",
        "auto|wheel|system",
        in_config=False,
    )
    interface: str | None = option(parsers.interface, None, "Network interface that all processes bind to.", "NAME")
    scheduler_address: str | None = option(
        parsers.text, None, "Use the running Dask cluster whose scheduler has this address.", "ADDRESS"
    )
    scheduler_file: str | None = option(
        parsers.path, None, "Use the running Dask cluster whose scheduler wrote this file.", "PATH"
    )
    start_timeout: float = option(parsers.duration, 60.0, "Time limit for starting all workers.", "SECONDS")
    timeout: float = option(
        parsers.duration, 15.0, "Fail if neither data nor a heartbeat arrives for this long.", "SECONDS"
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Options for configs and the output of results."""

    section = "Output"
    service: str | None = option(
        parsers.text,
        None,
        "Address of a service (https://…) that runs the command instead of this machine; also in the environment, as"
        " MERGE_BENCH_SERVICE.",
        "URL",
        in_config=False,
    )
    config: str | None = option(
        parsers.path, None, "A .cfg file, or the name of a shipped config.", "CFG", in_config=False
    )
    configs: tuple[str, ...] | None = option(
        parsers.paths,
        None,
        "Configs to compare, launched in turn; the first is the baseline.",
        "CFG[,CFG]",
        in_config=False,
    )
    allow_unknown: bool = flag("Continue if the config contains unknown or invalid settings.")
    trust_config: bool = flag(
        "Trust the config: accept variables that can load code (such as LD_PRELOAD), and pass all its variables to"
        " the cluster's processes.",
        in_config=False,
    )
    write_result: str | None = option(
        parsers.path,
        None,
        "New or empty folder for the merged table, as Parquet files, one per worker. They are written after the timed"
        " merges, and verified again when read back. On several hosts, each has the parts of its own workers, unless"
        " the hosts share the folder. [default: the merged table is verified, then dropped]",
        "FOLDER",
        in_config=False,
    )
    results: str = option(parsers.path, "results", "Folder in which campaigns are stored.", "PATH")
    details: bool = flag("Print every table before the conclusion.")
    json: bool = flag("Print one JSON document on standard output.", in_config=False)
    dry_run: bool = flag("Print what would be started, without starting it.", in_config=False)


@dataclass(frozen=True, kw_only=True)
class RunOptions(
    OutputOptions, ClusterOptions, DataPlaneOptions, MeasuringOptions, TableOptions, ProblemOptions
):  # the fields of the last base come first
    """All options of `run`; other commands make their plans from them, too."""

    @property
    def timed_iterations(self) -> int:
        """The number of timed merges: `iterations`, or by default a number that suits the size of the tables."""
        if self.iterations is not None:
            return self.iterations
        small = self.workload == "synthetic" and self.chunk <= SMALL_CHUNK_ROWS
        return SMALL_ITERATIONS if small else LARGE_ITERATIONS


OPTIONS: tuple[Option, ...] = RunOptions.table()
BY_KEY = options_by_key(OPTIONS)
BY_VARIABLE = {variable: option for option in OPTIONS for variable in option.variables}
_CLUSTER = tuple(option.key for option in ClusterOptions.table())


def _select_options(*keys: str) -> tuple[Option, ...]:
    return tuple(option for option in OPTIONS if option.key in keys)


# The options of `transports`: how a cluster starts and connects.
CLUSTER_OPTIONS = _select_options(
    "engine", "error_handling", "config", "allow_unknown", "trust_config", "json", *_CLUSTER
)
# The options of all network measurements, which take several configs.
PROBE_OPTIONS = (
    replace(
        BY_KEY["launches"],
        help="Number of launches of each config, in random order. [3, or 1 on a running cluster]",
    ),
    *_select_options(
        "service",
        "seed",
        "results",
        "fresh",
        "wait_for_quiet",
        "dry_run",
        "allow_unknown",
        "trust_config",
        "json",
        *_CLUSTER,
    ),
)
# The options of tuning, which decides about launches and configs itself.
TUNE_OPTIONS = _select_options(
    *set(BY_KEY)
    - {"config", "configs", "launches", "link_rounds", "check_link", "require_transport"}
    - {"extend", "timeline", "write_result", "against", "fail_on", "allow_no_baseline", "threshold"}
)


def without_merge(options: RunOptions, kept: Sequence[Option]) -> RunOptions:
    """A copy of `options` for commands that do not merge: all options but those in `kept` get their default."""
    fixed = {option.key: option.default for option in OPTIONS if option not in kept}
    return options.updated({**fixed, "workload": "synthetic", "chunk": 1, "iterations": 1}, {})


def option_problem(variable: Variable, table: Sequence[Option] = OPTIONS) -> tuple[str, str] | None:
    """Why a config cannot set this ``MERGE_BENCH_…`` variable: ``unknown`` or ``invalid``, with a sentence; or None."""
    option = next((option for option in table if variable.name in option.variables), None)
    if option is None:
        # What a variable may mean, by what follows the prefix that all have.
        names = (known.removeprefix(PREFIX) for known in BY_VARIABLE)
        near = did_you_mean(variable.name.removeprefix(PREFIX), names, prefix=PREFIX)
        return "unknown", f"merge-bench run has no such option{near}"
    if not option.in_config:
        return "invalid", f"--{option.name} can be set only on the command line"
    try:
        option.parse(variable.value)
    except ValueError as error:
        return "invalid", str(error)
    return None
