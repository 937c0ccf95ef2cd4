"""What tests of views have in common."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _inside_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python` is the one that runs the tests, as after `source .venv/bin/activate`."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
