"""A campaign of network measurements: in each block every config gets a launch of its own, in random order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.campaign import UNTOUCHED, CallingProgram, LabelledProgress, ProgressDisplay
from merge_bench.campaign.make_plan import SWEPT, PlannedRun, refuse_launches_of_running_cluster
from merge_bench.campaign.planned_launches import (
    LaunchTimeEstimator,
    PlannedLaunch,
    append_config_record,
    make_campaign_line,
    make_config_record,
    order_runs_in_blocks,
    plan_runs,
)
from merge_bench.campaign.run_campaign import run_launches
from merge_bench.cluster.base import CommandListing
from merge_bench.config.option import COMMAND_LINE
from merge_bench.config.options import PROBE_OPTIONS, RunOptions, reset_merge_options
from merge_bench.config.variables import refuse_configs_that_differ_in_nothing
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.probe.shared import Probe
from merge_bench.records.schema import CampaignLine, Config, RunKey
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import count_with_noun

REPETITIONS = 3
RULE = "as measured on two cores"


def plan_probe_campaign(
    probe: Probe, configs: Sequence[str | None], run_options: RunOptions
) -> tuple[CampaignLine, list[PlannedLaunch]]:
    """Plan a probe under each config; return the campaign line of the records, and the launches in their order.

    Each config (None: the built-in defaults) gets 3 launches, or 1 on a running cluster. `run_options`: options of the
    command line, perhaps with another number of launches. Raises UsageError if an option or a config is wrong, or
    `probe` needs other hosts.
    """
    engine = engines.default_engine(device_memory=probe.uses_gpu_memory).name

    def set_probe_engine(run_options: RunOptions) -> RunOptions:
        return replace(reset_merge_options(run_options, PROBE_OPTIONS), engine=engine)

    lines: list[Config] = []
    ready: list[tuple[PlannedRun, Config, dict[str, Any]]] = []
    for name in configs:
        variants = plan_runs(name, run_options, set_probe_engine, allowed_several=SWEPT if probe.sweeps else ("ucx",))
        for alike in _group_runs_by_ucx_release(variants):
            append_config_record(
                lines, _config_record(alike[0], len(configs), several_ucx_releases=len(alike) < len(variants))
            )
            for sized, part in itertools.product(alike, probe.parts_with_own_launches):
                planned = part.adapt_run_to_probe(
                    replace(sized, warnings=(*sized.warnings, *probe.planning_warnings()))
                )
                ready.append((planned, lines[-1], _recorded_plan(probe, part, planned)))
    first, *_ = (planned_run for planned_run, _, _ in ready)
    refuse_configs_that_differ_in_nothing((each.config for each, _, _ in ready), trusted=run_options.trust_config)
    if len({each.settings.results for each, _, _ in ready}) > 1:
        raise UsageError("the configs set different folders for results; choose one folder with --results")
    running = not first.launcher.owns_processes
    blocks = (
        run_options.launches if run_options.value_source("launches") == COMMAND_LINE else 1 if running else REPETITIONS
    )
    refuse_launches_of_running_cluster(first.settings.launcher, blocks * len(ready))
    plans: list[dict[str, Any]] = []
    plans += (plan for _, _, plan in ready if plan not in plans)
    jobs = [
        PlannedLaunch(planned_run, line.name, plans.index(plan), block)
        for block, (planned_run, line, plan) in order_runs_in_blocks(ready, blocks=blocks, seed=first.plan.seed)
    ]
    keys = [RunKey(config=line.name, plan=plans.index(plan)) for _, line, plan in ready]
    return make_campaign_line(lines, [{"launches": blocks, **plan} for plan in plans], keys, first.plan.seed), jobs


def _group_runs_by_ucx_release(runs: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Return the planned runs of one config in groups, each with runs that load the same UCX."""
    names = dict.fromkeys(planned.plan.ucx for planned in runs)
    return [[planned for planned in runs if planned.plan.ucx == name] for name in names]


def _config_record(planned_run: PlannedRun, config_count: int, *, several_ucx_releases: bool) -> Config:
    """Return the record of a config; if several releases of UCX are compared, its name gets the release.

    `config_count`: the number of configs; if there is only one, the release alone is the name.
    """
    record = make_config_record(planned_run)
    if not several_ucx_releases:
        return record
    ucx = f"UCX {planned_run.plan.ucx}"
    return msgspec.structs.replace(record, name=f"{record.name} with {ucx}" if config_count > 1 else ucx)


def _recorded_plan(probe: Probe, part: Probe, planned_run: PlannedRun) -> dict[str, Any]:
    """Return the plan in the records for the launches of `part`, one of `probe.parts_with_own_launches`."""
    workers = {"workers": planned_run.plan.workers} if probe.sweeps else {}
    ucx = {} if planned_run.plan.ucx is None else {"ucx": planned_run.plan.ucx}
    return {"probe": probe.name, **part.describe_for_records(), **workers, **ucx}


def _probe_for_planned_launch(probe: Probe, campaign_line: CampaignLine, job: PlannedLaunch) -> Probe:
    """Return the part of a probe that the launch `job` measures, found by the job's plan in the campaign line."""
    planned = campaign_line.plans[job.plan].items()
    return next(part for part in probe.parts_with_own_launches if part.describe_for_records().items() <= planned)


def _launch_label(campaign_line: CampaignLine, job: PlannedLaunch) -> str:
    """Return the name of a launch in progress messages: its config, and backend and number of workers if they vary."""
    plan = campaign_line.plans[job.plan]
    return f"{job.config} {plan['backend']}/{plan['workers']}" if "backend" in plan else job.config


def make_time_estimator(
    probe: Probe, campaign_line: CampaignLine, jobs: Sequence[PlannedLaunch]
) -> LaunchTimeEstimator:
    """Return the estimator of the launches' time, which uses earlier launches, or else what the probe expects."""
    results = jobs[0].prepared.settings.results
    return LaunchTimeEstimator(
        results,
        campaign_line.plans,
        lambda job: _probe_for_planned_launch(probe, campaign_line, job).expected_launch_seconds(job.prepared),
        RULE,
    )


def dry_run_text(probe: Probe, campaign_line: CampaignLine, jobs: Sequence[PlannedLaunch]) -> str:
    """Return the text of ``--dry-run``: runs, expected time and order of launches, then what each run starts."""
    lines: list[str] = []
    commands: list[str] = []
    listing = CommandListing()
    for run in campaign_line.runs:
        alike = [job for job in jobs if (job.config, job.plan) == (run.config, run.plan)]
        label = _launch_label(campaign_line, alike[0])
        lines.append(f"## {label}: {count_with_noun(len(alike), 'launch')}")
        commands += _probe_for_planned_launch(probe, campaign_line, alike[0]).launch_command_lines(
            alike[0].prepared, listing, label if len(campaign_line.runs) > 1 else ""
        )
    lines.append(f"## {make_time_estimator(probe, campaign_line, jobs).describe_estimate(jobs)}")
    order = "## order: " + " ".join(_launch_label(campaign_line, job) for job in jobs)
    return "\n".join([*lines, order, *commands])


def run_probe_campaign(
    probe: Probe,
    campaign_line: CampaignLine,
    jobs: Sequence[PlannedLaunch],
    progress: ProgressDisplay,
    *,
    fresh: bool = False,
    caller: CallingProgram = UNTOUCHED,
    wait_for_quiet: float | None = None,
) -> tuple[Path, int]:
    """Run a probe's campaign, or resume it unless `fresh`, and return its folder and the exit status."""

    def launch_part_of_probe(job: PlannedLaunch, writer: CampaignWriter, launch_index: int) -> int:
        shown = LabelledProgress(progress, f"{jobs.index(job) + 1}/{len(jobs)} {_launch_label(campaign_line, job)}")
        return _probe_for_planned_launch(probe, campaign_line, job).launch_and_measure(
            job, writer, shown if len(jobs) > 1 else progress, launch_index
        )

    name = "-".join([f"probe-{probe.name}", *(line.name for line in campaign_line.configs)])
    settings = jobs[0].prepared.settings
    return run_launches(
        settings.results,
        name,
        campaign_line,
        jobs,
        launch_part_of_probe,
        resume=not fresh,
        caller=caller,
        wait_for_quiet=wait_for_quiet,
        time_estimator=make_time_estimator(probe, campaign_line, jobs),
    )
