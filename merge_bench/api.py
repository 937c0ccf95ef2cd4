"""The Python functions: run a merge, load stored results, compare them, see their history, get data frames and plots.

They are what ``import merge_bench`` offers; `docs/results.md` has examples.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from merge_bench.analysis import aggregate, dataframes
from merge_bench.analysis.aggregate import verification_state
from merge_bench.errors import GateNotMet, RunFailed, UsageError, WrongResult, print_message
from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.reader import read_campaign
from merge_bench.units import format_count, format_rate

if TYPE_CHECKING:
    from merge_bench.analysis import documents
    from merge_bench.analysis.documents import CompareDocument
    from merge_bench.campaign import CallingProgram, ProgressDisplay
    from merge_bench.campaign.planned_launches import Sweep
    from merge_bench.command.command_campaign import CommandCampaign
    from merge_bench.config.options import RunOptions
    from merge_bench.regressions.gates import RegressionGate
    from merge_bench.view.plot import Chart

Document = dict[str, Any]
Frame = Literal["pandas", "polars"]
Backend = Literal["bokeh", "matplotlib"]
_OfRuns = Literal["iterations", "workers", "phases", "timeline", "pairs"]
Kind = Literal["throughput", "bandwidth", "speed-up", _OfRuns, "tuning", "network"]
_COMMAND_LINE_ONLY = ("json", "dry_run", "details", "service")
_RUNS_SHOWN = 3  # in the text of a result
_ERRORS = {GateNotMet.exit_status: GateNotMet, WrongResult.exit_status: WrongResult}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A stored campaign: merges, a network measurement, a tuning, or an import."""

    campaign: Campaign

    def __repr__(self) -> str:
        """What the campaign ran, whether the result is verified, how fast merges were, and the campaign's folder."""
        campaign = self.campaign
        if campaign.probe:
            rows = sum(len(launch.probes) for launch in campaign.launches_not_replaced)
            shown = [f"probe {campaign.probe}: {rows} rows in {len(campaign.launches_not_replaced)} launches"]
        else:
            named_runs = zip(campaign.run_labels, campaign.runs, strict=True)
            shown = [_describe_run(name, run) for name, run in list(named_runs)[:_RUNS_SHOWN]]
            more = len(campaign.runs) - len(shown)
            shown += [f"and {more} more runs"] if more else []
        status = {None: "not finished", 0: "successful"}.get(self.status, f"status {self.status}")
        return "\n".join([f"Result {campaign.head.campaign_id} ({status})", *shown, str(self.folder)])

    @property
    def folder(self) -> Path:
        """The folder that holds the records of the campaign."""
        return self.campaign.folder

    @property
    def status(self) -> int | None:
        """The exit status of the command that made the campaign; None if it was killed or is still running."""
        return self.campaign.end.status if self.campaign.end else None

    @cached_property
    def document(self) -> Document:
        """The document that ``run --json`` prints, with ``runs`` if there are several (`docs/reference/records.md`)."""
        return _as_python_dict(self._summary_document)

    @cached_property
    def _summary_document(self) -> documents.Document:
        from merge_bench.analysis.summary import summarize_campaign

        return summarize_campaign(self.campaign)

    @property
    def _run_documents(self) -> Sequence[documents.RunDocument]:
        from merge_bench.analysis.documents import run_documents

        return run_documents(self._summary_document)

    @property
    def verified(self) -> bool:
        """Whether the result of every run was verified; the numbers of an unverified result prove nothing."""
        return all(one.verified for one in self._run_documents)

    def iterations(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every timed iteration: wall-clock (s), throughput and bandwidth (B/s)."""
        return _data_frame(dataframes.iteration_rows(self.campaign), frame)

    def workers(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every worker in every timed iteration: phases (s), bytes, bandwidth (B/s)."""
        return _data_frame(dataframes.worker_rows(self.campaign), frame)

    def pairs(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every ordered pair of workers in every launch: bytes, rate (B/s), transports."""
        return _data_frame(dataframes.worker_pair_rows(self.campaign), frame)

    def launches(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every launch, the unit of all statistics."""
        return _data_frame(dataframes.launch_rows(self.campaign), frame)

    def probes(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every measured value of a network measurement: a test at a message size."""
        return _data_frame(dataframes.probe_rows(self.campaign), frame)

    def plot(self, kind: Kind, which: int = 0, *, backend: Backend = "bokeh") -> Any:
        """A plot of the campaign, as a figure of Bokeh or of Matplotlib.

        `kind`: ``throughput``, ``bandwidth``: of all runs; ``speed-up``: of the configs over the first; ``iterations``:
        of all runs of one problem, of a command its launches in one metric; ``workers``, ``phases``, ``timeline``,
        ``pairs``: of one run; ``tuning``; ``network``. `which`: which problem, metric, run, phase of tuning or panel,
        from 0.

        Raises UsageError if there is no such plot, or nothing to plot.
        """
        from merge_bench.report.page.results import charts_of_kind

        drawings = charts_of_kind(self.campaign, kind)
        if not drawings:
            raise UsageError(f"{self.folder} has no data for a plot of kind {kind!r}")
        if not 0 <= which < len(drawings):
            numbers = f"0 to {len(drawings) - 1}" if len(drawings) > 1 else "0"
            raise UsageError(f"{self.folder} has no {kind!r} plot {which}; choose from {numbers}")
        return _figure_maker(backend)(drawings[which])

    def write_report(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the page of ``report`` and return its path; by default ``report.html`` in the campaign's folder.

        Raises UsageError if the page cannot be written there.
        """
        from merge_bench.report.page import write_html_report

        return write_html_report([self.campaign], Path(path) if path is not None else None)


def load(result: str | PathLike[str]) -> Result:
    """Read a campaign: its folder, or its ``records.jsonl``.

    Raises UsageError if there is none, or it is damaged; the message names the file and the line.
    """
    return Result(read_campaign(result))


def run(*, check: bool = True, **options: object) -> Result:
    """Merge, as ``python -m merge_bench run`` does, and return the result.

    `options`: those of the command, with underscores: ``run(chunk=1e6, workers=2, config="tcp.cfg")``. A list makes a
    sweep, True sets a flag; text is read as on the command line (``rmm_pool_size="28GiB"``).

    Raises UsageError if an option is wrong; nothing was started then. With `check`, also raises RunFailed, WrongResult
    or GateNotMet if a launch failed, the merge was wrong, or a gate was not met. What was measured is kept in any case,
    and `load` reads it.
    """
    from merge_bench.campaign import options_of_run
    from merge_bench.campaign.planned_launches import load_sweep
    from merge_bench.config import ucx_choice
    from merge_bench.config.option import options_from_python
    from merge_bench.config.options import RunOptions
    from merge_bench.view.streams import print_warnings

    if refused := [key for key in _COMMAND_LINE_ONLY if key in options]:
        raise UsageError(
            f"{refused[0]!r} is an option of the command line only; the function merge_bench.run does not have it"
        )
    given = options_from_python(RunOptions, options, options_of_run())
    with ucx_choice.undo_ucx_choice():
        sweep = load_sweep(given)
        print_warnings(warning for one in sweep.prepared.values() for warning in one.warnings)
        result, verdict, status = launch_sweep(sweep, _caller_from_options(options), print_duration=False)
    if check and status:
        error = (verdict.error if verdict else None) or next(
            (one.error for one in result._run_documents if one.error), None
        )
        message = error.message if error else "the run failed"
        raise _ERRORS.get(status, RunFailed)(f"{message}; the records are in {result.folder}")
    return result


def launch_sweep(
    sweep: Sweep, caller: CallingProgram, *, quiet: bool = False, print_duration: bool = True
) -> tuple[Result, CompareDocument | None, int]:
    """Make every launch of a sweep, then check its gate, for the function and the command ``run``.

    `quiet`: show no progress; `print_duration`: print how long several launches take. Returns the result, the
    comparison if there is a gate, and the exit status.
    """
    from merge_bench.campaign import run_campaign as running
    from merge_bench.regressions.gates import RegressionGate

    gate = RegressionGate.from_options(
        sweep.options, choice_count=len(sweep.distinct_labels), run_count=len(sweep.prepared)
    )
    measure = functools.partial(running.run_sweep, sweep, caller=caller, print_estimate=print_duration)
    return _measure_and_judge(measure, gate, sweep.first_run.plan.launches, quiet=quiet)


def launch_command(
    planned: CommandCampaign, options: RunOptions, caller: CallingProgram, *, quiet: bool = False
) -> tuple[Result, CompareDocument | None, int]:
    """Make every launch of a command's campaign, then check its gate, for the command ``exec``.

    `quiet`: show no progress. Returns the result, the comparison if there is a gate, and the exit status.
    """
    from merge_bench.command.command_campaign import run_command_campaign

    measure = functools.partial(run_command_campaign, planned, options, caller=caller)
    return _measure_and_judge(measure, make_command_gate(planned, options), planned.block_count, quiet=quiet)


def make_command_gate(planned: CommandCampaign, options: RunOptions) -> RegressionGate | None:
    """Make the gate that the options of ``exec`` ask for, None if for none; raises UsageError if it cannot work."""
    from merge_bench.regressions.gates import RegressionGate

    runs = len(planned.head.runs)
    gated = options.with_sourced_values({"results": str(planned.results_folder)}, {})
    return RegressionGate.from_options(gated, choice_count=runs, run_count=runs)


def _measure_and_judge(
    measure: Callable[[ProgressDisplay], tuple[Path, int]], gate: RegressionGate | None, launches: int, *, quiet: bool
) -> tuple[Result, CompareDocument | None, int]:
    """Make the `launches` of each run by calling `measure`, then check the gate; returns as `launch_sweep` does."""
    from merge_bench.view.progress import make_progress

    if gate is not None and (doubt := gate.too_few_launches_warning(launches)) is not None:
        print_message(f"warning: {doubt}", "measure both with --launches 8")
    with contextlib.closing(make_progress(sys.stderr, quiet=quiet)) as progress:
        folder, status = measure(progress)
    result = load(folder)
    verdict: CompareDocument | None = None
    if gate is not None and status == 0:
        verdict, status = gate.judge_campaign(result.campaign)
    return result, verdict, status


def compare(*results: Result | str | PathLike[str], threshold: float = 0.02, anyway: bool = False) -> Document:
    """The document that ``compare --json`` prints: verdicts, speed-ups and intervals; see `docs/reference/records.md`.

    `results`: one, whose first config is the baseline of its others; or several, of which the first is the baseline.
    `threshold`: smaller differences do not count; 0.02 for 2 %. `anyway`: compare even if hosts, problems or UCX
    versions differ.

    Raises UsageError if there is nothing to compare, or it is not comparable, and WrongResult if the merge was wrong in
    a baseline.
    """
    from merge_bench.analysis.compare import compare_campaigns as compare_campaigns

    if not results:
        raise UsageError("name at least one result to compare")
    return _as_python_dict(compare_campaigns(_load_campaigns(results), threshold=threshold, allow_incomparable=anyway))


def history(
    *folders: str | PathLike[str],
    metric: str | None = None,
    threshold: float = 0.02,
    frame: Frame = "pandas",
    **only: Any,
) -> Any:
    """A data frame with a row for every result in results folders: its value, its level, and whether that begins there.

    `metric`: by default throughput, or the first metric of a command. `only`: ``config``, ``command``, ``chunk``,
    ``workers``, ``hosts``, ``engine``, ``exchange``, as options of the command. The names of columns are identifiers:
    in ``unit`` is that of value and level, in ``shift`` the change of the level, -0.05 for 5 % less, and in ``differs``
    what else changed with that result. Raises UsageError if there is no result.
    """
    from merge_bench.regressions.document import load_history as history_of
    from merge_bench.view.titles import utc_time

    document = history_of(folders or ("results",), metric=metric, threshold=threshold, **only)
    rows: list[dict[str, object]] = []
    for number, series in enumerate(document.series):
        shifts = {shift.result: shift for shift in series.shifts}
        for at, result in enumerate(series.results):
            shift = shifts.get(at)
            row = {re.sub(r"\W", "_", name).lower(): value for name, value in series.series.items()} | asdict(result)
            row |= {"started": utc_time(result.started), "launches": len(result.launches), "metric": series.metric}
            row |= {"unit": series.unit, "shift": shift and shift.change}
            rows.append({"series": number, **row, "differs": shift and "; ".join(shift.difference_texts)})
    return _data_frame(iter(rows), frame)


def predict(
    *results: Result | str | PathLike[str],
    workers: int,
    hosts: int | None = None,
    chunk: float | None = None,
    what_if: str | Sequence[str] = (),
    link: str | Sequence[str] = (),
    config: str | None = None,
) -> Document:
    """The document that ``predict --json`` prints: a forecast for another cluster; see `docs/reference/records.md`.

    Options are those of the command: ``what_if="nic=4x,overlap=0.9"``, ``link="nic=12.5GB/s,2us"``, or several of them.
    Raises UsageError, which says what is missing, if these results do not suffice for a forecast.
    """
    from merge_bench.config import parsers
    from merge_bench.config.option import format_option_value, parse_option_text
    from merge_bench.forecast.document import predict as predict_from

    document = predict_from(
        _load_campaigns(results),
        workers=workers,
        hosts=hosts,
        chunk=None
        if chunk is None
        else parse_option_text(parsers.count_parser(1), format_option_value(chunk), "chunk"),
        what_if=[what_if] if isinstance(what_if, str) else what_if,
        links=[link] if isinstance(link, str) else link,
        config=config,
    )
    return _as_python_dict(document)


def _describe_run(name: str, run: Run) -> str:
    """Describe a run in one line: ``tcp: 2 workers, 1,000,000 rows per chunk, verified, 3.21 GiB/s``."""
    launches = aggregate.complete_launches(run)
    plan, rate = run.plan, aggregate.run_median(launches, aggregate.throughput)
    mark = verification_state(run, launches).unverified_mark or "verified"
    if plan.command is not None:
        from merge_bench.analysis.compare import main_metric
        from merge_bench.view.text import DisplayUnit
        from merge_bench.view.titles import shell_command_text

        metric = main_metric(run)
        value = aggregate.run_median(launches, metric.value)
        shown = DisplayUnit.for_recorded_unit(metric.unit).format_value(value, with_unit=True)
        measured = "nothing measured" if value is None else f"{metric.name} {shown}"
        return f"{name}: {shell_command_text(plan.command)}, {mark}, {measured}"
    parts = [f"{plan.workers} workers"] if plan.workers is not None else []
    parts += [f"{format_count(plan.rows_per_chunk)} rows per chunk"] if plan.rows_per_chunk is not None else []
    parts += [plan.question] if plan.question else []
    parts += [
        mark,
        "nothing measured" if rate is None else format_rate(rate),
    ]
    return f"{name}: {', '.join(parts)}"


def _load_campaigns(results: Sequence[Result | str | PathLike[str]]) -> list[Campaign]:
    return [result.campaign if isinstance(result, Result) else read_campaign(result) for result in results]


def _data_frame(rows: dataframes.Rows, frame: Frame) -> Any:
    import polars

    if frame not in ("pandas", "polars"):
        raise UsageError(f"frame={frame!r} is neither 'pandas' nor 'polars'")
    data = polars.DataFrame(list(rows), infer_schema_length=None)
    return data if frame == "polars" else data.to_pandas()


def _figure_maker(backend: Backend) -> Callable[[Chart], Any]:
    if backend not in ("bokeh", "matplotlib"):
        raise UsageError(f"backend={backend!r} is neither 'bokeh' nor 'matplotlib'")
    from merge_bench.view.plot import interactive, static

    return interactive.make_bokeh_figure if backend == "bokeh" else static.make_matplotlib_figure


def _as_python_dict(document: Struct) -> Document:
    """The document that ``--json`` prints, as dicts and lists of Python."""
    from merge_bench.view.streams import encode_document

    plain: Document = json.loads(encode_document(document))
    return plain


def _caller_from_options(options: dict[str, object]) -> CallingProgram:
    """The caller for the records of a merge with these options: the command line that would run the same merge."""
    from merge_bench.campaign import CallingProgram
    from merge_bench.config.option import format_command_line, format_option_value
    from merge_bench.config.options import OPTIONS
    from merge_bench.records.schema import GivenOptions

    recorded: GivenOptions = {}
    for key, value in options.items():
        if value is not None and value is not False:
            recorded[key] = value is True or format_option_value(value)
    return CallingProgram(
        [str(Path(__file__).with_name("__main__.py")), "run", *format_command_line(options, OPTIONS)], recorded
    )
