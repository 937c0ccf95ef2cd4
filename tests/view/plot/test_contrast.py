"""What is drawn, and what is written, can be seen on a light page and on a dark one (WCAG 2.2: 1.4.3 and 1.4.11)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from bokeh.core.property.vectorization import Value
from bokeh.palettes import Cividis256

import merge_bench
from merge_bench.units import GIB
from merge_bench.view.plot import (
    GREY,
    GRID,
    LEGEND,
    NEUTRAL,
    Axis,
    BandMark,
    BoxMarks,
    Chart,
    HeatMapCells,
    LineMark,
    Mark,
    MarkGroup,
    PointMarks,
    TextMarks,
    WhiskerMarks,
    style_of_series,
)
from merge_bench.view.plot.interactive import BokehChart
from merge_bench.view.plot.merge import pair_rates_heat_map

LEAST_OF_MARKS, LEAST_OF_TEXTS = 3.0, 4.5
_PACKAGE = Path(merge_bench.__file__).parent
_DASHBOARD, _REPORT = _PACKAGE / "dashboard/styles/palette.css", _PACKAGE / "report/page/templates/report.css"
Colour = tuple[float, ...]


def rgb(text: str) -> Colour:
    assert re.fullmatch("#[0-9A-Fa-f]{6}", text), text
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def contrast(one: Colour, other: Colour) -> float:
    """The contrast of two opaque colours, from 1 to 21."""

    def luminance(colour: Colour) -> float:
        parts = [part / 255 for part in colour]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    less, more = sorted(luminance(colour) + 0.05 for colour in (one, other))
    return more / less


def over(colour: Colour, ground: Colour, opacity: float) -> Colour:
    return tuple(opacity * top + (1 - opacity) * below for top, below in zip(colour, ground, strict=True))


def themes(sheet: Path) -> list[dict[str, str]]:
    """The colours that a style sheet gives to names, in light and in dark; those of light stay where dark is silent."""
    blocks = re.findall(r":root[^{}]*\{([^{}]*)\}", sheet.read_text())
    light, dark, *others = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert others in ([], [dark])  # the dark that was chosen, and that of the system
    return [light, light | dark]


GROUNDS = [rgb(theme["own-back"]) for theme in themes(_DASHBOARD)] + [rgb(theme["ground"]) for theme in themes(_REPORT)]
X, UP = (1.0, 2.0), (2.0, 3.0)
DRAWN: Mapping[str, Mark] = {
    "points": PointMarks(X, UP),
    "hollow points": PointMarks(X, UP, hollow=(True, True)),
    "white points": PointMarks(X, UP, white=True),
    "line": LineMark(X, UP),
    "edge of a band": BandMark(X, X, UP).edge_lines[0],
    "whiskers": WhiskerMarks(X, X, UP),
    "bars": BoxMarks(X, X, UP),
    "upright bars": BoxMarks(X, X, UP, upright=True),
    "hatched bars": BoxMarks(X, X, UP, hatched=True),
    "white bars": BoxMarks(X, X, UP, white=True),
    "pale bars": BoxMarks(X, X, UP, fill=0.25),
}


def painted(mark: Mark, index: int) -> Iterator[tuple[str, Colour, float]]:
    """What a figure paints for a mark, lines and areas, with their colours and opacities."""
    chart = Chart(Axis(), Axis(), (MarkGroup(index, (mark,)),))
    for renderer in BokehChart(chart).figure.renderers:
        for part in ("line", "fill"):
            colour: Any = getattr(renderer.glyph, f"{part}_color", None)
            if isinstance(colour, str) and colour != "fill":  # which is a column
                colour = "#ffffff" if colour == "white" else colour
                yield part, rgb(colour), float(getattr(renderer.glyph, f"{part}_alpha"))


@pytest.mark.parametrize("kind", DRAWN)
def test_every_mark_has_a_line_that_is_seen_on_a_light_and_on_a_dark_page(kind: str) -> None:
    for index in range(GREY, 7):
        lines = [(colour, opacity) for part, colour, opacity in painted(DRAWN[kind], index) if part == "line"]
        assert lines
        for ground in GROUNDS:
            least = max(contrast(over(colour, ground, opacity), ground) for colour, opacity in lines)
            assert least >= LEAST_OF_MARKS, (kind, style_of_series(index).colour, ground)


@pytest.mark.parametrize("kind", ["points", "bars", "upright bars"])
def test_areas_of_bars_and_points_are_seen_on_every_page_and_white_is_seen_on_them(kind: str) -> None:
    for index in range(GREY, 7):
        ((_, colour, opacity),) = [paint for paint in painted(DRAWN[kind], index) if paint[0] == "fill"]
        for ground in GROUNDS:
            area = over(colour, ground, opacity)
            assert min(contrast(area, ground), contrast(area, rgb("#ffffff"))) >= LEAST_OF_MARKS, style_of_series(
                index
            ).colour


def test_lines_without_a_series_are_seen_on_every_page() -> None:
    assert min(contrast(rgb(NEUTRAL), ground) for ground in GROUNDS) >= LEAST_OF_MARKS
    assert contrast(rgb(LEGEND), rgb("#ffffff")) >= LEAST_OF_TEXTS  # it is for pages without a style sheet


def test_numbers_in_a_map_are_read_on_every_colour_of_its_scale() -> None:
    pairs = [(sender, receiver) for sender in range(16) for receiver in range(16) if sender != receiver]
    traffic: dict[tuple[int, int], tuple[float, float | None]] = {
        pair: ((number + 1) * GIB, 1.0) for number, pair in enumerate(pairs)
    }
    chart = pair_rates_heat_map(traffic | {(0, 1): (1.0, None)}, {}, {})
    ((_, cells), (_, texts)) = chart.marks_with_groups
    assert isinstance(cells, HeatMapCells)
    assert isinstance(texts, TextMarks)
    assert {True, False} == set(texts.light)
    _, high = cells.colour_scale_limits
    for value, light in zip(cells.values, texts.light, strict=True):
        ground = GRID if math.isnan(value) else Cividis256[min(int(256 * value / high), 255)]
        assert contrast(rgb("#ffffff" if light else "#000000"), rgb(ground)) >= LEAST_OF_TEXTS, value
    (fill,) = [r.glyph.fill_color for r in BokehChart(chart).figure.renderers if hasattr(r.glyph, "fill_color")]
    assert fill.transform.nan_color == GRID
    assert not isinstance(fill, Value)


@pytest.mark.parametrize(
    ("sheet", "grounds", "texts", "lines"),
    [
        (
            _DASHBOARD,
            ("own-back", "own-soft"),
            ("own-text", "mb-accent", "mb-bad", "mb-good", "mb-warn"),
            ("own-axis",),
        ),
        (_REPORT, ("ground", "raised"), ("text", "quiet", "link", "good", "warn", "bad"), ()),
    ],
    ids=["dashboard", "report"],
)
def test_colours_of_a_page_are_read_on_its_grounds(
    sheet: Path, grounds: Sequence[str], texts: Sequence[str], lines: Sequence[str]
) -> None:
    for theme in themes(sheet):
        drawn = [name for name in theme if name.startswith("bk-") and name.endswith(("text-color", "axis-line-color"))]
        for ground in (rgb(theme[name]) for name in grounds):
            assert min(contrast(rgb(theme[name]), ground) for name in (*texts, *drawn)) >= LEAST_OF_TEXTS
            assert min((contrast(rgb(theme[name]), ground) for name in lines), default=21.0) >= LEAST_OF_MARKS
