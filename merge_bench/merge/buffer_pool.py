"""Buffers that a worker uses again, so that memory is touched once and not in every iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from merge_bench.merge.frame import Bytes

ALIGN = 64  # bytes: a cache line, and what Arrow recommends
BLOCK_BYTES = 64 << 20  # above 32 MiB the C library always gives freed memory back to the system


class BufferPool:
    """One growing buffer, used again in every iteration, because the first touch of memory is slow.

    `take(n)` gives n bytes that stay valid until the next `reset`: of what was lent, then of the buffer, then of new
    blocks. When an iteration needed blocks, the next `reset` makes one buffer in their place and touches every page.
    """

    def __init__(self) -> None:
        self._buffer = np.zeros(0, np.uint8)
        self._used = 0
        self._wanted = 0
        self._block = np.zeros(0, np.uint8)
        self._lent: list[Bytes] = []

    @property
    def kept(self) -> Bytes:
        """The buffer that is kept between iterations, all of it touched; to write to it overwrites what `take` gave."""
        return self._buffer

    def reserve(self, size: int) -> None:
        """Make the buffer `size` bytes long at least, and touch it. What `take` gave before is no longer valid."""
        if size > self._buffer.size:
            self._buffer = np.zeros(0, np.uint8)
            self._buffer = _touched_bytes(size)
        self._used = 0

    def lend(self, rooms: Sequence[Bytes]) -> None:
        """Add runs of bytes, aligned to 64, that are free until the next `reset`; `take` uses them first."""
        self._lent += rooms

    def release(self) -> None:
        """Forget lent memory and new blocks; call it before the `reset` of this pool or of the one that lent it."""
        self._lent, self._block = [], np.zeros(0, np.uint8)
        if self._wanted > self._buffer.size:
            self._buffer = np.zeros(0, np.uint8)

    def reset(self) -> None:
        """Make all bytes available again, and give lent memory back."""
        self.release()
        self.reserve(self._wanted)
        self._wanted = 0

    def take(self, size: int) -> Bytes:
        """`size` bytes, aligned to 64; contents undefined."""
        padded = aligned_size(size)
        for number, room in enumerate(self._lent):
            if padded <= room.size:
                self._lent[number] = room[padded:]
                return room[:size]
        self._wanted += padded
        if self._used + padded <= self._buffer.size:
            self._used += padded
            return self._buffer[self._used - padded :][:size]
        if padded > self._block.size:
            self._block = aligned_bytes(max(padded, BLOCK_BYTES))
        view, self._block = self._block[:size], self._block[padded:]
        return view


def aligned_size(size: int) -> int:
    """`size` bytes rounded up to a multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


def _touched_bytes(size: int) -> Bytes:
    view = aligned_bytes(size)
    view[::4096] = 0
    return view


def aligned_bytes(size: int) -> Bytes:
    """`size` new bytes, aligned to 64; contents undefined."""
    raw = np.empty(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size]
