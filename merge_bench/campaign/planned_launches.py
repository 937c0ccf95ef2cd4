"""Plans the launches of a campaign: reads configs, settles options, checks settings with UCX, orders the launches.

How long they take is estimated from earlier launches of the same merge on this host, else by a rule of thumb.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import socket
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from merge_bench.analysis.diagnostics import busy_host_warnings
from merge_bench.campaign import make_plan, options_of_run
from merge_bench.campaign.machine_checks import MachineResources, check_packages_installed, check_tables_fit_in_memory
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.cluster.base import LauncherKind
from merge_bench.cluster.dask_commands import LOOPBACK, open_port_warning
from merge_bench.cluster.launchers import ChosenLauncher, choose_launcher, unreachable_batch_job_warning
from merge_bench.config.check import (
    BRINGS_CODE,
    NO_DEVICE,
    NOT_PASSED,
    ConfigCheckResult,
    SettingsConflict,
    check_config,
    read_options_for_ucx,
)
from merge_bench.config.installation import __version__
from merge_bench.config.options import RunOptions, resolve_options
from merge_bench.config.parsers import AUTO, SYSTEM, WHEEL
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.shipped import find_config_file
from merge_bench.config.ucx_choice import (
    UcxChoice,
    choose_release_or_folder,
    choose_ucx,
    probe_ucx,
    refuse_ucx_without_cuda,
    select_ucx_temporarily,
)
from merge_bench.config.variables import HELPER_REMEDY, refuse_configs_that_differ_in_nothing
from merge_bench.errors import GateNotMet, MergeBenchError, RunFailed, UsageError, WarningMessage
from merge_bench.host import network
from merge_bench.host.machine import usable_core_count
from merge_bench.merge.engines import describe_engine
from merge_bench.merge.exchange import find_data_plane
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.campaign import Launch, label_runs
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import remove_table_names
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.schema import CampaignLine, Config, RunKey
from merge_bench.units import count_with_noun, format_duration

_T = TypeVar("_T")
WORTH_A_WARNING = ("deprecated", "module-absent", "no-effect", BRINGS_CODE)
ReplaceOptions: TypeAlias = Callable[[RunOptions], RunOptions]
"""Replaces the options of merges, for a command that does not merge."""


def make_campaign_line(
    configs: Sequence[Config], plans: Sequence[dict[str, Any]], runs: Sequence[RunKey], seed: int
) -> CampaignLine:
    """Make a campaign's first record as far as its launches decide it: configs, plans, runs and seed."""
    return CampaignLine(
        campaign_id="",
        argv=[],
        version=__version__,
        configs=list(configs),
        plans=list(plans),
        runs=list(runs),
        seed=seed,
    )


@dataclass(frozen=True)
class PlannedLaunch:
    """One planned launch of a campaign.

    `prepared`: the run that it launches; `config`: the name of its config in the campaign; `plan`: the index of its
    plan; `block`: the number of its block, in which every run is launched once; `label`: the name that distinguishes
    its run from the others.
    """

    prepared: PlannedRun
    config: str
    plan: int = 0
    block: int = 0
    label: str = ""


def order_runs_in_blocks(runs: Sequence[_T], *, blocks: int, seed: int) -> list[tuple[int, _T]]:
    """Order the runs at random in blocks, every run once in each; returns pairs of block number, from 0, and run."""
    launches = []
    for block in range(blocks):
        order = list(runs)
        random.Random(f"{seed}/{block}").shuffle(order)
        launches += [(block, run) for run in order]
    return launches


def make_config_record(planned_run: PlannedRun) -> Config:
    """Make the record of a run's config: name, path and variables; without a config, the name is ``default``."""
    config, variables = planned_run.config, dict(planned_run.settings.environment)
    if config is None:
        return Config(name="default", variables=variables)
    return Config(name=config.name, path=str(config.path), variables=variables)


def append_config_record(configs: list[Config], config: Config) -> None:
    """Append the record of a config to those of a campaign; raises UsageError if one has the same name."""
    for other in configs:
        if other.name == config.name:
            where = f"{other.path} and {config.path}" if other.path != config.path else f"{config.path}, twice"
            same = f"two configs have the name {config.name} ({where})"
            raise UsageError(f"{same}; give every config of a campaign a different name")
    configs.append(config)


@dataclass(frozen=True)
class Sweep:
    """The runs of a campaign: records of its configs and plans, and the planned run of each (config, plan index)."""

    configs: list[Config] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    prepared: dict[tuple[str, int], PlannedRun] = field(default_factory=dict)

    def add_config(self, planned_runs: Sequence[PlannedRun], config: Config) -> None:
        """Add a config with its planned runs.

        Raises UsageError if another config has this name, another results folder or another number of launches, or if a
        running cluster would have to be launched more than once.
        """
        append_config_record(self.configs, config)
        for run in planned_runs:
            plan = run.plan.to_json()
            if plan not in self.plans:
                self.plans.append(plan)
            self.prepared[config.name, self.plans.index(plan)] = run
        if len({each.plan.launches for each in self.prepared.values()}) > 1:
            use = "use --launches N to launch each config N times"
            raise UsageError(f"the configs set different numbers of launches; {use}")
        if len({each.settings.results for each in self.prepared.values()}) > 1:
            raise UsageError("the configs set different folders for results; choose one folder with --results")
        for run in self.prepared.values():
            make_plan.refuse_launches_of_running_cluster(run.settings.launcher, len(self.prepared))

    @property
    def first_run(self) -> PlannedRun:
        """The first planned run, which has the baseline config."""
        return next(iter(self.prepared.values()))

    @property
    def options(self) -> RunOptions:
        """The options of the first run, which also apply to the whole campaign."""
        return self.first_run.options

    @property
    def results_folder(self) -> Path:
        return self.first_run.settings.results

    def run_labels(self) -> dict[tuple[str, int], str]:
        """The label that distinguishes each run from the others, by (config, plan index)."""
        runs = [(config, self.plans[plan]) for config, plan in self.prepared]
        return dict(zip(self.prepared, label_runs(runs), strict=True))

    @property
    def distinct_labels(self) -> list[str]:
        """The distinct labels of the runs that are compared, such as names of configs, or of engines and exchanges."""
        return list(dict.fromkeys(self.run_labels().values()))

    def campaign_line(self) -> CampaignLine:
        keys = [RunKey(config=config, plan=plan) for config, plan in self.prepared]
        return make_campaign_line(self.configs, self.plans, keys, self.first_run.plan.seed)

    def ordered_launches(self) -> list[PlannedLaunch]:
        """Return the launches to make in their order: every run once in each block."""
        plan = self.first_run.plan
        order = order_runs_in_blocks(list(self.prepared.items()), blocks=plan.launches, seed=plan.seed)
        run_labels = self.run_labels()
        return [PlannedLaunch(prepared, *key, block, run_labels[key]) for block, (key, prepared) in order]


def plan_runs(
    config_name: str | None,
    command_line: RunOptions,
    replace_options: ReplaceOptions | None = None,
    *,
    allowed_several: bool | Sequence[str] = True,
) -> list[PlannedRun]:
    """Read a config, settle the options, and plan each run.

    `config_name`: None: no config. `command_line`: the options of the command line; `replace_options`: changes the
    options of a command that does not merge; `allowed_several`: whether options may have several values, or which ones
    may. Raises UsageError if the config or an option is wrong, or this machine cannot make a run.
    """
    config = None if config_name is None else read_config(find_config_file(config_name), os.environ)
    options = resolve_options(command_line, config, os.environ, options_of_run())
    with options.naming_value_sources():
        return _plan_resolved_runs(config, options, replace_options, allowed_several)


def _plan_resolved_runs(
    config: ConfigFile | None,
    options: RunOptions,
    replace_options: ReplaceOptions | None,
    allowed_several: bool | Sequence[str],
) -> list[PlannedRun]:
    """Plan the runs of `plan_runs` when config and options are known."""
    if replace_options is not None:
        options = replace_options(options)
    runs = make_plan.options_of_each_run(options, os.environ)
    allowed = allowed_several if not isinstance(allowed_several, bool) else make_plan.SWEPT if allowed_several else ()
    swept = [key for key in make_plan.SWEPT if len({getattr(run, key) for run in runs}) > 1]
    if refused := [key for key in swept if key not in allowed]:
        only = "only `run`, `probe` and `exec` accept" if refused == ["ucx"] else "only `run` accepts"
        raise UsageError(f"{only} several values of {', '.join(f'--{key}' for key in refused)}; use one value of each")
    machine = MachineResources()
    chosen_launcher = choose_launcher(options, machine.environ)  # the same one for all runs
    sends_gpu_memory = any(make_plan.sends_gpu_memory(run, chosen_launcher.hosts, machine) for run in runs)
    by_index: dict[int, PlannedRun] = {}
    for ucx in dict.fromkeys(run.ucx for run in runs):
        is_only_value = len({run.ucx for run in runs}) == 1
        is_loaded = any(find_data_plane(run.exchange).ucx or run.protocol == "ucx" for run in runs if run.ucx == ucx)
        choice, warnings = _choose_ucx(
            ucx,
            chosen_launcher.launcher,
            sends_gpu_memory=sends_gpu_memory,
            is_loaded=is_loaded,
            is_only_value=is_only_value,
        )
        with contextlib.nullcontext() if choice is None else select_ucx_temporarily(choice.origin):
            warnings += _check_ucx_settings(config, options, chosen_launcher)
            for index, run in enumerate(runs):
                if run.ucx != ucx:
                    continue
                planned_run = make_plan.plan_run(run, config, machine, chosen_launcher, choice)
                if replace_options is None and planned_run.launcher.starts_here:
                    check_packages_installed(planned_run.plan)
                all_warnings = (*_table_warnings(planned_run, machine), *planned_run.warnings, *warnings)
                by_index[index] = replace(planned_run, warnings=all_warnings)
    planned_runs = [by_index[index] for index in range(len(runs))]
    _refuse_equal_plans(planned_runs)
    return planned_runs


def load_sweep(command_line: RunOptions) -> Sweep:
    """Plan the runs of every config of ``--config`` or ``--configs``: one run for each combination of options."""
    sweep = Sweep()
    for name in command_line.configs or (command_line.config,):
        planned_runs = plan_runs(name, command_line)
        sweep.add_config(planned_runs, make_config_record(planned_runs[0]))
        if planned_runs[0].plan.write_result and len(sweep.ordered_launches()) > 1:
            use = "use one config, one value of each option, and omit --launches"
            raise UsageError(f"--write-result writes the merged table of one launch; {use}")
    configs = [run.config for run in sweep.prepared.values()]
    refuse_configs_that_differ_in_nothing(configs, trusted=command_line.trust_config)
    return sweep


def check_config_for_run(
    config: ConfigFile, ucx: str, *, trusted: bool = False, other_hosts: bool = False
) -> ConfigCheckResult:
    """Check `config` as `run` does before it starts processes; other options are taken from the environment.

    Only the footers of tables are read, TPC-H's tables are not generated, and no running cluster is asked.

    `ucx`: the UCX that the workers will load, ``wheel`` or ``system``; `trusted`: the config may bring code;
    `other_hosts`: the config is for other hosts, so what only this machine lacks is a warning instead of an error.
    Raises UsageError if the value of an old name in the config cannot be translated.
    """
    table = options_of_run()
    ucx_options = read_options_for_ucx(config, os.environ, table)
    interface = ucx_options.interface or LOOPBACK
    variables = {**os.environ, **config.variable_values}
    own = make_plan.launcher_ucx_settings(ucx_options, variables, hosts=2 if other_hosts else 1)
    launcher = {"UCX_NET_DEVICES": network.ucx_net_devices(interface), **own}
    result = check_config(
        config, os.environ, ucx_origin=ucx, launcher_settings=launcher, known_options=table, trusted=trusted
    )
    if not other_hosts and (port := open_port_warning({**own, **variables}, interface)):
        opened = SettingsConflict(port.code, ("UCX_TLS",), f"{port.message}; {port.remedy}.", "uct/tcp of UCX")
        result = replace(result, conflicts=(opened, *result.conflicts))
    if not result.run_options_are_valid:
        return result
    trusting = RunOptions().with_command_line_values(trust_config=True)  # code is among the errors already
    try:
        options = replace(resolve_options(trusting, config, os.environ, table), trust_config=trusted)
        with options.naming_value_sources():
            runs = make_plan.options_of_each_run(options, os.environ)
    except UsageError as error:
        return replace(result, ok=False, refusals=(str(error),))
    if left := unreachable_batch_job_warning(options, os.environ):
        result = replace(result, warnings=(*result.warnings, f"{left.message}; {left.remedy}"))
    machine = MachineResources(looks=False)
    try:
        with options.naming_value_sources():
            chosen_launcher = choose_launcher(options, machine.environ)
            for run in runs:
                planned_run = make_plan.plan_run(run, config, machine, chosen_launcher)
                if planned_run.launcher.starts_here:
                    check_packages_installed(planned_run.plan)
                if planned_run.plan.device_memory and planned_run.plan.data_plane.endpoints and ucx == SYSTEM:
                    refuse_ucx_without_cuda(probe_ucx(ucx, os.environ))
    except (UsageError, GateNotMet, RunFailed) as error:
        here = f"this machine cannot run this config: {error}"
        if other_hosts:
            return replace(result, warnings=(*result.warnings, here))
        return replace(result, ok=False, refusals=(f"{here} (for other hosts: --other-hosts)",))
    return result


def _refuse_equal_plans(planned_runs: Sequence[PlannedRun]) -> None:
    """Refuse runs with equal plans, from values that mean the same, such as `auto` and the engine it chooses."""
    for run, other in itertools.combinations(planned_runs, 2):
        if run.plan == other.plan:
            values = {key: (getattr(run.options, key), getattr(other.options, key)) for key in make_plan.SWEPT}
            key, (first, second) = next(item for item in values.items() if item[1][0] != item[1][1])
            same = f"--{key} {first} and {second} mean the same here ({getattr(run.plan, key)})"
            raise UsageError(f"{same}; name only one of them")


def _table_warnings(planned_run: PlannedRun, machine: MachineResources) -> tuple[WarningMessage, ...]:
    """Warnings about null keys in the tables of a run; refuses tables that do not fit into memory."""
    plan = planned_run.plan
    if not isinstance(plan.workload, TableSpec):
        return ()
    return check_tables_fit_in_memory(plan.workload, plan.workers, machine.memory, plan.how, plan.distribution.sent)


def _choose_ucx(
    ucx_option: str | None, launcher: LauncherKind, *, sends_gpu_memory: bool, is_loaded: bool, is_only_value: bool
) -> tuple[UcxChoice | None, list[WarningMessage]]:
    """Choose the UCX of runs, with warnings; None if the whole command uses it, which its environment then names.

    `ucx_option`: the value of ``--ucx``; `sends_gpu_memory`: whether workers send GPU memory; `is_loaded`: whether the
    UCXX library loads this UCX; `is_only_value`: whether ``--ucx`` has no other value.
    """
    if not launcher.owns_processes:
        if ucx_option is not None:
            what = "--ucx cannot be used with a running cluster, which has already loaded its UCX"
            raise UsageError(f"{what}; omit --ucx")
        return None, []
    if is_loaded or ucx_option in (None, AUTO, WHEEL, SYSTEM):
        choice = choose_ucx(ucx_option, os.environ, sends_gpu_memory=sends_gpu_memory)
    else:
        choice = choose_release_or_folder(ucx_option)
    warnings = [] if choice.warning is None else [choice.warning]
    if is_only_value and choice.release is None:
        choice.apply_to_process()
        return None, warnings
    return choice, warnings


def _check_ucx_settings(
    config: ConfigFile | None, options: RunOptions, chosen_launcher: ChosenLauncher
) -> list[WarningMessage]:
    """Check the settings of config and environment with the installed UCX; returns warnings, refuses errors."""
    if config is None:
        outside = any(name.startswith(("UCX_", "UCXPY_")) for name in os.environ)
        if not (outside and chosen_launcher.launcher.owns_processes):
            return []
        config = ConfigFile("environment", Path(), "", ())
    launcher = _known_launcher_settings(options, chosen_launcher, {**os.environ, **config.variable_values})
    ucx, table = os.environ.get("MERGE_BENCH_UCX", "auto"), options_of_run()
    trusted = options.trust_config
    result = check_config(
        config,
        os.environ,
        ucx_origin=ucx,
        launcher_settings=launcher,
        options=options,
        known_options=table,
        trusted=trusted,
    )
    if result.error_messages and not options.allow_unknown:
        raise UsageError("\n".join([*result.error_messages, "add --allow-unknown to continue anyway"]))
    warned = [WarningMessage("config", sentence) for sentence in (*result.error_messages, *result.warnings)]
    absent = [name for conflict in result.conflicts if conflict.code == NO_DEVICE for name in conflict.settings]
    for setting in result.variables:
        told = setting.source == "config" and setting.state in WORTH_A_WARNING and setting.message
        if told and setting.name not in absent:
            where = f"{config.format_position(setting.line)}: " if setting.line else ""
            message = f"{where}{setting.name}={setting.value}: {setting.message}"
            remedy = HELPER_REMEDY if setting.message == NOT_PASSED else None
            warned.append(WarningMessage(f"config-{setting.state}", message, remedy))
    warned += [WarningMessage(conflict.code, conflict.message, conflict.documented) for conflict in result.conflicts]
    return warned


def _known_launcher_settings(
    options: RunOptions, chosen_launcher: ChosenLauncher, variables: Mapping[str, str]
) -> dict[str, str]:
    """The UCX settings that the launcher will set, as far as they are known before hosts are asked."""
    (launcher, hosts), devices = chosen_launcher, dict[str, str]()
    if not hosts and launcher.starts_here:
        devices = {"UCX_NET_DEVICES": network.ucx_net_devices(options.interface or LOOPBACK)}
    elif hosts and options.interface:
        devices = {"UCX_NET_DEVICES": options.interface}
    own = make_plan.launcher_ucx_settings(options, variables, hosts=len(hosts)) if launcher.owns_processes else {}
    return {**devices, **own}


START_SECONDS = 4.0
"""From starting the processes of a small launch to their end: 3.9 and 4.2 s on two cores."""
ROW_SECONDS, ROW_ONCE_SECONDS = 22e-9, 150e-9
"""Core seconds for a row of each frame in one merge (0.17 s for 2 × 8e6 rows on two cores), and once in a launch, for
generating, warming up and verifying."""
RULE = (
    f"by a rule of thumb: {START_SECONDS:g} s a launch, and {ROW_SECONDS * 1e9:g} ns of a core for each row and merge"
)
ENOUGH_LAUNCHES, MOST_READ, FEW = 6, 12, 3
_COUNTS = ("launches", "iterations", "warmup", "tune", "seed", "timeout")
_CHECKS = ("require_transport", "verify", "link_rounds", "check_link", "write_result")


def launch_seconds_by_rule(planned_launch: PlannedLaunch) -> float | None:
    """Seconds that a launch takes by the rule of thumb; None for GPUs, Dask's merge and tables of files."""
    plan = planned_launch.prepared.plan
    if (
        plan.rows_per_chunk is None
        or not plan.data_plane.workers_exchange_rows
        or describe_engine(plan.engine).device_memory
    ):
        return None
    workers_of_core = plan.workers / usable_core_count() if planned_launch.prepared.launcher.starts_here else 1.0
    return rule_of_thumb_seconds(plan.rows_per_chunk * max(workers_of_core, 1.0), plan.iterations)


def rule_of_thumb_seconds(rows_per_core: float, iterations: int) -> float:
    """Seconds that a launch takes by the rule of thumb; `rows_per_core`: rows of each input frame for each core."""
    return START_SECONDS + rows_per_core * (ROW_SECONDS * iterations + ROW_ONCE_SECONDS)


def earlier_launch_seconds(results_folder: Path, plan: Mapping[str, Any], config: str) -> list[float]:
    """Seconds that earlier launches of the same merge took on this host, scaled to the iterations of `plan`.

    The newest is first. Only launches with the same config count, or, if there are none, those with any config; and
    those of campaigns on a busy host only if there are no others. At most `MOST_READ` results in the folder
    `results_folder` are read.
    """
    problem, host, read = _duration_fields(plan), socket.gethostname(), 0
    seconds: dict[tuple[bool, bool], list[float]] = {}  # by whether the host was busy and the config is another
    for folder, head in ResultsFolder(results_folder).find_newest_results(lambda head: head.driver_host == host):
        if len(seconds.get((False, False), ())) >= ENOUGH_LAUNCHES or read >= MOST_READ:
            break
        alike = [index for index, recorded in enumerate(head.plans) if _duration_fields(recorded) == problem]
        if not alike:
            continue
        read += 1
        try:
            campaign = read_campaign(folder)
        except MergeBenchError:
            continue
        busy = bool(busy_host_warnings(campaign))
        for launch in campaign.launches:
            its, number = launch.run_key or (campaign.head.configs[0].name, 0)
            total = launch.end.seconds if launch.complete and launch.end else None
            if total and number in alike:
                scaled = _scaled_launch_seconds(launch, total, plan.get("iterations"))
                seconds.setdefault((busy, its != config), []).append(scaled)
    return seconds[min(seconds)][:ENOUGH_LAUNCHES] if seconds else []


def _scaled_launch_seconds(launch: Launch, total_seconds: float, iterations: object) -> float:
    """Seconds that a launch of `total_seconds` would have taken with this number of timed iterations."""
    walls = [each.wall_seconds for each in launch.timed_iterations]
    if not walls or not isinstance(iterations, int):
        return total_seconds
    return max(total_seconds - sum(walls), 0.0) + iterations * statistics.median(walls)


def _duration_fields(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recorded plan that decide how long one merge takes."""
    kept = {name: value for name, value in remove_table_names(plan).items() if name not in _COUNTS + _CHECKS}
    if "probe" in kept:
        return {**kept, "iterations": plan.get("iterations")}
    kept.setdefault("how", "inner")  # older records have no other
    workload = kept.get("workload")
    if isinstance(workload, Mapping):
        kept["workload"] = {name: value for name, value in workload.items() if name != "seed"}
    return kept


@dataclass
class LaunchTimeEstimator:
    """Estimates the seconds that the launches of a campaign take, before and while it runs.

    `results`: the folder with earlier results. `plans`: the campaign's plans as its records have them. `rule_seconds`:
    returns the seconds of a launch by a rule of thumb, None where the rule does not apply. `rule`: the rule in words.
    """

    results: Path
    plans: Sequence[Mapping[str, Any]]
    rule_seconds: Callable[[PlannedLaunch], float | None]
    rule: str = RULE
    _estimates: dict[tuple[str, int], tuple[float | None, int]] = field(default_factory=dict)
    _measured: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    _ratios: list[float] = field(default_factory=list)

    def launch_seconds(self, planned_launch: PlannedLaunch) -> float | None:
        """The estimated seconds that a launch takes; None if neither launches nor the rule give an estimate."""
        key = planned_launch.config, planned_launch.plan
        if key in self._measured:
            return statistics.median(self._measured[key])
        before = self._estimate_before_start(planned_launch)[0]
        if before is None:
            others = [seconds for measured in self._measured.values() for seconds in measured]
            return statistics.median(others) if others else None
        return before * (statistics.median(self._ratios) if self._ratios else 1.0)

    def _estimate_before_start(self, planned_launch: PlannedLaunch) -> tuple[float | None, int]:
        """The seconds estimated before the campaign, and the number of earlier launches they are from (0: the rule)."""
        key = planned_launch.config, planned_launch.plan
        if key not in self._estimates:
            earlier = earlier_launch_seconds(self.results, self.plans[planned_launch.plan], planned_launch.config)
            # The least of few: the first launch of all also compiles its loops.
            usual = min if len(earlier) < FEW else statistics.median
            self._estimates[key] = (usual(earlier), len(earlier)) if earlier else (self.rule_seconds(planned_launch), 0)
        return self._estimates[key]

    def add_measured_launch(self, planned_launch: PlannedLaunch, seconds: float) -> None:
        """Add the measured seconds of a finished launch, which correct the estimates of further launches."""
        before = self._estimate_before_start(planned_launch)[0]
        if before:
            self._ratios.append(seconds / before)
        self._measured.setdefault((planned_launch.config, planned_launch.plan), []).append(seconds)

    def total_seconds(self, planned_launches: Sequence[PlannedLaunch]) -> float | None:
        """The estimated seconds of all these launches together; None if there is no estimate for one of them."""
        seconds = [self.launch_seconds(planned_launch) for planned_launch in planned_launches]
        return math.fsum(each or 0.0 for each in seconds) if None not in seconds else None

    def describe_estimate(self, planned_launches: Sequence[PlannedLaunch]) -> str:
        """The estimate for these launches as a sentence, such as ``12 launches take about 2 minutes (…)``."""
        count = f"{count_with_noun(len(planned_launches), 'launch')} {'take' if len(planned_launches) > 1 else 'takes'}"
        total = self.total_seconds(planned_launches)
        if total is None:
            unknown = [each.config for each in planned_launches if self.launch_seconds(each) is None]
            new = ", ".join(dict.fromkeys(unknown))
            why = f"no earlier result here has the same tables, engine and workers as {new}"
            return f"{count} a time that is not known before the first one has ended: {why}"
        return f"{count} about {format_duration(total)} ({self.describe_estimate_source(planned_launches)})"

    def describe_estimate_source(self, planned_launches: Sequence[PlannedLaunch]) -> str:
        """The source of the estimate for these launches, as a phrase: earlier launches, or a rule of thumb."""
        sources = {self._estimate_before_start(planned_launch)[1] for planned_launch in planned_launches}
        if 0 not in sources:
            return "as earlier launches of the same problem here"
        return self.rule if sources == {0} else f"as earlier launches here; what is new, {self.rule}"
