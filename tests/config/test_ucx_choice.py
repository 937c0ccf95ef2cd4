"""Whose UCX is loaded: chosen by what a process really loads, and said where that is not what one would expect."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.config import ucx_choice
from merge_bench.config.ucx_choice import (
    CODE,
    PREFER,
    VARIABLE,
    LoadedUcx,
    UcxChoice,
    UcxHostFacts,
    choose_and_use_ucx,
    choose_ucx,
    probe_ucx,
)
from merge_bench.config.ucx_info import libucx_wheel_folder
from merge_bench.errors import UsageError
from tests.helpers.plans import given


@pytest.fixture(scope="module")
def wheel() -> Path:
    folder = libucx_wheel_folder()
    if folder is None:
        pytest.skip("needs the libucx wheel")
    return folder


@pytest.fixture(scope="module")
def clean() -> dict[str, str]:
    """This process's environment without any choice."""
    return {name: value for name, value in os.environ.items() if name not in (VARIABLE, PREFER)}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, wheel: Path, clean: dict[str, str]) -> dict[str, str]:
    """An environment with a copy of the wheel's UCX as the system's, and a module where InfiniBand's would be."""
    folder = tmp_path_factory.mktemp("system ucx")
    (folder / "ucx").mkdir(parents=True)
    for library in (wheel / "lib").glob("*.so*"):
        shutil.copy(library, folder)
    shutil.copy(wheel / "lib" / "ucx" / "libuct_cma.so", folder / "ucx" / "libuct_ib.so.0")
    return {**clean, "LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def infiniband(tmp_path: Path) -> Path:
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    return tmp_path / "infiniband"


def choose(
    asked: str | None,
    environ: Mapping[str, str],
    *,
    infiniband: Path = ucx_choice.INFINIBAND,
    load: Callable[[str, Mapping[str, str]], LoadedUcx | None] = probe_ucx,
    wheel: bool = True,
    device_memory: bool = False,
) -> UcxChoice:
    """`choose_ucx` on a host with these adapters, with the wheel or not, where a process loads what `load` says."""
    host = UcxHostFacts(infiniband, probe=load) if wheel else UcxHostFacts(infiniband, None, load)
    return choose_ucx(asked, environ, sends_gpu_memory=device_memory, host=host)


def unprobed(origin: str, environ: Mapping[str, str]) -> LoadedUcx | None:
    raise AssertionError(f"{origin} is loaded for nothing")


def test_without_infiniband_the_wheels_ucx_is_taken_unprobed(
    tmp_path: Path, wheel: Path, clean: dict[str, str]
) -> None:
    assert choose(None, clean, infiniband=tmp_path, load=unprobed) == UcxChoice("wheel")
    assert choose("wheel", {**clean, PREFER: "true"}, infiniband=tmp_path, load=unprobed) == UcxChoice("wheel")


def test_auto_takes_the_systems_ucx_where_there_is_infiniband(infiniband: Path, system: dict[str, str]) -> None:
    choice = choose("auto", system, infiniband=infiniband)
    assert (choice.origin, choice.warning) == ("system", None)
    assert system["LD_LIBRARY_PATH"] in str(choice.notice)


def test_a_system_ucx_without_cuda_is_not_taken_for_gpu_memory(infiniband: Path, system: dict[str, str]) -> None:
    choice = choose("auto", system, infiniband=infiniband, device_memory=True)
    assert choice.origin == "wheel"
    assert choice.warning is not None
    assert choice.warning.code == CODE
    assert "was built without CUDA" in choice.warning.message
    assert system["LD_LIBRARY_PATH"] in choice.warning.message
    with pytest.raises(UsageError, match=r"cannot send GPU memory: it was built without CUDA; use --ucx wheel"):
        choose("system", system, infiniband=infiniband, device_memory=True)


def test_a_system_ucx_with_cuda_is_taken_for_gpu_memory(
    infiniband: Path, system: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    shutil.copytree(system["LD_LIBRARY_PATH"], tmp_path / "with cuda")
    shutil.copy(wheel / "lib" / "ucx" / "libuct_cuda.so", tmp_path / "with cuda" / "ucx")
    for asked in ("auto", "system"):
        environ = {**system, "LD_LIBRARY_PATH": str(tmp_path / "with cuda")}
        choice = choose(asked, environ, infiniband=infiniband, device_memory=True)
        assert (choice.origin, choice.warning) == ("system", None)


def test_without_the_wheel_a_ucx_without_cuda_is_refused_for_gpu_memory(tmp_path: Path) -> None:
    loaded = LoadedUcx("1.20.0", True, tmp_path / "libucp.so.0", cuda=False)
    with pytest.raises(UsageError, match=r"UCX 1\.20\.0 .* cannot send GPU memory"):
        choose("auto", {}, infiniband=tmp_path, load=lambda origin, environ: loaded, wheel=False, device_memory=True)
    assert choose("auto", {}, infiniband=tmp_path, load=unprobed, wheel=False) == UcxChoice("system")


@pytest.mark.parametrize("asked", ["auto", "wheel", None])
def test_infiniband_without_a_module_warns(infiniband: Path, wheel: Path, clean: dict[str, str], asked: str) -> None:
    # What is loaded is given, so that a UCX that this machine happens to have does not help.
    def load(origin: str, environ: Mapping[str, str]) -> LoadedUcx:
        return LoadedUcx("1.21.0", False, wheel / "lib" / "libucp.so")

    choice = choose(asked, clean, infiniband=infiniband, load=load)
    assert choice.origin == "wheel"
    assert choice.warning is not None
    assert choice.warning.code == CODE
    assert "mlx5_0" in choice.warning.message
    assert "--ucx system" in (choice.warning.remedy or "")


def test_system_ucx_that_falls_back_to_the_wheel_is_refused(tmp_path: Path, wheel: Path, clean: dict[str, str]) -> None:
    def load(origin: str, environ: Mapping[str, str]) -> LoadedUcx:
        return LoadedUcx("1.21.0", False, wheel / "lib" / "libucp.so")

    for found in (load, lambda origin, environ: None):
        with pytest.raises(UsageError, match=r"no system libucp\.so"):
            choose("system", clean, infiniband=tmp_path, load=found)


@pytest.mark.parametrize("named", [{}, {VARIABLE: "system"}, {VARIABLE: "auto", PREFER: "true"}, {PREFER: "1"}])
def test_the_systems_ucx_is_taken_when_asked_for(tmp_path: Path, system: dict[str, str], named: dict[str, str]) -> None:
    asked = None if named else "system"
    assert choose(asked, {**system, **named}, infiniband=tmp_path / "none") == UcxChoice("system")


def test_without_the_wheel_there_is_only_the_systems(tmp_path: Path, infiniband: Path) -> None:
    assert choose("auto", {}, infiniband=tmp_path / "none", load=unprobed, wheel=False) == UcxChoice("system")
    with pytest.raises(UsageError, match="libucx is not installed"):
        choose("wheel", {}, infiniband=infiniband, load=unprobed, wheel=False)
    lacking = choose("auto", {}, infiniband=infiniband, load=lambda origin, environ: None, wheel=False)
    assert (lacking.origin, lacking.warning is not None) == ("system", True)


def test_an_unknown_word_in_the_environment_is_refused(clean: dict[str, str]) -> None:
    with pytest.raises(
        UsageError, match=f"environment variable {VARIABLE}: 'mine' is not auto, wheel, system, a release"
    ):
        choose(None, {**clean, VARIABLE: "mine"}, load=unprobed)


def test_a_process_that_starts_afterwards_loads_what_was_chosen(
    wheel: Path, system: dict[str, str], tmp_path: Path
) -> None:
    for asked, of_wheel in (("system", False), ("wheel", True)):
        surroundings = {**system, PREFER: "true"}
        choice = choose_and_use_ucx(asked, surroundings)
        assert (surroundings[VARIABLE], PREFER in surroundings) == (asked, asked == "system")
        loaded = probe_ucx(choice.origin, surroundings)
        assert loaded is not None
        assert loaded.is_from_wheel is of_wheel


def test_a_choice_is_undone_for_callers_whose_process_goes_on(wheel: Path) -> None:
    surroundings = {PREFER: "true", "OTHER": "1"}
    with ucx_choice.undo_ucx_choice(surroundings):
        choose_and_use_ucx("wheel", surroundings)
        assert surroundings == {VARIABLE: "wheel", "OTHER": "1"}
    assert surroundings == {PREFER: "true", "OTHER": "1"}


def test_a_running_cluster_has_chosen_already() -> None:
    with pytest.raises(UsageError, match="--ucx cannot be used with a running cluster"):
        plan_runs(None, given(ucx="wheel", scheduler_address="tcp://127.0.0.1:9"))
