"""The Run tab: starts the command that a person would type, shows its output, and stops it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import panel as pn

from merge_bench.config.shipped import config_names, shipped_files
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.merge.engines.base import How
from merge_bench.view.dashboard import components as ui
from merge_bench.view.dashboard import style_sheets
from merge_bench.view.dashboard.runner import (
    COMMANDS,
    GOING,
    IDLE,
    OVER,
    STOPPING,
    Permission,
    Request,
    Runner,
    State,
    arguments,
)
from merge_bench.view.text import as_html

_MEANING = {
    0: "done", 2: "wrong usage", 3: "failed or interrupted; measurements are kept", 4: "the merge result was wrong",
    5: "a requirement was not met",
}  # fmt: skip

_OF_TABLES = ("on", "left_on", "right_on")

OWN_CONFIGS = (
    "<p>The dashboard starts shipped configs only; to run a config of your own, type "
    "<code>python -m merge_bench run --config FILE.cfg</code> in a terminal, and the Live tab shows it.</p>"
)


class RunView:
    """The tab. The server checks at each click whether runs may be started and stopped."""

    def __init__(self, runner: Runner, permission: Permission, started: Callable[[], object] = lambda: None) -> None:
        self._runner, self._permission, self._started = runner, permission, started
        self._last: State | None = None
        self.command = ui.select("Command", list(COMMANDS), width=200)
        self._about = {each.name: each.about for each in shipped_files()}
        names = config_names()
        label = "Configs (none: the default; several: compared)"
        self.configs = ui.select_several(label, names, size=min(len(names), 12), width=300)
        self.engine = ui.select(
            "Engine", {"default": "", **{name: name for name in engines.choices() if name != "auto"}}, width=130
        )
        kinds = {how.value: how.value if how is not How.INNER else "" for how in How}
        self.how = ui.select("How", kinds, width=110)
        self.fields = {
            "chunk": _text("Rows per chunk", "Rows of each frame on each worker, such as 25e6, 1_000_000 or 25M."),
            "left": _text("Left table", "A Parquet file or folder; empty: tables are generated.", "generated"),
            "right": _text("Right table", "A Parquet file or folder; empty: tables are generated.", "generated"),
            "on": _text("Key of both", "Columns to merge on that both tables have, such as id or id,day.", "none"),
            "left_on": _text("Left key", "Key columns of the left table, if the tables name them differently.", "none"),
            "right_on": _text("Right key", "Key columns of the right table, in the same order.", "none"),
            "how": self.how,
            "engine": self.engine,
            "workers": _text("Workers", "Number of workers; each one uses one GPU or a share of the cores."),
            "iterations": _text("Iterations", "Number of timed merges per launch, or of measurements per size."),
            "blocks": _text("Blocks", "Each block launches every config once; a verdict needs at least 6."),
            "budget": _text("Budget", "Total time of the search, such as 10m or 1h."),
        }
        self.fields["chunk"].value, self.fields["budget"].value = "1e6", "10m"
        self.token = pn.widgets.PasswordInput(label="Token", visible=permission.token is not None, width=300)
        self.start = pn.widgets.Button(label="Start", color="primary", width=110)
        self.stop = pn.widgets.Button(label="Stop", width=110, disabled=True)
        self.kill = pn.widgets.Button(label="Kill", width=110, disabled=True)
        self._message = ui.html(height=46)
        self._log = ui.html(height=330)
        for field in (self.configs, self.engine, self.how, self.command):
            field.param.watch(lambda _: self._describe(), "value")
        for field in self.fields.values():
            if field not in (self.engine, self.how):
                field.param.watch(lambda *_: self._describe(), ["value", "value_input"])
        self.start.on_click(lambda _: self._act(self._start))
        self.stop.on_click(lambda _: self._act(runner.stop))
        self.kill.on_click(lambda _: self._act(runner.kill))
        self.layout = self._lay_out()
        self._describe()

    def _lay_out(self) -> Any:
        refusal = self._permission.refusal
        inputs = pn.Column(
            ui.side_by_side(self.command, self.configs), ui.side_by_side(*self.fields.values()), sizing_mode=ui.WIDE
        )
        buttons = ui.side_by_side(self.token, self.start, self.stop, self.kill)
        form = [ui.html(f"<p>{as_html(refusal)}</p>")] if refusal else [inputs, ui.html(OWN_CONFIGS), buttons]
        self._output = ui.card("Output of the run", [], self._log, height=390, width=900)
        self._output.visible = False
        return pn.Column(*form, self._message, ui.cards(self._output), sizing_mode=ui.WIDE)

    @property
    def request(self) -> Request:
        """The values in the fields that the command takes."""
        texts = {name: _value(field) for name, field in self.fields.items() if field.visible}
        return Request(self.command.value, tuple(self.configs.value), **texts)

    def _start(self) -> None:
        self._runner.start(self.request)
        self._started()

    def refresh(self) -> State:
        """The state of the run; in a thread."""
        return self._runner.state()

    def show(self, state: State) -> None:
        """Show the state of the run."""
        if state == self._last:
            return
        self._last = state
        going = state.what in (GOING, STOPPING)
        self.start.disabled = going
        self.stop.disabled = state.what != GOING
        self.kill.disabled = not going
        self._describe()
        self._output.visible = state.what != IDLE
        self._log.value = ui.log(state.log, "Log of the run, newest lines last")

    def _act(self, act: Callable[[], None]) -> None:
        try:
            if not self._permission.granted(self.token.value_input or self.token.value or ""):
                why = self._permission.refusal or "Enter the token that merge_bench dashboard printed at its start."
                raise UsageError(why)
            act()
        except (UsageError, OSError) as error:
            self._message.value = f'<b class="bad">{as_html(error)}</b>'
        else:
            self.show(self._runner.state())

    def _describe(self) -> None:
        """Show what the run does, and the command that a click on Start would run."""
        tables = any(_value(self.fields[name]) for name in ("left", "right"))
        for name, field in self.fields.items():  # only generated tables have a size to choose, only files have keys
            fits = name not in _OF_TABLES if not tables else name != "chunk"
            field.visible = fits and name in COMMANDS[self.command.value]
        state = self._last or State()
        command = f"<code>{as_html(state.command)}</code>"
        lines = [f"{as_html(name)}: {as_html(self._about[name])}" for name in self.configs.value if name in self._about]
        if state.what == GOING:
            lines.append(f"Running: {command}. The Live tab shows it.")
        elif state.what == STOPPING:
            lines.append(f"Stopping: {command}. The run ends its processes and records its measurements.")
        elif state.what == OVER and state.status is not None:
            meaning = _MEANING.get(state.status, "killed" if state.status < 0 else "failed")
            lines.append(f"Ended with status {state.status} ({meaning}): {command}")
        if state.what in (IDLE, OVER) and self._permission.refusal is None:
            lines.append(self._would_run())
        if lines:
            self._message.value = "<br>".join(lines)

    def _would_run(self) -> str:
        try:
            words = shlex.join(["python", *arguments(self.request, self._runner.results)])
        except UsageError as error:
            return f'<b class="bad">{as_html(error)}</b>'
        return f"The Start button runs: <code>{as_html(words)}</code>"


def _value(field: Any) -> str:
    return (getattr(field, "value_input", "") or field.value or "").strip()


def _text(name: str, description: str, placeholder: str = "default") -> Any:
    return pn.widgets.TextInput(
        label=name, description=description, placeholder=placeholder, width=150, stylesheets=[style_sheets.FIELD]
    )
