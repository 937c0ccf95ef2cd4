"""Whether a run's numbers rest on a proven result. Correctness gates performance: no proof, no number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from merge_bench.record.campaign import Launch, Run


class State(Enum):
    """What the checks of a run say together; the value is how it is shown beside a number."""

    VERIFIED = "verified"
    OFF = "UNVERIFIED"
    MISSING = "NOT VERIFIED"
    WRONG = "WRONG RESULT"


def state_of(run: Run, counted: Sequence[Launch]) -> State:
    """The state of `run`, whose numbers come from the launches `counted`.

    Wrong, if any check of any launch failed; verified, if every check that the plan asks for was made in every
    launch that counts.
    """
    if any(not check.ok for launch in run.launches for check in launch.verifications):
        return State.WRONG
    if run.plan.get("verify") == "off":
        return State.OFF
    if counted and all(_wanted(run.plan, launch) <= {c.after for c in launch.verifications} for launch in counted):
        return State.VERIFIED
    return State.MISSING


def _wanted(plan: Mapping[str, Any], launch: Launch) -> set[int | None]:
    """After which iterations `launch` should have been checked; ``None`` is the warm-up."""
    indices = {iteration.index for iteration in launch.timed}
    if plan.get("verify") == "every":
        return set(indices)
    last = max(indices, default=0)
    if not launch.complete:  # It broke off before the check that would have proven its last iteration.
        last = max(last, int(plan.get("iterations", 0)) - 1)
    first: set[int | None] = {None} if any(iteration.warmup for iteration in launch.iterations) else set()
    return first | {last}
