"""Lists of names in options, and of sizes and counts (``8,65536``, doubling ``1..4M``, in steps ``1K..100K+1K``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from merge_bench.errors import UsageError
from merge_bench.units import parse_bytes, parse_count

LARGEST = 1 << 34
MOST = 10_000


def parse_names(option: str, text: str, allowed: Collection[str]) -> tuple[str, ...]:
    """The names in the value `text` of an option, without repeats.

    Raises UsageError if there is none, or one is not `allowed`.
    """
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise UsageError(f"{option} {text}: {', '.join(unknown)!r} is not one of {', '.join(allowed)}")
    return names


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes in bytes that the value of ``--sizes`` lists, ascending and without repeats.

    A part of the list is a size (``65536``, ``64k``), ``FIRST..LAST`` (doubling) or ``FIRST..LAST+STEP``. Raises
    UsageError if `text` has another form, or a value that is out of range.
    """
    return _parse_numbers("--sizes", text, parse_bytes, "1 byte to 16 GiB")


def parse_counts(text: str) -> tuple[int, ...]:
    """The numbers of elements that ``--counts`` lists, such as ``16Ki..128Mi`` or ``1e6,3e6``; raises UsageError."""
    return _parse_numbers("--counts", text, parse_count, "1 to 16Gi")


def _parse_numbers(option: str, text: str, read: Callable[[str], int], limits: str) -> tuple[int, ...]:
    values: set[int] = set()
    try:
        for part in text.split(","):
            for value in _expand_range(part.strip(), read):
                if not 1 <= value <= LARGEST:
                    raise ValueError(f"{value} is out of range ({limits})")
                values.add(value)
                if len(values) > MOST:
                    raise ValueError(f"the list has more than {MOST:,} values")
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    return tuple(sorted(values))


def _expand_range(part: str, read: Callable[[str], int]) -> Iterator[int]:
    first, dots, rest = part.partition("..")
    if not dots:
        yield read(part)
        return
    last, plus, step = rest.partition("+")
    value, end, stride = read(first), read(last), read(step) if plus else 0
    if value < 1 or end < value or (plus and stride < 1):
        raise ValueError(f"{part!r} is not a valid range; write 1..4M (doubling) or 1K..100K+1K (steps of 1K)")
    while value <= end:
        yield value
        value = value + stride if plus else value * 2
