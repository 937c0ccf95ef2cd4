"""The timed loops over MPI: compiled with numba, they call the C functions of libmpi directly.

A loop of mpi4py calls costs some 0.3 µs a message on top, several times what a short message takes through shared
memory. Every loop gives MPI's error code (0: none), and counts the operations done into an array, so that another
thread can see that it goes on. Times are those of the caller's clock around the whole loop, unless said otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.host.libraries import library_path
from merge_bench.merge.c_functions import address_of, call, compiled
from merge_bench.probe.ranks.rules import WINDOW

_TAG, _ACK_TAG = np.int32(100), np.int32(101)
_ACK_BYTES = np.int32(4)
_LIBRARIES = ("libmpi", "libmpich")
PAGE = 4096
_MOST_STATUS_BYTES = 64  # of one MPI_Status; 24 in Open MPI, 20 in MPICH


@dataclass
class Link:
    """libmpi as compiled code calls it. Handles are pointers in Open MPI and integers in MPICH."""

    path: str
    library: ctypes.CDLL = field(init=False)
    handle: type[np.signedinteger[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.library = ctypes.CDLL(self.path)
        self.handle = np.int64 if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else np.int32

    def addresses(self, *names: str) -> Sequence[int]:
        """Where these functions are."""
        return [address_of(self.library, name) for name in names]


def open_link() -> Link:
    """The libmpi that mpi4py has loaded into this process.

    Raises
    ------
    OSError
        If it cannot be told which one that is.
    """
    for name in _LIBRARIES:
        path = library_path(name)
        if path is not None:
            return Link(str(path))
    raise OSError("it cannot be told which libmpi mpi4py has loaded")


def requests(count: int) -> np.ndarray[Any, Any]:
    """Room for `count` handles of requests."""
    return np.zeros(count * MPI._sizeof(MPI.Request), np.uint8)


def statuses(count: int) -> np.ndarray[Any, Any]:
    """Room for `count` statuses."""
    return np.zeros(count * max(MPI._sizeof(MPI.Status), _MOST_STATUS_BYTES), np.uint8)


def ping_pong(link: Link, send_name: str) -> Callable[..., int]:
    """``loop(outgoing, incoming, size, iterations, first, peer, byte, comm, status, done)``.

    The first rank sends and then receives, the other the other way round. The two buffers may be the same one.
    """
    return partial(_ping_pong, *link.addresses(send_name, "MPI_Recv"))


@compiled
def _ping_pong(  # type: ignore[no-untyped-def]
    send, receive, outgoing, incoming, size, iterations, first, peer, byte, comm, status, done
):  # pragma: no cover
    source, target, where = outgoing.ctypes.data, incoming.ctypes.data, status.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        if first:
            failed |= call(np.int32, send, (source, length, byte, other, _TAG, comm))
            failed |= call(np.int32, receive, (target, length, byte, other, _TAG, comm, where))
        else:
            failed |= call(np.int32, receive, (target, length, byte, other, _TAG, comm, where))
            failed |= call(np.int32, send, (source, length, byte, other, _TAG, comm))
        if failed:
            return failed
        done[0] += 1
    return 0


def windows(link: Link) -> Callable[..., int]:
    """``loop(buffer, ack, size, iterations, first, peer, byte, comm, requests, statuses, done)``: OSU's bandwidth test.

    In each iteration 64 messages go one way, then a short one comes back.
    """
    functions = link.addresses("MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Send", "MPI_Recv")
    return partial(_windows, *functions, MPI._sizeof(MPI.Request))


@compiled
def _windows(  # type: ignore[no-untyped-def]
    isend, irecv, waitall, send, receive, width, buffer, ack, size, iterations, first, peer, byte, comm, requests,
    statuses, done
):  # pragma: no cover  # fmt: skip
    address, answer = buffer.ctypes.data, ack.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    length, other = np.int32(size), np.int32(peer)
    failed = 0
    for _ in range(iterations):
        for number in range(WINDOW):
            post = isend if first else irecv
            failed |= call(np.int32, post, (address, length, byte, other, _TAG, comm, request + number * width))
        failed |= call(np.int32, waitall, (np.int32(WINDOW), request, where))
        if first:
            failed |= call(np.int32, receive, (answer, _ACK_BYTES, byte, other, _ACK_TAG, comm, where))
        else:
            failed |= call(np.int32, send, (answer, _ACK_BYTES, byte, other, _ACK_TAG, comm))
        if failed:
            return failed
        done[0] += 1
    return 0


def reduce_scatter(link: Link) -> Callable[..., float]:
    """``loop(source, target, block, iterations, real, add, comm, ranks, requests, statuses, done)``.

    Calls MPI_Reduce_scatter_block; gives the seconds spent in it, without the barrier after each operation. Negative:
    MPI's error code.
    """
    return partial(_reduce_scatter, *link.addresses("MPI_Reduce_scatter_block", "MPI_Barrier", "MPI_Wtime"))


@compiled
def _reduce_scatter(  # type: ignore[no-untyped-def]
    operate, barrier, clock, source, target, block, iterations, real, add, comm, ranks, requests, statuses, done
):  # pragma: no cover
    whole, part = source.ctypes.data, target.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call(np.float64, clock, ())
        failed = call(np.int32, operate, (whole, part, np.int32(block), real, add, comm))
        inside += call(np.float64, clock, ()) - began
        failed |= call(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done[0] += 1
    return inside


def rooted_reduces(link: Link) -> Callable[..., float]:
    """The same signature and result as `reduce_scatter`: one MPI_Ireduce to each rank, then MPI_Waitall."""
    functions = link.addresses("MPI_Ireduce", "MPI_Barrier", "MPI_Wtime", "MPI_Waitall")
    return partial(_rooted_reduces, *functions, MPI._sizeof(MPI.Request), MPI.FLOAT.Get_size())


@compiled
def _rooted_reduces(  # type: ignore[no-untyped-def]
    ireduce, barrier, clock, waitall, width, element, source, target, block, iterations, real, add, comm, ranks,
    requests, statuses, done
):  # pragma: no cover  # fmt: skip
    whole, mine = source.ctypes.data, target.ctypes.data
    request, where = requests.ctypes.data, statuses.ctypes.data
    inside = 0.0
    for _ in range(iterations):
        began = call(np.float64, clock, ())
        failed = 0
        for root in range(ranks):
            part, handle = whole + root * block * element, request + root * width
            failed |= call(np.int32, ireduce, (part, mine, np.int32(block), real, add, np.int32(root), comm, handle))
        failed |= call(np.int32, waitall, (np.int32(ranks), request, where))
        inside += call(np.float64, clock, ()) - began
        failed |= call(np.int32, barrier, (comm,))
        if failed:
            return -float(abs(failed))
        done[0] += 1
    return inside


def handles(link: Link, *objects: Any) -> Sequence[np.signedinteger[Any]]:
    """MPI's handles as compiled code passes them on: with the width that they have in C."""
    return [link.handle(np.uint64(MPI._handleof(each)).astype(link.handle)) for each in objects]
