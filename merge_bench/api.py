"""Merges from Python: run one, load stored results, compare them, get data frames and drawings.

These are the package's public functions: ``import merge_bench``. `docs/python.md` shows them at work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from merge_bench.analysis import frames
from merge_bench.errors import GateNotMet, RunFailed, UsageError, WrongResult
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

if TYPE_CHECKING:
    from merge_bench.campaign.program import Program
    from merge_bench.view.plot.marks import Chart

Document = dict[str, Any]
Frame = Literal["pandas", "polars"]
Backend = Literal["bokeh", "matplotlib"]
Kind = Literal[
    "throughput", "bandwidth", "speed-up", "iterations", "workers", "phases", "pairs", "tuning", "network"
]  # fmt: skip
_NOT_HERE = ("json", "dry_run")
_ERRORS = {GateNotMet.exit_status: GateNotMet, WrongResult.exit_status: WrongResult}


@dataclass(frozen=True, eq=False)
class Result:
    """A stored campaign: of merges, of a network measurement, of tuning, or imported."""

    campaign: Campaign

    @property
    def folder(self) -> Path:
        """Where its records lie."""
        return self.campaign.folder

    @property
    def status(self) -> int | None:
        """The exit status of the command that made it; None if that was killed, or still runs."""
        return self.campaign.end.status if self.campaign.end else None

    @cached_property
    def document(self) -> Document:
        """What ``run --json`` prints: one run's document, or ``runs`` with one for each; see `docs/records.md`."""
        from merge_bench.analysis.summary import summarize

        return summarize(self.campaign)

    @property
    def verified(self) -> bool:
        """Whether every run's result was proven right; numbers of a result that is not prove nothing."""
        documents: Sequence[Document] = self.document.get("runs", [self.document])
        return all(one["verified"] for one in documents)

    def iterations(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every timed iteration: wall-clock (s), throughput and bandwidth (B/s)."""
        return _frame(frames.iterations(self.campaign), frame)

    def workers(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every worker in every timed iteration: phases (s), bytes, bandwidth (B/s)."""
        return _frame(frames.workers(self.campaign), frame)

    def pairs(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every ordered pair of workers in every launch: bytes, rate (B/s), transports."""
        return _frame(frames.pairs(self.campaign), frame)

    def launches(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every launch, which is what statistics are made of."""
        return _frame(frames.launches(self.campaign), frame)

    def probes(self, frame: Frame = "pandas") -> Any:
        """A data frame with a row for every row of a network measurement."""
        return _frame(frames.probes(self.campaign), frame)

    def plot(self, kind: Kind, which: int = 0, *, backend: Backend = "bokeh") -> Any:
        """A drawing, as a figure of Bokeh or of Matplotlib.

        Parameters
        ----------
        kind
            ``throughput``, ``bandwidth``: of all runs; ``speed-up``: of the configs over the first; ``iterations``: of
            all runs of one problem; ``workers``, ``phases``, ``pairs``: of one run; ``tuning``; ``network``.
        which
            Which problem, run, phase of tuning or panel, from 0.

        Raises
        ------
        UsageError
            If there is no such drawing, or nothing to draw.
        """
        from merge_bench.view.report.full.charts import charts

        found = charts(self.campaign, kind)
        if not 0 <= which < len(found):
            count = f"there are {len(found)}" if found else "there is nothing to draw"
            raise UsageError(f"{self.folder} has no drawing {kind!r} number {which}: {count}")
        return _backend(backend)(found[which])

    def write_report(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the page of ``report`` and give its path; by default ``report.html`` in the campaign's folder.

        Raises
        ------
        UsageError
            If it cannot be written there.
        """
        from merge_bench.view.report.full.write import write_page

        return write_page([self.campaign], Path(path) if path is not None else None)


def load(result: str | PathLike[str]) -> Result:
    """Read a campaign: its folder, or its ``records.jsonl``.

    Raises
    ------
    UsageError
        If there is none, or it is damaged; the sentence names the file and the line.
    """
    return Result(read_campaign(result))


def run(*, check: bool = True, **options: object) -> Result:
    """Merge, as ``python -m merge_bench run`` does, and give the result.

    Parameters
    ----------
    check
        Raise if the run did not end well. What was measured is kept in any case, and `load` reads it.
    options
        Those of the command, with underscores: ``run(chunk=1e6, workers=2, config="tcp.cfg")``. Lists are sweeps, True
        is a flag; text is read as on the command line (``rmm_pool_size="28GiB"``).

    Raises
    ------
    UsageError
        If an option is wrong; nothing was started.
    RunFailed, WrongResult, GateNotMet
        If `check`, and a launch failed, the merge was wrong, or a gate asked for was not met.
    """
    from merge_bench.analysis.compare.gate import asked_for
    from merge_bench.campaign import choices
    from merge_bench.campaign import run as running
    from merge_bench.config import ucx_choice
    from merge_bench.config.options import parse_options
    from merge_bench.view.messages import say_warnings
    from merge_bench.view.progress import progress_for

    refused = [key for key in _NOT_HERE if key in options]
    if refused:
        raise UsageError(f"run has no option {refused[0]!r}")
    values = parse_options(options, choices.options())
    with ucx_choice.restored():
        sweep = running.load_all(values)
        say_warnings(list(dict.fromkeys(each for one in sweep.prepared.values() for each in one.warnings)))
        gate = asked_for(sweep.options, configs=len(sweep.configs))
        progress = progress_for(sys.stderr)
        try:
            folder, status = running.run(sweep, progress, fresh=bool(values["fresh"]), program=_program(options))
        finally:
            progress.close()
    result = load(folder)
    message = _why(result)
    if gate is not None and status == 0:
        verdict, status = gate.hold(result.campaign)
        message = verdict["error"]["message"] if verdict["error"] else message
    if check and status:
        raise _ERRORS.get(status, RunFailed)(f"{message}; the records are in {folder}")
    return result


def compare(*results: Result | str | PathLike[str], threshold: float = 0.02, anyway: bool = False) -> Document:
    """What ``compare --json`` prints: verdicts, speed-ups and intervals; see `docs/compare.md`.

    Parameters
    ----------
    results
        One, whose first config is the baseline of its others; or several, of which the first is the baseline.
    threshold
        The least ratio that matters, minus 1: 0.02 for 2 %.
    anyway
        Compare what is not comparable too.

    Raises
    ------
    UsageError
        If there is nothing to compare, or it is not comparable.
    WrongResult
        If the merge was wrong in a baseline.
    """
    from merge_bench.analysis.compare.document import compare as compare_campaigns

    read = [result if isinstance(result, Result) else load(result) for result in results]
    if not read:
        raise UsageError("name a result to compare")
    return compare_campaigns([result.campaign for result in read], threshold=threshold, anyway=anyway)


def predict(
    *results: Result | str | PathLike[str], workers: int, hosts: int, chunk: float | None = None,
    what_if: str | Sequence[str] = (), link: str | Sequence[str] = (), config: str | None = None,
) -> Document:  # fmt: skip
    """What ``predict --json`` prints: the merge on a cluster that is not there; see `docs/predict.md`.

    Options are those of the command: ``what_if="nic=4x,overlap=0.9"``, ``link="nic=12.5GB/s,2us"``, or several of them.

    Raises
    ------
    UsageError
        If it cannot be forecast from these results; the sentence says what is missing.
    """
    from merge_bench.analysis.predict.document import predict as predict_from

    return predict_from(
        [(result if isinstance(result, Result) else load(result)).campaign for result in results],
        workers=workers, hosts=hosts, config=config, chunk=None if chunk is None else _rows(chunk),
        what_if=[what_if] if isinstance(what_if, str) else what_if, links=[link] if isinstance(link, str) else link,
    )  # fmt: skip


def _frame(rows: frames.Rows, frame: Frame) -> Any:
    import polars

    if frame not in ("pandas", "polars"):
        raise UsageError(f"frame={frame!r} is neither 'pandas' nor 'polars'")
    found = polars.DataFrame(list(rows), infer_schema_length=None)
    return found if frame == "polars" else found.to_pandas()


def _backend(backend: Backend) -> Callable[[Chart], Any]:
    if backend == "bokeh":
        from merge_bench.view.plot import interactive

        return interactive.figure_of
    if backend == "matplotlib":
        from merge_bench.view.plot import static

        return static.figure_of
    raise UsageError(f"backend={backend!r} is neither 'bokeh' nor 'matplotlib'")


def _why(result: Result) -> str:
    documents: Sequence[Document] = result.document.get("runs", [result.document])
    return next((one["error"]["message"] for one in documents if one["error"]), "the run did not end well")


def _program(options: dict[str, object]) -> Program:
    """The records keep the command that runs the same merge."""
    from merge_bench.campaign.program import Program
    from merge_bench.config.options import as_words

    return Program([str(Path(__file__).with_name("__main__.py")), "run", *as_words(options)])


def _rows(chunk: float) -> int:
    from merge_bench.config import values
    from merge_bench.config.options import as_text

    try:
        return int(str(values.count(1)(as_text(chunk))))
    except ValueError as error:
        raise UsageError(f"chunk: {error}") from None
