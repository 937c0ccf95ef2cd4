"""Commands of `benchmarks/` in this process, which takes a hundredth of the time of a new interpreter."""

from __future__ import annotations

import click
import pytest

from benchmarks.command import exit_status


def refusal(command: click.Command, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `command` with these words prints on standard error; it must end with status 2."""
    assert exit_status(command, "x", words) == 2
    return capsys.readouterr().err
