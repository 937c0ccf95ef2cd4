"""Errors from the last output of mpirun: recorded of Open MPI 4.1.4 and 5.0.11 (`tests/data/mpirun`), and of MPICH."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.errors import LaunchFailed
from merge_bench.probe.ranks.mpirun import NO_UCX, mpirun_error

DATA = Path(__file__).parents[1] / "data/mpirun"
BOTH = pytest.mark.parametrize("release", ["4.1.4", "5.0.11"])


def explained(case: str, release: str, status: int, pids: dict[int, int] | None = None) -> LaunchFailed:
    """The error of a recorded case."""
    return mpirun_error((DATA / f"{case}-{release}.txt").read_text(), status, 30.0, pids)


@pytest.mark.parametrize(("release", "pid"), [("4.1.4", 0), ("5.0.11", 19089)])
def test_a_killed_rank(release: str, pid: int) -> None:
    named = f" (process {pid})" if pid else ""  # Open MPI 4 prints 0 for a rank beside mpirun
    error = explained("killed", release, 137)
    assert str(error) == f"rank 1{named} on vm was killed by signal 9"
    assert (error.host, error.rank, error.exit_status, error.code) == ("vm", 1, 3, "worker-died")
    known = explained("killed", release, 137, {0: 4710, 1: 4711})
    assert f"rank 1 (process {pid or 4711}) on vm" in str(known)


@BOTH
def test_a_rank_on_another_host_that_was_killed(release: str) -> None:
    pid = {"4.1.4": 235, "5.0.11": 495}[release]
    error = explained("far-rank-killed", release, 137, {1: 1})
    assert str(error) == f"rank 1 (process {pid}) on node2 was killed by signal 9"


@BOTH
def test_the_alarm_is_silence(release: str) -> None:
    assert str(explained("alarm", release, 142, {1: 7})).endswith(" on vm made no progress for 30 s")


@BOTH
def test_a_rank_that_ended_by_itself(release: str) -> None:
    error = explained("status", release, 3)
    assert str(error).startswith("rank 1 ended with status 3")
    assert error.rank == 1


@BOTH
@pytest.mark.parametrize(
    ("case", "host", "complaint"),
    [
        ("wrong-host-key", "node2", ": Host key verification failed."),
        ("unreachable", "10.213.0.99", ": ssh: connect to host 10.213.0.99 port 22: No route to host"),
        ("daemon-killed", "node2", ""),
    ],
)
def test_a_host_that_cannot_be_reached(case: str, release: str, host: str, complaint: str) -> None:
    error = explained(case, release, 255)
    assert str(error) == f"mpirun cannot reach {host}{complaint}"
    assert (error.host, error.code) == (host, "host-unreachable")


@BOTH
def test_a_program_that_is_not_there(release: str) -> None:
    error = explained("missing-program", release, 1)
    assert str(error) == "/nonexistent/program cannot be executed on vm; install it at the same path on every host"


@BOTH
def test_ranks_without_ucx(release: str) -> None:
    error = explained("no-ucx", release, 1)
    assert "ranks on vm cannot use UCX" in str(error)
    assert error.code == NO_UCX


def test_a_program_of_another_mpi() -> None:
    error = explained("other-mpi", "5.0.11", 127)
    assert str(error).startswith(
        "/site/bin/ucc_perftest does not start (symbol lookup error: /env/lib/openmpi/libuct.so"
    )
    assert "set --mpirun to the mpirun of that MPI" in str(error)


def test_an_ssh_that_names_no_host() -> None:
    text = "bash: line 1: orted: command not found\n" + (DATA / "unreachable-4.1.4.txt").read_text().partition("\n")[2]
    error = mpirun_error(text, 1, 30.0)
    assert str(error) == "mpirun cannot reach a host: bash: line 1: orted: command not found"


def test_lines_of_mpirun_itself_are_not_those_of_ssh() -> None:
    text = "[vm:1] plm:ssh: Warning: setpgid failed with errno=Permission denied(13)\n"
    error = mpirun_error(text + (DATA / "daemon-killed-5.0.11.txt").read_text(), 213, 30.0)
    assert str(error) == "mpirun cannot reach node2"


def test_an_mpirun_that_leaves_the_reason_to_ssh() -> None:
    """PRRTE does on a busy machine: it ends with the status of ssh, 255, and prints nothing but a warning."""
    text = (
        "[vm:1] plm:ssh: Warning: setpgid(7,7) failed in parent with errno=Permission denied(13)\n"
        "Host key for node2 has changed and you have requested strict checking.\nHost key verification failed.\n"
    )
    assert str(mpirun_error(text, 255, 30.0)) == "mpirun cannot reach node2: Host key verification failed."


def test_mpich() -> None:
    error = mpirun_error("=  BAD TERMINATION\n=   PID 11948 RUNNING AT vm\n=   EXIT CODE: 9\n====\n", 9, 30.0)
    assert str(error) == "process 11948 on vm ended with status 9 (an exit code or a signal number)"


def test_unknown_output() -> None:
    assert str(mpirun_error("---\n\n@@@@@@@\n", 7, 30.0)) == "mpirun ended with status 7"
    assert str(mpirun_error("@@@@@@@\n---\nout of luck\n", 7, 30.0)) == "mpirun ended with status 7: out of luck"
    frame = "-" * 74
    framed = f"{frame}\nof mpirun\n{frame}\n"
    assert str(mpirun_error(f"{framed}of the program\n", 7, 30.0)) == "mpirun ended with status 7: of the program"
    assert str(mpirun_error(framed, 7, 30.0)) == "mpirun ended with status 7: of mpirun"


def test_an_mpirun_that_lost_a_host_and_ends_with_0() -> None:
    """PRRTE does now and then, where its daemon there was killed."""
    assert str(mpirun_error((DATA / "daemon-killed-5.0.11.txt").read_text(), 0, 30.0)) == "mpirun cannot reach node2"
    assert str(mpirun_error("", 0, 30.0)) == "the ranks ended before the measurement was complete"
