"""Reads the small files of ``/proc`` and ``/sys``.

A file that cannot be read counts as missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """The text of a file without blanks at its ends; None if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The whole number that a file consists of; None if it has other content or cannot be read."""
    content = read_text(path)
    return int(content) if content is not None and content.lstrip("-").isdigit() else None


def list_file_names(folder: Path) -> list[str]:
    """The sorted names in a folder; [] if there is no such folder."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def read_named_values(path: Path) -> dict[str, str]:
    """The values in a file of ``name: value`` lines, by name; for a name that occurs twice, the last value."""
    pairs = (line.partition(":") for line in (read_text(path) or "").splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def read_named_byte_counts(path: Path) -> dict[str, int]:
    """The bytes in a file of ``name: NUMBER kB`` lines, by name; numbers without a unit as they are."""
    sizes = {}
    for name, value in read_named_values(path).items():
        number, _, unit = value.partition(" ")
        if number.isdigit():
            sizes[name] = int(number) * (1024 if unit == "kB" else 1)
    return sizes


def read_bracketed_word(path: Path) -> str | None:
    """The word in brackets in a file like ``always [madvise] never``; without brackets, the whole text."""
    content = read_text(path)
    return content if content is None or "[" not in content else content[content.find("[") + 1 : content.find("]")]


def parse_core_list(core_list: str) -> frozenset[int]:
    """Read the kernel's notation of cores: ``0-3,8`` → {0, 1, 2, 3, 8}."""
    cores: set[int] = set()
    for part in core_list.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def format_core_list(cores: Iterable[int]) -> str:
    """Write the kernel's notation of cores: {0, 1, 2, 3, 8} → ``0-3,8``."""
    # In a run of neighbours, number and position differ by the same amount.
    groups = itertools.groupby(enumerate(sorted(cores)), key=lambda pair: pair[1] - pair[0])
    runs = [[core for _, core in run] for _, run in groups]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
