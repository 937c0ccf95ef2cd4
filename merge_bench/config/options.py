"""The options of ``run``, declared once. Command line, configs and documentation are made from this table.

`campaign.registry_options` adds the values of ``--engine`` and ``--launcher``, which are the files of a folder.
Functions here that read values take the completed table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from merge_bench.config import parsers
from merge_bench.config.old_names import PREFIX
from merge_bench.config.parsers import Parser, did_you_mean
from merge_bench.config.reader import Variable
from merge_bench.errors import UsageError

SMALL_CHUNK_ROWS = 2_000_000
SMALL_ITERATIONS = 100
LARGE_ITERATIONS = 10
_T = TypeVar("_T")


@dataclass(frozen=True)
class Option:
    """One option of ``run``, or of a probe.

    `name`: in kebab case, without dashes; `parse`: text → value; `default`: the value, or None if it is decided later
    (`help` says how); `placeholder`: the value's name in the help; `flag`: takes no value on the command line;
    `in_config`: a config can set it as ``MERGE_BENCH_<NAME>``; `section`: its heading in the help; `swept`: several of
    its words make a sweep.
    """

    name: str
    parse: Parser
    default: object
    help: str
    placeholder: str = "TEXT"
    flag: bool = False
    in_config: bool = True
    section: str = ""
    swept: bool = False

    @property
    def key(self) -> str:
        """The name as an identifier: ``rmm_pool_size``."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The name in a config and in the environment: ``MERGE_BENCH_RMM_POOL_SIZE``."""
        return PREFIX + self.key.upper()

    def taking(self, allowed: Sequence[str], help: str) -> Option:
        """This option with the values `allowed`."""
        one, names = parsers.choice(*allowed), "|".join(allowed)
        if not self.swept:
            return replace(self, parse=one, placeholder=names, help=help)
        return replace(
            self, parse=parsers.several(one), placeholder=f"{names}[,…]", help=f"{help} Several values make a sweep."
        )


def _choice(name: str, allowed: tuple[str, ...], default: str, help: str, *, swept: bool = False) -> Option:
    return _member(name, default, swept=swept).taking(allowed, help)


def _member(name: str, default: str, *, swept: bool = False) -> Option:
    """An option whose values and help `campaign.registry_options` adds."""
    return Option(name, parsers.word, default, "", "NAME", swept=swept)


def _flag(name: str, help: str, *, in_config: bool = True) -> Option:
    return Option(name, parsers.switch, False, help, "", flag=True, in_config=in_config)


def _section(title: str, *options: Option) -> tuple[Option, ...]:
    return tuple(replace(option, section=title) for option in options)


_PROBLEM = _section(
    "The problem",
    Option(
        "chunk", parsers.counts(1), 1_000_000,
        "Rows per worker in each input frame. Several values make a sweep.", "ROWS[,ROWS]",
    ),
    Option("frac-match", parsers.number(0, 1), 0.3, "Fraction of keys in the right frame that match a key in the"
                                                    " left one.", "F"),
    Option("payload-columns", parsers.count(1), 1, "Number of int64 columns besides the key, in each frame.", "N"),
    Option(
        "skew", parsers.skew, 0.0,
        "Skew of the right table's matching keys: none (each occurs once), or zipf:S (a Zipf law with exponent S)."
        " [none]",
        "none|zipf:S",
    ),
    _choice(
        "how", ("inner", "left", "right", "outer", "semi", "anti"), "inner",
        "Rows of the result. inner: the pairs of rows with equal keys; left, right, outer: also the rows of the left,"
        " the right or both tables that have no match, with nulls beside them; semi, anti: the rows of the left table"
        " that have a match or have none, without the right table's columns.",
    ),
    Option("seed", parsers.count(0), 0, "Random seed of the synthetic tables and of the order of measurements.", "N"),
    _choice(
        "workload", ("auto", "synthetic", "tables", "tpch", "h2o"), "auto",
        "Tables to merge. synthetic: generated from --chunk and --seed; tables: the files of --left and --right; tpch:"
        " TPC-H at --scale; h2o: the join task of the db-benchmark, with --rows; auto: tables if --left and --right are"
        " given, else synthetic.",
    ),
)  # fmt: skip
_TABLES = _section(
    "Real tables",
    Option("left", parsers.path, None, "Parquet file, folder or pattern of the left table.", "PATH"),
    Option("right", parsers.path, None, "Parquet file, folder or pattern of the right table.", "PATH"),
    Option(
        "on", parsers.columns, None,
        "Key column or columns (a,b), with the same names in both tables. Given again, each value is one name with all"
        " its commas and blanks. Or the address of a service (https://…) that"
        " runs the command instead of this machine, while --left-on and --right-on name columns.", "KEY[,KEY]|URL",
    ),
    Option("left-on", parsers.columns, None, "Key columns of the left table.", "KEY[,KEY]"),
    Option("right-on", parsers.columns, None, "Key columns of the right table.", "KEY[,KEY]"),
    Option(
        "columns", parsers.columns, None,
        "Columns of both tables to merge beside the keys, and no others; repeated as --on. [all]", "NAME[,NAME]",
    ),
    Option("scale", parsers.number(0, 1e5, above=True), 1.0, "Scale factor of --workload tpch.", "S"),
    Option("rows", parsers.count(100, 10**9), None, "Rows of the left table of --workload h2o. [10,000,000]", "ROWS"),
    Option(
        "question",
        parsers.names,
        None,
        "Questions of --workload h2o (1 to 5) or tpch (joins of TPC-H's queries 3 and 5: orders-lineitem,"
        " customer-orders, supplier-lineitem, nation-supplier, nation-customer, region-nation). Several values make a"
        " sweep. [h2o: all; tpch: orders-lineitem]",
        "Q[,Q]",
    ),
)  # fmt: skip
_MEASURING = _section(
    "Measuring",
    Option(
        "iterations", parsers.count(1), None,
        f"Timed merges per launch; by default {SMALL_ITERATIONS} for synthetic chunks of up to {SMALL_CHUNK_ROWS:,}"
        f" rows, else {LARGE_ITERATIONS}.",
        "N",
    ),
    Option("warmup", parsers.count(0), 1, "Number of untimed merges before the timed ones.", "N"),
    Option(
        "launches", parsers.count(1), 1, "Number of cluster launches; confidence intervals need at least 6.", "N",
    ),
    Option(
        "blocks", parsers.count(1), None,
        "Number of blocks of a sweep. Each block launches every combination of config and size once, in random"
        " order.", "N",
    ),
    Option(
        "extend", parsers.path, None,
        "Add launches to this stored result of the same command, until each of its runs has --launches of them.",
        "RESULT", in_config=False,
    ),
    _flag("fresh", "Start a new campaign instead of resuming an interrupted one.", in_config=False),
    Option(
        "wait-for-quiet", parsers.duration, None,
        "Before the first launch, wait for at most this long, such as 5m, until other processes keep less than a"
        " quarter of this host's cores busy. If they still do then, measure all the same, with a warning. Looks at this"
        " host only, and only if the workers run on it. [default: warn without waiting]",
        "DURATION", in_config=False,
    ),
    _choice(
        "verify", ("every", "ends", "full", "off"), "ends",
        "When to verify results. every: after each iteration; ends: after the warm-up and the last iteration; full:"
        " after the warm-up and the last iteration, comparing all rows; off: never.",
    ),
    Option(
        "link-rounds", parsers.count(0), 5,
        "Least number of rounds of the link measurement of each launch, short rounds are repeated up to 50 times; 0: no"
        " measurement of link and memory.",
        "N",
    ),
    _flag(
        "check-link",
        "Measure the link limit a second time, with ucx_perftest, and warn if the two values differ by more than 10"
        " %.",
    ),
    Option(
        "against", parsers.path, None,
        "Earlier result to compare this run with, or a folder that contains only that one; history: the present level"
        " of all results of this merge in --results.", "RESULT", in_config=False,
    ),
    Option(
        "fail-on", parsers.choices("slower", "inconclusive", "not-faster"), (),
        "Exit with status 5 if a comparison has a verdict named here: slower, inconclusive or not-faster.",
        "VERDICT[,VERDICT]",
    ),
    _flag(
        "allow-no-baseline",
        "Exit with status 0 instead of 5 if --fail-on or --against history finds nothing to compare with, such as the"
        " first nights of a merge.", in_config=False,
    ),
    Option("threshold", parsers.percent, 0.02, "For --fail-on: ignore differences below this. [2%]", "PERCENT"),
    Option(
        "require-transport", parsers.names, (),
        "UCX transports; every pair of workers must use one of them, otherwise the exit status is 5.", "NAME[,NAME]",
    ),
)  # fmt: skip
_DATA_PLANE = _section(
    "Data plane",
    _member("engine", "auto", swept=True),
    _member("exchange", "ucx", swept=True),
    _choice(
        "distribution", ("shuffle", "broadcast", "auto"), "shuffle",
        "How rows reach their matches. shuffle: rows of both tables go to the worker that owns their key; broadcast:"
        " the smaller table goes whole to every worker, and the other stays where it is; auto: broadcast if that sends"
        " less than half of the bytes.",
    ),
    _choice("shuffle", ("p2p", "tasks"), "p2p", "Shuffle method of Dask for --exchange dask.", swept=True),
    _choice(
        "pipeline", ("on", "off"), "off",
        "on: partition and join during the exchange; off: one phase after the other.",
    ),
    _choice(
        "stores", ("auto", "plain", "lines"), "auto",
        "How the partition step of a merge writes rows to memory. plain: value by value; lines: whole cache lines,"
        " bypassing the cache; auto: whichever is faster on this host.",
    ),
    _choice(
        "runtime-filter", ("on", "off"), "off",
        "on: drop rows that cannot have a match before the frames are partitioned; off: partition and send every row.",
    ),
    _choice(
        "timeline", ("auto", "on", "off"), "auto",
        "Record when each phase, batch of messages and barrier of each worker begins and ends; auto: unless that would"
        " take 1% of an iteration or more.",
    ),
    _choice(
        "error-handling", ("none", "peer"), "none",
        "Error handling mode of UCX between workers. With peer, UCX uses only transports that report dead peers.",
    ),
    Option(
        "message-size", parsers.size, None,
        "Maximum message size; by default each partition is sent in as few messages as possible.", "BYTES",
    ),
)  # fmt: skip
_CLUSTER = _section(
    "Cluster",
    Option(
        "workers", parsers.counts(1), None,
        "Number of workers; several values make a sweep. [default: one per GPU; without GPUs, one per core and at"
        " most 2]",
        "N[,N]",
    ),
    Option("workers-per-gpu", parsers.count(1), 1, "Workers per GPU.", "N"),
    Option(
        "rmm-pool-size", parsers.size, None, "Device memory of each worker's RMM pool, allocated at start.", "BYTES",
    ),
    _choice(
        "protocol", ("auto", "tcp", "tls", "ucx"), "auto",
        "Protocol of Dask's own messages; auto: tls with a certificate of the run, but tcp for --exchange dask on"
        " loopback. tcp and ucx let everyone who can connect to the ports run code as you.",
    ),
    _flag(
        "insecure",
        "Allow unencrypted control messages over the network. Anyone who can connect to the port can then run code.",
    ),
    _flag("dask-dashboard", "Serve Dask's own dashboard from the scheduler; this slows down the measurement."),
    _member("launcher", "auto"),
    Option(
        "hosts", parsers.path, None,
        "File with one host per line: NAME [slots=N] [gpus=N]. NAME may be a list such as node[01-04,07].", "PATH",
    ),
    Option("ssh-config", parsers.path, None, "ssh configuration file to use instead of the user's.", "PATH"),
    Option(
        "ucx", parsers.choice("auto", "wheel", "system"), None,
        "UCX to load. wheel: the package libucx, without InfiniBand support; system: the UCX installed on this"
        " host; auto: the installed one where it supports the host's InfiniBand, elsewhere the package."
        " [$MERGE_BENCH_UCX, else auto]",
        "auto|wheel|system", in_config=False,
    ),
    Option("interface", parsers.interface, None, "Network interface that all processes bind to.", "NAME"),
    Option(
        "scheduler-address", parsers.text, None, "Use the running Dask cluster whose scheduler has this address.",
        "ADDRESS",
    ),
    Option(
        "scheduler-file", parsers.path, None, "Use the running Dask cluster whose scheduler wrote this file.", "PATH",
    ),
    Option("start-timeout", parsers.duration, 60.0, "Time limit for starting all workers.", "SECONDS"),
    Option(
        "timeout", parsers.duration, 15.0, "Fail if neither data nor a heartbeat arrives for this long.",
        "SECONDS",
    ),
)  # fmt: skip
_OUTPUT = _section(
    "Output",
    Option("config", parsers.path, None, "A .cfg file, or the name of a shipped config.", "CFG", in_config=False),
    Option(
        "configs", parsers.paths, None, "Configs to compare, launched in turn; the first is the baseline.", "CFG[,CFG]",
        in_config=False,
    ),
    _flag("allow-unknown", "Continue if the config contains unknown or invalid settings."),
    _flag(
        "trust-config",
        "Trust the config: accept variables that can load code (such as LD_PRELOAD), and pass all its variables to"
        " the cluster's processes.",
        in_config=False,
    ),
    Option(
        "write-result", parsers.path, None,
        "New or empty folder for the merged table, as Parquet files, one per worker. They are written after the timed"
        " merges, and verified again when read back. On several hosts, each has the parts of its own workers, unless"
        " the hosts share the folder. [default: the merged table is verified, then dropped]", "FOLDER",
        in_config=False,
    ),
    Option("results", parsers.path, "results", "Folder in which campaigns are stored.", "PATH"),
    _flag("details", "Print every table before the conclusion."),
    _flag("json", "Print one JSON document on standard output.", in_config=False),
    _flag("dry-run", "Print what would be started, without starting it.", in_config=False),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (*_PROBLEM, *_TABLES, *_MEASURING, *_DATA_PLANE, *_CLUSTER, *_OUTPUT)
BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS}
BY_VARIABLE: dict[str, Option] = {option.variable: option for option in OPTIONS}


def _some(*keys: str) -> tuple[Option, ...]:
    return tuple(option for option in OPTIONS if option.key in keys)


# The options of `transports`: how a cluster starts and connects.
CLUSTER_OPTIONS = _some(
    "engine", "error_handling", "config", "allow_unknown", "trust_config", "json", *(each.key for each in _CLUSTER)
)
# The options of all network measurements, which take several configs.
PROBE_OPTIONS = (
    Option("repetitions", parsers.count(1), None, "Number of launches of each config, in random order. [3, or 1 on a"
                                                  " running cluster]", "N"),
    *_some(
        "seed", "results", "fresh", "wait_for_quiet", "dry_run", "allow_unknown", "trust_config", "json",
        *(each.key for each in _CLUSTER),
    ),
)  # fmt: skip
# The options of tuning, which decides about launches and configs itself.
TUNE_OPTIONS = _some(
    *set(BY_KEY) - {"config", "configs", "blocks", "launches", "link_rounds", "check_link", "require_transport"}
    - {"extend", "timeline", "write_result", "against", "fail_on", "allow_no_baseline", "threshold"}
)  # fmt: skip


def without_merge(kept: Sequence[Option]) -> dict[str, object]:
    """Values of all options but `kept`, for commands that start a cluster without a merge.

    They ignore what a config says about the merge.
    """
    fixed = {option.key: option.default for option in OPTIONS if option not in kept}
    return {**fixed, "workload": "synthetic", "chunk": 1, "iterations": 1}


def _near(name: str) -> str:
    """The options that a variable may mean, by what follows the prefix that all have."""
    known = {variable.removeprefix(PREFIX): variable for variable in BY_VARIABLE}
    return did_you_mean(name.removeprefix(PREFIX), known, prefix=PREFIX)


def option_problem(variable: Variable, table: Sequence[Option] = OPTIONS) -> tuple[str, str] | None:
    """Why a config cannot set this ``MERGE_BENCH_…`` variable: ``unknown`` or ``invalid``, and a sentence."""
    option = next((each for each in table if each.variable == variable.name), None)
    if option is None:
        return "unknown", f"merge-bench run has no such option{_near(variable.name)}"
    if not option.in_config:
        return "invalid", f"--{option.name} can be set only on the command line"
    try:
        option.parse(variable.value)
    except ValueError as error:
        return "invalid", str(error)
    return None


def parse_text(parse: Callable[[str], _T], text: str, where: str) -> _T:
    """The value of `text`; raises UsageError with `where` and a sentence."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def parse_options(given: Mapping[str, object], table: Sequence[Option] = OPTIONS) -> dict[str, object]:
    """Parse options of `run` that are given as Python values by `Option.key`; None for every other option.

    A list or tuple means several values, and True sets a flag; None and False mean that the option is not given. Text
    is parsed as on the command line, by the options of `table`.

    Raises
    ------
    UsageError
        If there is no such option, or it does not accept the value.
    """
    for key in given:
        if key not in BY_KEY:
            raise UsageError(f"unknown option {key!r}{did_you_mean(key, BY_KEY)}")
    return {option.key: _value(option, given.get(option.key)) for option in table}


def as_words(given: Mapping[str, object]) -> list[str]:
    """The command line with the same options."""
    words: list[str] = []
    for key, value in given.items():
        option = BY_KEY[key]
        if option.flag:
            words += [f"--{option.name}"] if value else []
        elif value is not None:
            words += [f"--{option.name}", as_text(value)]
    return words


def as_text(value: object) -> str:
    """A value as written on the command line: ``[1e6, 2]`` → ``1000000,2``."""
    if isinstance(value, list | tuple):
        return parsers.Names.join(map(as_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _value(option: Option, value: object) -> object:
    if option.flag:
        return True if value else None
    return None if value is None else parse_text(option.parse, as_text(value), option.key)
