"""Numbers as cudf-merge prints them, with the bounds that the printing leaves.

It prints with Dask's ``format_time`` and ``format_bytes``, or, without Dask, with functions of its own that look alike.
"""

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
_SLACK = 1e-9
"""Share of a bound that floating-point arithmetic may cost."""


@dataclass(frozen=True)
class Printed:
    """A printed number in SI units; what was printed lay between `low` and `high`, one unit of its last digit apart.

    `line` is where it stands.
    """

    value: float
    low: float
    high: float
    resolution: float
    line: int

    def fits(self, low: float, high: float) -> bool:
        """Whether what was printed can lie between `low` and `high`."""
        return self.low * (1 - _SLACK) <= high and low <= self.high * (1 + _SLACK)


def read_bytes(text: str, line: int) -> Printed:
    """``488.28 MiB`` in bytes.

    Raises
    ------
    ValueError
        If `text` is no size.
    """
    return _rounded(text, line, _SIZES, "size")


def read_rate(text: str, line: int) -> Printed:
    """``1.06 GiB/s`` in bytes per second.

    Raises
    ------
    ValueError
        If `text` is no rate.
    """
    if not text.endswith("/s"):
        raise ValueError(f"{text!r} is not a rate")
    return _rounded(text.removesuffix("/s"), line, _SIZES, "rate")


def read_time(text: str, line: int) -> Printed:
    """``49.16 ms`` in seconds; longer ones, as ``20m 34s``, are cut off, not rounded.

    Raises
    ------
    ValueError
        If `text` is no time.
    """
    long = _LONG_TIME.fullmatch(text)
    if long is None:
        return _rounded(text, line, _TIMES, "time")
    last = {"s": 1, **_LONG}[long[4]]
    if last >= _LONG[long[2]]:
        raise ValueError(f"{text!r} is not a time")
    value = float(int(long[1]) * _LONG[long[2]] + int(long[3]) * last)
    return Printed(value, value, value + last, float(last), line)


def _rounded(text: str, line: int, units: Mapping[str, Decimal], what: str) -> Printed:
    match = _NUMBER.fullmatch(text)
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a {what}")
    value, digit = Decimal(match[1]) * factor, Decimal(10) ** -len(match[2] or "") * factor
    low, high = max(value - digit / 2, Decimal(0)), value + digit / 2
    return Printed(float(value), float(low), float(high), float(digit), line)
