"""`--require-transport`: names, what this machine has, and what pairs use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from merge_bench.campaign.machine_checks import check_transports
from merge_bench.campaign.make_plan import options_of_each_run
from merge_bench.campaign.recording import check_required_transports
from merge_bench.errors import GateNotMet, UsageError
from merge_bench.records.schema import WorkerPairLanes
from tests.helpers.plans import given


def pair(a: int, b: int, *transports: str, placement: str | None = "same host") -> WorkerPairLanes:
    return WorkerPairLanes(from_rank=a, to_rank=b, placement=placement, transports=list(transports))


Machine = Callable[..., dict[str, str]]
UCX_INFO = """#!/bin/sh
case $1 in
-p) printf '%s' 'OPENED';;
*) printf '%s' '# Library version: 1.21.0
OFFERED
UCX_TLS=all
';;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Makes a machine whose UCX offers transports on these devices; gives the environment of its processes.

    `opened`: the transports that a process opens with lists of transports or devices; None: UCX does not say.
    """

    def made(opened: Sequence[str] | None = None, **offered: str) -> dict[str, str]:
        of_lists = "".join(f"#   resource 0 : md 0 dev 0 flags -- {name}/x\n" for name in opened or ())
        transports = "\n".join(f"#  Transport: {name}\n#     Device: {device}" for name, device in offered.items())
        program = tmp_path / "ucx_info"
        program.write_text(UCX_INFO.replace("OPENED", of_lists).replace("OFFERED", transports))
        program.chmod(0o755)
        return {"MERGE_BENCH_UCX": "system", "PATH": str(tmp_path)}

    return made


@pytest.fixture
def no_shared_memory(tmp_path: Path) -> dict[str, str]:
    """The variable with which UCX's shared memory would be in a folder that is not there."""
    return {"UCX_POSIX_DIR": str(tmp_path / "none")}


@pytest.mark.parametrize("names", [["sysv"], ["rc", "cuda_ipc"], ["sm"], ["ib"], []])
def test_names_and_aliases_of_transports(names: list[str]) -> None:
    options_of_each_run(given(require_transport=tuple(names)), {})


def test_an_unknown_name_is_wrong_usage_with_the_nearest_names() -> None:
    with pytest.raises(UsageError, match=r"sysvv.*no release of UCX.*did you mean.*sysv"):
        options_of_each_run(given(require_transport=("tcp", "sysvv")), {})


def test_what_the_machine_cannot_have_is_told_before(machine: Machine) -> None:
    environment = machine(tcp="lo", sysv="memory", self="memory")
    check_transports([], environment, 2)
    check_transports(["rc", "tcp"], environment, 2)
    check_transports(["sm"], environment, 2)
    with pytest.raises(GateNotMet, match=r"rc,cuda_ipc cannot be met: UCX 1\.21\.0 \(system\).*only self, sysv, tcp"):
        check_transports(["rc", "cuda_ipc"], environment, 2)


@pytest.mark.parametrize("value", ["rc", "ib,cuda_ipc", "self", "cuda_copy,self", "^tcp,sm"])
def test_a_list_that_leaves_nothing_between_two_workers_is_wrong_usage(machine: Machine, value: str) -> None:
    environment = machine(tcp="lo", sysv="memory", self="memory", cuda_copy="cuda")
    with pytest.raises(UsageError, match="leaves no transport for two workers"):
        check_transports([], {**environment, "UCX_TLS": value}, 2)


@pytest.mark.parametrize("value", ["tcp,rc", "all", "^sm", "sm", "\\sysv"])
def test_a_list_that_leaves_something(machine: Machine, value: str) -> None:
    check_transports([], {**machine(tcp="lo", sysv="memory", self="memory"), "UCX_TLS": value}, 2)


@pytest.mark.parametrize(
    ("lists", "fits"),
    [
        ({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "127.0.0.1"}, False),
        ({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": ""}, False),
        ({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo*"}, False),
        ({"UCX_TLS": "sm,self", "UCX_SHM_DEVICES": "nonesuch"}, False),
        ({"UCX_TLS": " tcp"}, False),
        ({"UCX_TLS": "cma,self"}, False),
        ({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "nonesuch,lo"}, True),
        ({"UCX_NET_DEVICES": "nonesuch"}, True),  # shared memory is left
        ({"UCX_TLS": "^ib,cuda"}, True),
    ],
)
def test_ucx_itself_opens_the_lists(lists: dict[str, str], fits: bool) -> None:
    environment = {"MERGE_BENCH_UCX": "wheel", **lists}
    if fits:
        check_transports([], environment, 2)
        return
    with pytest.raises(UsageError, match="leaves no transport for two workers") as caught:
        check_transports([], environment, 2)
    assert all(f"{name}={value}" in str(caught.value) for name, value in lists.items())


@pytest.mark.parametrize(
    ("tls", "mebibytes", "workers", "fits"),
    [
        ("all", 16, 1, False),
        ("all", 18, 2, False),
        ("posix,self", 16, 2, False),
        ("all", 64, 16, False),
        ("^posix", 16, 4, True),
        ("tcp,self", 4, 4, True),
        ("all", 24, 2, True),
        ("all", 34, 4, True),
    ],
)
def test_a_small_dev_shm_is_named_before(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tls: str,
    mebibytes: int,
    workers: int,
    fits: bool,
) -> None:
    environment = {**machine(posix="memory", sysv="memory", tcp="lo"), "UCX_TLS": tls}
    free = os.statvfs_result((4096, 4096, mebibytes << 8, mebibytes << 8, mebibytes << 8, 0, 0, 0, 0, 255))
    monkeypatch.setattr("merge_bench.host.machine.os.statvfs", lambda folder: free)
    if fits:
        check_transports([], environment, workers)
        return
    with pytest.raises(UsageError, match=rf"/dev/shm has {mebibytes}\.00 MiB free.*UCX_TLS=\^posix"):
        check_transports([], environment, workers)


def test_where_ucx_leaves_posix_out_and_nothing_else_is_allowed_dev_shm_is_named(
    machine: Machine, no_shared_memory: dict[str, str]
) -> None:
    environment = machine(opened=["self"], sysv="memory", tcp="lo", self="memory")
    with pytest.raises(UsageError, match=r"UCX cannot create shared memory in .*/none "):
        check_transports([], {**environment, **no_shared_memory, "UCX_TLS": "posix,self"}, 2)
    with pytest.raises(UsageError, match="leaves no transport for two workers"):
        check_transports([], {**environment, **no_shared_memory, "UCX_TLS": "sysv,self"}, 2)


def test_where_ucx_does_not_offer_posix_a_small_dev_shm_does_no_harm(
    machine: Machine, no_shared_memory: dict[str, str]
) -> None:
    check_transports([], {**machine(sysv="memory", tcp="lo"), **no_shared_memory}, 2)


def test_a_ucx_that_tells_nothing_stops_nothing(machine: Machine) -> None:
    check_transports(["rc"], {**machine(), "UCX_TLS": "rc"}, 2)
    check_transports(["rc"], {"MERGE_BENCH_UCX": "system", "PATH": "/nowhere", "UCX_TLS": "rc"}, 2)


def test_every_pair_needs_one_of_them() -> None:
    pairs = [pair(0, 1, "sysv/memory", "cma/memory"), pair(1, 0, "tcp/lo")]
    check_required_transports([], pairs)
    check_required_transports(["sysv", "tcp"], pairs)
    check_required_transports(["sm", "tcp"], pairs)
    with pytest.raises(
        GateNotMet,
        match=r"sm is not met: the connection from rank 1 to rank 0 \(same host\) uses tcp/lo \(1 of 2 pairs fail\)",
    ):
        check_required_transports(["sm"], pairs)


def test_a_transport_is_its_whole_name() -> None:
    with pytest.raises(GateNotMet, match=r"rank 0 to rank 1 \(placement unknown\) uses tcp/sysv0"):
        check_required_transports(["sysv"], [pair(0, 1, "tcp/sysv0", placement=None)])
    check_required_transports(["rc"], [pair(0, 1, "rc_mlx5/mlx5_0:1")])


def test_a_pair_that_tells_nothing_does_not_pass() -> None:
    with pytest.raises(GateNotMet, match="no transport that UCX reports"):
        check_required_transports(["tcp"], [pair(0, 1)])
