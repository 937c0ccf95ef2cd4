"""Device memory of the fake driver, and a pool of it that gives out again what was freed, as RMM's does."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import DeviceBytes
from merge_bench.merge.frame import Bytes

ALIGN = 256


def bind() -> None:
    """A context in this thread, before UCX looks for CUDA."""
    gpu_memory.bind_cuda_context()


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_driver(), name)(*arguments)
    assert status == 0, f"{name} gave {status}"


def write(target: DeviceBytes, source: Bytes) -> None:
    """Copy host memory to device memory of the same length."""
    _call("cuMemcpyHtoD_v2", *map(ctypes.c_uint64, (target.ptr, source.ctypes.data, target.size)))


def read(source: DeviceBytes) -> Bytes:
    """What lies in device memory."""
    target = np.empty(source.size, np.uint8)
    _call("cuMemcpyDtoH_v2", *map(ctypes.c_uint64, (target.ctypes.data, source.ptr, source.size)))
    return target


class Block:
    """One allocation of the driver."""

    def __init__(self, size: int) -> None:
        pointer = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.address, self.size = pointer.value, size

    def free(self) -> None:
        """Give the allocation back to the driver."""
        _call("cuMemFree_v2", ctypes.c_uint64(self.address))


class Pool:
    """Cuts blocks into buffers, and makes another block when none has room; freed bytes are soon given out again."""

    def __init__(self, size: int) -> None:
        self.blocks = [Block(size)]
        self._free = [(self.blocks[0].address, size)]

    def take(self, size: int) -> DeviceBytes:
        """A buffer whose bytes return to the pool with the last reference to it."""
        room = -(-size // ALIGN) * ALIGN
        spot = next((each for each in sorted(self._free) if each[1] >= room), None)
        if spot is None:
            block = Block(max(room, self.blocks[0].size))
            self.blocks.append(block)
            spot = (block.address, block.size)
            self._free.append(spot)
        self._free.remove(spot)
        if spot[1] > room:
            self._free.append((spot[0] + room, spot[1] - room))
        return DeviceBytes(spot[0], size, _Buffer(self, spot[0], room))

    def give_back(self, address: int, room: int) -> None:
        self._free.append((address, room))

    def free(self) -> None:
        """Give all blocks back to the driver; nothing of them may be in use."""
        for block in self.blocks:
            block.free()


class _Buffer:
    def __init__(self, pool: Pool, address: int, room: int) -> None:
        self._pool, self._address, self._room = pool, address, room

    def __del__(self) -> None:
        self._pool.give_back(self._address, self._room)
