"""Device memory and the stream that works on it, played in host memory so that they fail where real ones do.

What is put on the stream is not done until the stream is drained: allocations, writes and frees take effect in their
order at `synchronize`, while work on the stream itself sees them at once. Whoever else touches memory meanwhile (UCX, a
copy from another stream) reads garbage, or is written over. Freed memory is poisoned and is the next to be given out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.helpers.fake_cuda import Driver

FRESH, FREED = 0xAA, 0xDD  # what never written and what freed memory reads as
ALIGN = 256

Bytes = npt.NDArray[np.uint8]


class Memory:
    """Of one GPU: `limit` is how much can be allocated, `used` and `peak` how much is and was."""

    limit = 2**28
    used = peak = 0
    _whole: Bytes = np.empty(2**28 + ALIGN, np.uint8)
    _base = -(-_whole.ctypes.data // ALIGN) * ALIGN
    _free: tuple[tuple[int, int], ...] = ((0, 2**28),)  # (start, size), in order

    @classmethod
    def take(cls, size: int) -> int:
        """The address of `size` free bytes: the lowest there are, so that what was freed is soon used again."""
        room = -(-size // ALIGN) * ALIGN
        spot = next((place for place in cls._free if place[1] >= room), None)
        if cls.used + size > cls.limit or spot is None:
            raise MemoryError("std::bad_alloc: out_of_memory: RMM failure: Maximum pool size exceeded")
        start, there = spot
        rest = [(start + room, there - room)] if there > room else []
        cls._free = tuple(sorted([*(place for place in cls._free if place != spot), *rest]))
        cls.used += size
        cls.peak = max(cls.peak, cls.used)
        return cls._base + start

    @classmethod
    def give(cls, address: int, size: int) -> None:
        """Take back what `take` gave."""
        room = -(-size // ALIGN) * ALIGN
        joined: list[tuple[int, int]] = []
        for start, length in sorted([*cls._free, (address - cls._base, room)]):
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        cls._free = tuple(joined)
        cls.used -= size


def at(address: int, size: int) -> Bytes:
    """What lies in memory now, for whoever does not wait for the stream."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)) if size else np.empty(0, np.uint8)


class Process:
    """The driver that this process has loaded."""

    driver = Driver()


class Stream:
    """The one stream: writes that are due, in order."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Bytes | int]] = []

    def synchronize(self) -> None:
        """As in rmm: needs a context, and makes none."""
        Process.driver.require_context()
        due, self._due = self._due, []
        for address, size, value in due:
            at(address, size)[:] = value


DEFAULT_STREAM = Stream()


def use(stream: Any) -> None:
    """A call of a library: a context is bound in this thread, and it names the engine's one stream."""
    Process.driver.require_context()
    assert stream is DEFAULT_STREAM, "every call names the engine's one stream"


def is_drained() -> bool:
    """Whether all that libraries have put on the stream is done; frees may be due."""
    return all(isinstance(value, int) for _, _, value in DEFAULT_STREAM._due)


def write(address: int, value: Bytes | int, size: int) -> None:
    """Put a write on the stream."""
    if size:
        DEFAULT_STREAM._due.append((address, size, value))


def read(address: int, size: int) -> Bytes:
    """Memory as work on the stream finds it."""
    found = at(address, size).copy()
    for start, length, value in DEFAULT_STREAM._due:
        low, high = max(address, start), min(address + size, start + length)
        if low < high:
            found[low - address : high - address] = (
                value if isinstance(value, int) else value[low - start : high - start]
            )
    return found


class Block:
    """Memory that is allocated, and freed with this object, both in the stream's order."""

    def __init__(self, size: int, content: Bytes | None = None) -> None:
        self.ptr, self.size = (Memory.take(size) if size else 0), size
        write(self.ptr, FRESH, size)
        if content is not None:
            write(self.ptr, content, size)

    def __del__(self) -> None:
        if getattr(self, "size", 0):
            write(self.ptr, FREED, self.size)
            Memory.give(self.ptr, self.size)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No more than `size` bytes beyond what is in use now."""
    before, Memory.limit = Memory.limit, Memory.used + size
    try:
        yield
    finally:
        Memory.limit = before
