"""A comparison for people, as text or Markdown: verdicts, every metric with the points it rests on, what differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from merge_bench.analysis.aggregate import UNVERIFIED
from merge_bench.analysis.documents import CompareDocument, Comparison, MedianValue, PropertyDifference, RatioInterval
from merge_bench.analysis.statistics.verdict import MOST
from merge_bench.errors import stdout_and_stderr_are_same
from merge_bench.units import count_with_noun
from merge_bench.view.content import Column, PageBuilder, columns_from_rows
from merge_bench.view.markdown import render_blocks
from merge_bench.view.suggested_command import SuggestedCommand
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import (
    NULL,
    DisplayUnit,
    capitalize,
    format_cell,
    format_interval,
    format_ratio,
    format_row_count,
)

STYLES = {"FASTER": "bold green", "SLOWER": "bold red", "FAILED": "bold red", "WRONG": "bold red"}
_STRIP_COLUMNS = 24
_MOST_LISTED = 24  # of more blocks than this only the strip is shown


def print_comparison(
    document: CompareDocument,
    *,
    metric: str,
    details: bool = True,
    next_command: SuggestedCommand | None = None,
    gate_text: str = "",
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the document of ``compare`` on `file` (standard output), the verdicts last.

    `metric`: the metric of the verdict sentences; `details`: whether to print the tables; `next_command`: a command to
    suggest; `gate_text`: the line about gates that did not fail, printed last. That line, or the error that the command
    prints below the comparison, has the caveats of the verdicts, which are not printed twice.
    """
    below = gate_or_error_text(document, gate_text)
    with print_page_at_exit(file, width) as page:
        page.add_heading("merge_bench · compare")
        for name, path in labelled_result_folders(document):
            page.add_unwrapped_line(f"{name}   {path}")
        pairs = comparisons_by_candidate(document, metric)
        if details:
            for chosen, comparisons in pairs:
                page.add_heading(title_of_comparison(chosen))
                _write_comparison_tables(page, document, chosen, comparisons)
            page.add_paragraphs("Notes", document.notes)
        if pairs:
            page.add_heading(f"{'Verdicts' if len(pairs) > 1 else 'Verdict'} on {metric}")
        for chosen, _ in pairs:
            if len(pairs) > 1 or not details:
                page.add_paragraph(title_of_comparison(chosen))
            write_verdict(page, chosen, text_below=below)
        if next_command is not None:
            page.add_next_command(next_command.command, next_command.does)
    if gate_text:
        print(gate_text, file=file)


def gate_or_error_text(document: CompareDocument, gate_text: str) -> str:
    """The text that ends up below a printed comparison, and has its caveats already; else empty.

    It is `gate_text`, the line about gates, or the document's error if standard error is the same terminal or file.
    """
    return gate_text or (document.error.message if document.error is not None and stdout_and_stderr_are_same() else "")


def comparison_as_markdown(document: CompareDocument, *, metric: str) -> str:
    """Render the document of ``compare`` as Markdown; `metric`: the metric of its verdict sentences."""
    page = PageBuilder(whole=True)
    page.add_named_values(*((name.removesuffix(":"), path) for name, path in labelled_result_folders(document)))
    write_comparisons(page, document, metric)
    page.add_paragraphs("Notes", document.notes)
    return render_blocks(page.blocks)


def write_comparisons(page: PageBuilder, document: CompareDocument, metric: str) -> None:
    """Put verdicts, values and differences of each candidate and its baseline on a page; the verdict is on `metric`."""
    for chosen, comparisons in comparisons_by_candidate(document, metric):
        page.add_heading(title_of_comparison(chosen))
        write_verdict(page, chosen)
        _write_comparison_tables(page, document, chosen, comparisons)


def _write_comparison_tables(
    page: PageBuilder, document: CompareDocument, main_comparison: Comparison, comparisons: Sequence[Comparison]
) -> None:
    if any(each.ratio is not None for each in comparisons):
        shown = [(each, DisplayUnit.for_recorded_unit(each.unit)) for each in comparisons]
        old = [unit.format_value(each.baseline_value.median) for each, unit in shown]
        candidates = [each.candidate_value.median if each.candidate_value else None for each, _ in shown]
        new = [unit.format_value(value) for value, (_, unit) in zip(candidates, shown, strict=True)]
        values = [Column(main_comparison.baseline, old), Column(main_comparison.candidate, new)]
        name = Column("Metric", [unit.metric_heading(each.metric) for each, unit in shown], text=True)
        judged = verdict_columns(comparisons)
        strips = [
            draw_ratio_strip_plot([point.ratio for point in each.points]) if each.points else "" for each in comparisons
        ]
        strip = Column("By block" if main_comparison.paired else "By launch", strips, text=True, code=True)
        mark = None if main_comparison.verified else UNVERIFIED
        page.add_wide_table([name], [*judged[:3], *values, *judged[3:]], [strip], row_mark=mark)
    points = main_comparison.points
    if 1 < len(points) <= _MOST_LISTED:
        how = "by block" if main_comparison.paired else "by launch, against the baseline's median"
        page.add_paragraph(
            f"{main_comparison.metric} {how}: {'  '.join(format_ratio(point.ratio) for point in points)}"
        )
    if differences := recorded_differences(document, main_comparison):
        page.add_paragraph("")
        page.add_table(*difference_columns(differences))


def comparisons_by_candidate(document: CompareDocument, metric: str) -> list[tuple[Comparison, list[Comparison]]]:
    """For each candidate, its comparison with the baseline in `metric`, and its comparisons in all metrics.

    If there is no comparison in `metric`, the first element is the comparison in the first metric.
    """
    groups = [list(group) for _, group in groupby(document.comparisons, lambda each: each.pair)]
    return [(next((each for each in group if each.metric == metric), group[0]), group) for group in groups]


def labelled_result_folders(document: CompareDocument) -> list[tuple[str, str]]:
    """The label and the folder of each compared result: ``A:``, ``B:``, … or for a single result ``Result``."""
    counts = {each.baseline_result: each.level_of for each in document.comparisons if each.level_of}
    levels = {path: f"level of {count} results, the newest in {path}" for path, count in counts.items()}
    names = (f"{each.letter}:" if each.letter else "Result" for each in document.results)
    return [(name, levels.get(each.path, each.path)) for name, each in zip(names, document.results, strict=True)]


def title_of_comparison(comparison: Comparison) -> str:
    """The title of a comparison: ``tcp against default · 1,000,000 rows per chunk, 2 workers``."""
    chunk, workers, *others = comparison.plan.items()
    what = [f"{format_row_count(chunk[1])} rows per chunk"] if isinstance(chunk[1], int) else []
    what += [count_with_noun(workers[1], "worker")] if isinstance(workers[1], int) else []
    what += [str(value) if name == "command" else f"{name} {value}" for name, value in others]
    aa = ", the same config (A/A)" if comparison.aa else ""
    return f"{comparison.candidate} against {comparison.baseline}{aa}" + (f" · {', '.join(what)}" if what else "")


def verdict_sentence(comparison: Comparison) -> str:
    """The verdict of a comparison in one line, with its reason, ratio, interval and launches."""
    mark = "" if comparison.verified or comparison.ratio is None else f" {UNVERIFIED}"
    reason, level = comparison.reason, comparison.level_of
    noisy = f"what {level} results of the level can tell from noise" if level else "between launches of the same config"
    reasons = {
        "underpowered": "too few launches for a verdict",
        "wide-interval": f"the true difference may be below or above {format_percent(comparison.threshold)}",
        "within-noise": f"the difference is no larger than {noisy}",
    }
    parts = [reasons.get(reason, str(reason)) if reason else None, _ratio_text(comparison)]
    if comparison.verdict == "INCONCLUSIVE" and not level:
        more = comparison.more_launches
        needed = f"more than {MOST} launches" if more is None else f"about {count_with_noun(more, 'more launch')}"
        parts.append(f"a verdict needs {needed} of each config")
    return f"{comparison.verdict}{mark}: {'; '.join(filter(None, parts))}"


def write_verdict(page: PageBuilder, comparison: Comparison, *, indent: int = 0, text_below: str = "") -> None:
    """Put the verdict of a comparison on a page, with those of its caveats that `text_below` does not contain."""
    page.add_paragraph(verdict_sentence(comparison), STYLES.get(comparison.verdict, "bold"), indent=indent)
    for caveat in (each for each in comparison.caveats if each not in text_below):
        page.add_paragraph(f"{capitalize(caveat)}.", "yellow", indent=indent)


def draw_ratio_strip_plot(ratios: Sequence[float], width: int = _STRIP_COLUMNS) -> str:
    """Draw ratios on a logarithmic axis, in characters: ``|`` is 1, ``o`` a ratio, a digit several ratios.

    ``[0.99, 1.01, 1.01]`` in 4 columns → ``0.990 [o..|.2] 1.010``
    """
    logs = [math.log(ratio) for ratio in ratios]
    low, high = min(0.0, *logs), max(0.0, *logs)
    step = (high - low) / width or 1.0
    left, right = math.ceil(-low / step), math.ceil(high / step)
    cells = [0] * max(1, left + right)
    for log in logs:
        cells[min(max(math.floor(log / step) + left, 0), len(cells) - 1)] += 1
    drawn = "".join("." if count == 0 else "o" if count == 1 else str(count) if count < 10 else "#" for count in cells)
    return f"{format_ratio(math.exp(low))} [{drawn[:left]}|{drawn[left:]}] {format_ratio(math.exp(high))}"


def verdict_columns(comparisons: Sequence[Comparison]) -> list[Column]:
    """Make the table columns verdict, speed-up, interval, launches and p value, with a row for each comparison."""
    levels = {each.confidence for each in comparisons if each.confidence is not None}
    interval = f"{format_percent(levels.pop())} interval" if len(levels) == 1 else "Interval"
    corrected = any(each.p_holm not in (None, each.p) for each in comparisons)
    rows = []
    for judged in comparisons:
        launches = f"{_launch_count_text(judged.baseline_value)} / {_launch_count_text(judged.candidate_value)}"
        chances = (_p_value_text(judged.p), _p_value_text(judged.p_holm) if corrected else "")
        rows.append((judged.verdict, format_ratio(judged.ratio), _interval_text(judged.interval), launches, *chances))
    return columns_from_rows(("Verdict", "Speed-up", interval, "Launches", "p", "p (Holm)"), rows, (0,))


def recorded_differences(document: CompareDocument, comparison: Comparison) -> list[PropertyDifference]:
    """The differences in hosts, settings or versions that a document has for candidate and baseline of a comparison."""
    return [each for each in document.differences if each.pair == comparison.pair]


def difference_columns(differences: Sequence[PropertyDifference]) -> list[Column]:
    rows = [
        (each.kind, each.name, format_cell(each.baseline_value), format_cell(each.candidate_value))
        for each in differences
    ]
    return columns_from_rows(("Differs", "", differences[0].baseline, differences[0].candidate), rows, range(4))


def _ratio_text(comparison: Comparison) -> str | None:
    """The ratio of a comparison with interval, threshold, launches and p value; None if it has no ratio."""
    if comparison.ratio is None:
        return None
    text = f"{format_ratio(comparison.ratio)} × as {improvement_adjective(comparison.unit)} in {comparison.metric}"
    threshold = f"threshold {format_percent(comparison.threshold)}"
    if comparison.noise_floor is not None:
        threshold += f", {noise_floor_text(comparison.noise_floor, 'results' if comparison.level_of else 'launches')}"
    if comparison.interval is not None:
        level = format_percent(comparison.interval.level)
        text += f" ({level} interval {_interval_text(comparison.interval)}, {threshold})"
    corrected = " (Holm)" if comparison.p_holm != comparison.p else ""
    return f"{text}, {_launches_text(comparison)}, p = {_p_value_text(comparison.p_holm)}{corrected}"


def improvement_adjective(unit: str) -> str:
    """The adjective in ``1.08 × as fast``: ``fast`` for units of times and rates, ``good`` for other units."""
    return "fast" if unit.endswith("/s") or unit in ("s", "ms", "us", "µs", "ns", "min", "h") else "good"


def _launches_text(comparison: Comparison) -> str:
    if comparison.paired or comparison.candidate_value is None:
        return count_with_noun(comparison.launches, "block")
    old, new = comparison.baseline_value.launches, comparison.candidate_value.launches
    counts = f"{count_with_noun(old, 'launch')} each" if old == new else f"{old} and {new} launches"
    return f"{counts}, not interleaved"


def _launch_count_text(metric_value: MedianValue | None) -> str:
    """The number of launches as text: ``6 (1 failed)``."""
    if metric_value is None:
        return NULL
    return f"{metric_value.launches}" + (
        f" ({metric_value.failed_launches} failed)" if metric_value.failed_launches else ""
    )


def _interval_text(interval: RatioInterval | None) -> str:
    return format_interval(interval.low, interval.high) if interval is not None else format_interval()


def _p_value_text(value: float | None) -> str:
    if value is None:
        return NULL
    return "<0.0001" if value < 0.0001 else f"{value:.2g}" if value < 0.0995 else f"{value:.2f}"


def noise_floor_text(floor: float, compared: str = "launches") -> str:
    """The noise floor as text: ``noise floor 1.2 %``; above 100 %, that the `compared` differ too much to judge.

    `compared`: launches or results.
    """
    many = f"above 100 %: {compared} differ too much to judge"
    return f"noise floor {many if floor > 1.0 else format_percent(floor)}"


def format_percent(share: float) -> str:
    """Format a share in percent: ``0.95`` → ``95 %``, ``0.98333`` → ``98.33 %``."""
    return f"{100.0 * share:.4g} %"
