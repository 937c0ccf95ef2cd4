"""What a tuning is going to do, decided and checked before the first launch: baseline, sizes, and the values to try.

Values for which the budget has no time are left out, as far as the time of a launch is known.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.analysis.statistics import median
from merge_bench.campaign.make_plan import SWEPT, PlannedRun
from merge_bench.campaign.planned_launches import (
    LaunchTimeEstimator,
    PlannedLaunch,
    launch_seconds_by_rule,
    make_campaign_line,
    make_config_record,
    plan_runs,
    rule_of_thumb_seconds,
)
from merge_bench.command.placeholders import unforwarded_settings_warning
from merge_bench.config import allowed_transports
from merge_bench.config.files import read_regular_file
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.config.shipped import SPACE
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.config.variables import PREFIX
from merge_bench.errors import UsageError, print_message
from merge_bench.host.machine import usable_core_count
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import CommandPlan, RecordedPlan
from merge_bench.records.schema import CampaignLine, RunKey, TuningStepLine
from merge_bench.tune.command_tuning import (
    count_infiniband_devices,
    find_transports_of_command,
    find_ucx_version_and_variables,
    plan_command_runs,
    tuning_conditions_of_command,
)
from merge_bench.tune.evaluator import SearchOptions
from merge_bench.tune.options import TuneOptions
from merge_bench.tune.result import LEFT_OUT
from merge_bench.tune.search_steps import blocks_needed_for_verdict
from merge_bench.tune.space import PrunedValue, SettingValue, TuningContext, TuningSpace, prune_space, read_tuning_space
from merge_bench.tune.strategies import strategies
from merge_bench.units import count_with_noun, format_count, format_duration, format_limit, parse_duration
from merge_bench.view.titles import shell_command_text

SIZES = (1_000_000, 25_000_000)
SMALL_ROWS, SMALL_ITERATIONS, LARGE_ITERATIONS = 2_000_000, 20, 3


def make_command_tuning_context(
    command: CommandPlan, planned_run: PlannedRun, *, run_for_transports: bool
) -> TuningContext:
    """Make the tuning context of a command under its baseline config.

    `run_for_transports`: whether to run the command once to find its transports, if its plan asks for that.
    """
    settings = dict(planned_run.settings.environment)
    variables = {**_relevant_process_variables(), **settings}
    version, names = find_ucx_version_and_variables(planned_run)
    transports = find_transports_of_command(command, planned_run) if command.lanes and run_for_transports else None
    conditions = tuning_conditions_of_command(command.argv, variables)
    return TuningContext(conditions, version, names, variables, {}, of_command=True, transports=transports)


def _relevant_process_variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(("UCX", PREFIX, "RAPIDS_"))}


def make_tuning_context(planned_run: PlannedRun, run_options: RunOptions) -> TuningContext:
    """Make the tuning context of merges under their baseline config.

    `run_options`: options of the command line; those that are given are fixed, except ``--chunk``.
    """
    plan, settings = planned_run.plan, planned_run.settings
    variables = {**_relevant_process_variables(), **settings.environment}
    variables |= settings.ucx_selection_variables(variables)
    ucx_names, version = None, None
    if installed := find_installed_ucx(variables.get("MERGE_BENCH_UCX", "auto"), variables):
        inherited = {name for setting in installed.settings.values() for name in setting.inherits}
        ucx_names, version = frozenset({*installed.settings, *inherited}), installed.version
    over_ucx = not plan.data_plane.workers_exchange_rows and plan.protocol == "ucx"
    peer = plan.error_handling or over_ucx
    several = len(settings.hosts) > 1
    devices = count_infiniband_devices()
    shared = (
        allowed_transports.find_allowed_transports(variables.get("UCX_TLS", "all")) & allowed_transports.SHARED_MEMORY
    )
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
    options: dict[str, object] = {key: getattr(plan, key) for key in ("protocol", "shuffle", "engine", "exchange")}
    options |= {"message_size": plan.message_bytes, "error_handling": "peer" if plan.error_handling else "none"}
    options |= {"rmm_pool_size": settings.rmm_pool_bytes, "interface": settings.interface}
    work, rows = plan.workload, plan.rows_per_chunk
    return TuningContext(
        conditions=frozenset(name for name, so in holds.items() if so),
        ucx=version,
        ucx_names=ucx_names,
        baseline=variables,
        options={BY_KEY[key].environment_variable: value for key, value in options.items()},
        fixed=frozenset(BY_KEY[key].environment_variable for key in run_options.sources if key != "chunk"),
        chunk_bytes=rows * work.bytes_per_row if isinstance(work, SyntheticSpec) and rows is not None else None,
    )


@dataclass(frozen=True)
class TuningTask:
    """A tuning as it is decided before the first launch: its plans, its values, and what the command line gave.

    `head`: the first line of the records. `baseline`, `text`: the name of the baseline, and the text of its config;
    empty for the built-in defaults. `prepared`: the plan of each size. `space`, `values`, `pruned`: the tuning space,
    the values of it that are tried, and those that are not. `sizes`: the name of each size: ``1,000,000 rows per
    chunk``. `options`, `run`: what the command line gave: options of `tune`, and those of `run`. `command`: what
    is measured; None: merges.
    """

    head: CampaignLine
    baseline: str
    text: str
    prepared: list[PlannedRun]
    space: TuningSpace
    values: tuple[SettingValue, ...]
    pruned: tuple[PrunedValue, ...]
    sizes: list[str]
    options: TuneOptions
    run: RunOptions
    command: CommandPlan | None = None

    def plan_runs_of_config(self, config: str | Path | None) -> list[PlannedRun]:
        """Plan a run of each problem size under the config with this name or path; None: without a config."""
        return _plan_runs_of_config(config, self.run, self.command)


def make_tuning_task(
    baseline: str | None, options: TuneOptions, run_options: RunOptions, command: CommandPlan | None = None
) -> TuningTask:
    """Read the baseline and the tuning space, plan the problem sizes, and leave out values that make no sense here.

    `command`: the command that is tuned; None: merges. Raises UsageError if an option, the baseline or the space is
    wrong, or the launches that are allowed cannot decide anything.
    """
    space = read_tuning_space(Path(options.space or SPACE), trusted=run_options.trust_config)
    if options.only:
        space = space.restricted_to_names(options.only)
    prepared = _plan_runs_of_config(baseline, run_options, command)
    config = prepared[0].config
    line = make_config_record(prepared[0])
    if command is None:
        _check_run_can_be_tuned(prepared[0], options)
        context = make_tuning_context(prepared[0], run_options)
    else:
        context = make_command_tuning_context(command, prepared[0], run_for_transports=not run_options.dry_run)
    kept, pruned = prune_space(space, context)
    if not kept:
        reasons = "; ".join(f"{each.value}: {each.reason}" for each in pruned)
        raise UsageError(f"this run cannot try any of the tuning settings: {reasons}")
    if set(line.name.split("+")) <= {value.value_id for value in space.values}:
        raise UsageError(
            f"the baseline has the same name as a setting that `tune` tries: {line.name}; rename the baseline's file"
        )
    _check_limits_allow_verdict(options, strategies()[options.strategy].first_block(space, kept), len(prepared))
    about = {
        "strategy": options.strategy,
        "space": space.sha256,
        "values": [value.value_id for value in kept],
        "metric": options.metric,
        "threshold": options.threshold,
        "blocks": options.most_blocks,
        "confirm": options.confirm,
        "budget": [options.max_launches, options.budget],
    }
    if command is None:
        plans = [{**each.plan.to_json(), "tune": about} for each in prepared]
        sizes = _problem_size_names(prepared)
    else:
        command = msgspec.structs.replace(command, lanes=False)  # they are known now
        release = prepared[0].plan.ucx
        required = list(prepared[0].plan.require_transport)
        plans = [
            {"command": msgspec.to_builtins(command), "tune": about}
            | ({"ucx": release} if release else {})
            | ({"require_transport": required} if required else {})
        ]
        sizes = [shell_command_text(command)]
        warning = unforwarded_settings_warning(command.argv, "the candidates", dict(kept[0].variables))
        prepared = [replace(each, warnings=(*each.warnings, *filter(None, [warning]))) for each in prepared]
    keys = [RunKey(config=line.name, plan=number) for number in range(len(plans))]
    head = make_campaign_line([line], plans, keys, prepared[0].plan.seed)
    text = read_regular_file(config.path).decode() if config is not None else ""
    return TuningTask(head, line.name, text, prepared, space, kept, pruned, sizes, options, run_options, command)


def _problem_size_names(planned_runs: Sequence[PlannedRun]) -> list[str]:
    several = len({each.plan.workers for each in planned_runs}) > 1
    return [
        (f"{format_count(each.plan.rows_per_chunk)} rows per chunk" if each.plan.rows_per_chunk else "the given tables")
        + f", {each.plan.workers} workers" * several
        for each in planned_runs
    ]


def _plan_runs_of_config(
    config: str | Path | None, run_options: RunOptions, command: CommandPlan | None
) -> list[PlannedRun]:
    return plan_merge_runs(config, run_options) if command is None else plan_command_runs(config, command, run_options)


def plan_merge_runs(config: str | Path | None, run_options: RunOptions) -> list[PlannedRun]:
    """Plan merges under a config, a run for each size of ``--chunk``: few iterations, no measurement of the link."""
    tables = run_options.left is not None or run_options.workload not in ("auto", "synthetic")
    sized_run = (
        run_options if tables or "chunk" in run_options.sources else run_options.with_command_line_values(chunk=SIZES)
    )
    ready: list[PlannedRun] = []
    several = [key for key in SWEPT if key != "ucx"]
    for variant in plan_runs(None if config is None else str(config), sized_run, allowed_several=several):
        plan = replace(variant.plan, launches=1, link_rounds=0, check_link=False, timeline="off")
        if run_options.iterations is None:
            rows = plan.rows_per_chunk or SMALL_ROWS
            plan = replace(plan, iterations=SMALL_ITERATIONS if rows <= SMALL_ROWS else LARGE_ITERATIONS)
        if all(plan != other.plan for other in ready):  # sizes of --chunk do not apply to tables that a config names
            ready.append(replace(variant, plan=plan))
    return ready


def _check_run_can_be_tuned(planned_run: PlannedRun, options: TuneOptions) -> None:
    """Raise UsageError if this run cannot be tuned with any tuning space."""
    if not planned_run.launcher.owns_processes:
        raise UsageError(
            "tune cannot use a running cluster, because it changes UCX settings; omit --scheduler-address and"
            " --scheduler-file"
        )
    if planned_run.plan.verify == "off":
        raise UsageError("tune does not accept --verify off, because a config with wrong results could win")
    if options.metric == "bandwidth" and (
        not planned_run.plan.data_plane.workers_exchange_rows or planned_run.plan.workers < 2
    ):
        raise UsageError("--metric bandwidth needs --exchange ucx and at least 2 workers")


def _check_limits_allow_verdict(options: TuneOptions, first_block_launches: int, size_count: int) -> None:
    """Raise UsageError if the limits on launches or blocks are too low to judge or confirm anything.

    `first_block_launches`: launches of the largest block. `size_count`: number of problem sizes.
    """
    needed = first_block_launches * SearchOptions.least
    if options.max_launches is not None and options.max_launches < needed:
        raise UsageError(
            f"--max-launches {options.max_launches} is too few: these settings need at least {needed}; raise it,"
            " or try fewer settings with --only"
        )
    least = blocks_needed_for_verdict(SearchOptions(), size_count)
    if options.confirm < least:
        raise UsageError(f"--confirm {options.confirm} is too low; use at least {least}")


_SPARE = 1.2
"""How much longer than needed a budget is that is advised: no two launches take the same time."""
_ADVISED_BUDGET = re.compile(r"use --budget ([0-9.]+[a-z]*) or more")
LAUNCH_MARGIN = 1.2
"""Factor by which a launch may take longer than expected before fewer settings fit the budget."""


@dataclass(frozen=True)
class TuningCosts:
    """The number of launches that a tuning makes, and how long they take.

    `launch_seconds`: seconds of a launch at each problem size. `first_block_launches`: gives the launches of the first
    block with these values. `confirm_blocks`: blocks of the confirmation. `less`: what makes a tuning shorter, for an
    error message.
    """

    launch_seconds: Sequence[float]
    first_block_launches: Callable[[Sequence[SettingValue]], int]
    confirm_blocks: int
    less: str = "a smaller --chunk or --confirm"

    def search_seconds(self, values: Sequence[SettingValue]) -> float:
        """Seconds of the search until each of `values` can be judged, after the least number of blocks."""
        return SearchOptions.least * self.first_block_launches(values) * self.launch_seconds[0]

    def confirmation_seconds(self, size_count: int | None = None) -> float:
        """Seconds of the confirmation of one candidate at the first `size_count` problem sizes, by default at all."""
        return 2 * self.confirm_blocks * sum(self.launch_seconds[:size_count])


@dataclass(frozen=True)
class AffordableSearch:
    """The part of a tuning that a budget has time for: try `values`, and confirm at the first `sizes` problem sizes."""

    values: tuple[SettingValue, ...]
    sizes: int


def fit_search_to_budget(values: Sequence[SettingValue], costs: TuningCosts, budget_seconds: float) -> AffordableSearch:
    """Choose the first values, as many as can be judged within the budget, with one of them confirmed.

    Sizes of the confirmation are left out, the last first, if not all values fit with them. Raises UsageError if one
    value at one size does not fit; the message names a budget that suffices, with some to spare.
    """
    fewer = [(len(values), sizes) for sizes in range(len(costs.launch_seconds), 1, -1)]
    fewer += [(count, 1) for count in range(len(values), 0, -1)]
    for count, sizes in fewer:
        if costs.search_seconds(values[:count]) + costs.confirmation_seconds(sizes) <= budget_seconds:
            return AffordableSearch(tuple(values[:count]), sizes)
    least = costs.search_seconds(values[:1]) + costs.confirmation_seconds(1)
    launches = SearchOptions.least * costs.first_block_launches(values[:1]) + 2 * costs.confirm_blocks
    raise UsageError(
        f"--budget {_duration_text(budget_seconds)} is too short to judge and confirm even one setting, which takes"
        f" {launches} launches of about {format_duration(costs.launch_seconds[0])}; for one, use --budget"
        f" {rounded_up_duration_text(_SPARE * least)} or more, or {costs.less}"
    )


def advised_budget_seconds(reason: str | None) -> float:
    """The seconds of the budget that a sentence of `fit_search_to_budget` names in the records; 0 if it names none."""
    advised = _ADVISED_BUDGET.search(reason or "")
    return parse_duration(advised[1]) if advised else 0.0


def _duration_text(seconds: float) -> str:
    """A duration in the form of ``--budget``: ``90s``, ``3m``."""
    return f"{seconds / 60:g}m" if seconds >= 120 else f"{seconds:g}s"


def rounded_up_duration_text(seconds: float) -> str:
    """A duration in the form of ``--budget``, rounded up to ten seconds or half a minute: ``90s``, ``3.5m``."""
    return _duration_text(math.ceil(seconds / 10) * 10 if seconds <= 110 else math.ceil(seconds / 30) * 30)


@dataclass
class TuningTiming:
    """The times of a tuning's launches, and the forecast of its duration that was printed last.

    `expected`: estimates how long a launch takes. `jobs`: a launch of each problem size. `has_noted`: whether a launch
    has ended. `printed`: the search whose forecast was printed. `measured`: seconds of a launch at the first sizes,
    once they are measured.
    """

    task: TuningTask
    expected: LaunchTimeEstimator
    jobs: list[PlannedLaunch]
    has_noted: bool = False
    printed: AffordableSearch | None = None
    measured: Sequence[float] = ()

    @classmethod
    def from_task(cls, task: TuningTask) -> TuningTiming:
        """Make the timing of a tuning of which no launch was made yet."""
        jobs = [PlannedLaunch(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
        rule = launch_seconds_by_rule if task.command is None else _unknown_launch_seconds
        return cls(task, LaunchTimeEstimator(task.prepared[0].settings.results, task.head.plans, rule), jobs)

    @property
    def relative_launch_seconds(self) -> tuple[float, ...]:
        """The time of a launch at each problem size as a multiple of that at the first.

        Measured if possible, else by the rule of thumb, so that it stays the same when the tuning is resumed.
        """
        usual = [self.expected.rule_seconds(job) for job in self.jobs]
        ruled = ((each or 1.0) / (usual[0] or each or 1.0) for each in usual)
        measured = [seconds / self.measured[0] for seconds in self.measured]
        return (*measured, *tuple(ruled)[len(measured) :])

    def choose_affordable_search(self, launch_seconds: float | None = None) -> AffordableSearch:
        """Choose the values and sizes that fit the budget; all without a budget, or without an expected launch time.

        `launch_seconds`: seconds of a launch at the first size, once they are measured. Raises UsageError if the budget
        is too short for one setting.
        """
        costs, budget = self._estimate_costs(LAUNCH_MARGIN, launch_seconds), self.task.options.budget
        if costs is None or budget is None:
            return AffordableSearch(self.task.values, len(self.jobs))
        return fit_search_to_budget(self.task.values, costs, budget)

    def note_launch_seconds(self, job: PlannedLaunch, seconds: float) -> None:
        """Note the seconds of a launch; without a budget, print the forecast again after the first launch."""
        baseline_job = PlannedLaunch(self.jobs[job.plan].prepared, self.task.baseline, job.plan)
        self.expected.add_measured_launch(baseline_job, seconds)
        if not self.has_noted:
            self.has_noted = True
            if self.task.options.budget is None:
                self.print_duration_forecast(AffordableSearch(self.task.values, len(self.jobs)))

    def print_duration_forecast(self, affordable_search: AffordableSearch) -> None:
        """Print how long the tuning takes, and which values wait; nothing if the same search was printed before."""
        if affordable_search != self.printed:
            for sentence in self.duration_forecast_sentences(affordable_search):
                print_message(sentence)
        self.printed = None if self.expected.launch_seconds(self.jobs[0]) is None else affordable_search

    def duration_forecast_sentences(self, affordable_search: AffordableSearch) -> list[str]:
        """Return sentences on how long the tuning takes, and which candidates and problem sizes have to wait."""
        costs, budget = self._estimate_costs(), self.task.options.budget
        limit = "" if budget is None else f"this ends within the budget of {format_limit(budget)}"
        if costs is None:
            unknown = "how long a launch takes is not known before the first has ended"
            enough = "whether that is enough for a candidate is known when the first launches have ended"
            return [f"{limit}; {enough}" if limit else unknown]
        blocks, count = self.task.options.most_blocks, len(affordable_search.values)
        first = costs.first_block_launches(affordable_search.values)
        quick, most, confirming = (
            SearchOptions.least * first,
            blocks * first,
            2 * costs.confirm_blocks * affordable_search.sizes,
        )
        search, confirmation = (
            costs.search_seconds(affordable_search.values),
            costs.confirmation_seconds(affordable_search.sizes),
        )
        source = "as the first launches took" if self.has_noted else self.expected.describe_estimate_source(self.jobs)
        sentences = [
            f"this takes about {format_duration(search)} ({quick} launches) if each candidate is decided after"
            f" {SearchOptions.least} blocks and none gains, about"
            f" {format_duration(most / quick * search + confirmation)} ({most + confirming}) if they need"
            f" {blocks} blocks and one is confirmed ({source})"
            if budget is None
            else f"{limit}: about {format_duration(search)} ({quick} launches) until"
            f" {count_with_noun(count, 'candidate')} {'has' if count == 1 else 'have'} {SearchOptions.least} blocks,"
            f" about {format_duration(confirmation)} ({confirming}) to confirm one ({source})"
        ]
        missing = [value.value_id for value in self.task.values if value not in affordable_search.values]
        if missing:
            waiting = f"{len(missing)} of {len(self.task.values)} candidates wait until there is time for them"
            sentences.append(f"{waiting}: {', '.join(missing)}")
        if sizes := self.task.sizes[affordable_search.sizes :]:
            sentences.append(f"the budget has no time for a confirmation at {' and '.join(sizes)}")
        return sentences

    def _estimate_costs(self, margin: float = 1.0, launch_seconds: float | None = None) -> TuningCosts | None:
        if launch_seconds is not None:
            seconds: list[float | None] = [launch_seconds * weight for weight in self.relative_launch_seconds]
        else:
            seconds = [self.expected.launch_seconds(job) for job in self.jobs]
        launches = [margin * each for each in seconds if each is not None]
        if len(launches) < len(seconds):
            return None
        first_block = partial(strategies()[self.task.options.strategy].first_block, self.task.space)
        if self.task.command is not None:
            return TuningCosts(launches, first_block, self.task.options.confirm, "a smaller --confirm")
        return TuningCosts(launches, first_block, self.task.options.confirm)


def _unknown_launch_seconds(job: PlannedLaunch) -> float | None:
    """Return None for any launch: the time of a command is not known before its first launch."""
    return None


def make_left_out_record_lines(
    task: TuningTask, affordable_search: AffordableSearch, budget_seconds: float | None
) -> list[TuningStepLine]:
    """Make a record line for each value and each problem size that the budget leaves out."""
    reason = "" if budget_seconds is None else f"the budget of {format_limit(budget_seconds)} has no time for it"
    missing = [value.value_id for value in task.values if value not in affordable_search.values]
    absent: list[tuple[str, str | None, int]] = [(name, name, 0) for name in missing]
    absent += [(task.baseline, None, plan) for plan in range(affordable_search.sizes, len(task.prepared))]
    common: dict[str, Any] = {"phase": "search", "against": task.baseline, "decision": LEFT_OUT, "reason": reason}
    return [TuningStepLine(config=name, setting=setting, plan=plan, **common) for name, setting, plan in absent]


def seconds_to_decide_candidates(campaign: Campaign, space_path: Path | None = None) -> float | None:
    """Seconds in which a recorded tuning could give each candidate all its blocks, and confirm one of them.

    None if that is not known: without a launch of the baseline, or if the space at `space_path` is not the one that was
    tuned.
    """
    plan, baseline = campaign.plans[0].tune, campaign.head.configs[0].name
    lengths = [each.end.seconds for each in campaign.launches if each.end is not None and each.run_key == (baseline, 0)]
    known_lengths = [seconds for seconds in lengths if seconds is not None]
    strategy = strategies().get(plan.strategy or "") if plan is not None else None
    if plan is None or strategy is None or plan.blocks is None or plan.confirm is None or not known_lengths:
        return None
    try:
        tuned_space = read_tuning_space(space_path or SPACE)
    except UsageError:
        return None
    values = [value for value in tuned_space.values if value.value_id in plan.values]
    if tuned_space.sha256 != plan.space or len(values) < len(plan.values):
        return None
    usual = [_rule_of_thumb_seconds(plan) for plan in campaign.plans]
    launch = [LAUNCH_MARGIN * median(known_lengths) * (each or 1.0) / (usual[0] or each or 1.0) for each in usual]
    costs = TuningCosts(launch, partial(strategy.first_block, tuned_space), plan.confirm)
    return plan.blocks / SearchOptions.least * costs.search_seconds(values) + costs.confirmation_seconds()


def _rule_of_thumb_seconds(plan: RecordedPlan) -> float | None:
    """Seconds of a launch by the rule of thumb, of use only as a ratio of two problem sizes; None for given tables."""
    if (
        plan.rows_per_chunk is None
        or plan.iterations is None
        or not find_recorded_plane(plan.exchange).workers_exchange_rows
    ):
        return None
    return rule_of_thumb_seconds(
        plan.rows_per_chunk * max((plan.workers or 1) / usable_core_count(), 1.0), plan.iterations
    )
