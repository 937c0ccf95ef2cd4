"""Numbers and texts as people read them: in the unit of their heading, visible, short, escaped for their place."""

from __future__ import annotations

import os
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


def shorten_path(path: str) -> str:
    """Return a path, relative to the working directory if that is shorter; unprintable characters are made visible."""
    return mark_unprintable(min(path, os.path.relpath(path), key=len))


def escape_for_canvas(text: str) -> str:
    """Put spaces into ``$$`` and other marks of formulas, which Bokeh would typeset on a canvas."""
    return mark_unprintable(text).replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")


def as_html(text: object) -> str:
    """`text` as HTML, escaped: texts from results and logs are never markup or formulas."""
    return escape(mark_unprintable(str(text)), quote=True).replace("$", "&#36;").replace("\\", "&#92;")


def keep_cli_options_unbroken(markup: str) -> str:
    """Mark up HTML so that no line breaks within a command's option and its number, as in ``--wait-for-quiet 5m``."""
    return _OPTION.sub(r'<span class="unbroken">\g<0></span>', markup)


def shorten_middle(text: str, letters: int = 48) -> str:
    """Return `text`, or if it has more than `letters` characters, its beginning and end around ``…``."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - letters // 3 - 1]}…{text[-(letters // 3) :]}"


def truncate(text: str, letters: int = LETTERS) -> str:
    """Return `text`, or if it has more than `letters` characters, its beginning and its length."""
    return text if len(text) <= letters else f"{text[:letters]}… ({len(text):,} characters; all are in the records)"


def capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def uncapitalize(text: str) -> str:
    return text[:1].lower() + text[1:]


def format_number(value: float | None) -> str:
    """Format a number with three digits or more and no exponent: ``1,234``, ``12.37``, ``0.371``, ``0.0123``."""
    if value is None:
        return NULL
    size = abs(value) or 1.0
    return format(value, next((form for least, form in _FORMS if size >= least), ".7f"))


@dataclass(frozen=True)
class DisplayUnit:
    """The unit in which values of a metric are shown: its `name`, and the factor `scale` from the recorded unit to it.

    `any_size`: whether values may be tiny or huge, so that these have an exponent.
    """

    name: str
    scale: float = 1.0
    any_size: bool = True

    @classmethod
    def for_recorded_unit(cls, unit: str | None) -> DisplayUnit:
        """The unit in which to show values recorded in `unit`: GiB/s for B/s, ms for s, any other unit as it is."""
        return _SHOWN_UNITS.get(unit or "", cls(unit or ""))

    def format_value(self, value: float | None, *, with_unit: bool = False) -> str:
        """Format a value of the records in this unit: ``12.37``, or ``12.37 ms``; ``-`` for None."""
        if value is None:
            return NULL
        shown = value * self.scale
        plain = not self.any_size or not shown or 1e-6 <= abs(shown) < 1e12
        return f"{format_number(shown) if plain else f'{shown:.3g}'} {self.name if with_unit else ''}".rstrip()

    def metric_heading(self, metric: str, separator: str = " ") -> str:
        """The heading of values of a metric: ``wall (ms)``; `separator`: the text between metric and unit."""
        return f"{metric}{separator}({self.name})" if self.name else metric


_SHOWN_UNITS = {"B/s": DisplayUnit("GiB/s", 1 / GIB, any_size=False), "s": DisplayUnit("ms", 1e3, any_size=False)}


def format_gib(byte_count: float | None) -> str:
    """Format bytes, or bytes per second, as a number of GiB; ``-`` for None."""
    return format_number(None if byte_count is None else byte_count / GIB)


def format_mib(byte_count: float | None) -> str:
    """Format bytes as a number of MiB; ``-`` for None."""
    return format_number(None if byte_count is None else byte_count / MIB)


def format_ms(seconds: float | None) -> str:
    """Format seconds as a number of milliseconds; ``-`` for None."""
    return format_number(None if seconds is None else seconds * 1e3)


def format_row_count(row_count: float | None) -> str:
    """Format a number of rows: ``25,000,000``; ``-`` for None."""
    return NULL if row_count is None else f"{row_count:,.0f}"


def format_ratio(value: float | None) -> str:
    """Format a ratio, with three decimals from 0.1 to 10: ``1.083``, ``0.0123``, ``12.3``."""
    if value is None:
        return NULL
    return f"{value:.3f}" if 0.1 <= value < 10 else f"{value:.3g}"


def format_interval(low: float | None = None, high: float | None = None) -> str:
    """Format the interval of a ratio: ``1.412 to 1.553``; ``-`` if an end is not known."""
    return NULL if low is None or high is None else f"{format_ratio(low)} to {format_ratio(high)}"


def format_ratio_with_interval(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """Format a ratio with its interval, if it has one: ``1.471 (1.412 to 1.553)``; `sign` follows the ratio."""
    if value is None:
        return "not measured"
    return f"{format_ratio(value)}{sign}" + (
        f" ({format_interval(low, high)})" if low is not None and high is not None else ""
    )


def format_cell(value: object) -> str:
    """Format a value for the cell of a table: its text; ``-`` for None."""
    return NULL if value is None else str(value)


def format_with_binary_prefix(count: float, unit: str = "B") -> str:
    """Format a number with a binary prefix: ``32`` → ``32 B``, ``1536`` → ``1.5 KiB``."""
    step = 0
    while count >= 1024 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.4g} {_BINARY[step]}{unit}".strip()


def evenly_spread_indexes(item_count: int, most_indexes: int) -> Sequence[int]:
    """Choose indexes of `item_count` items: all, or `most_indexes` evenly spread ones, with the first and last."""
    if item_count <= most_indexes:
        return range(item_count)
    return [round(at * (item_count - 1) / max(most_indexes - 1, 1)) for at in range(most_indexes)]


@dataclass(frozen=True)
class TermDefinition:
    """A term and its meaning; `headings`: further headings of columns and rows that the definition explains.

    `unit`: the term's unit in the records; `group`: its heading in docs/reference/definitions.md; `in_reports`: whether
    reports list it; `of_merges`: whether it applies to merges only, so that reports about commands alone leave it out.
    """

    term: str
    text: str
    group: str
    headings: tuple[str, ...] = ()
    unit: str = ""
    in_reports: bool = True
    of_merges: bool = False


@cache
def load_definitions() -> tuple[TermDefinition, ...]:
    """Read all definitions of terms from ``definitions.toml``."""
    from importlib import resources

    import msgspec

    text = (resources.files("merge_bench.view") / "definitions.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=dict[str, tuple[TermDefinition, ...]])["definition"]


@cache
def report_definitions() -> tuple[TermDefinition, ...]:
    """The definitions of terms that reports list, in the order of ``definitions.toml``."""
    return tuple(definition for definition in load_definitions() if definition.in_reports)


def find_definition_index(heading: str) -> int | None:
    """The index in `report_definitions` of the definition that explains the heading of a column or row, or None."""
    title = " ".join(heading.split())
    return _definition_index_by_heading().get(title, _definition_index_by_heading().get(_UNIT.sub("", title)))


@cache
def _definition_index_by_heading() -> dict[str, int]:
    return {name: at for at, one in enumerate(report_definitions()) for name in (one.term, *one.headings)}
