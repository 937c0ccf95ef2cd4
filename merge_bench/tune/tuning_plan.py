"""What a tuning is going to do: baseline, sizes and values, decided and checked before the first launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.analysis.documents.tune import PrunedValue
from merge_bench.campaign import load as loading
from merge_bench.campaign.campaign import config_line
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Head
from merge_bench.cluster.launchers import launchers
from merge_bench.config.files import read_regular
from merge_bench.config.options import RunOptions
from merge_bench.config.shipped import SPACE
from merge_bench.errors import UsageError
from merge_bench.records.schema import RunKey
from merge_bench.tune.confirmation import least_blocks
from merge_bench.tune.evaluator import Options
from merge_bench.tune.options import TuneOptions
from merge_bench.tune.pruning import context_of, prune
from merge_bench.tune.space import Space, Value, read_space
from merge_bench.tune.strategies import strategies
from merge_bench.units import format_count

SIZES = (1_000_000, 25_000_000)
SMALL_ROWS, SMALL_ITERATIONS, LARGE_ITERATIONS = 2_000_000, 20, 3


@dataclass(frozen=True)
class Task:
    """Everything that is decided before the first launch.

    Attributes
    ----------
    head
        The first line of the records.
    baseline, text
        The name of the baseline, and the text of its config; empty for the built-in defaults.
    prepared
        The plan of each size.
    space, values, pruned
        The tuning space, the values of it that are tried, and those that are not.
    sizes
        The name of each size: ``1,000,000 rows per chunk``.
    options, run
        What the command line gave: options of `tune`, and those of `run`.
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
    """Read baseline and space, plan the sizes, leave out values that make no sense here.

    Raises
    ------
    UsageError
        If an option, the baseline or the space is wrong, or the launches that are allowed cannot decide anything.
    """
    space = read_space(Path(options.space or SPACE), trusted=run.trust_config)
    if options.only:
        space = space.only(options.only)
    prepared = load(baseline, run)
    config = prepared[0].config
    _refuse(prepared[0], options)
    line = config_line(prepared[0])
    kept, pruned = prune(space, context_of(prepared[0], run))
    if not kept:
        reasons = "; ".join(f"{each.value}: {each.reason}" for each in pruned)
        raise UsageError(f"this run cannot try any of the tuning settings: {reasons}")
    if set(line.name.split("+")) <= {value.id for value in space.values}:
        raise UsageError(
            f"the baseline has the same name as a setting that `tune` tries: {line.name}; rename the baseline's file"
        )
    _refuse_few(options, strategies()[options.strategy].first_block(space, kept), len(prepared))
    about = {
        "strategy": options.strategy, "space": space.sha256, "values": [value.id for value in kept],
        "metric": options.metric, "threshold": options.threshold, "blocks": options.most_blocks,
        "confirm": options.confirm, "budget": [options.max_launches, options.budget],
    }  # fmt: skip
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


def load(name: str | Path | None, run: RunOptions) -> list[PlannedRun]:
    """The plans of a config: the sizes of ``--chunk``, few iterations, and no measurement of the link."""
    tables = run.left is not None or run.workload not in ("auto", "synthetic")
    given = run if tables or "chunk" in run.sources else run.given(chunk=SIZES)
    ready: list[PlannedRun] = []
    for each in loading.load(None if name is None else str(name), given):
        plan = replace(each.plan, launches=1, link_rounds=0, check_link=False, timeline="off")
        if run.iterations is None:
            rows = plan.rows_per_chunk or SMALL_ROWS
            plan = replace(plan, iterations=SMALL_ITERATIONS if rows <= SMALL_ROWS else LARGE_ITERATIONS)
        if all(plan != other.plan for other in ready):  # sizes of --chunk do not apply to tables that a config names
            ready.append(replace(each, plan=plan))
    return ready


def _refuse(prepared: PlannedRun, options: TuneOptions) -> None:
    """Refuse what cannot be tuned, whatever the space."""
    if not launchers()[prepared.settings.launcher].owns_processes:
        raise UsageError(
            "tune cannot use a running cluster, because it changes UCX settings; omit --scheduler-address and"
            " --scheduler-file"
        )
    if prepared.plan.verify == "off":
        raise UsageError("tune does not accept --verify off, because a config with wrong results could win")
    if options.metric == "bandwidth" and (not prepared.plan.data_plane.by_workers or prepared.plan.workers < 2):
        raise UsageError("--metric bandwidth needs --exchange ucx and at least 2 workers")


def _refuse_few(options: TuneOptions, first_block: int, sizes: int) -> None:
    """Refuse limits with which nothing could be judged or confirmed."""
    needed = first_block * Options.least
    if options.max_launches is not None and options.max_launches < needed:
        raise UsageError(
            f"--max-launches {options.max_launches} is too few: these settings need at least {needed}; raise it,"
            " or try fewer settings with --only"
        )
    least = least_blocks(Options(), sizes)
    if options.confirm < least:
        raise UsageError(f"--confirm {options.confirm} is too low; use at least {least}")
