"""The Results tab: every campaign in a table, and chosen ones beside each other and beside published results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import panel as pn

from merge_bench import published
from merge_bench.dashboard.asking import answered
from merge_bench.dashboard.index import Entry
from merge_bench.dashboard.library import Library
from merge_bench.dashboard.parts import chart_card, columns_of, heading, html, said, side_by_side, table
from merge_bench.dashboard.results import ABSOLUTE, METRICS, MOST_CHOSEN, OF_LINK, TERMS, Chosen, choose, frame
from merge_bench.dashboard.session import Session

_PAGE = 10
MOST_LISTED = 3000
_AGAIN_SECONDS = 2.0
"""After which changed rows are sent once more: a browser that was still building the table had missed them."""
_TABLE_HEIGHT = 415
HINT = "Choose one campaign to see its runs, or several to compare them: the oldest of them is the baseline."


@dataclass(frozen=True)
class Question:
    """What is asked for: which campaigns, the oldest first, in which metric, on which axis, beside what."""

    entries: tuple[Entry, ...] = ()
    metric: str = next(iter(METRICS))
    axis: str = ABSOLUTE
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Update:
    """The table's rows, and the answer to what was asked; whoever shows it sees by identity what is new."""

    entries: tuple[Entry, ...]
    frame: pd.DataFrame
    answer: Chosen
    count: int


class ResultsView:
    """See the module. The first campaign by time is the baseline of a comparison."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._session, self._listed, self._library = session, entries, library
        self._question = Question()
        self._answer = Chosen()
        self._shown_answer: Chosen | None = None
        self._shown = tuple(entries())[:MOST_LISTED]
        self._known, self._frame = self._shown, frame(self._shown, library.figures)
        self._chosen: tuple[Entry, ...] = ()
        self._replacing = False
        self._sent_again = False
        # With its rows from the start, and all of them: what changes while a browser builds the table is lost.
        self.table = table(
            self._frame.copy(), height=_TABLE_HEIGHT, terms=TERMS, pagination="local", page_size=_PAGE,
            selectable="checkbox", header_filters=_filters(), widths={"Folder": 300, "Configs": 200},
        )  # fmt: skip
        self._shown_frame = self._frame
        self._changed = 0.0
        self.table.param.watch(lambda event: self._choose(event.new), "selection")
        self.metric = pn.widgets.RadioButtonGroup(options=list(METRICS), value=next(iter(METRICS)))
        self.axis = pn.widgets.RadioButtonGroup(options=[ABSOLUTE, OF_LINK], value=ABSOLUTE)
        offered = {data.title: name for name, data in published.datasets().items() if data.kind == published.MERGE}
        self.datasets = pn.widgets.MultiSelect(
            label="Published results beside them", options=offered, size=max(len(offered), 2), width=420
        )
        self.answer = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self._problems = html()
        self._hint = html(f"<p>{said(HINT)}</p>", height=24)
        self.layout = pn.Column(
            self._hint,
            self.table,
            side_by_side(
                pn.Column(pn.widgets.StaticText(value="Metric", margin=(5, 10, 0, 10)), self.metric),
                pn.Column(pn.widgets.StaticText(value="Axis", margin=(5, 10, 0, 10)), self.axis),
                self.datasets,
            ),
            self._problems,
            self.answer,
            sizing_mode="stretch_width",
        )

    @property
    def question(self) -> Question:
        """What the page asks for now."""
        return Question(self._chosen, self.metric.value, self.axis.value, tuple(self.datasets.value))

    def refresh(self) -> Update:
        """Read what is asked for, and a little of what the table lacks; in a thread."""
        every = tuple(self._listed())
        entries = every[:MOST_LISTED]
        if self._library.look(entries) or entries != self._known:
            self._known, self._frame = entries, frame(entries, self._library.figures)
        asked, current = self.question, {entry.id: entry for entry in entries}
        chosen = tuple(current[entry.id] for entry in asked.entries if entry.id in current)
        question = replace(asked, entries=chosen)
        if question != self._question:
            self._question, self._answer = question, self._work_out(question)
        return Update(self._known, self._frame, self._answer, len(every))

    def _work_out(self, question: Question) -> Chosen:
        if len(question.entries) > MOST_CHOSEN:
            return Chosen(problems=(f"At most {MOST_CHOSEN} campaigns are shown beside each other.",))

        def make() -> Chosen:
            loaded = self._library.load(question.entries)
            return choose(loaded, metric=question.metric, axis=question.axis, datasets=question.datasets)

        return answered(make, lambda problem: Chosen(problems=(problem,)))

    def show(self, update: Update) -> None:
        """Show it; under the document's lock."""
        cut = f" The newest {MOST_LISTED:,} of {update.count:,} are listed." if update.count > MOST_LISTED else ""
        self._hint.value = f"<p>{said(HINT + cut)}</p>"
        if update.frame is not self._shown_frame:
            self._shown_frame = update.frame
            self._replace(update.entries, update.frame)
            self._changed, self._sent_again = time.monotonic(), False
        elif not self._sent_again and time.monotonic() > self._changed + _AGAIN_SECONDS:
            self._sent_again = True
            if len(self._shown):
                self.table.patch({"Status": [(0, self._shown[0].status)]})  # any cell: the table takes all it has anew
        if update.answer is not self._shown_answer:
            self._shown_answer = update.answer
            self._problems.value = "".join(f'<p class="bad">{said(each)}</p>' for each in update.answer.problems)
            self.answer.objects = list(_laid_out(update.answer))

    def _replace(self, entries: tuple[Entry, ...], rows: pd.DataFrame) -> None:
        """Put other rows into the table, or where they are the same ones only what changed in them.

        The table forgets what is chosen when it gets other rows.
        """
        if [entry.id for entry in entries] == [entry.id for entry in self._shown]:
            self._shown = entries
            changes = _changes(self.table.value, rows)
            if changes:
                self.table.patch(changes)
            return
        chosen = {entry.id for entry in self._chosen}
        self._replacing = True
        try:
            self._shown = entries
            self.table.value = rows.copy()
            self.table.selection = [place for place, entry in enumerate(entries) if entry.id in chosen]
        finally:
            self._replacing = False

    def _choose(self, places: Sequence[int]) -> None:
        if not self._replacing:
            found = [self._shown[place] for place in places if 0 <= place < len(self._shown)]
            self._chosen = tuple(sorted(found, key=lambda entry: entry.started or entry.modified))


def _changes(old: pd.DataFrame, new: pd.DataFrame) -> dict[str, list[tuple[int, Any]]]:
    """The cells of `new` that differ from those of `old`, by column: the row's place, and what stands there now."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for column in new.columns:
        before, after = old[column], new[column]
        differ = ~((before == after) | (before.isna() & after.isna()))
        if differ.any():
            found[str(column)] = [(int(place), after.iloc[place]) for place in differ.to_numpy().nonzero()[0]]
    return found


def _laid_out(answer: Chosen) -> Sequence[Any]:
    parts: list[Any] = []
    if answer.verdicts:
        rows = "".join(f"<li><b>{said(title)}</b>: {said(sentence)}</li>" for title, sentence in answer.verdicts)
        parts.append(html(heading("Verdicts", ["Verdict", "Speed-up", "95 % interval"]) + f"<ul>{rows}</ul>"))
        parts.append(html(columns_of(answer.judged)))
    for chart in answer.charts:
        parts.append(chart_card(chart))
    if answer.differences:
        found = "".join(f"<h2>{said(title)}</h2>{columns_of(columns)}" for title, columns in answer.differences)
        parts.append(html(f"<details open><summary>What differs between them</summary>{found}</details>"))
    if answer.notes:
        parts.append(html("<h2>Notes</h2>" + "".join(f"<p>{said(note)}</p>" for note in answer.notes)))
    return parts


def _filters() -> dict[str, Any]:
    """A field under each heading of text that narrows the table down."""
    names = ("Started (UTC)", "Configs", "Kind", "Rows per chunk", "Workers", "Verified", "Status", "From", "Folder")
    return {name: {"type": "input", "func": "like", "placeholder": "contains"} for name in names}
