"""Device memory and the streams that work on it, played in host memory so that they fail where real ones do.

What is put on a stream is not done until the stream is drained: allocations, writes and frees take effect in their
order at `synchronize`, while work on the same stream sees them at once. Whoever else touches memory meanwhile (UCX, a
copy from another stream) reads garbage, or is written over. Freed memory is poisoned and is the next to be given out.

`counts` has how often streams were waited for, and which functions of the libraries were called.
"""

from __future__ import annotations

import ctypes
import enum
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.helpers.fake_cuda import Driver

FRESH, FREED = 0xAA, 0xDD  # what never written and what freed memory reads as
ALIGN = 256
WAIT = "synchronize"  # our own waits
RELEASE = "release on the default stream"  # a wait of RMM's: see `hand_over`
ON_DEFAULT = "call on the default stream"

Bytes = npt.NDArray[np.uint8]
counts: Counter[str] = Counter()


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
    """What lies in memory now, for whoever waits for no stream."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)) if size else np.empty(0, np.uint8)


class CudaStreamFlags(enum.IntEnum):
    SYNC_DEFAULT = 0
    NON_BLOCKING = 1


class Stream:
    """As in rmm: a new one needs a context in its thread, and so does every wait; neither makes one."""

    def __init__(self, obj: Any = None, flags: Any = CudaStreamFlags.SYNC_DEFAULT) -> None:
        Process.driver.require_context()
        assert obj is None, "streams of other libraries are not played"
        self.flags = flags

    def synchronize(self) -> None:
        counts[WAIT] += 1
        _drain(self)


DEFAULT_STREAM = Stream.__new__(Stream)
_due: list[tuple[Stream, int, int, Bytes | int]] = []  # writes that are still to be done, in order


class Process:
    """The driver that this process has loaded, and the stream of the library call that is being made."""

    driver = Driver()
    stream = DEFAULT_STREAM


def forget() -> None:
    """Leave nothing on any stream, and nothing counted."""
    _due.clear()
    counts.clear()


def _drain(stream: Stream) -> None:
    Process.driver.require_context()
    _do([due for due in _due if due[0] is stream])


def _do(chosen: list[tuple[Stream, int, int, Bytes | int]]) -> None:
    for due in chosen:
        _, address, size, value = due
        at(address, size)[:] = value
    done = set(map(id, chosen))
    _due[:] = [due for due in _due if id(due) not in done]


def use(stream: Any, call: str = "") -> Stream:
    """A call of a library: a context is bound in this thread; without a stream it is the default one."""
    Process.driver.require_context()
    Process.stream = DEFAULT_STREAM if stream is None else stream
    assert isinstance(Process.stream, Stream)
    if call:
        counts[call] += 1
    counts[ON_DEFAULT] += Process.stream is DEFAULT_STREAM
    return Process.stream


def hand_over(stream: Stream) -> None:
    """Libcudf gives a buffer to Python: RMM's `DeviceBuffer` waits for the stream if it is the default one."""
    if stream is DEFAULT_STREAM:
        counts[RELEASE] += 1
        _drain(stream)


def is_drained() -> bool:
    """Whether all that libraries have put on streams is done; frees may be due."""
    return all(isinstance(value, int) for _, _, _, value in _due)


def write(address: int, value: Bytes | int, size: int, stream: Stream) -> None:
    """Put a write on a stream."""
    if size:
        _due.append((stream, address, size, value))


def read(address: int, size: int) -> Bytes:
    """Memory as work on the stream of the present call finds it."""
    found = at(address, size).copy()
    for stream, start, length, value in _due:
        low, high = max(address, start), min(address + size, start + length)
        if stream is Process.stream and low < high:
            found[low - address : high - address] = (
                value if isinstance(value, int) else value[low - start : high - start]
            )
    return found


class Block:
    """Memory that is allocated, and freed with this object, both in the order of one stream.

    Memory that was freed on another stream is there only when that stream has come so far: the pool sees to that.
    """

    def __init__(self, size: int, stream: Stream, content: Bytes | None = None) -> None:
        self.ptr, self.size, self.stream = (Memory.take(size) if size else 0), size, stream
        _do([due for due in _due if due[0] is not stream and due[1] < self.ptr + size and self.ptr < due[1] + due[2]])
        write(self.ptr, FRESH, size, stream)
        if content is not None:
            write(self.ptr, content, size, stream)

    def __del__(self) -> None:
        if getattr(self, "size", 0):
            write(self.ptr, FREED, self.size, self.stream)
            Memory.give(self.ptr, self.size)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No more than `size` bytes beyond what is in use now."""
    before, Memory.limit = Memory.limit, Memory.used + size
    try:
        yield
    finally:
        Memory.limit = before
