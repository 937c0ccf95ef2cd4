"""Runs the command `run` from its planned sweep, or describes what it would start."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from merge_bench.analysis.compare.document import least_blocks
from merge_bench.campaign.calling_program import UNTOUCHED, Caller
from merge_bench.campaign.campaign import make_campaign
from merge_bench.campaign.expected_time import ExpectedTime, launch_seconds_by_rule
from merge_bench.campaign.launch import make_launch
from merge_bench.campaign.planned_launches import Job, Sweep
from merge_bench.campaign.progress import Labelled, Progress
from merge_bench.cluster.launchers import make_launcher
from merge_bench.config.installation import __version__
from merge_bench.errors import Caution, warn
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import CampaignLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_count, plural


def dry_run(sweep: Sweep) -> str:
    """The text of --dry-run: the commands that each run's launch would start, one a line, under the host's name.

    For several launches, also how long they will take and their order.
    """
    lines, jobs, run_labels = [], sweep.jobs(), sweep.run_labels()
    for (config, index), prepared in sweep.prepared.items():
        plan = prepared.plan
        if len(jobs) > 1:
            size = f"{_size_text(plan)} per chunk" if plan.rows_per_chunk is not None else _size_text(plan)
            names = f"{config}/{index}" + (f" ({name})" if (name := run_labels[config, index]) != config else "")
            lines.append(f"## {names}: {_workers_text(plan)}{size}, {plan.launches} launches")
        for command in make_launcher(prepared.settings).commands(plan, prepared.settings):
            lines.append(f"# {command.role} on {command.host}")
            lines.append(command.shell_line())
    if len(jobs) > 1:
        lines.append(f"## {expected_time(sweep).describe(jobs)}")
        lines += [f"## {short}"] if (short := too_few_blocks(sweep)) else []
        for block, members in itertools.groupby(jobs, lambda job: job.block):
            lines.append(f"## block {block}: " + " ".join(f"{job.config}/{job.plan}" for job in members))
    return "\n".join(lines) if lines else "# no process would be started: the cluster is already running"


def run(
    sweep: Sweep, progress: Progress, *, fresh: bool = False, extend: Path | None = None, caller: Caller = UNTOUCHED,
    wait_for_quiet: float | None = None, say_time: bool = True,
) -> tuple[Path, int]:  # fmt: skip
    """Make every launch of the sweep; returns the campaign's folder and the exit status.

    Every measurement is written to the disk at once. Every process that was started has ended when this returns. An
    interrupted campaign of the same sweep is resumed, unless `fresh`; `extend`: the folder of a campaign to which
    launches are added. `wait_for_quiet`: the most seconds to wait until other processes leave this host's cores alone;
    `say_time`: print how long several launches take.
    """

    jobs = sweep.jobs()
    if say_time and (short := too_few_blocks(sweep)):
        warn(Caution("few-blocks", short))

    expected = expected_time(sweep)

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        shown = progress
        if len(jobs) > 1:
            shown = Labelled(progress, launch_label(job, jobs), expected.total_seconds(jobs[jobs.index(job) + 1 :]))
        return launch_merge(job, writer, shown, index)

    name = "-".join(config.name for config in sweep.configs)
    return make_campaign(
        sweep.results, name, sweep.head(), jobs, launch, resume=not fresh, extend=extend, caller=caller,
        wait_for_quiet=wait_for_quiet, expected=expected if say_time and len(jobs) > 1 else None,
    )  # fmt: skip


def expected_time(sweep: Sweep) -> ExpectedTime:
    """The estimator of how long the launches of a sweep take."""
    return ExpectedTime(sweep.results, sweep.plans, launch_seconds_by_rule)


def too_few_blocks(sweep: Sweep) -> str | None:
    """A sentence with the number of blocks that can show a difference, if the sweep has fewer; else None."""
    head = sweep.head()
    line = CampaignLine(
        campaign_id="", argv=[], version=__version__, configs=list(head.configs), seed=head.seed,
        plans=list(head.plans), runs=list(head.runs),
    )  # fmt: skip
    plans = tuple(map(RecordedPlan.of, sweep.plans))
    least = least_blocks(Campaign(Path(), line, plans, (), truncated=False, skipped={}))
    blocks = sweep.first.plan.launches
    if blocks >= least:
        return None
    what = f"{len(sweep.labels)} configs" if len(sweep.configs) > 1 else ", ".join(sweep.labels)
    return f"{plural(blocks, 'block')} cannot show a difference between {what}; use --launches {least} or more"


def launch_label(job: Job, jobs: Sequence[Job]) -> str:
    """The label of a launch in the display: ``1 of 12: default, 1,000,000 rows, 2 workers``.

    The records number launches otherwise: from 0, and also those that failed and are made again.
    """
    plan = job.prepared.plan
    return f"{jobs.index(job) + 1} of {len(jobs)}: {job.label}{_size_text(plan)}, {_workers_text(plan)}"


def _size_text(plan: Plan) -> str:
    """The size of the merge for a label: ``, 1,000,000 rows`` or ``, h2o q1``; empty for tables of files."""
    if plan.rows_per_chunk is not None:
        return f", {format_count(plan.rows_per_chunk)} rows"
    work = plan.workload
    return f", {work.benchmark} {work.question}" if isinstance(work, TableSpec) and work.benchmark else ""


def _workers_text(plan: Plan) -> str:
    return plural(plan.workers, "worker")


def launch_merge(job: Job, writer: CampaignWriter, progress: Progress, launch: int) -> int:
    """Make one launch with its merges and other measurements; returns the exit status."""
    from merge_bench.campaign.measure_launch import measure

    return make_launch(job, writer, progress, launch, measure)
