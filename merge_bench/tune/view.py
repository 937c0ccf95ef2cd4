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

from merge_bench.analysis.published import SettingEffect
from merge_bench.errors import print_message
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import NO_GAIN_SEEN, NOISE, UNDECIDED, WHOLE_LEVEL, interval_alpha
from merge_bench.tune.result import (
    GAINED,
    PHASE_NAMES,
    PrunedValue,
    TuningResult,
    decided_steps,
    decision_text,
    ended_tuning_result_of,
    step_name,
    tuning_result_of,
)
from merge_bench.units import plural
from merge_bench.view.content import Column, Page, columns_from_rows
from merge_bench.view.next_command import NextStep
from merge_bench.view.plot import (
    GREY,
    Axis,
    Bar,
    Boxes,
    Chart,
    MarkGroup,
    Points,
    Whiskers,
    bar_chart,
    thin_ticks,
    top_down_axis,
    transpose_rows,
)
from merge_bench.view.plot.draw import can_draw, draw_file, write_file_or_describe_failure
from merge_bench.view.terminal import open_page
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
from merge_bench.view.titles import plan_size_text

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


def print_tuning(
    result: TuningResult,
    *,
    sizes: Sequence[str],
    metric: str,
    pruned: Sequence[PrunedValue] = (),
    details: bool = True,
    step: NextStep | None = None,
    remarks: Sequence[str] = (),
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print a result on `file` (standard output), the conclusion last, so that a terminal shows it.

    `sizes`: what each plan is called; `pruned`: values that cannot help here; `details`: whether to name each of them;
    `step`: what to do next; `remarks`: where files are; `width`: of a terminal.
    """
    with open_page(file, width) as page:
        write_search_steps(page, result, sizes)
        if pruned and details:
            page.add_heading("Cannot help on this cluster")
            page.add_table(
                *columns_from_rows(("Value", "Why"), [(each.value, each.reason) for each in pruned], range(2))
            )
        elif pruned:
            page.add_paragraph(
                f"{plural(len(pruned), 'other candidate')} cannot help on this cluster (--details lists them)."
            )
        write_tuning_outcome(page, result, sizes, metric, step.note if step is not None else "")
        page.add_paragraph("")
        if step is not None:
            page.add_next_command(step.command, step.does)
        for remark in remarks:
            page.add_unwrapped(remark)


def write_search_steps(page: Page, result: TuningResult, sizes: Sequence[str]) -> None:
    """Write every step of the search, in tables."""
    where = f" at {sizes[0]}" if len(sizes) > 1 else ""
    new = {line.config for line in (*result.confirmed, *result.broken_off)}
    singles = [
        replace(line, reason=BEST_ESTIMATE) if decision_text(line) == UNDECIDED and line.config in new else line
        for line in result.singles
    ]
    _write_step_table(page, f"Single settings against {result.baseline}{where}", singles, sets=result.variables)
    if (noise := result.noise_floor) is not None:
        page.add_paragraph(
            f"Noise: {noise.reason} ({result.baseline} against its own copy:"
            f" {format_interval(noise.low, noise.high)} in"
            f" {plural(noise.launches, 'block')}, level {100 * (1 - interval_alpha(noise.launches)):.4g}%). A loss is"
            " decided by the interval of its own setting.",
            "dim",
        )
    _write_step_table(
        page, "Combined, strongest setting first; each compared with the config without the setting", result.combined
    )
    _write_step_table(page, "Removed again; each compared with the config without the setting", result.ablated)
    _write_step_table(page, "Confirmation on new launches", result.confirmed, sizes=sizes)
    if result.interactions:
        page.add_heading("Settings that help alone but not together")
        for line in result.interactions:
            page.add_paragraph(
                f"{line.setting} with {line.against}: {format_ratio(line.ratio)} {format_interval(line.low, line.high)}"
            )


def write_tuning_outcome(page: Page, result: TuningResult, sizes: Sequence[str], metric: str, note: str = "") -> None:
    """Write what was found, how sure it is at each size, and what is not known; `note`: of the next step."""
    page.add_heading(result.outcome)
    several = len({line.config for line in result.confirmation_steps}) > 1
    for line in result.confirmation_steps:
        page.add_paragraph(
            f"{f'{line.config}, ' if several else ''}{result.measured_text(metric, sizes[line.plan])}:"
            f" {format_ratio(line.ratio)} ×"
            f" {result.baseline} {format_interval(line.low, line.high)}, {line.reason}"
        )
    unfinished = "" if result.finished else "The tuning is not finished: the same command resumes it."
    for sentence in filter(None, (*undecided_sentences(result, sizes), note, unfinished)):
        page.add_paragraph(sentence)


def undecided_sentences(result: TuningResult, sizes: Sequence[str]) -> list[str]:
    """Sentences on what the search did not decide, why, and what makes its result doubtful."""
    sentences = []
    best, left_out, noise = result.best_undecided, result.left_out, result.noise_floor
    if result.baseline_differs_from_itself and noise is not None:
        sentences.append(
            f"Doubtful: {result.baseline} differed from itself ({format_ratio(noise.ratio)} ×,"
            f" {format_interval(noise.low, noise.high)}),"
            " so the host was not quiet, or its speed drifted. Run again on a quiet host, or with --wait-for-quiet 5m."
        )
    sentences += _count_sentences(result)
    step = result.unconfirmed_step
    if step is not None and (best is None or best.config != step.config):
        untested = "" if result.broken_off else ", not confirmed on new launches"
        sentences.append(f"{step.config}: {_estimate_text(step)} of the search{untested}.")
    size_phrases = ["" if result.of_command else f" at {size}" for size in sizes]
    sentences += [
        f"New launches of {line.config}{size_phrases[line.plan]}: {_estimate_text(line)}, too few for a verdict."
        for line in result.broken_off
    ]
    sentences += _not_combined_sentences(result)
    if left_out:
        count = plural(len(left_out), "candidate")
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


def _estimate_text(line: TuningStepLine) -> str:
    """``1.034 × default (0.981 to 1.090) in 4 blocks``."""
    estimate = f"{format_ratio(line.ratio)} × {line.against} ({format_interval(line.low, line.high)})"
    return f"{estimate} in {plural(line.launches, 'block')}"


def _count_sentences(result: TuningResult) -> list[str]:
    """A sentence on how many candidates were decided in which way; none if all were decided."""
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
    sentence = f"Of {plural(result.screened, 'candidate')}, {', '.join(named)}"
    if best is None:
        return [f"{sentence}."]
    untested = not result.broken_off and best.config == result.unconfirmed
    open_still = ", not confirmed on new launches" if untested else ""
    which = ":" if len(result.undecided) == 1 else "; the best of these is"
    return [f"{sentence}{which} {best.config}: {_estimate_text(best)}{open_still}."]


def _not_combined_sentences(result: TuningResult) -> list[str]:
    """Sentences on why settings that gain alone are not in the candidate of a search that ended early."""
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
    page: Page,
    title: str,
    lines: Sequence[TuningStepLine],
    *,
    sizes: Sequence[str] | None = None,
    sets: Mapping[str, str] | None = None,
) -> None:
    def text_column(heading: str, text: Callable[[TuningStepLine], str]) -> Column:
        return Column(heading, [text(line) for line in lines], text=True)

    if not lines:
        return
    page.add_heading(title)
    measured = [
        text_column("At", lambda line: sizes[line.plan] if sizes else ""),
        Column("Speed-up", [format_ratio(line.ratio) for line in lines]),
        text_column("Interval", lambda line: format_interval(line.low, line.high)),
        Column("Blocks", [str(line.launches) for line in lines]),
    ]
    decided = [text_column("Decision", decision_text), text_column("Why", lambda line: line.reason)]
    variables = text_column("Sets", lambda line: (sets or {}).get(line.setting or "", ""))
    page.add_wide_table([text_column("Setting", step_name)], measured, decided, [variables])


def write_recorded_outcome(page: Page, campaign: Campaign, note: str) -> None:
    """Write what was found and how sure it is, with a chart, and what the config sets; `note`: what is left open."""
    result = ended_tuning_result_of(campaign)
    tuning = campaign.plans[0].tune
    write_tuning_outcome(page, result, _problem_size_texts(campaign), (tuning and tuning.metric) or "throughput", note)
    charts = phase_charts(decided_steps(campaign), _problem_size_texts(campaign).__getitem__)
    for chart in charts[-1:]:  # the confirmation, or as far as the search went
        page.add_chart(chart)
    if result.winner is not None:
        config = result.winner.config
        page.add_heading(f"Settings of {config.name}")
        page.add_code("\n".join(f"{name}={shlex.quote(value)}" for name, value in config.variables.items()))


def write_tuning_section(page: Page, campaign: Campaign) -> None:
    """Write the section of a report with every step of the search, and a chart for each phase."""
    page.start_section("Tuning")
    sizes = _problem_size_texts(campaign)
    write_search_steps(page, tuning_result_of(campaign), sizes)
    for chart in phase_charts(decided_steps(campaign), sizes.__getitem__):
        page.add_chart(chart)


def _problem_size_texts(campaign: Campaign) -> list[str]:
    """The problem size of each plan in words, by the number of the plan."""
    return [plan_size_text(campaign, plan) for plan in range(len(campaign.plans))]


def write_published_effects(page: Page, effects: Sequence[SettingEffect]) -> None:
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


def published_effects_chart(effects: Sequence[SettingEffect]) -> Chart:
    """The bar chart of published effects of single settings on throughput."""
    names = [each.label if each.beside == "default" else f"{each.label}, added to {each.beside}" for each in effects]
    return bar_chart(
        [
            (name, (Bar(name, 0, each.ratio, remark=each.note or "", published=True),))
            for name, each in zip(names, effects, strict=True)
            if each.ratio is not None
        ],
        title="Speed-up in throughput by setting, as published",
        axis="Speed-up in throughput (1 = the baseline)",
        unit="×",
        line=1.0,
        note="One launch each; added to the default config unless stated otherwise",
    )


@dataclass(frozen=True)
class StepEstimate:
    """A step of a tuning as a chart calls it; `kind`: what was decided."""

    label: str
    kind: str
    step: TuningStepLine

    @property
    def ratio_text(self) -> str:
        """The ratio of the step with its interval, as text."""
        return format_ratio_with_interval(self.step.ratio, self.step.low, self.step.high)


def draw_tuning_charts(
    result: TuningResult, campaign: Campaign, plots: Sequence[Path], sizes: Sequence[str], metric: str
) -> list[str]:
    """Draw into the folder of `campaign`, and into `plots`; returns lines that name the files.

    Problems are printed on standard error.
    """
    chart = tuning_result_chart(result, sizes, metric)
    if chart.empty:
        return []
    own = [path for path in (campaign.folder / name for name in FILES) if can_draw(path)]
    lines = []
    for path in dict.fromkeys([*own, *plots]):
        if problem := write_file_or_describe_failure(partial(draw_file, [chart], campaigns=[campaign]), path):
            print_message(problem)
        elif path not in own or path.suffix == ".png":
            lines.append(f"Figure: {path}")
    return lines


def tuning_result_chart(result: TuningResult, sizes: Sequence[str], metric: str) -> Chart:
    """The chart of a result: settings alone by their effect, settings in the combination, and the confirmation."""
    singles = sorted(result.singles, key=lambda step: -(step.ratio or 0.0))
    ablated = {step.setting: step for step in (*result.combined, *result.ablated)}
    confirmed = [(step, _config_and_size_label(step.config, sizes[step.plan])) for step in result.confirmation_steps]
    outcome = " ".join(result.winner.settings) if result.winner else uncapitalize(result.outcome)
    return speed_up_forest_chart(
        {
            "Each alone": [_make_estimate(step, str(step.setting)) for step in singles],
            "In combination": [_make_estimate(step, str(name)) for name, step in ablated.items()],
            "Confirmation": [_make_estimate(step, label) for step, label in confirmed],
        },
        title=f"Speed-up by setting over {result.baseline}: {outcome}",
        axis=f"Speed-up in {metric} over the config without the setting (1 = no difference), with interval",
        kinds=_OUTCOMES,
        noise=result.noise_floor,
    )


def _config_and_size_label(config: str, size: str) -> str:
    """A row's label, ``a=y+b=y, 1,000,000 rows``: the config is shortened, the size is whole."""
    size = size.removesuffix(" per chunk")
    return f"{shorten_middle(config, max(_LETTERS - len(f', {size}'), 12))}, {size}"


def _make_estimate(step: TuningStepLine, label: str) -> StepEstimate:
    decision = "kept" if decision_text(step) == "accepted" else decision_text(step)
    return StepEstimate(label, decision if decision in _OUTCOMES else "dropped", step)


def phase_charts(steps: Sequence[TuningStepLine], size_of: Callable[[int], str]) -> list[Chart]:
    """A chart of speed-ups by step for each phase of the tuning and each plan; `size_of`: gives a plan's name."""
    keys = dict.fromkeys((step.phase, step.plan) for step in steps)
    charts = [
        _chart_of_phase([step for step in steps if (step.phase, step.plan) == (phase, plan)], phase, size_of(plan))
        for phase, plan in keys
    ]
    return [chart for chart in charts if not chart.empty]


def _chart_of_phase(steps: Sequence[TuningStepLine], phase: str, size: str) -> Chart:
    noise = next((step for step in steps if decision_text(step) == NOISE), None)
    estimates = [
        StepEstimate(step.setting or step.config, decision_text(step), step) for step in steps if step is not noise
    ]
    lines = interval_levels_text(step.launches for step in steps if step.low is not None)
    return speed_up_forest_chart(
        {"": estimates},
        title=f"Tuning, {PHASE_NAMES.get(phase, phase)}, {size}: speed-up by setting",
        axis="Speed-up (1 = without the setting, more is better)",
        kinds=list(dict.fromkeys(estimate.kind for estimate in estimates)),
        noise=noise,
        note=f"Points: speed-up estimated from pairs in the same block; lines: its {lines}.",
    )


def speed_up_forest_chart(
    sections: Mapping[str, Sequence[StepEstimate]],
    *,
    title: str,
    axis: str,
    kinds: Sequence[str],
    noise: TuningStepLine | None,
    note: str = "",
) -> Chart:
    """A chart with a row for each title of a section and for each estimate, with its numbers on the right.

    `sections`: estimates that belong together, by their title, which may be empty; empty ones are left out. `axis`: the
    title of the axis of ratios. `kinds`: what may have been decided, in the order of the legend. `noise`: the step that
    compared the baseline with itself; its interval is drawn as a band.
    """
    rows: list[str | StepEstimate] = []
    for name, estimates in sections.items():
        rows += [*([name.upper()] if name else []), *estimates] if estimates else []
    placed = {at: row for at, row in enumerate(rows) if isinstance(row, StepEstimate)}
    steps = [row.step for row in placed.values()]
    groups = _groups_by_kind(placed, kinds)
    if noise and noise.low is not None and noise.high is not None and rows:
        band = Boxes([len(rows) / 2], [noise.low], [noise.high], width=len(rows) + 2, fill=0.25)
        groups = (MarkGroup(GREY, (band,), "the baseline compared with itself"), *groups)
    drawn = [value for step in steps for value in (step.ratio, step.low, step.high)]
    drawn += [noise.low, noise.high] if noise else []
    values = [1.0, *(value for value in drawn if value is not None)]
    low, high = min(values), max(values)
    room = 0.06 * max(high - low, 0.02)
    names = {at: row.label if isinstance(row, StepEstimate) else row for at, row in enumerate(rows)}
    return Chart(
        Axis(axis, low=max(low - room, 0.0), high=high + room, rule=1.0),
        top_down_axis(names, len(rows) - 1, {at: row.ratio_text for at, row in placed.items()}),
        groups,
        30 + 24 * len(rows),
        title,
        note,
    )


def interval_levels_text(blocks: Iterable[int]) -> str:
    """The levels of intervals by numbers of blocks: ``interval (75 % from 3 blocks, 95 % or more from 6 or more)``."""
    levels = [
        f"{100 * (1 - interval_alpha(count)):.4g} % from {plural(count, 'block')}"
        if count < WHOLE_LEVEL
        else f"95 % or more from {WHOLE_LEVEL} or more blocks"
        for count in sorted({min(count, WHOLE_LEVEL) for count in blocks if count > 1})
    ]
    return f"interval ({', '.join(levels)})" if levels else "interval"


def speed_up_chart(steps: Sequence[TuningStepLine]) -> Chart:
    """The chart of speed-ups with their intervals by number of the step, without steps that measured nothing."""
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
        _groups_by_kind(estimates, kinds, upright=True),
        280,
        "Speed-up by step",
        f"Lines: {lines}." + (" Noise: the baseline compared with itself." if NOISE in kinds else ""),
    )


def _groups_by_kind(
    estimates: Mapping[int, StepEstimate], kinds: Sequence[str], *, upright: bool = False
) -> tuple[MarkGroup, ...]:
    """A group of marks for each kind of `estimates`, which are by their places on the axis.

    `upright`: ratios go upwards, and places to the right.
    """
    groups = []
    for kind in kinds:
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
            "speed-up": [row.ratio_text for row in rows],
            "why": [f"{decision_text(step)}: {step.reason}; {plural(step.launches, 'block')}" for step in steps],
        }
        points = Points(at, ratios, details=details) if upright else Points(ratios, at, details=details)
        groups.append(MarkGroup(_LOOKS.get(kind, GREY), (Whiskers(at, low, high, upright), points), kind))
    return tuple(groups)
