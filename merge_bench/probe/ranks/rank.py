"""One rank among those that mpirun started: what it knows of the others, tells the driver, and when it gives up.

What it tells goes to standard output as lines of JSON whose first key is ``merge_bench``:

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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_bench.cluster import ucx_log

if TYPE_CHECKING:
    import numpy as np

KEY = "merge_bench"
WATCH_SECONDS = 1.0
GRACE_SECONDS = 5.0  # the driver, which knows more, shall be the first to say that nothing moves
DAEMONS = ("prted", "orted")
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

        from merge_bench.host import machine, network
        from merge_bench.host.libraries import library_path

        path, own = library_path("libucp"), library_path("libmpi")
        told = ucx_log.version(self.ucx_log())
        origin = "its own" if path and own and path.is_relative_to(own.parent) else str(path)
        return {
            "rank": self.rank, **machine.identity(), "name": f"rank-{self.rank}", "host_number": self.host_number,
            "environment": machine.environment(self.spec.get("names", ())),
            "network": network.describe(self._way) if self._way else None,
            "versions": {**machine.versions(), "mpi4py": mpi4py.__version__, "mpi": _library_version(MPI)},
            "ucx": {
                "version": told[0] if told else None, "path": str(path) if path else None,
                "origin": origin, "lanes": self.lanes(), "pml": os.environ.get(_PML),
            },
            "hardware": machine.hardware(),
        }  # fmt: skip


def _library_version(mpi: Any) -> str:
    from merge_bench.probe.ranks.mpirun import identify

    said = str(mpi.Get_library_version()).replace("\0", "")
    return " ".join(identify(said) or (said.partition("\n")[0],))
