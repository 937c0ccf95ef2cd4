"""Whose UCX is loaded: the package's, which is built without InfiniBand, or the system's.

The package `libucx` falls back to its own UCX without a word where it cannot load the system's (which needs the
unversioned ``libucp.so``), so nothing is believed here that another process has not loaded.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from merge_bench.config.ucx_info import wheel_folder
from merge_bench.errors import UsageError

VARIABLE = "MERGE_BENCH_UCX"
PREFER = "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY"
"""Read by `libucx` whenever a process imports UCXX."""
AUTO, WHEEL, SYSTEM = "auto", "wheel", "system"
CODE = "no-infiniband-module"
REMEDY = (
    "put the UCX of your site (HPC-X, MOFED, or the packages libucx-dev / ucx-devel with their InfiniBand part; UCX"
    " 1.19 or later) on LD_LIBRARY_PATH, and run with --ucx system"
)
INFINIBAND = Path("/sys/class/infiniband")
_SECONDS = 60.0


@dataclass(frozen=True)
class Loaded:
    """What a process loaded that was asked for one of the two. `infiniband`: it has a module for it that loads."""

    version: str
    infiniband: bool
    library: Path

    @property
    def of_wheel(self) -> bool:
        """Whether it came with the package `libucx`."""
        folder = wheel_folder()
        return folder is not None and self.library.resolve().is_relative_to(folder.resolve())


@dataclass(frozen=True)
class Choice:
    """`origin`: ``wheel`` or ``system``. `notice`: why it was taken, where nobody asked for it.

    `warning`: its code, message and remedy.
    """

    origin: str
    notice: str | None = None
    warning: tuple[str, str, str] | None = None

    def apply(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables with which a process loads it."""
        environ[VARIABLE] = self.origin
        environ.pop(PREFER, None)
        if self.origin == SYSTEM:
            environ[PREFER] = "true"


def choose_ucx(
    asked: str | None,
    environ: Mapping[str, str],
    *,
    infiniband: Path = INFINIBAND,
    load: Callable[[str, Mapping[str, str]], Loaded | None] | None = None,
) -> Choice:
    """Choose for processes that start from `environ`.

    Parameters
    ----------
    asked
        ``auto``, ``wheel`` or ``system``; None: what `environ` says, else ``auto``: the system's where this machine has
        InfiniBand and it can be used, or where there is no other.
    load
        For tests: has a process load one of the two and tells what it got, or None.

    Raises
    ------
    UsageError
        If the one that was asked for by name cannot be loaded.
    """
    load = load or probe_ucx
    asked = _meant(asked, environ)
    devices = sorted(entry.name for entry in infiniband.iterdir()) if infiniband.is_dir() else []
    if wheel_folder() is None and asked == WHEEL:
        raise UsageError("--ucx wheel: the package libucx is not installed in this environment")
    if asked == SYSTEM:
        loaded = load(SYSTEM, environ)
        if loaded is None or loaded.of_wheel:
            raise UsageError(f"--ucx system: no system libucp.so loads here that UCXX can use; {REMEDY}")
        return Choice(SYSTEM, None, None if loaded.infiniband else _warning(devices, SYSTEM))
    if not devices:
        return Choice(SYSTEM if wheel_folder() is None else WHEEL)
    if asked == AUTO:
        loaded = load(SYSTEM, environ)
        if loaded is not None and loaded.infiniband and not loaded.of_wheel:
            return Choice(
                SYSTEM, f"this machine has InfiniBand: using the system's UCX {loaded.version}, {loaded.library}"
            )
        other = SYSTEM if wheel_folder() is None else WHEEL
        return Choice(other, None, _warning(devices, other))
    loaded = load(WHEEL, environ)
    return Choice(WHEEL, None, None if loaded is not None and loaded.infiniband else _warning(devices, WHEEL))


def use_ucx(asked: str | None, environ: MutableMapping[str, str] = os.environ) -> Choice:
    """Choose, and have this process and those that it starts load that one; says so on standard error if need be.

    UCXX reads the variable when it is imported, so this comes before whatever imports it.
    """
    choice = choose_ucx(asked, environ)
    choice.apply(environ)
    if choice.notice:
        print(f"merge_bench: {choice.notice}", file=sys.stderr)
    return choice


@contextmanager
def restored(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Undo at the end what `use_ucx` set meanwhile, for callers whose process goes on."""
    before = {name: environ.get(name) for name in (VARIABLE, PREFER)}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value


def probe_ucx(origin: str, environ: Mapping[str, str]) -> Loaded | None:
    """Have a process import UCXX as a worker would; None where it cannot."""
    environment = dict(environ)
    Choice(origin).apply(environment)
    return _probe(tuple(sorted(environment.items())))


@functools.cache
def _probe(environment: tuple[tuple[str, str], ...]) -> Loaded | None:
    program = [sys.executable, "-P", str(Path(__file__).with_name("ucx_probe.py"))]
    try:
        done = subprocess.run(
            program, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, rest = done.stdout.strip().partition(" ")
    infiniband, _, library = rest.partition(" ")
    return Loaded(version, infiniband == "yes", Path(library)) if done.returncode == 0 and library else None


def _meant(asked: str | None, environ: Mapping[str, str]) -> str:
    asked = asked or environ.get(VARIABLE) or AUTO
    if asked not in (AUTO, WHEEL, SYSTEM):
        raise UsageError(f"environment variable {VARIABLE}: {asked!r} is not auto, wheel or system")
    # Who set the package's own variable meant it.
    return SYSTEM if asked == AUTO and environ.get(PREFER, "false").lower() != "false" else asked


def _warning(devices: list[str], origin: str) -> tuple[str, str, str] | None:
    if not devices:
        return None
    return (
        CODE,
        f"this machine has InfiniBand ({', '.join(devices)}), but the UCX chosen ({origin}) has no module for it, so"
        " everything will go over TCP",
        REMEDY,
    )
