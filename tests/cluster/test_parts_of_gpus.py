"""Workers on parts of GPUs (MIG): refused where CUDA IPC cannot connect them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from merge_bench.campaign.machine_checks import check_mig_parts as check_parts_here
from merge_bench.cluster.host_check import check_gpu_parts
from merge_bench.errors import UsageError
from merge_bench.host.description import HostFacts
from merge_bench.host.pinning import WorkerPin
from tests.helpers.fake_nvml import library

WHOLE, ONE, OTHER, SAME = ("0", None), ("MIG-a", "1/3"), ("MIG-b", "1/4"), ("MIG-c", "1/3")
Visible = Sequence[tuple[str, str | None]]


def check(visible: Visible) -> None:
    host = HostFacts(gpu_names=[name for name, _ in visible], gpu_instances=[instance for _, instance in visible])
    check_gpu_parts({"n1": host}, {"n1": [WorkerPin((), name, ()) for name, _ in visible]})


@pytest.mark.parametrize("visible", [[ONE, OTHER], [WHOLE, ONE], [("MIG-y", "MIG-y"), ("MIG-z", "MIG-z")]])
def test_workers_on_parts_that_cuda_ipc_does_not_connect_are_refused(visible: Visible) -> None:
    names = " and ".join(name for name, _ in visible)
    with pytest.raises(UsageError, match=f"workers on n1 would use {names}, but UCX cannot move data .*MIG"):
        check(visible)


@pytest.mark.parametrize("visible", [[ONE], [ONE, ONE], [ONE, SAME], [WHOLE, ("1", None)], []])
def test_one_part_one_instance_and_whole_gpus_go_on(visible: Visible) -> None:
    check(visible)


def test_parts_on_different_hosts_go_on() -> None:
    hosts = {
        "n1": HostFacts(gpu_names=["MIG-a"], gpu_instances=["0/1"]),
        "n2": HostFacts(gpu_names=["MIG-b"], gpu_instances=["0/2"]),
    }
    check_gpu_parts(hosts, {"n1": [WorkerPin((), "MIG-a", ())], "n2": [WorkerPin((), "MIG-b", ())]})


def test_this_machine_is_checked_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "nvmlDeviceGetHandleByUUID": bytes.decode,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda part: 0,
        "nvmlDeviceGetIndex": lambda handle: handle,
        "nvmlDeviceGetGpuInstanceId": {"MIG-a": 1, "MIG-b": 2}.get,
    }
    monkeypatch.setitem(sys.modules, "pynvml", library(1, **parts))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    check_parts_here(2, 2)  # both workers on one part
    with pytest.raises(UsageError, match="workers on this host would use MIG-a and MIG-b"):
        check_parts_here(2, 1)
