"""Kernels of our own on this process's GPU: NVRTC compiles their source at run time, CUDA's driver API launches them.

Both are called through cuda-bindings, in a thread that has a CUDA context (`cuda_context.bind`). No headers are needed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from merge_bench.errors import RunFailed, UsageError, first_line
from merge_bench.host.cuda_context import DEVICE


class Kernels:
    """The kernels of one source, loaded into the context of the calling thread.

    Raises
    ------
    UsageError
        If cuda-bindings or NVRTC cannot be loaded.
    RunFailed
        If the source is not compiled or not loaded.
    """

    def __init__(self, source: str, names: Sequence[str]) -> None:
        self._driver, _ = _load_bindings()
        self._module = _checked("cuModuleLoadData", *self._driver.cuModuleLoadData(compile_source(source, _arch())))
        self._functions = {
            name: _checked("cuModuleGetFunction", *self._driver.cuModuleGetFunction(self._module, name.encode()))
            for name in names
        }

    def launch(self, name: str, blocks: int, threads: int, stream: int, parameters: Sequence[int]) -> None:
        """Put a kernel on a stream; every parameter has 8 bytes."""
        values = np.array(parameters, np.uint64)
        places = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)  # CUDA takes pointers to parameters
        (status,) = self._driver.cuLaunchKernel(
            self._functions[name], blocks, 1, 1, threads, 1, 1, 0, stream, places.ctypes.data, 0
        )
        _checked(f"cuLaunchKernel of {name}", status)


@functools.cache
def load_kernels(source: str, names: tuple[str, ...]) -> Kernels:
    """The `Kernels` of a source, which a process compiles once."""
    return Kernels(source, names)


@functools.cache
def processors() -> int:
    """The number of multiprocessors of this process's GPU."""
    driver, _ = _load_bindings()
    return _attribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)


def compile_source(source: str, arch: str) -> bytes:
    """Compile CUDA C++ for GPUs of architecture `arch` (``sm_90``); needs no GPU. Returns the binary (cubin)."""
    _, nvrtc = _load_bindings()
    try:
        program = _checked("nvrtcCreateProgram", *nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
    except RuntimeError as error:  # cuda-bindings finds no libnvrtc
        raise UsageError(f"engine cuda needs NVRTC, which cannot be loaded: {first_line(error)}") from error
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        log = b" " * _checked("nvrtcGetProgramLogSize", *nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        reason = first_line(RuntimeError(log.decode().strip("\0 \n")))
        raise RunFailed(f"NVRTC cannot compile the kernels of engine cuda for {arch}: {reason}")
    binary: bytes = b" " * _checked("nvrtcGetCUBINSize", *nvrtc.nvrtcGetCUBINSize(program))
    _checked("nvrtcGetCUBIN", *nvrtc.nvrtcGetCUBIN(program, binary))
    nvrtc.nvrtcDestroyProgram(program)
    return binary


def _arch() -> str:
    driver, _ = _load_bindings()
    names = driver.CUdevice_attribute
    major = _attribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    return f"sm_{major}{_attribute(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)}"


def _attribute(name: Any) -> int:
    driver, _ = _load_bindings()
    device = _checked("cuDeviceGet", *driver.cuDeviceGet(DEVICE))
    return int(_checked("cuDeviceGetAttribute", *driver.cuDeviceGetAttribute(name, device)))


def _load_bindings() -> tuple[Any, Any]:
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise UsageError(f"engine cuda needs the package cuda-bindings, which cannot be loaded: {error}") from error
    return driver, nvrtc


def _checked(call: str, status: Any, value: Any = None) -> Any:
    """The value of a call; raises if the call failed."""
    if int(status) == 0:
        return value
    raise RunFailed(f"engine cuda cannot run its kernels: {call} returned {status.name} ({int(status)})")
