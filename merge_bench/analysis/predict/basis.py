"""Makes the parameters of a forecast from runs, network measurements and options, each with source and interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis.documents.predict import ModelParameter
from merge_bench.analysis.predict import gpus
from merge_bench.analysis.predict.fit import apart, fit, replicates
from merge_bench.analysis.predict.gather import Measurements
from merge_bench.analysis.predict.parameters import ASSUMED, GIVEN, KNOWN, MEASURED, Given, Values
from merge_bench.analysis.predict.samples import Measured
from merge_bench.analysis.predict.whatif import WhatIf
from merge_bench.analysis.statistics import quantile
from merge_bench.errors import UsageError

SHARES = (0.025, 0.975)
"""Which quantiles of the resampled forecasts an interval lies between."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Basis:
    """What a forecast is made of: `values`, the same `resampled`, both with all changes, and where they are from."""

    measurements: Measurements
    parameters: tuple[ModelParameter, ...]
    values: Values
    resampled: tuple[Values, ...]
    notes: tuple[str, ...]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of resampled values."""
    return quantile(values, SHARES[0]), quantile(values, SHARES[1])


def make_basis(measurements: Measurements, what_if: WhatIf, given: Mapping[str, Given], per_host: int) -> Basis:
    """Fit, resample, and apply what is given or changed; partition and join as with `per_host` workers on a host.

    Raises
    ------
    UsageError
        If the rates of the GPU in ``--what-if`` cannot be derived, or the runs are of several GPUs.
    """
    of_gpu, scale, notes = _of_gpu(measurements.runs, what_if.gpu)
    computing = alike(of_gpu, per_host)
    fixed = {name: each.value for name, each in given.items()}

    def changed(fitted: Values) -> Values:
        return what_if.applied({**fitted, **fixed}, scale)

    values = changed(fit(measurements.runs, measurements.probed.values, computing))
    resampled = tuple(map(changed, replicates(measurements.runs, measurements.probed.each, computing)))

    def parameter(name: str) -> ModelParameter:
        about, value = KNOWN[name], values.get(name, KNOWN[name].default or 0.0)
        origin, change, spread = None, "", None
        if name in values:
            origin = given[name].origin if name in given else _origin(name, measurements, computing)
            change = _change(name, what_if, scale)
        if origin is not None and name not in given:
            spread = interval([one.get(name, value) for one in resampled])
        return ModelParameter(
            name=name,
            what=about.what,
            unit=about.unit,
            value=value if math.isfinite(value) else None,  # JSON has no infinity: a rate that nothing slows is null
            interval=spread,
            source=ASSUMED if change or origin is None else GIVEN if name in given else MEASURED,
            origin=", ".join(filter(None, (origin or NOT_MEASURED, change))),
        )

    parameters = tuple(parameter(name) for name, about in KNOWN.items() if name in values or about.default is not None)
    return Basis(measurements, parameters, values, resampled, notes)


def fitted_for(run: Measured, measurements: Measurements) -> Values:
    """What was measured, as it describes `run`, with nothing changed."""
    same_gpu = [each for each in measurements.runs if each.shape.gpu == run.shape.gpu]
    return fit(measurements.runs, measurements.probed.values, alike(same_gpu, max(run.shape.per_host)))


def alike(runs: Sequence[Measured], per_host: int) -> tuple[Measured, ...]:
    """The runs with so many workers on a host, who share its cores and its memory; all where there are none."""
    found = tuple(run for run in runs if max(run.shape.per_host) == per_host)
    return found or tuple(runs)


def _of_gpu(runs: Sequence[Measured], asked: str | None) -> tuple[tuple[Measured, ...], float, tuple[str, ...]]:
    """The runs that partition and join are fitted on, the factor of their rates, and notes about that."""
    names = list(dict.fromkeys(run.shape.gpu for run in runs))
    listed = ", ".join(str(name or "no GPU") for name in names)
    if asked is None:
        if len(names) > 1:
            raise UsageError(f"the results come from several GPU models ({listed}); choose one with --what-if gpu=NAME")
        return tuple(runs), 1.0, ()
    wanted = gpus.named(asked)
    same = tuple(run for run in runs if run.shape.gpu and gpus.recognised(run.shape.gpu) == wanted)
    if same:
        return same, 1.0, (f"Partition and join on a {asked} are measured, not scaled.",)
    known = {gpus.recognised(name) for name in names if name}
    (found,) = known if len(known) == 1 and None not in names else (None,)
    if found is None and len(names) > 1:
        raise UsageError(
            f"--what-if gpu={asked} needs results from one device, but these come from several ({listed}); give"
            " results from one of them"
        )
    if found is None:
        raise UsageError(
            f"--what-if gpu={asked} does not work with results from {listed}; add a RESULT measured on {asked}"
        )
    scale = wanted.bandwidth / found.bandwidth
    note = (
        f"Partition and join are assumed to run {scale:.2f} times as fast on a {asked}, the ratio of memory bandwidths"
    )
    return tuple(runs), scale, (f"{note} ({wanted.source}; {found.source}). This is not measured.",)


def _change(name: str, what_if: WhatIf, scale: float) -> str:
    """How ``--what-if`` changed this parameter."""
    if name == "overlap" and what_if.overlap is not None:
        return "set by --what-if"
    factor = what_if.factors.get(name, 1.0) * (scale if name in ("partition_rate", "join_rate") else 1.0)
    return f"× {factor:.3g} (--what-if)" if factor != 1.0 else ""


def _origin(name: str, measurements: Measurements, computing: Sequence[Measured]) -> str | None:
    """Which results a parameter was fitted to; None if none determines it, so that it has its default."""
    kind, _, part = name.partition("_")
    probed = measurements.probed
    if kind in ("partition", "join"):
        runs = list(computing)
        one_size = not apart([run.shape.rows_per_chunk for run in runs])
        if (part == "fixed" and one_size) or (part == "spread" and all(run.shape.workers == 1 for run in runs)):
            return None
    elif kind in ("local", "nic"):
        runs = [run for run in measurements.runs if any(getattr(sample, kind) for sample in run.samples)]
        sizes = [transfer.size for run in runs for sample in run.samples if (transfer := getattr(sample, kind))]
        if name in probed.values and (part != "rate" or not runs):
            return probed.origin
        if part == "latency" or (part == "overhead" and not apart(sizes)):
            return None
    else:
        runs = [run for run in measurements.runs if run.shape.workers > 1]
    return ", ".join(dict.fromkeys(run.shape.name for run in runs)) or None
