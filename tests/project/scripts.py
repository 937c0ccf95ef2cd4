"""Calls the shell scripts of a checkout, and makes a miniature repository on which they can install something.

Its lock contains one tiny wheel of a local folder, so an installation is real, quick, and needs no network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.project import wheels

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash") or "/bin/bash"
PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
STACKS = ("cpu", "cu12", "cu13")


def run(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    ours = ("PIP_", "MERGE_BENCH_", "RAPIDS_LIBUCX_", "UCX_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=inherited | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def call(function: str, root: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a function of bootstrap.sh, with the settings of the scripts that source it."""
    return run(
        [BASH, "-c", f'set -euo pipefail; source "$1"; {function}', "-", root / "cluster/bootstrap.sh"], environment
    )


def command(folder: Path, name: str, script: str) -> str:
    """Put a command of our own before the machine's; returns the PATH to use."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!{BASH}\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


class Miniature:
    """A repository, in a path with a space, with the real scripts and a lock of one tiny wheel.

    `python`: the Python that makes its .venv.
    """

    def __init__(self, folder: Path, python: str | Path = PYTHON) -> None:
        self.root = folder / "a clone"
        self.venv = self.root / ".venv"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PYTHON": str(python)}
        (self.root / "cluster").mkdir(parents=True)
        shutil.copy(ROOT / "cluster/bootstrap.sh", self.root / "cluster")
        shutil.copy(ROOT / "run-cluster.sh", self.root)
        shutil.copy(wheels.__file__, self.root / "backend.py")
        (self.root / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            '[project]\nname = "merge-bench"\nversion = "1"\n'
        )
        self.lock("1.0")

    def lock(self, version: str, stack: str = "cpu") -> Path:
        """Lock this version of the wheel, and make it; returns the lock."""
        wheel = wheels.make_wheel(self.wheels, "tiny", version, {"tiny.py": f"version = {version!r}\n"})
        digest = hashlib.sha256((self.wheels / wheel).read_bytes()).hexdigest()
        path = self.root / "cluster/locks" / stack / "requirements.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"tiny=={version} --hash=sha256:{digest}\n")
        return path

    def setup(self, stack: str = "cpu") -> subprocess.CompletedProcess[str]:
        """``run-cluster.sh --setup-only``."""
        program = [BASH, self.root / "run-cluster.sh", "--setup-only", "--stack", stack]
        return run(program, self.environment, cwd=self.root.parent)

    def installed(self) -> str:
        """The version of the wheel in .venv."""
        look = "import tiny, merge_bench_here; print(tiny.version)"
        return run([self.venv / "bin/python", "-c", look]).stdout.strip()
