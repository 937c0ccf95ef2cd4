"""Commands of `benchmarks/` in this process, which takes a hundredth of the time of a new interpreter."""

from __future__ import annotations

import signal
import sys

import click
import pytest

from benchmarks.command import SIGNALS, run


def refusal(
    command: click.Command, *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What `command` with these words prints on standard error; it must end with status 2.

    This process does not adopt orphans: that is not undone.
    """
    monkeypatch.setattr("benchmarks.command.adopt_orphans", lambda: None)
    monkeypatch.setattr(sys, "argv", ["x", *words])
    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    try:
        with pytest.raises(SystemExit) as leaving:
            run(command, "x")
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert leaving.value.code == 2
    return capsys.readouterr().err
