"""A comparison for people, as text or Markdown: verdicts, every metric with the points it rests on, what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TextIO

from merge_bench.analysis.documents.compare import CompareDocument, Comparison, Difference, Interval, Value
from merge_bench.analysis.statistics.power import MOST
from merge_bench.analysis.verification_state import UNVERIFIED
from merge_bench.errors import one_stream
from merge_bench.units import plural
from merge_bench.view.content import Column, Page, by_row
from merge_bench.view.markdown import render
from merge_bench.view.next_command import NextStep
from merge_bench.view.numbers import NULL, cell, ends, gib, ms, ratio, rows
from merge_bench.view.terminal import page_on
from merge_bench.view.text import capitalized

UNITS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {"B/s": ("GiB/s", gib), "s": ("ms", ms)}
STYLES = {"FASTER": "bold green", "SLOWER": "bold red", "FAILED": "bold red", "WRONG": "bold red"}
_STRIP = 24  # columns
_LISTED = 24  # of more blocks than this only the strip is shown


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
        for name, path in lettered(document):
            page.unbroken(f"{name}   {path}")
        pairs = by_pair(document)
        if details:
            for comparisons in pairs:
                page.heading(title(about(comparisons, metric)))
                write_figures(page, document, comparisons, metric)
            page.paragraphs("Notes", document.notes)
        if pairs:
            page.heading(f"{'Verdicts' if len(pairs) > 1 else 'Verdict'} on {metric}")
        for chosen in (about(comparisons, metric) for comparisons in pairs):
            if len(pairs) > 1 or not details:
                page.line(title(chosen))
            write_verdict(page, chosen, below=below)
        if step is not None:
            page.next_step(step.command, step.does)
    if gates:
        print(gates, file=file)


def printed_below(document: CompareDocument, gates: str) -> str:
    """What a command prints below a comparison where its standard output goes: `gates`, or the error."""
    return gates or (document.error.message if document.error is not None and one_stream() else "")


def markdown(document: CompareDocument, *, metric: str) -> str:
    """The document of ``compare`` as GitHub-flavoured Markdown; `metric` is what the sentences are about."""
    page = Page(whole=True)
    page.pairs(*((name.removesuffix(":"), path) for name, path in lettered(document)))
    for comparisons in by_pair(document):
        write_pair(page, document, comparisons, metric)
    page.paragraphs("Notes", document.notes)
    return render(page.blocks)


def write_pair(page: Page, document: CompareDocument, comparisons: Sequence[Comparison], metric: str) -> None:
    """Everything about one pair, its verdict first."""
    chosen = about(comparisons, metric)
    page.heading(title(chosen))
    write_verdict(page, chosen)
    write_figures(page, document, comparisons, metric)


def write_figures(page: Page, document: CompareDocument, comparisons: Sequence[Comparison], metric: str) -> None:
    """Every metric of a pair with the points that it rests on, and what differs."""
    chosen = about(comparisons, metric)
    if any(each.ratio is not None for each in comparisons):
        name, *others = metric_columns(comparisons)
        mark = None if comparisons[0].verified else UNVERIFIED
        page.wide_table([name], others, [_strips(comparisons)], mark=mark)
    if ratios := points(chosen):
        page.line(ratios)
    if differences := of_pair(document, chosen):
        page.line("")
        page.table(*difference_columns(differences))


def by_pair(document: CompareDocument) -> list[list[Comparison]]:
    """The comparisons, those of one candidate and its baseline together, as they stand in the document."""
    return [list(group) for _, group in groupby(document.comparisons, lambda each: each.pair)]


def about(comparisons: Sequence[Comparison], metric: str) -> Comparison:
    """The comparison of `metric`; of the first one where it was not measured."""
    return next((each for each in comparisons if each.metric == metric), comparisons[0])


def lettered(document: CompareDocument) -> list[tuple[str, str]]:
    """The letter of each result, where there are several, and its folder; of a level, that of its newest result."""
    counts = {each.baseline_result: each.level_of for each in document.comparisons if each.level_of}
    levels = {path: f"level of {count} results, the newest in {path}" for path, count in counts.items()}
    names = (f"{each.letter}:" if each.letter else "Result" for each in document.results)
    return [(name, levels.get(each.path, each.path)) for name, each in zip(names, document.results, strict=True)]


def title(comparison: Comparison) -> str:
    """Who against whom, on what."""
    chunk, workers, *others = comparison.plan.items()
    what = [f"{rows(chunk[1])} rows per chunk"] if isinstance(chunk[1], int) else []
    what += [plural(workers[1], "worker")] if isinstance(workers[1], int) else []
    what += [f"{name} {value}" for name, value in others]
    aa = ", the same config (A/A)" if comparison.aa else ""
    return f"{comparison.candidate} against {comparison.baseline}{aa}" + (f" · {', '.join(what)}" if what else "")


def sentence(comparison: Comparison) -> str:
    """The verdict in one line, with what it rests on."""
    mark = "" if comparison.verified or comparison.ratio is None else f" {UNVERIFIED}"
    parts = [part for part in (_why(comparison), _ratio(comparison), _more(comparison)) if part]
    return f"{comparison.verdict}{mark}: {'; '.join(parts)}"


def write_verdict(page: Page, comparison: Comparison, *, indent: int = 0, below: str = "") -> None:
    """The verdict, and what else may explain it, unless the text `below` says so."""
    page.line(sentence(comparison), STYLES.get(comparison.verdict, "bold"), indent=indent)
    for caveat in (each for each in comparison.caveats if each not in below):
        page.line(f"{capitalized(caveat)}.", "yellow", indent=indent)


def points(comparison: Comparison) -> str | None:
    """The ratio of every block in order, if they fit on a line or two."""
    ratios = comparison.points
    if not 1 < len(ratios) <= _LISTED:
        return None
    name = "by block" if comparison.paired else "by launch, against the baseline's median"
    return f"{comparison.metric} {name}: {'  '.join(ratio(point.ratio) for point in ratios)}"


def strip(ratios: Sequence[float], columns: int = _STRIP) -> str:
    """Points on a logarithmic axis, its ends beside it; ``|`` is a ratio of 1, ``o`` a point, a figure so many points.

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
    """A row a metric."""
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
    """Verdicts, speed-ups and intervals; then launches and p."""
    corrected = any(each.p_holm not in (None, each.p) for each in comparisons)
    return [
        Column("Verdict", [each.verdict for each in comparisons], text=True),
        Column("Speed-up", [ratio(each.ratio) for each in comparisons]),
        Column(_heading(comparisons), [_interval(each.interval) for each in comparisons]),
        Column("Launches", [_launches(each) for each in comparisons]),
        Column("p", [_p(each.p) for each in comparisons]),
        Column("p (Holm)", [_p(each.p_holm) if corrected else "" for each in comparisons]),
    ]


def _strips(comparisons: Sequence[Comparison]) -> Column:
    """The points of every metric."""
    name = "By block" if comparisons[0].paired else "By launch"
    strips = [strip([point.ratio for point in each.points]) if each.points else "" for each in comparisons]
    return Column(name, strips, text=True, code=True)


def of_pair(document: CompareDocument, comparison: Comparison) -> list[Difference]:
    """What differs between the two runs of `comparison`."""
    return [each for each in document.differences if each.pair == comparison.pair]


def difference_columns(differences: Sequence[Difference]) -> list[Column]:
    """A row a difference."""
    rows = [(each.kind, each.name, cell(each.baseline_value), cell(each.candidate_value)) for each in differences]
    return by_row(("Differs", "", differences[0].baseline, differences[0].candidate), rows, range(4))


def _why(comparison: Comparison) -> str | None:
    reason = comparison.reason
    same = "between launches of the same config"
    noisy = f"what {comparison.level_of} results of the level can tell from noise" if comparison.level_of else same
    words = {
        "underpowered": "too few launches for a verdict",
        "wide-interval": f"the true difference may be below or above {percent(comparison.threshold)}",
        "within-noise": f"the difference is no larger than {noisy}",
    }
    return words.get(reason, str(reason)) if reason else None


def _ratio(comparison: Comparison) -> str | None:
    if comparison.ratio is None:
        return None
    text = f"{ratio(comparison.ratio)} × as fast in {comparison.metric}"
    threshold = f"threshold {percent(comparison.threshold)}"
    if comparison.noise_floor is not None:
        threshold += f", {noise(comparison.noise_floor, 'results' if comparison.level_of else 'launches')}"
    if comparison.interval is not None:
        text += f" ({percent(comparison.interval.level)} interval {_interval(comparison.interval)}, {threshold})"
    corrected = " (Holm)" if comparison.p_holm != comparison.p else ""
    return f"{text}, {_made(comparison)}, p = {_p(comparison.p_holm)}{corrected}"


def _made(comparison: Comparison) -> str:
    """Blocks of launches, or the launches of each side."""
    if comparison.paired or comparison.candidate_value is None:
        return plural(comparison.launches, "block")
    old, new = comparison.baseline_value.launches, comparison.candidate_value.launches
    counts = f"{plural(old, 'launch')} each" if old == new else f"{old} and {new} launches"
    return f"{counts}, not interleaved"


def _more(comparison: Comparison) -> str | None:
    if comparison.verdict != "INCONCLUSIVE" or comparison.level_of:
        return None
    more = comparison.more_launches
    if more is None:
        return f"a verdict needs more than {MOST} launches of each config"
    return f"a verdict needs about {plural(more, 'more launch')} of each config"


def _launches(comparison: Comparison) -> str:
    def side(value: Value | None) -> str:
        if value is None:
            return NULL
        failed = f" ({value.failed_launches} failed)" if value.failed_launches else ""
        return f"{value.launches}{failed}"

    return f"{side(comparison.baseline_value)} / {side(comparison.candidate_value)}"


def _heading(comparisons: Sequence[Comparison]) -> str:
    levels = {each.confidence for each in comparisons if each.confidence is not None}
    return f"{percent(levels.pop())} interval" if len(levels) == 1 else "Interval"


def _interval(interval: Interval | None) -> str:
    return ends(interval.low, interval.high) if interval is not None else ends()


def _p(value: float | None) -> str:
    if value is None:
        return NULL
    return "<0.0001" if value < 0.0001 else f"{value:.2g}" if value < 0.0995 else f"{value:.2f}"


def noise(floor: float, between: str = "launches") -> str:
    """``noise floor 1.2 %``; of one above 100 %, that so noisy `between` are no use."""
    many = f"above 100 %: {between} differ too much to judge"
    return f"noise floor {many if floor > 1.0 else percent(floor)}"


def percent(share: float) -> str:
    """``0.95`` → ``95 %``, ``0.98333`` → ``98.33 %``."""
    return f"{100.0 * share:.4g} %"
