"""The view that `merge_bench dashboard` serves, in a real browser."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from merge_bench.records.reader import read_campaign
from tests.browser.conftest import Open, Window, started
from tests.browser.scenario import POINTS, choose, compare_the_newest_two, start_a_run, watch_it_to_its_end
from tests.helpers.large_campaigns import make_large
from tests.helpers.synthetic_campaigns import Script, write_campaign
from tests.view.dashboard.samples import broken, hostile, interleaved, probing, tuning

TABS = ("Live", "Results", "Tuning", "Network", "Run")


def address(log: Path) -> str:
    """Where the server that writes `log` listens."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = re.search(r"http://\S+/", log.read_text())
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def serve(results: Path, temp: Path, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "merge_bench", "dashboard", "--results", str(results), "--no-open", "--port", "0"]
    log = temp / "server.log"
    with started([*command, *options], temp, log):
        yield address(log)
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a view of all kinds of campaigns."""
    temp = tmp_path_factory.mktemp("samples")
    results = temp / "results"
    for make in (broken, hostile, tuning, probing, interleaved):  # the last is what the Live tab shows
        make(results)
    yield from serve(results, temp)


def test_a_run_is_started_watched_to_its_end_and_compared_with_another(
    window: Open, tmp_path: Path, earlier_run: Path
) -> None:
    results = tmp_path / "results"
    shutil.copytree(earlier_run, results / earlier_run.name)
    for url in serve(results, tmp_path):
        view: Window = window(url)
        start_a_run(view)
        view.picture("run")
        watch_it_to_its_end(view)
        view.picture("live-ended")
        compare_the_newest_two(view)
        view.picture("results-compared")
    newest = max(results.iterdir(), key=lambda folder: folder.name)
    campaign = read_campaign(newest)
    assert campaign.end is not None
    assert campaign.end.status == 0
    assert campaign.head.plans[0]["iterations"] == 4


def test_a_run_that_is_stopped_ends_cleanly_and_keeps_what_it_measured(window: Open, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for url in serve(results, tmp_path):
        view = window(url)
        start_a_run(view, chunk="1e5", iterations="1_000_000")
        view.turn_to("Live")
        view.slow_down(12)  # It answers to people all the same, because it gets no more than it can draw.
        view.wait_until(f"{POINTS} > 2")
        top = view.page.get_by_text("Pairs of workers, last iteration").bounding_box()
        before = view.page.evaluate(POINTS)
        view.wait_until(f"{POINTS} > {before}")
        assert view.page.get_by_text("Pairs of workers, last iteration").bounding_box() == top
        view.slow_down(1)
        view.picture("live-running")
        view.turn_to("Run")
        view.page.get_by_role("button", name="Stop", exact=True).click()
        view.wait_for_text("Ended with status 3")
        view.wait_for_text("merge_bench: interrupted by SIGINT")
        assert view.page.get_by_role("log").bounding_box()["height"] < 340  # the rest is scrolled to, and the end seen
        view.picture("run-stopped")
    (folder,) = results.iterdir()
    campaign = read_campaign(folder)
    assert campaign.launches[0].failures[0].code == "interrupted"
    assert len(campaign.launches[0].timed) > 2


def test_a_run_needs_the_token_where_there_is_one(window: Open, tmp_path: Path) -> None:
    for url in serve(tmp_path / "results", tmp_path, "--allow-run"):
        view = window(url)
        view.turn_to("Run")
        view.page.get_by_label("Token").fill("guessed")
        view.page.get_by_role("button", name="Start", exact=True).click()
        view.wait_for_text("This needs the token")
        assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 900)])
def test_every_tab_shows_its_part_and_fits_the_window(window: Open, samples: str, scheme: str, width: int) -> None:
    view = window(samples, scheme=scheme, width=width)
    telling = {
        "Live": "Memory of each worker", "Results": "default, tuned", "Tuning": "The race as it ran",
        "Network": "Latency, one way", "Run": "python -m merge_bench run",
    }  # fmt: skip
    ground = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 25, 29)")
    for tab in TABS:
        view.turn_to(tab)
        view.wait_for_text(telling[tab])
        view.wait_until("document.documentElement.scrollWidth <= window.innerWidth")
        view.picture(f"{tab.lower()}-{scheme}-{width}")


def test_names_and_messages_that_are_attacks_stay_text(window: Open, samples: str) -> None:
    view = window(samples)
    choice = view.page.get_by_label("Campaign")
    choice.locator("option", has_text="-evil-").wait_for(state="attached")
    evil = next(text for text in choice.locator("option").all_inner_texts() if "-evil-" in text)
    choice.select_option(evil)
    view.wait_for_text("ended with status 3")
    view.wait_for_text("<script>alert(1)</script>")
    view.turn_to("Results")
    choose(view.page.locator(".tabulator-row", has_text="<script>").first)
    view.wait_for_text("UNVERIFIED")
    view.picture("results-hostile")
    injected = """(() => { const walk = root => [...root.querySelectorAll("*")].some(one =>
        one.hasAttribute("onerror") || (one.tagName === "SCRIPT" && /alert\\(/.test(one.textContent))
        || (one.shadowRoot && walk(one.shadowRoot))); return walk(document) })()"""
    assert view.page.evaluate(injected) is False


def test_even_markup_that_got_into_the_page_would_run_nothing_and_reach_nobody(window: Open, samples: str) -> None:
    view = window(samples)
    view.wait_for_text("Memory of each worker")
    view.page.evaluate("""() => {
        document.body.insertAdjacentHTML("beforeend", '<img src="nowhere" onerror="window.owned = 1">');
        const script = document.createElement("script");
        script.textContent = "window.owned = 2";
        document.body.append(script);
    }""")
    view.wait_until("document.querySelector('img[src=nowhere]').complete")
    assert view.page.evaluate("window.owned === undefined")
    assert not view.page.evaluate("fetch('http://127.0.0.1:9/').then(() => true, () => false)")
    refused = [one for one in view.complaints if "Content Security Policy" in one]
    assert len(refused) >= 3
    view.complaints.clear()


def test_the_keyboard_alone_is_enough(window: Open, samples: str) -> None:
    view = window(samples)
    view.wait_for_text("Memory of each worker")
    view.page.get_by_role("button", name="Network", exact=True).focus()
    view.page.keyboard.press("Enter")
    view.wait_for_text("Latency, one way")
    view.page.get_by_role("button", name="Live", exact=True).focus()
    view.page.keyboard.press("Space")
    word = view.page.get_by_label("Throughput: Data processed").first
    word.focus()
    view.page.locator(".tip:visible", has_text="Data processed").wait_for()


def test_the_config_that_was_found_can_be_downloaded(window: Open, samples: str) -> None:
    view = window(samples)
    view.turn_to("Tuning")
    view.wait_for_text("Found: tls=sm rails=2")
    with view.page.expect_download() as download:
        view.page.get_by_text("Download the config").click()
    text = Path(download.value.path()).read_text()
    assert "export UCX_TLS=sm\n" in text
    assert download.value.suggested_filename == "tls-sm-rails-2.cfg"


def test_the_table_is_sorted_and_filtered(window: Open, samples: str) -> None:
    view = window(samples)
    view.turn_to("Results")
    rows = view.page.locator(".tabulator-row")
    rows.filter(has_text="probe p2p").wait_for()
    view.page.locator(".tabulator-col", has_text="Kind").locator("input").fill("probe")
    view.page.locator(".tabulator-col", has_text="Kind").locator("input").press("Enter")
    view.wait_until(f"""{_ROWS} === 1""")
    assert "tcp, optimized" in rows.first.inner_text()
    view.page.locator(".tabulator-col", has_text="Kind").locator("input").fill("")
    view.page.locator(".tabulator-col", has_text="Kind").locator("input").press("Enter")
    view.wait_until(f"{_ROWS} > 5")
    sorter = view.page.locator(".tabulator-col", has_text="Throughput").locator(".tabulator-col-sorter")
    for first in ("0.542", "12.365"):
        sorter.click()
        rows.first.filter(has_text=first).wait_for()


def test_a_new_campaign_comes_into_the_table_and_what_was_chosen_stays_so_when_the_tab_is_left(
    window: Open, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    interleaved(results)
    for url in serve(results, tmp_path):
        view = window(url)
        view.turn_to("Results")
        rows = view.page.locator(".tabulator-row")
        mine = rows.filter(has_text="default, tuned").filter(has_text="yes")
        choose(mine)
        view.wait_for_text("FASTER")
        view.turn_to("Live")
        view.turn_to("Results")
        write_campaign(results, Script(config="fresh"))
        fresh = rows.filter(has_text="fresh").filter(has_text="yes")
        fresh.wait_for()
        mine.locator("input:checked").wait_for()
        assert fresh.locator("input:checked").count() == 0


@pytest.mark.soak
def test_a_gigabyte_of_records_is_shown_while_the_view_stays_alive_and_its_memory_bounded(
    window: Open, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    folder = make_large(results, workers=64, iterations=100)
    lines = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    body = b"".join(line for line in lines if b'"iteration"' in line)
    times = -(-(1 << 30) // len(body))
    with (folder / "records.jsonl").open("ab") as stream:
        for _ in range(times):
            stream.write(body)
    for url in serve(results, tmp_path):
        view = window(url)
        view.wait_for_text("Reading: ")
        view.turn_to("Results")
        view.wait_for_text("gadi-v100-optimized-large")
        assert server_of(results).memory_info().rss < 1 << 30
        view.turn_to("Live")
        view.wait_until(f"{POINTS} === {100 * (times + 1)}", patience=600.0)
        view.picture("live-gigabyte")
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server_of(results).pid}/status").read_text())
        assert peak is not None
        assert int(peak[1]) << 10 < 1 << 30


def server_of(results: Path) -> psutil.Process:
    """The process that serves the view of `results`."""
    return next(one for one in psutil.Process().children() if str(results) in one.cmdline())


_ROWS = """(() => { const walk = root => [...root.querySelectorAll("*")].reduce((sum, one) =>
    sum + (one.classList.contains("tabulator-row") ? 1 : 0) + (one.shadowRoot ? walk(one.shadowRoot) : 0), 0);
    return walk(document) })()"""
