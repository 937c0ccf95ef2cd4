"""Decides whether a launch has a timeline, by what it costs, and writes the file of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from merge_bench.campaign.cluster_session import Session
from merge_bench.merge import steps
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import TimelineLine
from merge_bench.records.timeline import (
    Timeline,
    TimelineHead,
    TimelineIteration,
    TimelineRound,
    WorkerClock,
    encode,
    file_name,
)

MOST_SHARE = 0.01
"""Of an iteration that notes may take, with ``--timeline auto``."""


@dataclass(frozen=True)
class Decision:
    """Whether to record a timeline, and why (`TimelineLine`). `share`: of the shortest iteration, at most."""

    recorded: bool
    because: str
    notes: int | None = None
    note_seconds: float | None = None
    share: float | None = None


def decide(plan: Plan, costs: Sequence[steps.NoteCost]) -> Decision:
    """Decide by what notes cost the workers: notes of an iteration × seconds of one ÷ its seconds.

    The worker for which that is most decides for all, because messages need both of their ends. `costs`: of the
    iterations so far; none before the first one, which a timeline has unless it is ``off``.
    """
    found = max(costs, key=lambda cost: cost.share, default=None)
    cheap = found is None or found.share <= MOST_SHARE
    recorded = plan.timeline == "on" or (plan.timeline == "auto" and cheap)
    because = "asked for" if plan.timeline != "auto" else "cheap" if cheap else "expensive"
    if found is None:
        return Decision(recorded, because)
    return Decision(recorded, because, found.notes, found.note_seconds, found.share)


def most_share(plan: Plan, decision: Decision) -> float | None:
    """The share of an iteration that notes may take from now on; None: nothing is noted."""
    if not decision.recorded:
        return None
    return math.inf if plan.timeline == "on" else MOST_SHARE


def record_timeline(session: Session, decision: Decision, skew: float | None) -> None:
    """Write what the workers kept into the file beside the records, and record the decision."""
    if session.plan.timeline == "off":
        return
    name, timeline = file_name(session.launch), None
    if decision.recorded:
        timeline = gathered(session, skew)
        if timeline.iterations:
            session.writer.write_beside(name, encode(timeline))
        else:
            timeline, decision = None, replace(decision, recorded=False, because="too many events")
    session.writer.write(
        TimelineLine(
            launch=session.launch,
            recorded=decision.recorded,
            because=decision.because,
            notes=decision.notes,
            note_seconds=decision.note_seconds,
            share=decision.share,
            file=name if timeline else None,
            events=_events(timeline) if timeline else 0,
            iterations=[each.index for each in timeline.iterations] if timeline else [],
        )
    )


def gathered(session: Session, skew: float | None) -> Timeline:
    """The iterations that all workers kept, and the rounds of the link measurement."""
    found = session.workers.on_all(steps.timelines)
    kept = sorted(set.intersection(*(set(each.iterations) for each in found)))
    rounds = zip(*(each.rounds for each in found), strict=True)
    clocks = zip(session.descriptions, found, strict=True)
    return Timeline(
        head=TimelineHead(
            launch=session.launch,
            clocks=[
                WorkerClock(rank=worker.rank, host=worker.host, unix_seconds=each.unix_seconds)
                for worker, each in clocks
            ],
            skew_seconds=skew,
        ),
        iterations=[
            TimelineIteration(index=index, workers=[each.iterations[index] for each in found]) for index in kept
        ],
        rounds=[TimelineRound(index=index, workers=list(workers)) for index, workers in enumerate(rounds)],
    )


def _events(timeline: Timeline) -> int:
    lines = [*timeline.iterations, *timeline.rounds]
    return sum(worker.events for line in lines for worker in line.workers)
