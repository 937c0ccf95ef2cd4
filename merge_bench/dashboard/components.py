"""Parts of the dashboard: cards, headings that explain their terms, tables. All text is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.widgets import NumberFormatter

from merge_bench.analysis import published
from merge_bench.errors import WarningMessage
from merge_bench.view.content import Column
from merge_bench.view.plot import Chart
from merge_bench.view.plot.interactive import make_bokeh_figure
from merge_bench.view.text import (
    as_html,
    escape_for_canvas,
    find_definition_index,
    keep_cli_options_unbroken,
    mark_unprintable,
    report_definitions,
    shorten_middle,
)

WIDE = "stretch_width"
_CARD_PIXELS = 600
"""The width of a chart's card, at least; two of them stand side by side in a usual window."""


@cache
def style_sheet(name: str) -> str:
    """Return the CSS of the style sheet `name` in `styles/`, for light and dark, a browser and JupyterLab.

    One set of CSS variables at the root (``palette``, ``root``) reaches every component, shadow roots and canvases
    included (Bokeh reads ``--bk-…`` when it paints). They follow JupyterLab's theme or VS Code's where there is one,
    else the browser's wish. In a browser the whole page has the palette, in a notebook the dashboard in it.
    """
    return (resources.files("merge_bench.dashboard") / "styles" / f"{name}.css").read_text(encoding="utf-8")


def definition_text(word: str) -> str:
    """The definition of `word`, a term in the table of definitions, or a heading that the table explains."""
    place = find_definition_index(word)
    if place is None:
        raise KeyError(word)
    return report_definitions()[place].text.strip()


def word_with_definition_html(word: str, term: str | None = None) -> str:
    """`word` as HTML; its definition, or that of `term`, is shown under the pointer and on keyboard focus."""
    text = escape(definition_text(term or word))
    return (
        f'<span class="def" tabindex="0" aria-label="{escape(word)}: {text}">{escape(word)}'
        f'<span class="tip" aria-hidden="true">{text}</span></span>'
    )


def make_html_widget(content: str = "", **options: Any) -> pn.widgets.StaticText:
    """Make a widget that shows HTML; callers pass data through `as_html` first.

    Not `pn.pane.HTML`, which with each new content sends its style sheets again, in a notebook as addresses elsewhere.
    """
    usual = {"stylesheets": [style_sheet("text")], "sizing_mode": WIDE, "margin": (4, 6)}
    return pn.widgets.StaticText(value=content, **usual | options)


def empty_state_html(missing_thing: str, command: str) -> str:
    """HTML for an empty folder: that it has no `missing_thing`, such as a run, and the command that makes one."""
    return (
        f"<p>This folder contains no {escape(missing_thing)} yet. Start one with "
        f"<code>python -m merge_bench {escape(command)}</code>; it appears here automatically.</p>"
    )


def heading_html(title: str, terms: Sequence[str] = ()) -> str:
    """HTML of a heading, followed by the terms used below it, each with its definition."""
    words = " · ".join(map(word_with_definition_html, terms))
    return f"<h2>{escape(title)}{f' <small>{words}</small>' if words else ''}</h2>"


def make_card(title: str, terms: Sequence[str], *body: Any, width: int | None = 560) -> pn.Column:
    """Make a framed part of a tab: a heading with the definitions of `terms`, and the parts `body` below.

    `width`: the least width in pixels; None: as wide as its row, which has no other card.
    """
    # Styles, because a row adds up its parts' widths.
    styles = {"flex": "none" if width is None else f"1 1 {width}px", "min-width": "300px"}
    head = make_html_widget(heading_html(title, terms), min_height=24, margin=(0, 0, 4, 0), styles={"z-index": "5"})
    return pn.Column(head, *body, sizing_mode=WIDE, margin=5, styles=styles, stylesheets=[style_sheet("card")])


def make_card_row(*parts: Any) -> pn.Row:
    """Make a row of cards as wide as the page, which wraps at the edge of the window."""
    return make_wrapping_row(*parts, sizing_mode=WIDE, margin=0)


def make_wrapping_row(*parts: Any, **options: Any) -> pn.Row:
    """Put parts into a row, which wraps at the edge of the window."""
    return pn.Row(*parts, styles={"flex-wrap": "wrap", "align-items": "flex-end"}, **options)


def problems_html(problems: Iterable[str]) -> str:
    """HTML of sentences about what went wrong, each in a line."""
    return "".join(f'<p class="bad">{as_html(each)}</p>' for each in problems)


def warning_html(caution: WarningMessage, *, config: str = "") -> str:
    """HTML of a warning with its remedy; `config`: the config that the warning is about."""
    remedy = f" → {keep_cli_options_unbroken(as_html(caution.remedy))}" if caution.remedy else ""
    about = f"{as_html(config)}: " if config else ""
    return f'<p>{about}<b class="bad">{as_html(caution.code)}</b>: {as_html(caution.message)}{remedy}</p>'


def make_multi_select(label: str, options: Any, **settings: Any) -> pn.widgets.MultiSelect:
    return pn.widgets.MultiSelect(label=label, options=options, stylesheets=[style_sheet("controls")], **settings)


def make_select(label: str, options: Any, **settings: Any) -> pn.widgets.Select:
    return pn.widgets.Select(label=label, options=options, stylesheets=[style_sheet("controls")], **settings)


def make_radio_buttons(options: Sequence[str]) -> pn.widgets.RadioButtonGroup:
    return pn.widgets.RadioButtonGroup(options=list(options), value=options[0], stylesheets=[style_sheet("controls")])


def make_dataset_select(label: str, kind: str, width: int) -> pn.widgets.MultiSelect:
    """Make a list of the published datasets of a `kind`, of which several can be chosen."""
    offered = {data.title: name for name, data in published.datasets().items() if data.kind == kind}
    return make_multi_select(label, offered, size=len(offered), width=width)


def replace_select_options(widget: pn.widgets.Select, options: Mapping[str, str], default_value: str) -> None:
    """Replace the options of a list; the choice stays if it is among `options`, else it becomes `default_value`."""
    if options != widget.options:
        kept = widget.value in options.values()
        widget.param.update(options=options, value=widget.value if kept else default_value)


def make_chart_card(chart: Chart, further_terms: Sequence[str] = ()) -> pn.Column:
    """Make a card that shows a chart; `further_terms`: terms to define besides those in its title."""
    figure = make_bokeh_figure(chart, with_note=False, width_pixels=_CARD_PIXELS - 20)
    figure.title = None
    note = " ".join(filter(None, (chart.note, "Click a legend entry to hide its series." if figure.legend else "")))
    further_terms = [
        *further_terms,
        chart.title.partition(":")[0],
        *(word.strip(":,").capitalize() for word in chart.title.split()),
    ]
    terms = [word for word in dict.fromkeys(further_terms) if find_definition_index(word) is not None]
    drawn = pn.pane.Bokeh(figure, sizing_mode=WIDE, margin=0)
    return make_card(
        escape_for_canvas(chart.title), terms, drawn, make_html_widget(f"<p>{as_html(note)}</p>"), width=_CARD_PIXELS
    )


def make_table_widget(
    frame: pd.DataFrame, *, height: int | None = None, terms: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """Make a table of plain text and numbers, which a click on its header sorts.

    A header shows the definition of its word under the pointer, if there is one; `terms`: for some columns, the term
    whose definition is shown instead. A cell shows its whole text. The last column takes the room that is left; in a
    narrow window the table scrolls by itself. Not `fit_columns` with columns that are hidden there: they stay hidden
    when there is room again.
    """
    defined = {column: column for column in frame.columns if find_definition_index(column) is not None} | dict(
        terms or {}
    )
    texts = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    formats: dict[str, Any] = {
        str(column): NumberFormatter(format=_bokeh_number_format(frame[column]), nan_format="")
        for column, kind in frame.dtypes.items()
        if pd.api.types.is_numeric_dtype(kind)
    }
    formats |= {column: {"type": "plaintext"} for column in texts}
    looks = {"theme": "simple", "layout": "fit_data_stretch", "stylesheets": [style_sheet("table")], "margin": 0}
    settings = {
        **looks | {"show_index": False, "disabled": True, "selectable": False, "sizing_mode": WIDE, "height": height},
        "header_tooltips": {column: definition_text(term) for column, term in defined.items()},
        "configuration": {"columnDefaults": {"sorterParams": {"alignEmptyValues": "bottom"}, "tooltip": True}},
        "formatters": formats,
        "text_align": dict.fromkeys(texts, "left"),
    }
    return pn.widgets.Tabulator(frame, **settings | options)


def _bokeh_number_format(numbers: pd.Series[Any]) -> str:
    """Bokeh's format for `numbers`: none or 3 to 9 decimals, so that the smallest has two digits."""
    if pd.api.types.is_integer_dtype(numbers.dtype):
        return "0,0"
    sizes = [abs(number) for number in numbers if number and math.isfinite(number)]
    return f"0,0.{'0' * min(max(3, 1 - math.floor(math.log10(min(sizes)))), 9)}" if sizes else "0,0.000"


def make_data_frame(
    columns: Mapping[str, Sequence[Any]], *, float_columns: Sequence[str], integer_columns: Sequence[str] = ()
) -> pd.DataFrame:
    """Make a data frame whose column types do not depend on whether there are rows.

    `float_columns`, `integer_columns`: their names; other columns are objects. Texts come from results, so that
    unprintable characters in them are made visible.
    """
    kinds = {name: float if name in float_columns else int if name in integer_columns else object for name in columns}
    cells = {
        name: [mark_unprintable(x) if isinstance(x, str) else x for x in values] for name, values in columns.items()
    }
    return pd.DataFrame(cells).astype(kinds)


def html_table_from_rows(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """HTML of a table, from cells that are HTML already."""
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    cells[:0] = ["".join(f'<th scope="col">{cell}</th>' for cell in header)] if header else []
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def html_table_from_columns(columns: Sequence[Column]) -> str:
    """HTML of a table of the columns that are not empty; headings show their definitions, if any."""
    kept = [column for column in columns if any(column.cells)]
    heads = [column.heading.replace("\n", " ") for column in kept]
    rows = zip(*(map(as_html, column.cells) for column in kept), strict=True)
    return html_table_from_rows(
        list(rows),
        [as_html(head) if find_definition_index(head) is None else word_with_definition_html(head) for head in heads],
    )


def progress_bar_html(share: float | None, *parts: str) -> str:
    """HTML of a line: a progress bar and the share in % (if `share`, 0 to 1, is known), then `parts`, HTML already."""
    if share is not None:
        parts = (f'<progress value="{share:.4f}" max="1" aria-label="Progress"></progress> {share:.0%}', *parts)
    return f"<p>{' · '.join(filter(None, parts))}</p>"


def log_html(text: str, label: str) -> str:
    """HTML of a box that shows the text of a log and scrolls; `label`: its name for screen readers."""
    lines = "\n".join(map(as_html, text.split("\n")))
    return f'<div class="scroll log" tabindex="0" role="log" aria-label="{label}"><pre>{lines}</pre></div>'


def tile_html(name: str, value: str, css_class: str = "") -> str:
    """HTML of a value with its name above it; `css_class`: its CSS class, ``good``, ``bad`` or none."""
    shown = f'<b class="{css_class}" title="{as_html(value)}">{as_html(shorten_middle(value, 40))}</b>'
    title = word_with_definition_html(name) if find_definition_index(name) else as_html(name)
    return f'<span class="tile">{title}{shown}</span>'
