"""The page about a command: its figures, charts and launches, and nothing of merges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from merge_bench.view import markdown
from merge_bench.view.content import ChartBlock, ReportContent
from tests.helpers.command_campaigns import WALL, command_plan, interleaved_runs, write_commands
from tests.view.command_samples import OF_MERGES, WALLS, one_config, one_failed, two_configs
from tests.view.html_report.samples import report_of, text_of
from tests.view.html_report.samples import two_configs as two_merges


def charts_of(report: ReportContent) -> list[str]:
    """The titles of its drawings."""
    blocks = (block for section in report.sections for block in section.blocks)
    return [block.chart.title for block in blocks if isinstance(block, ChartBlock)]


def test_the_page_of_one_config_begins_with_its_values(tmp_path: Path) -> None:
    report = report_of(one_config(tmp_path))
    assert report.title == "base: ./bench -n 2"
    assert (report.state, report.alarm) == ("busbw 13.50 GB/s, wall 1,350 ms", False)
    assert report.verified == "Verified: every launch that counts ended as expected and passed its checks"
    assert [section.title for section in report.sections if not section.nested] == [
        "Conclusion",
        "Results",
        "Every run",
        "How to repeat the measurement",
        "Environment",
    ]
    assert charts_of(report) == ["busbw of every launch, in their order", "wall of every launch, in their order"]


def test_the_page_of_two_configs_begins_with_the_verdict(tmp_path: Path) -> None:
    report = report_of(two_configs(tmp_path))
    assert report.title == "base and tuned: ./bench -n 2"
    assert report.state == "FASTER: tuned against base, 1.200 × as fast in busbw"
    assert charts_of(report) == [
        "busbw of every launch, in their order",
        "Speed-up in busbw over the baseline",
        "busbw, more is better",
        "wall, less is better",
        "wall of every launch, in their order",
    ]


def test_a_failed_launch_is_an_alarm_with_its_reason(tmp_path: Path) -> None:
    report = report_of(one_failed(tmp_path))
    assert (report.state, report.alarm) == ("Incomplete: the command ended with status 1", True)
    page = text_of(one_failed(tmp_path / "page"))
    assert any("(launch 7, tuned, node0)" in text for text in page.texts("p"))


@pytest.mark.parametrize("make", [one_config, two_configs, one_failed], ids=lambda make: make.__name__)
def test_nothing_of_merges_is_on_the_page(tmp_path: Path, make: Any) -> None:
    folder = make(tmp_path)
    text, _, definitions = markdown.render_report(report_of(folder), {}).partition("## Definitions")
    said = text.replace("\\_", "_").replace(str(folder), "").replace("merge_bench", "")
    assert [line for line in said.splitlines() if OF_MERGES.search(line)] == []
    terms = re.findall(r"^\* \*\*(.*?)\*\*", definitions, re.MULTILINE)
    assert {"Metric", "Launch", "Verdict"} <= set(terms)
    assert {"Throughput", "Bandwidth", "Worker", "Link limit", "Limited by"}.isdisjoint(terms)


def test_two_results_of_a_command_are_compared(tmp_path: Path) -> None:
    page = text_of(one_config(tmp_path), one_config(tmp_path))
    assert not any("the records do not describe" in text for text in page.texts("p"))
    assert ["A: base", "13.50", "10.00–17.00", "1,350", "1,000–1,700", "8"] in page.table("Medians over launches")


def test_a_command_beside_merges_has_tables_of_its_own(tmp_path: Path) -> None:
    page = text_of(two_merges(tmp_path), one_config(tmp_path))
    assert page.table("Medians over launches")[1][0] == "B: base"
    assert page.table("All 2 runs")[1][0] == "A: default"
    assert any("have no common metric" in text for text in page.texts("p"))


def test_results_of_two_commands_have_charts_of_their_own(tmp_path: Path) -> None:
    one = write_commands(tmp_path, interleaved_runs({"base": WALLS}), plan=command_plan(8, (WALL,)))
    report = report_of(one_config(tmp_path), one)
    walls = [title for title in charts_of(report) if title.startswith("wall of every launch, in their order: ./bench")]
    assert len(walls) == 2
