"""A report begins with what `run` printed, from records that the real commands wrote."""

from __future__ import annotations

import functools
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.report.next_step import next_step_after_tuning
from merge_bench.report.page import html
from merge_bench.report.page.build import PublishedReferences, build_report
from merge_bench.report.run import print_campaign_report
from merge_bench.tune.result import tuning_result_of
from merge_bench.view.content import ChartBlock, Heading, NamedValues, NextCommandBlock, Paragraph, ReportContent, Table
from tests.helpers.synthetic_campaigns import interleaved
from tests.tune.test_time_to_decide import recorded
from tests.view.html_report.samples import Page, add, report_of, write_campaign
from tests.view.html_report.test_results import drawings, lines, section, tables

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


@functools.cache
def report(*kinds: str) -> ReportContent:
    return build_report([read_campaign(CAMPAIGNS / kind) for kind in kinds], PublishedReferences(), None)


def printed(kind: str) -> str:
    file = io.StringIO()
    print_campaign_report(read_campaign(CAMPAIGNS / kind), details=False, file=file)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["run", "baseline", "tables", "failed", "import", "sweep", "interrupted"])
def test_what_run_printed_stands_first_with_the_same_numbers(kind: str) -> None:
    text = " ".join(printed(kind).split())
    first = report(kind).sections[0]
    assert first.title == "Conclusion"
    for block in first.blocks:
        if isinstance(block, Table):
            assert all(" ".join(" ".join(row).split()) in text for row in block.rows)
        elif isinstance(block, NamedValues):
            assert all(" ".join(f"{name} {value}".split()) in text for name, value in block.rows)
        elif isinstance(block, NextCommandBlock):
            assert block.command in text
    assert any(isinstance(block, Table) for block in first.blocks)


def test_what_limits_a_run_stands_above_its_drawing_and_that_above_all_other_figures() -> None:
    blocks = report("run").sections[0].blocks
    (facts,) = (at for at, block in enumerate(blocks) if isinstance(block, NamedValues))
    (drawing,) = (at for at, block in enumerate(blocks) if isinstance(block, ChartBlock))
    assert dict(blocks[facts].rows)["Limited by"].startswith("host: in most iterations a rank had at most ")
    assert drawing == facts + 1
    assert blocks[drawing].chart.title == "Phases of each worker in an iteration"


def test_a_sweep_begins_with_its_verdicts_and_their_drawing() -> None:
    first = report("sweep").sections[0]
    assert first.blocks[0] == Heading("Verdicts on throughput")
    assert lines(report("sweep"), "Conclusion")[1].startswith("INCONCLUSIVE: too few launches for a verdict")
    assert [chart.title for chart in drawings(report("sweep"), "Conclusion")] == [
        "Speed-up in throughput over the baseline"
    ]
    last = first.blocks[-1]
    assert isinstance(last, NextCommandBlock)
    assert f"Next: {last.command}" in printed("sweep").splitlines()


def test_results_of_several_campaigns_have_their_letters_and_one_verdict_on_all() -> None:
    both = report("sweep", "interrupted")
    named = next(block for block in both.sections[0].blocks if isinstance(block, NamedValues))
    assert named.rows == (
        ("A", "default and tcp: 20,000 rows per chunk, 2 workers · 22 November 2026, 11:00 UTC · vm"),
        ("B", "default and tcp: 20,000 rows per chunk, 2 workers · 22 November 2026, 11:03 UTC · vm"),
    )
    assert both.title == "default and tcp: 20,000 rows per chunk, 2 workers, and 1 more result"


@pytest.mark.parametrize("kinds", [("sweep", "interrupted"), ("run", "tune"), ("tune",), ("sweep",)])
def test_the_table_of_runs_is_shown_once(kinds: tuple[str, ...]) -> None:
    blocks = [block for section in report(*kinds).sections for block in section.blocks]
    found = [block for block in blocks if isinstance(block, Heading) and block.text.startswith("All ")]
    assert len([block for block in found if " runs" in block.text]) == 1


def test_the_earlier_time_stands_first() -> None:
    for kinds in (("sweep", "interrupted"), ("interrupted", "sweep")):
        about = report(*kinds).about
        assert about.startswith("22 November 2026, 11:00 UTC to 22 November 2026, 11:03 UTC · ")


def test_a_tuning_begins_with_its_outcome_and_its_runs_are_folded() -> None:
    tuning = report("tune")
    first = tuning.sections[0].blocks
    assert first[0] == Heading("Found no config faster than default")
    assert isinstance(first[1], Paragraph)
    assert first[1].text == "Of 4 candidates, 3 were dropped, 1 showed no gain (not ruled out)."
    assert isinstance(first[3], ChartBlock)
    assert tables(tuning, "Tuning")[0][1][:3] == ("rendezvous-scheme=get_zcopy", "0.517", "0.455 to 0.739")
    runs = [each for each in tuning.sections if each.title in ("default", "default again", "rendezvous-scheme=am")]
    assert len(runs) == 3
    assert all(each.folded and each.nested and "GiB/s, limited by" in each.note for each in runs)


def test_the_figures_of_a_run_are_louder_than_that_they_are_verified() -> None:
    run = report("run")
    (figures,) = [block for block in run.sections[0].blocks if isinstance(block, Table)]
    wall, through, band = (row[1] for row in figures.rows)
    facts = next(block for block in run.sections[0].blocks if isinstance(block, NamedValues))
    limit = dict(facts.rows)["Limited by"].partition(":")[0]
    found = f"Wall-clock {wall} ms, throughput {through} GiB/s, bandwidth {band} GiB/s; limited by {limit}"
    assert (run.state, run.decided) == (found, True)
    page = Page(html.render_report(run))
    (state,) = page.all("p", class_="state verdict")
    assert state.text == found
    assert any(each.startswith("Verified: ") for each in page.texts("p"))


def test_two_runs_begin_with_their_verdict_and_several_with_their_checks(tmp_path: Path) -> None:
    two = report("sweep")
    assert two.state.startswith(("FASTER: ", "SLOWER: ", "INCONCLUSIVE: "))
    assert two.decided == (not two.state.startswith("INCONCLUSIVE"))
    scripts = interleaved({name: [0.1] * 6 for name in ("default", "tcp", "optimized")})
    assert report_of(write_campaign(tmp_path, *scripts)).state.startswith("Verified: ")


def test_a_run_that_measured_nothing_has_no_results() -> None:
    failed = read_campaign(CAMPAIGNS / "failed")
    head = replace(failed, launches=tuple(replace(launch, iterations=()) for launch in failed.launches))
    found = build_report([head], PublishedReferences(), None)
    assert "Results" not in [section.title for section in found.sections]
    assert (found.state.partition(":")[0], found.alarm) == ("Incomplete", True)
    assert report("failed").state.startswith("UNVERIFIED: default. Incomplete: ")
    assert "Results" in [section.title for section in report("run").sections]


def test_the_outcome_of_a_tuning_is_louder_than_that_its_results_are_verified() -> None:
    tuning = report("tune")
    assert tuning.state == "Found no config faster than default"
    assert (tuning.alarm, tuning.decided) == (False, False)
    page = Page(html.render_report(tuning))
    (state,) = page.all("p", class_="state verdict open")
    assert state.text == tuning.state
    assert not [each for each in page.all("p") if "fine" in each.attributes.get("class", "")]
    assert report("run", "tune").state == "B: Found no config faster than default"


def test_the_conclusion_of_a_tuning_ends_with_the_command_that_the_terminal_names(tmp_path: Path) -> None:
    campaign = read_campaign(recorded(tmp_path))  # something is undecided
    step = next_step_after_tuning(
        campaign, tuning_result_of(campaign), config_path=None, seconds_to_decide=None
    )  # it has no budget of time
    last = build_report([campaign], PublishedReferences(), None).sections[0].blocks[-1]
    assert last == NextCommandBlock(step.command, step.does)


def test_a_tuning_that_was_interrupted_ends_with_the_command_that_resumes_it(tmp_path: Path) -> None:
    lines = (CAMPAIGNS / "tune" / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:40]))
    last = build_report([read_campaign(tmp_path)], PublishedReferences(), None).sections[0].blocks[-1]
    assert isinstance(last, NextCommandBlock)
    assert last.command.startswith("python -m merge_bench tune --chunk 2e4 --workers 2 --iterations 3 --only ")


def test_a_tuning_without_a_launch_is_no_network_measurement(tmp_path: Path) -> None:
    head = (CAMPAIGNS / "tune" / "records.jsonl").read_bytes().splitlines(keepends=True)[0]
    (tmp_path / "records.jsonl").write_bytes(head)
    found = build_report([read_campaign(tmp_path)], PublishedReferences(), None)
    assert (found.state, found.verified) == ("Nothing was decided: no candidate was judged", "Nothing was measured")


def test_a_metric_that_no_result_has_is_no_heading_above_dashes(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "baseline", tmp_path / "again")
    both = build_report(
        [read_campaign(CAMPAIGNS / "baseline"), read_campaign(tmp_path / "again")], PublishedReferences(), None
    )
    headings = [block.text for part in both.sections for block in part.blocks if isinstance(block, Heading)]
    assert any(text.startswith("Throughput by problem") for text in headings)
    assert not any(text.startswith("Bandwidth by problem") for text in headings)


def test_below_a_timeline_stands_the_command_that_exports_all_of_them() -> None:
    texts = [each.text for part in report("one-sender").sections for each in part.blocks if isinstance(each, Paragraph)]
    (said,) = [text for text in texts if "perfetto" in text]
    assert said.endswith("one-sender --format trace --output trace.json")


def test_a_worker_that_sent_nothing_has_a_row_in_the_drawing_of_bandwidths() -> None:
    found = [each for part in report("one-sender").sections for each in part.blocks if isinstance(each, ChartBlock)]
    (chart,) = [each.chart for each in found if each.chart.title == "Bandwidth of each worker"]
    assert list((chart.y.ticks or {}).values()) == ["0 vm", "1 vm"]


def test_network_measurements_begin_with_the_best_of_each_test() -> None:
    found = report("p2p")
    assert tables(found, "Conclusion")[0][1:] == [
        ("tag_lat", "tcp", "one host", "Latency, one way (µs)", "32.29", "1 KiB"),
        ("tag_bw", "tcp", "one host", "Bandwidth (MB/s)", "351.15", "64 KiB"),
    ]
    assert [chart.title for chart in drawings(found, "Conclusion")] == ["Latency, one way: tag_lat"]
    best = [(row[0], row[3]) for row in tables(report("mpi"), "Conclusion")[0][1:]]
    assert best == [
        ("std", "Latency, one way (µs)"),
        ("std", "Throughput (MB/s)"),
        ("std-delay", "Latency, one way (µs)"),
        ("buff", "Latency, one way (µs)"),
        ("buff", "Throughput (MB/s)"),
        ("buff-delay", "Latency, one way (µs)"),
    ]


@pytest.mark.parametrize(
    ("kind", "title", "about"),
    [
        (
            "run",
            "tcp: 20,000 rows per chunk, 2 workers",
            "22 November 2026, 10:59 UTC · on vm · UCX 1.21.0 · merge_bench 0.1.0 · 20261122T105951Z-tcp-e0a9d0",
        ),
        (
            "tables",
            "default: orders.parquet ⋈ lines.parquet on o_key = l_key (5,000 / 20,000 rows), 2 workers",
            "24 November 2026, 01:49 UTC · on vm · UCX 1.21.0 · merge_bench 0.1.0 · 20261124T014954Z-default-8510b8",
        ),
        (
            "tune",
            "Tuning of default: 20,000 rows per chunk, 2 workers",
            "22 November 2026, 11:08 UTC · on vm · UCX 1.21.0 · merge_bench 0.1.0"
            " · 20261122T110827Z-tune-default-9e1951",
        ),
        (
            "mpi",
            "Network measurement mpi: default",
            "22 November 2026, 11:02 UTC · on vm · UCX 1.20.1 · merge_bench 0.1.0 ·"
            " 20261122T110244Z-probe-mpi-default-1fd696",
        ),
        (
            "import",
            "gadi-v100-optimized-small: 1,000,000 rows per chunk, 16 workers (imported)",
            "22 November 2026, 11:03 UTC · merge_bench 0.1.0 · 20261122T110314Z-gadi-v100-optimized-small-3846c1",
        ),
    ],
)
def test_titles_are_for_people(kind: str, title: str, about: str) -> None:
    found = report(kind)
    assert (found.title, found.about) == (title, about)


def test_the_contents_lead_to_every_section_and_what_is_evidence_is_folded() -> None:
    found = report("sweep")
    page = Page(html.render_report(found))
    assert [" ".join(a.text.split()) for a in page.all("a") if "nav" in a.inside] == [
        *(each.title for each in found.sections),
        "Definitions",
    ]
    folded = [each.title for each in found.sections if each.folded]
    assert folded == ["default", "tcp", "Environment"]
    closed = [e for e in page.all("details") if "nav" not in e.inside]
    assert len(closed) == len(folded) + 1  # and the definitions
    assert not any("open" in each.attributes for each in closed)


def test_many_warnings_of_a_kind_are_counted_and_all_are_listed_below(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    for number in range(5):
        add(folder, kind="warning", launch=0, code="alike", message=f"message {number}", remedy="do this")
    found = build_report([read_campaign(folder)], PublishedReferences(), None)
    said = lines(found, "Conclusion")
    assert [line for line in said if "message" in line or "do this" in line] == [
        "alike: message 0",
        "alike: message 1",
        "alike: message 2",
        "→ do this",
    ]
    assert "2 more of this kind, listed under All warnings" in said
    every = [block.text for block in section(found, "All warnings").blocks if isinstance(block, Paragraph)]
    assert [line for line in every if "message" in line] == [f"alike: message {number}" for number in range(5)]


def test_a_confirmation_that_a_tuning_left_out_is_no_unfinished_run(tmp_path: Path) -> None:
    """A tuning plans one at every size; without a faster config there is nothing to confirm."""
    folder = tmp_path / "tune"
    shutil.copytree(CAMPAIGNS / "tune", folder)
    first, *others = (folder / "records.jsonl").read_text().splitlines()
    head = json.loads(first)
    plan = {**head["plans"][0], "rows_per_chunk": 25_000_000}
    head["runs"].append({"config": head["runs"][0]["config"], "plan": len(head["plans"])})
    head["plans"].append(plan)
    (folder / "records.jsonl").write_text("\n".join([json.dumps(head), *others]) + "\n")
    report = build_report([read_campaign(folder)], PublishedReferences(), None)
    assert (report.alarm, report.verified.partition(":")[0]) == (False, "Verified")


def test_warnings_of_merges_and_of_network_measurements_stand_together() -> None:
    headings = [block.text for block in report("run", "p2p").sections[0].blocks if isinstance(block, Heading)]
    assert headings.count("Warnings") <= 1


def test_an_interrupted_tuning_does_not_say_that_no_config_is_faster(tmp_path: Path) -> None:
    """The lines that the real command had written when it was killed."""
    lines = (CAMPAIGNS / "tune" / "records.jsonl").read_bytes().splitlines(keepends=True)
    screened = next(at for at, line in enumerate(lines) if b'"kind":"tune"' in line)
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines[: screened + 1]))
    part = build_report([read_campaign(tmp_path)], PublishedReferences(), None)
    texts = [block.text for block in part.sections[0].blocks if isinstance(block, Heading | Paragraph)]
    assert not any(text.startswith("No config is faster") for text in texts)
    assert any("interrupted" in text for text in texts)
