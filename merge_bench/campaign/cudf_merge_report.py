"""Imports a report of cudf-merge: reads and checks its text, and writes its figures as the records of a campaign.

What the report does not tell stays null or empty in the records: hosts, settings, transports, single workers, the
warm-up. No result is verified, and the records say so. No other module depends on the report's layout.

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
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn, TypeVar

from merge_bench.analysis.statistics import harmonic_mean
from merge_bench.campaign.campaign import git_state
from merge_bench.config.files import read_regular_file, replace_file
from merge_bench.config.installation import __version__
from merge_bench.errors import Caution, RunFailed, UsageError, mark_unprintable
from merge_bench.records import schema as s
from merge_bench.records.campaign import IMPORTED
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_bytes, format_count, format_rate, format_seconds, plural

PROGRAM = "cudf-merge"
DEFINITIONS = (
    "cudf-merge defines two figures slightly differently from merge_bench: its wall-clock is the time of one worker, "
    "including the closing barrier; its bandwidth is bytes ÷ seconds of both frames' exchanges, as the harmonic mean "
    "over workers"
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
ROW_BYTES = 32
_SLACK = 1e-9
"""The relative rounding error of floating-point arithmetic that is tolerated at a bound."""


@dataclass(frozen=True)
class PrintedNumber:
    """A number printed in the report, converted to SI units.

    `low`, `high`: the range of exact values that are printed so; `resolution`: one unit of the last printed digit;
    `line`: the number of its line.
    """

    value: float
    low: float
    high: float
    resolution: float
    line: int

    def overlaps(self, low: float, high: float) -> bool:
        """Whether the exact value of the printed number can lie between `low` and `high`."""
        return self.low * (1 - _SLACK) <= high and low <= self.high * (1 + _SLACK)


def parse_size(text: str, line_number: int) -> PrintedNumber:
    """Parse a size, such as ``488.28 MiB``, to bytes; raises ValueError if `text` is no size."""
    return _parse_printed_number(text, line_number, _SIZES, "size")


def parse_rate(text: str, line_number: int) -> PrintedNumber:
    """Parse a rate, such as ``1.06 GiB/s``, to bytes per second; raises ValueError if `text` is no rate."""
    if not text.endswith("/s"):
        raise ValueError(f"{text!r} is not a rate")
    return _parse_printed_number(text.removesuffix("/s"), line_number, _SIZES, "rate")


def parse_time(text: str, line_number: int) -> PrintedNumber:
    """Parse a time, ``49.16 ms`` or ``20m 34s`` (cut off, not rounded), to seconds; raises ValueError if it is none."""
    long = _LONG_TIME.fullmatch(text)
    if long is None:
        return _parse_printed_number(text, line_number, _TIMES, "time")
    last = {"s": 1, **_LONG}[long[4]]
    if last >= _LONG[long[2]]:
        raise ValueError(f"{text!r} is not a time")
    value = float(int(long[1]) * _LONG[long[2]] + int(long[3]) * last)
    return PrintedNumber(value, value, value + last, float(last), line_number)


def _parse_printed_number(text: str, line_number: int, units: Mapping[str, Decimal], kind: str) -> PrintedNumber:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {kind}")
    value, digit = Decimal(match[1]) * factor, Decimal(10) ** -len(match[2] or "") * factor
    low, high = max(value - digit / 2, Decimal(0)), value + digit / 2
    return PrintedNumber(float(value), float(low), float(high), float(digit), line_number)


class ReportContradiction(Exception):
    """Raised where two numbers of a report contradict each other; `line`: the number of the line of one of them."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


def _input_bytes(workers: int, rows_per_chunk: int) -> int:
    """The bytes of both input frames over all workers."""
    return workers * rows_per_chunk * ROW_BYTES


def _count_workers(listed: int, rows_per_chunk: int, iteration_bytes: PrintedNumber, *, lists_devices: bool) -> int:
    """The number of workers: the `listed` ones, if the bytes per iteration match them.

    `lists_devices`: the report lists devices. On several hosts a server lists only its own, so there may be more
    workers, and the bytes per iteration tell how many. Raises Contradiction if these match no number of workers.
    """
    expected, worker_bytes = _input_bytes(listed, rows_per_chunk), _input_bytes(1, rows_per_chunk)
    if iteration_bytes.overlaps(expected, expected):
        return listed
    workers = round(iteration_bytes.value / worker_bytes)
    whole, alone = workers * worker_bytes, iteration_bytes.resolution < worker_bytes
    if lists_devices and alone and workers > listed and iteration_bytes.overlaps(whole, whole):
        return workers
    rows = f"{listed} × {format_count(rows_per_chunk)} rows of {ROW_BYTES} bytes ({format_bytes(expected)})"
    raise ReportContradiction(iteration_bytes.line, f"the data processed per iteration do not match {rows}")


def _check_iteration_count(iterations: int, total: PrintedNumber, iteration_bytes: int, command: str | None) -> None:
    """Raise Contradiction if the total bytes, or ``--iter`` of the command line, mean another number of iterations."""
    match = re.search(r"--iter[= ](\d{1,15})\b", command or "", re.ASCII)
    if match is not None and int(match[1]) != iterations:
        wanted = f"--iter requested {int(match[1])}"
        raise ReportContradiction(
            total.line, f"the text has {iterations} iterations, but {wanted}; the text is truncated"
        )
    if not total.overlaps(iterations * iteration_bytes, iterations * iteration_bytes):
        matches = f"the total matches about {total.value / iteration_bytes:.0f} iterations"
        raise ReportContradiction(total.line, f"{matches}, but the text has {iterations}; it is truncated or damaged")


def _check_report_figures(report: Report) -> None:
    """Raise Contradiction where a rate does not fit its bytes and seconds, or the run's figures its iterations."""
    for index, iteration in enumerate(report.iterations):
        _check_throughput(f"iteration {index}", report.data_bytes, iteration.wall, iteration.throughput)
    _check_throughput("the run", report.data_bytes * len(report.iterations), report.wall, report.throughput)
    least_seconds = math.fsum(iteration.wall.low for iteration in report.iterations)
    if least_seconds > report.wall.high * (1 + _SLACK):
        took, whole = format_seconds(least_seconds), format_seconds(report.wall.value)
        raise ReportContradiction(report.wall.line, f"the iterations took {took}, longer than the run ({whole})")
    # Every iteration sends the same bytes, so the bandwidth of all is the harmonic mean of theirs.
    rates = [iteration.bandwidth for iteration in report.iterations]
    low, mean, high = (harmonic_mean([getattr(rate, name) for rate in rates]) for name in ("low", "value", "high"))
    if not report.bandwidth.overlaps(low, high):
        what = f"the bandwidth of the run ({format_rate(report.bandwidth.value)}) is not the harmonic mean"
        raise ReportContradiction(report.bandwidth.line, f"{what} of its iterations ({format_rate(mean)})")


def _check_throughput(of_what: str, data: int, wall: PrintedNumber, throughput: PrintedNumber) -> None:
    fastest = data / wall.low if wall.low > 0 else math.inf
    if not throughput.overlaps(data / wall.high, fastest):
        shown, expected = format_rate(throughput.value), format_rate(data / wall.value if wall.value else None)
        what = f"the throughput of {of_what} ({shown}) is not its data ÷ its wall-clock ({expected})"
        raise ReportContradiction(throughput.line, what)


@dataclass(frozen=True)
class ReportIteration:
    """The figures of one iteration, a row of the report's table."""

    wall: PrintedNumber
    bandwidth: PrintedNumber
    throughput: PrintedNumber


@dataclass(frozen=True)
class Report:
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


def read_report(path: Path, content: bytes) -> Report:
    """Read and check the report in `content`, the bytes of the file `path`.

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
        self.rows: list[ReportIteration] = []
        self.left_out: list[int] = []

    def read(self) -> Report:
        title = self._title_line_number()
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

    def _title_line_number(self) -> int:
        if not any(self.lines):
            raise UsageError(f"{self.path} is empty, but should contain the output of cudf-merge")
        titles = [number for number, line in enumerate(self.bare, 1) if line == TITLE]
        if not titles:
            raise UsageError(
                f"{self.path} is not output of cudf-merge: it has no line {TITLE!r}{self._python_error_text()}"
            )
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

    def _read_named_value(self, number: int, line: str, cells: list[str]) -> None:
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
        wall = self._parse_value(number, cells[1], parse_time)
        rates = [self._parse_value(number, cell, parse_rate) for cell in cells[2:]]
        self.rows.append(ReportIteration(wall, *rates))

    def _build_report(self) -> Report:
        named = "Device(s)" if "Device(s)" in self.values else "Number of devices"
        for name in (named, *_REQUIRED):
            if name not in self.values:
                raise UsageError(self._incomplete_report_message(f"and has no line with {name!r}"))
        if not self.header or not self.rows:
            raise UsageError(self._incomplete_report_message("before the first iteration"))
        rows = self._read_positive_count("Rows per chunk")
        printed = self._read_positive_count(named) if named != "Device(s)" else self._count_workers_on_devices()
        iteration_bytes = self._read_value("Data processed per iter", parse_size)
        total = self._read_value("Total data processed", parse_size)
        try:
            workers = _count_workers(printed, rows, iteration_bytes, lists_devices=named == "Device(s)")
            data = _input_bytes(workers, rows)
            report = Report(
                command=self.command,
                workers=workers,
                workers_printed=printed,
                rows_per_chunk=rows,
                data_bytes=data,
                fraction=self._read_matching_fraction(),
                wall=self._read_value("Wall-clock", parse_time),
                bandwidth=self._read_value("Bandwidth", parse_rate),
                throughput=self._read_value("Throughput", parse_rate),
                iterations=tuple(self.rows),
                longest=math.floor(total.high / data * (1 + 1e-12)),
                left_out=tuple(self.left_out),
                traceback=self._last_python_error(),
                first_left_out=_shorten_line(self.lines[self.left_out[0] - 1]) if self.left_out else "",
            )
            _check_iteration_count(len(self.rows), total, data, self.command)
            _check_report_figures(report)
        except ReportContradiction as error:
            self._refuse_line(error.line, str(error))
        return report

    def _read_positive_count(self, name: str) -> int:
        number, text = self.values[name]
        if not _COUNT.fullmatch(text) or int(text) < 1:
            self._refuse_line(number, f"{name!r} is {text!r}, not a positive whole number")
        return int(text)

    def _count_workers_on_devices(self) -> int:
        number, text = self.values["Device(s)"]
        if not _DEVICES.fullmatch(text):
            self._refuse_line(number, f"'Device(s)' is {text!r}, not a list of devices such as [0, 1]")
        chunks = self._read_positive_count("Chunks per device") if "Chunks per device" in self.values else 1
        return (text.count(",") + 1) * chunks

    def _read_matching_fraction(self) -> float | None:
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

    def _python_error_text(self) -> str:
        error = self._last_python_error()
        return f"; the text contains a Python error: {error}" if error else ""

    def _incomplete_report_message(self, what: str) -> str:
        return f"{self.path} is incomplete: it ends at line {len(self.lines)}, {what}{self._python_error_text()}"

    def _refuse_line(self, number: int, sentence: str) -> NoReturn:
        raise UsageError(f"line {number} of {self.path}: {sentence}")


def _shorten_line(line: str) -> str:
    """The first 200 characters of a line, printable, for quoting it in a message."""
    return mark_unprintable(line[:200])


def import_report(file: Path, results: Path, argv: Sequence[str] = ()) -> Path:
    """Import the report in `file` as a campaign in the folder `results`; returns the campaign's folder.

    The campaign's logs get a copy of `file`. Raises UsageError, before anything is written, if `file` has no complete
    report; RunFailed if the disk is full.
    """
    try:
        content = read_regular_file(file, LARGEST)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        problem = f"there is no file {file}" if missing else f"cannot read {file}: {error.strerror}"
        raise UsageError(problem) from error
    report = read_report(file, content)
    with CampaignWriter.create(results, file.stem) as writer:
        try:
            with replace_file(writer.logs / file.name) as stream:
                stream.write(content)
        except OSError as error:
            raise RunFailed(f"cannot copy {file} to {writer.logs}: {error.strerror}") from error
        for record in _make_campaign_records(
            report, file, hashlib.sha256(content).hexdigest(), writer.campaign_id, argv
        ):
            writer.write(record)
        return writer.folder


def _make_campaign_records(
    report: Report, file: Path, digest: str, campaign_id: str, argv: Sequence[str]
) -> Iterator[s.Record]:
    yield _make_campaign_line(report, file, digest, campaign_id, argv)
    for caution in _report_warnings(report):
        yield s.WarningLine.of(caution)
    yield s.LaunchLine(
        launch=0,
        config=_replace_undecodable_bytes(file.stem),
        plan=0,
        cluster=s.Cluster(launcher=IMPORTED, protocol=None),
        workers=[],
        data_bytes=report.data_bytes,
        rows=2 * report.workers * report.rows_per_chunk,
    )
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
    yield s.LaunchEndLine(launch=0, status=0, seconds=None)
    yield s.EndLine(status=0)


def _make_campaign_line(
    report: Report, file: Path, digest: str, campaign_id: str, argv: Sequence[str]
) -> s.CampaignLine:
    headline = s.Headline(
        wall_seconds=report.wall.value,
        wall_resolution_seconds=report.wall.resolution,
        bandwidth_bytes_per_second=report.bandwidth.value,
        throughput_bytes_per_second=report.throughput.value,
    )
    source = s.ImportedFrom(
        program=PROGRAM,
        file=_replace_undecodable_bytes(str(file)),
        sha256=digest,
        command=report.command,
        fraction=report.fraction,
        headline=headline,
    )
    numbers = {"rows_per_chunk": report.rows_per_chunk, "workers": report.workers, "iterations": len(report.iterations)}
    plan, name = {**numbers, "launches": 1, "engine": "cudf", "verify": IMPORTED}, _replace_undecodable_bytes(file.stem)
    return s.CampaignLine(
        campaign_id=campaign_id,
        argv=[_replace_undecodable_bytes(word) for word in argv],
        version=__version__,
        git=git_state(),
        configs=[s.Config(name=name)],
        plans=[plan],
        runs=[s.RunKey(config=name, plan=0)],
        imported_from=source,
    )


def _replace_undecodable_bytes(name: str) -> str:
    """Replace the bytes of a file name that are no UTF-8, which records cannot hold."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _report_warnings(report: Report) -> Iterator[Caution]:
    """The warnings about an imported report, those about this report before those about every report."""
    printed, counted = report.workers_printed, len(report.iterations)
    if report.workers != printed:
        what = f"the imported output lists {printed} workers, but has the data of {report.workers}"
        yield Caution("imported-workers", f"{what}; the number of workers was set to {report.workers}")
    if report.longest > counted:
        what = f"it lists {counted} iterations, but has data for {report.longest}"
        yield Caution("imported-length", f"the imported output may be incomplete: {what}")
    if report.traceback is not None:
        yield Caution("imported-error", f"the imported output also contains a Python error: {report.traceback}")
    if count := len(report.left_out):
        what = f"{plural(count, 'line')} {'is' if count == 1 else 'are'} not part of the report and left out"
        first = f"line {report.left_out[0]}: {report.first_left_out}"
        yield Caution("imported-lines", f"{what}; the first is {first}")
    yield Caution("imported-definitions", DEFINITIONS)
    digits = [iteration.wall.resolution for iteration in report.iterations]
    finest, coarsest = min(digits), max(digits)
    least = "" if coarsest == finest else f"{format_seconds(finest)} to "
    what = f"rounds each iteration's wall-clock time to the nearest {least}{format_seconds(coarsest)}"
    yield Caution("imported-rounded", f"the imported output {what}")
