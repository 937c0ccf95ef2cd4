"""The campaign of a tuning: begun or resumed, searched with launches on real clusters, confirmed.

Launches that are in the records are not made again. An interrupted tuning is resumed by running its strategy from the
start, through the launches that were made, to the first that is missing.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from merge_bench.analysis.compare import Metric
from merge_bench.campaign import CallingProgram, LabelledProgress, ProgressDisplay
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.campaign.resume import reopen_newest_campaign
from merge_bench.campaign.run_campaign import (
    complete_campaign_line,
    launch_merge,
    record_interruption,
    warn_if_host_busy,
    write_first_records,
)
from merge_bench.cluster import signals
from merge_bench.command.command_campaign import launch_command
from merge_bench.config.files import replace_file
from merge_bench.errors import RecordsNotWritten, RunFailed, UsageError, WrongResult, print_message
from merge_bench.records.campaign import INTERRUPTED, Campaign
from merge_bench.records.reader import CampaignFollower, read_campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import AddedConfigLine, CampaignEndLine, Config, TuningStepLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.command_tuning import default_time_limit, time_limit_sentence
from merge_bench.tune.evaluator import (
    ABLATE,
    COMBINE,
    CONFIRM,
    SCREEN,
    UNDECIDED,
    BudgetSpent,
    Candidate,
    LaunchSample,
    SearchOptions,
    make_launch_sample,
    tuned_metric,
)
from merge_bench.tune.result import STOPPED, tuning_result_of
from merge_bench.tune.search_steps import blocks_needed_for_verdict, confirm_or_repair_best, max_candidates_to_confirm
from merge_bench.tune.space import SettingValue, TuningSpace
from merge_bench.tune.strategies import SearchStrategy, strategies
from merge_bench.tune.tuned_config import RESUME, candidate_config_text, candidate_file_name, write_tuned_config
from merge_bench.tune.tuning_plan import AffordableSearch, TuningTask, TuningTiming, make_left_out_record_lines

CONFIGS = "configs"
MOST_BASELINE_FAILURES = 2
LATEST = 6
"""So many latest launches count alone if they took longer than all: the host may have become slower."""
MARGIN = 1.1
"""Factor by which launches may become slower before a candidate that waits for its turn no longer fits."""
Load = Callable[[Path], list[PlannedRun]]
"""Reads a config file; returns a plan for each size."""
MakeLaunch = Callable[[PlannedLaunch, int], int]
LaunchKey = tuple[str, int, int]
"""What identifies a launch: its config, the index of its plan, and its block."""


@dataclass
class TuningBudget:
    """The limits on seconds and launches of a tuning; None means no limit.

    `launches`: launches of the search. `seconds`: seconds of all launches. `weights`: how long a launch takes at each
    problem size, as a multiple of the first. `confirm`: blocks of the confirmation, for which the search leaves time.
    """

    launches: int | None = None
    seconds: float | None = None
    weights: Sequence[float] = ()
    confirm: int = 0

    def has_time_for_launches(
        self, spent_seconds: float, launch_seconds: float, launches: int, plan: int = 0, *, reserved_confirmations: int
    ) -> bool:
        """Whether the budget has time for more launches at one problem size after `spent_seconds` of launches.

        `launch_seconds`: seconds of a launch at the first size. `launches`, `plan`: number of launches, and index of
        their size. `reserved_confirmations`: candidates whose confirmation has to fit as well.
        """
        if self.seconds is None:
            return True
        block = launches * (self.weights[plan] if plan < len(self.weights) else 1.0)
        return (
            spent_seconds
            + launch_seconds * (block + self.confirmation_cost_in_launches(self.confirm, reserved_confirmations))
            <= self.seconds
        )

    def confirmation_cost_in_launches(self, blocks: int, candidate_count: int) -> float:
        """The time of a confirmation at every problem size, in units of a launch at the first size.

        `blocks`: blocks at each size. `candidate_count`: candidates that share the baseline's launches.
        """
        return (candidate_count + 1) * blocks * sum(self.weights) if candidate_count else 0.0


@dataclass
class ClusterEvaluator:
    """Makes the launches of a tuning on real clusters, and records them; a launch in the records is not made again.

    `text`: the text of the baseline's config file. `waiting`: values that the budget had no time for at first.
    """

    writer: CampaignWriter
    baseline: str
    text: str
    prepared: Sequence[PlannedRun]
    load: Load
    launch: MakeLaunch
    metric: Metric
    seed: int
    budget: TuningBudget
    waiting: Sequence[SettingValue] = ()
    timed: Sequence[tuple[LaunchSample, LaunchSample]] = ()
    _searching: bool = True
    _search_launches: int = 0
    _spent_seconds: float = 0.0
    _spent_launches: int = 0
    _first_size_seconds: list[float] = field(default_factory=list)
    _block: int = 0
    _samples_by_launch: dict[LaunchKey, tuple[LaunchSample, float]] = field(default_factory=dict)
    _next_index: int = 0
    _baseline_failures: int = 0

    def __post_init__(self) -> None:
        self._records = CampaignFollower(self.writer.folder, limit=sys.maxsize)
        self._configs: dict[str, Sequence[PlannedRun] | str] = {self.baseline: self.prepared}
        campaign = self.read_campaign()
        self._recorded_configs = {line.config.name for line in campaign.added}
        self._recorded_steps = [msgspec.structs.replace(line, time=0.0) for line in campaign.tuning]
        self._store_launch_samples(campaign)

    @property
    def plan_count(self) -> int:
        return len(self.prepared)

    @property
    def has_budget_limit(self) -> bool:
        return self.budget.seconds is not None or self.budget.launches is not None

    @property
    def usual_launch_seconds(self) -> float:
        """Seconds of a launch at the first problem size: the median of all, or of the latest if that is longer."""
        lengths = self._first_size_seconds
        return max(statistics.median(lengths), statistics.median(lengths[-LATEST:])) if lengths else 0.0

    def launch_block(
        self,
        candidates: Sequence[Candidate],
        *,
        plan: int = 0,
        for_search: bool = True,
        reserved_confirmations: int = 1,
    ) -> list[LaunchSample]:
        """Launch each candidate once, in random order; a launch that is in the records is not made again."""
        self._searching = for_search
        if for_search:
            self._charge_search_launches(len(candidates), plan, reserved_confirmations=reserved_confirmations)
        block = self._block
        self._block += 1
        order = list(range(len(candidates)))
        random.Random(f"{self.seed}/{block}").shuffle(order)
        samples = {at: self._sample_of_launch(candidates[at], plan, block) for at in order}
        return [samples[at] for at in sorted(order)]

    def measure_baseline_seconds(self) -> float:
        """Seconds of a launch of the baseline at the first problem size: the shorter of two, made unless recorded.

        The first of all launches often takes longer, because files are read and loops compiled that later ones find.
        """
        own, twin = self.launch_block([Candidate(), Candidate(twin=True)])
        self.timed = [(twin, own)]
        return min(self._first_size_seconds)

    def measure_baseline_by_size(self, size_count: int) -> list[float]:
        """Seconds of a launch of the baseline at the problem sizes after the first, made unless they are recorded.

        `size_count`: how many sizes are considered, the first included.
        """
        seconds = []
        for plan in range(1, size_count):
            before = self._spent_seconds
            self.launch_block([Candidate()], plan=plan)
            seconds.append(self._spent_seconds - before)
        return seconds

    def newly_affordable_values(self, pending_launches: int) -> Sequence[SettingValue]:
        """Return waiting values that can still be judged in the budget, with time for a confirmation left."""
        for count in range(len(self.waiting), 0, -1):
            launches = pending_launches + SearchOptions.least * (count + 2)
            if self.budget.has_time_for_launches(
                self._spent_seconds, MARGIN * self.usual_launch_seconds, launches, reserved_confirmations=1
            ):
                joined, self.waiting = self.waiting[:count], self.waiting[count:]
                print_message(
                    f"there is time for {count} more of the candidates: {', '.join(value.value_id for value in joined)}"
                )
                return joined
        return ()

    def has_time_to_confirm(self, blocks: int, candidate_count: int = 1) -> bool:
        """Whether the budget has time to confirm `candidate_count` candidates with `blocks` blocks at each size."""
        launches = math.ceil(self.budget.confirmation_cost_in_launches(blocks, candidate_count))
        return self.budget.has_time_for_launches(
            self._spent_seconds, self.usual_launch_seconds, launches, reserved_confirmations=0
        )

    def confirmable_candidate_count(self, max_candidates: int) -> int:
        """How many candidates, at most `max_candidates`, the budget has time to confirm with all blocks."""
        return next(
            (count for count in range(max_candidates, 0, -1) if self.has_time_to_confirm(self.budget.confirm, count)), 0
        )

    def record_step(self, line: TuningStepLine) -> None:
        content = msgspec.structs.replace(line, time=0.0)
        if content in self._recorded_steps:
            self._recorded_steps.remove(content)
        else:
            self.writer.write(line)

    def _charge_search_launches(self, launches: int, plan: int, *, reserved_confirmations: int) -> None:
        """Count launches of the search; raises BudgetSpent if the budget has no time for them.

        Only launches and seconds of the records count, so that a resumed tuning ends where it would have ended.
        """
        reserved_confirmations = max(
            self.confirmable_candidate_count(reserved_confirmations), min(reserved_confirmations, 1)
        )
        over = self.budget.launches is not None and self._search_launches + launches > self.budget.launches
        if over or not self.budget.has_time_for_launches(
            self._spent_seconds,
            self.usual_launch_seconds,
            launches,
            plan,
            reserved_confirmations=reserved_confirmations,
        ):
            why = (
                "its budget is used up"
                if over or not reserved_confirmations
                else "the rest of the budget is for a confirmation"
            )
            raise BudgetSpent(f"the search ended after {self._search_launches} launches; {why}")
        self._search_launches += launches

    def _sample_of_launch(self, candidate: Candidate, plan: int, block: int) -> LaunchSample:
        """Return the result of a launch, from the records or made now; its time counts. Raises BudgetSpent."""
        name = candidate.config_name(self.baseline)
        key = (name, plan, block)
        if self.budget.seconds is not None and self._spent_seconds >= self.budget.seconds:
            raise BudgetSpent(f"the budget was used up after {self._spent_launches} launches")
        if key not in self._samples_by_launch:
            prepared = self._plan_candidate(candidate, name)
            if isinstance(prepared, str):
                return LaunchSample(None, prepared)
            self._launch_and_store_sample(PlannedLaunch(prepared[plan], name, plan, block))
            if not candidate.values:
                self._check_baseline_sample(*self._samples_by_launch[key])
        sample, seconds = self._samples_by_launch[key]
        self._spent_seconds += seconds
        self._spent_launches += 1
        if plan == 0:
            self._first_size_seconds.append(seconds)
        return sample

    def _launch_and_store_sample(self, job: PlannedLaunch) -> None:
        status = self.launch(job, self._next_index)
        if (interrupted := signals.pending_interruption()) is not None:
            raise interrupted
        self._store_launch_samples(self.read_campaign())
        if (job.config, job.plan, job.block) not in self._samples_by_launch:
            raise RunFailed(f"a launch ended with status {status}, but its result could not be recorded; {RESUME}")

    def launch_label(self, job: PlannedLaunch) -> str:
        """The text on the next launch in progress messages: ``search, launch 36, 1:52/5:00, message-size=4m``."""
        spent, budget = self._spent_seconds, self.budget.seconds
        used = f", {_minutes_text(spent)}/{_minutes_text(budget)}" if budget else ""
        return f"{'search' if self._searching else 'confirm'}, launch {self._next_index}{used}, {job.config}"

    def command_time_limit(self) -> float | None:
        """Seconds after which the next launch of a command is ended if no time limit was given; None: no limit."""
        names = {each.config_name(self.baseline) for each in (Candidate(), Candidate(twin=True))}
        lengths = [
            seconds
            for (name, _, _), (sample, seconds) in self._samples_by_launch.items()
            if name in names and sample.value is not None
        ]
        left = None if self.budget.seconds is None else self.budget.seconds - self._spent_seconds
        return default_time_limit(lengths, left)

    def _check_baseline_sample(self, sample: LaunchSample, seconds: float) -> None:
        if sample.wrong:
            raise WrongResult(f"the baseline {self.baseline} gave a wrong merge result, so it cannot be tuned")
        self._baseline_failures = 0 if sample.value is not None else self._baseline_failures + 1
        most = MOST_BASELINE_FAILURES
        if sample.of_command and all(each.value is None for each, _ in self._samples_by_launch.values()):
            most = 1  # a wrong metric or a missing file: further launches would fail as well
            if self.budget.seconds is not None and self._spent_seconds + seconds >= self.budget.seconds:
                most = 0
        if self._baseline_failures > most:
            times = "once" if self._baseline_failures == 1 else f"{self._baseline_failures} times in a row"
            raise RunFailed(f"the baseline failed {times}: {sample.reason}")

    def read_campaign(self) -> Campaign:
        """Return the campaign as its records are now; only lines that were added since the last call are read."""
        self._records.read()
        while self._records.has_more:
            self._records.read()
        campaign = self._records.campaign
        if self._records.problem or campaign is None:
            raise RunFailed(self._records.problem or f"{self.writer.records} is empty")
        return campaign

    def _store_launch_samples(self, campaign: Campaign) -> None:
        for launch in campaign.launches:
            self._next_index = max(self._next_index, launch.index + 1)
            # A launch that failed because the disk was full says nothing about its config.
            unrecorded = any(failure.code == RecordsNotWritten.code for failure in launch.failures)
            if launch.run_key is None or launch.block_index is None or launch.interrupted or unrecorded:
                continue
            key = (*launch.run_key, launch.block_index)
            if key not in self._samples_by_launch:
                seconds = launch.end.seconds if launch.end else None
                sample = make_launch_sample(launch, self.metric, of_command=campaign.command is not None)
                self._samples_by_launch[key] = sample, seconds or 0.0

    def _plan_candidate(self, candidate: Candidate, name: str) -> Sequence[PlannedRun] | str:
        """Plan the runs of a candidate, and write its config; returns the runs, or why the config cannot be used."""
        if name in self._configs:
            return self._configs[name]
        path = self.writer.folder / CONFIGS / f"{candidate_file_name(name)}.cfg"
        try:
            path.parent.mkdir(exist_ok=True)
            with replace_file(path) as stream:
                stream.write(candidate_config_text(self.text, candidate).encode())
        except OSError as error:
            raise RunFailed(f"cannot write the config {path}: {error.strerror}") from error
        variables: dict[str, str] = {}
        try:
            prepared = self.load(path)
            self._configs[name] = prepared
            variables = dict(prepared[0].settings.environment)
        except UsageError as error:  # nothing else: an interruption says nothing about a config
            self._configs[name] = str(error)
        if name not in self._recorded_configs:
            self._recorded_configs.add(name)
            config = Config(name=name, path=str(path), variables=variables)
            self.writer.write(AddedConfigLine(config=config, settings=[value.value_id for value in candidate.values]))
        return self._configs[name]


def _minutes_text(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run_tuning(
    task: TuningTask, config_path: Path, progress: ProgressDisplay, caller: CallingProgram
) -> tuple[Campaign, int, str]:
    """Search, confirm, and write the config that was found; the campaign is new, or resumes an interrupted one.

    Returns the campaign, the exit status (3 also if the budget was too short to try anything), and what went wrong.
    The config is written before the campaign counts as finished.
    """
    results = task.prepared[0].settings.results
    jobs = [PlannedLaunch(each, task.baseline, plan) for plan, each in enumerate(task.prepared)]
    line = complete_campaign_line(task.head, jobs, caller)
    unfinished = (
        None if task.run.fresh else reopen_newest_campaign(results, line, lambda campaign: campaign.end is None)
    )
    timing = TuningTiming.from_task(task)
    fitting = None if unfinished else timing.choose_affordable_search()
    status, problem, untried = 0, "", False
    with (
        caller.signals(),
        signals.ignore_signals(),  # from here on, a signal is recorded
        unfinished[0] if unfinished else CampaignWriter.create(results, f"tune-{task.baseline}") as writer,
    ):
        if unfinished:
            count = len(unfinished[1].launches)
            print_message(f"resuming {writer.folder}: {count} launches are already recorded")
        else:
            write_first_records(writer, line, jobs)
        if fitting is not None:
            timing.print_duration_forecast(fitting)
        with caller.surround(writer.logs / "driver.log"):
            try:
                with signals.allow_interruption():
                    warn_if_host_busy(
                        jobs[0].prepared.settings,
                        writer,
                        wait_seconds=task.run.wait_for_quiet,
                        first_measurement=caller.look,
                    )
                    _tune_with_real_launches(task, timing, writer, progress)
                    whole = read_campaign(writer.folder)
                    write_tuned_config(whole, task.space, task.text, task.sizes, task.options.metric, config_path)
                    untried = tuning_result_of(whole).has_tried_nothing
                    status = RunFailed.exit_status if untried else 0
            except (RunFailed, WrongResult) as error:
                status, problem = error.exit_status, str(error)
                launches = read_campaign(writer.folder).launches
                # A command that never ended well has to be mended: then its tuning begins anew.
                untried = task.command is not None and not any(launch.complete for launch in launches)
                if isinstance(error, signals.Interrupted):
                    problem, untried = f"{error}; {RESUME}", False
                    if not any(failure.code == INTERRUPTED for launch in launches[-1:] for failure in launch.failures):
                        record_interruption(writer, error)
        if untried or status in (0, WrongResult.exit_status):  # otherwise the same command resumes it
            with contextlib.suppress(RunFailed):
                writer.write(CampaignEndLine(status=status))
        return read_campaign(writer.folder), status, problem


def _tune_with_real_launches(
    task: TuningTask, timing: TuningTiming, writer: CampaignWriter, progress: ProgressDisplay
) -> None:
    """Make the evaluator of a tuning, search with its strategy, and confirm the best candidates."""
    tune_options = task.options

    def launch_and_note_seconds(job: PlannedLaunch, launch_index: int) -> int:
        began = time.monotonic()
        shown = LabelledProgress(progress, evaluator.launch_label(job))
        if task.command is None:
            status = launch_merge(job, writer, shown, launch_index)
        else:
            command = task.command
            if command.timeout is None:
                command = msgspec.structs.replace(command, timeout=evaluator.command_time_limit())
            status = launch_command(command, job, writer, shown, launch_index)
        if status == 0:
            timing.note_launch_seconds(job, time.monotonic() - began)
        return status

    evaluator = ClusterEvaluator(
        writer=writer,
        baseline=task.baseline,
        text=task.text,
        prepared=task.prepared,
        load=task.plan_runs_of_config,
        launch=launch_and_note_seconds,
        metric=tuned_metric(RecordedPlan.from_options(task.head.plans[0])),
        seed=task.prepared[0].plan.seed,
        budget=TuningBudget(
            tune_options.max_launches, tune_options.budget, timing.relative_launch_seconds, tune_options.confirm
        ),
    )
    options = SearchOptions(
        threshold=tune_options.threshold, most=tune_options.most_blocks, confirm=tune_options.confirm
    )
    search_and_confirm(
        evaluator,
        strategies()[tune_options.strategy],
        task.space,
        task.values,
        options,
        partial(fit_search_to_timed_baseline, task, timing, evaluator),
    )


def search_and_confirm(
    evaluator: ClusterEvaluator,
    strategy: SearchStrategy,
    space: TuningSpace,
    values: Sequence[SettingValue],
    options: SearchOptions,
    fit_search_to_budget: Callable[[], AffordableSearch],
) -> Candidate:
    """Search `values` for the best candidates, and confirm them; a spent budget ends either, and is recorded.

    `fit_search_to_budget`: launches the baseline to find what fits the budget; may raise BudgetSpent. Returns the
    config that was confirmed, or the empty candidate.
    """
    best, spent = Candidate(), None
    try:
        best = strategy.tune(space, fit_search_to_budget().values, evaluator, options)
    except BudgetSpent as ended:
        spent = ended
    candidates = candidates_worth_confirming(evaluator.read_campaign(), values, best)
    together = candidates[
        : max(evaluator.confirmable_candidate_count(max_candidates_to_confirm(options, evaluator.plan_count)), 1)
    ]
    first, names = [*together, Candidate()][0], ", ".join(each.config_name("") for each in together)
    if spent is not None:
        judged = tuning_result_of(evaluator.read_campaign()).screened
        so_far = f"; best so far: {names}" if together else "; no candidate seems faster so far" if judged else ""
        _record_early_end(evaluator, first, f"{spent}{so_far}")
        if together and not evaluator.has_time_to_confirm(blocks_needed_for_verdict(options, evaluator.plan_count)):
            return Candidate()
    try:
        return confirm_or_repair_best(first, evaluator, options, together[1:])
    except BudgetSpent as ended:
        _record_early_end(evaluator, first, f"{ended}, during the confirmation of {names}")
        return Candidate()


def fit_search_to_timed_baseline(
    task: TuningTask, timing: TuningTiming, evaluator: ClusterEvaluator
) -> AffordableSearch:
    """Return the values and sizes that fit the budget, by launches of the baseline, made unless they are recorded.

    So a resumed tuning finds the same. Raises BudgetSpent if not even one setting fits.
    """
    if evaluator.budget.seconds is None and task.command is None:
        return AffordableSearch(task.values, len(task.prepared))
    launch = evaluator.measure_baseline_seconds()  # which also shows whether a command works at all
    if task.command is not None and task.command.timeout is None:
        print_message(time_limit_sentence(evaluator.command_time_limit()))
    try:
        fitting = timing.choose_affordable_search(launch)
        if fitting.sizes > 1 and launch > 0.0:
            timing.measured = [launch, *evaluator.measure_baseline_by_size(fitting.sizes)]
            fitting = timing.choose_affordable_search(launch)
    except UsageError as short:
        raise BudgetSpent(str(short)) from None
    for line in make_left_out_record_lines(task, fitting, evaluator.budget.seconds):
        evaluator.record_step(line)
    evaluator.waiting = [value for value in task.values if value not in fitting.values]
    evaluator.prepared = task.prepared[: fitting.sizes]
    evaluator.budget.weights = timing.relative_launch_seconds[: fitting.sizes]
    timing.print_duration_forecast(fitting)
    return fitting


def _record_early_end(evaluator: ClusterEvaluator, candidate: Candidate, reason: str) -> None:
    """Write a line to the records on why the search ended early, and with which best candidate."""
    name, against = candidate.config_name(evaluator.baseline), evaluator.baseline
    evaluator.record_step(TuningStepLine(phase="search", config=name, against=against, decision=STOPPED, reason=reason))


def candidates_worth_confirming(
    campaign: Campaign, values: Sequence[SettingValue], best: Candidate | None = None
) -> list[Candidate]:
    """Return the candidates that are worth a confirmation, the best first.

    First the `best` of the search, or the last combination of one that ended early; then the settings that gained alone
    and are not in that; then those that are undecided, if their estimate is a gain.
    """
    by_id = {value.value_id: value for value in values}
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
        best = Candidate.from_values(*(by_id[name] for name in settings[left]))
    singles = [line for line in steps if line.phase == SCREEN and line.setting in by_id]
    gained = [line for line in singles if line.decision == "kept"]
    judged = [line for line in singles if line.decision == UNDECIDED and line.launches >= SearchOptions.least]
    seem_faster = [line for line in judged if (line.ratio or 0.0) > 1.0]
    ordered = (line for lines in (gained, seem_faster) for line in sorted(lines, key=lambda line: -(line.ratio or 0.0)))
    alone = [Candidate.from_values(by_id[line.setting]) for line in ordered if line.setting]
    first = [best] if best and best.values else []
    return first + [each for each in alone if not first or each.values[0] not in first[0].values]
