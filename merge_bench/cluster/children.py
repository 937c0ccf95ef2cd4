"""What runs inside a worker for probes: programs started beside it, under its environment, ended with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from distributed import get_worker

from merge_bench.cluster import perftest
from merge_bench.cluster.supervisor import Child
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import worker
from merge_bench.merge.exchange.abort import ORPHANED_SECONDS

START_POLL_SECONDS = 0.02
POLL_SECONDS = 0.2
"""While a program measures: whoever looks takes a core from it, and with it what its caches hold."""
START_SECONDS = 15.0
PATIENCE_SECONDS = 2.0  # for the news that the other side was killed
CONNECT_TRIES = 40
PORT_TRIES = 5
PORT_TAKEN = "Address already in use"
PRINTED, LOG = "printed", "ucx.log"
SLOWEST_BYTES_PER_SECOND = 2e6
"""A line of a test may take as long as its bytes would at this rate, on top of the silence that is allowed."""


@dataclass(frozen=True)
class Server:
    """A ``ucx_perftest`` that listens on a worker's host."""

    token: str
    address: str
    port: int


@dataclass(frozen=True)
class Output:
    """What a program left: exit status (negative: signal), what it printed, and UCX's log of it."""

    status: int
    text: str
    log: str


@dataclass
class Tool:
    """A program that runs beside the worker, and the folder of its files."""

    process: Child
    folder: Path

    def text(self) -> str:
        """What it printed so far."""
        return (self.folder / PRINTED).read_text(errors="replace")

    def end(self) -> Output:
        """Make sure that it is gone, and take its files."""
        status = self.process.end()
        log = self.folder / LOG
        found = Output(status, self.text(), log.read_text(errors="replace") if log.exists() else "")
        shutil.rmtree(self.folder, ignore_errors=True)
        return found


def ready() -> dict[str, str]:
    """Forget what an earlier run left; says where this worker's ``ucx_perftest`` is and whose UCX it belongs to.

    Raises
    ------
    UsageError
        If there is none, naming the host.
    """
    worker.let_go(worker.here())
    try:
        program, _, origin = perftest.find()
    except UsageError as error:
        raise UsageError(f"on {socket.gethostname()} {error}") from error
    return {"program": str(program), "origin": origin}


def listen(batch: str, core: int | None = None) -> Server:
    """Start a server for `batch`; returns when it listens. Its port is never probed: it takes one client and ends.

    `core`: which one it is bound to, None for all of the worker's.

    Another program may take the free port that was found before the server does; then it gets another one.
    """
    address = _own_address()
    token = secrets.token_hex(8)
    for left in reversed(range(PORT_TRIES)):
        port = _free_port(address)
        process = _start(batch, ("-p", str(port), *_bound(core), *(("-6",) if ":" in address else ())), token).process
        deadline = time.monotonic() + START_SECONDS
        while not _listens(process.pid, port) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(START_POLL_SECONDS)
        if process.poll() is None:
            break
        output = _taken(token).end()
        if not left or PORT_TAKEN not in output.text + output.log:
            raise _failed("server", output)
    return Server(token, address, port)


def _bound(core: int | None) -> tuple[str, ...]:
    return () if core is None else ("-c", str(core))


def _free_port(address: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def serve(server: Server) -> Output:
    """Wait for the server's end, which comes with that of its client."""
    tool = _taken(server.token)
    abort = worker.here().abort
    try:
        while tool.process.poll() is None:
            abort.check()
            time.sleep(POLL_SECONDS)
    finally:
        output = tool.end()
    if output.status != 0:
        raise _failed("server", output)
    return output


def ask(server: Server, batch: str, limits: Sequence[float], core: int | None = None) -> Output:
    """Run the client of `server`; `limits`: seconds that each line of the batch may take; `core` as in `listen`.

    Raises
    ------
    RunFailed
        If the client fails, or prints no line within its limit: a server that was killed leaves its client waiting.
    """
    options = ("-p", str(server.port), "-f", "-v", *_bound(core), *(("-6",) if ":" in server.address else ()))
    for attempt in range(CONNECT_TRIES):
        output = _run(batch, (server.address, *options), limits)
        refused = output.status != 0 and "onnect" in output.text + output.log and not perftest.has_heading(output.text)
        if not refused or attempt == CONNECT_TRIES - 1:
            break
        time.sleep(0.1)
    if output.status != 0:
        raise _failed("client", output)
    return output


def _listens(pid: int, port: int) -> bool:
    """Whether the kernel lists the port as the process's; what it prints of it stays in a buffer until it ends."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in found)
    return False


def _run(batch: str, arguments: Sequence[str], limits: Sequence[float]) -> Output:
    tool = _start(batch, arguments)
    abort = worker.here().abort
    done, since = 0, time.monotonic()
    try:
        while tool.process.poll() is None:
            abort.check()
            count = max(0, tool.text().count("\n") - 1)
            if count != done:
                done, since = count, time.monotonic()
            if time.monotonic() - since > limits[min(done, len(limits) - 1)]:
                raise RunFailed(
                    f"ucx_perftest printed nothing for {time.monotonic() - since:.0f} s; its other side may be gone"
                )
            time.sleep(POLL_SECONDS)
    finally:
        output = tool.end()
    return output


def _start(batch: str, arguments: Sequence[str], token: str | None = None) -> Tool:
    """`token`: under which `_taken` gives it; without one whoever started it waits for it."""
    plugin = worker.here()
    program, library, _ = perftest.find()
    folder = Path(tempfile.mkdtemp(prefix="perftest-", dir=get_worker().local_directory))
    script = folder / "batch"
    script.write_text(batch)
    environment = perftest.environment(os.environ, library, folder / LOG)
    argv = (str(program), *arguments, "-b", str(script))
    tool = Tool(Child(argv, environment=environment, log=folder / PRINTED), folder)
    if token is not None:
        plugin.children[token] = tool
    threading.Thread(target=_watch, args=(plugin, tool, token), name="perftest-watch", daemon=True).start()
    return tool


def _watch(plugin: worker.MergeWorker, tool: Tool, token: str | None) -> None:
    """End a program whose run is over: on a running cluster the worker, which it would end with, goes on."""
    while tool.process.poll() is None:
        if plugin.abort.left_alone(ORPHANED_SECONDS):
            tool.process.kill()
            if token is not None and plugin.children.pop(token, None) is tool:
                tool.end()  # nobody has come for it
            return
        time.sleep(POLL_SECONDS)


def _own_address() -> str:
    """The address that this worker is bound to: the chosen interface, or loopback."""
    address = str(get_worker().address).partition("://")[2]
    return address.rpartition(":")[0].strip("[]")


def _failed(side: str, output: Output) -> RunFailed:
    """One side's failure, unless the other's is told meanwhile: one that ends by itself may have lost its peer."""
    abort = worker.here().abort
    deadline = time.monotonic() + (PATIENCE_SECONDS if output.status > 0 else 0.0)
    abort.check()
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        abort.check()
    how = f"was killed by signal {-output.status}" if output.status < 0 else f"ended with status {output.status}"
    said = perftest.complaint(output.log + output.text)
    return RunFailed(f"the {side} of ucx_perftest {how}" + (f": {said}" if said else ""))


def _taken(token: str) -> Tool:
    tool = worker.here().children.pop(token, None)
    if not isinstance(tool, Tool):
        raise RunFailed("the server of ucx_perftest was ended before its client came")
    return tool
