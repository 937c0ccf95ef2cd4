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


def _mpi_function_addresses(*names: str) -> tuple[int, ...]:
    """Return the addresses of C functions in the libmpi that mpi4py has loaded; raises OSError without libmpi."""
    path = loaded_library_path("libmpi") or loaded_library_path("libmpich")
    if path is None:
        raise OSError("mpi4py is loaded, but the path of its MPI library (libmpi) could not be found")
    return tuple(c_function_address(ctypes.CDLL(str(path)), name) for name in names)


def make_request_buffers(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Allocate memory for `count` MPI requests: an array for their handles, and one for their statuses."""
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

    ``loop(outgoing, incoming, size, iterations, is_first, peer, byte_type, comm, requests, statuses, done_count)``: the
    first rank sends and then receives, the other receives and then sends. Both buffers may be the same.
    """
    return partial(_ping_pong, *_mpi_function_addresses(send_name, "MPI_Recv"))


@compile_loop
def _ping_pong(  # type: ignore[no-untyped-def]
    send, receive, outgoing, incoming, size, iterations, is_first, peer, byte_type, comm, requests, statuses, done_count
):  # pragma: no cover
    source, target, where = outgoing.ctypes.data, incoming.ctypes.data, statuses.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        if is_first:
            failed |= call_c_function(np.int32, send, (source, length, byte_type, other, _TAG, comm))
            failed |= call_c_function(np.int32, receive, (target, length, byte_type, other, _TAG, comm, where))
        else:
            failed |= call_c_function(np.int32, receive, (target, length, byte_type, other, _TAG, comm, where))
            failed |= call_c_function(np.int32, send, (source, length, byte_type, other, _TAG, comm))
        if failed:
            return failed
        done_count[0] += 1
    return 0


def bandwidth_loop() -> Callable[..., int]:
    """Return the compiled loop of OSU's bandwidth test, with the parameters of `ping_pong_loop`'s.

    In each iteration 64 messages go one way, then a short one comes back. The first rank sends from `outgoing`, and the
    second receives into that buffer; `incoming` is for the short message.
    """
    functions = _mpi_function_addresses("MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Send", "MPI_Recv")
    return partial(_bandwidth_loop, functions, MPI._sizeof(MPI.Request))


@compile_loop
def _bandwidth_loop(  # type: ignore[no-untyped-def]
    functions,
    request_bytes,
    buffer,
    ack,
    size,
    iterations,
    is_first,
    peer,
    byte_type,
    comm,
    requests,
    statuses,
    done_count,
):  # pragma: no cover
    isend, irecv, waitall, send, receive = functions
    address, answer = buffer.ctypes.data, ack.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        for number in range(WINDOW):
            post = isend if is_first else irecv
            failed |= call_c_function(
                np.int32, post, (address, length, byte_type, other, _TAG, comm, request + number * request_bytes)
            )
        failed |= call_c_function(np.int32, waitall, (np.int32(WINDOW), request, where))
        if is_first:
            failed |= call_c_function(np.int32, receive, (answer, _ACK_BYTES, byte_type, other, _ACK_TAG, comm, where))
        else:
            failed |= call_c_function(np.int32, send, (answer, _ACK_BYTES, byte_type, other, _ACK_TAG, comm))
        if failed:
            return failed
        done_count[0] += 1
    return 0


def reduce_scatter_loop() -> Callable[..., float]:
    """Return the compiled loop over MPI_Reduce_scatter_block.

    ``loop(source, target, block, iterations, float_type, sum_operation, comm, ranks, requests, statuses, done_count)``
    returns the seconds inside the operations, without the barrier after each. A negative result is MPI's error code.
    """
    return partial(_reduce_scatter, *_mpi_function_addresses("MPI_Reduce_scatter_block", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _reduce_scatter(  # type: ignore[no-untyped-def]
    reduce_scatter,
    barrier,
    clock,
    source,
    target,
    block,
    iterations,
    float_type,
    sum_operation,
    comm,
    ranks,
    requests,
    statuses,
    done_count,
):  # pragma: no cover
    whole, part = source.ctypes.data, target.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(
            np.int32, reduce_scatter, (whole, part, np.int32(block), float_type, sum_operation, comm)
        )
        inside += call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done_count[0] += 1
    return inside


def reduce_to_each_rank_loop() -> Callable[..., float]:
    """Return the compiled loop over MPI_Ireduce to each rank and MPI_Waitall, called as `reduce_scatter_loop`'s."""
    functions = _mpi_function_addresses("MPI_Ireduce", "MPI_Barrier", "MPI_Wtime", "MPI_Waitall")
    return partial(_reduce_to_each_rank, functions, MPI._sizeof(MPI.Request), MPI.FLOAT.Get_size())


@compile_loop
def _reduce_to_each_rank(  # type: ignore[no-untyped-def]
    functions,
    request_bytes,
    element_bytes,
    source,
    target,
    block,
    iterations,
    float_type,
    sum_operation,
    comm,
    ranks,
    requests,
    statuses,
    done_count,
):  # pragma: no cover
    ireduce, barrier, clock, waitall = functions
    whole, mine = source.ctypes.data, target.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call_c_function(np.float64, clock, ())
        failed = 0
        for root in range(ranks):
            part, handle = whole + root * block * element_bytes, request + root * request_bytes
            failed |= call_c_function(
                np.int32,
                ireduce,
                (part, mine, np.int32(block), float_type, sum_operation, np.int32(root), comm, handle),
            )
        failed |= call_c_function(np.int32, waitall, (np.int32(ranks), request, where))
        inside += call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done_count[0] += 1
    return inside


def all_to_all_loop() -> Callable[..., int]:
    """Return the compiled loop over MPI_Alltoall.

    ``loop(source, target, size, datatype, comm, times, done_count)`` sends `size` elements to each rank. The array
    `times` gets the seconds inside each operation, before which all ranks have met in a barrier.
    """
    return partial(_all_to_all, *_mpi_function_addresses("MPI_Alltoall", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _all_to_all(all_to_all, barrier, clock, source, target, size, datatype, comm, times, done_count):  # type: ignore[no-untyped-def]  # pragma: no cover
    whole, part, count = source.ctypes.data, target.ctypes.data, np.int32(size)
    for number in range(times.size):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(np.int32, all_to_all, (whole, count, datatype, part, count, datatype, comm))
        times[number] = call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return failed
        done_count[0] += 1
    return 0


def all_to_all_v_loop() -> Callable[..., int]:
    """Return the compiled loop over MPI_Alltoallv.

    ``loop(source, send_counts, send_offsets, target, receive_counts, receive_offsets, datatype, comm, times,
    done_count)``: counts and offsets are int32 arrays by rank, in elements. The array `times` gets the seconds inside
    each operation.
    """
    return partial(_all_to_all_v, *_mpi_function_addresses("MPI_Alltoallv", "MPI_Barrier", "MPI_Wtime"))


@compile_loop
def _all_to_all_v(  # type: ignore[no-untyped-def]
    all_to_all_v,
    barrier,
    clock,
    source,
    send_counts,
    send_offsets,
    target,
    receive_counts,
    receive_offsets,
    datatype,
    comm,
    times,
    done_count,
):  # pragma: no cover
    outgoing = (source.ctypes.data, send_counts.ctypes.data, send_offsets.ctypes.data, datatype)
    incoming = (target.ctypes.data, receive_counts.ctypes.data, receive_offsets.ctypes.data, datatype)
    for number in range(times.size):
        began = call_c_function(np.float64, clock, ())
        failed = call_c_function(np.int32, all_to_all_v, (*outgoing, *incoming, comm))
        times[number] = call_c_function(np.float64, clock, ()) - began
        failed |= call_c_function(np.int32, barrier, (comm,))
        if failed:
            return failed
        done_count[0] += 1
    return 0


def c_mpi_handles(*mpi4py_objects: Any) -> list[np.signedinteger[Any]]:
    """Return the C handles of mpi4py's objects: 64-bit pointers in Open MPI, 32-bit integers in MPICH."""
    width = np.int64 if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else np.int32
    return [width(np.uint64(MPI._handleof(each)).astype(width)) for each in mpi4py_objects]


def check_loop_status(error_code: int, message_size: str) -> None:
    """Raise RunFailed if a compiled loop returned an MPI error code other than 0.

    `message_size`: the size of its messages, as text for the error.
    """
    if error_code:
        raise RunFailed(f"MPI failed while sending messages of {message_size}: {MPI.Get_error_string(error_code)}")
