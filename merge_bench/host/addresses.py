"""The addresses on which this machine serves: which are its own alone, and how pages of theirs are named."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from merge_bench.errors import UsageError


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`, which may be a host name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def origins(address: str, port: int) -> list[str]:
    """The hosts in addresses of this server's own pages; pages from elsewhere cannot connect to it."""
    names = {address, *(("localhost", "127.0.0.1") if is_loopback(address) else ())}
    if address in ("0.0.0.0", "::"):
        own = socket.gethostname()
        names = {own, socket.getfqdn(), "localhost", "127.0.0.1", *_addresses(own)}
    return sorted(f"{in_url(name)}:{port}" for name in names)


def _addresses(name: str) -> set[str]:
    """The addresses of this machine: those of its interfaces, and those of its `name`."""
    import psutil

    found = {
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
    with contextlib.suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    return found


def in_url(address: str) -> str:
    """`address` as a part of a URL."""
    return f"[{address}]" if ":" in address else address


def free_port(address: str, port: int) -> int:
    """`port`, or a free one for 0."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot serve on {address}, port {port}: {reason}; set --address or --port to another value"
        ) from None
