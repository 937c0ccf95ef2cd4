"""Starts processes and ends them so that nothing of them is left: semaphores, scratch folders.

Every process leads a session of its own: what it starts ends with it, and Ctrl-C reaches the driver alone. If the
driver is killed, the kernel ends the process. This module imports only what Python has and `config.files`: the agent
of a host (`host_agent.py`) imports it first.

A run's scratch files, with its certificate, are in a folder. The next run removes the folders of killed runs: no
process holds their locks.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from merge_bench.config.files import TOKENS, open_regular_file, open_without_links
from merge_bench.errors import UsageError

TIDY_SECONDS = 2.0
"""Time for Python's resource trackers to remove what killed processes left in /dev/shm, and to end."""
CLOCK_BYTES = 8
"""The length of a time that a new process writes, in the byte order of the machine."""
TAIL_LINES = 15
TAIL_BYTES = 16384
_POLL_SECONDS = 0.02
_FORK_SECONDS = 0.001
_TRACKER = b"multiprocessing.resource_tracker"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_adopting_lock, _adopting_blocks, _adopted_before = threading.Lock(), 0, ctypes.c_int()
_prctl = ctypes.CDLL(None).prctl  # looked up before a fork: between fork and exec only the call itself is safe


def die_with_parent(death_signal: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent process, or the parent's starting thread, ends."""
    _prctl(_PR_SET_PDEATHSIG, death_signal)


@contextlib.contextmanager
def adopt_orphans() -> Iterator[bool]:
    """Become the parent of a descendant of this process whose parent ends inside the block; False: it is not allowed.

    Several such blocks may overlap, in several threads. What was set before the first is set again after the last.
    """
    global _adopting_blocks
    with _adopting_lock:
        if not _adopting_blocks:
            _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(_adopted_before))
        _adopting_blocks += 1
        allowed: bool = _prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        yield allowed
    finally:
        with _adopting_lock:
            _adopting_blocks -= 1
            if not _adopting_blocks:
                _prctl(_PR_SET_CHILD_SUBREAPER, _adopted_before.value)


def become_session_of(parent_pid: int, forking_pid: int, announce: Callable[[], object]) -> None:
    """Make this process, which was forked by `forking_pid`, the child of `parent_pid` with a session of its own.

    `parent_pid` is in a block of `adopt_orphans`, and `forking_pid` ends at once. This process ends when the parent
    does, and here if it got another one. `announce` is called before the session begins: until then this process is
    ended with the session of `forking_pid`.
    """
    while os.getppid() == forking_pid:
        time.sleep(_FORK_SECONDS)
    die_with_parent()
    if os.getppid() != parent_pid:
        os._exit(1)
    announce()
    os.setsid()


class ChildProcess:
    """A process that this process started, and that leads a session of its own.

    It is not reaped before `end_session` or `end_child_processes`. Until then the kernel gives its number, which is
    also its session's, to no other process. If a signal may interrupt the starting process, start it under
    `signals.defer_interruption`, together with the assignment of the result.

    `log`: the file that its output is appended to, or an open descriptor. `stdin`, `stdout`: as of `subprocess.Popen`;
    by default standard input is empty and standard output goes to `log`. `cores`: the cores that it may run on; by
    default those of this process. `death_signal`: the signal that the kernel sends it when the thread that started it
    ends; None: no signal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path | int,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        cwd: Path | None = None,
        cores: Collection[int] = (),
        death_signal: int | None = signal.SIGKILL,
        clock: int | None = None,
    ) -> None:
        with contextlib.ExitStack() as opened:
            written: int | IO[bytes] = (
                log if isinstance(log, int) else opened.enter_context(open(log, "ab", opener=open_without_links))
            )
            self._process: subprocess.Popen[bytes] | _AdoptedProcess = subprocess.Popen(
                argv,
                env={name: value for name, value in environment.items() if name not in TOKENS},
                cwd=cwd,
                stdin=stdin,
                stdout=written if stdout is None else stdout,
                stderr=written,
                start_new_session=True,
                preexec_fn=_make_child_setup_function(death_signal, cores, clock),
            )
        self.pid = self._process.pid

    @classmethod
    def adopted(cls, pid: int) -> ChildProcess:
        """Return the child with this process number, which called `become_session_of`; it has no pipes."""
        child = cls.__new__(cls)
        child._process, child.pid = _AdoptedProcess(pid), pid
        return child

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def is_reaped(self) -> bool:
        """Whether the process has been reaped: from then on another process may have its number."""
        return self._process.returncode is not None

    def poll(self) -> int | None:
        """Return the exit status of the process, or its negative signal number; None while the process runs."""
        if self.is_reaped:
            return self._process.returncode
        try:
            state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # another thread has just reaped it
            return self._process.poll()
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def wait(self, seconds: float) -> int | None:
        """Wait at most `seconds` for the end of the process, and return its status as `poll`; None if still running."""
        deadline = time.monotonic() + seconds
        while (status := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return status

    def send_signal(self, signal_number: int) -> None:
        """Send the process a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def kill_session(self) -> None:
        """Kill all processes of this process's session, without waiting for their end."""
        if not self.is_reaped:
            kill_sessions([self.pid])

    def end_session(self, first_signal: int | None = None, seconds: float = 0.0) -> int:
        """End all processes of the session, and return the exit status of this process.

        `first_signal`: sent to this process before the kill, which then waits `seconds` for its end.
        """
        if first_signal is not None:
            self.send_signal(first_signal)
            self.wait(seconds)
        self.kill_session()
        return self.wait_for_exit_status()

    def wait_for_exit_status(self, seconds: float | None = None) -> int:
        """Wait for the end of the process, which was killed, reap it, and return its exit status.

        Raises `subprocess.TimeoutExpired` after `seconds`; None: no limit.
        """
        return self._process.wait(seconds)


class _AdoptedProcess:
    """What `ChildProcess` uses of `subprocess.Popen`, for a child that another process forked."""

    stdin = stdout = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Reap the process if it has ended; its exit status, 1 if somebody else reaped it, None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                self.returncode = 1
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, reap it, and return its exit status, as of `subprocess.Popen.wait`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_FORK_SECONDS)
        return status


def end_child_processes(children: Collection[ChildProcess], seconds: float | None = None) -> list[ChildProcess]:
    """Kill the sessions of these processes, and return the processes that have not ended within `seconds`.

    `seconds`: None for no limit.
    """
    kill_sessions([child.pid for child in children if not child.is_reaped])
    deadline = None if seconds is None else time.monotonic() + seconds
    left = []
    for child in children:
        try:
            child.wait_for_exit_status(None if deadline is None else max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:  # in the kernel, as with a file server that does not answer
            left.append(child)
    return left


def kill_sessions(leader_pids: Collection[int], tracker_seconds: float = TIDY_SECONDS) -> None:
    """Kill every process of the sessions whose leaders have the process numbers `leader_pids`.

    The leaders must be children of this process that were not reaped yet.

    On GPUs a worker is the child of a nanny, and their queues are named semaphores. Python's resource tracker in the
    same session removes these once all others are gone, and then ends. So it is killed last, and only if it stays for
    `tracker_seconds`.
    """
    if not leader_pids:
        return
    for _ in range(2):  # the second time for processes that were started meanwhile
        for pid in _pids_of_sessions(leader_pids, resource_trackers=False):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + tracker_seconds
    while time.monotonic() < deadline and any(_pids_of_sessions(leader_pids, resource_trackers=True)):
        time.sleep(_POLL_SECONDS)
    for leader in leader_pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def read_log_tail(log_file: Path, line_count: int = TAIL_LINES, byte_limit: int = TAIL_BYTES) -> str:
    """Return the last lines of a log file, at most `byte_limit` bytes; empty if there is no such file."""
    return "\n".join(read_last_bytes(log_file, byte_limit).splitlines()[-line_count:])


def read_last_bytes(log_file: Path, byte_count: int) -> str:
    """Return the last `byte_count` bytes of a log file as text; empty if there is no such file."""
    try:
        with open_regular_file(log_file) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - byte_count))
            return file.read().decode(errors="replace")
    except (OSError, UsageError):
        return ""


def _make_child_setup_function(
    death_signal: int | None, cores: Collection[int], clock: int | None
) -> Callable[[], None] | None:
    """Return the function that a new process calls before it runs its program; None if no call is needed."""
    if death_signal is None and not cores and clock is None:
        return None
    parent = os.getpid()

    def set_up_child() -> None:
        if death_signal is not None:
            die_with_parent(death_signal)
            if os.getppid() != parent:  # the parent ended before the call above
                os._exit(1)
        if cores:
            os.sched_setaffinity(0, cores)
        if clock is not None:  # the last, so that nothing of the preparation counts
            os.write(clock, time.monotonic_ns().to_bytes(CLOCK_BYTES, sys.byteorder))

    return set_up_child


def _pids_of_sessions(leader_pids: Collection[int], *, resource_trackers: bool) -> Iterator[int]:
    """Yield the process numbers in these sessions: those of Python's resource trackers, or those of all others."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                if (
                    os.getsid(pid) in leader_pids
                    and (_TRACKER in (entry / "cmdline").read_bytes()) == resource_trackers
                ):
                    yield pid


SCRATCH_PREFIX = "merge-bench-"
# Hosts must accept the certificate even if their clocks differ.
CERTIFICATE_LIFETIME = datetime.timedelta(days=30)
_locks: dict[Path, int] = {}


def make_scratch_folder(name_part: str = "") -> Path:
    """Make a temporary folder that only this user can read, and lock it until this process removes it or ends.

    `name_part`: a part of the folder's name.
    """
    _remove_stale_scratch_folders()
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX + (f"{name_part}-" if name_part else "")))
    with contextlib.suppress(OSError):  # a file system without locks: then only `remove_scratch_folder` removes it
        draft = folder / ".draft"
        _locks[folder] = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(_locks[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(folder / _host_lock_file_name())  # so a file of this name is locked from the beginning
    return folder


def remove_scratch_folder(folder: Path) -> None:
    """Remove a folder that `make_scratch_folder` made, and release its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _locks.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _host_lock_file_name() -> str:
    """Return the name of this host's lock files: hosts may share a folder without seeing each other's locks."""
    return f".in-use-{socket.gethostname()}"


def _remove_stale_scratch_folders() -> None:
    """Delete the scratch folders of this user's killed runs on this host, whose locks no process holds."""
    for lock in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*/{_host_lock_file_name()}"):
        if lock.parent in _locks:
            continue
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def write_tls_certificate(folder: Path) -> dict[str, str]:
    """Write a self-signed certificate that only this run's processes trust, and return the paths of its files.

    They are ``ca``, ``cert`` and ``key``, as PEM. Only this user can read them.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "merge-bench-run")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("merge-bench-run")]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CERTIFICATE_LIFETIME)
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files = {}
    for kind, content in (("ca", certificate), ("cert", certificate), ("key", private)):
        files[kind] = str(folder / f"{kind}.pem")
        with os.fdopen(os.open(files[kind], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return files
