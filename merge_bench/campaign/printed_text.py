"""Text that other programs printed, as it was kept: its lines without colours, quotes of mail and labels of ranks.

What all importers share: decoding, the command line above an output, UCX's log in it, and how a text is refused.
"""

from __future__ import annotations

import codecs
import functools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from merge_bench.cluster import ucx_perftest
from merge_bench.errors import UsageError, WarningMessage, mark_unprintable
from merge_bench.units import count_with_noun

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
SLACK = 1e-9
"""The relative rounding error of floating-point arithmetic that is tolerated at a bound."""
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_BLANK = re.compile(r"[^\S\t]")
_TIME = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z(?=\s|$)"  # of continuous integration
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d \d{4}(?=\[\d)"  # mpirun --timestamp-output
)
_LABEL = (
    r">|\d+:(?!\d)"  # mail, srun --label
    r"|\[(?:[\w.-]+@)?\d+(?:,\d+)?\](?:<\w+>:)?"  # mpirun --tag-output of Open MPI 4 and 5, rrun --tag-output
    r"|\(\w+ pid=\d+(?:, ip=[\d.]+)?\)"  # an actor of Ray
)
_PREFIX = re.compile(rf"(?:(?:{_LABEL}|{_TIME})\s*)*", re.ASCII)
_TIME_STAMP = re.compile(_TIME, re.ASCII)
_PROMPT = re.compile(r"(?:[^|#$]{0,100}[$❯]|\+|[^|#$]{1,100}#) (?P<command>\S.*)")
_TRACEBACK = "Traceback (most recent call last)"
_UCX_VARIABLES = re.compile(r"UCX_\* env variables?: (.*)")
_ASSIGNMENT = re.compile(r"\b((?:UCX|NCCL)_[A-Z0-9_]+)=([^\s'\"]+)")
_FAILURE = re.compile(
    r"exited on signal \d|MPI_ABORT was invoked|^srun: error: |^slurmstepd: error: |Segmentation fault|^Killed$"
)
_EMPTY = re.compile(r"\W*")
_MOST_QUOTED = 200


@dataclass(frozen=True)
class UcxLogFacts:
    """The facts of UCX's log in a text: UCX's version, lanes to other processes, and the variables that were set."""

    version: str | None
    lanes: tuple[str, ...]
    variables: Mapping[str, str]


class PrintedText:
    """The text that another program printed, as lines, prepared for the importers.

    `lines`: without colours; `bare`: also without what stands before each line; `labels`: what stood there: ranks and
    the ``>`` of quoted mail, without time stamps. Line numbers begin at 1.
    """

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path = path
        self.lines = [_BLANK.sub(" ", _COLOUR.sub("", line)).strip() for line in lines]
        prefixes = [match[0] if (match := _PREFIX.match(line)) else "" for line in self.lines]
        self.labels = [_TIME_STAMP.sub("", prefix) for prefix in prefixes]
        self.bare = [line[len(prefix) :] for line, prefix in zip(self.lines, prefixes, strict=True)]

    @classmethod
    def decode(cls, path: Path, content: bytes, program: str) -> PrintedText:
        """Decode `content`, the bytes of the file `path`, from UTF-8 or, with a byte order mark, UTF-16.

        `program`: the program that printed it, for the sentence of the UsageError that is raised if it is not text.
        """
        try:
            wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's > writes it
            lines = content.decode("utf-16" if wide else "utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            number = content[: error.start].count(b"\n") + 1
            raise UsageError(f"line {number} of {path} is not text, so the file is not output of {program}") from None
        text = cls(path, lines)
        if not any(text.lines):
            raise UsageError(f"{path} is empty, but should contain the output of {program}")
        return text

    @functools.cached_property
    def json_document(self) -> dict[str, Any] | None:
        """The JSON document, if the whole text is one JSON object; None if it is not."""
        text = "\n".join(self.lines).strip()
        if not text.startswith("{"):
            return None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None

    @functools.cached_property
    def ucx_log(self) -> UcxLogFacts:
        """The facts of UCX's log in the text; a variable that has several values is left out."""
        text = "\n".join(self.bare)
        values: dict[str, set[str]] = {}
        for match in _UCX_VARIABLES.finditer(text):
            for name, value in _ASSIGNMENT.findall(match[1]):
                values.setdefault(name, set()).add(value)
        alike = {name: next(iter(each)) for name, each in sorted(values.items()) if len(each) == 1}
        return UcxLogFacts(ucx_perftest.logged_ucx_version(text), ucx_perftest.parse_lanes_to_peers(text), alike)

    def find_command(self, program_pattern: str, before_line: int) -> str | None:
        """Return the last command line above line `before_line` that matches `program_pattern`; None without one.

        A command line is what follows a shell's prompt in a line.
        """
        for line_number in range(before_line - 1, 0, -1):
            command = self.command_at_line(line_number)
            if command is not None and re.search(program_pattern, command):
                return command
        return None

    def command_at_line(self, line_number: int) -> str | None:
        """Return the command line that follows a shell's prompt in the line of this number; None without one."""
        match = _PROMPT.fullmatch(self.bare[line_number - 1])
        return " ".join(match["command"].split()) if match else None

    def library_variables(self, command: str | None) -> dict[str, str]:
        """The variables of UCX and NCCL that the `command` line sets, and those in UCX's log."""
        return {**dict(_ASSIGNMENT.findall(command or "")), **self.ucx_log.variables}

    @functools.cached_property
    def python_error(self) -> str | None:
        """The line of the last traceback in the text that names its error; None if there is no traceback."""
        starts = [index for index, line in enumerate(self.bare) if line.startswith(_TRACEBACK)]
        after = [line for line in self.bare[starts[-1] + 1 :] if line] if starts else []
        errors = [line for line in after if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)]
        return shorten_line((errors or after or [_TRACEBACK])[0]) if starts else None

    @property
    def python_error_clause(self) -> str:
        """The Python error in the text as the end of a sentence; empty without one."""
        return f"; the text contains a Python error: {self.python_error}" if self.python_error else ""

    def refuse_line(self, line_number: int, sentence: str) -> NoReturn:
        """Raise UsageError with the number of a line and a sentence about the line."""
        raise UsageError(f"line {line_number} of {self.path}: {sentence}")

    def refuse_incomplete(self, missing: str) -> NoReturn:
        """Raise UsageError that the text is cut; `missing`: where it ends or what is missing, to end a sentence."""
        raise UsageError(
            f"{self.path} is incomplete: it ends at line {len(self.lines)}, {missing}{self.python_error_clause}"
        )


def shorten_line(line: str) -> str:
    """The first 200 characters of a line, printable, for quoting it in a message."""
    return mark_unprintable(line[:_MOST_QUOTED])


def program_error_warning(text: PrintedText) -> list[WarningMessage]:
    """A warning if the text also has the error of a program, such as a traceback; none without one."""
    if text.python_error is not None:
        return [
            WarningMessage("imported-error", f"the imported output also contains a Python error: {text.python_error}")
        ]
    failure = next((line for line in text.bare if _FAILURE.search(line)), None)
    what = f"the imported output also says that the run failed: {shorten_line(failure or '')}"
    return [WarningMessage("imported-error", what)] if failure is not None else []


def unread_lines_warning(text: PrintedText, read_lines: Collection[int]) -> list[WarningMessage]:
    """A warning with the number of lines that an importer did not read, and the first of them; none without any.

    `read_lines`: the numbers of the other lines. Empty lines, separators and command lines do not count.
    """
    left = [
        at
        for at, line in enumerate(text.bare, 1)
        if at not in read_lines and not _EMPTY.fullmatch(line) and text.command_at_line(at) is None
    ]
    if not left:
        return []
    verb = "is" if len(left) == 1 else "are"
    what = f"{count_with_noun(len(left), 'line')} {verb} not part of the report and left out"
    first = f"line {left[0]}: {shorten_line(text.lines[left[0] - 1])}"
    return [WarningMessage("imported-lines", f"{what}; the first is {first}")]


@dataclass(frozen=True)
class PrintedNumber:
    """A number in a printed text, converted to SI units.

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
        return self.low * (1 - SLACK) <= high and low <= self.high * (1 + SLACK)


def parse_size(text: str, line_number: int) -> PrintedNumber:
    """Parse a size, such as ``488.28 MiB``, to bytes; raises ValueError if `text` is no size."""
    return parse_printed_number(text, line_number, _SIZES, "size")


def parse_rate(text: str, line_number: int) -> PrintedNumber:
    """Parse a rate, such as ``1.06 GiB/s``, to bytes per second; raises ValueError if `text` is no rate."""
    if not text.endswith("/s"):
        raise ValueError(f"{text!r} is not a rate")
    return parse_printed_number(text.removesuffix("/s"), line_number, _SIZES, "rate")


def parse_time(text: str, line_number: int) -> PrintedNumber:
    """Parse a time, ``49.16 ms`` or ``20m 34s`` (cut off, not rounded), to seconds; raises ValueError if it is none."""
    long = _LONG_TIME.fullmatch(text)
    if long is None:
        return parse_printed_number(text, line_number, _TIMES, "time")
    last = {"s": 1, **_LONG}[long[4]]
    if last >= _LONG[long[2]]:
        raise ValueError(f"{text!r} is not a time")
    value = float(int(long[1]) * _LONG[long[2]] + int(long[3]) * last)
    return PrintedNumber(value, value, value + last, float(last), line_number)


def parse_printed_number(text: str, line_number: int, units: Mapping[str, Decimal], quantity: str) -> PrintedNumber:
    """Parse a number with one of the `units` to SI units; raises ValueError if `text` is no such `quantity`."""
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {quantity}")
    value, digit = Decimal(match[1]) * factor, Decimal(10) ** -len(match[2] or "") * factor
    low, high = max(value - digit / 2, Decimal(0)), value + digit / 2
    return PrintedNumber(float(value), float(low), float(high), float(digit), line_number)
