"""Message sizes as people write them: ``8,65536``, ``1..4M`` (doubling) or ``1K..100K+1K`` (in steps); counts, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from merge_bench.errors import UsageError
from merge_bench.units import parse_bytes, parse_count

LARGEST = 1 << 34
MOST = 10_000


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read a list of sizes in bytes, ascending and without repeats.

    A part is a size (``65536``, ``64k``), ``FIRST..LAST`` (each twice the one before) or ``FIRST..LAST+STEP``.

    Raises
    ------
    ValueError
        With one sentence.
    """
    return _parse(text, parse_bytes, "message sizes", "1 byte to 16 GiB")


def parse_counts(text: str) -> tuple[int, ...]:
    """Read a list of numbers of elements in the same way: ``16Ki..128Mi``, ``1e6,3e6``.

    Raises
    ------
    ValueError
        With one sentence.
    """
    return _parse(text, parse_count, "numbers of elements", "1 to 16Gi")


def _parse(text: str, read: Callable[[str], int], what: str, limits: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        for size in _expand(part.strip(), read, what):
            if not 1 <= size <= LARGEST:
                raise ValueError(f"{size} is not among the {what}: they go from {limits}")
            found.add(size)
            if len(found) > MOST:
                raise ValueError(f"{text!r} is more than {MOST:,} {what}")
    return tuple(sorted(found))


def _expand(part: str, read: Callable[[str], int], what: str) -> Iterator[int]:
    first, dots, rest = part.partition("..")
    if not dots:
        yield read(part)
        return
    last, plus, step = rest.partition("+")
    size, end = read(first), read(last)
    if size < 1 or end < size:
        raise ValueError(f"{part!r} is no range of {what}; write it like 1..4M or 1K..100K+1K")
    stride = read(step) if plus else 0
    if plus and stride < 1:
        raise ValueError(f"{part!r} goes nowhere: its step is {step}")
    while size <= end:
        yield size
        size = size + stride if plus else size * 2


def sizes_of(text: str | None, default: str) -> tuple[int, ...]:
    """The sizes of ``--sizes``."""
    try:
        return parse_sizes(text or default)
    except ValueError as error:
        raise UsageError(f"--sizes {text}: {error}") from None
