"""Levels that a person accepted (``history --accept``): lines of a file beside the results, which is only added to."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from merge_bench.errors import UsageError

ACCEPTED_FILE = "accepted.jsonl"
_MOST_ACCEPTED_BYTES = 16 * 2**20


class AcceptedLevelLine(msgspec.Struct, frozen=True, kw_only=True):
    """A level that a person accepted, as a line of a file; `newest`: begin of the newest result at that time."""

    series: dict[str, str | int | float]
    newest: float
    metric: str
    level: float
    by: str
    reason: str
    time: float


def read_accepted_levels(results_folders: Sequence[str]) -> tuple[list[AcceptedLevelLine], list[str]]:
    """Read the levels accepted in results folders, the oldest first; returns them and sentences about problems."""
    accepted: list[AcceptedLevelLine] = []
    problems = []
    decode = msgspec.json.Decoder(AcceptedLevelLine).decode
    for folder in results_folders:
        path = Path(folder, ACCEPTED_FILE)
        try:
            lines = _read_accepted_levels_file(path).splitlines()
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


def append_accepted_level(results_folder: str, level_line: AcceptedLevelLine) -> None:
    """Add an accepted level to the file of a results folder, and wait until the line is on the disk.

    Raises UsageError if the file cannot be written, or is a link; its earlier lines stay.
    """
    path = Path(results_folder, ACCEPTED_FILE)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            _require_regular_file(descriptor)
            size = os.fstat(descriptor).st_size
            whole = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            text = (b"" if whole else b"\n") + msgspec.json.encode(level_line) + b"\n"
            if os.write(descriptor, text) != len(text):
                os.ftruncate(descriptor, size)
                raise OSError(28, os.strerror(28))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _read_accepted_levels_file(path: Path) -> bytes:
    """The first `_MOST_ACCEPTED_BYTES` bytes of a file of accepted levels, which must be a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        _require_regular_file(descriptor)
        return file.read(_MOST_ACCEPTED_BYTES)


def _require_regular_file(file_descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(file_descriptor).st_mode):
        raise OSError(22, "it is no regular file")
