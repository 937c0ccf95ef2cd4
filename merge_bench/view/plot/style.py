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
"""The colour of lines that belong to no series, on white and on black."""
LEGEND = "#6E7781"
"""The colour of a legend's letters, which ignore a page's style sheet: readable on white and on black."""
HEAT, HEAT_STATIC = "Cividis256", "cividis"
"""Palettes from dark blue to yellow, made for colour-blind people (Nuñez, Anderton & Renslow 2018)."""
GREY = -1
"""The number of the look of marks that belong to no series."""


@dataclass(frozen=True)
class Look:
    """A series' colour, and its marker: Matplotlib's name, Bokeh's name, and the character."""

    colour: str
    marker: str
    shape: str
    symbol: str


def look(index: int) -> Look:
    """The look of series number `index`: a colour and a marker, whose combination repeats after 56 series."""
    which = index % len(_MARKERS)
    return Look(_COLOURS[index % len(_COLOURS)], _MARKERS[which], _SHAPES[which], _SYMBOLS[which])


def tick_label(count: float, unit: str = "B") -> str:
    """`count` with a binary prefix, and the unit only if there is one: ``1``, ``32``, ``1 KiB``."""
    return f"{count:.4g}" if count < 1024 else binary(count, unit)


def size_ticks(low: float, high: float, *, log: bool, most: int) -> list[int]:
    """At most `most` ticks of an axis of sizes: powers of two, or without `log` multiples of a power of two from 0."""
    if log:
        first, last = max(int(low), 1).bit_length() - 1, max(int(high) - 1, 1).bit_length()
        return [1 << power for power in range(first, last + 1, thinning_step(last - first + 1, most))]
    step = 1
    while high / step > most - 1:
        step *= 2
    return list(range(0, int(high) + step, step))


def value_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis that enclose `low` to `high`: powers of ten, and steps between if these are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 3, 4, 5, 6, 8) if high / low < 10 else (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


def thinning_step(count: int, most: int) -> int:
    """The step at which items are taken, so that at most `most` of `count` are left."""
    return max(-(-count // most), 1)


def bar_height_pixels(bars: int) -> int:
    """The height of each bar in pixels, by the number of bars."""
    return 22 if bars <= 16 else 14 if bars <= 48 else 9
