"""CUDA's driver API as far as merge_bench calls it: contexts are bound by thread, and each call gives a status."""

from __future__ import annotations

import enum
import threading
import types
from typing import Any

PRIMARY = 0xC0DE  # the one context
NO_CONTEXT = "Failed to synchronize a stream: invalid device context (201)"


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201


class DynamicLibNotFoundError(RuntimeError):
    """What cuda-bindings raises where there is no libcuda."""


class Driver:
    """The driver of one process. `refusals`: the status that a call gives instead of doing anything."""

    def __init__(
        self, *, refusals: dict[str, CUresult] | None = None, installed: bool = True, version: int = 13020
    ) -> None:
        self.refusals, self.installed, self.version = refusals or {}, installed, version
        self.calls: list[str] = []
        self.retained = 0
        self._initialised = False
        self._threads = threading.local()

    @property
    def current(self) -> int:
        """The calling thread's context; 0 for none."""
        return getattr(self._threads, "context", 0)

    def unbind(self) -> None:
        """Leave the calling thread without a context, as a new one is."""
        self._threads.context = 0

    def require_context(self) -> None:
        """What CUDA does where the calling thread has no context."""
        if not self.current:
            raise RuntimeError(NO_CONTEXT)

    def cuInit(self, Flags: int) -> tuple[CUresult]:
        status = self._status("cuInit")
        if not self.installed:
            raise DynamicLibNotFoundError('"cuda" is an NVIDIA driver library and can only be found via system search.')
        self._initialised = not status and Flags == 0
        return (status,)

    def cuDriverGetVersion(self) -> tuple[CUresult, int | None]:
        return self._answer("cuDriverGetVersion", self.version)

    def cuDeviceGet(self, ordinal: int) -> tuple[CUresult, int | None]:
        if ordinal != 0:
            return CUresult.CUDA_ERROR_INVALID_DEVICE, None
        return self._answer("cuDeviceGet", 0)

    def cuDevicePrimaryCtxRetain(self, dev: int) -> tuple[CUresult, int | None]:
        found = self._answer("cuDevicePrimaryCtxRetain", PRIMARY)
        self.retained += found[0] == 0
        return found

    def cuCtxSetCurrent(self, ctx: int) -> tuple[CUresult]:
        status = self._status("cuCtxSetCurrent")
        if ctx != PRIMARY or not self.retained:
            return (CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        if not status:
            self._threads.context = ctx
        return (status,)

    def _status(self, call: str) -> CUresult:
        self.calls.append(call)
        if not self._initialised and call not in ("cuInit", "cuDriverGetVersion"):
            return CUresult.CUDA_ERROR_NOT_INITIALIZED
        return self.refusals.get(call, CUresult.CUDA_SUCCESS)

    def _answer(self, call: str, value: int) -> tuple[CUresult, int | None]:
        status = self._status(call)
        return status, None if status else value


def modules(driver: Driver, version: str = "13.5.0") -> dict[str, types.ModuleType]:
    """What to put into `sys.modules`."""
    names = ("cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent")
    functions: dict[str, Any] = {name: getattr(driver, name) for name in names}
    api, bindings, cuda = (types.ModuleType(name) for name in ("cuda.bindings.driver", "cuda.bindings", "cuda"))
    vars(api).update(functions, CUresult=CUresult)
    vars(bindings).update(driver=api, __version__=version)
    vars(cuda).update(bindings=bindings)
    return {"cuda": cuda, "cuda.bindings": bindings, "cuda.bindings.driver": api}
