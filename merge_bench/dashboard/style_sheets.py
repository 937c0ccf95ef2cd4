"""How the view looks, in light and dark, in a browser and in JupyterLab: style sheets and nothing else.

One set of CSS variables at the root reaches every component, shadow roots and canvases included (Bokeh reads
``--bk-…`` when it paints). They follow JupyterLab's theme or VS Code's where there is one, else the browser's wish.
"""

from __future__ import annotations

from importlib import resources


def _sheet(name: str) -> str:
    return (resources.files("merge_bench.dashboard") / "styles" / f"{name}.css").read_text(encoding="utf-8")


ROOT, TEXT, CARD, TABS, TABLE, JOB = map(_sheet, ("root", "text", "card", "tabs", "table", "job"))
PALETTE = _sheet("palette")
"""Colours; a served page has them, and of a notebook the view."""
PAGE = _sheet("palette") + _sheet("page")
"""Of a page served by this program; in a notebook, JupyterLab owns the page."""
WHOLE_TABLE = _sheet("whole_table")
"""Of a table, beside `TABLE`, that is as high as the rows of its page."""
CONTROLS = _sheet("controls")
"""Of buttons, lists and fields: the browser's own arrow, and hints that can be read, on both grounds."""
