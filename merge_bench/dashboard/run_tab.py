"""The Run tab: a form that queues a job, jobs with their states, and the output of one. All text of jobs is text."""

from __future__ import annotations

import math
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import panel as pn

from merge_bench.analysis.statistics import median
from merge_bench.config.shipped import shipped_config_names, shipped_files
from merge_bench.dashboard import components as ui
from merge_bench.dashboard.background import PageSession
from merge_bench.dashboard.live_data import campaign_progress, campaign_seconds_left
from merge_bench.errors import MergeBenchError
from merge_bench.merge import engines
from merge_bench.merge.engines.base import JoinKind
from merge_bench.records.results_folder import ResultEntry
from merge_bench.report.campaign_figures import CampaignCache
from merge_bench.units import count_with_noun, format_duration
from merge_bench.view.text import as_html
from merge_bench.view.titles import is_tuning_campaign, short_time_texts

OWN_CONFIGS = (
    "<p>Configs here are the shipped ones. To run your own, type <code>merge-bench run --config FILE.cfg</code> in a "
    "terminal; with <code>--service URL</code> a service queues it.</p>"
)
_FILE_OPTIONS = ("on", "left_on", "right_on")
_MOST_ROWS = 50


class JobQueue(Protocol):
    """Queues, lists and cancels the jobs of a service, for the holder of a token.

    `refusal_reason`: why nothing can be queued, or empty; `end_reason`: why the page must end, or empty;
    `is_logged_in`: whether the holder can log out; `queueable_commands`: those that can be queued, each with the keys
    of its options. A job has the fields that ``/api/jobs`` gives.
    """

    @property
    def refusal_reason(self) -> str: ...
    @property
    def end_reason(self) -> str: ...
    @property
    def is_logged_in(self) -> bool: ...
    @property
    def queueable_commands(self) -> Mapping[str, Collection[str]]: ...
    def fetch_jobs(self) -> Any: ...
    def fetch_job(self, number: int) -> Any: ...
    def cancel_job(self, number: int) -> Any: ...
    def queue_run(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> Any: ...


class RunForm:
    """The form for a new run: fields for command, configs and options; `submit` is called with their values."""

    def __init__(self, commands: Mapping[str, Collection[str]], submit: Callable[..., object]) -> None:
        self._commands = {name: keys for name, keys in commands.items() if name not in _ELSEWHERE}
        self._about = {shipped.name: shipped.about for shipped in shipped_files()}
        self.command = ui.make_select("Command", list(self._commands), width=160)
        kinds = {how.value: how.value if how is not JoinKind.INNER else "" for how in JoinKind}
        names = {"default": "", **{name: name for name in engines.engine_choices() if name != "auto"}}
        self.fields = {
            "chunk": _make_text_field(
                "Rows per chunk", "Rows of each frame on each worker, such as 25e6, 1_000_000 or 25M."
            ),
            "left": _make_text_field(
                "Left table", "A Parquet file or folder; empty: tables are generated.", "generated"
            ),
            "right": _make_text_field(
                "Right table", "A Parquet file or folder; empty: tables are generated.", "generated"
            ),
            "on": _make_text_field(
                "Key of both", "Columns to merge on that both tables have, such as id or id,day.", "none"
            ),
            "left_on": _make_text_field(
                "Left key", "Key columns of the left table, if the tables name them differently.", "none"
            ),
            "right_on": _make_text_field("Right key", "Key columns of the right table, in the same order.", "none"),
            "how": ui.make_select("How", kinds, width=140),
            "engine": ui.make_select("Engine", names, width=140),
            "workers": _make_text_field("Workers", "Number of workers; each one uses one GPU or a share of the cores."),
            "iterations": _make_text_field(
                "Iterations", "Number of timed merges per launch, or of measurements per size."
            ),
            "blocks": _make_text_field("Blocks", "Each block launches every config once; a verdict needs at least 6."),
            "budget": _make_text_field("Budget", "Total time of the search, such as 10m or 1h."),
        }
        self.fields["chunk"].value, self.fields["budget"].value = "1e6", "10m"
        shipped = shipped_config_names()
        label = "Configs (none: the default; several: compared)"
        self.configs = ui.make_multi_select(label, shipped, size=min(len(shipped), 9), width=300)
        self.start = pn.widgets.Button(label="Start", color="primary", width=120)
        self.start.on_click(lambda _: submit(self.command.value, self.configs.value, self.filled_options))
        self._preview = ui.make_html_widget(min_height=44)
        for widget in (self.command, self.configs, *self.fields.values()):
            while_typing = ["value_input"] if isinstance(widget, pn.widgets.TextInput) else []
            widget.param.watch(lambda *_: self._update_command_preview(), ["value", *while_typing])
        rows = (
            ui.make_wrapping_row(self.command, *self.fields.values()),
            ui.make_wrapping_row(self.start),
            self._preview,
        )
        fields = pn.Column(*rows, sizing_mode=ui.WIDE, min_width=420)
        row = pn.Row(self.configs, fields, styles={"flex-wrap": "wrap"}, sizing_mode=ui.WIDE)
        self.layout = ui.make_card("New run", [], row, ui.make_html_widget(OWN_CONFIGS), width=None)
        self._update_command_preview()

    @property
    def filled_options(self) -> dict[str, str]:
        """The values of the form's fields that are shown and filled in, by the key of the option."""
        return {key: text for key, field in self.fields.items() if field.visible and (text := _typed_field_text(field))}

    def _update_command_preview(self) -> None:
        """Show the fields that the command has, what chosen configs do, and the command that Start would queue."""
        files = any(_typed_field_text(self.fields[name]) for name in ("left", "right"))
        for key, field in self.fields.items():  # only generated tables have a size to choose, only files have keys
            taken = key in self._commands[self.command.value] and (key != "chunk" or self.command.value in _MERGING)
            field.visible = taken and (key != "chunk" if files else key not in _FILE_OPTIONS)
        words = [f"--config={name}" for name in self.configs.value]
        words += [f"--{key.replace('_', '-')}={text}" for key, text in self.filled_options.items()]
        lines = [f"{as_html(name)}: {as_html(self._about[name])}" for name in self.configs.value]
        command = shlex.join(["merge-bench", *self.command.value.split(), *words])
        self._preview.value = "<br>".join([*lines, f"Start queues: <code>{as_html(command)}</code>"])


_MERGING = ("run", "tune")
"""Commands that merge tables."""
_ELSEWHERE = ("exec",)
"""Commands without a form: an operator's command needs metrics, which people write on the command line or over HTTP."""


def _typed_field_text(field: Any) -> str:
    return (getattr(field, "value_input", "") or field.value or "").strip()


def _make_text_field(name: str, description: str, placeholder: str = "default") -> Any:
    return pn.widgets.TextInput(
        label=name,
        description=description,
        placeholder=placeholder,
        width=140,
        stylesheets=[ui.style_sheet("controls")],
    )


class RunUpdate(NamedTuple):
    """What the Run tab shows, as HTML: a text for each job, and the output of one.

    `began`: the name of a result to show in the Live tab, if one has begun.
    """

    summary: str
    jobs: Sequence[tuple[Any, str]] = ()
    output: str = ""
    title: str = ""
    began: str | None = None


class RunView:
    """The Run tab. It shows the output of the job that was chosen or started here, else of the running or newest one.

    `compare`: a function that shows the results in folders with the given names; `follow`: one that shows the campaign
    in a folder with the given name while it runs.
    """

    def __init__(
        self,
        session: PageSession,
        queue: JobQueue,
        entries: Callable[[], Sequence[ResultEntry]],
        cache: CampaignCache,
        compare: Callable[[Sequence[str]], object],
        follow: Callable[[str], object],
    ) -> None:
        self._session, self._queue, self._entries, self._cache = session, queue, entries, cache
        self._compare, self._follow = compare, follow
        self._chosen: int | None = None
        self._started: int | None = None
        self._rows: list[tuple[int, bool, str | None]] = []
        self._summary, self._problem, self._output = (
            ui.make_html_widget(min_height=24),
            ui.make_html_widget(visible=False),
            ui.make_html_widget(height=330),
        )
        self._title = ui.make_html_widget()
        self.form = RunForm(queue.queueable_commands, self._queue_job)
        self.jobs = pn.Column(sizing_mode=ui.WIDE, margin=0, max_height=360, scroll="y-auto")
        refusal = queue.refusal_reason
        table = ui.make_card("Queue (times in UTC)", [], self._summary, self.jobs, width=None)
        self._panel = ui.make_card("Output", [], self._title, self._output, width=None)
        self._panel.visible = False
        first = ui.make_html_widget(f"<p>{as_html(refusal)}</p>") if refusal else self.form.layout
        self.layout = pn.Column(first, self._problem, table, self._panel, sizing_mode=ui.WIDE)

    def _queue_job(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> None:
        def queue_and_follow() -> None:
            self._started = self._chosen = self._queue.queue_run(command, configs, options).id

        self._call_and_show_failure(queue_and_follow)

    def read_update(self) -> RunUpdate:
        """Ask the queue for its jobs, and read the progress of the running one; called in a thread."""
        try:
            jobs = self._queue.fetch_jobs().jobs
            running = next((self._queue.fetch_job(job.id) for job in jobs if job.state == "running"), None)
            newest = running or next(iter(jobs), None)
            shown = self._queue.fetch_job(self._chosen or newest.id) if newest else None
        except (MergeBenchError, OSError) as reason:
            return RunUpdate(ui.problems_html([str(reason)]))
        waiting = [job for job in reversed(jobs) if job.state == "queued"]
        active = [running, *waiting] if running else waiting
        took = defaultdict[str, list[float]](list)  # jobs that ended well, by command
        for job in jobs:
            took[job.command] += [job.ended - job.started] if job.state == "done" else []
        rows, wait = [], 0.0 if active else math.nan  # NaN: not known
        for job in active:
            usual = median(took[job.command] or [math.nan])
            text, needed = (
                self._job_progress_and_seconds_left(job, usual)
                if job is running
                else (_job_wait_html(job, wait, usual), usual)
            )
            rows.append((job, text))
            wait += needed
        ended = [(job, f"<p>{as_html(job.message)}</p>" if job.message else "") for job in jobs if job.ended]
        began = next((job.result for job in (running, *jobs) if job and job.id == self._started and job.result), None)
        update = RunUpdate(_queue_summary_html(running, len(waiting), wait), [*rows, *ended][:_MOST_ROWS], began=began)
        if not shown:
            return update
        newest_last = f"job {shown.id}, newest lines last"
        title = f"<p>Of {newest_last}: <code>{as_html(shown.command)}</code></p>"
        return update._replace(output=ui.log_html(shown.log or "", f"Output of {newest_last}"), title=title)

    def _job_progress_and_seconds_left(self, job: Any, usual_seconds: float) -> tuple[str, float]:
        """HTML of the progress of the running job, and the seconds that it still needs."""
        left = usual_seconds - min(time.time() - job.started, usual_seconds)
        entry = next((entry for entry in self._entries() if entry.folder.name == job.result), None)
        campaign = self._cache.load([entry])[0].campaign if entry is not None else None
        if campaign is None:
            return f"<p>{_duration_text(left, 'left')}</p>", left
        progress = campaign_progress(campaign)
        seconds = None if is_tuning_campaign(campaign) else campaign_seconds_left(campaign)
        text = ui.progress_bar_html(
            progress.share, as_html(progress.left or _duration_text(left, "left")), as_html(progress.doing)
        )
        return text, left if seconds is None else seconds

    def show_update(self, update: RunUpdate) -> None:
        """Show in the Run tab what `read_update` returned; called under the document's lock."""
        self._summary.value, self._output.value, self._title.value = update.summary, update.output, update.title
        self._panel.visible = bool(update.title)
        rows = [(job.id, job.cancellable, job.result) for job, _ in update.jobs]
        if rows != self._rows:
            self._rows, self.jobs.objects = rows, [self._make_job_row(*row) for row in rows]
        for row, (job, text) in zip(self.jobs.objects, update.jobs, strict=True):
            row[0].value = _job_row_html(job, text)
        if update.began and self._started is not None:
            self._started = None
            self._follow(update.began)

    def _make_job_row(self, number: int, cancellable: bool, result: str | None) -> Any:
        acts: dict[str, Callable[[], object]] = {"Output": partial(setattr, self, "_chosen", number)}
        acts |= {"Result": partial(self._compare, [result])} if result else {}
        acts |= {"Cancel": partial(self._queue.cancel_job, number)} if cancellable else {}
        buttons = [pn.widgets.Button(label=f"{name} {number}", width=90) for name in acts]
        for button, act in zip(buttons, acts.values(), strict=True):
            button.on_click(lambda _, act=act: self._call_and_show_failure(act))
        return pn.Row(
            ui.make_html_widget(min_width=300), *buttons, sizing_mode=ui.WIDE, stylesheets=[ui.style_sheet("job")]
        )

    def _call_and_show_failure(self, action: Callable[[], object]) -> None:
        problems = []
        try:
            action()
        except (MergeBenchError, OSError) as reason:
            problems = [str(reason)]
        self._problem.param.update(value=ui.problems_html(problems), visible=bool(problems))
        self._session.request_update()


def _queue_summary_html(running_job: Any, waiting_count: int, total_seconds: float) -> str:
    """HTML of a sentence: ``Job 7 is running, 3 jobs wait; about 25 minutes in total.``"""
    first = f"Job {running_job.id} is running" if running_job else "No job is running"
    wait = (
        f"{count_with_noun(waiting_count, 'job')} wait{'' if waiting_count != 1 else 's'}"
        if waiting_count
        else "none waits"
    )
    return f"<p>{first}, {wait}{_duration_text(total_seconds, 'in total', '; ')}.</p>"


def _job_wait_html(job: Any, wait_seconds: float, run_seconds: float) -> str:
    parts = [
        f"{count_with_noun(job.ahead, 'job')} before it",
        _duration_text(wait_seconds, "until it begins"),
        _duration_text(run_seconds, "to run"),
    ]
    return f"<p>{', '.join(filter(None, parts))}</p>"


def _duration_text(seconds: float, meaning: str, prefix: str = "") -> str:
    """A duration as text, such as ``; about 3 minutes left`` with a `prefix` and a `meaning`; empty if it is NaN."""
    return f"{prefix}about {format_duration(seconds)} {meaning}" if seconds > 0.0 else ""


def _job_row_html(job: Any, more_html: str) -> str:
    """HTML of a row of the table of jobs, with the time that an ended one took; `more_html`: HTML to add."""
    (time_text,) = short_time_texts([job.ended or job.started or job.created], with_time_of_day=True)
    settings = "".join(f" {name}={value}" for name, value in job.settings.items())
    cells = (
        f"<b>{job.id}</b>",
        f'<span class="state {job.displayed_state.replace(" ", "-")}">{job.displayed_state}</span>',
        f"{'at' if job.ended else 'since'} {time_text}",
        f"took {format_duration(job.ended - job.started)}" if job.ended and job.started else "",
        as_html(f"{job.who}, schedule {job.schedule}" if job.schedule else job.who),
        f"<code>{as_html(job.command + settings)}</code>{more_html}",
    )
    return f'<div class="job" role="row">{"".join(f"<div role=cell>{cell}</div>" for cell in cells)}</div>'
