"""Aligns timelines of launches to one clock, and chooses the iteration to draw. No figure is made of a timeline.

Every host has its own clock. All workers leave the opening barrier of an iteration at nearly the same time: that is
what hosts are aligned by. How far that may be wrong follows from what came before what.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from merge_bench.analysis import aggregate
from merge_bench.analysis.statistics import median
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.timeline import (
    MessageBatch,
    Timeline,
    TimelineIteration,
    WorkerTimeline,
    read_timeline,
    timeline_file_name,
)


@dataclass(frozen=True)
class AlignedTimeline:
    """A launch's timeline, and the offset of each host's clock from the clock of rank 0's host.

    `hosts`: of each worker, by rank; `offsets`: seconds to add to the times of each host. `error`: seconds by which
    times of another host may be wrong at most; 0 on one host.
    """

    launch: Launch
    timeline: Timeline
    hosts: Sequence[str]
    offsets: dict[str, float]
    error: float

    def seconds_on_common_clock(self, rank: int, seconds: float) -> float:
        """Convert seconds on the clock of a rank's host to seconds on the clock of rank 0's host."""
        return seconds + self.offsets[self.hosts[rank]]


def read_aligned_timelines(campaign: Campaign) -> Iterator[AlignedTimeline]:
    """The timelines of a campaign's launches, in order, on one clock; launches without a timeline are left out.

    Raises UsageError if a file is damaged.
    """
    for launch in campaign.launches_not_replaced:
        if launch.timeline is not None and launch.timeline.recorded:
            timeline = read_timeline(campaign.folder / timeline_file_name(launch.index))
            if timeline is not None and timeline.iterations:
                yield align_timeline(launch, timeline)


def align_timeline(launch: Launch, timeline: Timeline) -> AlignedTimeline:
    """Align the clocks of a timeline's hosts, by the times at which workers left the opening barriers."""
    hosts = [clock.host for clock in sorted(timeline.head.clocks, key=lambda clock: clock.rank)]
    offsets, error = dict.fromkeys(hosts, 0.0), 0.0
    for host in offsets:
        if host != hosts[0]:
            exits = [
                _last_barrier_exit_seconds(each, hosts, hosts[0]) - _last_barrier_exit_seconds(each, hosts, host)
                for each in timeline.iterations
            ]
            middle = median(exits)
            low, high = _clock_offset_limits(timeline, hosts, host)
            offsets[host] = min(max(middle, low), high)
            error = max(error, abs(high - offsets[host]), abs(offsets[host] - low))  # clocks drift apart meanwhile
    return AlignedTimeline(launch, timeline, hosts, offsets, error)


def _clock_offset_limits(timeline: Timeline, hosts: Sequence[str], host: str) -> tuple[float, float]:
    """The least and the most seconds by which the clock of `host` can differ from that of rank 0's host.

    Nobody leaves a barrier before everybody has entered it, and no message arrives before it is sent, however busy the
    hosts are.
    """
    low, high = -math.inf, math.inf
    for iteration in timeline.iterations:
        barriers = [[span for span in worker.spans if span.name == "barrier"] for worker in iteration.workers]
        for spans in zip(*barriers, strict=False):
            at = [(hosts[worker.rank], span) for worker, span in zip(iteration.workers, spans, strict=True)]
            first_spans = [span for its, span in at if its == hosts[0]]
            own_spans = [span for its, span in at if its == host]
            low = max(low, max(span.begin for span in first_spans) - min(span.end for span in own_spans))
            high = min(high, min(span.end for span in first_spans) - max(span.begin for span in own_spans))
        for sender, sent, receiver, received in matched_message_batches(iteration):
            if (hosts[sender], hosts[receiver]) == (hosts[0], host):
                low = max(low, sent.begin - received.end)
            elif (hosts[sender], hosts[receiver]) == (host, hosts[0]):
                high = min(high, received.end - sent.begin)
    return low, high


def opening_barrier_exit_seconds(worker: WorkerTimeline) -> float:
    """The time at which a worker left its iteration's opening barrier, on its own host's clock."""
    return min(worker.spans, key=lambda span: span.begin).end


def _last_barrier_exit_seconds(iteration: TimelineIteration, hosts: Sequence[str], host: str) -> float:
    """The time at which the last worker of a host left the opening barrier, on that host's clock."""
    return max(opening_barrier_exit_seconds(worker) for worker in iteration.workers if hosts[worker.rank] == host)


def matched_message_batches(iteration: TimelineIteration) -> Iterator[tuple[int, MessageBatch, int, MessageBatch]]:
    """Yield each batch of messages as (sender's rank, batch as sent, receiver's rank, batch as received)."""
    arrived = {
        (batch.piece, batch.peer, worker.rank): batch
        for worker in iteration.workers
        for batch in worker.batches
        if batch.received
    }
    for worker in iteration.workers:
        for batch in worker.batches:
            end = None if batch.received else arrived.get((batch.piece, worker.rank, batch.peer))
            if end is not None:
                yield worker.rank, batch, batch.peer, end


def iteration_nearest_to_median(campaign: Campaign, run: Run) -> tuple[AlignedTimeline, TimelineIteration] | None:
    """The recorded iteration whose wall-clock time is nearest to the run's median; None if none was recorded."""
    counted = aggregate.complete_launches(run)
    wall = aggregate.run_median(counted, aggregate.wall_seconds)
    indices = {launch.index for launch in counted}
    candidates = [
        (abs(each.wall_seconds - wall), aligned, iteration)
        for aligned in read_aligned_timelines(campaign)
        if aligned.launch.index in indices and wall is not None
        for iteration in aligned.timeline.iterations
        for each in aligned.launch.timed_iterations
        if each.index == iteration.index
    ]
    if not candidates:
        return None
    _, aligned, iteration = min(candidates, key=lambda each: each[0])
    return aligned, iteration
