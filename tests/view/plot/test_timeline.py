"""The timeline of an iteration as a chart, from timelines with chosen times."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.timeline import timeline_file_name
from merge_bench.report.page import write_html_report
from merge_bench.view.plot import BoxMarks, Chart, LineMark, interactive, static
from merge_bench.view.plot.merge import MOST_ROWS, timeline_chart
from tests.helpers import timelines
from tests.helpers.charts import rows_of
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

TWO_HOSTS = ["a", "a", "b", "b"]


def campaign(folder: Path, hosts: list[str], late: float = 0.0) -> Path:
    made = write_campaign(folder, Script(plan=plan(workers=len(hosts))))
    timelines.add_timeline(made, timelines.timeline(hosts, {"a": 5000.0, "b": 1400.0}, late=late))
    return made


def chart_of(folder: Path) -> Chart:
    found = read_campaign(folder)
    return timeline_chart(found, found.runs[0])


def boxes(chart: Chart, label: str) -> BoxMarks:
    (mark,) = [mark for group in chart.groups if group.label == label for mark in group.marks]
    assert isinstance(mark, BoxMarks)
    return mark


def test_phases_and_messages_of_every_worker(tmp_path: Path) -> None:
    chart = chart_of(campaign(tmp_path, TWO_HOSTS))
    assert rows_of(chart) == ["0 a", "1 a", "2 b", "3 b"]
    labels = [group.label for group in chart.groups]
    assert labels == ["barrier", "partition", "join", "exchange", "sends", "receives", "from sender to receiver"]
    join = boxes(chart, "join")
    assert join.start == pytest.approx([30.0] * 4)
    assert join.end == pytest.approx([35.0] * 4)
    assert [round(at + 0.24) for at in join.at] == [0, 1, 2, 3]
    sends = boxes(chart, "sends")
    assert len(sends.at) == len(boxes(chart, "receives").at) == 4 * 3 * 2
    assert sends.details["what"][0] == "left 0 to 1: 1 MiB"
    (line,) = chart.groups[-1].marks
    assert isinstance(line, LineMark)
    assert [math.isnan(x) for x in line.x[:3]] == [False, False, True]
    assert line.x[:2] == pytest.approx([11.0, 19.5])
    assert [round(y) for y in line.y[:2]] == [0, 1]


def test_what_was_before_the_opening_barrier_is_cut_off(tmp_path: Path) -> None:
    chart = chart_of(campaign(tmp_path, TWO_HOSTS, late=1e-3))
    low = chart.x.low
    assert low is not None
    assert low < 0
    assert min(boxes(chart, "barrier").start) == pytest.approx(low)


def test_hosts_are_drawn_on_one_axis_with_the_bound_of_the_error(tmp_path: Path) -> None:
    assert "at most 1,000 µs" in chart_of(campaign(tmp_path, TWO_HOSTS)).note
    assert "aligned" not in chart_of(campaign(tmp_path, ["a", "a"])).note


def test_of_many_workers_the_first_are_drawn(tmp_path: Path) -> None:
    chart = chart_of(campaign(tmp_path, ["a"] * (MOST_ROWS + 1)))
    assert len(rows_of(chart)) == MOST_ROWS
    assert f"first {MOST_ROWS} of {MOST_ROWS + 1}" in chart.note
    assert len({round(at + 0.24) for at in boxes(chart, "join").at}) == MOST_ROWS
    assert "from sender to receiver" not in [group.label for group in chart.groups]  # too many to be read


def test_without_a_timeline_or_with_a_damaged_one_nothing_is_drawn(tmp_path: Path) -> None:
    assert chart_of(write_campaign(tmp_path)).is_empty
    folder = campaign(tmp_path, TWO_HOSTS)
    (folder / timeline_file_name(0)).write_text("{")
    assert chart_of(folder).is_empty
    assert "Timeline of iteration" not in write_html_report([read_campaign(folder)], None).read_text()


def test_the_report_draws_it_and_names_the_result(tmp_path: Path) -> None:
    folder = campaign(tmp_path, TWO_HOSTS)
    page = write_html_report([read_campaign(folder)], None).read_text()
    assert "Timeline of iteration 1, launch 0" in page
    chart = chart_of(folder)
    picture = io.BytesIO()
    static.draw_charts_as_image([chart], picture, "png")
    assert len(picture.getvalue()) > 10_000
    assert "from sender to receiver" in interactive.render_html_page([chart])
