"""The Run tab: starts the command that a person would type, shows what it says, and stops it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import panel as pn

from merge_bench.config.shipped import config_names
from merge_bench.errors import UsageError
from merge_bench.view.dashboard.components import card, cards, html, select, side_by_side
from merge_bench.view.dashboard.runner import GOING, IDLE, OVER, STOPPING, Permission, Request, Runner, State, arguments
from merge_bench.view.text import as_html

DEFAULT = "(the default)"
_MEANING = {
    0: "done", 2: "wrong usage", 3: "failed or interrupted; what was measured is kept", 4: "the merge result was wrong",
    5: "a gate was not met",
}  # fmt: skip


class RunView:
    """See the module. The server checks at each click whether runs may be started and stopped."""

    def __init__(self, runner: Runner, permission: Permission) -> None:
        self._runner, self._permission = runner, permission
        self._last: State | None = None
        self.config = select(
            "Config",
            [DEFAULT, *config_names()],
            width=260,
            description="The environment that it runs under.",
        )
        self.chunk = _text("Rows per chunk", "Of each frame on each worker: 25e6, 1_000_000 or 25M.", "1e6")
        self.workers = _text("Workers", "One per GPU, or per share of the cores.")
        self.iterations = _text("Iterations", "Timed merges of a launch.")
        self.token = pn.widgets.PasswordInput(label="Token", visible=permission.token is not None, width=300)
        self.start = pn.widgets.Button(label="Start", color="primary", width=110)
        self.stop = pn.widgets.Button(label="Stop", width=110, disabled=True)
        self.kill = pn.widgets.Button(label="Kill", width=110, disabled=True)
        self._message = html(height=46)
        self._log = html(height=330)
        for widget in (self.config, self.chunk, self.workers, self.iterations):
            widget.param.watch(lambda _: self._describe(), "value_input" if widget is not self.config else "value")
        for button, act in ((self.start, self._start), (self.stop, runner.stop), (self.kill, runner.kill)):
            button.on_click(lambda _, act=act: self._act(act))
        self.layout = self._lay_out()
        self._describe()

    def _lay_out(self) -> Any:
        refusal = self._permission.refusal
        inputs = side_by_side(self.config, self.chunk, self.workers, self.iterations)
        buttons = side_by_side(self.token, self.start, self.stop, self.kill)
        form = [html(f"<p>{as_html(refusal)}</p>")] if refusal else [inputs, buttons]
        return pn.Column(
            *form,
            self._message,
            cards(card("What it says", [], self._log, height=390, width=900)),
            sizing_mode="stretch_width",
        )

    @property
    def request(self) -> Request:
        """What the fields say."""
        config = "" if self.config.value == DEFAULT else self.config.value
        chunk, workers, iterations = (
            widget.value_input or widget.value for widget in (self.chunk, self.workers, self.iterations)
        )
        return Request(config, chunk, workers, iterations)

    def refresh(self) -> State:
        """How the run is; in a thread."""
        return self._runner.state()

    def show(self, state: State) -> None:
        """Show how the run is."""
        if state == self._last:
            return
        self._last = state
        going = state.what in (GOING, STOPPING)
        self.start.disabled = going
        self.stop.disabled = state.what != GOING
        self.kill.disabled = not going
        self._describe()
        label = "Log of the run, newest lines last"
        log = f"<pre>{said_lines(state.log)}</pre>"
        self._log.value = f'<div class="scroll log" tabindex="0" role="log" aria-label="{label}">{log}</div>'

    def _act(self, act: Any) -> None:
        if not self._permission.granted(self.token.value_input or self.token.value or ""):
            why = self._permission.refusal or "This needs the token that `merge_bench dashboard` printed when it began."
            self._say(f'<b class="bad">{as_html(why)}</b>')
            return
        try:
            act()
        except (UsageError, OSError) as error:
            self._say(f'<b class="bad">{as_html(error)}</b>')
            return
        self.show(self._runner.state())

    def _start(self) -> None:
        self._runner.start(self.request)

    def _describe(self) -> None:
        state = self._last or State()
        command = f"<code>{as_html(state.command)}</code>"
        if state.what == GOING:
            self._say(f"Running: {command}. The Live tab shows it.")
        elif state.what == STOPPING:
            self._say(f"Stopping: {command}. It ends its processes and writes down what it has measured.")
        elif state.what == OVER and state.status is not None:
            meaning = _MEANING.get(state.status, "killed" if state.status < 0 else "failed")
            self._say(f"Ended with status {state.status} ({meaning}): {command}")
        if state.what in (IDLE, OVER) and self._permission.refusal is None:
            words = shlex.join(["python", *arguments(self.request, Path(self._runner.results))])
            ended = f"{self._message.value.partition('<br>')[0]}<br>" if state.what == OVER else ""
            self._say(f"{ended}Start runs: <code>{as_html(words)}</code>")

    def _say(self, content: str) -> None:
        self._message.value = content


def _text(name: str, description: str, value: str = "") -> Any:
    return pn.widgets.TextInput(
        label=name, description=description, value=value, placeholder="the command decides", width=200
    )


def said_lines(text: str) -> str:
    """`as_html`, line by line: newlines stay."""
    return "\n".join(as_html(line) for line in text.split("\n"))
