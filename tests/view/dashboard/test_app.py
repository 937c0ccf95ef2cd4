"""The whole page: its tabs, results that are broken or hostile, and messages from a notebook."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import msgspec
import panel as pn
import pytest
from bokeh.document import Document
from bokeh.model import Model
from panel.models.comm_manager import CommManager
from pyviz_comms import Comm

from merge_bench.dashboard.app import Dashboard
from merge_bench.dashboard.components import word_with_definition
from merge_bench.view.text import as_html
from tests.view.dashboard.boards import board, build, list_again, texts, update
from tests.view.dashboard.queues import FakeQueue, job
from tests.view.dashboard.samples import broken, hostile, interleaved, probing, tuning

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


@pytest.mark.slow
def test_what_was_read_before_a_tab_was_left_is_shown_when_it_is_chosen_again(tmp_path: Path) -> None:
    view = board(tmp_path)
    build(view)
    interleaved(tmp_path)
    list_again(view)
    view.results.read_update()  # and the tab was left before this was shown
    update(view.results)
    configs = list(view.results.table.value["Configs"])
    view.results.table.selection = [configs.index("default, tuned")]
    view.results.read_update()
    update(view.results)
    assert "FASTER" in texts(view.results.parts)
    tuning(tmp_path)
    list_again(view)
    view.tuning.read_update()
    update(view.tuning)
    assert "Found: tls=sm" in texts(view.tuning.layout)


@pytest.mark.slow
def test_tuning_and_network_show_the_newest_and_offer_the_rest(tmp_path: Path) -> None:
    tuning(tmp_path)
    probing(tmp_path)
    view = board(tmp_path)
    update(view.tuning)
    assert "Found: tls=sm rails=2" in texts(view.tuning.layout)
    assert not view.tuning.download.disabled
    assert "export UCX_TLS=sm" in view.tuning.download.callback().getvalue()
    update(view.network)
    update(view.network)
    assert len(view.network.parts.select(pn.pane.Bokeh)) == 2


@pytest.mark.slow
def test_hostile_and_broken_results_break_nothing_and_become_no_markup(tmp_path: Path) -> None:
    hostile(tmp_path)
    broken(tmp_path)
    tuning(tmp_path, winner="<img src=x onerror=alert(1)>")
    view = board(tmp_path)
    evil = next(value for value in view.live.choice.options.values() if "-evil-" in value)
    view.live.choice.value = evil
    for one in (view.live, view.results, view.tuning, view.network):
        update(one)
    view.results.table.selection = list(range(min(12, len(view.results.table.value))))
    update(view.results)
    shown = "\n".join(texts(one.layout) for one in (view.live, view.results, view.tuning, view.network))
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<img" not in shown


def test_text_is_escaped_and_what_prints_nothing_becomes_visible() -> None:
    found = as_html("<b>\"x\"</b> & 'y'\x1b[1m\u202e")
    assert found == "&lt;b&gt;&quot;x&quot;&lt;/b&gt; &amp; &#x27;y&#x27;\ufffd[1m\ufffd"


def test_words_show_their_definitions_to_pointer_keyboard_and_screen_reader() -> None:
    found = word_with_definition("Throughput")
    assert 'tabindex="0"' in found
    assert 'aria-label="Throughput: Data processed ÷ wall-clock' in found


class Notebook:
    """A notebook's page with the dashboard; `root`: the model of all of it. Panel calls `_on_msg` for its messages."""

    def __init__(self, view: Dashboard) -> None:
        self.page, self._layout = Document(), view.__panel__()
        self.root = self._layout.get_root(self.page, Comm())
        self.page.add_root(self.root)

    def send(self, *changes: tuple[Model, str, object]) -> None:
        """Send a message with changes, each with its model, attribute and new value."""
        kind = "ModelChanged"
        events = [{"kind": kind, "model": {"id": model.id}, "attr": name, "new": new} for model, name, new in changes]
        message = {"header": {"msgid": "1", "msgtype": "PATCH-DOC"}, "metadata": {}, "content": {"events": events}}
        self._layout._on_msg(self.root.ref["id"], CommManager(), {**message, "_buffers": {}})


def test_events_of_a_page_in_other_threads_are_handled_on_the_event_loop_in_their_order(tmp_path: Path) -> None:
    handled: list[tuple[object, threading.Thread]] = []

    async def main() -> None:
        view = Dashboard(tmp_path, queue=FakeQueue([]))
        view.tabs.value = "Run"
        typed = view.run.form.fields["workers"]
        typed.value = "in this field"
        typed.param.watch(lambda event: handled.append((event.new, threading.current_thread())), "value")
        notebook = Notebook(view)
        (field,) = notebook.root.select({"value": "in this field"})
        for number in range(3):
            changes = [(field, "value", str(2 * number + at)) for at in range(2)]
            sender = threading.Thread(target=notebook.send, args=changes)
            sender.start()
            sender.join()
        assert handled == []
        while len(handled) < 6:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert handled == [(str(number), threading.current_thread()) for number in range(6)]


def test_a_click_in_a_notebook_counts_although_it_comes_with_a_change_of_a_removed_part(tmp_path: Path) -> None:
    view = Dashboard(tmp_path, queue=FakeQueue([]))
    notebook = Notebook(view)
    _, buttons, body, *_ = notebook.root.children
    (gone,) = body.children
    assert notebook.page.get_model_by_id(gone.id) is gone
    view.tabs.value = "Run"
    assert notebook.page.get_model_by_id(gone.id) is None
    notebook.send((gone, "visible", False), (buttons, "active", 3))
    assert view.tabs.value == "Tuning"


def test_the_live_tab_opens_with_the_first_record_of_a_run_that_was_started_here(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "sweep", tmp_path / "earlier")
    queue = FakeQueue([job(1, "running")])
    view = Dashboard(tmp_path, queue=queue)
    list_again(view)
    view.tabs.value = "Run"
    view.live.choice.value = str(tmp_path / "earlier")
    view.run.form.start.clicks += 1
    (started,) = queue.found[:1]
    for found in ([started], [msgspec.structs.replace(started, state="running", started=1.0)]):
        queue.found = found
        update(view.run)
        assert view.tabs.value == "Run"  # nothing is recorded yet
    shutil.copytree(CAMPAIGNS / "p2p", tmp_path / "new")
    queue.found = [msgspec.structs.replace(queue.found[0], result="new")]
    update(view.run)
    assert (view.tabs.value, view.live.choice.value) == ("Live", "")
    view.tabs.value = "Run"
    update(view.run)
    assert view.tabs.value == "Run"  # once is enough


def test_a_run_that_ends_without_a_record_leaves_its_output_in_sight(tmp_path: Path) -> None:
    queue = FakeQueue([])
    view = Dashboard(tmp_path, queue=queue)
    view.tabs.value = "Run"
    view.run.form.start.clicks += 1
    queue.found = [job(queue.found[0].id, "failed", status=2)]
    update(view.run)
    assert view.tabs.value == "Run"
    assert f"log of {queue.found[0].id}" in texts(view.run.layout)
