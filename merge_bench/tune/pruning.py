"""Which values of a space make sense here: with this machine, this UCX and this run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.analysis.documents.tune import PrunedValue
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.config import allowed_transports
from merge_bench.config.old_names import PREFIX
from merge_bench.config.options import BY_KEY, BY_VARIABLE, RunOptions
from merge_bench.config.ucx_info import find_installed
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.tune.space import Setting, Space, Value, allows
from merge_bench.units import format_bytes

INFINIBAND = Path("/sys/class/infiniband")
_MESSAGE_SIZE = BY_KEY["message_size"].variable


@dataclass(frozen=True)
class Context:
    """What is known before the first launch.

    Attributes
    ----------
    conditions
        Those of `space.CONDITIONS` that hold.
    ucx
        The version of UCX; None if it is unknown.
    known
        The variables of the installed UCX; None if they are unknown.
    baseline
        The variables of the baseline's config.
    options
        Values of the baseline's options by variable (``MERGE_BENCH_…``).
    fixed
        Variables of options given on the command line.
    chunk_bytes
        Bytes of a worker's chunk at the first size, which no message can exceed; None if that is not known.
    """

    conditions: frozenset[str]
    ucx: str | None
    known: frozenset[str] | None
    baseline: Mapping[str, str]
    options: Mapping[str, object]
    fixed: frozenset[str] = frozenset()
    chunk_bytes: int | None = None


def context_of(prepared: PlannedRun, given: RunOptions) -> Context:
    """The context of a baseline; `given`: options of the command line, of which ``--chunk`` fixes nothing."""
    plan, settings = prepared.plan, prepared.settings
    surroundings = {name: text for name, text in os.environ.items() if name.startswith(("UCX", PREFIX, "RAPIDS_"))}
    variables = {**surroundings, **settings.environment}
    known, version = None, None
    if installed := find_installed(variables.get("MERGE_BENCH_UCX", "auto"), variables):
        inherited = {name for setting in installed.settings.values() for name in setting.inherits}
        known, version = frozenset({*installed.settings, *inherited}), installed.version
    over_ucx = not plan.data_plane.by_workers and plan.protocol == "ucx"
    peer = plan.error_handling or over_ucx
    several = len(settings.hosts) > 1
    devices = len(list(INFINIBAND.iterdir())) if INFINIBAND.is_dir() else 0
    shared = allowed_transports.allowed(variables.get("UCX_TLS", "all")) & allowed_transports.SHARED_MEMORY
    holds = {
        "one-host": not several, "several-hosts": several, "gpu": settings.gpus > 0, "no-gpu": settings.gpus == 0,
        "infiniband": devices > 0, "several-devices": devices > 1, "tcp": several or peer or not shared,
        "data-plane": plan.data_plane.endpoints, "dask-over-ucx": over_ucx, "peer-error-handling": peer,
    }  # fmt: skip
    options = {
        "error_handling": "peer" if plan.error_handling else "none", "rmm_pool_size": settings.rmm_pool_bytes,
        "message_size": plan.message_bytes, "protocol": plan.protocol, "shuffle": plan.shuffle,
        "engine": plan.engine, "exchange": plan.exchange, "interface": settings.interface,
    }  # fmt: skip
    return Context(
        conditions=frozenset(name for name, so in holds.items() if so), ucx=version, known=known, baseline=variables,
        options={BY_KEY[key].variable: value for key, value in options.items()},
        fixed=frozenset(BY_KEY[key].variable for key in given.sources if key != "chunk"),
        chunk_bytes=(
            plan.rows_per_chunk * plan.workload.bytes_per_row
            if isinstance(plan.workload, SyntheticSpec) and plan.rows_per_chunk is not None else None
        ),
    )  # fmt: skip


def prune(space: Space, context: Context) -> tuple[tuple[Value, ...], tuple[PrunedValue, ...]]:
    """The values that can be tried, and those that cannot, in the order of the space."""
    reasons = {value: _reason(setting, value, context) for setting in space.settings for value in setting.values}
    left = (PrunedValue(value=value.id, reason=reason) for value, reason in reasons.items() if reason is not None)
    return tuple(value for value in reasons if reasons[value] is None), tuple(left)


def _reason(setting: Setting, value: Value, context: Context) -> str | None:
    missing = [condition for condition in setting.requires if condition not in context.conditions]
    if missing:
        return f"requires {', '.join(missing)} (not met in this run)"
    if setting.releases and (context.ucx is None or not allows(setting.releases, context.ucx)):
        return f"needs UCX {', '.join(setting.releases)}; the installed version is {context.ucx or 'unknown'}"
    for name, _ in value.variables:
        if name in context.fixed:
            return f"the command line sets --{BY_VARIABLE[name].name}"
        if name.startswith("UCX_") and context.known is not None and name not in context.known:
            return f"the installed UCX {context.ucx} has no variable {name}"
    if all(_has(name, text, context) for name, text in value.variables):
        return "the baseline already has this value"
    if (chunk := context.chunk_bytes) is not None and all(
        _never_reached(*each, context, chunk) for each in value.variables
    ):
        return f"no message is that long: a chunk has {format_bytes(chunk)}"
    return None


def _never_reached(name: str, text: str, context: Context, longest: int) -> bool:
    """Whether neither this limit of messages nor the baseline's splits one of `longest` bytes."""
    limits = (_parsed(name, text), context.options.get(name)) if name == _MESSAGE_SIZE else (None,)
    return all(isinstance(limit, int) and (limit == 0 or limit >= longest) for limit in limits)


def _parsed(name: str, text: str) -> object:
    return BY_VARIABLE[name].parse(text)


def _has(name: str, text: str, context: Context) -> bool:
    if name.startswith(PREFIX):
        return name in context.options and _parsed(name, text) == context.options[name]
    return context.baseline.get(name) == text
