"""The report as one HTML file that opens from a disk and asks the network for nothing.

Whatever comes from records is data: every value is escaped, characters that print nothing are made visible, and the
page's own policy (CSP) lets no script run but the page's two, and nothing be loaded.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from importlib import resources
from typing import Any

from bokeh.embed import json_item
from bokeh.resources import Resources
from jinja2 import Environment, FunctionLoader
from markupsafe import Markup, escape

from merge_bench.view.content import FOLDED, Report, Table
from merge_bench.view.definitions import definitions, find
from merge_bench.view.numbers import thin
from merge_bench.view.plot.interactive import figure_of
from merge_bench.view.plot.marks import Chart
from merge_bench.view.text import cut, short, unbroken, visible

LONG = 24
"""Rows in view; more of them scroll."""
MOST = 2000
"""Rows in the report at all."""
_TEMPLATES = resources.files("merge_bench.report.page") / "templates"
NOT_DRAWN = "This figure could not be drawn"
_STYLES = {"bold red": "bad", "red": "bad", "bold yellow": "warn", "yellow": "warn", "green": "good"}
_STYLES |= {"bold green": "good", "bold": "strong", "dim": "note", "": ""}


def render(report: Report) -> str:
    """The page."""
    items: dict[str, Any] = {}
    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, finalize=_visible, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "code": _code,
        "style": lambda name: _STYLES.get(name, ""),
        "cut": cut,
        "unbroken": lambda text: Markup(unbroken(str(escape(visible(text))))),
        "short": short,
        "defined": find,
        "name_and_unit": _name_and_unit,
    }
    environment.tests |= {"of_kind": lambda block, kind: type(block).__name__ == kind}
    environment.globals.update(view=view_of, plot=lambda chart: _plot(chart, items))
    nonce = secrets.token_urlsafe(16)
    body = environment.get_template("body.html.j2").render(report=report, definitions=definitions())
    return environment.get_template("page.html.j2").render(
        title=f"{report.title}: merge_bench report",
        nonce=nonce,
        body=Markup(body),
        css=Markup(_read("report.css")),
        bokeh=Markup(_bokeh()) if items else "",
        plots=Markup(_for_script(items)),
        script=Markup(_read("report.js")),
    )


@dataclass(frozen=True)
class View:
    """A table's rows as they are shown; `folded`: what stands on them while closed; `note`: what was left out."""

    rows: tuple[tuple[str, ...], ...]
    scrolls: bool
    folded: str | None
    note: str | None


def view_of(table: Table) -> View:
    """How `table` is shown: in view, scrolling, folded, or thinned."""
    rows = table.rows
    kept = thin(len(rows), MOST)
    note = f"{len(kept)} of {len(rows)} rows, evenly chosen; all are in the records."
    return View(
        rows=tuple(tuple(cut(cell) for cell in rows[at]) for at in kept),
        scrolls=LONG < len(kept) <= FOLDED,
        folded=f"{len(kept):,} rows" if len(kept) > FOLDED else None,
        note=note if len(kept) < len(rows) else None,
    )


def _name_and_unit(heading: str) -> tuple[str, str]:
    """What a column's heading names, and the unit that it ends with, if any."""
    text = " ".join(heading.split())
    name, bracket, unit = text.rpartition(" (")
    return (name, unit.removesuffix(")")) if bracket and unit.endswith(")") else (text, "")


def _read(name: str) -> str:
    """A template or another file among the package's data."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _plot(chart: Chart, items: dict[str, Any]) -> tuple[str | None, str]:
    """Where a drawing stands (None: it could not be made), and its note."""
    name = f"plot-{len(items) + 1}"
    try:
        items[name] = json_item(figure_of(chart, note=False))
    except Exception as problem:  # a drawing must not cost the tables
        return None, f"{NOT_DRAWN}: {problem}"
    return name, chart.note


def _bokeh() -> str:
    """Bokeh's core alone: no widgets, tables, WebGL or mathematics."""
    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def _for_script(value: object) -> str:
    """`value` as JSON that cannot end the element that it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _visible(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _code(text: str) -> Markup:
    """`text` with its line ends."""
    return Markup("\n".join(unbroken(str(escape(visible(line)))) for line in text.split("\n")))
