"""Batch scripts, letter for letter: those in `cluster/` are what `submit` prints for the job of 2022."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from merge_bench.cli import cli
from merge_bench.cluster import batch_script as submitting
from merge_bench.errors import RunFailed, UsageError

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
JOB_OF_2022 = ("--nodes", "4", "--gpus-per-node", "4", "--time", "10:00")
EVERYTHING = """#!/usr/bin/env bash
# Made by: merge-bench submit --launcher pbs --nodes 2 --gpus-per-node 8 --cores-per-node 64 --time 1:30:00 --account \
ab12 --queue gpu --storage scratch/ab12+gdata/ab12 --module openmpi/5 --module ucx infiniband.cfg --interface ib0 -- \
--results 'my results'
# Submit it from the repository's folder: qsub pbs.qsub
#PBS -N merge-bench
#PBS -l select=2:ncpus=64:ngpus=8:mpiprocs=8
#PBS -l place=scatter:excl
#PBS -l walltime=01:30:00
#PBS -A ab12
#PBS -q gpu
#PBS -l storage=scratch/ab12+gdata/ab12
#PBS -j oe
set -euo pipefail
cd "$PBS_O_WORKDIR"
module load openmpi/5
module load ucx
./run-cluster.sh infiniband.cfg --launcher pbs --interface ib0 --results 'my results'
"""


def submit(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["submit", *arguments], standalone_mode=False)


@pytest.mark.parametrize(("launcher", "file"), [("slurm", "slurm.sbatch"), ("pbs", "pbs.qsub")])
def test_scripts_in_cluster_are_the_job_of_2022(launcher: str, file: str) -> None:
    printed = submit("--launcher", launcher, *JOB_OF_2022).output
    assert printed == (CLUSTER / file).read_text()
    assert subprocess.run(["bash", "-n"], input=printed, text=True, check=False).returncode == 0


def test_every_option_has_its_line() -> None:
    result = submit(
        "--launcher",
        "pbs",
        "--nodes",
        "2",
        "--gpus-per-node",
        "8",
        "--cores-per-node",
        "64",
        "--time",
        "1:30:00",
        "--account",
        "ab12",
        "--queue",
        "gpu",
        "--storage",
        "scratch/ab12+gdata/ab12",
        "--module",
        "openmpi/5",
        "--module",
        "ucx",
        "infiniband.cfg",
        "--interface",
        "ib0",
        "--",
        "--results",
        "my results",
    )
    assert result.output == EVERYTHING
    (made_by,) = [line for line in EVERYTHING.splitlines() if line.startswith("# Made by: merge-bench submit ")]
    again = shlex.split(made_by.removeprefix("# Made by: merge-bench submit "))
    assert submit(*again).output == EVERYTHING


def test_slurm_has_account_and_partition_and_no_gpu_line_without_gpus() -> None:
    printed = submit(
        "--launcher", "slurm", "--nodes", "2", "--time", "05:00", "--account", "ab12", "--partition", "cpu"
    ).output.splitlines()
    assert "#SBATCH --account=ab12" in printed
    assert "#SBATCH --partition=cpu" in printed
    assert "#SBATCH --ntasks-per-node=1" in printed
    assert not [line for line in printed if "gpus" in line and line.startswith("#SBATCH")]


def test_a_config_that_an_option_names_is_the_only_one() -> None:
    asked = ("--launcher", "slurm", "--nodes", "1", "--time", "05:00")
    for words in (("--configs", "a.cfg,b.cfg"), ("--config=a.cfg",)):
        last = submit(*asked, *words).output.splitlines()[-1]
        assert last == shlex.join(["./run-cluster.sh", "--launcher", "slurm", *words])


def test_a_package_that_lies_apart_is_named_to_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install --target` leaves it: neither a checkout nor with the other packages of its environment."""
    monkeypatch.setattr(submitting, "checkout_folder", lambda: None)
    last = submit("--launcher", "pbs", "--nodes", "1", "--time", "05:00", "tcp.cfg").output.splitlines()[-1]
    assert last.startswith(f"env PYTHONPATH={CLUSTER.parent} {sys.executable} -P -m merge_bench run --config tcp.cfg ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--time", "10"), "--time 10 is not"),
        (("--time", "10:75"), "--time 10:75 is not"),
        (("--time", "10:00", "--account", "a\n#SBATCH --x"), "--account"),
        (("--time", "10:00", "--module", "a; reboot"), "--module"),
        (("--time", "10:00", "--storage", "s"), "--storage works only with PBS"),
        (("--time", "10:00", "tcp.cfg", "--", "--results", "a\nrm b"), "'a\\nrm b' contains a line break"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], words: str) -> None:
    result = submit("--launcher", "slurm", "--nodes", "1", *arguments)
    assert result.exit_code == UsageError.exit_status
    assert words in result.stderr


def test_now_hands_the_script_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qsub").write_text(f"#!/bin/sh\ncat >{tmp_path}/got\npwd >{tmp_path}/where\necho 42.server\n")
    (tmp_path / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert submit("--launcher", "pbs", *JOB_OF_2022, "--now").output == "42.server\n"
    script = (CLUSTER / "pbs.qsub").read_text()
    assert (tmp_path / "got").read_text() == script.replace("--time 10:00\n", "--time 10:00 --now\n")
    assert (tmp_path / "where").read_text().strip() == str(CLUSTER.parent)


def test_a_refused_job_gives_the_batch_systems_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = submit("--launcher", "slurm", *JOB_OF_2022, "--now")
    assert result.exit_code == RunFailed.exit_status
    assert "no such partition" in result.stderr
