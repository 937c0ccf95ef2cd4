"""Text → value, one function for each kind that an option of ``run`` can have.

Every parser takes the text as written on the command line, in a config or in the environment, and raises ValueError
with one sentence if it is not of its kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from merge_bench.units import parse_bytes, parse_count, parse_duration

Parser = Callable[[str], object]

_TRUE = frozenset({"1", "true", "yes", "on", "y"})
_FALSE = frozenset({"0", "false", "no", "off", "n"})
# The kernel's rule (dev_valid_name) without the characters that would need quoting somewhere.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")


def count(minimum: int) -> Parser:
    """A whole number of at least `minimum`, such as ``25e6``."""

    def parse(text: str) -> int:
        value = parse_count(text)
        if value < minimum:
            raise ValueError(f"{text} is less than {minimum}")
        return value

    return parse


def counts(minimum: int) -> Parser:
    """A whole number of at least `minimum`, or several of them with commas between: a sweep, as a tuple."""
    one = count(minimum)

    def parse(text: str) -> object:
        found = tuple(one(part) for part in text.split(","))
        if len(set(found)) != len(found):
            raise ValueError(f"{text!r} names something twice")
        return found[0] if len(found) == 1 else found

    return parse


def size(text: str) -> int:
    """A number of bytes above 0, such as ``30GB`` or ``28GiB``."""
    value = parse_bytes(text)
    if value <= 0:
        raise ValueError(f"{text} is not above 0")
    return value


def duration(text: str) -> float:
    """Seconds above 0, such as ``15`` or ``500ms``."""
    value = parse_duration(text)
    if not 0 < value < math.inf:
        raise ValueError(f"{text} is not above 0")
    return value


def number(low: float, high: float, *, above: bool = False) -> Parser:
    """A number from `low` to `high`, both included unless `above` (then more than `low`)."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not (low < value if above else low <= value) or not value <= high:
            start = f"above {low:g}" if above else f"from {low:g}"
            raise ValueError(f"{text} is not {start} to {high:g}")
        return value

    return parse


def percent(text: str) -> float:
    """A share below 1 written as ``2%``: 0.02."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", text)
    share = float(match[1]) / 100.0 if match else 1.0
    if share >= 1.0:
        raise ValueError(f"{text!r} is no share below 100 %: write it like 2%")
    return share


def word(text: str) -> str:
    """A name in any case; which there are is not known here."""
    return text.strip().lower()


def choice(*allowed: str) -> Parser:
    """One of `allowed`, in any case."""

    def parse(text: str) -> str:
        value = word(text)
        if value not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return value

    return parse


def names(text: str) -> tuple[str, ...]:
    """One or several names, separated by commas."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError(f"{text!r} holds an empty name; write a name, or several as a,b")
    if len(set(parts)) != len(parts):
        raise ValueError(f"{text!r} names something twice")
    return parts


def choices(*allowed: str) -> Parser:
    """One or several of `allowed`, with commas between."""
    one = choice(*allowed)

    def parse(text: str) -> tuple[object, ...]:
        return tuple(one(name) for name in names(text))

    return parse


def text(value: str) -> str:
    """Any text that is not empty."""
    if not value.strip():
        raise ValueError("it is empty")
    return value


def interface(value: str) -> str:
    """The name of a network interface, such as ``eth0``."""
    if not _INTERFACE.fullmatch(value):
        raise ValueError(f"{value!r} is not a valid name of a network interface")
    return value


def switch(text: str) -> bool:
    """``y``/``n``, ``1``/``0``, ``true``/``false``, ``yes``/``no``, ``on``/``off``."""
    value = text.strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


def skew(text: str) -> float:
    """``zipf:1.2`` → 1.2, the exponent of the keys' Zipf distribution; ``none`` → 0.0."""
    value = text.strip().lower()
    if value == "none":
        return 0.0
    if not value.startswith("zipf:"):
        raise ValueError(f"{text!r} is neither none nor zipf:S, such as zipf:1.2")
    exponent = number(0, 10, above=True)(value.removeprefix("zipf:"))
    assert isinstance(exponent, float)
    return exponent
