"""Reads and prints numbers as people write them.

Records hold SI seconds and bytes; people see GiB/s and ms, with the unit in every heading.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

_COUNT_SUFFIX = {"": 1, "b": 10**9}
_BYTE_SUFFIX = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    _COUNT_SUFFIX |= {_letter: 1000**_power, f"{_letter}i": 1024**_power}
    _BYTE_SUFFIX |= {f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power, _letter: 1024**_power}
_NUMBER = re.compile(r"([+-]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)")

_RATE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*((?:[kKMGT]i?)?)(B/s|bit/s|b/s|bps)")

GIB, MIB = 1024**3, 1024**2


def _parse_whole_number(text: str, suffixes: dict[str, int], quantity: str, example: str) -> int:
    """Read a whole number with a suffix that multiplies it; `quantity`, `example`: for the message of a ValueError."""
    match = _NUMBER.fullmatch(text.strip())
    factor = suffixes.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {quantity}; write it like {example}")
    try:
        value = Decimal(match[1].replace("_", "")) * factor
    except InvalidOperation:
        raise ValueError(f"{text!r} is not {quantity}; write it like {example}") from None
    if value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number")
    if abs(value) >= 2**63:
        raise ValueError(f"{text!r} is too large")
    return int(value)


def parse_count(text: str) -> int:
    """Read a count such as ``25e6``, ``1_000_000``, ``25M`` (powers of 1000) or ``16Ki`` (powers of 1024).

    Raises ValueError, with one sentence, if `text` is not a whole number in one of these forms.
    """
    return _parse_whole_number(text, _COUNT_SUFFIX, "a count", "25e6, 1_000_000 or 25M")


def parse_bytes(text: str) -> int:
    """Read a size such as ``30GB`` (powers of 1000), ``28GiB`` or ``64k`` (powers of 1024, as UCX does).

    Raises ValueError, with one sentence, if `text` is not a whole number of bytes in one of these forms.
    """
    return _parse_whole_number(text, _BYTE_SUFFIX, "a size", "30GB, 28GiB or 64k")


def parse_rate(text: str) -> float:
    """Read a rate in bytes per second: ``12.5GB/s``, ``1.5GiB/s``, or in bits: ``100Gbit/s``, ``100Gb/s``, ``100Gbps``.

    Raises ValueError, with one sentence, for other forms; without a unit, or in small letters alone, it could be bits
    or bytes.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not math.isfinite(float(match[1])):
        raise ValueError(f"{text!r} is not a rate; write it like 12.5GB/s (bytes) or 100Gbit/s (bits)")
    value = float(match[1]) * _BYTE_SUFFIX[f"{match[2]}b".lower()]  # prefixes are the same for bits
    return value if match[3] == "B/s" else value / 8


def parse_duration(text: str) -> float:
    """Read a duration in seconds: ``15``, ``0.5``, ``2s``, ``500ms``, ``5m``, ``1h`` or ``MM:SS`` / ``HH:MM:SS``."""
    clean = text.strip().lower()
    if re.fullmatch(r"\d+(:[0-5]?\d){1,2}", clean):
        seconds = 0
        for part in clean.split(":"):
            seconds = seconds * 60 + int(part)
        return float(seconds)
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?", clean)
    if not match:
        raise ValueError(f"{text!r} is not a duration; write it like 15, 500ms, 2s, 5m or 10:00")
    factor = {None: 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0}[match[2]]
    return float(match[1]) * factor


def format_bytes(count: float) -> str:
    """Write bytes with a binary unit: ``1073741824`` → ``1.00 GiB``."""
    if math.isnan(count):
        return "-"
    *units, largest = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    for unit in units:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} {largest}"


def format_rate(bytes_per_second: float | None) -> str:
    """Write bytes per second with a binary unit: ``1073741824`` → ``1.00 GiB/s``; ``None`` → ``-``."""
    return "-" if bytes_per_second is None else format_bytes(bytes_per_second) + "/s"


def format_seconds(seconds: float | None) -> str:
    """Write seconds with a unit that fits: ``0.0123`` → ``12.30 ms``; ``None`` → ``-``."""
    if seconds is None or math.isnan(seconds):
        return "-"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds:.2f} s"


def format_duration(seconds: float) -> str:
    """Write seconds in words, for estimates: ``45 seconds``, ``6 minutes``, ``1.5 hours``."""
    if round(seconds) < 90:
        return count_with_noun(max(round(seconds), 1), "second")
    minutes = seconds / 60
    if round(minutes) < 90:
        return f"{minutes:.0f} minutes" if minutes >= 9.5 or round(minutes * 2) % 2 == 0 else f"{minutes:.1f} minutes"
    return f"{minutes / 60:.1f} hours"


def format_limit(seconds: float) -> str:
    """Write a time limit in words, not rounded: ``0.3 seconds``, ``90 seconds``, ``10 minutes``, ``2.5 hours``."""
    units = ((3600.0, "hour"), (60.0, "minute"))
    fitting = (each for each in units if seconds >= 2 * each[0] and (10 * seconds / each[0]).is_integer())
    size, unit = next(fitting, (1.0, "second"))
    return f"{seconds / size:.6g} {plural_noun(1 if seconds == size else 2, unit)}"


def count_with_noun(count: int, noun: str) -> str:
    """The number with its noun: ``1 launch``, ``2 launches``, ``1,000 launches``."""
    return f"{count:,} {plural_noun(count, noun)}"


def plural_noun(count: int, noun: str) -> str:
    """The noun without the number, in the plural unless `count` is 1: ``launches``."""
    if count == 1:
        return noun
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def format_count(count: int) -> str:
    """Write a count with separators: ``25000000`` → ``25,000,000``."""
    return f"{count:,}"
