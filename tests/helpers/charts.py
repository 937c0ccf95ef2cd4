"""What a chart shows, read from its marks."""

from __future__ import annotations

from merge_bench.view.plot import BoxMarks, Chart


def bars_of(chart: Chart) -> dict[tuple[str, str], float]:
    """Where each bar of a chart of `bars` ends, by its row and its series."""
    found = [mark for _, mark in chart.marks_with_groups if isinstance(mark, BoxMarks) and not mark.white]
    return {
        (row, series): end
        for boxes in found
        for row, series, end in zip(boxes.details["row"], boxes.details["series"], boxes.end, strict=True)
    }


def rows_of(chart: Chart) -> list[str]:
    """The names of rows, from the top down."""
    return list((chart.y.ticks or {}).values())
