"""The Network tab: network measurements over message size, several campaigns and published series together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import published
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared.measures import measure_of, placed
from merge_bench.probe.shared.stored import label_rows
from merge_bench.records.probe_rows import Row
from merge_bench.view.dashboard.answers import Answers
from merge_bench.view.dashboard.components import (
    chart_card,
    complaints,
    frame_of,
    html,
    side_by_side,
    table,
)  # fmt: skip
from merge_bench.view.dashboard.index import Entry
from merge_bench.view.dashboard.library import Library, Loaded
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.network import panels_of

MOST_ROWS = 20_000
_LISTED = 200
_LINES = 5


@dataclass(frozen=True)
class Drawn:
    """Panels, the table of rows, and what could not be shown."""

    panels: tuple[Chart, ...] = ()
    frame: pd.DataFrame | None = None
    problems: tuple[str, ...] = ()


def drawn(loaded: Sequence[Loaded], datasets: Sequence[str]) -> Drawn:
    """The rows of `loaded` and of published `datasets`, in the same panels where they measure the same."""
    problems = [one.problem for one in loaded if one.problem]
    rows: list[Row] = []
    try:
        rows += label_rows([one.campaign for one in loaded if one.campaign is not None])
    except MergeBenchError as reason:
        problems.append(str(reason))
    for name in datasets:
        rows += published.network_rows(name)
    if len(rows) > MOST_ROWS:
        problems.append(f"Only the first {MOST_ROWS:,} of {len(rows):,} rows are shown.")
        rows = rows[:MOST_ROWS]
    return Drawn(panels_of(rows), frame(rows), tuple(problems))


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """A row each: what its test measures, in the unit that people read it in."""
    values = [(row, measure_of(row), measure_of(row).of(row)) for row in rows]
    columns: dict[str, list[Any]] = {
        "Config": [row.config for row in rows],
        "Test": [row.test for row in rows],
        "Placement": [placed(row.placement) for row in rows],
        "Message size (B)": [row.size for row in rows],
        "What": [measure.title for _, measure, _ in values],
        "Median": [value.median if value else None for _, _, value in values],
        "Least": [value.low if value else None for _, _, value in values],
        "Most": [value.high if value else None for _, _, value in values],
        "Unit": [measure.unit for _, measure, _ in values],
        "Lanes": [", ".join(row.selected) for row in rows],
        "Protocol": [row.protocol or "" for row in rows],
        "Launches": [row.launches for row in rows],
        "From": [row.source or "measured" for row in rows],
    }
    return frame_of(columns, numbers=("Median", "Least", "Most"), whole=("Message size (B)", "Launches"))


class NetworkView:
    """The tab. At first it shows the newest measurement, or a published one where there is none."""

    def __init__(self, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._listed = entries
        self._answers = Answers(
            lambda chosen, datasets: drawn(library.load(chosen), datasets), lambda problem: Drawn(problems=(problem,))
        )
        self._shown: Drawn | None = None
        self._begun = False
        offered = {data.title: name for name, data in published.datasets().items() if data.kind == published.NETWORK}
        self.choice = pn.widgets.MultiSelect(label="Measurements", options={}, size=_LINES, width=460)
        self.datasets = pn.widgets.MultiSelect(label="Published", options=offered, size=_LINES, width=700)
        self._problems = html()
        self._rest = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self.layout = pn.Column(
            side_by_side(self.choice, self.datasets), self._problems, self._rest, sizing_mode="stretch_width"
        )

    def refresh(self) -> tuple[Sequence[Entry], Drawn]:
        """Read what is chosen, and what there is to choose from; in a thread."""
        entries = tuple(entry for entry in self._listed() if entry.kind.startswith("probe "))[:_LISTED]
        chosen = tuple(entry for entry in entries if entry.id in self.choice.value)
        return entries, self._answers(chosen, tuple(self.datasets.value))

    def show(self, found: tuple[Sequence[Entry], Drawn]) -> None:
        """Show it; under the document's lock."""
        entries, answer = found
        options = {f"{entry.folder.name} ({entry.kind})": entry.id for entry in entries}
        if options != self.choice.options:
            kept = [value for value in self.choice.value if value in options.values()]
            self.choice.param.update(options=options, value=kept)
        if not self._begun:
            self._begun = True
            if options:
                self.choice.value = [next(iter(options.values()))]
            else:
                self.datasets.value = list(self.datasets.options.values())[:1]
        if answer is not self._shown:
            self._shown = answer
            self._problems.value = complaints(answer.problems)
            self._rest.objects = _laid_out(answer)


def _laid_out(found: Drawn) -> list[Any]:
    parts: list[Any] = [chart_card(panel) for panel in found.panels]
    if found.frame is not None and len(found.frame):
        parts.append(table(found.frame, height=380, terms={"From": "Published"}, pagination="local", page_size=10))
    return parts or [html('<p class="soft">Nothing is chosen, or nothing was measured.</p>')]
