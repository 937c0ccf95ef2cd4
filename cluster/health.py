"""Health check of a container: asks its service whether it can run jobs. A container without a service is healthy.

    python3 -IS health.py [PID]     the process that may be `merge-bench serve`; default: 1, that of the container

It starts in some hundredths of a second, so that it does not disturb a measurement.
"""

from __future__ import annotations

import http.client
import ssl
import sys
from pathlib import Path


def value(words: list[str], option: str, default: str) -> str:
    """The last value of an option in a command line."""
    found = default
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            found = following
        elif word.startswith(f"{option}="):
            found = word.removeprefix(f"{option}=")
    return found


def problem(pid: str) -> str | None:
    """Why the service with this process cannot run jobs; None if it can, or if the process is no service."""
    words = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace").split("\0")
    programs = [at for at, word in enumerate(words) if Path(word).name in ("merge-bench", "merge_bench")]
    if not programs or words[programs[-1] + 1] != "serve":
        return None
    address = value(words, "--address", "127.0.0.1")
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    port = int(value(words, "--port", "5007"))
    connection: http.client.HTTPConnection
    if value(words, "--tls-cert", ""):
        # The certificate names the service as its clients do, not as it is asked here.
        unchecked = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(address, port, timeout=5, context=unchecked)
    else:
        connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", "/api/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{address}, port {port}: {error}"
    return None if status == 200 else f"{address}, port {port}: HTTP status {status}"


if __name__ == "__main__":
    sys.exit(problem(sys.argv[1] if len(sys.argv) > 1 else "1"))
