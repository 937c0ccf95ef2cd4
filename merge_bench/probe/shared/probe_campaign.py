"""A campaign of network measurements: in each block every config gets a launch of its own, in random order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.campaign import UNTOUCHED, Caller, LabelledProgress, Progress
from merge_bench.campaign.campaign import run_launches
from merge_bench.campaign.make_plan import SWEPT, PlannedRun, refuse_launches_of_running_cluster
from merge_bench.campaign.planned_launches import (
    Job,
    LaunchTimeEstimator,
    add_config,
    make_campaign_line,
    make_config_record,
    order_runs_in_blocks,
    plan_runs,
)
from merge_bench.config.option import COMMAND_LINE
from merge_bench.config.options import PROBE_OPTIONS, RunOptions, reset_merge_options
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.probe.shared import Probe
from merge_bench.records.schema import CampaignLine, Config, RunKey
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import plural

REPETITIONS = 3
RULE = "as measured on two cores"


def plan_probe_campaign(
    probe: Probe, configs: Sequence[str | None], options: RunOptions
) -> tuple[CampaignLine, list[Job]]:
    """Read every config, and return the campaign line of the records and the planned launches of a probe.

    Each config (None: the built-in defaults) gets 3 launches, or 1 on a running cluster. `options`: options of the
    command line, perhaps with another number of launches. Raises UsageError if an option or a config is wrong, or
    `probe` needs other hosts.
    """
    engine = engines.default_engine(device_memory=probe.device_memory).name

    def with_engine(options: RunOptions) -> RunOptions:
        return replace(reset_merge_options(options, PROBE_OPTIONS), engine=engine)

    lines: list[Config] = []
    ready: list[tuple[PlannedRun, Config, dict[str, Any]]] = []
    for name in configs:
        variants = plan_runs(name, options, with_engine, several=SWEPT if probe.sweeps else ("ucx",))
        for alike in _variants_by_ucx(variants):
            add_config(lines, _config_record(alike[0], len(configs), several=len(alike) < len(variants)))
            for sized, part in itertools.product(alike, probe.parts):
                planned = part.prepare(replace(sized, warnings=(*sized.warnings, *probe.planning_warnings())))
                ready.append((planned, lines[-1], _recorded_plan(probe, part, planned)))
    first, *_ = (planned_run for planned_run, _, _ in ready)
    if len({each.settings.results for each, _, _ in ready}) > 1:
        raise UsageError("the configs set different folders for results; choose one folder with --results")
    running = not first.launcher.owns_processes
    blocks = options.launches if options.value_source("launches") == COMMAND_LINE else 1 if running else REPETITIONS
    refuse_launches_of_running_cluster(first.settings.launcher, blocks * len(ready))
    plans: list[dict[str, Any]] = []
    plans += (plan for _, _, plan in ready if plan not in plans)
    jobs = [
        Job(planned_run, line.name, plans.index(plan), block)
        for block, (planned_run, line, plan) in order_runs_in_blocks(ready, blocks=blocks, seed=first.plan.seed)
    ]
    keys = [RunKey(config=line.name, plan=plans.index(plan)) for _, line, plan in ready]
    return make_campaign_line(lines, [{"launches": blocks, **plan} for plan in plans], keys, first.plan.seed), jobs


def _variants_by_ucx(variants: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Return the runs of a config in groups that load the same UCX."""
    names = dict.fromkeys(planned.plan.ucx for planned in variants)
    return [[planned for planned in variants if planned.plan.ucx == name] for name in names]


def _config_record(planned_run: PlannedRun, configs: int, *, several: bool) -> Config:
    """Return the record of a config; with `several` releases of UCX each is a config of its own, with its name.

    `configs`: the number of configs.
    """
    record = make_config_record(planned_run)
    if not several:
        return record
    ucx = f"UCX {planned_run.plan.ucx}"
    return msgspec.structs.replace(record, name=f"{record.name} with {ucx}" if configs > 1 else ucx)


def _recorded_plan(probe: Probe, part: Probe, planned_run: PlannedRun) -> dict[str, Any]:
    """Return what the records say of the launches of `part`, which is one of ``probe.parts``."""
    workers = {"workers": planned_run.plan.workers} if probe.sweeps else {}
    ucx = {} if planned_run.plan.ucx is None else {"ucx": planned_run.plan.ucx}
    return {"probe": probe.name, **part.describe(), **workers, **ucx}


def _probe_part_of_job(probe: Probe, head: CampaignLine, job: Job) -> Probe:
    """Return the one of ``probe.parts`` that the launch `job` measures, by the job's plan in `head`."""
    planned = head.plans[job.plan].items()
    return next(part for part in probe.parts if part.describe().items() <= planned)


def _launch_label(head: CampaignLine, job: Job) -> str:
    """Return the name of a launch in progress messages: config, and backend and number of workers if they vary."""
    plan = head.plans[job.plan]
    return f"{job.config} {plan['backend']}/{plan['workers']}" if "backend" in plan else job.config


def expected_campaign_time(probe: Probe, head: CampaignLine, jobs: Sequence[Job]) -> LaunchTimeEstimator:
    """Return the expected time of the launches, from earlier launches or as the probe expects."""
    results = jobs[0].prepared.settings.results
    return LaunchTimeEstimator(
        results,
        head.plans,
        lambda job: _probe_part_of_job(probe, head, job).expected_launch_seconds(job.prepared),
        RULE,
    )


def describe_dry_run(probe: Probe, head: CampaignLine, jobs: Sequence[Job]) -> str:
    """Return the text of ``--dry-run``: what the launches of each config start, their expected time and order."""
    lines: list[str] = []
    for run in head.runs:
        alike = [job for job in jobs if (job.config, job.plan) == (run.config, run.plan)]
        lines.append(f"## {_launch_label(head, alike[0])}: {plural(len(alike), 'launch')}")
        lines += _probe_part_of_job(probe, head, alike[0]).commands(alike[0].prepared)
    lines.append(f"## {expected_campaign_time(probe, head, jobs).describe_estimate(jobs)}")
    return "\n".join([*lines, "## order: " + " ".join(_launch_label(head, job) for job in jobs)])


def run_probe_campaign(
    probe: Probe,
    head: CampaignLine,
    jobs: Sequence[Job],
    progress: Progress,
    *,
    fresh: bool = False,
    caller: Caller = UNTOUCHED,
    wait_for_quiet: float | None = None,
) -> tuple[Path, int]:
    """Run a probe's campaign, or resume it unless `fresh`, and return its folder and the exit status."""

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        shown = LabelledProgress(progress, f"{jobs.index(job) + 1}/{len(jobs)} {_launch_label(head, job)}")
        return _probe_part_of_job(probe, head, job).launch(job, writer, shown if len(jobs) > 1 else progress, index)

    name = "-".join([f"probe-{probe.name}", *(line.name for line in head.configs)])
    settings = jobs[0].prepared.settings
    return run_launches(
        settings.results,
        name,
        head,
        jobs,
        launch,
        resume=not fresh,
        caller=caller,
        wait_for_quiet=wait_for_quiet,
        expected=expected_campaign_time(probe, head, jobs),
    )
