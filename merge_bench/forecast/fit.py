"""Samples → parameters with their sources, by medians and least squares, and intervals by resampling."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis.statistics import median, quantile
from merge_bench.errors import UsageError
from merge_bench.forecast.gather import ForecastMeasurements, LinkTransfer, MeasuredRun
from merge_bench.forecast.model import (
    ASSUMED,
    GIVEN,
    KNOWN,
    MEASURED,
    NIC,
    ModelParameter,
    ModelResult,
    ParameterValues,
    UserGivenParameter,
    WhatIfChanges,
    find_gpu,
    find_gpu_by_driver_name,
    normal_quantile_of_largest,
    parameter_value,
    size_announcement_seconds,
    workers_at_once,
)

APART = 3.0
"""Only sizes this many times apart show which cost is paid once and which by size."""

REPLICATES = 200
_MOST_BEFORE = 0.9
"""The largest share of a transfer's seconds that is taken for latency, even if a network measurement gives more."""


@dataclass(frozen=True)
class CostEquation:
    """One equation of a least-squares fit: `seconds` = `once` × (cost paid once) + `size` × (cost by size)."""

    once: float
    size: float
    seconds: float


def fit_model_parameters(
    runs: Sequence[MeasuredRun], link_parameters: ParameterValues, computing_runs: Sequence[MeasuredRun] | None = None
) -> dict[str, float]:
    """Fit the model's parameters to measured runs; returns their values by name.

    `link_parameters`: latencies, overheads and rates from network measurements; latencies and overheads are taken as
    they are, rates only if no run gives one. `computing_runs`: the runs that partition and join are fitted to; by
    default all.
    """
    parameters: dict[str, float] = dict(link_parameters)
    source = list(runs if computing_runs is None else computing_runs)
    for phase in ("partition", "join"):
        parameters |= _fit_phase_parameters(phase, source)
    for link in ("local", "nic"):
        parameters |= _fit_link_parameters(link, runs, link_parameters)
    overlaps = [sample.overlap for run in runs for sample in run.samples if sample.overlap is not None]
    if overlaps:
        parameters["overlap"] = median(overlaps)
    by_run = [(run.shape, [sample.meeting for sample in run.samples if sample.meeting is not None]) for run in runs]
    meetings = [  # without the latency and overhead of their messages
        median(seconds) / shape.worker_cores.turns
        - size_announcement_seconds(max(shape.per_host), shape.workers, parameters)
        for shape, seconds in by_run
        if seconds
    ]
    if meetings:
        parameters["meeting"] = max(median(meetings), 0.0)
    return parameters


def fit_resampled_parameters(
    runs: Sequence[MeasuredRun],
    link_parameters_by_launch: Sequence[ParameterValues],
    computing_runs: Sequence[MeasuredRun],
) -> list[dict[str, float]]:
    """Fit the model's parameters to each of 200 resamples of the records; returns a set of values for each.

    A resample has launches drawn with replacement, and iterations of each launch: Davison & Hinkley, "Bootstrap Methods
    and their Application" 1997, section 3.8. `link_parameters_by_launch`: the parameters of links by launch of the
    network measurements, one of which is drawn for each fit.
    """
    chance = random.Random(0)
    fits = []
    for _ in range(REPLICATES):
        resampled = {id(run): _resample_run(run, chance) for run in (*runs, *computing_runs)}
        resampled_computing = [resampled[id(run)] for run in computing_runs]
        network = chance.choice(link_parameters_by_launch) if link_parameters_by_launch else {}
        fits.append(fit_model_parameters([resampled[id(run)] for run in runs], network, resampled_computing))
    return fits


def fit_fixed_and_size_costs(equations: Sequence[CostEquation]) -> tuple[float, float]:
    """Fit a cost paid once and a cost by size (seconds), neither below 0, by least squares of the relative errors.

    Minimises Σ ((seconds - a · once - b · size) ÷ seconds)². Where the sizes are not `APART`, or an estimate would be
    below 0, a is 0 and b the median of seconds ÷ size.
    """
    through_zero = 0.0, median([point.seconds / point.size for point in equations])
    if not sizes_differ_enough([point.size for point in equations]):
        return through_zero
    scaled = [(point.once / point.seconds, point.size / point.seconds) for point in equations if point.seconds > 0]
    aa, ab, bb = (sum(x[i] * x[j] for x in scaled) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = sum(x for x, _ in scaled), sum(y for _, y in scaled)
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return through_zero
    once, by_size = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    return (once, by_size) if once >= 0 and by_size > 0 else through_zero


def sizes_differ_enough(sizes: Sequence[float]) -> bool:
    """Whether sizes differ enough to tell the cost paid once from the cost by size."""
    return bool(sizes) and max(sizes) >= APART * min(sizes)


def _fit_phase_parameters(phase: str, runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Fit the fixed time, the rate and the spread of a phase, partition or join; returns them by parameter name.

    Rows and seconds are those of a core that is a worker's own: where a worker had several, each had a share of the
    rows, and where workers took turns, each needed a share of the seconds.
    """
    points = []
    for run in runs:
        threads, turns = run.shape.worker_cores
        rows = median([sample.rows for sample in run.samples]) / threads
        points.append(CostEquation(1.0, rows, median([getattr(sample, phase) for sample in run.samples]) / turns))
    if not points:
        return {}
    once, by_row = fit_fixed_and_size_costs(points)
    variances = [variance for run in runs if (variance := _median_log_variance(run, phase)) is not None]
    parameters = {f"{phase}_fixed": once, f"{phase}_rate": 1 / by_row if by_row > 0 else float("inf")}
    return parameters | ({f"{phase}_spread": median(variances) ** 0.5} if variances else {})


def _median_log_variance(run: MeasuredRun, phase: str) -> float | None:
    """The variance of the logarithm of a phase's seconds over a run's workers: the median over its iterations.

    A variance of W normal values is the true one · χ² ÷ k with k = W - 1, of which the median is near (1 - 2 ÷ 9k)³
    (Wilson & Hilferty, "The Distribution of Chi-Square", 1931): divided by that, it is the true one. Where workers took
    turns on cores, it is that with which the slowest of the workers that ran at once is as slow as the slowest of all.
    """
    shape = run.shape
    at_once = workers_at_once(shape.workers, len(shape.per_host), shape.host_cores)
    scale = normal_quantile_of_largest(shape.workers) / normal_quantile_of_largest(at_once) if at_once > 1 else 1.0
    variances = [variance for sample in run.samples if (variance := getattr(sample, f"{phase}_spread")) is not None]
    return scale**2 * median(variances) / (1 - 2 / (9 * (shape.workers - 1))) ** 3 if variances else None


def _fit_link_parameters(link: str, runs: Sequence[MeasuredRun], link_parameters: ParameterValues) -> dict[str, float]:
    """Fit the rate of a kind of link, local or nic; without a known latency also its overhead, if possible.

    Where workers took turns on cores, a transfer within a host would take a share of its seconds without that, and one
    between hosts takes more for its messages, but not for its bytes.
    """
    points, latencies = [], []
    for run in runs:
        turns = run.shape.worker_cores.turns
        every: list[LinkTransfer | None] = [getattr(sample, link) for sample in run.samples]
        transfers = [transfer for transfer in every if transfer is not None and transfer.size > 0]
        if transfers:
            middle, size = median([transfer.seconds for transfer in transfers]), median([t.size for t in transfers])
            turns_of_messages = turns if link == "nic" else 1.0
            points.append(
                CostEquation(turns_of_messages * transfers[0].messages, size, middle / (turns / turns_of_messages))
            )
            latencies.append(turns_of_messages)
    if not points:
        return {}
    if f"{link}_latency" in link_parameters:
        latency, overhead = link_parameters[f"{link}_latency"], link_parameters.get(f"{link}_overhead", 0.0)
        rates = []
        for point, turns in zip(points, latencies, strict=True):
            before = min(2 * turns * latency + overhead * point.once, _MOST_BEFORE * point.seconds)
            rates.append(point.size / (point.seconds - before))
        return {f"{link}_rate": median(rates)}
    overhead, by_byte = fit_fixed_and_size_costs(points)
    return {f"{link}_overhead": overhead, f"{link}_rate": 1 / by_byte}


def _resample_run(run: MeasuredRun, generator: random.Random) -> MeasuredRun:
    """Return a measured run whose launches, and within each its iterations, are drawn with replacement."""
    launches = [generator.choice(run.launches) for _ in run.launches]
    return replace(run, launches=tuple(tuple(generator.choices(launch, k=len(launch))) for launch in launches))


LAUNCH_SPREAD, PRIOR_LAUNCHES = 0.05, 4
"""The spread of the logarithm of a launch's wall-clock before any launch is known, which counts as so many launches."""

HOST_ERROR, SHARED_CORES_ERROR, LINK_ERROR = 0.2, 0.37, 0.08
"""The model's own error, relative: of what cores do, of what they do where workers take turns on them, and of the bytes
between hosts.

Each bounds the root mean square of ln(measured ÷ forecast), less the spread between launches, over cases of the
validation on a quiet machine, none of which the model was fitted to; its test compares them with the stored result.
"""

NORMAL_QUANTILE = 1.96
"""95 % of normal values are within this many standard deviations."""

SHARES = (0.025, 0.975)
"""The two quantiles of the resampled forecasts that are the ends of an interval."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class ForecastBasis:
    """The basis of a forecast: parameter values, fitted and resampled, with the changes of ``--what-if``.

    `parameters`: for the document. `values`, `resampled`: as the model takes them, from all records and from each
    resample. `launch_spread`: of the logarithm of a launch's wall-clock.
    """

    measurements: ForecastMeasurements
    parameters: tuple[ModelParameter, ...]
    values: ParameterValues
    resampled: tuple[ParameterValues, ...]
    notes: tuple[str, ...]
    launch_spread: float = LAUNCH_SPREAD

    @property
    def host_cores(self) -> float:
        """The cores of a host in the forecast; infinite if they are not known."""
        return parameter_value(self.values, "host_cores")


def spread_between_launches(runs: Sequence[MeasuredRun]) -> float:
    """The standard deviation of the logarithm of a launch's median wall-clock, pooled over the runs.

    Few launches tell little, so that of the validation counts as `PRIOR_LAUNCHES` launches more:
    √((Σ (ln wall - mean of its run)² + p s²) ÷ (Σ (launches - 1) + p)).
    """
    squares, degrees = PRIOR_LAUNCHES * LAUNCH_SPREAD**2, float(PRIOR_LAUNCHES)
    for run in runs:
        walls = [median([sample.wall for sample in launch]) for launch in run.launches]
        logs = [math.log(wall) for wall in walls if wall > 0]
        if len(logs) > 1:
            squares += statistics.variance(logs) * (len(logs) - 1)
            degrees += len(logs) - 1
    return math.sqrt(squares / degrees)


def model_error(seconds_by_part: Mapping[str, float], turns: float) -> float:
    """The model's own relative error of a wall-clock: that of what cores do, and that of bytes between hosts.

    Both errors are taken for independent: √((h T_h)² + (l T_l)²) ÷ (T_h + T_l) with the seconds T of each. `turns`: how
    many workers take turns on a core, as `WorkerCores.turns`.
    """
    link = seconds_by_part.get(NIC, 0.0)
    host = max(sum(seconds_by_part.values()) - link, 0.0)
    error = SHARED_CORES_ERROR if turns > 1 else HOST_ERROR
    return math.hypot(error * host, LINK_ERROR * link) / (host + link) if host + link > 0 else error


def prediction_interval(
    value: float, resampled_values: Sequence[float], result: ModelResult, basis: ForecastBasis
) -> tuple[float, float]:
    """The interval that should hold the median of one launch's iterations in 95 of 100 cases.

    On the logarithm's scale, its half-width is the root of the sum of the squares of three: how far the resampled
    values reach (the uncertainty of the parameters), and 1.96 times the spread between launches and `model_error`.
    """
    ends = resampled_interval(resampled_values)
    own = NORMAL_QUANTILE * math.hypot(basis.launch_spread, model_error(result.parts, result.turns))
    low, high = (math.hypot(math.log(end / value), own) for end in (min(ends[0], value), max(ends[1], value)))
    return value * math.exp(-low), value * math.exp(high)


def resampled_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 2.5 % and the 97.5 % quantile of resampled values, which are the ends of a 95 % interval."""
    return quantile(values, SHARES[0]), quantile(values, SHARES[1])


def fit_forecast_basis(
    measurements: ForecastMeasurements,
    what_if: WhatIfChanges,
    given_parameters: Mapping[str, UserGivenParameter],
    workers_per_host: int,
) -> ForecastBasis:
    """Fit the model's parameters to all records and to resamples, then apply ``--link`` and ``--what-if``.

    Partition and join are fitted to runs with `workers_per_host` workers on a host, if there are any. The hosts of the
    forecast have as many cores as those of these runs.

    Raises UsageError if the rates of the GPU in ``--what-if`` cannot be derived, or the runs are of several GPUs.
    """
    of_gpu, scale, notes = _runs_for_gpu(measurements.runs, what_if.gpu)
    computing = runs_with_workers_per_host(of_gpu, workers_per_host)
    fixed_values = {name: each.value for name, each in given_parameters.items()}

    host_cores = _host_cores(computing, what_if)
    notes = (*notes, *_host_core_notes(computing, what_if))

    def apply_what_if_changes(fitted: ParameterValues) -> ParameterValues:
        return what_if.change_parameter_values({**fitted, "host_cores": host_cores, **fixed_values}, scale)

    values = apply_what_if_changes(fit_model_parameters(measurements.runs, measurements.probed.values, computing))
    resampled = tuple(
        map(
            apply_what_if_changes,
            fit_resampled_parameters(measurements.runs, measurements.probed.of_launches, computing),
        )
    )

    def make_model_parameter(name: str) -> ModelParameter:
        about, value = KNOWN[name], values.get(name, KNOWN[name].default or 0.0)
        origin, change, spread = None, "", None
        if name in values:
            origin = (
                given_parameters[name].origin
                if name in given_parameters
                else _parameter_origin(name, measurements, computing)
            )
            change = _what_if_text(name, what_if, scale)
        if origin is not None and name not in given_parameters and name != "host_cores":
            spread = resampled_interval([one.get(name, value) for one in resampled])
        return ModelParameter(
            name=name,
            what=about.what,
            unit=about.unit,
            value=value if math.isfinite(value) else None,  # JSON has no infinity: a rate that nothing slows is null
            interval=spread,
            source=ASSUMED if change or origin is None else GIVEN if name in given_parameters else MEASURED,
            origin=", ".join(filter(None, (origin or NOT_MEASURED, change))),
        )

    parameters = tuple(
        make_model_parameter(name) for name, about in KNOWN.items() if name in values or about.default is not None
    )
    spread = spread_between_launches(measurements.runs)
    return ForecastBasis(measurements, parameters, values, resampled, notes, spread)


def fit_parameters_for_run(run: MeasuredRun, measurements: ForecastMeasurements) -> ParameterValues:
    """Fit the parameters for the model check of one run, without values from the command line or ``--what-if``."""
    same_gpu = [each for each in measurements.runs if each.shape.gpu == run.shape.gpu]
    computing = runs_with_workers_per_host(same_gpu, max(run.shape.per_host))
    fitted = fit_model_parameters(measurements.runs, measurements.probed.values, computing)
    return {**fitted, "host_cores": run.shape.host_cores}


def runs_with_workers_per_host(runs: Sequence[MeasuredRun], workers_per_host: int) -> tuple[MeasuredRun, ...]:
    """The runs with this number of workers on their fullest host, which share its cores; all runs if there are none."""
    same = tuple(run for run in runs if max(run.shape.per_host) == workers_per_host)
    return same or tuple(runs)


def _host_cores(runs: Sequence[MeasuredRun], what_if: WhatIfChanges) -> float:
    """The fewest cores of a host in these runs; infinite if a run's are not known, as on a GPU.

    Raises UsageError if ``--what-if cores`` changes cores that are not known.
    """
    cores = [run.shape.host_cores for run in runs]
    unknown = any(map(math.isinf, cores))
    if unknown and "host_cores" in what_if.new_values:
        gpus = any(run.shape.gpu for run in runs)
        reason = "was measured on GPUs" if gpus else "does not record the cores of its hosts"
        raise UsageError(f"--what-if cores does not work here: a RESULT {reason}")
    return math.inf if unknown else min(cores)


def _host_core_notes(runs: Sequence[MeasuredRun], what_if: WhatIfChanges) -> tuple[str, ...]:
    """A sentence if the measured hosts of these runs differ in their cores, so that the forecast takes the fewest."""
    cores = sorted({run.shape.host_cores for run in runs})
    if len(cores) < 2 or math.isinf(cores[-1]) or "host_cores" in what_if.new_values:
        return ()
    return (
        f"The measured hosts differ in their cores ({cores[0]:g} to {cores[-1]:g}); the forecast is for hosts of"
        f" {cores[0]:g}. Set the number with --what-if cores=N.",
    )


def _runs_for_gpu(
    runs: Sequence[MeasuredRun], gpu_name: str | None
) -> tuple[tuple[MeasuredRun, ...], float, tuple[str, ...]]:
    """Choose the runs that partition and join are fitted to; returns them, the factor for their rates, and notes.

    `gpu_name`: the GPU that ``--what-if`` names; the factor scales rates to that GPU, if it was not measured.
    """
    names = list(dict.fromkeys(run.shape.gpu for run in runs))
    listed = ", ".join(str(name or "no GPU") for name in names)
    if gpu_name is None:
        if len(names) > 1:
            raise UsageError(f"the results come from several GPU models ({listed}); choose one with --what-if gpu=NAME")
        return tuple(runs), 1.0, ()
    wanted = find_gpu(gpu_name)
    same = tuple(run for run in runs if run.shape.gpu and find_gpu_by_driver_name(run.shape.gpu) == wanted)
    if same:
        return same, 1.0, (f"Partition and join on a {gpu_name} are measured, not scaled.",)
    models = {find_gpu_by_driver_name(name) for name in names if name}
    (measured,) = models if len(models) == 1 and None not in names else (None,)
    if measured is None and len(names) > 1:
        raise UsageError(
            f"--what-if gpu={gpu_name} needs results from one device, but these come from several ({listed}); give"
            " results from one of them"
        )
    if measured is None:
        raise UsageError(
            f"--what-if gpu={gpu_name} does not work with results from {listed}; add a RESULT measured on {gpu_name}"
        )
    scale = wanted.bandwidth / measured.bandwidth
    assumed = f"Partition and join are assumed to run {scale:.2f} times as fast on a {gpu_name}"
    note = f"{assumed}, the ratio of memory bandwidths"
    return tuple(runs), scale, (f"{note} ({wanted.source}; {measured.source}). This is not measured.",)


def _what_if_text(parameter_name: str, what_if: WhatIfChanges, gpu_factor: float) -> str:
    """The change of a parameter by ``--what-if``, as text: ``× 4 (--what-if)``; empty if there is none."""
    if parameter_name in what_if.new_values:
        return "set by --what-if"
    factor = what_if.factors.get(parameter_name, 1.0) * (
        gpu_factor if parameter_name in ("partition_rate", "join_rate") else 1.0
    )
    return f"× {factor:.3g} (--what-if)" if factor != 1.0 else ""


def _parameter_origin(
    parameter_name: str, measurements: ForecastMeasurements, computing_runs: Sequence[MeasuredRun]
) -> str | None:
    """The names of the results that a parameter was fitted to, as text; None if it has its default value."""
    kind, _, part = parameter_name.partition("_")
    probed = measurements.probed
    if parameter_name == "host_cores":
        runs = [run for run in computing_runs if math.isfinite(run.shape.host_cores)]
    elif kind in ("partition", "join"):
        runs = list(computing_runs)
        one_size = not sizes_differ_enough([run.shape.rows_per_chunk / run.shape.worker_cores.threads for run in runs])
        if (part == "fixed" and one_size) or (part == "spread" and all(run.shape.workers == 1 for run in runs)):
            return None
    elif kind in ("local", "nic"):
        runs = [run for run in measurements.runs if any(getattr(sample, kind) for sample in run.samples)]
        sizes = [transfer.size for run in runs for sample in run.samples if (transfer := getattr(sample, kind))]
        if parameter_name in probed.values and (part != "rate" or not runs):
            return probed.origin
        if part == "latency" or (part == "overhead" and not sizes_differ_enough(sizes)):
            return None
    else:
        runs = [run for run in measurements.runs if run.shape.workers > 1]
    return ", ".join(dict.fromkeys(run.shape.name for run in runs)) or None
