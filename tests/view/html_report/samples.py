"""Campaigns with numbers that can be worked out by hand, and what a page of them holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.records.reader import read_campaign
from merge_bench.report.page import html
from merge_bench.report.page.build import PublishedReferences, build_report
from merge_bench.view.content import ChartBlock, ReportContent
from tests.helpers.synthetic_campaigns import interleaved, write_campaign

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\x00‮ $x$ $$y$$ @{z} {{ 7*7 }}"
BASE = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]
SLOW = [2 * wall for wall in BASE]
GIB = 2**30
DATA = 64e6
"""Bytes that an iteration of two workers processes."""
VOID = frozenset(("meta", "br", "img", "link", "hr", "input"))


def two_configs(folder: Path, **plan: Any) -> Path:
    """`tcp` takes twice as long as `default`, in six blocks."""
    return write_campaign(folder, *interleaved({"default": BASE, "tcp": SLOW}, **plan))


def change(folder: Path, kind: str, **fields: Any) -> Path:
    """Give all lines of a kind these fields, by dotted names."""
    path = folder / "records.jsonl"
    lines = []
    for line in path.read_bytes().splitlines():
        record = msgspec.json.decode(line)
        if record["kind"] == kind:
            for name, value in fields.items():
                record[name] = value
        lines.append(msgspec.json.encode(record))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return folder


def add(folder: Path, **record: Any) -> Path:
    """One line more, before the end."""
    path = folder / "records.jsonl"
    *lines, end = path.read_bytes().splitlines()
    line = json.dumps({"schema": 1, "time": 1.0, **record}).encode()
    path.write_bytes(b"\n".join([*lines, line, end]) + b"\n")
    return folder


def report_of(*folders: Path, defaults: Mapping[str, str] | None = None, **references: Any) -> ReportContent:
    """The report as data."""
    return build_report([read_campaign(folder) for folder in folders], PublishedReferences(**references), defaults)


def page_of(*folders: Path) -> Page:
    """The page, parsed."""
    return Page(html.render_report(report_of(*folders)))


def text_of(*folders: Path) -> Page:
    """The page without its drawings, which take most of the time."""
    report = report_of(*folders)
    for section in report.sections:
        section.blocks = [block for block in section.blocks if not isinstance(block, ChartBlock)]
    return Page(html.render_report(report))


@dataclass
class Element:
    """A tag with its attributes and the text inside it."""

    tag: str
    attributes: dict[str, str]
    inside: list[str]
    text: str = ""
    children: list[Element] = field(default_factory=list)


class Page(HTMLParser):
    """The elements of a page in their order, each with the tags that it stands in, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(source)
        assert not self._open, [element.tag for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [each.tag for each in self._open])
        self.elements.append(element)
        if self._open:
            self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes {self._open[-1].tag}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of a tag with these attributes (``class_`` for ``class``)."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [e for e in self.elements if e.tag == tag and wanted.items() <= e.attributes.items()]

    def texts(self, tag: str) -> list[str]:
        """Their texts, without the room around them."""
        return [" ".join(element.text.split()) for element in self.all(tag)]

    def table(self, heading: str, number: int = 0) -> list[list[str]]:
        """The cells of a table after the first heading that starts so, headings first."""
        places = [at for at, e in enumerate(self.elements) if e.tag in ("h2", "h3") and _text(e).startswith(heading)]
        assert places, f"no heading {heading!r} in {self.texts('h2')} {self.texts('h3')}"
        tables = [element for element in self.elements[places[0] :] if element.tag == "table"]
        rows = [row for part in tables[number].children for row in part.children]
        return [[_text(cell) for cell in row.children] for row in rows]

    @property
    def plots(self) -> dict[str, Any]:
        """What Bokeh draws, by the element that it draws in."""
        (held,) = self.all("script", id="plots")
        found: dict[str, Any] = json.loads(held.text)
        return found


def _text(element: Element) -> str:
    return " ".join(element.text.split())
