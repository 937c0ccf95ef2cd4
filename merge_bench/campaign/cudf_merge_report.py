"""Reads and checks the text that cudf-merge prints; no other module depends on its layout.

That is ``cudf-merge.py`` of the 2022 APAC HPC-AI competition, of UCX-Py, and ``ucxx.benchmarks.cudf_merge``. All print
the same quantities in several ways, so that a damaged text contradicts itself and is refused. The relations are those
of ``cudf-merge.py`` of https://github.com/hpcac/2022-APAC-HPC-AI and of ``ucxx/benchmarks/cudf_merge.py``: each frame
has an int64 key and an int64 payload, so a row of both frames has 32 bytes.

Numbers are printed by Dask's ``format_time`` and ``format_bytes``, or by functions of the program that look alike.

A line belongs to the report by its form: the title, a separator, ``label | value`` with a known label, the headings, a
row of an iteration. All other lines are text of other programs and are left out. A line that begins like one of the
report and does not have its form is damaged, and the text is refused.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn, TypeVar

from merge_bench.analysis.statistics import harmonic_mean
from merge_bench.errors import UsageError, visible
from merge_bench.units import format_bytes, format_count, format_rate, format_seconds

_SIZES = {
    "B": Decimal(1),
    **{f"{letter}iB": Decimal(1024**power) for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}B": Decimal(1000**power) for power, letter in enumerate("kMGTP", 1)},
    "kiB": Decimal(1024),
}
_TIMES = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ns": Decimal("1e-9")}
_NUMBER = re.compile(r"(\d{1,18}(?:\.(\d{1,18}))?) ?([A-Za-zµ]+)", re.ASCII)
_LONG = {"m": 60, "hr": 3600, "d": 86_400}
_LONG_TIME = re.compile(r"(\d{1,6})(m|hr|d) (\d{1,2})(s|m|hr)", re.ASCII)
_SLACK = 1e-9
"""Share of a bound that floating-point arithmetic may cost."""


@dataclass(frozen=True)
class Printed:
    """A printed number in SI units; what was printed lay between `low` and `high`, one unit of its last digit apart.

    `line` is where it stands.
    """

    value: float
    low: float
    high: float
    resolution: float
    line: int

    def fits(self, low: float, high: float) -> bool:
        """Whether what was printed can lie between `low` and `high`."""
        return self.low * (1 - _SLACK) <= high and low <= self.high * (1 + _SLACK)


def read_bytes(text: str, line: int) -> Printed:
    """``488.28 MiB`` in bytes.

    Raises ValueError if `text` is no size.
    """
    return _rounded(text, line, _SIZES, "size")


def read_rate(text: str, line: int) -> Printed:
    """``1.06 GiB/s`` in bytes per second.

    Raises ValueError if `text` is no rate.
    """
    if not text.endswith("/s"):
        raise ValueError(f"{text!r} is not a rate")
    return _rounded(text.removesuffix("/s"), line, _SIZES, "rate")


def read_time(text: str, line: int) -> Printed:
    """``49.16 ms`` in seconds; longer ones, as ``20m 34s``, are cut off, not rounded.

    Raises ValueError if `text` is no time.
    """
    long = _LONG_TIME.fullmatch(text)
    if long is None:
        return _rounded(text, line, _TIMES, "time")
    last = {"s": 1, **_LONG}[long[4]]
    if last >= _LONG[long[2]]:
        raise ValueError(f"{text!r} is not a time")
    value = float(int(long[1]) * _LONG[long[2]] + int(long[3]) * last)
    return Printed(value, value, value + last, float(last), line)


def _rounded(text: str, line: int, units: Mapping[str, Decimal], what: str) -> Printed:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {what}")
    value, digit = Decimal(match[1]) * factor, Decimal(10) ** -len(match[2] or "") * factor
    low, high = max(value - digit / 2, Decimal(0)), value + digit / 2
    return Printed(float(value), float(low), float(high), float(digit), line)


ROW_BYTES = 32


class Contradiction(Exception):
    """Two numbers that do not go together; `line` is where one of them stands."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


def data_bytes(workers: int, rows_per_chunk: int) -> int:
    """Bytes of both frames of all workers."""
    return workers * rows_per_chunk * ROW_BYTES


def count_workers(named: int, rows_per_chunk: int, of_iteration: Printed, *, of_server: bool) -> int:
    """How many workers there were: those named, if the data are theirs.

    `of_server`: the text names devices. On several hosts a server prints its own, and the data tell the number.

    Raises Contradiction if the data per iteration are of no whole number of workers.
    """
    expected = data_bytes(named, rows_per_chunk)
    if of_iteration.fits(expected, expected):
        return named
    of_worker = data_bytes(1, rows_per_chunk)
    workers = round(of_iteration.value / of_worker)
    alone = of_iteration.resolution < of_worker
    if of_server and alone and workers > named and of_iteration.fits(workers * of_worker, workers * of_worker):
        return workers
    raise Contradiction(
        of_iteration.line,
        f"the data processed per iteration do not match {named} × {format_count(rows_per_chunk)} rows of {ROW_BYTES} "
        f"bytes ({format_bytes(expected)})",
    )


def most_iterations(total: Printed, of_iteration: int) -> int:
    """The most iterations that the rounded total leaves room for."""
    return math.floor(total.high / of_iteration * (1 + 1e-12))


def check_length(iterations: int, total: Printed, of_iteration: int, requested: int | None) -> None:
    """Check that no iteration is missing.

    Raises Contradiction if the total, or ``--iter`` of the command line, is of another number of iterations.
    """
    if requested is not None and requested != iterations:
        raise Contradiction(
            total.line, f"the text has {iterations} iterations, but --iter requested {requested}; the text is truncated"
        )
    if not total.fits(iterations * of_iteration, iterations * of_iteration):
        meant = total.value / of_iteration
        raise Contradiction(
            total.line,
            f"the total matches about {meant:.0f} iterations, but the text has {iterations}; "
            "it is truncated or damaged",
        )


def check_figures(report: Report) -> None:
    """Check every rate against its bytes and seconds, and the headline against the iterations.

    Raises
    ------
    Contradiction
        At the first that does not fit.
    """
    for index, iteration in enumerate(report.iterations):
        _rate(f"iteration {index}", report.data_bytes, iteration.wall, iteration.throughput)
    _rate("the run", report.data_bytes * len(report.iterations), report.wall, report.throughput)
    least = math.fsum(iteration.wall.low for iteration in report.iterations)
    if least > report.wall.high * (1 + 1e-9):
        whole = format_seconds(report.wall.value)
        raise Contradiction(
            report.wall.line, f"the iterations took {format_seconds(least)}, longer than the run ({whole})"
        )
    rates = [iteration.bandwidth for iteration in report.iterations]
    low, high = (harmonic_mean([getattr(rate, end) for rate in rates]) for end in ("low", "high"))
    # Every iteration sends the same bytes, so the bandwidth of all is the harmonic mean of theirs.
    if not report.bandwidth.fits(low, high):
        raise Contradiction(
            report.bandwidth.line,
            f"the bandwidth of the run ({format_rate(report.bandwidth.value)}) is not the harmonic mean of its "
            f"iterations ({format_rate(harmonic_mean([rate.value for rate in rates]))})",
        )


def _rate(what: str, data: int, wall: Printed, throughput: Printed) -> None:
    fastest = data / wall.low if wall.low > 0 else math.inf
    if not throughput.fits(data / wall.high, fastest):
        raise Contradiction(
            throughput.line,
            f"the throughput of {what} ({format_rate(throughput.value)}) is not its data ÷ its wall-clock "
            f"({format_rate(data / wall.value if wall.value else None)})",
        )


TITLE = "cuDF merge benchmark"
LARGEST = 64 << 20
_LONGEST = 1000
_SEPARATOR = re.compile(r"-{10,}|={10,}")
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_BLANK = re.compile(r"[^\S\t]")
_PREFIX = re.compile(r"((>|\d+:|\[\d+(,\d+)?\](<\w+>:)?)\s*)*", re.ASCII)
"""Quotes of mail, and the ranks that ``srun --label`` and ``mpirun --tag-output`` put before each line."""
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_DEVICES = re.compile(r"\[\d+(, *\d+)*\]", re.ASCII)
_WRONG_RESULT = "Result verification for rank"
_TRACEBACK = "Traceback (most recent call last)"
_COMMAND = re.compile(r"cudf[-_]merge")
_NAMES = {"Avg Bandwidth / GPU": "Bandwidth", "Throughput / GPU": "Throughput", "Run": "Iteration"}
_HEADINGS = ["Iteration", "Wall-clock", "Bandwidth", "Throughput"]
_REQUIRED = ("Rows per chunk", "Total data processed", "Data processed per iter", *_HEADINGS[1:])
_OPTIONAL = ("Device(s)", "Number of devices", "Chunks per device", "Row matching fraction")
_LABELS = "|".join(map(re.escape, {*_REQUIRED, *_OPTIONAL, *_NAMES} - {"Run"}))
_FACT = re.compile(rf"({_LABELS})(\s*\||\t|\s\s|$)")
_ROW = re.compile(r"(\d+)(\s*\||(\t|\s\s).*B/s$|$)", re.ASCII)
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
    `longest`: how many iterations its total leaves room for. `left_out`: the numbers of the lines that are not part of
    the report; `first_left_out`: the first of them.
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
    left_out: tuple[int, ...]
    first_left_out: str
    traceback: str | None


def read_report(path: Path, content: bytes) -> Report:
    """The report in `content`, the bytes of `path`.

    Raises UsageError if it holds none, more than one, half of one, or one that contradicts itself; in one sentence with
    the line.
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
        self.lines = [_BLANK.sub(" ", _COLOUR.sub("", line)).strip() for line in lines]
        self.prefixes = [match[0] if (match := _PREFIX.match(line)) else "" for line in self.lines]
        self.bare = [line[len(prefix) :] for line, prefix in zip(self.lines, self.prefixes, strict=True)]
        self.command: str | None = None
        self.values: dict[str, tuple[int, str]] = {}
        self.header = 0
        self.rows: list[Iteration] = []
        self.left_out: list[int] = []

    def read(self) -> Report:
        title = self._title()
        for number, line in enumerate(self.bare, 1):
            if line.startswith(_WRONG_RESULT):
                self._wrong(number, f"cudf-merge reports a wrong result: {_shown(line)}")
            if number < title and line.startswith("$ ") and _COMMAND.search(line):
                self.command = " ".join(line.removeprefix("$ ").split())
            elif not line or number == title or _SEPARATOR.fullmatch(line):
                continue
            elif number < title or not self._is_read(number, line, self.prefixes[title - 1]):
                self.left_out.append(number)
        return self._report()

    def _title(self) -> int:
        if not any(self.lines):
            raise UsageError(f"{self.path} is empty, but should contain the output of cudf-merge")
        titles = [number for number, line in enumerate(self.bare, 1) if line == TITLE]
        if not titles:
            raise UsageError(f"{self.path} is not output of cudf-merge: it has no line {TITLE!r}{self._failed()}")
        if len(titles) > 1:
            self._wrong(titles[1], "a second report begins; put each report into its own file")
        return titles[0]

    def _is_read(self, number: int, line: str, prefix: str) -> bool:
        """Read a line that belongs to the report; False for one that does not."""
        cells = [cell.strip() for cell in line.split("|")]
        read = self._form(line, cells)
        if read is None:
            return False
        if len(line) > _LONGEST:
            self._wrong(number, f"the line has {len(line)} characters, more than cudf-merge prints in a line")
        own = self.prefixes[number - 1]
        if own and own.split() != prefix.split():
            self._wrong(number, f"the line begins with {own.strip()!r}, but the title of the report does not")
        read(number, line, cells)
        return True

    def _form(self, line: str, cells: list[str]) -> Callable[[int, str, list[str]], None] | None:
        """What reads a line of this form, damaged or not; None if it is not one of the report."""
        fact, row = _FACT.match(line), _ROW.match(line)
        if fact and ("|" in fact[2] or _NAMES.get(fact[1], fact[1]) not in self.values):
            return self._fact
        if len(cells) > 1 and _NAMES.get(cells[0], cells[0]) == _HEADINGS[0]:
            return self._headings
        of_row = row and (row[2] or row[1] == str(len(self.rows)))
        if self.header and (of_row or (len(cells) > 2 and cells[-1].endswith("B/s"))):
            return self._row
        return None

    def _fact(self, number: int, line: str, cells: list[str]) -> None:
        if len(cells) != 2:
            self._wrong(number, f"{line!r} is not a line of the form 'name | value'")
        name = _NAMES.get(cells[0], cells[0])
        if name in self.values:
            self._wrong(number, f"{name!r} appears a second time")
        self.values[name] = number, cells[1]

    def _headings(self, number: int, line: str, cells: list[str]) -> None:
        if [_NAMES.get(cell, cell) for cell in cells] != _HEADINGS or self.header:
            again = "no second line of headings" if self.header else f"the columns {', '.join(_HEADINGS)}"
            self._wrong(number, f"expected {again}, found {line!r}")
        self.header = number

    def _row(self, number: int, line: str, cells: list[str]) -> None:
        if len(cells) != len(_HEADINGS) or not _COUNT.fullmatch(cells[0]):
            self._wrong(number, f"{line!r} is not a row of iteration, wall-clock, bandwidth and throughput")
        if int(cells[0]) != len(self.rows):
            self._wrong(number, f"expected iteration {len(self.rows)}, found {cells[0]}")
        wall = self._value(number, cells[1], read_time)
        rates = [self._value(number, cell, read_rate) for cell in cells[2:]]
        self.rows.append(Iteration(wall, *rates))

    def _report(self) -> Report:
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
            workers = count_workers(printed, rows, of_iteration, of_server=named == "Device(s)")
            report = Report(
                command=self.command,
                workers=workers,
                workers_printed=printed,
                rows_per_chunk=rows,
                data_bytes=data_bytes(workers, rows),
                fraction=self._fraction(),
                wall=self._read("Wall-clock", read_time),
                bandwidth=self._read("Bandwidth", read_rate),
                throughput=self._read("Throughput", read_rate),
                iterations=tuple(self.rows),
                longest=most_iterations(total, data_bytes(workers, rows)),
                left_out=tuple(self.left_out),
                traceback=self._traceback(),
                first_left_out=_shown(self.lines[self.left_out[0] - 1]) if self.left_out else "",
            )
            check_length(len(self.rows), total, report.data_bytes, _asked(self.command))
            check_figures(report)
        except Contradiction as error:
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

    def _traceback(self) -> str | None:
        """The last line of the last Python error in the text, which is what it was."""
        starts = [index for index, line in enumerate(self.bare) if line.startswith(_TRACEBACK)]
        after = [line for line in self.bare[starts[-1] + 1 :] if line] if starts else []
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
    """As much of a foreign line as fits a sentence."""
    return visible(line[:200])


def _asked(command: str | None) -> int | None:
    """``--iter`` of the command line, where that is known."""
    match = re.search(r"--iter[= ](\d{1,15})\b", command or "", re.ASCII)
    return int(match[1]) if match else None
