"""The options of `exec` that `run` does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from merge_bench.config import parsers
from merge_bench.config.option import Option, Options, flag_option, value_option
from merge_bench.config.options import BY_KEY

LAUNCHES = 8
EXEC_KEYS = (
    "service",
    "insecure",
    "config",
    "configs",
    "launches",
    "seed",
    "extend",
    "fresh",
    "wait_for_quiet",
    "against",
    "fail_on",
    "allow_no_baseline",
    "threshold",
    "require_transport",
    "ucx",
    "allow_unknown",
    "trust_config",
    "results",
    "details",
    "json",
    "dry_run",
)


@dataclass(frozen=True, kw_only=True)
class ExecOptions(Options):
    """Options of what is measured of a command, and when a launch is right.

    metric: A number that the command prints, beside its wall-clock: NAME=re:REGEX (the first group, or the group value,
        with the unit in a group unit), NAME=json:PATH (summary.rate, runs[*].rate), or NAME=PRESET. May be repeated;
        the first one is the main metric.
    preset: The metrics of a known program: osu, nccl-tests, ucx_perftest, ib_write_bw, mpi4py.bench, cudf_merge or
        bench_shuffle.
    metric_file: File that the command writes in each launch; metrics are looked for there, and not in what it prints.
    unit: Unit of a metric, such as speed=GB/s; of the only metric also without its name.
    better: Whether more or less of a metric is better, as more or speed=more. [less for times, more for rates]
    pick: Which of several values of a metric in one launch counts, as speed=median; last, median, min or max. [last]
    expect_status: Exit status of a launch that went well.
    check: What else makes a launch right: re:REGEX, which the command has to print, or command: PROGRAM ARGUMENT…,
        which runs after it, gets its output on standard input, and has to end with status 0. May be repeated.
    lanes: Record the transports that UCX selects: run COMMAND once more in the first launch of each config, with UCX's
        log in a file for each process. This run is not timed. Processes on other hosts need {x} or {export}, and a
        folder of results that all hosts share.
    timeout: End a launch that takes longer than this, such as 10m, and count it as failed. [no limit]
    """

    metric: tuple[str, ...] = value_option(parsers.parse_texts, (), "NAME=re:REGEX")
    preset: str | None = value_option(parsers.parse_lower_case_word, None, "PROGRAM")
    metric_file: str | None = value_option(parsers.parse_path, None, "FILE")
    unit: tuple[str, ...] = value_option(parsers.parse_texts, (), "NAME=UNIT")
    better: tuple[str, ...] = value_option(parsers.parse_texts, (), "NAME=more|less")
    pick: tuple[str, ...] = value_option(parsers.parse_texts, (), "NAME=WHICH")
    expect_status: int = value_option(parsers.count_parser(0, 255), 0, "N")
    check: tuple[str, ...] = value_option(parsers.parse_texts, (), "CHECK")
    lanes: bool = flag_option()
    timeout: float | None = value_option(parsers.parse_positive_duration, None, "DURATION")


@dataclass(frozen=True, kw_only=True)
class NamedCommandOptions(Options):
    """The option that stands for a command of a service.

    named: Instead of COMMAND: a command of the service, which its operator named with `serve --command`.
    """

    named: str | None = value_option(parsers.parse_nonblank_text, None, "NAME", in_config=False)


def run_options_for_exec() -> tuple[Option, ...]:
    """The options of `run` that `exec` has as well, some with help of its own."""
    helps = {
        "launches": f"Number of launches of each config, in random order; a verdict needs at least 6. [{LAUNCHES}]",
        "service": "Address of a service (https://…) that runs its command --named NAME; also in the environment, as "
        "MERGE_BENCH_SERVICE.",
        "insecure": "Send the token to the service over a network without TLS.",
        "against": "Earlier result to compare this command with, or a folder that contains only that one; history: the "
        "present level of all results of this command in --results.",
        "fail_on": "Exit with status 5 if a comparison of this command has a verdict named here: slower, inconclusive "
        "or not-faster.",
        "allow_no_baseline": "Exit with status 0 instead of 5 if --fail-on or --against history finds nothing to "
        "compare with, such as the first nights of a command.",
        "require_transport": "UCX transports; every process of COMMAND that reaches others must use one of them, "
        "otherwise the exit status is 5. Runs COMMAND as --lanes does.",
        "wait_for_quiet": "Before the first launch, wait for at most this long, such as 5m, until other processes keep "
        "less than a quarter of this host's cores busy. If they still do then, measure all the same, with a warning. "
        "[default: warn without waiting]",
    }
    options = (BY_KEY[key] for key in EXEC_KEYS)
    return tuple(replace(option, help=helps.get(option.key, option.help)) for option in options)


BISECT_KEYS = (
    *("config", "launches", "seed", "fresh", "wait_for_quiet", "threshold", "require_transport"),
    *("allow_unknown", "trust_config", "results", "json", "dry_run"),
)
MERGE_KEYS = ("engine", "chunk", "workers", "warmup", "iterations")
"""The options of `bisect` that say what is merged if there is no command."""
MOST_LAUNCHES = 24


@dataclass(frozen=True, kw_only=True)
class BisectOptions(Options):
    """Options of `bisect`: what is compared, and for how long.

    ucx: Releases of UCX, the oldest first: FIRST..LAST for these two and all between them that pip finds or the cache
        has; or all of them in order, separated by commas, as versions or folders of an installed UCX.
    budget: Limit on the total time of the launches of this call, such as 30m or 1h.
    """

    ucx: tuple[str, ...] = value_option(parsers.parse_ucx_releases, (), "FIRST..LAST|A,B[,C]")
    budget: float | None = value_option(parsers.parse_positive_duration, None, "DURATION")


def run_options_for_bisect() -> tuple[Option, ...]:
    """The options of `run` that `bisect` has as well, with its own default and help of ``--launches``."""
    most = f"Most launches of each release in a comparison, at least 6, which is where it starts. [{MOST_LAUNCHES}]"
    options = (BY_KEY[key] for key in (*BISECT_KEYS, *MERGE_KEYS))
    return tuple(replace(option, help=most) if option.key == "launches" else option for option in options)
