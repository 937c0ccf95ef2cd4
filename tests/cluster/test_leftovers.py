"""Variables of a batch system without a job: auto runs here and says what to unset; by name it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.cluster.launchers import choose_launcher, unreachable_batch_job_warning
from merge_bench.config.options import ClusterOptions
from merge_bench.errors import UsageError
from tests.helpers import fake_scontrol

AUTO = ClusterOptions()
JOB = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "node[01-02]",
    "SLURM_NODELIST": "node[01-02]",
    "SLURM_TASKS_PER_NODE": "4(x2)",
    "SLURM_GPUS_PER_NODE": "",
    "SLURM_GPUS_ON_NODE": "",
}
BAD = ("", "two", "2-4", "99999999999(x99999999999)", "-1", "\udcff;$(id)")
"""Six bad values of any variable."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """JOB on a host whose scontrol knows the nodes of its list, and of no other."""
    return JOB | fake_scontrol.put_on_path(monkeypatch, tmp_path, {JOB["SLURM_JOB_NODELIST"]: ("node01", "node02")})


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", JOB)
def test_every_variable_of_slurm(job: dict[str, str], name: str, value: str) -> None:
    environ = {**job, name: value}
    kind, hosts = choose_launcher(AUTO, environ)
    left = unreachable_batch_job_warning(AUTO, environ)
    if kind.name == "slurm":
        assert [host.name for host in hosts] == ["node01", "node02"]
        assert all(host.slots is None or 0 < host.slots < 10_000 for host in hosts)
        assert left is None
    else:
        assert (kind.name, hosts) == ("local", ())
        assert left is not None
        assert "unset SLURM_JOB_NUM_NODES" in str(left.remedy)
        with pytest.raises(UsageError, match=r"^--launcher slurm: "):
            choose_launcher(ClusterOptions(launcher="slurm"), environ)


@pytest.mark.parametrize("value", ["two", "2-4", "2 ", "0"])
def test_a_number_of_nodes_alone_is_no_job(value: str) -> None:
    environ = {"SLURM_JOB_NUM_NODES": value}
    assert choose_launcher(AUTO, environ)[0].name == "local"
    assert "SLURM_JOB_NUM_NODES" in str(unreachable_batch_job_warning(AUTO, environ))


def test_one_node_is_no_leftover() -> None:
    assert unreachable_batch_job_warning(AUTO, {"SLURM_JOB_NUM_NODES": "1"}) is None


def test_what_scontrol_says_is_shown(job: dict[str, str]) -> None:
    left = unreachable_batch_job_warning(AUTO, {**job, "SLURM_JOB_NODELIST": "node[01-"})
    assert left is not None
    assert "scontrol: error: Invalid hostlist: node[01-" in left.message


def test_without_scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    left = unreachable_batch_job_warning(AUTO, {**JOB, "PATH": str(tmp_path)})
    assert left is not None
    assert "there is no scontrol on the PATH" in left.message


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (None, "No such file"),
        (b"node1\xff\n", "not a text file"),
        (b"\0\1\2", "not a host name"),
        (b"-oProxyCommand=id\nnode1\n", "not a host name"),
        (b"", "lists no host"),
        (b"\n \n", "lists no host"),
    ],
)
def test_a_node_file_that_is_stale_or_damaged(tmp_path: Path, contents: bytes | None, why: str) -> None:
    file = tmp_path / "nodes"
    if contents is not None:
        file.write_bytes(contents)
    environ = {"PBS_NODEFILE": str(file)}
    assert choose_launcher(AUTO, environ)[0].name == "local"
    left = unreachable_batch_job_warning(AUTO, environ)
    assert left is not None
    assert why in left.message
    assert str(file) in left.message
    assert "unset PBS_NODEFILE" in str(left.remedy)
    with pytest.raises(UsageError, match=why):
        choose_launcher(ClusterOptions(launcher="pbs"), environ)


def test_a_node_file_that_is_a_folder_or_a_device(tmp_path: Path) -> None:
    for name in (str(tmp_path), "/dev/zero"):
        assert choose_launcher(AUTO, {"PBS_NODEFILE": name})[0].name == "local"
        assert name in str(unreachable_batch_job_warning(AUTO, {"PBS_NODEFILE": name}))


def test_a_job_of_one_host_runs_here_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("node1\n" * 4)
    assert choose_launcher(AUTO, {"PBS_NODEFILE": str(file)})[0].name == "local"
    assert unreachable_batch_job_warning(AUTO, {"PBS_NODEFILE": str(file)}) is None
