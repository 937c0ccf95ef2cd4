"""Runs a campaign: creates its results folder, writes its first lines, makes its launches in order, writes its end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from merge_bench.campaign.calling_program import UNTOUCHED, Caller
from merge_bench.campaign.expected_time import ExpectedTime
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Head, Job
from merge_bench.campaign.resume import CONTINUE_AFTER, find_resumable, reopen_to_extend, run_environment
from merge_bench.campaign.wait_for_quiet import check_host
from merge_bench.cluster import signals
from merge_bench.config.installation import __version__, checkout
from merge_bench.errors import RunFailed, say
from merge_bench.records.schema import CampaignLine, Config, EndLine, FailureLine, Git, WarningLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_duration

LaunchOne = Callable[[Job, CampaignWriter, int], int]
"""Makes the launch of a job, with this index in the campaign, and records it; returns the exit status."""


def config_line(planned: PlannedRun) -> Config:
    """The record of a run's config: its name, path and variables. A run without a config has the name ``default``."""
    config = planned.config
    return Config(
        name=config.name if config is not None else "default",
        path=str(config.path) if config is not None else None,
        variables=dict(planned.settings.environment),
    )


def make_campaign(
    results: Path, name: str, head: Head, jobs: Sequence[Job], launch: LaunchOne, *, resume: bool = True,
    extend: Path | None = None, caller: Caller = UNTOUCHED, wait_for_quiet: float | None = None,
    expected: ExpectedTime | None = None,
) -> tuple[Path, int]:  # fmt: skip
    """Make every launch of `jobs` in their order; returns the campaign's folder and the exit status.

    A failed launch is recorded, and the next one is made. A wrong result, a gate that is not met, or a signal ends the
    campaign. With `resume`, an interrupted campaign of the same jobs is continued: launches that it has are not made
    again. `extend`: the folder of an earlier campaign, to which the missing launches are added.
    `wait_for_quiet`: the most seconds to wait until other processes leave this host's cores alone.
    `expected`: the estimated duration of the launches, printed before the first launch and corrected after it.
    """
    line = first_line(head, jobs, caller)
    resumed = find_resumable(results, line, jobs) if resume and len(jobs) > 1 and extend is None else None
    with caller.signals(), signals.ignored():  # from here on, a signal is recorded
        if extend is not None:
            resumed = reopen_to_extend(extend, line, jobs)
        writer, left, first_index, status = resumed or (CampaignWriter.create(results, name), list(jobs), 0, 0)
        with writer:
            if resumed:
                finished = f"{len(jobs) - len(left)} of {len(jobs)} launches finished"
                say(f"resuming {writer.folder}: {finished}")
            else:
                write_first_lines(writer, line, jobs)
            with caller.surround(writer.logs / "driver.log"):
                done = 0
                try:
                    with signals.interruptible():
                        if left:
                            if expected is not None and (len(left) > 1 or expected.total_seconds(left) is not None):
                                say(expected.describe(left))
                            check_host(left[0].prepared.settings, writer, wait=wait_for_quiet, first=caller.look)
                        done, status = _make_launches(left, writer, launch, first_index, status, expected)
                except signals.Interrupted as before_the_first:
                    write_interruption(writer, before_the_first)
            if done < len(left) and status in CONTINUE_AFTER:
                status = RunFailed.exit_status
                if resume and len(jobs) > 1:
                    finished = f"{len(jobs) - len(left) + done} of {len(jobs)} launches finished"
                    say(f"{finished}; run the same command to resume")
            with contextlib.suppress(RunFailed):
                writer.write(EndLine(status=status))
            return writer.folder, status


def _make_launches(
    jobs: Sequence[Job], writer: CampaignWriter, launch: LaunchOne, first_index: int, status: int,
    expected: ExpectedTime | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Make the launches of `jobs`; returns how many were made to their end, and the worst exit status."""
    done = 0
    try:
        for index, job in enumerate(jobs, first_index):
            began = time.monotonic()
            launch_status = launch(job, writer, index)
            status = max(status, launch_status)
            if (interrupted := signals.interruption()) is not None:
                done += launch_status == 0
                if launch_status == 0 and done < len(jobs):  # it came while the launch ended, which has no line of it
                    write_interruption(writer, interrupted)
                return done, status
            done += 1
            if launch_status not in CONTINUE_AFTER:
                break
            if expected is not None and launch_status == 0:
                expected.note_launch(job, time.monotonic() - began)
                rest = jobs[done:]
                seconds_left = expected.total_seconds(rest)
                if done == 1 and rest and seconds_left is not None:
                    say(f"about {format_duration(seconds_left)} left, as the first launch took")
    except signals.Interrupted as between_two:  # within a launch it is recorded
        write_interruption(writer, between_two)
    return done, status


def write_interruption(writer: CampaignWriter, error: signals.Interrupted) -> None:
    """Record a signal that came before, between or after launches."""
    with contextlib.suppress(RunFailed):
        writer.write(FailureLine(launch=None, code=error.code, message=str(error)))


def first_line(head: Head, jobs: Sequence[Job], caller: Caller = UNTOUCHED) -> CampaignLine:
    """The record that begins a new campaign's file, still without the campaign's name."""
    return CampaignLine(
        campaign_id="",
        argv=list(caller.argv),
        options=caller.options,
        version=__version__,
        git=git_state(),
        configs=list(head.configs),
        seed=head.seed,
        plans=list(head.plans),
        runs=list(head.runs),
        surroundings=run_environment(jobs),
    )


def write_first_lines(writer: CampaignWriter, line: CampaignLine, jobs: Sequence[Job]) -> None:
    """Write the campaign's first record and the warnings that are known before the first launch."""
    writer.write(msgspec.structs.replace(line, campaign_id=writer.campaign_id))
    for caution in dict.fromkeys(warning for job in jobs for warning in job.prepared.warnings):
        writer.write(WarningLine.of(caution))


def git_state() -> Git | None:
    """This checkout's git commit, whether it has local changes, and this host's name; None without checkout or git."""
    root = checkout()
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
