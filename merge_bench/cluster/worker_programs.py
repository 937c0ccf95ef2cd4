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
from merge_bench.cluster.base import how_ended
from merge_bench.cluster.supervisor import Child
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
class Server:
    """A ``ucx_perftest`` that listens on a worker's host. `pid`: its process, under which that worker keeps it."""

    address: str
    port: int
    pid: int


@dataclass(frozen=True)
class Output:
    """What a program left: its exit status, the text that it printed, and UCX's log."""

    status: int
    text: str
    log: str


@dataclass
class Tool:
    """A program that runs beside the worker, and the folder with its files."""

    process: Child
    folder: Path

    def text(self) -> str:
        return (self.folder / PRINTED).read_text(errors="replace")

    def end(self) -> Output:
        """End it if it still runs, read its files, and remove them."""
        status = self.process.end()
        log = self.folder / LOG
        output = Output(status, self.text(), log.read_text(errors="replace") if log.exists() else "")
        shutil.rmtree(self.folder, ignore_errors=True)
        return output


def prepare_worker() -> str:
    """Release what an earlier run left here; gives the origin of the UCX of ``ucx_perftest``, or raises UsageError."""
    worker.release_launch(worker.current_plugin())
    try:
        return ucx_perftest.find_perftest()[2]
    except UsageError as error:
        raise UsageError(f"{socket.gethostname()}: {error}") from error


def free_port(address: str) -> int:
    """A port that no program has at `address` now; one may take it before it is used."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def start_server(batch: str, core: int | None = None, *, find_port: Callable[[str], int] = free_port) -> Server:
    """Start a server for `batch`; returns when it listens. Nothing may connect to test its port: it takes one client.

    `core`: the one it is bound to; None: all of the worker's. `find_port`: gives a free port at an address. If another
    program takes that port first, the server is started again with another one.
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
            raise _failure_of("server", output)
    return Server(address, port, process.pid)


def _port_options(address: str, port: int, core: int | None) -> tuple[str, ...]:
    bound = () if core is None else ("-c", str(core))
    return ("-p", str(port), *bound, *(("-6",) if ":" in address else ()))


def wait_for_server(server: Server) -> Output:
    """What a server printed, as soon as it has ended; raises RunFailed if it failed."""
    output = _wait_for_output(server.pid)
    if output.status != 0:
        raise _failure_of("server", output)
    return output


def run_client(server: Server, batch: str, limits: Sequence[float], core: int | None = None) -> Output:
    """Run a client of `server`, on `core` if one is given. `limits`: seconds that each line of the batch may take.

    Raises RunFailed if the client fails, or prints no line within its limit: the client of a killed server waits
    without end.
    """
    for _ in range(CONNECT_TRIES):
        options = _port_options(server.address, server.port, core)
        output = _wait_for_output(_start_program(batch, (server.address, "-f", "-v", *options)).pid, limits)
        if output.status == 0:
            return output
        if ucx_perftest.has_heading(output.text) or "onnect" not in output.text + output.log:
            break  # not refused by a server that does not listen yet
        time.sleep(0.1)
    raise _failure_of("client", output)


def _listens_on(pid: int, port: int) -> bool:
    """Whether this process listens on the port, by the kernel's list: its own output is buffered until it ends."""
    with contextlib.suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
    return False


def _wait_for_output(pid: int, limits: Sequence[float] = ()) -> Output:
    """Wait for the end of a program; `limits`: seconds for each line of its batch, empty if it prints no lines."""
    tool = _take_program(pid)
    abort = worker.current_plugin().abort
    done, since = 0, time.monotonic()
    try:
        while tool.process.poll() is None:
            abort.raise_if_set()
            if limits:
                count = max(0, tool.text().count("\n") - 1)
                done, since = count, since if count == done else time.monotonic()
                silent = time.monotonic() - since
                if silent > limits[min(done, len(limits) - 1)]:
                    raise RunFailed(f"ucx_perftest printed nothing for {silent:.0f} s; its peer process may have ended")
            time.sleep(POLL_SECONDS)
    finally:
        output = tool.end()
    return output


def _start_program(batch: str, arguments: Sequence[str]) -> Child:
    """Start a program on a batch; the plugin keeps it until a step takes it."""
    plugin = worker.current_plugin()
    program, library, _ = ucx_perftest.find_perftest()
    folder = Path(tempfile.mkdtemp(prefix="perftest-", dir=plugin.worker.local_directory))
    script = folder / "batch"
    script.write_text(batch)
    environment = ucx_perftest.perftest_environment(os.environ, library, folder / LOG)
    argv = (str(program), *arguments, "-b", str(script))
    tool = Tool(Child(argv, environment=environment, log=folder / PRINTED), folder)
    plugin.children[_child_name(tool.process.pid)] = tool
    threading.Thread(target=_end_when_orphaned, args=(plugin, tool), name="perftest-watch", daemon=True).start()
    return tool.process


def _end_when_orphaned(plugin: worker.MergeWorker, tool: Tool) -> None:
    """End a program whose run is over; it would stay with the workers of a running cluster."""
    while tool.process.poll() is None:
        if plugin.abort.is_abandoned(ORPHANED_SECONDS):
            tool.process.kill()
            if plugin.children.pop(_child_name(tool.process.pid), None):
                tool.end()  # no step waits for it
            return
        time.sleep(POLL_SECONDS)


def _child_name(pid: int) -> str:
    """The name by which the plugin keeps a program. A port is no name: two servers may be offered the same one."""
    return f"ucx_perftest {pid}"


def _failure_of(side: str, output: Output) -> RunFailed:
    """The failure of one side; if the side ended because its peer did, the peer's failure is raised."""
    abort = worker.current_plugin().abort
    after_peer = output.status > 0 or output.status == -signal.SIGPIPE
    deadline = time.monotonic() + (PATIENCE_SECONDS if after_peer else 0.0)
    abort.raise_if_set()
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        abort.raise_if_set()
    complaint = ucx_perftest.last_error(output.log + output.text)
    return RunFailed(f"the ucx_perftest {side} {how_ended(output.status)}" + (f": {complaint}" if complaint else ""))


def _take_program(pid: int) -> Tool:
    tool = worker.current_plugin().children.pop(_child_name(pid), None)
    if not isinstance(tool, Tool):
        worker.current_plugin().abort.raise_if_set()
        raise RunFailed("the ucx_perftest server ended before its client connected")
    return tool
