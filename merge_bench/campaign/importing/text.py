"""Reads and checks the text that cudf-merge prints; no other module depends on its layout.

That is ``cudf-merge.py`` of the 2022 APAC HPC-AI competition, of UCX-Py, and ``ucxx.benchmarks.cudf_merge``. All print
the same quantities in several ways (`check`), so that a damaged text contradicts itself and is refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from merge_bench.campaign.importing import check
from merge_bench.campaign.importing.printed import Printed, read_bytes, read_rate, read_time
from merge_bench.errors import UsageError

TITLE = "cuDF merge benchmark"
LARGEST = 64 << 20
_LONGEST = 1000
_SEPARATOR = re.compile(r"-{10,}|={10,}")
_HALF_ROW = re.compile(r"\d+\s*", re.ASCII)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_DEVICES = re.compile(r"\[\d+(, *\d+)*\]", re.ASCII)
_WRONG_RESULT = "Result verification for rank"
_TRACEBACK = "Traceback (most recent call last)"
_COMMAND = re.compile(r"cudf[-_]merge")
_NAMES = {"Avg Bandwidth / GPU": "Bandwidth", "Throughput / GPU": "Throughput", "Run": "Iteration"}
_HEADINGS = ["Iteration", "Wall-clock", "Bandwidth", "Throughput"]
_REQUIRED = ("Rows per chunk", "Total data processed", "Data processed per iter", *_HEADINGS[1:])
Value = TypeVar("Value")


@dataclass(frozen=True)
class Iteration:
    """A row of the table."""

    wall: Printed
    bandwidth: Printed
    throughput: Printed


@dataclass(frozen=True)
class Report:
    """What a text says. `data_bytes`: of an iteration, exact. `wall`, `bandwidth`, `throughput`: its headline.

    `workers_printed`: how many the text names, which are fewer than `workers` where a server lists its own devices.
    `longest`: how many iterations its total leaves room for. `passed_over`: lines that say nothing about the result.
    """

    command: str | None
    workers: int
    workers_printed: int
    rows_per_chunk: int
    data_bytes: int
    fraction: float | None
    wall: Printed
    bandwidth: Printed
    throughput: Printed
    iterations: tuple[Iteration, ...]
    longest: int
    passed_over: tuple[int, ...]
    traceback: str | None


def read_report(path: Path, content: bytes) -> Report:
    """The report in `content`, the bytes of `path`.

    Raises
    ------
    UsageError
        If it holds none, more than one, half of one, or one that contradicts itself; in one sentence with the line.
    """
    try:
        wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's > writes it
        lines = content.decode("utf-16" if wide else "utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise UsageError(f"line {number} of {path} is not text, so the file is not output of cudf-merge") from None
    return _Reader(path, lines).read()


class _Reader:
    """One pass over the lines, which collects; then the checks."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path = path
        self.lines = [line.strip() for line in lines]
        self.values: dict[str, tuple[int, str]] = {}
        self.header = 0
        self.rows: list[Iteration] = []
        self.passed_over: list[int] = []

    def read(self) -> Report:
        start = self._title()
        for number, line in enumerate(self.lines[start:], start + 1):
            if line and not _SEPARATOR.fullmatch(line):
                self._line(number, line)
        return self._report(self._command(start))

    def _title(self) -> int:
        if not any(self.lines):
            raise UsageError(f"{self.path} is empty, but should contain the output of cudf-merge")
        found = [number for number, line in enumerate(self.lines, 1) if line == TITLE]
        if not found:
            raise UsageError(f"{self.path} is not output of cudf-merge: it has no line {TITLE!r}{self._failed()}")
        if len(found) > 1:
            self._wrong(found[1], "a second report begins; put each report into its own file")
        return found[0]

    def _line(self, number: int, line: str) -> None:
        if line.startswith(_WRONG_RESULT):
            self._wrong(number, f"cudf-merge reports a wrong result: {_shown(line)}")
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 1:
            if self.header and _HALF_ROW.fullmatch(line):
                self._wrong(number, f"{line!r} is an incomplete row; the text is truncated")
            self.passed_over.append(number)
        elif len(line) > _LONGEST:
            self._wrong(number, f"the line has {len(line)} characters, more than cudf-merge prints in a line")
        elif self.header:
            self._row(number, line, cells)
        elif _NAMES.get(cells[0], cells[0]) == _HEADINGS[0]:
            self._header(number, cells)
        elif len(cells) != 2:
            self._wrong(number, f"{line!r} is not a line of the form 'name | value'")
        else:
            self._add_value(number, *cells)

    def _add_value(self, number: int, name: str, value: str) -> None:
        name = _NAMES.get(name, name)
        if name in self.values:
            self._wrong(number, f"{name!r} appears a second time")
        self.values[name] = number, value

    def _header(self, number: int, cells: list[str]) -> None:
        if [_NAMES.get(cell, cell) for cell in cells] != _HEADINGS:
            self._wrong(number, f"expected the columns {', '.join(_HEADINGS)}, found {_shown(', '.join(cells))}")
        self.header = number

    def _row(self, number: int, line: str, cells: list[str]) -> None:
        if len(cells) != len(_HEADINGS) or not _COUNT.fullmatch(cells[0]):
            self._wrong(number, f"{line!r} is not a row of iteration, wall-clock, bandwidth and throughput")
        if int(cells[0]) != len(self.rows):
            self._wrong(number, f"expected iteration {len(self.rows)}, found {cells[0]}")
        wall = self._value(number, cells[1], read_time)
        rates = [self._value(number, cell, read_rate) for cell in cells[2:]]
        self.rows.append(Iteration(wall, *rates))

    def _report(self, command: str | None) -> Report:
        named = "Device(s)" if "Device(s)" in self.values else "Number of devices"
        for name in (named, *_REQUIRED):
            if name not in self.values:
                raise UsageError(self._incomplete(f"and has no line with {name!r}"))
        if not self.header or not self.rows:
            raise UsageError(self._incomplete("before the first iteration"))
        rows = self._count("Rows per chunk")
        printed = self._count(named) if named != "Device(s)" else self._devices()
        of_iteration = self._read("Data processed per iter", read_bytes)
        total = self._read("Total data processed", read_bytes)
        try:
            workers = check.workers(printed, rows, of_iteration, of_server=named == "Device(s)")
            report = Report(
                command=command, workers=workers, workers_printed=printed, rows_per_chunk=rows,
                data_bytes=check.data_bytes(workers, rows), fraction=self._fraction(),
                wall=self._read("Wall-clock", read_time),
                bandwidth=self._read("Bandwidth", read_rate),
                throughput=self._read("Throughput", read_rate),
                iterations=tuple(self.rows), longest=check.longest(total, check.data_bytes(workers, rows)),
                passed_over=tuple(self.passed_over), traceback=self._traceback(),
            )  # fmt: skip
            check.length(len(self.rows), total, report.data_bytes, _asked(command))
            check.figures(report)
        except check.Contradiction as error:
            self._wrong(error.line, str(error))
        return report

    def _count(self, name: str) -> int:
        number, text = self.values[name]
        if not _COUNT.fullmatch(text) or int(text) < 1:
            self._wrong(number, f"{name!r} is {text!r}, not a positive whole number")
        return int(text)

    def _devices(self) -> int:
        number, text = self.values["Device(s)"]
        if not _DEVICES.fullmatch(text):
            self._wrong(number, f"'Device(s)' is {text!r}, not a list of devices such as [0, 1]")
        return (text.count(",") + 1) * (self._count("Chunks per device") if "Chunks per device" in self.values else 1)

    def _fraction(self) -> float | None:
        number, text = self.values.get("Row matching fraction", (0, ""))
        if not number:
            return None
        if not re.fullmatch(r"[01](\.\d{1,18})?", text, re.ASCII) or float(text) > 1:
            self._wrong(number, f"'Row matching fraction' is {text!r}, not a number from 0 to 1")
        return float(text)

    def _read(self, name: str, read: Callable[[str, int], Value]) -> Value:
        return self._value(*self.values[name], read)

    def _value(self, number: int, text: str, read: Callable[[str, int], Value]) -> Value:
        try:
            return read(text, number)
        except ValueError as error:
            self._wrong(number, str(error))

    def _command(self, start: int) -> str | None:
        """The command line that the job script of 2022 prints before the report."""
        found = [line for line in self.lines[: start - 1] if line.startswith("$ ") and _COMMAND.search(line)]
        return " ".join(found[-1].removeprefix("$ ").split()) if found else None

    def _traceback(self) -> str | None:
        """The last line of the last Python error in the text, which is what it was."""
        starts = [index for index, line in enumerate(self.lines) if line.startswith(_TRACEBACK)]
        after = [line for line in self.lines[starts[-1] + 1 :] if line] if starts else []
        errors = [line for line in after if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
        return _shown((errors or after or [_TRACEBACK])[0]) if starts else None

    def _failed(self) -> str:
        error = self._traceback()
        return f"; the text contains a Python error: {error}" if error else ""

    def _incomplete(self, what: str) -> str:
        return f"{self.path} is incomplete: it ends at line {len(self.lines)}, {what}{self._failed()}"

    def _wrong(self, number: int, sentence: str) -> NoReturn:
        raise UsageError(f"line {number} of {self.path}: {sentence}")


def _shown(line: str) -> str:
    """As much of a foreign line as fits a sentence, without what a terminal would take for a command."""
    return "".join(character if character.isprintable() else "?" for character in line[:200])


def _asked(command: str | None) -> int | None:
    """``--iter`` of the command line, where that is known."""
    match = re.search(r"--iter[= ](\d{1,15})\b", command or "", re.ASCII)
    return int(match[1]) if match else None
