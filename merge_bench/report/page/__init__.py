"""The report of results for looking at, keeping and sending: HTML in one file, Markdown, drawings; written here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.config.files import check_output_file, replace_file
from merge_bench.errors import RunFailed, UsageError, print_message, require_library
from merge_bench.records.campaign import Campaign
from merge_bench.records.writer import RECORDS

if TYPE_CHECKING:
    from merge_bench.view.content import ReportContent

REPORT = "report.html"
"""The report's name in the folder of its campaign."""

PICTURE_FORMATS = ("png", "svg")
"""The formats in which every drawing is written, for papers and slides."""


@dataclass(frozen=True)
class ReportPaths:
    """The paths to which a report is written: HTML page, Markdown, and a folder of figures; None: not requested."""

    page: Path
    markdown: Path | None
    figures: Path | None


def write_html_report(campaigns: Sequence[Campaign], path: Path | None) -> Path:
    """Write the report of campaigns as an HTML page, by default in the first campaign's folder; returns its path.

    Raises
    ------
    UsageError
        If the page cannot be written there.
    """
    output_paths = ReportPaths(path or campaigns[0].folder / REPORT, None, None)
    check_report_files(output_paths, campaigns)
    from merge_bench.report.page import html
    from merge_bench.report.page.build import PublishedReferences, build_report

    page = html.render_report(build_report(campaigns, PublishedReferences(), read_ucx_defaults(campaigns)))
    if problems := _write_text_file(output_paths.page, page):
        raise UsageError(f"cannot write the report: {problems[0]}")
    return output_paths.page


def refuse_repeated_campaigns(campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError if a campaign is named twice."""
    for number, campaign in enumerate(campaigns):
        if any(campaign.records.samefile(other.records) for other in campaigns[:number]):
            raise UsageError(f"{campaign.folder} is named twice; name each result once")


def check_report_files(output_paths: ReportPaths, campaigns: Sequence[Campaign]) -> None:
    """Raise UsageError if a file of the report cannot be written, or would replace records."""
    needed = [("the report", "bokeh")] + ([("--figures", "matplotlib")] if output_paths.figures else [])
    for what, library in needed:
        require_library(library, "dashboard", what)
    files = [("--output", output_paths.page)] + (
        [("--markdown", output_paths.markdown)] if output_paths.markdown else []
    )
    for option, path in files:
        check_output_file(option, path)
        taken = path.exists() and any(path.samefile(campaign.records) for campaign in campaigns)
        if taken or path.resolve().name == RECORDS:
            raise UsageError(f"{option} {path} is a records file, which is never overwritten; choose another file")
    if output_paths.markdown is not None and output_paths.markdown.resolve() == output_paths.page.resolve():
        raise UsageError(f"two options write to {output_paths.page}; choose different files")
    if output_paths.figures is not None:
        try:
            output_paths.figures.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"--figures: cannot create {output_paths.figures}: {error.strerror}") from error
        check_output_file("--figures", output_paths.figures / "figure-01.png")


def read_ucx_defaults(campaigns: Sequence[Campaign]) -> Mapping[str, str] | None:
    """Read the default of every UCX setting; None unless this machine has the UCX version of all campaigns."""
    from merge_bench.config.ucx_info import effective_settings, find_installed_ucx
    from merge_bench.view.titles import recorded_workers

    workers = (worker for campaign in campaigns for worker in recorded_workers(campaign.launches))
    versions = {worker.ucx.version for worker in workers if worker.ucx.config}
    if not versions:
        return None
    installed = find_installed_ucx()
    return effective_settings(installed, {}) if installed and versions == {installed.version} else None


def write_report(report: ReportContent, output_paths: ReportPaths) -> int:
    """Write the files of a report, and print why any could not be written; returns the exit status."""
    from merge_bench.report.page import html
    from merge_bench.view import markdown

    problems: list[str] = []
    pictures: Mapping[int, str] = {}
    if output_paths.figures is not None:
        pictures, problems = _write_chart_images(report, output_paths.figures)
        print_message(f"wrote {len(pictures)} figures to {output_paths.figures}")
    if output_paths.markdown is not None:
        folder = output_paths.markdown.resolve().parent
        linked = {number: os.path.relpath(Path(path).resolve(), folder) for number, path in pictures.items()}
        problems += _write_text_file(output_paths.markdown, markdown.render_report(report, linked))
    problems += _write_text_file(output_paths.page, html.render_report(report))
    for path in [output_paths.page, *([output_paths.markdown] if output_paths.markdown else [])]:
        if not any(problem.startswith(f"{path}: ") for problem in problems):
            print(path)
    for problem in problems:
        print_message(f"cannot write {problem}")
    return RunFailed.exit_status if problems else 0


def _write_chart_images(report: ReportContent, folder: Path) -> tuple[dict[int, str], list[str]]:
    """Write the charts of a report as PNG and SVG; returns the PNG paths by chart number, from 1, and failures."""
    from merge_bench.view.content import ChartBlock
    from merge_bench.view.plot.draw import draw_charts_into_file

    drawings = [block for section in report.sections for block in section.blocks if isinstance(block, ChartBlock)]
    pictures: dict[int, str] = {}
    problems: list[str] = []
    for number, drawing in enumerate(drawings, 1):
        words = re.sub(r"[^a-z0-9]+", "-", drawing.chart.title.lower()).strip("-")[:48] or "drawing"
        path = folder / f"figure-{number:02d}-{words}"
        try:
            for form in PICTURE_FORMATS:
                draw_charts_into_file([drawing.chart], path.with_name(f"{path.name}.{form}"))
            pictures[number] = str(path.with_name(f"{path.name}.png"))
        except Exception as problem:  # a drawing must not cost the others, nor the report
            problems.append(f"{path.name}: {problem}")
    return pictures, problems


def _write_text_file(path: Path, content: str) -> list[str]:
    try:
        with replace_file(path) as stream:
            stream.write(content.encode("utf-8", "replace"))
    except OSError as problem:
        return [f"{path}: {problem.strerror or problem}"]
    return []
