"""Program: what the GPU path does first, in threads that have no CUDA context, on the driver of `libcuda.c`.

The main thread has a context, as dask-cuda gives one to the thread of a worker's event loop; steps of a run are carried
out in other threads, each here in a new one. It ends before a memory pool or a stream is made, and asks in that thread
for one thing that needs a context. Prints what became of each step as JSON.

A program of its own that imports nothing from beside it: `PYTHONPATH` says which merge_bench is tried.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import rmm
import rmm.mr
import rmm.pylibrmm.stream
import rmm.statistics
from cuda.bindings import driver, runtime

try:
    import pylibcudf  # noqa: F401  (before names are replaced below)
except ImportError:  # the stack cpu has RMM alone, and nothing is asked of pylibcudf before a context is bound
    sys.modules["pylibcudf"] = types.ModuleType("pylibcudf")


class Reached(BaseException):
    """The first call beyond what is tried here; not an `Exception`, so that nothing takes it for a failure."""


def stop(*_: Any, **__: Any) -> Any:
    raise Reached


def bind_in_main_thread() -> None:
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])


def engine() -> None:
    from merge_bench.merge.engines.base import JoinShape
    from merge_bench.merge.engines.cudf import CudfEngine
    from merge_bench.merge.frame import Field

    fields = (Field("key", pa.int64(), 8),)
    CudfEngine(JoinShape(fields, fields, ("key",), 2, 0, 10))


def steps() -> dict[str, Callable[[], object]]:
    """What uses the GPU first, in one thread or another."""
    try:
        from merge_bench.merge.engines import gpu_memory
    except ImportError:  # an older merge_bench
        from merge_bench.merge.engines import cudf

        return {"set_up_pool": lambda: vars(cudf)["set_up_pool"](None), "CudfEngine": engine}
    return {
        "inspect": gpu_memory.inspect_gpu_memory, "set_up_pool": gpu_memory.set_up_memory_pool, "CudfEngine": engine,
        "allocate": lambda: gpu_memory.allocate_device_buffers([1000]),
    }  # fmt: skip


def tried(step: Callable[[], object]) -> dict[str, Any]:
    """What became of a step: the class and words of its failure, or None twice."""
    found: dict[str, Any] = {"thread": threading.get_native_id(), "kind": None, "error": None}
    try:
        try:
            step()
        except Reached:
            rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        # RMM names its source file by the folder that it was built in.
        found |= {"kind": type(error).__name__, "error": re.sub(r"/\S*/", "", lines[0])}
    return found


def main() -> None:
    if "--bind" in sys.argv:
        bind_in_main_thread()
    # The runtime's own count needs tables of a real driver.
    runtime.cudaGetDeviceCount = lambda: (runtime.cudaError_t.cudaSuccess, 1)
    rmm.mr.get_current_device_resource = stop
    rmm.statistics.enable_statistics = stop
    rmm.pylibrmm.stream.Stream = rmm.DeviceBuffer = stop
    found = {}
    for name, step in steps().items():
        with ThreadPoolExecutor(1) as executor:
            found[name] = executor.submit(tried, step).result()
    print(json.dumps(found))


main()
