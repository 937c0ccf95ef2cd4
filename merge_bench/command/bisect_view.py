"""What `bisect` shows to people: each comparison, the releases that it ends with, and what differs between them."""

from __future__ import annotations

from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.command.bisect import BisectDocument, BisectStep
from merge_bench.view.comparison import STYLES, difference_columns, format_percent
from merge_bench.view.content import columns_from_rows
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import capitalize, format_cell, format_interval, format_ratio
from merge_bench.view.titles import join_names_in_words

_SIDES = {True: "beyond half", False: "before half", None: ""}
_WORDS = {Verdict.FASTER.value: "better", Verdict.SLOWER.value: "worse"}


def print_bisection(document: BisectDocument) -> None:
    """Print what was found on standard output."""
    with print_page_at_exit() as page:
        page.add_heading("merge_bench · bisect")
        page.add_paragraph(f"Releases of UCX: {', '.join(document.releases)}")
        page.add_heading(f"Comparisons in {document.metric}, threshold {format_percent(document.threshold)}")
        rows = [
            (
                f"{step.baseline} → {step.candidate}",
                step.verdict,
                format_ratio(step.ratio),
                _interval_text(step),
                str(step.launches),
                _SIDES[step.beyond_half],
            )
            for step in document.steps
        ]
        if rows:
            headings = ("Releases", "Verdict", "Speed-up", "Interval", "Launches", "Of the ends'")
            page.add_table(*columns_from_rows(headings, rows, (0, 1, 5)))
        for step in document.steps:
            if step.failure is not None:
                page.add_paragraph(f"{step.baseline} → {step.candidate}: {step.failure}", "yellow")
        for folder in dict.fromkeys(step.records for step in document.steps):
            page.add_unwrapped_line(f"Records: {folder}")
        if document.differences:
            page.add_heading("What differs")
            page.add_table(*difference_columns(document.differences))
        if document.settings and document.between is not None:
            page.add_heading("Defaults of settings")
            changed = [
                (each.name, format_cell(each.baseline), format_cell(each.candidate)) for each in document.settings
            ]
            page.add_table(*columns_from_rows(("Setting", *document.between), changed, (0, 1, 2)))
        page.add_heading("Result")
        page.add_paragraph(result_sentence(document), STYLES.get(document.verdict, "bold"))
        if document.left_out:
            page.add_paragraph(f"Left out, because launches failed: {join_names_in_words(document.left_out)}", "yellow")


def result_sentence(document: BisectDocument) -> str:
    """What was found, in a sentence."""
    if document.decisive_step is not None:
        step = document.decisive_step
        word = _WORDS[step.verdict]
        what = f"UCX {step.candidate} is {word} than {step.baseline}"
        return f"{what}: {_speed_up_text(step)}, {step.launches} launches each"
    reason = document.reason or ""
    if document.between is not None:
        return f"The change is between {' and '.join(document.between)}. {capitalize(reason)}."
    ends = f" ({_speed_up_text(document.steps[0])})" if document.steps and document.error is None else ""
    return f"{document.verdict}: {reason}{ends}"


def _speed_up_text(step: BisectStep) -> str:
    level = f" ({format_percent(step.interval.level)} interval {_interval_text(step)})" if step.interval else ""
    return f"speed-up {format_ratio(step.ratio)}{level}"


def _interval_text(step: BisectStep) -> str:
    return format_interval(step.interval.low, step.interval.high) if step.interval else format_interval()
