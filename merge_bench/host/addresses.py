"""The addresses on which this machine serves: which are its own alone, and how pages of theirs are named."""

from __future__ import annotations

import ipaddress
import itertools
import socket

import psutil

from merge_bench.errors import UsageError


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`, which may be a host name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def origins(address: str, port: int) -> list[str]:
    """The hosts in addresses of this server's own pages; pages from elsewhere cannot connect to it.

    Of addresses only those at which it listens: another program may have its port at the others.
    """
    names = {address, *(("localhost",) if is_loopback(address) else ())}
    if address == "localhost":
        names |= {"127.0.0.1", "::1"}
    if address in ("0.0.0.0", "::"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        of_interfaces = itertools.chain.from_iterable(psutil.net_if_addrs().values())
        own = {each.address.partition("%")[0] for each in of_interfaces if each.family == family}
        names = own | {socket.gethostname(), socket.getfqdn(), "localhost"}
    return sorted(f"{in_url(name)}:{port}" for name in names)


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
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot serve on {address}, port {port}: {why}; choose another --address or --port") from None
