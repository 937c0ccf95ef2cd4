"""Makes the parameters of a forecast from runs, network measurements and options, each with source and interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis.predict import gpus
from merge_bench.analysis.predict.fit import apart, fit, replicates
from merge_bench.analysis.predict.gather import Ground
from merge_bench.analysis.predict.parameters import ASSUMED, GIVEN, KNOWN, MEASURED, Parameter, Values
from merge_bench.analysis.predict.samples import Measured
from merge_bench.analysis.predict.whatif import Wishes
from merge_bench.analysis.statistics import quantile
from merge_bench.errors import UsageError

COMPUTING = ("partition", "join")
SHARES = (0.025, 0.975)
"""Which quantiles of the resampled forecasts an interval lies between."""


@dataclass(frozen=True)
class Basis:
    """What a forecast is made of: `values`, the same `resampled`, both with all wishes, and where they are from."""

    ground: Ground
    parameters: tuple[Parameter, ...]
    values: Values
    resampled: tuple[Values, ...]
    notes: tuple[str, ...]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of resampled values."""
    return quantile(values, SHARES[0]), quantile(values, SHARES[1])


def make_basis(ground: Ground, wished: Wishes, given: Mapping[str, Parameter], per_host: int) -> Basis:
    """Fit, resample, and change what is wished or given; partition and join as with `per_host` workers on a host.

    Raises
    ------
    UsageError
        If another GPU is wished for whose rates cannot be told, or the runs are of several GPUs.
    """
    of_gpu, scale, notes = _of_gpu(ground.runs, wished.gpu)
    computing = alike(of_gpu, per_host)
    probed = ground.probed.values if ground.probed else {}
    each = ground.probed.each if ground.probed else ()
    told = {name: parameter.value for name, parameter in given.items()}
    again = replicates(ground.runs, each, computing)
    values = wished.applied({**fit(ground.runs, probed, computing), **told}, scale)
    resampled = tuple(wished.applied({**one, **told}, scale) for one in again)
    parameters = tuple(
        _parameter(name, ground, computing, values, resampled, given, wished, scale)
        for name in KNOWN if name in values or KNOWN[name].default is not None
    )  # fmt: skip
    return Basis(ground, parameters, values, resampled, notes)


def fitted_for(run: Measured, ground: Ground) -> Values:
    """What was measured, as it describes `run`, and nothing wished for."""
    same_gpu = [each for each in ground.runs if each.shape.gpu == run.shape.gpu]
    probed = ground.probed.values if ground.probed else {}
    return fit(ground.runs, probed, alike(same_gpu, max(run.shape.per_host)))


def alike(runs: Sequence[Measured], per_host: int) -> tuple[Measured, ...]:
    """The runs with so many workers on a host, who share its cores and its memory; all where there are none."""
    found = tuple(run for run in runs if max(run.shape.per_host) == per_host)
    return found or tuple(runs)


def _of_gpu(runs: Sequence[Measured], wish: str | None) -> tuple[tuple[Measured, ...], float, tuple[str, ...]]:
    """The runs that partition and join are fitted on, by what their rates are scaled, and what is to be said of it."""
    names = list(dict.fromkeys(run.shape.gpu for run in runs))
    if wish is None:
        if len(names) > 1:
            listed = ", ".join(str(name or "no GPU") for name in names)
            raise UsageError(f"the results are of several GPUs ({listed}): say which with --what-if gpu=NAME")
        return tuple(runs), 1.0, ()
    wanted = gpus.named(wish)
    same = tuple(run for run in runs if run.shape.gpu and gpus.recognised(run.shape.gpu) == wanted)
    if same:
        return same, 1.0, (f"Partition and join on a {wish} are measured, not scaled.",)
    known = {gpus.recognised(name) for name in names if name}
    (found,) = known if len(known) == 1 and None not in names else (None,)
    if found is None:
        listed = ", ".join(str(name or "no GPU") for name in names)
        raise UsageError(
            f"--what-if gpu={wish} scales what was measured on a GPU of the table in docs/predict.md, and these "
            f"results are of {listed}: measure on a {wish} and name that RESULT too"
        )
    scale = wanted.bandwidth / found.bandwidth
    said = f"Partition and join are assumed {scale:.2f} times as fast on a {wish}: the ratio of the memory bandwidths"
    return tuple(runs), scale, (f"{said} ({wanted.source}; {found.source}). Nothing of that is measured.",)


def _parameter(
    name: str, ground: Ground, computing: Sequence[Measured], values: Values, resampled: Sequence[Values],
    given: Mapping[str, Parameter], wished: Wishes, scale: float,
) -> Parameter:  # fmt: skip
    changed = _changed(name, wished, scale)
    if name in given and not changed:
        return given[name]
    if name not in values:
        return Parameter(name, KNOWN[name].default or 0.0, ASSUMED, "nothing measured tells it")
    origin = given[name].origin if name in given else _origin(name, ground, computing)
    source = ASSUMED if changed or origin is None else GIVEN if name in given else MEASURED
    said = ", ".join(part for part in (origin or "nothing measured tells it", changed) if part)
    if name in given or origin is None:
        return Parameter(name, values[name], source, said)
    low, high = interval([one.get(name, values[name]) for one in resampled])
    return Parameter(name, values[name], source, said, low, high)


def _changed(name: str, wished: Wishes, scale: float) -> str:
    """How a wish changed this parameter."""
    if name == "overlap" and wished.overlap is not None:
        return "set by --what-if"
    factor = wished.factors.get(name, 1.0) * (scale if name in ("partition_rate", "join_rate") else 1.0)
    return f"× {factor:.3g} (--what-if)" if factor != 1.0 else ""


def _origin(name: str, ground: Ground, computing: Sequence[Measured]) -> str | None:
    """Which results a parameter was fitted on; None where none tells it and it has its default."""
    kind, _, part = name.partition("_")
    if kind in COMPUTING:
        runs = computing
        one_size = not apart([run.shape.rows_per_chunk for run in runs])
        if (part == "fixed" and one_size) or (part == "spread" and all(run.shape.workers == 1 for run in runs)):
            return None
    elif kind in ("local", "nic"):
        found = [(run, each.size) for run in ground.runs for sample in run.samples if (each := getattr(sample, kind))]
        runs = list(dict.fromkeys(run for run, _ in found))
        if ground.probed and (name in ground.probed.values and (part != "rate" or not runs)):
            return ground.probed.origin
        if part == "latency" or (part == "overhead" and not apart([size for _, size in found])):
            return None
    else:
        runs = [run for run in ground.runs if run.shape.workers > 1]
    return ", ".join(dict.fromkeys(run.shape.name for run in runs)) or None
