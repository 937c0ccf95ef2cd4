"""The document of `predict --json`: the forecast, a scaling table, the parameters, the check, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from merge_bench.analysis.documents.predict import Checked, Forecast, ForecastPhases, PredictDocument, Quantity
from merge_bench.analysis.predict.basis import Basis, fitted_for, interval, make_basis
from merge_bench.analysis.predict.caveats import caveats, remedy
from merge_bench.analysis.predict.gather import gather
from merge_bench.analysis.predict.model import Outcome, Problem, Unknown, forecast
from merge_bench.analysis.predict.parameters import Values
from merge_bench.analysis.predict.samples import Measured
from merge_bench.analysis.predict.whatif import parse_links, parse_what_if
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign

MOST_WORKERS = 1024


def predict(
    campaigns: Sequence[Campaign], *, workers: int, hosts: int | None = None, chunk: int | None = None,
    what_if: Iterable[str] = (), links: Sequence[str] = (), config: str | None = None,
) -> PredictDocument:  # fmt: skip
    """What this merge would do on `workers` workers of `hosts` hosts; None: on as many as the largest result has.

    Raises
    ------
    UsageError
        If it cannot be forecast; the message names what is missing.
    """
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"--workers must be from 1 to {MOST_WORKERS}, not {workers}")
    if hosts is not None and not 1 <= hosts <= workers:
        raise UsageError(f"--hosts must be from 1 to {workers} (the number of workers), not {hosts}")
    measurements = gather(campaigns, config)
    runs, changes = measurements.runs, parse_what_if(what_if)
    hosts = hosts or min(workers, max(len(run.shape.per_host) for run in runs))
    problem = Problem(workers, hosts, float(chunk or runs[0].shape.rows_per_chunk), _row_bytes(runs))
    basis = make_basis(measurements, changes, parse_links(links), problem.per_host[0])
    row = _row(problem, basis, changed=bool(changes.words))
    if row.unknown:
        raise UsageError(f"--workers {workers} --hosts {hosts} cannot be forecast: {row.unknown}")
    return PredictDocument(
        results=[str(campaign.folder) for campaign in campaigns],
        engine=measurements.engine,
        config=measurements.config,
        rows_per_chunk=problem.rows_per_chunk,
        row_bytes=problem.row_bytes,
        what_if=list(changes.words),
        forecast=row,
        scaling=[_row(each, basis, changed=bool(changes.words)) for each in scaling(problem)],
        parameters=list(basis.parameters),
        checked=[_checked(run, fitted_for(run, measurements)) for run in runs],
        notes=list(dict.fromkeys(caveats(basis, problem))),
    )


def scaling(problem: Problem) -> list[Problem]:
    """1, 2, 4, … workers up to those of `problem`, with no more a host: first one host fills, then the next."""
    most, _ = problem.per_host
    counts = [1 << power for power in range(problem.workers.bit_length()) if 1 << power < problem.workers]
    found = [Problem(count, -(-count // most), problem.rows_per_chunk, problem.row_bytes) for count in counts]
    return [*found, problem]


def _row_bytes(runs: Sequence[Measured]) -> float:
    sizes = sorted({run.shape.row_bytes for run in runs})
    if sizes[-1] > 1.01 * sizes[0]:
        listed = ", ".join(f"{size:g}" for size in sizes)
        raise UsageError(f"the results differ in row size ({listed} bytes); give only results with one row size")
    return sizes[0]


def _row(problem: Problem, basis: Basis, *, changed: bool) -> Forecast:
    """One line of the scaling table; if something is not known, the numbers are null and `unknown` is the reason."""
    most, _ = problem.per_host
    head = Forecast(workers=problem.workers, hosts=problem.hosts, workers_per_host=most)
    try:
        found = forecast(problem, basis.values)
    except Unknown as unknown:
        return replace(head, unknown=remedy(str(unknown)))
    again = [forecast(problem, values) for values in basis.resampled]
    return replace(
        head,
        wall_seconds=_quantity("wall", found, again),
        throughput_bytes_per_second=_quantity("throughput", found, again),
        bandwidth_bytes_per_second=_quantity("bandwidth", found, again),
        data_bytes=problem.data_bytes,
        crossing_bytes=found.crossing,
        between_hosts_bytes=found.between_hosts,
        message_bytes=problem.message_bytes if problem.workers > 1 else None,
        phases_seconds=ForecastPhases(
            partition=found.partition, exchange=found.exchange, join=found.join, hidden=found.hidden
        ),
        parts_seconds=dict(found.parts),
        limit=found.limit,
        measured_wall_seconds=None if changed else _measured_wall(problem, basis.measurements.runs),
    )


def _quantity(name: str, found: Outcome, again: Sequence[Outcome]) -> Quantity | None:
    value: float | None = getattr(found, name)
    if value is None or not math.isfinite(value):
        return None
    low, high = interval([each for outcome in again if (each := getattr(outcome, name)) is not None])
    return Quantity(value=value, interval=(min(low, value), max(high, value)))


def _measured_wall(problem: Problem, runs: Sequence[Measured]) -> float | None:
    """The median wall of the runs of this very problem."""
    walls = [
        _wall(run) for run in runs
        if run.shape.workers == problem.workers and len(run.shape.per_host) == problem.hosts
        and max(run.shape.per_host) == problem.per_host[0]
        and math.isclose(run.shape.rows_per_chunk, problem.rows_per_chunk, rel_tol=1e-6)
    ]  # fmt: skip
    return median(walls) if walls else None


def _wall(run: Measured) -> float:
    return median([median([sample.wall for sample in launch]) for launch in run.launches])


def _checked(run: Measured, values: Values) -> Checked:
    """A run that the model was fitted to, beside the model's values for it: how well the model describes its data."""
    shape = run.shape
    bandwidths = [sample.bandwidth for sample in run.samples if sample.bandwidth is not None]
    try:
        found = forecast(shape.problem, values)
    except Unknown:
        found = None
    wall = _wall(run)
    return Checked(
        result=shape.name, workers=shape.workers, hosts=len(shape.per_host),
        rows_per_chunk=shape.rows_per_chunk, measured_wall_seconds=wall,
        model_wall_seconds=found.wall if found else None,
        error=found.wall / wall - 1 if found and wall > 0 else None,
        measured_bandwidth_bytes_per_second=median(bandwidths) if bandwidths else None,
        model_bandwidth_bytes_per_second=found.bandwidth if found else None,
    )  # fmt: skip
