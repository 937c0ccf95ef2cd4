"""Which of UCX's settings the launcher chooses, so that UCX opens no port that it does not need."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from merge_bench.campaign.planned_launches import check_config_for_run, plan_runs
from merge_bench.cluster.dask_commands import default_ucx_settings, open_port_warning, process_environment
from merge_bench.config.allowed_transports import UCX_PORTS
from merge_bench.config.reader import read_config
from merge_bench.config.ucx_choice import undo_ucx_choice
from tests.helpers.plans import given, prepared

ONE_HOST: Mapping[str, Any] = {"hosts": 0, "exchange": "ucx", "protocol": "auto", "error_handling": False}
NO_TCP = {"UCX_TLS": "^tcp"}
NO_HOOKS = {"UCX_MEM_EVENTS": "n"}
BOTH = {"UCX_POSIX_ERROR_HANDLING": "y", "UCX_SYSV_ERROR_HANDLING": "y"}


def install_ucx(folder: Path, transports: set[str]) -> dict[str, str]:
    """Variables of a host whose UCX has these transports, by the program ``ucx_info`` in `folder`."""
    devices = "".join(f"#      Transport: {name}\n#         Device: device0\n" for name in sorted(transports))
    printed = f"# Library version: 1.21.0\n{devices}UCX_TLS=all\n"
    program = folder / "ucx_info"
    program.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(printed)}\n")
    program.chmod(0o755)
    return {"MERGE_BENCH_UCX": "system", "PATH": str(folder)}


@pytest.mark.parametrize(
    ("given", "variables", "expected"),
    [
        ({}, {}, NO_TCP | NO_HOOKS),
        ({"hosts": 1}, {}, NO_TCP | NO_HOOKS),
        ({"hosts": 2}, {}, {"UCX_TCP_PORT_RANGE": UCX_PORTS}),
        ({"protocol": "ucx"}, {}, NO_HOOKS),  # Dask's listener needs tcp
        ({"exchange": "dask", "protocol": "ucx"}, {}, NO_HOOKS),
        ({"exchange": "dask"}, {}, {}),  # no worker loads UCX
        ({"error_handling": True}, {}, NO_HOOKS),  # UCX does not use shared memory then
        ({"error_handling": True}, BOTH, NO_TCP | NO_HOOKS),
    ],
)
def test_tcp_is_left_out_where_shared_memory_connects_all_workers(
    given: Mapping[str, Any], variables: Mapping[str, str], expected: Mapping[str, str], tmp_path: Path
) -> None:
    here = install_ucx(tmp_path, {"self", "tcp", "sysv", "posix", "cma"})
    assert default_ucx_settings({**here, **variables}, **{**ONE_HOST, **given}) == expected


@pytest.mark.parametrize(
    ("transports", "expected"),
    [
        ({"sysv"}, NO_TCP | NO_HOOKS),
        ({"posix", "cma"}, NO_TCP | NO_HOOKS),
        ({"cma", "tcp"}, NO_HOOKS),
        ({"rc_mlx5", "tcp"}, {}),
        ({"posix", "rc_verbs"}, NO_TCP),
        ({"posix", "xpmem"}, NO_TCP),
        ({"posix", "cuda_copy"}, NO_TCP),
        (set(), {}),  # not known
    ],
)
def test_tcp_stays_without_shared_memory_and_hooks_where_memory_is_registered(
    transports: set[str], expected: Mapping[str, str], tmp_path: Path
) -> None:
    assert default_ucx_settings(install_ucx(tmp_path, transports), **ONE_HOST) == expected


def test_nothing_is_chosen_for_a_ucx_that_is_not_there(tmp_path: Path) -> None:
    assert default_ucx_settings({"MERGE_BENCH_UCX": "system", "PATH": str(tmp_path)}, **ONE_HOST) == {}


def test_config_and_environment_have_precedence() -> None:
    def tls(config: Mapping[str, str], surroundings: Mapping[str, str]) -> str | None:
        return process_environment(config, surroundings, threads=1, ucx_settings=NO_TCP).get("UCX_TLS")

    assert tls({}, {}) == "^tcp"
    assert tls({"UCX_TLS": "all"}, {}) == "all"
    assert tls({}, {"UCX_TLS": "tcp,self"}) is None  # the process inherits it


@pytest.mark.parametrize(
    ("tls", "opens"), [(None, True), ("all", True), ("^sm", True), ("tcp", True), ("^tcp", False), ("sm,cuda", False)]
)
def test_a_port_that_ucx_opens_is_a_warning(tls: str | None, opens: bool) -> None:
    assert (open_port_warning({} if tls is None else {"UCX_TLS": tls}, None) is not None) is opens


@pytest.mark.parametrize(
    ("text", "source", "value", "warned"),
    [
        ("", "launcher", "^tcp", False),
        ("UCX_TLS=all\n", "config", "all", True),
        ("UCX_TLS=sm,self\n", "config", "sm,self", False),
        ("MERGE_BENCH_ERROR_HANDLING=peer\n", "UCX default", "all", True),
    ],
)
def test_check_and_run_say_the_same(text: str, source: str, value: str, warned: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.cfg"
    path.write_text(text)
    checked = check_config_for_run(read_config(path, {}), "wheel")
    (shown,) = [each for each in checked.variables if each.name == "UCX_TLS"]
    assert (shown.source, shown.value) == (source, value)
    assert ("ucx-port" in {each.code for each in checked.conflicts}) is warned
    with undo_ucx_choice():
        (prepared,) = plan_runs(str(path), given(ucx="wheel"))
    assert ("ucx-port" in {each.code for each in prepared.warnings}) is warned
    assert prepared.settings.ucx.get("UCX_TLS") == (None if "peer" in text else "^tcp")


def test_a_variable_of_the_environment_counts_as_well_and_a_running_cluster_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    (found,) = prepared(workers=2)
    assert "ucx-port" in {each.code for each in found.warnings}
    (running,) = prepared(workers=2, scheduler_address="tcp://127.0.0.1:1")
    found = running
    assert found.settings.ucx == {}
    assert found.plan.protocol == "tcp"
    assert {each.code for each in found.warnings}.isdisjoint({"ucx-port", "dask-ports"})


@pytest.mark.parametrize(
    ("options", "protocol", "warned"),
    [
        ({}, "tls", False),
        ({"insecure": True}, "tls", False),
        ({"protocol": "tcp"}, "tcp", True),
        ({"protocol": "ucx"}, "ucx", True),
        ({"exchange": "dask"}, "tcp", True),  # the rows travel in Dask's messages
        ({"exchange": "dask", "protocol": "tls"}, "tls", False),
    ],
)
def test_dask_asks_for_a_certificate_on_loopback_too(options: dict[str, object], protocol: str, warned: bool) -> None:
    (found,) = prepared(workers=2, **options)
    assert found.plan.protocol == protocol
    assert ("dask-ports" in {each.code for each in found.warnings}) is warned
