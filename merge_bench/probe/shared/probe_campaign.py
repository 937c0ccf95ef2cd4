"""A campaign of network measurements: in each block every config gets a launch of its own, in random order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.campaign.calling_program import UNTOUCHED, Caller
from merge_bench.campaign.campaign import config_line, make_campaign
from merge_bench.campaign.expected_time import ExpectedTime
from merge_bench.campaign.make_plan import refuse_more_launches
from merge_bench.campaign.planned_launches import Head, Job, add_config, in_blocks
from merge_bench.campaign.progress import Labelled, Progress
from merge_bench.campaign.run import load
from merge_bench.cluster.launchers import launchers
from merge_bench.config.options import PROBE_OPTIONS, without_merge
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.probe.shared.base import Probe
from merge_bench.records.schema import Config, RunKey
from merge_bench.records.writer import CampaignWriter

REPETITIONS = 3
RULE = "as measured on two cores"
FIXED = without_merge(PROBE_OPTIONS)


def prepare(
    probe: Probe, configs: Sequence[str | None], values: Mapping[str, object], *, blocks: int | None
) -> tuple[Head, list[Job]]:
    """Read every config (None: the built-in defaults) and plan its launches.

    `blocks`: launches of each config; None: 3, and 1 on a running cluster.

    Raises
    ------
    UsageError
        If an option or a config is wrong, or `probe` needs other hosts.
    """
    fixed = {**FIXED, "engine": engines.first(device_memory=probe.device_memory).name}
    lines: list[Config] = []
    ready = []
    for name in configs:
        prepared, config = load(name, values, fixed)
        add_config(lines, config_line(prepared, config))
        ready.append(probe.prepare(prepared))
    if len({each.settings.results for each in ready}) > 1:
        raise UsageError("the configs set different folders for results; choose one folder with --results")
    running = not launchers()[ready[0].settings.launcher].owns_processes
    blocks = blocks or (1 if running else REPETITIONS)
    refuse_more_launches(ready[0].settings.launcher, blocks * len(lines))
    each = in_blocks(list(zip(ready, lines, strict=True)), blocks=blocks, seed=ready[0].plan.seed)
    jobs = [Job(prepared, line.name, block=block) for block, (prepared, line) in each]
    plan = {"probe": probe.name, "launches": blocks, **probe.describe()}
    keys = [RunKey(config=line.name, plan=0) for line in lines]
    return Head(lines, [plan], keys, ready[0].plan.seed), jobs


def expected_time(probe: Probe, head: Head, jobs: Sequence[Job]) -> ExpectedTime:
    """How long the launches of a campaign of `prepare` take."""
    results = jobs[0].prepared.settings.results
    return ExpectedTime(results, head.plans, lambda job: probe.usual_seconds(job.prepared), RULE)


def dry_run(probe: Probe, head: Head, jobs: Sequence[Job]) -> str:
    """What the launches of each config would start, how long they take, and their order."""
    lines: list[str] = []
    prepared = {job.config: job.prepared for job in jobs}
    for config in head.configs:
        made = sum(job.config == config.name for job in jobs)
        lines += [f"## {config.name}: {made} launch{'es' * (made > 1)}", *probe.commands(prepared[config.name])]
    lines.append(f"## {expected_time(probe, head, jobs).sentence(jobs)}")
    return "\n".join([*lines, "## order: " + " ".join(job.config for job in jobs)])


def run(
    probe: Probe, head: Head, jobs: Sequence[Job], progress: Progress, *, fresh: bool = False,
    caller: Caller = UNTOUCHED, wait_for_quiet: float | None = None,
) -> tuple[Path, int]:  # fmt: skip
    """Make the campaign, or resume it unless `fresh`; gives its folder and the exit status.

    `wait_for_quiet`: as of `make_campaign`.
    """

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        shown = Labelled(progress, f"{jobs.index(job) + 1}/{len(jobs)} {job.config}")
        return probe.launch(job, writer, shown if len(jobs) > 1 else progress, index)

    name = "-".join([f"probe-{probe.name}", *(line.name for line in head.configs)])
    settings = jobs[0].prepared.settings
    return make_campaign(
        settings.results, name, head, jobs, launch, resume=not fresh, caller=caller, wait_for_quiet=wait_for_quiet,
        expected=expected_time(probe, head, jobs),
    )  # fmt: skip
