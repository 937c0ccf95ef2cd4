"""The timed loops over MPI: compiled with numba, they call the C functions of libmpi directly.

A loop of mpi4py calls would add some 0.3 µs to a message, several times what a short message takes through shared
memory. Every loop returns MPI's error code (0: none) and counts its operations into an array, from which another thread
sees progress. The caller measures the time of the whole loop, unless said otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.config.files import loaded_library_path
from merge_bench.errors import RunFailed
from merge_bench.merge.jit import c_function_address, call_c_function, compile_loop
from merge_bench.probe.ranks.osu_rules import WINDOW

_TAG, _ACK_TAG = np.int32(100), np.int32(101)
_ACK_BYTES = np.int32(4)
PAGE = 4096
_MOST_STATUS_BYTES = 64  # of one MPI_Status; 24 in Open MPI, 20 in MPICH


def _function_addresses(*names: str) -> tuple[int, ...]:
    """Return the addresses of these C functions in the libmpi that mpi4py has loaded; raises OSError without it."""
    path = loaded_library_path("libmpi") or loaded_library_path("libmpich")
    if path is None:
        raise OSError("mpi4py is loaded, but the path of its MPI library (libmpi) could not be found")
    return tuple(c_function_address(ctypes.CDLL(str(path)), name) for name in names)


def make_request_buffers(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Allocate memory for the handles and for the statuses of `count` MPI requests."""
    status = max(MPI._sizeof(MPI.Status), _MOST_STATUS_BYTES)
    return np.zeros(count * MPI._sizeof(MPI.Request), np.uint8), np.zeros(count * status, np.uint8)


def make_page_aligned_buffer(size: int) -> np.ndarray[Any, Any]:
    """Allocate a buffer of `size` bytes that begins at a page, as in the OSU benchmarks, and write to every page."""
    raw = np.zeros(size + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    buffer = raw[start : start + size]
    buffer[:] = 1
    return buffer


def ping_pong_loop(send_name: str) -> Callable[..., int]:
    """Return the compiled loop of a ping-pong whose messages the MPI function `send_name` sends.

    ``loop(outgoing, incoming, size, iterations, first, peer, byte, comm, requests, statuses, done)``: the first
    rank sends and then receives, the other receives and then sends. Both buffers may be the same.
    """
    return partial(_ping_pong, *_function_addresses(send_name, "MPI_Recv"))


@compile_loop
def _ping_pong(  # type: ignore[no-untyped-def]
    send, receive, outgoing, incoming, size, iterations, first, peer, byte, comm, requests, statuses, done
):  # pragma: no cover
    source, target, where = outgoing.ctypes.data, incoming.ctypes.data, statuses.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        if first:
            failed |= call_c_function(np.int32, send, (source, length, byte, other, _TAG, comm))
            failed |= call_c_function(np.int32, receive, (target, length, byte, other, _TAG, comm, where))
        else:
            failed |= call_c_function(np.int32, receive, (target, length, byte, other, _TAG, comm, where))
            failed |= call_c_function(np.int32, send, (source, length, byte, other, _TAG, comm))
        if failed:
            return failed
        done[0] += 1
    return 0


def bandwidth_loop() -> Callable[..., int]:
    """Return the compiled loop of OSU's bandwidth test, with the parameters of `ping_pong_loop`'s.

    In each iteration 64 messages go one way, then a short one comes back. The first rank sends from `outgoing`, and the
    second receives into it; `incoming` is for the short one.
    """
    functions = _function_addresses("MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Send", "MPI_Recv")
    return partial(_bandwidth_loop, functions, MPI._sizeof(MPI.Request))


@compile_loop
def _bandwidth_loop(  # type: ignore[no-untyped-def]
    functions, width, buffer, ack, size, iterations, first, peer, byte, comm, requests, statuses, done
):  # pragma: no cover
    isend, irecv, waitall, send, receive = functions
    address, answer = buffer.ctypes.data, ack.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        for number in range(WINDOW):
            post = isend if first else irecv
            failed |= call_c_function(
                np.int32, post, (address, length, byte, other, _TAG, comm, request + number * width)
            )
        failed |= call_c_function(np.int32, waitall, (np.int32(WINDOW), request, where))
        if first:
            failed |= call_c_function(np.int32, receive, (answer, _ACK_BYTES, byte, other, _ACK_TAG, comm, where))
        else:
            failed |= call_c_function(np.int32, send, (answer, _ACK_BYTES, byte, other, _ACK_TAG, comm))
        if failed:
            return failed
        done[0] += 1
    return 0


def reduce_scatter_loop() -> Callable[..., float]:
    """Return the compiled loop over MPI_Reduce_scatter_block.

    ``loop(source, target, block, iterations, real, add, comm, ranks, requests, statuses, done)``
    returns the seconds inside the operations, without the barrier after each. A negative result is MPI's error code.
    """
    return partial(_reduce_scatter, *_function_addresses("MPI_Reduce_scatter_block", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _reduce_scatter(  # type: ignore[no-untyped-def]
    operate, barrier, clock, source, target, block, iterations, real, add, comm, ranks, requests, statuses, done
):  # pragma: no cover
    whole, part = source.ctypes.data, target.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(np.int32, operate, (whole, part, np.int32(block), real, add, comm))
        inside += call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done[0] += 1
    return inside


def rooted_reduces_loop() -> Callable[..., float]:
    """Return the compiled loop over MPI_Ireduce to each rank, then MPI_Waitall, called as `reduce_scatter_loop`'s."""
    functions = _function_addresses("MPI_Ireduce", "MPI_Barrier", "MPI_Wtime", "MPI_Waitall")
    return partial(_rooted_reduces, functions, MPI._sizeof(MPI.Request), MPI.FLOAT.Get_size())


@compile_loop
def _rooted_reduces(  # type: ignore[no-untyped-def]
    functions, width, element, source, target, block, iterations, real, add, comm, ranks, requests, statuses, done
):  # pragma: no cover
    ireduce, barrier, clock, waitall = functions
    whole, mine = source.ctypes.data, target.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call_c_function(np.float64, clock, ())
        failed = 0
        for root in range(ranks):
            part, handle = whole + root * block * element, request + root * width
            failed |= call_c_function(
                np.int32, ireduce, (part, mine, np.int32(block), real, add, np.int32(root), comm, handle)
            )
        failed |= call_c_function(np.int32, waitall, (np.int32(ranks), request, where))
        inside += call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done[0] += 1
    return inside


def all_to_all_loop() -> Callable[..., int]:
    """The loop over MPI_Alltoall: ``loop(source, target, size, byte, comm, times, done)``, `size` elements a rank.

    `times` gets the seconds inside each operation, before which all ranks have met in a barrier.
    """
    return partial(_all_to_all, *_function_addresses("MPI_Alltoall", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _all_to_all(operate, barrier, clock, source, target, size, kind, comm, times, done):  # type: ignore[no-untyped-def]  # pragma: no cover
    whole, part, count = source.ctypes.data, target.ctypes.data, np.int32(size)
    for number in range(times.size):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(np.int32, operate, (whole, count, kind, part, count, kind, comm))
        times[number] = call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return failed
        done[0] += 1
    return 0


def all_to_all_v_loop() -> Callable[..., int]:
    """The loop over MPI_Alltoallv; after each buffer come counts and displacements by rank, int32, in elements."""
    return partial(_all_to_all_v, *_function_addresses("MPI_Alltoallv", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _all_to_all_v(  # type: ignore[no-untyped-def]
    operate, barrier, clock, source, sent, sent_at, target, received, received_at, kind, comm, times, done
):  # pragma: no cover
    outgoing = (source.ctypes.data, sent.ctypes.data, sent_at.ctypes.data, kind)
    incoming = (target.ctypes.data, received.ctypes.data, received_at.ctypes.data, kind)
    for number in range(times.size):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(np.int32, operate, (*outgoing, *incoming, comm))
        times[number] = call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return failed
        done[0] += 1
    return 0


def c_mpi_handles(*objects: Any) -> list[np.signedinteger[Any]]:
    """Return the C handles of mpi4py's objects in their own width: pointers in Open MPI, integers in MPICH."""
    width = np.int64 if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else np.int32
    return [width(np.uint64(MPI._handleof(each)).astype(width)) for each in objects]


def check_loop_status(failed: int, size: str) -> None:
    """Raise RunFailed if a loop returned the error code `failed`; `size`: of its messages, as text."""
    if failed:
        raise RunFailed(f"MPI failed while sending messages of {size}: {MPI.Get_error_string(failed)}")
