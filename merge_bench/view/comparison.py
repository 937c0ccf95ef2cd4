"""A comparison for people, as text or Markdown: verdicts, every metric with the points it rests on, what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TextIO

from merge_bench.analysis.aggregate import UNVERIFIED
from merge_bench.analysis.documents import CompareDocument, Comparison, Difference, Interval, Value
from merge_bench.analysis.statistics.verdict import MOST
from merge_bench.errors import stdout_is_stderr
from merge_bench.units import plural
from merge_bench.view.content import Column, Page, by_row
from merge_bench.view.markdown import render
from merge_bench.view.next_command import NextStep
from merge_bench.view.numbers import NULL, cell, ends, gib, ms, ratio, rows
from merge_bench.view.terminal import page_on
from merge_bench.view.text import capitalized

UNITS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {"B/s": ("GiB/s", gib), "s": ("ms", ms)}
STYLES = {"FASTER": "bold green", "SLOWER": "bold red", "FAILED": "bold red", "WRONG": "bold red"}
_STRIP_COLUMNS = 24
_MOST_LISTED = 24  # of more blocks than this only the strip is shown


def print_comparison(
    document: CompareDocument,
    *,
    metric: str,
    details: bool = True,
    step: NextStep | None = None,
    gates: str = "",
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the document of ``compare`` on `file` (standard output), the verdicts last, so that a terminal shows them.

    `metric`: what the sentences are about; `details`: whether to print the tables; `step`: what to do next;
    `gates`: the line about gates that did not fail, printed last. That line, or the error that the command prints below
    it, has the caveats of the verdicts, which are not printed twice.
    """
    below = printed_below(document, gates)
    with page_on(file, width) as page:
        page.heading("merge_bench · compare")
        for name, path in lettered_results(document):
            page.unbroken(f"{name}   {path}")
        pairs = group_by_pair(document)
        if details:
            for comparisons in pairs:
                page.heading(title_of_comparison(comparison_in_metric(comparisons, metric)))
                write_figures(page, document, comparisons, metric)
            page.paragraphs("Notes", document.notes)
        if pairs:
            page.heading(f"{'Verdicts' if len(pairs) > 1 else 'Verdict'} on {metric}")
        for chosen in (comparison_in_metric(comparisons, metric) for comparisons in pairs):
            if len(pairs) > 1 or not details:
                page.line(title_of_comparison(chosen))
            write_verdict(page, chosen, below=below)
        if step is not None:
            page.next_step(step.command, step.does)
    if gates:
        print(gates, file=file)


def printed_below(document: CompareDocument, gates: str) -> str:
    """The text that a command prints below a comparison: `gates`, or the error if it goes to the same place."""
    return gates or (document.error.message if document.error is not None and stdout_is_stderr() else "")


def markdown(document: CompareDocument, *, metric: str) -> str:
    """The document of ``compare`` as GitHub-flavoured Markdown; `metric`: the metric of its verdict sentences."""
    page = Page(whole=True)
    page.pairs(*((name.removesuffix(":"), path) for name, path in lettered_results(document)))
    for comparisons in group_by_pair(document):
        write_pair(page, document, comparisons, metric)
    page.paragraphs("Notes", document.notes)
    return render(page.blocks)


def write_pair(page: Page, document: CompareDocument, comparisons: Sequence[Comparison], metric: str) -> None:
    """Put everything about one candidate and its baseline on a page, the verdict first."""
    chosen = comparison_in_metric(comparisons, metric)
    page.heading(title_of_comparison(chosen))
    write_verdict(page, chosen)
    write_figures(page, document, comparisons, metric)


def write_figures(page: Page, document: CompareDocument, comparisons: Sequence[Comparison], metric: str) -> None:
    """Put a table of all metrics of a candidate and its baseline on a page, and what differs between them."""
    chosen = comparison_in_metric(comparisons, metric)
    if any(each.ratio is not None for each in comparisons):
        name, *others = metric_columns(comparisons)
        mark = None if comparisons[0].verified else UNVERIFIED
        page.wide_table([name], others, [_strip_column(comparisons)], mark=mark)
    if ratios := ratios_line(chosen):
        page.line(ratios)
    if differences := differences_of_pair(document, chosen):
        page.line("")
        page.table(*difference_columns(differences))


def group_by_pair(document: CompareDocument) -> list[list[Comparison]]:
    """The comparisons of a document in order, grouped by candidate and baseline."""
    return [list(group) for _, group in groupby(document.comparisons, lambda each: each.pair)]


def comparison_in_metric(comparisons: Sequence[Comparison], metric: str) -> Comparison:
    """The comparison in `metric`, or the first comparison if that metric was not measured."""
    return next((each for each in comparisons if each.metric == metric), comparisons[0])


def lettered_results(document: CompareDocument) -> list[tuple[str, str]]:
    """The letter, or ``Result`` if there is one, and the folder of each result; for a level, that of its newest."""
    counts = {each.baseline_result: each.level_of for each in document.comparisons if each.level_of}
    levels = {path: f"level of {count} results, the newest in {path}" for path, count in counts.items()}
    names = (f"{each.letter}:" if each.letter else "Result" for each in document.results)
    return [(name, levels.get(each.path, each.path)) for name, each in zip(names, document.results, strict=True)]


def title_of_comparison(comparison: Comparison) -> str:
    """The title of a comparison: ``tcp against default · 1,000,000 rows per chunk, 2 workers``."""
    chunk, workers, *others = comparison.plan.items()
    what = [f"{rows(chunk[1])} rows per chunk"] if isinstance(chunk[1], int) else []
    what += [plural(workers[1], "worker")] if isinstance(workers[1], int) else []
    what += [f"{name} {value}" for name, value in others]
    aa = ", the same config (A/A)" if comparison.aa else ""
    return f"{comparison.candidate} against {comparison.baseline}{aa}" + (f" · {', '.join(what)}" if what else "")


def verdict_sentence(comparison: Comparison) -> str:
    """The verdict in one line, with its reason, ratio, interval and launches."""
    mark = "" if comparison.verified or comparison.ratio is None else f" {UNVERIFIED}"
    parts = [part for part in (_reason_text(comparison), _ratio_text(comparison), _launches_needed(comparison)) if part]
    return f"{comparison.verdict}{mark}: {'; '.join(parts)}"


def write_verdict(page: Page, comparison: Comparison, *, indent: int = 0, below: str = "") -> None:
    """Put the verdict and its caveats on a page, without caveats that the text `below` contains."""
    page.line(verdict_sentence(comparison), STYLES.get(comparison.verdict, "bold"), indent=indent)
    for caveat in (each for each in comparison.caveats if each not in below):
        page.line(f"{capitalized(caveat)}.", "yellow", indent=indent)


def ratios_line(comparison: Comparison) -> str | None:
    """A line with the ratio of every block, or launch, in order; None if there are one or too many."""
    ratios = comparison.points
    if not 1 < len(ratios) <= _MOST_LISTED:
        return None
    name = "by block" if comparison.paired else "by launch, against the baseline's median"
    return f"{comparison.metric} {name}: {'  '.join(ratio(point.ratio) for point in ratios)}"


def ratio_strip(ratios: Sequence[float], columns: int = _STRIP_COLUMNS) -> str:
    """A drawing, in characters, of ratios on a logarithmic axis: ``|`` is 1, ``o`` a ratio, a digit several ratios.

    ``[0.99, 1.01, 1.01]`` in 4 columns → ``0.990 [o..|.2] 1.010``
    """
    logs = [math.log(ratio) for ratio in ratios]
    low, high = min(0.0, *logs), max(0.0, *logs)
    step = (high - low) / columns or 1.0
    left, right = math.ceil(-low / step), math.ceil(high / step)
    cells = [0] * max(1, left + right)
    for log in logs:
        cells[min(max(math.floor(log / step) + left, 0), len(cells) - 1)] += 1
    drawn = "".join("." if count == 0 else "o" if count == 1 else str(count) if count < 10 else "#" for count in cells)
    return f"{ratio(math.exp(low))} [{drawn[:left]}|{drawn[left:]}] {ratio(math.exp(high))}"


def metric_columns(comparisons: Sequence[Comparison]) -> list[Column]:
    """The columns of a table with a row for each metric."""
    first = comparisons[0]
    judged = judged_columns(comparisons)
    shown = [UNITS[each.unit][1] for each in comparisons]
    old = [each.baseline_value.median for each in comparisons]
    new = [each.candidate_value.median if each.candidate_value else None for each in comparisons]
    return [
        Column("Metric", [f"{each.metric} ({UNITS[each.unit][0]})" for each in comparisons], text=True),
        *judged[:3],
        Column(first.baseline, [form(value) for form, value in zip(shown, old, strict=True)]),
        Column(first.candidate, [form(value) for form, value in zip(shown, new, strict=True)]),
        *judged[3:],
    ]


def judged_columns(comparisons: Sequence[Comparison]) -> list[Column]:
    """The columns of a table of comparisons: verdict, speed-up, interval, launches and p values."""
    corrected = any(each.p_holm not in (None, each.p) for each in comparisons)
    return [
        Column("Verdict", [each.verdict for each in comparisons], text=True),
        Column("Speed-up", [ratio(each.ratio) for each in comparisons]),
        Column(_interval_heading(comparisons), [_interval_text(each.interval) for each in comparisons]),
        Column("Launches", [_launch_counts(each) for each in comparisons]),
        Column("p", [_p_value_text(each.p) for each in comparisons]),
        Column("p (Holm)", [_p_value_text(each.p_holm) if corrected else "" for each in comparisons]),
    ]


def _strip_column(comparisons: Sequence[Comparison]) -> Column:
    """The column that draws the ratios of each comparison in characters."""
    name = "By block" if comparisons[0].paired else "By launch"
    strips = [ratio_strip([point.ratio for point in each.points]) if each.points else "" for each in comparisons]
    return Column(name, strips, text=True, code=True)


def differences_of_pair(document: CompareDocument, comparison: Comparison) -> list[Difference]:
    """The recorded differences between the two runs of a comparison: options, hosts, versions."""
    return [each for each in document.differences if each.pair == comparison.pair]


def difference_columns(differences: Sequence[Difference]) -> list[Column]:
    """The columns of a table with a row for each difference between two runs."""
    rows = [(each.kind, each.name, cell(each.baseline_value), cell(each.candidate_value)) for each in differences]
    return by_row(("Differs", "", differences[0].baseline, differences[0].candidate), rows, range(4))


def _reason_text(comparison: Comparison) -> str | None:
    """The reason of a verdict in words; None if it has none."""
    reason = comparison.reason
    same = "between launches of the same config"
    noisy = f"what {comparison.level_of} results of the level can tell from noise" if comparison.level_of else same
    words = {
        "underpowered": "too few launches for a verdict",
        "wide-interval": f"the true difference may be below or above {percent(comparison.threshold)}",
        "within-noise": f"the difference is no larger than {noisy}",
    }
    return words.get(reason, str(reason)) if reason else None


def _ratio_text(comparison: Comparison) -> str | None:
    """The ratio of a comparison with interval, threshold, launches and p value; None if it has no ratio."""
    if comparison.ratio is None:
        return None
    text = f"{ratio(comparison.ratio)} × as fast in {comparison.metric}"
    threshold = f"threshold {percent(comparison.threshold)}"
    if comparison.noise_floor is not None:
        threshold += f", {noise_floor_text(comparison.noise_floor, 'results' if comparison.level_of else 'launches')}"
    if comparison.interval is not None:
        text += f" ({percent(comparison.interval.level)} interval {_interval_text(comparison.interval)}, {threshold})"
    corrected = " (Holm)" if comparison.p_holm != comparison.p else ""
    return f"{text}, {_launches_made(comparison)}, p = {_p_value_text(comparison.p_holm)}{corrected}"


def _launches_made(comparison: Comparison) -> str:
    """The number of blocks of launches, or of launches of baseline and candidate, as text."""
    if comparison.paired or comparison.candidate_value is None:
        return plural(comparison.launches, "block")
    old, new = comparison.baseline_value.launches, comparison.candidate_value.launches
    counts = f"{plural(old, 'launch')} each" if old == new else f"{old} and {new} launches"
    return f"{counts}, not interleaved"


def _launches_needed(comparison: Comparison) -> str | None:
    """How many more launches an inconclusive comparison needs for a verdict; None for other verdicts."""
    if comparison.verdict != "INCONCLUSIVE" or comparison.level_of:
        return None
    more = comparison.more_launches
    if more is None:
        return f"a verdict needs more than {MOST} launches of each config"
    return f"a verdict needs about {plural(more, 'more launch')} of each config"


def _launch_counts(comparison: Comparison) -> str:
    """``6 / 6 (1 failed)``: launches of the baseline and of the candidate."""

    def side(value: Value | None) -> str:
        if value is None:
            return NULL
        failed = f" ({value.failed_launches} failed)" if value.failed_launches else ""
        return f"{value.launches}{failed}"

    return f"{side(comparison.baseline_value)} / {side(comparison.candidate_value)}"


def _interval_heading(comparisons: Sequence[Comparison]) -> str:
    levels = {each.confidence for each in comparisons if each.confidence is not None}
    return f"{percent(levels.pop())} interval" if len(levels) == 1 else "Interval"


def _interval_text(interval: Interval | None) -> str:
    return ends(interval.low, interval.high) if interval is not None else ends()


def _p_value_text(value: float | None) -> str:
    if value is None:
        return NULL
    return "<0.0001" if value < 0.0001 else f"{value:.2g}" if value < 0.0995 else f"{value:.2f}"


def noise_floor_text(floor: float, between: str = "launches") -> str:
    """``noise floor 1.2 %``; above 100 %, that `between`, launches or results, differ too much to judge."""
    many = f"above 100 %: {between} differ too much to judge"
    return f"noise floor {many if floor > 1.0 else percent(floor)}"


def percent(share: float) -> str:
    """A share in percent: ``0.95`` → ``95 %``, ``0.98333`` → ``98.33 %``."""
    return f"{100.0 * share:.4g} %"
