"""Makes one launch of a campaign: starts its processes, always ends them, and records how the launch ended."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from merge_bench.campaign import ProgressDisplay
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import signals
from merge_bench.config.files import replace_file
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed, print_message
from merge_bench.records.schema import FailureLine, LaunchEndLine
from merge_bench.records.writer import CampaignWriter

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session


class StartedProcesses(Protocol):
    """The processes that a launch started: a Dask cluster, the ranks of an mpirun, or a command."""

    def find_process_failure(self, error: Exception) -> MergeBenchError | None:
        """Return the failure of the process whose end caused a library's `error`; None if no process ended."""

    def end_processes(self, *, succeeded: bool) -> None:
        """End every process that was started; `succeeded`: whether the launch did."""


@dataclass
class LaunchOutcome:
    """The outcome of a launch: its exit status, which is that of a failure until the launch has succeeded."""

    status: int = RunFailed.exit_status  # until all is known to have gone well


def make_launch(
    planned_launch: PlannedLaunch,
    writer: CampaignWriter,
    progress: ProgressDisplay,
    launch_index: int,
    use_session: Callable[[Session], None],
    *,
    load_merge_libraries: bool = True,
    exchange: str | None = None,
) -> int:
    """Start a cluster, call `use_session` with its session, and stop the cluster; returns the exit status.

    `load_merge_libraries`, `exchange`: as for `Session.start_cluster`. A failure is recorded. Every process that was
    started has ended when this function returns.
    """
    from merge_bench.campaign.cluster_session import Session

    session = Session(planned_launch, writer, progress, launch_index)
    session.launcher.checks_host_load = launch_index == 0
    with record_launch_outcome(planned_launch, writer, launch_index, session) as outcome:
        session.start_cluster(load_merge_libraries=load_merge_libraries, exchange=exchange)
        use_session(session)
    return outcome.status


@contextlib.contextmanager
def record_launch_outcome(
    planned_launch: PlannedLaunch, writer: CampaignWriter, launch_index: int, processes: StartedProcesses
) -> Iterator[LaunchOutcome]:
    """End the processes of a launch when the `with` block ends, and record the launch's failure and end.

    An error of this program ends the block and is not raised again: the outcome then has the error's exit status.
    """
    began, outcome = time.monotonic(), LaunchOutcome()
    with signals.ignore_signals():
        try:
            with end_processes_on_exit(
                processes, writer, lambda error: _record_failure(planned_launch, writer, launch_index, error)
            ):
                yield outcome
            outcome.status = 0
        except MergeBenchError as error:
            outcome.status = error.exit_status
        finally:
            with contextlib.suppress(RunFailed):
                seconds = time.monotonic() - began
                writer.write(LaunchEndLine(launch=launch_index, status=outcome.status, seconds=seconds))


@contextlib.contextmanager
def end_processes_on_exit(
    processes: StartedProcesses,
    writer: CampaignWriter,
    record_failure: Callable[[MergeBenchError], None] = lambda error: None,
) -> Iterator[None]:
    """End the processes of a launch when the `with` block ends, whatever happens in it.

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
            processes.end_processes(succeeded=succeeded)


def _explain_library_error(
    library_error: Exception, processes: StartedProcesses, writer: CampaignWriter
) -> MergeBenchError:
    """Return an error of this program in place of a library's error, and write the traceback to ``logs/error.log``."""
    name = type(library_error).__name__
    with contextlib.suppress(OSError), replace_file(writer.logs / "error.log") as stream:
        stream.write("".join(traceback.format_exception(library_error)).encode("utf-8", "backslashreplace"))
    return (
        signals.pending_interruption()
        or processes.find_process_failure(library_error)
        or LaunchFailed(f"{name}: {library_error} (logs/error.log has the details)", code="internal-error")
    )


def _record_failure(
    planned_launch: PlannedLaunch, writer: CampaignWriter, launch_index: int, error: MergeBenchError
) -> None:
    failure = FailureLine(
        launch=launch_index,
        config=planned_launch.config,
        plan=planned_launch.plan,
        block=planned_launch.block,
        code=error.code,
        message=str(error),
        host=error.host,
        rank=error.rank,
        log_tail=error.log_tail,
    )
    try:
        writer.write(failure)
    except RunFailed:  # what cannot be recorded is printed
        print_message(failure.message)
