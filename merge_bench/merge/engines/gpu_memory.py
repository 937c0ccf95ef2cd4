"""Device memory: pools, buffers, the libraries that make them, and the CUDA context that they need.

Only this module uses RMM and CUDA's driver API. A CUDA context is current in one thread, not in the whole process.
RMM's `Stream.synchronize` and UCX need a current context but do not make one, and Dask may run a worker's steps in any
of its task threads.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import RunFailed, UsageError, first_message_line
from merge_bench.units import format_bytes, plural

DEVICE = 0  # the first that CUDA_VISIBLE_DEVICES leaves: launchers and dask-cuda put a worker's own GPU first

_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "end other processes on the GPU, or use fewer workers on it",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "another process uses the GPU exclusively; run nvidia-smi -c 0 to allow several",
}


def bind_cuda_context() -> None:
    """Make the CUDA context of this process's GPU current in the calling thread; may be called again.

    Call it in each thread before anything that uses the GPU: RMM, libcudf, or a UCX context that needs CUDA. Raises
    UsageError if there is no GPU, no driver, or a driver too old for the installed packages; RunFailed if there is a
    GPU, but CUDA refuses a context.
    """
    driver = _load_cuda_driver()
    _check_driver_version(driver)
    device = _checked_driver_result("cuDeviceGet", *driver.cuDeviceGet(DEVICE))
    context = _checked_driver_result("cuDevicePrimaryCtxRetain", *driver.cuDevicePrimaryCtxRetain(device))
    _checked_driver_result("cuCtxSetCurrent", *driver.cuCtxSetCurrent(context))


def _load_cuda_driver() -> Any:
    """Load CUDA's driver and initialize it; raises `UsageError` if there is none."""
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


def _check_driver_version(driver: Any) -> None:
    """Raise `UsageError` for a driver older than the packages' CUDA, with which RMM would abort the process."""
    import cuda.bindings

    from merge_bench.config.installation import setup_command

    needed = int(cuda.bindings.__version__.partition(".")[0])
    supported = _checked_driver_result("cuDriverGetVersion", *driver.cuDriverGetVersion())
    if supported // 1000 < needed:
        older = f", or the packages for CUDA 12: {setup_command('cu12')}" if supported // 1000 == 12 else ""
        raise UsageError(
            f"the GPU driver supports CUDA {supported // 1000}.{supported % 1000 // 10}, but the installed packages"
            f" need CUDA {needed}; install a newer driver{older}"
        )


def _checked_driver_result(call_name: str, status: Any, value: Any = None) -> Any:
    """Return the result of a call of CUDA's driver API; raises `RunFailed` if its status says that it failed."""
    if int(status) == 0:
        return value
    remedy = _REMEDIES.get(status.name, "run nvidia-smi to see the state of the GPU")
    refused = "CUDA cannot create a context on this worker's GPU"
    raise RunFailed(f"{refused}: {call_name} returned {status.name} ({int(status)}); {remedy}")


def _no_gpu_message(reason: str) -> str:
    """Return the sentence that this process has no usable GPU, with the reason."""
    return f"engine cudf needs an NVIDIA GPU, but CUDA finds none: {reason}"


POOL_SHARE = 0.9  # of the GPU's memory; the rest is for CUDA contexts and UCX's staging buffers
POOL_ALIGN = 256


@dataclass(frozen=True)
class GpuMemoryUsage:
    """The free and the total memory of one GPU, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, eq=False)
class DeviceBytes:
    """A contiguous run of bytes in device memory, which UCX and libcudf can read and which can be sliced.

    `ptr` and `size` are what pylibcudf takes for a span; `owner` keeps the memory.
    """

    ptr: int
    size: int
    owner: Any = None

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The bytes as a one-dimensional array; no stream is named, because the memory is ready for all of them."""
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3}

    def __getitem__(self, span: slice) -> DeviceBytes:
        start, stop, step = span.indices(self.size)
        if step != 1:
            raise ValueError("device bytes are contiguous: no steps")
        return DeviceBytes(self.ptr + start, max(stop - start, 0), self.owner)


def allocate_device_buffers(sizes: Iterable[int]) -> list[DeviceBytes]:
    """Allocate device buffers of these sizes in bytes from the pool; UCX may use them at once."""
    _, rmm = load_rapids()
    stream = process_cuda_stream()
    buffers = [rmm.DeviceBuffer(size=size, stream=stream) for size in sizes]
    stream.synchronize()  # until then kernels in the stream may use the same memory
    return [DeviceBytes(memory.ptr, memory.size, memory) for memory in buffers]


def copy_device_bytes(source: DeviceBytes, target: DeviceBytes) -> None:
    """Start a copy on the CUDA stream between two pieces of device memory of the same length."""
    from rmm.pylibrmm.device_buffer import copy_device_to_ptr

    if source.size:
        copy_device_to_ptr(source.ptr, target.ptr, source.size, process_cuda_stream())


def rmm_memory_resource() -> Any:
    """Return the RMM memory resource from which this process allocates device memory: the pool and its statistics."""
    _, rmm = load_rapids()
    return rmm.mr.get_current_device_resource()


def synchronize_stream() -> None:
    """Wait until all work on this process's CUDA stream is done."""
    process_cuda_stream().synchronize()


def inspect_gpu_memory() -> GpuMemoryUsage | None:
    """Read the free and the total memory of this process's GPU; None if the process has a pool already.

    Raises `UsageError` if there is no GPU, or other processes cannot open the memory that is set up.
    """
    _, rmm = load_rapids()
    return None if _shareable_pool(rmm) is not None else GpuMemoryUsage(*map(int, rmm.mr.available_device_memory()))


def pool_bytes_per_worker(pool_bytes: int | None, memories: Sequence[GpuMemoryUsage]) -> int:
    """Return the size in bytes of each worker's memory pool on one GPU.

    `pool_bytes`: `--rmm-pool-size`; None: `POOL_SHARE` of the GPU's memory in equal parts, or of the free memory if
    that is less. `memories`: of each worker, after all had a CUDA context and before any made a pool, so that the size
    does not depend on who is first. Raises `UsageError` if the pools do not fit the free memory.
    """
    free, total = min(each.free for each in memories), max(each.total for each in memories)
    size = pool_bytes or int(POOL_SHARE * (total if POOL_SHARE * total <= free else free) / len(memories))
    size -= size % POOL_ALIGN
    if size * len(memories) > free:
        raise _pool_too_large_error(size, len(memories), GpuMemoryUsage(free, total))
    return size


def set_up_memory_pool(size: int | None = None) -> int:
    """Make a pool for this process's device memory that other processes can open; returns its size in bytes.

    Where there is a pool, as in a running cluster whose workers were started with `--rmm-pool-size`, this only checks
    that it can be shared over CUDA IPC. In a process that has none, it makes one over `cudaMalloc`, of `size` bytes;
    None for a process that is alone on its GPU. That pool never grows: it would into other workers' shares, and into
    what CUDA and UCX need. Call it before a `CudfEngine` is made. It binds a CUDA context, in this thread alone.
    Returns the size of the pool in bytes.

    Raises `UsageError` if there is no GPU, the pool does not fit, or other processes cannot open the memory.
    """
    _, rmm = load_rapids()
    existing_pool = _shareable_pool(rmm)
    if existing_pool is not None:
        return int(existing_pool.pool_size())
    memory = GpuMemoryUsage(*map(int, rmm.mr.available_device_memory()))
    size = pool_bytes_per_worker(size, [memory])
    try:
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=size, maximum_pool_size=size)
    except (MemoryError, RuntimeError) as error:
        raise _pool_too_large_error(size, 1, memory) from error
    rmm.mr.set_current_device_resource(pool)
    return size


def _shareable_pool(rmm: Any) -> Any:
    """Return the RMM pool of this process, None if it has none.

    Raises `UsageError` if its memory cannot be shared over CUDA IPC.
    """
    resource, pool = rmm.mr.get_current_device_resource(), None
    while isinstance(resource, rmm.mr.UpstreamResourceAdaptor):
        if isinstance(resource, rmm.mr.PoolMemoryResource):
            pool = resource
        resource = resource.get_upstream()
    private = (rmm.mr.CudaAsyncMemoryResource, rmm.mr.CudaAsyncViewMemoryResource, rmm.mr.ManagedMemoryResource)
    if isinstance(resource, private):
        raise UsageError(
            f"CUDA IPC cannot send device memory allocated by RMM's {type(resource).__name__}; start the workers"
            " with --rmm-pool-size, and omit --rmm-async and --rmm-managed-memory"
        )
    return pool


def _pool_too_large_error(size: int, count: int, memory: GpuMemoryUsage) -> UsageError:
    """Make the error that `count` pools of `size` bytes do not fit into the memory of one GPU."""
    pools = "an RMM pool" if count == 1 else plural(count, "RMM pool")
    return UsageError(
        f"{pools} of {format_bytes(size)} {'does' if count == 1 else 'do'} not fit on the GPU, which has"
        f" {format_bytes(memory.free)} of {format_bytes(memory.total)} free; use a smaller --rmm-pool-size, or end"
        " other programs on the GPU"
    )


@contextmanager
def translate_rapids_errors(rank: int, activity: str, library: str = "") -> Iterator[None]:
    """Turn exceptions of RAPIDS libraries in the block into a `RunFailed` that names rank and activity."""
    try:
        yield
    except MemoryError as error:
        raise RunFailed(
            f"rank {rank} ran out of GPU memory while {activity}{library and f' for {library}'}; use a smaller --chunk,"
            " more workers or a larger --rmm-pool-size"
        ) from error
    except (RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
        failed = f"{library} failed on rank {rank}" if library else f"rank {rank} failed"
        raise RunFailed(f"{failed} while {activity}: {first_message_line(error)}") from error


def load_rapids() -> tuple[Any, Any]:
    """Bind a CUDA context in this thread, then import and return pylibcudf and RMM.

    The context comes first: without a GPU the libraries end the process, and without a context their calls fail.

    Raises `UsageError` if there is no GPU that CUDA can use here or a library cannot be loaded, `RunFailed` if CUDA
    refuses a context.
    """
    bind_cuda_context()
    try:
        import pylibcudf
        import rmm
        import rmm.statistics
    except Exception as error:
        raise UsageError(f"engine cudf cannot be loaded: {first_message_line(error)}") from error
    return pylibcudf, rmm


@functools.cache
def process_cuda_stream() -> Any:
    """Return the only CUDA stream of this process, for all its work and memory; call `load_rapids` first.

    It is not the default stream, because there RMM waits for every buffer that libcudf hands over (`c_from_unique_ptr`
    in its device_buffer.pyx). It is non-blocking, so that work of others on the default stream does not hold it up.
    Raises `RunFailed` if CUDA makes none.
    """
    from rmm.pylibrmm.stream import CudaStreamFlags, Stream

    try:
        return Stream(flags=CudaStreamFlags.NON_BLOCKING)
    except RuntimeError as error:
        raise RunFailed(f"CUDA could not create a stream: {first_message_line(error)}") from error
