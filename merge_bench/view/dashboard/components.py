"""Pieces of the view: cards with fixed heights, headings that explain their words, tables. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.annotations import Legend
from bokeh.models.widgets import NumberFormatter

from merge_bench.view.dashboard import style_sheets
from merge_bench.view.plot.interactive import figure_of
from merge_bench.view.plot.marks import Chart
from merge_bench.view.report.definitions import definitions, find
from merge_bench.view.report.layout import Column
from merge_bench.view.text import as_html, for_canvas, short, visible

WIDE = "stretch_width"


def meaning(word: str) -> str:
    """The definition of `word`, a term of the table of definitions or a heading that it explains."""
    place = find(word)
    if place is None:
        raise KeyError(word)
    return definitions()[place].text.strip()


def defined(word: str, term: str | None = None) -> str:
    """`word` as HTML, with its definition for a pointer that rests on it, and for a keyboard that reaches it."""
    text = escape(meaning(term or word))
    return (
        f'<span class="def" tabindex="0" aria-label="{escape(word)}: {text}">{escape(word)}'
        f'<span class="tip" aria-hidden="true">{text}</span></span>'
    )


def html(content: str = "", **options: Any) -> pn.widgets.StaticText:
    """HTML that this package made; callers pass data through `as_html` first.

    Not `pn.pane.HTML`, which with each new content sends its style sheets again, in a notebook as addresses elsewhere.
    """
    return pn.widgets.StaticText(
        value=content, stylesheets=[style_sheets.TEXT], **{"sizing_mode": WIDE, "margin": (4, 6)} | options
    )


def heading(title: str, terms: Sequence[str] = (), level: int = 2) -> str:
    """A heading, and behind it the words that stand below it, each with its definition."""
    words = " · ".join(defined(term) for term in terms)
    return f"<h{level}>{escape(title)}{f' <small>{words}</small>' if words else ''}</h{level}>"


def card(title: str, terms: Sequence[str], *body: Any, height: int, width: int = 560) -> pn.Column:
    """A framed part of a tab, with a fixed height so that nothing below it moves; at least `width` pixels wide."""
    return pn.Column(
        html(heading(title, terms), height=24, margin=(0, 0, 4, 0), styles={"z-index": "5"}),
        *body,
        height=height,
        sizing_mode=WIDE,
        margin=5,
        styles={"flex": f"1 1 {width}px", "min-width": "300px"},  # styles, because a row adds up its parts' widths
        stylesheets=[style_sheets.CARD],
    )


def cards(*found: Any) -> pn.Row:
    """Cards side by side as far as there is room."""
    return side_by_side(*found, sizing_mode=WIDE, margin=0)


def complaints(problems: Iterable[str]) -> str:
    """What went wrong, as HTML."""
    return "".join(f'<p class="bad">{as_html(each)}</p>' for each in problems)


def side_by_side(*found: Any, **options: Any) -> pn.Row:
    """Parts in a row that goes on below where the window ends."""
    return pn.Row(*found, styles={"flex-wrap": "wrap", "align-items": "flex-end"}, **options)


def select(label: str, options: Any, **settings: Any) -> pn.widgets.Select:
    """A list to choose from."""
    return pn.widgets.Select(label=label, options=options, stylesheets=[style_sheets.FIELD], **settings)


def figure_pane(figure: Any, **options: Any) -> pn.pane.Bokeh:
    """A figure as a part of a card. Its colours come from the style sheet."""
    return pn.pane.Bokeh(figure, **{"sizing_mode": WIDE, "margin": 0} | options)


def chart_card(chart: Chart, words: Sequence[str] = ()) -> pn.Column:
    """A chart as a card, as high as it needs; `words`: terms that its title does not hold."""
    figure = figure_of(chart)
    figure.title = None
    height = int(figure.frame_height or 300) + 85 + 26 * sum(_lines(legend) for legend in figure.legend)
    figure.update(frame_height=None, height=height)
    words = [*words, chart.title.partition(":")[0], *(word.strip(":,").capitalize() for word in chart.title.split())]
    terms = [word for word in dict.fromkeys(words) if find(word) is not None]
    found = card(for_canvas(chart.title), terms, figure_pane(figure), height=height + 50)
    found.styles = {"flex": "none"}
    return found


def _lines(legend: Legend) -> int:
    columns = legend.ncols if isinstance(legend.ncols, int) else 1
    return -(-len(legend.items) // columns)


def table(frame: pd.DataFrame, *, height: int, terms: Mapping[str, str] | None = None, **options: Any) -> Any:
    """A table of plain text and numbers, sortable by a click on its header.

    Headers explain themselves where the definitions hold their words; `terms`: where they hold others for a column.
    """
    known = {str(column): str(column) for column in frame.columns if find(str(column)) is not None} | dict(terms or {})
    tips = {column: meaning(term) for column, term in known.items()}
    texts = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    formats: dict[str, Any] = {
        str(column): NumberFormatter(format="0,0" if pd.api.types.is_integer_dtype(kind) else "0,0.000", nan_format="")
        for column, kind in frame.dtypes.items()
    }
    formats |= {column: {"type": "plaintext"} for column in texts}
    settings = {
        "show_index": False, "disabled": True, "theme": "simple", "layout": "fit_data_stretch", "height": height,
        "sizing_mode": WIDE, "margin": 0, "stylesheets": [style_sheets.TABLE], "header_tooltips": tips,
        "selectable": False,
        "configuration": {"columnDefaults": {"sorterParams": {"alignEmptyValues": "bottom"}}},
        "formatters": formats, "text_align": dict.fromkeys(texts, "left"),
    }  # fmt: skip
    return pn.widgets.Tabulator(frame, **settings | options)


def frame_of(
    columns: Mapping[str, Sequence[Any]], *, numbers: Sequence[str], whole: Sequence[str] = ()
) -> pd.DataFrame:
    """A data frame whose columns have the same kinds with rows and without; `whole`: columns of whole numbers.

    What is in results is data, and made visible.
    """
    kinds = {name: float if name in numbers else int if name in whole else object for name in columns}
    cells = {name: [visible(x) if isinstance(x, str) else x for x in values] for name, values in columns.items()}
    return pd.DataFrame(cells).astype(kinds)


def listed(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """A small table as HTML; cells are HTML already."""
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    cells[:0] = ["".join(f'<th scope="col">{cell}</th>' for cell in header)] if header else []
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def columns_of(columns: Sequence[Column]) -> str:
    """Columns of a report as HTML, those left out that are empty; headings explain themselves where they can."""
    kept = [column for column in columns if any(column.cells)]
    heads = [column.heading.replace("\n", " ") for column in kept]
    rows = zip(*(map(as_html, column.cells) for column in kept), strict=True)
    return listed(list(rows), [as_html(head) if find(head) is None else defined(head) for head in heads])


def number(name: str, value: str, term: str | None = None) -> str:
    """A number with its name above it."""
    whole, brief = as_html(value), as_html(short(value, 32))
    return f'<span class="number">{defined(name, term)}<b title="{whole}">{brief}</b></span>'
