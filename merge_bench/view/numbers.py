"""Numbers as people read them, in the unit that the heading names; an unknown number is `NULL`."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.units import GIB, MIB

NULL = "-"
_FORMS = ((1000, ",.0f"), (1, ".2f"), (0.1, ".3f"), (0.001, ".4f"))
"""How a number is written from a size on."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti")


def number(value: float | None) -> str:
    """With three digits or more, never with an exponent: ``1,234``, ``12.37``, ``0.371``, ``0.0123``."""
    if value is None:
        return NULL
    size = abs(value) or 1.0
    return format(value, next((form for least, form in _FORMS if size >= least), ".7f"))


def gib(value: float | None) -> str:
    """Bytes, or bytes per second, in GiB."""
    return number(None if value is None else value / GIB)


def mib(value: float | None) -> str:
    """Bytes in MiB."""
    return number(None if value is None else value / MIB)


def ms(value: float | None) -> str:
    """Seconds in milliseconds."""
    return number(None if value is None else value * 1e3)


def rows(value: float | None) -> str:
    """A count of rows."""
    return NULL if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """``1.083``, ``0.0123``, ``12.3``: four figures from 0.1 to 10."""
    if value is None:
        return NULL
    return f"{value:.3f}" if 0.1 <= value < 10 else f"{value:.3g}"


def ends(low: float | None = None, high: float | None = None) -> str:
    """The interval of a ratio: ``1.412 to 1.553``."""
    return NULL if low is None or high is None else f"{ratio(low)} to {ratio(high)}"


def with_interval(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """A ratio with its interval, if it has one: ``1.471 (1.412 to 1.553)``; `sign` follows the ratio."""
    if value is None:
        return "not measured"
    return f"{ratio(value)}{sign}" + (f" ({ends(low, high)})" if low is not None and high is not None else "")


def cell(value: object) -> str:
    """`value` as a cell of a table."""
    return NULL if value is None else str(value)


def binary(count: float, unit: str = "B") -> str:
    """`count` with a binary prefix: ``32`` → ``32 B``, ``1536`` → ``1.5 KiB``; with `unit` ``""``: ``16 Ki``."""
    step = 0
    while count >= 1024 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.4g} {_BINARY[step]}{unit}".strip()


def thin(count: int, most: int) -> Sequence[int]:
    """Which of `count` items to show: all, or `most` of them, evenly spread, with the first and the last."""
    if count <= most:
        return range(count)
    return [round(at * (count - 1) / max(most - 1, 1)) for at in range(most)]
