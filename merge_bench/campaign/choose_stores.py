"""Chooses how each host writes the parcels of the partition step: as ``--partition-writes`` says, or the fastest way.

All workers of a host measure at once, because they will write at once. The times are kept in the user's cache, by all
that they depend on: the processor and the number of workers that share it, the shape of the merge, and the code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

from merge_bench.campaign.cluster_session import Session
from merge_bench.config.files import read_regular
from merge_bench.errors import UsageError
from merge_bench.host.files import cache_folder
from merge_bench.merge import partition, worker
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.records.outputs import replacing
from merge_bench.records.schema import Stores, Worker

MEASURED_CODE = ("partition.py", "partition_loops.py", "jit.py")
MOST_KEPT = 1000
CLEAR = 1.1  # the least ratio of the two ways' times that is kept: a smaller one may be noise

Nanoseconds = Mapping[str, float]


def choose_stores(session: Session, code: str | None = None) -> None:
    """Choose how each worker writes parcels: as the option says, or the fastest way on its host; records the choice.

    `code`: the checksum of the code that was measured; None: of the installed code.
    """
    plan, calls = session.plan, session.workers
    if plan.device_memory:
        return
    if plan.stores == "auto":
        chosen = _fastest_stores(session, code or _code_checksum())
    else:
        chosen = [Stores(way=plan.stores, because="asked for") for _ in session.descriptions]
    ways = [each.way if each else partition.PLAIN for each in chosen]
    caches = [described.hardware.l2_bytes for described in session.descriptions]
    streams, least = partition.most_streams(ways), min((size or 0 for size in caches), default=0) or None
    calls.results(calls.submit(worker.use_stores, [(way, streams, least) for way in ways]))
    described_and_chosen = zip(session.descriptions, chosen, strict=True)
    session.descriptions = [replace(described, stores=stores) for described, stores in described_and_chosen]


def _fastest_stores(session: Session, code: str) -> list[Stores | None]:
    """The fastest way to write parcels on each worker's host, measured unless the cache has it; None: no choice."""
    keys = [_cache_key(each, session.descriptions, session.plan, code) for each in session.descriptions]
    try:
        file = cache_folder() / "stores.json"
    except RuntimeError:
        file = None
    times, because = read_cached_times(file) if file else {}, "known"
    if not times.keys() >= set(keys):
        times, because = _median_times(keys, session.workers.on_all(worker.measure_stores)), "measured"
        clear = {key: by_way for key, by_way in times.items() if max(by_way.values()) > CLEAR * min(by_way.values())}
        if file is not None:
            cache_times(file, clear)
    return [
        Stores(way=min(by_way, key=by_way.__getitem__), because=because, nanoseconds=by_way) if by_way else None
        for by_way in map(times.get, keys)
    ]


def read_cached_times(file: Path) -> dict[str, dict[str, float]]:
    """The times of each way to write parcels that earlier launches measured, by key; empty if unreadable."""
    try:
        times = msgspec.json.decode(read_regular(file), type=dict[str, dict[str, float]])
    except (OSError, UsageError, msgspec.MsgspecError):
        return {}
    return {key: each for key, each in times.items() if each.keys() == partition.WAYS.keys()}


def cache_times(file: Path, times: Mapping[str, Nanoseconds], most: int = MOST_KEPT) -> None:
    """Add `times` to the cache and keep the `most` newest. If it cannot be written, the next launch measures again."""
    both = {**read_cached_times(file), **{key: dict(each) for key, each in times.items()}}
    kept = dict(list(both.items())[-most:])
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(file) as stream:
            stream.write(msgspec.json.encode(kept))


def _median_times(keys: Sequence[str], times: Sequence[Nanoseconds]) -> dict[str, dict[str, float]]:
    """The median times of each key's workers, by way; workers without rows or with an engine of one way have none."""
    by_key: dict[str, list[Nanoseconds]] = {}
    for key, measured in zip(keys, times, strict=True):
        by_key.setdefault(key, []).extend([measured] if measured else [])
    measured_keys = {key: measured for key, measured in by_key.items() if measured}
    return {key: {way: median(one[way] for one in each) for way in each[0]} for key, each in measured_keys.items()}


def _cache_key(worker: Worker, workers: Sequence[Worker], plan: Plan, code: str) -> str:
    """The cache key of a worker's times: all that decides which way is faster, as JSON; rows as their power of two."""
    here, hardware, tables = [each.host for each in workers].count(worker.host), worker.hardware, plan.workload
    if isinstance(tables, SyntheticSpec):
        rows, shape = 2 * tables.rows, [str(tables.payload_columns), f"{tables.zipf:g}"]
    else:
        sides = tables.left, tables.right
        rows = sum(side.rows for side in sides)
        shape = [f"{field.type} {field.nullable}" for side in sides for field in side.fields]
    processor = hardware.cpu_model, hardware.cpu_id, hardware.cache_bytes, hardware.cores
    merge = plan.workers, plan.engine, plan.keys, plan.distribution.name, (rows // plan.workers).bit_length(), shape
    return json.dumps([*processor, here, *merge, code])


@functools.cache
def _code_checksum() -> str:
    """A checksum of the code that writes parcels, and of numba's version."""
    checksum = hashlib.sha256(importlib.metadata.version("numba").encode())
    for name in MEASURED_CODE:
        checksum.update((Path(partition.__file__).parent / name).read_bytes())
    return checksum.hexdigest()[:12]
