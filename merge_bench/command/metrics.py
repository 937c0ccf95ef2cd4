"""Metrics and checks of a command: from the texts of options to numbers in its output.

A metric is found by a regular expression (``re:``) or a path in JSON (``json:``), in what the command printed or in a
file that it wrote. Every number has to be above 0, because configs are compared by ratios.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.command.presets import Preset, find_preset, preset_names
from merge_bench.config.parsers import suggest_similar_names
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.records.recorded_plan import WALL, CommandMetric

CHECK_FAILED, METRIC_MISSING = "check-failed", "metric-missing"
MORE, LESS = "more", "less"
PICKS: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "median": statistics.median,
    "min": min,
    "max": max,
}
RE, JSON, COMMAND = "re:", "json:", "command:"
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*")
_NAMED = re.compile(rf"({_NAME.pattern})=(.*)", re.DOTALL)
_PATH_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_SHOWN_CHARACTERS = 60
_BYTES = {"B": 1.0} | {
    f"{letter}{binary}B": float(base**power)
    for binary, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("kMGT", 1)
}
_UNITS: tuple[dict[str, float], ...] = (
    _BYTES | {"KB": 1e3, "KiB": 1024.0},
    {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "usec": 1e-6, "ns": 1e-9, "min": 60.0},
)
"""Units by kind, each with its value in the kind's base unit; of rates without ``/s``."""
_TIMES = frozenset(_UNITS[1])


@dataclass(frozen=True)
class CommandOutput:
    """The text that a launch of a command left: standard output and error, and its metric file, None without one."""

    out: str
    err: str = ""
    metric_file: str | None = None

    @property
    def searched_texts(self) -> tuple[str, ...]:
        """The texts in which metrics are looked for; the first one that has any counts."""
        return (self.out, self.err) if self.metric_file is None else (self.metric_file,)


def clean_output(text: bytes) -> str:
    """Decode what a program printed: without colours, and each state of a progress bar as a line."""
    return _COLOUR.sub("", text.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")


# -- from options to metrics


@dataclass(frozen=True)
class MetricOptions:
    """The options of metrics as they were typed, each perhaps several times."""

    metrics: Sequence[str] = ()
    preset: str | None = None
    units: Sequence[str] = ()
    better: Sequence[str] = ()
    picks: Sequence[str] = ()


def make_metrics(options: MetricOptions, command_line: str) -> list[CommandMetric]:
    """Make the metrics of a command, the main one first; the wall-clock is the last one, or the only one.

    `command_line`: the command as one line, by which a preset chooses its metrics. Raises UsageError.
    """
    metrics = [_parse_metric(text, command_line) for text in options.metrics]
    if options.preset is not None:
        metrics += _find_named_preset(options.preset, "--preset").metrics_of(command_line)
    names = [metric.name for metric in metrics]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--metric: two metrics have the name {repeated}; give each a name of its own")
    units = _values_by_name("--unit", options.units, names)
    better = _values_by_name("--better", options.better, names)
    picks = _values_by_name("--pick", options.picks, names)
    _refuse_other_words("--better", better, (MORE, LESS))
    _refuse_other_words("--pick", picks, tuple(PICKS))
    recorded = []
    for metric in metrics:
        unit = units.get(metric.name, metric.unit)
        direction = better.get(metric.name, metric.better or _direction_of_unit(unit))
        if not direction:
            use = f"add --better {metric.name}=more or --better {metric.name}=less"
            raise UsageError(f"--metric {metric.name}: it is not known whether more or less of it is better; {use}")
        pick = picks.get(metric.name, metric.pick)
        recorded.append(CommandMetric(name=metric.name, unit=unit, better=direction, source=metric.source, pick=pick))
    return [*recorded, CommandMetric(name=WALL, unit="s", better=LESS)]


def _parse_metric(text: str, command_line: str) -> CommandMetric:
    """Parse a value of ``--metric``; its direction is empty where only its unit can tell. Raises UsageError."""
    named = None if text.startswith((RE, JSON)) else _NAMED.fullmatch(text)
    name, source = (named[1], named[2]) if named else ("", text)
    if source.startswith(RE):
        _compile_expression(source, f"--metric {text}")
    elif source.startswith(JSON):
        parts = parse_json_path(source.removeprefix(JSON))
        name = name or next((str(part) for part in reversed(parts) if isinstance(part, str) and part != "*"), "")
    else:
        if named is None:
            how = "write NAME=re:REGEX, NAME=json:PATH or NAME=PRESET"
            raise UsageError(f"--metric {text}: {how}, with a preset of {', '.join(preset_names())}")
        first = _find_named_preset(source, "--metric").metrics_of(command_line)[0]
        return CommandMetric(name=name, unit=first.unit, better=first.better, source=first.source, pick=first.pick)
    if not _NAME.fullmatch(name):
        raise UsageError(f"--metric {text}: give it a name, such as --metric speed={source}")
    if name == WALL:
        raise UsageError(f"--metric {text}: {WALL} is the wall-clock, which is always measured; choose another name")
    return CommandMetric(name=name, better="", source=source)


def _find_named_preset(name: str, option: str) -> Preset:
    preset = find_preset(name)
    if preset is None:
        hint = suggest_similar_names(name, preset_names()) or f"; choose one of {', '.join(preset_names())}"
        raise UsageError(f"{option} {name}: there is no such preset{hint}")
    return preset


def _values_by_name(option: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The values of an option by the name of their metric; without a name a value is that of the only metric."""
    values: dict[str, str] = {}
    for text in texts:
        named = _NAMED.fullmatch(text)
        name, value = (named[1], named[2]) if named else (names[0] if len(names) == 1 else "", text)
        if name not in names:
            which = f"there is no metric {name}" if name else f"name its metric, as {option} NAME={value}"
            raise UsageError(f"{option} {text}: {which}" if names else f"{option} {text} needs --metric or --preset")
        values[name] = value
    return values


def _refuse_other_words(option: str, values: dict[str, str], allowed: Sequence[str]) -> None:
    for name, value in values.items():
        if value not in allowed:
            raise UsageError(f"{option} {name}={value}: choose one of {', '.join(allowed)}")


def _direction_of_unit(unit: str | None) -> str:
    """``less`` for a time, ``more`` for a rate; empty for other units, which do not tell."""
    if unit in _TIMES:
        return LESS
    return MORE if unit is not None and unit.endswith(("/s", "/sec", "ps")) else ""


def _compile_expression(source: str, where: str) -> re.Pattern[str]:
    """Compile the regular expression of ``re:…``; raises UsageError, which begins with `where`."""
    try:
        return re.compile(source.removeprefix(RE), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: the regular expression is wrong: {error}") from None


def parse_json_path(path: str) -> list[str | int]:
    """Parse a path such as ``runs[0].rate`` or ``runs[*].rate`` to its keys and indexes; raises UsageError."""
    parts: list[str | int] = []
    position = 0
    while position < len(path):
        match = _PATH_PART.match(path, position)
        if match is None:
            break
        parts.append(match[1] if match[2] is None else "*" if match[2] == "*" else int(match[2]))
        position = match.end()
    if not parts or position < len(path):
        raise UsageError(f"--metric json:{path}: write a path such as summary.rate, runs[0].rate or runs[*].rate")
    return parts


# -- checks


def parse_check(text: str) -> None:
    """Refuse a value of ``--check`` that is neither ``re:…`` nor ``command: …``; raises UsageError."""
    if text.startswith(RE):
        _compile_expression(text, f"--check {text}")
    elif not text.startswith(COMMAND) or not check_words(text):
        raise UsageError(f"--check {text}: write re:REGEX, or command: PROGRAM ARGUMENT…")


def check_words(check: str) -> list[str]:
    """The words of a check ``command: …``, as a shell splits them; raises UsageError if a quotation does not end."""
    try:
        return shlex.split(check.removeprefix(COMMAND))
    except ValueError as error:
        raise UsageError(f"--check {check}: {str(error).lower()}") from None


def check_printed_text(check: str, output: CommandOutput) -> None:
    """Raise LaunchFailed if the expression of a check ``re:…`` is not in what the command printed."""
    expression = _compile_expression(check, "--check")
    if not any(expression.search(text) for text in (output.out, output.err)):
        message = f"the check {check} failed: nothing that the command printed matches"
        raise LaunchFailed(message, code=CHECK_FAILED)


# -- from output to numbers


def find_metric_value(metric: CommandMetric, output: CommandOutput) -> float:
    """The value of a metric in what a launch left, in the metric's unit.

    Raises LaunchFailed, with the code ``metric-missing``, if there is none, or it is no number above 0.
    """
    source = metric.source or ""
    find = _find_by_expression if source.startswith(RE) else _find_by_path
    numbers: list[float] = []
    for text in output.searched_texts:
        numbers = list(find(metric, source, text))
        if numbers:
            break
    where = "what the command printed" if output.metric_file is None else "the metric file"
    if not numbers:
        raise LaunchFailed(f"metric {metric.name}: nothing in {where} matches {source}", code=METRIC_MISSING)
    value = PICKS[metric.pick](numbers)
    if not (math.isfinite(value) and value > 0.0):
        what = f"metric {metric.name} is {value:g} in {where}, and only numbers above 0 can be compared"
        raise LaunchFailed(what, code=METRIC_MISSING)
    return value


def _find_by_expression(metric: CommandMetric, source: str, text: str) -> Iterator[float]:
    """The numbers that a regular expression finds: its group ``value``, else its first group, else all of the match."""
    expression = _compile_expression(source, "--metric")
    for match in expression.finditer(text):
        named = match.groupdict()
        number = named.get("value") or (match[1] if expression.groups else match[0])
        if number is not None:
            yield _parse_number(metric, number) * _unit_factor(metric, named.get("unit"))


def _find_by_path(metric: CommandMetric, source: str, text: str) -> Iterator[float]:
    """The numbers at a path, in a text that is JSON as a whole, or else in each of its lines that are."""
    parts = parse_json_path(source.removeprefix(JSON))
    for document in _json_documents(text):
        for value in _values_at_path(document, parts):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                yield _parse_number(metric, str(value))


def _json_documents(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except ValueError:
        for line in text.splitlines():
            if line.lstrip().startswith(("{", "[")):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _values_at_path(document: Any, parts: Sequence[str | int]) -> Iterator[Any]:
    if not parts:
        yield document
        return
    part, rest = parts[0], parts[1:]
    if part == "*" and isinstance(document, list | dict):
        for member in document.values() if isinstance(document, dict) else document:
            yield from _values_at_path(member, rest)
    elif isinstance(document, list):
        if isinstance(part, int) and part < len(document):
            yield from _values_at_path(document[part], rest)
    elif isinstance(document, dict) and part in document:
        yield from _values_at_path(document[part], rest)


def _parse_number(metric: CommandMetric, text: str) -> float:
    """Parse a number as programs print it, also with commas between thousands; raises LaunchFailed."""
    plain = text.replace(",", "") if _THOUSANDS.fullmatch(text.strip()) else text
    try:
        return float(plain)
    except ValueError:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise LaunchFailed(f"metric {metric.name}: {shown!r} is not a number", code=METRIC_MISSING) from None


def _unit_factor(metric: CommandMetric, printed: str | None) -> float:
    """The factor from the unit that was printed beside a number to that of the metric; raises LaunchFailed."""
    if printed is None or metric.unit is None or printed == metric.unit:
        return 1.0
    rate = printed.endswith("/s") and metric.unit.endswith("/s")
    printed_unit, wanted = (unit.removesuffix("/s") if rate else unit for unit in (printed, metric.unit))
    for units in _UNITS:
        if printed_unit in units and wanted in units:
            return units[printed_unit] / units[wanted]
    raise LaunchFailed(f"metric {metric.name}: it is printed in {printed}, not in {metric.unit}", code=METRIC_MISSING)
