"""The ssh launcher: hosts of a file, reached with the plain OpenSSH client."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from merge_bench.launch.base import ClusterSettings
from merge_bench.launch.hosts import HostSpec

# Nothing is asked (nobody may be there), and a host that is not known is refused.
OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes",
)  # fmt: skip
CONNECT_SECONDS = 10


class Ssh:
    """One connection a host, from the machine of the driver."""

    name = "ssh"

    def argv(self, host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
        """``ssh … HOST COMMAND``; the far shell gets the command as one quoted line."""
        file = ("-F", settings.ssh_config) if settings.ssh_config else ()
        limit = f"ConnectTimeout={max(1, min(CONNECT_SECONDS, int(settings.start_timeout)))}"
        return ("ssh", *file, *OPTIONS, "-o", limit, "--", host.name, f"exec {shlex.join(command)}")
