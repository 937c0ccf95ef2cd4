"""One mpirun: its process, the lines that its ranks print, and the error that its end stands for."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from merge_bench.cluster.supervisor import Child, tail
from merge_bench.config.files import no_link
from merge_bench.errors import LaunchFailed
from merge_bench.probe.ranks import mpirun, mpirun_messages

STOP_SECONDS = 5.0
_POLL_SECONDS = 0.2
_AFTER_END_SECONDS = 1.0


class Ranks:
    """One mpirun in a session of its own, and the lines that its ranks print.

    `pids`: processes of the ranks, as soon as they have reported them.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.pids: dict[int, int] = {}
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._start = log.stat().st_size if log.exists() else 0
        self._process = Child(
            argv, environment={**os.environ, **mpirun.as_root(), **environment}, log=log, stdout=subprocess.PIPE
        )
        threading.Thread(target=self._read, name="mpirun", daemon=True).start()

    def lines(self, first: float, silence: float) -> Iterator[str]:
        """Every line until mpirun ends; the first within `first` seconds, others within `silence` of the one before.

        Raises
        ------
        LaunchFailed
            If nothing comes in that time, or mpirun ends with a status other than 0.
        """
        limit = first
        heard = time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # Its output stays open if a process that it started has outlived it.
                line = "" if self._process.poll() is None or time.monotonic() - heard < _AFTER_END_SECONDS else None
            if line is None:
                break
            if line:
                heard, limit = time.monotonic(), silence
                yield line
            elif time.monotonic() - heard > limit:
                raise LaunchFailed(f"the ranks reported nothing for {limit:g} s", log_tail=tail(self.log))
        status = self._process.wait(STOP_SECONDS)
        if status is None:
            raise LaunchFailed("the ranks ended, but mpirun did not", log_tail=tail(self.log))
        if status:
            raise self.explained(status, silence)

    def explained(self, status: int, silence: float) -> LaunchFailed:
        """The error for mpirun's end, from its last output."""
        printed = self.log.read_bytes()[self._start :].decode(errors="replace")
        error = mpirun_messages.explain(printed, status, silence, self.pids)
        error.log_tail = tail(self.log)
        return error

    def stop(self) -> None:
        """End mpirun, which ends the ranks on every host; kill what is left of its session here."""
        self._process.end(signal.SIGTERM, STOP_SECONDS)

    def note(self, line: str) -> None:
        """Write a line that is not a message into the log, where mpirun's own output is."""
        with contextlib.suppress(OSError), open(self.log, "a", opener=no_link) as log:
            log.write(line + "\n")

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace").strip())
        self._lines.put(None)
