"""The History tab: one metric of one problem over all results, with the shifts of its level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import panel as pn

from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import CachedLastResult
from merge_bench.records.results_folder import YOURS, ResultEntry
from merge_bench.regressions.document import BY_NAME, HistoryDocument, make_history_document
from merge_bench.regressions.index import HistoryIndex
from merge_bench.regressions.view import (
    drift_or_noise_sentence,
    history_charts,
    metric_title,
    reference_level_sentence,
    series_sentence,
    series_title,
    shift_summary,
)
from merge_bench.view.text import as_html, keep_cli_options_unbroken

NOTHING = ui.empty_state_html("merge", "run --chunk 1e6")
_MOST_SHIFTS, _RECENT_RESULTS = 20, 100


@dataclass(frozen=True)
class HistoryContent:
    """What the History tab shows.

    `options`: the names of all series by their titles; `document`: the history of the chosen series; `metrics`: the
    metrics of that series, the main one first; `problem`: why there is no history.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = tuple(BY_NAME)
    document: HistoryDocument | None = None
    problem: str = ""


def read_history_content(results: Path, series_name: str, metric: str) -> HistoryContent:
    """Read the history of one series in the folder `results`; by default of the series with the newest result.

    A series that lacks the `metric` is shown in its main one.
    """
    index = HistoryIndex([results] if results.exists() else [])
    all_series = index.list_series()
    titled = [(each, index.tables_of_series(each)) for each in all_series]
    options = {series_title(each, tables, titled): str(each) for each, tables in titled}
    series = next((each for each in all_series if str(each) == series_name), all_series[0] if all_series else {})
    metrics = tuple(each.name for each in index.metrics_of_series(series))
    metric = metric if metric in metrics else metrics[0]
    document = make_history_document(index, [series], metric)
    if document.series:
        return HistoryContent(options, metrics, document)
    problem = f"No result of this series has a value of {metric}." if all_series else ""
    return HistoryContent(options, metrics, problem=problem)


class HistoryView:
    """The History tab. At first it shows the series with the newest result.

    `compare`: a function that shows the results in folders with the given names in the Results tab.
    """

    def __init__(
        self, results: Path, entries: Callable[[], Sequence[ResultEntry]], compare: Callable[[Sequence[str]], object]
    ) -> None:
        self._entries, self._compare = entries, compare
        self._contents = CachedLastResult(
            lambda chosen, metric, _: read_history_content(results, chosen, metric),
            lambda problem: HistoryContent(problem=problem),
        )
        self._shown: HistoryContent | None = None
        self.choice = ui.make_select("Series", {"reading results …": ""}, width=800)
        self.metric = ui.make_select("Metric", {name: name for name in BY_NAME}, width=160)
        self.parts = pn.Column(sizing_mode=ui.WIDE, min_height=300, margin=0)
        self.layout = pn.Column(ui.make_wrapping_row(self.choice, self.metric), self.parts, sizing_mode=ui.WIDE)

    def read_update(self) -> HistoryContent:
        """Read the history of the chosen series, or return the last one if nothing changed; called in a thread."""
        ended = (entry.id for entry in self._entries() if entry.origin == YOURS and entry.end_status is not None)
        return self._contents(self.choice.value, self.metric.value, tuple(islice(ended, _RECENT_RESULTS)))

    def show_update(self, content: HistoryContent) -> bool:
        """Show in the History tab what `read_update` returned, if it is new; returns whether it was.

        Called under the document's lock.
        """
        if content == self._shown:
            return False
        self._shown = content
        ui.replace_select_options(
            self.choice, content.options or {"none yet": ""}, next(iter(content.options.values()), "")
        )
        ui.replace_select_options(self.metric, {name: name for name in content.metrics}, content.metrics[0])
        problem = ui.problems_html([content.problem]) if content.problem else NOTHING
        self.parts.objects = (
            self._make_widgets(content.document) if content.document else [ui.make_html_widget(problem)]
        )
        return True

    def _make_widgets(self, document: HistoryDocument) -> list[Any]:
        (series,) = document.series
        sentence = metric_title(series) + series_sentence(document, series).removeprefix(series.metric)
        conclusion = keep_cli_options_unbroken(as_html(sentence)).replace(" %", "&nbsp;%")
        notes = "".join(f"<p>{as_html(note)}</p>" for note in document.notes)
        shifts = []
        for shift in reversed(series.shifts[-_MOST_SHIFTS:]):
            before, after = (Path(series.results[at].path).name for at in (shift.result - 1, shift.result))
            differs = shift.difference_texts or ["nothing in the records differs from the result before"]
            items = "".join(f"<li>{as_html(each)}</li>" for each in differs)
            head = f"<b>{as_html(shift_summary(series, series.shifts, shift))}</b> at {as_html(after)}"
            text = f'<p class="{"" if shift.better else "bad"}">{head}</p><ul>{items}</ul>'
            button = pn.widgets.Button(label="Compare with the result before", width=230)
            button.on_click(lambda _, names=(before, after): self._compare(names))
            shifts.append(ui.make_wrapping_row(ui.make_html_widget(text, min_width=300), button, sizing_mode=ui.WIDE))
        heading = [ui.make_html_widget("<h2>Shifts, the last one first</h2>")] if shifts else []
        findings = [
            *(drift_or_noise_sentence(series, each) for each in series.findings),
            reference_level_sentence(series),
        ]
        notes = "".join(f"<p>{as_html(each)}</p>" for each in findings if each) + notes
        first = ui.make_html_widget(f'<p class="verdict">{conclusion}</p>{notes}')
        return [first, ui.make_card_row(*map(ui.make_chart_card, history_charts(document))), *heading, *shifts]
