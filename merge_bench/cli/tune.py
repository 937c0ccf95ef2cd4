"""The command that searches for a faster config."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from merge_bench.cli import common
from merge_bench.cli.service import run_on_service, service_address
from merge_bench.command.options import ExecOptions
from merge_bench.config.files import read_regular_file
from merge_bench.config.option import options_by_key, parse_option_text
from merge_bench.config.options import TUNE_OPTIONS, RunOptions
from merge_bench.config.shipped import SPACE, find_config_file
from merge_bench.errors import RunFailed, UsageError, print_message
from merge_bench.tune.options import TuneOptions

TIMEOUT = "timeout"
"""The option of `run` that is the time limit of a command."""

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.recorded_plan import CommandPlan
    from merge_bench.tune.space import PrunedValue
    from merge_bench.tune.tuning_plan import TuningTask


class TuneCommand(common.SectionedHelpCommand):
    """The command `tune`: the words behind the first ``--`` are a user's own command, the parameter `words`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARGUMENT]...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        if at == len(args) - 1:
            raise UsageError("there is no COMMAND behind --")
        try:
            rest = super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                raise UsageError(f"{error.format_message()}; to tune a command, write -- before it") from None
            raise
        ctx.params["words"] = tuple(args[at + 1 :])
        return rest


OWN_HELP = {
    "metric": "Metric to improve: throughput or bandwidth of the merge; of a COMMAND its wall-clock, or with"
    " NAME=re:REGEX, NAME=json:PATH or NAME=PRESET a number that it prints, as for `exec`; the first one counts."
    " [throughput, wall]",
    "lanes": "Run COMMAND once with UCX's log before the search, and leave out settings of transports that it does not"
    " use (not with --dry-run).",
}
COMMAND_TIMEOUT_HELP = (
    "Of a COMMAND: end a launch that takes longer, and count it as failed; by default after ten times as long as the"
    " slowest launch of BASELINE, at least 30s, and at the end of --budget."
)
OF_COMMAND = tuple(
    replace(option, help=OWN_HELP.get(option.key, f"{option.help} Only with a COMMAND."))
    for option in ExecOptions.declared_options()
    if option.key != TIMEOUT
)
OF_TUNING = tuple(option for option in TuneOptions.declared_options() if option.key != "metric")
OF_RUN = tuple(
    replace(option, help=f"{option.help} {COMMAND_TIMEOUT_HELP}") if option.key == TIMEOUT else option
    for option in TUNE_OPTIONS
)


@click.command(cls=TuneCommand, context_settings=common.CONTEXT)
@click.argument("baseline", type=common.PATH, required=False, metavar="[BASELINE]")
@common.add_options("tune_options", TuneOptions, OF_TUNING)
@common.add_options("exec_options", ExecOptions, OF_COMMAND)
@common.plot_option("the speed-up of each setting")
@common.add_options("run_options", RunOptions, OF_RUN)
def tune(
    baseline: str | None,
    tune_options: TuneOptions,
    exec_options: ExecOptions,
    plots: Sequence[str],
    run_options: RunOptions,
    words: tuple[str, ...],
) -> int:
    """Find a config that is faster than BASELINE (by default the built-in settings), and confirm the gain.

    Without a COMMAND, merges are measured: the search uses the first size of --chunk (by default 1e6 and 25e6), and the
    confirmation all sizes. With one, each launch runs it, as `exec` does; it has to follow --, because a word before
    that is the BASELINE.
    """
    from merge_bench.analysis.documents import Failure
    from merge_bench.report.next_step import next_step_after_tuning
    from merge_bench.tune.result import tuning_result_of
    from merge_bench.tune.space import read_tuning_space
    from merge_bench.tune.tune_campaign import run_tuning
    from merge_bench.tune.tuned_config import write_tuned_config
    from merge_bench.tune.tuning_plan import make_tuning_task, seconds_to_decide_candidates
    from merge_bench.tune.view import draw_tuning_charts, print_tuning_result
    from merge_bench.view.plot.draw import check_plot_files
    from merge_bench.view.progress import make_progress
    from merge_bench.view.streams import print_document, print_log_tail, print_warnings
    from merge_bench.view.suggested_command import service_machine_suffix, typed_command_unless_in_job
    from merge_bench.view.text import mark_unprintable
    from merge_bench.view.titles import plan_workload_text

    tune_options, command = _resolve_tuned_command(tune_options, exec_options, run_options, words)
    output = Path(tune_options.output or f"tuned-{_cluster_or_host_name()}.cfg")
    drawings = check_plot_files(plots, [("--output", output)])
    pruned: Sequence[PrunedValue] = ()
    if command is None and (url := service_address(run_options)):
        campaign, ended, status = run_on_service(url, "tune", run_options, details=run_options.details)
        problem = ended.message if ended else ""
        sizes = [plan_workload_text(campaign, plan) for plan in range(len(campaign.plans))]
        if status == 0:
            text = read_regular_file(find_config_file(baseline)).decode("utf-8", "replace") if baseline else ""
            try:
                write_tuned_config(campaign, read_tuning_space(SPACE), text, sizes, tune_options.metric, output)
            except KeyError:
                raise RunFailed(f"{output} was not written: the service has another tuning space") from None
    else:
        task = make_tuning_task(baseline, tune_options, run_options, command)
        sizes, pruned = task.sizes, task.pruned
        print_warnings(warning for each in task.prepared for warning in each.warnings)
        if run_options.dry_run:
            _print_tuning_space(task)
            return 0
        with contextlib.closing(make_progress(sys.stderr, quiet=run_options.json)) as progress:
            campaign, status, problem = run_tuning(task, output, progress, common.make_calling_program())
    result = tuning_result_of(campaign)
    written = output if status == 0 and result.winner is not None else None
    remarks = [f"Written: {written}"] if written else [f"Not written: {output}"] * (status == 0)
    remarks.append(f"Records: {campaign.records}{service_machine_suffix()}")
    if status == 0:
        remarks += draw_tuning_charts(result, campaign, drawings, sizes, tune_options.metric)
    if run_options.json:
        error = Failure("unfinished", problem or result.stopped or "") if status else None
        print_document(result.make_document(campaign.records, written, pruned, error))
    elif problem or (status and not result.has_tried_nothing):
        print_message(problem)
        if command is not None:
            print_log_tail(next((failure.log_tail for each in campaign.launches[-1:] for failure in each.failures), ""))
        print(*map(mark_unprintable, remarks), sep="\n")
    else:
        enough_seconds = seconds_to_decide_candidates(campaign, Path(tune_options.space or SPACE))
        step = typed_command_unless_in_job(
            next_step_after_tuning(campaign, result, config_path=written, seconds_to_decide=enough_seconds)
        )
        print_tuning_result(
            result,
            sizes=sizes,
            metric=tune_options.metric,
            pruned=pruned,
            details=run_options.details,
            next_step=step,
            remarks=remarks,
        )
    return status


def _resolve_tuned_command(
    tune_options: TuneOptions, exec_options: ExecOptions, run_options: RunOptions, words: Sequence[str]
) -> tuple[TuneOptions, CommandPlan | None]:
    """Return the options of the tuning with its metric, and the plan of the command in `words`; None without words."""
    from merge_bench.command.command_campaign import make_command_plan
    from merge_bench.tune.command_tuning import refuse_merge_options

    if words:
        refuse_merge_options(run_options)
        timeout = run_options.timeout if TIMEOUT in run_options.sources else None
        command = make_command_plan(words, exec_options.with_command_line_values(timeout=timeout))
        return tune_options.with_command_line_values(metric=command.main_metric.name), command
    if others := [key for key in exec_options.sources if key != "metric"]:
        raise UsageError(f"--{others[0].replace('_', '-')} needs a COMMAND behind --")
    declared = options_by_key(TuneOptions.declared_options())["metric"]
    for text in exec_options.metric:
        tune_options = tune_options.with_command_line_values(metric=parse_option_text(declared.parse, text, "--metric"))
    return tune_options, None


def show_tuning(campaign: Campaign, *, as_json: bool, details: bool) -> Sequence[str]:
    """Print a stored tuning; returns the error messages that it printed on standard output, which are none."""
    from merge_bench.analysis.documents import Failure
    from merge_bench.report.next_step import next_step_after_recorded_tuning
    from merge_bench.tune.result import ended_tuning_result_of
    from merge_bench.tune.view import print_tuning_result
    from merge_bench.view.streams import print_document
    from merge_bench.view.titles import plan_workload_text

    result, tuning = ended_tuning_result_of(campaign), campaign.plans[0].tune
    if as_json:
        failed = next(iter(common.unrepeated_failures([campaign])), None)
        print_document(result.make_document(campaign.records, None, (), Failure.from_line(failed) if failed else None))
        return ()
    sizes = [plan_workload_text(campaign, plan) for plan in range(len(campaign.plans))]
    metric, step = (
        (tuning and tuning.metric) or "throughput",
        next_step_after_recorded_tuning(campaign).with_program_as_typed(),
    )
    remarks = [f"Records: {campaign.records}"]
    print_tuning_result(result, sizes=sizes, metric=metric, details=details, next_step=step, remarks=remarks)
    return ()


def _print_tuning_space(task: TuningTask) -> None:
    """Print the values that a tuning would try, those that it leaves out, and what its budget allows."""
    from merge_bench.command.command_campaign import metrics_text
    from merge_bench.tune.command_tuning import time_limit_sentence
    from merge_bench.tune.tuning_plan import TuningTiming

    timing = TuningTiming.from_task(task)
    fitting = timing.choose_affordable_search()
    for value in fitting.values:
        print(f"{value.value_id}: " + " ".join(f"{name}={text}" for name, text in value.variables))
    for pruned in task.pruned:
        print(f"# {pruned.value}: {pruned.reason}")
    if task.command is not None:
        print(f"## measured: {metrics_text(task.command)}")
        if task.command.timeout is None:
            print(f"## {time_limit_sentence()}")
    for sentence in timing.duration_forecast_sentences(fitting):
        print(f"## {sentence}")


def _cluster_or_host_name() -> str:
    """The name of the cluster, or else of this host, for use in a file's name."""
    from merge_bench.records.writer import make_safe_folder_name

    return make_safe_folder_name(os.environ.get("SLURM_CLUSTER_NAME") or os.uname().nodename.partition(".")[0])
