"""NVRTC and CUDA's launches for kernels of ours: g++ compiles the same source, and a launch runs it in host memory.

A launch sees what its stream was given before; unlike other work on the device it is done at once.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import shutil
import subprocess
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import fake_device
from tests.helpers.fake_cuda import CUresult
from tests.helpers.fake_device import Process

SHIM = Path(__file__).with_name("fake_kernels.hpp")
COMPILER = shutil.which("g++")
NAMES = ("clear", "build", "probe")
PROCESSORS = 2
FOLDER: list[tempfile.TemporaryDirectory[str]] = []  # of each library, until the process ends

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no g++ to compile the kernels for the host")


class Attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class Status(enum.IntEnum):
    NVRTC_SUCCESS = 0
    NVRTC_ERROR_COMPILATION = 6


class Program:
    """What NVRTC holds of a source: its text, and after `compile_` a library of the host."""

    def __init__(self, source: bytes) -> None:
        self.source, self.library, self.log = source.decode(), b"", b""


@functools.cache
def compiled(source: str) -> Path:
    """A library with ``run_NAME(blocks, threads, values)`` for each kernel of a source; raises CalledProcessError."""
    assert COMPILER is not None
    FOLDER.append(tempfile.TemporaryDirectory(prefix="kernels-"))
    target = Path(FOLDER[-1].name) / "kernels.so"
    runners = "".join(
        f'extern "C" void run_{name}(unsigned blocks, unsigned threads, const uint64_t *values)'
        f" {{ emulate({name}, blocks, threads, values); }}\n"
        f'extern "C" unsigned count_{name}() {{ return count({name}); }}\n'
        for name in NAMES
        if f"{name}(" in source
    )
    words = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-x", "c++", "-", "-o", str(target)]
    subprocess.run(words, input=f'#include "{SHIM}"\n{source}\n{runners}', check=True, text=True, capture_output=True)
    return target


def nvrtc() -> types.ModuleType:
    """The module cuda.bindings.nvrtc as far as the engine uses it."""
    made: Any = types.ModuleType("cuda.bindings.nvrtc")

    def compile_program(prog: Program, numOptions: int, options: list[bytes]) -> tuple[Status]:
        assert numOptions == len(options)
        assert b"--gpu-architecture=sm_90" in options
        try:
            prog.library = str(compiled(prog.source)).encode()
        except subprocess.CalledProcessError as error:
            prog.log = error.stderr.encode()
            return (Status.NVRTC_ERROR_COMPILATION,)
        return (Status.NVRTC_SUCCESS,)

    def create(src: bytes, name: bytes, numHeaders: int, headers: Any, includeNames: Any) -> tuple[Status, Program]:
        assert not numHeaders
        return Status.NVRTC_SUCCESS, Program(src)

    def size(what: str) -> Any:
        return lambda prog: (Status.NVRTC_SUCCESS, len(getattr(prog, what)))

    def fill(room: bytes, found: bytes) -> tuple[Status]:  # the real one writes into the bytes it is given, too
        assert len(room) == len(found)
        ctypes.memmove(room, found, len(found))
        return (Status.NVRTC_SUCCESS,)

    vars(made).update(
        nvrtcCreateProgram=create,
        nvrtcCompileProgram=compile_program,
        nvrtcGetCUBINSize=size("library"),
        nvrtcGetCUBIN=lambda prog, cubin: fill(cubin, prog.library),
        nvrtcGetProgramLogSize=size("log"),
        nvrtcGetProgramLog=lambda prog, log: fill(log, prog.log),
        nvrtcDestroyProgram=lambda prog: (Status.NVRTC_SUCCESS,),
    )
    return made


class Function:
    """A kernel of a library, and how many parameters it has."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.run: Any = library[f"run_{name}"]
        self.parameters = int(library[f"count_{name}"]())


def driver() -> dict[str, Any]:
    """What the engine uses of cuda.bindings.driver beyond `fake_cuda`."""
    numbers = {16: PROCESSORS, 75: 9, 76: 0}

    def load(image: bytes) -> tuple[CUresult, ctypes.CDLL]:
        Process.driver.require_context()
        return CUresult.CUDA_SUCCESS, ctypes.CDLL(image.decode())

    return {
        "CUdevice_attribute": Attribute,
        "cuDeviceGetAttribute": lambda attrib, dev: (CUresult.CUDA_SUCCESS, numbers[attrib]),
        "cuModuleLoadData": load,
        "cuModuleGetFunction": lambda hmod, name: (CUresult.CUDA_SUCCESS, Function(hmod, name.decode())),
        "cuLaunchKernel": launch,
    }


def add(modules: dict[str, types.ModuleType]) -> dict[str, types.ModuleType]:
    """Give the modules of `fake_cuda` what kernels need."""
    vars(modules["cuda.bindings.driver"]).update(driver())
    found = modules["cuda.bindings.nvrtc"] = nvrtc()
    vars(modules["cuda.bindings"]).update(nvrtc=found)
    return modules


def launch(
    f: Any, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int,
    sharedMemBytes: int, hStream: int, kernelParams: int, extra: int,
) -> tuple[CUresult]:  # fmt: skip
    Process.driver.require_context()
    assert (gridDimY, gridDimZ, blockDimY, blockDimZ, sharedMemBytes, extra) == (1, 1, 1, 1, 0, 0)
    assert 0 < gridDimX < 2**31
    assert blockDimX % 32 == 0
    places = (ctypes.c_uint64 * f.parameters).from_address(kernelParams)
    values = np.array([ctypes.c_uint64.from_address(place).value for place in places], np.uint64)
    fake_device.finish(hStream)
    f.run(gridDimX, blockDimX, ctypes.c_void_p(values.ctypes.data))
    return (CUresult.CUDA_SUCCESS,)
