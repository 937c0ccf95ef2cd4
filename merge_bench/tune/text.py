"""The outcome of `tune` as text for people: single settings, combination, ablation, confirmation, what was left out.

Also the sections of reports about a tuning, with charts, and about published effects of single settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TextIO

from msgspec.structs import replace

from merge_bench.analysis.published import SettingEffect
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuneLine
from merge_bench.tune.charts import phase_charts
from merge_bench.tune.documents import PrunedValue
from merge_bench.tune.evaluator import UNDECIDED
from merge_bench.tune.head_to_head import interval_alpha
from merge_bench.tune.result import GAINED, Result, decision_of, recorded_result_of, result_of, step_name
from merge_bench.tune.stage import steps_of
from merge_bench.units import plural
from merge_bench.view.content import Column, Page, by_row
from merge_bench.view.next_command import NextStep
from merge_bench.view.plot import Bar, bars
from merge_bench.view.plot.marks import Chart
from merge_bench.view.terminal import page_on
from merge_bench.view.text import capitalized, ends, gib, number, ratio
from merge_bench.view.titles import size_of

BEST_ESTIMATE = "among the best estimates; tested on new launches, see below"
"""Why an undecided candidate is in the confirmation."""


def print_tuning(
    result: Result,
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
    with page_on(file, width) as page:
        write_steps(page, result, sizes)
        if pruned and details:
            page.heading("Cannot help on this cluster")
            page.table(*by_row(("Value", "Why"), [(each.value, each.reason) for each in pruned], range(2)))
        elif pruned:
            page.line(f"{plural(len(pruned), 'other candidate')} cannot help on this cluster (--details lists them).")
        write_outcome(page, result, sizes, metric, step.note if step is not None else "")
        page.line("")
        if step is not None:
            page.next_step(step.command, step.does)
        for remark in remarks:
            page.unbroken(remark)


def write_steps(page: Page, result: Result, sizes: Sequence[str]) -> None:
    """Write every step of the search, in tables."""
    where = f" at {sizes[0]}" if len(sizes) > 1 else ""
    new = {line.config for line in (*result.confirmed, *result.broken_off)}
    singles = [
        replace(line, reason=BEST_ESTIMATE) if decision_of(line) == UNDECIDED and line.config in new else line
        for line in result.singles
    ]
    _write_step_table(page, f"Single settings against {result.baseline}{where}", singles, sets=result.variables)
    if (noise := result.noise_floor) is not None:
        of_copy = (
            f"{result.baseline} against its own copy: {ends(noise.low, noise.high)} in"
            f" {plural(noise.launches, 'block')}, level {100 * (1 - interval_alpha(noise.launches)):.4g}%"
        )
        page.line(
            f"Noise: {noise.reason} ({of_copy}). A loss is decided by the interval of its own setting.",
            "dim",
        )
    _write_step_table(
        page, "Combined, strongest setting first; each compared with the config without the setting", result.combined
    )
    _write_step_table(page, "Removed again; each compared with the config without the setting", result.ablated)
    _write_step_table(page, "Confirmation on new launches", result.confirmed, sizes=sizes)
    if result.interactions:
        page.heading("Settings that help alone but not together")
        for line in result.interactions:
            page.line(f"{line.setting} with {line.against}: {ratio(line.ratio)} {ends(line.low, line.high)}")


def write_outcome(page: Page, result: Result, sizes: Sequence[str], metric: str, note: str = "") -> None:
    """Write what was found, how sure it is at each size, and what is not known; `note`: of the next step."""
    page.heading(result.outcome)
    for sentence in confirmation_sentences(result, sizes, metric):
        page.line(sentence)
    for sentence in open_questions(result, sizes):
        page.line(sentence)
    if note:
        page.line(note)
    if not result.finished:
        page.line("The tuning is not finished: the same command resumes it.")


def confirmation_sentences(result: Result, sizes: Sequence[str], metric: str) -> list[str]:
    """A sentence for each candidate and size of the confirmation: what new launches showed."""
    several = len({line.config for line in result.confirmation}) > 1
    return [
        f"{f'{line.config}, ' if several else ''}{metric} at {sizes[line.plan]}: {ratio(line.ratio)} ×"
        f" {result.baseline} {ends(line.low, line.high)}, {line.reason}"
        for line in result.confirmation
    ]


def open_questions(result: Result, sizes: Sequence[str]) -> list[str]:
    """Sentences on what the search did not decide, why, and what makes its result doubtful."""
    sentences = []
    best, left_out, noise = result.best_undecided, result.left_out, result.noise_floor
    if result.doubtful and noise is not None:
        sentences.append(
            f"Doubtful: {result.baseline} differed from itself ({ratio(noise.ratio)} ×, {ends(noise.low, noise.high)}),"
            " so the host was not quiet, or its speed drifted. Run again on a quiet host, or with --wait-for-quiet 5m."
        )
    sentences += _count_sentences(result)
    step = result.unconfirmed_step
    if step is not None and (best is None or best.config != step.config):
        estimate = f"{ratio(step.ratio)} × {step.against} ({ends(step.low, step.high)})"
        sentences.append(
            f"{step.config}: {estimate} in {plural(step.launches, 'block')} of the search"
            f"{'' if result.broken_off else ', not confirmed on new launches'}."
        )
    for line in result.broken_off:
        estimate = f"{ratio(line.ratio)} × {line.against} ({ends(line.low, line.high)})"
        sentences.append(
            f"New launches of {line.config} at {sizes[line.plan]}: {estimate} in {plural(line.launches, 'block')},"
            " too few for a verdict."
        )
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
        sentences.append(f"{capitalized(result.stopped)}.")
    return sentences


def _count_sentences(result: Result) -> list[str]:
    """A sentence on how many candidates were decided in which way; none if all were decided."""
    best, tested = result.best_undecided, {line.config for line in (*result.confirmed, *result.broken_off)}
    if not (result.undecided or result.no_gain_seen):
        return []
    new = len(tested & {line.config for line in result.singles})
    gained = [line for line in result.singles if decision_of(line) == GAINED and line.config not in tested]
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
    estimate = f"{ratio(best.ratio)} × {result.baseline} ({ends(best.low, best.high)})"
    untested = not result.broken_off and best.config == result.unconfirmed
    open_still = ", not confirmed on new launches" if untested else ""
    which = "" if len(result.undecided) == 1 else "; the best of these is"
    return [f"{sentence}{which or ':'} {best.config}: {estimate} in {plural(best.launches, 'block')}{open_still}."]


def _not_combined_sentences(result: Result) -> list[str]:
    """Sentences on why settings that gain alone are not in the candidate of a search that ended early."""
    names = {name.partition("=")[0] for name in (result.candidate or "").split("+")}
    others = [each for each in result.not_combined if each.partition("=")[0] in names]
    rest = [each for each in result.not_combined if each not in others]
    sentences = []
    if rest:
        they = "it" if len(rest) == 1 else "they"
        sentences.append(
            f"{', '.join(rest)}: gained alone, too, but the search ended before {they} could be combined with"
            f" {result.candidate}."
        )
    if others:
        one_value = "gained alone, too, but a config has no more than one value of a setting"
        sentences.append(f"{', '.join(others)}: {one_value}.")
    return sentences


def _write_step_table(
    page: Page,
    title: str,
    lines: Sequence[TuneLine],
    *,
    sizes: Sequence[str] | None = None,
    sets: Mapping[str, str] | None = None,
) -> None:
    if not lines:
        return
    page.heading(title)
    measured = [
        Column("At", [sizes[line.plan] if sizes else "" for line in lines], text=True),
        Column("Speed-up", [ratio(line.ratio) for line in lines]),
        Column("Interval", [ends(line.low, line.high) for line in lines], text=True),
        Column("Blocks", [str(line.launches) for line in lines]),
    ]
    decided = [
        Column("Decision", [decision_of(line) for line in lines], text=True),
        Column("Why", [line.reason for line in lines], text=True),
    ]
    variables = [(sets or {}).get(line.setting or "", "") for line in lines]
    sets_column = [Column("Sets", variables, text=True)] if any(variables) else []
    page.wide_table([Column("Setting", [step_name(line) for line in lines], text=True)], measured, decided, sets_column)


def write_recorded_outcome(page: Page, campaign: Campaign, note: str) -> None:
    """Write what was found and how sure it is, with a chart, and what the config sets; `note`: what is left open."""
    result = recorded_result_of(campaign)
    tuning = campaign.plans[0].tune
    write_outcome(page, result, _size_names(campaign), (tuning and tuning.metric) or "throughput", note)
    charts = phase_charts(steps_of(campaign), _size_names(campaign).__getitem__)
    for chart in charts[-1:]:  # the confirmation, or as far as the search went
        page.chart(chart)
    if result.winner is not None:
        page.heading(f"Settings of {result.winner.config.name}")
        page.code("\n".join(f"{name}={shlex.quote(value)}" for name, value in result.winner.config.variables.items()))


def write_tuning(page: Page, campaign: Campaign) -> None:
    """Write the section of a report with every step of the search, and a chart for each phase."""
    page.section("Tuning")
    sizes = _size_names(campaign)
    write_steps(page, result_of(campaign), sizes)
    for chart in phase_charts(steps_of(campaign), sizes.__getitem__):
        page.chart(chart)


def _size_names(campaign: Campaign) -> list[str]:
    return [size_of(campaign, plan) for plan in range(len(campaign.plans))]


def write_published(page: Page, effects: Sequence[SettingEffect]) -> None:
    """Write published effects of single settings, as a table and as a bar chart."""
    page.section("Published effects of single settings")
    rates = [each for each in effects if each.metric == "throughput"]
    headings = ("Setting", "Variables", "Base config", "Metric", "Baseline\n(GiB/s)", "With setting\n(GiB/s)", "Ratio")
    rows = [
        (
            each.label,
            " ".join(f"{name}={value}" for name, value in each.variables.items()),
            each.beside,
            each.metric,
            gib(each.baseline),
            gib(each.value),
            number(each.ratio),
            each.section,
            each.note or "",
        )
        for each in effects
    ]
    page.table(*by_row((*headings, "Section", "Note"), rows, (0, 1, 2, 3, 7, 8)))
    page.chart(published_effects_chart(rates))
    for source in dict.fromkeys(each.source.rpartition(", ")[0] for each in effects):
        page.line(f"Published: {source}; ratios are recomputed from the printed values.", "dim")


def published_effects_chart(effects: Sequence[SettingEffect]) -> Chart:
    """The bar chart of published effects of single settings on throughput."""
    names = [each.label if each.beside == "default" else f"{each.label}, added to {each.beside}" for each in effects]
    return bars(
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
