"""One launch of a campaign: the cluster comes up, is talked to, and is taken down, whatever happens."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench import signals
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed
from merge_bench.launch.base import Launcher
from merge_bench.launch.choose import make_launcher
from merge_bench.record.schema import Config, FailureLine, LaunchEndLine, RunKey
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun


@dataclass(frozen=True)
class Head:
    """What the first line of the records says is going to be done."""

    configs: Sequence[Config]
    plans: Sequence[dict[str, Any]]
    runs: Sequence[RunKey]
    seed: int


@dataclass(frozen=True)
class Job:
    """One launch to make: of which config (by its name in the campaign) and plan (by its index), in which block."""

    prepared: Prepared
    config: str
    plan: int = 0
    block: int = 0


def make_launch(
    job: Job, writer: CampaignWriter, progress: Progress, launch: int, talk: Callable[[LaunchRun], None],
    *, modules: Sequence[str] | None = None,
) -> int:  # fmt: skip
    """Bring a cluster up, let `talk` work with it, and take it down; gives the exit status.

    `modules`: what the workers load; by default the engine and the data plane. A failure is written down. Every process
    that was started is gone when this returns.
    """
    from merge_bench.client import connect
    from merge_bench.driver import LaunchRun

    plan, settings = job.prepared.plan, job.prepared.settings
    launcher = make_launcher(settings)
    started = time.monotonic()
    client = None
    conversation: LaunchRun | None = None

    def work() -> None:
        nonlocal client, conversation
        progress.phase("launching")
        access = launcher.start(plan, settings, writer.logs, f"launch-{launch:03d}-")
        up_by = time.monotonic() + settings.start_timeout
        client = connect(access, launcher, settings, up_by)
        conversation = LaunchRun(
            client, launcher, plan, settings, writer, progress, launch=launch, started=started, up_by=up_by
        )  # fmt: skip
        conversation.gather_workers(modules)
        talk(conversation)

    def end(well: bool) -> None:
        progress.phase("taking the cluster down")
        take_down(launcher, client, conversation, well=well)

    def explained(problem: Exception) -> MergeBenchError:
        return explain(problem, launcher, conversation, writer)

    return recorded(job, writer, launch, work, explain=explained, end=end)


def recorded(
    job: Job, writer: CampaignWriter, launch: int, work: Callable[[], None],
    *, explain: Callable[[Exception], MergeBenchError], end: Callable[[bool], None],
) -> int:  # fmt: skip
    """Do the `work` of a launch, write down how it ended, and `end` what it started; gives the exit status.

    `explain` makes a sentence of an error that is none of ours; `end` is told whether all went well. A signal ends the
    work, and nothing else.
    """
    started, status = time.monotonic(), RunFailed.exit_status  # until all is known to have gone well
    with signals.ignored():
        try:
            with signals.heard():
                work()
            status = 0
        except Exception as problem:
            error = problem if isinstance(problem, MergeBenchError) else explain(problem)
            status = error.exit_status
            _write_failure(job, writer, launch, error)
        finally:
            end(status == 0)
            with contextlib.suppress(RunFailed):
                writer.write(LaunchEndLine(launch=launch, status=status, seconds=time.monotonic() - started))
    return status


def _write_failure(job: Job, writer: CampaignWriter, launch: int, error: MergeBenchError) -> None:
    failure = FailureLine(
        launch=launch, config=job.config, plan=job.plan, block=job.block, code=error.code,
        message=str(error), host=error.host, rank=error.rank, log_tail=error.log_tail,
    )  # fmt: skip
    try:
        writer.write(failure)
    except RunFailed:  # what cannot be recorded is told at least
        print(f"merge_bench: {failure.message}", file=sys.stderr)


def explain(problem: Exception, launcher: Launcher, conversation: Any, writer: CampaignWriter) -> MergeBenchError:
    """A sentence for an error that Dask raised, which as a rule is the echo of a process that ended."""
    from merge_bench.client import raise_for_exited

    with contextlib.suppress(OSError):
        (writer.logs / "error.log").write_text("".join(traceback.format_exception(problem)))
    try:
        if conversation is not None:
            conversation.watch.settle(lost_scheduler=isinstance(problem, OSError))  # as Dask's CommClosedError is
        raise_for_exited(launcher)
    except LaunchFailed as reason:
        return reason
    return LaunchFailed(f"{type(problem).__name__}: {problem} (logs/error.log has the details)", code="internal-error")


def take_down(launcher: Launcher, client: Any, conversation: Any, *, well: bool) -> None:
    """End the conversation and the processes; after a failure the processes first: nothing waits for an answer."""
    from merge_bench.client import close

    if conversation is not None:
        conversation.watch.stop()
        if not well and not launcher.owns_processes:
            conversation.abort("the run is ending")
    if well and client is not None:
        close(client)
    launcher.stop()
    if not well and client is not None:
        close(client)
