"""The warden of one launch: a process that starts a command, keeps its output, and ends all that the command started.

`run_command.py` starts it, and writes the task to its standard input, as JSON; it writes its report to standard output.
The warden is a subreaper: when the command has ended, it kills every descendant that is left, also those that left the
command's session. It does the same when it gets SIGTERM, which the kernel sends it if the driver dies. It imports
little, because every launch starts one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from merge_bench.cluster.supervisor import CLOCK_BYTES, ChildProcess, adopt_orphans
from merge_bench.command.descendants import end_descendants, find_descendants
from merge_bench.config.files import open_without_links

ENDED, TIMEOUT, STOPPED, NOT_STARTED = "ended", "timeout", "stopped", "not-started"
"""Why the command is no longer running: by itself, at its time limit, because the driver stops; or it never ran."""
_PIPE_BYTES = 1 << 20
_ReadyStreams = list[tuple[selectors.SelectorKey, int]]
"""The streams of which something can be read."""


class LimitedOutputFile:
    """A file with what a command prints on one stream; of long output only the first and the last bytes.

    `head_bytes`, `tail_bytes`: how much is kept; `total`: how much was printed; `problem`: why the file could not be
    written, empty if it could.
    """

    def __init__(self, path: Path, head_bytes: int, tail_bytes: int) -> None:
        self.head_bytes, self.tail_bytes = head_bytes, tail_bytes
        self.total, self.problem = 0, ""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self._descriptor = open_without_links(str(path), flags)

    @property
    def left_out_bytes(self) -> int:
        """How many bytes of the output are not in the file."""
        return max(self.total - self.head_bytes - self.tail_bytes, 0)

    def append(self, data: bytes) -> None:
        """Append bytes that the command printed; once the file is full, they replace the oldest bytes of its tail."""
        view = memoryview(data)
        while view and not self.problem:
            if self.total < self.head_bytes:
                place, room = self.total, self.head_bytes - self.total
            else:
                offset = (self.total - self.head_bytes) % self.tail_bytes
                place, room = self.head_bytes + offset, self.tail_bytes - offset
            part = view[:room]
            self._write_at(part, place)
            self.total += len(part)
            view = view[len(part) :]
        self.total += len(view)

    def close(self) -> None:
        """Put the tail into order, after a line that says how much was left out, and close the file."""
        if self.left_out_bytes and not self.problem:
            oldest = (self.total - self.head_bytes) % self.tail_bytes
            ring = os.pread(self._descriptor, self.tail_bytes, self.head_bytes)
            note = f"\n[merge_bench: {self.left_out_bytes} bytes are left out here]\n".encode()
            self._write_at(memoryview(note + ring[oldest:] + ring[:oldest]), self.head_bytes)
        os.close(self._descriptor)

    def _write_at(self, view: memoryview, offset: int) -> None:
        try:
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                view, offset = view[written:], offset + written
        except OSError as error:
            self.problem = error.strerror or "it cannot be written"


class Warden:
    """Starts one command and watches it to its end; `task`: what `CommandTask.encode_for_warden` wrote."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._selector = selectors.DefaultSelector()
        self._outputs = {
            name: LimitedOutputFile(Path(task[name]), task["head"], task["tail"]) for name in ("out", "err")
        }
        self._reason = ENDED
        self._kill_at: float | None = None

    def run_command(self, was_stopped: Callable[[], bool], wake_descriptor: int) -> dict[str, Any]:
        """Run the command to its end; returns the report.

        `was_stopped`: whether a signal asked for the end; `wake_descriptor`: readable after every signal.
        """
        self._selector.register(wake_descriptor, selectors.EVENT_READ)
        try:
            child, began = self._start_command()
        except OSError as error:
            named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            return {"reason": NOT_STARTED, "message": f"{named}{error.strerror}"}
        limit = self._task["seconds"]
        deadline = None if limit is None else began + limit
        ready_streams: _ReadyStreams = []
        woken = time.monotonic()
        while not self._reap_and_check_end(child):
            self._keep_ready_output(ready_streams)
            now = time.monotonic()
            if self._kill_at is not None and now >= self._kill_at:
                child.send_signal(signal.SIGKILL)
                self._kill_at = None
            if self._reason == ENDED and (was_stopped() or (deadline is not None and now >= deadline)):
                self._reason = STOPPED if was_stopped() else TIMEOUT
                self._kill_at = now + self._task["grace"]
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)
            times = [each for each in (self._kill_at, deadline if self._reason == ENDED else None) if each is not None]
            ready_streams = self._selector.select(max(min(times) - now, 0.0) if times else None)
            woken = time.monotonic()  # before output is read, which is not the command's time
        seconds = woken - began
        status = child.wait_for_exit_status()
        left = sum(not process.zombie for process in find_descendants())
        unended = end_descendants()
        self._keep_remaining_output()
        for output in self._outputs.values():
            output.close()
        return {
            "reason": self._reason,
            "status": status,
            "seconds": seconds,
            "left": left,
            "unended": unended,
            "left_out": sum(output.left_out_bytes for output in self._outputs.values()),
            "problem": next((output.problem for output in self._outputs.values() if output.problem), ""),
        }

    def _start_command(self) -> tuple[ChildProcess, float]:
        """Start the command in a session of its own; returns it, and the time at which its program began.

        The new process takes that time itself, just before it becomes the program: the start of a process by Python
        takes longer than a small program. The kernel kills the command if the warden dies.
        """
        task = self._task
        with contextlib.ExitStack() as opened:
            writers = {}
            for name, output in self._outputs.items():
                reader, writers[name] = os.pipe()
                opened.callback(os.close, writers[name])
                with contextlib.suppress(OSError):
                    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                os.set_blocking(reader, False)
                self._selector.register(reader, selectors.EVENT_READ, output)
            stdin = subprocess.DEVNULL
            if task["stdin"] is not None:
                stdin = os.open(task["stdin"], os.O_RDONLY)
                opened.callback(os.close, stdin)
            clock_reader, clock_writer = os.pipe()
            opened.callback(os.close, clock_reader)
            opened.callback(os.close, clock_writer)
            os.set_blocking(clock_reader, False)
            child = ChildProcess(
                task["argv"],
                environment=task["environment"],
                log=writers["err"],
                stdin=stdin,
                stdout=writers["out"],
                clock=clock_writer,
            )
            try:
                began = int.from_bytes(os.read(clock_reader, CLOCK_BYTES), sys.byteorder) / 1e9
            except BlockingIOError:  # the new process was killed before it had a time, and has ended
                began = time.monotonic()
            return child, began

    def _reap_and_check_end(self, child: ChildProcess) -> bool:
        """Reap orphans that have ended; returns whether the command itself has, which stays unreaped."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if ended is None:
                return False
            if ended.si_pid == child.pid:
                return True
            os.waitpid(ended.si_pid, 0)

    def _keep_ready_output(self, ready_streams: _ReadyStreams) -> None:
        """Write what the command printed on `ready_streams` into its files, and read the bytes that signals wrote."""
        for key, _ in ready_streams:
            if key.data is None:
                os.read(key.fd, 1 << 10)
            else:
                self._keep_available_output(key)

    def _keep_available_output(self, key: selectors.SelectorKey) -> bool:
        """Write what a stream has into its file; returns whether the stream may have more."""
        try:
            data = os.read(key.fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if data:
            key.data.append(data)
            return True
        self._selector.unregister(key.fd)
        os.close(key.fd)
        return False

    def _keep_remaining_output(self) -> None:
        """Write what is left in the pipes into the files; no process writes to them any more."""
        for key in list(self._selector.get_map().values()):
            while key.data is not None and self._keep_available_output(key):
                pass


def main() -> int:
    """Read the task, run the command, write the report."""
    received: list[int] = []

    def note_signal(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            received.append(number)

    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, note_signal)
    with adopt_orphans():
        task = json.load(sys.stdin.buffer)
        report = Warden(task).run_command(lambda: bool(received), reader) if not received else {"reason": STOPPED}
    with contextlib.suppress(OSError):
        print(json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
