"""How a config was found, and what single settings did for others."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from merge_bench.analysis.published import SettingEffect
from merge_bench.records.campaign import Campaign
from merge_bench.tune.result import recorded_result_of, result_of
from merge_bench.tune.stage import steps_of
from merge_bench.view.numbers import gib, number
from merge_bench.view.plot import merge
from merge_bench.view.plot.charts import Bar, bars
from merge_bench.view.plot.marks import Chart
from merge_bench.view.report import tuning as outcome
from merge_bench.view.report.content import Page, by_row
from merge_bench.view.report.next_step import after_recorded_tuning
from merge_bench.view.titles import size_of


def write_outcome(page: Page, campaign: Campaign) -> None:
    """What was found and how sure it is, drawn, and what the config sets."""
    result = recorded_result_of(campaign)
    asked = campaign.plans[0].tune
    note = after_recorded_tuning(campaign).note
    outcome.write_outcome(page, result, _sizes(campaign), (asked and asked.metric) or "throughput", note)
    charts = merge.tunings(steps_of(campaign), _sizes(campaign).__getitem__)
    for chart in charts[-1:]:  # the confirmation, or as far as the search went
        page.chart(chart)
    if result.winner is not None:
        page.heading(f"Settings of {result.winner.config.name}")
        page.code("\n".join(f"{name}={shlex.quote(value)}" for name, value in result.winner.config.variables.items()))


def write_tuning(page: Page, campaign: Campaign) -> None:
    """Every step of the search, drawn phase by phase."""
    page.section("Tuning")
    sizes = _sizes(campaign)
    outcome.write_steps(page, result_of(campaign), sizes)
    for chart in merge.tunings(steps_of(campaign), sizes.__getitem__):
        page.chart(chart)


def _sizes(campaign: Campaign) -> list[str]:
    return [size_of(campaign, plan) for plan in range(len(campaign.plans))]


def write_published(page: Page, effects: Sequence[SettingEffect]) -> None:
    """What single settings did for others, as a table and as the bar graph of its report."""
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
    page.chart(published_effects(rates))
    for source in dict.fromkeys(each.source.rpartition(", ")[0] for each in effects):
        page.line(f"Published: {source}; ratios are recomputed from the printed values.", "dim")


def published_effects(effects: Sequence[SettingEffect]) -> Chart:
    """What single settings made of others' throughput, as the bar graph of their report has it."""
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
