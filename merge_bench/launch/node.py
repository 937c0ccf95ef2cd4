"""The guard of one host: starts what the driver asks for, and ends all of it when the driver is gone.

Runs as ``python -m merge_bench.launch.node`` at the far end of ssh or srun. Requests come as lines of JSON on standard
input, answers and news go out as lines of JSON on standard output; so nothing secret stands on a command line. The
processes end when standard input closes, when no request came for the agreed time (a cut cable closes nothing), on a
signal, and, if this process is killed, by the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
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

from merge_bench.installation import search_path
from merge_bench.launch import scratch
from merge_bench.launch.ending import kill_sessions

ROOT = Path(__file__).resolve().parent.parent.parent  # the folder that this package is imported from
SCHEDULER_FILE = "scheduler.json"
TAIL_BYTES = 16384
TAIL_LINES = 15
LOG_BYTES = 4 << 20  # of a log that are kept: its end
# Last lines that are told without being asked for, so that the driver has them of a host that is cut off.
TOLD_BYTES = 32 << 10
TOLD_SECONDS = 1.0
# A cut line takes only what its buffers hold, and this process must never wait for it: after three missed pings, none.
TOLD_SILENCE = 3.0
_PR_SET_PDEATHSIG = 1


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
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
        self._children: dict[str, _Child] = {}
        self._heard = time.monotonic()
        self._announced = False
        self._told_logs = self._heard
        self._libc = ctypes.CDLL(None)
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
        from merge_bench import __version__, facts
        from merge_bench.launch import network, pinning

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
            "versions": facts.versions(),
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
        own = os.getpid()
        own_environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def tie() -> None:  # in the new process
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own:
                os._exit(1)
            if cores:
                os.sched_setaffinity(0, cores)

        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                env={**own_environment, "MERGE_BENCH_PARENT": str(own), **search_path({}), **environment},
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=tie,
            )
        self._children[role] = _Child(process, log)
        return {"pid": process.pid}

    def ping(self) -> dict[str, Any]:
        """The driver is there."""
        return {}

    def tail(self, role: str, lines: int) -> dict[str, Any]:
        """The last lines of a process's log."""
        return {"text": _last_lines(self._children[role].log, TAIL_BYTES, lines)}

    def log(self, role: str) -> dict[str, Any]:
        """A process's log; if it is very long, its end."""
        return {"text": _end(self._children[role].log, LOG_BYTES)}

    def stop(self) -> dict[str, Any]:
        """End every process, children of theirs included, and return when they are gone."""
        for child in self._children.values():
            child.told = True
        kill_sessions([child.process.pid for child in self._children.values()])
        for child in self._children.values():
            child.process.wait()
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
        for role, child in self._children.items():
            # Left unreaped, so that nobody else can get its number before `stop`.
            state = None
            if not child.told:
                state = os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                child.told = True
                status = state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
                text = _last_lines(child.log, TAIL_BYTES)
                _say({"event": "exited", "role": role, "pid": child.process.pid, "status": status, "tail": text})
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
        share = TOLD_BYTES // max(8, len(self._children))
        for role, child in self._children.items():
            with contextlib.suppress(FileNotFoundError):
                size = child.log.stat().st_size
                if size != child.told_size:
                    child.told_size = size
                    _say({"event": "log", "role": role, "tail": _last_lines(child.log, share)})

    def _waits_for_scheduler(self) -> bool:
        return "scheduler" in self._children and not self._announced


def fingerprint(package: Path) -> str:
    """One short number for all of a package's sources: says more than a commit, since it sees local changes too."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _end(log: Path, size: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _last_lines(log: Path, size: int, lines: int = TAIL_LINES) -> str:
    return "\n".join(_end(log, size).splitlines()[-lines:])


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
