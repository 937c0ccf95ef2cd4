"""Releases of UCX in the user's cache: installed once with pip, then used without it; each failure is one sentence."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from merge_bench.config import ucx_releases
from merge_bench.config.parsers import parse_ucx_origin
from merge_bench.config.ucx_choice import (
    CHOOSING_UCX,
    LIBRARY_PATH,
    PREFER,
    VARIABLE,
    LoadedUcx,
    UcxChoice,
    UcxHostFacts,
    choose_ucx,
    select_ucx_temporarily,
    ucx_selection_variables,
)
from merge_bench.config.ucx_info import find_ucx_info, read_installed_ucx
from merge_bench.config.ucx_releases import (
    RELEASE_FILE,
    cached_releases,
    find_or_install_release,
    matching_wheel_package,
    perftest_overstates_bandwidth,
    release_of_library,
    released_versions,
    releases_between,
)
from merge_bench.errors import UsageError
from tests.helpers.ucx_wheels import make_wheel, put_into_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and pip without any index: it finds what lies in the folder `wheels`."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "cache"


def names_below(cache: Path) -> list[str]:
    """The folders in the cache."""
    return sorted(path.name for path in (cache / "merge_bench/ucx").iterdir() if path.is_dir())


@pytest.mark.parametrize(
    ("text", "value"),
    [("Wheel", "wheel"), (" 1.21.0", "1.21.0"), ("1.17.0.post1", "1.17.0.post1"), ("/opt/ucx", "/opt/ucx")],
)
def test_values_of_the_option(text: str, value: str) -> None:
    assert parse_ucx_origin(text) == value


def test_a_relative_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_ucx_origin("./ucx-1.23") == str(tmp_path / "ucx-1.23")


@pytest.mark.parametrize("text", ["1.21", "newest", "", "ucx-1.23", "1.21.0rc1"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not auto, wheel, system, a release such as 1\.21\.0, or the folder"):
        parse_ucx_origin(text)


@pytest.mark.slow
def test_a_release_is_installed_once_with_its_hash(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(tmp_path / "wheels", "9.8.7")
    release = find_or_install_release("9.8.7")
    assert f"installing UCX 9.8.7 (package {matching_wheel_package()})" in capsys.readouterr().err
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (release.name, release.wheel, release.sha256) == ("9.8.7", wheel.name, digest)
    recorded = json.loads((release.folder.parent / RELEASE_FILE).read_text())
    assert recorded == {"package": matching_wheel_package(), "version": "9.8.7", "wheel": wheel.name, "sha256": digest}
    assert release.folder == cache / "merge_bench/ucx/9.8.7" / matching_wheel_package() / "libucx"
    assert read_installed_ucx(find_ucx_info(str(release.folder))).version == "9.8.7"
    assert release_of_library(release.library_folder / "libucp.so") == release
    monkeypatch.setattr(ucx_releases, "_run_pip", lambda *words: pytest.fail("pip is asked again"))
    assert find_or_install_release("9.8.7") == release
    assert cached_releases() == [release]
    assert names_below(cache) == ["9.8.7"]


@pytest.mark.slow
def test_a_missing_version_is_refused_with_those_that_there_are(cache: Path, tmp_path: Path) -> None:
    for version in ("9.8.7", "9.8.8"):
        make_wheel(tmp_path / "wheels", version)
    with pytest.raises(UsageError, match=r"^--ucx 9\.9\.9: there is no such release .*, but 9\.8\.7, 9\.8\.8$"):
        find_or_install_release("9.9.9")
    assert names_below(cache) == []


@pytest.mark.slow
def test_without_any_index_one_sentence_names_what_is_cached(cache: Path) -> None:
    put_into_cache(cache, "1.19.0")
    with pytest.raises(UsageError) as refused:
        find_or_install_release("1.21.0")
    assert str(refused.value).endswith("pip finds no package index, or none that has it; cached: 1.19.0")
    assert "\n" not in str(refused.value)
    assert find_or_install_release("1.19.0").name == "1.19.0"


@pytest.mark.slow
def test_a_wheel_without_ucx_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "9.8.7", library=False)
    with pytest.raises(UsageError, match=r"cannot be installed: the wheel contains no libucx/lib/libucp\.so"):
        find_or_install_release("9.8.7")
    assert names_below(cache) == []


@pytest.mark.slow
def test_what_an_interrupted_installation_left_is_replaced(cache: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "9.8.7")
    half = cache / "merge_bench/ucx/9.8.7" / matching_wheel_package()
    (half / "libucx/lib").mkdir(parents=True)
    (cache / f"merge_bench/ucx/.9.8.7-{matching_wheel_package()}.tmp-1").mkdir()
    assert cached_releases() == []
    assert find_or_install_release("9.8.7").sha256
    assert names_below(cache) == ["9.8.7"]


def test_a_python_without_pip_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, f"{sys.executable}: No module named pip\n", "")
    monkeypatch.setattr(ucx_releases, "_run_pip", lambda *words: done)
    with pytest.raises(UsageError, match=r"cannot be downloaded: .*: No module named pip; cached: none"):
        find_or_install_release("1.21.0")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cached_releases() == []
    with pytest.raises(UsageError, match=r"--ucx 1\.21\.0 cannot be installed into the user's cache: Not a directory"):
        find_or_install_release("1.21.0")


def test_releases_are_listed_by_version(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.9.0", "1.20.1"):
        put_into_cache(cache, version)
    listed = f"{matching_wheel_package()} (1.22.0)\nAvailable versions: 1.22.0, 1.21.0, 1.20.1, 1.20.0.post1, 1.9.0\n"
    monkeypatch.setattr(ucx_releases, "_run_pip", lambda *words: subprocess.CompletedProcess([], 0, listed, ""))
    assert [release.name for release in cached_releases()] == ["1.9.0", "1.20.1"]
    assert released_versions() == ["1.9.0", "1.20.0.post1", "1.20.1", "1.21.0", "1.22.0"]
    assert releases_between("1.20.0", "1.21.0") == ["1.20.0.post1", "1.20.1", "1.21.0"]


def test_offline_the_cached_releases_are_listed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = subprocess.CompletedProcess([], 1, "ERROR: No matching distribution found\n", "")
    monkeypatch.setattr(ucx_releases, "_run_pip", lambda *words: offline)
    with pytest.raises(UsageError, match=r"pip cannot list those of .*: No matching distribution found$"):
        released_versions()
    put_into_cache(cache, "1.19.0")
    assert released_versions() == ["1.19.0"]


def test_an_installed_ucx_is_the_folder_above_its_libraries(tmp_path: Path) -> None:
    for name in ("lib", "lib64"):
        folder = tmp_path / name / "ucx"
        (folder / name).mkdir(parents=True)
        (folder / name / "libucp.so.0").touch()
        release = find_or_install_release(str(folder))
        assert (release.name, release.library_folder, release.sha256) == (str(folder), folder / name, None)
    with pytest.raises(UsageError, match=r"there is no libucp\.so in .*/lib; name the folder above UCX's lib"):
        find_or_install_release(str(tmp_path / "lib/ucx/lib"))


def test_the_chosen_libraries_come_first_and_replace_those_chosen_before(tmp_path: Path) -> None:
    first, second = (str(tmp_path / name) for name in ("a", "b"))
    surroundings = {LIBRARY_PATH: "/mine:/too", "OTHER": "1"}
    chosen = ucx_selection_variables(first, surroundings)
    assert chosen == {VARIABLE: first, PREFER: "true", LIBRARY_PATH: f"{first}/lib:/mine:/too"}
    again = ucx_selection_variables(second, {**surroundings, **chosen})
    assert again[LIBRARY_PATH] == f"{second}/lib:/mine:/too"
    assert ucx_selection_variables("wheel", {**surroundings, **again})[LIBRARY_PATH] == "/mine:/too"
    assert LIBRARY_PATH not in ucx_selection_variables("system", surroundings)
    with select_ucx_temporarily(first, surroundings):
        assert surroundings[LIBRARY_PATH].startswith(first)
    assert surroundings == {LIBRARY_PATH: "/mine:/too", "OTHER": "1"}
    alone: dict[str, str] = {}
    UcxChoice(first).set_selection_variables(alone)
    assert set(alone) == set(CHOOSING_UCX)
    UcxChoice("wheel").set_selection_variables(alone)
    assert alone == {VARIABLE: "wheel"}


def test_a_release_is_chosen_if_a_process_loads_it(cache: Path, tmp_path: Path) -> None:
    folder = put_into_cache(cache, "1.19.0")
    asked: list[str] = []

    def host(library: Path | None, *, infiniband: bool = True, cuda: bool = True) -> UcxHostFacts:
        loaded = None if library is None else LoadedUcx("1.19.0", infiniband, library, cuda)
        return UcxHostFacts(tmp_path, probe=lambda origin, environ: asked.append(origin) or loaded)

    (tmp_path / "mlx5_0").touch()
    inside = folder / "lib/libucp.so"
    choice = choose_ucx("1.19.0", {}, host=host(inside))
    assert (choice.origin, choice.display_name, choice.warning) == (str(folder), "1.19.0", None)
    assert choose_ucx(None, {VARIABLE: "1.19.0"}, host=host(inside)) == choice
    assert choose_ucx(None, {VARIABLE: str(folder)}, host=host(inside)) == choice
    assert set(asked) == {str(folder)}
    warned = choose_ucx("1.19.0", {}, host=host(inside, infiniband=False)).warning
    assert warned is not None
    assert "the chosen UCX (1.19.0) cannot use it" in warned.message
    for library in (None, tmp_path / "other/libucp.so"):
        with pytest.raises(UsageError, match=r"--ucx 1\.19\.0: UCXX cannot load the UCX in .*; it needs UCX 1\.19"):
            choose_ucx("1.19.0", {}, host=host(library))
    with pytest.raises(UsageError, match="cannot send GPU memory"):
        choose_ucx("1.19.0", {}, host=host(inside, cuda=False), sends_gpu_memory=True)


def test_a_folder_without_ucx_info_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"there is no {tmp_path}/bin/ucx_info")):
        find_ucx_info(str(tmp_path))


@pytest.mark.parametrize(
    ("version", "too_high"), [("1.13.1", True), ("1.18.1", True), ("1.19.0", False), ("1.22.0", False)]
)
def test_which_perftest_overstates_bandwidth(version: str, *, too_high: bool) -> None:
    assert perftest_overstates_bandwidth(version) is too_high
