"""How drawings look, in one place: colours, markers, and the ticks of an axis of sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from merge_bench.view.numbers import binary

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
"""Okabe and Ito's palette, which colour-blind people can tell apart (https://jfly.uni-koeln.de/color/, 2008), without
its yellow, which is faint on white, and with grey for its black, which a dark page would hide."""
_MARKERS = "os^Dv*hP"
_SHAPES = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus")
_SYMBOLS = "●■▲◆▼★⬢✚"
GRID = "#DDDDDD"
NEUTRAL = "#888888"
"""Of lines that belong to no series, on white and on black."""
LEGEND = "#6E7781"
"""Of a legend's letters, which do not follow a page's style sheet: to be read on white and on black."""
HEAT, HEAT_STATIC = "Cividis256", "cividis"
"""From dark blue to yellow, made for colour-blind people (Nuñez, Anderton & Renslow 2018)."""
GREY = -1
"""The look of what belongs to no series."""


@dataclass(frozen=True)
class Look:
    """A series' colour, and its marker: Matplotlib's name, Bokeh's name, and the character."""

    colour: str
    marker: str
    shape: str
    symbol: str


def look(index: int) -> Look:
    """The look of series `index`; colour *and* marker differ, and 56 series go by before one comes back."""
    which = index % len(_MARKERS)
    return Look(_COLOURS[index % len(_COLOURS)], _MARKERS[which], _SHAPES[which], _SYMBOLS[which])


def tick_label(count: float, unit: str = "B") -> str:
    """`binary`, without the unit where there is no prefix: ``1``, ``32``, ``1 KiB``."""
    return f"{count:.4g}" if count < 1024 else binary(count, unit)


def size_ticks(low: float, high: float, *, log: bool, most: int) -> list[int]:
    """At most `most` ticks that are powers of two from `low` to `high`; not `log`: multiples of one, from 0."""
    if log:
        first, last = max(int(low), 1).bit_length() - 1, max(int(high) - 1, 1).bit_length()
        return [1 << power for power in range(first, last + 1, step_of(last - first + 1, most))]
    step = 1
    while high / step > most - 1:
        step *= 2
    return list(range(0, int(high) + step, step))


def value_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis that enclose `low` to `high`: decades, or more of each if there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 3, 4, 5, 6, 8) if high / low < 10 else (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


def step_of(count: int, most: int) -> int:
    """Every how many of `count` are labelled, where there is room for `most`."""
    return max(-(-count // most), 1)


def bar_height(bars: int) -> int:
    """Pixels of one of so many bars."""
    return 22 if bars <= 16 else 14 if bars <= 48 else 9
