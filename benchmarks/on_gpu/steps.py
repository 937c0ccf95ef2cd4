"""Runs steps within a budget of seconds, the most important first; steps that do not fit are skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import command
from merge_bench.errors import RunFailed

DONE, FAILED, SKIPPED = "done", "failed", "skipped"
PATIENCE, START_SECONDS = 2, 30.0
"""A step that hangs must not use up the others' budget: it ends after twice its usual time, and first imports."""


@dataclass(frozen=True)
class Finding:
    """What a step found: a sentence, its figures, and the exit status that it calls for (0: all is well).

    `skipped`: the machine lacks what the step needs; a later call tries again.
    """

    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    status: int = 0
    skipped: bool = False


@dataclass(frozen=True)
class Step:
    """One thing to do. `seconds`: what it usually takes; `do` gets how many it may take."""

    name: str
    what: str
    seconds: float
    do: Callable[[float], Finding]


@dataclass(frozen=True)
class Ended:
    """How a step ended; the fields are those of the summary."""

    name: str
    what: str
    state: str
    seconds: float
    sentence: str
    status: int = 0
    figures: Mapping[str, Any] = field(default_factory=dict)


def still_to_do(steps: Sequence[Step], earlier: Sequence[Ended]) -> list[Step]:
    """The steps that are not done yet: those never tried, then those that failed and may fail again."""
    states = {each.name: each.state for each in earlier}
    left = [step for step in steps if states.get(step.name) != DONE]
    return sorted(left, key=lambda step: states.get(step.name) == FAILED)


def merged(steps: Sequence[Step], earlier: Sequence[Ended], now: Sequence[Ended]) -> list[Ended]:
    """Both calls' steps in the order of the plan, each as it ended last; to be skipped undoes nothing."""
    found = {each.name: each for each in earlier}
    for each in now:
        if each.state != SKIPPED or each.name not in found:
            found[each.name] = each
    order = {step.name: number for number, step in enumerate(steps)}
    return sorted(found.values(), key=lambda each: order.get(each.name, len(order)))


def run_all(
    steps: Sequence[Step], budget: float, note: Callable[[Ended], object], clock: Callable[[], float] = time.monotonic
) -> list[Ended]:
    """Do the steps in turn, and give each to `note` as soon as it has ended.

    A step that usually takes longer than what is left of `budget` seconds is skipped; shorter ones behind it are not.
    Whatever a step raises is its own failure, and the others go on; only an interruption ends them all.
    """
    start, found = clock(), []
    for step in steps:
        began = clock()
        left = budget - (began - start)
        if step.seconds > left:
            reason = f"usually takes {step.seconds:.0f} s, but only {max(left, 0):.0f} s of the budget were left"
            state, seconds, one = SKIPPED, 0.0, Finding(reason)
        else:
            one = _do(step, min(left, PATIENCE * step.seconds + START_SECONDS))
            state, seconds = _state(one), clock() - began
        found.append(Ended(step.name, step.what, state, seconds, one.sentence, one.status, one.figures))
        note(found[-1])
    return found


def status_of(ended: Sequence[Ended]) -> int:
    """The exit status of them all: the gravest, a wrong result before a failure."""
    return max((each.status for each in ended), default=0)


def _state(finding: Finding) -> str:
    if finding.status:
        return FAILED
    return SKIPPED if finding.skipped else DONE


def _do(step: Step, left: float) -> Finding:
    try:
        return step.do(left)
    except SystemExit as error:
        return Finding(f"the step ended with status {error.code}", status=RunFailed.exit_status)
    except Exception as error:
        return Finding(command.sentence(error), status=getattr(error, "exit_status", RunFailed.exit_status))
