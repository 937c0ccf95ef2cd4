"""Reads the small files of ``/proc`` and ``/sys``, and finds the user's cache.

A file that cannot be read counts as missing.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """This package's folder below `$XDG_CACHE_HOME`, or `~/.cache`; it need not exist.

    Raises RuntimeError if the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "merge_bench"


def make_cache_folder() -> Path:
    """The same folder, made if need be: for its user only, because it has names of tables, hosts and paths.

    Raises OSError, RuntimeError if it cannot be made, or the user has no home.
    """
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def text(path: Path) -> str | None:
    """The stripped text of a file, or None."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The number that a file consists of, or None."""
    content = text(path)
    return int(content) if content is not None and content.lstrip("-").isdigit() else None


def names(folder: Path) -> list[str]:
    """The sorted names in a folder; [] if there is no such folder."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def fields(path: Path) -> dict[str, str]:
    """The values of a file of ``name: value`` lines; of a name that occurs twice, the last value."""
    pairs = (line.partition(":") for line in (text(path) or "").splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def kib_fields(path: Path) -> dict[str, int]:
    """The values of ``name: NUMBER kB`` lines, in bytes; numbers without a unit as they are."""
    sizes = {}
    for name, value in fields(path).items():
        number, _, unit = value.partition(" ")
        if number.isdigit():
            sizes[name] = int(number) * (1024 if unit == "kB" else 1)
    return sizes


def chosen(path: Path) -> str | None:
    """The selected word of a file like ``always [madvise] never``; without brackets, the whole text."""
    content = text(path)
    return content if content is None or "[" not in content else content[content.find("[") + 1 : content.find("]")]
