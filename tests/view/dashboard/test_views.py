"""The views without a browser: what they read, what they show, and that data never becomes markup."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import panel as pn
import pytest
from bokeh.core.properties import value
from bokeh.document import Document
from panel.models.comm_manager import CommManager
from pyviz_comms import Comm

from merge_bench.errors import UsageError
from merge_bench.view.dashboard import results_view
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.background import Session
from merge_bench.view.dashboard.components import defined
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.run_view import DEFAULT, RunView
from merge_bench.view.dashboard.runner import Permission, Request, Runner
from merge_bench.view.plot.interactive import figure_of
from merge_bench.view.text import as_html
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.view.dashboard.samples import broken, hostile, interleaved, probing, tuning


@pytest.fixture
def view(tmp_path: Path) -> Callable[[], Dashboard]:
    def make() -> Dashboard:
        return Dashboard(tmp_path, runner=Runner(tmp_path))

    return make


def texts(layout: Any) -> str:
    """Everything that HTML panes of a layout show."""
    return "\n".join(str(pane.value) for pane in layout.select(pn.widgets.StaticText))


def update(one: Any) -> None:
    one.show(one.refresh())


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While somebody holds the records' lock, as one who writes them does."""
    with (folder / "records.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def build(board: Dashboard) -> None:
    """Tell what a browser tells when it has built the table: how many rows fit on a page."""
    board.results.table.page_size = 10


def test_without_a_run_the_live_tab_says_how_to_make_one(view: Callable[[], Dashboard]) -> None:
    board = view()
    update(board.live)
    assert "No run was made into this folder yet" in texts(board.live.layout)


def test_the_live_tab_follows_the_newest_campaign_and_then_the_next(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    write_campaign(tmp_path, Script(config="first"))
    board = view()
    update(board.live)
    assert ">first</b>" in texts(board.live.layout)
    later = write_campaign(tmp_path, Script(config="second"))
    os.rename(later, tmp_path / "99999999T000000Z-second-ffffff")
    board._listed(board._index.scan())
    update(board.live)
    assert ">second</b>" in texts(board.live.layout)


def test_points_are_added_once_and_all_of_them_when_a_campaign_is_chosen(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    folder = write_campaign(tmp_path, end=None)
    board = view()
    source = board.live._charts[0]._source
    update(board.live)
    assert list(source.data["number"]) == [1, 2, 3]
    records = folder / "records.jsonl"
    more = [line for line in records.read_bytes().splitlines(keepends=True) if b'"iteration"' in line][-1:]
    with records.open("ab") as stream:
        stream.writelines(more)
    update(board.live)
    update(board.live)
    assert list(source.data["number"]) == [1, 2, 3, 4]


def test_the_slowest_worker_is_named_and_hatched(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    def slow(worker: Any) -> Any:
        import msgspec

        flight = worker.flight_seconds
        slower = msgspec.structs.replace(flight, left=0.08) if worker.rank == 2 else flight
        return msgspec.structs.replace(worker, flight_seconds=slower)

    write_campaign(tmp_path, Script(plan=plan(4), worker=slow))
    board = view()
    update(board.live)
    assert "<b>rank 2</b> (node0)" in texts(board.live.layout)
    usual, slowest = board.live._figures[0].figure.renderers
    assert (list(usual.data_source.data["at"]), list(slowest.data_source.data["at"])) == ([0, 1, 3], [2])
    assert (usual.glyph.hatch_pattern, slowest.glyph.hatch_pattern) == (None, value("right_diagonal_line"))


def test_without_pages_of_dask_the_option_is_named_that_makes_them(view: Callable[[], Dashboard]) -> None:
    shown = texts(view().live.layout)
    assert "--dask-dashboard" in shown
    assert "<a " not in shown


def test_dask_pages_are_linked_while_the_launch_goes_on(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    script = Script(dashboard="http://127.0.0.1:8787/status", end_status=None)
    folder = write_campaign(tmp_path, script, end=None)
    board = view()
    update(board.live)
    assert "<a " not in texts(board.live.layout)  # nobody writes it any more
    with held(folder):
        board = view()
        update(board.live)
        assert '<a href="http://127.0.0.1:8787/status" target="_blank"' in texts(board.live.layout)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "http://a/' onclick='x", 'http://a/"><script>', "file:///etc/passwd", ""]
)
def test_what_is_no_address_of_a_page_is_not_linked(
    address: str, view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    folder = write_campaign(tmp_path, Script(dashboard=address, end_status=None), end=None)
    with held(folder):
        board = view()
        update(board.live)
        assert "<a " not in texts(board.live.layout)


def test_a_campaign_keeps_its_place_and_stays_chosen_when_others_come_and_when_one_is_deleted(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    mine = interleaved(tmp_path)
    board = view()
    build(board)
    update(board.results)
    before = list(board.results.table.value["Folder"])
    place = before.index(mine.name)
    board.results.table.selection = [place]
    later = write_campaign(tmp_path)
    os.utime(later / "records.jsonl")
    board._listed(board._index.scan())
    update(board.results)
    assert list(board.results.table.value["Folder"]) == [*before, later.name]
    assert board.results.table.selection == [place]
    assert [entry.folder for entry in board.results.question.entries] == [mine]
    assert "FASTER" in texts(board.results.answer)
    shutil.rmtree(later)
    board._listed(board._index.scan())
    update(board.results)
    assert list(board.results.table.value["Folder"]) == [*before, later.name]
    assert board.results.table.value["Status"].iloc[-1] == "deleted"


def test_what_is_chosen_before_new_rows_have_reached_the_browser_is_what_was_meant(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    mine = interleaved(tmp_path)
    board = view()
    build(board)
    update(board.results)
    place = list(board.results.table.value["Folder"]).index(mine.name)
    write_campaign(tmp_path)
    board._listed(board._index.scan())
    found = board.results.refresh()
    board.results.table.selection = [place]
    board.results.show(found)
    update(board.results)
    assert [entry.folder for entry in board.results.question.entries] == [mine]
    assert board.results.table.selection == [place]


def test_rows_change_only_once_the_browser_has_built_the_table(
    view: Callable[[], Dashboard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_view, "PATIENCE_SECONDS", 1e9)
    folder = write_campaign(tmp_path, end=None)
    board = view()
    build(board)
    update(board.results)
    place = list(board.results.table.value["Folder"]).index(folder.name)
    assert board.results.table.value["Status"].iloc[place] == "unfinished"
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(b'{"schema":1,"kind":"end","time":1.0,"status":0}\n')
    board._turn("Live")
    board._turn("Results")
    before = board.results.table.value
    board._listed(board._index.scan())
    update(board.results)
    assert board.results.table.value is before
    build(board)
    update(board.results)
    assert board.results.table.value["Status"].iloc[place] == "done"


def test_a_table_that_never_tells_that_it_is_built_makes_way_for_one_with_the_new_rows(
    view: Callable[[], Dashboard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_view, "PATIENCE_SECONDS", -1.0)
    interleaved(tmp_path)
    board = view()
    board.results.table.selection = [0]
    before = board.results.table
    write_campaign(tmp_path, Script(config="fresh"))
    board._listed(board._index.scan())
    update(board.results)
    now = board.results.table
    assert now is not before
    assert board.results._table.objects == [now]
    assert "fresh" in list(now.value["Configs"])
    assert now.selection == [0]
    update(board.results)
    assert board.results.table is now


def test_what_is_chosen_stays_so_when_the_tab_is_left(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    interleaved(tmp_path)
    board = view()
    board._turn("Results")
    board.results.table.selection = [0]
    board._turn("Live")
    board._turn("Results")
    assert board.results.table.selection == [0]
    assert board.results._table[0] is board.results.table


def test_an_answer_is_not_worked_out_again_unless_something_changed(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    interleaved(tmp_path)
    board = view()
    update(board.results)
    board.results.table.selection = [0]
    first = board.results.refresh().answer
    assert first.verdicts
    assert board.results.refresh().answer is first
    board.results.metric.value = "Bandwidth"
    assert board.results.refresh().answer is not first


def test_what_was_read_while_a_tab_was_left_is_shown_when_it_is_chosen_again(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    board = view()
    build(board)
    interleaved(tmp_path)
    board._listed(board._index.scan())
    board.results.refresh()  # and the tab was left before this was shown
    update(board.results)
    configs = list(board.results.table.value["Configs"])
    board.results.table.selection = [configs.index("default, tuned")]
    board.results.refresh()
    update(board.results)
    assert "FASTER" in texts(board.results.answer)
    tuning(tmp_path)
    board._listed(board._index.scan())
    board.tuning.refresh()
    update(board.tuning)
    assert "Found: tls=sm" in texts(board.tuning.layout)


def test_too_many_chosen_campaigns_are_a_sentence(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    for _ in range(13):
        write_campaign(tmp_path)
    board = view()
    update(board.results)
    board.results.table.selection = list(range(13))
    update(board.results)
    assert "At most 12" in texts(board.results.layout)


def test_tuning_and_network_show_the_newest_and_offer_the_rest(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    tuning(tmp_path)
    probing(tmp_path)
    board = view()
    update(board.tuning)
    assert "Found: tls=sm rails=2" in texts(board.tuning.layout)
    assert not board.tuning.download.disabled
    assert "export UCX_TLS=sm" in board.tuning.download.callback().getvalue()
    update(board.network)
    update(board.network)
    assert len(board.network._rest.select(pn.pane.Bokeh)) == 2


def test_hostile_and_broken_results_break_nothing_and_become_no_markup(
    view: Callable[[], Dashboard], tmp_path: Path
) -> None:
    hostile(tmp_path)
    broken(tmp_path)
    tuning(tmp_path, winner="<img src=x onerror=alert(1)>")
    board = view()
    evil = next(value for name, value in board.live.choice.options.items() if "evil" in name)
    board.live.choice.value = evil
    for one in (board.live, board.results, board.tuning, board.network):
        update(one)
    board.results.table.selection = list(range(min(12, len(board.results._placed))))
    update(board.results)
    shown = "\n".join(texts(one.layout) for one in (board.live, board.results, board.tuning, board.network))
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<img" not in shown


def test_tables_show_plain_text_alone(view: Callable[[], Dashboard], tmp_path: Path) -> None:
    hostile(tmp_path)
    board = view()
    update(board.results)
    formats = board.results.table.formatters
    texts_of = [name for name, kind in board.results.table.value.dtypes.items() if kind == "object"]
    assert texts_of
    assert all(formats[name] == {"type": "plaintext"} for name in texts_of)


def test_text_is_escaped_and_what_prints_nothing_becomes_visible() -> None:
    found = as_html("<b>\"x\"</b> & 'y'\x1b[1m\u202e")
    assert found == "&lt;b&gt;&quot;x&quot;&lt;/b&gt; &amp; &#x27;y&#x27;\ufffd[1m\ufffd"


def test_words_explain_themselves_to_pointer_keyboard_and_screen_reader() -> None:
    found = defined("Throughput")
    assert 'tabindex="0"' in found
    assert 'aria-label="Throughput: Data processed ÷ wall-clock' in found


def test_a_failure_of_one_view_is_not_the_end_of_its_updates() -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("a mistake")
        return calls[-1]

    shown: list[int] = []

    async def main() -> None:
        session = Session()
        session.every(0.01, work, shown.append)
        session.every(0.01, lambda: 7, lambda _: shown.append(-1), lambda: False)
        while len(shown) < 3:
            await asyncio.sleep(0.01)
        session.close()
        await asyncio.sleep(0.05)
        count = len(shown)
        await asyncio.sleep(0.05)
        assert len(shown) == count

    asyncio.run(asyncio.wait_for(main(), 60))
    assert shown[:3] == [1, 2, 3]


def test_a_view_that_drew_something_rests_before_it_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that gets figures faster than it can draw them answers to nothing else."""
    monkeypatch.setattr("merge_bench.view.dashboard.background.DRAWN_SECONDS", 3600.0)
    drawn: list[int] = []
    looked: list[int] = []

    def draw(found: int) -> bool:
        drawn.append(found)
        return True

    async def main() -> None:
        session = Session()
        session.every(0.01, lambda: 1, draw)
        session.every(0.01, lambda: 2, looked.append)
        while len(looked) < 20:
            await asyncio.sleep(0.01)
        session.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert drawn == [1]


class Page:
    """Stands for a page in a browser: it answers, or does not. The browser's tests have a real one."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.answers = False
        self._model = session.echo._model
        monkeypatch.setattr(session.echo.pane, "_models", {"page": (self._model, None)})
        monkeypatch.setattr(session, "push", lambda _panes: self.told())

    def told(self) -> None:
        self.asked.append(self._model.low)
        if self.answers:
            self.answer()

    def answer(self) -> None:
        self._model.value = self._model.low


def drawn_while(page_does: Callable[[Page, list[int]], Any], monkeypatch: pytest.MonkeyPatch) -> Page:
    """Draw again and again, while `page_does` what it does."""
    monkeypatch.setattr("merge_bench.view.dashboard.background.DRAWN_SECONDS", 0.0)
    pages: list[Page] = []

    async def main() -> None:
        session = Session()
        page = Page(session, monkeypatch)
        pages.append(page)
        drawn: list[int] = []
        session.every(0.0, lambda: 1, lambda _: drawn.append(1) is None)
        await page_does(page, drawn)
        session.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    return pages[0]


def test_a_page_that_has_not_drawn_the_last_figures_gets_no_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def page_does(page: Page, drawn: list[int]) -> None:
        while len(page.asked) < 2:  # asked again, because a page that was being loaded did not notice
            await asyncio.sleep(0.01)
        assert len(drawn) == 1
        page.answers = True
        page.answer()
        while len(drawn) < 5:
            await asyncio.sleep(0.01)

    page = drawn_while(page_does, monkeypatch)
    assert page.asked == sorted(set(page.asked))


def test_a_page_that_cannot_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merge_bench.view.dashboard.background.ANSWER_SECONDS", 0.0)

    async def page_does(page: Page, drawn: list[int]) -> None:
        while len(drawn) < 20:  # in 20 s, if each were waited for
            await asyncio.sleep(0.01)
        assert len(page.asked) >= 19
        page.answers = True
        while len(drawn) < 40:
            await asyncio.sleep(0.01)

    drawn_while(page_does, monkeypatch)


def test_what_a_page_tells_in_other_threads_is_heard_on_the_event_loop_in_its_order(
    view: Callable[[], Dashboard], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[object, threading.Thread]] = []
    monkeypatch.setattr(
        pn.Column, "_on_msg",
        lambda _self, _ref, _manager, msg: heard.append((msg["content"]["events"], threading.current_thread())),
    )  # fmt: skip

    async def main() -> None:
        board = view()
        for number in range(3):
            message = {"content": {"events": [2 * number, 2 * number + 1]}}
            teller = threading.Thread(target=board._layout._on_msg, args=["ref", None, message])
            teller.start()
            teller.join()
        assert heard == []
        await asyncio.sleep(0)
        board._session.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert heard == [([number], threading.current_thread()) for number in range(6)]


def test_a_click_in_a_notebook_counts_though_something_that_is_gone_is_told_with_it(
    view: Callable[[], Dashboard],
) -> None:
    board, page = view(), Document()
    root = board._layout.get_root(page, Comm())
    page.add_root(root)
    reference = root.ref["id"]
    gone, buttons = board.live.layout._models[reference][0], board.tabs._models[reference][0]
    assert page.get_model_by_id(gone.id) is gone
    board.tabs.value = "Run"
    assert page.get_model_by_id(gone.id) is None
    changes = [
        {"kind": "ModelChanged", "model": {"id": gone.id}, "attr": "visible", "new": False},
        {"kind": "ModelChanged", "model": {"id": buttons.id}, "attr": "active", "new": 2},
    ]
    message = {"header": {"msgid": "1", "msgtype": "PATCH-DOC"}, "metadata": {}, "content": {"events": changes}}
    board._layout._on_msg(reference, CommManager(), {**message, "_buffers": {}})
    assert board.tabs.value == "Tuning"


class Recorder(Runner):
    """Starts nothing, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("results")
        self.asked: list[Request] = []

    def start(self, request: Request) -> None:
        if request.chunk == "taken":
            raise UsageError("a run is going on")
        self.asked.append(request)


@pytest.fixture
def runner() -> Recorder:
    return Recorder()


def run_view(runner: Runner, permission: Permission) -> RunView:
    return RunView(runner, permission)


def test_the_form_becomes_the_request_and_the_command_line(runner: Recorder) -> None:
    form = run_view(runner, Permission())
    form.config.value, form.chunk.value, form.workers.value = "tcp.cfg", "2e6", "3"
    form.start.clicks += 1
    assert runner.asked == [Request("tcp.cfg", "2e6", "3", "")]
    command = "python -m merge_bench run --config=tcp.cfg --chunk=2e6 --workers=3 --results=results"
    assert command in texts(form.layout)
    assert form.config.options[0] == DEFAULT


def test_without_the_token_nothing_starts_stops_or_is_killed(runner: Recorder) -> None:
    form = run_view(runner, Permission(token="secret"))
    stopped: list[str] = []
    runner.stop = lambda: stopped.append("stop")  # type: ignore[method-assign]
    for token in ("", "wrong", "secre"):
        form.token.value = token
        form.start.clicks += 1
        form.stop.clicks += 1
        form.kill.clicks += 1
    assert runner.asked == []
    assert stopped == []
    assert "needs the token" in texts(form.layout)
    form.token.value = "secret"
    form.start.clicks += 1
    assert len(runner.asked) == 1


def test_where_runs_are_refused_there_is_no_form_and_clicks_do_nothing(runner: Recorder) -> None:
    form = run_view(runner, Permission(refusal="Not here."))
    assert "Not here." in texts(form.layout)
    assert form.layout.select(pn.widgets.Button) == []
    form.start.clicks += 1
    assert runner.asked == []


def test_what_the_runner_refuses_is_shown(runner: Recorder) -> None:
    form = run_view(runner, Permission())
    form.chunk.value = "taken"
    form.start.clicks += 1
    assert "a run is going on" in texts(form.layout)


def test_every_chart_of_a_chosen_campaign_can_be_drawn(tmp_path: Path) -> None:
    from merge_bench.view.dashboard.index import Index
    from merge_bench.view.dashboard.results import choose

    interleaved(tmp_path)
    entry = Index(tmp_path).scan()[0]
    found = choose(Library().load([entry]), metric="Throughput", axis="GiB/s", datasets=("gadi-v100",))
    assert len(found.charts) == 3
    assert all(figure_of(chart).renderers for chart in found.charts)
