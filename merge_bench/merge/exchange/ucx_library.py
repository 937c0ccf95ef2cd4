"""Calls of the UCX and UCXX libraries that UCXX's Python lacks, on the objects that it made."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path
from typing import Any

from merge_bench.config.files import library_path, loaded_library
from merge_bench.config.ucx_choice import CUDA_REMEDY, cuda_module_problem, has_cuda
from merge_bench.errors import RunFailed

_FIELD_MEMORY_TYPES = 1 << 2
_CUDA = 1 << 1  # UCS_MEMORY_TYPE_CUDA
_OK, _IN_PROGRESS = 0, 1
_FIRST_ERROR = 2**64 - 100  # UCS_STATUS_IS_ERR: a status code in place of a pointer


class _ContextAttributes(ctypes.Structure):
    """`ucp_context_attr_t` of UCX 1.12 and later (public header `ucp/api/ucp.h`), with room for later fields."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("request_size", ctypes.c_size_t),
        ("thread_mode", ctypes.c_int),
        ("memory_types", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * 256),
    )


def knows_cuda_memory(context: int) -> bool:
    """Whether UCX tells GPU memory from host memory, in this context (a `ucp_context_h`).

    UCXX's `cuda_support` only reads `UCX_TLS`.
    """
    attributes = _ContextAttributes(field_mask=_FIELD_MEMORY_TYPES)
    query = loaded_library("libucp").ucp_context_query
    query.restype = ctypes.c_int8
    status = query(ctypes.c_void_p(context), ctypes.byref(attributes))
    if status != _OK:
        raise RunFailed(f"UCX did not say which kinds of memory it can send (ucp_context_query gave {status})")
    return bool(attributes.memory_types & _CUDA)


def why_no_cuda_memory(version: str) -> str:
    """A sentence why this process's UCX, of this version, cannot send GPU memory, and what to do."""
    library = library_path("libucp") or Path("libucp.so")
    reason, remedy = "it finds no GPU", "run merge-bench doctor on this host"
    if not has_cuda(library):
        reason, remedy = "it was built without CUDA", CUDA_REMEDY
    elif (problem := cuda_module_problem(library)) is not None:
        reason, remedy = (
            f"its CUDA module cannot be loaded ({problem})",
            "install what it lacks, such as the GPU's driver",
        )
    elif "UCX_TLS" in os.environ:
        reason, remedy = f"UCX_TLS={os.environ['UCX_TLS']} excludes CUDA", "add cuda to UCX_TLS"
    return f"UCX {version} on {socket.gethostname()} ({library}) cannot send GPU memory: {reason}; {remedy}"


def cancel_receive(request: Any) -> None:
    """Cancel a receive (a `UCXRequest`) that no message has matched; it completes at once. Others go on."""
    library = loaded_library("libucxx")
    # `Request::cancel` and its override; without them (another compiler or release) nothing is cancelled.
    for name in ("_ZN4ucxx10RequestTag6cancelEv", "_ZN4ucxx7Request6cancelEv"):
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes, function.restype = (ctypes.c_void_p,), None
            function(request.ucxx_ptr)
            return


class Flush:
    """A flush of all that a UCX worker (`ucp_worker_h`) has put; `is_done` once it is complete at the targets."""

    def __init__(self, worker: int) -> None:
        self._library = loaded_library("libucp")
        flush = self._library.ucp_worker_flush_nbx
        flush.restype = ctypes.c_uint64
        parameters = (ctypes.c_uint8 * 256)()  # an empty `ucp_request_param_t`
        self._request = flush(ctypes.c_void_p(worker), ctypes.byref(parameters))

    def is_done(self) -> bool:
        """Whether it is complete, or has failed; drive UCX between two calls."""
        if self._request and self._request < _FIRST_ERROR:
            check = self._library.ucp_request_check_status
            check.restype = ctypes.c_int8
            if check(ctypes.c_void_p(self._request)) == _IN_PROGRESS:
                return False
            self._library.ucp_request_free(ctypes.c_void_p(self._request))
        self._request = 0
        return True
