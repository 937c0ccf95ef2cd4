"""Command lines of the OpenSSH client."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.cluster.base import ClusterSettings
    from merge_bench.cluster.hosts import HostSpec

# ssh asks no questions, since a run may be unattended, and refuses unknown hosts.
OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes",
)  # fmt: skip
CONNECT_SECONDS = 10


def client(settings: ClusterSettings) -> tuple[str, ...]:
    """``ssh …``, without a host."""
    file = ("-F", settings.ssh_config) if settings.ssh_config else ()
    limit = f"ConnectTimeout={max(1, min(CONNECT_SECONDS, int(settings.start_timeout)))}"
    return ("ssh", *file, *OPTIONS, "-o", limit)


def ssh(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """``ssh … HOST COMMAND``; the shell on the host gets the command as one quoted line."""
    return (*client(settings), "--", host.name, f"exec {shlex.join(command)}")
