"""Reports of cudf-merge: reads and checks the text, and makes its figures those of merges.

What the report does not tell stays null or empty in the records: hosts, settings, transports, single workers, the
warm-up. No other module depends on the report's layout.

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

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from merge_bench.analysis.statistics import harmonic_mean
from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import (
    SLACK,
    PrintedNumber,
    PrintedText,
    parse_rate,
    parse_size,
    parse_time,
    shorten_line,
)
from merge_bench.errors import UsageError, WarningMessage
from merge_bench.records import schema as s
from merge_bench.units import count_with_noun, format_bytes, format_count, format_rate, format_seconds

IMPORTER = Importer(
    name="cudf-merge", help="cudf-merge.py of 2022, ucxx.benchmarks.cudf_merge, and that of UCX-Py", place=1
)
DEFINITIONS = (
    "cudf-merge defines two figures slightly differently from merge_bench: its wall-clock is the time of one worker, "
    "including the closing barrier; its bandwidth is bytes ÷ seconds of both frames' exchanges, as the harmonic mean "
    "over workers"
)
TITLE = "cuDF merge benchmark"
_LONGEST = 1000
_SEPARATOR = re.compile(r"-{10,}|={10,}")
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_DEVICES = re.compile(r"\[\d+(, *\d+)*\]", re.ASCII)
_WRONG_RESULT = "Result verification for rank"
_COMMAND = re.compile(r"cudf[-_]merge")
_NAMES = {"Avg Bandwidth / GPU": "Bandwidth", "Throughput / GPU": "Throughput", "Run": "Iteration"}
_HEADINGS = ["Iteration", "Wall-clock", "Bandwidth", "Throughput"]
_REQUIRED = ("Rows per chunk", "Total data processed", "Data processed per iter", *_HEADINGS[1:])
_OPTIONAL = ("Device(s)", "Number of devices", "Chunks per device", "Row matching fraction")
_LABELS = "|".join(map(re.escape, {*_REQUIRED, *_OPTIONAL, *_NAMES} - {"Run"}))
_FACT = re.compile(rf"({_LABELS})(\s*\||\t|\s\s|$)")
_ROW = re.compile(r"(\d+)(\s*\||(\t|\s\s).*B/s$|$)", re.ASCII)
Value = TypeVar("Value")
ROW_BYTES = 32


class ReportContradiction(Exception):
    """Raised where two numbers of a report contradict each other; `line`: the number of the line of one of them."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


def _input_bytes(workers: int, rows_per_chunk: int) -> int:
    """The bytes of both input frames over all workers."""
    return workers * rows_per_chunk * ROW_BYTES


def _count_workers(
    listed_workers: int, rows_per_chunk: int, iteration_bytes: PrintedNumber, *, lists_devices: bool
) -> int:
    """Return the number of workers: the `listed_workers`, if the bytes per iteration match them.

    `lists_devices`: the report lists devices. On several hosts a server lists only its own, so there may be more
    workers, and the bytes per iteration tell how many. Raises ReportContradiction if these match no number of workers.
    """
    expected, worker_bytes = _input_bytes(listed_workers, rows_per_chunk), _input_bytes(1, rows_per_chunk)
    if iteration_bytes.overlaps(expected, expected):
        return listed_workers
    workers = round(iteration_bytes.value / worker_bytes)
    whole, alone = workers * worker_bytes, iteration_bytes.resolution < worker_bytes
    if lists_devices and alone and workers > listed_workers and iteration_bytes.overlaps(whole, whole):
        return workers
    rows = f"{listed_workers} × {format_count(rows_per_chunk)} rows of {ROW_BYTES} bytes ({format_bytes(expected)})"
    raise ReportContradiction(iteration_bytes.line, f"the data processed per iteration do not match {rows}")


def _check_iteration_count(
    iterations: int, total_bytes: PrintedNumber, iteration_bytes: int, command: str | None
) -> None:
    """Raise ReportContradiction if the total bytes, or ``--iter`` of the command, mean another number of iterations."""
    match = re.search(r"--iter[= ](\d{1,15})\b", command or "", re.ASCII)
    if match is not None and int(match[1]) != iterations:
        wanted = f"--iter requested {int(match[1])}"
        raise ReportContradiction(
            total_bytes.line, f"the text has {iterations} iterations, but {wanted}; the text is truncated"
        )
    if not total_bytes.overlaps(iterations * iteration_bytes, iterations * iteration_bytes):
        matches = f"the total matches about {total_bytes.value / iteration_bytes:.0f} iterations"
        raise ReportContradiction(
            total_bytes.line, f"{matches}, but the text has {iterations}; it is truncated or damaged"
        )


def _check_report_figures(report: CudfMergeReport) -> None:
    """Raise ReportContradiction if a rate is not bytes ÷ seconds, or the run's figures do not match its iterations."""
    for index, iteration in enumerate(report.iterations):
        _check_throughput(f"iteration {index}", report.data_bytes, iteration.wall, iteration.throughput)
    _check_throughput("the run", report.data_bytes * len(report.iterations), report.wall, report.throughput)
    least_seconds = math.fsum(iteration.wall.low for iteration in report.iterations)
    if least_seconds > report.wall.high * (1 + SLACK):
        took, whole = format_seconds(least_seconds), format_seconds(report.wall.value)
        raise ReportContradiction(report.wall.line, f"the iterations took {took}, longer than the run ({whole})")
    # Every iteration sends the same bytes, so the bandwidth of all is the harmonic mean of theirs.
    rates = [iteration.bandwidth for iteration in report.iterations]
    low, mean, high = (harmonic_mean([getattr(rate, name) for rate in rates]) for name in ("low", "value", "high"))
    if not report.bandwidth.overlaps(low, high):
        what = f"the bandwidth of the run ({format_rate(report.bandwidth.value)}) is not the harmonic mean"
        raise ReportContradiction(report.bandwidth.line, f"{what} of its iterations ({format_rate(mean)})")


def _check_throughput(subject: str, data_bytes: int, wall: PrintedNumber, throughput: PrintedNumber) -> None:
    fastest = data_bytes / wall.low if wall.low > 0 else math.inf
    if not throughput.overlaps(data_bytes / wall.high, fastest):
        shown, expected = format_rate(throughput.value), format_rate(data_bytes / wall.value if wall.value else None)
        what = f"the throughput of {subject} ({shown}) is not its data ÷ its wall-clock ({expected})"
        raise ReportContradiction(throughput.line, what)


@dataclass(frozen=True)
class ReportIteration:
    """The figures of one iteration, a row of the report's table."""

    wall: PrintedNumber
    bandwidth: PrintedNumber
    throughput: PrintedNumber


@dataclass(frozen=True)
class CudfMergeReport:
    """The contents of a report of cudf-merge.

    `wall`, `bandwidth`, `throughput`: the figures of the whole run. `data_bytes`: the exact bytes of an iteration.
    `workers_printed`: the number of workers in the text, less than `workers` where a server lists only its own devices.
    `fraction`: share of keys that match. `longest`: the most iterations that the printed total allows. `left_out`: the
    numbers of the lines that are not part of the report; `first_left_out`: the text of the first of them. `traceback`:
    the last Python error in the text.
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
    iterations: tuple[ReportIteration, ...]
    longest: int
    left_out: tuple[int, ...]
    first_left_out: str
    traceback: str | None


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the line with the report's title; 0 without one."""
    return next((line_number for line_number, line in enumerate(text.bare, 1) if line == TITLE), 0)


def read_report(path: Path, content: bytes) -> CudfMergeReport:
    """Read and check the report in `content`, the bytes of the file `path`.

    Raises UsageError if there is no report, more than one, a part of one, or one that contradicts itself; the message
    is one sentence and names the line.
    """
    return _ReportReader(PrintedText.decode(path, content, IMPORTER.name)).read()


def read(text: PrintedText) -> ImportedResult:
    """Read the report in `text` as merges of one launch; raises UsageError as `read_report` does."""
    report = _ReportReader(text).read()
    numbers = {"rows_per_chunk": report.rows_per_chunk, "workers": report.workers, "iterations": len(report.iterations)}
    return ImportedResult(
        program=IMPORTER.name,
        plan={**numbers, "launches": 1, "engine": "cudf"},
        measurements=tuple(_make_iteration_lines(report)),
        command=report.command,
        warnings=tuple(_report_warnings(report)),
        headline=s.PrintedTotals(
            wall_seconds=report.wall.value,
            wall_resolution_seconds=report.wall.resolution,
            bandwidth_bytes_per_second=report.bandwidth.value,
            throughput_bytes_per_second=report.throughput.value,
        ),
        fraction=report.fraction,
        data_bytes=report.data_bytes,
        rows=2 * report.workers * report.rows_per_chunk,
    )


class _ReportReader:
    """Collects the values and rows of a report in one pass over its lines, then checks them against each other."""

    def __init__(self, text: PrintedText) -> None:
        self.text = text
        self.command: str | None = None
        self.values: dict[str, tuple[int, str]] = {}
        self.header = 0
        self.rows: list[ReportIteration] = []
        self.left_out: list[int] = []

    def read(self) -> CudfMergeReport:
        title = self._title_line_number()
        for line_number, line in enumerate(self.text.bare, 1):
            if line.startswith(_WRONG_RESULT):
                self.text.refuse_line(line_number, f"cudf-merge reports a wrong result: {shorten_line(line)}")
            if line_number < title and line.startswith("$ ") and _COMMAND.search(line):
                self.command = " ".join(line.removeprefix("$ ").split())
            elif not line or line_number == title or _SEPARATOR.fullmatch(line):
                continue
            elif line_number < title or not self._read_line(line_number, line, self.text.labels[title - 1]):
                self.left_out.append(line_number)
        return self._build_report()

    def _title_line_number(self) -> int:
        titles = [line_number for line_number, line in enumerate(self.text.bare, 1) if line == TITLE]
        if not titles:
            raise UsageError(
                f"{self.text.path} is not output of cudf-merge: it has no line {TITLE!r}{self.text.python_error_clause}"
            )
        if len(titles) > 1:
            self.text.refuse_line(titles[1], "a second report begins; put each report into its own file")
        return titles[0]

    def _read_line(self, line_number: int, line: str, title_label: str) -> bool:
        """Read a line if it belongs to the report; returns whether it does."""
        cells = [cell.strip() for cell in line.split("|")]
        read = self._find_line_reader(line, cells)
        if read is None:
            return False
        if len(line) > _LONGEST:
            self.text.refuse_line(
                line_number, f"the line has {len(line)} characters, more than cudf-merge prints in a line"
            )
        own = self.text.labels[line_number - 1]
        if own and own.split() != title_label.split():
            self.text.refuse_line(
                line_number, f"the line begins with {own.strip()!r}, but the title of the report does not"
            )
        read(line_number, line, cells)
        return True

    def _find_line_reader(self, line: str, cells: list[str]) -> Callable[[int, str, list[str]], None] | None:
        """The method that reads this line, damaged or not; None if the line is not part of the report."""
        fact, row = _FACT.match(line), _ROW.match(line)
        if fact and ("|" in fact[2] or _NAMES.get(fact[1], fact[1]) not in self.values):
            return self._read_named_value
        if len(cells) > 1 and _NAMES.get(cells[0], cells[0]) == _HEADINGS[0]:
            return self._read_headings
        of_row = row and (row[2] or row[1] == str(len(self.rows)))
        if self.header and (of_row or (len(cells) > 2 and cells[-1].endswith("B/s"))):
            return self._read_row
        return None

    def _read_named_value(self, line_number: int, line: str, cells: list[str]) -> None:
        if len(cells) != 2:
            self.text.refuse_line(line_number, f"{line!r} is not a line of the form 'name | value'")
        name = _NAMES.get(cells[0], cells[0])
        if name in self.values:
            self.text.refuse_line(line_number, f"{name!r} appears a second time")
        self.values[name] = line_number, cells[1]

    def _read_headings(self, line_number: int, line: str, cells: list[str]) -> None:
        if [_NAMES.get(cell, cell) for cell in cells] != _HEADINGS or self.header:
            again = "no second line of headings" if self.header else f"the columns {', '.join(_HEADINGS)}"
            self.text.refuse_line(line_number, f"expected {again}, found {line!r}")
        self.header = line_number

    def _read_row(self, line_number: int, line: str, cells: list[str]) -> None:
        if len(cells) != len(_HEADINGS) or not _COUNT.fullmatch(cells[0]):
            self.text.refuse_line(
                line_number, f"{line!r} is not a row of iteration, wall-clock, bandwidth and throughput"
            )
        if int(cells[0]) != len(self.rows):
            self.text.refuse_line(line_number, f"expected iteration {len(self.rows)}, found {cells[0]}")
        wall = self._parse_value(line_number, cells[1], parse_time)
        rates = [self._parse_value(line_number, cell, parse_rate) for cell in cells[2:]]
        self.rows.append(ReportIteration(wall, *rates))

    def _build_report(self) -> CudfMergeReport:
        named = "Device(s)" if "Device(s)" in self.values else "Number of devices"
        for name in (named, *_REQUIRED):
            if name not in self.values:
                self.text.refuse_incomplete(f"and has no line with {name!r}")
        if not self.header or not self.rows:
            self.text.refuse_incomplete("before the first iteration")
        rows = self._read_positive_count("Rows per chunk")
        printed = self._read_positive_count(named) if named != "Device(s)" else self._count_workers_on_devices()
        iteration_bytes = self._parse_named_value("Data processed per iter", parse_size)
        total = self._parse_named_value("Total data processed", parse_size)
        try:
            workers = _count_workers(printed, rows, iteration_bytes, lists_devices=named == "Device(s)")
            data = _input_bytes(workers, rows)
            report = CudfMergeReport(
                command=self.command,
                workers=workers,
                workers_printed=printed,
                rows_per_chunk=rows,
                data_bytes=data,
                fraction=self._read_matching_fraction(),
                wall=self._parse_named_value("Wall-clock", parse_time),
                bandwidth=self._parse_named_value("Bandwidth", parse_rate),
                throughput=self._parse_named_value("Throughput", parse_rate),
                iterations=tuple(self.rows),
                longest=math.floor(total.high / data * (1 + 1e-12)),
                left_out=tuple(self.left_out),
                traceback=self.text.python_error,
                first_left_out=shorten_line(self.text.lines[self.left_out[0] - 1]) if self.left_out else "",
            )
            _check_iteration_count(len(self.rows), total, data, self.command)
            _check_report_figures(report)
        except ReportContradiction as error:
            self.text.refuse_line(error.line, str(error))
        return report

    def _read_positive_count(self, name: str) -> int:
        line_number, text = self.values[name]
        if not _COUNT.fullmatch(text) or int(text) < 1:
            self.text.refuse_line(line_number, f"{name!r} is {text!r}, not a positive whole number")
        return int(text)

    def _count_workers_on_devices(self) -> int:
        line_number, text = self.values["Device(s)"]
        if not _DEVICES.fullmatch(text):
            self.text.refuse_line(line_number, f"'Device(s)' is {text!r}, not a list of devices such as [0, 1]")
        chunks = self._read_positive_count("Chunks per device") if "Chunks per device" in self.values else 1
        return (text.count(",") + 1) * chunks

    def _read_matching_fraction(self) -> float | None:
        line_number, text = self.values.get("Row matching fraction", (0, ""))
        if not line_number:
            return None
        if not re.fullmatch(r"[01](\.\d{1,18})?", text, re.ASCII) or float(text) > 1:
            self.text.refuse_line(line_number, f"'Row matching fraction' is {text!r}, not a number from 0 to 1")
        return float(text)

    def _parse_named_value(self, name: str, parse: Callable[[str, int], Value]) -> Value:
        return self._parse_value(*self.values[name], parse)

    def _parse_value(self, line_number: int, text: str, parse: Callable[[str, int], Value]) -> Value:
        try:
            return parse(text, line_number)
        except ValueError as error:
            self.text.refuse_line(line_number, str(error))


def _make_iteration_lines(report: CudfMergeReport) -> Iterator[s.IterationLine]:
    for index, iteration in enumerate(report.iterations):
        yield s.IterationLine(
            launch=0,
            index=index,
            wall_seconds=iteration.wall.value,
            imported=s.ImportedIteration(
                bandwidth_bytes_per_second=iteration.bandwidth.value,
                throughput_bytes_per_second=iteration.throughput.value,
                wall_resolution_seconds=iteration.wall.resolution,
            ),
        )


def _report_warnings(report: CudfMergeReport) -> Iterator[WarningMessage]:
    """The warnings about an imported report: first those about this one, then those about every cudf-merge report."""
    printed, counted = report.workers_printed, len(report.iterations)
    if report.workers != printed:
        what = f"the imported output lists {printed} workers, but has the data of {report.workers}"
        yield WarningMessage("imported-workers", f"{what}; the number of workers was set to {report.workers}")
    if report.longest > counted:
        what = f"it lists {counted} iterations, but has data for {report.longest}"
        yield WarningMessage("imported-length", f"the imported output may be incomplete: {what}")
    if report.traceback is not None:
        yield WarningMessage("imported-error", f"the imported output also contains a Python error: {report.traceback}")
    if count := len(report.left_out):
        what = f"{count_with_noun(count, 'line')} {'is' if count == 1 else 'are'} not part of the report and left out"
        first = f"line {report.left_out[0]}: {report.first_left_out}"
        yield WarningMessage("imported-lines", f"{what}; the first is {first}")
    yield WarningMessage("imported-definitions", DEFINITIONS)
    digits = [iteration.wall.resolution for iteration in report.iterations]
    finest, coarsest = min(digits), max(digits)
    least = "" if coarsest == finest else f"{format_seconds(finest)} to "
    what = f"rounds each iteration's wall-clock time to the nearest {least}{format_seconds(coarsest)}"
    yield WarningMessage("imported-rounded", f"the imported output {what}")
