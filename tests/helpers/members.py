"""Files of other people in a folder whose files are found: the program, with one more launcher, probe or strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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
