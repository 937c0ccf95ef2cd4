"""Tunings for people: tables and sentences of the outcome, sections of reports, and charts of speed-ups.

Also the section and the chart of published effects of single settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from merge_bench.analysis.published import PublishedSettingEffect
from merge_bench.errors import print_message
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import NO_GAIN_SEEN, NOISE, UNDECIDED, WHOLE_LEVEL, interval_alpha
from merge_bench.tune.result import (
    GAINED,
    PHASE_NAMES,
    TuningResult,
    decided_steps,
    decision_text,
    ended_tuning_result_of,
    step_name,
    tuning_result_of,
)
from merge_bench.tune.space import PrunedValue
from merge_bench.units import count_with_noun
from merge_bench.view.content import Column, PageBuilder, columns_from_rows
from merge_bench.view.plot import (
    GREY,
    Axis,
    Bar,
    BoxMarks,
    Chart,
    MarkGroup,
    PointMarks,
    WhiskerMarks,
    bar_chart,
    thin_ticks,
    top_down_axis,
    transpose_rows,
)
from merge_bench.view.plot.draw import can_draw_file_type, draw_charts_into_file, write_file_or_describe_failure
from merge_bench.view.suggested_command import SuggestedCommand
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import (
    capitalize,
    format_gib,
    format_interval,
    format_number,
    format_ratio,
    format_ratio_with_interval,
    shorten_middle,
    uncapitalize,
)
from merge_bench.view.titles import plan_workload_text

BEST_ESTIMATE = "among the best estimates; tested on new launches, see below"
"""Why an undecided candidate is in the confirmation."""
FILES = ("figure.png", "figure.svg", "figure.html")
"""Files in the campaign's folder; those are drawn whose libraries are installed."""
_LOOKS = {
    GAINED: 2,
    "kept": 2,
    "accepted": 0,
    "dropped": 4,
    "rejected": 1,
    "failed": 3,
    UNDECIDED: 5,
    NO_GAIN_SEEN: 6,
    "not decided yet": 5,
}
"""The color and marker of each decision, the same in every chart; other decisions are grey."""
_OUTCOMES = (GAINED, "kept", "dropped", NO_GAIN_SEEN, UNDECIDED, "rejected", "failed")
"""The decisions in the chart of a result; there ``accepted`` is called ``kept``, and all others ``dropped``."""
_LETTERS = 36
"""Most letters of a row's label; a drawing shortens longer ones in their middle, where the size begins."""


def print_tuning_result(
    result: TuningResult,
    *,
    sizes: Sequence[str],
    metric: str,
    pruned: Sequence[PrunedValue] = (),
    details: bool = True,
    next_step: SuggestedCommand | None = None,
    remarks: Sequence[str] = (),
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the result of a tuning on `file` (standard output); the conclusion is last, so that a terminal shows it.

    `sizes`: the name of each problem size. `pruned`: values that cannot help here. `details`: whether to name each of
    them. `next_step`: what to do next. `remarks`: where files are. `width`: of a terminal.
    """
    with print_page_at_exit(file, width) as page:
        write_search_steps(page, result, sizes)
        if pruned and details:
            page.add_heading("Cannot help on this cluster")
            page.add_table(
                *columns_from_rows(("Value", "Why"), [(each.value, each.reason) for each in pruned], range(2))
            )
        elif pruned:
            page.add_paragraph(
                f"{count_with_noun(len(pruned), 'other candidate')} cannot help on this cluster (--details lists them)."
            )
        write_tuning_outcome(page, result, sizes, metric, next_step.note if next_step is not None else "")
        page.add_paragraph("")
        if next_step is not None:
            page.add_next_command(next_step.command, next_step.does)
        for remark in remarks:
            page.add_unwrapped_line(remark)


def write_search_steps(page: PageBuilder, result: TuningResult, sizes: Sequence[str]) -> None:
    """Write the tables of a tuning with every step of the search and of the confirmation."""
    where = f" at {sizes[0]}" if len(sizes) > 1 else ""
    new = {line.config for line in (*result.confirmed, *result.broken_off)}
    singles = [
        replace(line, reason=BEST_ESTIMATE) if decision_text(line) == UNDECIDED and line.config in new else line
        for line in result.singles
    ]
    _write_step_table(
        page, f"Single settings against {result.baseline}{where}", singles, variables_by_setting=result.variables
    )
    if (noise := result.noise_floor) is not None:
        page.add_paragraph(
            f"Noise: {noise.reason} ({result.baseline} against its own copy:"
            f" {format_interval(noise.low, noise.high)} in"
            f" {count_with_noun(noise.launches, 'block')}, level {100 * (1 - interval_alpha(noise.launches)):.4g}%)."
            " A loss is decided by the interval of its own setting.",
            "dim",
        )
    _write_step_table(
        page, "Combined, strongest setting first; each compared with the config without the setting", result.combined
    )
    _write_step_table(page, "Removed again; each compared with the config without the setting", result.ablated)
    _write_step_table(page, "Confirmation on new launches", result.confirmed, size_names=sizes)
    if result.interactions:
        page.add_heading("Settings that help alone but not together")
        for line in result.interactions:
            page.add_paragraph(
                f"{line.setting} with {line.against}: {format_ratio(line.ratio)} {format_interval(line.low, line.high)}"
            )


def write_tuning_outcome(
    page: PageBuilder, result: TuningResult, sizes: Sequence[str], metric: str, note: str = ""
) -> None:
    """Write what a tuning found, how sure that is at each problem size, and what was not decided.

    `note`: a sentence on the next step.
    """
    page.add_heading(result.outcome_heading)
    several = len({line.config for line in result.confirmation_steps}) > 1
    for line in result.confirmation_steps:
        page.add_paragraph(
            f"{f'{line.config}, ' if several else ''}{result.measured_quantity_text(metric, sizes[line.plan])}:"
            f" {format_ratio(line.ratio)} ×"
            f" {result.baseline} {format_interval(line.low, line.high)}, {line.reason}"
        )
    unfinished = "" if result.finished else "The tuning is not finished: the same command resumes it."
    for sentence in filter(None, (*undecided_sentences(result, sizes), note, unfinished)):
        page.add_paragraph(sentence)


def undecided_sentences(result: TuningResult, sizes: Sequence[str]) -> list[str]:
    """Return sentences on what the search did not decide, why, and what makes its result doubtful."""
    sentences = []
    best, left_out, noise = result.best_undecided, result.left_out, result.noise_floor
    if result.baseline_differs_from_itself and noise is not None:
        sentences.append(
            f"Doubtful: {result.baseline} differed from itself ({format_ratio(noise.ratio)} ×,"
            f" {format_interval(noise.low, noise.high)}),"
            " so the host was not quiet, or its speed drifted. Run again on a quiet host, or with --wait-for-quiet 5m."
        )
    sentences += _decision_count_sentences(result)
    step = result.unconfirmed_step
    if step is not None and (best is None or best.config != step.config):
        untested = "" if result.broken_off else ", not confirmed on new launches"
        sentences.append(f"{step.config}: {_gain_estimate_text(step)} of the search{untested}.")
    size_phrases = ["" if result.of_command else f" at {size}" for size in sizes]
    sentences += [
        f"New launches of {line.config}{size_phrases[line.plan]}: {_gain_estimate_text(line)}, too few for a verdict."
        for line in result.broken_off
    ]
    sentences += _uncombined_gain_sentences(result)
    if left_out:
        count = count_with_noun(len(left_out), "candidate")
        left_out_count = f"{len(left_out)} of {result.settings} candidates" if result.settings else count
        was, them, have = ("was", "it", "has") if len(left_out) == 1 else ("were", "them", "have")
        named = ", ".join(each.value for each in left_out)
        sentences.append(
            f"{left_out_count} {was} not tried, because the budget has no time for {them}: {named}."
            if result.finished
            else f"{left_out_count} {have} not been tried yet; there is time only if others end early: {named}."
        )
    if result.sizes_left_out:
        where = " and ".join(sizes[plan] for plan in result.sizes_left_out)
        sentences.append(f"The budget has no time for a confirmation at {where}.")
    if result.stopped and not result.confirmed:
        sentences.append(f"{capitalize(result.stopped)}.")
    return sentences


def _gain_estimate_text(line: TuningStepLine) -> str:
    """The estimated speed-up of a step as text: ``1.034 × default (0.981 to 1.090) in 4 blocks``."""
    estimate = f"{format_ratio(line.ratio)} × {line.against} ({format_interval(line.low, line.high)})"
    return f"{estimate} in {count_with_noun(line.launches, 'block')}"


def _decision_count_sentences(result: TuningResult) -> list[str]:
    """Return a sentence on how many candidates were decided in which way; none if all were decided."""
    best, tested = result.best_undecided, {line.config for line in (*result.confirmed, *result.broken_off)}
    if not (result.undecided or result.no_gain_seen):
        return []
    new = len(tested & {line.config for line in result.singles})
    gained = [line for line in result.singles if decision_text(line) == GAINED and line.config not in tested]
    judged = result.screened - new - len(gained) - len(result.undecided) - len(result.no_gain_seen)
    counts = {
        f"{new} {'was' if new == 1 else 'were'} tested on new launches": new,
        f"{len(gained)} gained in the search only": len(gained),
        f"{judged} {'was' if judged == 1 else 'were'} dropped": judged,
        f"{len(result.no_gain_seen)} showed no gain (not ruled out)": len(result.no_gain_seen),
        f"{len(result.undecided)} {'is' if len(result.undecided) == 1 else 'are'} undecided": len(result.undecided),
    }
    named = [text for text, count in counts.items() if count]
    sentence = f"Of {count_with_noun(result.screened, 'candidate')}, {', '.join(named)}"
    if best is None:
        return [f"{sentence}."]
    untested = not result.broken_off and best.config == result.unconfirmed
    open_still = ", not confirmed on new launches" if untested else ""
    which = ":" if len(result.undecided) == 1 else "; the best of these is"
    return [f"{sentence}{which} {best.config}: {_gain_estimate_text(best)}{open_still}."]


def _uncombined_gain_sentences(result: TuningResult) -> list[str]:
    """Return sentences on why settings that gain alone are not in the candidate of a search that ended early."""
    names = {name.partition("=")[0] for name in (result.best_config_name or "").split("+")}
    others = [each for each in result.not_combined if each.partition("=")[0] in names]
    rest = [each for each in result.not_combined if each not in others]
    they = "it" if len(rest) == 1 else "they"
    reasons = (
        (rest, f"the search ended before {they} could be combined with {result.best_config_name}"),
        (others, "a config has no more than one value of a setting"),
    )
    return [f"{', '.join(names)}: gained alone, too, but {why}." for names, why in reasons if names]


def _write_step_table(
    page: PageBuilder,
    title: str,
    steps: Sequence[TuningStepLine],
    *,
    size_names: Sequence[str] | None = None,
    variables_by_setting: Mapping[str, str] | None = None,
) -> None:
    def text_column(heading: str, text: Callable[[TuningStepLine], str]) -> Column:
        return Column(heading, [text(line) for line in steps], text=True)

    if not steps:
        return
    page.add_heading(title)
    measured = [
        text_column("At", lambda line: size_names[line.plan] if size_names else ""),
        Column("Speed-up", [format_ratio(line.ratio) for line in steps]),
        text_column("Interval", lambda line: format_interval(line.low, line.high)),
        Column("Blocks", [str(line.launches) for line in steps]),
    ]
    decided = [text_column("Decision", decision_text), text_column("Why", lambda line: line.reason)]
    variables = text_column("Sets", lambda line: (variables_by_setting or {}).get(line.setting or "", ""))
    page.add_wide_table([text_column("Setting", step_name)], measured, decided, [variables])


def write_recorded_tuning_outcome(page: PageBuilder, campaign: Campaign, note: str) -> None:
    """Write what a recorded tuning found and how sure that is, with a chart, and the settings of the config.

    `note`: a sentence on what was not decided.
    """
    result = ended_tuning_result_of(campaign)
    tuning = campaign.plans[0].tune
    write_tuning_outcome(page, result, _problem_size_texts(campaign), (tuning and tuning.metric) or "throughput", note)
    charts = speed_up_charts_by_phase(decided_steps(campaign), _problem_size_texts(campaign).__getitem__)
    for chart in charts[-1:]:  # the confirmation, or as far as the search went
        page.add_chart(chart)
    if result.winner is not None:
        config = result.winner.config
        page.add_heading(f"Settings of {config.name}")
        page.add_code_block("\n".join(f"{name}={shlex.quote(value)}" for name, value in config.variables.items()))


def write_tuning_section(page: PageBuilder, campaign: Campaign) -> None:
    """Write the section of a report on a tuning: every step of the search, and a chart for each phase."""
    page.start_section("Tuning")
    sizes = _problem_size_texts(campaign)
    write_search_steps(page, tuning_result_of(campaign), sizes)
    for chart in speed_up_charts_by_phase(decided_steps(campaign), sizes.__getitem__):
        page.add_chart(chart)


def _problem_size_texts(campaign: Campaign) -> list[str]:
    """The problem size of each plan of a campaign in words, by the index of the plan."""
    return [plan_workload_text(campaign, plan) for plan in range(len(campaign.plans))]


def write_published_effects(page: PageBuilder, effects: Sequence[PublishedSettingEffect]) -> None:
    """Write published effects of single settings, as a table and as a bar chart."""
    page.start_section("Published effects of single settings")
    variables = [" ".join(f"{name}={value}" for name, value in each.variables.items()) for each in effects]
    page.add_table(
        Column("Setting", [each.label for each in effects], text=True),
        Column("Variables", variables, text=True),
        Column("Base config", [each.beside for each in effects], text=True),
        Column("Metric", [each.metric for each in effects], text=True),
        Column("Baseline\n(GiB/s)", [format_gib(each.baseline) for each in effects]),
        Column("With setting\n(GiB/s)", [format_gib(each.value) for each in effects]),
        Column("Ratio", [format_number(each.ratio) for each in effects]),
        Column("Section", [each.section for each in effects], text=True),
        Column("Note", [each.note or "" for each in effects], text=True),
    )
    page.add_chart(published_effects_chart([each for each in effects if each.metric == "throughput"]))
    for source in dict.fromkeys(each.source.rpartition(", ")[0] for each in effects):
        page.add_paragraph(f"Published: {source}; ratios are recomputed from the printed values.", "dim")


def published_effects_chart(effects: Sequence[PublishedSettingEffect]) -> Chart:
    """Make the bar chart of published effects of single settings on throughput."""
    names = [each.label if each.beside == "default" else f"{each.label}, added to {each.beside}" for each in effects]
    return bar_chart(
        [
            (name, (Bar(name, 0, each.ratio, remark=each.note or "", published=True),))
            for name, each in zip(names, effects, strict=True)
            if each.ratio is not None
        ],
        title="Speed-up in throughput by setting, as published",
        axis_title="Speed-up in throughput (1 = the baseline)",
        unit="×",
        reference_value=1.0,
        note="One launch each; added to the default config unless stated otherwise",
    )


@dataclass(frozen=True)
class StepEstimate:
    """A step of a tuning with its label in a chart.

    `kind`: the decision, which gives its color and marker.
    """

    label: str
    kind: str
    step: TuningStepLine

    @property
    def ratio_with_interval_text(self) -> str:
        """The step's speed-up with its interval, as text."""
        return format_ratio_with_interval(self.step.ratio, self.step.low, self.step.high)


def draw_tuning_charts(
    result: TuningResult, campaign: Campaign, plot_paths: Sequence[Path], sizes: Sequence[str], metric: str
) -> list[str]:
    """Draw the chart of a tuning's result into the campaign's folder and into the files that ``--plot`` names.

    Returns lines that name the files. Problems are printed on standard error.
    """
    chart = tuning_result_chart(result, sizes, metric)
    if chart.is_empty:
        return []
    own = [path for path in (campaign.folder / name for name in FILES) if can_draw_file_type(path)]
    lines = []
    for path in dict.fromkeys([*own, *plot_paths]):
        if problem := write_file_or_describe_failure(
            partial(draw_charts_into_file, [chart], campaigns=[campaign]), path
        ):
            print_message(problem)
        elif path not in own or path.suffix == ".png":
            lines.append(f"Figure: {path}")
    return lines


def tuning_result_chart(result: TuningResult, sizes: Sequence[str], metric: str) -> Chart:
    """Make the chart of a tuning's result: single settings by effect, then the combination and the confirmation."""
    singles = sorted(result.singles, key=lambda step: -(step.ratio or 0.0))
    ablated = {step.setting: step for step in (*result.combined, *result.ablated)}
    confirmed = [(step, _config_and_size_label(step.config, sizes[step.plan])) for step in result.confirmation_steps]
    outcome = " ".join(result.winner.settings) if result.winner else uncapitalize(result.outcome_heading)
    return speed_up_forest_chart(
        {
            "Each alone": [_make_step_estimate(step, str(step.setting)) for step in singles],
            "In combination": [_make_step_estimate(step, str(name)) for name, step in ablated.items()],
            "Confirmation": [_make_step_estimate(step, label) for step, label in confirmed],
        },
        title=f"Speed-up by setting over {result.baseline}: {outcome}",
        axis_title=f"Speed-up in {metric} over the config without the setting (1 = no difference), with interval",
        decisions=_OUTCOMES,
        noise_step=result.noise_floor,
    )


def _config_and_size_label(config: str, size: str) -> str:
    """The label of a chart's row, ``a=y+b=y, 1,000,000 rows``: a long config is shortened, the size is not."""
    size = size.removesuffix(" per chunk")
    return f"{shorten_middle(config, max(_LETTERS - len(f', {size}'), 12))}, {size}"


def _make_step_estimate(step: TuningStepLine, label: str) -> StepEstimate:
    decision = "kept" if decision_text(step) == "accepted" else decision_text(step)
    return StepEstimate(label, decision if decision in _OUTCOMES else "dropped", step)


def speed_up_charts_by_phase(steps: Sequence[TuningStepLine], size_name_of_plan: Callable[[int], str]) -> list[Chart]:
    """Make a chart of speed-ups by step for each phase of the tuning and each problem size.

    `size_name_of_plan`: gives the name of a size from the plan's index.
    """
    keys = dict.fromkeys((step.phase, step.plan) for step in steps)
    charts = [
        _speed_up_chart_of_phase(
            [step for step in steps if (step.phase, step.plan) == (phase, plan)], phase, size_name_of_plan(plan)
        )
        for phase, plan in keys
    ]
    return [chart for chart in charts if not chart.is_empty]


def _speed_up_chart_of_phase(steps: Sequence[TuningStepLine], phase: str, size: str) -> Chart:
    noise = next((step for step in steps if decision_text(step) == NOISE), None)
    estimates = [
        StepEstimate(step.setting or step.config, decision_text(step), step) for step in steps if step is not noise
    ]
    lines = interval_levels_text(step.launches for step in steps if step.low is not None)
    return speed_up_forest_chart(
        {"": estimates},
        title=f"Tuning, {PHASE_NAMES.get(phase, phase)}, {size}: speed-up by setting",
        axis_title="Speed-up (1 = without the setting, more is better)",
        decisions=list(dict.fromkeys(estimate.kind for estimate in estimates)),
        noise_step=noise,
        note=f"Points: speed-up estimated from pairs in the same block; lines: its {lines}.",
    )


def speed_up_forest_chart(
    sections: Mapping[str, Sequence[StepEstimate]],
    *,
    title: str,
    axis_title: str,
    decisions: Sequence[str],
    noise_step: TuningStepLine | None,
    note: str = "",
) -> Chart:
    """Make a forest chart of speed-ups: a row for each section's title and each step, with its numbers on the right.

    `sections`: estimates that belong together, by their title, which may be empty; empty ones are left out.
    `axis_title`: that of the axis of ratios. `decisions`: what may have been decided, in the order of the legend.
    `noise_step`: the step that compared the baseline with itself; its interval is drawn as a band.
    """
    rows: list[str | StepEstimate] = []
    for name, estimates in sections.items():
        rows += [*([name.upper()] if name else []), *estimates] if estimates else []
    placed = {at: row for at, row in enumerate(rows) if isinstance(row, StepEstimate)}
    steps = [row.step for row in placed.values()]
    groups = _mark_groups_by_decision(placed, decisions)
    if noise_step and noise_step.low is not None and noise_step.high is not None and rows:
        band = BoxMarks([len(rows) / 2], [noise_step.low], [noise_step.high], width=len(rows) + 2, fill=0.25)
        groups = (MarkGroup(GREY, (band,), "the baseline compared with itself"), *groups)
    drawn = [value for step in steps for value in (step.ratio, step.low, step.high)]
    drawn += [noise_step.low, noise_step.high] if noise_step else []
    values = [1.0, *(value for value in drawn if value is not None)]
    low, high = min(values), max(values)
    room = 0.06 * max(high - low, 0.02)
    names = {at: row.label if isinstance(row, StepEstimate) else row for at, row in enumerate(rows)}
    return Chart(
        Axis(axis_title, low=max(low - room, 0.0), high=high + room, rule=1.0),
        top_down_axis(names, len(rows) - 1, {at: row.ratio_with_interval_text for at, row in placed.items()}),
        groups,
        30 + 24 * len(rows),
        title,
        note,
    )


def interval_levels_text(block_counts: Iterable[int]) -> str:
    """The confidence levels of intervals, as text: ``interval (75 % from 3 blocks, 95 % or more from 6 …)``.

    `block_counts`: the number of blocks of each interval.
    """
    levels = [
        f"{100 * (1 - interval_alpha(count)):.4g} % from {count_with_noun(count, 'block')}"
        if count < WHOLE_LEVEL
        else f"95 % or more from {WHOLE_LEVEL} or more blocks"
        for count in sorted({min(count, WHOLE_LEVEL) for count in block_counts if count > 1})
    ]
    return f"interval ({', '.join(levels)})" if levels else "interval"


def speed_up_by_step_chart(steps: Sequence[TuningStepLine]) -> Chart:
    """Make the chart of speed-ups with their intervals by number of the step, without steps that measured nothing."""
    estimates = {
        number: StepEstimate(f"step {number}, {PHASE_NAMES.get(step.phase, step.phase)}: {step_name(step)}", kind, step)
        for number, step in enumerate(steps, 1)
        if step.ratio is not None and (kind := decision_text(step))
    }
    kinds = list(dict.fromkeys(estimate.kind for estimate in estimates.values()))
    lines = interval_levels_text(step.launches for step in steps if step.low is not None)
    last = max(estimates, default=0)
    ticks = thin_ticks({number: str(number) for number in range(1, last + 1)}, 24)
    return Chart(
        Axis("Step", ticks, low=0.5, high=last + 0.5, grid=False),
        Axis("Speed-up (×)", rule=1.0),
        _mark_groups_by_decision(estimates, kinds, ratios_upright=True),
        280,
        "Speed-up by step",
        f"Lines: {lines}." + (" Noise: the baseline compared with itself." if NOISE in kinds else ""),
    )


def _mark_groups_by_decision(
    estimates: Mapping[int, StepEstimate], decisions: Sequence[str], *, ratios_upright: bool = False
) -> tuple[MarkGroup, ...]:
    """Make a group of chart marks for each decision.

    `estimates`: the steps by their places on the axis. `ratios_upright`: whether ratios go upwards, and places to the
    right.
    """
    groups = []
    for kind in decisions:
        at = [place for place, row in estimates.items() if row.kind == kind]
        if not at:
            continue
        rows = [estimates[place] for place in at]
        steps = [row.step for row in rows]
        values = [(step.ratio, step.low, step.high) for step in steps]
        ratios, low, high = transpose_rows(
            [[float("nan") if value is None else value for value in row] for row in values], 3
        )
        details = {
            "setting": [row.label for row in rows],
            "speed-up": [row.ratio_with_interval_text for row in rows],
            "why": [
                f"{decision_text(step)}: {step.reason}; {count_with_noun(step.launches, 'block')}" for step in steps
            ],
        }
        points = PointMarks(at, ratios, details=details) if ratios_upright else PointMarks(ratios, at, details=details)
        groups.append(MarkGroup(_LOOKS.get(kind, GREY), (WhiskerMarks(at, low, high, ratios_upright), points), kind))
    return tuple(groups)
