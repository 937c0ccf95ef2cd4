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
from merge_bench.campaign.printed_text import PrintedText, program_error_warning, unread_lines_warning
from merge_bench.cluster.ucx_perftest import BANDWIDTH, COLUMNS, LATENCY, Perftest, parse_ucx_log
from merge_bench.config.allowed_transports import transport_settings
from merge_bench.errors import Caution
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
class _TestParameters:
    """The parameters of a test that lines above its result name: test, message size, and memory of both sides."""

    test: str | None = None
    size: int | None = None
    memory: list[str] = field(default_factory=list)
    default_size: int | None = None


@dataclass(frozen=True)
class _TestResult:
    """The result of one test of ``ucx_perftest``.

    `number`: the number of its line; `guessed`: whether the message size follows from bandwidth and time.
    """

    number: int
    test: str
    size: int
    memory: str
    iterations: int
    seconds: float
    messages: float
    guessed: bool


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the line with the first heading of a table or of CSV; 0 without one."""
    lines = enumerate(text.bare, 1)
    return next((at for at, line in lines if _HEADING.fullmatch(line) or _is_csv_heading(line)), 0)


def _is_csv_heading(line: str) -> bool:
    return {*COLUMNS} <= {*line.split(",")}


def read(text: PrintedText) -> ImportedResult:
    """Read the results of all tests; raises UsageError if one is cut, damaged, or there twice."""
    first = find_identifying_line(text)
    if not first:
        text.refuse_incomplete("and has no heading of ucx_perftest")
    reader = _OutputReader(text)
    reader.read_all_lines()
    command = text.find_command(_PROGRAM, len(text.bare) + 1)
    tests = list(dict.fromkeys(result.test for result in reader.results))
    warnings = [*program_error_warning(text), *unread_lines_warning(text, reader.used)]
    if guessed := [result for result in reader.results if result.guessed]:
        sizes = ", ".join(format_count(result.size) for result in guessed[:3])
        what = f"the text has no message size; {sizes} bytes follow from bandwidth × time"
        warnings.insert(0, Caution("imported-size", what))
    return ImportedResult(
        program=IMPORTER.name,
        plan={"probe": IMPORTER.name, "launches": 1, "tests": tests},
        measurements=[_make_probe_line(text, result, is_only_test=len(tests) == 1) for result in reader.results],
        command=command,
        variables=text.library_variables(command),
        warnings=tuple(warnings),
    )


class _OutputReader:
    """Collects the results of tests in one pass over the lines.

    `parameters`: of the next result; `heading`: the number of the last heading's line, `open_heading`: the same, 0 once
    there is a result below it; `csv`: the columns of CSV, empty for a table.
    """

    def __init__(self, text: PrintedText) -> None:
        self.text = text
        self.results: list[_TestResult] = []
        self.used: set[int] = set()
        self.parameters = _TestParameters()
        self.of_command = _TestParameters()
        self.what = "overhead"
        self.heading = self.open_heading = 0
        self.csv: list[str] = []

    def read_all_lines(self) -> None:
        for line_number, line in enumerate(self.text.bare, 1):
            if self._read_line(line_number, line):
                self.used.add(line_number)
        if self.open_heading or not self.results:
            missing = "a row of its CSV" if self.csv else "a line 'Final: …'"
            self.text.refuse_incomplete(f"and has not {missing} below the heading of line {self.heading}")

    def _read_line(self, line_number: int, line: str) -> bool:
        """Read a line; returns whether it belongs to the output of ``ucx_perftest``."""
        if (command := self.text.command_at_line(line_number)) and re.search(_PROGRAM, command):
            self.of_command, self.parameters = _parameters_of_command(command), _TestParameters()
            return True
        if heading := _HEADING.fullmatch(line):
            self._start_table(line_number)
            self.what, self.csv = heading["what"], []
        elif _is_csv_heading(line):
            self._start_table(line_number)
            self.csv = line.split(",")
        elif fact := _FACT.fullmatch(line):
            self._read_parameter(fact["name"], fact["value"])
        elif (row := _ROW.fullmatch(line)) and self.heading and not self.csv:
            self._read_row(line_number, row["stage"], row["cells"].replace(",", "").split())
        elif line.startswith("Final:"):
            self._refuse_row(line_number)
        elif batch := _BATCH.fullmatch(line):
            self._read_test_name(batch["name"].split("/"))
        elif title := _TITLE.fullmatch(line):
            self.parameters.test = title["test"]
        elif self.csv and line.count(",") == len(self.csv) - 1:
            self._read_csv_row(line_number, line.split(","))
        else:
            return _OWN.fullmatch(line) is not None
        return True

    def _start_table(self, line_number: int) -> None:
        if self.open_heading:
            self.text.refuse_line(
                line_number, f"a second table begins, but that of line {self.open_heading} has no result"
            )
        self.heading = self.open_heading = line_number

    def _read_parameter(self, name: str, value: str) -> None:
        if name == "Test":
            test = _TESTS.get(value)
            self.parameters.test = test or self.of_command.test or value
        elif name == "Message size" and _SIZE.fullmatch(value):
            self.parameters.size = parse_bytes(value)
        elif name in ("Send memory", "Recv memory"):
            self.parameters.memory.append(value)

    def _read_row(self, line_number: int, stage: str | None, cells: Sequence[str]) -> None:
        """Read a row of a table: a final one, one of a stage, or with ``-f`` one that begins with the test's name."""
        if stage is not None and stage.startswith("[thread "):
            return
        if stage not in (None, "Final:"):
            self._read_test_name(stage.split("/"))
        self._read_result(line_number, cells)

    def _read_test_name(self, name_parts: Sequence[str]) -> None:
        """Read the parts of a test's name in a batch file, such as ``tag_lat`` and ``4096``: the test, and sizes."""
        self.parameters = _TestParameters()
        for size in filter(_SIZE.fullmatch, name_parts):
            self.parameters.size = parse_bytes(size)
        names = [part for part in name_parts if not _SIZE.fullmatch(part)]
        self.parameters.test = "/".join(names) or None

    def _read_csv_row(self, line_number: int, cells: list[str]) -> None:
        own = len(self.csv) - 8
        self._read_test_name(cells[:own])
        self._read_result(line_number, cells[own:])

    def _read_result(self, line_number: int, cells: Sequence[str]) -> None:
        try:
            iterations, (*_, micros, _, rate, _, messages) = int(cells[0]), [float(cell) for cell in cells[1:]]
        except ValueError:
            self._refuse_row(line_number)
        if len(cells) != 8 or iterations < 1 or not all(0 < value < 1e15 for value in (micros, messages, rate + 1)):
            self._refuse_row(line_number)
        if messages * micros < 0.5e6:  # several threads send more often than one message in that time
            self._refuse_row(line_number)
        # It prints µs with three decimals and messages per second with none: take the one with more digits.
        exact = micros * 1000 > messages
        seconds = micros * 1e-6 if exact else 1 / messages
        error = 0.5e-9 / seconds if exact else 0.5 / messages
        least, most = ((rate + sign * 0.005) * MIB * seconds * (1 + sign * error) for sign in (-1, 1))
        size, guessed = self._find_message_size(line_number, least, most)
        measured = LATENCY if self.what == "latency" else BANDWIDTH
        result = _TestResult(
            number=line_number,
            test=self.parameters.test or self.of_command.test or f"unnamed_{measured}",
            size=size,
            memory=" to ".join(dict.fromkeys(self.parameters.memory or self.of_command.memory)) or "host",
            iterations=iterations,
            seconds=seconds,
            messages=messages,
            guessed=guessed,
        )
        if any((result.test, result.size, result.memory) == (old.test, old.size, old.memory) for old in self.results):
            self.text.refuse_line(
                line_number,
                f"there is a second result of {result.test} with {size} bytes; put each run into its own file",
            )
        self.results.append(result)
        self.open_heading = 0
        self.parameters = _TestParameters()

    def _find_message_size(self, line_number: int, least_bytes: float, most_bytes: float) -> tuple[int, bool]:
        """Return the bytes of a message, and whether they follow from bandwidth and time.

        By bandwidth and time, a message has `least_bytes` to `most_bytes`.
        """
        for size in (self.parameters.size, self.of_command.size, self.of_command.default_size):
            if size is not None:
                if not least_bytes * 0.98 <= size <= most_bytes * 1.02:
                    self.text.refuse_line(line_number, f"its rate in MiB/s is not {size} bytes ÷ its time")
                return size, False
        whole = math.ceil(least_bytes), math.floor(most_bytes)
        if whole[0] == whole[1]:
            return whole[0], True
        powers = [1 << power for power in range(48) if least_bytes <= 1 << power <= most_bytes]
        if len(powers) != 1:
            self.text.refuse_line(
                line_number,
                "the text has no message size; add the output of the server, or the command line above, as '$ …'",
            )
        return powers[0], True

    def _refuse_row(self, line_number: int) -> None:
        self.text.refuse_line(
            line_number, f"{self.text.bare[line_number - 1]!r} is not a whole row; the text is cut or damaged"
        )


def _parameters_of_command(command: str) -> _TestParameters:
    """The test, message size and memory in the arguments of the last ``ucx_perftest`` of a command line."""
    try:
        words = shlex.split(command.rpartition("ucx_perftest")[2])
    except ValueError:
        return _TestParameters()
    values = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-t", "-s", "-m")}
    memory = values.get("-m", "").split(",") if "-m" in values else []
    batch = "-b" in words
    if "-s" not in values:
        return _TestParameters(values.get("-t"), None, memory, None if batch else _DEFAULT_SIZE)
    try:
        size = sum(parse_bytes(part) for part in values["-s"].split(","))
    except ValueError:
        size = None
    return _TestParameters(values.get("-t"), size, memory)


def _make_probe_line(text: PrintedText, result: _TestResult, *, is_only_test: bool) -> s.ProbeLine:
    protocol = None
    if is_only_test:
        measures = LATENCY if result.test.endswith(("lat", "latency")) else BANDWIDTH
        protocol = parse_ucx_log("\n".join(text.bare), Perftest("tag", measures)).protocol(result.size)
    version = text.ucx_log.version
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
        requested=transport_settings(text.ucx_log.variables),
        selected=list(text.ucx_log.lanes),
        protocol=protocol,
    )
