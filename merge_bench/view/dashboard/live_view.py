"""The Live tab: a campaign as it goes on, read from its records alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import panel as pn

from merge_bench.analysis.aggregate import middle
from merge_bench.records.follow import Follower
from merge_bench.units import format_bytes, format_rate, format_seconds
from merge_bench.view.dashboard import live_charts
from merge_bench.view.dashboard.background import Session
from merge_bench.view.dashboard.components import (
    card,
    cards,
    complaints,
    defined,
    figure_pane,
    html,
    listed,
    number,
    select,
)  # fmt: skip
from merge_bench.view.dashboard.index import RUNNING, YOURS, Entry, newest_running
from merge_bench.view.dashboard.live import FAILED, NO_PAIRS, WARNING, Now, Point, Points, now
from merge_bench.view.plot.marks import Picture
from merge_bench.view.report.workers import slowest_of
from merge_bench.view.text import as_html

NEWEST = ""
"""The value of the choice "the newest"."""

_LISTED = 100
_AT_ONCE = 0.6  # seconds of reading, before what was read so far is shown
_CARD = live_charts.HEIGHT + 80

NOTHING = (
    "<p>No run was made into this folder yet. Start one under <b>Run</b>, or with <code>python -m merge_bench</code>; "
    "it appears here by itself.</p>"
)
NO_DASK_PAGES = (
    "Dask's own dashboard: not there. The launcher's scheduler serves it only with --dask-dashboard, because it takes "
    "time from what is measured."
)


@dataclass(frozen=True)
class Update:
    """What was read of a campaign until now; `generation` changes where it began anew."""

    entries: Sequence[Entry] = ()
    entry: Entry | None = None
    generation: tuple[str, int] = ("", 0)
    points: Sequence[Point] = ()
    bandwidth: float | None = None
    now: Now | None = None
    problem: str | None = None
    read: int = 0
    size: int = 0


class LiveView:
    """See the module. `layout` is what a page shows; `refresh` reads and `show` shows, again and again."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]]) -> None:
        self._session, self._listed = session, entries
        self._follower: Follower | None = None
        self._followed: str | None = None
        self._points = Points()
        self._now: Now | None = None
        self._running = False
        self._bandwidth: float | None = None
        self._drawn: tuple[tuple[str, int], int] = ("", 0), 0
        self._shown: tuple[object, ...] | None = None
        self.choice = select(
            "Campaign", {"the newest": NEWEST}, value=NEWEST, width=460,
            description="The newest: one that runs, if there is one.",
        )  # fmt: skip
        self._status = html(height=112)
        self._notes = html(height=180)
        self._slowest = html(height=24)
        self._told = html(height=24)
        self._dask = html(_dask(None), height=24)
        self._legends = (html(height=24), html(height=24))
        self._charts = (live_charts.Rates("throughput"), live_charts.Rates("bandwidth"))
        self._figures = [live_charts.live(picture) for picture in _pictures(None)]
        drawn = [*(chart.figure for chart in self._charts), *(each.figure for each in self._figures)]
        self._panes = [figure_pane(figure) for figure in drawn]
        self.layout = self._lay_out()

    def _lay_out(self) -> Any:
        through, band, workers, phases, pairs, memory = self._panes
        return pn.Column(
            self.choice,
            self._status,
            cards(
                card("Throughput of each iteration", ["Throughput"], self._legends[0], through, height=_CARD),
                card("Bandwidth of each iteration", ["Bandwidth", "Worker"], self._legends[1], band, height=_CARD),
                card("Bandwidth of each worker, last iterations", ["Bandwidth"], self._slowest, workers, height=_CARD),
                card("Time of each worker", ["Partition, exchange, join", "Overlap"], phases, height=_CARD),
                card("Pairs of workers, last iteration", ["Rate of a pair", "Lanes"], pairs, height=_CARD),
                card("Memory of each worker", ["Peak memory", "Launch"], self._told, memory, height=_CARD),
                card("Warnings, and what helps", ["Warnings", "Verified"], self._notes, height=230, width=900),
            ),
            self._dask,
            sizing_mode="stretch_width",
        )  # fmt: skip

    def _offer(self, entries: Sequence[Entry]) -> None:
        mine = [entry for entry in entries if entry.head is not None and entry.origin == YOURS]
        offered = {"the newest": NEWEST}
        offered |= {f"{entry.folder.name} ({entry.status})": entry.id for entry in mine[:_LISTED]}
        if self.choice.value not in offered.values():
            kept = next((entry for entry in entries if entry.id == self.choice.value), None)
            offered |= {kept.folder.name: kept.id} if kept else {}
        if offered != self.choice.options:
            value = self.choice.value if self.choice.value in offered.values() else NEWEST
            self.choice.param.update(options=offered, value=value)

    def refresh(self) -> Update:
        """Read what is new; in a thread."""
        entries = self._listed()
        entry = self._entry(entries)
        if (entry.id if entry else None) != self._followed:
            self._followed = entry.id if entry else None
            self._follower = Follower(entry.folder, lean=True) if entry else None
            self._points, self._now = Points(), None
        follower = self._follower
        if entry is None or follower is None:
            return Update(entries)
        generation, changed, until = follower.generation, self._now is None, time.monotonic() + _AT_ONCE
        while True:
            records = follower.read()
            if follower.generation != generation:
                self._points, self._now, generation = Points(), None, follower.generation
            self._points.add(records)
            changed = changed or bool(records)
            if not follower.behind or time.monotonic() > until:
                break
        running = entry.status == RUNNING
        if (changed or running != self._running) and follower.campaign is not None:
            self._now, self._running = now(follower.campaign, running=running), running
            self._bandwidth = None if self._now.launch is None else self._points.bandwidth(self._now.launch)
        return Update(
            entries,
            entry,
            (entry.id, generation),
            self._points.found,
            self._bandwidth,
            self._now,
            follower.problem,
            follower.offset,
            follower.size,
        )

    def _entry(self, entries: Sequence[Entry]) -> Entry | None:
        if self.choice.value == NEWEST:
            return newest_running(entries)
        return next((entry for entry in entries if entry.id == self.choice.value), None)

    def show(self, update: Update) -> bool:
        """Show what was read; under the document's lock. Gives whether there was anything new to draw."""
        self._offer(update.entries)
        key = update.entry and update.entry.status, update.generation, update.read, update.problem, update.now
        if key == self._shown:
            return False
        self._shown = key
        generation, count = self._drawn
        anew = generation != update.generation
        points = list(update.points)
        for chart, legend in zip(self._charts, self._legends, strict=True):
            chart.add(points if anew else points[count:], anew=anew)
            legend.value = chart.legend
        self._drawn = update.generation, len(points)
        self._status.value = _status(update)
        self._show_now(update.now)
        self._session.push(self._panes)
        return True

    def _show_now(self, found: Now | None) -> None:
        for figure, picture in zip(self._figures, _pictures(found), strict=True):
            figure.show(picture)
        self._slowest.value = _slowest(found) if found else ""
        told = f"Of launch {found.memory.launch}." if found and found.memory else "Each launch tells it at its end."
        self._told.value = f'<p class="soft">{told}</p>'
        self._notes.value = _notes(found) if found else ""
        self._dask.value = _dask(found.dask if found else None)


def _pictures(found: Now | None) -> tuple[Picture, ...]:
    """Of workers, their phases, pairs of them, and their memory."""
    workers, pairs = (found.workers, found.pairs) if found else ((), NO_PAIRS)
    memory = found.memory.workers if found and found.memory else ()
    return live_charts.workers(workers), live_charts.phases(workers), pairs.picture, live_charts.memory(memory)


def _dask(address: str | None) -> str:
    """A link, where the records hold an address of a page: they are data, and may hold anything."""
    if address is None or not re.fullmatch(r"https?://[^\s\"'<>]+", address):
        return f'<p class="soft">{as_html(NO_DASK_PAGES)}</p>'
    link = f'<a href="{as_html(address)}" target="_blank" rel="noopener noreferrer">Dask\'s own dashboard</a>'
    return f"<p>{link} of this launch</p>"


def _status(update: Update) -> str:
    """How far the campaign is, its numbers so far, and what of it was not read."""
    if update.entry is None:
        return NOTHING
    problem = complaints([update.problem] if update.problem else [])
    reading = f"<p>Reading: {format_bytes(update.read)} of {format_bytes(update.size)}.</p>"
    if update.now is None:
        return problem + reading
    progress = update.now.progress
    parts = [f"{progress.launches} of {progress.planned_launches} {defined('launches', 'Launch')}"]
    if progress.planned_iterations:
        parts.append(f"{progress.iterations} of {progress.planned_iterations} {defined('iterations', 'Iteration')}")
    parts.append(as_html(progress.doing))
    if progress.seconds_left is not None:
        parts.append(f"<b>{duration(progress.seconds_left)} left</b>")
    return (
        f'<p><progress value="{progress.share:.4f}" max="1" aria-label="Progress"></progress> '
        f"{progress.share:.0%} · {' · '.join(parts)}</p>"
        f'<div class="numbers">{_numbers(update.points, update.bandwidth, update.now)}</div>'
        f"{problem}{reading if update.read < update.size and not update.problem else ''}"
    )


def duration(seconds: float) -> str:
    """``45 s``, ``3.4 min``, ``2.5 h``: no more digits than an estimate has."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _numbers(points: Sequence[Point], bandwidth: float | None, found: Now) -> str:
    mine = [point for point in points if point.launch == found.launch]
    numbers = {
        "Throughput": format_rate(middle(point.throughput for point in mine)),
        "Bandwidth": format_rate(bandwidth),
        "Wall-clock": format_seconds(middle(point.wall_seconds for point in mine)),
        "Link limit": format_rate(found.limit),
        "Config": found.config or "-",
        "Verified": found.checks or "-",
    }
    return "".join(number(name, value) for name, value in numbers.items())


def _slowest(found: Now) -> str:
    if found.launch is None:
        return ""
    slowest = slowest_of(found.workers)
    worker = next((worker for worker in found.workers if worker.rank == slowest), None)
    if worker is None:
        alone = "one worker sends nothing to others" if len(found.workers) == 1 else "not measured, or all alike"
        return f'<p class="soft">Launch {found.launch}: {alone}.</p>'
    return (
        f"<p>Launch {found.launch}, the slowest (hatched): <b>rank {worker.rank}</b> ({as_html(worker.host)}), "
        f"{format_rate(worker.bandwidth.mean)}</p>"
    )


def _notes(found: Now) -> str:
    if not found.notes:
        return '<p class="soft">None.</p>'
    kinds = {FAILED: f'<b class="bad">{FAILED}</b>', WARNING: WARNING}
    rows = [(kinds[each.kind], as_html(each.message), as_html(each.remedy or "")) for each in found.notes]
    return f'<div class="scroll" tabindex="0" aria-label="Warnings">{listed(rows, ("", "what", "what helps"))}</div>'
