"""The tables of results: medians and intervals by hand, what stands beside them, what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.analysis import published
from merge_bench.records.reader import read_campaign
from merge_bench.report.page.results import group_runs_by_problem, make_reported_runs
from merge_bench.view.content import ChartBlock, Paragraph, ReportContent, Section, Table
from merge_bench.view.plot import BoxMarks
from tests.helpers.charts import bars_of
from tests.helpers.synthetic_campaigns import Script, interleaved, plan, write_campaign
from tests.view.html_report.samples import BASE, DATA, GIB, SLOW, report_of, two_configs


def section(report: ReportContent, title: str) -> Section:
    return next(each for each in report.sections if each.title == title)


def tables(report: ReportContent, title: str) -> list[list[tuple[str, ...]]]:
    """Headings and rows of each table of a section."""
    found = [block for block in section(report, title).blocks if isinstance(block, Table)]
    return [[tuple(" ".join(c.heading.split()) for c in table.columns), *table.rows] for table in found]


def lines(report: ReportContent, title: str) -> list[str]:
    return [block.text for block in section(report, title).blocks if isinstance(block, Paragraph)]


def drawings(report: ReportContent, title: str) -> list[object]:
    return [block.chart for block in section(report, title).blocks if isinstance(block, ChartBlock)]


def test_throughput_has_a_row_a_problem_and_a_column_a_config(tmp_path: Path) -> None:
    throughput, _ = tables(report_of(two_configs(tmp_path)), "Results")
    assert throughput[0] == ("Problem", "default", "95 % interval", "tcp", "95 % interval")
    # The median over six launches of 64 MB ÷ wall lies between those of the third and the fourth.
    middle = (DATA / 0.12 + DATA / 0.13) / 2 / GIB
    ends = f"{DATA / 0.15 / GIB:.3f} to {DATA / 0.10 / GIB:.3f}"
    assert throughput[1][:3] == ("1,000,000 rows per chunk", f"{middle:.3f}", ends)
    assert throughput[1][3] == f"{middle / 2:.3f}"


def test_the_number_of_launches_is_said_once_where_it_is_the_same(tmp_path: Path) -> None:
    assert "Launches per config: 6." in lines(report_of(two_configs(tmp_path)), "Results")
    scripts = [*interleaved({"default": BASE, "tcp": SLOW})][:-1]
    throughput, _ = tables(report_of(write_campaign(tmp_path / "other", *scripts)), "Results")
    assert throughput[0][3::2] == ("Launches", "Launches")
    assert throughput[1][3::2] == ("6", "5")


def test_too_few_launches_have_no_interval_and_it_is_said(tmp_path: Path) -> None:
    report = report_of(write_campaign(tmp_path, *interleaved({"default": BASE[:5], "tcp": SLOW[:5]})))
    throughput, _ = tables(report, "Results")
    assert throughput[0] == ("Problem", "default", "tcp")
    assert "No 95 % interval for default, tcp: it needs at least 6 launches." in lines(report, "Results")


def test_bandwidth_is_the_harmonic_mean_over_the_workers(tmp_path: Path) -> None:
    _, bandwidth = tables(report_of(write_campaign(tmp_path / "a"), write_campaign(tmp_path / "b")), "Results")
    # 8 MB and 4 MB in 20 ms each: (400 + 200) ÷ 2 MB/s
    assert bandwidth[1][1] == f"{300e6 / GIB:.3f}"


def test_problems_are_named_by_what_differs(tmp_path: Path) -> None:
    plans = [plan(), plan(4), plan(rows_per_chunk=25_000_000)]
    scripts = [Script(index=at, plan_index=at, plan=each) for at, each in enumerate(plans)]
    sources = make_reported_runs([read_campaign(write_campaign(tmp_path, *scripts))])
    assert list(group_runs_by_problem(sources)) == [
        "1,000,000 rows per chunk, 2 workers",
        "1,000,000 rows per chunk, 4 workers",
        "25,000,000 rows per chunk, 2 workers",
    ]


def test_real_tables_have_no_chunk_size(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(rows_per_chunk=None)))
    assert list(group_runs_by_problem(make_reported_runs([read_campaign(folder)]))) == ["the tables"]


def test_many_configs_are_rows(tmp_path: Path) -> None:
    names = {f"c{number}": [0.1, 0.1] for number in range(7)}
    throughput, _ = tables(report_of(write_campaign(tmp_path, *interleaved(names))), "Results")
    assert throughput[0] == ("Config", "1,000,000 rows per chunk")
    assert [row[0] for row in throughput[1:]] == list(names)


def test_configs_of_several_campaigns_are_told_apart(tmp_path: Path) -> None:
    report = report_of(two_configs(tmp_path / "a"), two_configs(tmp_path / "b"))
    throughput, _ = tables(report, "Results")
    assert throughput[0][1::2] == ("A: default", "A: tcp", "B: default", "B: tcp")
    (strip,) = [chart for chart in drawings(report, "Results") if chart.x.title == "Launch"]
    assert strip.x.ticks is not None
    assert list(strip.x.ticks.values())[11:13] == ["A 11", "B 0"]
    assert len(strip.x.ticks) == 24


def test_published_tables_stand_beside_with_their_source_and_corrections(tmp_path: Path) -> None:
    merges = tuple(published.merge_results("gadi-v100"))
    report = report_of(two_configs(tmp_path), merges=merges)
    throughput, bandwidth = tables(report, "Results")
    assert throughput[0][-2:] == ("default (published)", "optimized (published)")
    assert throughput[1][-2:] == ("3.95", "9.28")
    assert throughput[2] == ("25,000,000 rows per chunk", "", "", "", "", "4.40", "12.37")
    assert bandwidth[1][-2:] == ("0.495", "1.06")  # 507.21 MiB/s, printed as GiB/s
    said = lines(report, "Results")
    assert any(line.startswith("default 507.21 GiB/s: printed as GiB/s, and MiB/s is meant") for line in said)
    assert any(line.startswith("Published: Team NTHU-1") and "V100" in line for line in said)


def test_published_effects_of_settings_are_figure_1_of_that_report(tmp_path: Path) -> None:
    effects = tuple(published.settings_effects("gadi-v100-settings"))
    report = report_of(two_configs(tmp_path), settings=effects)
    (chart,) = drawings(report, "Published effects of single settings")
    name = "rendezvous over active messages"
    assert bars_of(chart)[name, name] == pytest.approx(5.54 / 4.27, abs=1e-4)
    assert all(mark.hatched for _, mark in chart.marks_with_groups if isinstance(mark, BoxMarks))


def test_an_imported_result_stands_with_its_own_numbers() -> None:
    report = report_of(published.campaign_folder("gadi-v100-optimized-small"))
    assert report.alarm
    (figures,) = tables(report, "Conclusion")
    assert figures[2][:2] == ("Throughput, as printed (GiB/s)", "9.63")
    assert "cudf-merge.py" in section(report, "How to repeat the measurement").blocks[-1].text
