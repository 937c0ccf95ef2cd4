"""Whether a page has done all that it was told so far."""

from __future__ import annotations

import asyncio

import panel as pn
from bokeh.models.widgets import NumericInput


class Echo:
    """A part of a page that nobody sees; `pane` belongs into the page's layout.

    It is a field for a number: where its least number is raised, the page raises its number to it and says so. A page
    does what it is told in turn, so that the number says that everything before is done. (Bokeh's usual way, a script
    sent as text, is forbidden by the page's policy.) `heard`: whether it ever answered.
    """

    def __init__(self) -> None:
        self.heard = False
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._model = NumericInput(value=0, low=0, visible=False)
        self._model.on_change("value", lambda _attribute, _old, number: self._answered(number))
        self.pane = pn.pane.Bokeh(self._model, margin=0, width=0, height=0)

    def ask(self) -> asyncio.Future[None]:
        """Ask the page; under the document's lock, on the event loop. What is returned is done with the answer."""
        self._asked += 1
        waiting = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        self._model.low = self._asked
        return waiting

    def _answered(self, number: int) -> None:
        self.heard = True
        for asked in [asked for asked in self._waiting if asked <= number]:
            waiting = self._waiting.pop(asked)
            waiting.get_loop().call_soon_threadsafe(_finish, waiting)


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
