"""Finds the shared libraries that this process has loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

from merge_bench.errors import RunFailed


def library_path(name: str) -> Path | None:
    """The file of a loaded library, such as ``libucp``; None if it is not loaded.

    Wheels rename libraries like ``libucp-1a2b3c4d.so.0``, so that name counts if there is no ``libucp.so…``.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [Path(path) for line in lines if (path := line.split(maxsplit=5)[-1]).startswith("/")]
    return next((path for end in ".-" for path in paths if path.name.startswith(name + end)), None)


def loaded_library(name: str) -> ctypes.CDLL:
    """A library that this process has loaded, for calls of its functions.

    Raises
    ------
    RunFailed
        If the process has not loaded it.
    """
    path = library_path(name)
    if path is None:
        raise RunFailed(
            f"this process has not loaded the library {name}, which it needs; check the installation with `doctor`"
        )
    return ctypes.CDLL(str(path))
