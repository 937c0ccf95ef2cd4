"""The report of a campaign as text: what ran, how fast, what limited it, and whether it is proven."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TextIO

from merge_bench.analysis import aggregate
from merge_bench.analysis.documents.run import Document, RunDocument, SweepDocument, runs_of
from merge_bench.analysis.summary import summarize
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.errors import Caution
from merge_bench.records.campaign import WAYS, Campaign, Run
from merge_bench.view.numbers import cell, gib, ms, rows
from merge_bench.view.report import run_sections, transports, workers
from merge_bench.view.report.conclusion import conclude
from merge_bench.view.report.content import Column, Page
from merge_bench.view.report.next_step import export_command
from merge_bench.view.report.terminal import page_on

_NO_COLUMNS = frozenset(("iterations", "warmup", "launches", "timeout", "distribution_reason"))


def print_report(
    campaign: Campaign,
    document: Document | None = None,
    *,
    details: bool = True,
    file: TextIO | None = None,
    width: int | None = None,
    above: Collection[Caution] = (),
    below: str = "",
) -> None:
    """Print the report of `campaign` on `file` (standard output).

    Parameters
    ----------
    campaign
        The records.
    document
        Its `summarize`; made here if not given.
    details
        Print every table of every run before the conclusion.
    file
        A terminal gets colours and lines, anything else plain aligned text that is never wrapped.
    width
        Columns of a terminal; asked from it if not given.
    above
        Warnings that stand above it already.
    below
        An error, or what gates found, that is printed below it.
    """
    summary = summarize(campaign) if document is None else document
    with page_on(file, width) as page:
        if details:
            for run, one in zip(campaign.runs, runs_of(summary), strict=True):
                report_run(page, campaign, run, one)
            if not isinstance(summary, SweepDocument):
                page.line("")
        conclude(page, campaign, runs_of(summary), summary.records, whole=details, above=above, below=below)


def report_run(page: Page, campaign: Campaign, run: Run, document: RunDocument) -> None:
    """Everything about one run."""
    from merge_bench.view.plot import merge, timeline

    launches = aggregate.counted(run)
    mark = state_of(run, launches).mark
    figures = aggregate.worker_figures(launches)
    run_sections.header(page, run, launches, document)
    run_sections.imported(page, document)
    if launches:
        run_sections.totals(page, launches, document, mark)
        if page.whole:  # text has it in the conclusion
            page.pairs(("Limited by", run_sections.limited_by(run, document)))
        run_sections.iterations(page, launches, mark)
        if run.imported:
            page.note(f"workers, phases, link: {run_sections.absent(run, len(figures))}")
        else:
            workers.table(page, run, figures, mark)
            page.drawing(lambda: merge.workers(run))
            page.drawing(lambda: merge.phases(run))
            if page.whole and not (chart := timeline.timeline(campaign, run)).empty:
                page.drawing(lambda: chart)
                page.line(f"For https://ui.perfetto.dev, with all recorded iterations: {export_command(campaign)}")
            workers.pairs(page, len(figures), launches, mark)
            page.drawing(lambda: merge.pairs(run, document.lanes))
            run_sections.link(page, run, len(figures), document, mark)
            run_sections.memory_rate(page, document, mark)
    transports.selected(page, document.lanes, document.requested_transports)
    transports.protocols(page, document.protocols)
    transports.traffic(page, document.traffic)
    run_sections.verification(page, run, launches, document)
    page.end()


def overview(
    page: Page, runs: Sequence[Run], documents: Sequence[RunDocument], names: Sequence[str], *, apart: bool = False
) -> None:
    """One row a run, with what differs between their plans and is not in their `names`.

    `apart`: they are of several campaigns; an option that one of them did not record is then no difference.
    """
    named = list(zip(runs, names, strict=True))
    states = [state_of(run, aggregate.counted(run)) for run in runs]
    proven = all(state is State.VERIFIED for state in states)
    page.heading((f"All {len(runs)} runs" if len(runs) > 1 else "Run") + ", verified" * proven)
    questions = [run.plan.question for run in runs]
    several = len(set(questions)) > 1
    page.table(
        Column("Config" if any(run.config.name in name for run, name in named) else "Run", names, text=True),
        Column("Question", questions if several else [], text=True),
        *(
            Column(_heading(name), [_cell(run.options.get(name)) for run in runs])
            for name in _varying(runs, names, {None} if apart else set())
        ),
        Column("Wall-clock\n(ms)", [ms(one.wall_seconds.median) for one in documents]),
        Column("Bandwidth\n(GiB/s)", [gib(one.bandwidth_bytes_per_second.harmonic_mean) for one in documents]),
        Column("Throughput\n(GiB/s)", [gib(one.throughput_bytes_per_second.median) for one in documents]),
        Column("Of link\n(%)", [run_sections.of_limit(one.link.fraction if one.link else None) for one in documents]),
        Column("Result\nrows", [rows(one.result_rows) for one in documents] if several else []),
        Column("Limited\nby", [one.bottleneck.what if one.bottleneck else "" for one in documents], text=True),
        Column("Result", [] if proven else [state.mark or "verified" for state in states], text=True),
    )


def _varying(runs: Sequence[Run], names: Sequence[str], ignored: set[None]) -> list[str]:
    """The options that differ between the runs, except those that say how long they were measured, and sentences.

    Nor those that `names` have: the way of each run, or with Dask's exchange, which has a shuffle and no timeline.
    """
    told = {
        way for way in WAYS if all(str(run.options.get(way)) in name for run, name in zip(runs, names, strict=True))
    }
    told |= {"shuffle", "timeline"} if "exchange" in told else set()
    options = dict.fromkeys(name for run in runs for name in run.options if name not in {*_NO_COLUMNS, *told})
    plain = [name for name in options if not any(isinstance(run.options.get(name), (dict, list)) for run in runs)]
    return [name for name in plain if len({run.options.get(name) for run in runs} - ignored) > 1]


def _heading(name: str) -> str:
    first, *more = name.capitalize().split("_")
    return f"{first}\n{' '.join(more)}" if more else first


def _cell(value: object) -> str:
    return rows(value) if isinstance(value, int) and not isinstance(value, bool) else cell(value)
