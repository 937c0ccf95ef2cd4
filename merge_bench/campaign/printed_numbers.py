"""Numbers with units as other programs print them, with the range of exact values that are printed so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

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
