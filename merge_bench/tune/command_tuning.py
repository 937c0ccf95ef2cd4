"""What a tuning of a command can try: the command's plan under a config, and what is known of where it runs.

Little is known of a person's program, so a condition that cannot be decided holds: a setting that has no effect costs
launches, and one that makes the command fail is dropped with its first launch.
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
from merge_bench.command.placeholders import LaunchPlace, needs_work_folder, replace_placeholders
from merge_bench.command.run_command import CommandTask, LaunchProcesses
from merge_bench.command.ucx_lines import logging_variables, make_lanes_line, read_logs
from merge_bench.config import allowed_transports
from merge_bench.config.options import RunOptions
from merge_bench.config.ucx_choice import INFINIBAND
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.host.gpu import count_visible_gpus
from merge_bench.records.recorded_plan import CommandPlan

_OF_TRANSPORT = re.compile(r"UCX_(TCP|POSIX|SYSV|RC|UD|DC)_(?!ERROR_HANDLING)")
_HOSTS = re.compile(r"(?:^|[\s/;&|(])(?:srun|ssh|--?hosts?|-H|--?hostfile|--?machinefile)(?=$|[\s=])")
"""What in a command's words shows that it runs on other hosts."""


def plan_command_runs(name: str | Path | None, command: CommandPlan, run: RunOptions) -> list[PlannedRun]:
    """Plan a command under the config with this name or path, None: without settings; a list of one."""
    return plan_command_under_config(None if name is None else str(name), command.argv, run)


def refuse_options_of_merges(run: RunOptions) -> None:
    """Raise UsageError for an option of the command line that is about merges, or runs the tuning on a service."""
    for key in run.sources:
        if key not in {*EXEC_KEYS, "timeout"} - {"service"}:
            raise UsageError(f"--{key.replace('_', '-')} has no effect on a COMMAND; omit it")


def find_ucx_of_command(planned: PlannedRun) -> tuple[str | None, frozenset[str] | None]:
    """Version and names of variables of the UCX that a command links under a config; None for what is not known.

    A program that brings its own UCX, or links none, is taken for one that uses the UCX which `run` would load.
    """
    variables = command_variables(planned)
    linked = find_linked_ucx(command_environment(variables))
    origin = planned.settings.ucx_origin or linked.origin or "auto"
    installed = find_installed_ucx(origin, {**os.environ, **variables})
    if installed is None or (linked.version or installed.version) != installed.version:
        return linked.version, None
    inherited = {name for setting in installed.settings.values() for name in setting.inherits}
    return installed.version, frozenset({*installed.settings, *inherited})


def find_transports_of_command(command: CommandPlan, planned: PlannedRun) -> frozenset[str]:
    """The transports that the processes of a command use: runs it once with UCX's log, and does not measure it.

    Raises UsageError if UCX logs none.
    """
    folder = Path(tempfile.mkdtemp(prefix="merge-bench-lanes-"))
    processes = LaunchProcesses(folder / "driver.log")
    try:
        variables = {**command_variables(planned), **logging_variables(folder)}
        work_folder = str(processes.make_work_folder()) if needs_work_folder(command.argv) else None
        place = LaunchPlace(make_config_record(planned).name, list(variables), 0, work_folder)
        argv = replace_placeholders(command.argv, place)
        out, err = folder / "lanes.out", folder / "lanes.err"
        processes.run(CommandTask(argv, command_environment(variables), out, err, timeout=command.timeout))
        line = make_lanes_line(0, variables, read_logs(folder))
    except LaunchFailed as failure:
        raise UsageError(f"--lanes: {failure}") from None
    finally:
        processes.end_processes(succeeded=True)
        remove_scratch_folder(folder)
    if line is None:
        what = "UCX logged no lanes: the command does not use UCX, or its processes do not get the settings"
        raise UsageError(f"--lanes: {what}; omit --lanes")
    return frozenset(lane.partition("/")[0] for pair in line.pairs for lane in pair.transports)


def find_unused_transport(variables: Sequence[str], transports: frozenset[str]) -> str | None:
    """The transport that all these variables are about, by the beginning of its name, if a command does not use it.

    Error handling is left out: with it, UCX may choose a transport that is not used without it.
    """
    matches = [_OF_TRANSPORT.match(name) for name in variables]
    names = [match[1].lower() for match in matches if match is not None]
    unused = [name for name in names if not any(each.startswith(name) for each in transports)]
    return unused[0] if unused and len(unused) == len(variables) else None


def count_infiniband_devices() -> int:
    """The number of InfiniBand and RoCE devices of this host."""
    return len(list(INFINIBAND.iterdir())) if INFINIBAND.is_dir() else 0


def conditions_of_command(argv: Sequence[str], variables: Mapping[str, str]) -> frozenset[str]:
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
