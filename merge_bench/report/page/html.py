"""The report as one HTML file that opens from a disk and asks the network for nothing.

Whatever comes from records is data: every value is escaped, characters that print nothing are made visible, and the
page's own policy (CSP) lets no script run but the page's two, and nothing be loaded.
"""

from __future__ import annotations

import json
import secrets
from importlib import resources
from typing import Any

from bokeh.embed import json_item
from bokeh.resources import Resources
from jinja2 import Environment, FunctionLoader
from markupsafe import Markup, escape

from merge_bench.view.content import FOLDED, ReportContent, Table
from merge_bench.view.plot import Chart
from merge_bench.view.plot.interactive import make_bokeh_figure
from merge_bench.view.text import (
    evenly_spread_indexes,
    find_definition_index,
    keep_cli_options_unbroken,
    mark_unprintable,
    report_definitions,
    shorten_middle,
    truncate,
)

ROWS_IN_VIEW = 24
"""Rows of a table that stand in view; of more, the table scrolls."""
MOST_ROWS = 2000
"""Rows of a table in the report, at most."""
_TEMPLATES = resources.files("merge_bench.report.page") / "templates"
NOT_DRAWN = "This figure could not be drawn"
_STYLES = {"bold red": "bad", "red": "bad", "bold yellow": "warn", "yellow": "warn", "green": "good"}
_STYLES |= {"bold green": "good", "bold": "strong", "dim": "note", "": ""}


def render_report(report: ReportContent) -> str:
    """Render a report as an HTML page."""
    items: dict[str, Any] = {}
    environment = Environment(
        loader=FunctionLoader(_read_template),
        autoescape=True,
        finalize=_mark_unprintable_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _escape_code_lines,
        "style": lambda name: _STYLES.get(name, ""),
        "cut": truncate,
        "unbroken": lambda text: Markup(keep_cli_options_unbroken(str(escape(mark_unprintable(text))))),
        "short": shorten_middle,
        "defined": find_definition_index,
        "name_and_unit": _split_name_and_unit,
    }
    environment.tests |= {"of_kind": lambda block, kind: type(block).__name__ == kind}
    environment.globals.update(view=_table_template_values, plot=lambda chart: _add_bokeh_plot(chart, items))
    nonce = secrets.token_urlsafe(16)
    core = Resources(mode="inline", components=["bokeh"], log_level="warn")  # no widgets, tables, WebGL or mathematics
    body = environment.get_template("body.html.j2").render(report=report, definitions=report_definitions())
    return environment.get_template("page.html.j2").render(
        title=f"{report.title}: merge_bench report",
        nonce=nonce,
        body=Markup(body),
        css=Markup(_read_template("report.css")),
        bokeh=Markup("\n".join(core.js_raw)) if items else "",
        plots=Markup(_json_for_script(items)),
        script=Markup(_read_template("report.js")),
    )


def _table_template_values(table: Table) -> dict[str, Any]:
    """The values with which a template shows a table: rows, whether it scrolls or folds, and a note on omitted rows."""
    rows = table.rows
    kept = evenly_spread_indexes(len(rows), MOST_ROWS)
    note = f"{len(kept)} of {len(rows)} rows, evenly chosen; all are in the records."
    return {
        "rows": [[truncate(cell) for cell in rows[at]] for at in kept],
        "scrolls": ROWS_IN_VIEW < len(kept) <= FOLDED,
        "folded": f"{len(kept):,} rows" if len(kept) > FOLDED else None,
        "note": note if len(kept) < len(rows) else None,
    }


def _split_name_and_unit(heading: str) -> tuple[str, str]:
    """Split the heading of a column into its name and its unit, which is empty if there is none."""
    text = " ".join(heading.split())
    name, bracket, unit = text.rpartition(" (")
    return (name, unit.removesuffix(")")) if bracket and unit.endswith(")") else (text, "")


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _add_bokeh_plot(chart: Chart, plots_by_name: dict[str, Any]) -> tuple[str | None, str]:
    """Add a chart as a Bokeh plot to `plots_by_name`; returns its name and note, or None and why drawing failed."""
    name = f"plot-{len(plots_by_name) + 1}"
    try:
        plots_by_name[name] = json_item(make_bokeh_figure(chart, with_note=False))
    except Exception as problem:  # a drawing must not cost the tables
        return None, f"{NOT_DRAWN}: {problem}"
    return name, chart.note


def _json_for_script(value: object) -> str:
    """Encode a value as JSON that cannot end the script element around it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _mark_unprintable_text(value: object) -> object:
    """Return a text with its unprintable characters made visible; HTML and other values unchanged."""
    return mark_unprintable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _escape_code_lines(text: str) -> Markup:
    """Escape a text of several lines as HTML; unprintable characters are made visible, line ends are kept."""
    return Markup(
        "\n".join(keep_cli_options_unbroken(str(escape(mark_unprintable(line)))) for line in text.split("\n"))
    )
