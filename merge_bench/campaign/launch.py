"""One launch of a campaign: processes are started, used and ended, whatever happens, and its end is recorded."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from merge_bench.campaign.jobs import Job
from merge_bench.campaign.progress import Progress
from merge_bench.cluster import signals
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed
from merge_bench.records.schema import FailureLine, LaunchEndLine
from merge_bench.records.writer import CampaignWriter

if TYPE_CHECKING:
    from merge_bench.campaign.session import Session


class Started(Protocol):
    """What a launch starts: a Dask cluster, or the ranks of an mpirun."""

    def cause(self, problem: Exception) -> MergeBenchError | None:
        """The process whose end caused a `problem` which is none of this program's errors; None if none did."""

    def end(self, *, well: bool) -> None:
        """End every process that was started; `well`: whether nothing failed before."""


@dataclass
class Outcome:
    """How a launch ended: its exit status."""

    status: int = RunFailed.exit_status  # until all is known to have gone well


def make_launch(
    job: Job, writer: CampaignWriter, progress: Progress, launch: int, use: Callable[[Session], None],
    *, modules: Sequence[str] | None = None,
) -> int:  # fmt: skip
    """Bring a cluster up, `use` it, and take it down; gives the exit status.

    `modules`: what the workers load; by default the engine and the data plane. A failure is written down. Every process
    that was started is gone when this returns.
    """
    from merge_bench.campaign.session import Session

    session = Session(job, writer, progress, launch)
    with recorded(job, writer, launch, session) as outcome:
        session.start(modules)
        use(session)
    return outcome.status


@contextlib.contextmanager
def recorded(job: Job, writer: CampaignWriter, launch: int, started: Started) -> Iterator[Outcome]:
    """The life of one launch of a campaign: `ended`, with lines for why it failed and that it ended.

    Errors of this program end the block, and go no further: after it the outcome has their exit status.
    """
    began, outcome = time.monotonic(), Outcome()
    with signals.ignored():
        try:
            with ended(started, writer, lambda error: _write_failure(job, writer, launch, error)):
                yield outcome
            outcome.status = 0
        except MergeBenchError as error:
            outcome.status = error.exit_status
        finally:
            with contextlib.suppress(RunFailed):
                seconds = time.monotonic() - began
                writer.write(LaunchEndLine(launch=launch, status=outcome.status, seconds=seconds))


@contextlib.contextmanager
def ended(
    started: Started, writer: CampaignWriter, failed: Callable[[MergeBenchError], None] = lambda error: None
) -> Iterator[None]:
    """Whatever happens in the block, what was `started` is ended after it.

    A signal interrupts the block, and nothing else. `failed` gets the error before anything is ended. An error which is
    none of this program's becomes one; logs/error.log keeps it.
    """
    well = False
    with signals.ignored():
        try:
            with signals.heard():
                yield
            well = True
        except MergeBenchError as error:
            failed(error)
            raise
        except Exception as problem:
            explained = _explain(problem, started, writer)
            failed(explained)
            raise explained from problem
        except KeyboardInterrupt:  # of a program that handles Ctrl-C itself
            failed(signals.Interrupted("interrupted by Ctrl-C"))
            raise
        finally:
            started.end(well=well)


def _explain(problem: Exception, started: Started, writer: CampaignWriter) -> MergeBenchError:
    with contextlib.suppress(OSError):
        (writer.logs / "error.log").write_text("".join(traceback.format_exception(problem)))
    return started.cause(problem) or LaunchFailed(
        f"{type(problem).__name__}: {problem} (logs/error.log has the details)", code="internal-error"
    )


def _write_failure(job: Job, writer: CampaignWriter, launch: int, error: MergeBenchError) -> None:
    failure = FailureLine(
        launch=launch, config=job.config, plan=job.plan, block=job.block, code=error.code,
        message=str(error), host=error.host, rank=error.rank, log_tail=error.log_tail,
    )  # fmt: skip
    try:
        writer.write(failure)
    except RunFailed:  # what cannot be recorded is told at least
        print(f"merge_bench: {failure.message}", file=sys.stderr)
