"""The ways a command can end other than well, each with its exit status.

A message is one sentence for the person at the terminal: it names the thing that is wrong
(option, file and line, host and rank) and, where there is one, the remedy.
"""

from __future__ import annotations


class MergeBenchError(Exception):
    """Base of every error that is shown as a sentence instead of a traceback."""

    exit_status = 3
    code = "failed"
    host: str | None = None
    rank: int | None = None
    log_tail: str | None = None


class UsageError(MergeBenchError):
    """Wrong usage or config; nothing was started."""

    exit_status = 2
    code = "usage"


class RunFailed(MergeBenchError):
    """The run failed: a worker died, went silent or ran out of memory. What was measured is kept."""

    exit_status = 3
    code = "run-failed"


class NotRecorded(RunFailed):
    """The records could not be written: the disk is full or gone."""

    code = "not-recorded"


class LaunchFailed(RunFailed):
    """A run failed, with what is known of where."""

    def __init__(
        self, message: str, *, host: str | None = None, rank: int | None = None, log_tail: str | None = None,
        code: str = "run-failed",
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.host, self.rank, self.log_tail, self.code = host, rank, log_tail, code


class WrongResult(MergeBenchError):
    """The merge result was wrong."""

    exit_status = 4
    code = "wrong-result"


class GateNotMet(MergeBenchError):
    """A gate that was asked for (`--require-transport`, `--fail-on`) was not met."""

    exit_status = 5
    code = "gate-not-met"
