"""Output of nccl-tests (``all_reduce_perf``, ``alltoall_perf``, …): its table, or the file of its option ``-J``.

The table has as many columns as its release prints, with the root or without it. The average bus bandwidth below it
is that of all rows, so a row that is missing or damaged is noticed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import PrintedText, program_error_warning, unread_lines_warning
from merge_bench.records import ONE_HOST, TWO_HOSTS
from merge_bench.records import schema as s
from merge_bench.units import plural

IMPORTER = Importer(
    name="nccl-tests",
    help="all_reduce_perf and others: their table, or the file of -J",
    place=2,
    bus_bandwidth=True,
)

_HEADING = re.compile(r"#?\s*size\s+count\s+type\b(?P<columns>.*\btime\s+algbw\s+busbw\b.*)")
_CPU_HEADING = re.compile(r"#?\s*size\s+count\s+type\b(?P<columns>.*\bcputime\s+algbw\s+busbw\b.*)")
_ROW = re.compile(r"\d{1,15}\s+\d{1,15}\s+[a-z]\w*\s.*", re.ASCII)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?", re.ASCII)
_TIME_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", re.ASCII)
_RESULT = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d{1,18})\b.*", re.ASCII)
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(\S+).*")
_DEVICE = re.compile(r"#?\s*Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s.*")
_COUNTS = re.compile(r"#?\s*nThread .*\bwarmup iters: \d+ iters: (?P<iterations>\d{1,12})\b.*", re.ASCII)
_STARTING = re.compile(r"#?\s*Collective test starting: *(?P<name>\S+)")
_VERSION = re.compile(r"#?\s*nccl-tests version (?P<version>\S+)(?:.*\bnccl-library=(?P<library>\d{1,9}))?.*", re.ASCII)
_LIBRARY = re.compile(r"NCCL version (?P<version>\d[\d.]*)")
_COLLECTIVE = r"(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|broadcast|reduce|gather|scatter|sendrecv)"
_PROGRAM = re.compile(rf"\b(\w*{_COLLECTIVE}_perf\w*)")
_OF_FILE = re.compile(_COLLECTIVE)
_OWN = re.compile(r"#|Using devices|out-of-place\s+in-place|\(B\)\s+\(elements\)")
_UNNAMED = "collective"
_MOST_RANKS = 4096
_PLACES = ("out-of-place", "in-place")


@dataclass
class _CollectiveTable:
    """A table of one collective operation, and what the lines above it say.

    `rows`: number of the line, size, count, and for each place (out-of-place, in-place) its four cells.
    """

    test: str
    number: int = 0
    columns: tuple[str, ...] = ()
    iterations: int | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    version: str = ""
    library: str = ""
    rows: list[tuple[int, int, int, Mapping[str, Sequence[str]]]] = field(default_factory=list)
    average: str | None = None


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the table's first heading, 1 for a JSON file of ``-J``; 0 if there is neither."""
    if text.lines[0].startswith("{"):
        return int('"nccl_version"' in text.lines[0] or any('"nccl_version"' in line for line in text.lines[:200]))
    return next((line_number for line_number, line in enumerate(text.bare, 1) if _match_heading(line)), 0)


def read(text: PrintedText) -> ImportedResult:
    """Read tables or a JSON file of ``-J``; raises UsageError if it is cut, or if nccl-tests found wrong values."""
    if text.lines[0].startswith("{"):
        return _read_json(text)
    tables, used = _read_tables(text)
    if not tables:
        text.refuse_incomplete("and has no heading 'size count type … time algbw busbw'")
    for table in tables:
        if table.average is None:
            text.refuse_incomplete(f"and has no line 'Avg bus bandwidth' for the table of line {table.number}")
        _check_bus_bandwidth_average(text, table)
    command = text.find_command(r"_perf\b", tables[0].number)
    return ImportedResult(
        program=IMPORTER.name,
        plan={"probe": IMPORTER.name, "launches": 1, "tests": [table.test or _UNNAMED for table in tables]},
        measurements=[line for table in tables for line in _make_probe_lines(text, table)],
        command=command,
        variables=text.library_variables(command),
        warnings=(*program_error_warning(text), *unread_lines_warning(text, used)),
    )


def _match_heading(line: str) -> re.Match[str] | None:
    return _HEADING.fullmatch(line) or _CPU_HEADING.fullmatch(line)


def _read_tables(text: PrintedText) -> tuple[list[_CollectiveTable], set[int]]:
    """Return the tables of the text, and the numbers of the lines that belong to them."""
    tables: list[_CollectiveTable] = []
    used: set[int] = set()
    named = _OF_FILE.search(text.path.stem)
    table = _CollectiveTable(f"{named[0]}_perf" if named else "")
    for line_number, line in enumerate(text.bare, 1):
        if heading := _match_heading(line):
            if table.number:
                text.refuse_line(
                    line_number, "a second table begins before the first one ends; put each run into its own file"
                )
            table.number, table.columns = line_number, tuple(heading["columns"].split())
            if table.test in [other.test for other in tables]:
                which = f"a second {table.test}" if table.test else "a second table of an unnamed collective"
                text.refuse_line(line_number, f"{which} begins; put each run into its own file")
        elif table.number and _ROW.fullmatch(line):
            table.rows.append(_read_row(text, line_number, line, table))
        elif (result := _RESULT.fullmatch(line)) and table.number:
            if int(result[1]):
                text.refuse_line(
                    line_number, f"nccl-tests reports a wrong result: {result[1]} values are out of bounds"
                )
        elif (average := _AVERAGE.fullmatch(line)) and table.number:
            table.average = average[1]
            tables.append(table)
            table = _CollectiveTable("")
        elif not (_OWN.match(line) if table.number else _read_header_line(line, table) or _OWN.match(line)):
            continue
        used.add(line_number)
    if table.number:
        tables.append(table)
    return tables, used


def _read_header_line(line: str, table: _CollectiveTable) -> bool:
    """Add what a line above the table says to `table`; returns whether only nccl-tests prints such a line."""
    if device := _DEVICE.fullmatch(line):
        table.hosts[int(device["rank"])] = device["host"]
    elif counts := _COUNTS.fullmatch(line):
        table.iterations = int(counts["iterations"])
    elif starting := _STARTING.fullmatch(line):
        table.test = starting["name"].rpartition("/")[2]
    elif version := _VERSION.fullmatch(line):
        table.version = version["version"]
        table.library = _nccl_version_text(int(version["library"])) if version["library"] else table.library
    elif library := _LIBRARY.search(line):
        table.library = library["version"].rstrip(".")
        return False
    elif program := _PROGRAM.search(line):
        table.test = program[1]
        return False
    else:
        return False
    return True


def _read_row(
    text: PrintedText, line_number: int, line: str, table: _CollectiveTable
) -> tuple[int, int, int, Mapping[str, Sequence[str]]]:
    size, count, _, *cells = _TIME_STAMP.sub("", line).split()
    width = 8 if "i_min" in table.columns else 4
    while cells and cells[0].isalpha() and cells[0] != "N":  # the reduction, which some collectives lack
        del cells[0]
    if "root" in table.columns and len(cells) % width == 1:
        del cells[0]
    groups = [cells[at : at + width] for at in range(0, len(cells), width)]
    whole = 1 <= len(groups) <= 2 and len(groups[-1]) == width
    if not whole or not all(_are_whole_cells(group) for group in groups):
        text.refuse_line(line_number, f"{line!r} is not a whole row of nccl-tests; the text is cut or damaged")
    return line_number, int(size), int(count), dict(zip(_PLACES[-len(groups) :], groups, strict=True))


def _are_whole_cells(cells: Sequence[str]) -> bool:
    return all(map(_NUMBER.fullmatch, cells[:3])) and (cells[3] == "N/A" or bool(_NUMBER.fullmatch(cells[3])))


def _check_bus_bandwidth_average(text: PrintedText, table: _CollectiveTable) -> None:
    """Refuse a table whose printed average of bus bandwidths is not the mean of its rows."""
    rates = [cells[2] for *_, places in table.rows for cells in places.values()]
    if not rates:
        text.refuse_incomplete(f"before the first row of the table of line {table.number}")
    try:
        average = float(table.average or "")
    except ValueError:
        text.refuse_line(table.number, f"the average bus bandwidth below is {table.average!r}, not a number")
    mean = math.fsum(map(float, rates)) / len(rates)
    rounded = math.fsum(0.5 * 10.0 ** -len(rate.partition(".")[2]) for rate in rates) / len(rates)
    if abs(mean - average) > rounded + 1e-5 * average + 1e-9:
        text.refuse_line(
            table.number,
            f"the rows below have a mean bus bandwidth of {mean:.6g} GB/s, but the text has {average:.6g}; rows are"
            " missing or damaged",
        )


def _make_probe_lines(text: PrintedText, table: _CollectiveTable) -> Iterator[s.ProbeLine]:
    counted = "#wrong" in table.columns
    library = f", NCCL {table.library}" if table.library else ""
    for _, size, count, places in table.rows:
        for place, cells in places.items():
            wrong = int(float(cells[3])) if counted and cells[3] != "N/A" else None
            yield _make_probe_line(
                place,
                test=table.test or _UNNAMED,
                method=f"nccl-tests{' ' if table.version else ''}{table.version}{library}",
                hosts=[host for _, host in sorted(table.hosts.items())],
                size=size,
                count=count,
                iterations=table.iterations,
                seconds=float(cells[0]) / 1e6,
                rate=float(cells[2]),
                wrong=wrong,
            )


def _make_probe_line(
    place: str, *, test: str, hosts: Sequence[str], seconds: float, rate: float, **fields: Any
) -> s.ProbeLine:
    """Make the record of one row and place (out-of-place or in-place); `rate`: the bus bandwidth in GB/s."""
    several = len(set(hosts))
    return s.ProbeLine(
        launch=0,
        probe=IMPORTER.name,
        test=f"{test} {place}",
        placement={0: "", 1: ONE_HOST, 2: TWO_HOSTS}.get(several, f"{several} hosts"),
        ranks=list(range(len(hosts))),
        hosts=list(hosts),
        memory="cuda",
        seconds=seconds,
        bandwidth_bytes_per_second=rate * 1e9 or None,
        bus_bandwidth_bytes_per_second=rate * 1e9 or None,
        **fields,
    )


def _read_json(text: PrintedText) -> ImportedResult:
    document = text.json_document
    if document is None:
        text.refuse_incomplete("and is not one whole JSON document")
    rows = _json_objects(document.get("results"))
    if not rows or "average_bus_bandwidth" not in document:
        text.refuse_incomplete("and its JSON document has no results with an average_bus_bandwidth")
    if wrong := _number_at_json_path(text, document, "out_of_bounds", "count"):
        text.refuse_line(1, f"nccl-tests reports a wrong result: {plural(int(wrong), 'value')} out of bounds")
    args = _json_strings(document.get("args"))
    test = args[0].rpartition("/")[2] if args else str(rows[0].get("experiment_name") or _UNNAMED)
    library = _nccl_version_text(int(_number_at_json_path(text, document, "nccl_version")))
    config = document.get("config")
    devices = config.get("devices") if isinstance(config, dict) else None
    hosts = [str(device.get("hostname")) for device in _json_objects(devices)]
    if len(hosts) == 1:  # all that a release without MPI writes
        threads, gpus = (_number_at_json_path(text, document, "config", name) for name in ("nthreads", "ngpus"))
        hosts *= int(min(threads * gpus, _MOST_RANKS))
    lines = [
        _make_probe_line(
            place,
            test=test,
            method=f"nccl-tests, NCCL {library}",
            hosts=hosts,
            size=int(_number_at_json_path(text, row, "size")),
            count=int(_number_at_json_path(text, row, "count")),
            iterations=(
                int(_number_at_json_path(text, row, "actual_iterations")) if "actual_iterations" in row else None
            ),
            seconds=_number_at_json_path(text, row, key, "cpu_time" if "cpu_time" in row[key] else "time") / 1e6,
            rate=_number_at_json_path(text, row, key, "bus_bw"),
            wrong=None if row[key].get("nwrong") is None else int(_number_at_json_path(text, row, key, "nwrong")),
        )
        for row in rows
        for place, key in zip(_PLACES, ("out_of_place", "in_place"), strict=True)
        if isinstance(row.get(key), dict)
    ]
    if not lines:
        text.refuse_incomplete("and its JSON document has no row")
    return ImportedResult(
        program=IMPORTER.name,
        plan={"probe": IMPORTER.name, "launches": 1, "tests": [test]},
        measurements=lines,
        command=" ".join(args) or None,
        variables=text.library_variables(" ".join(_json_strings(document.get("env")))),
    )


def _json_objects(json_value: Any) -> list[dict[str, Any]]:
    """The objects among the items of a JSON list; empty if the value is no list."""
    return [each for each in json_value if isinstance(each, dict)] if isinstance(json_value, list) else []


def _json_strings(json_value: Any) -> list[str]:
    """The strings among the items of a JSON list; empty if the value is no list."""
    return [each for each in json_value if isinstance(each, str)] if isinstance(json_value, list) else []


def _nccl_version_text(code: int) -> str:
    """The version of NCCL for its numeric code, such as ``2.27.3`` for 22703."""
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def _number_at_json_path(text: PrintedText, document: Mapping[str, Any], *keys: str) -> float:
    """Return the number at the path `keys` of a JSON document; refuses a document that has no number there."""
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        text.refuse_line(1, f"the JSON document has no number {'.'.join(keys)!r}")
    return value
