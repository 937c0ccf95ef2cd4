"""The Results tab: every campaign in a table, and chosen ones beside each other and beside published results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import published
from merge_bench.view.dashboard.answers import Answers
from merge_bench.view.dashboard.components import chart_card, columns_of, complaints, heading, html, side_by_side, table
from merge_bench.view.dashboard.index import Entry
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.results import ABSOLUTE, METRICS, MOST_CHOSEN, OF_LINK, Chosen, choose, frame
from merge_bench.view.text import as_html

_PAGE = 10
MOST_LISTED = 3000
PATIENCE_SECONDS = 5.0
"""After this, a table that has not reported that it is built is replaced by one with the new rows."""
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
    """The table's rows, and the answer to the question; an object that is not the last one is new."""

    rows: pd.DataFrame
    answer: Chosen
    count: int


class ResultsView:
    """See the module. The first campaign by time is the baseline of a comparison.

    The table reports chosen rows by their places, and messages to and from it can cross. So a campaign keeps its place
    until the page is closed: new ones are added below, the browser sorts them, and only the page changes the choice.

    Rows that change while a browser builds the table are lost. So a table is made with the known rows, and they change
    only after the table has reported how many fit on a page, which it does once it is built. If it does not report
    this, another table with the new rows replaces it: what is shown is right either way.
    """

    def __init__(self, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._listed, self._library = entries, library
        self._answers = Answers(self._work_out, lambda problem: Chosen(problems=(problem,)))
        self._answer = Chosen()
        self._shown_answer: Chosen | None = None
        self._every: tuple[Entry, ...] = tuple(entries())
        self._placed: tuple[Entry, ...] = ()
        self._rows = self._read(self._every)
        self._shown_rows = self._rows
        self.table = self._new_table([])
        self._table = pn.Column(self.table, height=_TABLE_HEIGHT, sizing_mode="stretch_width", margin=0)
        self.metric = pn.widgets.RadioButtonGroup(options=list(METRICS), value=next(iter(METRICS)))
        self.axis = pn.widgets.RadioButtonGroup(options=[ABSOLUTE, OF_LINK], value=ABSOLUTE)
        offered = {data.title: name for name, data in published.datasets().items() if data.kind == published.MERGE}
        self.datasets = pn.widgets.MultiSelect(
            label="Published results beside them", options=offered, size=max(len(offered), 2), width=420
        )
        self.answer = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self._problems = html()
        self._hint = html(f"<p>{as_html(HINT)}</p>", height=24)
        self.layout = pn.Column(
            self._hint,
            self._table,
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
        chosen = [self._placed[place] for place in self.table.selection if 0 <= place < len(self._placed)]
        chosen.sort(key=lambda entry: entry.started or entry.modified)
        return Question(tuple(chosen), self.metric.value, self.axis.value, tuple(self.datasets.value))

    def renew(self) -> None:
        """Make the table anew, which a browser does whenever the tab comes into the page; what is chosen stays."""
        self._shown_rows = self._rows
        self.table = self._new_table(self.table.selection)
        self._table.objects = [self.table]

    def _new_table(self, selection: Sequence[int]) -> Any:
        self._built, self._made = False, time.monotonic()
        # A field under each heading of text narrows the table down.
        texts = [name for name in self._shown_rows if not str(name).endswith("(GiB/s)")]
        filters = {name: {"type": "input", "func": "like", "placeholder": "contains"} for name in texts}
        made = table(
            self._shown_rows.copy(), height=_TABLE_HEIGHT, terms={"From": "Published"}, pagination="local",
            page_size=None, selectable="checkbox", header_filters=filters, widths={"Folder": 300, "Configs": 200},
            sorters=[{"field": "Started (UTC)", "dir": "desc"}], selection=list(selection),
        )  # fmt: skip

        def built(_: Any) -> None:
            made.page_size = _PAGE  # whatever it found
            self._built = self._built or made is self.table

        made.param.watch(built, "page_size")
        return made

    def refresh(self) -> Update:
        """Read what is asked for, and a little of what the table lacks; in a thread."""
        every = tuple(self._listed())
        if self._library.look(every[:MOST_LISTED]) or every != self._every:
            rows, self._every = self._read(every), every
            self._rows = self._rows if rows.equals(self._rows) else rows
        asked, current = self.question, {entry.id: entry for entry in every}
        chosen = tuple(current[entry.id] for entry in asked.entries if entry.id in current)
        question = replace(asked, entries=chosen)
        answer = self._answers(question)
        if answer is not self._answer:
            self._answer = answer
            self._every = ()  # because of large campaigns, whose figures are known now
        return Update(self._rows, self._answer, len(every))

    def _read(self, every: Sequence[Entry]) -> pd.DataFrame:
        """The table's rows: campaigns that are new get the next places, and those that are gone keep theirs."""
        current = {entry.id: entry for entry in every}
        known = {entry.id for entry in self._placed}
        new = tuple(entry for entry in every[:MOST_LISTED] if entry.id not in known)
        self._placed = (*(current.get(entry.id, entry) for entry in self._placed), *new)
        return frame(self._placed, self._library.figures, gone=known - current.keys())

    def _work_out(self, question: Question) -> Chosen:
        if len(question.entries) > MOST_CHOSEN:
            return Chosen(problems=(f"At most {MOST_CHOSEN} campaigns are shown beside each other.",))
        loaded = self._library.load(question.entries)
        return choose(loaded, metric=question.metric, axis=question.axis, datasets=question.datasets)

    def show(self, update: Update) -> None:
        """Show it; under the document's lock."""
        cut = f" The newest {MOST_LISTED:,} of {update.count:,} are listed." if update.count > MOST_LISTED else ""
        self._hint.value = f"<p>{as_html(HINT + cut)}</p>"
        if update.rows is not self._shown_rows:
            if self._built:
                self._shown_rows = update.rows
                self.table.value = update.rows.copy()
            elif self._shown_rows.empty or time.monotonic() > self._made + PATIENCE_SECONDS:
                self.renew()
        if update.answer is not self._shown_answer:
            self._shown_answer = update.answer
            self._problems.value = complaints(update.answer.problems)
            self.answer.objects = _laid_out(update.answer)


def _laid_out(answer: Chosen) -> list[Any]:
    parts: list[Any] = []
    if answer.verdicts:
        rows = "".join(f"<li><b>{as_html(title)}</b>: {as_html(sentence)}</li>" for title, sentence in answer.verdicts)
        parts.append(html(heading("Verdicts", ["Verdict", "Speed-up", "95 % interval"]) + f"<ul>{rows}</ul>"))
        parts.append(html(columns_of(answer.judged)))
    parts += map(chart_card, answer.charts)
    if answer.differences:
        found = "".join(f"<h2>{as_html(title)}</h2>{columns_of(columns)}" for title, columns in answer.differences)
        parts.append(html(f"<details open><summary>What differs between them</summary>{found}</details>"))
    if answer.notes:
        parts.append(html("<h2>Notes</h2>" + "".join(f"<p>{as_html(note)}</p>" for note in answer.notes)))
    return parts
