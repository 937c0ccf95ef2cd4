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


class StartedProcesses(Protocol):
    """The processes that a launch starts: a Dask cluster, or the ranks of an mpirun."""

    def find_cause(self, error: Exception) -> MergeBenchError | None:
        """The error that names the process whose end caused a library's `error`; None if no process ended."""

    def end(self, *, succeeded: bool) -> None:
        """End every process that was started; `succeeded`: whether the launch did."""


@dataclass
class LaunchOutcome:
    """The exit status of a launch."""

    status: int = RunFailed.exit_status  # until all is known to have gone well


def make_launch(
    job: Job,
    writer: CampaignWriter,
    progress: Progress,
    launch: int,
    use_session: Callable[[Session], None],
    *,
    merges: bool = True,
    exchange: str | None = None,
) -> int:
    """Start a cluster, call `use_session` with its session, and stop the cluster; returns the exit status.

    `merges`, `exchange`: the libraries that workers load, as for `Session.start`. A failure is recorded. Every process
    that was started has ended when this returns.
    """
    from merge_bench.campaign.cluster_session import Session

    session = Session(job, writer, progress, launch)
    session.launcher.checks_host_load = launch == 0
    with record_launch_outcome(job, writer, launch, session) as outcome:
        session.start(merges=merges, exchange=exchange)
        use_session(session)
    return outcome.status


@contextlib.contextmanager
def record_launch_outcome(
    job: Job, writer: CampaignWriter, launch: int, processes: StartedProcesses
) -> Iterator[LaunchOutcome]:
    """End the processes of a launch after the block, and record its failure and its end.

    An error of this program ends the block and is not raised again: the outcome then has the error's exit status.
    """
    began, outcome = time.monotonic(), LaunchOutcome()
    with signals.ignore_signals():
        try:
            with end_processes_on_exit(processes, writer, lambda error: _record_failure(job, writer, launch, error)):
                yield outcome
            outcome.status = 0
        except MergeBenchError as error:
            outcome.status = error.exit_status
        finally:
            with contextlib.suppress(RunFailed):
                seconds = time.monotonic() - began
                writer.write(LaunchEndLine(launch=launch, status=outcome.status, seconds=seconds))


@contextlib.contextmanager
def end_processes_on_exit(
    processes: StartedProcesses,
    writer: CampaignWriter,
    record_failure: Callable[[MergeBenchError], None] = lambda error: None,
) -> Iterator[None]:
    """End the processes of a launch after the block, whatever happens in it.

    A signal interrupts the block, but not the end of processes. `record_failure` is called with the error before any
    process is ended. A library's error is replaced by one of this program, and logs/error.log keeps the original. If a
    signal came, that is the error: some libraries catch the exception `Interrupted` and raise another.
    """
    succeeded = False
    with signals.ignore_signals():
        try:
            with signals.allow_interruption():
                yield
            succeeded = True
        except MergeBenchError as error:
            record_failure(error)
            raise
        except Exception as problem:
            explained = _explain_library_error(problem, processes, writer)
            record_failure(explained)
            raise explained from problem
        except KeyboardInterrupt:  # in a program that handles Ctrl-C itself
            record_failure(signals.Interrupted("interrupted by Ctrl-C"))
            raise
        finally:
            processes.end(succeeded=succeeded)


def _explain_library_error(
    library_error: Exception, processes: StartedProcesses, writer: CampaignWriter
) -> MergeBenchError:
    """The error of this program for a library's error, whose traceback is written to ``logs/error.log``."""
    name = type(library_error).__name__
    with contextlib.suppress(OSError), replacing(writer.logs / "error.log") as stream:
        stream.write("".join(traceback.format_exception(library_error)).encode("utf-8", "backslashreplace"))
    return (
        signals.pending_interruption()
        or processes.find_cause(library_error)
        or LaunchFailed(f"{name}: {library_error} (logs/error.log has the details)", code="internal-error")
    )


def _record_failure(job: Job, writer: CampaignWriter, launch: int, error: MergeBenchError) -> None:
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
