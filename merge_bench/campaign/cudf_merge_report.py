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
"""The relative rounding error of floating-point arithmetic that is tolerated at a bound."""


@dataclass(frozen=True)
class PrintedNumber:
    """A number from the report, converted to SI units.

    `low`, `high`: the range of exact values that are printed so; `resolution`: one unit of the last printed digit;
    `line`: the number of its line.
    """

    value: float
    low: float
    high: float
    resolution: float
    line: int

    def overlaps(self, low: float, high: float) -> bool:
        """Whether the exact value can lie between `low` and `high`."""
        return self.low * (1 - _SLACK) <= high and low <= self.high * (1 + _SLACK)


def read_bytes(text: str, line: int) -> PrintedNumber:
    """Parse a size, such as ``488.28 MiB``, to bytes.

    Raises ValueError if `text` is no size.
    """
    return _parse_printed(text, line, _SIZES, "size")


def read_rate(text: str, line: int) -> PrintedNumber:
    """Parse a rate, such as ``1.06 GiB/s``, to bytes per second.

    Raises ValueError if `text` is no rate.
    """
    if not text.endswith("/s"):
        raise ValueError(f"{text!r} is not a rate")
    return _parse_printed(text.removesuffix("/s"), line, _SIZES, "rate")


def read_time(text: str, line: int) -> PrintedNumber:
    """Parse a time, such as ``49.16 ms``, to seconds. Times such as ``20m 34s`` were cut off, not rounded.

    Raises ValueError if `text` is no time.
    """
    long = _LONG_TIME.fullmatch(text)
    if long is None:
        return _parse_printed(text, line, _TIMES, "time")
    last = {"s": 1, **_LONG}[long[4]]
    if last >= _LONG[long[2]]:
        raise ValueError(f"{text!r} is not a time")
    value = float(int(long[1]) * _LONG[long[2]] + int(long[3]) * last)
    return PrintedNumber(value, value, value + last, float(last), line)


def _parse_printed(text: str, line: int, units: Mapping[str, Decimal], kind: str) -> PrintedNumber:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {kind}")
    value, digit = Decimal(match[1]) * factor, Decimal(10) ** -len(match[2] or "") * factor
    low, high = max(value - digit / 2, Decimal(0)), value + digit / 2
    return PrintedNumber(float(value), float(low), float(high), float(digit), line)


ROW_BYTES = 32


class Contradiction(Exception):
    """Two numbers of a report contradict each other; `line`: the number of a line that has one of them."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


def data_bytes(workers: int, rows_per_chunk: int) -> int:
    """Bytes of both input frames, summed over all workers."""
    return workers * rows_per_chunk * ROW_BYTES


def count_workers(listed: int, rows_per_chunk: int, iteration_bytes: PrintedNumber, *, lists_devices: bool) -> int:
    """The number of workers: the `listed` ones, if the bytes per iteration match them.

    `lists_devices`: the report lists devices. On several hosts a server lists only its own, so there may be more
    workers, and the bytes per iteration tell how many.

    Raises Contradiction if the bytes per iteration match no number of workers.
    """
    expected = data_bytes(listed, rows_per_chunk)
    if iteration_bytes.overlaps(expected, expected):
        return listed
    worker_bytes = data_bytes(1, rows_per_chunk)
    workers = round(iteration_bytes.value / worker_bytes)
    alone = iteration_bytes.resolution < worker_bytes
    whole = workers * worker_bytes
    if lists_devices and alone and workers > listed and iteration_bytes.overlaps(whole, whole):
        return workers
    raise Contradiction(
        iteration_bytes.line,
        f"the data processed per iteration do not match {listed} × {format_count(rows_per_chunk)} rows of {ROW_BYTES} "
        f"bytes ({format_bytes(expected)})",
    )


def most_iterations(total: PrintedNumber, iteration_bytes: int) -> int:
    """The most iterations whose bytes, rounded as printed, add up to the printed total."""
    return math.floor(total.high / iteration_bytes * (1 + 1e-12))


def check_iteration_count(iterations: int, total: PrintedNumber, iteration_bytes: int, requested: int | None) -> None:
    """Check that no iteration is missing from the report.

    Raises Contradiction if the total bytes, or ``--iter`` of the command line, mean another number of iterations.
    """
    if requested is not None and requested != iterations:
        raise Contradiction(
            total.line, f"the text has {iterations} iterations, but --iter requested {requested}; the text is truncated"
        )
    if not total.overlaps(iterations * iteration_bytes, iterations * iteration_bytes):
        meant = total.value / iteration_bytes
        raise Contradiction(
            total.line,
            f"the total matches about {meant:.0f} iterations, but the text has {iterations}; "
            "it is truncated or damaged",
        )


def check_figures(report: Report) -> None:
    """Check every rate against its bytes and seconds, and the figures of the whole run against the iterations.

    Raises
    ------
    Contradiction
        For the first figure that does not fit.
    """
    for index, iteration in enumerate(report.iterations):
        _check_throughput(f"iteration {index}", report.data_bytes, iteration.wall, iteration.throughput)
    _check_throughput("the run", report.data_bytes * len(report.iterations), report.wall, report.throughput)
    least_seconds = math.fsum(iteration.wall.low for iteration in report.iterations)
    if least_seconds > report.wall.high * (1 + 1e-9):
        whole = format_seconds(report.wall.value)
        raise Contradiction(
            report.wall.line, f"the iterations took {format_seconds(least_seconds)}, longer than the run ({whole})"
        )
    rates = [iteration.bandwidth for iteration in report.iterations]
    low, high = (harmonic_mean([getattr(rate, end) for rate in rates]) for end in ("low", "high"))
    # Every iteration sends the same bytes, so the bandwidth of all is the harmonic mean of theirs.
    if not report.bandwidth.overlaps(low, high):
        raise Contradiction(
            report.bandwidth.line,
            f"the bandwidth of the run ({format_rate(report.bandwidth.value)}) is not the harmonic mean of its "
            f"iterations ({format_rate(harmonic_mean([rate.value for rate in rates]))})",
        )


def _check_throughput(of_what: str, data: int, wall: PrintedNumber, throughput: PrintedNumber) -> None:
    fastest = data / wall.low if wall.low > 0 else math.inf
    if not throughput.overlaps(data / wall.high, fastest):
        raise Contradiction(
            throughput.line,
            f"the throughput of {of_what} ({format_rate(throughput.value)}) is not its data ÷ its wall-clock "
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
    """The figures of one iteration, a row of the report's table."""

    wall: PrintedNumber
    bandwidth: PrintedNumber
    throughput: PrintedNumber


@dataclass(frozen=True)
class Report:
    """The contents of a report of cudf-merge. `wall`, `bandwidth`, `throughput`: the figures of the whole run.

    `data_bytes`: the exact bytes of an iteration. `workers_printed`: the number of workers in the text, less than
    `workers` where a server lists only its own devices. `fraction`: share of keys that match. `longest`: the most
    iterations that the printed total allows. `left_out`: the numbers of the lines that are not part of the report;
    `first_left_out`: the text of the first of them. `traceback`: the last Python error in the text.
    """

    command: str | None
    workers: int
    workers_printed: int
    rows_per_chunk: int
    data_bytes: int
    fraction: float | None
    wall: PrintedNumber
    bandwidth: PrintedNumber
    throughput: PrintedNumber
    iterations: tuple[Iteration, ...]
    longest: int
    left_out: tuple[int, ...]
    first_left_out: str
    traceback: str | None


def read_report(path: Path, content: bytes) -> Report:
    """Read the report in `content`, the bytes of the file `path`.

    Raises UsageError if there is no report, more than one, a part of one, or one that contradicts itself; the message
    is one sentence and names the line.
    """
    try:
        wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's > writes it
        lines = content.decode("utf-16" if wide else "utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise UsageError(f"line {number} of {path} is not text, so the file is not output of cudf-merge") from None
    return _ReportReader(path, lines).read()


class _ReportReader:
    """Collects the facts and rows of a report in one pass over its lines, then checks them against each other."""

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
        title = self._find_title()
        for number, line in enumerate(self.bare, 1):
            if line.startswith(_WRONG_RESULT):
                self._refuse_line(number, f"cudf-merge reports a wrong result: {_shorten_line(line)}")
            if number < title and line.startswith("$ ") and _COMMAND.search(line):
                self.command = " ".join(line.removeprefix("$ ").split())
            elif not line or number == title or _SEPARATOR.fullmatch(line):
                continue
            elif number < title or not self._read_line(number, line, self.prefixes[title - 1]):
                self.left_out.append(number)
        return self._build_report()

    def _find_title(self) -> int:
        if not any(self.lines):
            raise UsageError(f"{self.path} is empty, but should contain the output of cudf-merge")
        titles = [number for number, line in enumerate(self.bare, 1) if line == TITLE]
        if not titles:
            raise UsageError(f"{self.path} is not output of cudf-merge: it has no line {TITLE!r}{self._error_note()}")
        if len(titles) > 1:
            self._refuse_line(titles[1], "a second report begins; put each report into its own file")
        return titles[0]

    def _read_line(self, number: int, line: str, prefix: str) -> bool:
        """Read a line if it belongs to the report; returns whether it does."""
        cells = [cell.strip() for cell in line.split("|")]
        read = self._reader_of_line(line, cells)
        if read is None:
            return False
        if len(line) > _LONGEST:
            self._refuse_line(number, f"the line has {len(line)} characters, more than cudf-merge prints in a line")
        own = self.prefixes[number - 1]
        if own and own.split() != prefix.split():
            self._refuse_line(number, f"the line begins with {own.strip()!r}, but the title of the report does not")
        read(number, line, cells)
        return True

    def _reader_of_line(self, line: str, cells: list[str]) -> Callable[[int, str, list[str]], None] | None:
        """The method that reads a line of this form, damaged or not; None if the line is not part of the report."""
        fact, row = _FACT.match(line), _ROW.match(line)
        if fact and ("|" in fact[2] or _NAMES.get(fact[1], fact[1]) not in self.values):
            return self._read_fact
        if len(cells) > 1 and _NAMES.get(cells[0], cells[0]) == _HEADINGS[0]:
            return self._read_headings
        of_row = row and (row[2] or row[1] == str(len(self.rows)))
        if self.header and (of_row or (len(cells) > 2 and cells[-1].endswith("B/s"))):
            return self._read_row
        return None

    def _read_fact(self, number: int, line: str, cells: list[str]) -> None:
        if len(cells) != 2:
            self._refuse_line(number, f"{line!r} is not a line of the form 'name | value'")
        name = _NAMES.get(cells[0], cells[0])
        if name in self.values:
            self._refuse_line(number, f"{name!r} appears a second time")
        self.values[name] = number, cells[1]

    def _read_headings(self, number: int, line: str, cells: list[str]) -> None:
        if [_NAMES.get(cell, cell) for cell in cells] != _HEADINGS or self.header:
            again = "no second line of headings" if self.header else f"the columns {', '.join(_HEADINGS)}"
            self._refuse_line(number, f"expected {again}, found {line!r}")
        self.header = number

    def _read_row(self, number: int, line: str, cells: list[str]) -> None:
        if len(cells) != len(_HEADINGS) or not _COUNT.fullmatch(cells[0]):
            self._refuse_line(number, f"{line!r} is not a row of iteration, wall-clock, bandwidth and throughput")
        if int(cells[0]) != len(self.rows):
            self._refuse_line(number, f"expected iteration {len(self.rows)}, found {cells[0]}")
        wall = self._parse_value(number, cells[1], read_time)
        rates = [self._parse_value(number, cell, read_rate) for cell in cells[2:]]
        self.rows.append(Iteration(wall, *rates))

    def _build_report(self) -> Report:
        named = "Device(s)" if "Device(s)" in self.values else "Number of devices"
        for name in (named, *_REQUIRED):
            if name not in self.values:
                raise UsageError(self._incomplete_message(f"and has no line with {name!r}"))
        if not self.header or not self.rows:
            raise UsageError(self._incomplete_message("before the first iteration"))
        rows = self._positive_count("Rows per chunk")
        printed = self._positive_count(named) if named != "Device(s)" else self._workers_on_devices()
        iteration_bytes = self._read_value("Data processed per iter", read_bytes)
        total = self._read_value("Total data processed", read_bytes)
        try:
            workers = count_workers(printed, rows, iteration_bytes, lists_devices=named == "Device(s)")
            report = Report(
                command=self.command,
                workers=workers,
                workers_printed=printed,
                rows_per_chunk=rows,
                data_bytes=data_bytes(workers, rows),
                fraction=self._matching_fraction(),
                wall=self._read_value("Wall-clock", read_time),
                bandwidth=self._read_value("Bandwidth", read_rate),
                throughput=self._read_value("Throughput", read_rate),
                iterations=tuple(self.rows),
                longest=most_iterations(total, data_bytes(workers, rows)),
                left_out=tuple(self.left_out),
                traceback=self._last_python_error(),
                first_left_out=_shorten_line(self.lines[self.left_out[0] - 1]) if self.left_out else "",
            )
            check_iteration_count(len(self.rows), total, report.data_bytes, _requested_iterations(self.command))
            check_figures(report)
        except Contradiction as error:
            self._refuse_line(error.line, str(error))
        return report

    def _positive_count(self, name: str) -> int:
        number, text = self.values[name]
        if not _COUNT.fullmatch(text) or int(text) < 1:
            self._refuse_line(number, f"{name!r} is {text!r}, not a positive whole number")
        return int(text)

    def _workers_on_devices(self) -> int:
        number, text = self.values["Device(s)"]
        if not _DEVICES.fullmatch(text):
            self._refuse_line(number, f"'Device(s)' is {text!r}, not a list of devices such as [0, 1]")
        chunks = self._positive_count("Chunks per device") if "Chunks per device" in self.values else 1
        return (text.count(",") + 1) * chunks

    def _matching_fraction(self) -> float | None:
        number, text = self.values.get("Row matching fraction", (0, ""))
        if not number:
            return None
        if not re.fullmatch(r"[01](\.\d{1,18})?", text, re.ASCII) or float(text) > 1:
            self._refuse_line(number, f"'Row matching fraction' is {text!r}, not a number from 0 to 1")
        return float(text)

    def _read_value(self, name: str, read: Callable[[str, int], Value]) -> Value:
        return self._parse_value(*self.values[name], read)

    def _parse_value(self, number: int, text: str, read: Callable[[str, int], Value]) -> Value:
        try:
            return read(text, number)
        except ValueError as error:
            self._refuse_line(number, str(error))

    def _last_python_error(self) -> str | None:
        """The line of the last traceback in the text that names its error; None if there is no traceback."""
        starts = [index for index, line in enumerate(self.bare) if line.startswith(_TRACEBACK)]
        after = [line for line in self.bare[starts[-1] + 1 :] if line] if starts else []
        errors = [line for line in after if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
        return _shorten_line((errors or after or [_TRACEBACK])[0]) if starts else None

    def _error_note(self) -> str:
        error = self._last_python_error()
        return f"; the text contains a Python error: {error}" if error else ""

    def _incomplete_message(self, what: str) -> str:
        return f"{self.path} is incomplete: it ends at line {len(self.lines)}, {what}{self._error_note()}"

    def _refuse_line(self, number: int, sentence: str) -> NoReturn:
        raise UsageError(f"line {number} of {self.path}: {sentence}")


def _shorten_line(line: str) -> str:
    """The first 200 characters of a line, printable, for quoting it in a message."""
    return visible(line[:200])


def _requested_iterations(command: str | None) -> int | None:
    """The value of ``--iter`` on the command line; None if that is not known."""
    match = re.search(r"--iter[= ](\d{1,15})\b", command or "", re.ASCII)
    return int(match[1]) if match else None
