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


class _MemoryMapParameters(ctypes.Structure):
    """The C structure `ucp_mem_map_params_t` of UCX 1.12 and later (public header `ucp/api/ucp.h`)."""

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
    """The C structure `ucp_mem_attr_t` of UCX 1.12 and later."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("mem_type", ctypes.c_int),
    )


@dataclass(frozen=True)
class RemoteMemory:
    """Memory of another worker for puts: its address, its length in bytes, and its packed remote key."""

    address: int
    length: int
    key: bytes


class RegisteredMemory:
    """Memory that UCX allocates and registers, as in ``ucx_perftest``, so that transports may choose its kind."""

    def __init__(self, context: int, length: int) -> None:
        self._context, self.length = ctypes.c_void_p(context), length
        self._handle = ctypes.c_void_p()
        params = _MemoryMapParameters(field_mask=_FIELD_LENGTH | _FIELD_FLAGS, length=length, flags=_ALLOCATE)
        self._call_or_raise("ucp_mem_map", self._context, ctypes.byref(params), ctypes.byref(self._handle))
        attributes = _MemoryAttributes(field_mask=_FIELD_ADDRESS)
        try:
            self._call_or_raise("ucp_mem_query", self._handle, ctypes.byref(attributes))
        except RunFailed:
            self.free()
            raise
        self.address = int(attributes.address)

    @property
    def byte_array(self) -> npt.NDArray[np.uint8]:
        """The registered memory as a NumPy array of bytes."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.length).from_address(self.address))

    def describe_for_peer(self) -> RemoteMemory:
        """Return the address and the remote key that a peer needs to put into this memory."""
        packed, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call_or_raise("ucp_rkey_pack", self._context, self._handle, ctypes.byref(packed), ctypes.byref(size))
        key = ctypes.string_at(packed, size.value) if packed.value else b""
        open_loaded_library("libucp").ucp_rkey_buffer_release(packed)
        return RemoteMemory(self.address, self.length, key)

    def free(self) -> None:
        """Unregister and free the memory; no put may be in flight."""
        self._call_or_raise("ucp_mem_unmap", self._context, self._handle)

    def _call_or_raise(self, function_name: str, *arguments: Any) -> None:
        status = _call_ucp_function(function_name, *arguments)
        if status != _OK:
            raise RunFailed(f"{function_name} of {self.length} bytes failed with UCX status {status}")


@dataclass(frozen=True)
class CompiledPutLoops:
    """The compiled loops that put and drive progress, for the libucp that this process has loaded.

    `together(worker, endpoint, local_address, size, remote_address, key, put_count, parameters, stop_flag)` posts
    `put_count` puts and flushes once; `apart` (same arguments) flushes after each; `spin(worker, rounds, stop_flag)`
    drives progress. 0 is success, a negative number UCX's error, `STOPPED` that the flag was set.
    """

    together: PutLoop
    apart: PutLoop
    spin: PutLoop


def unpack_remote_key(endpoint: int, key: bytes) -> int:
    """Unpack the remote key of a peer's memory for an endpoint, and return its handle for `free_remote_key`."""
    unpacked = ctypes.c_void_p()
    status = _call_ucp_function("ucp_ep_rkey_unpack", ctypes.c_void_p(endpoint), key, ctypes.byref(unpacked))
    if status != _OK or not unpacked.value:
        raise RunFailed(f"UCX rejected the memory key of another worker (UCX status {status})")
    return int(unpacked.value)


def free_remote_key(key: int) -> None:
    """Free an unpacked remote key; no put may be in flight."""
    open_loaded_library("libucp").ucp_rkey_destroy(ctypes.c_void_p(key))


def empty_put_parameters() -> npt.NDArray[np.uint8]:
    """Return zero bytes as an empty `ucp_request_param_t`; there are more bytes than any release of UCX uses."""
    return np.zeros(256, np.uint8)


@functools.cache
def compiled_put_loops() -> CompiledPutLoops:
    """Return the compiled loops of puts for this process's libucp.

    Numba compiles each loop at its first call, and stores it for later processes.
    """
    library = open_loaded_library("libucp")
    put, flush, progress, check, release = (
        c_function_address(library, f"ucp_{name}")
        for name in ("put_nbx", "ep_flush_nbx", "worker_progress", "request_check_status", "request_free")
    )
    together, apart = (partial(_put_repeatedly, each, put, flush, progress, check, release) for each in (False, True))
    return CompiledPutLoops(together, apart, partial(_drive_progress, progress))


@compile_loop
def _flush_puts(  # type: ignore[no-untyped-def]
    flush_function, progress_function, check_function, release_function, worker, endpoint, parameters, stop_flag
):  # pragma: no cover
    request = call_c_function(np.uint64, flush_function, (endpoint, parameters))
    if request == np.uint64(0):
        return 0
    if request >= np.uint64(_FIRST_ERROR):
        return -1
    while call_c_function(np.int8, check_function, (request,)) == _IN_PROGRESS:
        call_c_function(np.uint32, progress_function, (worker,))
        if stop_flag[0] != 0:
            call_c_function(None, release_function, (request,))
            return STOPPED
    status = int(call_c_function(np.int8, check_function, (request,)))
    call_c_function(None, release_function, (request,))
    return status


@compile_loop
def _put_repeatedly(  # type: ignore[no-untyped-def]
    flush_each,
    put_function,
    flush_function,
    progress_function,
    check_function,
    release_function,
    worker,
    endpoint,
    local_address,
    size,
    remote_address,
    key,
    put_count,
    parameters,
    stop_flag,
):  # pragma: no cover
    for number in range(put_count):
        request = call_c_function(
            np.uint64, put_function, (endpoint, local_address, size, remote_address, key, parameters)
        )
        if request >= np.uint64(_FIRST_ERROR):
            return -1
        if request != np.uint64(0):
            call_c_function(None, release_function, (request,))  # completes by itself; the flush waits for it
        if stop_flag[0] != 0:
            return STOPPED
        if flush_each or number == put_count - 1:
            status = _flush_puts(
                flush_function,
                progress_function,
                check_function,
                release_function,
                worker,
                endpoint,
                parameters,
                stop_flag,
            )  # type: ignore[no-untyped-call]
            if status != 0:
                return status
    return 0


@compile_loop
def _drive_progress(progress_function, worker, rounds, stop_flag):  # type: ignore[no-untyped-def]  # pragma: no cover
    for _ in range(rounds):
        call_c_function(np.uint32, progress_function, (worker,))
        if stop_flag[0] != 0:
            return STOPPED
    return 0


def _call_ucp_function(function_name: str, *arguments: Any) -> int:
    """Call a function of libucp that returns a `ucs_status_t`, and return that status: 0 for success."""
    function = getattr(open_loaded_library("libucp"), function_name)
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


def _ucx_exchange_of_worker() -> UcxExchange:
    """Return the UCX data plane of this worker."""
    return cast("UcxExchange", current_plugin().exchange)


def register_target_memory(length: int, source: int) -> RemoteMemory:
    """Register memory for the puts of rank `source`, and return its address and key; `free_put_memory` frees it."""
    plugin = current_plugin()
    context, _, _ = _ucx_exchange_of_worker().ucx_handles(source)
    memory = RegisteredMemory(context, length)
    plugin.children[TARGET] = PutSideMemory(memory, _ucx_exchange_of_worker())
    memory.byte_array[:] = 0
    return memory.describe_for_peer()


def check_incoming_puts(source: int, sizes_and_counts: Sequence[tuple[int, int]]) -> list[int]:
    """Drive UCX's progress while rank `source` puts, and return the number of wrong bytes after each test.

    `sizes_and_counts`: the size in bytes and the number of puts of each test.
    """
    plugin = current_plugin()
    held = plugin.children[TARGET]
    assert isinstance(held, PutSideMemory)
    loops = compiled_put_loops()
    _, worker, _ = _ucx_exchange_of_worker().ucx_handles(source)
    wrong = []
    with _stop_flag_of_loops() as stop:

        def drive_progress() -> None:
            _check_put_status(loops.spin(worker, SPIN_ROUNDS, stop), f"rank {source} wrote to the memory of this rank")

        for number, (size, _) in enumerate(sizes_and_counts):
            for test in (TOGETHER, APART):
                _ucx_exchange_of_worker().wait_for_token(source, drive_progress)
                wrong.append(int(np.count_nonzero(held.memory.byte_array[:size] != _payload_byte(number, test))))
                _ucx_exchange_of_worker().transfer({source: np.ones(1, np.uint8)}, {})  # it may put again
    return wrong


def measure_puts(
    target: int, target_memory: RemoteMemory, sizes_and_counts: Sequence[tuple[int, int]]
) -> list[MeasuredPuts]:
    """Time puts of every size into the memory of rank `target`, overlapping and non-overlapping.

    `sizes_and_counts`: the size in bytes and the number of puts of each test.

    A tenth as many puts are made before as a warm-up. The time goes from the first put to the end of the last flush.
    """
    plugin = current_plugin()
    context, worker, endpoint = _ucx_exchange_of_worker().ucx_handles(target)
    loops, parameters = compiled_put_loops(), empty_put_parameters()
    # If this is stopped, puts are in flight: their memory stays until the endpoints are closed (`free_put_memory`).
    plugin.children[SOURCE] = held = PutSideMemory(
        RegisteredMemory(context, target_memory.length), _ucx_exchange_of_worker()
    )
    memory, held.key = held.memory, unpack_remote_key(endpoint, target_memory.key)
    measured = []
    with _stop_flag_of_loops() as stop:
        for number, (size, count) in enumerate(sizes_and_counts):
            for test in (TOGETHER, APART):
                memory.byte_array[:size] = _payload_byte(number, test)
                seconds = 0.0
                loop = loops.together if test == TOGETHER else loops.apart
                for times in (max(1, count // 10), count):
                    route = (worker, endpoint, memory.address, size, target_memory.address, held.key)
                    start = time.perf_counter()
                    status = loop(*route, times, parameters.ctypes.data, stop)
                    seconds = time.perf_counter() - start
                    _check_put_status(status, f"this rank wrote to the memory of rank {target}")
                _ucx_exchange_of_worker().transfer({target: np.ones(1, np.uint8)}, {})
                _ucx_exchange_of_worker().transfer({}, {target: np.empty(1, np.uint8)})
                measured.append(MeasuredPuts(test, size, count, seconds))
    free_put_memory(SOURCE)
    return measured


def free_put_memory(side: str) -> None:
    """Free the registered memory of one side of the puts, `TARGET` or `SOURCE`; no put may be in flight."""
    held = current_plugin().children.pop(side, None)
    if held is not None:
        held.end()


@dataclass
class PutSideMemory:
    """The registered memory that one side of the puts, target or source, holds until the launch ends.

    `key`: at the source, the remote key of the target's memory; 0 if there is none yet.
    """

    memory: RegisteredMemory
    exchange: UcxExchange
    key: int = 0

    def end(self) -> None:
        """Free the memory and the remote key, unless puts of an aborted run may still use them."""
        if self.exchange.unanswered:
            return
        if self.key:
            free_remote_key(self.key)
        self.memory.free()


def _payload_byte(size_index: int, test: str) -> int:
    """Return the byte that fills the puts of a test, another one than that of the test before."""
    return (2 * size_index + (test == APART)) % 255 + 1


def _check_put_status(status: int, activity: str) -> None:
    """Raise RunFailed if a compiled loop was stopped, or UCX failed.

    `status`: what the loop returned. `activity`: what was being done, for the message.
    """
    if status == STOPPED:
        current_plugin().abort.raise_if_aborted()
        raise RunFailed(f"the process that controls the run did not answer while {activity}")
    if status != 0:
        raise RunFailed(f"UCX failed with status {status} while {activity}")


@contextlib.contextmanager
def _stop_flag_of_loops() -> Iterator[npt.NDArray[np.int64]]:
    """Yield a flag that ends the compiled loops; it is set if the run is aborted or its driver does not answer."""
    stop, over = np.zeros(1, np.int64), threading.Event()
    abort = current_plugin().abort

    def set_flag_when_abandoned() -> None:
        while not over.wait(0.02):
            if abort.is_aborted_or_orphaned(ORPHANED_SECONDS):
                stop[0] = 1
                return

    thread = threading.Thread(target=set_flag_when_abandoned, name="put-watch", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()
