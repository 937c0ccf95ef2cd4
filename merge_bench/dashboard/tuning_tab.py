"""The Tuning tab: how a config was found, step by step, and its file to download."""

from __future__ import annotations

import io
import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import aggregate
from merge_bench.config.shell_syntax import NAME, parse_config_text
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import CachedLastResult
from merge_bench.dashboard.live_data import (
    CampaignProgress,
    campaign_progress,
    failure_sentences,
    is_finished_launch,
    tuning_stage_html,
)
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedTuning
from merge_bench.records.results_folder import RUNNING, TUNE, ResultEntry
from merge_bench.records.schema import AddedConfigLine, TuningStepLine
from merge_bench.records.writer import make_safe_folder_name
from merge_bench.report.campaign_figures import CampaignCache, CampaignFigures, LoadedCampaign
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.tune.evaluator import CONFIRM
from merge_bench.tune.result import (
    LEFT_OUT,
    PHASE_NAMES,
    TuningResult,
    decided_steps,
    decision_text,
    step_name,
    tuning_result_of,
)
from merge_bench.tune.stage import tuning_stage_of
from merge_bench.tune.view import speed_up_by_step_chart, speed_up_charts_by_phase, undecided_sentences
from merge_bench.units import count_with_noun
from merge_bench.view.content import Column, columns_from_rows
from merge_bench.view.plot import Chart
from merge_bench.view.suggested_command import SuggestedCommand
from merge_bench.view.text import (
    as_html,
    capitalize,
    format_gib,
    format_interval,
    format_ratio_with_interval,
    keep_cli_options_unbroken,
    mark_unprintable,
    shorten_middle,
    uncapitalize,
)
from merge_bench.view.titles import (
    add_result_source_lines,
    campaign_ids_by_label,
    join_names_in_words,
    plan_workload_text,
    result_source_lines,
)

MOST_STEPS = 2000
_MOST_NAMED = 8

NOTHING = ui.empty_state_html("tuning", "tune --budget 10m")
_MOST_LISTED = 100
_NO_CHOICE, _READING_CHOICE = {"none yet": ""}, {"reading results …": ""}
_WIDTHS = dict.fromkeys(("Decision", "Speed-up", "Against"), 105) | dict.fromkeys(("Phase", "Interval"), 120)
_WIDTHS |= {"Step": 75, "Setting": 190, "Blocks": 90, "Why": 210, "Problem": 125}
"""Together less than a window of 1400 pixels has; a cell that is cut shows its text under the pointer."""


@dataclass(frozen=True)
class UnfinishedTuning:
    """A tuning that ended early: what it measured, sentences on what is missing, the command that continues it."""

    measured: tuple[Column, ...]
    missing: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class TuningContent:
    """What the Tuning tab shows of one tuning.

    `outcome`: the verdict; `details`: sentences about it; `step`: the command that the terminal suggests next;
    `progress`: that of a running tuning; `steps`: the steps in charts and table; `config`: the text of the found
    config's file, None if nothing was confirmed; `unfinished`: the measurements of a tuning that ended early.
    """

    outcome: str = ""
    details: tuple[str, ...] = ()
    step: SuggestedCommand | None = None
    progress: CampaignProgress | None = None
    steps: tuple[TuningStepLine, ...] = ()
    charts: tuple[Chart, ...] = ()
    race: Chart | None = None
    frame: pd.DataFrame | None = None
    config: str | None = None
    file_name: str = "tuned.cfg"
    problems: tuple[str, ...] = ()
    unfinished: UnfinishedTuning | None = None


def make_tuning_content(loaded_campaign: LoadedCampaign | None) -> TuningContent:
    """Make what the Tuning tab shows of a campaign of `tune`, ended or running; empty for None."""
    if loaded_campaign is None:
        return TuningContent()
    problems: tuple[str, ...] = (loaded_campaign.problem,) if loaded_campaign.problem else ()
    campaign = loaded_campaign.campaign
    if campaign is None:
        return TuningContent(problems=problems)
    running = loaded_campaign.entry.status == RUNNING and campaign.end is None
    problems += failure_sentences(campaign, running=running)
    progress = campaign_progress(campaign, running=running)
    decided = decided_steps(campaign)
    steps = (*decided, *(tuning_stage_of(campaign).compared if campaign.end is None else ()))[:MOST_STEPS]
    if len(decided) > MOST_STEPS:
        problems += (f"Only the first {MOST_STEPS:,} of {len(decided):,} steps are shown.",)
    result = tuning_result_of(campaign)
    winner = result.winner
    text = _found_config_text(campaign, result, winner) if winner is not None else None
    if winner is not None and text is None:
        problems += ("A name or value in the found config cannot be written to a config file.",)
    outcome, *details = _outcome_sentences(campaign, result, len(decided), running=running)
    step = next_step_after_recorded_tuning(campaign) if campaign.end is not None and not running else None
    details += [step.note] if step is not None and step.note else []
    return TuningContent(
        outcome=outcome,
        details=tuple(details),
        step=step,
        progress=progress if running else None,
        steps=steps,
        charts=tuple(
            add_result_source_lines(speed_up_charts_by_phase(steps, partial(plan_workload_text, campaign)), [campaign])
        ),
        race=replace(speed_up_by_step_chart(decided), source=result_source_lines([campaign])),
        frame=_steps_data_frame(campaign, steps) if steps else None,
        config=text,
        file_name=f"{make_safe_folder_name(winner.config.name)}.cfg" if winner else "tuned.cfg",
        problems=problems,
        unfinished=describe_unfinished_tuning(campaign) if campaign.end is None and not running else None,
    )


def _found_config_text(campaign: Campaign, result: TuningResult, winner: AddedConfigLine) -> str | None:
    """The text of a config file with the settings of `winner`; None if reading it would give another config."""
    lines = [
        f"# Tuned by merge_bench tune, from {mark_unprintable(result.baseline)};"
        f" campaign {mark_unprintable(campaign.head.campaign_id)};"
        " measure again on other hosts.",
        *(
            f"# {mark_unprintable(_speedup_text(line))} {result.size_phrase(plan_workload_text(campaign, line.plan))}."
            for line in result.confirmation_steps
        ),
    ]
    steps, names = result.contributions, list(winner.config.variables)
    lines += [mark_unprintable(f"# {name}: {_speedup_text(steps[name])}") for name in winner.settings if name in steps]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in winner.config.variables.items()]
    text = "\n".join(lines) + "\n"
    statements, errors = parse_config_text(text)
    read = [assignment.name for statement in statements for assignment in statement.assignments]
    return text if not errors and read == names and all(map(NAME.fullmatch, names)) else None


def _steps_data_frame(campaign: Campaign, steps: Sequence[TuningStepLine]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {
        "Step": list(range(1, len(steps) + 1)),
        "Phase": [PHASE_NAMES.get(step.phase, step.phase) for step in steps],
        "Setting": [step_name(step) for step in steps],
        "Decision": [decision_text(step) for step in steps],
        "Speed-up": [step.ratio for step in steps],
        "Interval": [format_interval(step.low, step.high) for step in steps],
        "Blocks": [step.launches for step in steps],
        "Why": [step.reason for step in steps],
        "Against": [step.against for step in steps],
        "Problem": [plan_workload_text(campaign, step.plan) for step in steps],
    }
    return ui.make_data_frame(columns, float_columns=("Speed-up",), integer_columns=("Step", "Blocks"))


def _outcome_sentences(campaign: Campaign, result: TuningResult, step_count: int, *, running: bool) -> list[str]:
    """Sentences on the outcome of a tuning, the verdict first."""
    sizes = [plan_workload_text(campaign, plan) for plan in range(len(campaign.plans))]
    phrases = list(map(result.size_phrase, sizes))
    if result.winner is not None:
        speedups = "; ".join(f"{_speedup_text(line)} {phrases[line.plan]}" for line in result.confirmation_steps)
        sentences = [
            f"Found: {' '.join(result.winner.settings) or result.winner.config.name}",
            f"Confirmed against {result.baseline}: {speedups}.",
        ]
    elif campaign.end is None:
        finished = sum(map(is_finished_launch, campaign.launches))
        done = f"{count_with_noun(step_count, 'step')} and {count_with_noun(finished, 'launch')} done"
        sentences = [f"{'The tuning goes on' if running else 'The tuning is not finished'}: {done}."]
    else:
        sentences = [result.outcome_heading]
        several = len({line.config for line in result.confirmation_steps}) > 1
        sentences += [
            f"{f'{line.config}: ' * several}{_speedup_text(line)} {phrases[line.plan]}: {line.reason}."
            for line in result.confirmation_steps
        ]
    return [*sentences, *undecided_sentences(result, sizes)]


def _speedup_text(tune_line: TuningStepLine | None) -> str:
    return (
        format_ratio_with_interval(tune_line.ratio, tune_line.low, tune_line.high, " ×")
        if tune_line
        else "not measured"
    )


def describe_unfinished_tuning(campaign: Campaign) -> UnfinishedTuning:
    """Return what an interrupted tuning has measured, what is missing, and the command that continues it."""
    rows = []
    for run in campaign.runs:
        if launches := aggregate.complete_launches(run):
            rate = format_gib(aggregate.run_median(launches, aggregate.throughput))
            rows.append((run.config.name, plan_workload_text(campaign, run.plan_index), str(len(launches)), rate))
    columns = columns_from_rows(("Config", "Problem", "Launches", "Throughput (GiB/s)"), rows, (0, 1))
    columns = columns if len({size for _, size, _, _ in rows}) > 1 else [columns[0], *columns[2:]]
    tuning = campaign.plans[0].tune or RecordedTuning()
    left_out = {line.setting for line in campaign.tuning if line.decision == LEFT_OUT}
    candidates = [name for name in tuning.values if name not in left_out]
    absent = [name for name in candidates if name not in {config for config, *_ in rows}]
    named = ", ".join(absent[:_MOST_NAMED]) + f" and {len(absent) - _MOST_NAMED} more" * (len(absent) > _MOST_NAMED)
    sentences = [f"{capitalize(tuning_stage_of(campaign).doing)}: this step is not finished."]
    if absent:
        sentences.append(
            f"Not measured: {len(absent)} of {count_with_noun(len(candidates), 'candidate')}:"
            f" {shorten_middle(named, 600)}."
        )
    if not any(line.phase == CONFIRM for line in campaign.tuning):
        sentences.append("Nothing is confirmed yet.")
    command = next_step_after_recorded_tuning(campaign).command
    return UnfinishedTuning(tuple(columns) if rows else (), tuple(sentences), command)


@dataclass(frozen=True)
class TuningUpdate:
    """What `TuningView` reads for an update.

    `options`: the ids of tunings by label; `chosen`: the chosen id; `content`: what it shows; `newer`: the labels of
    newer tunings without measurements.
    """

    options: Mapping[str, str]
    chosen: str
    content: TuningContent
    newer: tuple[str, ...]


class TuningView:
    """The Tuning tab. At first it shows the newest tuning that goes on or has measured anything."""

    def __init__(self, entries: Callable[[], Sequence[ResultEntry]], cache: CampaignCache) -> None:
        self._entries, self._cache = entries, cache
        self._contents = CachedLastResult(
            lambda chosen: make_tuning_content(cache.load([chosen])[0] if chosen is not None else None),
            lambda problem: TuningContent(problems=(problem,)),
        )
        self._shown: TuningContent | None = None
        self.choice = ui.make_select("Tuning (times in UTC)", _READING_CHOICE, width=640)
        self.download = pn.widgets.FileDownload(
            callback=lambda: io.StringIO((self._shown and self._shown.config) or ""),
            filename="tuned.cfg",
            label="Download the config",
            color="primary",
            width=220,
            disabled=True,
            embed=False,
        )
        self._outcome = ui.make_html_widget(min_height=70)
        self._newer = ui.make_html_widget()
        self.parts = pn.Column(sizing_mode=ui.WIDE, min_height=300, margin=0)
        self.layout = pn.Column(
            ui.make_wrapping_row(self.choice, self.download),
            self._outcome,
            self._newer,
            self.parts,
            sizing_mode=ui.WIDE,
        )

    def read_update(self) -> TuningUpdate:
        """Read the chosen tuning, and list those to choose from; called in a thread."""
        entries = tuple(entry for entry in self._entries() if entry.kind == TUNE)[:_MOST_LISTED]
        self._cache.read_small_campaigns(entries)
        empty = [entry.id for entry in entries if self._has_no_measurements(entry)]
        first = next((entry for entry in entries if entry.id not in empty), next(iter(entries), None))
        chosen = next((entry for entry in entries if entry.id == self.choice.value), first)
        labels = campaign_ids_by_label(entries, self._tuning_label)
        newer = itertools.takewhile(lambda each: chosen is not None and each[1] != chosen.id, labels.items())
        unmeasured = tuple(label for label, name in newer if name in empty)
        return TuningUpdate(labels, chosen.id if chosen else "", self._contents(chosen), unmeasured)

    def _has_no_measurements(self, entry: ResultEntry) -> bool:
        figures = self._cache.cached_figures(entry)
        return not entry.written and figures is not None and not figures.launches

    def _tuning_label(self, entry: ResultEntry) -> str:
        """The label of a tuning in the list: ``default · not decided``."""
        figures = self._cache.cached_figures(entry) or CampaignFigures()
        outcome = figures.outcome if figures.outcome.startswith("Found:") else figures.outcome.partition(":")[0]
        nothing = ", nothing measured" * self._has_no_measurements(entry)
        text = shorten_middle(uncapitalize(outcome)) or entry.status
        return f"{join_names_in_words(entry.configs[:1])} · {text}{nothing}"

    def show_update(self, update: TuningUpdate) -> None:
        """Show in the Tuning tab what `read_update` returned; called under the document's lock."""
        content = update.content
        ui.replace_select_options(self.choice, update.options or _NO_CHOICE, update.chosen)
        without = f"Newer, without measurements: {'; '.join(update.newer)}." if update.newer else ""
        self._newer.value = f'<p class="soft">{as_html(without)}</p>' if without else ""
        if content is not self._shown:
            before, self._shown = self._shown, content
            drawn = content.charts, content.steps, content.unfinished
            self.download.param.update(disabled=content.config is None, filename=content.file_name)
            self._outcome.value = _outcome_html(content) or NOTHING
            if before is None or (before.charts, before.steps, before.unfinished) != drawn:
                self.parts.objects = _make_widgets(content)


def _outcome_html(content: TuningContent) -> str:
    """HTML of the verdict, problems, details, the next command, and the current stage of a running tuning."""
    outcome = f'<p class="verdict">{as_html(content.outcome)}</p>' if content.outcome else ""
    outcome += ui.problems_html(content.problems)
    outcome += "".join(f"<p>{keep_cli_options_unbroken(as_html(sentence))}</p>" for sentence in content.details)
    if content.step is not None:
        command = keep_cli_options_unbroken(as_html(content.step.command))
        outcome += f"<p>Next: <code>{command}</code> {keep_cli_options_unbroken(as_html(content.step.does))}.</p>"
    if (progress := content.progress) is None:
        return outcome
    return outcome + tuning_stage_html(progress) + ui.progress_bar_html(progress.share, as_html(progress.left))


def _make_widgets(content: TuningContent) -> list[Any]:
    """Make the charts, tables and texts of a tuning."""
    drawn = content.race is not None and not content.race.is_empty
    charts = [ui.make_chart_card(content.race, ["Speed-up", "Interval", "Phase"])] if content.race and drawn else []
    parts: list[Any] = []
    if (tuning := content.unfinished) is not None:
        measured = ui.heading_html("Measured so far", ["Throughput", "Launch"]) + ui.html_table_from_columns(
            tuning.measured
        )
        missing = "".join(f"<p>{as_html(sentence)}</p>" for sentence in tuning.missing)
        command = f"This command continues it, and keeps what was measured: <code>{as_html(tuning.command)}</code>"
        head = measured if tuning.measured else ""
        parts.append(ui.make_html_widget(f"{head}<h2>What is missing</h2>{missing}<p>{command}</p>"))
    charts += map(ui.make_chart_card, content.charts)
    parts += [ui.make_card_row(*charts)] if charts else []
    if content.frame is not None:
        parts.append(ui.make_table_widget(content.frame, widths=_WIDTHS, pagination="local", page_size=10))
    return parts
