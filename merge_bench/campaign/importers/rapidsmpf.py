"""Output of rapidsmpf: the times of its ``bench_shuffle`` and ``bench_comm``, and its statistics as text or JSON.

Each rank prints a line for each run. A run takes as long as its slowest rank, whose line has its rates. Statistics are
those of the last run; of several ranks they are added. Statistics alone have no wall-clock: that of the background
thread's event loop stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import (
    PrintedNumber,
    PrintedText,
    parse_printed_number,
    parse_rate,
    parse_size,
    program_error_warning,
    unread_lines_warning,
)
from merge_bench.errors import WarningMessage
from merge_bench.records import schema as s
from merge_bench.records.recorded_plan import WALL

IMPORTER = Importer(name="rapidsmpf", help="bench_shuffle, bench_comm, and statistics", place=5)

_TIMES = {
    "d": Decimal(86_400),
    "h": Decimal(3600),
    "min": Decimal(60),
    "sec": Decimal(1),
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
}
_LOGGER = re.compile(r"\[(?:PRINT|INFO|WARN)(?::(?P<rank>\d{1,9}))?(?::\d+)?\]\s*", re.ASCII)
_RUN = re.compile(r"(?P<what>elapsed|means): (?P<time>[^|]*?)(?: \| (?P<figures>.*?))?(?P<warmup> \(warmup run\))?")
_COUNT = re.compile(r"-(?P<option>[rw]) (?P<count>\d{1,9}) \(number of (?:warmup )?runs\)")
_HEADER = re.compile(r"Statistics(?: \([^)]*\))?:")
_RANK = re.compile(r"=+ Statistics report \(rank (?P<rank>\d{1,9})\) =+")
_ENTRY = re.compile(r"- (?P<name>[a-z][\w.-]*):\s+(?P<text>\S.*)")
_UNIT = r"\d+(?:\.\d+)? [A-Za-z]+"
_QUANTITY = re.compile(rf"(?P<value>{_UNIT})(?: \((?:avg {_UNIT}|count \d+)\)| \| avg {_UNIT})?", re.ASCII)
_OF_MEMORY = re.compile(
    rf"(?P<value>{_UNIT}) \| (?P<time>{_UNIT}) \| {_UNIT}/s(?P<delay> \| avg-stream-delay {_UNIT})?", re.ASCII
)
_PLAIN = re.compile(r"(?P<value>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?: \(count \d+\)|/\d+ \(hits/lookups\))?", re.ASCII)
_OWN = re.compile(
    r"Arguments:|-\w .*\(.*\)|(?:Local|Total) size: .*|Hardware setup:|GPU \(.*"
    r"|(?:Device number|PCI Bus ID|Total Memory|Comm): .*|No data collected"
)
_LOOP = "event-loop-total"
_ONLY_MEANS = "the imported output has only the mean of all runs"
_NO_WALL = f"statistics have no wall-clock; {_LOOP}, the time of rapidsmpf's background thread, stands for it"
_BYTES, _SECONDS = "B", "s"


@dataclass
class _RankOutput:
    """The output of one rank. `runs`: whether each was a warm-up, its seconds, and its figures in SI units by name."""

    runs: list[tuple[bool, float, dict[str, float]]] = field(default_factory=list)
    means: tuple[float, dict[str, float]] | None = None
    statistics: dict[str, float] = field(default_factory=dict)


@dataclass
class _ProgramOutput:
    """The output of all ranks.

    `units`: units of the figures and statistics by name; `counts`: the numbers of runs by option, ``r`` and ``w``.
    """

    ranks: dict[int, _RankOutput] = field(default_factory=dict)
    units: dict[str, str | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    first: int = 0


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the first line with a time or a statistic, 1 for a JSON file; 0 if there is none."""
    if text.lines[0].startswith("{"):
        return int(any(line.startswith('"statistics":') for line in text.lines[:3]))
    for line_number, line in enumerate(text.bare, 1):
        line = _LOGGER.sub("", line, count=1)
        if _HEADER.fullmatch(line) or (_RUN.fullmatch(line) and "throughput: " in line):
            return line_number
    return 0


def read(text: PrintedText) -> ImportedResult:
    """Read the runs and statistics; raises UsageError if the text is cut, or of two programs."""
    output = _read_json(text) if text.lines[0].startswith("{") else _read_output(text)
    iterations = _make_iterations(text, output)
    units = {WALL: _SECONDS} | output.units
    metrics = [{"name": name, "unit": unit, "better": _better_direction(name)} for name, unit in units.items()]
    command = text.find_command(r"\bbench_\w+|rapidsmpf", output.first)
    warnings = (
        [*program_error_warning(text), *unread_lines_warning(text, output.used)] if text.json_document is None else []
    )
    if not any(rank.runs for rank in output.ranks.values()):
        mean = any(rank.means for rank in output.ranks.values())
        warnings.append(
            WarningMessage("imported-means", _ONLY_MEANS) if mean else WarningMessage("imported-wall", _NO_WALL)
        )
    if len(output.ranks) > 1 and any(rank.statistics for rank in output.ranks.values()):
        warnings.append(WarningMessage("imported-ranks", f"statistics are the sums of {len(output.ranks)} ranks"))
    return ImportedResult(
        program=IMPORTER.name,
        plan={"command": {"argv": [IMPORTER.name], "metrics": metrics}, "launches": 1},
        measurements=iterations,
        command=command,
        variables=text.library_variables(command),
        warnings=tuple(warnings),
    )


def _better_direction(name: str) -> str:
    return "more" if name.endswith(("throughput", "comm")) else "less"


def _read_output(text: PrintedText) -> _ProgramOutput:
    output, rank = _ProgramOutput(), 0
    for line_number, line in enumerate(text.bare, 1):
        if logger := _LOGGER.match(line):
            rank, line = int(logger["rank"] or 0), line[logger.end() :]
        elif header := _RANK.fullmatch(line):
            rank = int(header["rank"])
        if run := _RUN.fullmatch(line):
            _read_run(text, line_number, run, output, rank)
        elif count := _COUNT.fullmatch(line):
            if count["option"] in output.counts:
                text.refuse_line(line_number, "a second run begins; put each run into its own file")
            output.counts[count["option"]] = int(count["count"])
        elif entry := _ENTRY.fullmatch(line):
            _read_statistic(text, line_number, entry, output, rank)
        elif not _HEADER.fullmatch(line) and not _RANK.fullmatch(line) and not _OWN.fullmatch(line):
            continue
        output.first = output.first or line_number
        output.used.add(line_number)
    if not any(rank.runs or rank.means or rank.statistics for rank in output.ranks.values()):
        text.refuse_incomplete("and has neither a line 'elapsed: …' or 'means: …' nor a statistic")
    _refuse_missing_runs(text, output)
    return output


def _read_run(text: PrintedText, line_number: int, line: re.Match[str], output: _ProgramOutput, rank: int) -> None:
    own = output.ranks.setdefault(rank, _RankOutput())
    if own.means is not None:
        text.refuse_line(line_number, f"a second run of rank {rank} begins; put each run into its own file")
    try:
        seconds = parse_printed_number(line["time"], line_number, _TIMES, "time").value
        figures: dict[str, float] = {}
        for part in (line["figures"] or "").split(" | "):
            name, _, value = part.partition(": ")
            if value and not value.isdecimal():
                name, unit, figure = _parse_rate_or_size(name, value, line_number)
                figures[name], output.units[name] = figure, unit
    except ValueError as error:
        text.refuse_line(line_number, f"{error}; the text is cut or damaged")
    if line["what"] == "means":
        own.means = seconds, figures
    else:
        own.runs.append((line["warmup"] is not None, seconds, figures))


def _parse_rate_or_size(name: str, value: str, line_number: int) -> tuple[str, str, float]:
    """Return the name, the unit and the number of a rate or a size; raises ValueError if `value` is neither."""
    name, value = name.replace(" ", "-"), value.removesuffix(" (avg)")
    if _better_direction(name) == "more":
        return name, "B/s", parse_rate(value, line_number).value
    return name, _BYTES, parse_size(value, line_number).value


def _read_statistic(
    text: PrintedText, line_number: int, entry: re.Match[str], output: _ProgramOutput, rank: int
) -> None:
    name, value = entry["name"], entry["text"]
    if value == "No data collected":
        return
    own = output.ranks.setdefault(rank, _RankOutput()).statistics
    figures = _parse_statistic(name, value, line_number, is_last_line=not any(text.bare[line_number:]))
    if figures is None:
        text.refuse_line(line_number, f"{value!r} is not the value of a statistic; the text is cut or damaged")
    for key, (figure, unit) in figures.items():
        if key in own:
            text.refuse_line(
                line_number, f"the statistic {name} of rank {rank} is there twice; put each run into its own file"
            )
        own[key], output.units[key] = figure, unit


def _parse_statistic(
    name: str, text: str, line_number: int, *, is_last_line: bool
) -> dict[str, tuple[float, str | None]] | None:
    """Return the values of a statistic with their units, under the names of its JSON; None if `text` is no statistic.

    `is_last_line`: no line follows, so what can be the beginning of a longer form may have been cut.
    """
    if (form := _PLAIN.fullmatch(text)) and not is_last_line:
        return {name: (float(form["value"]), None)}
    rate = _OF_MEMORY.fullmatch(text)
    form = rate or _QUANTITY.fullmatch(text)
    if form is None or (rate and is_last_line and not rate["delay"]):
        return None
    try:
        value, unit = parse_size(form["value"], line_number).value, _BYTES
    except ValueError:
        try:
            value, unit = _parse_duration(form["value"], line_number).value, _SECONDS
        except ValueError:
            return None
    if not rate:
        return {name: (value, unit)}
    try:
        return {
            f"{name}-bytes": (value, unit),
            f"{name}-time": (_parse_duration(rate["time"], line_number).value, _SECONDS),
        }
    except ValueError:
        return None


def _parse_duration(text: str, line_number: int) -> PrintedNumber:
    return parse_printed_number(text, line_number, _TIMES, "time")


def _refuse_missing_runs(text: PrintedText, output: _ProgramOutput) -> None:
    """Refuse a text in which a rank has fewer runs than the others, or than the options say."""
    counts = {rank: len(own.runs) for rank, own in output.ranks.items() if own.runs or own.means}
    expected = output.counts.get("r", 0) + output.counts.get("w", 0)
    for rank, runs in counts.items():
        if runs and runs != (expected or max(counts.values())):
            text.refuse_incomplete(f"where rank {rank} has {runs} of {expected or max(counts.values())} runs")
        if runs and not expected and output.ranks[rank].means is None:
            text.refuse_incomplete(f"and has no line 'means: …' of rank {rank}")


def _make_iterations(text: PrintedText, output: _ProgramOutput) -> list[s.IterationLine]:
    """Make one record for each run; else one with the means, or one with the statistics alone."""
    statistics: dict[str, float] = {}
    for own in output.ranks.values():
        for name, value in own.statistics.items():
            statistics[name] = statistics.get(name, 0.0) + value
    timed = [own.runs for own in output.ranks.values() if own.runs]
    runs = [max((runs[at] for runs in timed), key=lambda run: run[1]) for at in range(len(timed[0]))] if timed else []
    if not runs:
        means = [own.means for own in output.ranks.values() if own.means is not None]
        slowest = max(means, key=lambda mean: mean[0]) if means else None
        runs = [(False, *slowest)] if slowest else []
    if not runs:
        loops = [own.statistics[_LOOP] for own in output.ranks.values() if _LOOP in own.statistics]
        if not loops:
            text.refuse_incomplete(f"and has no time: neither a line 'elapsed: …' or 'means: …' nor {_LOOP}")
        return [s.IterationLine(launch=0, index=0, wall_seconds=max(loops), values=statistics)]
    last = len(runs) - 1
    return [
        s.IterationLine(
            launch=0,
            index=index,
            warmup=warmup,
            wall_seconds=seconds,
            values=figures | (statistics if index == last else {}),
        )
        for index, (warmup, seconds, figures) in enumerate(runs)
    ]


def _read_json(text: PrintedText) -> _ProgramOutput:
    document = text.json_document
    if document is None:
        text.refuse_incomplete("and is not one whole JSON document")
    statistics = document.get("statistics")
    if not isinstance(statistics, dict) or not statistics:
        text.refuse_incomplete("and its JSON document has no statistics")
    rank = _RankOutput()
    for name, entry in statistics.items():
        value: Any = entry.get("value") if isinstance(entry, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
            text.refuse_line(1, f"the statistic {name!r} of the JSON document has no number")
        rank.statistics[name] = float(value)
    return _ProgramOutput(ranks={0: rank}, units={name: _unit_of_statistic(name) for name in rank.statistics}, first=1)


def _unit_of_statistic(name: str) -> str | None:
    """The unit of a statistic by its name, as JSON has no units: bytes, seconds, or None if the name does not say."""
    if name.endswith(("-bytes", "-payload-send", "-payload-recv")):
        return _BYTES
    return _SECONDS if name.endswith(("-time", "-delay")) or name.startswith("event-loop-") else None
