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
from typing import Self

import msgspec

from merge_bench.analysis.compare import least_blocks_for_verdict
from merge_bench.analysis.diagnostics import BUSY, BUSY_HOST, REMEDY
from merge_bench.campaign import UNTOUCHED, Caller, LabelledProgress, Progress
from merge_bench.campaign.launch import make_launch
from merge_bench.campaign.planned_launches import Job, LaunchTimeEstimator, Sweep, launch_seconds_by_rule
from merge_bench.campaign.resume import (
    CONTINUE_AFTER,
    describe_launch_conditions,
    reopen_campaign_to_extend,
    reopen_unfinished_campaign,
)
from merge_bench.cluster import host_agent, signals
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.launchers import launchers, make_launcher
from merge_bench.config.installation import checkout_folder
from merge_bench.errors import Caution, RunFailed, print_message, print_warning
from merge_bench.host import machine, other_load
from merge_bench.host.other_load import FinishMeasurement, OtherLoad
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.campaign import Campaign, RecordedPlan
from merge_bench.records.schema import CampaignLine, EndLine, FailureLine, Git, WarningLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_count, format_duration, plural

IN_A_ROW = 3
"""The number of quiet measurements in a row that end the wait: a single one may fall into a pause."""
LaunchOne = Callable[[Job, CampaignWriter, int], int]
"""Makes the launch of a job, with this index in the campaign, and records it; returns the exit status."""


@dataclass(frozen=True)
class Software:
    """The software that runs: git's state of the checkout, checksum of this package's files, versions of packages."""

    git: Git | None
    sources: str
    versions: Mapping[str, str]

    @classmethod
    def of_this_process(cls) -> Self:
        """The software that this process runs."""
        return cls(
            git_state(), host_agent.source_checksum(host_agent.ROOT / "merge_bench"), machine.installed_versions()
        )


def run_launches(
    results: Path,
    name: str,
    head: CampaignLine,
    jobs: Sequence[Job],
    launch: LaunchOne,
    *,
    resume: bool = True,
    extend: Path | None = None,
    caller: Caller = UNTOUCHED,
    wait_for_quiet: float | None = None,
    expected: LaunchTimeEstimator | None = None,
    software: Software | None = None,
) -> tuple[Path, int]:
    """Make every launch of `jobs` in their order; returns the campaign's folder and the exit status.

    A failed launch is recorded, and the next one is made. A wrong result, a gate that is not met, or a signal ends the
    campaign. With `resume`, an interrupted campaign of the same jobs is continued: launches that it has are not made
    again. `extend`: the folder of an earlier campaign, to which the missing launches are added.
    `wait_for_quiet`: the most seconds to wait until other processes leave this host's cores alone.
    `expected`: the estimated duration of the launches, printed before the first launch and corrected after it.
    `software`: what runs, as the records have it; None: what is installed.
    """
    line = complete_campaign_line(head, jobs, caller, software)
    resumed = reopen_unfinished_campaign(results, line, jobs) if resume and len(jobs) > 1 and extend is None else None
    with caller.signals(), signals.ignore_signals():  # from here on, a signal is recorded
        if extend is not None:
            resumed = reopen_campaign_to_extend(extend, line, jobs)
        writer, left, first_index, status = resumed or (CampaignWriter.create(results, name), list(jobs), 0, 0)
        with writer:
            if resumed:
                print_message(f"resuming {writer.folder}: {len(jobs) - len(left)} of {len(jobs)} launches finished")
            else:
                write_first_records(writer, line, jobs)
            with caller.surround(writer.logs / "driver.log"):
                done = 0
                try:
                    with signals.allow_interruption():
                        if left:
                            if expected is not None and (len(left) > 1 or expected.total_seconds(left) is not None):
                                print_message(expected.describe_estimate(left))
                            warn_if_host_busy(left[0].prepared.settings, writer, wait=wait_for_quiet, first=caller.look)
                        done, status = _make_launches(left, writer, launch, first_index, status, expected)
                except signals.Interrupted as before_the_first:
                    write_interruption(writer, before_the_first)
            if done < len(left) and status in CONTINUE_AFTER:
                status = RunFailed.exit_status
                if resume and len(jobs) > 1:
                    finished = len(jobs) - len(left) + done
                    print_message(f"{finished} of {len(jobs)} launches finished; run the same command to resume")
            with contextlib.suppress(RunFailed):
                writer.write(EndLine(status=status))
            return writer.folder, status


def _make_launches(
    jobs: Sequence[Job],
    writer: CampaignWriter,
    launch: LaunchOne,
    first_index: int,
    status: int,
    expected: LaunchTimeEstimator | None,
) -> tuple[int, int]:
    """Make the launches of `jobs`; returns how many were made to their end, and the worst exit status."""
    done = 0
    try:
        for index, job in enumerate(jobs, first_index):
            began = time.monotonic()
            launch_status = launch(job, writer, index)
            status = max(status, launch_status)
            if (interrupted := signals.pending_interruption()) is not None:
                done += launch_status == 0
                if launch_status == 0 and done < len(jobs):  # it came while the launch ended, which has no line of it
                    write_interruption(writer, interrupted)
                return done, status
            done += 1
            if launch_status not in CONTINUE_AFTER:
                break
            if expected is not None and launch_status == 0:
                expected.add_measured_launch(job, time.monotonic() - began)
                seconds_left = expected.total_seconds(rest) if (rest := jobs[done:]) else None
                if done == 1 and seconds_left is not None:
                    print_message(f"about {format_duration(seconds_left)} left, as the first launch took")
    except signals.Interrupted as between_two:  # within a launch it is recorded
        write_interruption(writer, between_two)
    return done, status


def write_interruption(writer: CampaignWriter, error: signals.Interrupted) -> None:
    """Record a signal that came before, between or after launches."""
    with contextlib.suppress(RunFailed):
        writer.write(FailureLine(launch=None, code=error.code, message=str(error)))


def complete_campaign_line(
    head: CampaignLine, jobs: Sequence[Job], caller: Caller = UNTOUCHED, software: Software | None = None
) -> CampaignLine:
    """Add the command, git's state and the launch conditions to the first record of a campaign, still without its name.

    `software`: what runs; None: what is installed.
    """
    software = software or Software.of_this_process()
    command = {"argv": list(caller.argv), "options": caller.options, "git": software.git}
    conditions = describe_launch_conditions(jobs, software.sources, software.versions)
    return msgspec.structs.replace(head, **command, surroundings=conditions)


def write_first_records(writer: CampaignWriter, line: CampaignLine, jobs: Sequence[Job]) -> None:
    """Write the campaign's first record and the warnings that are known before the first launch."""
    writer.write(msgspec.structs.replace(line, campaign_id=writer.campaign_id))
    for caution in dict.fromkeys(warning for job in jobs for warning in job.prepared.warnings):
        writer.write(WarningLine.of(caution))


def git_state() -> Git | None:
    """This checkout's git commit, whether it has local changes, and this host's name; None without checkout or git."""
    root = checkout_folder()
    if root is None:  # the environment may lie inside a repository of another project
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        commit, dirty = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return Git(commit=commit, dirty=bool(dirty), host=socket.gethostname())


def dry_run_text(sweep: Sweep) -> str:
    """The text that --dry-run prints: the commands of each run; for several launches also their time and order."""
    lines, jobs, run_labels = [], sweep.jobs(), sweep.run_labels()
    for (config, index), prepared in sweep.prepared.items():
        plan = prepared.plan
        if len(jobs) > 1:
            size = f"{_merge_size_text(plan)} per chunk" if plan.rows_per_chunk is not None else _merge_size_text(plan)
            names = f"{config}/{index}" + (f" ({name})" if (name := run_labels[config, index]) != config else "")
            lines.append(f"## {names}: {plural(plan.workers, 'worker')}{size}, {plan.launches} launches")
        for command in make_launcher(prepared.settings).commands(plan, prepared.settings):
            lines += [f"# {command.role} on {command.host}", command.shell_line()]
    if len(jobs) > 1:
        lines.append(f"## {make_time_estimator(sweep).describe_estimate(jobs)}")
        lines += [f"## {short}"] if (short := few_blocks_sentence(sweep)) else []
        for block, members in itertools.groupby(jobs, lambda job: job.block):
            lines.append(f"## block {block}: " + " ".join(f"{job.config}/{job.plan}" for job in members))
    return "\n".join(lines) if lines else "# no process would be started: the cluster is already running"


def run_sweep(
    sweep: Sweep, progress: Progress, *, caller: Caller = UNTOUCHED, say_time: bool = True
) -> tuple[Path, int]:
    """Make every launch of the sweep; returns the campaign's folder and the exit status.

    Every measurement is written to the disk at once. Every process that was started has ended when this returns. An
    interrupted campaign of the same sweep is resumed, unless its options say otherwise. `say_time`: print how long
    several launches take.
    """
    options = sweep.options
    jobs, expected = sweep.jobs(), make_time_estimator(sweep)
    if say_time and (short := few_blocks_sentence(sweep)):
        print_warning(Caution("few-blocks", short))

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        shown = progress
        if len(jobs) > 1:
            shown = LabelledProgress(
                progress, launch_label(job, jobs), expected.total_seconds(jobs[jobs.index(job) + 1 :])
            )
        return launch_merge(job, writer, shown, index)

    name = "-".join(config.name for config in sweep.configs)
    return run_launches(
        sweep.results_folder,
        name,
        sweep.campaign_line(),
        jobs,
        launch,
        resume=not options.fresh,
        extend=Path(options.extend) if options.extend else None,
        caller=caller,
        wait_for_quiet=options.wait_for_quiet,
        expected=expected if say_time and len(jobs) > 1 else None,
    )


def make_time_estimator(sweep: Sweep) -> LaunchTimeEstimator:
    """Make the estimator of the seconds that each launch of the sweep takes."""
    return LaunchTimeEstimator(sweep.results_folder, sweep.plans, launch_seconds_by_rule)


def few_blocks_sentence(sweep: Sweep) -> str | None:
    """A sentence that the sweep has fewer blocks than can show a difference; None if it has enough."""
    plans, blocks = tuple(map(RecordedPlan.of, sweep.plans)), sweep.first_run.plan.launches
    least = least_blocks_for_verdict(Campaign(Path(), sweep.campaign_line(), plans, (), truncated=False, skipped={}))
    if blocks >= least:
        return None
    what = f"{len(sweep.distinct_labels)} configs" if len(sweep.configs) > 1 else ", ".join(sweep.distinct_labels)
    return f"{plural(blocks, 'block')} cannot show a difference between {what}; use --launches {least} or more"


def launch_label(job: Job, jobs: Sequence[Job]) -> str:
    """The label of a launch in the display: ``1 of 12: default, 1,000,000 rows, 2 workers``."""
    plan = job.prepared.plan
    number, workers = f"{jobs.index(job) + 1} of {len(jobs)}", plural(plan.workers, "worker")
    return f"{number}: {job.label}{_merge_size_text(plan)}, {workers}"


def _merge_size_text(plan: Plan) -> str:
    """The size of the merge for a label: ``, 1,000,000 rows`` or ``, h2o q1``; empty for tables of files."""
    if plan.rows_per_chunk is not None:
        return f", {format_count(plan.rows_per_chunk)} rows"
    work = plan.workload
    return f", {work.benchmark} {work.question}" if isinstance(work, TableSpec) and work.benchmark else ""


def launch_merge(job: Job, writer: CampaignWriter, progress: Progress, launch: int) -> int:
    """Make one launch, with its merges and other measurements; returns the exit status."""
    from merge_bench.campaign.measure_launch import measure_launch

    return make_launch(job, writer, progress, launch, measure_launch)


def warn_if_host_busy(
    settings: ClusterSettings,
    writer: CampaignWriter,
    *,
    wait: float | None = None,
    first: FinishMeasurement | None = None,
    look: FinishMeasurement | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Print and record a warning if other processes keep this host's cores busy.

    With `wait`, first wait for at most this many seconds until the host is quiet. Does nothing if the cluster does not
    run on this host. `first`: ends a measurement that has begun already. `look`, `clock`: replaced in tests.
    """
    look = look or other_load.measure_other_load
    if not launchers()[settings.launcher].starts_here:
        return
    load = (first or look)()
    if not load.is_quiet and wait is not None:
        load = _wait_for_quiet_host(load, wait, look, clock)
    if load.is_quiet:
        return
    caution = Caution(BUSY_HOST, BUSY.format(load), REMEDY)
    print_warning(caution)
    writer.write(WarningLine.of(caution))


def _wait_for_quiet_host(
    load: OtherLoad, wait: float, look: FinishMeasurement, clock: Callable[[], float]
) -> OtherLoad:
    began, quiet = clock(), 0
    print_message(f"waiting for at most {format_duration(wait)} until this host is quiet: other processes keep {load}")
    while quiet < IN_A_ROW and clock() - began < wait:
        load = look()
        quiet = quiet + 1 if load.is_quiet else 0
    how = "this host is quiet" if quiet == IN_A_ROW else "stopped waiting for a quiet host"
    print_message(f"{how} after {format_duration(clock() - began)}")
    return load
