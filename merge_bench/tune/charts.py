"""Tunings as charts: ratios with their intervals about a line at 1, one below the other and step after step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from merge_bench.errors import say
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import NO_GAIN_SEEN, NOISE, UNDECIDED
from merge_bench.tune.head_to_head import interval_alpha
from merge_bench.tune.result import GAINED, PHASE_NAMES, Result, decision_of, step_name
from merge_bench.units import plural
from merge_bench.view.plot import GREY, rows_axis, thin_ticks
from merge_bench.view.plot.draw import can_draw, draw, try_to_write
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Points, Whiskers, columns
from merge_bench.view.text import short, uncapitalized, with_interval

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
_ENOUGH = 6
"""Blocks whose interval has a level of 95 %; a confirmation at several sizes asks for more than that."""


@dataclass(frozen=True)
class Estimate:
    """A step of a tuning as a chart calls it; `kind`: what was decided."""

    label: str
    kind: str
    step: TuneLine

    @property
    def ratio_text(self) -> str:
        """The ratio of the step with its interval, as text."""
        return with_interval(self.step.ratio, self.step.low, self.step.high)


def draw_figures(
    result: Result, campaign: Campaign, plots: Sequence[Path], sizes: Sequence[str], metric: str
) -> list[str]:
    """Draw into the folder of `campaign`, and into `plots`; returns lines that name the files.

    Problems are printed on standard error.
    """
    chart = forest_of_result(result, sizes, metric)
    if chart.empty:
        return []
    own = [path for path in (campaign.folder / name for name in FILES) if can_draw(path)]
    lines = []
    for path in dict.fromkeys([*own, *plots]):
        if problem := try_to_write(partial(draw, [chart], campaigns=[campaign]), path):
            say(problem)
        elif path not in own or path.suffix == ".png":
            lines.append(f"Figure: {path}")
    return lines


def forest_of_result(result: Result, sizes: Sequence[str], metric: str) -> Chart:
    """The chart of a result: settings alone by their effect, settings in the combination, and the confirmation."""
    singles = sorted(result.singles, key=lambda step: -(step.ratio or 0.0))
    ablated = {step.setting: step for step in (*result.combined, *result.ablated)}
    outcome = " ".join(result.winner.settings) if result.winner else uncapitalized(result.outcome)
    return forest_chart(
        {
            "Each alone": [_make_estimate(step, str(step.setting)) for step in singles],
            "In combination": [_make_estimate(step, str(name)) for name, step in ablated.items()],
            "Confirmation": [
                _make_estimate(step, _config_and_size(step.config, sizes[step.plan])) for step in result.confirmation
            ],
        },
        title=f"Speed-up by setting over {result.baseline}: {outcome}",
        axis=f"Speed-up in {metric} over the config without the setting (1 = no difference), with interval",
        kinds=_OUTCOMES,
        noise=result.noise_floor,
    )


def _config_and_size(config: str, size: str) -> str:
    """A row's label, ``a=y+b=y, 1,000,000 rows``: the config is shortened, the size is whole."""
    size = size.removesuffix(" per chunk")
    return f"{short(config, max(_LETTERS - len(f', {size}'), 12))}, {size}"


def _make_estimate(step: TuneLine, label: str) -> Estimate:
    decision = "kept" if decision_of(step) == "accepted" else decision_of(step)
    return Estimate(label, decision if decision in _OUTCOMES else "dropped", step)


def phase_charts(steps: Sequence[TuneLine], size_of: Callable[[int], str]) -> list[Chart]:
    """A chart of speed-ups by step for each phase of the tuning and each plan; `size_of`: gives a plan's name."""
    keys = dict.fromkeys((step.phase, step.plan) for step in steps)
    charts = [
        _chart_of_phase([step for step in steps if (step.phase, step.plan) == (phase, plan)], phase, size_of(plan))
        for phase, plan in keys
    ]
    return [chart for chart in charts if not chart.empty]


def _chart_of_phase(steps: Sequence[TuneLine], phase: str, size: str) -> Chart:
    noise = next((step for step in steps if decision_of(step) == NOISE), None)
    estimates = [Estimate(step.setting or step.config, decision_of(step), step) for step in steps if step is not noise]
    lines = interval_levels_text(step.launches for step in steps if step.low is not None)
    return forest_chart(
        {"": estimates},
        title=f"Tuning, {PHASE_NAMES.get(phase, phase)}, {size}: speed-up by setting",
        axis="Speed-up in throughput (1 = without the setting, more is better)",
        kinds=list(dict.fromkeys(estimate.kind for estimate in estimates)),
        noise=noise,
        note=f"Points: speed-up estimated from pairs in the same block; lines: its {lines}.",
    )


def forest_chart(
    sections: Mapping[str, Sequence[Estimate]],
    *,
    title: str,
    axis: str,
    kinds: Sequence[str],
    noise: TuneLine | None,
    note: str = "",
) -> Chart:
    """A chart with a row for each title of a section and for each estimate, with its numbers on the right.

    Parameters
    ----------
    sections
        Estimates that belong together, by their title, which may be empty; those that are empty are left out.
    axis
        The title of the axis of ratios.
    kinds
        What may have been decided, in the order of the legend.
    noise
        The step that compared the baseline with itself; its interval is drawn as a band.
    """
    rows: list[str | Estimate] = []
    for name, estimates in sections.items():
        rows += [*([name.upper()] if name else []), *estimates] if estimates else []
    placed = {at: row for at, row in enumerate(rows) if isinstance(row, Estimate)}
    steps = [row.step for row in placed.values()]
    groups = _groups_by_kind(placed, kinds)
    if noise and noise.low is not None and noise.high is not None and rows:
        band = Boxes([len(rows) / 2], [noise.low], [noise.high], width=len(rows) + 2, fill=0.25)
        groups = (Group(GREY, (band,), "the baseline compared with itself"), *groups)
    ends = [end for step in steps for end in (step.ratio, step.low, step.high) if end is not None]
    ends += [end for end in (noise.low, noise.high) if end is not None] if noise else []
    low, high = min([1.0, *ends]), max([1.0, *ends])
    room = 0.06 * max(high - low, 0.02)
    names = {at: row.label if isinstance(row, Estimate) else row for at, row in enumerate(rows)}
    return Chart(
        Axis(axis, low=max(low - room, 0.0), high=high + room, rule=1.0),
        rows_axis(names, len(rows) - 1, {at: row.ratio_text for at, row in placed.items()}),
        groups,
        30 + 24 * len(rows),
        title,
        note,
    )


def interval_levels_text(blocks: Iterable[int]) -> str:
    """The levels of intervals by numbers of blocks: ``interval (75 % from 3 blocks, 95 % or more from 6 or more)``."""
    counts = sorted({min(count, _ENOUGH) for count in blocks if count > 1})
    levels = [
        f"{100 * (1 - interval_alpha(count)):.4g} % from {plural(count, 'block')}"
        for count in counts
        if count < _ENOUGH
    ]
    levels += ["95 % or more from 6 or more blocks"] if _ENOUGH in counts else []
    return f"interval ({', '.join(levels)})" if levels else "interval"


def chart_by_step(steps: Sequence[TuneLine]) -> Chart:
    """The chart of speed-ups with their intervals by number of the step, without steps that measured nothing."""
    estimates = {
        number: Estimate(f"step {number}, {PHASE_NAMES.get(step.phase, step.phase)}: {step_name(step)}", kind, step)
        for number, step in enumerate(steps, 1)
        if step.ratio is not None and (kind := decision_of(step))
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
    estimates: Mapping[int, Estimate], kinds: Sequence[str], *, upright: bool = False
) -> tuple[Group, ...]:
    """A group of marks for each kind of `estimates`, which are by their places on the axis.

    `upright`: ratios go upwards, and places to the right.
    """
    groups = []
    for kind in kinds:
        rows = {at: row for at, row in estimates.items() if row.kind == kind}
        if not rows:
            continue
        ends = [(row.step.ratio, row.step.low, row.step.high) for row in rows.values()]
        ratios, low, high = columns([[float("nan") if end is None else end for end in row] for row in ends], 3)
        steps = [row.step for row in rows.values()]
        details = {
            "setting": [row.label for row in rows.values()],
            "speed-up": [row.ratio_text for row in rows.values()],
            "why": [f"{decision_of(step)}: {step.reason}; {plural(step.launches, 'block')}" for step in steps],
        }
        at = list(rows)
        points = Points(at, ratios, details=details) if upright else Points(ratios, at, details=details)
        groups.append(Group(_LOOKS.get(kind, GREY), (Whiskers(at, low, high, upright, alpha=0.5), points), kind))
    return tuple(groups)
