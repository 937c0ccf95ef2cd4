"""The picture of `predict`: ideal scaling, what is measured, and what is extrapolated."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from merge_bench.forecast.document import PredictDocument
from merge_bench.forecast.view import forecast_charts
from merge_bench.units import GIB
from merge_bench.view.plot import BandMark, Chart, LineMark, MarkGroup, PointMarks, WhiskerMarks, static
from tests.helpers.runs import ROOT

Kind = TypeVar("Kind")
RECORDED = ROOT / "tests" / "data" / "campaigns" / "run" / "forecast.json"
"""Of a run with 2 workers: forecasts for 1, 2, 4 workers on one host and 8 on two."""


@pytest.fixture
def document() -> PredictDocument:
    return msgspec.json.decode(RECORDED.read_bytes(), type=PredictDocument)


def group(chart: Chart, label: str) -> MarkGroup:
    (found,) = [each for each in chart.groups if each.label == label]
    return found


def mark(found: MarkGroup, kind: type[Kind]) -> Kind:
    (only,) = [each for each in found.marks if isinstance(each, kind)]
    return only


def test_ideal_scaling_begins_at_the_smallest_cluster(document: PredictDocument) -> None:
    throughput, wall = forecast_charts(document)
    first = document.scaling[0]
    assert first.throughput_bytes_per_second
    assert first.wall_seconds
    base = first.throughput_bytes_per_second.value / GIB
    line = mark(group(throughput, "ideal scaling from 1 worker"), LineMark)
    assert list(line.x) == [1, 2, 4, 8]
    assert list(line.y) == pytest.approx([base, 2 * base, 4 * base, 8 * base])
    constant = mark(group(wall, "ideal scaling from 1 worker"), LineMark)
    assert list(constant.y) == pytest.approx([first.wall_seconds.value * 1e3] * 4)


def test_ideal_scaling_begins_at_what_was_measured_there(document: PredictDocument) -> None:
    row = msgspec.structs.replace(document.scaling[0], measured_wall_seconds=0.5)
    document = msgspec.structs.replace(document, scaling=[row, *document.scaling[1:]])
    throughput, wall = forecast_charts(document)
    assert row.data_bytes
    assert mark(group(throughput, "ideal scaling from 1 worker"), LineMark).y[0] == pytest.approx(
        row.data_bytes / 0.5 / GIB
    )
    assert mark(group(wall, "ideal scaling from 1 worker"), LineMark).y[0] == pytest.approx(500)


def test_forecasts_beyond_the_largest_measured_run_are_marked(document: PredictDocument) -> None:
    throughput, wall = forecast_charts(document)
    for chart in (throughput, wall):
        inside, beyond = group(chart, "forecast"), group(chart, "forecast, extrapolated")
        assert list(mark(inside, PointMarks).x) == [1, 2]
        assert list(mark(inside, WhiskerMarks).at) == [1, 2]
        assert list(mark(beyond, PointMarks).x) == [4, 8]
        assert all(mark(beyond, PointMarks).hollow)
        band = mark(beyond, BandMark)
        assert band.hatched
        assert list(band.x) == [2, 4, 8]
        assert all(low < high for low, high in zip(band.low, band.high, strict=True))
        assert chart.x.rule == 2
        assert "extrapolated (the largest measured run has 2 workers on 1 host)" in chart.note
    assert mark(group(wall, "partition"), PointMarks).hollow == [False, False, True, True]


def test_measured_values_are_points_without_a_line(document: PredictDocument) -> None:
    """A line would claim values between them."""
    measured = group(forecast_charts(document)[1], "measured")
    (points,) = measured.marks
    assert isinstance(points, PointMarks)
    assert list(points.x) == [2]
    assert points.y == pytest.approx([document.checked[0].measured_wall_seconds * 1e3])


@pytest.mark.parametrize("change", [{"what_if": ["nic=4x"]}, {"rows_per_chunk": 1e8}])
def test_all_is_extrapolated_on_a_changed_machine_or_for_more_rows(
    document: PredictDocument, change: dict[str, object]
) -> None:
    (chart, _) = forecast_charts(msgspec.structs.replace(document, **change))
    assert "forecast" not in [each.label for each in chart.groups]
    assert list(mark(group(chart, "forecast, extrapolated"), PointMarks).x) == [1, 2, 4, 8]
    assert chart.x.rule is None
    assert "everywhere: extrapolated" in chart.note


def test_nothing_is_called_extrapolated_that_a_run_covers(document: PredictDocument) -> None:
    large = msgspec.structs.replace(document.checked[0], workers=64, hosts=8)
    (chart, _) = forecast_charts(msgspec.structs.replace(document, checked=[*document.checked, large]))
    assert [each.label for each in chart.groups if each.index == 0] == ["forecast"]
    assert "xtrapolated" not in chart.note


def test_the_title_says_what_is_forecast(document: PredictDocument) -> None:
    assert [chart.title for chart in forecast_charts(document)] == [
        "Forecast throughput: tcp, 20,000 rows per chunk",
        "Forecast wall-clock and its phases: tcp, 20,000 rows per chunk",
    ]


def test_a_printed_legend_shows_what_is_drawn(document: PredictDocument) -> None:
    (legend,) = static.make_matplotlib_figure(forecast_charts(document)[0]).legends
    first = {text.get_text(): part for text, part in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    assert isinstance(first["ideal scaling from 1 worker"], Line2D)
    assert isinstance(first["measured"], PathCollection)
    fills = [to_hex(points.get_facecolor()[0]) for points in legend.findobj(PathCollection)]
    assert [fill == "#ffffff" for fill in fills] == [False, True, False]  # only extrapolated points are hollow
