"""What `probe` refuses: one sentence and status 2, before anything starts and without a folder for results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from merge_bench.cluster import ucx_perftest
from merge_bench.errors import UsageError
from merge_bench.probe import probes
from tests.helpers.runs import Finished, command
from tests.probe.test_ucc import executable

Refused = Callable[..., str]


def probe(folder: Path, name: str, *words: str | Path, environ: Mapping[str, str] | None = None) -> Finished:
    """`probe NAME` with these words, in this process."""
    return command(folder, *words, environ=environ, json_output=False, verb=("probe", name))


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Runs `probe`, which must be refused; gives its sentence."""

    def run(name: str, *words: str | Path, environ: Mapping[str, str] | None = None) -> str:
        finished = probe(tmp_path, name, *words, environ=environ)
        assert finished.output == ""
        assert not finished.results.exists()
        return finished.check_refused()

    return run


@pytest.fixture
def without_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a machine that has no mpirun, neither on PATH nor in this Python's environment."""
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize("name", probes())
def test_a_dry_run_says_how_long_it_takes_and_starts_nothing(name: str, tmp_path: Path) -> None:
    finished = probe(tmp_path, name, "--dry-run", "--repetitions", "2", "--workers", "2")
    parts = ("default ucx/2", "default mpi/2") if name == "all-to-all" else ("default",)
    lines = finished.output.splitlines()
    (first, *_, time, order), commands = lines[: len(parts) + 2], lines[len(parts) + 2 :]
    assert (finished.status, first) == (0, f"## {parts[0]}: 2 launches")
    assert sorted(order.replace(" default", "\ndefault").split("\n")[1:]) == sorted(2 * parts)
    assert time.startswith(f"## {2 * len(parts)} launches take about ")
    assert len(commands) >= 2
    assert not finished.results.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("p2p", "--sizes", "8..1"), "--sizes"),
        (("p2p", "--tests", "tagg"), "tagg"),
        (("p2p", "--placement", "two-hosts"), "two hosts"),
        (("p2p", "--placement", "everywhere"), "one-host"),
        (("p2p", "--config", "no-such"), "no-such"),
        (("p2p", "--repetitions", "0"), "--repetitions"),
        (("rma", "--sizes", "x"), "--sizes"),
        (("mpi", "--sizes", "3G"), "at most 2147483647 bytes"),
        (("mpi", "--sizes", "x"), "--sizes"),
        (("mpi", "--placement", "nowhere"), "--placement nowhere"),
        (("mpi", "--mpirun", "/nowhere/mpirun"), "--mpirun /nowhere/mpirun: program not found"),
        (("mpi", "--placement", "two-hosts"), "--placement two-hosts needs two hosts"),
        (("reduce-scatter", "--counts", "0"), "--counts"),
        (("reduce-scatter", "--algorithms", "magic"), "'magic'"),
        (("reduce-scatter", "--algorithms", "ucc-sharp"), "ucc_perftest is not on PATH"),
        (("reduce-scatter", "--workers", "1"), "at least two ranks"),
        (("all-to-all", "--workers", "1"), "at least two ranks"),
        (("all-to-all", "--sizes", "3G"), "at most 2147483647 bytes"),
        (("all-to-all", "--backend", "carrier-pigeon"), "'carrier-pigeon' is not one of ucx, mpi"),
        (("all-to-all", "--backend", "ucx,nccl"), "'nccl' is not one of ucx, mpi"),
        (("all-to-all", "--chunk", "0"), "--chunk"),
        (("all-to-all", "--link-limit", "7"), "is not a rate"),
        (("all-to-all", "--mpirun", "/nowhere/mpirun"), "--mpirun /nowhere/mpirun: program not found"),
    ],
)
def test_wrong_options(refused: Refused, words: tuple[str, ...], says: str) -> None:
    assert says in refused(*words)


@pytest.mark.parametrize("name", ["mpi", "reduce-scatter"])
def test_without_any_mpirun(refused: Refused, name: str, without_mpirun: dict[str, str]) -> None:
    assert "there is no mpirun in /nonexistent/bin or on PATH" in refused(name, environ=without_mpirun)


def test_all_to_all_goes_without_an_mpi_that_nobody_asked_for(tmp_path: Path, without_mpirun: dict[str, str]) -> None:
    finished = probe(tmp_path, "all-to-all", "--dry-run", "--workers", "2,3", environ=without_mpirun)
    assert finished.status == 0
    (order,) = [line.split()[2:] for line in finished.output.splitlines() if line.startswith("## order: ")]
    assert sorted(order) == sorted(["default", "ucx/2", "default", "ucx/3"] * 3)
    assert "backend-left-out: all-to-all without MPI: there is no mpirun" in finished.errors


def test_all_to_all_needs_an_mpi_that_was_asked_for(refused: Refused, without_mpirun: dict[str, str]) -> None:
    asked = ("all-to-all", "--backend", "ucx,mpi")
    assert "there is no mpirun in /nonexistent/bin" in refused(*asked, environ=without_mpirun)


def test_an_mpi_without_ucx(refused: Refused, tmp_path: Path) -> None:
    executable(tmp_path / "mpirun", f'#!/bin/sh\nexec {sys.prefix}/bin/mpirun "$@"\n')
    executable(tmp_path / "ompi_info", "#!/bin/sh\necho mca:pml:ob1:version:\n")
    message = refused("mpi", "--mpirun", tmp_path / "mpirun")
    assert f"{tmp_path}/mpirun belongs to Open MPI" in message
    assert "without UCX" in message
    assert "--mpirun" in message


def test_device_memory_without_a_gpu(refused: Refused) -> None:
    message = refused("p2p", "--memory", "cuda", "--sizes", "8", environ={"CUDA_VISIBLE_DEVICES": ""})
    assert "--memory cuda need an NVIDIA GPU, but none is visible on this host" in message


def test_a_ucx_without_its_tools(tmp_path: Path) -> None:
    (tmp_path / "ucx_info").symlink_to("/bin/true")
    environ = {"MERGE_BENCH_UCX": "system", "PATH": str(tmp_path)}
    with pytest.raises(
        UsageError, match=f"ucx_perftest is not in the folder of {tmp_path}/ucx_info; install the tools of this UCX"
    ):
        ucx_perftest.find_perftest_program(environ)
