"""Chooses which UCX is loaded: the package's, which is built without InfiniBand, or the system's.

The package `libucx` silently loads its own UCX if it cannot load the system's (which needs the unversioned
``libucp.so``), so another process tries each choice that matters.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.installation import search_path
from merge_bench.config.ucx_info import PREFER, prefers_system, wheel_folder
from merge_bench.errors import Caution, UsageError, say

VARIABLE = "MERGE_BENCH_UCX"
AUTO, WHEEL, SYSTEM = "auto", "wheel", "system"
CODE = "no-infiniband-module"
REMEDY = (
    "install UCX 1.19 or newer with InfiniBand (HPC-X, MOFED, or the packages libucx-dev / ucx-devel with their"
    " InfiniBand part), add its library folder to LD_LIBRARY_PATH, and use --ucx system"
)
INFINIBAND = Path("/sys/class/infiniband")
_SECONDS = 60.0


@dataclass(frozen=True)
class Loaded:
    """The UCX that a process has loaded. `infiniband`: its InfiniBand module can be loaded."""

    version: str
    infiniband: bool
    library: Path

    @property
    def of_wheel(self) -> bool:
        """Whether it belongs to the package `libucx`."""
        folder = wheel_folder()
        return folder is not None and self.library.resolve().is_relative_to(folder.resolve())


@dataclass(frozen=True)
class Choice:
    """`origin`: ``wheel`` or ``system``. `notice`: the reason for a choice that the user did not make."""

    origin: str
    notice: str | None = None
    warning: Caution | None = None

    def apply(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables with which a process loads this UCX."""
        environ[VARIABLE] = self.origin
        environ.pop(PREFER, None)
        if self.origin == SYSTEM:
            environ[PREFER] = "true"


def choose_ucx(asked: str | None, environ: Mapping[str, str]) -> Choice:
    """Choose for processes that start with the environment `environ`.

    `asked`: ``auto``, ``wheel`` or ``system``; None: as in `environ`, else ``auto``: the system's if this machine has
    InfiniBand and that UCX can use it, or if there is no other.

    Raises
    ------
    UsageError
        If ``wheel`` or ``system`` was asked for and cannot be loaded.
    """
    asked = _wanted(asked, environ)
    devices = sorted(entry.name for entry in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []
    if wheel_folder() is None and asked == WHEEL:
        raise UsageError("--ucx wheel: the package libucx is not installed in this environment")
    if asked == SYSTEM:
        loaded = probe_ucx(SYSTEM, environ)
        if loaded is None or loaded.of_wheel:
            raise UsageError(f"--ucx system: there is no system libucp.so that UCXX can use; {REMEDY}")
        return Choice(SYSTEM, None, None if loaded.infiniband else _warning(devices, SYSTEM))
    default = SYSTEM if wheel_folder() is None else WHEEL
    if not devices:
        return Choice(default)
    if asked == AUTO:
        loaded = probe_ucx(SYSTEM, environ)
        if loaded is not None and loaded.infiniband and not loaded.of_wheel:
            notice = f"this machine has InfiniBand: using the system's UCX {loaded.version}, {loaded.library}"
            return Choice(SYSTEM, notice)
        return Choice(default, None, _warning(devices, default))
    loaded = probe_ucx(WHEEL, environ)
    return Choice(WHEEL, None, None if loaded is not None and loaded.infiniband else _warning(devices, WHEEL))


def use_ucx(asked: str | None, environ: MutableMapping[str, str] = os.environ) -> Choice:
    """Choose the UCX of this process and of those that it starts; prints a notice on standard error.

    UCXX reads the variable when it is imported, so call this before anything imports UCXX.
    """
    choice = choose_ucx(asked, environ)
    choice.apply(environ)
    if choice.notice:
        say(choice.notice)
    return choice


@contextmanager
def restored(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Undo the effect of `use_ucx` at the end, for callers whose process goes on."""
    before = {name: environ.get(name) for name in (VARIABLE, PREFER)}
    try:
        yield
    finally:
        for name in before:
            environ.pop(name, None)
        environ.update({name: value for name, value in before.items() if value is not None})


def probe_ucx(origin: str, environ: Mapping[str, str]) -> Loaded | None:
    """The UCX that a process loads when it imports UCXX as a worker does; None if that fails."""
    environment = {**environ, **search_path(environ)}
    Choice(origin).apply(environment)
    return _probe(tuple(sorted(environment.items())))


@functools.cache
def _probe(environment: tuple[tuple[str, str], ...]) -> Loaded | None:
    program = [sys.executable, "-P", "-m", "merge_bench.config.ucx_probe"]
    try:
        done = subprocess.run(
            program, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, rest = done.stdout.strip().partition(" ")
    infiniband, _, library = rest.partition(" ")
    return Loaded(version, infiniband == "yes", Path(library)) if done.returncode == 0 and library else None


def _wanted(asked: str | None, environ: Mapping[str, str]) -> str:
    asked = asked or environ.get(VARIABLE) or AUTO
    if asked not in (AUTO, WHEEL, SYSTEM):
        raise UsageError(f"environment variable {VARIABLE} must be auto, wheel or system, not {asked!r}")
    return SYSTEM if asked == AUTO and prefers_system(environ) else asked


def _warning(devices: list[str], origin: str) -> Caution | None:
    if not devices:
        return None
    return Caution(
        CODE,
        f"all data goes over TCP: this machine has InfiniBand ({', '.join(devices)}), but the chosen UCX ({origin})"
        " cannot use it",
        REMEDY,
    )
