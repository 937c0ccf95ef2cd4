"""The page: one file that loads nothing, runs nothing of the records, is loud where it must be, and stays readable."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records import schema as s
from merge_bench.report.page import html
from merge_bench.view.content import ChartBlock, Column, Paragraph, ReportContent, Section, Table
from merge_bench.view.plot import HeatMapCells, MarkGroup
from merge_bench.view.text import LETTERS
from tests.helpers.synthetic_campaigns import Script, interleaved, plan, write_campaign
from tests.view.html_report.samples import EVIL, Page, add, change, page_of, report_of, text_of, two_configs

LOADING = ("src", "data", "action", "poster", "srcset", "background", "formaction", "xlink:href")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(two_configs(tmp_path_factory.mktemp("page")))


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    for element in page.elements:
        assert not set(LOADING) & element.attributes.keys(), element
        if "href" in element.attributes:
            assert element.attributes["href"].startswith("#")
    assert not page.all("link")
    (style,) = page.all("style")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_the_policy_forbids_the_network_and_all_scripts_but_the_pages_own(page: Page) -> None:
    (policy,) = [e.attributes["content"] for e in page.all("meta") if "http-equiv" in e.attributes]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce
    scripts = [script for script in page.all("script") if "type" not in script.attributes]
    assert [script.attributes.get("nonce") for script in scripts] == [nonce[1]] * 2


def test_every_page_has_a_nonce_of_its_own(page: Page, tmp_path: Path) -> None:
    other = text_of(write_campaign(tmp_path))
    assert other.all("script")[0].attributes["nonce"] != page.all("script")[0].attributes["nonce"]


def test_names_are_unique_and_links_lead_somewhere(page: Page) -> None:
    names = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    targets = {element.attributes["href"].removeprefix("#") for element in page.all("a")}
    assert len(targets) > 10
    assert targets <= set(names)


def test_every_drawing_has_its_place_and_a_caption(page: Page) -> None:
    places = [element.attributes["id"] for element in page.all("div") if element.attributes.get("class") == "plot"]
    assert places == list(page.plots)
    assert len(places) >= 8
    assert all(place["version"] == next(iter(page.plots.values()))["version"] for place in page.plots.values())
    figures = page.all("figure")
    assert len(figures) == len(places)
    assert all(
        figure.attributes["aria-label"] and "figcaption" in [c.tag for c in figure.children] for figure in figures
    )
    assert html.NOT_DRAWN not in page.source


def test_headings_are_in_order_and_tables_have_headings_with_a_scope(page: Page) -> None:
    levels = [int(e.tag[1]) for e in page.elements if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.all("th")
    assert all(heading.attributes["scope"] == "col" for heading in page.all("th"))
    assert page.all("html", lang="en")


def test_what_scrolls_can_be_reached_with_the_keyboard(page: Page) -> None:
    scrolling = [e for e in page.elements if "scroll" in e.attributes.get("class", "").split() or e.tag == "pre"]
    assert scrolling
    assert all(element.attributes["tabindex"] == "0" for element in scrolling)


def test_numbers_have_their_definition_as_a_link_and_a_tooltip(page: Page) -> None:
    links = {" ".join(a.text.split()): a.attributes for a in page.all("a", class_="defined")}
    assert {"Throughput", "Bandwidth", "Wall-clock", "Partition", "Verdict", "95 % interval"} <= links.keys()
    assert "÷ wall-clock" in links["Throughput"]["title"]
    terms = {term.attributes["id"]: " ".join(term.text.split()) for term in page.all("dt") if "id" in term.attributes}
    assert terms[links["Left"]["href"].removeprefix("#")] == "Bandwidth"
    assert "Exchange" not in [" ".join(a.text.split()) for a in page.all("a") if a.inside[-1] == "dt"]


def test_there_is_a_dark_look_and_one_for_paper(page: Page) -> None:
    (style,) = page.all("style")
    assert "prefers-color-scheme: dark" in style.text
    assert "--bk-background-fill-color" in style.text
    assert "@media print" in style.text


def test_hostile_names_stay_text(tmp_path: Path, page: Page) -> None:
    script = Script(config=EVIL[:60], machine=lambda w: s.Worker(rank=w.rank, host=EVIL, pid=1, name=EVIL))
    folder = write_campaign(tmp_path, script)
    change(
        folder,
        "campaign",
        argv=["merge-bench", EVIL],
        configs=[{"name": EVIL[:60], "path": EVIL, "variables": {EVIL: EVIL}}],
    )
    add(folder, kind="warning", launch=0, code=EVIL, message=EVIL, remedy=EVIL)
    add(folder, kind="failure", launch=None, code=EVIL, message=EVIL, host=EVIL, log_tail=f"{EVIL}\n{EVIL}")
    hostile = page_of(folder)
    assert len(hostile.all("script")) == len(page.all("script"))
    assert not hostile.all("img")
    assert "alert(1)" in hostile.texts("main")[0]
    assert "{{ 7*7 }}" in hostile.source
    for letter in ("\x1b", "\x00", "\u202e"):
        assert letter not in hostile.source
    assert html.NOT_DRAWN not in hostile.source
    held = hostile.all("script", id="plots")[0].text
    assert "alert(1)" in held
    assert "<" not in held
    drawn = [text for plot in hostile.plots.values() for text in canvas_text(plot["doc"])]
    assert any("alert(1)" in text for text in drawn)
    assert not any("$$" in text for text in drawn)


def canvas_text(part: object) -> Iterator[str]:
    """What Bokeh would look through for mathematics: titles, and names on axes."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "text" and isinstance(value, str):
                yield value
            elif name == "major_label_overrides":
                yield from (text for _, text in value["entries"])
            yield from canvas_text(value)
    elif isinstance(part, list):
        for each in part:
            yield from canvas_text(each)


def test_values_of_ten_thousand_letters_are_cut_and_say_so(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    change(
        folder,
        "campaign",
        configs=[{"name": "optimized", "path": "p" * 10_000, "variables": {"UCX_TLS": "v" * 10_000}}],
    )
    add(folder, kind="warning", launch=0, code="long", message="m" * 10_000, remedy=None)
    page = text_of(folder)
    assert "(10,006 characters; all are in the records)" in page.source  # "long: " and the message
    assert "p" * 2500 not in page.source
    assert "v" * 10_000 in page.source  # settings are whole, to be copied
    assert all(len(cell.text) < LETTERS + 100 for cell in page.all("td"))


def page_of_table(rows: int) -> Page:
    """A page whose table of iterations has so many rows."""
    table = Table(((Column("Iteration", [str(row) for row in range(rows)]),),))
    section = Section("Iterations", blocks=[table])
    return Page(html.render_report(ReportContent("t", "about", "state", alarm=False, sections=(section,))))


def test_a_long_table_is_folded_and_a_very_long_one_thinned() -> None:
    assert "200 rows" not in page_of_table(200).texts("summary")
    page = page_of_table(201)
    assert "201 rows" in page.texts("summary")
    assert len(page.table("Iterations")) == 202
    page = page_of_table(4000)
    rows = page.table("Iterations")
    assert len(rows) == 2001
    assert (rows[1][0], rows[-1][0]) == ("0", "3999")
    assert "2000 of 4000 rows, evenly chosen; all are in the records." in page.texts("p")


def test_a_verified_result_says_so_quietly(page: Page) -> None:
    (state,) = [e for e in page.all("p") if "state" in e.attributes.get("class", "")]
    assert state.attributes["class"] == "state verdict"
    assert state.text.startswith("SLOWER: tcp against default · 1,000,000 rows per chunk, 2 workers, 0.")
    assert any(each.startswith("Verified: ") for each in page.texts("p"))
    assert "UNVERIFIED" not in page.texts("main")[0].replace("other numbers are marked UNVERIFIED", "")


def test_an_unverified_result_is_loud_everywhere(tmp_path: Path) -> None:
    page = text_of(two_configs(tmp_path, verify="off"))
    (state,) = page.all("p", class_="state alarm")
    assert state.attributes["role"] == "alert"
    assert state.text.startswith("UNVERIFIED: default, tcp")
    assert {row[-1] for row in page.table("All 2 runs")[1:]} == {"UNVERIFIED"}
    assert "default (UNVERIFIED)" in page.table("Throughput by problem")[0]
    assert {row[-1] for row in page.table("Totals")[1:]} == {"UNVERIFIED"}
    assert {row[-1] for row in page.table("Comparison")[1:]} == {"UNVERIFIED"}


def test_a_wrong_result_is_loud_and_nothing_is_compared_with_it(tmp_path: Path) -> None:
    scripts = interleaved({"default": [0.1] * 6, "tcp": [0.2] * 6})
    wrong = replace(
        scripts[0],
        check=lambda check: s.VerificationLine(
            launch=check.launch, after=check.after, ok=False, how=check.how, message="3 rows are lost"
        ),
    )
    page = text_of(write_campaign(tmp_path, wrong, *scripts[1:]))
    assert page.all("p", class_="state alarm")[0].text.startswith("WRONG RESULT: default; do not use these numbers")
    assert {row[-1] for row in page.table("Totals")[1:]} == {"WRONG RESULT"}
    assert any(text.startswith("Not compared: the merge result of default was wrong") for text in page.texts("p"))


def test_a_failed_launch_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    add(
        folder,
        kind="failure",
        launch=0,
        code="run-failed",
        message="rank 1 died",
        host="node0",
        rank=1,
        log_tail="a\n<b>",
    )
    page = text_of(folder)
    assert page.all("p", class_="state alarm")[0].text == "Incomplete: rank 1 died"
    where = "launch 0, after the last iteration, rank 1, node0"
    assert f"run-failed: rank 1 died ({where})" in page.texts("p")
    assert f"Logs: {folder / 'logs'}" in page.texts("p")
    assert "a\n<b>" in [code.text for code in page.all("code")]


def test_a_half_written_line_is_left_out_and_told(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, end=None)
    with (folder / "records.jsonl").open("ab") as records:
        records.write(b'{"kind":"iteration","schema":1,"la')
    page = text_of(folder)
    assert "The last line of the records is incomplete and was ignored." in page.texts("p")
    assert page.table("Iterations")[1:]


def test_a_campaign_without_a_launch_still_gives_a_page(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    head = (folder / "records.jsonl").read_bytes().splitlines()[0]
    (folder / "records.jsonl").write_bytes(head + b"\n")
    page = page_of(folder)
    assert page.all("p", class_="state alarm")
    assert any("the run was killed or is still running" in text for text in page.texts("p"))


def test_many_runs_are_folded_and_the_most_of_them_get_sections(tmp_path: Path) -> None:
    report = report_of(write_campaign(tmp_path, *interleaved({f"c{number}": [0.1] for number in range(30)})))
    runs = [section for section in report.sections if section.title.startswith("c")]
    assert len(runs) == 24
    assert all(section.folded for section in runs)
    left = "6 more runs have no separate section; the tables above contain their numbers."
    (every,) = [section for section in report.sections if section.title == "Every run"]
    assert left in [block.text for block in every.blocks if isinstance(block, Paragraph)]


def test_a_drawing_that_fails_costs_no_table(tmp_path: Path) -> None:
    report = report_of(write_campaign(tmp_path))
    unusable: Any = HeatMapCells([0], [0], ["no number"], "GiB/s")
    for section in report.sections:
        section.blocks = [
            ChartBlock(replace(block.chart, groups=(MarkGroup(0, (unusable,)),)))
            if isinstance(block, ChartBlock)
            else block
            for block in section.blocks
        ]
    page = Page(html.render_report(report))
    captions = page.texts("figcaption")
    assert len(captions) == 3
    assert all(caption.startswith(f"{html.NOT_DRAWN}: ") for caption in captions)
    assert page.table("Totals")


def test_sixteen_workers_and_a_hundred_iterations_stay_small(tmp_path: Path) -> None:
    script = Script(plan=plan(16, iterations=100), walls=[0.1 + 0.0001 * k for k in range(100)])
    page = page_of(write_campaign(tmp_path, script))
    assert len(page.table("Workers")) == 17
    assert len(page.source) < 2_500_000
