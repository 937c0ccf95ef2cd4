"""Binds a CUDA context in the calling thread. No other module calls CUDA's driver API.

A CUDA context is current in one thread, not in the whole process. RMM's `Stream.synchronize` and UCX need a current
context but do not make one, and Dask may run a worker's steps in any of its task threads.
"""

from __future__ import annotations

from typing import Any

from merge_bench.errors import RunFailed, UsageError

DEVICE = 0  # the first that CUDA_VISIBLE_DEVICES leaves: launchers and dask-cuda put a worker's own GPU first

_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "end other processes on the GPU, or use fewer workers on it",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "another process uses the GPU exclusively; run nvidia-smi -c 0 to allow several",
}


def bind() -> None:
    """Make the primary context of this process's GPU current in this thread. Calling it again is harmless.

    Call it in each thread before anything that uses the GPU: RMM, libcudf, or a UCX context that needs CUDA. Raises
    UsageError if there is no GPU, no driver, or a driver too old for the installed packages; RunFailed if there is a
    GPU, but CUDA refuses a context.
    """
    driver = _load_driver()
    _check_version(driver)
    device = _checked("cuDeviceGet", *driver.cuDeviceGet(DEVICE))
    context = _checked("cuDevicePrimaryCtxRetain", *driver.cuDevicePrimaryCtxRetain(device))
    _checked("cuCtxSetCurrent", *driver.cuCtxSetCurrent(context))


def _load_driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise UsageError(f"engine cudf needs the package cuda-bindings, which cannot be loaded: {error}") from error
    try:
        (status,) = driver.cuInit(0)
    except Exception as error:  # cuda-bindings raises classes of its own where there is no driver
        raise UsageError(_no_gpu_message("there is no NVIDIA driver")) from error
    if int(status) != 0:
        raise UsageError(_no_gpu_message(f"cuInit returned {status.name} ({int(status)})"))
    return driver


def _check_version(driver: Any) -> None:
    """Refuse a driver older than the packages' CUDA: it makes a context, but then RMM aborts the process."""
    import cuda.bindings

    from merge_bench.config.installation import how_to_set_up

    needed = int(cuda.bindings.__version__.partition(".")[0])
    supported = _checked("cuDriverGetVersion", *driver.cuDriverGetVersion())
    if supported // 1000 < needed:
        older = f", or the packages for CUDA 12: {how_to_set_up('cu12')}" if supported // 1000 == 12 else ""
        raise UsageError(
            f"the GPU driver supports CUDA {supported // 1000}.{supported % 1000 // 10}, but the installed packages"
            f" need CUDA {needed}; install a newer driver{older}"
        )


def _checked(call: str, status: Any, value: Any = None) -> Any:
    """The value of a call; raises if the call failed."""
    if int(status) == 0:
        return value
    remedy = _REMEDIES.get(status.name, "run nvidia-smi to see the state of the GPU")
    refused = "CUDA cannot create a context on this worker's GPU"
    raise RunFailed(f"{refused}: {call} returned {status.name} ({int(status)}); {remedy}")


def _no_gpu_message(reason: str) -> str:
    return f"engine cudf needs an NVIDIA GPU, but CUDA finds none: {reason}"
