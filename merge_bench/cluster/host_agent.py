"""The agent of one host: starts the processes that the driver asks for, and ends them when the driver is gone.

It runs on the host at the other end of ssh or srun. It reads requests from standard input and writes answers and events
to standard output, as lines of JSON, so that no secret appears on a command line. It ends its processes when standard
input closes, when no request came for the agreed time (a cut cable closes no connection), and on a signal. If the agent
itself is killed, the kernel ends them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from merge_bench.cluster import supervisor
from merge_bench.cluster.base import SCHEDULER_FILE
from merge_bench.cluster.supervisor import ChildProcess, end_child_processes, read_last_bytes, read_log_tail
from merge_bench.config.installation import PACKAGE, python_path_variables

ROOT = PACKAGE.parent  # the folder that this package is imported from
LOG_BYTES = 4 << 20  # of a longer log, only its end is sent
# The last lines of logs are sent without a request, so that the driver has them when the host is cut off.
TAILS_BYTES = 32 << 10
TAILS_SECONDS = 1.0
# A cut connection blocks writes once its buffers are full, and the agent must never block: it sends no more lines after
# three missed pings.
TAILS_SILENCE = 3.0
# The method that answers each request.
REQUESTS = {
    "describe": "describe_host",
    "write": "write_scratch_file",
    "start": "start_process",
    "ping": "ping",
    "tail": "read_process_log_tail",
    "log": "read_process_log",
    "stop": "stop_processes",
    "load": "measure_host_load",
}
LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)


@dataclass
class _StartedProcess:
    """A process that this agent started, its log file, and how much about both was sent to the driver."""

    child: ChildProcess
    log: Path
    reported: bool = False  # whether its end was reported to the driver
    sent_size: int = 0  # of the log, when its last lines were sent


class HostAgent:
    """Starts and ends the processes of one run on this host, as the driver requests.

    After `silence` seconds without a request, the driver counts as gone.
    """

    def __init__(self) -> None:
        self.scratch = supervisor.make_scratch_folder("node")
        self.silence = 60.0
        self._started: dict[str, _StartedProcess] = {}
        self._last_request = time.monotonic()
        self._announced = False
        self._tails_sent = self._last_request
        self._wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        os.set_blocking(0, False)

    def answer_requests(self) -> None:
        """Answer the driver's requests and send events until the driver closes the connection or counts as gone."""
        rest = b""
        while time.monotonic() - self._last_request < self.silence:
            ready, _, _ = select.select([0, self._wake], [], [], 0.05 if self._waits_for_scheduler_file() else 0.5)
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                self._last_request = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._answer_request(line)
            self._send_events()

    def close(self) -> None:
        """End all processes that this agent started, and remove the scratch folder."""
        self.stop_processes()
        supervisor.remove_scratch_folder(self.scratch)

    # -- requests

    def describe_host(
        self, interface: str | None, peer: str | None, silence: float, driver: str | None = None
    ) -> dict[str, Any]:
        """Return the description of this host: software, network, cores and GPUs.

        `interface`: by default the one that leads to `peer`, and without `peer` the one that leads to the driver.
        `driver`: the driver's `network.network_stack_id`.
        """
        import msgspec

        from merge_bench.config.installation import __version__
        from merge_bench.host import machine, network, pinning

        self.silence = silence
        stack = network.network_stack_id()
        if not peer and (stack is None or stack != driver):
            peer = network.launching_host_address(os.environ)
        name = interface or (network.interface_towards(peer) if peer else "lo")
        if name is None:
            raise LookupError(
                f"{socket.gethostname()} has no route to {peer}; name a network interface with --interface"
            )
        return {
            "host": socket.gethostname(),
            "project": {"version": __version__, "sources": source_checksum(ROOT / "merge_bench")},
            "versions": machine.installed_package_versions(),
            "address": network.interface_ipv4_address(name),
            "stack": stack,
            "scratch": str(self.scratch),
            **msgspec.to_builtins(pinning.describe_host(name)),
        }

    def measure_host_load(self) -> dict[str, Any]:
        """Measure for half a second how busy other processes keep the cores; ``busy``: a text, None if little."""
        from merge_bench.host import other_load

        other = other_load.measure_other_load()
        return {"busy": None if other.is_quiet else str(other)}

    def write_scratch_file(self, name: str, text: str) -> None:
        """Write a file with this text into the scratch folder, whole or not at all."""
        path = self.scratch / Path(name).name
        draft = path.with_suffix(".part")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.rename(path)

    def start_process(
        self, role: str, argv: list[str], environment: dict[str, str], cores: list[int]
    ) -> dict[str, Any]:
        """Start one process in a session of its own, with its output in a log, and return its process number."""
        log = self.scratch / f"{role}.log"
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {**inherited, "MERGE_BENCH_PARENT": str(os.getpid()), **python_path_variables({}), **environment}
        child = ChildProcess(argv, environment=environment, log=log, cwd=self.scratch, cores=cores)
        self._started[role] = _StartedProcess(child, log)
        return {"pid": child.pid}

    def ping(self) -> None:
        """Do nothing: the request itself shows that the driver still runs."""

    def read_process_log_tail(self, role: str) -> dict[str, Any]:
        """Return the last lines of the log of the process with this role."""
        return {"text": read_log_tail(self._started[role].log)}

    def read_process_log(self, role: str) -> dict[str, Any]:
        """Return the whole log of the process with this role, or its last 4 MiB."""
        return {"text": read_last_bytes(self._started[role].log, LOG_BYTES)}

    def stop_processes(self) -> None:
        """End every process that this agent started, with its children, and return when they are gone."""
        for started in self._started.values():
            started.reported = True
        end_child_processes([started.child for started in self._started.values()])

    # -- lines in, lines out

    def _answer_request(self, request_line: bytes) -> None:
        number = None
        try:
            request = json.loads(request_line)
            number, do = request.pop("id", None), request.pop("do")
            if do not in REQUESTS:
                raise LookupError(f"unknown request {do!r}")
            reply = getattr(self, REQUESTS[do])(**request) or {}
        except (LookupError, ValueError, TypeError, OSError, ImportError, subprocess.SubprocessError) as error:
            explained = isinstance(error, LookupError | OSError)
            reply = {"error": str(error) if explained else f"{type(error).__name__}: {error}"}
        if number is not None:
            _send_message({"id": number, **reply})

    def _send_events(self) -> None:
        """Send the driver the processes that ended, the scheduler's address, and new log lines."""
        for role, started in self._started.items():
            status = None if started.reported else started.child.poll()
            if status is not None:
                started.reported = True
                pid, text = started.child.pid, read_log_tail(started.log)
                _send_message({"event": "exited", "role": role, "pid": pid, "status": status, "tail": text})
        if self._waits_for_scheduler_file():
            with contextlib.suppress(OSError, ValueError):
                text = (self.scratch / SCHEDULER_FILE).read_text()
                json.loads(text)  # it may be half written
                self._announced = True
                _send_message({"event": "scheduler", "text": text})
        self._send_changed_log_tails()

    def _send_changed_log_tails(self) -> None:
        now = time.monotonic()
        if now - self._tails_sent < TAILS_SECONDS or now - self._last_request > TAILS_SILENCE:
            return
        self._tails_sent = now
        share = TAILS_BYTES // max(8, len(self._started))
        for role, started in self._started.items():
            with contextlib.suppress(FileNotFoundError):
                size = started.log.stat().st_size
                if size != started.sent_size:
                    started.sent_size = size
                    _send_message({"event": "log", "role": role, "tail": read_log_tail(started.log, byte_limit=share)})

    def _waits_for_scheduler_file(self) -> bool:
        """Return whether the scheduler was started here and has not written its address yet."""
        return "scheduler" in self._started and not self._announced


def source_checksum(package_folder: Path) -> str:
    """Return a short checksum of all Python files of a package; unlike a commit, it shows local changes too."""
    digest = hashlib.sha256()
    for path in sorted(package_folder.rglob("*.py")):
        digest.update(str(path.relative_to(package_folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _send_message(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the agent of this host until the driver closes the connection or falls silent."""

    def exit_on_signal(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in LEAVE:
        signal.signal(number, exit_on_signal)
    agent = HostAgent()
    try:
        agent.answer_requests()
    except BrokenPipeError:
        pass
    finally:
        for number in LEAVE:
            signal.signal(number, signal.SIG_IGN)
        agent.close()
        os._exit(0)  # does not flush standard output, which may be gone


if __name__ == "__main__":
    main()
