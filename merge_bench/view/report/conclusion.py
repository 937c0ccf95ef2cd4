"""What a run says by default: proven or not, how fast, where the time goes, what limits it, and what to do next.

One run fits a terminal of 24 lines of 80 columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.fail_on import METRIC
from merge_bench.analysis.documents.compare import Comparison
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.statistics import median_interval, quartiles
from merge_bench.analysis.statistics.verdict import Verdict
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.errors import Caution, UsageError, WrongResult, wrapped
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.view.numbers import NULL, gib, ms, number, ratio, rows
from merge_bench.view.report import comparison as comparing
from merge_bench.view.report import run_sections
from merge_bench.view.report.content import Page, by_row
from merge_bench.view.report.next_step import NextStep, after_run, after_sweep, elsewhere, typed

if TYPE_CHECKING:
    from merge_bench.view.plot.marks import Chart

LINES, COLUMNS = 23, 80
"""What one run may take of a terminal, whose last line is the prompt's."""

_ALIKE = 0.1
"""Rates that differ by at most this share look alike beside a share of the link limit."""


def conclude(
    page: Page, campaign: Campaign, documents: Sequence[RunDocument], records: str, *, whole: bool = False,
    above: Collection[Caution] = (), below: str = "",
) -> None:  # fmt: skip
    """Put the conclusion of `campaign` on a page, with `documents` of its runs.

    `records`: where they are, as it is printed; `whole`: all warnings, not only as many as there is room for;
    `above`: warnings that stand above it already; `below`: an error, or what gates found, that is
    printed below it.
    """
    if len(campaign.runs) == 1:
        ((run,), (document,)) = campaign.runs, documents
        step = after_run(campaign, document)
        room = LINES - _run(page, run, document)
    else:
        step, room = _sweep(page, campaign, documents, below), LINES // 2
    quietly = "" if step is None else step.quietly(campaign)
    step = None if step is None else step.after(campaign)
    if step is not None and not page.whole:  # a report is read elsewhere, too
        step = typed(step)
    records = f"{records}{elsewhere()}"
    copied = [f"Records: {records}"] + ([] if step is None else [f"Next: {step.command}"])
    errors = run_sections.error_lines([one for one in documents if one.error is None or one.error.message != below])
    room -= sum(_height(text) for text in errors) + sum(-(-len(text) // COLUMNS) for text in copied)
    room -= 0 if step is None else _height(f"      ({step.does})") + bool(quietly)
    for text in errors:
        page.line(text, "bold red")
    found = list(dict.fromkeys(each for one in documents for each in one.warnings if each not in above))
    if all(one.imported is not None for one in documents):  # the line above the figures says so
        found = [each for each in found if each.code != diagnostics.UNVERIFIED]
    if page.whole:
        run_sections.warnings_by_kind(page, found)
    else:
        _warnings(page, found, None if whole else room)
    if step is not None and not (page.whole and step.reports):
        page.next_step(step.command, step.does)
        if quietly:
            page.line(f"      ({quietly})", "dim")
    if not page.whole:  # a report names them with the environment
        page.unbroken(f"Records: {records}")


def headline(documents: Sequence[RunDocument], campaigns: Sequence[Campaign]) -> tuple[str, bool]:
    """One sentence about the runs of `documents`, and whether anything was decided; empty if there is none so short.

    A single run has its figures and what limits it, a comparison its verdict.
    """
    if len(documents) == 1:
        (one,) = documents
        if one.wall_seconds.median is None:
            return "", True
        rates = (one.throughput_bytes_per_second.median, one.bandwidth_bytes_per_second.harmonic_mean)
        parts = [f"Wall-clock {ms(one.wall_seconds.median)} ms"]
        parts += [
            f"{name} {gib(rate)} GiB/s" for name, rate in zip(("throughput", "bandwidth"), rates, strict=True) if rate
        ]
        return ", ".join(parts) + (f"; limited by {one.bottleneck.what}" if one.bottleneck else ""), True
    try:
        found = [each for each in compare(campaigns).comparisons if each.metric == METRIC] if documents else []
    except (UsageError, WrongResult):
        found = []
    if len(found) != 1:
        return "", True
    (verdict,) = found
    much = f", {ratio(verdict.ratio)} × as fast in {METRIC}" if verdict.ratio is not None else ""
    return f"{verdict.verdict}: {comparing.title(verdict)}{much}", verdict.verdict != Verdict.INCONCLUSIVE.value


def _run(page: Page, run: Run, document: RunDocument) -> int:
    """One run without its errors, warnings and what comes next; returns the number of lines that it takes."""
    launches = aggregate.counted(run)
    mark = None if document.imported is not None else state_of(run, launches).mark
    title, ran = f"merge_bench · {document.run_id}", run_sections.what_ran(run, launches, document)
    if not page.whole:  # a report has a title
        page.line(title, "bold cyan")
    page.line(ran)
    hosts = {worker.host for launch in launches if launch.line is not None for worker in launch.line.workers}
    apart = "; on each host the parts of its workers, unless they share the folder" if len(hosts) > 1 else ""
    folders = [check.folder for launch in launches for check in launch.verifications if check.folder]
    if document.verified:
        checks = sum(len(launch.verifications) for launch in run.launches)
        passed = f"all {checks} checks passed" if checks > 1 else "checked once"
        page.line(f"verified: {rows(document.result_rows)} rows, {passed}", "green")
        for folder in folders:
            page.line(f"Merged table: {folder} (read back and verified{apart})")
    elif launches or document.error is None or state_of(run, launches) is State.WRONG:
        run_sections.verdict(page, run, launches, document)
    height = _height(title) + _height(ran) + (1 + len(folders) if document.verified else 3)
    if not launches:
        return height
    figures(page, launches, document, mark)
    facts = list(_facts(run, launches, document))
    page.pairs(*facts, mark=mark)
    page.drawing(lambda: _key_chart(run, document))
    widest = max(len(name) for name, _ in facts) + 3
    return height + 5 + sum(_height(value, widest) for _, value in facts)


def _key_chart(run: Run, document: RunDocument) -> Chart:
    """Where the time of a merge goes; without phases, every iteration."""
    from merge_bench.view.plot import merge

    found = merge.phases(run)
    return merge.iterations([merge.Labelled(document.config.name, 0, run)]) if found.empty else found


def _height(text: str, indent: int = 0) -> int:
    """The number of lines that a text takes."""
    return len(wrapped(text, COLUMNS - indent).splitlines()) or 1


def figures(page: Page, launches: Sequence[Launch], document: RunDocument, mark: str | None) -> None:
    """Wall-clock, throughput and bandwidth with their spread, a row each."""
    parts = (
        ("Wall-clock (ms)", ms, document.wall_seconds.median, aggregate.wall),
        ("Throughput (GiB/s)", gib, document.throughput_bytes_per_second.median, aggregate.throughput),
        ("Bandwidth (GiB/s)", gib, document.bandwidth_bytes_per_second.harmonic_mean, aggregate.bandwidth),
    )
    cells = []
    for name, form, middle, value in parts:
        values, interval = aggregate.each(launches, value), median_interval(aggregate.samples(launches, value))
        low, _, high = quartiles(values) if values else (None, None, None)
        ends = ((low, high), (min(values, default=None), max(values, default=None)))
        spreads = [NULL if one is None else f"{form(one)}–{form(other)}" for one, other in ends]
        certain = "" if interval is None else f"{form(interval.low)}–{form(interval.high)}"
        cells.append([name, form(middle), *spreads, certain])
    page.table(*by_row(("", "Median", "Quartiles", "Min–max", "95 % interval"), cells, [0]), mark=mark)


def _facts(run: Run, launches: Sequence[Launch], document: RunDocument) -> Iterable[tuple[str, str]]:
    wall = document.wall_seconds.median
    seconds = [(name, getattr(document.phases_seconds, name)) for name in aggregate.PHASES]
    if all(each is not None for _, each in seconds) and wall:
        shown = ", ".join(f"{name} {ms(each)} ({each / wall:.0%})" for name, each in seconds)
        more = sum(round(100 * (each or 0.0) / wall) for _, each in seconds) > 100
        whose = "" if run.plan.workers == 1 else "; slowest worker of each phase"
        whose += ", so more than 100% in all" if more and whose and not run.plan.pipeline else ""
        yield "Phases (ms)", shown + (", overlapped" if run.plan.pipeline else "") + whose
    yield "Limited by", run_sections.limited_by(run, document)
    link = document.link
    if link is not None:
        limit = f"link limit of {gib(link.limit_bytes_per_second)} GiB/s at this size"
        if link.fraction is not None:
            share = f"{run_sections.of_limit(link.fraction)}%"
            limit = f"{share} of the {limit}"
        limit += f", over {', '.join(link.transports)}" if link.transports else ""
        yield "Link", limit + ("" if link.fraction is None else _beside_bandwidth(launches, document))
    peaks = [worker for worker in document.peak_memory_bytes.per_worker if worker.peak is not None]
    if peaks:
        most = max(peaks, key=lambda worker: worker.peak or 0)
        times = most.above_imports / most.input if most.above_imports is not None and most.input else None
        ratio = "" if times is None else f", {number(times)} × its input above imports"
        on_gpu = max((worker.device_peak for worker in peaks if worker.device_peak is not None), default=None)
        device = f"; {gib(on_gpu)} GiB of GPU memory" if on_gpu is not None else ""
        yield "Peak memory", f"{gib(most.peak)} GiB in a worker{ratio}{device}"


def _beside_bandwidth(launches: Sequence[Launch], document: RunDocument) -> str:
    """Why the share of the link limit does not follow from the bandwidth, where it does not."""
    ranks, workers = aggregate.silent(launches), len(aggregate.worker_figures(launches))
    if ranks:
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} of {workers} workers"
        return f"; share and limit count {who}, which sent nothing; Bandwidth does not"
    rate, bandwidth = aggregate.of_run(launches, aggregate.flight_rate), document.bandwidth_bytes_per_second
    if rate is None or not bandwidth.harmonic_mean or abs(rate / bandwidth.harmonic_mean - 1) <= _ALIKE:
        return ""
    return f"; all bytes together: {gib(rate)} GiB/s, where Bandwidth is a mean over frames and workers"


def _sweep(page: Page, campaign: Campaign, documents: Sequence[RunDocument], below: str) -> NextStep | None:
    """A row for each run, and a verdict for each config against the first, which a report begins with."""
    from merge_bench.view.report.run import overview

    if not page.whole:
        overview(page, campaign.runs, documents, campaign.labels)
    names = list(dict.fromkeys(campaign.labels))
    looks = {name: at for at, name in enumerate(names)}
    comparisons = verdicts(page, [campaign], looks, below) if len(names) > 1 else []
    if page.whole:
        overview(page, campaign.runs, documents, campaign.labels)
    return after_sweep(campaign, documents, comparisons)


def verdicts(page: Page, campaigns: Sequence[Campaign], looks: Mapping[str, int], below: str = "") -> list[Comparison]:
    """The verdict on each run against its baseline, and their drawing.

    `looks`: of each run in all drawings; `below`: as in `conclude`.
    """
    from merge_bench.view.plot import merge

    try:
        document = compare(campaigns)
    except (UsageError, WrongResult) as why:
        page.line(f"No verdict: {why}", "yellow")
        return []
    found = [each for each in document.comparisons if each.metric == METRIC]
    if found:
        page.heading(f"Verdicts on {METRIC}")
    for each in found:
        page.line(comparing.title(each))
        comparing.write_verdict(page, each, indent=2, below=below)
    page.drawing(lambda: merge.speedups(document, METRIC, looks))
    return found


def _warnings(page: Page, found: Sequence[Caution], room: int | None) -> None:
    """The first of the warnings, with their remedies, as far as `room` for lines goes, but one at least."""
    for at, caution in enumerate(found):
        text = f"{caution.code}: {caution.message}"
        remedy = f"→ {caution.remedy}" if caution.remedy else ""
        height = _height(text) + (_height(remedy, 2) if remedy else 0)
        if room is not None:
            left = len(found) - at
            room -= height
            if at and room < (left > 1):
                page.line(f"{left} more warning{'s' * (left > 1)} with `show --details`, and in the report", "dim")
                return
        page.line(text, "yellow")
        if remedy:
            page.line(remedy, indent=2)
