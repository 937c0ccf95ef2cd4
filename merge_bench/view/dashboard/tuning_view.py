"""The Tuning tab: how a config was found, step by step, and the file to keep."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import panel as pn

from merge_bench.view.dashboard.asking import answered
from merge_bench.view.dashboard.index import TUNE, Entry
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.parts import chart_card, complaints, html, select, side_by_side, table
from merge_bench.view.dashboard.session import Session
from merge_bench.view.dashboard.tuning import Tuned, tuned
from merge_bench.view.text import as_html

_LISTED = 100
_TERMS = {"Low": "95 % interval", "High": "95 % interval", "Decision": "Verdict"}


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
        self._outcome.value = complaints(found.problems) + "".join(
            f"<p><b>{as_html(each)}</b></p>" for each in found.outcome
        )
        self._rest.objects = list(_laid_out(found))


def _laid_out(found: Tuned) -> Sequence[Any]:
    race = [chart_card(found.race, ["Speed-up", "95 % interval", "Phase"])] if found.race else []
    parts: list[Any] = [*race, *map(chart_card, found.charts)]
    if found.frame is not None:
        options = {"pagination": "local", "page_size": 10, "widths": {"Why": 360, "Config": 200}}
        parts.append(table(found.frame, height=430, terms=_TERMS, **options))
    return parts
