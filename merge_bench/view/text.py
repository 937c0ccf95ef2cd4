"""Texts from records, which are data: made visible, shortened, and escaped for whatever shows them."""

from __future__ import annotations

from html import escape

LETTERS = 600
"""Of a cell."""


def visible(text: str) -> str:
    """`text` with every character that prints nothing, or steers a terminal, made visible."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def for_canvas(text: str) -> str:
    """`text` for a canvas, where Bokeh would take ``$$`` for mathematics."""
    return visible(text).replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")


def as_html(text: object) -> str:
    """`text` as HTML that says just that: what is in results and logs is data, never markup nor mathematics."""
    return escape(visible(str(text)), quote=True).replace("$", "&#36;").replace("\\", "&#92;")


def short(text: str, letters: int = 48) -> str:
    """`text`, or its beginning and its end if it is long."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - letters // 3 - 1]}…{text[-(letters // 3) :]}"


def cut(text: str, letters: int = LETTERS) -> str:
    """`text`, or its beginning with its length."""
    return text if len(text) <= letters else f"{text[:letters]}… ({len(text):,} characters; all are in the records)"


def plural(count: int, what: str, many: str = "s") -> str:
    """``1 launch``, ``2 launches``."""
    return f"{count} {what}{'' if count == 1 else many}"
