"""Builds the driver of a GPU that is not there (`libcuda.c`), and finds a UCX with and without CUDA for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from merge_bench.config.ucx_choice import has_cuda_module
from merge_bench.config.ucx_info import PREFER, libucx_wheel_folder
from tests.conftest import QUICK_HOOKS

HERE = Path(__file__).resolve().parent
SECONDS = 60


def build(folder: Path) -> dict[str, str]:
    """Compile the driver; gives the environment in which a process and its UCX take it for a GPU's."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("no C compiler: the fake libcuda.so.1 cannot be built")
    wheel = libucx_wheel_folder()
    if wheel is None or not has_cuda_module(wheel / "lib" / "libucp.so"):
        pytest.skip("needs the package libucx, whose UCX has a module for CUDA")
    for name in ("libcuda", "libnvidia-ml"):
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(folder / f"{name}.so.1"), str(HERE / f"{name}.c")]
        subprocess.run([*command, "-ldl", "-lpthread"], check=True, timeout=SECONDS)
    return {"LD_LIBRARY_PATH": str(folder), "UCX_NET_DEVICES": "lo", **dict([QUICK_HOOKS])}


def without_cuda(driver: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of `build`, in which processes also find a system's UCX that was built without CUDA."""
    wheel = libucx_wheel_folder()
    assert wheel is not None
    (folder / "ucx").mkdir()
    for library in (wheel / "lib").rglob("*.so"):
        if "cuda" not in library.name:
            copied = folder / library.relative_to(wheel / "lib")  # no link: UCX looks for modules beside its libraries
            shutil.copyfile(library, copied)
            copied.with_name(f"{library.name}.0").symlink_to(copied)
    return {**driver, "LD_LIBRARY_PATH": f"{folder}:{driver['LD_LIBRARY_PATH']}", PREFER: "true"}
