"""Levels that a person accepted: lines that are only added to, in a file beside the results."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from merge_bench.errors import UsageError

Series: TypeAlias = Mapping[str, str | int | float]
"""The values by name that tell a series from all others: config, problem, engine, …"""

FILE = "accepted.jsonl"
_MOST_BYTES = 16 * 2**20


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A level that a person accepted: the one known with the `newest` result, whose time of beginning this is."""

    series: dict[str, str | int | float]
    newest: float
    metric: str
    level: float
    by: str
    reason: str
    time: float


def read_accepted(roots: Sequence[str]) -> tuple[list[Accepted], list[str]]:
    """The levels accepted in these results folders, the oldest first, and sentences about what could not be read."""
    accepted: list[Accepted] = []
    problems = []
    decode = msgspec.json.Decoder(Accepted).decode
    for root in roots:
        path = Path(root, FILE)
        try:
            lines = _read_bytes(path).splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"cannot read {path}: {error.strerror}; accepted levels are not known")
            continue
        for number, line in enumerate(lines, 1):
            try:
                accepted.append(decode(line))
            except msgspec.MsgspecError:
                problems.append(f"{path}, line {number}: no accepted level; it is left out")
    return sorted(accepted, key=lambda each: each.time), problems


def write_accepted(
    root: str, *, series: Series, newest: float, metric: str, level: float, by: str, reason: str
) -> Accepted:
    """Add an accepted level to the file of a results folder, and wait until it is on the disk; follow no link.

    Raises UsageError if the file cannot be written; its earlier lines stay.
    """
    line = Accepted(
        series=dict(series), newest=newest, metric=metric, level=level, by=by, reason=reason, time=time.time()
    )
    path = Path(root, FILE)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            _check_regular(descriptor)
            size = os.fstat(descriptor).st_size
            whole = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            text = (b"" if whole else b"\n") + msgspec.json.encode(line) + b"\n"
            if os.write(descriptor, text) != len(text):
                os.ftruncate(descriptor, size)
                raise OSError(28, os.strerror(28))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    return line


def _read_bytes(path: Path) -> bytes:
    """The first `_MOST_BYTES` of a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        _check_regular(descriptor)
        return file.read(_MOST_BYTES)


def _check_regular(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(22, "it is no regular file")
