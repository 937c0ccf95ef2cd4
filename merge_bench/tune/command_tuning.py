"""What a tuning of a command can try: the command's plan under a config, and what is known of where it runs.

Little is known of a person's program, so a condition that cannot be decided holds: a setting that has no effect costs
launches, and one that makes the command fail is dropped with its first launch. Settings of the rendezvous protocol are
tried, whatever the command sends: UCX's tables of protocols have ranges of sizes that could occur, not those that did,
and the counts of UCX 1.22 (``UCX_PROTO_INFO=used``) leave messages out.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import make_config_record
from merge_bench.cluster.supervisor import remove_scratch_folder
from merge_bench.command.command_campaign import (
    command_environment,
    command_variables,
    find_linked_ucx,
    plan_command_under_config,
)
from merge_bench.command.options import EXEC_KEYS
from merge_bench.command.placeholders import PlaceholderValues, needs_work_folder, replace_placeholders
from merge_bench.command.run_command import CommandTask, LaunchProcesses
from merge_bench.command.ucx_lanes import make_lanes_line, read_ucx_logs, ucx_logging_variables
from merge_bench.config import allowed_transports
from merge_bench.config.options import RunOptions
from merge_bench.config.ucx_choice import INFINIBAND
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.host.gpu import count_visible_gpus
from merge_bench.records.recorded_plan import CommandPlan
from merge_bench.units import format_duration

_OF_TRANSPORT = re.compile(r"UCX_(TCP|POSIX|SYSV|RC|UD|DC)_(?!ERROR_HANDLING)")
_HOSTS = re.compile(r"(?:^|[\s/;&|(])(?:srun|ssh|--?hosts?|-H|--?hostfile|--?machinefile)(?=$|[\s=])")
"""What in a command's words shows that it runs on other hosts."""

LIMIT_FACTOR, LEAST_LIMIT_SECONDS = 10.0, 30.0
"""The default time limit of a launch: this many times the slowest launch of the baseline, but at least this long."""
_LATE_FACTOR = 2.0
"""So many times the slowest launch of the baseline a launch may take that began just before the budget's end."""


def default_time_limit(baseline_seconds: Sequence[float], budget_left: float | None) -> float | None:
    """Seconds after which a launch of a command is ended if no ``--timeout`` was given; None: no limit.

    `baseline_seconds`: of the launches of the baseline that went well; `budget_left`: seconds, None without a budget.
    The limit does not exceed what is left of the budget, but a launch that began in time may end: it gets twice as long
    as the slowest launch of the baseline. Before the first one has ended, only the budget is a limit.
    """
    if not baseline_seconds:
        return budget_left
    slowest = max(baseline_seconds)
    limit = max(LIMIT_FACTOR * slowest, LEAST_LIMIT_SECONDS)
    return limit if budget_left is None else min(limit, max(budget_left, _LATE_FACTOR * slowest))


def time_limit_sentence(limit_seconds: float | None = None) -> str:
    """A sentence on the default time limit of launches; `limit_seconds`: None before it is known."""
    limit_text = "" if limit_seconds is None else f"{format_duration(limit_seconds)}, "
    rule = f"{LIMIT_FACTOR:g} times the slowest launch of the baseline but at least {LEAST_LIMIT_SECONDS:g} seconds"
    if limit_seconds is not None and limit_seconds < LEAST_LIMIT_SECONDS:
        rule = "which is what the budget has left"
    return f"a launch is ended after {limit_text}{rule}, and counts as failed; --timeout sets another limit"


def plan_command_runs(
    config_name: str | Path | None, command: CommandPlan, run_options: RunOptions
) -> list[PlannedRun]:
    """Plan a command under the config with this name or path; None: without settings. Returns a list of one run."""
    return plan_command_under_config(None if config_name is None else str(config_name), command.argv, run_options)


def refuse_merge_options(run_options: RunOptions) -> None:
    """Raise UsageError for an option of the command line that is about merges, or runs the tuning on a service."""
    for key in run_options.sources:
        if key not in {*EXEC_KEYS, "timeout"} - {"service"}:
            raise UsageError(f"--{key.replace('_', '-')} has no effect on a COMMAND; omit it")


def find_ucx_version_and_variables(planned_run: PlannedRun) -> tuple[str | None, frozenset[str] | None]:
    """The version of the UCX that a command links under a config, and the names of its variables; None: not known.

    A program that brings its own UCX, or links none, is taken for one that uses the UCX which `run` would load.
    """
    variables = command_variables(planned_run)
    linked = find_linked_ucx(command_environment(variables))
    origin = planned_run.settings.ucx_origin or linked.origin or "auto"
    installed = find_installed_ucx(origin, {**os.environ, **variables})
    if installed is None or (linked.version or installed.version) != installed.version:
        return linked.version, None
    inherited = {name for setting in installed.settings.values() for name in setting.inherits}
    return installed.version, frozenset({*installed.settings, *inherited})


def find_transports_of_command(command: CommandPlan, planned_run: PlannedRun) -> frozenset[str]:
    """Run a command once with UCX's log, without measuring it, and return the transports that its processes use.

    Raises UsageError if UCX logs none.
    """
    folder = Path(tempfile.mkdtemp(prefix="merge-bench-lanes-"))
    processes = LaunchProcesses(folder / "driver.log")
    try:
        variables = {**command_variables(planned_run), **ucx_logging_variables(folder)}
        work_folder = str(processes.make_work_folder()) if needs_work_folder(command.argv) else None
        place = PlaceholderValues(make_config_record(planned_run).name, list(variables), 0, work_folder)
        argv = replace_placeholders(command.argv, place)
        out, err = folder / "lanes.out", folder / "lanes.err"
        processes.run(CommandTask(argv, command_environment(variables), out, err, timeout=command.timeout))
        line = make_lanes_line(0, variables, read_ucx_logs(folder))
    except LaunchFailed as failure:
        raise UsageError(f"--lanes: {failure}") from None
    finally:
        processes.end_processes(succeeded=True)
        remove_scratch_folder(folder)
    if line is None:
        what = "UCX logged no lanes: the command does not use UCX, or its processes do not get the settings"
        raise UsageError(f"--lanes: {what}; omit --lanes")
    return frozenset(lane.partition("/")[0] for pair in line.pairs for lane in pair.transports)


def find_unused_transport(variable_names: Sequence[str], used_transports: frozenset[str]) -> str | None:
    """The transport (``tcp``) that all these variables are about, if it is none of `used_transports`, else None.

    Error handling is left out: with it, UCX may choose a transport that is not used without it.
    """
    matches = [_OF_TRANSPORT.match(name) for name in variable_names]
    names = [match[1].lower() for match in matches if match is not None]
    unused = [name for name in names if not any(each.startswith(name) for each in used_transports)]
    return unused[0] if unused and len(unused) == len(variable_names) else None


def count_infiniband_devices() -> int:
    """The number of InfiniBand and RoCE devices of this host."""
    return len(list(INFINIBAND.iterdir())) if INFINIBAND.is_dir() else 0


def tuning_conditions_of_command(argv: Sequence[str], variables: Mapping[str, str]) -> frozenset[str]:
    """Those of `space.CONDITIONS` that hold for a command, or may hold; `variables`: what its config sets."""
    several_hosts = _HOSTS.search(" ".join(argv)) is not None
    transports = allowed_transports.find_allowed_transports(variables.get("UCX_TLS", "all"))
    devices, gpus = count_infiniband_devices(), count_visible_gpus()
    holds = {
        "one-host": not several_hosts,
        "several-hosts": several_hosts,
        "gpu": gpus > 0,
        "no-gpu": gpus == 0,
        "infiniband": devices > 0,
        "several-devices": devices > 1,
        "tcp": bool(transports & {"tcp"}),
        "peer-error-handling": True,
    }
    return frozenset(name for name, so in holds.items() if so)
