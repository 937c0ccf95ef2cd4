"""The timed loops over MPI: compiled with numba, they call the C functions of libmpi directly.

A loop of mpi4py calls costs some 0.3 µs a message on top, several times what a short message takes through shared
memory. Every loop gives MPI's error code (0: none), and counts the operations done into an array, so that another
thread can see that it goes on. Times are those of the caller's clock around the whole loop, unless said otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from mpi4py import MPI

from merge_bench.exchange.lanes import library_path
from merge_bench.probe.mpi_rules import WINDOW

_TAG, _ACK_TAG = 100, 101
_ACK_BYTES = 4
_LIBRARIES = ("libmpi", "libmpich")
PAGE = 4096
_MOST_STATUS_BYTES = 64  # of one MPI_Status; 24 in Open MPI, 20 in MPICH


@dataclass
class Link:
    """libmpi as compiled code calls it. Handles are pointers in Open MPI and integers in MPICH."""

    path: str
    library: ctypes.CDLL = field(init=False)
    handle: Any = field(init=False)

    def __post_init__(self) -> None:
        self.library = ctypes.CDLL(self.path)
        self.handle = ctypes.c_void_p if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p) else ctypes.c_int

    def function(self, name: str, *arguments: Any, gives: Any = ctypes.c_int) -> Any:
        """A C function with its types set."""
        found = getattr(self.library, name)
        found.argtypes, found.restype = arguments, gives
        return found

    def send(self, name: str) -> Any:
        """``MPI_Send`` or another function with the same arguments."""
        return self.function(
            name, ctypes.c_void_p, ctypes.c_int, self.handle, ctypes.c_int, ctypes.c_int, self.handle
        )  # fmt: skip

    def receive(self) -> Any:
        """``MPI_Recv``."""
        return self.function(
            "MPI_Recv", ctypes.c_void_p, ctypes.c_int, self.handle, ctypes.c_int, ctypes.c_int, self.handle,
            ctypes.c_void_p,
        )  # fmt: skip

    def started(self, name: str) -> Any:
        """``MPI_Isend`` or ``MPI_Irecv``."""
        return self.function(
            name, ctypes.c_void_p, ctypes.c_int, self.handle, ctypes.c_int, ctypes.c_int, self.handle, ctypes.c_void_p
        )  # fmt: skip

    def waitall(self) -> Any:
        """``MPI_Waitall``."""
        return self.function("MPI_Waitall", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


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
    send, receive = link.send(send_name), link.receive()

    @numba.njit(nogil=True)
    def loop(  # type: ignore[no-untyped-def]
        outgoing, incoming, size, iterations, first, peer, byte, comm, status, done
    ):  # pragma: no cover
        source, target, where = outgoing.ctypes.data, incoming.ctypes.data, status.ctypes.data
        failed = 0
        for _ in range(iterations):
            if first:
                failed |= send(source, size, byte, peer, _TAG, comm)
                failed |= receive(target, size, byte, peer, _TAG, comm, where)
            else:
                failed |= receive(target, size, byte, peer, _TAG, comm, where)
                failed |= send(source, size, byte, peer, _TAG, comm)
            if failed:
                return failed
            done[0] += 1
        return 0

    return loop  # type: ignore[no-any-return]


def windows(link: Link) -> Callable[..., int]:
    """``loop(buffer, ack, size, iterations, first, peer, byte, comm, requests, statuses, done)``: OSU's bandwidth test.

    In each iteration 64 messages go one way, then a short one comes back.
    """
    isend, irecv, waitall = link.started("MPI_Isend"), link.started("MPI_Irecv"), link.waitall()
    send, receive = link.send("MPI_Send"), link.receive()
    width = MPI._sizeof(MPI.Request)

    @numba.njit(nogil=True)
    def loop(  # type: ignore[no-untyped-def]
        buffer, ack, size, iterations, first, peer, byte, comm, requests, statuses, done
    ):  # pragma: no cover
        address, answer = buffer.ctypes.data, ack.ctypes.data
        request, where = requests.ctypes.data, statuses.ctypes.data
        failed = 0
        for _ in range(iterations):
            for number in range(WINDOW):
                if first:
                    failed |= isend(address, size, byte, peer, _TAG, comm, request + number * width)
                else:
                    failed |= irecv(address, size, byte, peer, _TAG, comm, request + number * width)
            failed |= waitall(WINDOW, request, where)
            if first:
                failed |= receive(answer, _ACK_BYTES, byte, peer, _ACK_TAG, comm, where)
            else:
                failed |= send(answer, _ACK_BYTES, byte, peer, _ACK_TAG, comm)
            if failed:
                return failed
            done[0] += 1
        return 0

    return loop  # type: ignore[no-any-return]


def reduce_scatter(link: Link) -> Callable[..., float]:
    """``loop(source, target, block, iterations, real, add, comm, ranks, requests, statuses, done)``.

    Calls MPI_Reduce_scatter_block; gives the seconds spent in it, without the barrier after each operation. Negative:
    MPI's error code.
    """
    operate = link.function(
        "MPI_Reduce_scatter_block", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, link.handle, link.handle,
        link.handle,
    )  # fmt: skip
    barrier, clock = _barrier(link), _clock(link)

    @numba.njit(nogil=True)
    def loop(  # type: ignore[no-untyped-def]
        source, target, block, iterations, real, add, comm, ranks, requests, statuses, done
    ):  # pragma: no cover
        inside = 0.0
        for _ in range(iterations):
            began = clock()
            failed = operate(source.ctypes.data, target.ctypes.data, block, real, add, comm)
            inside += clock() - began
            failed |= barrier(comm)
            if failed:
                return -float(abs(failed))
            done[0] += 1
        return inside

    return loop  # type: ignore[no-any-return]


def rooted_reduces(link: Link) -> Callable[..., float]:
    """The same signature and result as `reduce_scatter`: one MPI_Ireduce to each rank, then MPI_Waitall."""
    ireduce = link.function(
        "MPI_Ireduce", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, link.handle, link.handle, ctypes.c_int,
        link.handle, ctypes.c_void_p,
    )  # fmt: skip
    barrier, clock, waitall = _barrier(link), _clock(link), link.waitall()
    width, element = MPI._sizeof(MPI.Request), MPI.FLOAT.Get_size()

    @numba.njit(nogil=True)
    def loop(  # type: ignore[no-untyped-def]
        source, target, block, iterations, real, add, comm, ranks, requests, statuses, done
    ):  # pragma: no cover
        inside = 0.0
        request = requests.ctypes.data
        for _ in range(iterations):
            began = clock()
            failed = 0
            for root in range(ranks):
                part = source.ctypes.data + root * block * element
                failed |= ireduce(part, target.ctypes.data, block, real, add, root, comm, request + root * width)
            failed |= waitall(ranks, request, statuses.ctypes.data)
            inside += clock() - began
            failed |= barrier(comm)
            if failed:
                return -float(abs(failed))
            done[0] += 1
        return inside

    return loop  # type: ignore[no-any-return]


def handles(link: Link, *objects: Any) -> Sequence[int]:
    """MPI's handles as compiled code passes them on."""
    return [int(MPI._handleof(each)) for each in objects]


def _barrier(link: Link) -> Any:
    return link.function("MPI_Barrier", link.handle)


def _clock(link: Link) -> Any:
    return link.function("MPI_Wtime", gives=ctypes.c_double)
