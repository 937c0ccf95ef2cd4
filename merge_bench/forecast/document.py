"""The document of `predict --json`: the forecast, a scaling table, the parameters, the check, and what is not known.

`docs/reference/records.md` describes every key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from merge_bench.analysis.aggregate import EXCEEDED
from merge_bench.analysis.documents import Failure
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError
from merge_bench.forecast.fit import (
    LAUNCH_SPREAD,
    ForecastBasis,
    fit_forecast_basis,
    fit_parameters_for_run,
    prediction_interval,
)
from merge_bench.forecast.gather import MeasuredRun, gather_measurements
from merge_bench.forecast.model import (
    ASSUMED,
    MEASURED,
    MergeScenario,
    ModelParameter,
    ModelResult,
    ParameterValues,
    UnknownParameter,
    WorkerCores,
    forecast_merge,
    parse_link_parameters,
    parse_what_if,
)
from merge_bench.records.campaign import Campaign
from merge_bench.units import count_with_noun, format_bytes, format_count, format_rate

SCHEMA = 1

BEYOND = 8
"""More than this many times the measured number of workers is called an extrapolation."""

SIZES = 4
"""Chunks and messages this many times larger or smaller than the measured ones are called far from them."""


class ForecastQuantity(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast value, and the interval that should hold the median of one launch's iterations in 95 of 100 cases."""

    value: float
    interval: tuple[float, float]


class ForecastPhases(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast seconds of the slowest worker in each phase of a merge.

    `hidden`: seconds of them that overlap with another phase.
    """

    partition: float
    exchange: float
    join: float
    hidden: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast for one number of workers and hosts.

    If a parameter of the model is not known, its numbers are null, and `unknown` says why.
    """

    workers: int
    hosts: int
    workers_per_host: int
    wall_seconds: ForecastQuantity | None = None
    throughput_bytes_per_second: ForecastQuantity | None = None
    bandwidth_bytes_per_second: ForecastQuantity | None = None
    data_bytes: float | None = None
    crossing_bytes: float | None = None
    between_hosts_bytes: float | None = None
    message_bytes: float | None = None
    phases_seconds: ForecastPhases | None = None
    parts_seconds: dict[str, float] | None = None
    limit: str | None = None
    measured_wall_seconds: float | None = None
    unknown: str | None = None


class ModelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run beside what the model gives for it.

    `error`: relative error of the model's wall-clock.
    """

    result: str
    workers: int
    hosts: int
    rows_per_chunk: float
    measured_wall_seconds: float
    model_wall_seconds: float | None
    error: float | None
    measured_bandwidth_bytes_per_second: float | None
    model_bandwidth_bytes_per_second: float | None


class PredictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of ``predict --json``: the requested forecast, forecasts for fewer workers, and their basis.

    `scaling`: forecasts for 1, 2, 4, … workers up to the requested number. `checked`: measured runs beside the model's
    values. `launch_spread`: standard deviation of the logarithm of a launch's wall-clock, as the intervals take it.
    `notes`: what is assumed or not known.
    """

    document_version: Literal[1] = 1
    schema: int = SCHEMA
    results: list[str]
    engine: str
    config: str
    rows_per_chunk: float
    row_bytes: float
    what_if: list[str]
    forecast: Forecast
    scaling: list[Forecast]
    parameters: list[ModelParameter]
    checked: list[ModelCheck]
    launch_spread: float | None = None
    notes: list[str]
    error: Failure | None = None


_REMEDIES = {
    "nic_rate": "no result measures the network between hosts; add a RESULT of a run across hosts or of `probe p2p"
    " --placement two-hosts`, or set the rate with --link nic=12.5GB/s,2us",
    "local_rate": "no result measures transfers within a host; add a RESULT of a run with several workers per host"
    " (without --pipeline if it has several hosts) or of `probe p2p --placement one-host`, or set the rate with --link"
    " local=20GB/s,1us",
}
"""What to do if a parameter of a link is not known."""


def forecast_caveats(basis: ForecastBasis, scenario: MergeScenario) -> Iterator[str]:
    """Yield sentences on how far a forecast goes beyond the measurements, and on its assumptions."""
    yield from _shared_core_notes(basis, scenario)
    yield from _link_rate_warnings(basis, scenario)
    yield from (*basis.measurements.notes, *basis.notes)
    yield from _extrapolation_notes(basis.measurements.runs, scenario, basis.host_cores)
    yield from _assumption_notes(basis, scenario)


def _link_rate_warnings(basis: ForecastBasis, scenario: MergeScenario) -> Iterator[str]:
    """Yield a warning for each fitted link rate that exceeds the link limit which the same runs measured."""
    by_name = {parameter.name: parameter for parameter in basis.parameters}
    for link, several, needed, where in (
        ("local", False, scenario.max_and_min_workers_per_host[0] > 1, "within a host"),
        ("nic", True, scenario.hosts > 1, "between hosts"),
    ):
        rate = by_name.get(f"{link}_rate")
        runs = (run for run in basis.measurements.runs if (len(run.shape.per_host) > 1) == several)
        limit = max((run.limit for run in runs if run.limit), default=math.inf)
        if needed and rate and rate.source == MEASURED and rate.value and rate.value > EXCEEDED * limit:
            yield (
                f"Warning: the fitted rate {where}, {format_rate(rate.value)}, is above the link limit that the same"
                f" runs measured, {format_rate(limit)}. Short exchanges can pass a shaper's burst or stay in a"
                " cache; larger ones will then take longer than forecast. Or the link measurement was disturbed. Add a"
                f" RESULT with larger chunks and --link-rounds 20, or set the link's own rate with --link {link}=RATE."
            )


def _shared_core_notes(basis: ForecastBasis, scenario: MergeScenario) -> Iterator[str]:
    """Yield a sentence if workers share cores, and one if a host has cores that the measured workers could not use."""
    most, _ = scenario.max_and_min_workers_per_host
    cores = basis.host_cores
    turns = WorkerCores.share(cores, most).turns
    if turns > 1:
        yield (
            f"{count_with_noun(most, 'worker')} of a host share {cores:g} {'core' if cores == 1 else 'cores'}: all that"
            f" needs a core is forecast to take {turns:.3g} times as long. For hosts with more cores, use --what-if"
            " cores=N."
        )
    elif math.isinf(cores) and not any(run.shape.gpu for run in basis.measurements.runs):
        yield "A result does not record the cores of its hosts; each worker of the forecast has as many as there."


def _extrapolation_notes(runs: Sequence[MeasuredRun], scenario: MergeScenario, host_cores: float) -> Iterator[str]:
    """Yield sentences on how far a scenario lies outside the measured runs: workers, hosts, rows, message sizes."""
    workers = max(run.shape.workers for run in runs)
    hosts = max(len(run.shape.per_host) for run in runs)
    if scenario.workers > BEYOND * workers:
        yield (
            f"{scenario.workers} workers are {scenario.workers / workers:.0f} times the largest measured number"
            f" ({workers}): the numbers are an extrapolation."
        )
    if scenario.hosts > max(hosts, 2):
        yield (
            f"At most {count_with_noun(hosts, 'host')} {'was' if hosts == 1 else 'were'} measured,"
            f" not {scenario.hosts}: the network is assumed to carry the full rate of all hosts at once."
        )
    chunks = [run.shape.rows_per_chunk for run in runs]
    if not min(chunks) / SIZES <= scenario.rows_per_chunk <= SIZES * max(chunks):
        yield (
            f"Chunks of {format_count(round(scenario.rows_per_chunk))} rows are far outside the measured sizes "
            f"({_count_range_text(round(min(chunks)), round(max(chunks)))} rows)."
        )
    messages = [run.shape.scenario.message_bytes for run in runs if run.shape.workers > 1]
    if scenario.workers > 1 and messages and scenario.message_bytes < min(messages) / SIZES:
        yield (
            f"Messages of {format_bytes(scenario.message_bytes)} are much smaller than the smallest measured ones "
            f"({format_bytes(min(messages))}): links may be slower for small messages."
        )
    measured = {max(run.shape.per_host) for run in runs}
    most, _ = scenario.max_and_min_workers_per_host
    if most not in measured:
        cores = "its share of the host's cores" if math.isfinite(host_cores) else "the same cores"
        yield (
            f"No result has {most} workers per host, only {_count_range_text(min(measured), max(measured))}; the"
            f" forecast assumes that each worker has {cores}, and the same memory bandwidth for each core."
        )


def _assumption_notes(basis: ForecastBasis, scenario: MergeScenario) -> Iterator[str]:
    """Yield sentences on what a forecast assumes because it was not measured."""
    by_name = {parameter.name: parameter for parameter in basis.parameters}
    runs = basis.measurements.runs
    most, _ = scenario.max_and_min_workers_per_host
    far = scenario.hosts > 1
    for link, needed, where in (("local", most > 1, "within a host"), ("nic", far, "between hosts")):
        latency, overhead = by_name[f"{link}_latency"], by_name[f"{link}_overhead"]
        if needed and latency.source == ASSUMED and overhead.source == ASSUMED and not latency.value:
            yield f"The latency {where} is unknown and assumed to be 0; it matters only for small messages."
    alone = [run for run in runs if len(run.shape.per_host) > 1 and max(run.shape.per_host) == 1]
    several = [run for run in runs if len(run.shape.per_host) > 1 and max(run.shape.per_host) > 1]
    if far and most > 1 and alone and not several:
        yield (
            "The network link of a host was measured with one worker per host; the forecast assumes the same total "
            "rate for several workers."
        )
    elif far and not alone and not several and by_name["nic_rate"].source == MEASURED:
        yield "The network link of a host was measured with one pair of processes, not with a merge across hosts."
    if far and by_name["nic_rate"].source != MEASURED:
        yield "The forecast assumes that workers can use the full rate of the specified network link."
    if by_name["partition_fixed"].source == ASSUMED:
        yield "Only one chunk size was measured; the fixed cost of an iteration is not separated from the cost per row."
    if all(len(run.launches) == 1 for run in runs):
        yield (
            "Each run has only one launch; the intervals take a spread between launches of"
            f" {100 * LAUNCH_SPREAD:.0f} %, which is not measured here."
        )


def _count_range_text(low: int, high: int) -> str:
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


MOST_WORKERS = 1024


def predict(
    campaigns: Sequence[Campaign],
    *,
    workers: int,
    hosts: int | None = None,
    chunk: int | None = None,
    what_if: Iterable[str] = (),
    links: Sequence[str] = (),
    config: str | None = None,
) -> PredictDocument:
    """Forecast a merge on `workers` workers of `hosts` hosts from stored campaigns.

    `hosts`: None for as many as the largest result has. Raises UsageError if no forecast is possible; the message names
    what is missing.
    """
    if not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"--workers must be from 1 to {MOST_WORKERS}, not {workers}")
    if hosts is not None and not 1 <= hosts <= workers:
        raise UsageError(f"--hosts must be from 1 to {workers} (the number of workers), not {hosts}")
    measurements = gather_measurements(campaigns, config)
    runs, changes = measurements.runs, parse_what_if(what_if)
    hosts = hosts or min(workers, max(len(run.shape.per_host) for run in runs))
    problem = MergeScenario(workers, hosts, float(chunk or runs[0].shape.rows_per_chunk), _common_row_bytes(runs))
    basis = fit_forecast_basis(
        measurements, changes, parse_link_parameters(links), problem.max_and_min_workers_per_host[0]
    )
    row = _forecast_scenario(problem, basis, has_what_if=bool(changes.words))
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
        scaling=[
            _forecast_scenario(each, basis, has_what_if=bool(changes.words)) for each in scaling_scenarios(problem)
        ],
        parameters=list(basis.parameters),
        checked=[_compare_run_with_model(run, fit_parameters_for_run(run, measurements)) for run in runs],
        launch_spread=basis.launch_spread,
        notes=list(dict.fromkeys(forecast_caveats(basis, problem))),
    )


def scaling_scenarios(scenario: MergeScenario) -> list[MergeScenario]:
    """Return scenarios with 1, 2, 4, … workers up to those of `scenario`; one host after the other is filled."""
    per_host, _ = scenario.max_and_min_workers_per_host
    counts = [1 << power for power in range(scenario.workers.bit_length()) if 1 << power < scenario.workers]
    smaller = [
        MergeScenario(count, -(-count // per_host), scenario.rows_per_chunk, scenario.row_bytes) for count in counts
    ]
    return [*smaller, scenario]


def _common_row_bytes(runs: Sequence[MeasuredRun]) -> float:
    """The size of a row in bytes that all runs have; raises UsageError if the runs differ in it."""
    sizes = sorted({run.shape.row_bytes for run in runs})
    if sizes[-1] > 1.01 * sizes[0]:
        listed = ", ".join(f"{size:g}" for size in sizes)
        raise UsageError(f"the results differ in row size ({listed} bytes); give only results with one row size")
    return sizes[0]


def _forecast_scenario(scenario: MergeScenario, basis: ForecastBasis, *, has_what_if: bool) -> Forecast:
    """Make the forecast for one scenario; if a parameter is not known, the numbers are None and `unknown` says why.

    `has_what_if`: whether ``--what-if`` changes the machine; then no measured time is shown beside the forecast.
    """
    per_host, _ = scenario.max_and_min_workers_per_host
    head = Forecast(workers=scenario.workers, hosts=scenario.hosts, workers_per_host=per_host)
    try:
        outcome = forecast_merge(scenario, basis.values)
    except UnknownParameter as unknown:
        return replace(head, unknown=_REMEDIES[str(unknown)])
    resampled = [forecast_merge(scenario, values) for values in basis.resampled]
    return replace(
        head,
        wall_seconds=_quantity_with_interval("wall", outcome, resampled, basis),
        throughput_bytes_per_second=_quantity_with_interval("throughput", outcome, resampled, basis),
        bandwidth_bytes_per_second=_quantity_with_interval("bandwidth", outcome, resampled, basis),
        data_bytes=scenario.data_bytes,
        crossing_bytes=outcome.crossing,
        between_hosts_bytes=outcome.between_hosts,
        message_bytes=scenario.message_bytes if scenario.workers > 1 else None,
        phases_seconds=ForecastPhases(
            partition=outcome.partition, exchange=outcome.exchange, join=outcome.join, hidden=outcome.hidden
        ),
        parts_seconds=dict(outcome.parts),
        limit=outcome.limit,
        measured_wall_seconds=None if has_what_if else _measured_wall_seconds(scenario, basis.measurements.runs),
    )


def _quantity_with_interval(
    quantity_name: str, result: ModelResult, resampled_results: Sequence[ModelResult], basis: ForecastBasis
) -> ForecastQuantity | None:
    value: float | None = getattr(result, quantity_name)
    if value is None or not math.isfinite(value):
        return None
    resampled_values = [other for each in resampled_results if (other := getattr(each, quantity_name)) is not None]
    return ForecastQuantity(value=value, interval=prediction_interval(value, resampled_values, result, basis))


def _measured_wall_seconds(scenario: MergeScenario, runs: Sequence[MeasuredRun]) -> float | None:
    """The median wall-clock seconds of a merge in the runs that measured this scenario; None if none did."""
    walls = [
        _median_wall_seconds(run)
        for run in runs
        if run.shape.workers == scenario.workers
        and len(run.shape.per_host) == scenario.hosts
        and max(run.shape.per_host) == scenario.max_and_min_workers_per_host[0]
        and math.isclose(run.shape.rows_per_chunk, scenario.rows_per_chunk, rel_tol=1e-6)
    ]
    return median(walls) if walls else None


def _median_wall_seconds(run: MeasuredRun) -> float:
    return median([median([sample.wall for sample in launch]) for launch in run.launches])


def _compare_run_with_model(run: MeasuredRun, parameter_values: ParameterValues) -> ModelCheck:
    """Compare the times and bandwidth of a measured run with those that the model gives for it."""
    shape, wall = run.shape, _median_wall_seconds(run)
    bandwidths = [sample.bandwidth for sample in run.samples if sample.bandwidth is not None]
    try:
        outcome = forecast_merge(shape.scenario, parameter_values)
    except UnknownParameter:
        outcome = None
    return ModelCheck(
        result=shape.name,
        workers=shape.workers,
        hosts=len(shape.per_host),
        rows_per_chunk=shape.rows_per_chunk,
        measured_wall_seconds=wall,
        model_wall_seconds=outcome.wall if outcome else None,
        error=outcome.wall / wall - 1 if outcome and wall > 0 else None,
        measured_bandwidth_bytes_per_second=median(bandwidths) if bandwidths else None,
        model_bandwidth_bytes_per_second=outcome.bandwidth if outcome else None,
    )
