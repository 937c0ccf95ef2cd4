"""Shared libraries that this process has loaded."""

from __future__ import annotations

from pathlib import Path


def library_path(name: str) -> Path | None:
    """The file of a library that this process has loaded, by the start of its name."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and Path(path).name.startswith(name + "."):
            return Path(path)
    # wheels rename libraries like libucp-1a2b3c4d.so.0
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and Path(path).name.startswith(name + "-"):
            return Path(path)
    return None
