"""Every drawing of a report as PNG and SVG, for papers and slides."""

from __future__ import annotations

import re
from pathlib import Path

from merge_bench.view.plot.draw import draw
from merge_bench.view.report.blocks import Drawing
from merge_bench.view.report.full.build import Report

FORMS = ("png", "svg")


def write_figures(report: Report, folder: Path) -> tuple[dict[int, str], list[str]]:
    """Draw into `folder`; gives the path of each PNG by the drawing's number, from 1, and what went wrong."""
    drawings = [block for section in report.sections for block in section.blocks if isinstance(block, Drawing)]
    found: dict[int, str] = {}
    problems: list[str] = []
    for number, drawing in enumerate(drawings, 1):
        path = folder / f"figure-{number:02d}-{_slug(drawing.chart.title)}"
        try:
            for form in FORMS:
                draw([drawing.chart], path.with_name(f"{path.name}.{form}"))
            found[number] = str(path.with_name(f"{path.name}.png"))
        except Exception as problem:  # a drawing must not cost the others, nor the report
            problems.append(f"{path.name}: {problem}")
    return found, problems


def _slug(title: str) -> str:
    """A file's name, of plain letters only."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48] or "drawing"
