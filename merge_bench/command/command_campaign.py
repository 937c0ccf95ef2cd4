"""The campaign of a command: in each block every config gets a launch, one run of the command, in random order."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.analysis.compare import least_blocks_for_verdict
from merge_bench.campaign import UNTOUCHED, CallingProgram, LabelledProgress, ProgressDisplay
from merge_bench.campaign.launch import record_launch_outcome
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import (
    LaunchTimeEstimator,
    PlannedLaunch,
    append_config_record,
    make_campaign_line,
    make_config_record,
    order_runs_in_blocks,
    plan_runs,
)
from merge_bench.campaign.run_campaign import run_launches
from merge_bench.cluster.base import exit_status_text
from merge_bench.cluster.launchers import local
from merge_bench.cluster.supervisor import read_log_tail
from merge_bench.command.metrics import (
    CHECK_FAILED,
    RE,
    CommandOutput,
    MetricOptions,
    decode_command_output,
    find_metric_value,
    make_metrics,
    require_printed_match,
    split_check_command,
    validate_check,
)
from merge_bench.command.options import EXEC_KEYS, LAUNCHES, ExecOptions
from merge_bench.command.placeholders import (
    CONFIG,
    PlaceholderValues,
    needs_work_folder,
    replace_placeholders,
    unforwarded_settings_warning,
)
from merge_bench.command.run_command import (
    COMMAND_FAILED,
    CommandResult,
    CommandTask,
    LaunchProcesses,
    find_program_path,
)
from merge_bench.command.ucx_lanes import (
    NO_LANES_LOGGED,
    check_required_lanes,
    make_lanes_line,
    read_ucx_logs,
    ucx_logging_variables,
)
from merge_bench.command.warden import ENDED, TIMEOUT
from merge_bench.config.allowed_transports import find_unknown_transports
from merge_bench.config.files import TOKENS, open_regular_file
from merge_bench.config.option import DEFAULT
from merge_bench.config.options import BY_KEY, RunOptions, reset_merge_options
from merge_bench.config.parsers import WHEEL
from merge_bench.config.ucx_choice import ucx_selection_variables
from merge_bench.config.ucx_info import libucx_wheel_folder
from merge_bench.config.ucx_releases import PERFTEST_OVERSTATES, perftest_overstates_bandwidth, release_of_library
from merge_bench.config.variables import refuse_configs_that_differ_in_nothing
from merge_bench.errors import LaunchFailed, UsageError, WarningMessage, print_warning
from merge_bench.host import machine, other_load
from merge_bench.host.description import Hardware, UcxDescription
from merge_bench.merge import engines
from merge_bench.records.campaign import Campaign, label_planned_runs
from merge_bench.records.recorded_plan import WALL, CommandPlan, RecordedPlan
from merge_bench.records.schema import (
    CampaignLine,
    Cluster,
    Config,
    HostLoad,
    IterationLine,
    LaunchLine,
    RunKey,
    VerificationLine,
    WarningLine,
    Worker,
)
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import count_with_noun, format_bytes, format_limit

COMMAND_TIMEOUT = "command-timeout"
OUTPUT_CUT, NO_LANES = "output-cut", "no-lanes"
PERFTEST = "perftest-overstates"
LAUNCHER = "command"
"""The launcher in the records of commands."""
DRIVER_LOG = "driver.log"
_LOOK_SECONDS = 0.2
"""How long other processes are looked at before each launch."""
_LIBRARY_SECONDS = 10.0
_LINKED_UCX = """
import ctypes
ucp = ctypes.CDLL("libucp.so.0")
ucp.ucp_get_version_string.restype = ctypes.c_char_p
print(ucp.ucp_get_version_string().decode())
print(next(line.split()[-1] for line in open("/proc/self/maps") if "libucp" in line))
"""
"""Prints version and path of the UCX that a program gets which was linked with it by name."""


@dataclass(frozen=True)
class CommandCampaign:
    """A planned campaign: its first record, its launches in order, the command, and what decides about a launch."""

    head: CampaignLine
    jobs: Sequence[PlannedLaunch]
    plan: CommandPlan

    @property
    def block_count(self) -> int:
        """The number of blocks: how often the command is launched under each config."""
        return len(self.jobs) // len(self.head.runs)

    @property
    def results_folder(self) -> Path:
        """The folder in which the campaign's folder is made."""
        return self.jobs[0].prepared.settings.results

    @property
    def warnings(self) -> list[WarningMessage]:
        """The warnings that are known before the first launch, each once."""
        return list(dict.fromkeys(warning for job in self.jobs for warning in job.prepared.warnings))

    def make_time_estimator(self) -> LaunchTimeEstimator:
        """Make the estimator of the launches' time, which asks how long earlier launches of the same command took."""
        return LaunchTimeEstimator(self.results_folder, self.head.plans, lambda job: None)


def plan_command_campaign(argv: Sequence[str], exec_options: ExecOptions, run_options: RunOptions) -> CommandCampaign:
    """Plan the launches of a command under each config; raises UsageError if something is wrong.

    `exec_options`, `run_options`: the options of `exec`, and those that `run` has as well.
    """
    plan = make_command_plan(argv, exec_options)
    configs: list[Config] = []
    ready: list[tuple[PlannedRun, Config]] = []
    for name in run_options.configs or (run_options.config,):
        variants = plan_command_under_config(name, argv, run_options, sweepable_options=("ucx",))
        append_config_record(configs, record := make_config_record(variants[0]))
        ready += [(planned, record) for planned in variants]
    words = [*argv, *plan.checks, *filter(None, [plan.metric_file])]
    if not any(CONFIG in word for word in words):
        refuse_configs_that_differ_in_nothing(
            [planned.config for planned, _ in ready],
            trusted=run_options.trust_config,
            option_variables=[BY_KEY[key].environment_variable for key in EXEC_KEYS],
        )
    first = ready[0][0]
    if len({planned.settings.results for planned, _ in ready}) > 1:
        raise UsageError("the configs set different folders for results; choose one folder with --results")
    launches = first.options.launches if first.options.value_source("launches") != DEFAULT else LAUNCHES
    if any(planned.plan.require_transport for planned, _ in ready):
        plan = msgspec.structs.replace(plan, lanes=True)
    plans: list[dict[str, Any]] = []
    keys: list[RunKey] = []
    for planned, record in ready:
        recorded = {"command": msgspec.to_builtins(plan), "launches": launches}
        recorded |= {"require_transport": list(required)} if (required := planned.plan.require_transport) else {}
        recorded |= {} if planned.plan.ucx is None else {"ucx": planned.plan.ucx}
        if recorded not in plans:
            plans.append(recorded)
        keys.append(RunKey(config=record.name, plan=plans.index(recorded)))
    head = make_campaign_line(configs, plans, keys, first.plan.seed)
    labels = label_planned_runs(head)
    order = order_runs_in_blocks(list(zip(ready, keys, strict=True)), blocks=launches, seed=first.plan.seed)
    jobs = [
        PlannedLaunch(planned, key.config, key.plan, block, labels[key.config, key.plan])
        for block, ((planned, _), key) in order
    ]
    return CommandCampaign(head, jobs, plan)


def plan_command_under_config(
    config_name: str | None, argv: Sequence[str], run_options: RunOptions, *, sweepable_options: Sequence[str] = ()
) -> list[PlannedRun]:
    """Plan the launches of a command under the config with this name or path, None: without settings.

    `sweepable_options`: options that may have several values, of which each has its own plan. Raises UsageError if
    something is wrong with the config or the command.
    """
    required: tuple[str, ...] = ()

    def keep_required_transports(resolved_options: RunOptions) -> RunOptions:
        nonlocal required
        required = resolved_options.require_transport
        return _options_without_merge(resolved_options)

    planned_runs = []
    for planned in plan_runs(config_name, run_options, keep_required_transports, allowed_several=sweepable_options):
        _refuse_unknown_transports(required)
        variables = command_variables(planned)
        if find_program_path(argv, command_environment(variables)) is None:
            raise UsageError(f"{argv[0]}: there is no such program{_shell_hint(argv)}")
        warning = unforwarded_settings_warning(argv, make_config_record(planned).name, variables)
        plan = replace(planned.plan, require_transport=required)
        planned_runs.append(replace(planned, plan=plan, warnings=(*planned.warnings, *filter(None, [warning]))))
    return planned_runs


def _refuse_unknown_transports(required: Sequence[str]) -> None:
    for word, hint in find_unknown_transports(",".join(required)).items():
        raise UsageError(f"--require-transport {word}: no release of UCX has such a transport{hint}")


def make_command_plan(argv: Sequence[str], exec_options: ExecOptions) -> CommandPlan:
    """Make the plan of a command from its words and options, as the records have it; raises UsageError."""
    for check in exec_options.check:
        validate_check(check)
    metric_options = MetricOptions(
        exec_options.metric, exec_options.preset, exec_options.unit, exec_options.better, exec_options.pick
    )
    metrics = make_metrics(metric_options, shlex.join(argv))
    if exec_options.metric_file is not None and len(metrics) == 1:
        raise UsageError("--metric-file needs --metric or --preset, which say what to look for in the file")
    return CommandPlan(
        argv=list(argv),
        metrics=metrics,
        metric_file=exec_options.metric_file,
        checks=list(exec_options.check),
        expect_status=exec_options.expect_status,
        timeout=exec_options.timeout,
        lanes=exec_options.lanes,
    )


def _options_without_merge(run_options: RunOptions) -> RunOptions:
    """Options for one process on this host.

    Those of merges have their defaults, so that no config is refused because of them.
    """
    kept = reset_merge_options(run_options, [BY_KEY[key] for key in ("launches", "seed", "results", *_KEPT)])
    engine = engines.default_engine(device_memory=False, needs_dask=True).name
    # Dask's merge with TLS needs no UCX: nothing is added to a config's settings, and none of them is refused.
    return replace(kept, engine=engine, exchange="dask", protocol="tls", launcher=local.LAUNCHER.name, workers=1)


_KEPT = ("ucx", "allow_unknown", "trust_config", "json", "fresh", "extend", "wait_for_quiet", "dry_run", "config")


def _shell_hint(argv: Sequence[str]) -> str:
    """What to type if the command seems to be a line for a shell."""
    return f"; for a shell's line, write: sh -c {shlex.quote(argv[0])}" if len(argv) == 1 and " " in argv[0] else ""


def command_variables(planned: PlannedRun) -> dict[str, str]:
    """The variables that a command gets: those of its config, and those with which it finds the chosen UCX.

    A program that is not Python finds UCX's libraries by LD_LIBRARY_PATH, in which those of the package come first,
    too, if the package's UCX was asked for.
    """
    settings = planned.settings
    origin = settings.ucx_origin or (WHEEL if planned.options.ucx == WHEEL else None)
    if origin is None:
        return dict(settings.environment)
    wheel = libucx_wheel_folder() if origin == WHEEL else None
    surroundings = {**os.environ, **settings.environment}
    return {**settings.environment, **ucx_selection_variables(origin if wheel is None else str(wheel), surroundings)}


def uses_overstating_perftest(plan: CommandPlan, ucx_version: str | None) -> bool:
    """Whether a command measures with a ``ucx_perftest`` whose bandwidth is too high; `ucx_version`: of UCX."""
    measures_rate = any(metric.better == "more" for metric in plan.metrics)
    return bool(
        ucx_version
        and measures_rate
        and "ucx_perftest" in plan.shell_line
        and perftest_overstates_bandwidth(ucx_version)
    )


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command under a config with these variables."""
    return {name: value for name, value in {**os.environ, **variables}.items() if name not in TOKENS}


def few_launches_sentence(campaign: CommandCampaign) -> str | None:
    """A sentence that the launches are too few to show a difference between the runs; None if they are not."""
    plans = tuple(map(RecordedPlan.from_options, campaign.head.plans))
    planned = Campaign(Path(), campaign.head, plans, (), truncated=False, skipped={})
    least, runs = least_blocks_for_verdict(planned), len(campaign.head.runs)
    if campaign.block_count >= least:
        return None
    what = "configs" if runs == len(campaign.head.configs) else "runs"
    few = f"{count_with_noun(campaign.block_count, 'launch')} of each cannot show a difference between {runs} {what}"
    return f"{few}; use --launches {least} or more"


def dry_run_text(campaign: CommandCampaign) -> str:
    """What ``--dry-run`` prints: the launches, their expected time and order, and the command under each config."""
    lines: list[str] = []
    commands: list[str] = []
    for run in campaign.head.runs:
        alike = [job for job in campaign.jobs if (job.config, job.plan) == (run.config, run.plan)]
        variables = command_variables(alike[0].prepared)
        placeholders = PlaceholderValues(run.config, list(variables), 0)
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        words = shlex.join(replace_placeholders(campaign.plan.argv, placeholders))
        lines.append(f"## {alike[0].label}: {count_with_noun(len(alike), 'launch')}")
        commands += [f"# {alike[0].label}", " ".join([*assignments, words])]
    lines.append(f"## measured: {metrics_text(campaign.plan)}")
    lines.append(f"## {_expected_time_sentence(campaign)}")
    lines += [f"## {few}"] if (few := few_launches_sentence(campaign)) else []
    return "\n".join([*lines, "## order: " + ", ".join(job.label for job in campaign.jobs), *commands])


def metrics_text(plan: CommandPlan) -> str:
    """The metrics of a command, each with its unit and direction: ``wall (s), less is better``."""
    return ", ".join(
        f"{metric.name}{f' ({metric.unit})' * bool(metric.unit)}, {metric.better} is better" for metric in plan.metrics
    )


def _expected_time_sentence(campaign: CommandCampaign) -> str:
    expected = campaign.make_time_estimator()
    if expected.total_seconds(campaign.jobs) is None:
        launches = count_with_noun(len(campaign.jobs), "launch")
        return f"{launches}; how long they take is known when the first one has ended"
    return expected.describe_estimate(campaign.jobs)


def run_command_campaign(
    campaign: CommandCampaign, run_options: RunOptions, progress: ProgressDisplay, *, caller: CallingProgram = UNTOUCHED
) -> tuple[Path, int]:
    """Make the launches of a campaign, or those that an interrupted one still lacks; returns its folder and status."""
    jobs, expected = campaign.jobs, campaign.make_time_estimator()
    if few := few_launches_sentence(campaign):
        print_warning(WarningMessage("few-blocks", few))

    def launch(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        label = f"{jobs.index(job) + 1} of {len(jobs)}: {job.label}"
        rest = expected.total_seconds(jobs[jobs.index(job) + 1 :])
        shown = LabelledProgress(progress, label, rest) if len(jobs) > 1 else progress
        return launch_command(campaign.plan, job, writer, shown, index)

    return run_launches(
        campaign.results_folder,
        "-".join(["exec", *(config.name for config in campaign.head.configs)]),
        campaign.head,
        jobs,
        launch,
        resume=not run_options.fresh,
        extend=Path(run_options.extend) if run_options.extend else None,
        caller=caller,
        wait_for_quiet=run_options.wait_for_quiet,
        time_estimator=expected if expected.total_seconds(jobs) is not None else None,
    )


def launch_command(
    plan: CommandPlan, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch_index: int
) -> int:
    """Run the command once, record what was measured and how it ended, and end everything; returns the status."""
    processes = LaunchProcesses(writer.logs / DRIVER_LOG)
    with record_launch_outcome(job, writer, launch_index, processes) as outcome:
        CommandLaunch(plan, job, writer, launch_index, processes).measure_and_record(progress)
    return outcome.status


@dataclass
class CommandLaunch:
    """One launch of a command.

    `index`: its number in the campaign; `processes`: run and end what it starts.
    """

    plan: CommandPlan
    job: PlannedLaunch
    writer: CampaignWriter
    index: int
    processes: LaunchProcesses

    def __post_init__(self) -> None:
        self._variables = command_variables(self.job.prepared)
        self._environment = command_environment(self._variables)

    def measure_and_record(self, progress: ProgressDisplay) -> None:
        """Run the command and its checks, and record the figures; raises LaunchFailed if the launch does not count."""
        plan, placeholders = self.plan, self._make_placeholder_values()
        progress.show_phase("looking at other processes")
        self._record_launch_line()
        if self._needs_lanes_run():
            progress.show_phase("lanes")
            self._run_and_record_lanes(self._make_placeholder_values())
        progress.show_phase("running")
        began = time.time()
        out, err = self._out_and_err_files("command")
        argv = replace_placeholders(plan.argv, placeholders)
        ended = self.processes.run(CommandTask(argv, self._environment, out, err, timeout=plan.timeout))
        if ended.left_out:
            what = f"{format_bytes(ended.left_out)} of the command's output were not kept, and no metric is there"
            self.writer.write(
                WarningLine.from_caution(WarningMessage(OUTPUT_CUT, what, "have it print less"), self.index)
            )
        try:
            self._record_figures_and_checks(ended, placeholders, began, out, err)
        except LaunchFailed as failure:
            failure.log_tail = failure.log_tail or read_log_tail(err) or read_log_tail(out)
            raise

    def _needs_lanes_run(self) -> bool:
        """Whether this launch also runs the command with UCX's log, as the first launch of each config does.

        A tuning has no plan with lanes: there each launch shows that its config meets the required transports.
        """
        if self.plan.lanes:
            return self.job.block == 0
        return bool(self.job.prepared.plan.require_transport)

    def _run_and_record_lanes(self, placeholders: PlaceholderValues) -> None:
        """Run the command with UCX's log, and record its lanes; raises GateNotMet if a transport is missing."""
        folder = self.writer.logs / f"launch-{self.index:03d}-ucx"
        folder.mkdir(exist_ok=True)
        variables = ucx_logging_variables(folder)
        names = [*placeholders.variables, *(name for name in variables if name not in placeholders.variables)]
        argv = replace_placeholders(self.plan.argv, replace(placeholders, variables=names))
        out, err = self._out_and_err_files("lanes")
        environment = {**self._environment, **variables}
        self.processes.run(CommandTask(argv, environment, out, err, timeout=self.plan.timeout))
        logs = read_ucx_logs(folder)
        line = make_lanes_line(self.index, self._environment, logs)
        if line is not None:
            self.writer.write(line)
        if required := self.job.prepared.plan.require_transport:
            check_required_lanes(required, logs)
        elif line is None:
            self.writer.write(WarningLine.from_caution(WarningMessage(NO_LANES, NO_LANES_LOGGED), self.index))

    def _record_figures_and_checks(
        self, ended: CommandResult, placeholders: PlaceholderValues, began: float, out: Path, err: Path
    ) -> None:
        """Record the figures of a command that ended, and make its checks; raises LaunchFailed if one of them fails."""
        plan = self.plan
        if ended.reason == TIMEOUT:
            limit = format_limit(plan.timeout or ended.seconds)
            raise LaunchFailed(f"the command was ended at the time limit of {limit}", code=COMMAND_TIMEOUT)
        if ended.reason != ENDED:
            raise LaunchFailed("the command was ended by a signal to the process that watches it", code=COMMAND_FAILED)
        output = CommandOutput(_read_output(out), _read_output(err), self._read_metric_file(placeholders, began))
        values, missing = dict[str, float](), None
        for metric in plan.metrics:
            if metric.name != WALL:
                try:
                    values[metric.name] = find_metric_value(metric, output)
                except LaunchFailed as failure:
                    missing = missing or failure
        self.writer.write(IterationLine(launch=self.index, index=0, wall_seconds=ended.seconds, values=values))
        if ended.status != plan.expect_status:
            expected = f", not with {plan.expect_status}" if plan.expect_status else ""
            raise LaunchFailed(f"the command {exit_status_text(ended.status)}{expected}", code=COMMAND_FAILED)
        if ended.problem:
            raise LaunchFailed(f"the command's output could not be kept: {ended.problem}", code=COMMAND_FAILED)
        if ended.unended:
            pids = ", ".join(map(str, ended.unended))
            raise LaunchFailed(f"processes of the command could not be ended: {pids}", code=COMMAND_FAILED)
        for number, check in enumerate(plan.checks):
            self._run_check(number, check, placeholders, output, out)
        if missing is not None:
            raise missing
        how = "; ".join([f"exit status {plan.expect_status}", *plan.checks])
        self.writer.write(VerificationLine(launch=self.index, after=0, ok=True, how=how))

    def _run_check(
        self, number: int, check: str, placeholders: PlaceholderValues, output: CommandOutput, printed: Path
    ) -> None:
        """Raise LaunchFailed if a check is not met; a command gets what the launch printed on standard input."""
        if check.startswith(RE):
            require_printed_match(check, output)
            return
        argv = replace_placeholders(split_check_command(check), placeholders)
        out, err = self._out_and_err_files(f"check-{number}")
        task = CommandTask(argv, self._environment, out, err, stdin=printed, timeout=self.plan.timeout)
        ended = self.processes.run(task)
        if ended.reason != ENDED or ended.status != 0:
            how = "took too long" if ended.reason == TIMEOUT else exit_status_text(ended.status)
            tail = read_log_tail(err) or read_log_tail(out)
            raise LaunchFailed(f"the check {check} failed: it {how}", code=CHECK_FAILED, log_tail=tail)

    def _make_placeholder_values(self) -> PlaceholderValues:
        plan = self.plan
        words = [*plan.argv, *plan.checks, *filter(None, [plan.metric_file])]
        folder = str(self.processes.make_work_folder()) if needs_work_folder(words) else None
        return PlaceholderValues(self.job.config, list(self._variables), self.index, folder)

    def _out_and_err_files(self, part: str) -> tuple[Path, Path]:
        stem = f"launch-{self.index:03d}-{part}"
        return self.writer.logs / f"{stem}.out", self.writer.logs / f"{stem}.err"

    def _record_launch_line(self) -> None:
        worker = self._describe_host_as_worker()
        load = other_load.measure_other_load(_LOOK_SECONDS)
        line = LaunchLine(
            launch=self.index,
            config=self.job.config,
            plan=self.job.plan,
            block=self.job.block,
            cluster=Cluster(launcher=LAUNCHER, protocol=None),
            workers=[worker],
            data_bytes=0,
            rows=0,
            other_load=HostLoad(
                busy=load.busy, cores=load.cores, processes=[f"pid {each.pid} {each.name}" for each in load.processes]
            ),
        )
        self.writer.write(line)
        if uses_overstating_perftest(self.plan, worker.ucx.version):
            self.writer.write(WarningLine.from_caution(WarningMessage(PERFTEST, PERFTEST_OVERSTATES), self.index))

    def _describe_host_as_worker(self) -> Worker:
        """This host, and the environment that the command gets."""
        return Worker(
            rank=0,
            host=socket.gethostname(),
            pid=os.getpid(),
            name=LAUNCHER,
            environment={**machine.recorded_environment_variables(), **self._variables},
            ucx=find_linked_ucx(self._environment),
            hardware=_describe_hardware(),
        )

    def _read_metric_file(self, placeholders: PlaceholderValues, began: float) -> str | None:
        """The text of the metric file, which has to be of this launch; empty if it is not, None if none was named."""
        if self.plan.metric_file is None:
            return None
        (name,) = replace_placeholders([self.plan.metric_file], placeholders)
        try:
            with open_regular_file(name) as file:
                old = os.fstat(file.fileno()).st_mtime < began - _CLOCK_SECONDS
                return "" if old else decode_command_output(file.read(_LONGEST_METRIC_FILE))
        except (OSError, UsageError):
            return ""


_LONGEST_METRIC_FILE = 64 << 20
_CLOCK_SECONDS = 0.02
"""By so much the time of a file can be before that of the clock: the kernel counts file times in ticks."""


def _read_output(path: Path) -> str:
    with open_regular_file(path) as file:
        return decode_command_output(file.read())


@functools.cache
def _describe_hardware() -> Hardware:
    return machine.describe_hardware()


def find_linked_ucx(environment: Mapping[str, str]) -> UcxDescription:
    """The UCX that a program gets under this environment if it was linked with libucp by name; empty if there is none.

    A program that brings its own UCX, as packages of Python do, uses that one.
    """
    return _find_linked_ucx_cached(
        tuple((name, environment[name]) for name in ("LD_LIBRARY_PATH",) if name in environment)
    )


@functools.cache
def _find_linked_ucx_cached(variables: tuple[tuple[str, str], ...]) -> UcxDescription:
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done: Any = subprocess.run(
            [sys.executable, "-I", "-c", _LINKED_UCX],
            env=dict(variables),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_LIBRARY_SECONDS,
            check=True,
        )
        version, path = done.stdout.split()
        wheel, release = libucx_wheel_folder(), release_of_library(Path(path))
        in_wheel = wheel is not None and Path(path).resolve().is_relative_to(wheel.resolve())
        origin, sha256 = "wheel" if in_wheel or release else "system", release.sha256 if release else None
        return UcxDescription(version=version, path=path, origin=origin, sha256=sha256)
    return UcxDescription()
