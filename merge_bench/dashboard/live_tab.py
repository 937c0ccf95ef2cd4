"""The Live tab: shows a campaign while it runs, from its records alone."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import gt
from typing import Any

import panel as pn
from bokeh.models import BasicTicker, ColumnDataSource
from bokeh.models.annotations import Legend

from merge_bench.analysis.aggregate import WorkerFigures, median_or_none
from merge_bench.analysis.compare import Metric
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import PageSession
from merge_bench.dashboard.live_data import (
    FAILED,
    WARNING,
    CampaignProgress,
    IterationPoint,
    IterationPoints,
    LiveState,
    make_live_state,
    tuning_stage_html,
)
from merge_bench.records.reader import CampaignFollower
from merge_bench.records.recorded_plan import WALL
from merge_bench.records.results_folder import PROBE, RUNNING, TUNE, YOURS, ResultEntry
from merge_bench.records.schema import WorkerMemory
from merge_bench.report.run_sections import NOT_MEASURED, slowest_rank
from merge_bench.units import GIB, format_bytes, plural_noun
from merge_bench.view.content import group_by_key
from merge_bench.view.plot import (
    GREY,
    Axis,
    Boxes,
    Chart,
    MarkGroup,
    format_with_unit,
    look_of_series,
    stacked_bar_marks,
    thin_ticks,
)
from merge_bench.view.plot.interactive import BokehChart, make_hover_tool
from merge_bench.view.plot.merge import PARTS, phase_milliseconds
from merge_bench.view.text import (
    ShownUnit,
    as_html,
    escape_for_canvas,
    format_gib,
    format_ms,
    keep_options_unbroken,
    mark_unprintable,
    shorten_middle,
)
from merge_bench.view.titles import campaign_choices, join_in_words

_NEWEST = ""
"""The value of the entry "the newest" of the list."""

_MOST_LISTED = 100
_READ_SECONDS = 0.6  # of reading, before what was read so far is shown
_PAIR_CHART = 2
"""The place of the map of pairs of workers in what `_worker_charts` returns."""

NOTHING_YET = LiveState(CampaignProgress())
NOTHING = ui.empty_state_html("run", "run --chunk 1e6")
OTHER_TABS = {TUNE: "The <b>Tuning</b> tab shows its steps.", PROBE: "The <b>Network</b> tab shows what it measured."}
NO_DASK_PAGES = "Dask's own dashboard is off because it slows the measurement down; use --dask-dashboard to turn it on."
HEIGHT = 270
RATES = ("throughput", "bandwidth")
VALUE = "value"
"""The figures of iterations show these fields of their points: two of merges, one of commands."""
_MOST_EXPLAINED = 4
"""Up to so many workers have room for more than their rank below their bars."""
_COLUMNS = ("number", "rate", "colour", "shape", "config", "launch", "iteration", "value", "wall")
"""What each point in `IterationRatesFigure` has; the columns from ``config`` on are shown under the pointer."""


def draw_live_figure(chart: Chart) -> BokehChart:
    """Draw `chart` in the tab's size, without its title and legend."""
    drawn = BokehChart(chart)
    drawn.figure.title = None
    drawn.figure.update(frame_height=None, frame_width=None, height=HEIGHT, sizing_mode="stretch_width")
    drawn.figure.below = [part for part in drawn.figure.below if not isinstance(part, Legend)]
    return drawn


def legend_html(chart: Chart) -> str:
    """HTML of a legend of `chart`: the colour and name of each series that has a bar of any length."""
    symbols = {
        group.label: f'<span style="color: {look_of_series(group.index).colour}">{"□" if mark.white else "■"}</span>'
        for group, mark in chart.marks
        if group.label and isinstance(mark, Boxes) and any(map(gt, mark.end, mark.start))
    }
    return _legend_entries_html(symbols)


class IterationRatesFigure:
    """A figure with a point for the rate of each iteration, in GiB/s; `legend`: HTML that names the configs.

    Of commands, the field ``value``, it has a point for the main metric of each launch.

    Unlike a `Chart` it sends only new points: there may be very many. It has no legend of Bokeh's, because one that
    follows a column fails while the column is empty.
    """

    def __init__(self, field: str) -> None:
        self._field, self._unit, self._title = field, ShownUnit.of("B/s"), "GiB/s"
        self._source = ColumnDataSource({name: [] for name in _COLUMNS})
        self._configs: dict[str, int] = {}
        self._highest, self._last = 0.0, 0
        self._drawn = draw_live_figure(self._empty_chart())
        self.figure = self._drawn.figure
        self.figure.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        points = self.figure.scatter("number", "rate", source=self._source, marker="shape", size=7, color="colour")
        self.figure.add_tools(make_hover_tool(points, _COLUMNS[4:]))

    def _empty_chart(self) -> Chart:
        what = "Launch" if self._field == VALUE else "Timed iteration, over all launches"
        x = Axis(what, low=0.5 - (self._field == VALUE), high=max(self._last, 10) + 0.5)
        return Chart(x, _axis_from_zero(self._title, [self._highest]), (), HEIGHT)

    def show_metric(self, metric: Metric | None) -> None:
        """Show the values of another main metric of a command."""
        if metric is not None:
            self._unit = ShownUnit.of(metric.unit)
            self._title = self._unit.heading(metric.name)
            self.figure.yaxis.axis_label = escape_for_canvas(self._title)

    def add_points(self, points: Sequence[IterationPoint], *, anew: bool) -> None:
        """Add points to the figure; `anew`: remove all others before."""
        scale = self._unit.scale
        measured = [(point, rate * scale) for point in points if (rate := getattr(point, self._field)) is not None]
        columns: dict[str, Any] = {name: [] for name in _COLUMNS}
        for point, rate in measured:
            marker, wall = look_of_series(point.look), f"{point.wall_seconds * 1e3:,.2f} ms"
            drawn = (self._place(point), rate, marker.colour, marker.shape, mark_unprintable(point.config))
            for column, value in zip(
                columns.values(),
                (*drawn, point.launch, point.index, format_with_unit(rate, self._unit.name).rstrip(), wall),
                strict=True,
            ):
                column.append(value)
        if anew:
            self._source.data = columns
            self._highest, self._last, self._configs = 0.0, 0, {}
        elif measured:
            self._source.stream(columns)
        self._highest = max([self._highest, *(rate for _, rate in measured)])
        self._last = self._place(measured[-1][0]) if measured else self._last
        self._configs |= {point.config: point.look for point, _ in measured}
        self._drawn.show_chart(self._empty_chart())

    def _place(self, point: IterationPoint) -> int:
        """The place of a point on the horizontal axis."""
        return point.launch if self._field == VALUE else point.number

    @property
    def legend(self) -> str:
        """HTML of each config's name with its symbol."""
        looks = ((config, look_of_series(number)) for config, number in self._configs.items())
        return _legend_entries_html(
            {name: f'<span style="color: {one.colour}">{one.symbol}</span>' for name, one in looks}
        )


def _legend_entries_html(symbols: Mapping[str, str]) -> str:
    """HTML of a legend: each name with its symbol, which is HTML already."""
    return " ".join(
        f'<span class="entry">{symbol} {as_html(shorten_middle(name, 30))}</span>' for name, symbol in symbols.items()
    )


def worker_bandwidth_chart(figures: Sequence[WorkerFigures], lacking: Mapping[int, str]) -> Chart:
    """Make a chart of the bandwidth of every worker in GiB/s, where the slowest is hatched.

    `lacking`: why workers have no bandwidth, by rank; if there are few, it stands below the place of the bar.
    """
    slowest = slowest_rank(figures)
    measured = [(worker, rate / GIB) for worker in figures if (rate := worker.bandwidth.mean) is not None]
    groups = []
    for slow in (False, True):
        drawn = [(worker, rate) for worker, rate in measured if (worker.rank == slowest) == slow]
        ranks, rates = [worker.rank for worker, _ in drawn], [rate for _, rate in drawn]
        names = [f"{worker.rank} {mark_unprintable(worker.host)}" + " (the slowest)" * slow for worker, _ in drawn]
        details = {"worker": names, "value": [format_with_unit(rate, "GiB/s") for rate in rates]}
        bars = Boxes(ranks, [0.0] * len(ranks), rates, True, hatched=slow, details=details)
        groups.append(MarkGroup(GREY, (bars,)))
    ticks = {worker.rank: str(worker.rank) for worker in figures}
    if len(figures) <= _MOST_EXPLAINED:
        ticks |= {rank: f"{rank}: {why}" for rank, why in lacking.items()}
    return _chart_by_rank("GiB/s", ticks, groups, [rate for _, rate in measured])


def phase_times_chart(figures: Sequence[WorkerFigures]) -> Chart:
    """Make a chart of the milliseconds of every worker in an iteration, by phase."""
    measured = [(worker, parts) for worker in figures if (parts := phase_milliseconds(worker)) is not None]
    rows = {f"{worker.rank} {mark_unprintable(worker.host)}": parts for worker, parts in measured}
    ends, groups = stacked_bar_marks(PARTS, rows, at=[worker.rank for worker, _ in measured], upright=True)
    return _chart_by_rank("ms", {worker.rank: str(worker.rank) for worker in figures}, groups, ends)


def memory_peaks_chart(figures: Sequence[WorkerMemory]) -> Chart:
    """Make a chart of the peak memory of every worker in GiB; a white bar marks the size of the worker's input."""

    def gibibytes(field: str) -> list[float]:
        values = [getattr(worker, field) for worker in figures]
        return [nan if value is None else value / GIB for value in values]

    ranks, inputs = [worker.rank for worker in figures], gibibytes("input_bytes")
    above = ("peak_above_imports_bytes", "above imports", 0, 0.55)
    kinds = (("peak_bytes", "peak", 5, 0.8), above, ("device_peak_bytes", "on the GPU", 2, 0.25))
    groups, highest = [], [*inputs]
    for field, label, index, width in kinds:
        values = gibibytes(field)
        details = {"rank": list(map(str, ranks)), label: [f"{value:,.3f} GiB" for value in values]}
        details["input"] = [f"{value:,.3f} GiB" for value in inputs]
        bars = Boxes(ranks, [0.0] * len(ranks), values, True, width=width, details=details)
        groups.append(MarkGroup(index, (bars,), label))
        highest += values
    half = 0.008 * max((value for value in highest if value == value), default=0.0)
    low, high = [size - half for size in inputs], [size + half for size in inputs]
    groups.append(MarkGroup(1, (Boxes(ranks, low, high, True, width=0.9, white=True),), "its input"))
    return _chart_by_rank("GiB", {rank: str(rank) for rank in ranks}, groups, highest)


def _chart_by_rank(unit: str, names: Mapping[int, str], groups: Sequence[MarkGroup], values: Iterable[float]) -> Chart:
    """Make a chart with a place for every rank; `names`: texts below the places; `values`: what the y axis covers."""
    x = Axis("Rank", thin_ticks(names, 32), min(names, default=0) - 0.5, max(names, default=0) + 0.5)
    return Chart(x, _axis_from_zero(unit, values), tuple(groups), HEIGHT)


def _axis_from_zero(unit: str, values: Iterable[float]) -> Axis:
    """An axis from 0 to a little more than the highest of `values`."""
    high = max((value for value in values if value == value), default=0.0)
    return Axis(unit, low=0.0, high=1.08 * high if high > 0 else 1.0)


@dataclass(frozen=True)
class LiveUpdate:
    """What `LiveView` reads for an update: the points and state of a campaign so far.

    `points`: another object if the campaign changed or is read anew; `read`, `size`: bytes of the records.
    """

    points: IterationPoints
    entries: Sequence[ResultEntry]
    entry: ResultEntry | None = None
    bandwidth: float | None = None
    now: LiveState | None = None
    problem: str | None = None
    read: int = 0
    size: int = 0


def find_campaign_to_show(entries: Sequence[ResultEntry]) -> ResultEntry | None:
    """Return the newest campaign that runs, or else the newest in the folder itself; None if there is none."""
    running = (entry for entry in entries if entry.written and entry.status == RUNNING)
    yours = (entry for entry in entries if entry.origin == YOURS and entry.head is not None)
    return next(itertools.chain(running, yours), None)


class LiveView:
    """The Live tab. At first it follows the newest campaign."""

    def __init__(self, session: PageSession, entries: Callable[[], Sequence[ResultEntry]]) -> None:
        self._session, self._entries = session, entries
        self._follower: CampaignFollower | None = None
        self._followed: str | None = None
        self._points = IterationPoints()
        self._now: LiveState | None = None
        self._running = False
        self._bandwidth: float | None = None
        self._drawn: tuple[IterationPoints | None, int] = None, 0
        self._shown: tuple[object, ...] | None = None
        about = "The newest: a running campaign, or else the last one."
        newest = {"the newest": _NEWEST}
        self.choice = ui.make_select("Campaign (times in UTC)", newest, value=_NEWEST, width=640, description=about)
        self._status, self._slowest, self._dask = (
            ui.html_text(min_height=84),
            ui.html_text(min_height=24),
            ui.html_text(height=24),
        )
        self._notes, self._source = ui.html_text(), ui.html_text()
        self._conclusion = ui.html_text(stylesheets=[ui.style_sheet("text"), ui.style_sheet("conclusion")])
        self._rates, self._phases, self._memory = ui.html_text(), ui.html_text(), ui.html_text()
        self._concluded = ui.make_card("Conclusion", [], self._conclusion, width=None)
        self._concluded.visible = False
        self._charts = tuple(IterationRatesFigure(name) for name in (*RATES, VALUE))
        self._legends = tuple(ui.html_text() for _ in self._charts)
        self._figures = [draw_live_figure(picture) for picture in _worker_charts(NOTHING_YET)]
        drawn = [*(chart.figure for chart in self._charts), *(each.figure for each in self._figures)]
        self._panes = [pn.pane.Bokeh(figure, sizing_mode=ui.WIDE, margin=0) for figure in drawn]
        self._cards = self._make_cards()
        parts = (self.choice, self._source, self._status, self._concluded, ui.make_card_row(*self._cards), self._dask)
        self.layout = pn.Column(*parts, sizing_mode=ui.WIDE)

    def _make_cards(self) -> tuple[Any, ...]:
        """Make a hidden card for each figure, in their order, and one for warnings."""
        through, band, values, rates, phases, pairs, memory = self._panes
        cards = (
            ui.make_card("Throughput of each iteration", ["Throughput"], self._legends[0], through),
            ui.make_card("Bandwidth of each iteration", ["Bandwidth", "Worker"], self._legends[1], band),
            ui.make_card("Main metric of each launch", ["Metric", "Launch"], self._legends[2], values),
            ui.make_card("Bandwidth of each worker, last iterations", ["Bandwidth"], self._slowest, rates),
            ui.make_card("Time of each worker", ["Partition, exchange, join", "Overlap"], self._phases, phases),
            ui.make_card("Pairs of workers, last iteration", ["Rate of a pair", "Lanes"], self._rates, pairs),
            ui.make_card("Memory of each worker", ["Peak memory", "Launch"], self._memory, memory),
            ui.make_card("Warnings and remedies", ["Warnings", "Verified"], self._notes, width=900),
        )
        for card in cards:
            card.visible = False
        return cards

    def _offer_campaigns(self, entries: Sequence[ResultEntry]) -> None:
        own = (entry for entry in entries if entry.head is not None and entry.origin == YOURS)
        options = {"the newest": _NEWEST}
        options |= campaign_choices(list(itertools.islice(own, _MOST_LISTED)))
        if self.choice.value not in options.values():
            options |= campaign_choices([entry for entry in entries if entry.id == self.choice.value])
        ui.change_options(self.choice, options, _NEWEST)

    def choose_newest(self) -> None:
        self.choice.value = _NEWEST

    def read_update(self) -> LiveUpdate:
        """Read what is new in the records of the chosen campaign (in a thread)."""
        entries = self._entries()
        newest, value = find_campaign_to_show(entries), self.choice.value
        entry = newest if value == _NEWEST else next((entry for entry in entries if entry.id == value), None)
        if (entry.id if entry else None) != self._followed:
            self._followed = entry.id if entry else None
            self._follower = CampaignFollower(entry.folder, lean=True) if entry else None
            self._points, self._now = IterationPoints(), None
        follower = self._follower
        if entry is None or follower is None:
            return LiveUpdate(self._points, entries)
        generation, changed, until = follower.generation, self._now is None, time.monotonic() + _READ_SECONDS
        while True:
            records = follower.read()
            if follower.generation != generation:
                self._points, self._now, generation = IterationPoints(), None, follower.generation
            self._points.add_records(records)
            changed = changed or bool(records)
            if not follower.has_more or time.monotonic() > until:
                break
        running = entry.status == RUNNING
        if (changed or running != self._running) and follower.campaign is not None:
            self._now, self._running = make_live_state(follower.campaign, running=running), running
            self._bandwidth = None if self._now.launch is None else self._points.launch_bandwidth(self._now.launch)
        return LiveUpdate(
            self._points, entries, entry, self._bandwidth, self._now, follower.problem, follower.offset, follower.size
        )

    def show_update(self, update: LiveUpdate) -> bool:
        """Show what `read_update` returned, under the document's lock; returns whether anything was new."""
        self._offer_campaigns(update.entries)
        if update.read < update.size and not update.problem:
            self._session.request_update()  # read the rest at once, whatever the pace
        key = update.entry and update.entry.status, update.points, update.read, update.problem, update.now
        if key == self._shown:
            return False
        self._shown = key
        drawn, count = self._drawn
        anew = drawn is not update.points
        points = list(update.points.timed)
        self._charts[-1].show_metric(update.points.metric)
        for chart, legend in zip(self._charts, self._legends, strict=True):
            chart.add_points(points if anew else points[count:], anew=anew)
            legend.value = chart.legend
        self._drawn = update.points, len(points)
        has_rates = [any(getattr(point, rate) is not None for point in points) for rate in (*RATES, VALUE)]
        self._status.value = _status_html(update)
        self._show_state(update.now or NOTHING_YET, has_rates)
        self._session.push_figures(self._panes)
        return True

    def _show_state(self, state: LiveState, has_rates: Sequence[bool]) -> None:
        """Show `state`, and only cards that have content; `has_rates`: whether figures of iterations do."""
        pictures = _worker_charts(state)
        for figure, picture in zip(self._figures, pictures, strict=True):
            figure.show_chart(picture)
        workers, phases, pairs, memory = (not picture.empty for picture in pictures)
        rates = bool(state.rates)  # too few workers for a map
        self._rates.value = (
            f"<p>Rate in GiB/s, from row to column</p>{ui.html_table_from_columns(state.rates)}" if rates else ""
        )
        self._figures[_PAIR_CHART].figure.visible, self._rates.visible = pairs, rates
        explained = len(state.workers) > 1 and any(why != NOT_MEASURED for why in state.lacking.values())
        filled = (*has_rates, workers or explained, phases, pairs or rates, memory, bool(state.notes))
        for card, has_content in zip(self._cards, filled, strict=True):
            card.visible = has_content
        self._source.value = f'<p class="soft">{as_html(state.source)}</p>' if state.source else ""
        self._conclusion.value, self._concluded.visible = state.conclusion, bool(state.conclusion)
        self._slowest.value = _slowest_worker_html(state)
        self._phases.value = legend_html(pictures[1])
        launch = f"Launch {state.memory.launch}: " if state.memory else ""
        self._memory.value = launch + legend_html(pictures[3])
        self._notes.value = _failures_and_warnings_html(state)
        self._dask.value = _dask_link_html(state.dask) if state.launch is not None and not state.of_command else ""


def _worker_charts(state: LiveState) -> tuple[Chart, ...]:
    """The charts of the workers' bandwidths, of their phases, of their pairs, and of their memory."""
    bandwidths, memory = worker_bandwidth_chart(state.workers, state.lacking), state.memory
    return (
        bandwidths,
        phase_times_chart(state.workers),
        state.pairs,
        memory_peaks_chart(memory.workers if memory else ()),
    )


def _dask_link_html(address: str | None) -> str:
    """HTML of a link to Dask's own dashboard, if `address` is that of a page: records may hold anything."""
    if address is None or not re.fullmatch(r"https?://[^\s\"'<>]+", address):
        return f'<p class="soft">{as_html(NO_DASK_PAGES)}</p>'
    link = f'<a href="{as_html(address)}" target="_blank" rel="noopener noreferrer">Dask\'s own dashboard</a>'
    return f"<p>{link} of this launch</p>"


def _status_html(update: LiveUpdate) -> str:
    """HTML of the progress of a campaign, its figures so far, and how much of its records is read."""
    if update.entry is None:
        return NOTHING
    ended_by = update.now.fatal if update.now is not None else ()
    problem = ui.problems_html([*([update.problem] if update.problem else []), *ended_by])
    reading = f"<p>Reading: {format_bytes(update.read)} of {format_bytes(update.size)}.</p>"
    if update.now is None:
        return problem + reading
    progress, kind = update.now.progress, update.entry.kind
    parts = [
        f"{_count_of_total_text(progress.launches, progress.planned_launches)} "
        f"{ui.word_with_definition('launches', 'Launch')} finished"
    ]
    parts += [f'<b class="bad">{progress.failed} failed</b>'] if progress.failed else []
    if progress.planned_iterations or progress.iterations:
        iterations = _count_of_total_text(progress.iterations, progress.planned_iterations)
        parts.append(f"{iterations} {ui.word_with_definition('iterations', 'Iteration')}")
    parts += [as_html(progress.doing)] if progress.stage is None else []
    parts += [sentence for name, sentence in OTHER_TABS.items() if kind.startswith(name)]
    left = f"<p><b>{as_html(progress.left)}</b></p>" if progress.left else ""
    doubt = ui.caution_html(update.now.doubt) if update.now.doubt else ""
    return (
        f"{ui.progress_html(progress.share, *parts)}{tuning_stage_html(progress)}{left}{problem}"
        f"{_figure_tiles(update.points, update.bandwidth, update.now)}{doubt}"
        f"{reading if update.read < update.size and not update.problem else ''}"
    )


def _count_of_total_text(count: int, planned: int | None) -> str:
    return f"{count:,}" if planned is None else f"{count:,} of {planned:,}"


def _figure_tiles(points: IterationPoints, bandwidth: float | None, state: LiveState) -> str:
    """HTML of large figures: of the last launch, or of an ended campaign's fastest config."""
    tiles = {"Verified": state.checks} if state.checks else {}
    tiles |= state.figures if state.conclusion else _last_launch_figures(points, bandwidth, state)
    kind = "good" if "all passed" in state.checks else "bad" if "wrong" in state.checks else ""
    large = "".join(ui.tile_html(name, value, kind if name == "Verified" else "") for name, value in tiles.items())
    above = "<p>Of the last launch; checks of all launches:</p>" if "Launch" in tiles else ""
    return f'{above}<div class="tiles">{large}</div>'


def _last_launch_figures(points: IterationPoints, bandwidth: float | None, state: LiveState) -> dict[str, str]:
    last = [point for point in points.timed if point.launch == state.launch]
    throughput = median_or_none(point.throughput for point in last)
    rates = {"Throughput": throughput, "Bandwidth": bandwidth, "Link limit": state.limit}
    several = state.launch is not None and any(point.launch != state.launch for point in points.timed)
    numbers = {"Launch": str(state.launch)} if several else {}  # the numbers are those of one of several launches
    numbers |= {name: f"{format_gib(rate)} GiB/s" for name, rate in rates.items() if rate is not None}
    if points.metric is not None and last:
        unit = ShownUnit.of(points.metric.unit)
        numbers[points.metric.name] = unit.format_value(median_or_none(each.value for each in last), with_unit=True)
    if last and (points.metric is None or points.metric.name != WALL):
        numbers["Wall-clock"] = f"{format_ms(median_or_none(point.wall_seconds for point in last))} ms"
    return numbers | ({"Config": state.config} if state.config else {})


def _slowest_worker_html(state: LiveState) -> str:
    """HTML of a sentence that names the slowest worker of a launch, or why there is none."""
    if state.launch is None:
        return ""
    slowest = slowest_rank(state.workers)
    worker = next((worker for worker in state.workers if worker.rank == slowest), None)
    alike = group_by_key(state.lacking, lambda rank: state.lacking[rank])  # ranks with the same reason together
    lacking = "; ".join(f"{_ranks_text(ranks)}: {why}" for why, ranks in alike.items())
    if worker is not None:
        who = f"<b>rank {worker.rank}</b> ({as_html(worker.host)}), {format_gib(worker.bandwidth.mean)} GiB/s"
        return f"<p>Slowest worker of launch {state.launch} (hatched): {who}{f'; {lacking}' if lacking else ''}</p>"
    measured = [worker.rank for worker in state.workers if worker.rank not in state.lacking]
    some = _ranks_text(measured) if lacking else "all workers"
    none = f": {some} have the same bandwidth" if len(measured) > 1 else ""
    none += f", {lacking}" if lacking else ""
    none = ": one worker sends nothing to others" if len(state.workers) == 1 else none
    return f'<p class="soft">Launch {state.launch}{none}.</p>'


def _ranks_text(ranks: Sequence[int]) -> str:
    return f"{plural_noun(len(ranks), 'rank')} {join_in_words(map(str, ranks))}"


def _failures_and_warnings_html(state: LiveState) -> str:
    kinds = {FAILED: f'<b class="bad">{FAILED}</b>', WARNING: WARNING}
    rows = []
    for note in state.notes:
        where = f'<br><span class="soft">{as_html(note.where)}</span>' if note.where else ""
        rows.append(
            (kinds[note.kind], as_html(note.message) + where, keep_options_unbroken(as_html(note.remedy or "")))
        )
    table = ui.html_table_from_rows(rows, ("", "Message", "Remedy"))
    return f'<div class="list" tabindex="0" aria-label="Warnings">{table}</div>'
