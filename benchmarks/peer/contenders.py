"""The contenders: one row each, with the command, the environment and the memory it needs."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peer.protocol import Job
from merge_bench.cluster.dask_commands import THREAD_COUNTS
from merge_bench.errors import UsageError
from merge_bench.units import format_bytes, format_count

REFERENCE, FILTERED = "merge_bench", "merge_bench-filter"
PROCESS_BYTES = 450 << 20  # a process with its libraries, before any data


@dataclass(frozen=True)
class Contender:
    """One variant of one peer.

    `family`: variants of one family are one opponent, which counts with the fastest of them. `module`: under
    `benchmarks.peer`. `memory`: peak of all its processes together, above their libraries, in multiples of the data
    processed, measured and rounded up. `several`: has a process for each worker. `gpu`: True if it needs GPUs, False if
    it is left out where there are some.
    """

    name: str
    family: str
    module: str
    memory: float
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    several: bool = False
    gpu: bool | None = None

    def need(self, job: Job) -> float:
        """Estimated peak memory in bytes."""
        return PROCESS_BYTES * (job.workers + 1 if self.several else 1) + self.memory * job.data_bytes

    def surroundings(self, job: Job) -> dict[str, str]:
        """Its environment variables: one process gets the cores of all workers; several processes set their own.

        Polars gets the allocator setting that merge_bench gives its own workers: freed pages are kept for the next
        iteration.
        """
        threads = {} if self.several else dict.fromkeys(THREAD_COUNTS, str(job.threads))
        return {**threads, **self.environment}


def _dask_cuda(name: str, memory: float, kind: str, protocol: str) -> Contender:
    options = {"type": kind, "protocol": protocol}
    return Contender(name, "dask-cuda", "dask_cuda_merge", memory, options, several=True, gpu=kind == "gpu" or None)


_KEEP_PAGES = {"_RJEM_MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}
_PROTOCOLS, _SHUFFLES = ("tcp", "ucx"), ("tasks", "p2p")

CONTENDERS: tuple[Contender, ...] = (
    Contender(REFERENCE, "merge_bench", "merge_bench_run", 3.5, {"exchange": "ucx"}, several=True),
    Contender(
        FILTERED,
        FILTERED,
        "merge_bench_run",
        3.5,
        {"exchange": "ucx", "runtime_filter": "on"},
        several=True,
        gpu=False,
    ),
    *(
        Contender(
            f"exchange-dask-{shuffle}-{protocol}",
            "dask",
            "merge_bench_run",
            6.0,
            {"exchange": "dask", "shuffle": shuffle, "protocol": protocol, "timeout": "120"},
            several=True,
        )
        for shuffle in _SHUFFLES
        for protocol in _PROTOCOLS
    ),
    *(Contender(f"dask-{name}", "dask", "dask_merge", 6.0, {"shuffle": name}, several=True) for name in _SHUFFLES),
    *(_dask_cuda(f"dask-cuda-{protocol}", 6.0, "cpu", protocol) for protocol in _PROTOCOLS),
    Contender("polars-streaming", "polars", "libraries", 3.5, {"engine": "streaming"}, _KEEP_PAGES),
    Contender("polars-in-memory", "polars", "libraries", 4.5, {"engine": "in-memory"}, _KEEP_PAGES),
    Contender("duckdb-table", "duckdb", "libraries", 3.0, {"result": "table"}),
    Contender("duckdb-arrow", "duckdb", "libraries", 3.0, {"result": "arrow"}),
    Contender("pandas", "pandas", "libraries", 5.0),
    Contender("ucxx-cudf-merge", "ucxx", "ucxx_merge", 0.5, several=True, gpu=True),
    *(_dask_cuda(f"dask-cuda-gpu-{protocol}", 0.5, "gpu", protocol) for protocol in _PROTOCOLS),
)


def choose(only: Sequence[str], *, gpus: int) -> tuple[Contender, ...]:
    """merge_bench and those whose name matches one of the patterns (`polars*`); without patterns all of them.

    Raises
    ------
    UsageError
        If a pattern matches no contender here.
    """
    here = [contender for contender in CONTENDERS if contender.gpu in (None, gpus > 0)]
    chosen = {REFERENCE} if only else {contender.name for contender in here}
    for pattern in only:
        found = fnmatch.filter([contender.name for contender in here], pattern)
        if not found:
            names = ", ".join(contender.name for contender in here)
            raise UsageError(f"--only {pattern} matches no program on this machine; choose from {names}")
        chosen.update(found)
    return tuple(contender for contender in here if contender.name in chosen)


def refuse_unfit(contenders: Sequence[Contender], job: Job, available: int) -> None:
    """Refuse a chunk with which one of the contenders would need more memory than there is.

    Raises
    ------
    UsageError
        Naming the hungriest contender and the largest chunk that would fit.
    """
    worst = max(contenders, key=lambda contender: contender.need(job))
    need = worst.need(job)
    if need <= available:
        return
    fixed = need - worst.memory * job.data_bytes
    per_row = worst.memory * job.data_bytes / job.rows_per_chunk
    largest = int((available - fixed) / per_row / 1000) * 1000
    hint = f"the largest --chunk that fits is {format_count(largest)}" if largest > 0 else "no chunk would fit"
    raise UsageError(
        f"--chunk {format_count(job.rows_per_chunk)} needs about {format_bytes(need)} of memory for {worst.name}, but"
        f" only {format_bytes(available)} is available; {hint}, or leave {worst.name} out with --only"
    )
