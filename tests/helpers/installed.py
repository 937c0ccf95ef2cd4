"""The package as others get it: built as a wheel and installed into an environment without this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import QUICK_HOOKS
from tests.helpers.runs import ROOT

SECONDS = 300.0
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def copy_sources(target: Path) -> Path:
    """What git knows of this checkout, as it is now, in a folder of its own: building leaves files where it is done."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_symlink() or path.exists():  # not what was deleted and is not committed yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / name, follow_symlinks=False)
    return target


def build_wheel(source: Path, target: Path) -> Path:
    """A wheel of the project in `source`, as pip has it built."""
    return _build("build_wheel", source, target)


def build_sdist(source: Path, target: Path) -> Path:
    """A source distribution of the project in `source`, unpacked."""
    archive = _build("build_sdist", source, target)
    shutil.unpack_archive(archive, target)  # `TarFile.extractall` has its `filter` from Python 3.11.4 on only
    return target / archive.name.removesuffix(".tar.gz")


def _build(kind: str, source: Path, target: Path) -> Path:
    """Call a hook of the build backend in a process of its own; returns the file that it made."""
    target.mkdir(parents=True)
    return target / _run([sys.executable, "-c", _BUILD, kind, target], cwd=source).splitlines()[-1]


def files_of(wheel: Path) -> dict[str, bytes]:
    """What a wheel would install, but for its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@dataclass(frozen=True)
class Installed:
    """An environment in `folder` with the wheel in it.

    `sources`: what the wheel was built from; `home`: a folder for HOME that is empty at first.
    """

    folder: Path
    sources: Path
    wheel: Path
    home: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def program(self) -> Path:
        """The command `merge-bench` that pip made."""
        return self.folder / "bin" / "merge-bench"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The surroundings of a user who has nothing set, and no other Python's folder on PATH."""
        ours = ("MERGE_BENCH_", "UCX", "RAPIDS_", "DASK_", "PYTEST", "PYTHON", "PIP_", "VIRTUAL_ENV", "SLURM_", "PBS_")
        mine = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
        return {**mine, **dict([QUICK_HOOKS]), "PATH": path, "HOME": str(self.home), **(extra or {})}


def install(folder: Path) -> Installed:
    """Build a wheel and install it into a fresh environment; its dependencies are those of this Python."""
    sources = copy_sources(folder / "sources")
    made = Installed(folder / "env", sources, build_wheel(sources, folder / "wheel"), folder / "home")
    venv.create(made.folder, symlinks=True, with_pip=False)
    made.home.mkdir()
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        made.python,
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
    ]
    _run([*pip, made.wheel])
    site = made.folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # A folder that a .pth file names is searched after the environment's own, and its own .pth files do not count: so
    # neither does the one that makes this checkout importable.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return made


def _run(command: Iterable[str | Path], cwd: Path | None = None) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=inherited, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
