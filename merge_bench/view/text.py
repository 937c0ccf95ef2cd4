"""Makes texts from records safe to show: visible, short, and escaped for the place that shows them."""

from __future__ import annotations

import re
from html import escape

from merge_bench.errors import visible as visible

LETTERS = 600
"""The number of characters of the longest text in a cell."""

_OPTION = re.compile(r"(?<![^\s(])--[a-z][a-z-]*(?: \d[\w.]*)?")


def for_canvas(text: str) -> str:
    """`text` to be drawn on a canvas, without ``$$`` and other marks of formulas, which Bokeh would typeset."""
    return visible(text).replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")


def as_html(text: object) -> str:
    """`text` as HTML, escaped: texts from results and logs are never markup or formulas."""
    return escape(visible(str(text)), quote=True).replace("$", "&#36;").replace("\\", "&#92;")


def unbroken(markup: str) -> str:
    """HTML in which no line breaks within an option and its number, such as ``--wait-for-quiet 5m``."""
    return _OPTION.sub(r'<span class="unbroken">\g<0></span>', markup)


def short(text: str, letters: int = 48) -> str:
    """`text`, or only its beginning and its end if it is long."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - letters // 3 - 1]}…{text[-(letters // 3) :]}"


def cut(text: str, letters: int = LETTERS) -> str:
    """`text`, or its beginning and its length if it is long."""
    return text if len(text) <= letters else f"{text[:letters]}… ({len(text):,} characters; all are in the records)"


def capitalized(text: str) -> str:
    """`text` with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def uncapitalized(text: str) -> str:
    """`text` with a small letter at its beginning."""
    return text[:1].lower() + text[1:]
