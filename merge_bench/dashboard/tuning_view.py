"""The Tuning tab: how a config was found, step by step, and the file to keep."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.models.annotations import Legend, LegendItem, Span
from bokeh.plotting import figure

from merge_bench.dashboard.asking import answered
from merge_bench.dashboard.index import TUNE, Entry
from merge_bench.dashboard.library import Library
from merge_bench.dashboard.parts import card, chart_card, figure_pane, html, said, select, side_by_side, table
from merge_bench.dashboard.session import Session
from merge_bench.dashboard.tuning import TERMS, Step, Tuned, tuned
from merge_bench.plot.style import NEUTRAL, look, plain

_LISTED = 100


@dataclass(frozen=True)
class Update:
    """What there is to choose from, and what was chosen comes to."""

    entries: tuple[Entry, ...]
    answer: Tuned


class TuningView:
    """See the module."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._session, self._listed, self._library = session, entries, library
        self._asked: tuple[Entry | None] | None = None
        self._answer = Tuned()
        self._shown: Tuned | None = None
        self._text = ""
        self.choice = select("Tuning", {"none yet": ""}, width=460)
        self.download = pn.widgets.FileDownload(
            callback=lambda: io.StringIO(self._text), filename="tuned.cfg", label="Download the config",
            color="primary", width=220, disabled=True, embed=False,
        )  # fmt: skip
        self._outcome = html(height=70)
        self._rest = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self.layout = pn.Column(
            side_by_side(self.choice, self.download), self._outcome, self._rest,
            sizing_mode="stretch_width",
        )  # fmt: skip

    def refresh(self) -> Update:
        """Read the chosen campaign as far as it goes; in a thread."""
        entries = tuple(entry for entry in self._listed() if entry.kind == TUNE)[:_LISTED]
        chosen = next((entry for entry in entries if entry.id == self.choice.value), next(iter(entries), None))
        if self._asked != (chosen,):

            def make() -> Tuned:
                return tuned(self._library.load([chosen])[0] if chosen is not None else None)

            self._asked, self._answer = (chosen,), answered(make, lambda problem: Tuned(problems=(problem,)))
        return Update(entries, self._answer)

    def show(self, update: Update) -> None:
        """Show it; under the document's lock."""
        options = {entry.folder.name: entry.id for entry in update.entries} or {"none yet": ""}
        if options != self.choice.options:
            value = self.choice.value if self.choice.value in options.values() else next(iter(options.values()))
            self.choice.param.update(options=options, value=value)
        if update.answer is self._shown:
            return
        found = self._shown = update.answer
        self._text = found.config or ""
        self.download.param.update(disabled=found.config is None, filename=found.file_name)
        bad = "".join(f'<p class="bad">{said(each)}</p>' for each in found.problems)
        self._outcome.value = bad + "".join(f"<p><b>{said(each)}</b></p>" for each in found.outcome)
        self._rest.objects = list(_laid_out(found))


def _laid_out(found: Tuned) -> Sequence[Any]:
    parts: list[Any] = []
    if found.race:
        drawn = figure_pane(race_figure(found.race))
        part = card("The race as it ran", ["Speed-up", "95 % interval", "Phase"], drawn, height=390)
        part.styles = {"flex": "none"}
        parts.append(part)
    parts += [chart_card(chart) for chart in found.charts]
    if isinstance(found.frame, pd.DataFrame):
        parts.append(
            table(
                found.frame,
                height=430,
                terms=TERMS,
                pagination="local",
                page_size=10,
                widths={"Why": 360, "Config": 200},
            )
        )
    return parts


def race_figure(steps: Sequence[Step]) -> Any:
    """Speed-ups with their intervals over the time at which they were decided; a colour and a marker a decision."""
    plot: Any = figure(
        height=340, sizing_mode="stretch_width", tools="pan,box_zoom,xwheel_zoom,reset,save", active_drag="box_zoom",
        x_axis_label="Minutes since the campaign began", y_axis_label="Speed-up (×)",
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.add_layout(Span(location=1.0, dimension="width", line_color=NEUTRAL, line_dash="dashed"))
    items: list[Any] = []
    for decision, place in dict.fromkeys((step.decision, step.look) for step in steps):
        seen, mine = look(place), [step for step in steps if step.decision == decision]
        names = ("number", "minutes", "ratio", "low", "high", "phase", "decision", "what", "why")
        source = ColumnDataSource({name: [getattr(step, name) for step in mine] for name in names})
        bars = plot.segment("minutes", "low", "minutes", "high", source=source, line_color=seen.colour, line_width=2)
        points = plot.scatter(
            "minutes", "ratio", source=source, marker=seen.shape, size=9, line_color=seen.colour, fill_color=seen.colour
        )
        tips = [
            (name, f"@{{{name}}}") for name in ("number", "phase", "what", "ratio", "low", "high", "decision", "why")
        ]
        plot.add_tools(HoverTool(renderers=[points], tooltips=tips, visible=False))
        items.append(LegendItem(label=plain(decision), renderers=[bars, points]))
    legend = Legend(items=items, orientation="horizontal", border_line_color=None, location="left", click_policy="hide")
    plot.add_layout(legend, "below")
    return plot
