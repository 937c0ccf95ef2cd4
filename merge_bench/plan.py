"""One run, described: frozen, picklable, and checked against the memory there is before anything is started."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.units import format_bytes, format_count
from merge_bench.workload.synthetic import SyntheticSpec
from merge_bench.workload.tables import TableSpec

PROCESS_BYTES = 400 << 20  # a Python worker with its libraries, before any data
BUCKET_MAP_BYTES = 2  # per row: which bucket it goes to


@dataclass(frozen=True)
class Plan:
    """Everything that the workers of a launch have to agree on.

    `rows_per_chunk` is null for real tables. `message_bytes`: longest message of the data plane, 0 for no limit.
    `pipeline`: whether partition and join run beside the exchange. `timeout`: seconds. `verify`: ``ends`` (after the
    warm-up and the last iteration), ``every``, ``full`` or ``off``.
    """

    workload: SyntheticSpec | TableSpec
    workers: int
    iterations: int
    warmup: int
    launches: int
    engine: str
    exchange: str
    protocol: str
    verify: str
    timeout: float
    seed: int
    rows_per_chunk: int | None = None
    error_handling: bool = False
    message_bytes: int = 32 << 20
    pipeline: bool = False
    link_rounds: int = 5
    check_link: bool = False
    shuffle: str = "tasks"
    threads: int = 1
    require_transport: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, for the records."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "workload"}
        if isinstance(self.workload, SyntheticSpec):
            plain["workload"] = {"name": "synthetic", **dataclasses.asdict(self.workload)}
        else:
            plain["workload"] = {"name": "tables", **self.workload.to_json()}
        return plain

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the key columns, as they travel."""
        return ("key",) if isinstance(self.workload, SyntheticSpec) else self.workload.keys


def synthetic_worker_bytes(rows_per_chunk: int, workers: int, fraction: float, payload_columns: int) -> int:
    """Estimated peak memory of a worker, bytes: its two chunks, the parcels it sends and receives, and its result."""
    row = 8 * (1 + payload_columns)
    chunk = 2 * row + 2 * BUCKET_MAP_BYTES
    parcels = 2 * row * (1 + (workers - 1) / workers)
    result = fraction * 8 * (1 + 2 * payload_columns) * 1.2
    return PROCESS_BYTES + int(rows_per_chunk * (chunk + parcels + result))


def check_fits(plan: Plan, available: int, workers_here: int, where: str) -> None:
    """Refuse a synthetic chunk that cannot fit in `available` bytes shared by `workers_here` workers of one host.

    Raises
    ------
    UsageError
        With the largest chunk that would fit.
    """
    spec = plan.workload
    if not isinstance(spec, SyntheticSpec) or plan.rows_per_chunk is None:
        return
    share = available // workers_here
    factor = 3.0 if plan.exchange == "dask" else 1.0  # Dask keeps the splits of both frames beside the frames

    def need(rows: int) -> float:
        grown = synthetic_worker_bytes(rows, plan.workers, spec.fraction, spec.payload_columns) - PROCESS_BYTES
        return PROCESS_BYTES + factor * grown

    if need(plan.rows_per_chunk) <= share:
        return
    per_row = (need(1_000_000) - PROCESS_BYTES) / 1e6
    largest = int((share - PROCESS_BYTES) / per_row / 1000) * 1000
    hint = f"the largest --chunk that fits is {format_count(largest)}" if largest > 0 else "not even a small chunk fits"
    raise UsageError(
        f"--chunk {format_count(plan.rows_per_chunk)} needs about {format_bytes(need(plan.rows_per_chunk))} for each"
        f" of {workers_here} workers on {where}, where {format_bytes(share)} is available to each; {hint}"
    )
