"""Runs programs that print, and reads what dask-cuda prints: values under headings, in columns parted by ``|``.

`merge_bench.campaign.importing` reads what `ucxx.benchmarks.cudf_merge` prints, times included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.peer.protocol import PeerError
from merge_bench.campaign.importing.printed import read_time


def printed_by(program: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What `command` prints, also passed on to standard error; however this is left, its process is gone.

    `environment`: what it gets beside this process's own.

    Raises
    ------
    PeerError
        If it ends with another status than 0. `program`: what it is called then.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    try:
        text, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    sys.stderr.write(text)
    if process.returncode:
        raise PeerError(f"{program} ended with status {process.returncode}")
    return text


def seconds(text: str) -> float:
    """Read a time as Dask formats it: ``576.91 ms``, ``12.30 s``, ``20m 34s``.

    Raises
    ------
    PeerError
        If it is none.
    """
    try:
        return read_time(text, 0).value
    except ValueError as error:
        raise PeerError(str(error)) from None


def rows_below(text: str, *headings: str) -> list[list[str]]:
    """The rows of the last table whose headings are `headings`, up to the next line without columns or with text.

    The rule right below the headings is left out. Empty if there is no such table.
    """
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if cells == list(headings):
            inside, found = True, []
        elif inside and len(cells) == len(headings) and re.match(r"\d", cells[0]):
            found.append(cells)
        elif inside and (found or not set(line.strip()) <= {"-"}):
            inside = False
    return found


def value_of(text: str, key: str) -> str | None:
    """What stands beside `key` in a table of two columns."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 2 and cells[0] == key:
            return cells[1]
    return None


def walls(text: str, headings: tuple[str, ...], iterations: int, program: str) -> list[float]:
    """The wall-clock column of a program's table, one value an iteration, in seconds.

    Raises
    ------
    PeerError
        If the table is not whole: a program that was stopped while it printed has measured nothing.
    """
    rows = rows_below(text, *headings)
    if len(rows) != iterations:
        raise PeerError(f"{program} printed {len(rows)} of {iterations} iterations: {_last_line(text)}")
    column = next(index for index, heading in enumerate(headings) if heading.lower().startswith("wall"))
    return [seconds(row[column]) for row in rows]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"its last line is {lines[-1][:120]!r}" if lines else "it printed nothing"
