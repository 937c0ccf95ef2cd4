"""One-sided puts over an endpoint of the data plane, with libucp's functions: UCXX's Python has none.

The timed loops are compiled and call `ucp_put_nbx`, `ucp_worker_progress` and `ucp_ep_flush_nbx` directly, so that the
interpreter does not run between two puts. They run without its lock, and check a flag that ends them. Of the two
workers of `probe rma` the source puts, the target has the memory and progresses UCX.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from merge_bench.config.files import open_loaded_library
from merge_bench.errors import RunFailed
from merge_bench.merge.exchange.base import ORPHANED_SECONDS
from merge_bench.merge.jit import c_function_address, call_c_function, compile_loop
from merge_bench.merge.worker import current_plugin

if TYPE_CHECKING:
    from merge_bench.merge.exchange.ucx import UcxExchange

_FIELD_ADDRESS, _FIELD_LENGTH, _FIELD_FLAGS = 1 << 0, 1 << 1, 1 << 2
_ALLOCATE = 1 << 1
_OK, _IN_PROGRESS = 0, 1
_FIRST_ERROR = 2**64 - 100  # UCS_STATUS_IS_ERR: a status code in place of a pointer
STOPPED = -1000
"""What a loop returns when the flag ended it."""

PutLoop = Callable[..., int]


class _MapParams(ctypes.Structure):
    """`ucp_mem_map_params_t` of UCX 1.12 and later (public header `ucp/api/ucp.h`)."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("flags", ctypes.c_uint),
        ("prot", ctypes.c_uint),
        ("memory_type", ctypes.c_int),
        ("exported_memh_buffer", ctypes.c_void_p),
    )


class _MemoryAttributes(ctypes.Structure):
    """`ucp_mem_attr_t` of UCX 1.12 and later."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("mem_type", ctypes.c_int),
    )


@dataclass(frozen=True)
class RemoteMemory:
    """The address, the length and the packed remote key of memory that a peer may put into."""

    address: int
    length: int
    key: bytes


class RegisteredMemory:
    """Memory that UCX allocates and registers, as in ``ucx_perftest``, so that transports may choose its kind."""

    def __init__(self, context: int, length: int) -> None:
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
        """The memory as a NumPy array."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.length).from_address(self.address))

    def describe_for_peer(self) -> RemoteMemory:
        """Return the address and the remote key that a peer needs to put into this memory."""
        packed, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("ucp_rkey_pack", self._context, self._handle, ctypes.byref(packed), ctypes.byref(size))
        key = ctypes.string_at(packed, size.value) if packed.value else b""
        open_loaded_library("libucp").ucp_rkey_buffer_release(packed)
        return RemoteMemory(self.address, self.length, key)

    def free(self) -> None:
        """Free the memory; no put may be in flight."""
        self._call("ucp_mem_unmap", self._context, self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        status = _call_ucp(name, *arguments)
        if status != _OK:
            raise RunFailed(f"{name} of {self.length} bytes failed with UCX status {status}")


@dataclass(frozen=True)
class PutLoops:
    """The compiled loops of puts, for the libucp that this process has loaded.

    `together(worker, endpoint, local, size, remote, key, count, parameters, stop)` posts `count` puts and flushes once;
    `apart` (same arguments) flushes after each; `spin(worker, rounds, stop)` drives progress. 0 is success, a negative
    number UCX's error, `STOPPED` that the flag in `stop` was set.
    """

    together: PutLoop
    apart: PutLoop
    spin: PutLoop


def unpack_remote_key(endpoint: int, key: bytes) -> int:
    """Unpack a remote key for an endpoint, and return its handle; free it with `free_remote_key`."""
    unpacked = ctypes.c_void_p()
    status = _call_ucp("ucp_ep_rkey_unpack", ctypes.c_void_p(endpoint), key, ctypes.byref(unpacked))
    if status != _OK or not unpacked.value:
        raise RunFailed(f"UCX rejected the memory key of another worker (UCX status {status})")
    return int(unpacked.value)


def free_remote_key(key: int) -> None:
    """Free an unpacked remote key; no put may be in flight."""
    open_loaded_library("libucp").ucp_rkey_destroy(ctypes.c_void_p(key))


def empty_put_parameters() -> npt.NDArray[np.uint8]:
    """Return an empty `ucp_request_param_t` as bytes, more of them than in any release of UCX."""
    return np.zeros(256, np.uint8)


@functools.cache
def compiled_put_loops() -> PutLoops:
    """Return the compiled loops of puts for this process's libucp.

    Numba compiles each at its first call_c_function, and stores it for later processes.
    """
    library = open_loaded_library("libucp")
    put, flush, progress, check, release = (
        c_function_address(library, f"ucp_{name}")
        for name in ("put_nbx", "ep_flush_nbx", "worker_progress", "request_check_status", "request_free")
    )
    together, apart = (partial(_put_repeatedly, each, put, flush, progress, check, release) for each in (False, True))
    return PutLoops(together, apart, partial(_drive_progress, progress))


@compile_loop
def _flush_puts(  # type: ignore[no-untyped-def]
    flush, progress, check, release, worker, endpoint, params, stop
):  # pragma: no cover
    request = call_c_function(np.uint64, flush, (endpoint, params))
    if request == np.uint64(0):
        return 0
    if request >= np.uint64(_FIRST_ERROR):
        return -1
    while call_c_function(np.int8, check, (request,)) == _IN_PROGRESS:
        call_c_function(np.uint32, progress, (worker,))
        if stop[0] != 0:
            call_c_function(None, release, (request,))
            return STOPPED
    status = int(call_c_function(np.int8, check, (request,)))
    call_c_function(None, release, (request,))
    return status


@compile_loop
def _put_repeatedly(  # type: ignore[no-untyped-def]
    apart, put, flush, progress, check, release, worker, endpoint, local, size, remote, key, count, params, stop
):  # pragma: no cover
    for number in range(count):
        request = call_c_function(np.uint64, put, (endpoint, local, size, remote, key, params))
        if request >= np.uint64(_FIRST_ERROR):
            return -1
        if request != np.uint64(0):
            call_c_function(None, release, (request,))  # completes by itself; the flush waits for it
        if stop[0] != 0:
            return STOPPED
        if apart or number == count - 1:
            status = _flush_puts(flush, progress, check, release, worker, endpoint, params, stop)  # type: ignore[no-untyped-call]
            if status != 0:
                return status
    return 0


@compile_loop
def _drive_progress(progress, worker, rounds, stop):  # type: ignore[no-untyped-def]  # pragma: no cover
    for _ in range(rounds):
        call_c_function(np.uint32, progress, (worker,))
        if stop[0] != 0:
            return STOPPED
    return 0


def _call_ucp(name: str, *arguments: Any) -> int:
    """Call a function of libucp that returns `ucs_status_t`, which is packed into a byte."""
    function = getattr(open_loaded_library("libucp"), name)
    function.restype = ctypes.c_int8
    return int(function(*arguments))


TOGETHER, APART = "put-overlapping", "put-non-overlapping"
TARGET, SOURCE = "put-target", "put-source"
SPIN_ROUNDS = 2000


@dataclass(frozen=True)
class MeasuredPuts:
    """The result of one test of puts at one size: the seconds of all `count` puts and their flushes."""

    test: str
    size: int
    count: int
    seconds: float


def _ucx_exchange() -> UcxExchange:
    """Return the UCX data plane of this worker."""
    return cast("UcxExchange", current_plugin().exchange)


def register_target_memory(length: int, source: int) -> RemoteMemory:
    """Register memory for the puts of rank `source`, and return its address and key; `free_put_memory` frees it."""
    plugin = current_plugin()
    context, _, _ = _ucx_exchange().ucx_handles(source)
    memory = RegisteredMemory(context, length)
    plugin.children[TARGET] = HeldPutMemory(memory, _ucx_exchange())
    memory.bytes[:] = 0
    return memory.describe_for_peer()


def check_incoming_puts(source: int, sizes_and_counts: Sequence[tuple[int, int]]) -> list[int]:
    """Progress UCX while rank `source` puts, and return the number of wrong bytes after each test.

    `sizes_and_counts`: the size in bytes and the number of puts of each test.
    """
    plugin = current_plugin()
    held = plugin.children[TARGET]
    assert isinstance(held, HeldPutMemory)
    loops = compiled_put_loops()
    _, worker, _ = _ucx_exchange().ucx_handles(source)
    wrong = []
    with _stop_flag_of_loops() as stop:

        def progress() -> None:
            _check_put_status(loops.spin(worker, SPIN_ROUNDS, stop), f"rank {source} wrote to the memory of this rank")

        for number, (size, _) in enumerate(sizes_and_counts):
            for test in (TOGETHER, APART):
                _ucx_exchange().wait_for_token(source, progress)
                wrong.append(int(np.count_nonzero(held.memory.bytes[:size] != _payload_byte(number, test))))
                _ucx_exchange().transfer({source: np.ones(1, np.uint8)}, {})  # it may put again
    return wrong


def measure_puts(
    target: int, target_memory: RemoteMemory, sizes_and_counts: Sequence[tuple[int, int]]
) -> list[MeasuredPuts]:
    """Time puts of every size into the memory of rank `target`, overlapping and non-overlapping; return the results.

    `sizes_and_counts`: the size in bytes and the number of puts of each test.

    A tenth as many puts are made before as a warm-up. The time goes from the first put to the end of the last flush.
    """
    plugin = current_plugin()
    context, worker, endpoint = _ucx_exchange().ucx_handles(target)
    loops, parameters = compiled_put_loops(), empty_put_parameters()
    # If this is stopped, puts are in flight: their memory stays until the endpoints are closed (`free_put_memory`).
    plugin.children[SOURCE] = held = HeldPutMemory(RegisteredMemory(context, target_memory.length), _ucx_exchange())
    memory, held.key = held.memory, unpack_remote_key(endpoint, target_memory.key)
    measured = []
    with _stop_flag_of_loops() as stop:
        for number, (size, count) in enumerate(sizes_and_counts):
            for test in (TOGETHER, APART):
                memory.bytes[:size] = _payload_byte(number, test)
                seconds = 0.0
                loop = loops.together if test == TOGETHER else loops.apart
                for times in (max(1, count // 10), count):
                    route = (worker, endpoint, memory.address, size, target_memory.address, held.key)
                    start = time.perf_counter()
                    status = loop(*route, times, parameters.ctypes.data, stop)
                    seconds = time.perf_counter() - start
                    _check_put_status(status, f"this rank wrote to the memory of rank {target}")
                _ucx_exchange().transfer({target: np.ones(1, np.uint8)}, {})
                _ucx_exchange().transfer({}, {target: np.empty(1, np.uint8)})
                measured.append(MeasuredPuts(test, size, count, seconds))
    free_put_memory(SOURCE)
    return measured


def free_put_memory(side: str) -> None:
    """Free the memory of one side, `TARGET` or `SOURCE`; no put may be in flight."""
    held = current_plugin().children.pop(side, None)
    if held is not None:
        held.end()


@dataclass
class HeldPutMemory:
    """The registered memory of one side of the puts.

    `key`: at the source, the remote key of the target's memory; 0: none yet.
    """

    memory: RegisteredMemory
    exchange: UcxExchange
    key: int = 0

    def end(self) -> None:
        """Free the memory and the key, unless puts of an aborted run may still use them."""
        if self.exchange.unanswered:
            return
        if self.key:
            free_remote_key(self.key)
        self.memory.free()


def _payload_byte(number: int, test: str) -> int:
    """Return the byte that fills the puts of a test; it differs from the byte of the test before."""
    return (2 * number + (test == APART)) % 255 + 1


def _check_put_status(status: int, during: str) -> None:
    """Raise RunFailed if a compiled loop was stopped, or UCX failed; `during`: what was being done."""
    if status == STOPPED:
        current_plugin().abort.raise_if_aborted()
        raise RunFailed(f"the process that controls the run did not answer while {during}")
    if status != 0:
        raise RunFailed(f"UCX failed with status {status} while {during}")


@contextlib.contextmanager
def _stop_flag_of_loops() -> Iterator[npt.NDArray[np.int64]]:
    """Yield a flag that ends the compiled loops; it is set if the run is aborted or its driver does not answer."""
    stop, over = np.zeros(1, np.int64), threading.Event()
    abort = current_plugin().abort

    def watch() -> None:
        while not over.wait(0.02):
            if abort.is_aborted_or_orphaned(ORPHANED_SECONDS):
                stop[0] = 1
                return

    thread = threading.Thread(target=watch, name="put-watch", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()
