"""Pure functions: the largest chunk that fits on a device, and how much of its memory bandwidth a phase uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merge_bench.merge.plan import Plan, synthetic_worker_bytes
from merge_bench.merge.workload import SyntheticSpec

ROW_BYTES = 16  # key and payload
RESULT_ROW_BYTES = 24
OWN_NEED = 230  # device bytes for a row of a chunk: chunks, what is sent and received, table, result; 214 on an H200
ALONE_NEED = 130  # of one worker, which sends nothing: an estimate, rounded up
POOL_SHARE = 0.8  # of what is free
STEP_ROWS = 1_000_000


def largest_chunk(free: int, sharers: int, need: int, host_bytes: int, workers: int, fraction: float) -> int:
    """Rows of a chunk with which `sharers` workers fit on a GPU with `free` bytes, and all `workers` on their host.

    `need`: device bytes for each row. Rounded down to millions; 0 if not even one fits.
    """
    rows = int(POOL_SHARE * free / sharers / need)
    fixed = host_bytes_of_worker(0, workers, fraction, "cudf")
    per_row = (host_bytes_of_worker(STEP_ROWS, workers, fraction, "cudf") - fixed) / STEP_ROWS
    on_host = int((0.9 * host_bytes / workers - fixed) / per_row)
    return max(0, min(rows, on_host)) // STEP_ROWS * STEP_ROWS


def host_bytes_of_worker(rows_per_chunk: int, workers: int, fraction: float, engine: str) -> int:
    """Estimated host memory that a worker needs with one payload column and the default options."""
    spec = SyntheticSpec(rows_per_chunk * workers, fraction, 0)
    return synthetic_worker_bytes(Plan(spec, workers, 1, 1, 1, engine, "ucx", "tcp", "ends", 60.0, 0))


def bytes_touched(rows_per_chunk: int, workers: int, result_rows: int) -> dict[str, int | None]:
    """The least that each phase of one iteration reads and writes in device memory, of all workers together.

    With I, the bytes of both frames, and R, the result's rows:
    partition: 2 I (the hash partition reads and writes all rows);
    exchange: 2 I (W - 1) / W (what crosses is read once and written once);
    join: 2 I / W to put a worker's own rows beside the others', I / 2 for the keys, 64 R for the two maps of 4 bytes a
    row, written and read, and the rows gathered by them, read and written.
    One worker: nothing is partitioned, exchanged or copied. A hash table's own traffic is left out, and caches,
    too: so the share that follows is a lower bound.
    """
    data = 2 * rows_per_chunk * workers * ROW_BYTES
    gathered = result_rows * (2 * 2 * 4 + 2 * RESULT_ROW_BYTES)
    if workers == 1:
        return {"partition": None, "exchange": None, "join": data // 2 + gathered}
    return {
        "partition": 2 * data,
        "exchange": 2 * data * (workers - 1) // workers,
        "join": 2 * data // workers + data // 2 + gathered,
    }


def bandwidth_shares(
    document: Mapping[str, Any], gpus: int, device_bandwidth: int | None
) -> dict[str, dict[str, float | None]]:
    """Of each phase of a run: bytes per second of device memory, and what share that is of `gpus` devices' bandwidth.

    `document` is what ``run --json`` prints; a phase that was not measured has None.
    """
    plan = document["plan"]
    touched = bytes_touched(plan["rows_per_chunk"], plan["workers"], document["result_rows"])
    found: dict[str, dict[str, float | None]] = {}
    for phase, size in touched.items():
        seconds = document["phases_seconds"][phase]
        rate = size / seconds if size and seconds else None
        share = rate / (device_bandwidth * gpus) if rate and device_bandwidth else None
        found[phase] = {"bytes_per_second": rate, "share": share}
    return found
