"""The Live tab: shows a campaign while it runs, from its records alone."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import panel as pn

from merge_bench.analysis.aggregate import median_or_none
from merge_bench.dashboard import components as ui
from merge_bench.dashboard import live_charts
from merge_bench.dashboard.background import Session
from merge_bench.dashboard.live_data import FAILED, NO_PAIRS, WARNING, LiveState, Point, Points, live_state
from merge_bench.records.reader import Follower
from merge_bench.records.results_folder import PROBE, RUNNING, TUNE, YOURS, Entry
from merge_bench.report.workers import NOT_MEASURED, slowest_rank
from merge_bench.units import format_bytes, plural_noun
from merge_bench.view.content import grouped
from merge_bench.view.numbers import gib, ms
from merge_bench.view.plot.marks import Chart
from merge_bench.view.text import as_html, unbroken
from merge_bench.view.titles import entry_choices, listed

_NEWEST = ""
"""The value of the entry "the newest" of the list."""

_MOST_LISTED = 100
_READ_SECONDS = 0.6  # of reading, before what was read so far is shown
_PAIR_CHART = 2
"""The place of the map of pairs of workers in what `_charts_of` returns."""

NOTHING = ui.nothing_yet("run", "run --chunk 1e6")
OTHER_TABS = {
    TUNE: "The <b>Tuning</b> tab shows its steps.",
    PROBE: "The <b>Network</b> tab shows what it measured.",
}
NO_DASK_PAGES = "Dask's own dashboard is off because it slows the measurement down; use --dask-dashboard to turn it on."


@dataclass(frozen=True)
class Update:
    """What was read of a campaign so far; `points` is another object if the campaign changed or is read anew."""

    points: Points
    entries: Sequence[Entry]
    entry: Entry | None = None
    bandwidth: float | None = None
    now: LiveState | None = None
    problem: str | None = None
    read: int = 0
    size: int = 0


def newest_running(entries: Sequence[Entry]) -> Entry | None:
    """The campaign to show: the newest that runs, or else the newest in the folder itself; None if there is none."""
    running = (entry for entry in entries if entry.written and entry.status == RUNNING)
    yours = (entry for entry in entries if entry.origin == YOURS and entry.head is not None)
    return next(itertools.chain(running, yours), None)


class LiveView:
    """The Live tab."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]]) -> None:
        self._session, self._entries = session, entries
        self._follower: Follower | None = None
        self._followed: str | None = None
        self._points = Points()
        self._now: LiveState | None = None
        self._running = False
        self._bandwidth: float | None = None
        self._drawn: tuple[Points | None, int] = None, 0
        self._shown: tuple[object, ...] | None = None
        self.choice = ui.select(
            "Campaign (times in UTC)", {"the newest": _NEWEST}, value=_NEWEST, width=640,
            description="The newest: a running campaign, or else the last one.",
        )  # fmt: skip
        self._status = ui.html(min_height=84)
        self._notes = ui.html()
        self._source = ui.html()
        self._conclusion = ui.html()
        self._concluded = ui.card("Conclusion", [], self._conclusion, width=None)
        self._concluded.visible = False
        self._slowest = ui.html(min_height=24)
        self._rates = ui.html()
        self._phases, self._memory = ui.html(), ui.html()
        self._dask = ui.html(height=24)
        self._legends = (ui.html(), ui.html())
        self._charts = (live_charts.Rates("throughput"), live_charts.Rates("bandwidth"))
        self._figures = [live_charts.live_figure(picture) for picture in _charts_of(None)]
        drawn = [*(chart.figure for chart in self._charts), *(each.figure for each in self._figures)]
        self._panes = [ui.figure_pane(figure) for figure in drawn]
        self._cards = self._make_cards()
        self.layout = pn.Column(
            self.choice, self._source, self._status, self._concluded, ui.cards(*self._cards), self._dask,
            sizing_mode=ui.WIDE,
        )  # fmt: skip

    def _make_cards(self) -> tuple[Any, ...]:
        """Make a card for each figure, in their order, and one for warnings; all hidden until something is known."""
        through, band, rates, phases, pairs, memory = self._panes
        cards = (
            ui.card("Throughput of each iteration", ["Throughput"], self._legends[0], through),
            ui.card("Bandwidth of each iteration", ["Bandwidth", "Worker"], self._legends[1], band),
            ui.card("Bandwidth of each worker, last iterations", ["Bandwidth"], self._slowest, rates),
            ui.card("Time of each worker", ["Partition, exchange, join", "Overlap"], self._phases, phases),
            ui.card("Pairs of workers, last iteration", ["Rate of a pair", "Lanes"], self._rates, pairs),
            ui.card("Memory of each worker", ["Peak memory", "Launch"], self._memory, memory),
            ui.card("Warnings and remedies", ["Warnings", "Verified"], self._notes, width=900),
        )
        for card in cards:
            card.visible = False
        return cards

    def _offer_campaigns(self, entries: Sequence[Entry]) -> None:
        own = (entry for entry in entries if entry.head is not None and entry.origin == YOURS)
        options = {"the newest": _NEWEST}
        options |= entry_choices(list(itertools.islice(own, _MOST_LISTED)))
        if self.choice.value not in options.values():
            options |= entry_choices([entry for entry in entries if entry.id == self.choice.value])
        ui.change_options(self.choice, options, _NEWEST)

    def choose_newest(self) -> None:
        """Follow the newest campaign, whatever was chosen."""
        self.choice.value = _NEWEST

    def refresh(self) -> Update:
        """Read what is new in the records of the chosen campaign; in a thread."""
        entries = self._entries()
        entry = self._chosen_entry(entries)
        if (entry.id if entry else None) != self._followed:
            self._followed = entry.id if entry else None
            self._follower = Follower(entry.folder, lean=True) if entry else None
            self._points, self._now = Points(), None
        follower = self._follower
        if entry is None or follower is None:
            return Update(self._points, entries)
        generation, changed, until = follower.generation, self._now is None, time.monotonic() + _READ_SECONDS
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
            self._now, self._running = live_state(follower.campaign, running=running), running
            self._bandwidth = None if self._now.launch is None else self._points.bandwidth(self._now.launch)
        return Update(
            self._points, entries, entry, self._bandwidth, self._now, follower.problem, follower.offset, follower.size
        )

    def _chosen_entry(self, entries: Sequence[Entry]) -> Entry | None:
        if self.choice.value == _NEWEST:
            return newest_running(entries)
        return next((entry for entry in entries if entry.id == self.choice.value), None)

    def show(self, update: Update) -> bool:
        """Show what `refresh` returned, under the document's lock; returns whether anything was new."""
        self._offer_campaigns(update.entries)
        if update.read < update.size and not update.problem:
            self._session.touch()  # read the rest at once, whatever the pace
        key = update.entry and update.entry.status, update.points, update.read, update.problem, update.now
        if key == self._shown:
            return False
        self._shown = key
        drawn, count = self._drawn
        anew = drawn is not update.points
        points = list(update.points.timed)
        for chart, legend in zip(self._charts, self._legends, strict=True):
            chart.add(points if anew else points[count:], anew=anew)
            legend.value = chart.legend
        self._drawn = update.points, len(points)
        has_rates = [any(getattr(point, rate) is not None for point in points) for rate in ("throughput", "bandwidth")]
        self._status.value = _status_html(update)
        self._show_state(update.now, has_rates)
        self._session.push_figures(self._panes)
        return True

    def _show_state(self, state: LiveState | None, has_rates: Sequence[bool]) -> None:
        """Show `state`, and only cards that have content; `has_rates`: whether the two figures of iterations do."""
        pictures = _charts_of(state)
        for figure, picture in zip(self._figures, pictures, strict=True):
            figure.show(picture)
        noted = state is not None and bool(state.notes)
        filled = [*has_rates, *(not picture.empty for picture in pictures), noted]
        filled[len(has_rates)] |= state is not None and _bandwidth_expected(state)
        mapped, self._rates.value = filled[len(has_rates) + _PAIR_CHART], _pair_rates_html(state) if state else ""
        filled[len(has_rates) + _PAIR_CHART] |= bool(self._rates.value)
        for card, has_content in zip(self._cards, filled, strict=True):
            card.visible = has_content
        self._figures[_PAIR_CHART].figure.visible, self._rates.visible = mapped, bool(self._rates.value)
        self._source.value = f'<p class="soft">{as_html(state.source)}</p>' if state and state.source else ""
        self._conclusion.value = state.conclusion if state else ""
        self._concluded.visible = bool(self._conclusion.value)
        self._slowest.value = _slowest_worker_html(state) if state else ""
        _, phases, _, memory = pictures
        self._phases.value = live_charts.legend_of(phases)
        launch = f"Launch {state.memory.launch}: " if state and state.memory else ""
        self._memory.value = launch + live_charts.legend_of(memory)
        self._notes.value = _notes_table(state) if state else ""
        self._dask.value = _dask_link(state.dask) if state and state.launch is not None else ""


def _charts_of(state: LiveState | None) -> tuple[Chart, ...]:
    """The charts of the workers' bandwidths, of their phases, of their pairs, and of their memory."""
    workers, lacking, pairs = (state.workers, state.lacking, state.pairs) if state else ((), {}, NO_PAIRS)
    memory = live_charts.memory_peaks(state.memory.workers if state and state.memory else ())
    return live_charts.worker_bandwidths(workers, lacking), live_charts.phase_times(workers), pairs, memory


def _dask_link(address: str | None) -> str:
    """HTML of a link to Dask's own dashboard, if `address` is that of a page: records may hold anything."""
    if address is None or not re.fullmatch(r"https?://[^\s\"'<>]+", address):
        return f'<p class="soft">{as_html(NO_DASK_PAGES)}</p>'
    link = f'<a href="{as_html(address)}" target="_blank" rel="noopener noreferrer">Dask\'s own dashboard</a>'
    return f"<p>{link} of this launch</p>"


def _status_html(update: Update) -> str:
    """HTML of how far the campaign is, its figures so far, and how much of its records is not read yet."""
    if update.entry is None:
        return NOTHING
    ended_by = update.now.fatal if update.now is not None else ()
    problem = ui.problem_lines([*([update.problem] if update.problem else []), *ended_by])
    reading = f"<p>Reading: {format_bytes(update.read)} of {format_bytes(update.size)}.</p>"
    if update.now is None:
        return problem + reading
    progress, kind = update.now.progress, update.entry.kind
    parts = [f"{_of_total(progress.launches, progress.planned_launches)} {ui.with_tip('launches', 'Launch')} finished"]
    parts += [f'<b class="bad">{progress.failed} failed</b>'] if progress.failed else []
    if progress.planned_iterations or progress.iterations:
        iterations = _of_total(progress.iterations, progress.planned_iterations)
        parts.append(f"{iterations} {ui.with_tip('iterations', 'Iteration')}")
    parts += [as_html(progress.doing)] if progress.stage is None else []
    parts += [sentence for name, sentence in OTHER_TABS.items() if kind.startswith(name)]
    left = f"<p><b>{as_html(progress.left)}</b></p>" if progress.left else ""
    doubt = ui.caution_line(update.now.doubt) if update.now.doubt else ""
    return (
        f"{ui.progress_line(progress.share, *parts)}{ui.stage_line(progress)}{left}{problem}"
        f"{_figure_tiles(update.points.timed, update.bandwidth, update.now)}{doubt}"
        f"{reading if update.read < update.size and not update.problem else ''}"
    )


def _of_total(count: int, planned: int | None) -> str:
    return f"{count:,}" if planned is None else f"{count:,} of {planned:,}"


def _figure_tiles(points: Sequence[Point], bandwidth: float | None, state: LiveState) -> str:
    """HTML of the large figures: of the last launch, and once the campaign has ended, of its fastest config."""
    tiles = {"Verified": state.checks} if state.checks else {}
    tiles |= state.figures if state.conclusion else _last_launch_figures(points, bandwidth, state)
    kind = "good" if "all passed" in state.checks else "bad" if "wrong" in state.checks else ""
    large = "".join(ui.tile(name, value, kind if name == "Verified" else "") for name, value in tiles.items())
    above = "<p>Of the last launch; checks of all launches:</p>" if "Launch" in tiles else ""
    return f'{above}<div class="tiles">{large}</div>'


def _last_launch_figures(points: Sequence[Point], bandwidth: float | None, state: LiveState) -> dict[str, str]:
    last = [point for point in points if point.launch == state.launch]
    rates = {
        "Throughput": median_or_none(point.throughput for point in last),
        "Bandwidth": bandwidth,
        "Link limit": state.limit,
    }  # fmt: skip
    several = state.launch is not None and any(point.launch != state.launch for point in points)
    numbers = {"Launch": str(state.launch)} if several else {}  # the numbers are those of one of several launches
    numbers |= {name: f"{gib(rate)} GiB/s" for name, rate in rates.items() if rate is not None}
    if last:
        numbers["Wall-clock"] = f"{ms(median_or_none(point.wall_seconds for point in last))} ms"
    return numbers | ({"Config": state.config} if state.config else {})


def _bandwidth_expected(state: LiveState) -> bool:
    """Whether the card of the workers' bandwidths is shown even without any: it says why there is none."""
    return len(state.workers) > 1 and any(why != NOT_MEASURED for why in state.lacking.values())


def _slowest_worker_html(state: LiveState) -> str:
    if state.launch is None:
        return ""
    slowest = slowest_rank(state.workers)
    worker = next((worker for worker in state.workers if worker.rank == slowest), None)
    if worker is None:
        return f'<p class="soft">Launch {state.launch}{_no_slowest_text(state)}.</p>'
    lacking = _lacking_text(state.lacking)
    return (
        f"<p>Slowest worker of launch {state.launch} (hatched): <b>rank {worker.rank}</b> ({as_html(worker.host)}), "
        f"{gib(worker.bandwidth.mean)} GiB/s{f'; {lacking}' if lacking else ''}</p>"
    )


def _no_slowest_text(state: LiveState) -> str:
    """Why none of the workers is the slowest, as the end of a sentence."""
    if len(state.workers) == 1:
        return ": one worker sends nothing to others"
    measured = [worker.rank for worker in state.workers if worker.rank not in state.lacking]
    some = "all workers" if not state.lacking else _listed_ranks(measured)
    same = f": {some} have the same bandwidth" if len(measured) > 1 else ""
    return same + (f", {_lacking_text(state.lacking)}" if state.lacking else "")


def _lacking_text(reasons: Mapping[int, str]) -> str:
    """``rank 1: sent nothing in these 5 iterations``, with the ranks of the same reason together."""
    alike = grouped(reasons, lambda rank: reasons[rank])
    return "; ".join(f"{_listed_ranks(ranks)}: {why}" for why, ranks in alike.items())


def _listed_ranks(ranks: Sequence[int]) -> str:
    return f"{plural_noun(len(ranks), 'rank')} {listed(map(str, ranks))}"


def _pair_rates_html(state: LiveState) -> str:
    """HTML of a table of the rates of pairs of workers, if there are too few workers for a map."""
    return f"<p>Rate in GiB/s, from row to column</p>{ui.column_table(state.rates)}" if state.rates else ""


def _notes_table(state: LiveState) -> str:
    kinds = {FAILED: f'<b class="bad">{FAILED}</b>', WARNING: WARNING}
    rows = [
        (
            kinds[each.kind],
            as_html(each.message) + (f'<br><span class="soft">{as_html(each.where)}</span>' if each.where else ""),
            unbroken(as_html(each.remedy or "")),
        )
        for each in state.notes
    ]
    return f'<div class="list" tabindex="0" aria-label="Warnings">{ui.row_table(rows, ("", "Message", "Remedy"))}</div>'
