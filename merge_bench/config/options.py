"""Every option of ``run``, declared once: command line, configs and documentation are made from this table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.config import values
from merge_bench.config.names import PREFIX
from merge_bench.config.values import Parser

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


def _choice(name: str, section: str, allowed: tuple[str, ...], default: str, help: str) -> Option:
    return Option(name, section, values.choice(*allowed), default, help, "|".join(allowed))


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
        "Rows of one frame that start on one worker; several, with commas, make a sweep.",
        "ROWS[,ROWS]",
    ),
    Option("frac-match", _PROBLEM, values.number(0, 1), 0.3, "Fraction of right keys that match a left key.", "F"),
    Option("payload-columns", _PROBLEM, values.count(1), 1, "int64 columns beside the key, in each frame.", "N"),
    Option("skew", _PROBLEM, values.skew, 0.0, "Distribution of the right keys. [none]", "none|zipf:S"),
    Option("seed", _PROBLEM, values.count(0), 0, "Seed of the synthetic tables and of every random order.", "N"),
    _choice(
        "workload",
        _PROBLEM,
        ("auto", "synthetic", "tables", "tpch"),
        "auto",
        "What is merged; auto: tables where --left and --right are given, else synthetic.",
    ),
    Option("left", _TABLES, values.text, None, "Parquet file or folder of the left table.", "PATH"),
    Option("right", _TABLES, values.text, None, "Parquet file or folder of the right table.", "PATH"),
    Option("on", _TABLES, values.names, None, "Key column, or several as a,b, the same in both tables.", "KEY[,KEY]"),
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
    Option("warmup", _MEASURE, values.count(0), 1, "Merges before the timed ones.", "N"),
    Option("launches", _MEASURE, values.count(1), 1, "Lives of the cluster; intervals need at least 6.", "N"),
    Option(
        "blocks",
        _MEASURE,
        values.count(1),
        None,
        "The same for a sweep: in each block every config and size is launched once, in random order.",
        "N",
    ),
    _flag("fresh", _MEASURE, "Begin a new campaign, even where the same one was interrupted.", in_config=False),
    _choice(
        "verify",
        _MEASURE,
        ("every", "ends", "full", "off"),
        "ends",
        "When results are proved right: after every iteration, after warm-up and the last one, fully against"
        " another engine, or never.",
    ),
    Option("link-rounds", _MEASURE, values.count(0), 5, "Rounds of the link measurement after a launch; 0: none.", "N"),
    _flag("check-link", _MEASURE, "Measure the link limit again with ucx_perftest, and warn where they differ."),
    Option(
        "against",
        _MEASURE,
        values.text,
        None,
        "A result that this run is compared with when it is done.",
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
        "A smaller difference than this is none, for --fail-on. [2%]",
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
    _choice(
        "engine", _PLANE, ("auto", "native", "polars", "pandas", "cudf"), "auto", "auto: cudf on GPUs, else native."
    ),
    _choice("exchange", _PLANE, ("ucx", "dask"), "ucx", "What carries the frames: UCX endpoints, or Dask's shuffle."),
    _choice("shuffle", _PLANE, ("p2p", "tasks"), "p2p", "Dask's shuffle, with --exchange dask."),
    _choice(
        "pipeline",
        _PLANE,
        ("on", "off"),
        "off",
        "Partition and join beside the exchange, for the shortest wall-clock, or one after the other.",
    ),
    _choice(
        "error-handling",
        _PLANE,
        ("none", "peer"),
        "none",
        "Of the data plane's endpoints; peer makes UCX drop transports that cannot report a dead peer.",
    ),
    Option(
        "message-size",
        _PLANE,
        values.size,
        None,
        "Largest message; by default a partition travels in as few as its frame allows.",
        "BYTES",
    ),
    Option(
        "workers",
        _CLUSTER,
        values.counts(1),
        None,
        "By default one per GPU, or 2 (1 on one core); several, with commas, make a sweep.",
        "N[,N]",
    ),
    Option("workers-per-gpu", _CLUSTER, values.count(1), 1, "Workers that share one GPU.", "N"),
    Option("rmm-pool-size", _CLUSTER, values.size, None, "Device memory a worker's pool takes at start.", "BYTES"),
    _choice(
        "protocol",
        _CLUSTER,
        ("auto", "tcp", "tls", "ucx"),
        "auto",
        "Of Dask's own messages; auto: tcp on loopback, else tls.",
    ),
    _flag(
        "insecure",
        _CLUSTER,
        "Allow unencrypted control messages off loopback: whoever reaches the port can run code.",
    ),
    _flag(
        "dask-dashboard",
        _CLUSTER,
        "Have the scheduler serve Dask's own dashboard; it takes time from what is measured.",
    ),
    _choice(
        "launcher",
        _CLUSTER,
        ("auto", "local", "ssh", "slurm", "pbs", "existing"),
        "auto",
        "Who starts the processes; auto: ssh with --hosts, the batch system inside a job of several nodes, else local.",
    ),
    Option("hosts", _CLUSTER, values.text, None, "File with one host a line: NAME [slots=N] [gpus=N].", "PATH"),
    Option("ssh-config", _CLUSTER, values.text, None, "Configuration file for ssh instead of the user's.", "PATH"),
    Option(
        "ucx",
        _CLUSTER,
        values.choice("auto", "wheel", "system"),
        None,
        "Whose UCX is loaded: the package's, which has no InfiniBand, or the system's; auto: the system's where there"
        " is InfiniBand and it can be used. [$MERGE_BENCH_UCX, else auto]",
        "auto|wheel|system",
        in_config=False,
    ),
    Option("interface", _CLUSTER, values.interface, None, "Network interface that everything binds to.", "NAME"),
    Option("scheduler-address", _CLUSTER, values.text, None, "Use the running cluster at this address.", "ADDRESS"),
    Option("scheduler-file", _CLUSTER, values.text, None, "Use the running cluster that wrote this file.", "PATH"),
    Option("start-timeout", _CLUSTER, values.duration, 60.0, "Limit for the workers to come up.", "SECONDS"),
    Option(
        "timeout",
        _CLUSTER,
        values.duration,
        15.0,
        "Silence (no byte, no heartbeat) after which a run fails.",
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
    _flag("allow-unknown", _OUTPUT, "Go on when the config holds unknown or invalid settings."),
    _flag(
        "trust-config",
        _OUTPUT,
        "Accept a config that brings code, and hand all of its variables on to the processes.",
        in_config=False,
    ),
    Option("results", _OUTPUT, values.text, "results", "Folder that campaigns are written to.", "PATH"),
    _flag("json", _OUTPUT, "Print one JSON document on standard output.", in_config=False),
    _flag("dry-run", _OUTPUT, "Print what would be started, and start nothing.", in_config=False),
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
