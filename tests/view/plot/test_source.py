"""Every picture names its results: name, hosts, date, UCX and processor, in static and in interactive pictures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from merge_bench.api import load
from merge_bench.host.description import UcxDescription
from merge_bench.records.reader import read_campaign
from merge_bench.report.page.build import PublishedReferences, build_report
from merge_bench.report.page.results import charts_of_kind
from merge_bench.view.content import ChartBlock
from merge_bench.view.plot import interactive, static
from merge_bench.view.plot.draw import draw_charts_into_file
from merge_bench.view.titles import result_source_lines
from tests.helpers.runs import ROOT
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

RECORDED = ROOT / "tests" / "data" / "campaigns"
RUN = "20261122T105951Z-tcp-e0a9d0 · host vm · 2026-11-22 10:59 UTC · UCX 1.21.0 · Intel(R) Xeon(R) Processor"


@pytest.mark.parametrize(
    ("folder", "ucx"),
    [("run", "UCX 1.21.0"), ("mpi", "UCX 1.20.1"), ("p2p", "UCX 1.21.0"), ("baseline", "no UCX loaded")],
)
def test_a_line_has_the_ucx_that_was_measured(folder: str, ucx: str) -> None:
    """That of MPI is its own, that of `probe p2p` is the one of ucx_perftest, and Dask's exchange uses none."""
    assert result_source_lines([read_campaign(RECORDED / folder)]).split(" · ")[3] == ucx


def test_a_line_has_result_host_date_ucx_and_processor() -> None:
    assert result_source_lines([read_campaign(RECORDED / "run")]) == RUN


def test_what_an_imported_result_lacks_is_said() -> None:
    parts = result_source_lines([read_campaign(RECORDED / "import")]).split(" · ")
    assert parts[1:] == ["host not recorded", "imported 2026-11-22 11:03 UTC", "UCX not recorded"]


def test_several_results_have_their_letters_and_many_are_counted() -> None:
    campaign = read_campaign(RECORDED / "run")
    assert result_source_lines([campaign] * 2) == f"A: {RUN}\nB: {RUN}"
    assert result_source_lines([campaign] * 6).split("\n")[4:] == ["and 2 more results"]


def test_a_result_keeps_the_letter_of_the_report_in_a_picture_of_some_results() -> None:
    results = [read_campaign(RECORDED / kind) for kind in ("tune", "p2p", "run")]
    assert result_source_lines(results[2:], results) == f"C: {RUN}"
    assert result_source_lines(results[2:], results[2:]) == RUN


def test_a_report_gives_each_result_one_letter_and_each_picture_its_own_results() -> None:
    kinds = ("mpi", "run", "p2p", "tune")
    report = build_report([read_campaign(RECORDED / kind) for kind in kinds], PublishedReferences(), None)
    names = {letter: text for block in report.sections[0].blocks[:1] for letter, text in block.rows}
    assert list(names) == ["A", "B", "C", "D"]
    (tuned,) = (letter for letter, text in names.items() if text.startswith("Tuning of "))
    found: dict[str, set[str]] = {}
    for section in report.sections:
        for block in section.blocks:
            if isinstance(block, ChartBlock):
                shown = {line[0] for line in block.chart.source.split("\n")}
                assert shown <= names.keys()
                found.setdefault(section.title, set()).update(shown)
                if block.chart.title.startswith("Tuning, "):
                    assert shown == {tuned}
                if section.title == "Network":
                    assert len(shown) == 1  # messages by MPI and by UCX are other tests
                for label in (group.label for group in block.chart.groups if ": " in group.label):
                    assert label[0] in shown
    assert found["Network"] == {letter for letter, text in names.items() if text.startswith("Network measurement ")}
    environments = [section.title for section in report.sections if section.title.startswith("Environment of ")]
    assert environments == [f"Environment of {letter}" for letter in names]


def test_many_hosts_are_counted_and_every_version_is_named(tmp_path: Path) -> None:
    def machine(worker: object) -> object:
        return msgspec.structs.replace(worker, ucx=UcxDescription(version=f"1.{20 + worker.rank // 8}.0"))

    script = Script(plan=plan(16), machine=machine)
    parts = result_source_lines([read_campaign(write_campaign(tmp_path, script))]).split(" · ")
    assert (parts[1], parts[3]) == ("4 hosts, node0 to node3", "UCX 1.20.0 / 1.21.0")


@pytest.mark.parametrize("kind", ["throughput", "iterations", "workers", "phases"])
def test_every_kind_of_picture_has_it(kind: str) -> None:
    (chart, *_) = charts_of_kind(read_campaign(RECORDED / "run"), kind)
    assert chart.source == RUN
    below = [part.text for part in interactive.make_bokeh_figure(chart).below if hasattr(part, "text")]
    assert below[-1].replace("\n", " ") == RUN
    shown = [text.get_text() for part in static.make_matplotlib_figure(chart).subfigs for text in part.texts]
    assert [text.replace("\n", " ") for text in shown] == [RUN]


@pytest.mark.parametrize("form", ["svg", "html"])
def test_a_file_has_it(form: str, tmp_path: Path) -> None:
    campaign = read_campaign(RECORDED / "mpi")
    draw_charts_into_file(charts_of_kind(campaign, "network"), tmp_path / f"x.{form}")
    assert campaign.head.campaign_id in (tmp_path / f"x.{form}").read_text()


def test_a_figure_of_the_python_api_has_it() -> None:
    figure = load(RECORDED / "run").plot("throughput", backend="matplotlib")
    assert [text.get_text() for part in figure.subfigs for text in part.texts] == [RUN]


def test_the_line_does_not_overlap_the_legend() -> None:
    """Matplotlib's layout ignores texts of a figure, so that the line has a part of the figure to itself."""
    (chart, *_) = charts_of_kind(read_campaign(RECORDED / "run"), "phases")
    figure = static.make_matplotlib_figure(chart)
    figure.draw_without_rendering()
    legend, line = ([*part.legends, *part.texts][0] for part in figure.subfigs)
    assert line.get_window_extent().y1 <= legend.get_window_extent().y0


def test_drawings_of_a_report_name_all_its_results_or_the_one_that_they_are_of() -> None:
    campaigns = [read_campaign(RECORDED / name) for name in ("run", "sweep")]
    report = build_report(campaigns, PublishedReferences(), None)
    found = {
        section.title: [b.chart.source for b in section.blocks if isinstance(b, ChartBlock)]
        for section in report.sections
    }
    assert set(found["Results"]) == {result_source_lines(campaigns)}
    runs = [sources for title, sources in found.items() if title.startswith("A: tcp")]
    assert set(runs[0]) == {f"A: {RUN}"}
