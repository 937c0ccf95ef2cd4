"""Makes planned runs from a command line: reads configs, settles options, checks settings with UCX, plans each run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from merge_bench.campaign import registry_options
from merge_bench.campaign.campaign import config_line
from merge_bench.campaign.machine_checks import Machine, check_installed, count_tables
from merge_bench.campaign.make_plan import PlannedRun, launcher_ucx_settings, plan_run, sends_gpu_memory
from merge_bench.campaign.planned_launches import Sweep
from merge_bench.campaign.run_options import SWEPT, runs_of
from merge_bench.cluster.dask_commands import LOOPBACK, open_port_warning
from merge_bench.cluster.launchers import choose_kind, choose_launcher, leftover_job_warning
from merge_bench.config.check import BRINGS_CODE, NO_DEVICE, CheckResult, Conflict, check_config, options_for_ucx
from merge_bench.config.options import RunOptions, resolve
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.shipped import find_config
from merge_bench.config.ucx_choice import SYSTEM, probe_ucx, refuse_without_cuda, use_ucx
from merge_bench.errors import Caution, GateNotMet, UsageError
from merge_bench.host import network
from merge_bench.merge.workload.tables import TableSpec

WORTH_A_WARNING = ("deprecated", "module-absent", "no-effect", BRINGS_CODE)
ReplaceOptions: TypeAlias = Callable[[RunOptions], RunOptions]
"""Replaces the options of merges, for a command that does not merge."""


def plan_runs(
    name: str | None, command_line: RunOptions, replace_options: ReplaceOptions | None = None, *, several: bool = True
) -> list[PlannedRun]:
    """Read the config `name`, settle the options and plan each run.

    `command_line`: its options; `replace_options`: changes the options of a command that does not merge; `several`:
    whether options may have several values.

    Raises
    ------
    UsageError
        If the config or an option is wrong, or this machine cannot make a run.
    """
    config = None if name is None else read_config(find_config(name), os.environ)
    options = resolve(command_line, config, os.environ, registry_options.options())
    if replace_options is not None:
        options = replace_options(options)
    runs = runs_of(options, os.environ)
    if len(runs) > 1 and not several:
        keys = ", ".join(f"--{key}" for key in SWEPT)
        raise UsageError(f"only `run` accepts several values of {keys}; use one value of each")
    machine = Machine()
    device_memory = any(sends_gpu_memory(run, machine) for run in runs)
    warnings = [*_choose_ucx(options, device_memory=device_memory), *_check_settings(config, options)]
    planned = [plan_run(run, config, machine) for run in runs]
    _refuse_equal_plans(planned)
    for run in planned if replace_options is None else ():
        if run.launcher.starts_here:
            check_installed(run.plan)
    return [replace(run, warnings=(*_table_warnings(run, machine), *run.warnings, *warnings)) for run in planned]


def load_sweep(command_line: RunOptions) -> Sweep:
    """Plan the runs of every config of ``--config`` or ``--configs``: one run for each combination of options."""
    sweep = Sweep()
    for name in command_line.configs or (command_line.config,):
        planned = plan_runs(name, command_line)
        sweep.add(planned, config_line(planned[0]))
        if planned[0].plan.write_result and len(sweep.jobs()) > 1:
            raise UsageError(
                "--write-result writes the merged table of one launch; use one config, one value of each option, and"
                " omit --launches"
            )
    return sweep


def check_for_run(config: ConfigFile, ucx: str, *, trusted: bool = False, other_hosts: bool = False) -> CheckResult:
    """Check `config` as `run` does before it starts processes; other options are taken from the environment.

    Only the footers of tables are read, TPC-H's tables are not generated, and no running cluster is asked.

    `ucx`: the UCX that the workers will load, ``wheel`` or ``system``; `trusted`: the config may bring code;
    `other_hosts`: the config is for other hosts, so what only this machine lacks is a warning instead of an error.

    Raises
    ------
    UsageError
        If the value of an old name in the config cannot be translated.
    """
    table = registry_options.options()
    ucx_options = options_for_ucx(config, os.environ, table)
    interface = ucx_options.interface or LOOPBACK
    variables = {**os.environ, **config.environment}
    own = launcher_ucx_settings(ucx_options, variables, hosts=2 if other_hosts else 1)
    launcher = {"UCX_NET_DEVICES": network.net_devices(interface), **own}
    result = check_config(config, os.environ, ucx=ucx, launcher=launcher, table=table, trusted=trusted)
    if not other_hosts and (port := open_port_warning({**own, **variables}, interface)):
        opened = Conflict(port.code, ("UCX_TLS",), f"{port.message}; {port.remedy}.", "uct/tcp of UCX")
        result = replace(result, conflicts=(opened, *result.conflicts))
    if not result.options_are_valid:
        return result
    trusting = RunOptions().given(trust_config=True)  # code is among the errors already
    try:
        options = replace(resolve(trusting, config, os.environ, table), trust_config=trusted)
        runs = runs_of(options, os.environ)
    except UsageError as error:
        return replace(result, ok=False, refusals=(str(error),))
    if left := leftover_job_warning(options, os.environ):
        result = replace(result, warnings=(*result.warnings, f"{left.message}; {left.remedy}"))
    machine = Machine(looks=False)
    try:
        for run in runs:
            planned = plan_run(run, config, machine)
            if planned.launcher.starts_here:
                check_installed(planned.plan)
            if planned.plan.device_memory and planned.plan.data_plane.endpoints and ucx == SYSTEM:
                refuse_without_cuda(probe_ucx(ucx, os.environ))
    except (UsageError, GateNotMet) as error:
        here = f"this machine cannot run this config: {error}"
        if other_hosts:
            return replace(result, warnings=(*result.warnings, here))
        return replace(result, ok=False, refusals=(f"{here} (for other hosts: --other-hosts)",))
    return result


def _refuse_equal_plans(planned: Sequence[PlannedRun]) -> None:
    """Refuse a sweep in which two values of an option mean the same, such as `auto` and the engine it chooses."""
    for run, other in itertools.combinations(planned, 2):
        if run.plan == other.plan:
            values = {key: (getattr(run.options, key), getattr(other.options, key)) for key in SWEPT}
            key, (first, second) = next(item for item in values.items() if item[1][0] != item[1][1])
            raise UsageError(
                f"--{key} {first} and {second} mean the same here ({getattr(run.plan, key)}); name only one of them"
            )


def _table_warnings(planned: PlannedRun, machine: Machine) -> tuple[Caution, ...]:
    plan = planned.plan
    if not isinstance(plan.workload, TableSpec):
        return ()
    return count_tables(plan.workload, plan.workers, machine.memory, plan.how, plan.distribution.sent)


def _choose_ucx(options: RunOptions, *, device_memory: bool) -> list[Caution]:
    """Choose the UCX that this command loads (a running cluster has loaded its own); returns warnings.

    `device_memory`: whether its workers send GPU memory.
    """
    if not choose_kind(options, os.environ).owns_processes:
        if options.ucx is not None:
            raise UsageError(
                "--ucx cannot be used with a running cluster, which has already loaded its UCX; omit --ucx"
            )
        return []
    choice = use_ucx(options.ucx, device_memory=device_memory)
    return [] if choice.warning is None else [choice.warning]


def _check_settings(config: ConfigFile | None, options: RunOptions) -> list[Caution]:
    """Check the settings of config and environment with the installed UCX; refuses errors and returns warnings.

    Without a config, settings of the environment are checked unless the cluster is running already.
    """
    outside = choose_kind(options, os.environ).owns_processes and any(
        name.startswith(("UCX_", "UCXPY_")) for name in os.environ
    )
    if config is None and not outside:
        return []
    config = config or ConfigFile("environment", Path(), "", ())
    result = check_config(
        config,
        os.environ,
        ucx=os.environ.get("MERGE_BENCH_UCX", "auto"),
        launcher=_launcher_settings(options, {**os.environ, **config.environment}),
        options=options,
        table=registry_options.options(),
        trusted=options.trust_config,
    )
    if result.errors and not options.allow_unknown:
        raise UsageError("\n".join([*result.errors, "add --allow-unknown to continue anyway"]))
    warned = [Caution("config", sentence) for sentence in (*result.errors, *result.warnings)]
    absent = [name for conflict in result.conflicts if conflict.code == NO_DEVICE for name in conflict.settings]
    for setting in result.variables:
        told = setting.source == "config" and setting.state in WORTH_A_WARNING and setting.message
        if told and setting.name not in absent:
            where = f"{config.where(setting.line)}: " if setting.line else ""
            message = f"{where}{setting.name}={setting.value}: {setting.message}"
            warned.append(Caution(f"config-{setting.state}", message))
    warned += [Caution(conflict.code, conflict.message, conflict.documented) for conflict in result.conflicts]
    return warned


def _launcher_settings(options: RunOptions, variables: Mapping[str, str]) -> dict[str, str]:
    """The UCX settings that the launcher will set, as far as they are known before hosts are asked."""
    launcher, hosts = choose_launcher(options, os.environ)
    interface = options.interface or ""
    if not hosts:
        devices = {"UCX_NET_DEVICES": network.net_devices(interface or LOOPBACK)} if launcher.starts_here else {}
    else:
        devices = {"UCX_NET_DEVICES": interface} if interface else {}
    own = launcher_ucx_settings(options, variables, hosts=len(hosts)) if launcher.owns_processes else {}
    return {**devices, **own}
