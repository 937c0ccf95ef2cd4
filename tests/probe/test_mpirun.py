"""mpirun: which one, its command lines, and its last words."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.hosts import HostSpec
from merge_bench.errors import UsageError
from merge_bench.probe.ranks import mpirun
from merge_bench.probe.ranks.mpirun import MPICH, OPEN_MPI, MpiInstallation, parse_mpi_kind_and_version
from tests.probe.host_networks import DescribedNetwork
from tests.probe.test_ucc import executable

FIVE = MpiInstallation(OPEN_MPI, "5.0.11", "/env/bin/mpirun", "/env/lib")
FOUR = MpiInstallation(OPEN_MPI, "4.1.4", "/site/bin/mpirun")
UCX = "--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"
SSH = (
    "ssh -F /etc/my_ssh -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o ServerAliveInterval=5"
    " -o ServerAliveCountMax=3 -o ForwardAgent=no -o ForwardX11=no -o ClearAllForwardings=yes -o ConnectTimeout=10"
)
HOSTS = (HostSpec("node1", slots=2), HostSpec("node2", slots=1))


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("UCX", "OMPI", "MERGE_BENCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def settings(**more: object) -> ClusterSettings:
    return ClusterSettings(environment={"UCX_TLS": "sysv,cma", "UCX_RNDV_THRESH": "1"}, results=Path("r"), **more)


def test_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_LOG_LEVEL", "info")
    found = mpirun.mpirun_command(FIVE, [("localhost", 2)], settings(), ["prog", "{}"], "/tmp/s", {"UCC_CLS": "basic"})
    assert shlex.join(found) == (
        f"/env/bin/mpirun -n 2 --host localhost:2 --map-by slot --bind-to none {UCX}"
        " --prtemca prte_local_tmpdir_base /tmp/s"
        " -x UCC_CLS -x UCX_LOG_LEVEL -x UCX_RNDV_THRESH -x UCX_TLS prog '{}'"
    )


def test_two_hosts_with_open_mpi_5() -> None:
    asked = settings(hosts=HOSTS, launcher="ssh", ssh_config="/etc/my_ssh", interface="lo")
    found = mpirun.mpirun_command(FIVE, [("node1", 1), ("node2", 1)], asked, ["prog"], "/tmp/s")
    assert shlex.join(found) == (
        f"/env/bin/mpirun -n 2 --host node1:1,node2:1 --map-by slot --bind-to none {UCX}"
        " --prtemca prte_local_tmpdir_base /tmp/s"
        f" --prtemca plm_ssh_agent '{SSH}' --prtemca prte_if_include 127.0.0.0/8 --mca btl_tcp_if_include 127.0.0.0/8"
        " -x UCX_RNDV_THRESH -x UCX_TLS prog"
    )


def test_two_hosts_with_open_mpi_4() -> None:
    asked = settings(hosts=HOSTS, launcher="ssh", ssh_config="/etc/my_ssh", interface="lo")
    found = mpirun.mpirun_command(FOUR, [("node1", 2), ("node2", 1)], asked, ["prog"], "/tmp/s")
    assert shlex.join(found) == (
        f"/site/bin/mpirun -n 3 --host node1:2,node2:1 --map-by slot --bind-to none {UCX}"
        f" --mca plm_rsh_agent '{SSH}' --mca oob_tcp_if_include 127.0.0.0/8 --mca btl_tcp_if_include 127.0.0.0/8"
        " -x UCX_RNDV_THRESH -x UCX_TLS prog"
    )


NODE1 = DescribedNetwork(
    addresses={"lo": "127.0.0.1/8", "slow0": "192.168.1.1/24", "fast0": "10.1.0.1/16"},
    routes={"node1": "lo", "node2": "fast0", "far": "slow0"},
    peers={"node1": "127.0.1.1", "node2": "10.1.0.2", "far": "172.16.0.9"},
)
"""A machine, node1, in a fast and a slow network. The route to node2 is the fast one; far lies elsewhere."""


@pytest.mark.parametrize(
    ("interface", "peers", "found"),
    [
        (None, ["node1", "node2"], "10.1.0.0/16"),
        (None, ["node2", "node1"], "10.1.0.0/16"),
        ("slow0", ["node1", "node2"], "192.168.1.0/24"),
        ("named-so-on-the-nodes-alone", ["node1", "node2"], "10.1.0.0/16"),
        (None, ["node2", "far"], None),  # behind a gateway: it has no address in this machine's network
        (None, ["node1"], None),
    ],
)
def test_the_network_is_the_chosen_one_or_else_that_of_the_route(
    interface: str | None, peers: list[str], found: str | None
) -> None:
    assert mpirun.interface_subnet(interface, peers, NODE1) == found


@pytest.mark.parametrize(("mpi", "first"), [(FIVE, "--prtemca prte_if_include"), (FOUR, "--mca oob_tcp_if_include")])
def test_without_an_interface_mpirun_keeps_to_the_network_of_the_route(mpi: MpiInstallation, first: str) -> None:
    asked = settings(hosts=HOSTS, launcher="ssh")
    found = mpirun.mpirun_command(mpi, [("node1", 1), ("node2", 1)], asked, ["prog"], "/tmp/s", host=NODE1)
    assert f"{first} 10.1.0.0/16 --mca btl_tcp_if_include 10.1.0.0/16" in shlex.join(found)


def test_inside_slurm_its_own_launcher_starts_the_ranks() -> None:
    found = mpirun.mpirun_command(
        FIVE, [("n1", 1), ("n2", 1)], settings(hosts=HOSTS, launcher="slurm"), ["prog"], "/tmp/s"
    )
    assert not any("ssh" in word for word in found)


def test_values_never_stand_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TOKEN", "s3cret")
    asked = ClusterSettings(environment={"API_KEY": "s3cret"}, results=Path("r"))
    found = mpirun.mpirun_command(FIVE, [("localhost", 2)], asked, ["prog"], "/tmp/s", {"UCC_KEY": "s3cret"})
    assert "s3cret" not in shlex.join(found)
    assert [found[i + 1] for i, word in enumerate(found) if word == "-x"] == ["API_KEY", "UCC_KEY", "UCX_TOKEN"]


def test_mpich_takes_no_options_of_open_mpi() -> None:
    mpich = MpiInstallation(MPICH, "4.2.0", "/site/bin/mpirun")
    found = mpirun.mpirun_command(mpich, [("localhost", 3)], settings(), ["prog"], "/tmp/s")
    assert shlex.join(found) == "/site/bin/mpirun -n 3 prog"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to…", (OPEN_MPI, "5.0.11")),
        ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to…", (OPEN_MPI, "4.1.4")),
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4", (OPEN_MPI, "4.1.4")),
        ("HYDRA build details:\n    Version:                                 4.2.0\n", (MPICH, "4.2.0")),
        ("MPICH Version:      4.2.0\nMPICH Release date: Fri Feb  9\n", (MPICH, "4.2.0")),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005", (mpirun.INTEL_MPI, "2021.11")),
        ("Intel(R) MPI Library 2021.11 for Linux* OS\n", (mpirun.INTEL_MPI, "2021.11")),
        ("slurmstepd: 23.02", None),
    ],
)
def test_whose_mpi_it_is(text: str, found: tuple[str, str] | None) -> None:
    assert parse_mpi_kind_and_version(text) == found


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two folders of PATH with an mpirun or mpiexec, and an environment with one."""
    one, two, prefix = (tmp_path / name for name in ("one", "two/bin", "env"))
    for folder in (one, two, prefix / "bin"):
        folder.mkdir(parents=True)
    executable(one / "mpiexec", "#!/bin/sh\n")
    executable(two / "mpirun", "#!/bin/sh\n")
    executable(two / "mpiexec", "#!/bin/sh\n")
    executable(prefix / "bin/mpirun", "#!/bin/sh\n")
    return one, two, prefix


def test_the_environment_s_own_comes_first_and_then_every_folder_of_path(folders: tuple[Path, Path, Path]) -> None:
    one, two, prefix = folders
    path = f"{one.parent / 'none'}:{one}:{two}:{one}"
    found = [str(prefix / "bin/mpirun"), str(one / "mpiexec"), str(two / "mpirun")]
    assert mpirun.find_mpirun_paths(path, str(prefix)) == found
    assert mpirun.find_mpirun_paths(f"{two}:{prefix}/bin:{one}", str(prefix)) == [found[0], found[2], found[1]]
    assert mpirun.find_mpirun_paths(path, str(one)) == found[1:]


def test_the_one_whose_libmpi_a_tool_loads_comes_before_all_others(folders: tuple[Path, Path, Path]) -> None:
    one, two, prefix = folders
    for base in (two.parent, prefix):
        (base / "lib").mkdir()
        (base / "lib/libmpi.so.40.30").write_text(str(base))
        (base / "lib/libmpi.so.40").symlink_to("libmpi.so.40.30")
    path = f"{one}:{two}"
    tool = str(two.parent / "lib/libmpi.so.40")
    assert mpirun.find_mpirun_paths(path, str(prefix), tool)[0] == str(two / "mpirun")
    assert mpirun.find_mpirun_paths(path, str(prefix), str(prefix / "lib/libmpi.so.40"))[0] == str(
        prefix / "bin/mpirun"
    )
    elsewhere = one / "libmpi.so.40"
    elsewhere.write_text("")
    assert mpirun.find_mpirun_paths(path, str(prefix), str(elsewhere)) == mpirun.find_mpirun_paths(path, str(prefix))
    assert mpirun.find_mpirun_paths(path, str(prefix), "/nonexistent/libmpi.so") == mpirun.find_mpirun_paths(
        path, str(prefix)
    )


def test_an_mpirun_that_does_not_fit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"{sys.prefix}/bin/mpirun"
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 3.1.0'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(own).parent}")
    assert mpirun.find_mpi(prefix=str(tmp_path)).mpirun == own
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"Open MPI 3\.1\.0, but mpi4py loads Open MPI"):
        mpirun.find_mpi(prefix=str(tmp_path))


def test_the_environment_s_own_is_taken_whatever_stands_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "mpirun", f'#!/bin/sh\nexec {sys.prefix}/bin/mpirun "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert mpirun.find_mpi().mpirun == f"{sys.prefix}/bin/mpirun"
    assert mpirun.find_mpi("mpirun").mpirun == str(tmp_path / "mpirun")


@pytest.mark.slow
def test_one_that_is_asked_for_is_taken_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 3.1.0'\n")
    with pytest.raises(UsageError, match=r"Open MPI 3\.1\.0.*; choose another mpirun with --mpirun"):
        mpirun.find_mpi(str(tmp_path / "mpirun"))
    with pytest.raises(UsageError, match=r"--mpirun /nonexistent/mpirun: program not found"):
        mpirun.find_mpi("/nonexistent/mpirun")
    own = f"{sys.prefix}/bin/mpirun"
    assert mpirun.find_mpi(own) == mpirun.find_mpi()
    monkeypatch.chdir(Path(own).parent)
    assert mpirun.find_mpi("./mpirun").mpirun == f"{Path.cwd()}/mpirun"


def test_a_tool_with_a_ucx_of_its_own_leaves_mpi_s_to_mpi() -> None:
    found = mpirun.mpirun_command(FIVE, [("localhost", 2)], settings(), ["prog"], "/tmp/s", ucx_only=False)
    assert "ucx" not in shlex.join(found)
    assert "-x UCX_RNDV_THRESH -x UCX_TLS" in shlex.join(found)  # as a config has them for the tool


def test_hosts_that_mpirun_cannot_reach_are_refused() -> None:
    mpich = MpiInstallation(MPICH, "4.2.0", "/site/bin/mpirun")
    mpirun.check_hosts_supported(mpich, settings())
    mpirun.check_hosts_supported(FIVE, settings(hosts=HOSTS))
    for mpi, asked, word in (
        (FIVE, settings(launcher="existing"), "--scheduler-address"),
        (mpich, settings(hosts=HOSTS), "requires Open MPI"),
        (FIVE, settings(hosts=(HostSpec("me@node1"),)), "me@node1"),
        (FIVE, settings(hosts=HOSTS, ssh_config="/my files/ssh"), "without spaces"),
    ):
        with pytest.raises(UsageError, match=word):
            mpirun.check_hosts_supported(mpi, asked)
