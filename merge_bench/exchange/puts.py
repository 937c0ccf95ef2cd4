"""One-sided puts over an endpoint of the data plane, through libucp itself: UCXX's Python has none.

The timed loops are compiled and call `ucp_put_nbx`, `ucp_worker_progress` and `ucp_ep_flush_nbx` directly, so that no
interpreter stands between two puts; they run without the GIL and look at a flag, so that they can be ended.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from merge_bench.errors import RunFailed
from merge_bench.exchange.lanes import library_path

_FIELD_LENGTH, _FIELD_FLAGS = 1 << 1, 1 << 2
_ALLOCATE = 1 << 1
_FIELD_ADDRESS = 1 << 0
_OK, _IN_PROGRESS = 0, 1
_FIRST_ERROR = 2**64 - 100  # UCS_STATUS_IS_ERR: a status code in place of a pointer
STOPPED = -1000
"""What a loop returns when it was told to end."""

Loop = Callable[..., int]


class _MapParams(ctypes.Structure):
    """`ucp_mem_map_params_t` of UCX 1.12 and later (public header `ucp/api/ucp.h`)."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64), ("address", ctypes.c_void_p), ("length", ctypes.c_size_t),
        ("flags", ctypes.c_uint), ("prot", ctypes.c_uint), ("memory_type", ctypes.c_int),
        ("exported_memh_buffer", ctypes.c_void_p),
    )  # fmt: skip


class _MemoryAttributes(ctypes.Structure):
    """`ucp_mem_attr_t`, likewise."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64), ("address", ctypes.c_void_p), ("length", ctypes.c_size_t),
        ("mem_type", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Memory that others may put into: where it is, and the packed key that lets them."""

    address: int
    length: int
    key: bytes


class Memory:
    """Memory that UCX allocated and registered, as ``ucx_perftest`` has it: so transports may choose its kind."""

    def __init__(self, context: int, length: int) -> None:
        self._library = _libucp()
        self._context, self.length = ctypes.c_void_p(context), length
        self._handle = ctypes.c_void_p()
        params = _MapParams(field_mask=_FIELD_LENGTH | _FIELD_FLAGS, length=length, flags=_ALLOCATE)
        self._call("ucp_mem_map", self._context, ctypes.byref(params), ctypes.byref(self._handle))
        attributes = _MemoryAttributes(field_mask=_FIELD_ADDRESS)
        try:
            self._call("ucp_mem_query", self._handle, ctypes.byref(attributes))
        except RunFailed:
            self.free()
            raise
        self.address = int(attributes.address)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The memory itself."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.length).from_address(self.address))

    def window(self) -> Window:
        """What a peer needs to put into it."""
        packed, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("ucp_rkey_pack", self._context, self._handle, ctypes.byref(packed), ctypes.byref(size))
        try:
            key = ctypes.string_at(packed, size.value) if packed.value else b""
        finally:
            self._library.ucp_rkey_buffer_release(packed)
        return Window(self.address, self.length, key)

    def free(self) -> None:
        """Give it back; no put may be under way."""
        self._call("ucp_mem_unmap", self._context, self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        status = _status(self._library, name)(*arguments)
        if status != _OK:
            raise RunFailed(f"UCX refused {name} of {self.length} bytes with status {status}")


@dataclass(frozen=True)
class Loops:
    """The compiled loops for the libucp that this process has loaded.

    `together(worker, endpoint, local, size, remote, key, count, parameters, stop)` posts `count` puts and flushes once;
    `apart` (same arguments) flushes after each; `spin(worker, rounds, stop)` drives progress. 0 is success, a negative
    number UCX's error, `STOPPED` that the flag in `stop` was set.
    """

    together: Loop
    apart: Loop
    spin: Loop


def unpack_key(endpoint: int, key: bytes) -> int:
    """The remote key for an endpoint from its packed form, as an integer; `drop_key` gives it back."""
    found = ctypes.c_void_p()
    status = _status(_libucp(), "ucp_ep_rkey_unpack")(ctypes.c_void_p(endpoint), key, ctypes.byref(found))
    if status != _OK or not found.value:
        raise RunFailed(f"UCX refused a peer's memory with status {status}")
    return int(found.value)


def drop_key(key: int) -> None:
    """Give a key back; no put may be under way."""
    _libucp().ucp_rkey_destroy(ctypes.c_void_p(key))


def parameters() -> npt.NDArray[np.uint8]:
    """An `ucp_request_param_t` that asks for nothing; larger than any release's."""
    return np.zeros(256, np.uint8)


@functools.cache
def compile_loops() -> Loops:
    """Compile the loops, once a process; takes a second or two."""
    library = _libucp()
    pointer = ctypes.c_uint64
    put = _function(library, "ucp_put_nbx", pointer, [pointer, pointer, pointer, pointer, pointer, pointer])
    flush = _function(library, "ucp_ep_flush_nbx", pointer, [pointer, pointer])
    progress = _function(library, "ucp_worker_progress", ctypes.c_uint32, [pointer])
    check = _function(library, "ucp_request_check_status", ctypes.c_int8, [pointer])
    release = _function(library, "ucp_request_free", None, [pointer])
    first_error = np.uint64(_FIRST_ERROR)

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def finish(worker: int, request: int, stop: npt.NDArray[np.int64]) -> int:
        if request == np.uint64(0):
            return 0
        if request >= first_error:
            return -1
        while check(request) == _IN_PROGRESS:
            progress(worker)
            if stop[0] != 0:
                release(request)
                return STOPPED
        status = int(check(request))
        release(request)
        return status

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def together(
        worker: int, endpoint: int, local: int, size: int, remote: int, key: int, count: int, params: int,
        stop: npt.NDArray[np.int64],
    ) -> int:  # fmt: skip
        for _ in range(count):
            request = put(endpoint, local, size, remote, key, params)
            if request >= first_error:
                return -1
            if request != np.uint64(0):
                release(request)  # completes by itself; the flush waits for it
            if stop[0] != 0:
                return STOPPED
        return int(finish(worker, flush(endpoint, params), stop))

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def apart(
        worker: int, endpoint: int, local: int, size: int, remote: int, key: int, count: int, params: int,
        stop: npt.NDArray[np.int64],
    ) -> int:  # fmt: skip
        for _ in range(count):
            request = put(endpoint, local, size, remote, key, params)
            if request >= first_error:
                return -1
            if request != np.uint64(0):
                release(request)
            status = int(finish(worker, flush(endpoint, params), stop))
            if status != 0:
                return status
        return 0

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def spin(worker: int, rounds: int, stop: npt.NDArray[np.int64]) -> int:
        for _ in range(rounds):
            progress(worker)
            if stop[0] != 0:
                return STOPPED
        return 0

    return Loops(together, apart, spin)


def _libucp() -> ctypes.CDLL:
    path = library_path("libucp")
    if path is None:
        raise RunFailed("this process has loaded no libucp")
    return ctypes.CDLL(str(path))


def _status(library: ctypes.CDLL, name: str) -> Any:
    """A function that returns `ucs_status_t`, which is packed into a byte."""
    found = getattr(library, name)
    found.restype = ctypes.c_int8
    return found


def _function(library: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> Any:
    """A function object of its own: others may use the library's with other types."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return ctypes.CFUNCTYPE(result, *arguments)(address)
