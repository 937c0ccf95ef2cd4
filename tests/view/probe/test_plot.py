"""Drawings: rows become the right points, pictures hold them, pages hold all they need, and names are data."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from merge_bench.errors import UsageError
from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
from merge_bench.probe.view.charts import make_panels
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.records.reader import read_campaign
from merge_bench.view import plot
from merge_bench.view.plot import Band, Chart, Line, Points, Whiskers
from merge_bench.view.plot.draw import check_plot_files, draw_file
from tests.helpers.runs import ROOT
from tests.probe.samples import EVIL, collective, latency, ping_pong, published, rate


def drawing(rows: list[ProbeRow], folder: Path, extension: str) -> bytes:
    path = folder / f"drawing.{extension}"
    check_plot_files([str(path)])
    draw_file(make_panels(rows), path)
    return path.read_bytes()


def points_of(panel: Chart) -> list[tuple[float, ...]]:
    """The x of the points of every series."""
    return [tuple(mark.x) for _, mark in panel.marks if isinstance(mark, Points)]


class Page(HTMLParser):
    """What a page loads, and how many scripts it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href", "data", "action")]


def test_latency_and_bandwidth_are_two_panels_with_units() -> None:
    first, second = make_panels([latency(size=8), rate(size=8), latency(size=16)])
    assert (first.title, first.y.title, first.x.title) == (
        "Latency, one way: tag_lat",
        "Latency, one way (µs)",
        "Message size (B)",
    )
    assert (second.title, second.y.title) == ("Bandwidth: tag_bw", "Bandwidth (MB/s, 1 MB = 10⁶ B)")
    assert first.x.log
    assert second.x.log


def test_points_are_medians_in_the_units_of_the_axis_by_size() -> None:
    first, second = make_panels([latency(size=16, micros=3.0), latency(size=8, micros=2.0), rate(size=8)])
    assert points_of(first) == [(8, 16)]
    line, bars, _ = first.groups[0].marks
    assert isinstance(line, Line)
    assert isinstance(bars, Whiskers)
    assert line.y == pytest.approx((2.0, 3.0))
    assert bars.start == pytest.approx((1.8, 2.7))
    assert bars.end == pytest.approx((2.2, 3.3))
    assert isinstance(second.groups[0].marks[0], Line)
    assert second.groups[0].marks[0].y == pytest.approx((500.0,))


def test_the_same_config_looks_the_same_in_every_panel() -> None:
    first, second = make_panels([latency("a"), latency("b"), rate("b"), rate("a")])
    looks = [{group.label: group.index for group in panel.groups} for panel in (first, second)]
    assert looks == [{"a": 0, "b": 1}] * 2


def test_labels_hold_what_tells_series_apart_and_no_more() -> None:
    def labels(*rows: ProbeRow) -> list[str]:
        return [group.label for panel in make_panels(rows) for group in panel.groups]

    assert labels(latency("a"), latency("b")) == ["a", "b"]
    assert labels(latency("a"), latency("a", placement="two-hosts")) == ["a, one host", "a, two hosts"]
    assert labels(latency("a"), latency("a", ranks=(1, 2))) == ["a, 0→1", "a, 1→2"]
    assert labels(latency("a", ranks=(0,)), latency("a", ranks=(1,))) == ["a, 0", "a, 1"]
    assert labels(latency("a"), latency("a", test="ucp_am_lat")) == ["a, tag", "a, ucp_am"]
    assert labels(latency("a"), published("b")) == ["a", "b (published: a report)"]


def test_a_point_on_other_transports_and_a_wrong_one_are_doubtful() -> None:
    (panel,) = make_panels([latency(size=8), latency(size=16, as_requested=False), latency(size=32, wrong=2)])
    points = panel.groups[0].marks[-1]
    assert isinstance(points, Points)
    assert points.hollow == [False, True, True]
    assert points.details["remark"][1:] == ["used other transports than requested", "2 wrong elements"]
    assert "hollow" in panel.note.lower()


def test_reduce_scatter_is_bus_bandwidth_over_count_with_the_extremes_of_ranks() -> None:
    (panel,) = make_panels([collective("mpi", 1024, 2.0), collective("mpi", 2048, 3.0)])
    assert panel.title == "Bus bandwidth: reduce-scatter (mpi)"
    assert panel.x.title == "Elements of the whole vector"
    assert "GB/s" in panel.y.title
    assert points_of(panel) == [(1024, 2048)]
    line, bars, _ = panel.groups[0].marks
    assert isinstance(line, Line)
    assert isinstance(bars, Whiskers)
    assert (bars.start[0], line.y[0], bars.end[0]) == pytest.approx((0.768, 1.536, 3.072))


def test_a_ping_pong_in_equal_steps_is_linear_with_a_panel_a_placement() -> None:
    rows = [
        ping_pong(test, 1024 * size, 4.0, placement)
        for placement in ("one-host", "two-hosts")
        for test in ("std", "buff")
        for size in range(1, 20)
    ]
    panels = make_panels([*rows, ping_pong("std", 1, 0.5)])  # the delay does not count
    assert [panel.x.log for panel in panels] == [False, False]
    assert [panel.title for panel in panels] == ["Throughput, one host: std, buff", "Throughput, two hosts: std, buff"]
    assert [group.label for group in panels[0].groups] == ["default, std", "default, buff"]


def test_a_ping_pong_in_doublings_is_logarithmic() -> None:
    (panel,) = make_panels([ping_pong("std", 1 << power, 4.0) for power in range(10)])
    assert panel.x.log


def test_a_title_names_the_tests_that_are_drawn_and_a_note_the_others() -> None:
    """The delays of `probe mpi` have a time and no throughput."""
    campaign = read_campaign(ROOT / "tests" / "data" / "campaigns" / "mpi")
    (panel,) = make_panels(sorted_campaign_rows(campaign))
    assert panel.title == "Throughput: std, buff"
    assert [group.label for group in panel.groups] == ["default, std", "default, buff"]
    assert panel.note.endswith("Not drawn, because they have no throughput: std-delay, buff-delay.")


def test_bars_of_several_series_stand_side_by_side_on_both_sides_of_their_size() -> None:
    """Those of the recorded reduce-scatter would hide each other. What a pointer shows is the size itself."""
    (panel,) = make_panels(
        sorted_campaign_rows(read_campaign(ROOT / "tests" / "data" / "campaigns" / "reduce-scatter"))
    )
    first, second = [next(mark for mark in group.marks if isinstance(mark, Whiskers)).at for group in panel.groups]
    for left, count, right in zip(first, (16, 1024), second, strict=True):
        assert left < count < right
        assert right / left == pytest.approx(64**0.012)
    (points, _) = [mark for _, mark in panel.marks if isinstance(mark, Points)]
    assert points.x == pytest.approx(first)
    assert points.details["elements"] == ["16", "1,024 (1 Ki)"]


def test_bars_of_near_sizes_do_not_reach_the_next_size() -> None:
    rows = [latency(name, size) for name in "abcdefgh" for size in (1000, 1001, 4 << 20)]
    (panel,) = make_panels(rows)
    drawn = [mark.at for _, mark in panel.marks if isinstance(mark, Whiskers)]
    assert max(at[0] for at in drawn) < min(at[1] for at in drawn)


def test_rows_without_a_value_are_left_out() -> None:
    (panel,) = make_panels([latency(size=8), latency(size=16, seconds_median=None)])
    assert points_of(panel) == [(8,)]
    assert make_panels([latency(seconds_median=None)]) == ()


@pytest.mark.parametrize(
    ("count", "label"), [(1, "1"), (32, "32"), (1024, "1 KiB"), (1536, "1.5 KiB"), (4 << 20, "4 MiB")]
)
def test_ticks_are_labelled_with_binary_sizes(count: int, label: str) -> None:
    assert plot.tick_label(count) == label


def test_ticks_of_sizes_are_powers_of_two_and_few() -> None:
    ticks = plot.size_ticks(1, 4 << 20, log=True, most=12)
    assert len(ticks) <= 12
    assert (ticks[0], ticks[-1]) == (1, 4 << 20)
    assert {b // a for a, b in itertools.pairwise(ticks)} == {4}
    assert plot.size_ticks(1024, 1000 << 10, log=False, most=12) == [step * (128 << 10) for step in range(9)]
    assert plot.size_ticks(8, 8, log=True, most=12) == [8]


@pytest.mark.parametrize(("low", "high"), [(5.1, 5.9), (0.25, 1600), (1, 10), (3e-5, 3e-5)])
def test_ticks_of_values_enclose_them(low: float, high: float) -> None:
    ticks = plot.logarithmic_ticks(low, high)
    assert ticks[0] <= low
    assert high <= ticks[-1]


def test_values_of_less_than_a_decade_have_several_ticks() -> None:
    assert plot.logarithmic_ticks(1.8, 9.0) == [1, 2, 3, 4, 5, 6, 8, 10]


def test_looks_differ_in_colour_and_marker_and_repeat_late() -> None:
    looks = [plot.look_of_series(index) for index in range(56)]
    assert len({(one.colour, one.marker) for one in looks}) == 56
    assert all(a.colour != b.colour and a.marker != b.marker for a, b in itertools.pairwise(looks))


def points(svg: bytes, name: str) -> int:
    """How many corners the line called `name` has."""
    root = ElementTree.fromstring(svg)
    (group,) = [node for node in root.iter() if node.get("id") == name]
    path = next(node for node in group.iter() if node.tag.endswith("path"))
    return len(re.findall(r"[ML]", str(path.get("d"))))


def test_an_svg_holds_the_points_of_every_series(tmp_path: Path) -> None:
    rows = [latency("a", 1 << power, 2.0 + power) for power in range(9)] + [latency("b", 8), latency("b", 16, 3.0)]
    svg = drawing([*rows, *(rate("b", 1 << power) for power in range(5))], tmp_path, "svg")
    assert points(svg, "panel-0-series-0") == 9
    assert points(svg, "panel-0-series-1") == 2
    assert points(svg, "panel-1-series-1") == 5


def test_an_svg_says_where_published_numbers_are_from_and_draws_them_dashed(tmp_path: Path) -> None:
    svg = drawing([latency("a", 8), latency("a", 16), published(size=8), published(size=16)], tmp_path, "svg").decode()
    dashed = svg[svg.index('id="panel-0-series-1"') :]
    assert "stroke-dasharray" in dashed[: dashed.index("</g>")]
    assert "stroke-dasharray" not in svg[svg.index('id="panel-0-series-0"') :].split("</g>")[0]
    assert "their cluster (published: a report)" in svg


def test_a_png_is_one(tmp_path: Path) -> None:
    assert drawing([latency()], tmp_path, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("extension", ["png", "svg", "html"])
def test_any_name_can_be_drawn(tmp_path: Path, extension: str) -> None:
    names = (EVIL, "_hidden", "a$b^c$", "x" * 300, "配置", "\x1b[1m")
    rows = [row for name in names for row in (latency(name, test=name + "_lat"), rate(name))]
    assert drawing(rows, tmp_path, extension)


def test_a_page_loads_nothing_from_anywhere(tmp_path: Path) -> None:
    import panel.models.tabulator  # noqa: F401  # with it, every page that Bokeh writes links scripts and styles

    page = Page(drawing([latency(), rate()], tmp_path, "html").decode())
    assert "script" in page.tags
    assert page.loaded == []


def test_names_on_a_page_are_never_markup(tmp_path: Path) -> None:
    plain = Page(drawing([latency(), rate()], tmp_path, "html").decode())
    evil = drawing([latency(EVIL, method=EVIL, protocol=EVIL), rate(EVIL)], tmp_path, "html").decode()
    assert Page(evil).tags == plain.tags
    assert "<script>alert" not in evil
    assert "<img" not in Page(evil).tags


def test_names_in_an_svg_are_never_markup(tmp_path: Path) -> None:
    root = ElementTree.fromstring(drawing([latency(EVIL)], tmp_path, "svg"))
    assert not [node for node in root.iter() if str(node.tag).endswith(("script", "img"))]


def test_hovering_tells_size_value_range_lanes_protocol_and_method() -> None:
    from merge_bench.view.plot import interactive

    (panel,) = make_panels([latency(size=2048, micros=2.0), latency(size=4096, micros=3.0)])
    plot = interactive.make_figure(panel)
    ((item,),) = [legend.items for legend in plot.legend]
    data = item.renderers[-1].data_source.data
    assert data["size"][0] == "2,048 B (2 KiB)"
    assert data["value"] == ["2 µs", "3 µs"]
    assert data["range"][0] == "1.8 to 2.2 µs over launches"
    assert (data["lanes"][0], data["protocol"][0], data["method"][0]) == ("sysv/memory", "eager", "ucx_perftest")
    told = {name for tool in plot.toolbar.tools if tool.__class__.__name__ == "HoverTool" for name, _ in tool.tooltips}
    assert {"series", "size", "value", "range", "lanes", "protocol", "method"} <= told


def test_a_click_hides_a_series_in_every_panel() -> None:
    from merge_bench.view.plot import interactive

    figures = [interactive.make_figure(panel) for panel in make_panels([latency(), rate()])]
    interactive.link_hidden_series(figures)
    first, second = (plot.legend[0].items[0].renderers for plot in figures)
    (callbacks,) = first[0].js_property_callbacks.values()
    assert {callback.args["other"] for callback in callbacks} == set(second)


def test_the_caption_says_which_points_are_medians_and_which_are_published() -> None:
    def said(*rows: ProbeRow) -> str:
        (panel,) = make_panels(rows)
        return panel.note

    assert said(latency()).startswith("Points: medians over launches; bars: minimum to maximum over launches.")
    assert said(published()) == "Points: as published."
    assert said(latency(), published()).startswith("Points: medians over launches, or as published; bars")


def test_many_points_get_a_band_and_few_get_bars() -> None:
    few, many = (make_panels([latency(size=size) for size in range(1, count + 1)])[0] for count in (10, 100))
    assert isinstance(few.groups[0].marks[1], Whiskers)
    assert "bars" in few.note
    assert "bands" not in few.note
    assert isinstance(many.groups[0].marks[1], Band)
    assert "bands" in many.note


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.html.gz"])
def test_a_name_that_says_no_form_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png, \.svg or \.html"):
        check_plot_files([name])
