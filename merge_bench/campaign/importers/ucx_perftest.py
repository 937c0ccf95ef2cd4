"""Output of UCX's ``ucx_perftest``: its table or CSV, of one test or of a batch file, of the client or of both sides.

Only the server prints which test it is and the size of messages. Without that, they are those of the command line
above the table, or of the batch file's names; else the size follows from the bandwidth and the time.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import PrintedText, error_warning, left_out_warning
from merge_bench.cluster.ucx_perftest import BANDWIDTH, COLUMNS, LATENCY, Perftest, parse_ucx_log
from merge_bench.config.allowed_transports import transport_settings
from merge_bench.errors import WarningMessage
from merge_bench.records import schema as s
from merge_bench.units import MIB, format_count, parse_bytes

IMPORTER = Importer(name="ucx_perftest", help="its table, or its CSV of -v", place=6)

_HEADING = re.compile(r"\|\s*\|\s*\|\s*(?P<what>latency|overhead) \(usec\)\s*\|\s*bandwidth \(MB/s\)\s*\|.*")
_FACT = re.compile(
    r"\| (?P<name>API|Test|Data layout|Send memory|Recv memory|Message size|AM header size): +(?P<value>.*?) *\|"
)
_ROW = re.compile(r"(?:(?P<stage>\S.*?) +)?(?P<cells>[\d.,]+(?: +[\d.,]+){7})", re.ASCII)
_BATCH = re.compile(r"\+(?P<name>\w(?:[\w./-]*\w)?)-*\+[-+]+\+")
_TITLE = re.compile(r"=+ *(?P<test>[a-z]\w*) *=+")
_OWN = re.compile(
    r"[-+]+|\| +(?:Stage|Test) +\| # iterations .*|Waiting for connection\.\.\.|Accepted connection from .*"
)
_SIZE = re.compile(r"\d{1,15}[KMG]?", re.ASCII)
_PROGRAM = r"\bucx_perftest\b"
_TESTS = {
    "tag match latency": "tag_lat",
    "tag match bandwidth": "tag_bw",
    "tag sync match latency": "tag_sync_lat",
    "tag sync match bandwidth": "tag_sync_bw",
    "stream bandwidth": "stream_bw",
    "stream latency": "stream_lat",
    "am latency": "ucp_am_lat",
    "am bandwidth / message rate": "ucp_am_bw",
    "active message latency": "am_lat",
    "active message bandwidth / message rate": "am_bw",
}
"""Tests by their description. Others, such as the puts of UCP and UCT, keep it."""
_DEFAULT_SIZE = 8


@dataclass
class _Facts:
    """What the lines above a result say: its test, the size of its messages, and their memory."""

    test: str | None = None
    size: int | None = None
    memory: list[str] = field(default_factory=list)
    default_size: int | None = None


@dataclass(frozen=True)
class _Result:
    """One result. `number`: of its line; `guessed`: whether the size follows from other numbers."""

    number: int
    test: str
    size: int
    memory: str
    iterations: int
    seconds: float
    messages: float
    guessed: bool


def recognise(text: PrintedText) -> int:
    """Return the number of the line of the first heading; 0 without one."""
    return next(
        (number for number, line in enumerate(text.bare, 1) if _HEADING.fullmatch(line) or _is_csv_heading(line)), 0
    )


def _is_csv_heading(line: str) -> bool:
    return {*COLUMNS} <= {*line.split(",")}


def read(text: PrintedText) -> ImportedResult:
    """Read the results in `text`; raises UsageError if one is cut, damaged, or there twice."""
    first = recognise(text)
    if not first:
        text.refuse_incomplete("and has no heading of ucx_perftest")
    reader = _OutputReader(text)
    reader.read()
    command = text.find_command(_PROGRAM, len(text.bare) + 1)
    tests = list(dict.fromkeys(result.test for result in reader.results))
    warnings = [*error_warning(text), *left_out_warning(text, reader.used)]
    if guessed := [result for result in reader.results if result.guessed]:
        sizes = ", ".join(format_count(result.size) for result in guessed[:3])
        what = f"the text has no message size; {sizes} bytes follow from bandwidth × time"
        warnings.insert(0, WarningMessage("imported-size", what))
    return ImportedResult(
        program=IMPORTER.name,
        plan={"probe": IMPORTER.name, "launches": 1, "tests": tests},
        measurements=[_make_probe_line(text, result, alone=len(tests) == 1) for result in reader.results],
        command=command,
        variables=text.settings(command),
        warnings=tuple(warnings),
    )


class _OutputReader:
    """Collects the results in one pass over the lines.

    `facts`: of the next result; `heading`: the number of its line, `open_heading`: 0 once that has a result; `csv`: the
    columns, empty for a table.
    """

    def __init__(self, text: PrintedText) -> None:
        self.text = text
        self.results: list[_Result] = []
        self.used: set[int] = set()
        self.facts = _Facts()
        self.of_command = _Facts()
        self.what = "overhead"
        self.heading = self.open_heading = 0
        self.csv: list[str] = []

    def read(self) -> None:
        for number, line in enumerate(self.text.bare, 1):
            if self._read_line(number, line):
                self.used.add(number)
        if self.open_heading or not self.results:
            missing = "a row of its CSV" if self.csv else "a line 'Final: …'"
            self.text.refuse_incomplete(f"and has not {missing} below the heading of line {self.heading}")

    def _read_line(self, number: int, line: str) -> bool:
        """Read a line; returns whether it belongs to the output."""
        if (command := self.text.command_at(number)) and re.search(_PROGRAM, command):
            self.of_command, self.facts = _facts_of_command(command), _Facts()
            return True
        if heading := _HEADING.fullmatch(line):
            self._begin(number)
            self.what, self.csv = heading["what"], []
        elif _is_csv_heading(line):
            self._begin(number)
            self.csv = line.split(",")
        elif fact := _FACT.fullmatch(line):
            self._read_fact(fact["name"], fact["value"])
        elif (row := _ROW.fullmatch(line)) and self.heading and not self.csv:
            self._read_row(number, row["stage"], row["cells"].replace(",", "").split())
        elif line.startswith("Final:"):
            self._refuse_row(number)
        elif batch := _BATCH.fullmatch(line):
            self._read_name(batch["name"].split("/"))
        elif title := _TITLE.fullmatch(line):
            self.facts.test = title["test"]
        elif self.csv and line.count(",") == len(self.csv) - 1:
            self._read_csv_row(number, line.split(","))
        else:
            return _OWN.fullmatch(line) is not None
        return True

    def _begin(self, number: int) -> None:
        if self.open_heading:
            self.text.refuse(number, f"a second table begins, but that of line {self.open_heading} has no result")
        self.heading = self.open_heading = number

    def _read_fact(self, name: str, value: str) -> None:
        if name == "Test":
            test = _TESTS.get(value)
            self.facts.test = test or self.of_command.test or value
        elif name == "Message size" and _SIZE.fullmatch(value):
            self.facts.size = parse_bytes(value)
        elif name in ("Send memory", "Recv memory"):
            self.facts.memory.append(value)

    def _read_row(self, number: int, stage: str | None, cells: Sequence[str]) -> None:
        """Read a row: of a stage, final, or with ``-f`` one that begins with its name in the batch file, or nothing."""
        if stage is not None and stage.startswith("[thread "):
            return
        if stage not in (None, "Final:"):
            self._read_name(stage.split("/"))
        self._read_result(number, cells)

    def _read_name(self, parts: Sequence[str]) -> None:
        """Read the name of a test in a batch file, such as ``tag_lat/4096``: the test, or a name of its own."""
        self.facts = _Facts()
        for size in filter(_SIZE.fullmatch, parts):
            self.facts.size = parse_bytes(size)
        names = [part for part in parts if not _SIZE.fullmatch(part)]
        self.facts.test = "/".join(names) or None

    def _read_csv_row(self, number: int, cells: list[str]) -> None:
        own = len(self.csv) - 8
        self._read_name(cells[:own])
        self._read_result(number, cells[own:])

    def _read_result(self, number: int, cells: Sequence[str]) -> None:
        try:
            iterations, (*_, micros, _, rate, _, messages) = int(cells[0]), [float(cell) for cell in cells[1:]]
        except ValueError:
            self._refuse_row(number)
        if len(cells) != 8 or iterations < 1 or not all(0 < value < 1e15 for value in (micros, messages, rate + 1)):
            self._refuse_row(number)
        if messages * micros < 0.5e6:  # several threads send more often than one message in that time
            self._refuse_row(number)
        # It prints µs with three decimals and messages per second with none: take the one with more digits.
        exact = micros * 1000 > messages
        seconds = micros * 1e-6 if exact else 1 / messages
        error = 0.5e-9 / seconds if exact else 0.5 / messages
        least, most = ((rate + sign * 0.005) * MIB * seconds * (1 + sign * error) for sign in (-1, 1))
        size, guessed = self._find_size(number, least, most)
        measured = LATENCY if self.what == "latency" else BANDWIDTH
        result = _Result(
            number=number,
            test=self.facts.test or self.of_command.test or f"unnamed_{measured}",
            size=size,
            memory=" to ".join(dict.fromkeys(self.facts.memory or self.of_command.memory)) or "host",
            iterations=iterations,
            seconds=seconds,
            messages=messages,
            guessed=guessed,
        )
        if any((result.test, result.size, result.memory) == (old.test, old.size, old.memory) for old in self.results):
            self.text.refuse(
                number, f"there is a second result of {result.test} with {size} bytes; put each run into its own file"
            )
        self.results.append(result)
        self.open_heading = 0
        self.facts = _Facts()

    def _find_size(self, number: int, least: float, most: float) -> tuple[int, bool]:
        """The size of messages, and whether it follows from bandwidth and time, by which it is `least` to `most`."""
        for size in (self.facts.size, self.of_command.size, self.of_command.default_size):
            if size is not None:
                if not least * 0.98 <= size <= most * 1.02:
                    self.text.refuse(number, f"its rate in MiB/s is not {size} bytes ÷ its time")
                return size, False
        whole = math.ceil(least), math.floor(most)
        if whole[0] == whole[1]:
            return whole[0], True
        powers = [1 << power for power in range(48) if least <= 1 << power <= most]
        if len(powers) != 1:
            self.text.refuse(
                number,
                "the text has no message size; add the output of the server, or the command line above, as '$ …'",
            )
        return powers[0], True

    def _refuse_row(self, number: int) -> None:
        self.text.refuse(number, f"{self.text.bare[number - 1]!r} is not a whole row; the text is cut or damaged")


def _facts_of_command(command: str) -> _Facts:
    """The test, size and memory that the last ``ucx_perftest`` of a command line is given."""
    try:
        words = shlex.split(command.rpartition("ucx_perftest")[2])
    except ValueError:
        return _Facts()
    values = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-t", "-s", "-m")}
    memory = values.get("-m", "").split(",") if "-m" in values else []
    batch = "-b" in words
    if "-s" not in values:
        return _Facts(values.get("-t"), None, memory, None if batch else _DEFAULT_SIZE)
    try:
        size = sum(parse_bytes(part) for part in values["-s"].split(","))
    except ValueError:
        size = None
    return _Facts(values.get("-t"), size, memory)


def _make_probe_line(text: PrintedText, result: _Result, *, alone: bool) -> s.ProbeLine:
    protocol = None
    if alone:
        measures = LATENCY if result.test.endswith(("lat", "latency")) else BANDWIDTH
        protocol = parse_ucx_log("\n".join(text.bare), Perftest("tag", measures)).protocol(result.size)
    version = text.ucx.version
    return s.ProbeLine(
        launch=0,
        probe=IMPORTER.name,
        test=result.test,
        method="ucx_perftest" + (f" of UCX {version}" if version else ""),
        placement="",
        ranks=[0, 1],
        memory=result.memory,
        size=result.size,
        iterations=result.iterations,
        seconds=result.seconds,
        bandwidth_bytes_per_second=result.size / result.seconds or None,
        messages_per_second=result.messages,
        requested=transport_settings(text.ucx.variables),
        selected=list(text.ucx.lanes),
        protocol=protocol,
    )
