"""The Queue tab: the jobs of a service, how long they will take, and what they print. All text of clients is text."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import panel as pn

from merge_bench.analysis.statistics import median
from merge_bench.errors import MergeBenchError
from merge_bench.records.results_folder import Entry
from merge_bench.units import format_duration
from merge_bench.view.dashboard import components as ui
from merge_bench.view.dashboard.background import Session
from merge_bench.view.dashboard.campaign_cache import CampaignCache
from merge_bench.view.dashboard.progress import progress_of, seconds_left
from merge_bench.view.text import as_html, plural
from merge_bench.view.titles import short_time, tunes

HOW = (
    "<p>Queue a run with <code>python -m merge_bench run --chunk 1e6 --service URL</code>, where URL is the address of"
    " the service, or with <code>POST /api/jobs</code>.</p>"
)
_MOST = 50


class Update(NamedTuple):
    """What the tab shows, as HTML: a line beside each job, and the output of one."""

    summary: str
    jobs: Sequence[tuple[Any, str]] = ()
    output: str = ""


class QueueView:
    """The tab. At first it shows the output of the running job, or else of the newest.

    `queue`: of a service, for the holder of a token; it gives what the requests to ``/api/jobs`` give. `compare` shows
    results.
    """

    def __init__(
        self, session: Session, queue: Any, entries: Callable[[], Sequence[Entry]], cache: CampaignCache,
        compare: Callable[[Sequence[str]], object],
    ) -> None:  # fmt: skip
        self._session, self._queue, self._entries = session, queue, entries
        self._cache, self._compare = cache, compare
        self._chosen: int | None = None
        self._rows: list[tuple[int, bool, str | None]] = []
        self._summary, self._problem, self._output = ui.html(min_height=24), ui.html(visible=False), ui.html()
        self.jobs = pn.Column(sizing_mode=ui.WIDE, margin=0)
        self.layout = pn.Column(
            self._summary, self._problem, self.jobs, self._output, ui.html(HOW), sizing_mode=ui.WIDE
        )

    def refresh(self) -> Update:
        """Ask the service, and read how far the running job is; in a thread."""
        try:
            every = self._queue.jobs().jobs
            running = next((self._queue.job(job.id) for job in every if job.state == "running"), None)
            newest = running or next(iter(every), None)
            shown = self._queue.job(self._chosen or newest.id) if newest else None
        except (MergeBenchError, OSError) as reason:
            return Update(ui.complaints([str(reason)]))
        waiting = [job for job in reversed(every) if job.state == "queued"]
        active = [running, *waiting] if running else waiting
        took = defaultdict[str, list[float]](list)  # jobs that ended well, by command
        for job in every:
            took[job.command] += [job.ended - job.started] if job.state == "done" else []
        rows, wait = [], 0.0 if active else math.nan  # NaN: not known
        for job in active:
            usual = median(took[job.command] or [math.nan])
            text, needed = self._progress(job, usual) if job is running else (_waiting(job, wait, usual), usual)
            rows.append((job, text))
            wait += needed
        ended = [(job, f"<p>{as_html(job.message)}</p>" if job.message else "") for job in every if job.ended]
        label = f"Output of job {shown.id}, newest lines last" if shown else ""
        output = f"<p>{label}:</p>{ui.log(shown.log or '', label)}" if shown else ""
        return Update(_summary(running, len(waiting), wait), [*rows[:_MOST], *ended][:_MOST], output)

    def _progress(self, job: Any, usual: float) -> tuple[str, float]:
        """How far the running job is, as HTML, and the seconds that it needs."""
        left = usual - min(time.time() - job.started, usual)
        entry = next((each for each in self._entries() if each.folder.name == job.result), None)
        campaign = self._cache.load([entry])[0].campaign if entry is not None else None
        if campaign is None:
            return f"<p>{_about(left, 'left')}</p>", left
        progress = progress_of(campaign)
        known = None if tunes(campaign) else seconds_left(campaign)
        text = ui.progress(progress.share, as_html(progress.left or _about(left, "left")), as_html(progress.doing))
        return text, left if known is None else known

    def show(self, update: Update) -> None:
        """Show what `refresh` returned; under the document's lock."""
        self._summary.value, self._output.value = update.summary, update.output
        rows = [(job.id, job.cancellable, job.result) for job, _ in update.jobs]
        if rows != self._rows:
            self._rows, self.jobs.objects = rows, [self._row(*row) for row in rows]
        for row, (job, text) in zip(self.jobs.objects, update.jobs, strict=True):
            row[0].value = _line(job, text)

    def _row(self, number: int, cancellable: bool, result: str | None) -> Any:
        acts: dict[str, Callable[[], object]] = {"Output": partial(setattr, self, "_chosen", number)}
        acts |= {"Result": partial(self._compare, [result])} if result else {}
        acts |= {"Cancel": partial(self._queue.cancel, number)} if cancellable else {}
        buttons = [pn.widgets.Button(label=f"{name} {number}", width=100) for name in acts]
        for button, act in zip(buttons, acts.values(), strict=True):
            button.on_click(lambda _, act=act: self._do(act))
        return ui.side_by_side(ui.html(min_width=300), *buttons, sizing_mode=ui.WIDE)

    def _do(self, act: Callable[[], object]) -> None:
        problems = []
        try:
            act()
        except (MergeBenchError, OSError) as reason:
            problems = [str(reason)]
        self._problem.param.update(value=ui.complaints(problems), visible=bool(problems))
        self._session.touch()


def _summary(running: Any, waiting: int, total: float) -> str:
    """``Job 7 is running, 3 jobs wait; about 25 minutes in total.``"""
    first = f"Job {running.id} is running" if running else "No job is running"
    wait = f"{plural(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}" if waiting else "none waits"
    return f'<p class="verdict">{first}, {wait}{_about(total, "in total", "; ")}.</p>'


def _waiting(job: Any, wait: float, usual: float) -> str:
    parts = [f"{plural(job.ahead, 'job')} before it", _about(wait, "until it begins"), _about(usual, "to run")]
    return f"<p>{', '.join(filter(None, parts))}</p>"


def _about(seconds: float, what: str, before: str = "") -> str:
    return f"{before}about {format_duration(seconds)} {what}" if seconds > 0.0 else ""  # not if it is NaN


def _line(job: Any, text: str) -> str:
    """Who, what, its state and since when; of a job that has ended, how long it took. `text`: more, as HTML."""
    day, _, clock = short_time(job.ended or job.started or job.created)
    took = f", took {format_duration(job.ended - job.started)}" if job.ended and job.started else ""
    settings = "".join(f" {name}={value}" for name, value in job.settings.items())
    by = f"{job.who}, schedule {job.schedule}" if job.schedule else job.who
    return (
        f"<p><b>{job.id} {as_html(job.state)}</b> {'at' if job.ended else 'since'} {day} {clock} UTC{took} · "
        f"{as_html(by)} · <code>{as_html(job.command + settings)}</code></p>{text}"
    )
