"""The GPUs of a SLURM job on each node, from what SLURM 22.05 gave to jobs with each form of the options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.hosts import HostSpec
from merge_bench.cluster.launchers import slurm
from tests.helpers import fake_scontrol

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
# The job's variables, what `scontrol --details show job` printed, and the GPUs of n1 and n2.
RECORDED: Mapping[str, tuple[dict[str, str], str, list[int] | None]] = {
    "--gres=gpu:4": (
        {"SLURM_GPUS_ON_NODE": "4", "SLURM_TASKS_PER_NODE": "1(x2)"},
        "   JOB_GRES=gpu:8\n     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)\n   TresPerNode=gres:gpu:4\n",
        [4, 4],
    ),
    "salloc --gres=gpu:4": (  # no variable names GPUs
        {"SLURM_TASKS_PER_NODE": "1(x2)"},
        "   JOB_GRES=gpu:8\n     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)\n   TresPerNode=gres:gpu:4\n",
        [4, 4],
    ),
    "--gpus=6": (
        {"SLURM_GPUS": "6", "SLURM_GPUS_ON_NODE": "4", "SLURM_TASKS_PER_NODE": "4,2"},
        "   JOB_GRES=gpu:6\n     Nodes=n1 CPU_IDs=0-3 Mem=0 GRES=gpu:4(IDX:0-3)\n"
        "     Nodes=n2 CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)\n   TresPerJob=gres:gpu:6\n",
        [4, 2],
    ),
    "--gpus-per-task=1": (
        {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPUS_ON_NODE": "4", "SLURM_TASKS_PER_NODE": "4(x2)"},
        "   JOB_GRES=gpu:8\n     Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:4(IDX:0-3)\n   TresPerTask=gres:gpu:1\n",
        [4, 4],
    ),
    "--gpus-per-node=2 --gpu-bind=single:1": (
        {"SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "2", "SLURM_GPU_BIND": "single:1"},
        "   JOB_GRES=gpu:4\n     Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)\n   TresPerNode=gres:gpu:2\n",
        [2, 2],
    ),
    "--exclusive": (
        {"SLURM_GPUS_ON_NODE": "4", "SLURM_TASKS_PER_NODE": "4(x2)"},
        "   JOB_GRES=gpu:8\n     Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:4(IDX:0-3)\n",
        [4, 4],
    ),
    "types": (
        {"SLURM_GPUS_ON_NODE": "4"},
        "     Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:3g.40gb:2(IDX:2-3)\n",
        [4, 4],
    ),
    "indexes alone": ({}, "     Nodes=n1 CPU_IDs=0-3 Mem=0 GRES_IDX=gpu(IDX:0,2-3)\n", [3, 0]),
    "no GPU": ({"SLURM_TASKS_PER_NODE": "4(x2)"}, "     Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=\n", None),
    "without scontrol, --gpus-per-node=a100:4": ({"SLURM_GPUS_PER_NODE": "a100:4"}, "", [4, 4]),
    "without scontrol, --gpus-per-task=1": ({"SLURM_GPUS_PER_TASK": "1", "SLURM_TASKS_PER_NODE": "4,2"}, "", [4, 2]),
    "without scontrol, --tres-per-task=gres/gpu:2": (
        {"SLURM_TRES_PER_TASK": "cpu=8,gres/gpu:2", "SLURM_TASKS_PER_NODE": "2(x2)"},
        "",
        [4, 4],
    ),
    "without scontrol, --gpus=8": ({"SLURM_GPUS": "8"}, "", [4, 4]),
    "without scontrol, --gpus=7": ({"SLURM_GPUS": "7"}, "", None),
}


@pytest.mark.parametrize("form", RECORDED)
def test_each_node_has_the_gpus_that_the_job_has_there(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, shown, expected = RECORDED[form]
    path = fake_scontrol.put_on_path(monkeypatch, tmp_path, {"n[1-2]": ("n1", "n2")}, job="7", shown=shown)
    hosts = slurm.allocated_hosts({**JOB, **variables, **path})
    assert [host.name for host in hosts] == ["n1", "n2"]
    assert [host.gpus for host in hosts] == (expected or [None, None])


SETTINGS = ClusterSettings({}, Path("results"))


def test_a_step_asks_for_the_gpus_of_its_node_and_not_for_the_job_s_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    monkeypatch.setenv("SLURM_GPU_BIND", "per_task:1")
    argv = slurm.srun_command(HostSpec("n1", gpus=4), ["true"], SETTINGS)
    assert argv[:4] == ("env", "--unset=SLURM_GPUS_PER_TASK", "--unset=SLURM_GPU_BIND", "srun")
    assert argv[-3:] == ("--gpus=4", "--nodelist=n1", "true")


@pytest.mark.parametrize("host", [HostSpec("n1"), HostSpec("n1", gpus=4, assumed=True), HostSpec("n1", gpus=0)])
def test_a_step_on_a_node_whose_gpus_slurm_does_not_give_asks_for_none(
    host: HostSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    argv = slurm.srun_command(host, ["true"], SETTINGS)
    assert argv[0] == "srun"
    assert not any(word.startswith("--gpus") for word in argv)
