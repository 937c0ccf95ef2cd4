"""What the Live tab shows, as plain data: how far a campaign is, rates, what workers do now, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import VerificationState, verification_state
from merge_bench.analysis.compare import Metric, metrics_of_command
from merge_bench.analysis.documents import RunDocument, command_metric_summaries, run_documents
from merge_bench.analysis.statistics import median
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import CachedLastResult
from merge_bench.errors import WarningMessage
from merge_bench.records import schema as s
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch, label_planned_runs
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import LaunchLine
from merge_bench.report.command_sections import command_runs_best_first
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.report.run import write_conclusion
from merge_bench.report.run_sections import why_no_bandwidth
from merge_bench.tune.result import ended_tuning_result_of
from merge_bench.tune.stage import TuningStage, tuning_stage_of
from merge_bench.tune.view import write_tuning_outcome
from merge_bench.units import count_with_noun, format_duration
from merge_bench.view.content import (
    Block,
    Column,
    Heading,
    NamedValues,
    NextCommandBlock,
    PageBuilder,
    Paragraph,
    Table,
    rank_matrix_columns,
)
from merge_bench.view.plot import Chart, merge
from merge_bench.view.text import DisplayUnit, as_html, format_gib, format_ms, keep_cli_options_unbroken
from merge_bench.view.titles import (
    failure_location_text,
    failure_logs_path,
    is_tuning_campaign,
    plan_workload_text,
    result_source_lines,
)


@dataclass(frozen=True)
class CampaignProgress:
    """The progress of a campaign; `left`: how long the rest takes, as text; empty if that is not known.

    `launches`, `failed`: how many launches were completed, and how many failed. `share`: the part that is done, 0 to 1;
    of a tuning, which decides as it goes how much it measures, the share of its budget's time. What is planned is None
    for a tuning. `doing`: what happens now; `stage`: the stage of a running tuning.
    """

    launches: int = 0
    planned_launches: int | None = None
    iterations: int = 0
    planned_iterations: int | None = None
    share: float | None = None
    left: str = ""
    doing: str = ""
    stage: TuningStage | None = None
    failed: int = 0


def campaign_progress(campaign: Campaign, *, running: bool = True) -> CampaignProgress:
    """Return the progress of `campaign`, and how long the rest takes at the speed until now."""
    runs = campaign.runs
    goes_on = running and campaign.end is None
    count = CampaignProgress(
        launches=sum(map(_is_successful_launch, campaign.launches)),
        iterations=sum(len(launch.timed_iterations) for launch in campaign.launches),
        share=1.0 if campaign.end is not None else None,
        doing=_current_activity_text(campaign, running=running),
        failed=sum(is_finished_launch(launch) and launch.failed for launch in campaign.launches),
    )
    if any(run.plan.tune is not None for run in runs):
        stage = tuning_stage_of(campaign) if goes_on else None
        return replace(count, share=stage.share, left=stage.left, stage=stage) if stage is not None else count
    planned = sum(run.planned_launches for run in runs)
    merges = [run for run in runs if run.plan.probe is None and run.plan.command is None]  # others have no iterations
    shares = (
        1.0 if _is_successful_launch(launch) else len(launch.timed_iterations) / max(run.plan.iterations or 0, 1)
        for run in runs
        for launch in run.launches
    )
    done = campaign.end is not None and campaign.end.status == 0
    seconds = campaign_seconds_left(campaign) if goes_on else None
    return replace(
        count,
        launches=sum(min(sum(map(_is_successful_launch, run.launches)), run.planned_launches) for run in runs),
        planned_launches=planned,
        iterations=sum(len(launch.timed_iterations) for run in merges for launch in run.launches),
        planned_iterations=sum(run.planned_launches * (run.plan.iterations or 0) for run in merges),
        share=1.0 if done else min(sum(shares) / max(planned, 1), 0.99),
        left="" if seconds is None else f"{format_duration(seconds)} left",
    )


def campaign_seconds_left(campaign: Campaign) -> float | None:
    """Seconds that the rest of a campaign takes, at the median seconds of a launch of each run; None if not known."""
    measured = [length for run in campaign.runs for length in _complete_launch_seconds(run.launches)]
    total = 0.0
    for run in campaign.runs:
        left = run.planned_launches - sum(map(is_finished_launch, run.launches))
        if left <= 0:
            continue
        current = next((each for each in run.launches if not _has_ended(each) and each.line is not None), None)
        lengths = _complete_launch_seconds(run.launches) or measured
        usual = median(lengths) if lengths else _expected_first_launch_seconds(current, run.plan)
        if usual is None:
            return None
        total += usual * left
        if current is not None and current.line is not None:
            last = current.iterations[-1] if current.iterations else current.line
            total -= _launch_seconds_until(current.line, last.time)
    return max(total, 0.0)


def _complete_launch_seconds(launches: Sequence[Launch]) -> list[float]:
    return [
        _launch_seconds_until(each.line, each.end.time) for each in launches if each.line and each.end and each.complete
    ]


def _expected_first_launch_seconds(launch: Launch | None, plan: RecordedPlan) -> float | None:
    """Seconds that a first launch will take in total, estimated from its iterations so far; None if not known."""
    if launch is None or launch.line is None or len(launch.iterations) < 2:
        return None
    times = [line.time for line in launch.iterations]
    mean = (times[-1] - times[0]) / (len(times) - 1)  # not the median, because lines are written in bursts
    return (launch.line.startup_seconds or 0.0) + mean * max((plan.iterations or 0) + (plan.warmup or 0), len(times))


def _launch_seconds_until(launch_line: LaunchLine, end_time: float) -> float:
    """Seconds from the start of a launch's processes to the time `end_time`, both on the driver's clock."""
    return end_time - launch_line.time + (launch_line.startup_seconds or 0.0)


def _current_activity_text(campaign: Campaign, *, running: bool) -> str:
    last = campaign.launches[-1] if campaign.launches else None
    if campaign.end is not None:
        outside = any(failure.code == INTERRUPTED for failure in campaign.failures)  # of every launch
        if campaign.end.status and (outside or (last is not None and last.interrupted)):
            return "interrupted"
        return "finished successfully" if campaign.end.status == 0 else f"ended with status {campaign.end.status}"
    where = (
        ("launching" if campaign.command is None else "the command runs")
        if last is None or _has_ended(last) or last.line is None
        else f"launch {last.index}: {'the command runs' if last.is_of_command else _launch_activity_text(last)}"
    )
    return where if running else f"no end was recorded; last known step: {where}"


def _launch_activity_text(launch: Launch) -> str:
    if launch.link is not None or launch.memory is not None:
        return "ending"
    if launch.probes:
        return f"{len(launch.probes)} rows measured"
    if launch.timed_iterations:
        return f"{max(iteration.index for iteration in launch.timed_iterations) + 1} iterations timed"
    return "warming up" if launch.iterations else "cluster is up"


def _has_ended(launch: Launch) -> bool:
    return launch.end is not None or bool(launch.failures)


def _is_successful_launch(launch: Launch) -> bool:
    return is_finished_launch(launch) and not launch.failed


def is_finished_launch(launch: Launch) -> bool:
    """Whether a launch succeeded or failed; an interrupted launch is not finished, because it is repeated."""
    return _has_ended(launch) and not launch.interrupted


def tuning_stage_html(progress: CampaignProgress) -> str:
    """HTML of a sentence on the current stage of a tuning; empty for other campaigns."""
    stage = progress.stage
    return f"<p>Now {as_html(stage.doing)}; {as_html(progress.doing)}.</p>" if stage else ""


RECENT = 10
"""Workers' figures are medians over this many iterations, the last ones: what the workers do now, at a bounded cost."""

MOST_NOTES = 50
MOST_FATAL = 3
FAILED, WARNING = "failed", "warning"


@dataclass(frozen=True)
class IterationPoint:
    """A timed iteration as a point of the figures; rates are bytes per second, None if not measured.

    `number`: from 1 over the whole campaign; `index`: in its launch; `style_index`: the number of its config's style;
    `value`: that of the main metric of a command.
    """

    number: int
    launch: int
    index: int
    config: str
    style_index: int
    wall_seconds: float
    throughput: float | None
    bandwidth: float | None
    value: float | None = None


@dataclass(frozen=True)
class FailureOrWarning:
    """A failure or a warning of a campaign.

    `kind`: ``failed`` or ``warning``; `remedy`: what helps; `where`: where a failure happened.
    """

    kind: str
    message: str
    remedy: str | None = None
    where: str | None = None


_MOST_PRINTED = 8
"""The map of pairs is less high than that of a report, so that rates of more workers do not fit into its cells."""
NO_PAIRS = merge.pair_rates_heat_map({}, {"lanes": {}}, {})


@dataclass(frozen=True)
class LiveCampaignState:
    """The state of a campaign that the Live tab shows, without the points of iterations.

    `workers`: over the last iterations; `lacking`: why those without a bandwidth have none, by rank; `pairs`: a map of
    rates between workers, or for few workers `rates`, a table in GiB/s; `memory`: of the last launch that recorded it;
    `limit`: of the link, bytes per second; `doubt`: a warning that the limit was exceeded; `dask`: the address of
    Dask's own dashboard, if it has one; `source`: result, host, date and UCX; `running`: whether the campaign goes on;
    `fatal`: why it ended without success; `of_command`: whether a command is measured, and no merge;
    `conclusion`: what the terminal prints at the end, as HTML, and `figures` of the fastest config, by name: once the
    campaign has ended.
    """

    progress: CampaignProgress
    launch: int | None = None
    config: str = ""
    workers: tuple[aggregate.WorkerFigures, ...] = ()
    lacking: Mapping[int, str] = field(default_factory=dict)
    pairs: Chart = NO_PAIRS
    rates: tuple[Column, ...] = ()
    memory: s.MemoryLine | None = None
    notes: tuple[FailureOrWarning, ...] = ()
    checks: str = ""
    limit: float | None = None
    doubt: WarningMessage | None = None
    dask: str | None = None
    source: str = ""
    running: bool = False
    fatal: tuple[str, ...] = ()
    of_command: bool = False
    conclusion: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class IterationPointCollector:
    """The timed iterations of a campaign, collected as its records come in.

    For a command they are its launches that passed their checks; `metric`: its main metric, None for merges.
    """

    metric: Metric | None = None
    timed: list[IterationPoint] = field(default_factory=list)
    _launches: dict[int, s.LaunchLine] = field(default_factory=dict)
    _head: s.CampaignLine | None = None
    _names: dict[tuple[str, int], str] = field(default_factory=dict)
    _style_indexes: dict[str, int] = field(default_factory=dict)
    _unchecked: dict[int, s.IterationLine] = field(default_factory=dict)

    def add_records(self, records: Sequence[s.Record]) -> list[IterationPoint]:
        """Collect the timed iterations in `records`; returns their points."""
        before = len(self.timed)
        for record in records:
            if isinstance(record, s.CampaignLine):
                self._head = record
                command = RecordedPlan.from_options(record.plans[0]).command if record.plans else None
                self.metric = metrics_of_command(command.metrics)[0] if command is not None else None
            elif isinstance(record, s.LaunchLine):
                self._launches[record.launch] = record
                self._assign_series_style(record.config, record.plan)
            elif isinstance(record, s.FailureLine) and record.config is not None and record.plan is not None:
                self._assign_series_style(record.config, record.plan)
            elif isinstance(record, s.IterationLine) and not record.warmup and record.launch in self._launches:
                if self.metric is None:
                    self.timed.append(self._make_iteration_point(self._launches[record.launch], record))
                else:
                    self._unchecked[record.launch] = record
            elif isinstance(record, s.VerificationLine) and record.ok and record.launch in self._unchecked:
                line = self._unchecked.pop(record.launch)
                self.timed.append(self._make_iteration_point(self._launches[record.launch], line))
        return self.timed[before:]

    def _assign_series_style(self, config: str, plan_index: int) -> None:
        """Choose the name and the style of a run at its first launch, the same as in reports.

        Planned runs come first, so that no style changes when a campaign grows.
        """
        if (config, plan_index) not in self._names and self._head is not None:
            self._names = {**label_planned_runs(self._head), **self._names}
            self._names.setdefault((config, plan_index), config)
            self._style_indexes = {name: number for number, name in enumerate(dict.fromkeys(self._names.values()))}

    def launch_bandwidth(self, launch: int) -> float | None:
        """The bandwidth of a launch so far, in bytes per second: the median of its iterations, as in reports."""
        return aggregate.median_or_none(point.bandwidth for point in self.timed if point.launch == launch)

    def _make_iteration_point(self, launch: s.LaunchLine, line: s.IterationLine) -> IterationPoint:
        imported = line.imported.throughput_bytes_per_second if line.imported else None
        through = imported or aggregate.data_rate(launch.data_bytes, line.wall_seconds)
        value = None
        if self.metric is not None:
            through, value = None, self.metric.value(Launch(line.launch, launch), line)
        name = self._names[launch.config, launch.plan]
        number, bandwidth = len(self.timed) + 1, aggregate.iteration_bandwidth(line)
        return IterationPoint(
            number,
            line.launch,
            line.index,
            name,
            self._style_indexes[name],
            line.wall_seconds,
            through,
            bandwidth,
            value,
        )


def make_live_campaign_state(campaign: Campaign, *, running: bool = True) -> LiveCampaignState:
    """Return what the Live tab shows of `campaign`; `running`: whether a process of this machine writes its records."""
    running = running and campaign.end is None  # the process that wrote the end may not have ended yet
    launch = next((each for each in reversed(campaign.launches) if each.line is not None), None)
    progress = campaign_progress(campaign, running=running)
    documents = [] if running or campaign.probe is not None else run_documents(summarize_campaign(campaign))
    notes = _failures_and_warnings(campaign, documents)
    conclusion = CachedLastResult(conclusion_html, as_html)(campaign, documents) if documents else ""
    ended_by = () if conclusion else failure_sentences(campaign, running=running)
    notes = tuple(
        replace(note, message=note.where, where=None)  # without its reason, which the conclusion has
        if note.kind == FAILED and note.where and as_html(note.message) in conclusion
        else note
        for note in notes
    )
    if launch is None or launch.line is None:
        return LiveCampaignState(progress, notes=notes, running=running, fatal=ended_by, conclusion=conclusion)
    pairs, rates = _pair_rates_map_or_table(launch)
    run = next((run for run in campaign.runs if any(each is launch for each in run.launches)), None)
    limited = [each for each in aggregate.complete_launches(run) if each.link is not None] if run is not None else []
    recent = replace(launch, iterations=launch.timed_iterations[-RECENT:])
    workers = aggregate.worker_figures([recent]) if campaign.command is None else ()
    return LiveCampaignState(
        progress=progress,
        launch=launch.index,
        config=label_planned_runs(campaign.head).get((launch.line.config, launch.line.plan), launch.line.config),
        workers=workers,
        lacking=why_no_bandwidth([recent], workers, more_iterations_to_come=running and campaign.probe is None),
        pairs=pairs,
        rates=rates,
        memory=next((each.memory for each in reversed(campaign.launches) if each.memory is not None), None),
        notes=notes,
        checks=_verification_text(campaign, running=running),
        limit=aggregate.link_limit([launch]),
        doubt=next(diagnostics.link_limit_exceeded_warnings(limited), None),
        dask=launch.line.cluster.dashboard if running and launch is campaign.launches[-1] else None,
        source=result_source_lines([campaign]),
        running=running,
        fatal=ended_by,
        of_command=campaign.command is not None,
        conclusion=conclusion,
        figures=_fastest_run_figures(campaign, documents),
    )


def _fastest_run_figures(campaign: Campaign, documents_of_runs: Sequence[RunDocument]) -> dict[str, str]:
    """Figures of the fastest run of a campaign, as texts by name; with its config if there are several runs."""
    labelled = zip(campaign.run_labels, documents_of_runs, strict=False)
    measured = [(label, one) for label, one in labelled if one.wall_seconds.median is not None]
    if is_tuning_campaign(campaign) or not measured:
        return {}
    if campaign.command is not None:
        first = command_runs_best_first(campaign)[0][0]
        return ({"Fastest config": first} if len(measured) > 1 else {}) | {
            each.name: DisplayUnit.for_recorded_unit(each.unit).format_value(each.spread.median, with_unit=True)
            for each in command_metric_summaries(dict(measured)[first])
            if each.spread.median is not None
        }
    label, best = max(measured, key=lambda each: each[1].throughput_bytes_per_second.median or 0.0)
    throughput, bandwidth = best.throughput_bytes_per_second.median, best.bandwidth_bytes_per_second.harmonic_mean
    figures = {
        "Fastest config": label if len(measured) > 1 else None,
        "Wall-clock": f"{format_ms(best.wall_seconds.median)} ms",
        "Throughput": f"{format_gib(throughput)} GiB/s" if throughput else None,
        "Bandwidth": f"{format_gib(bandwidth)} GiB/s" if bandwidth else None,
        "Limited by": best.bottleneck.what if best.bottleneck else None,
    }
    return {name: value for name, value in figures.items() if value}


def _pair_rates_map_or_table(launch: Launch) -> tuple[Chart, tuple[Column, ...]]:
    """Rates from each rank to each other in the last iteration, as a map, or for few workers as a table in GiB/s."""
    last = next((each for each in reversed(launch.iterations) if each.pairs), None)
    lanes = {(each.from_rank, each.to_rank): each for each in launch.lanes.pairs} if launch.lanes else {}
    traffic = {(pair.from_rank, pair.to_rank): (pair.bytes, pair.seconds) for pair in last.pairs} if last else {}
    chart = merge.pair_rates_heat_map(
        traffic,
        {"lanes": {pair: ", ".join(each.transports) for pair, each in lanes.items()}},
        {worker.rank: worker.host for worker in launch.line.workers} if launch.line else {},
        most_labelled_ranks=_MOST_PRINTED,
    )
    rates = {pair: format_gib(sent / seconds if seconds else None) for pair, (sent, seconds) in traffic.items()}
    return chart, tuple(rank_matrix_columns(rates)) if rates and chart.is_empty else ()


def _failures_and_warnings(
    campaign: Campaign, documents_of_runs: Sequence[RunDocument]
) -> tuple[FailureOrWarning, ...]:
    """Failures and warnings in the records of a campaign, and once it has ended, warnings that the command printed."""
    parts: tuple[Campaign | Launch, ...] = (campaign, *campaign.launches)
    notes = recorded_failures(campaign)
    notes += [FailureOrWarning(WARNING, each.message, each.remedy) for part in parts for each in part.warnings]
    notes += [
        FailureOrWarning(WARNING, each.message, each.remedy)
        for document in documents_of_runs
        for each in document.warnings
    ]
    unique = list(dict.fromkeys(notes))
    more = len(unique) - MOST_NOTES
    return tuple(unique[:MOST_NOTES]) + ((FailureOrWarning(WARNING, f"and {more} more"),) if more > 0 else ())


def recorded_failures(campaign: Campaign) -> list[FailureOrWarning]:
    lines = [*campaign.failures, *(failure for launch in campaign.launches for failure in launch.failures)]
    logs = [failure_logs_path(each, campaign) for each in lines]
    return [
        FailureOrWarning(
            FAILED, each.message, f"read {path}" if path else None, failure_location_text(each, campaign) or None
        )
        for each, path in zip(lines, logs, strict=True)
    ]


def failure_sentences(campaign: Campaign, *, running: bool) -> tuple[str, ...]:
    """Sentences on why a campaign ended without success; none if it goes on (`running`) or succeeded."""
    if running or (campaign.end is not None and campaign.end.status == 0):
        return ()
    sentences = [
        note.message + (f" ({note.where})" if note.where else "") + (f"; {note.remedy}" if note.remedy else "")
        for note in recorded_failures(campaign)
    ]
    more = len(sentences) - MOST_FATAL
    return (*sentences[:MOST_FATAL], *([f"{more} more failures"] if more > 0 else []))


def _verification_text(campaign: Campaign, *, running: bool) -> str:
    checks = [check for launch in campaign.launches for check in launch.verifications]
    wrong = sum(not check.ok for check in checks)
    if wrong:
        return f"{wrong} of {len(checks)} checks found the result wrong"
    runs = [run for run in campaign.runs if aggregate.complete_launches(run)]
    missing = not running and any(
        verification_state(run, aggregate.complete_launches(run)) is VerificationState.MISSING for run in runs
    )
    if checks:
        return f"{count_with_noun(len(checks), 'check')}, {'others are missing' if missing else 'all passed'}"
    if not any(launch.timed_iterations for launch in campaign.launches):
        return ""
    return "not checked yet" if running else "not checked"


def conclusion_html(campaign: Campaign, documents_of_runs: Sequence[RunDocument]) -> str:
    """HTML of the conclusion of an ended campaign, without its warnings: the Live tab lists these elsewhere."""
    page = PageBuilder()
    if is_tuning_campaign(campaign):
        step, tuning = next_step_after_recorded_tuning(campaign).with_program_as_typed(), campaign.plans[0].tune
        sizes = [plan_workload_text(campaign, plan) for plan in range(len(campaign.plans))]
        metric = (tuning and tuning.metric) or "throughput"
        write_tuning_outcome(page, ended_tuning_result_of(campaign), sizes, metric, step.note)
        page.add_next_command(step.command, step.does)
    elif documents_of_runs:
        warnings = {caution for one in documents_of_runs for caution in one.warnings}
        write_conclusion(page, campaign, documents_of_runs, str(campaign.records), warnings_above=warnings)
    return "".join(map(_block_html, page.blocks))


def _block_html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{as_html(text)}</h2>"
        case Paragraph(unbroken=True):
            return ""  # where the records are, which the line above names by their result
        case Paragraph(text, style):
            mark = {"bold red": ' class="bad"', "dim": ' class="soft"'}.get(style, "")
            return f"<p{mark}>{keep_cli_options_unbroken(as_html(text))}</p>"
        case NamedValues():
            rows = [(name, f"{value}  {mark}" if mark else value) for name, value, mark in block.names_values_and_marks]
            return ui.html_table_from_rows([(as_html(name), as_html(value)) for name, value in rows])
        case Table(row_mark=mark):
            marks = [Column("", [mark] * len(block.rows))] if mark else []
            return ui.html_table_from_columns([*block.columns, *marks])
        case NextCommandBlock(command, does):
            return f"<p>Next: <code>{keep_cli_options_unbroken(as_html(command))}</code> ({as_html(does)})</p>"
    return ""
