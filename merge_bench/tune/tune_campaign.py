"""The campaign of a tuning: begun or resumed, searched, confirmed, and the config written."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath

from merge_bench.campaign.calling_program import Caller, Labelled, Progress
from merge_bench.campaign.campaign import (
    check_host,
    first_line,
    launch_merge,
    write_first_lines,
    write_interruption,
)
from merge_bench.campaign.planned_launches import Job
from merge_bench.campaign.resume import reopen_newest
from merge_bench.cluster import signals
from merge_bench.errors import RunFailed, UsageError, WrongResult, say
from merge_bench.records.campaign import INTERRUPTED, Campaign
from merge_bench.records.outputs import replacing
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import EndLine, TuneLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.budget import AffordableSearch, Timing, left_out_lines
from merge_bench.tune.cluster_evaluator import RESUME, Budget, ClusterEvaluator
from merge_bench.tune.evaluator import ABLATE, COMBINE, CONFIRM, SCREEN, UNDECIDED, BudgetSpent, Candidate, Options
from merge_bench.tune.result import STOPPED, Result, result_of
from merge_bench.tune.search_steps import blocks_for_verdict, confirm_or_repair, most_confirmed_together
from merge_bench.tune.space import Space, Value
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuning_plan import Task, load_plans


def run_tuning(task: Task, output: Path, progress: Progress, caller: Caller) -> tuple[Campaign, int, str]:
    """Search, confirm, and write the config that was found to `output`.

    Returns the campaign, the exit status (3 also if the budget was too short to try anything), and what went wrong.
    The config is written before the campaign counts as finished.
    """
    results = task.prepared[0].settings.results
    jobs = [Job(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
    line = first_line(task.head, jobs, caller)
    unfinished = None if task.run.fresh else reopen_newest(results, line, lambda campaign: campaign.end is None)
    timing = Timing.of(task)
    fitting = None if unfinished else timing.fit()
    status, problem, untried = 0, "", False
    with (
        caller.signals(),
        signals.ignored(),  # from here on, a signal is recorded
        unfinished[0] if unfinished else CampaignWriter.create(results, f"tune-{task.baseline}") as writer,
    ):
        if unfinished:
            launches = len(unfinished[1].launches)
            say(f"resuming {writer.folder}: {launches} launches are already recorded")
        else:
            write_first_lines(writer, line, jobs)
        if fitting is not None:
            timing.print_forecast(fitting)
        with caller.surround(writer.logs / "driver.log"):
            try:
                with signals.interruptible():
                    check_host(jobs[0].prepared.settings, writer, wait=task.run.wait_for_quiet, first=caller.look)
                    _search_and_confirm(task, timing, writer, progress)
                    whole = read_campaign(writer.folder)
                    write_config(whole, task.space, task.text, task.sizes, task.options.metric, output)
                    untried = result_of(whole).untried
                    status = RunFailed.exit_status if untried else 0
            except (RunFailed, WrongResult) as error:
                status, problem = error.exit_status, str(error)
                if isinstance(error, signals.Interrupted):
                    problem = f"{error}; {RESUME}"
                    if not _is_interruption_recorded(writer):
                        write_interruption(writer, error)
        if untried or status in (0, WrongResult.exit_status):  # otherwise the same command resumes it
            with contextlib.suppress(RunFailed):
                writer.write(EndLine(status=status))
        return read_campaign(writer.folder), status, problem


def _is_interruption_recorded(writer: CampaignWriter) -> bool:
    launches = read_campaign(writer.folder).launches
    return bool(launches) and any(failure.code == INTERRUPTED for failure in launches[-1].failures)


def _search_and_confirm(task: Task, timing: Timing, writer: CampaignWriter, progress: Progress) -> None:
    """Run the strategy, then confirm the best candidates; a spent budget ends either, and is recorded."""
    tune_options = task.options

    def launch(job: Job, index: int) -> int:
        began = time.monotonic()
        status = launch_merge(job, writer, Labelled(progress, evaluator.label(job)), index)
        if status == 0:
            timing.note_launch(job, time.monotonic() - began)
        return status

    evaluator = ClusterEvaluator(
        writer=writer,
        baseline=task.baseline,
        text=task.text,
        prepared=task.prepared,
        load=lambda path: load_plans(path, task.run),
        launch=launch,
        metric=tune_options.metric,
        seed=task.prepared[0].plan.seed,
        budget=Budget(tune_options.max_launches, tune_options.budget, timing.weights, tune_options.confirm),
    )
    options = Options(threshold=tune_options.threshold, most=tune_options.most_blocks, confirm=tune_options.confirm)
    best, spent = Candidate(), None
    try:
        fitting = _fit_to_timed_baseline(task, timing, evaluator)
        best = strategies()[tune_options.strategy].tune(task.space, fitting.values, evaluator, options)
    except BudgetSpent as ended:
        spent = ended
    candidates = best_so_far(read_campaign(writer.folder), task.values, best)
    together = candidates[: max(evaluator.confirmable_count(most_confirmed_together(options, evaluator.plans)), 1)]
    first, names = [*together, Candidate()][0], ", ".join(each.name("") for each in together)
    if spent is not None:
        judged = result_of(read_campaign(writer.folder)).screened
        so_far = f"; best so far: {names}" if together else "; no candidate seems faster so far" if judged else ""
        _note_stop(evaluator, first, f"{spent}{so_far}")
        if together and not evaluator.can_confirm(blocks_for_verdict(options, evaluator.plans)):
            return
    try:
        confirm_or_repair(first, evaluator, options, together[1:])
    except BudgetSpent as ended:
        _note_stop(evaluator, first, f"{ended}, during the confirmation of {names}")


def _fit_to_timed_baseline(task: Task, timing: Timing, evaluator: ClusterEvaluator) -> AffordableSearch:
    """What fits the budget, by the time that recorded launches of the baseline took; a resumed tuning finds the same.

    Raises BudgetSpent if not even one setting fits.
    """
    if evaluator.budget.seconds is None:
        return AffordableSearch(task.values, len(task.prepared))
    launch = evaluator.time_baseline()
    try:
        fitting = timing.fit(launch)
        if fitting.sizes > 1 and launch > 0.0:
            timing.measured = [launch, *evaluator.time_sizes(fitting.sizes)]
            fitting = timing.fit(launch)
    except UsageError as short:
        raise BudgetSpent(str(short)) from None
    for line in left_out_lines(task, fitting, evaluator.budget.seconds):
        evaluator.note(line)
    evaluator.waiting = [value for value in task.values if value not in fitting.values]
    evaluator.prepared = task.prepared[: fitting.sizes]
    evaluator.budget.weights = timing.weights[: fitting.sizes]
    timing.print_forecast(fitting)
    return fitting


def _note_stop(evaluator: ClusterEvaluator, candidate: Candidate, reason: str) -> None:
    """Record why the search ended early, and its best candidate."""
    name, against = candidate.name(evaluator.baseline), evaluator.baseline
    evaluator.note(TuneLine(phase="search", config=name, against=against, decision=STOPPED, reason=reason))


def best_so_far(campaign: Campaign, values: Sequence[Value], best: Candidate | None = None) -> list[Candidate]:
    """The candidates that are worth a confirmation, the best first.

    First the `best` of the search, or the last combination of one that ended early; then the settings that gained alone
    and are not in that; then those that are undecided, if their estimate is a gain.
    """
    by_id = {value.id: value for value in values}
    settings = {line.config.name: line.settings for line in campaign.added}
    # A resumed tuning has lines of its confirmation.
    steps = list(itertools.takewhile(lambda line: line.decision != STOPPED and line.phase != CONFIRM, campaign.tuning))
    left = None
    for line in steps:
        if line.phase == COMBINE and line.decision == "kept":
            left = line.config
        elif line.phase == ABLATE and line.decision == "dropped":
            left = line.against
    if not (best and best.values) and left is not None:
        best = Candidate.of(*(by_id[name] for name in settings[left]))
    singles = [line for line in steps if line.phase == SCREEN and line.setting in by_id]
    gained = [line for line in singles if line.decision == "kept"]
    seem_faster = [
        line
        for line in singles
        if line.decision == UNDECIDED and line.launches >= Options.least and (line.ratio or 0.0) > 1.0
    ]
    ordered = (line for lines in (gained, seem_faster) for line in sorted(lines, key=lambda line: -(line.ratio or 0.0)))
    alone = [Candidate.of(by_id[line.setting]) for line in ordered if line.setting]
    first = [best] if best and best.values else []
    return first + [each for each in alone if not first or each.values[0] not in first[0].values]


def write_config(
    campaign: Campaign, space: Space, baseline: str, sizes: Sequence[str], metric: str, output: Path
) -> None:
    """Write the config that was found, if there is one, to `output`; parameters as of `tuned_config_text`."""
    result = result_of(campaign)
    if result.winner is None:
        return
    text = tuned_config_text(campaign, result, space, baseline=baseline, sizes=sizes, metric=metric)
    try:
        with replacing(output) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise RunFailed(f"--output {output} was not written: {error.strerror}; {RESUME}") from error


def tuned_config_text(
    campaign: Campaign, result: Result, space: Space, *, baseline: str, sizes: Sequence[str], metric: str
) -> str:
    """The text of the config file for what was found.

    `baseline`: the text of the baseline's config; empty for the built-in defaults. `sizes`: the name of each plan:
    ``1,000,000 rows per chunk``.
    """
    assert result.winner is not None
    launch = next(launch for launch in campaign.launches if launch.line is not None)
    assert launch.line is not None
    first = launch.line.workers[0]
    hosts = list(dict.fromkeys(worker.host for worker in launch.line.workers))
    start = PurePath(campaign.head.configs[0].path or result.baseline).name
    commit = str(campaign.head.git.commit if campaign.head.git else "unknown")[:12]
    head = [
        f"# Tuned for {hosts[0]}{f' and {len(hosts) - 1} more' * (len(hosts) > 1)} on {datetime.now(UTC):%Y-%m-%d} by"
        f" merge_bench tune, from {start}; measure again on other hosts.",
        f"# Hosts: {', '.join(hosts)}; {len(launch.line.workers)} workers; {first.hardware.cpu_model or '?'}.",
        f"# UCX {first.ucx.version or 'unknown'} ({first.ucx.origin or 'unknown'});"
        f" merge_bench {campaign.head.version}, commit {commit}; campaign {campaign.head.campaign_id}.",
        *(f"# {metric} at {sizes[line.plan]}: {speed_up_text(line)}, {line.reason}." for line in result.confirmation),
    ]
    lines = ["".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in head]
    values = {value.id: value for value in space.values}
    if baseline.strip():
        lines += ["", f"# The text of {start}:", baseline.rstrip("\n")]
    for setting in result.winner.settings:
        step = result.contributions[setting]
        versus = " compared with this config without it" if step and step.phase == ABLATE else " alone"
        lines += ["", f"# {setting}: " + (speed_up_text(step) + versus if step else "not measured alone")]
        lines += [f"export {name}={shlex.quote(text)}" for name, text in values[setting].variables]
    return "\n".join(lines) + "\n"


def speed_up_text(line: TuneLine) -> str:
    """The speed-up of a step as text: ``1.47 × (1.41 to 1.55, 8 blocks)``."""
    if line.ratio is None:
        return "not measured"
    interval = f"{line.low:.3f} to {line.high:.3f}, " if line.low is not None and line.high is not None else ""
    return f"{line.ratio:.3f} × ({interval}{line.launches} blocks)"
