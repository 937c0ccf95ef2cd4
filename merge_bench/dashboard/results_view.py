"""The Results tab: every campaign in a table, and chosen ones beside each other and beside published results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """The table, and the answer to what was asked; None: it is the one before."""

    entries: tuple[Entry, ...]
    frame: pd.DataFrame | None
    question: Question
    answer: Chosen | None


class ResultsView:
    """See the module. The first campaign by time is the baseline of a comparison."""

    def __init__(self, session: Session, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._session, self._listed, self._library = session, entries, library
        self._answered: Question | None = None
        self._known: tuple[Entry, ...] | None = None
        self._looked = True
        self._shown: tuple[Entry, ...] = ()
        self._chosen: tuple[Entry, ...] = ()
        self._replacing = False
        self.table = table(
            frame((), lambda _: None), height=_TABLE_HEIGHT, terms=TERMS,
            pagination="remote", page_size=_PAGE, selectable="checkbox", header_filters=_filters(),
            widths={"Folder": 300, "Configs": 200},
        )  # fmt: skip
        self.table.param.watch(lambda event: self._choose(event.new), "selection")
        self.metric = pn.widgets.RadioButtonGroup(options=list(METRICS), value=next(iter(METRICS)))
        self.axis = pn.widgets.RadioButtonGroup(options=[ABSOLUTE, OF_LINK], value=ABSOLUTE)
        offered = {data.title: name for name, data in published.datasets().items() if data.kind == published.MERGE}
        self.datasets = pn.widgets.MultiSelect(
            label="Published results beside them", options=offered, size=max(len(offered), 2), width=420
        )
        self.answer = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self._problems = html()
        self.layout = pn.Column(
            html(f"<p>{said(HINT)}</p>", height=24),
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
        entries = tuple(self._listed())
        made = None
        self._looked = self._library.look(entries)
        if entries != self._known or self._looked:
            self._known = entries
            made = frame(entries, self._library.figures)
        question = self.question
        current = {entry.id: entry for entry in entries}
        question = Question(
            tuple(current[entry.id] for entry in question.entries if entry.id in current),
            question.metric,
            question.axis,
            question.datasets,
        )
        answer = None if question == self._answered else self._answer(question)
        self._answered = question
        return Update(entries, made, question, answer)

    def _answer(self, question: Question) -> Chosen:
        if len(question.entries) > MOST_CHOSEN:
            return Chosen(problems=(f"At most {MOST_CHOSEN} campaigns are shown beside each other.",))

        def make() -> Chosen:
            loaded = self._library.load(question.entries)
            return choose(loaded, metric=question.metric, axis=question.axis, datasets=question.datasets)

        return answered(make, lambda problem: Chosen(problems=(problem,)))

    def show(self, update: Update) -> None:
        """Show it; under the document's lock."""
        if update.frame is not None:
            self._replace(update.entries, update.frame)
        if update.answer is not None:
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
            self.table.value = rows
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
