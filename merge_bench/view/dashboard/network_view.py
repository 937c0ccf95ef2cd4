"""The Network tab: network measurements over message size, several campaigns and published series together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import panel as pn

from merge_bench.analysis import published
from merge_bench.view.dashboard.asking import answered
from merge_bench.view.dashboard.index import Entry
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.network import Drawn, drawn
from merge_bench.view.dashboard.parts import chart_card, complaints, html, side_by_side, table
from merge_bench.view.dashboard.session import Session

_LISTED = 200
_LINES = 5


@dataclass(frozen=True)
class Update:
    """What there is to choose from, and what was chosen comes to."""

    entries: tuple[Entry, ...]
    answer: Drawn


class NetworkView:
    """See the module. At first it shows the newest measurement, or a published one where there is none."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._session, self._listed, self._library = session, entries, library
        self._asked: tuple[tuple[Entry, ...], tuple[str, ...]] | None = None
        self._answer = Drawn()
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

    def refresh(self) -> Update:
        """Read what is chosen; in a thread."""
        entries = tuple(entry for entry in self._listed() if entry.kind.startswith("probe "))[:_LISTED]
        chosen = tuple(entry for entry in entries if entry.id in self.choice.value)
        datasets = tuple(self.datasets.value)
        if self._asked != (chosen, datasets):

            def make() -> Drawn:
                return drawn(self._library.load(chosen), datasets)

            answer = answered(make, lambda problem: Drawn(problems=(problem,)))
            self._asked, self._answer = (chosen, datasets), answer
        return Update(entries, self._answer)

    def show(self, update: Update) -> None:
        """Show it; under the document's lock."""
        options = {f"{entry.folder.name} ({entry.kind})": entry.id for entry in update.entries}
        if options != self.choice.options:
            kept = [value for value in self.choice.value if value in options.values()]
            self.choice.param.update(options=options, value=kept)
        if not self._begun:
            self._begun = True
            if options:
                self.choice.value = [next(iter(options.values()))]
            else:
                self.datasets.value = list(self.datasets.options.values())[:1]
        if update.answer is not self._shown:
            self._shown = update.answer
            self._problems.value = complaints(update.answer.problems)
            self._rest.objects = list(_laid_out(update.answer))


def _laid_out(found: Drawn) -> Sequence[Any]:
    parts: list[Any] = [chart_card(panel) for panel in found.panels]
    if found.frame is not None and len(found.frame):
        parts.append(table(found.frame, height=380, terms={"From": "Published"}, pagination="local", page_size=10))
    return parts or [html('<p class="soft">Nothing is chosen, or nothing was measured.</p>')]
