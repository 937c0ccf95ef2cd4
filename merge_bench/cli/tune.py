"""The command that searches for a faster config."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from merge_bench.cli import common
from merge_bench.cli.service import run_on_service, service_address
from merge_bench.config.files import read_regular
from merge_bench.config.options import TUNE_OPTIONS, RunOptions
from merge_bench.config.shipped import SPACE, find_config
from merge_bench.errors import RunFailed, say
from merge_bench.tune.options import TuneOptions

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign
    from merge_bench.tune.result import PrunedValue
    from merge_bench.tune.tuning_plan import TuningTask


@click.command(cls=common.SectionedCommand, context_settings=common.CONTEXT)
@click.argument("baseline", type=common.PATH, required=False, metavar="[BASELINE]")
@common.add_options("options", TuneOptions)
@common.plot_option("the speed-up of each setting")
@common.add_options("run", RunOptions, TUNE_OPTIONS)
def tune(baseline: str | None, options: TuneOptions, plots: Sequence[str], run: RunOptions) -> int:
    """Find a config that is faster than BASELINE (by default the built-in settings), and confirm the gain.

    The search uses the first size of --chunk (by default 1e6 and 25e6); the confirmation uses all sizes.
    """
    from merge_bench.analysis.documents import Failure
    from merge_bench.report.next_step import next_step_after_tuning
    from merge_bench.tune import tune_campaign as campaigns
    from merge_bench.tune.result import tuning_result_of
    from merge_bench.tune.space import read_space
    from merge_bench.tune.tuning_plan import make_tuning_task, time_to_decide_all
    from merge_bench.tune.view import draw_tuning_charts, print_tuning
    from merge_bench.view.next_command import service_machine_note, step_as_typed
    from merge_bench.view.plot.draw import check_plot_files
    from merge_bench.view.progress import make_progress
    from merge_bench.view.streams import print_document, print_warnings
    from merge_bench.view.text import visible
    from merge_bench.view.titles import plan_size_text

    output = Path(options.output or f"tuned-{_cluster_or_host_name()}.cfg")
    drawings = check_plot_files(plots, [("--output", output)])
    pruned: Sequence[PrunedValue] = ()
    if url := service_address(run):
        campaign, ended, status = run_on_service(url, "tune", run, details=run.details)
        problem = ended.message if ended else ""
        sizes = [plan_size_text(campaign, plan) for plan in range(len(campaign.plans))]
        if status == 0:
            text = read_regular(find_config(baseline)).decode("utf-8", "replace") if baseline else ""
            try:
                campaigns.write_tuned_config(campaign, read_space(SPACE), text, sizes, options.metric, output)
            except KeyError:
                raise RunFailed(f"{output} was not written: the service has another tuning space") from None
    else:
        task = make_tuning_task(baseline, options, run)
        sizes, pruned = task.sizes, task.pruned
        print_warnings(warning for each in task.prepared for warning in each.warnings)
        if run.dry_run:
            _print_tuning_space(task)
            return 0
        with contextlib.closing(make_progress(sys.stderr, quiet=run.json)) as progress:
            campaign, status, problem = campaigns.run_tuning(task, output, progress, common.command_caller())
    result = tuning_result_of(campaign)
    written = output if status == 0 and result.winner is not None else None
    remarks = [f"Written: {written}"] if written else [f"Not written: {output}"] * (status == 0)
    remarks.append(f"Records: {campaign.records}{service_machine_note()}")
    if status == 0:
        remarks += draw_tuning_charts(result, campaign, drawings, sizes, options.metric)
    if run.json:
        error = Failure("unfinished", problem or result.stopped or "") if status else None
        print_document(result.make_document(campaign.records, written, pruned, error))
    elif problem or (status and not result.tried_nothing):
        say(problem)
        print(*map(visible, remarks), sep="\n")
    else:
        enough_seconds = time_to_decide_all(campaign, Path(options.space or SPACE))
        step = step_as_typed(next_step_after_tuning(campaign, result, written=written, enough_seconds=enough_seconds))
        print_tuning(
            result, sizes=sizes, metric=options.metric, pruned=pruned, details=run.details, step=step, remarks=remarks
        )
    return status


def show_tuning(campaign: Campaign, *, as_json: bool, details: bool) -> Sequence[str]:
    """Print a stored tuning; returns the messages of errors that standard output has, which are none."""
    from merge_bench.analysis.documents import Failure
    from merge_bench.report.next_step import next_step_after_recorded_tuning
    from merge_bench.tune.result import ended_tuning_result_of
    from merge_bench.tune.view import print_tuning
    from merge_bench.view.streams import print_document
    from merge_bench.view.titles import plan_size_text

    result, tuning = ended_tuning_result_of(campaign), campaign.plans[0].tune
    if as_json:
        failed = next(iter(common.unrepeated_failures([campaign])), None)
        print_document(result.make_document(campaign.records, None, (), Failure.from_line(failed) if failed else None))
        return ()
    sizes = [plan_size_text(campaign, plan) for plan in range(len(campaign.plans))]
    metric, step = (tuning and tuning.metric) or "throughput", next_step_after_recorded_tuning(campaign).as_typed()
    remarks = [f"Records: {campaign.records}"]
    print_tuning(result, sizes=sizes, metric=metric, details=details, step=step, remarks=remarks)
    return ()


def _print_tuning_space(task: TuningTask) -> None:
    """Print the values that a tuning would try, those that it leaves out, and what its budget allows."""
    from merge_bench.tune.tuning_plan import TuningTiming

    timing = TuningTiming.from_task(task)
    fitting = timing.fit_search()
    for value in fitting.values:
        print(f"{value.id}: " + " ".join(f"{name}={text}" for name, text in value.variables))
    for pruned in task.pruned:
        print(f"# {pruned.value}: {pruned.reason}")
    for sentence in timing.forecast_sentences(fitting):
        print(f"## {sentence}")


def _cluster_or_host_name() -> str:
    """The name of the cluster, or else of this host, for use in a file's name."""
    from merge_bench.records.writer import safe_name

    return safe_name(os.environ.get("SLURM_CLUSTER_NAME") or os.uname().nodename.partition(".")[0])
