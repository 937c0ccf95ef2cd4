"""The conclusion that the terminal prints after a campaign, as HTML."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from merge_bench.analysis.documents.run import RunDocument
from merge_bench.records.campaign import Campaign
from merge_bench.tune.result import recorded_result_of
from merge_bench.view.dashboard import components as ui
from merge_bench.view.report.conclusion import conclude
from merge_bench.view.report.layout import Column, Page
from merge_bench.view.report.next_step import after_recorded_tuning
from merge_bench.view.report.tuning import write_outcome
from merge_bench.view.text import as_html, unbroken
from merge_bench.view.titles import size_of, tunes


def conclusion_of(campaign: Campaign, documents: Sequence[RunDocument]) -> str:
    """The conclusion of a campaign that has ended, without its warnings, which the tab lists."""
    page = _HtmlPage()
    if tunes(campaign):
        step, asked = after_recorded_tuning(campaign).here(), campaign.plans[0].tune
        sizes = [size_of(campaign, plan) for plan in range(len(campaign.plans))]
        metric = (asked and asked.metric) or "throughput"
        write_outcome(page, recorded_result_of(campaign), sizes, metric, step.note)
        page.next_step(step.command, step.does)
    elif documents:
        warnings = {caution for one in documents for caution in one.warnings}
        conclude(page, campaign, documents, str(campaign.records), above=warnings)
    return "".join(page.parts)


class _HtmlPage(Page):
    """A page as HTML in `parts`, without drawings."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()), plain=True)
        self.parts: list[str] = []

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{as_html(text)}</h2>")

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        mark = {"bold red": ' class="bad"', "dim": ' class="soft"'}.get(style, "")
        self.parts.append(f"<p{mark}>{unbroken(as_html(text))}</p>")

    def unbroken(self, text: str, style: str = "") -> None:
        """Where the records are, which the line above names by their result."""

    def pairs(self, *rows: tuple[str, str], mark: str | None = None) -> None:
        marks = [f"  {mark}" if mark and name.endswith(")") else "" for name, _ in rows]
        cells = [(as_html(name), as_html(value + end)) for (name, value), end in zip(rows, marks, strict=True)]
        self.parts.append(ui.listed(cells))

    def table(self, *columns: Column, mark: str | None = None) -> None:
        marks = [Column("", [mark] * len(columns[0].cells))] if mark else []
        self.parts.append(ui.columns_of([*columns, *marks]))

    def next_step(self, command: str, does: str) -> None:
        self.parts.append(f"<p>Next: <code>{unbroken(as_html(command))}</code> ({as_html(does)})</p>")
