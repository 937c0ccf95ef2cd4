"""Files of other people in a folder whose files are found: one more engine, data plane, launcher, probe or strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


def add_member(monkeypatch: pytest.MonkeyPatch, package: ModuleType, folder: Path, name: str, text: str) -> None:
    """Write a file of `package` into a folder of its own, where the package finds it until the test ends."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)


def install_empty(monkeypatch: pytest.MonkeyPatch, folder: Path, *packages: str) -> None:
    """Have these packages installed until the test ends: there is a folder for each, with nothing in it."""
    for name in packages:
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(folder))


def run_with(
    package: str, folder: Path, *words: str, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``merge_bench WORDS`` where the files of `folder` belong to `package`; it must end with `status`."""
    code = (
        f"import sys, {package} as package\n"
        f"package.__path__.append({str(folder)!r})\n"
        f"sys.argv[1:] = {words!r}\n"
        "from merge_bench.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == status, done.stderr
    return done
