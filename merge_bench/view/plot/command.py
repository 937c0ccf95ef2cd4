"""Metrics of commands as charts: the median of each config, and each launch in their order."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.analysis import aggregate
from merge_bench.analysis.compare import Metric
from merge_bench.analysis.statistics import median
from merge_bench.view.plot import Axis, Chart, Mark, MarkGroup, PointMarks, WhiskerMarks, format_with_unit, thin_ticks
from merge_bench.view.plot.merge import LabelledRun, LaunchMetric, metric_by_problem_chart
from merge_bench.view.text import DisplayUnit


def metric_bar_chart(runs: Sequence[LabelledRun], metric: Metric, command_title: str = "") -> Chart:
    """Make a bar chart of a metric of a command, with a bar for each run.

    `command_title`: the command, for the title, where there are charts of several commands.
    """
    unit = DisplayUnit.for_recorded_unit(metric.unit)
    drawn = LaunchMetric(
        f"{metric.name}{_better_direction_text(metric)}" + (f": {command_title}" if command_title else ""),
        metric.value,
        axis=unit.metric_heading(metric.name),
        unit=unit.name,
        scale=unit.scale,
    )
    return metric_by_problem_chart(drawn, {"": runs}, {})


def _better_direction_text(metric: Metric) -> str:
    return ", more is better" if metric.higher_is_better else ", less is better"


def metric_by_launch_chart(runs: Sequence[LabelledRun], metric: Metric, command_title: str = "") -> Chart:
    """Make a chart with a point for the value of a metric in every complete launch, in the order of launches.

    `command_title`: the command, for the title, where there are charts of several commands. A line is the median of a
    run.
    """
    unit = DisplayUnit.for_recorded_unit(metric.unit)
    measured = {
        run: [
            ((run.part, launch.index), value * unit.scale)
            for launch in aggregate.complete_launches(run.run)
            if (value := metric.launch_value(launch)) is not None
        ]
        for run in runs
    }
    keys = sorted({key for values in measured.values() for key, _ in values})
    apart = len({part for part, _ in keys}) > 1
    places = {key: at if apart else key[1] for at, key in enumerate(keys)}
    names = {(part, index): f"{part} {index}".strip() if apart else str(index) for part, index in keys}
    shown = [run for run in runs if measured[run]]
    groups = []
    for run in shown:
        x, values = [places[key] for key, _ in measured[run]], [value for _, value in measured[run]]
        details = {
            "launch": [names[key] for key, _ in measured[run]],
            "config": [run.label] * len(x),
            "value": [format_with_unit(value, unit.name).rstrip() for value in values],
        }
        middle = WhiskerMarks([median(values)], [min(x) - 0.4], [max(x) + 0.4], dotted=True)
        marks: tuple[Mark, ...] = (PointMarks(x, values, details=details), middle)
        groups.append(MarkGroup(run.style_index, marks, run.label if len(shown) > 1 else ""))
    lowest = min((value for values in measured.values() for _, value in values), default=0.0)
    lacking = any(launch.failed for run in runs for launch in run.run.launches)
    return Chart(
        Axis("Launch", thin_ticks({places[key]: names[key] for key in keys}, 24), grid=False),
        Axis(unit.metric_heading(metric.name), low=0.0 if lowest >= 0.0 else None),
        tuple(groups),
        300,
        f"{metric.name} of every launch, in their order" + (f": {command_title}" if command_title else ""),
        f"Points: launches; lines: median of each config{'; failed launches have no point' if lacking else ''}.",
    )
