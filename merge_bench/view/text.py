"""Numbers and texts as people read them: in the unit of their heading, visible, short, escaped for their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

from merge_bench.errors import mark_unprintable as mark_unprintable
from merge_bench.units import GIB, MIB

NULL = "-"
_FORMS = ((1000, ",.0f"), (1, ".2f"), (0.1, ".3f"), (0.001, ".4f"))
"""Formats of numbers: each for numbers from its first entry on."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti")
LETTERS = 600
"""The number of characters of the longest text in a cell."""

_UNIT = re.compile(r"\s*\((?:%|×|[KMG]?i?B(?:/s)?|[nµm]?s)\)$")
_OPTION = re.compile(r"(?<![^\s(])--[a-z][a-z-]*(?: \d[\w.]*)?")


def for_canvas(text: str) -> str:
    """`text` to be drawn on a canvas, without ``$$`` and other marks of formulas, which Bokeh would typeset."""
    return mark_unprintable(text).replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")


def as_html(text: object) -> str:
    """`text` as HTML, escaped: texts from results and logs are never markup or formulas."""
    return escape(mark_unprintable(str(text)), quote=True).replace("$", "&#36;").replace("\\", "&#92;")


def unbroken(markup: str) -> str:
    """HTML in which no line breaks within an option and its number, such as ``--wait-for-quiet 5m``."""
    return _OPTION.sub(r'<span class="unbroken">\g<0></span>', markup)


def short(text: str, letters: int = 48) -> str:
    if len(text) <= letters:
        return text
    return f"{text[: letters - letters // 3 - 1]}…{text[-(letters // 3) :]}"


def cut(text: str, letters: int = LETTERS) -> str:
    """`text`, or its beginning and its length if it is long."""
    return text if len(text) <= letters else f"{text[:letters]}… ({len(text):,} characters; all are in the records)"


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def number(value: float | None) -> str:
    """`value` with three digits or more and no exponent: ``1,234``, ``12.37``, ``0.371``, ``0.0123``."""
    if value is None:
        return NULL
    size = abs(value) or 1.0
    return format(value, next((form for least, form in _FORMS if size >= least), ".7f"))


def gib(value: float | None) -> str:
    return number(None if value is None else value / GIB)


def mib(value: float | None) -> str:
    return number(None if value is None else value / MIB)


def ms(value: float | None) -> str:
    return number(None if value is None else value * 1e3)


def rows(value: float | None) -> str:
    """A number of rows as text: ``25,000,000``."""
    return NULL if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """A ratio as text: ``1.083``, ``0.0123``, ``12.3``; with three decimals from 0.1 to 10."""
    if value is None:
        return NULL
    return f"{value:.3f}" if 0.1 <= value < 10 else f"{value:.3g}"


def ends(low: float | None = None, high: float | None = None) -> str:
    """The interval of a ratio as text: ``1.412 to 1.553``."""
    return NULL if low is None or high is None else f"{ratio(low)} to {ratio(high)}"


def with_interval(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """A ratio with its interval, if it has one: ``1.471 (1.412 to 1.553)``; `sign` follows the ratio."""
    if value is None:
        return "not measured"
    return f"{ratio(value)}{sign}" + (f" ({ends(low, high)})" if low is not None and high is not None else "")


def cell(value: object) -> str:
    """`value` as the text of a table's cell; ``-`` for None."""
    return NULL if value is None else str(value)


def binary(count: float, unit: str = "B") -> str:
    """`count` with a binary prefix: ``32`` → ``32 B``, ``1536`` → ``1.5 KiB``; with `unit` ``""``: ``16 Ki``."""
    step = 0
    while count >= 1024 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.4g} {_BINARY[step]}{unit}".strip()


def thin(count: int, most: int) -> Sequence[int]:
    """The indexes of the items to show of `count`: all, or `most` of them, evenly spread, with both ends."""
    if count <= most:
        return range(count)
    return [round(at * (count - 1) / max(most - 1, 1)) for at in range(most)]


@dataclass(frozen=True)
class Definition:
    """A term and its meaning; `headings`: further headings of columns and rows that it explains.

    `unit`: its unit in the records; `group`: its heading in docs/reference/definitions.md; `in_reports`: whether
    reports list it.
    """

    term: str
    text: str
    group: str
    headings: tuple[str, ...] = ()
    unit: str = ""
    in_reports: bool = True


@cache
def all_definitions() -> tuple[Definition, ...]:
    from importlib import resources

    import msgspec

    text = (resources.files("merge_bench.view") / "definitions.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=dict[str, tuple[Definition, ...]])["definition"]


@cache
def definitions() -> tuple[Definition, ...]:
    """The definitions that reports list, in the order in which they are read."""
    return tuple(definition for definition in all_definitions() if definition.in_reports)


def find_definition(heading: str) -> int | None:
    """The index, in `definitions`, of the one that explains the heading of a column or row; None if none does."""
    title = " ".join(heading.split())
    return _by_heading().get(title, _by_heading().get(_UNIT.sub("", title)))


@cache
def _by_heading() -> dict[str, int]:
    return {name: at for at, one in enumerate(definitions()) for name in (one.term, *one.headings)}
