"""Steps of the slurm launcher have all GPUs of the job on their node, whatever form the job's options had.

In a real SLURM, whose GPUs are files. SLURM_GPUS_ON_NODE in a step is the number of GPUs that the step has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.hosts.conftest import ROOT
from tests.hosts.make_slurm import Slurm
from tests.hosts.test_slurm import submit, wait_for

PROGRAM = """
import json, os, subprocess
from pathlib import Path
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.launchers.slurm import allocated_hosts, srun_command
hosts = allocated_hosts(os.environ)
settings = ClusterSettings({}, Path("results"))
found = {}
for host in hosts:
    done = subprocess.run(srun_command(host, ["/usr/bin/env"], settings), capture_output=True, text=True, timeout=30)
    words = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    found[host.name] = [host.gpus, words.get("SLURM_GPUS_ON_NODE", done.stderr)]
print("FOUND", json.dumps(found))
"""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("options", "total"),
    [
        ("--gres=gpu:4", 8),
        ("--gpus-per-node=2 --ntasks-per-node=2 --gpu-bind=single:1", 4),
        ("--gpus=6 --ntasks=6", 6),
        ("--gpus-per-task=1 --ntasks-per-node=4", 8),
        ("--gpus=4 --ntasks-per-gpu=1", 4),
    ],
)
def test_a_step_has_the_gpus_of_its_job(slurm: Slurm, tmp_path: Path, options: str, total: int) -> None:
    directives = "\n".join(f"#SBATCH {option}" for option in options.split())
    script = (
        f"#!/bin/bash\n#SBATCH --nodes=2\n{directives}\nPYTHONPATH={ROOT} {sys.executable} -P -c '{PROGRAM}' 2>&1\n"
    )
    job = submit(slurm, script, tmp_path / "job.out")
    assert wait_for(slurm, job, 60) == "COMPLETED", (tmp_path / "job.out").read_text()
    printed = (tmp_path / "job.out").read_text()
    line = next(line for line in printed.splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    assert set(found) == {"n1", "n2"}
    assert all(str(count) == in_step for count, in_step in found.values()), printed
    assert sum(count for count, _ in found.values()) == total
