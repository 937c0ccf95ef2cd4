"""Runs the campaign of a sweep or of another command: its results folder, its launches in their order, its end."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from merge_bench.analysis.compare import least_blocks_for_verdict
from merge_bench.analysis.diagnostics import BUSY, BUSY_HOST, REMEDY
from merge_bench.campaign import UNTOUCHED, CallingProgram, LabelledProgress, ProgressDisplay
from merge_bench.campaign.launch import make_launch
from merge_bench.campaign.planned_launches import LaunchTimeEstimator, PlannedLaunch, Sweep, launch_seconds_by_rule
from merge_bench.campaign.resume import (
    CONTINUE_AFTER,
    ResumedCampaign,
    describe_launch_conditions,
    reopen_campaign_to_extend,
    reopen_unfinished_campaign,
)
from merge_bench.cluster import host_agent, signals
from merge_bench.cluster.base import ClusterSettings, CommandListing
from merge_bench.cluster.launchers import launchers_by_name, make_launcher
from merge_bench.config.installation import checkout_folder
from merge_bench.errors import RunFailed, WarningMessage, print_message, print_warning
from merge_bench.host import machine, other_load
from merge_bench.host.other_load import FinishMeasurement, OtherProcessLoad
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import CampaignEndLine, CampaignLine, FailureLine, GitState, WarningLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import count_with_noun, format_count, format_duration

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session

IN_A_ROW = 3
"""The number of quiet measurements in a row that end the wait: a single one may fall into a pause."""
LaunchOne = Callable[[PlannedLaunch, CampaignWriter, int], int]
"""Makes the launch of a job, with this index in the campaign, and records it; returns the exit status."""


@dataclass(frozen=True)
class SoftwareVersions:
    """The versions of the software that runs: git commit, checksum of this package's files, installed packages."""

    git: GitState | None
    sources: str
    versions: Mapping[str, str]

    @classmethod
    def describe_running_software(cls) -> Self:
        """Describe the software that this process runs."""
        return cls(
            git_state(),
            host_agent.source_checksum(host_agent.ROOT / "merge_bench"),
            machine.installed_package_versions(),
        )


def run_launches(
    results_folder: Path,
    campaign_name: str,
    campaign_line: CampaignLine,
    planned_launches: Sequence[PlannedLaunch],
    make_one_launch: LaunchOne,
    *,
    resume: bool = True,
    extend: Path | None = None,
    caller: CallingProgram = UNTOUCHED,
    wait_for_quiet: float | None = None,
    time_estimator: LaunchTimeEstimator | None = None,
    software: SoftwareVersions | None = None,
) -> tuple[Path, int]:
    """Make all planned launches in their order; returns the campaign's folder and the exit status.

    A failed launch is recorded, and the next one is made. A wrong result, a gate that is not met, or a signal ends the
    campaign. With `resume`, an interrupted campaign of the same launches is continued: launches that it has are not
    made again. `extend`: the folder of an earlier campaign, to which the missing launches are added. `wait_for_quiet`:
    the most seconds to wait until other processes leave this host's cores alone. `time_estimator`: estimates the
    duration of the launches, which is printed before the first launch and corrected after it. `software`: what runs, as
    the records have it; None: what is installed.
    """
    complete_line, total = (
        complete_campaign_line(campaign_line, planned_launches, caller, software),
        len(planned_launches),
    )
    resumed = None
    if resume and total > 1 and extend is None:
        resumed = reopen_unfinished_campaign(results_folder, complete_line, planned_launches)
    with caller.signals(), signals.ignore_signals():  # from here on, a signal is recorded
        if extend is not None:
            resumed = reopen_campaign_to_extend(extend, complete_line, planned_launches)
        writer, left, first_index, status = resumed or ResumedCampaign(
            CampaignWriter.create(results_folder, campaign_name), list(planned_launches), 0, 0
        )
        with writer:
            if resumed:
                print_message(f"resuming {writer.folder}: {total - len(left)} of {total} launches finished")
            else:
                write_first_records(writer, complete_line, planned_launches)
            with caller.surround(writer.logs / "driver.log"):
                done = 0
                try:
                    with signals.allow_interruption():
                        if left:
                            if time_estimator is not None and (
                                len(left) > 1 or time_estimator.total_seconds(left) is not None
                            ):
                                print_message(time_estimator.describe_estimate(left))
                            warn_if_host_busy(
                                left[0].prepared.settings,
                                writer,
                                wait_seconds=wait_for_quiet,
                                first_measurement=caller.look,
                            )
                        done, status = _make_launches(
                            left, writer, make_one_launch, first_index, status, time_estimator
                        )
                except signals.Interrupted as before_the_first:
                    record_interruption(writer, before_the_first)
            if done < len(left) and status in CONTINUE_AFTER:
                status = RunFailed.exit_status
                if resume and total > 1:
                    finished = total - len(left) + done
                    print_message(f"{finished} of {total} launches finished; run the same command to resume")
            with contextlib.suppress(RunFailed):
                writer.write(CampaignEndLine(status=status))
            return writer.folder, status


def _make_launches(
    planned_launches: Sequence[PlannedLaunch],
    writer: CampaignWriter,
    make_one_launch: LaunchOne,
    first_index: int,
    exit_status: int,
    time_estimator: LaunchTimeEstimator | None,
) -> tuple[int, int]:
    """Make the planned launches; returns how many were made to their end, and the worst exit status."""
    done = 0
    try:
        for index, planned_launch in enumerate(planned_launches, first_index):
            began = time.monotonic()
            launch_status = make_one_launch(planned_launch, writer, index)
            exit_status = max(exit_status, launch_status)
            if (interrupted := signals.pending_interruption()) is not None:
                done += launch_status == 0
                # A signal that came while the launch ended is not in the records yet.
                if launch_status == 0 and done < len(planned_launches):
                    record_interruption(writer, interrupted)
                return done, exit_status
            done += 1
            if launch_status not in CONTINUE_AFTER:
                break
            if time_estimator is not None and launch_status == 0:
                time_estimator.add_measured_launch(planned_launch, time.monotonic() - began)
                seconds_left = time_estimator.total_seconds(rest) if (rest := planned_launches[done:]) else None
                if done == 1 and seconds_left is not None:
                    print_message(f"about {format_duration(seconds_left)} left, as the first launch took")
    except signals.Interrupted as between_two:  # within a launch it is recorded
        record_interruption(writer, between_two)
    return done, exit_status


def record_interruption(writer: CampaignWriter, interruption: signals.Interrupted) -> None:
    """Write a signal that came before, between or after launches to the records, as a failure of the campaign."""
    with contextlib.suppress(RunFailed):
        writer.write(FailureLine(launch=None, code=interruption.code, message=str(interruption)))


def complete_campaign_line(
    campaign_line: CampaignLine,
    planned_launches: Sequence[PlannedLaunch],
    caller: CallingProgram = UNTOUCHED,
    software: SoftwareVersions | None = None,
) -> CampaignLine:
    """Return a campaign's first record with the command, git's state and the launch conditions, still without a name.

    `software`: what runs; None: what is installed.
    """
    software = software or SoftwareVersions.describe_running_software()
    command = {"argv": list(caller.argv), "options": caller.options, "git": software.git}
    conditions = describe_launch_conditions(planned_launches, software.sources, software.versions)
    return msgspec.structs.replace(campaign_line, **command, surroundings=conditions)


def write_first_records(
    writer: CampaignWriter, campaign_line: CampaignLine, planned_launches: Sequence[PlannedLaunch]
) -> None:
    """Write the campaign's first record and the warnings that are known before the first launch."""
    writer.write(msgspec.structs.replace(campaign_line, campaign_id=writer.campaign_id))
    for caution in dict.fromkeys(warning for each in planned_launches for warning in each.prepared.warnings):
        writer.write(WarningLine.from_caution(caution))


def git_state() -> GitState | None:
    """This checkout's git commit, whether it has local changes, and this host's name; None without checkout or git."""
    root = checkout_folder()
    if root is None:  # the environment may lie inside a repository of another project
        return None

    def run_git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        commit, dirty = run_git("rev-parse", "HEAD"), run_git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return GitState(commit=commit, dirty=bool(dirty), host=socket.gethostname())


def dry_run_text(sweep: Sweep) -> str:
    """The text that --dry-run prints: of several launches the runs, time and order, then the commands of each run."""
    lines, commands, listing = [], [], CommandListing()
    planned_launches, run_labels = sweep.ordered_launches(), sweep.run_labels()
    for (config, index), prepared in sweep.prepared.items():
        plan, run_name = prepared.plan, f"{config}/{index}" if len(sweep.prepared) > 1 else ""
        if len(planned_launches) > 1:
            size = f"{_merge_size_text(plan)} per chunk" if plan.rows_per_chunk is not None else _merge_size_text(plan)
            names = f"{config}/{index}" + (f" ({name})" if (name := run_labels[config, index]) != config else "")
            lines.append(f"## {names}: {count_with_noun(plan.workers, 'worker')}{size}, {plan.launches} launches")
        for command in make_launcher(prepared.settings).process_commands(plan, prepared.settings):
            commands += listing.command_lines(command, run_name)
    if len(planned_launches) > 1:
        lines.append(f"## {make_time_estimator(sweep).describe_estimate(planned_launches)}")
        lines += [f"## {short}"] if (short := too_few_blocks_sentence(sweep)) else []
        for block, launches in itertools.groupby(planned_launches, lambda launch: launch.block):
            lines.append(f"## block {block}: " + " ".join(f"{each.config}/{each.plan}" for each in launches))
    return "\n".join([*lines, *(commands or ["# no process would be started: the cluster is already running"])])


def run_sweep(
    sweep: Sweep, progress: ProgressDisplay, *, caller: CallingProgram = UNTOUCHED, print_estimate: bool = True
) -> tuple[Path, int]:
    """Make every launch of the sweep; returns the campaign's folder and the exit status.

    Every measurement is written to the disk at once. Every process that was started has ended when this function
    returns. An interrupted campaign of the same sweep is resumed, unless its options say otherwise. `print_estimate`:
    print the estimated time of several launches.
    """
    options = sweep.options
    planned_launches, time_estimator = sweep.ordered_launches(), make_time_estimator(sweep)
    if print_estimate and (short := too_few_blocks_sentence(sweep)):
        print_warning(WarningMessage("few-blocks", short))

    def make_one_launch(planned_launch: PlannedLaunch, writer: CampaignWriter, launch_index: int) -> int:
        shown = progress
        if len(planned_launches) > 1:
            later = planned_launches[planned_launches.index(planned_launch) + 1 :]
            label = launch_label(planned_launch, planned_launches)
            shown = LabelledProgress(progress, label, time_estimator.total_seconds(later))
        return launch_merge(planned_launch, writer, shown, launch_index)

    name = "-".join(config.name for config in sweep.configs)
    return run_launches(
        sweep.results_folder,
        name,
        sweep.campaign_line(),
        planned_launches,
        make_one_launch,
        resume=not options.fresh,
        extend=Path(options.extend) if options.extend else None,
        caller=caller,
        wait_for_quiet=options.wait_for_quiet,
        time_estimator=time_estimator if print_estimate and len(planned_launches) > 1 else None,
    )


def make_time_estimator(sweep: Sweep) -> LaunchTimeEstimator:
    """Make the estimator of the seconds that each launch of the sweep takes."""
    return LaunchTimeEstimator(sweep.results_folder, sweep.plans, launch_seconds_by_rule)


def too_few_blocks_sentence(sweep: Sweep) -> str | None:
    """A sentence that the sweep has too few blocks of launches to show a difference; None if it has enough."""
    plans, blocks = tuple(map(RecordedPlan.from_options, sweep.plans)), sweep.first_run.plan.launches
    least = least_blocks_for_verdict(Campaign(Path(), sweep.campaign_line(), plans, (), truncated=False, skipped={}))
    if blocks >= least:
        return None
    what = f"{len(sweep.distinct_labels)} configs" if len(sweep.configs) > 1 else ", ".join(sweep.distinct_labels)
    return f"{count_with_noun(blocks, 'block')} cannot show a difference between {what}; use --launches {least} or more"


def launch_label(planned_launch: PlannedLaunch, planned_launches: Sequence[PlannedLaunch]) -> str:
    """The label of a launch for the progress display: ``1 of 12: default, 1,000,000 rows, 2 workers``."""
    plan, number = planned_launch.prepared.plan, planned_launches.index(planned_launch) + 1
    size, workers = _merge_size_text(plan), count_with_noun(plan.workers, "worker")
    return f"{number} of {len(planned_launches)}: {planned_launch.label}{size}, {workers}"


def _merge_size_text(plan: Plan) -> str:
    """The size of the merge for a label: ``, 1,000,000 rows`` or ``, h2o q1``; empty for tables of files."""
    if plan.rows_per_chunk is not None:
        return f", {format_count(plan.rows_per_chunk)} rows"
    work = plan.workload
    return f", {work.benchmark} {work.question}" if isinstance(work, TableSpec) and work.benchmark else ""


def launch_merge(
    planned_launch: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch_index: int
) -> int:
    """Make one launch of a cluster, with its merges and other measurements; returns the exit status."""

    def measure(session: Session) -> None:
        from merge_bench.campaign.measure_launch import measure_launch

        measure_launch(session)

    return make_launch(planned_launch, writer, progress, launch_index, measure)


def warn_if_host_busy(
    settings: ClusterSettings,
    writer: CampaignWriter,
    *,
    wait_seconds: float | None = None,
    first_measurement: FinishMeasurement | None = None,
    measure_load: FinishMeasurement | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Print and record a warning if other processes keep this host's cores busy.

    With `wait_seconds`, first wait for at most so long until the host is quiet. Does nothing if the cluster does not
    run on this host. `first_measurement`: ends a measurement of the load that has begun already. `measure_load`,
    `clock`: replaced in tests.
    """
    measure_load = measure_load or other_load.measure_other_load
    if not launchers_by_name()[settings.launcher].starts_here:
        return
    load = (first_measurement or measure_load)()
    if not load.is_quiet and wait_seconds is not None:
        load = _wait_for_quiet_host(load, wait_seconds, measure_load, clock)
    if load.is_quiet:
        return
    caution = WarningMessage(BUSY_HOST, BUSY.format(load), REMEDY)
    print_warning(caution)
    writer.write(WarningLine.from_caution(caution))


def _wait_for_quiet_host(
    load: OtherProcessLoad, wait_seconds: float, measure_load: FinishMeasurement, clock: Callable[[], float]
) -> OtherProcessLoad:
    began, quiet = clock(), 0
    print_message(
        f"waiting for at most {format_duration(wait_seconds)} until this host is quiet: other processes keep {load}"
    )
    while quiet < IN_A_ROW and clock() - began < wait_seconds:
        load = measure_load()
        quiet = quiet + 1 if load.is_quiet else 0
    how = "this host is quiet" if quiet == IN_A_ROW else "stopped waiting for a quiet host"
    print_message(f"{how} after {format_duration(clock() - began)}")
    return load
