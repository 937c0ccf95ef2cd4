"""Whether the result behind a run's numbers was verified."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from merge_bench.records.campaign import Launch, Run

UNVERIFIED = "UNVERIFIED"
NOT_BY_US = "merge_bench did not verify this imported result"


class State(Enum):
    """The outcome of all checks of a run."""

    VERIFIED = "verified"
    OFF = "off"
    IMPORTED = "imported"
    MISSING = "missing"
    WRONG = "wrong"

    @property
    def mark(self) -> str | None:
        """The mark beside every number of such a run."""
        return {State.VERIFIED: None, State.WRONG: "WRONG RESULT"}.get(self, UNVERIFIED)


def state_of(run: Run, counted: Sequence[Launch]) -> State:
    """The state of `run`, whose numbers come from the launches `counted`.

    Wrong, if any check of any launch failed; verified, if every check that the plan asks for was made in every
    launch that counts.
    """
    if any(not check.ok for launch in run.launches for check in launch.verifications):
        return State.WRONG
    if run.verify == "off":
        return State.OFF
    if run.imported:
        return State.IMPORTED
    if counted and all(_due_checks(run, launch) <= {c.after for c in launch.verifications} for launch in counted):
        return State.VERIFIED
    return State.MISSING


def _due_checks(run: Run, launch: Launch) -> set[int | None]:
    """The iterations after which the plan asks for a check in `launch`; ``None`` stands for the warm-up."""
    indices = {iteration.index for iteration in launch.timed}
    if run.verify == "every":
        return set(indices)
    last = max(indices, default=0)
    warm_up: set[int | None] = {None} if any(iteration.warmup for iteration in launch.iterations) else set()
    return warm_up | {last}
