"""Message sizes as people write them: ``8,65536``, ``1..4M`` (doubling) or ``1K..100K+1K`` (in steps)."""

from __future__ import annotations

from collections.abc import Iterator

from merge_bench.units import parse_bytes

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
    found: set[int] = set()
    for part in text.split(","):
        for size in _expand(part.strip()):
            if not 1 <= size <= LARGEST:
                raise ValueError(f"{size} is not a message size: they go from 1 byte to 16 GiB")
            found.add(size)
            if len(found) > MOST:
                raise ValueError(f"{text!r} is more than {MOST:,} sizes")
    return tuple(sorted(found))


def _expand(part: str) -> Iterator[int]:
    first, dots, rest = part.partition("..")
    if not dots:
        yield parse_bytes(part)
        return
    last, plus, step = rest.partition("+")
    size, end = parse_bytes(first), parse_bytes(last)
    if size < 1 or end < size:
        raise ValueError(f"{part!r} is no range of sizes; write it like 1..4M or 1K..100K+1K")
    stride = parse_bytes(step) if plus else 0
    if plus and stride < 1:
        raise ValueError(f"{part!r} goes nowhere: its step is {step}")
    while size <= end:
        yield size
        size = size + stride if plus else size * 2
