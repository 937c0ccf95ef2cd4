"""Finds out when a page has processed all updates sent so far, and whether it is hidden."""

from __future__ import annotations

import asyncio

import panel as pn
from bokeh.models.widgets import NumericInput


class PageReady:
    """An invisible part of a page; `pane` is to be put into the page's layout.

    It is a number field. When the server raises the field's minimum, the page raises the number to it and sends the
    new number. A page processes updates in order, so the number shows that all earlier updates are done. (Bokeh's
    usual way, a script sent as text, is forbidden by the page's policy.) `answered`: whether the page ever answered.
    A served page disables the field while the page is hidden.
    """

    def __init__(self) -> None:
        self.answered = False
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._model = NumericInput(value=0, low=0, visible=False, name="page_ready")
        self._model.on_change("value", lambda _attribute, _old, number: self._receive(number))
        self.pane = pn.pane.Bokeh(self._model, margin=0, width=0, height=0)

    @property
    def hidden(self) -> bool:
        """Whether the page is in a tab or window that nobody sees."""
        return bool(self._model.disabled)

    def ask(self) -> asyncio.Future[None]:
        """Ask the page, under the document's lock and on the event loop; the future ends with the answer."""
        self._asked += 1
        waiting = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        self._model.low = self._asked
        return waiting

    def _receive(self, number: int) -> None:
        self.answered = True
        for asked in [asked for asked in self._waiting if asked <= number]:
            waiting = self._waiting.pop(asked)
            waiting.get_loop().call_soon_threadsafe(_finish, waiting)


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
