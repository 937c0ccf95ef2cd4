"""Every option of ``run``, declared once: command line, configs and documentation are made from this table.

Options whose values are the files of a folder in another room, ``--engine`` and ``--launcher``, are completed by
`campaign.choices`, and functions here that read values take the completed table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.config import values
from merge_bench.config.names import PREFIX
from merge_bench.config.values import Parser
from merge_bench.errors import UsageError

SMALL_CHUNK_ROWS = 2_000_000
SMALL_ITERATIONS = 100
LARGE_ITERATIONS = 10


@dataclass(frozen=True)
class Option:
    """One option of ``run``.

    `name`: kebab case, without dashes; `parse`: text → value; `default`: the value, not text; None means that
    something later decides (`help` says what); `placeholder`: what stands for the value in the help; `flag`: takes no
    value on the command line; `in_config`: may stand in a config as ``MERGE_BENCH_<NAME>``.
    """

    name: str
    section: str
    parse: Parser
    default: object
    help: str
    placeholder: str = "TEXT"
    flag: bool = False
    in_config: bool = True

    @property
    def key(self) -> str:
        """The name as an identifier: ``rmm_pool_size``."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The name in a config and in the environment: ``MERGE_BENCH_RMM_POOL_SIZE``."""
        return PREFIX + self.key.upper()

    def taking(self, allowed: Sequence[str], help: str) -> Option:
        """This option with the values that are `allowed`."""
        return replace(self, parse=values.choice(*allowed), placeholder="|".join(allowed), help=help)


def _choice(name: str, section: str, allowed: tuple[str, ...], default: str, help: str) -> Option:
    return _member(name, section, default).taking(allowed, help)


def _member(name: str, section: str, default: str) -> Option:
    """Values and help are those of the files in a folder of another room: `campaign.choices` completes it."""
    return Option(name, section, values.word, default, "", "NAME")


def _flag(name: str, section: str, help: str, *, in_config: bool = True) -> Option:
    return Option(name, section, values.switch, False, help, "", flag=True, in_config=in_config)


_PROBLEM, _TABLES, _MEASURE = "The problem", "Real tables", "Measuring"
_PLANE, _CLUSTER, _OUTPUT = "Data plane", "Cluster", "Output"

OPTIONS: tuple[Option, ...] = (
    Option(
        "chunk",
        _PROBLEM,
        values.counts(1),
        1_000_000,
        "Rows of each frame on each worker before the merge; several values, with commas, make a sweep.",
        "ROWS[,ROWS]",
    ),
    Option("frac-match", _PROBLEM, values.number(0, 1), 0.3, "Fraction of right keys that match a left key.", "F"),
    Option(
        "payload-columns", _PROBLEM, values.count(1), 1, "Number of int64 columns besides the key, in each frame.", "N"
    ),
    Option("skew", _PROBLEM, values.skew, 0.0, "Distribution of the right keys. [none]", "none|zipf:S"),
    Option("seed", _PROBLEM, values.count(0), 0, "Seed of the synthetic tables and of every random order.", "N"),
    _choice(
        "workload",
        _PROBLEM,
        ("auto", "synthetic", "tables", "tpch"),
        "auto",
        "What to merge; auto: tables if --left and --right are given, else synthetic.",
    ),
    Option("left", _TABLES, values.text, None, "Parquet file or folder of the left table.", "PATH"),
    Option("right", _TABLES, values.text, None, "Parquet file or folder of the right table.", "PATH"),
    Option(
        "on",
        _TABLES,
        values.names,
        None,
        "Key column, or several as a,b, with the same names in both tables.",
        "KEY[,KEY]",
    ),
    Option("left-on", _TABLES, values.names, None, "Key columns of the left table.", "KEY[,KEY]"),
    Option("right-on", _TABLES, values.names, None, "Key columns of the right table.", "KEY[,KEY]"),
    Option("scale", _TABLES, values.number(0, 1e5, above=True), 1.0, "Scale factor of --workload tpch.", "S"),
    Option(
        "iterations",
        _MEASURE,
        values.count(1),
        None,
        f"Timed merges in a launch; by default {SMALL_ITERATIONS} for synthetic chunks of up to"
        f" {SMALL_CHUNK_ROWS:,} rows, else {LARGE_ITERATIONS}.",
        "N",
    ),
    Option("warmup", _MEASURE, values.count(0), 1, "Untimed merges before the timed ones.", "N"),
    Option(
        "launches",
        _MEASURE,
        values.count(1),
        1,
        "How often to start a new cluster; intervals need at least 6 launches.",
        "N",
    ),
    Option(
        "blocks",
        _MEASURE,
        values.count(1),
        None,
        "For a sweep: number of blocks. A block launches every config and size once, in random order.",
        "N",
    ),
    _flag("fresh", _MEASURE, "Begin a new campaign instead of resuming an interrupted one.", in_config=False),
    _choice(
        "verify",
        _MEASURE,
        ("every", "ends", "full", "off"),
        "ends",
        "When to verify results: after every iteration, after warm-up and the last iteration, fully against another"
        " engine, or never.",
    ),
    Option(
        "link-rounds",
        _MEASURE,
        values.count(0),
        5,
        "Rounds of the link measurement after each launch; 0 for none.",
        "N",
    ),
    _flag("check-link", _MEASURE, "Measure the link limit again with ucx_perftest, and warn if the two differ."),
    Option(
        "against",
        _MEASURE,
        values.text,
        None,
        "Compare this run with this result when it is done.",
        "RESULT",
        in_config=False,
    ),
    Option(
        "fail-on",
        _MEASURE,
        values.choices("slower", "inconclusive", "not-faster"),
        (),
        "End with status 5 if the verdict in throughput is so, against --against or the first of --configs.",
        "VERDICT[,VERDICT]",
    ),
    Option(
        "threshold",
        _MEASURE,
        values.percent,
        0.02,
        "For --fail-on: smaller differences do not count. [2%]",
        "PERCENT",
    ),
    Option(
        "require-transport",
        _MEASURE,
        values.names,
        (),
        "End with status 5 unless every pair of workers uses one of these UCX transports.",
        "NAME[,NAME]",
    ),
    _member("engine", _PLANE, "auto"),
    _choice("exchange", _PLANE, ("ucx", "dask"), "ucx", "What carries the frames: UCX endpoints, or Dask's shuffle."),
    _choice("shuffle", _PLANE, ("p2p", "tasks"), "p2p", "Dask's shuffle, with --exchange dask."),
    _choice(
        "pipeline",
        _PLANE,
        ("on", "off"),
        "off",
        "on: partition and join during the exchange, for the shortest wall-clock time; off: one phase after the other.",
    ),
    _choice(
        "error-handling",
        _PLANE,
        ("none", "peer"),
        "none",
        "Error handling of the data plane's endpoints; with peer, UCX uses only "
        "transports that can report a dead peer.",
    ),
    Option(
        "message-size",
        _PLANE,
        values.size,
        None,
        "Largest message; by default each partition is sent in as few messages as possible.",
        "BYTES",
    ),
    Option(
        "workers",
        _CLUSTER,
        values.counts(1),
        None,
        "Number of workers; by default one per GPU, or 2 (1 on one core); several values, with commas, make a sweep.",
        "N[,N]",
    ),
    Option("workers-per-gpu", _CLUSTER, values.count(1), 1, "Workers per GPU.", "N"),
    Option(
        "rmm-pool-size",
        _CLUSTER,
        values.size,
        None,
        "Device memory that each worker's pool allocates at start.",
        "BYTES",
    ),
    _choice(
        "protocol",
        _CLUSTER,
        ("auto", "tcp", "tls", "ucx"),
        "auto",
        "Protocol of Dask's own messages; auto: tcp on loopback, else tls.",
    ),
    _flag(
        "insecure",
        _CLUSTER,
        "Allow unencrypted control messages beyond loopback. Anyone who can connect to the port can then run code.",
    ),
    _flag(
        "dask-dashboard",
        _CLUSTER,
        "Let the scheduler serve Dask's own dashboard, which slows down what is measured.",
    ),
    _member("launcher", _CLUSTER, "auto"),
    Option("hosts", _CLUSTER, values.text, None, "File with one host a line: NAME [slots=N] [gpus=N].", "PATH"),
    Option("ssh-config", _CLUSTER, values.text, None, "Configuration file for ssh instead of the user's.", "PATH"),
    Option(
        "ucx",
        _CLUSTER,
        values.choice("auto", "wheel", "system"),
        None,
        "Which UCX to load: the package's, which has no InfiniBand, or the system's; auto: the system's if this host"
        " has InfiniBand and that UCX can use it. [$MERGE_BENCH_UCX, else auto]",
        "auto|wheel|system",
        in_config=False,
    ),
    Option("interface", _CLUSTER, values.interface, None, "Network interface that all processes bind to.", "NAME"),
    Option("scheduler-address", _CLUSTER, values.text, None, "Use the running cluster at this address.", "ADDRESS"),
    Option("scheduler-file", _CLUSTER, values.text, None, "Use the running cluster that wrote this file.", "PATH"),
    Option("start-timeout", _CLUSTER, values.duration, 60.0, "Time limit for starting all workers.", "SECONDS"),
    Option(
        "timeout",
        _CLUSTER,
        values.duration,
        15.0,
        "The run fails after this time without a byte or a heartbeat.",
        "SECONDS",
    ),
    Option(
        "config", _OUTPUT, values.text, None, "A .cfg file, or the bare name of a shipped one.", "CFG", in_config=False
    ),
    Option(
        "configs",
        _OUTPUT,
        values.names,
        None,
        "Several configs, launched in turn; the first is the baseline.",
        "CFG[,CFG]",
        in_config=False,
    ),
    _flag("allow-unknown", _OUTPUT, "Continue if the config contains unknown or invalid settings."),
    _flag(
        "trust-config",
        _OUTPUT,
        "Accept a config that can load code, and pass all of its variables to the processes.",
        in_config=False,
    ),
    Option("results", _OUTPUT, values.text, "results", "Folder that campaigns are written to.", "PATH"),
    _flag("json", _OUTPUT, "Print one JSON document on standard output.", in_config=False),
    _flag("dry-run", _OUTPUT, "Print what would be started, without starting it.", in_config=False),
)

# What says how a cluster comes up and connects: all that `transports` needs of a run.
CLUSTER_OPTIONS = tuple(
    option
    for option in OPTIONS
    if option.section == _CLUSTER
    or option.key in ("engine", "error_handling", "config", "allow_unknown", "trust_config", "json")
)

# What the network measurements need beside their own options; they take several configs.
PROBE_OPTIONS = tuple(
    option
    for option in OPTIONS
    if (option in CLUSTER_OPTIONS and option.key not in ("config", "engine", "error_handling"))
    or option.key in ("seed", "results", "fresh")
)

_NOT_FOR_TUNING = frozenset(
    {"config", "configs", "blocks", "launches", "link_rounds", "check_link", "require_transport", "against", "fail_on",
     "threshold"}
)  # fmt: skip
# What tuning takes of `run`: it makes its own launches and configs.
TUNE_OPTIONS = tuple(option for option in OPTIONS if option.key not in _NOT_FOR_TUNING)

BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS}
BY_VARIABLE: dict[str, Option] = {option.variable: option for option in OPTIONS}


def without_merge(kept: Sequence[Option]) -> dict[str, object]:
    """Values for all options but `kept`, for commands that start a cluster and merge nothing.

    What a config says about the merge is of no interest to them.
    """
    fixed = {option.key: option.default for option in OPTIONS if option not in kept}
    return {**fixed, "workload": "synthetic", "chunk": 1, "iterations": 1}


def parse_options(given: Mapping[str, object], table: Sequence[Option] = OPTIONS) -> dict[str, object]:
    """Options of `run` given as Python values, by `Option.key` → their parsed values; None for every other option.

    A list or tuple means several values, True sets a flag, None and False mean that it was not given. Text is parsed
    as on the command line, by the options of `table`.

    Raises
    ------
    UsageError
        For a name that is no option, or a value that the option does not take.
    """
    for key in given:
        if key not in BY_KEY:
            near = difflib.get_close_matches(key, BY_KEY, n=3)
            raise UsageError(f"run has no option {key!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
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
        return ",".join(map(as_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _value(option: Option, value: object) -> object:
    if option.flag:
        return True if value else None
    if value is None:
        return None
    try:
        return option.parse(as_text(value))
    except ValueError as error:
        raise UsageError(f"{option.key}: {error}") from None
