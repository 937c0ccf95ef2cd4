"""What a tuning is going to do, decided and checked before the first launch: baseline, sizes, and the values to try.

Of a space, those values are left out that make no sense with this machine, this UCX and this run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Head, config_line, plan_runs
from merge_bench.config import allowed_transports
from merge_bench.config.files import read_regular
from merge_bench.config.options import BY_KEY, BY_VARIABLE, RunOptions
from merge_bench.config.shipped import SPACE
from merge_bench.config.ucx_info import find_installed
from merge_bench.config.variables import PREFIX
from merge_bench.errors import UsageError
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.records.schema import RunKey
from merge_bench.tune.documents import PrunedValue
from merge_bench.tune.evaluator import Options
from merge_bench.tune.options import TuneOptions
from merge_bench.tune.search_steps import blocks_for_verdict
from merge_bench.tune.space import Setting, Space, Value, read_space, releases_allow
from merge_bench.tune.strategies import strategies
from merge_bench.units import format_bytes, format_count

SIZES = (1_000_000, 25_000_000)
SMALL_ROWS, SMALL_ITERATIONS, LARGE_ITERATIONS = 2_000_000, 20, 3
INFINIBAND = Path("/sys/class/infiniband")
_MESSAGE_SIZE = BY_KEY["message_size"].variable


@dataclass(frozen=True)
class Context:
    """What is known about the machine, UCX and the baseline before the first launch.

    - `conditions`: those of `space.CONDITIONS` that hold
    - `ucx`: the version of UCX; None if it is unknown
    - `ucx_names`: the variables of the installed UCX; None if they are unknown
    - `baseline`: the variables of the baseline's config
    - `options`: values of the baseline's options by variable (``MERGE_BENCH_…``)
    - `fixed`: variables of options given on the command line
    - `chunk_bytes`: bytes of a worker's chunk at the first size, which no message can exceed; None if that is not known
    """

    conditions: frozenset[str]
    ucx: str | None
    ucx_names: frozenset[str] | None
    baseline: Mapping[str, str]
    options: Mapping[str, object]
    fixed: frozenset[str] = frozenset()
    chunk_bytes: int | None = None


def context_of(prepared: PlannedRun, run_options: RunOptions) -> Context:
    """The context of a baseline; `run_options`: options of the command line, of which ``--chunk`` fixes nothing."""
    plan, settings = prepared.plan, prepared.settings
    surroundings = {name: text for name, text in os.environ.items() if name.startswith(("UCX", PREFIX, "RAPIDS_"))}
    variables = {**surroundings, **settings.environment}
    ucx_names, version = None, None
    if installed := find_installed(variables.get("MERGE_BENCH_UCX", "auto"), variables):
        inherited = {name for setting in installed.settings.values() for name in setting.inherits}
        ucx_names, version = frozenset({*installed.settings, *inherited}), installed.version
    over_ucx = not plan.data_plane.by_workers and plan.protocol == "ucx"
    peer = plan.error_handling or over_ucx
    several = len(settings.hosts) > 1
    devices = len(list(INFINIBAND.iterdir())) if INFINIBAND.is_dir() else 0
    shared = allowed_transports.allowed(variables.get("UCX_TLS", "all")) & allowed_transports.SHARED_MEMORY
    holds = {
        "one-host": not several,
        "several-hosts": several,
        "gpu": settings.gpus > 0,
        "no-gpu": settings.gpus == 0,
        "infiniband": devices > 0,
        "several-devices": devices > 1,
        "tcp": several or peer or not shared,
        "data-plane": plan.data_plane.endpoints,
        "dask-over-ucx": over_ucx,
        "peer-error-handling": peer,
    }
    options = {
        "error_handling": "peer" if plan.error_handling else "none",
        "rmm_pool_size": settings.rmm_pool_bytes,
        "message_size": plan.message_bytes,
        "protocol": plan.protocol,
        "shuffle": plan.shuffle,
        "engine": plan.engine,
        "exchange": plan.exchange,
        "interface": settings.interface,
    }
    return Context(
        conditions=frozenset(name for name, so in holds.items() if so),
        ucx=version,
        ucx_names=ucx_names,
        baseline=variables,
        options={BY_KEY[key].variable: value for key, value in options.items()},
        fixed=frozenset(BY_KEY[key].variable for key in run_options.sources if key != "chunk"),
        chunk_bytes=(
            plan.rows_per_chunk * plan.workload.bytes_per_row
            if isinstance(plan.workload, SyntheticSpec) and plan.rows_per_chunk is not None
            else None
        ),
    )


def prune_space(space: Space, context: Context) -> tuple[tuple[Value, ...], tuple[PrunedValue, ...]]:
    """The values that can be tried, and those that cannot, in the order of the space."""
    reasons = {
        value: _reason_to_skip(setting, value, context) for setting in space.settings for value in setting.values
    }
    left = (PrunedValue(value=value.id, reason=reason) for value, reason in reasons.items() if reason is not None)
    return tuple(value for value in reasons if reasons[value] is None), tuple(left)


def _reason_to_skip(setting: Setting, value: Value, context: Context) -> str | None:
    """Why a value makes no sense in this context; None if it can be tried."""
    missing = [condition for condition in setting.requires if condition not in context.conditions]
    if missing:
        return f"requires {', '.join(missing)} (not met in this run)"
    if setting.releases and (context.ucx is None or not releases_allow(setting.releases, context.ucx)):
        return f"needs UCX {', '.join(setting.releases)}; the installed version is {context.ucx or 'unknown'}"
    for name, _ in value.variables:
        if name in context.fixed:
            return f"the command line sets --{BY_VARIABLE[name].name}"
        if name.startswith("UCX_") and context.ucx_names is not None and name not in context.ucx_names:
            return f"the installed UCX {context.ucx} has no variable {name}"
    if all(_baseline_has(name, text, context) for name, text in value.variables):
        return "the baseline already has this value"
    if (chunk := context.chunk_bytes) is not None and all(
        _is_never_split(*each, context, chunk) for each in value.variables
    ):
        return f"no message is that long: a chunk has {format_bytes(chunk)}"
    return None


def _is_never_split(name: str, text: str, context: Context, longest: int) -> bool:
    """Whether a message of `longest` bytes is split neither by this message size nor by the baseline's."""
    limits = (_parse_option_value(name, text), context.options.get(name)) if name == _MESSAGE_SIZE else (None,)
    return all(isinstance(limit, int) and (limit == 0 or limit >= longest) for limit in limits)


def _parse_option_value(name: str, text: str) -> object:
    return BY_VARIABLE[name].parse(text)


def _baseline_has(name: str, text: str, context: Context) -> bool:
    """Whether the baseline sets this variable to the same value."""
    if name.startswith(PREFIX):
        return name in context.options and _parse_option_value(name, text) == context.options[name]
    return context.baseline.get(name) == text


@dataclass(frozen=True)
class Task:
    """Everything that is decided before the first launch.

    `head`: the first line of the records. `baseline`, `text`: the name of the baseline, and the text of its config;
    empty for the built-in defaults. `prepared`: the plan of each size. `space`, `values`, `pruned`: the tuning space,
    the values of it that are tried, and those that are not. `sizes`: the name of each size: ``1,000,000 rows per
    chunk``. `options`, `run`: what the command line gave: options of `tune`, and those of `run`.
    """

    head: Head
    baseline: str
    text: str
    prepared: list[PlannedRun]
    space: Space
    values: tuple[Value, ...]
    pruned: tuple[PrunedValue, ...]
    sizes: list[str]
    options: TuneOptions
    run: RunOptions


def make_task(baseline: str | None, options: TuneOptions, run: RunOptions) -> Task:
    """Read the baseline and the space, plan the sizes, and leave out values that make no sense here.

    Raises UsageError if an option, the baseline or the space is wrong, or the launches that are allowed cannot decide
    anything.
    """
    space = read_space(Path(options.space or SPACE), trusted=run.trust_config)
    if options.only:
        space = space.restricted_to(options.only)
    prepared = load_plans(baseline, run)
    config = prepared[0].config
    _refuse_run(prepared[0], options)
    line = config_line(prepared[0])
    kept, pruned = prune_space(space, context_of(prepared[0], run))
    if not kept:
        reasons = "; ".join(f"{each.value}: {each.reason}" for each in pruned)
        raise UsageError(f"this run cannot try any of the tuning settings: {reasons}")
    if set(line.name.split("+")) <= {value.id for value in space.values}:
        raise UsageError(
            f"the baseline has the same name as a setting that `tune` tries: {line.name}; rename the baseline's file"
        )
    _refuse_low_limits(options, strategies()[options.strategy].first_block(space, kept), len(prepared))
    about = {
        "strategy": options.strategy,
        "space": space.sha256,
        "values": [value.id for value in kept],
        "metric": options.metric,
        "threshold": options.threshold,
        "blocks": options.most_blocks,
        "confirm": options.confirm,
        "budget": [options.max_launches, options.budget],
    }
    plans = [{**each.plan.to_json(), "tune": about} for each in prepared]
    keys = [RunKey(config=line.name, plan=number) for number in range(len(plans))]
    several = len({each.plan.workers for each in prepared}) > 1
    sizes = [
        (f"{format_count(each.plan.rows_per_chunk)} rows per chunk" if each.plan.rows_per_chunk else "the given tables")
        + f", {each.plan.workers} workers" * several
        for each in prepared
    ]
    head = Head([line], plans, keys, prepared[0].plan.seed)
    text = read_regular(config.path).decode() if config is not None else ""
    return Task(head, line.name, text, prepared, space, kept, pruned, sizes, options, run)


def load_plans(name: str | Path | None, run: RunOptions) -> list[PlannedRun]:
    """The planned runs of a config, one for each size of ``--chunk``: few iterations, no measurement of the link."""
    tables = run.left is not None or run.workload not in ("auto", "synthetic")
    sized_run = run if tables or "chunk" in run.sources else run.given(chunk=SIZES)
    ready: list[PlannedRun] = []
    for variant in plan_runs(None if name is None else str(name), sized_run):
        plan = replace(variant.plan, launches=1, link_rounds=0, check_link=False, timeline="off")
        if run.iterations is None:
            rows = plan.rows_per_chunk or SMALL_ROWS
            plan = replace(plan, iterations=SMALL_ITERATIONS if rows <= SMALL_ROWS else LARGE_ITERATIONS)
        if all(plan != other.plan for other in ready):  # sizes of --chunk do not apply to tables that a config names
            ready.append(replace(variant, plan=plan))
    return ready


def _refuse_run(prepared: PlannedRun, options: TuneOptions) -> None:
    """Raise UsageError if this run cannot be tuned, whatever the space."""
    if not prepared.launcher.owns_processes:
        raise UsageError(
            "tune cannot use a running cluster, because it changes UCX settings; omit --scheduler-address and"
            " --scheduler-file"
        )
    if prepared.plan.verify == "off":
        raise UsageError("tune does not accept --verify off, because a config with wrong results could win")
    if options.metric == "bandwidth" and (not prepared.plan.data_plane.by_workers or prepared.plan.workers < 2):
        raise UsageError("--metric bandwidth needs --exchange ucx and at least 2 workers")


def _refuse_low_limits(options: TuneOptions, first_block: int, sizes: int) -> None:
    """Raise UsageError for limits with which nothing could be judged or confirmed."""
    needed = first_block * Options.least
    if options.max_launches is not None and options.max_launches < needed:
        raise UsageError(
            f"--max-launches {options.max_launches} is too few: these settings need at least {needed}; raise it,"
            " or try fewer settings with --only"
        )
    least = blocks_for_verdict(Options(), sizes)
    if options.confirm < least:
        raise UsageError(f"--confirm {options.confirm} is too low; use at least {least}")
