"""Work beside the event loop: reading happens in threads, and what it found is shown under the document's lock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import panel as pn
from panel.io.resources import LOCAL_DIST

from merge_bench.view.dashboard.content_security import restrict
from merge_bench.view.dashboard.page_ready import PageReady

_READERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="results")
DRAWN_SECONDS = 0.5
"""The least pause after something was drawn."""
ANSWER_SECONDS = 10.0
"""How long an answer of the page is waited for."""
_LOG = logging.getLogger(__name__)
Found = TypeVar("Found")


class Session:
    """One page, or one output of a notebook: its tasks end with it.

    They run on the event loop in which it began, and so do events of the page: JupyterLab lets widgets send events to
    the kernel in other threads, while neither Panel nor the views expect more than one. Where it began in no event
    loop, as in tests, work is done and shown at once.
    """

    def __init__(self) -> None:
        self._document = pn.state.curdoc if pn.state.curdoc and pn.state.curdoc.session_context else None
        self._loop = _running_loop()
        self._tasks: list[Future[None]] = []
        self.served = self._document is not None
        self.echo = PageReady()
        self._mute = False
        if self._document is not None:
            # Panel says so itself when it makes the page; what is made before would ask a server elsewhere for styles.
            self._document.template_variables.setdefault("dist_url", LOCAL_DIST)
            restrict(self._document)
            self._document.on_session_destroyed(lambda _: self.close())

    def every(
        self,
        seconds: float,
        work: Callable[[], Found],
        show: Callable[[Found], object],
        when: Callable[[], bool] = lambda: True,
    ) -> None:
        """Do `work` in a thread and `show` what it returned, again and again, `seconds` after it was shown.

        After a `show` that returned True the pause is at least `DRAWN_SECONDS`, and lasts until the page answers and
        then as long again as its answer took: a browser that gets new figures faster than it can draw them answers to
        nothing else.

        `when`: whether it is to be done now, which is asked again before anything is shown.
        """
        if self._loop is not None:
            again = self._again(seconds, work, show, when)
            self._tasks.append(asyncio.run_coroutine_threadsafe(again, self._loop))
        elif when():
            show(work())

    def on_loop(self, handle: Callable[[], None]) -> None:
        """Handle an event of the page on the event loop, in the order of events."""
        if self._loop is None:
            handle()
        else:
            self._loop.call_soon_threadsafe(handle)

    def push(self, panes: Iterable[pn.pane.Bokeh]) -> None:
        """Send what changed in figures to a notebook, where nothing does so by itself."""
        shown = [pane for pane in panes if pane._models]
        if not self.served and shown:
            pn.io.push_notebook(*shown)

    def close(self) -> None:
        """End everything that goes on."""
        for task in self._tasks:
            task.cancel()

    async def _again(
        self, seconds: float, work: Callable[[], Found], show: Callable[[Found], object], when: Callable[[], bool]
    ) -> None:
        while True:
            drawn = when() and await self._once(work, show, when)
            if drawn:
                await asyncio.sleep(max(seconds, DRAWN_SECONDS))
                await asyncio.sleep(await self._answer_seconds())
            else:
                await asyncio.sleep(seconds)

    async def _answer_seconds(self) -> float:
        """How long the page took to answer: next to nothing, once it has drawn everything.

        A page that never answers is not waited for again until it does: some notebooks let no page send messages.
        """
        if not self.echo.pane._models:
            return 0.0  # No page shows it.
        begun = time.monotonic()
        asked: list[asyncio.Future[None]] = []

        def ask() -> None:
            asked.append(self.echo.ask())
            self.push([self.echo.pane])

        while True:
            # Asked again, because a page that is being loaded does not notice a question.
            await self._show(ask)
            answered = bool(asked) and bool((await asyncio.wait(asked[-1:], timeout=0.0 if self._mute else 1.0))[0])
            seconds = time.monotonic() - begun
            if answered or self._mute or seconds > ANSWER_SECONDS:
                self._mute = not answered and not self.echo.heard
                return seconds

    async def _once(self, work: Callable[[], Found], show: Callable[[Found], object], when: Callable[[], bool]) -> bool:
        try:
            found = await asyncio.get_running_loop().run_in_executor(_READERS, work)
            return await self._show(lambda: show(found) if when() else None)
        except Exception:  # One view's mistake must not end the updates of it for good.
            _LOG.exception("an update of the view failed")
            return False

    async def _show(self, show: Callable[[], object]) -> bool:
        """Run `show` where models may be changed, and wait until it is done; gives whether it returned True."""
        if self._document is None:
            return show() is True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def locked() -> None:
            drawn = False
            try:
                with pn.io.hold(self._document):
                    drawn = show() is True
            except Exception:
                _LOG.exception("an update of the view failed")
            if not done.done():
                done.set_result(drawn)

        self._document.add_next_tick_callback(locked)
        return await done


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
