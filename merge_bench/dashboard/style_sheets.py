"""How the dashboard looks, in light and dark, in a browser and in JupyterLab, and what its page may do.

One set of CSS variables at the root reaches every component, shadow roots and canvases included (Bokeh reads
``--bk-…`` when it paints). They follow JupyterLab's theme or VS Code's where there is one, else the browser's wish.
"""

from __future__ import annotations

import secrets
from importlib import resources

from bokeh.document import Document

from merge_bench.dashboard import style_sheets


def _read_sheet(name: str) -> str:
    return (resources.files("merge_bench.dashboard") / "styles" / f"{name}.css").read_text(encoding="utf-8")


ROOT, TEXT, CARD, TABS, TABLE, JOB = map(_read_sheet, ("root", "text", "card", "tabs", "table", "job"))
PALETTE = _read_sheet("palette")
"""Colours: in a browser the whole page has this sheet, in a notebook the dashboard in it."""
PAGE = _read_sheet("palette") + _read_sheet("page")
"""The sheet of a page that this program serves; in a notebook, JupyterLab owns the page."""
WHOLE_TABLE = _read_sheet("whole_table")
"""The sheet of a table, beside `TABLE`, that is as high as the rows that it shows at a time."""
CONTROLS = _read_sheet("controls")
"""The sheet of buttons, lists and fields: the browser's own arrow, and hints that can be read, light and dark."""


_TEMPLATE = (resources.files("merge_bench.dashboard") / "templates" / "page.html.j2").read_text(encoding="utf-8")


def set_policy(document: Document) -> None:
    """Give the page of `document` its policy, with a new random nonce."""
    document.template_variables.update(nonce=secrets.token_urlsafe(18), css=style_sheets.PAGE)
    document.template = _TEMPLATE  # type: ignore[assignment]  # Text extends the usual page.
