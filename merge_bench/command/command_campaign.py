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

from merge_bench.analysis.compare import least_blocks
from merge_bench.campaign import UNTOUCHED, Caller, LabelledProgress, Progress
from merge_bench.campaign.campaign import run_launches
from merge_bench.campaign.launch import record_launch_outcome
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import (
    Job,
    LaunchTimeEstimator,
    add_config,
    make_campaign_line,
    make_config_record,
    order_runs_in_blocks,
    plan_runs,
)
from merge_bench.cluster.base import exit_status_text
from merge_bench.cluster.launchers import local
from merge_bench.cluster.supervisor import read_log_tail
from merge_bench.command.metrics import (
    CHECK_FAILED,
    RE,
    CommandOutput,
    MetricOptions,
    check_printed_text,
    check_words,
    clean_output,
    find_metric_value,
    make_metrics,
    parse_check,
)
from merge_bench.command.options import LAUNCHES, ExecOptions
from merge_bench.command.placeholders import (
    LaunchPlace,
    needs_work_folder,
    replace_placeholders,
    settings_stay_here_warning,
)
from merge_bench.command.run_command import COMMAND_FAILED, CommandTask, EndedCommand, LaunchProcesses, find_program
from merge_bench.command.ucx_lines import (
    NO_LANES_LOGGED,
    check_required_lanes,
    logging_variables,
    make_lanes_line,
    read_logs,
)
from merge_bench.command.warden import ENDED, TIMEOUT
from merge_bench.config.allowed_transports import find_unknown_transports
from merge_bench.config.files import TOKENS, open_regular_file
from merge_bench.config.option import DEFAULT
from merge_bench.config.options import BY_KEY, RunOptions, reset_merge_options
from merge_bench.config.parsers import WHEEL
from merge_bench.config.ucx_choice import ucx_variables
from merge_bench.config.ucx_info import libucx_wheel_folder
from merge_bench.config.ucx_releases import PERFTEST_OVERSTATES, perftest_overstates_bandwidth, release_of_library
from merge_bench.errors import Caution, LaunchFailed, UsageError, print_warning
from merge_bench.host import machine, other_load
from merge_bench.host.description import Hardware, Ucx
from merge_bench.merge import engines
from merge_bench.records.campaign import WALL, Campaign, CommandPlan, RecordedPlan, label_planned_runs
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
from merge_bench.units import format_bytes, format_duration, plural

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
    jobs: Sequence[Job]
    plan: CommandPlan

    @property
    def required(self) -> Sequence[str]:
        """The transports that the command's processes have to use."""
        return RecordedPlan.of(self.head.plans[0]).require_transport or ()

    @property
    def blocks(self) -> int:
        """How often the command is launched under each config."""
        return len(self.jobs) // len(self.head.runs)

    @property
    def results(self) -> Path:
        """The folder of results."""
        return self.jobs[0].prepared.settings.results

    @property
    def warnings(self) -> list[Caution]:
        """The warnings that are known before the first launch, each once."""
        return list(dict.fromkeys(warning for job in self.jobs for warning in job.prepared.warnings))

    def expected_time(self) -> LaunchTimeEstimator:
        """The expected time of the launches, as earlier launches of the same command took."""
        return LaunchTimeEstimator(self.results, self.head.plans, lambda job: None)


def plan_command_campaign(argv: Sequence[str], own: ExecOptions, options: RunOptions) -> CommandCampaign:
    """Plan the launches of a command under each config; raises UsageError if something is wrong.

    `own`, `options`: the options of `exec`, and those that `run` has as well.
    """
    required = options.require_transport
    _refuse_unknown_transports(required)
    plan = make_command_plan(argv, own, lanes=own.lanes or bool(required))
    names = options.configs or (options.config,)
    configs: list[Config] = []
    ready: list[tuple[PlannedRun, Config]] = []
    for name in names:
        variants = plan_command_under_config(name, argv, options, several=("ucx",))
        add_config(configs, record := make_config_record(variants[0]))
        ready += [(planned, record) for planned in variants]
    first = ready[0][0]
    if len({planned.settings.results for planned, _ in ready}) > 1:
        raise UsageError("the configs set different folders for results; choose one folder with --results")
    launches = first.options.launches if first.options.value_source("launches") != DEFAULT else LAUNCHES
    recorded = {"command": msgspec.to_builtins(plan), "launches": launches}
    recorded |= {"require_transport": list(required)} if required else {}
    releases = list(dict.fromkeys(planned.plan.ucx for planned, _ in ready))
    plans = [recorded if ucx is None else {**recorded, "ucx": ucx} for ucx in releases]
    keys = [RunKey(config=record.name, plan=releases.index(planned.plan.ucx)) for planned, record in ready]
    head = make_campaign_line(configs, plans, keys, first.plan.seed)
    labels = label_planned_runs(head)
    order = order_runs_in_blocks(list(zip(ready, keys, strict=True)), blocks=launches, seed=first.plan.seed)
    jobs = [
        Job(planned, key.config, key.plan, block, labels[key.config, key.plan]) for block, ((planned, _), key) in order
    ]
    return CommandCampaign(head, jobs, plan)


def plan_command_under_config(
    name: str | None, argv: Sequence[str], options: RunOptions, *, several: Sequence[str] = ()
) -> list[PlannedRun]:
    """Plan the launches of a command under the config with this name or path, None: without settings.

    `several`: options that may have several values, of which each has its own plan. Raises UsageError if something is
    wrong with the config or the command.
    """
    planned_runs = []
    for planned in plan_runs(name, options, _without_merge, several=several):
        variables = command_variables(planned)
        if find_program(argv, command_environment(variables)) is None:
            raise UsageError(f"{argv[0]}: there is no such program{_shell_hint(argv)}")
        warning = settings_stay_here_warning(argv, make_config_record(planned).name, variables)
        planned_runs.append(replace(planned, warnings=(*planned.warnings, *filter(None, [warning]))))
    return planned_runs


def _refuse_unknown_transports(required: Sequence[str]) -> None:
    for word, hint in find_unknown_transports(",".join(required)).items():
        raise UsageError(f"--require-transport {word}: no release of UCX has such a transport{hint}")


def make_command_plan(argv: Sequence[str], own: ExecOptions, *, lanes: bool = False) -> CommandPlan:
    """Make the plan of a command from its words and options, as the records have it; raises UsageError."""
    for check in own.check:
        parse_check(check)
    metric_options = MetricOptions(own.metric, own.preset, own.unit, own.better, own.pick)
    metrics = make_metrics(metric_options, shlex.join(argv))
    if own.metric_file is not None and len(metrics) == 1:
        raise UsageError("--metric-file needs --metric or --preset, which say what to look for in the file")
    return CommandPlan(
        argv=list(argv),
        metrics=metrics,
        metric_file=own.metric_file,
        checks=list(own.check),
        expect_status=own.expect_status,
        timeout=own.timeout,
        lanes=lanes,
    )


def _without_merge(options: RunOptions) -> RunOptions:
    """The options of a run that starts one process on this host, of which only the config's variables are used."""
    kept = reset_merge_options(options, [BY_KEY[key] for key in ("launches", "seed", "results", *_KEPT)])
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
    return {**settings.environment, **ucx_variables(origin if wheel is None else str(wheel), surroundings)}


def is_overstated_perftest(plan: CommandPlan, ucx: str | None) -> bool:
    """Whether a command measures with a ``ucx_perftest`` whose bandwidth is too high; `ucx`: the release of UCX."""
    measures_rate = any(metric.better == "more" for metric in plan.metrics)
    return bool(ucx and measures_rate and "ucx_perftest" in plan.line and perftest_overstates_bandwidth(ucx))


def command_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command under a config with these variables."""
    return {name: value for name, value in {**os.environ, **variables}.items() if name not in TOKENS}


def few_launches_sentence(campaign: CommandCampaign) -> str | None:
    """A sentence that the launches are too few to show a difference between the runs; None if they are not."""
    plans = tuple(map(RecordedPlan.of, campaign.head.plans))
    planned = Campaign(Path(), campaign.head, plans, (), truncated=False, skipped={})
    least, runs = least_blocks(planned), len(campaign.head.runs)
    if campaign.blocks >= least:
        return None
    what = "configs" if runs == len(campaign.head.configs) else "runs"
    few = f"{plural(campaign.blocks, 'launch')} of each cannot show a difference between {runs} {what}"
    return f"{few}; use --launches {least} or more"


def dry_run_text(campaign: CommandCampaign) -> str:
    """What ``--dry-run`` prints: the command under each config, the expected time, and the order of launches."""
    lines: list[str] = []
    for run in campaign.head.runs:
        alike = [job for job in campaign.jobs if (job.config, job.plan) == (run.config, run.plan)]
        variables = command_variables(alike[0].prepared)
        place = LaunchPlace(run.config, list(variables), 0)
        assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        words = shlex.join(replace_placeholders(campaign.plan.argv, place))
        lines += [f"## {alike[0].label}: {plural(len(alike), 'launch')}", " ".join([*assignments, words])]
    lines.append(f"## measured: {measured_text(campaign.plan)}")
    lines.append(f"## {_time_sentence(campaign)}")
    lines += [f"## {few}"] if (few := few_launches_sentence(campaign)) else []
    return "\n".join([*lines, "## order: " + ", ".join(job.label for job in campaign.jobs)])


def measured_text(plan: CommandPlan) -> str:
    """The metrics of a command, each with its unit and direction: ``wall (s), less is better``."""
    return ", ".join(
        f"{metric.name}{f' ({metric.unit})' * bool(metric.unit)}, {metric.better} is better" for metric in plan.metrics
    )


def _time_sentence(campaign: CommandCampaign) -> str:
    expected = campaign.expected_time()
    if expected.total_seconds(campaign.jobs) is None:
        return f"{plural(len(campaign.jobs), 'launch')}; how long they take is known when the first one has ended"
    return expected.describe_estimate(campaign.jobs)


def run_command_campaign(
    campaign: CommandCampaign, options: RunOptions, progress: Progress, *, caller: Caller = UNTOUCHED
) -> tuple[Path, int]:
    """Make the launches of a campaign, or those that an interrupted one still lacks; returns its folder and status."""
    jobs, expected = campaign.jobs, campaign.expected_time()
    if few := few_launches_sentence(campaign):
        print_warning(Caution("few-blocks", few))

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        label = f"{jobs.index(job) + 1} of {len(jobs)}: {job.label}"
        rest = expected.total_seconds(jobs[jobs.index(job) + 1 :])
        shown = LabelledProgress(progress, label, rest) if len(jobs) > 1 else progress
        return launch_command(campaign.plan, job, writer, shown, index, campaign.required)

    return run_launches(
        campaign.results,
        "-".join(["exec", *(config.name for config in campaign.head.configs)]),
        campaign.head,
        jobs,
        launch,
        resume=not options.fresh,
        extend=Path(options.extend) if options.extend else None,
        caller=caller,
        wait_for_quiet=options.wait_for_quiet,
        expected=expected if expected.total_seconds(jobs) is not None else None,
    )


def launch_command(
    plan: CommandPlan, job: Job, writer: CampaignWriter, progress: Progress, index: int, required: Sequence[str] = ()
) -> int:
    """Run the command once, record what was measured and how it ended, and end everything; returns the status."""
    processes = LaunchProcesses(writer.logs / DRIVER_LOG)
    with record_launch_outcome(job, writer, index, processes) as outcome:
        CommandLaunch(plan, job, writer, index, processes, required).measure(progress)
    return outcome.status


@dataclass
class CommandLaunch:
    """One launch of a command.

    `index`: its number in the campaign; `processes`: run and end what it starts; `required`: transports that its
    processes have to use.
    """

    plan: CommandPlan
    job: Job
    writer: CampaignWriter
    index: int
    processes: LaunchProcesses
    required: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._variables = command_variables(self.job.prepared)
        self._environment = command_environment(self._variables)

    def measure(self, progress: Progress) -> None:
        """Run command and checks, and record them; raises LaunchFailed if the launch does not count."""
        plan, place = self.plan, self._make_place()
        progress.show_phase("looking at other processes")
        self._record_launch()
        if plan.lanes and self.job.block == 0:
            progress.show_phase("lanes")
            self._record_lanes(self._make_place())
        progress.show_phase("running")
        began = time.time()
        out, err = self._log_files("command")
        argv = replace_placeholders(plan.argv, place)
        ended = self.processes.run(CommandTask(argv, self._environment, out, err, timeout=plan.timeout))
        if ended.left_out:
            what = f"{format_bytes(ended.left_out)} of the command's output were not kept, and no metric is there"
            self.writer.write(WarningLine.of(Caution(OUTPUT_CUT, what, "have it print less"), self.index))
        try:
            self._judge(ended, place, began, out, err)
        except LaunchFailed as failure:
            failure.log_tail = failure.log_tail or read_log_tail(err) or read_log_tail(out)
            raise

    def _record_lanes(self, place: LaunchPlace) -> None:
        """Run the command with UCX's log, and record its lanes; raises GateNotMet if a transport is missing."""
        folder = self.writer.logs / f"launch-{self.index:03d}-ucx"
        folder.mkdir(exist_ok=True)
        variables = logging_variables(folder)
        names = [*place.variables, *(name for name in variables if name not in place.variables)]
        argv = replace_placeholders(self.plan.argv, replace(place, variables=names))
        out, err = self._log_files("lanes")
        environment = {**self._environment, **variables}
        self.processes.run(CommandTask(argv, environment, out, err, timeout=self.plan.timeout))
        logs = read_logs(folder)
        line = make_lanes_line(self.index, self._environment, logs)
        if line is not None:
            self.writer.write(line)
        if self.required:
            check_required_lanes(self.required, logs)
        elif line is None:
            self.writer.write(WarningLine.of(Caution(NO_LANES, NO_LANES_LOGGED), self.index))

    def _judge(self, ended: EndedCommand, place: LaunchPlace, began: float, out: Path, err: Path) -> None:
        """Record the figures of a command that ended by itself, and raise LaunchFailed if something is wrong."""
        plan = self.plan
        if ended.reason == TIMEOUT:
            limit = format_duration(plan.timeout or ended.seconds)
            raise LaunchFailed(f"the command was ended at the time limit of {limit}", code=COMMAND_TIMEOUT)
        if ended.reason != ENDED:
            raise LaunchFailed("the command was ended by a signal to the process that watches it", code=COMMAND_FAILED)
        output = CommandOutput(_read_output(out), _read_output(err), self._read_metric_file(place, began))
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
            self._check(number, check, place, output, out)
        if missing is not None:
            raise missing
        how = "; ".join([f"exit status {plan.expect_status}", *plan.checks])
        self.writer.write(VerificationLine(launch=self.index, after=0, ok=True, how=how))

    def _check(self, number: int, check: str, place: LaunchPlace, output: CommandOutput, printed: Path) -> None:
        """Raise LaunchFailed if a check is not met; a command gets what the launch printed on standard input."""
        if check.startswith(RE):
            check_printed_text(check, output)
            return
        argv = replace_placeholders(check_words(check), place)
        out, err = self._log_files(f"check-{number}")
        task = CommandTask(argv, self._environment, out, err, stdin=printed, timeout=self.plan.timeout)
        ended = self.processes.run(task)
        if ended.reason != ENDED or ended.status != 0:
            how = "took too long" if ended.reason == TIMEOUT else exit_status_text(ended.status)
            tail = read_log_tail(err) or read_log_tail(out)
            raise LaunchFailed(f"the check {check} failed: it {how}", code=CHECK_FAILED, log_tail=tail)

    def _make_place(self) -> LaunchPlace:
        plan = self.plan
        words = [*plan.argv, *plan.checks, *filter(None, [plan.metric_file])]
        folder = str(self.processes.make_work_folder()) if needs_work_folder(words) else None
        return LaunchPlace(self.job.config, list(self._variables), self.index, folder)

    def _log_files(self, part: str) -> tuple[Path, Path]:
        stem = f"launch-{self.index:03d}-{part}"
        return self.writer.logs / f"{stem}.out", self.writer.logs / f"{stem}.err"

    def _record_launch(self) -> None:
        worker = self._describe_host()
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
        if is_overstated_perftest(self.plan, worker.ucx.version):
            self.writer.write(WarningLine.of(Caution(PERFTEST, PERFTEST_OVERSTATES), self.index))

    def _describe_host(self) -> Worker:
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

    def _read_metric_file(self, place: LaunchPlace, began: float) -> str | None:
        """The text of the metric file, which has to be of this launch; empty if it is not, None if none was named."""
        if self.plan.metric_file is None:
            return None
        (name,) = replace_placeholders([self.plan.metric_file], place)
        try:
            with open_regular_file(name) as file:
                old = os.fstat(file.fileno()).st_mtime < began - _CLOCK_SECONDS
                return "" if old else clean_output(file.read(_LONGEST_METRIC_FILE))
        except (OSError, UsageError):
            return ""


_LONGEST_METRIC_FILE = 64 << 20
_CLOCK_SECONDS = 0.02
"""By so much the time of a file can be before that of the clock: the kernel counts file times in ticks."""


def _read_output(path: Path) -> str:
    with open_regular_file(path) as file:
        return clean_output(file.read())


@functools.cache
def _describe_hardware() -> Hardware:
    return machine.describe_hardware()


def find_linked_ucx(environment: Mapping[str, str]) -> Ucx:
    """The UCX that a program gets under this environment if it was linked with libucp by name; empty if there is none.

    A program that brings its own UCX, as packages of Python do, uses that one.
    """
    return _find_linked_ucx(tuple((name, environment[name]) for name in ("LD_LIBRARY_PATH",) if name in environment))


@functools.cache
def _find_linked_ucx(variables: tuple[tuple[str, str], ...]) -> Ucx:
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
        return Ucx(version=version, path=path, origin=origin, sha256=sha256)
    return Ucx()
