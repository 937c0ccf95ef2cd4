"""Numbers as people read them, in the unit that the heading names; an unknown number is `NULL`."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.units import GIB, MIB

NULL = "-"
_FORMS = ((1000, ",.0f"), (1, ".2f"), (0.1, ".3f"), (0.001, ".4f"))
"""Formats of numbers: each for numbers from its first entry on."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti")


def number(value: float | None) -> str:
    """`value` with three digits or more and no exponent: ``1,234``, ``12.37``, ``0.371``, ``0.0123``."""
    if value is None:
        return NULL
    size = abs(value) or 1.0
    return format(value, next((form for least, form in _FORMS if size >= least), ".7f"))


def gib(value: float | None) -> str:
    """A `value` in bytes, or bytes per second, as text in GiB, or GiB/s."""
    return number(None if value is None else value / GIB)


def mib(value: float | None) -> str:
    """A `value` in bytes as text in MiB."""
    return number(None if value is None else value / MIB)


def ms(value: float | None) -> str:
    """A `value` in seconds as text in milliseconds."""
    return number(None if value is None else value * 1e3)


def rows(value: float | None) -> str:
    """A number of rows as text: ``25,000,000``."""
    return NULL if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """A ratio as text: ``1.083``, ``0.0123``, ``12.3``; with three decimals from 0.1 to 10."""
    if value is None:
        return NULL
    return f"{value:.3f}" if 0.1 <= value < 10 else f"{value:.3g}"


def ends(low: float | None = None, high: float | None = None) -> str:
    """The interval of a ratio as text: ``1.412 to 1.553``."""
    return NULL if low is None or high is None else f"{ratio(low)} to {ratio(high)}"


def with_interval(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """A ratio with its interval, if it has one: ``1.471 (1.412 to 1.553)``; `sign` follows the ratio."""
    if value is None:
        return "not measured"
    return f"{ratio(value)}{sign}" + (f" ({ends(low, high)})" if low is not None and high is not None else "")


def cell(value: object) -> str:
    """`value` as the text of a table's cell; ``-`` for None."""
    return NULL if value is None else str(value)


def binary(count: float, unit: str = "B") -> str:
    """`count` with a binary prefix: ``32`` → ``32 B``, ``1536`` → ``1.5 KiB``; with `unit` ``""``: ``16 Ki``."""
    step = 0
    while count >= 1024 and step < len(_BINARY) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.4g} {_BINARY[step]}{unit}".strip()


def thin(count: int, most: int) -> Sequence[int]:
    """The indexes of the items to show of `count`: all, or `most` of them, evenly spread, with both ends."""
    if count <= most:
        return range(count)
    return [round(at * (count - 1) / max(most - 1, 1)) for at in range(most)]
