"""Which transports UCX selected for an endpoint, asked of UCX itself through `ucp_ep_query` (UCX ≥ 1.14)."""

from __future__ import annotations

import ctypes

from merge_bench.host.libraries import library_path

_MOST = 32
_FIELD_TRANSPORTS = 1 << 3
_NAME_MAX = 32  # UCP_ENTITY_NAME_MAX
_SOCKADDR_STORAGE = 128


class _Entry(ctypes.Structure):
    _fields_ = (("transport_name", ctypes.c_char_p), ("device_name", ctypes.c_char_p))


class _Transports(ctypes.Structure):
    _fields_ = (("entries", ctypes.POINTER(_Entry)), ("num_entries", ctypes.c_uint), ("entry_size", ctypes.c_size_t))


class _EndpointAttributes(ctypes.Structure):
    """`ucp_ep_attr_t` of UCX 1.14 to 1.21 (public header `ucp/api/ucp.h`)."""

    _fields_ = (
        ("field_mask", ctypes.c_uint64),
        ("name", ctypes.c_char * _NAME_MAX),
        ("local_sockaddr", ctypes.c_uint64 * (_SOCKADDR_STORAGE // 8)),
        ("remote_sockaddr", ctypes.c_uint64 * (_SOCKADDR_STORAGE // 8)),
        ("transports", _Transports),
        ("user_data", ctypes.c_void_p),
    )


def of_endpoint(handle: int) -> list[str]:
    """Selected lanes of an endpoint as ``transport/device``, in UCX's order without repeats; [] where UCX cannot tell.

    Parameters
    ----------
    handle
        The `ucp_ep_h` as an integer.
    """
    path = library_path("libucp")
    if path is None:
        return []
    query = ctypes.CDLL(str(path)).ucp_ep_query
    query.argtypes = (ctypes.c_void_p, ctypes.POINTER(_EndpointAttributes))
    query.restype = ctypes.c_int8  # ucs_status_t is packed into a byte
    entries = (_Entry * _MOST)()
    attributes = _EndpointAttributes(field_mask=_FIELD_TRANSPORTS)
    attributes.transports = _Transports(entries, _MOST, ctypes.sizeof(_Entry))
    if query(handle, ctypes.byref(attributes)) != 0:
        return []
    found = []
    for index in range(min(attributes.transports.num_entries, _MOST)):
        entry = entries[index]
        found.append(f"{entry.transport_name.decode()}/{entry.device_name.decode()}")
    return list(dict.fromkeys(found))
