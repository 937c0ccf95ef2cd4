"""A session: it goes on after errors, and draws no faster than the page can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bokeh.document import Document
from pyviz_comms import Comm

from merge_bench.dashboard.background import PageSession, PageUpdatePauses


def test_a_failure_of_one_view_is_not_the_end_of_its_updates() -> None:
    calls: list[int] = []

    def work() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("a mistake")
        return calls[-1]

    shown: list[int] = []

    async def main() -> None:
        session = PageSession()
        session.schedule_updates(0.01, work, shown.append)
        session.schedule_updates(0.01, lambda: 7, lambda _: shown.append(-1), lambda: False)
        while len(shown) < 3:
            await asyncio.sleep(0.01)
        session.cancel_updates()
        await asyncio.sleep(0.05)
        count = len(shown)
        await asyncio.sleep(0.05)
        assert len(shown) == count

    asyncio.run(asyncio.wait_for(main(), 60))
    assert shown[:3] == [1, 2, 3]


def test_a_view_that_drew_something_rests_before_it_draws_again() -> None:
    """A browser that gets figures faster than it can draw them answers to nothing else."""
    drawn: list[int] = []
    looked: list[int] = []

    def draw(found: int) -> bool:
        drawn.append(found)
        return True

    async def main() -> None:
        session = PageSession(pauses=PageUpdatePauses(drawn=3600.0))
        session.schedule_updates(0.01, lambda: 1, draw)
        session.schedule_updates(0.01, lambda: 2, looked.append)
        while len(looked) < 20:
            await asyncio.sleep(0.01)
        session.cancel_updates()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert drawn == [1]


class Page:
    """A page without a browser, which answers or not. Tests in tests/browser have a real one."""

    def __init__(self, session: PageSession) -> None:
        self.asked: list[int] = []
        self.answers = False
        (self._field,) = session.page_ready.pane.get_root(Document(), Comm()).children
        self._field.on_change("low", lambda _attribute, _old, _low: self._take_question())

    def _take_question(self) -> None:
        self.asked.append(self._field.low)
        if self.answers:
            self.answer()

    def answer(self) -> None:
        self._field.value = self._field.low


def draw_while(page_does: Callable[[Page, list[int]], Any], answer: float = 10.0) -> Page:
    """Draw again and again while `page_does` runs; returns the page, whose `answer` is waited for so many seconds."""
    pages: list[Page] = []

    async def main() -> None:
        session = PageSession(pauses=PageUpdatePauses(drawn=0.0, answer=answer))
        page = Page(session)
        pages.append(page)
        drawn: list[int] = []
        session.schedule_updates(0.0, lambda: 1, lambda _: drawn.append(1) is None)
        await page_does(page, drawn)
        session.cancel_updates()

    asyncio.run(asyncio.wait_for(main(), 60))
    return pages[0]


def test_a_page_that_has_not_drawn_the_last_figures_gets_no_new_ones() -> None:
    async def page_does(page: Page, drawn: list[int]) -> None:
        while len(page.asked) < 2:  # asked again, because a page that was being loaded did not notice
            await asyncio.sleep(0.01)
        assert len(drawn) == 1
        page.answers = True
        page.answer()
        while len(drawn) < 5:
            await asyncio.sleep(0.01)

    page = draw_while(page_does)
    assert page.asked == sorted(set(page.asked))


def test_a_page_that_cannot_answer_is_waited_for_once() -> None:
    async def page_does(page: Page, drawn: list[int]) -> None:
        began = time.monotonic()
        while len(drawn) < 20:
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 15  # 20 s, if each were waited for
        assert len(page.asked) >= 19
        page.answers = True
        while len(drawn) < 40:
            await asyncio.sleep(0.01)

    draw_while(page_does, answer=0.0)


def test_updates_keep_their_pace_unless_a_person_does_something_or_the_pace_changes() -> None:
    read: list[float] = []
    looked: list[int] = []
    pace = [3600.0]

    async def main() -> None:
        session = PageSession(lambda: pace[0])
        session.schedule_updates(0.01, lambda: pace[0], read.append)
        session.schedule_updates(0.01, lambda: 0, looked.append, lambda: bool(looked.append(0)))

        async def wait(count: int) -> None:
            before = len(looked)
            while len(looked) < before + count or not read:
                await asyncio.sleep(0.01)

        await wait(3)
        assert read == [3600.0]
        session.request_update()
        await wait(3)
        assert read == [3600.0, 3600.0]
        pace[0] = 1800.0
        await wait(3)
        assert read == [3600.0, 3600.0, 1800.0]
        session.cancel_updates()

    asyncio.run(asyncio.wait_for(main(), 60))
