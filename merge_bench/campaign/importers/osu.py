"""Output of the OSU micro-benchmarks: tables of latency or bandwidth by message size, each below the title of its test.

A table has no mark of its end, so a text that was cut between two rows cannot be told from a shorter run, nor a count
of iterations that was cut. A row that was cut elsewhere has fewer numbers or decimals, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import PrintedText, program_error_warning, unread_lines_warning
from merge_bench.config.allowed_transports import transport_settings
from merge_bench.records import schema as s

IMPORTER = Importer(name="osu", help="osu_latency, osu_alltoall and others", place=3)

_TITLE = re.compile(r"\\?#\s*(?P<title>OSU \S.*?\bTest)(?: v(?P<version>\d[\w.]*))?", re.ASCII)
_API = re.compile(r"OSU (?:MPI(?:-(?P<device>[A-Z]+))?)[ _]")
_SIZE = re.compile(r"\\?#\s*Size\b")
_COLUMN = re.compile(
    r"(?:Iterations|Validation|MB/s|Messages/s)(?=\s|$)|[A-Z][\w.%-]*(?: [A-Z][\w.-]*)* ?\((?:us|MB/s|%)\)"
)
_OWN = re.compile(r"\\?#\s*(?:Datatype|Send Buffer|Window creation|Synchronization|\[ pairs)")
_BUFFERS = re.compile(r"Send Buffer on (DEVICE|HOST|MANAGED).* and Receive Buffer on (DEVICE|HOST|MANAGED)")
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_CELL = re.compile(r"\d{1,15}(?:\.\d{1,15})?|Pass|Fail|-", re.ASCII)
_RANKS = re.compile(r"(?:^|\s)-(?:n|np|-np|-n|-ntasks)[ =](\d{1,5})\b", re.ASCII)
_TESTS = {
    "Latency Test": "osu_latency",
    "Multi-threaded Latency Test": "osu_latency_mt",
    "Multi-process Latency Test": "osu_latency_mp",
    "Multi Latency Test": "osu_multi_lat",
    "Bandwidth Test": "osu_bw",
    "Bi-Directional Bandwidth Test": "osu_bibw",
    "Multiple Bandwidth / Message Rate Test": "osu_mbw_mr",
    "Put Latency Test": "osu_put_latency",
    "Put Bandwidth Test": "osu_put_bw",
    "Get Latency Test": "osu_get_latency",
    "Get Bandwidth Test": "osu_get_bw",
    "All-to-All Personalized Exchange Latency Test": "osu_alltoall",
    "All-to-Allv Personalized Exchange Latency Test": "osu_alltoallv",
    "Allgather Latency Test": "osu_allgather",
    "Allreduce Latency Test": "osu_allreduce",
    "Broadcast Latency Test": "osu_bcast",
    "Gather Latency Test": "osu_gather",
    "Reduce Latency Test": "osu_reduce",
    "Reduce_scatter Latency Test": "osu_reduce_scatter",
    "Scatter Latency Test": "osu_scatter",
}
_PAIRS = ("osu_latency", "osu_bw", "osu_bibw", "osu_put_latency", "osu_put_bw", "osu_get_latency", "osu_get_bw")
_SECONDS = ("latency(us)", "avglatency(us)", "overall(us)")
_LEAST, _MOST = ("minlatency(us)",), ("maxlatency(us)",)
_RATES = ("bandwidth(mb/s)", "mb/s")


@dataclass
class _TestTable:
    """The table of one OSU test.

    `columns`: names of the columns without blanks, in lower case; `number`: the number of the line with the title.
    """

    number: int
    test: str
    version: str | None
    device: str
    label: list[str]
    memory: str = "host"
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the line with the first title of a test; 0 without one."""
    return next((line_number for line_number, line in enumerate(text.bare, 1) if _TITLE.fullmatch(line)), 0)


def read(text: PrintedText) -> ImportedResult:
    """Read the tables of one OSU test or of several; raises UsageError if a table is cut, or there twice."""
    tables, used = _read_tables(text)
    if not tables:
        text.refuse_incomplete("and has no title such as '# OSU MPI Latency Test v7.5'")
    for table in tables:
        if not table.columns:
            text.refuse_incomplete(f"and has no heading '# Size …' for {table.test} of line {table.number}")
        if not table.rows:
            text.refuse_incomplete(f"before the first row of {table.test}")
    command = text.find_command(r"\bosu_\w+", tables[0].number)
    ranks = _RANKS.search(command or "")
    lines = [line for table in tables for line in _make_probe_lines(text, table, int(ranks[1]) if ranks else None)]
    return ImportedResult(
        program="OSU micro-benchmarks",
        plan={"probe": IMPORTER.name, "launches": 1, "tests": [table.test for table in tables]},
        measurements=lines,
        command=command,
        variables=text.library_variables(command),
        warnings=(*program_error_warning(text), *unread_lines_warning(text, used)),
    )


def _read_tables(text: PrintedText) -> tuple[list[_TestTable], set[int]]:
    """Return the tables of the text, and the numbers of the lines that belong to them."""
    tables: list[_TestTable] = []
    used: set[int] = set()
    within = False  # whether the lines before can be rows of the last table
    for line_number, line in enumerate(text.bare, 1):
        table = tables[-1] if tables else None
        if title := _TITLE.fullmatch(line):
            new = _start_table(line_number, title, text.labels[line_number - 1])
            if any((new.test, new.device) == (other.test, other.device) for other in tables):
                text.refuse_line(line_number, f"a second {new.test} begins; put each run into its own file")
            tables.append(new)
            within = True
        elif table is None or not within or text.labels[line_number - 1].split() not in (table.label, []):
            continue
        elif (size := _SIZE.match(line)) and not table.columns:
            table.columns = _read_column_names(text, line_number, line[size.end() :])
        elif _OWN.match(line):
            table.memory = _read_buffer_memory(line, table)
        elif line.startswith("#") and table.rows:
            within = False
            continue
        elif not table.columns or not _read_row(text, line_number, line, table):
            continue
        used.add(line_number)
    return tables, used


def _start_table(line_number: int, title: re.Match[str], label: str) -> _TestTable:
    api = _API.match(title["title"])
    device = ((api and api["device"]) or "").lower()
    test = _TESTS.get(title["title"][api.end() :] if api else "", title["title"])
    return _TestTable(line_number, test, title["version"], device, label.split(), memory=device or "host")


def _read_buffer_memory(line: str, table: _TestTable) -> str:
    """Return the kind of memory of the messages, such as ``host``, or ``cuda to host`` if both sides differ."""
    buffers = _BUFFERS.search(line)
    if buffers is None:
        return table.memory
    names = {"DEVICE": table.device or "device", "HOST": "host", "MANAGED": "managed"}
    return " to ".join(dict.fromkeys(names[side] for side in buffers.groups()))


def _read_column_names(text: PrintedText, line_number: int, heading: str) -> list[str]:
    columns = [column.replace(" ", "").lower() for column in _COLUMN.findall(heading)]
    if not columns or _COLUMN.sub("", heading).strip():
        text.refuse_line(line_number, f"the columns {heading.strip()!r} are not those of an OSU benchmark")
    if not {*_SECONDS, *_RATES} & {*columns}:
        text.refuse_line(line_number, f"none of the columns {heading.strip()!r} is a latency or a bandwidth")
    return columns


def _read_row(text: PrintedText, line_number: int, line: str, table: _TestTable) -> bool:
    """Add the row that a line contains to the table; returns whether the line is a row."""
    size, *cells = line.split() or [""]
    if not _COUNT.fullmatch(size) or not all(map(_CELL.fullmatch, cells)):
        return False
    last = int(table.rows[-1][1][0]) if table.rows else -1
    if int(size) <= last:
        if len(cells) == len(table.columns):
            text.refuse_line(line_number, f"expected a size above {last}, found {size}; put each run into its own file")
        return False  # a number of another program
    if len(cells) != len(table.columns) or not all(map(_is_uncut_cell, table.columns, cells)):
        text.refuse_line(line_number, f"{line!r} is not a whole row of {table.test}; the text is cut or damaged")
    table.rows.append((line_number, [size, *cells]))
    return True


def _is_uncut_cell(column: str, cell: str) -> bool:
    """Whether a cell is whole: counts have no decimals, other numbers two or three."""
    decimals = len(cell.partition(".")[2])
    return decimals == 0 if column in ("iterations", "validation") else decimals in (2, 3) or cell == "-"


def _make_probe_lines(text: PrintedText, table: _TestTable, ranks: int | None) -> Sequence[s.ProbeLine]:
    version = f" {table.version}" if table.version else ""
    ucx = text.ucx_log.version
    lines = []
    for line_number, (size, *cells) in table.rows:
        row = dict(zip(table.columns, cells, strict=True))
        if row.get("validation") == "Fail":
            text.refuse_line(line_number, f"{table.test} reports a wrong result for messages of {size} bytes")
        seconds, least, most = (
            None if micros is None else micros / 1e6
            for micros in (_first_column_number(row, names) for names in (_SECONDS, _LEAST, _MOST))
        )
        rate, messages = _first_column_number(row, _RATES), _first_column_number(row, ("messages/s",))
        iterations = row.get("iterations")
        lines.append(
            s.ProbeLine(
                launch=0,
                probe=IMPORTER.name,
                test=table.test,
                method=f"OSU micro-benchmarks{version}" + (f", UCX {ucx}" if ucx else ""),
                placement="",
                ranks=[0, 1] if table.test in _PAIRS else list(range(ranks or 0)),
                memory=table.memory,
                size=int(size),
                iterations=int(iterations) if iterations is not None else None,
                selected=list(text.ucx_log.lanes),
                requested=transport_settings(text.ucx_log.variables),
                seconds=seconds,
                seconds_min=least,
                seconds_max=most,
                bandwidth_bytes_per_second=rate * 1e6 if rate else None,
                messages_per_second=messages or None,
            )
        )
    return lines


def _first_column_number(row: dict[str, str], column_names: Sequence[str]) -> float | None:
    """Return the number in the first of these columns that the row has; None if it has none of them."""
    text = next((row[name] for name in column_names if name in row), None)
    return float(text) if text is not None and text not in ("-", "Pass", "Fail") else None
