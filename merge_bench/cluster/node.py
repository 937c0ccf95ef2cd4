"""The guard of one host: starts what the driver asks for, and ends all of it when the driver is gone.

Runs as ``python -m merge_bench.cluster.node`` at the far end of ssh or srun. Requests come as lines of JSON on standard
input, answers and news go out as lines of JSON on standard output; so nothing secret stands on a command line. The
processes end when standard input closes, when no request came for the agreed time (a cut cable closes nothing), on a
signal, and, if this process is killed, by the kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from merge_bench.cluster import scratch
from merge_bench.cluster.supervisor import Child, end_all, last_bytes, tail
from merge_bench.config.installation import PACKAGE, search_path

ROOT = PACKAGE.parent  # the folder that this package is imported from
SCHEDULER_FILE = "scheduler.json"
LOG_BYTES = 4 << 20  # of a log that are kept: its end
# Last lines that are told without being asked for, so that the driver has them of a host that is cut off.
TOLD_BYTES = 32 << 10
TOLD_SECONDS = 1.0
# A cut line takes only what its buffers hold, and this process must never wait for it: after three missed pings, none.
TOLD_SILENCE = 3.0


@dataclass
class _Started:
    child: Child
    log: Path
    told: bool = False
    told_size: int = 0  # of the log, when its last lines were told


class Guard:
    """Processes of one run on this host.

    `silence`: seconds without a request after which the driver counts as gone; the first one agrees on it.
    """

    def __init__(self) -> None:
        self.scratch = scratch.make("node")
        self.silence = 60.0
        self._started: dict[str, _Started] = {}
        self._heard = time.monotonic()
        self._announced = False
        self._told_logs = self._heard
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno())
        self._selector.register(self._wake, selectors.EVENT_READ)
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until the driver is gone."""
        rest = b""
        while time.monotonic() - self._heard < self.silence:
            for key, _ in self._selector.select(0.05 if self._waits_for_scheduler() else 0.5):
                if key.fileobj is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        self._wake.recv(4096)
                    continue
                data = os.read(0, 1 << 16)
                if not data:
                    return
                self._heard = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._answer(line)
            self._news()

    def close(self) -> None:
        """End everything and remove every trace."""
        self.stop()
        scratch.remove(self.scratch)

    # -- requests

    def describe(
        self, interface: str | None, peer: str | None, silence: float, driver: str | None = None
    ) -> dict[str, Any]:
        """What the driver compares between hosts, and what it needs to place workers here.

        Without `interface` it is the one that leads to `peer`, without that to the driver, whose network `driver` is.
        """
        from merge_bench.config.version import __version__
        from merge_bench.host import machine, network, pinning

        self.silence = silence
        stack = network.stack()
        if not peer and (stack is None or stack != driver):
            peer = network.started_from(os.environ)
        name = interface or (network.towards(peer) if peer else "lo")
        if name is None:
            raise LookupError(f"no route from {socket.gethostname()} leads to {peer}")
        return {
            "host": socket.gethostname(),
            "project": {"version": __version__, "sources": fingerprint(ROOT / "merge_bench")},
            "versions": machine.versions(),
            "address": network.address(name),
            "stack": stack,
            "scratch": str(self.scratch),
            **pinning.describe(name),
        }

    def write(self, name: str, text: str) -> dict[str, Any]:
        """Put a file into the scratch folder, whole or not at all."""
        path = self.scratch / Path(name).name
        draft = path.with_suffix(".part")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.rename(path)
        return {}

    def start(self, role: str, argv: list[str], environment: dict[str, str], cores: list[int]) -> dict[str, Any]:
        """Start one process in a session of its own; its output goes to a log."""
        log = self.scratch / f"{role}.log"
        own_environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        parent = {"MERGE_BENCH_PARENT": str(os.getpid())}
        environment = {**own_environment, **parent, **search_path({}), **environment}
        child = Child(argv, environment=environment, log=log, cwd=self.scratch, cores=cores)
        self._started[role] = _Started(child, log)
        return {"pid": child.pid}

    def ping(self) -> dict[str, Any]:
        """The driver is there."""
        return {}

    def tail(self, role: str, lines: int) -> dict[str, Any]:
        """The last lines of a process's log."""
        return {"text": tail(self._started[role].log, lines)}

    def log(self, role: str) -> dict[str, Any]:
        """A process's log; if it is very long, its end."""
        return {"text": last_bytes(self._started[role].log, LOG_BYTES)}

    def stop(self) -> dict[str, Any]:
        """End every process, children of theirs included, and return when they are gone."""
        for started in self._started.values():
            started.told = True
        end_all([started.child for started in self._started.values()])
        return {}

    # -- lines in, lines out

    def _answer(self, line: bytes) -> None:
        number = None
        try:
            request = json.loads(line)
            number, do = request.pop("id", None), request.pop("do")
            if do not in ("describe", "write", "start", "ping", "tail", "log", "stop"):
                raise LookupError(f"there is no request {do!r}")
            reply = getattr(self, do)(**request)
        except (LookupError, ValueError, TypeError, OSError, ImportError, subprocess.SubprocessError) as error:
            reply = {
                "error": str(error) if isinstance(error, LookupError | OSError) else f"{type(error).__name__}: {error}"
            }
        if number is not None:
            _say({"id": number, **reply})

    def _news(self) -> None:
        for role, started in self._started.items():
            status = None if started.told else started.child.poll()
            if status is not None:
                started.told = True
                pid, text = started.child.pid, tail(started.log)
                _say({"event": "exited", "role": role, "pid": pid, "status": status, "tail": text})
        if self._waits_for_scheduler():
            with contextlib.suppress(OSError, ValueError):
                text = (self.scratch / SCHEDULER_FILE).read_text()
                json.loads(text)  # it may be half written
                self._announced = True
                _say({"event": "scheduler", "text": text})
        self._tell_logs()

    def _tell_logs(self) -> None:
        now = time.monotonic()
        if now - self._told_logs < TOLD_SECONDS or now - self._heard > TOLD_SILENCE:
            return
        self._told_logs = now
        share = TOLD_BYTES // max(8, len(self._started))
        for role, started in self._started.items():
            with contextlib.suppress(FileNotFoundError):
                size = started.log.stat().st_size
                if size != started.told_size:
                    started.told_size = size
                    _say({"event": "log", "role": role, "tail": tail(started.log, size=share)})

    def _waits_for_scheduler(self) -> bool:
        return "scheduler" in self._started and not self._announced


def fingerprint(package: Path) -> str:
    """One short number for all of a package's sources: says more than a commit, since it sees local changes too."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve one driver, then end."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, leave)
    guard = Guard()
    try:
        guard.serve()
    except BrokenPipeError:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        guard.close()
        os._exit(0)  # nothing more to say to anyone, and no flush of a pipe that may be gone


if __name__ == "__main__":
    main()
