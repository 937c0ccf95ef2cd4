"""The conclusion that the terminal prints after a campaign, as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.analysis.documents import RunDocument
from merge_bench.dashboard import components as ui
from merge_bench.records.campaign import Campaign
from merge_bench.report.next_step import after_recorded_tuning
from merge_bench.report.run import write_conclusion
from merge_bench.tune.result import recorded_result_of
from merge_bench.tune.text import write_outcome
from merge_bench.view.content import Block, Column, Heading, Line, NamedValues, NextCommand, Page, Table
from merge_bench.view.text import as_html, unbroken
from merge_bench.view.titles import is_tuning_campaign, size_of


def conclusion_of(campaign: Campaign, documents: Sequence[RunDocument]) -> str:
    """HTML of the conclusion of a campaign that has ended, without its warnings, which the Live tab lists."""
    page = Page()
    if is_tuning_campaign(campaign):
        step, tuning = after_recorded_tuning(campaign).here(), campaign.plans[0].tune
        sizes = [size_of(campaign, plan) for plan in range(len(campaign.plans))]
        metric = (tuning and tuning.metric) or "throughput"
        write_outcome(page, recorded_result_of(campaign), sizes, metric, step.note)
        page.next_step(step.command, step.does)
    elif documents:
        warnings = {caution for one in documents for caution in one.warnings}
        write_conclusion(page, campaign, documents, str(campaign.records), above=warnings)
    return "".join(map(_block_html, page.blocks))


def _block_html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{as_html(text)}</h2>"
        case Line(unbroken=True):
            return ""  # where the records are, which the line above names by their result
        case Line(text, style):
            mark = {"bold red": ' class="bad"', "dim": ' class="soft"'}.get(style, "")
            return f"<p{mark}>{unbroken(as_html(text))}</p>"
        case NamedValues():
            rows = [(name, f"{value}  {mark}" if mark else value) for name, value, mark in block.marked]
            return ui.row_table([(as_html(name), as_html(value)) for name, value in rows])
        case Table(mark=mark):
            marks = [Column("", [mark] * len(block.rows))] if mark else []
            return ui.column_table([*block.columns, *marks])
        case NextCommand(command, does):
            return f"<p>Next: <code>{unbroken(as_html(command))}</code> ({as_html(does)})</p>"
    return ""
