"""How a config was found, and what single settings did for others."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from merge_bench.plot import merge
from merge_bench.plot.charts import Bar, Bars, Row
from merge_bench.published import SettingEffect
from merge_bench.record.campaign import Campaign
from merge_bench.record.schema import TuneLine
from merge_bench.report.blocks import Recorder
from merge_bench.report.layout import NULL, Column, gib, number


def write_tuning(page: Recorder, campaign: Campaign) -> None:
    """Every step, phase by phase, and what the config that came out sets."""
    page.section("Tuning")
    steps = campaign.tuning
    for phase in dict.fromkeys(step.phase for step in steps):
        mine = [step for step in steps if step.phase == phase]
        page.heading(f"Phase {phase}")
        plans = list(dict.fromkeys(step.plan for step in mine))
        for plan in plans:
            page.drawing(partial(merge.tuning, mine, phase, plan, _size(campaign, plan)))
        _steps(page, mine, [_size(campaign, step.plan) for step in mine] if len(plans) > 1 else [])
    found = [line for line in campaign.added if line.config.name == _last(steps)]
    for line in found:
        page.heading(f"What {line.config.name} sets")
        page.code("\n".join(f"{name}={shlex.quote(value)}" for name, value in line.config.variables.items()))


def _last(steps: Sequence[TuneLine]) -> str | None:
    """The config that was confirmed, or accepted last."""
    accepted = [step.config for step in steps if step.decision in ("accepted", "kept")]
    return accepted[-1] if accepted else None


def _size(campaign: Campaign, plan: int) -> str:
    count = campaign.head.plans[plan].get("rows_per_chunk") if plan < len(campaign.head.plans) else None
    return f"{count:,} rows per chunk" if isinstance(count, int) else f"plan {plan}"


def _steps(page: Recorder, steps: Sequence[TuneLine], sizes: Sequence[str]) -> None:
    page.table(
        [
            Column("Setting", [step.setting or "" for step in steps], text=True),
            Column("Config", [step.config for step in steps], text=True),
            Column("Against", [step.against for step in steps], text=True),
            Column("Problem", sizes, text=True),
            Column("Speed-up", [number(step.ratio) for step in steps]),
            Column("Interval", [_interval(step) for step in steps]),
            Column("Launches", [str(step.launches) for step in steps]),
            Column("Decision", [step.decision for step in steps], text=True),
            Column("Why", [step.reason for step in steps], text=True),
        ]
    )


def _interval(step: TuneLine) -> str:
    return NULL if step.low is None or step.high is None else f"{number(step.low)} to {number(step.high)}"


def write_published(page: Recorder, effects: Sequence[SettingEffect]) -> None:
    """What single settings did for others, as a table and as the bar graph of its report."""
    rates = [each for each in effects if each.metric == "throughput"]
    page.table(
        [
            Column("Setting", [each.label for each in effects], text=True),
            Column(
                "Variables", [" ".join(f"{n}={v}" for n, v in each.variables.items()) for each in effects], text=True
            ),
            Column("Metric", [each.metric for each in effects], text=True),
            Column("Baseline\n(GiB/s)", [gib(each.baseline) for each in effects]),
            Column("With it\n(GiB/s)", [gib(each.value) for each in effects]),
            Column("Ratio", [number(each.ratio) for each in effects]),
            Column("Section", [each.section for each in effects], text=True),
            Column("Note", [each.note or "" for each in effects], text=True),
        ]
    )
    page.drawing(partial(published_effects, rates))
    for source in dict.fromkeys(each.source.rpartition(", ")[0] for each in effects):
        page.line(f"Published: {source}; ratios are recomputed from the printed values.", "dim")


def published_effects(effects: Sequence[SettingEffect]) -> Bars:
    """What single settings made of others' throughput, as the bar graph of their report has it."""
    return Bars(
        title="Speed-up in throughput by setting, as published",
        axis="Speed-up in throughput (1 = the baseline)",
        unit="×",
        rows=tuple(
            Row(each.label, (Bar(each.label, 0, each.ratio, remark=each.note or "", published=True),))
            for each in effects
            if each.ratio is not None
        ),
        line=1.0,
        note="One launch each; beside which config is in the table.",
    )
