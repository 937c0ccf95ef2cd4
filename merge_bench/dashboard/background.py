"""Work beside the event loop: threads read, and their results are shown under the document's lock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from typing import Any, Generic, TypeVar, TypeVarTuple

import panel as pn
from bokeh.models import LayoutDOM, Plot, Selection
from bokeh.models.widgets import NumericInput
from panel.io.resources import LOCAL_DIST

from merge_bench.dashboard.components import style_sheet
from merge_bench.errors import MergeBenchError

_TEMPLATE = (resources.files("merge_bench.dashboard") / "templates" / "page.html.j2").read_text(encoding="utf-8")
_READERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="results")
_LOG = logging.getLogger(__name__)
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Data = TypeVar("Data")


@dataclass(frozen=True)
class PageUpdatePauses:
    """How long a `PageSession` waits, in seconds.

    `drawn`: at least, after something was drawn; `look`: at most, until it looks again whether an update is due;
    `answer`: at most, for an answer of the page.
    """

    drawn: float = 0.5
    look: float = 0.25
    answer: float = 10.0


class PageSession:
    """Runs the repeated updates of one browser page, or of one output of a notebook, until it is closed.

    They run on the event loop that was running when the session was made, and so do events of the page: JupyterLab lets
    widgets send events to the kernel in other threads, and neither Panel nor the views expect several threads. Without
    a running event loop, as in tests, work is done and shown at once.

    Nothing is done for a served page while it is hidden, or no browser shows it. `pace`: gives the least seconds
    between two updates; an update that follows on something that a person did in the page does not wait.
    """

    def __init__(self, pace: Callable[[], float] = lambda: 0.0, pauses: PageUpdatePauses = PageUpdatePauses()) -> None:
        self._pace, self._pauses = pace, pauses
        self._touches = 0
        self._document = pn.state.curdoc if pn.state.curdoc and pn.state.curdoc.session_context else None
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._tasks: list[Future[None]] = []
        self.page_ready = PageReadyField()
        self._silent = False  # the page did not answer, and never has
        if self._document is not None:
            # Panel sets this when it makes the page; parts made before that would load styles from a public server.
            self._document.template_variables.setdefault("dist_url", LOCAL_DIST)
            # The page's policy, a second defence behind the escaping of every text: scripts run if they come from this
            # server or carry the page's nonce; handlers in markup do not run, and nothing is sent elsewhere. So no part
            # of a page may use CustomJS, `ReactiveHTML` or Panel's `FlexBox`, which need `eval`. In a notebook,
            # JupyterLab owns the page and sets the policy.
            css = style_sheet("palette") + style_sheet("page")
            self._document.template_variables.update(nonce=secrets.token_urlsafe(18), css=css)
            self._document.template = _TEMPLATE  # text, which extends the usual page
            self._document.on_session_destroyed(lambda _: self.cancel_updates())
            self._document.on_change(self._request_update_on_change)

    def schedule_updates(
        self,
        pause_seconds: float,
        read_update: Callable[[], Data],
        show_update: Callable[[Data], object],
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        """Repeat: call `read_update` in a thread, `show_update` with its result, and pause for `pause_seconds`.

        After a `show_update` that returned True the pause is at least `PageUpdatePauses.drawn`, and lasts until the
        page answers and then as long again as its answer took: a browser that gets new figures faster than it can draw
        them does nothing else, and ignores clicks.

        `is_due`: whether to update now; called before `read_update`, and again before its result is shown.
        """
        if self._loop is not None:
            again = self._repeat_updates(pause_seconds, read_update, show_update, is_due)
            self._tasks.append(asyncio.run_coroutine_threadsafe(again, self._loop))
        elif is_due():
            show_update(read_update())

    @property
    def is_served_page(self) -> bool:
        """Whether the session is of a page of a server, not of an output of a notebook."""
        return self._document is not None

    def request_update(self) -> None:
        """Have the visible tab updated at once, because a person did something in the page."""
        self._touches += 1

    def _request_update_on_change(self, event: Any) -> None:
        """Request an update if `event` is a change that a person made in the page, other than in a figure."""
        if getattr(event, "setter", None) is not None and isinstance(event.model, LayoutDOM | Selection):
            answer = (event.model.name, event.attr) == ("page_ready", "value")
            self._touches += not answer and not isinstance(event.model, Plot)

    async def _is_page_visible(self) -> bool:
        """Whether a browser shows the page or still loads it."""
        context: Any = self._document and self._document.session_context
        if not context:
            return True
        if not (context.session and context.session.connection_count):
            return not self.page_ready.answered
        if not (self.page_ready.answered or self._silent):
            await self._wait_for_page_answer()  # changes while the page is being built can be lost
        return not self.page_ready.is_page_hidden

    def run_handler_on_loop(self, handler: Callable[[], None]) -> None:
        """Call `handler`, which handles an event of the page, on the event loop, in the order of events."""
        if self._loop is None:
            handler()
        else:
            self._loop.call_soon_threadsafe(handler)

    def push_figures_to_notebook(self, panes: Iterable[pn.pane.Bokeh]) -> None:
        """Send changes of the figures in `panes` to the notebook; does nothing for a page of a server."""
        shown = [pane for pane in panes if pane._models]
        if self._document is None and shown:
            pn.io.push_notebook(*shown)

    def cancel_updates(self) -> None:
        """Cancel all repeated updates of the page."""
        for task in self._tasks:
            task.cancel()

    async def _repeat_updates(
        self,
        pause_seconds: float,
        read_update: Callable[[], Data],
        show_update: Callable[[Data], object],
        is_due: Callable[[], bool],
    ) -> None:
        before, done = None, 0.0
        while True:
            pace, wanted, drawn = max(self._pace(), pause_seconds), is_due() and await self._is_page_visible(), False
            if wanted and (before != (pace, self._touches) or time.monotonic() >= done + pace):
                before = pace, self._touches
                drawn = await self._update_view(read_update, show_update, is_due)
                done = time.monotonic()
            look = self._pauses.look
            await asyncio.sleep(self._pauses.drawn if drawn else min(pace, look) if wanted else look)
            if drawn:
                await asyncio.sleep(await self._wait_for_page_answer())

    async def _wait_for_page_answer(self) -> float:
        """Wait until the page answers, which it does when it has drawn everything; returns the seconds that took.

        If a page never answered, later calls do not wait for it: in some notebooks a page cannot send messages.
        """
        if not self.page_ready.pane._models:
            return 0.0  # No page shows it.
        begun = time.monotonic()
        answers: list[asyncio.Future[None]] = []

        def repeat_page_request() -> None:
            answers.append(self.page_ready.request_page_answer())
            self.push_figures_to_notebook([self.page_ready.pane])

        while True:
            # The question is repeated, because a page that is being loaded does not notice a question.
            await self._show_under_document_lock(repeat_page_request)
            last = answers[-1:]
            answered = bool(last) and bool((await asyncio.wait(last, timeout=0.0 if self._silent else 1.0))[0])
            seconds = time.monotonic() - begun
            if answered or self._silent or seconds > self._pauses.answer:
                self._silent = not answered and not self.page_ready.answered
                return seconds

    async def _update_view(
        self, read_update: Callable[[], Data], show_update: Callable[[Data], object], is_due: Callable[[], bool]
    ) -> bool:
        try:
            data = await asyncio.get_running_loop().run_in_executor(_READERS, read_update)
            return await self._show_under_document_lock(lambda: show_update(data) if is_due() else None)
        except Exception:  # An error in one update must not end the updates for good.
            _LOG.exception("an update of the view failed")
            return False

    async def _show_under_document_lock(self, show_update: Callable[[], object]) -> bool:
        """Call `show_update` under the document's lock and wait for its end; returns whether it returned True."""
        if self._document is None:
            return show_update() is True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def show_and_report_end() -> None:
            drawn = False
            try:
                with pn.io.hold(self._document):
                    drawn = show_update() is True
            except Exception:
                _LOG.exception("an update of the view failed")
            if not done.done():
                done.set_result(drawn)

        self._document.add_next_tick_callback(show_and_report_end)
        return await done


class PageReadyField:
    """An invisible number field of a page with which the server finds out whether the page has drawn everything.

    `pane` is to be put into the page's layout. When the server raises the field's minimum, the page raises the number
    to it and sends the new number. A page processes updates in order, so the number shows that all earlier updates are
    done. (Bokeh's usual way, a script sent as text, is forbidden by the page's policy.) `answered`: whether the page
    ever answered. A served page disables the field while the page is hidden.
    """

    def __init__(self) -> None:
        self.answered = False
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._model = NumericInput(value=0, low=0, visible=False, name="page_ready")
        self._model.on_change("value", lambda _attribute, _old, number: self._receive_page_answer(number))
        self.pane = pn.pane.Bokeh(self._model, margin=0, width=0, height=0)

    @property
    def is_page_hidden(self) -> bool:
        return bool(self._model.disabled)

    def request_page_answer(self) -> asyncio.Future[None]:
        """Ask the page to answer once it has drawn everything; returns a future that is done when the answer arrives.

        To be called under the document's lock, on the event loop.
        """
        self._asked += 1
        waiting = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        self._model.low = self._asked
        return waiting

    def _receive_page_answer(self, number: int) -> None:
        self.answered = True
        for question in [asked for asked in self._waiting if asked <= number]:
            waiting = self._waiting.pop(question)
            waiting.get_loop().call_soon_threadsafe(_set_future_done, waiting)


def _set_future_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class CachedLastResult(Generic[*Arguments, Result]):
    """Calls `make` and keeps its result until the arguments change; an error becomes `make_failed` of its message."""

    def __init__(self, make: Callable[[*Arguments], Result], make_failed: Callable[[str], Result]) -> None:
        self._make, self._make_failed = make, make_failed
        self._last: tuple[tuple[*Arguments], Result] | None = None

    def __call__(self, *arguments: *Arguments) -> Result:
        """Return the result for `arguments`, the same object as before if they are equal to the last ones."""
        if self._last is None or self._last[0] != arguments:
            self._last = arguments, self._make_or_describe_failure(arguments)
        return self._last[1]

    def _make_or_describe_failure(self, arguments: tuple[*Arguments]) -> Result:
        try:
            return self._make(*arguments)
        except MergeBenchError as reason:
            return self._make_failed(str(reason))
        except Exception as error:
            _LOG.warning("a result cannot be shown", exc_info=True)
            return self._make_failed(f"Cannot show this result: {type(error).__name__}: {error}")
