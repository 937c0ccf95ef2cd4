"""Charts as data, with numbers by hand; and that both drawing libraries take every one of them."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bokeh.embed import json_item
from matplotlib.figure import Figure

from merge_bench.analysis.documents import run_documents
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.probe.view.charts import make_panels
from merge_bench.records import schema as s
from merge_bench.records.campaign import Run
from merge_bench.records.reader import read_campaign
from merge_bench.tune.view import StepEstimate, interval_levels_text, speed_up_chart, speed_up_forest_chart
from merge_bench.view.plot import (
    Axis,
    Bar,
    Boxes,
    Cells,
    Chart,
    MarkGroup,
    Points,
    Texts,
    Whiskers,
    bar_chart,
    interactive,
    merge,
    static,
)
from merge_bench.view.plot.merge import LabelledRun
from merge_bench.view.text import escape_for_canvas, mark_unprintable, shorten_middle
from tests.helpers.charts import bars_of, rows_of
from tests.helpers.synthetic_campaigns import Script, interleaved, launches, plan, write_campaign
from tests.probe.samples import latency, rate
from tests.view.html_report.samples import BASE, DATA, EVIL, GIB, SLOW


def runs(folder: Path, *scripts: Script) -> list[LabelledRun]:
    campaign = read_campaign(write_campaign(folder, *scripts))
    return [LabelledRun(run.config.name, index, run) for index, run in enumerate(campaign.runs)]


def one(folder: Path, *scripts: Script) -> Run:
    return runs(folder, *scripts)[0].run


def test_bars_of_rates_have_a_point_a_launch_and_the_interval_of_the_median(tmp_path: Path) -> None:
    found = runs(tmp_path, *interleaved({"default": BASE, "tcp": SLOW}))
    chart = merge.rates_chart(merge.THROUGHPUT, {"1e6": found}, {})
    default, tcp = chart.groups
    _, interval, points = default.marks
    assert isinstance(interval, Boxes)
    assert isinstance(points, Points)
    assert list(bars_of(chart)) == [("default", "default"), ("tcp", "tcp")]
    assert (default.index, tcp.index, default.label, tcp.label) == (0, 1, "", "")
    assert list(points.details["of"]) == [f"launch {number}" for number in range(0, 12, 2)]
    assert points.x == pytest.approx([DATA / wall / GIB for wall in BASE])
    assert (*interval.start, *interval.end) == pytest.approx((DATA / 0.15 / GIB, DATA / 0.10 / GIB))


def test_several_problems_are_rows_with_a_legend(tmp_path: Path) -> None:
    found = runs(tmp_path, *interleaved({"default": BASE, "tcp": SLOW}))
    theirs = Bar("default (published)", 0, 3.95, published=True)
    chart = merge.rates_chart(merge.THROUGHPUT, {"1e6": found}, {"25e6": [theirs]})
    assert rows_of(chart) == ["1e6", "25e6"]
    assert [group.label for group in chart.groups] == ["default", "tcp", "default (published)"]


def test_one_launch_has_a_bar_and_neither_points_nor_interval(tmp_path: Path) -> None:
    chart = merge.rates_chart(merge.BANDWIDTH, {"1e6": runs(tmp_path)}, {})
    ((_, bar),) = chart.marks
    assert isinstance(bar, Boxes)
    assert bar.end == pytest.approx([300e6 / GIB])


def test_a_run_that_measured_nothing_has_no_bar(tmp_path: Path) -> None:
    dask = Script(plan=plan(exchange="dask"))
    chart = merge.rates_chart(merge.BANDWIDTH, {"1e6": runs(tmp_path, dask)}, {})
    assert rows_of(chart) == ["optimized"]
    assert bars_of(chart) == {}
    assert chart.empty


def test_iterations_keep_the_order_in_which_launches_were_made(tmp_path: Path) -> None:
    chart = merge.iterations_chart(runs(tmp_path, *interleaved({"default": BASE[:2], "tcp": SLOW[:2]})))
    assert chart.x.ticks == {0: "0", 1: "1", 2: "2", 3: "3"}
    default, tcp = chart.groups
    points, medians, *_ = default.marks
    assert isinstance(points, Points)
    assert isinstance(medians, Whiskers)
    assert sorted(set(points.details["launch"])) == ["0", "2"]
    assert {round(x) for x in points.x} == {0, 2}
    assert isinstance(tcp.marks[0], Points)
    assert {round(x) for x in tcp.marks[0].x} == {1, 3}
    assert points.details["iteration"][:3] == ("0", "1", "2")
    assert points.y[:3] == pytest.approx([DATA / wall / GIB for wall in (0.099, 0.1, 0.102)])
    assert medians.at[0] == pytest.approx(DATA / 0.1 / GIB)


def test_charts_of_several_problems_name_theirs(tmp_path: Path) -> None:
    found = runs(tmp_path, *launches(2))
    titles = [merge.iterations_chart(found, problem).title for problem in ("", "1,000,000 rows per chunk")]
    assert titles[1] == f"{titles[0]}: 1,000,000 rows per chunk"


def test_a_page_and_a_print_have_the_same_ticks_of_values() -> None:
    """Bokeh's own would be decades alone: one or two for most measurements."""
    (chart,) = make_panels([rate(size=1, megabytes=0.04), rate(size=2, megabytes=7.0)])
    page, axes = interactive.make_figure(chart), static.make_figure(chart).axes[0]
    assert page.yaxis[0].ticker.ticks == pytest.approx(list(axes.yaxis.get_majorticklocs()))
    assert len(page.yaxis[0].ticker.ticks) >= 7


def test_far_out_iterations_are_flagged(tmp_path: Path) -> None:
    walls = (0.1, 0.101, 0.102, 0.103, 0.9)
    chart = merge.iterations_chart(runs(tmp_path, Script(plan=plan(iterations=5), walls=walls)))
    points = chart.groups[0].marks[0]
    assert isinstance(points, Points)
    assert points.hollow == (False, False, False, False, True)


def test_the_chart_and_the_warning_flag_the_same_iterations(tmp_path: Path) -> None:
    """A time far out is a throughput near the others where all are spread."""
    walls = (0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.35)
    campaign = read_campaign(write_campaign(tmp_path, Script(plan=plan(iterations=len(walls)), walls=walls)))
    points = merge.iterations_chart([LabelledRun("default", 0, campaign.runs[0])]).groups[0].marks[0]
    assert isinstance(points, Points)
    hollow = [index for index, far in zip(points.details["iteration"], points.hollow, strict=True) if far]
    (warning,) = [each for each in run_documents(summarize_campaign(campaign))[0].warnings if each.code == "outliers"]
    assert hollow == ["7"]
    assert "in iteration 7 of launch 0;" in warning.message


def test_too_many_iterations_are_thinned_but_never_the_slowest(tmp_path: Path) -> None:
    walls = [0.1 + 0.001 * (number % 7) for number in range(40)]
    walls[37] = 0.5
    chart = merge.iterations_chart(runs(tmp_path, Script(plan=plan(iterations=40), walls=walls)), most_points=10)
    points = chart.groups[0].marks[0]
    assert isinstance(points, Points)
    assert "37" in points.details["iteration"]
    assert len(points.y) == 10 + 1  # every fourth, and the slowest; the fastest is among them
    assert "shown: one of 4 iterations" in chart.note


def test_phases_that_overlap_are_told_apart_and_sum_up_to_the_workers_time(tmp_path: Path) -> None:
    def overlapping(worker: s.WorkerIteration) -> s.WorkerIteration:
        phases = s.PhaseSeconds(partition=0.02, exchange=0.03, join=0.04)
        return s.WorkerIteration(
            rank=worker.rank, seconds=0.08, phases_seconds=phases, overlap_seconds=0.01, join_overlap_seconds=0.005
        )

    chart = merge.phases_chart(one(tmp_path, Script(worker=overlapping)))
    assert rows_of(chart) == ["0 node0", "1 node0"]
    parts = [mark for _, mark in chart.marks if isinstance(mark, Boxes)]
    assert [part.end[0] - part.start[0] for part in parts] == pytest.approx((10, 10, 15, 40, 5))  # ms
    assert parts[-1].end[0] == pytest.approx(80)


def test_phases_that_add_up_to_more_than_the_wall_clock_time_say_so(tmp_path: Path) -> None:
    """The median of each part is that of another iteration."""
    parts = iter([(0.01, 0.04), (0.03, 0.01), (0.03, 0.04)] * 2)

    def changing(worker: s.WorkerIteration) -> s.WorkerIteration:
        partition, join = next(parts) if worker.rank == 0 else (0.01, 0.01)
        phases = s.PhaseSeconds(partition=partition, exchange=0.01, join=join)
        return s.WorkerIteration(rank=worker.rank, seconds=partition + 0.01 + join, phases_seconds=phases)

    chart = merge.phases_chart(
        one(tmp_path, Script(plan=plan(iterations=3), walls=[0.06, 0.05, 0.08], worker=changing))
    )
    last = max(end for _, mark in chart.marks if isinstance(mark, Boxes) for end in mark.end)
    assert chart.x.rule == pytest.approx(60)
    assert last > 60
    assert (chart.x.high or 0) > last
    assert "need not end at the median wall-clock time (dashed line)" in chart.note


def test_text_below_a_figure_breaks_sooner_beside_long_labels() -> None:
    def longest(label: str) -> int:
        chart = replace(
            bar_chart([(label, [Bar("a", 0, 1.0)])], title="x", axis="x", unit="s", note=""), source="word " * 60
        )
        below = [part.text for part in interactive.make_figure(chart).below if hasattr(part, "text")]
        return max(map(len, below[-1].split("\n")))

    assert longest("x" * 48) < longest("default") - 20


def test_the_level_of_an_interval_is_that_of_so_many_blocks() -> None:
    found = "interval (75 % from 3 blocks, 87.5 % from 4 blocks, 95 % or more from 6 or more blocks)"
    assert interval_levels_text([3, 4, 4, 12, 6, 1]) == found
    assert interval_levels_text([]) == "interval"


def test_the_map_of_pairs_has_lanes_and_bytes(tmp_path: Path) -> None:
    campaign = read_campaign(write_campaign(tmp_path, Script(plan=plan(4))))
    chart = merge.pair_rates_chart(campaign.runs[0], run_documents(summarize_campaign(campaign))[0].lanes)
    (_, cells), (_, texts) = chart.marks
    assert isinstance(cells, Cells)
    assert isinstance(texts, Texts)
    assert rows_of(chart) == ["0 node0", "1 node0", "2 node0", "3 node0"]
    assert (len(cells.values), cells.y[0], cells.x[0]) == (12, 0, 1)
    assert texts.texts == ["0.373"] * 12
    assert (texts.x, texts.y) == (cells.x, cells.y)
    assert cells.values[0] == pytest.approx(12e6 / 0.03 / GIB)
    assert {name: texts[0] for name, texts in cells.details.items()} == {
        "from": "0 node0",
        "to": "1 node0",
        "value": "0.3725 GiB/s",
        "lanes selected": "sysv/memory, tcp/lo",
        "placement": "same host",
        "sent in an iteration": "11.4 MiB",
    }


@pytest.mark.parametrize("workers", [2, 3])
def test_below_four_workers_there_is_no_map_of_pairs(workers: int, tmp_path: Path) -> None:
    campaign = read_campaign(write_campaign(tmp_path, Script(plan=plan(workers))))
    assert merge.pair_rates_chart(campaign.runs[0], run_documents(summarize_campaign(campaign))[0].lanes).empty


def map_of(rates: Mapping[tuple[int, int], float | None], host: str = "a") -> Chart:
    """The map of these GiB/s; `rates` name at least four ranks."""
    traffic = {pair: (GIB, None if value is None else 1 / value) for pair, value in rates.items()}
    return merge.pair_rates_map(traffic, {"lanes": {(0, 1): host}}, dict.fromkeys(range(100), host))


def test_a_map_begins_at_zero_and_prints_its_values() -> None:
    (_, cells), (_, texts) = map_of({(0, 1): 10.0, (1, 0): 9.5, (1, 2): None, (2, 3): 0.04}).marks
    assert isinstance(cells, Cells)
    assert isinstance(texts, Texts)
    assert cells.colour_limits == (0.0, 10.0)
    assert texts.texts == ["10.0", "9.5", "?", "0.0"]
    assert texts.light == [False, False, False, True]


def test_a_large_map_has_no_room_for_values() -> None:
    chart = map_of({(0, rank): 1.0 for rank in range(1, merge.MOST_PRINTED + 1)})
    assert [list(mark.texts) for _, mark in chart.marks if isinstance(mark, Texts)] == [[]]


def test_a_note_speaks_of_what_is_drawn(tmp_path: Path) -> None:
    def note(*scripts: Script) -> str:
        return merge.rates_chart(merge.THROUGHPUT, {"1e6": runs(tmp_path / str(len(scripts)), *scripts)}, {}).note

    assert note() == "Bars: median over launches."
    assert note(*launches(2)) == "Bars: median over launches; points: single launches."
    assert "; white bars: its 95 % interval; points" in note(*launches(6))


def test_phases_without_time_are_not_in_the_legend(tmp_path: Path) -> None:
    labels = [group.label for group in merge.phases_chart(one(tmp_path)).groups]
    assert labels == ["partition alone", "exchange alone", "join", "other"]


def test_workers_have_both_frames_with_a_point_a_launch(tmp_path: Path) -> None:
    chart = merge.worker_bandwidth_chart(one(tmp_path, *launches(2)))
    assert rows_of(chart) == ["0 node0", "1 node0"]
    assert [group.label for group in chart.groups] == ["left frame", "right frame"]
    found = bars_of(chart)
    assert found["0 node0", "left frame"] == pytest.approx(400e6 / GIB)
    assert found["0 node0", "right frame"] == pytest.approx(200e6 / GIB)
    points = chart.groups[0].marks[-1]
    assert isinstance(points, Points)
    assert points.details["of"][:2] == ("launch 0", "launch 1")


def test_dask_and_imported_runs_have_neither_workers_nor_pairs(tmp_path: Path) -> None:
    run = one(tmp_path, Script(plan=plan(exchange="dask")))
    assert merge.worker_bandwidth_chart(run).empty
    assert merge.phases_chart(run).empty
    assert merge.pair_rates_chart(run, []).empty
    assert not merge.iterations_chart([LabelledRun("dask", 0, run)]).empty


STRIP = Chart(
    Axis("Launch", {0: EVIL, 3: "3"}),
    Axis("GiB/s", low=0.0),
    (
        MarkGroup(0, (Points((0, 1), (1.0, 2.0), (False, True)), Whiskers((1.5,), (-0.4,), (0.4,), dotted=True)), EVIL),
        MarkGroup(1, (Points((3,), (1.0,)), Whiskers((1.0,), (2.6,), (3.4,), width=3)), "other"),
    ),
    title="Strip",
)


def step(
    decision: str, ratio: float | None = None, low: float | None = None, high: float | None = None
) -> s.TuningStepLine:
    """A step of a tuning whose names and reasons are no markup."""
    return s.TuningStepLine(
        phase="screen", config=EVIL, against="a", decision=decision, reason=EVIL, ratio=ratio, low=low, high=high
    )


FOREST = speed_up_forest_chart(
    {
        EVIL: [StepEstimate(EVIL, "kept", step("kept", 1.2, 1.1, 1.3)), StepEstimate("b", "failed", step("failed"))],
        "no": [],
    },
    title=f"Forest {EVIL}",
    axis="ratio",
    kinds=("kept", "dropped", "failed"),
    noise=step("noise", 1.0, 0.99, 1.01),
)
CHARTS: list[Chart] = [
    bar_chart(
        [
            (EVIL, [Bar(EVIL, 0, 1.0, (0.5, 1.5), (("launch 0", 0.9), ("launch 1", 1.1))), Bar("b", 1, None)]),
            ("second", [Bar("their", 8, 2.0, published=True)]),
        ],
        title="Bars $$",
        axis="GiB/s",
        unit="GiB/s",
        line=1.0,
        note=EVIL,
    ),
    STRIP,
    map_of({(0, 1): 1.0, (1, 0): 1.0, (2, 3): 1.0}, EVIL),
    map_of({(0, 1): 1.0, (1, 2): None, (2, 3): 1.0}),
    FOREST,
    speed_up_chart([step("kept", 1.2, 1.1, 1.3), step("failed"), step("dropped", 0.9)]),
    *make_panels(
        [
            latency(EVIL, 1),
            latency(EVIL, 2, as_requested=False),
            *(latency("b", size) for size in range(1, 100)),
        ]
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title.split()[0])
def test_both_libraries_draw_it_whatever_its_labels_are(chart: Chart, caplog: pytest.LogCaptureFixture) -> None:
    item = json_item(interactive.make_figure(chart))
    assert item["doc"]["roots"]
    assert not caplog.records  # Bokeh logs columns that are missing
    for form in ("png", "svg"):
        static.draw_image([chart], drawn := io.BytesIO(), form)
    assert ElementTree.fromstring(drawn.getvalue()).tag.endswith("svg")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title.split()[0])
def test_both_libraries_draw_the_same_axes_labels_and_marks(chart: Chart) -> None:
    page, figure = interactive.make_figure(chart), static.make_figure(chart)
    assert isinstance(figure, Figure)
    axes = figure.axes[0]
    assert len(page.renderers) == len(list(chart.marks))
    for name in ("x", "y"):
        axis, drawn = getattr(chart, name), getattr(axes, f"{name}axis")
        assert getattr(page, f"{name}axis")[0].axis_label == escape_for_canvas(axis.title)
        assert drawn.get_label_text() == mark_unprintable(axis.title)
        if axis.ticks is not None:
            overrides = getattr(page, f"{name}axis")[0].major_label_overrides
            assert overrides == {at: escape_for_canvas(shorten_middle(label)) for at, label in axis.ticks.items()}
            assert set(drawn.get_majorticklocs()) <= {float(at) for at in axis.ticks}
        if axis.high is not None:
            limits = getattr(page, f"{name}_range")
            assert (limits.start, limits.end) == pytest.approx((axis.low, axis.high))
            assert getattr(axes, f"get_{name}lim")() == pytest.approx((axis.low, axis.high))
    labels = [group.label for group in chart.groups if group.label]
    assert [item.name for legend in page.legend for item in legend.items] == labels
    assert len(figure.legends[0].get_texts()) == len(labels)


def test_every_bar_lies_within_the_axis_of_rows() -> None:
    """Rows of many bars are named at their middle, and the last of them reaches far below its name."""
    many = [Bar(f"series {number}", number, 1.0) for number in range(6)]
    chart = bar_chart([("first", many), ("second", many)], title="Bars", axis="GiB/s", unit="GiB/s", note="")
    places = [at for _, mark in chart.marks if isinstance(mark, Boxes) for at in mark.at]
    assert len(places) == 12
    assert chart.y.high is not None
    assert chart.y.low is not None
    assert chart.y.high < min(places) - 0.4
    assert max(places) + 0.4 < chart.y.low


def test_a_figure_shows_another_picture_and_sends_only_what_changed() -> None:
    drawn = interactive.BokehChart(map_of({(0, 1): 1.0, (2, 3): 2.0}))
    source = drawn.figure.renderers[0].data_source
    lanes = source.data["lanes"]
    drawn.show_chart(map_of({(0, 1): 1.0, (2, 3): 3.0}))
    assert source.data["lanes"] is lanes
    assert list(source.data["values"]) == [1.0, 3.0]
    assert drawn.figure.right[0].color_mapper.high == 3.0
    assert drawn.figure.extra_y_ranges["scale"].end == 3.0
    drawn.show_chart(map_of({(0, 1): 1.0, (2, 3): 3.0, (3, 4): 5.0}))
    assert list(source.data["value"]) == ["1 GiB/s", "3 GiB/s", "5 GiB/s"]
    assert drawn.figure.x_range.end == 4.5
    assert drawn.figure.xaxis[0].major_label_overrides == {rank: str(rank) for rank in range(5)}


def test_a_forest_says_on_both_sides_what_each_row_is() -> None:
    assert FOREST.y.ticks is not None
    assert list(FOREST.y.ticks.values()) == [EVIL.upper(), EVIL, "b"]
    assert dict(FOREST.y.beside) == {1: "1.200 (1.100 to 1.300)", 2: "not measured"}
    assert [group.label for group in FOREST.groups] == ["the baseline compared with itself", "kept", "failed"]


def test_a_figure_can_be_saved_later_with_any_labels(tmp_path: Path) -> None:
    static.make_figure(CHARTS[0]).savefig(tmp_path / "x.png")
    static.make_figure(map_of({(0, 1): 1.0, (2, 3): 1.0}, "$\\frac{")).savefig(tmp_path / "y.png")
