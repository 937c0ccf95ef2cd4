"""Launches that go well, fail, or are cut short at some moment: all of a launch but the cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from merge_bench.campaign import CallingProgram
from merge_bench.campaign.launch import record_launch_outcome
from merge_bench.campaign.planned_launches import PlannedLaunch, Sweep
from merge_bench.campaign.run_campaign import SoftwareVersions, run_launches
from merge_bench.cluster import signals
from merge_bench.errors import LaunchFailed, MergeBenchError
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter, encode_record
from tests.helpers import synthetic_campaigns as synthetic
from tests.helpers.plans import prepared


class Killed(BaseException):
    """Ends the driver in the middle of whatever it does, as kill -9 would; only the lock is let go as by the kernel."""


def sweep(*, blocks: int = 2, configs: Sequence[str] = "ab", **options: Any) -> Sweep:
    made = Sweep()
    values = {"chunk": 1000, "workers": 2, "iterations": 1, "warmup": 0, "verify": "off", "launches": blocks, **options}
    for name in configs:
        made.add_config(prepared(**values), s.Config(name=name, path=f"{name}.cfg"))
    return made


def script(job: PlannedLaunch, index: int) -> synthetic.Script:
    plan = job.prepared.plan.to_json()
    return synthetic.Script(index=index, config=job.config, plan_index=job.plan, plan=plan, walls=(0.1,))


def begin(writer: CampaignWriter, job: PlannedLaunch, index: int) -> None:
    """The launch line and one iteration."""
    line = s.LaunchLine(
        launch=index,
        config=job.config,
        plan=job.plan,
        block=job.block,
        workers=[],
        cluster=s.Cluster(launcher="local", protocol="tcp"),
        data_bytes=1000,
        rows=1000,
        startup_seconds=1.0,
    )
    writer.write(line)
    writer.write(synthetic.iteration(script(job, index), 0, 0.1))


def half_a_line(writer: CampaignWriter, index: int) -> None:
    line = encode_record(s.MemoryLine(launch=index, workers=[]))
    with writer.records.open("ab") as file:
        file.write(line[: len(line) // 2])


Event = Callable[[PlannedLaunch, CampaignWriter, int], int]
SOFTWARE = SoftwareVersions(s.GitState(commit="c", dirty=False, host="h"), sources="f", versions={"dask": "1"})
"""What is not read in these tests: that takes longer than everything else in them."""
HEARS_SIGNALS = CallingProgram(signals=signals.raise_on_signals)
"""As the command line does, without its redirected output."""


class Nothing:
    """A launch that starts no processes; `cause` and `end` are called where others look for causes and end them."""

    def __init__(
        self, *, cause: Callable[[], MergeBenchError | None] | None = None, end: Callable[[], object] = lambda: None
    ) -> None:
        self._cause, self._end = cause, end

    def find_process_failure(self, error: Exception) -> MergeBenchError | None:
        if self._cause is None:
            raise error  # a mistake of the test
        return self._cause()

    def end_processes(self, *, succeeded: bool) -> None:
        self._end()


def launched(work: Callable[[PlannedLaunch, CampaignWriter, int], None], started: Nothing | None = None) -> Event:
    def event(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        with record_launch_outcome(job, writer, index, started or Nothing()) as outcome:
            work(job, writer, index)
        return outcome.status

    return event


def _well(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)


def _fails(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)
    raise LaunchFailed("a worker died", rank=1)


def _fails_early(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    raise LaunchFailed("the scheduler did not start")


def _interrupted(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)
    os.kill(os.getpid(), signal.SIGINT)


def _interrupted_early(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupted_in_a_library(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
    """Where a library catches what the signal raises, and raises an error of its own."""
    begin(writer, job, index)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except signals.Interrupted as error:
        raise TypeError("could not serialize object") from error


def _between(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
    os.kill(os.getpid(), signal.SIGHUP)
    raise AssertionError("the signal did not end the campaign")


def _killed_early(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
    raise Killed


def killed(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    raise Killed


def killed_writing(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    half_a_line(writer, index)
    raise Killed


def _killed_after_a_failure(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    failure = s.FailureLine(
        launch=index, config=job.config, plan=job.plan, block=job.block, code="worker-died", message="it died"
    )
    writer.write(failure)
    raise Killed


WELL, FAILS = launched(_well), launched(_fails)
interrupted_at_the_end = launched(_well, Nothing(end=lambda: os.kill(os.getpid(), signal.SIGINT)))
MADE: dict[str, Event] = {
    "well": WELL,
    "fails": FAILS,
    "fails early": launched(_fails_early),
    "interrupted at the end": interrupted_at_the_end,
    "killed after a failure": _killed_after_a_failure,
}
CUT: dict[str, Event] = {
    "interrupted": launched(_interrupted),
    "interrupted early": launched(_interrupted_early),
    "between": _between,
    "interrupted in a library": launched(_interrupted_in_a_library),
    "killed": killed,
    "killed early": _killed_early,
    "killed writing": killed_writing,
}
EVENTS = MADE | CUT


def make(
    results: Path, made: Sweep, events: list[Event], *, resume: bool = True
) -> tuple[int | None, list[PlannedLaunch]]:
    """Run the sweep; each launch is the next of `events`, then all go well. Exit status (None: killed), and the jobs
    in the order in which they were begun.
    """
    begun = []

    def launch(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        begun.append(job)
        return (events.pop(0) if events else WELL)(job, writer, index)

    try:
        _, status = run_launches(
            results,
            "x",
            made.campaign_line(),
            made.ordered_launches(),
            launch,
            resume=resume,
            caller=HEARS_SIGNALS,
            software=SOFTWARE,
        )
        return status, begun
    except Killed:
        return None, begun


def the(results: Path) -> Campaign:
    (folder,) = results.iterdir()
    return read_campaign(folder)


def standing(campaign: Campaign) -> list[tuple[str, int, int | None]]:
    return [
        (*launch.run_key, launch.block_index) for launch in campaign.launches_not_replaced if launch.run_key is not None
    ]
