"""The program in the folder above a clone, whose own folder has the package's name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_python_does_not_take_a_clone_for_the_package(tmp_path: Path) -> None:
    (tmp_path / "merge_bench" / "cluster").mkdir(parents=True)  # as `git clone` makes it
    done = subprocess.run(
        [sys.executable, "-m", "merge_bench", "configs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "optimized" in done.stdout
