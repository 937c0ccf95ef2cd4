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
from merge_bench.errors import Caution
from merge_bench.view.content import Column
from merge_bench.view.plot import Chart
from merge_bench.view.plot.interactive import figure_of
from merge_bench.view.text import as_html, definitions, find_definition, for_canvas, mark_unprintable, short, unbroken

WIDE = "stretch_width"
_CARD_PIXELS = 600
"""The width of a chart's card, at least; two of them stand side by side in a usual window."""


@cache
def sheet(name: str) -> str:
    """A style sheet of `styles/`; how the dashboard looks, in light and dark, in a browser and in JupyterLab.

    One set of CSS variables at the root (``palette``, ``root``) reaches every component, shadow roots and canvases
    included (Bokeh reads ``--bk-…`` when it paints). They follow JupyterLab's theme or VS Code's where there is one,
    else the browser's wish. In a browser the whole page has the palette, in a notebook the dashboard in it.
    """
    return (resources.files("merge_bench.dashboard") / "styles" / f"{name}.css").read_text(encoding="utf-8")


def definition_of(word: str) -> str:
    """The definition of `word`, a term in the table of definitions, or a heading that the table explains."""
    place = find_definition(word)
    if place is None:
        raise KeyError(word)
    return definitions()[place].text.strip()


def with_tip(word: str, term: str | None = None) -> str:
    """`word` as HTML; its definition, or that of `term`, is shown under the pointer and on keyboard focus."""
    text = escape(definition_of(term or word))
    return (
        f'<span class="def" tabindex="0" aria-label="{escape(word)}: {text}">{escape(word)}'
        f'<span class="tip" aria-hidden="true">{text}</span></span>'
    )


def html(content: str = "", **options: Any) -> pn.widgets.StaticText:
    """HTML that this package made; callers pass data through `as_html` first.

    Not `pn.pane.HTML`, which with each new content sends its style sheets again, in a notebook as addresses elsewhere.
    """
    usual = {"stylesheets": [sheet("text")], "sizing_mode": WIDE, "margin": (4, 6)}
    return pn.widgets.StaticText(value=content, **usual | options)


def nothing_yet(what: str, command: str) -> str:
    """HTML that says that a folder has no `what` yet, such as a run, and which command makes one."""
    return (
        f"<p>This folder contains no {escape(what)} yet. Start one with "
        f"<code>python -m merge_bench {escape(command)}</code>; it appears here automatically.</p>"
    )


def heading(title: str, terms: Sequence[str] = ()) -> str:
    """HTML of a heading, followed by the terms used below it, each with its definition."""
    words = " · ".join(map(with_tip, terms))
    return f"<h2>{escape(title)}{f' <small>{words}</small>' if words else ''}</h2>"


def card(title: str, terms: Sequence[str], *body: Any, width: int | None = 560) -> pn.Column:
    """A framed part of a tab, at least `width` pixels wide; None: as wide as its row, which it has alone."""
    # Styles, because a row adds up its parts' widths.
    styles = {"flex": "none" if width is None else f"1 1 {width}px", "min-width": "300px"}
    head = html(heading(title, terms), min_height=24, margin=(0, 0, 4, 0), styles={"z-index": "5"})
    return pn.Column(head, *body, sizing_mode=WIDE, margin=5, styles=styles, stylesheets=[sheet("card")])


def cards(*parts: Any) -> pn.Row:
    return side_by_side(*parts, sizing_mode=WIDE, margin=0)


def side_by_side(*parts: Any, **options: Any) -> pn.Row:
    """Parts in a row, which wraps at the edge of the window."""
    return pn.Row(*parts, styles={"flex-wrap": "wrap", "align-items": "flex-end"}, **options)


def problem_lines(problems: Iterable[str]) -> str:
    """Sentences about what went wrong, as HTML, each in a line."""
    return "".join(f'<p class="bad">{as_html(each)}</p>' for each in problems)


def caution_line(caution: Caution, *, config: str = "") -> str:
    """A warning with its remedy, as HTML; `config`: the config that the warning is about."""
    remedy = f" → {unbroken(as_html(caution.remedy))}" if caution.remedy else ""
    about = f"{as_html(config)}: " if config else ""
    return f'<p>{about}<b class="bad">{as_html(caution.code)}</b>: {as_html(caution.message)}{remedy}</p>'


def select_several(label: str, options: Any, **settings: Any) -> pn.widgets.MultiSelect:
    return pn.widgets.MultiSelect(label=label, options=options, stylesheets=[sheet("controls")], **settings)


def select(label: str, options: Any, **settings: Any) -> pn.widgets.Select:
    return pn.widgets.Select(label=label, options=options, stylesheets=[sheet("controls")], **settings)


def radio_buttons(options: Sequence[str]) -> pn.widgets.RadioButtonGroup:
    return pn.widgets.RadioButtonGroup(options=list(options), value=options[0], stylesheets=[sheet("controls")])


def select_published(label: str, kind: str, width: int) -> pn.widgets.MultiSelect:
    """A list of the published datasets of a `kind`, of which several can be chosen."""
    offered = {data.title: name for name, data in published.datasets().items() if data.kind == kind}
    return select_several(label, offered, size=len(offered), width=width)


def change_options(widget: pn.widgets.Select, options: Mapping[str, str], default: str) -> None:
    """Change what can be chosen in a list; the choice stays if it is among `options`, else it becomes `default`."""
    if options != widget.options:
        kept = widget.value in options.values()
        widget.param.update(options=options, value=widget.value if kept else default)


def chart_card(chart: Chart, words: Sequence[str] = ()) -> pn.Column:
    """A chart as a card of the height that it needs; `words`: terms to define beside those in its title."""
    figure = figure_of(chart, note=False, pixels=_CARD_PIXELS - 20)
    figure.title = None
    note = " ".join(filter(None, (chart.note, "Click a legend entry to hide its series." if figure.legend else "")))
    words = [*words, chart.title.partition(":")[0], *(word.strip(":,").capitalize() for word in chart.title.split())]
    terms = [word for word in dict.fromkeys(words) if find_definition(word) is not None]
    drawn = pn.pane.Bokeh(figure, sizing_mode=WIDE, margin=0)
    return card(for_canvas(chart.title), terms, drawn, html(f"<p>{as_html(note)}</p>"), width=_CARD_PIXELS)


def table(
    frame: pd.DataFrame, *, height: int | None = None, terms: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """A table of plain text and numbers, sortable by a click on its header.

    A header shows the definition of its word under the pointer, if there is one; `terms`: of which term instead. A cell
    shows its whole text. The last column takes the room that is left; in a narrow window the table scrolls by itself.
    Not `fit_columns` with columns that are hidden there: they stay hidden when there is room again.
    """
    defined = {column: column for column in frame.columns if find_definition(column) is not None} | dict(terms or {})
    texts = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    formats: dict[str, Any] = {
        str(column): NumberFormatter(format=_number_format(frame[column]), nan_format="")
        for column, kind in frame.dtypes.items()
        if pd.api.types.is_numeric_dtype(kind)
    }
    formats |= {column: {"type": "plaintext"} for column in texts}
    looks = {"theme": "simple", "layout": "fit_data_stretch", "stylesheets": [sheet("table")], "margin": 0}
    settings = {
        **looks | {"show_index": False, "disabled": True, "selectable": False, "sizing_mode": WIDE, "height": height},
        "header_tooltips": {column: definition_of(term) for column, term in defined.items()},
        "configuration": {"columnDefaults": {"sorterParams": {"alignEmptyValues": "bottom"}, "tooltip": True}},
        "formatters": formats,
        "text_align": dict.fromkeys(texts, "left"),
    }
    return pn.widgets.Tabulator(frame, **settings | options)


def _number_format(numbers: pd.Series[Any]) -> str:
    """The format of a column: whole numbers as such, others with 3 to 9 decimals: two digits of the smallest."""
    if pd.api.types.is_integer_dtype(numbers.dtype):
        return "0,0"
    sizes = [abs(number) for number in numbers if number and math.isfinite(number)]
    return f"0,0.{'0' * min(max(3, 1 - math.floor(math.log10(min(sizes)))), 9)}" if sizes else "0,0.000"


def frame_of(
    columns: Mapping[str, Sequence[Any]], *, numbers: Sequence[str], whole: Sequence[str] = ()
) -> pd.DataFrame:
    """A data frame whose columns have the same types with rows and without; `whole`: columns of whole numbers.

    Texts come from results, so that unprintable characters in them are made visible.
    """
    kinds = {name: float if name in numbers else int if name in whole else object for name in columns}
    cells = {
        name: [mark_unprintable(x) if isinstance(x, str) else x for x in values] for name, values in columns.items()
    }
    return pd.DataFrame(cells).astype(kinds)


def row_table(rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    cells[:0] = ["".join(f'<th scope="col">{cell}</th>' for cell in header)] if header else []
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def column_table(columns: Sequence[Column]) -> str:
    """Columns of a report as HTML, without those that are empty; headings show their definitions, if any."""
    kept = [column for column in columns if any(column.cells)]
    heads = [column.heading.replace("\n", " ") for column in kept]
    rows = zip(*(map(as_html, column.cells) for column in kept), strict=True)
    return row_table(list(rows), [as_html(head) if find_definition(head) is None else with_tip(head) for head in heads])


def progress_line(share: float | None, *parts: str) -> str:
    """A line of `parts`, which are HTML; before them a bar and the share in %, if it is known."""
    if share is not None:
        parts = (f'<progress value="{share:.4f}" max="1" aria-label="Progress"></progress> {share:.0%}', *parts)
    return f"<p>{' · '.join(filter(None, parts))}</p>"


def log_box(text: str, label: str) -> str:
    """The end of a log as HTML, with its line breaks, in a box that scrolls."""
    lines = "\n".join(map(as_html, text.split("\n")))
    return f'<div class="scroll log" tabindex="0" role="log" aria-label="{label}"><pre>{lines}</pre></div>'


def tile(name: str, value: str, kind: str = "") -> str:
    """HTML of a value with its name above it; `kind`: its class, ``good`` or ``bad``."""
    shown = f'<b class="{kind}" title="{as_html(value)}">{as_html(short(value, 40))}</b>'
    return f'<span class="tile">{with_tip(name) if find_definition(name) else as_html(name)}{shown}</span>'
