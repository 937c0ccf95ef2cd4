"""The view that `merge_bench dashboard` serves, in a real browser."""

from __future__ import annotations

import http.client
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from merge_bench.records.reader import read_campaign
from tests.browser.conftest import CONTRAST, Open, Window, started
from tests.browser.scenario import POINTS, choose, log_in, start_a_run
from tests.helpers.large_campaigns import make_large
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.view.dashboard.samples import broken, hostile, interleaved, probing, tuning

_NUMBERS = {
    "Results": ("Throughput (GiB/s)", "Status"),
    "Tuning": ("Speed-up", "Blocks"),
    "Network": ("Median", "Most"),
}
"""Columns of each tab that a window of 900 pixels has to show."""
GROUND = """(() => {
  const canvases = (root) => [...root.querySelectorAll("*")].flatMap(
    (each) => [...(each.localName === "canvas" ? [each] : []), ...(each.shadowRoot ? canvases(each.shadowRoot) : [])]);
  const grounds = canvases(document).filter((each) => each.width > 50 && each.height > 50 && each.checkVisibility())
    .map((each) => each.getContext("2d").getImageData(2, 2, 1, 1).data).filter((pixel) => pixel[3] === 255);
  return grounds.length ? grounds[0][0] : -1;
})()"""
"""How light the ground of the first figure is, 0 to 255."""
TABS = ("Live", "Results", "Tuning", "Network", "Run")


class Server(NamedTuple):
    """A server of the view."""

    url: str
    results: Path


def serve(results: Path, temp: Path, *options: str) -> Iterator[Server]:
    """Serve `results` until the generator goes on."""
    command = [sys.executable, "-m", "merge_bench", "dashboard", "--results", str(results), "--no-open", "--port", "0"]
    log = temp / "server.log"
    with started([*command, *options], temp, log) as process:
        end = time.monotonic() + 120
        while (found := re.search(r"listens at (http://\S+/) ", log.read_text())) is None:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield Server(found[1], results)
    assert process.returncode == 0  # after SIGTERM
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A view without results at first, from which runs can be started."""
    temp = tmp_path_factory.mktemp("runs")
    yield from serve(temp / "results", temp, "--allow-run")


@pytest.fixture(scope="module")
def _samples(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A page that shows all kinds of campaigns."""
    temp = tmp_path_factory.mktemp("samples")
    write_campaign(temp / "results", Script(config="few", plan=plan(2)))
    write_campaign(temp / "results", Script(config="many", plan=plan(4)))
    for make in (broken, hostile, tuning, probing, interleaved):  # the last is what the Live tab shows
        make(temp / "results")
    for server in serve(temp / "results", temp):
        yield Window(chromium, server.url)


@pytest.fixture
def samples(_samples: Window, request: pytest.FixtureRequest) -> Iterator[Window]:
    """The page of all kinds of campaigns, which several tests share, with the Live tab open."""
    _samples.page.emulate_media(color_scheme="light")
    _samples.page.set_viewport_size({"width": 1400, "height": 900})
    _samples.turn_to("Live")
    yield _samples
    _samples.check(request.node.name)


def test_a_run_needs_a_login_is_drawn_while_it_goes_on_and_keeps_what_it_measured_when_it_is_stopped(
    window: Open, runs: Server
) -> None:
    view = window(runs.url)
    view.turn_to("Run")
    view.wait_for_text("To start runs, log in")
    assert view.page.get_by_role("button", name="Start", exact=True).count() == 0
    view.page.goto(runs.url.rstrip("/").rpartition("/")[0])
    log_in(view, (runs.results / ".service/token").read_text().strip())
    start_a_run(view, chunk="1e5", iterations="1_000_000")
    view.picture("run")
    view.wait_for_text("of 1,000,000")
    view.wait_until(f"{POINTS} > 2")
    view.slow_down(4)  # It goes on drawing all the same, because it gets no more than it can draw.
    top = view.page.get_by_text("Pairs of workers, last iteration").bounding_box()
    before = view.page.evaluate(POINTS)
    view.wait_until(f"{POINTS} > {before}")
    assert view.page.get_by_text("Pairs of workers, last iteration").bounding_box() == top
    view.slow_down(1)
    view.picture("live-running")
    view.turn_to("Run")
    view.page.get_by_role("button", name="Cancel 1").click()
    view.page.get_by_role("row", name=re.compile("^1 cancelled ")).wait_for()
    view.wait_for_text("interrupted by SIGINT after ")
    assert view.page.get_by_role("log").bounding_box()["height"] < 340  # the rest is scrolled to, and the end seen
    view.picture("run-stopped")
    (stopped,) = map(read_campaign, runs.results.glob("2*"))
    assert stopped.head.plans[0]["iterations"] == 1_000_000
    assert stopped.launches[0].failures[0].code == "interrupted"
    assert len(stopped.launches[0].timed_iterations) > 2


def test_it_serves_its_own_pages_alone(runs: Server) -> None:
    with urllib.request.urlopen(runs.url, timeout=60) as answer:
        assert answer.status == 200
        page = answer.read().decode()
    assert "<title>merge_bench</title>" in page
    assert "https://" not in re.sub(r"<!--.*?-->", "", page, flags=re.S).replace("https://www.w3.org", "")
    assert _upgraded(runs.url, page, "http://evil.example") == 403
    assert _upgraded(runs.url, page, "/".join(runs.url.split("/")[:3])) == 101


def _upgraded(url: str, page: str, origin: str) -> int:
    """The status of the answer to a `page` of `origin` that asks for a websocket."""
    token = re.search(r'"token":"([^"]+)"', page)
    assert token is not None
    *_, host, path = url.rstrip("/").split("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {
        "Origin": origin,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": f"bokeh, {token[1]}",
    }
    connection.request("GET", f"/{path}/ws", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_new_campaign_comes_into_the_table_and_what_was_chosen_stays_so_when_the_tab_is_left(
    window: Open, runs: Server
) -> None:
    interleaved(runs.results)
    view = window(runs.url)
    view.turn_to("Results")
    rows = view.page.locator(".tabulator-row")
    mine = rows.filter(has_text="default, tuned").filter(has_text="verified")
    mine.locator("[tabulator-field=Kind]").click()  # anywhere in the row
    mine.locator("input:checked").wait_for()
    view.wait_for_text("FASTER")
    view.turn_to("Live")
    view.turn_to("Results")
    write_campaign(runs.results, Script(config="fresh"))
    fresh = rows.filter(has_text="fresh").filter(has_text="verified")
    fresh.wait_for()
    mine.locator("input:checked").wait_for()
    assert fresh.locator("input:checked").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 900)])
def test_every_tab_shows_its_part_and_fits_the_window(samples: Window, scheme: str, width: int) -> None:
    samples.page.emulate_media(color_scheme=scheme)
    samples.page.set_viewport_size({"width": width, "height": 900})
    marks = {
        "Results": "default, tuned",
        "Tuning": "Speed-up by step",
        "Network": "Latency, one way",
        "Run": "merge-bench run",
        "Live": "Memory of each worker",
    }
    ground = samples.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 25, 29)")
    for tab in TABS:
        samples.turn_to(tab)
        samples.wait_for_text(marks[tab])
        samples.wait_until("document.documentElement.scrollWidth <= window.innerWidth")
        for heading in _NUMBERS.get(tab, ()):
            column = samples.page.locator(f'.tabulator-col[tabulator-field="{heading}"]:visible')
            assert samples.edge_of(column) <= width + 2
        assert samples.page.evaluate(CONTRAST) == {}
        samples.picture(f"{tab.lower()}-{scheme}-{width}")


def test_figures_follow_the_system_to_dark_and_back_while_the_page_is_open(samples: Window) -> None:
    samples.wait_for_text("Throughput of each iteration")
    samples.wait_until(f"({GROUND}) > 200")
    samples.page.emulate_media(color_scheme="dark")
    samples.wait_until(f"({GROUND}) < 60", patience=15)
    samples.page.emulate_media(color_scheme="light")
    samples.wait_until(f"({GROUND}) > 200", patience=15)


def test_the_header_names_the_folder_and_a_theme_that_is_chosen_there_stays(samples: Window) -> None:
    header = samples.page.get_by_role("banner")
    assert re.match(r"merge_bench\s+/\S+/results", header.inner_text())
    for theme in ("dark", "light", ""):
        samples.page.get_by_label("Theme").select_option(theme)
        samples.wait_until(f"({GROUND}) {'< 60' if theme == 'dark' else '> 200'}", patience=15)
        samples.page.reload()
        samples.wait_until(f"({GROUND}) {'< 60' if theme == 'dark' else '> 200'}")
    assert header.get_by_role("link", name="Log out").count() == 0  # nobody logged in


def test_the_conclusion_stands_as_tiles_before_every_chart(samples: Window) -> None:
    samples.page.get_by_label("Campaign (times in UTC)").select_option(label="the newest")
    samples.wait_for_text("Limited by")
    below = samples.page.get_by_text("Throughput of each iteration").bounding_box()["y"]
    for name in ("Verified", "Wall-clock", "Throughput", "Bandwidth", "Limited by"):
        tile = samples.page.locator(".tile", has_text=name).first.bounding_box()
        assert tile["y"] + tile["height"] < below


def test_names_and_messages_that_are_attacks_stay_text(samples: Window) -> None:
    choice = samples.page.get_by_label("Campaign (times in UTC)")
    choice.locator("option", has_text="alert(1)").first.wait_for(state="attached")
    evil = next(text for text in choice.locator("option").all_inner_texts() if "alert(1)" in text and "failed" in text)
    choice.select_option(evil)
    samples.wait_for_text("ended with status 3")
    samples.wait_for_text("<script>alert(1)</script>")
    samples.turn_to("Results")
    choose(samples.page.locator(".tabulator-row", has_text="<script>").first)
    samples.wait_for_text("UNVERIFIED")
    samples.picture("results-hostile")
    injected = """(() => { const walk = root => [...root.querySelectorAll("*")].some(one =>
        one.hasAttribute("onerror") || (one.tagName === "SCRIPT" && /alert\\(/.test(one.textContent))
        || (one.shadowRoot && walk(one.shadowRoot))); return walk(document) })()"""
    assert samples.page.evaluate(injected) is False


def test_a_campaign_of_fewer_workers_is_followed_and_the_results_still_open(samples: Window) -> None:
    choice = samples.page.get_by_label("Campaign (times in UTC)")
    for name, ranks in (("many", 4), ("few", 2)):
        choice.locator("option", has_text=name).first.wait_for(state="attached")
        choice.select_option(next(text for text in choice.locator("option").all_inner_texts() if name in text))
        samples.wait_until(f"{_NUMBER_OF_RANKS} === {ranks}")
    assert samples.page.evaluate("Promise.all(Bokeh.index.roots.map(one => one.ready)).then(() => true, () => false)")
    samples.turn_to("Results")
    samples.page.locator(".tabulator-row", has_text="few").wait_for()


def test_even_markup_that_got_into_the_page_would_run_nothing_and_send_nothing(samples: Window) -> None:
    samples.wait_for_text("Throughput of each iteration")
    samples.page.evaluate("""() => {
        document.body.insertAdjacentHTML("beforeend", '<img src="nowhere" onerror="window.owned = 1">');
        const script = document.createElement("script");
        script.textContent = "window.owned = 2";
        document.body.append(script);
    }""")
    samples.wait_until("document.querySelector('img[src=nowhere]').complete")
    assert samples.page.evaluate("window.owned === undefined")
    assert not samples.page.evaluate("fetch('http://127.0.0.1:9/').then(() => true, () => false)")
    refused = [one for one in samples.complaints if "Content Security Policy" in one]
    assert len(refused) >= 3
    samples.complaints.clear()
    samples.page.evaluate(
        "document.querySelectorAll('body > img, body > script:last-child').forEach(one => one.remove())"
    )


def test_the_keyboard_alone_is_enough(samples: Window) -> None:
    samples.wait_for_text("Throughput of each iteration")
    samples.page.get_by_role("button", name="Network", exact=True).focus()
    samples.page.keyboard.press("Enter")
    samples.wait_for_text("Latency, one way")
    samples.page.get_by_role("button", name="Live", exact=True).focus()
    samples.page.keyboard.press("Space")
    word = samples.page.get_by_label("Throughput: Data processed").first
    word.focus()
    samples.page.locator(".tip:visible", has_text="Data processed").wait_for()


def test_the_config_that_was_found_can_be_downloaded(samples: Window) -> None:
    samples.turn_to("Tuning")
    samples.wait_for_text("Found: tls=sm rails=2")
    with samples.page.expect_download() as download:
        samples.page.get_by_text("Download the config").click()
    text = Path(download.value.path()).read_text()
    assert "export UCX_TLS=sm\n" in text
    assert download.value.suggested_filename == "tls-sm-rails-2.cfg"


def test_the_table_is_sorted_and_filtered(samples: Window) -> None:
    samples.turn_to("Results")
    rows = samples.page.locator(".tabulator-row")
    rows.filter(has_text="probe p2p").wait_for()
    samples.page.locator(".tabulator-col", has_text="Kind").locator("input").fill("probe")
    samples.page.locator(".tabulator-col", has_text="Kind").locator("input").press("Enter")
    samples.wait_until(f"""{_ROWS} === 1""")
    assert "tcp, optimized" in rows.first.inner_text()
    samples.page.locator(".tabulator-col", has_text="Kind").locator("input").fill("")
    samples.page.locator(".tabulator-col", has_text="Kind").locator("input").press("Enter")
    samples.wait_until(f"{_ROWS} > 5")
    sorter = samples.page.locator(".tabulator-col", has_text="Throughput").locator(".tabulator-col-sorter")
    for first in ("0.542", "12.365"):
        sorter.click()
        rows.first.filter(has_text=first).wait_for()


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
    for server in serve(results, tmp_path):
        view = window(server.url)
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


_NUMBER_OF_RANKS = """(() => {
  const found = window.Bokeh.documents.flatMap(one => [...one._all_models.values()])
    .filter(model => model.type === "Range1d" && model.end % 1 === 0.5 && model.start === -0.5 && model.end < 10)
    .map(model => model.end + 0.5);
  return Math.max(0, ...found);
})()"""
"""Of the campaign that the Live tab shows: the ends of the axes of ranks. That of a command's launches ends further."""

_ROWS = """(() => { const walk = root => [...root.querySelectorAll("*")].reduce((sum, one) =>
    sum + (one.classList.contains("tabulator-row") ? 1 : 0) + (one.shadowRoot ? walk(one.shadowRoot) : 0), 0);
    return walk(document) })()"""
