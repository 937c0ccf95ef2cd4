"""The report as Markdown: the same tables, nothing of the records as markup."""

from __future__ import annotations

from pathlib import Path

from merge_bench.view import markdown
from merge_bench.view.content import FOLDED, ChartBlock
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.view.html_report.samples import EVIL, add, change, report_of, two_configs


def rows(written: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    after = written[written.index(heading) :].splitlines()
    first = next(at for at, line in enumerate(after) if line.startswith("|"))
    table = []
    for line in after[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return table


def test_the_tables_are_those_of_the_page(tmp_path: Path) -> None:
    written = markdown.render_report(report_of(two_configs(tmp_path)), {})
    assert rows(written, "### Throughput by problem")[2][:2] == ["1,000,000 rows per chunk", "0.478"]
    assert written.startswith("# default and tcp: 1,000,000 rows per chunk, 2 workers\n")
    assert "\n> **SLOWER: tcp against default" in written
    assert "\nVerified: " in written
    assert "\n```\nrun\n```\n" in written
    assert "![" not in written


def test_every_row_has_as_many_cells_as_its_heading(tmp_path: Path) -> None:
    written = markdown.render_report(report_of(two_configs(tmp_path)), {})
    widths: list[int] = []
    for line in written.splitlines():
        if line.startswith("|"):
            widths.append(line.replace("\\|", "").count("|"))
            assert widths[-1] == widths[0]
        else:
            widths = []


def test_pictures_are_linked_where_they_stand(tmp_path: Path) -> None:
    report = report_of(two_configs(tmp_path))
    drawings = [block for section in report.sections for block in section.blocks if isinstance(block, ChartBlock)]
    written = markdown.render_report(report, {number: f"f/{number}.png" for number in range(1, len(drawings) + 1)})
    linked = [line for line in written.splitlines() if line.startswith("![")]
    assert linked == [f"![{d.chart.title}](<f/{number}.png>)" for number, d in enumerate(drawings, 1)]


def test_unverified_numbers_are_marked_in_bold(tmp_path: Path) -> None:
    written = markdown.render_report(report_of(write_campaign(tmp_path, Script(plan=plan(verify="off")))), {})
    assert "> **UNVERIFIED: optimized**" in written
    assert rows(written, "### Totals")[2][-1] == "**UNVERIFIED**"


def test_hostile_names_are_no_markup(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    evil = f"{EVIL} | **b** `c` [d](e)"
    change(folder, "campaign", configs=[{"name": "optimized", "path": evil, "variables": {"UCX_TLS": "````\n# x"}}])
    add(folder, kind="warning", launch=0, code=evil, message=evil, remedy=evil)
    written = markdown.render_report(report_of(folder), {})
    outside = "".join(part for at, part in enumerate(written.split("\n`````\n")) if at % 2 == 0)
    assert "<script" not in outside.replace("\\<script", "")
    assert "\\*\\*b\\*\\* \\`c\\` \\[d\\](e)" in outside
    assert "\n# x" not in outside
    assert "\x1b" not in written


def test_a_long_table_is_folded(tmp_path: Path) -> None:
    long = Script(plan=plan(iterations=FOLDED + 1), walls=[0.1] * (FOLDED + 1))
    written = markdown.render_report(report_of(write_campaign(tmp_path, long)), {})
    assert f"<details><summary>{FOLDED + 1} rows</summary>\n\n|" in written
    assert written.count("<details>") == written.count("</details>") == 1
