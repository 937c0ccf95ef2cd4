"""Programs that a worker starts beside itself for network measurements: they have its environment and end with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from merge_bench.cluster import ucx_perftest
from merge_bench.cluster.base import exit_status_text
from merge_bench.cluster.supervisor import ChildProcess
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import worker
from merge_bench.merge.exchange.base import ORPHANED_SECONDS

START_POLL_SECONDS = 0.02
POLL_SECONDS = 0.2
"""How often a measuring program is looked at; more often would take its core and its caches from it."""
START_SECONDS = 15.0
PATIENCE_SECONDS = 2.0  # for the report that the other side was killed
CONNECT_TRIES = 40
PORT_TRIES = 5
PORT_TAKEN = "Address already in use"
PRINTED, LOG = "printed", "ucx.log"
SLOWEST_BYTES_PER_SECOND = 2e6
"""A line of a test may take the time that silence is allowed, and the time of its bytes at this rate."""


@dataclass(frozen=True)
class PerftestServer:
    """A ``ucx_perftest`` that a worker started and that listens on a port; `pid`: its process number."""

    address: str
    port: int
    pid: int


@dataclass(frozen=True)
class ProgramOutput:
    """The exit status of a program that has ended, the text that the program printed, and its UCX log."""

    status: int
    text: str
    log: str


@dataclass
class WorkerProgram:
    """A program that a worker started, and the folder with the program's files."""

    process: ChildProcess
    folder: Path

    def read_text(self) -> str:
        """Return what the program has printed so far."""
        return (self.folder / PRINTED).read_text(errors="replace")

    def end(self) -> ProgramOutput:
        """End the program if it still runs, remove its files, and return what it left in them."""
        status = self.process.end()
        log = self.folder / LOG
        output = ProgramOutput(status, self.read_text(), log.read_text(errors="replace") if log.exists() else "")
        shutil.rmtree(self.folder, ignore_errors=True)
        return output


def find_perftest_origin() -> str:
    """Return the origin of the UCX of this worker's ``ucx_perftest``; raises UsageError if the program is missing.

    First releases what an earlier run left in this worker.
    """
    worker.release_launch(worker.current_plugin())
    try:
        return ucx_perftest.find_perftest()[2]
    except UsageError as error:
        raise UsageError(f"{socket.gethostname()}: {error}") from error


def find_free_port(address: str) -> int:
    """Return a TCP port that no program uses at `address` now; another program may take it at any time."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def start_perftest_server(
    batch: str, core: int | None = None, *, find_port: Callable[[str], int] = find_free_port
) -> PerftestServer:
    """Start a ``ucx_perftest`` server for the batch, and return its address when it listens.

    `core`: the core that it is bound to; None: all cores of the worker. `find_port`: returns a free port at an address.
    If another program takes that port first, the server is started again with another one. Nothing may connect to test
    the port: the server takes one client.
    """
    # The address that this worker is bound to: the chosen interface, or loopback.
    address = str(worker.current_plugin().worker.address).partition("://")[2].rpartition(":")[0].strip("[]")
    for left in reversed(range(PORT_TRIES)):
        port = find_port(address)
        process = _start_program(batch, _port_options(address, port, core))
        deadline = time.monotonic() + START_SECONDS
        while not _listens_on(process.pid, port) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(START_POLL_SECONDS)
        if process.poll() is None:
            break
        output = _take_program(process.pid).end()
        if not left or PORT_TAKEN not in output.text + output.log:
            raise _failed_side_error("server", output)
    return PerftestServer(address, port, process.pid)


def _port_options(address: str, port: int, core: int | None) -> tuple[str, ...]:
    bound = () if core is None else ("-c", str(core))
    return ("-p", str(port), *bound, *(("-6",) if ":" in address else ()))


def wait_for_perftest_server(server: PerftestServer) -> ProgramOutput:
    """Wait for the end of a ``ucx_perftest`` server, and return its output; raises RunFailed if it failed."""
    output = _wait_for_output(server.pid)
    if output.status != 0:
        raise _failed_side_error("server", output)
    return output


def run_perftest_client(
    server: PerftestServer, batch: str, time_limits: Sequence[float], core: int | None = None
) -> ProgramOutput:
    """Run a ``ucx_perftest`` client of `server`, and return its output.

    `time_limits`: seconds that each line of the batch may take. `core`: the core that the client is bound to. Raises
    RunFailed if the client fails, or prints no line within its limit: the client of a killed server waits without end.
    """
    for _ in range(CONNECT_TRIES):
        options = _port_options(server.address, server.port, core)
        output = _wait_for_output(_start_program(batch, (server.address, "-f", "-v", *options)).pid, time_limits)
        if output.status == 0:
            return output
        if ucx_perftest.has_client_heading(output.text) or "onnect" not in output.text + output.log:
            break  # not refused by a server that does not listen yet
        time.sleep(0.1)
    raise _failed_side_error("client", output)


def _listens_on(pid: int, port: int) -> bool:
    """Return whether this process listens on the port, as the kernel reports."""
    with contextlib.suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
    return False


def _wait_for_output(pid: int, time_limits: Sequence[float] = ()) -> ProgramOutput:
    """Wait for the end of a program, and return its output.

    `time_limits`: seconds for each line of its batch, empty if it prints no lines.
    """
    tool = _take_program(pid)
    abort = worker.current_plugin().abort
    done, since = 0, time.monotonic()
    try:
        while tool.process.poll() is None:
            abort.raise_if_aborted()
            if time_limits:
                count = max(0, tool.read_text().count("\n") - 1)
                done, since = count, since if count == done else time.monotonic()
                silent = time.monotonic() - since
                if silent > time_limits[min(done, len(time_limits) - 1)]:
                    raise RunFailed(f"ucx_perftest printed nothing for {silent:.0f} s; its peer process may have ended")
            time.sleep(POLL_SECONDS)
    finally:
        output = tool.end()
    return output


def _start_program(batch: str, arguments: Sequence[str]) -> ChildProcess:
    """Start ``ucx_perftest`` with the text of a batch file; the worker's plugin keeps it for a later step."""
    plugin = worker.current_plugin()
    program, library, _ = ucx_perftest.find_perftest()
    folder = Path(tempfile.mkdtemp(prefix="perftest-", dir=plugin.worker.local_directory))
    script = folder / "batch"
    script.write_text(batch)
    environment = ucx_perftest.perftest_environment(os.environ, library, folder / LOG)
    argv = (str(program), *arguments, "-b", str(script))
    tool = WorkerProgram(ChildProcess(argv, environment=environment, log=folder / PRINTED), folder)
    plugin.children[_program_key(tool.process.pid)] = tool
    threading.Thread(target=_end_when_orphaned, args=(plugin, tool), name="perftest-watch", daemon=True).start()
    return tool.process


def _end_when_orphaned(plugin: worker.MergeWorker, tool: WorkerProgram) -> None:
    """End a program when the run of its worker is over, which the workers of a running cluster outlive."""
    while tool.process.poll() is None:
        if plugin.abort.is_aborted_or_orphaned(ORPHANED_SECONDS):
            tool.process.kill()
            if plugin.children.pop(_program_key(tool.process.pid), None):
                tool.end()  # no step waits for it
            return
        time.sleep(POLL_SECONDS)


def _program_key(pid: int) -> str:
    """Return the key of a program in the worker's plugin, from its process number."""
    return f"ucx_perftest {pid}"


def _failed_side_error(side: str, output: ProgramOutput) -> RunFailed:
    """Return the error of a failed server or client; raises the peer's error if that is its cause."""
    abort = worker.current_plugin().abort
    after_peer = output.status > 0 or output.status == -signal.SIGPIPE
    deadline = time.monotonic() + (PATIENCE_SECONDS if after_peer else 0.0)
    abort.raise_if_aborted()
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        abort.raise_if_aborted()
    complaint = ucx_perftest.last_ucx_error(output.log + output.text)
    return RunFailed(
        f"the ucx_perftest {side} {exit_status_text(output.status)}" + (f": {complaint}" if complaint else "")
    )


def _take_program(pid: int) -> WorkerProgram:
    """Remove a program from the worker's plugin, and return it."""
    tool = worker.current_plugin().children.pop(_program_key(pid), None)
    if not isinstance(tool, WorkerProgram):
        worker.current_plugin().abort.raise_if_aborted()
        raise RunFailed("the ucx_perftest server ended before its client connected")
    return tool
