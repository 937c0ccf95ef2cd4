"""Makes one launch of a campaign: starts its processes, always ends them, and records how the launch ended."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from merge_bench.campaign import Progress
from merge_bench.campaign.planned_launches import Job
from merge_bench.cluster import signals
from merge_bench.config.files import replacing
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed, say
from merge_bench.records.schema import FailureLine, LaunchEndLine
from merge_bench.records.writer import CampaignWriter

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session


class Started(Protocol):
    """The processes that a launch starts: a Dask cluster, or the ranks of an mpirun."""

    def cause(self, problem: Exception) -> MergeBenchError | None:
        """The error that names the process whose end caused a library's error `problem`; None if no process ended."""

    def end(self, *, well: bool) -> None:
        """End every process that was started; `well`: whether the launch succeeded."""


@dataclass
class Outcome:
    """How a launch ended: its exit status."""

    status: int = RunFailed.exit_status  # until all is known to have gone well


def make_launch(
    job: Job,
    writer: CampaignWriter,
    progress: Progress,
    launch: int,
    use: Callable[[Session], None],
    *,
    merges: bool = True,
    exchange: str | None = None,
) -> int:
    """Start a cluster, call `use` with its session, and stop the cluster; returns the exit status.

    `merges`, `exchange`: the libraries that workers load, as for `Session.start`. A failure is recorded. Every process
    that was started has ended when this returns.
    """
    from merge_bench.campaign.cluster_session import Session

    session = Session(job, writer, progress, launch)
    session.launcher.checks_host_load = launch == 0
    with record_outcome(job, writer, launch, session) as outcome:
        session.start(merges=merges, exchange=exchange)
        use(session)
    return outcome.status


@contextlib.contextmanager
def record_outcome(job: Job, writer: CampaignWriter, launch: int, started: Started) -> Iterator[Outcome]:
    """End what was `started` after the block, as `stop_on_exit` does, and record the failure and the end of the launch.

    An error of this program ends the block and is not raised again: the outcome then has the error's exit status.
    """
    began, outcome = time.monotonic(), Outcome()
    with signals.ignore_signals():
        try:
            with stop_on_exit(started, writer, lambda error: _write_failure(job, writer, launch, error)):
                yield outcome
            outcome.status = 0
        except MergeBenchError as error:
            outcome.status = error.exit_status
        finally:
            with contextlib.suppress(RunFailed):
                seconds = time.monotonic() - began
                writer.write(LaunchEndLine(launch=launch, status=outcome.status, seconds=seconds))


@contextlib.contextmanager
def stop_on_exit(
    started: Started, writer: CampaignWriter, failed: Callable[[MergeBenchError], None] = lambda error: None
) -> Iterator[None]:
    """End what was `started` after the block, whatever happens in it.

    A signal interrupts the block, but not the end of processes. `failed` is called with the error before any process is
    ended. A library's error is replaced by one of this program, and logs/error.log keeps the original. If a signal
    came, that is the error: some libraries catch the exception `Interrupted` and raise another.
    """
    well = False
    with signals.ignore_signals():
        try:
            with signals.allow_interruption():
                yield
            well = True
        except MergeBenchError as error:
            failed(error)
            raise
        except Exception as problem:
            explained = _explained_error(problem, started, writer)
            failed(explained)
            raise explained from problem
        except KeyboardInterrupt:  # in a program that handles Ctrl-C itself
            failed(signals.Interrupted("interrupted by Ctrl-C"))
            raise
        finally:
            started.end(well=well)


def _explained_error(problem: Exception, started: Started, writer: CampaignWriter) -> MergeBenchError:
    with contextlib.suppress(OSError), replacing(writer.logs / "error.log") as stream:
        stream.write("".join(traceback.format_exception(problem)).encode("utf-8", "backslashreplace"))
    return (
        signals.pending_interruption()
        or started.cause(problem)
        or LaunchFailed(f"{type(problem).__name__}: {problem} (logs/error.log has the details)", code="internal-error")
    )


def _write_failure(job: Job, writer: CampaignWriter, launch: int, error: MergeBenchError) -> None:
    failure = FailureLine(
        launch=launch,
        config=job.config,
        plan=job.plan,
        block=job.block,
        code=error.code,
        message=str(error),
        host=error.host,
        rank=error.rank,
        log_tail=error.log_tail,
    )
    try:
        writer.write(failure)
    except RunFailed:  # what cannot be recorded is printed
        say(failure.message)
