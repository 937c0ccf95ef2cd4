"""The ssh launcher: hosts of a file, reached with the plain OpenSSH client."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from merge_bench.cluster.base import ClusterSettings, LauncherKind
from merge_bench.cluster.hosts import HostSpec, read_hosts_file

# ssh asks no questions, since a run may be unattended, and refuses unknown hosts.
_SETTINGS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
)
CONNECT_SECONDS = 10


def ssh_client_command(settings: ClusterSettings) -> tuple[str, ...]:
    file = ("-F", settings.ssh_config) if settings.ssh_config else ()
    limit = f"ConnectTimeout={max(1, min(CONNECT_SECONDS, int(settings.start_timeout)))}"
    return ("ssh", *file, "-T", *(word for setting in (*_SETTINGS, limit) for word in ("-o", setting)))


def ssh_command(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """Return ``ssh … HOST COMMAND``; the shell on the host gets the command as one quoted line."""
    return (*ssh_client_command(settings), "--", host.name, f"exec {shlex.join(command)}")


LAUNCHER = LauncherKind(
    name="ssh",
    help="The hosts of a file, reached with the OpenSSH client.",
    place=2,
    auto="ssh with --hosts",
    needs=("hosts",),
    hosts=lambda options, environ: read_hosts_file(Path(options.hosts or "")),
    reach=ssh_command,
)
