"""Chooses how each worker writes rows into parcels (`merge_bench.merge.stores`): what is faster on its host.

All workers measure at once, as they will work at once. What they found is kept in the user's cache, by everything that
it depends on: the processor and how many workers share it, the shape of the merge, and the code.
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
from merge_bench.merge import steps, stores
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.records.outputs import replacing
from merge_bench.records.schema import Stores, Worker

CODE = ("partition.py", "partition_loops.py", "stores.py", "jit.py")
MOST_KEPT = 1000
CLEAR = 1.1  # ratio of the two times: a smaller one may be noise, so the next launch measures again

Nanoseconds = Mapping[str, float]


def choose_stores(session: Session) -> None:
    """Have every worker use the way that was asked for, or the fastest one on its host, and describe it."""
    plan, calls = session.plan, session.workers
    if plan.device_memory:
        return
    if plan.stores == "auto":
        chosen = _fastest(session)
    else:
        chosen = [Stores(way=plan.stores, because="asked for") for _ in session.descriptions]
    ways = [each.way if each else stores.PLAIN for each in chosen]
    streams, caches = stores.most_streams(ways), [worker.hardware.l2_bytes for worker in session.descriptions]
    known = [each for each in caches if each is not None]
    least = min(known) if known and len(known) == len(caches) else None
    calls.results(calls.submit(steps.use_stores, [(way, streams, least) for way in ways]))
    session.descriptions = [
        replace(worker, stores=each) for worker, each in zip(session.descriptions, chosen, strict=True)
    ]


def _fastest(session: Session) -> list[Stores | None]:
    """The fastest way on each worker's host, measured if that is not known of all; None if there is no choice."""
    keys = [_key(each, session.descriptions, session.plan) for each in session.descriptions]
    try:
        file = cache_folder() / "stores.json"
    except RuntimeError:
        file = None
    known, because = read_known(file) if file else {}, "known"
    if not known.keys() >= set(keys):
        known, because = _by_key(keys, session.workers.on_all(steps.measure_stores)), "measured"
        if file is not None:
            keep_known(
                file, {key: each for key, each in known.items() if max(each.values()) > CLEAR * min(each.values())}
            )
    return [
        Stores(way=min(found, key=found.__getitem__), because=because, nanoseconds=found) if found else None
        for found in (known.get(key) for key in keys)
    ]


def read_known(file: Path) -> dict[str, dict[str, float]]:
    """What earlier launches found; empty if that cannot be read, and without ways that there no longer are."""
    try:
        found = msgspec.json.decode(read_regular(file), type=dict[str, dict[str, float]])
    except (OSError, UsageError, msgspec.MsgspecError):
        return {}
    return {key: each for key, each in found.items() if each.keys() == stores.WAYS.keys()}


def keep_known(file: Path, found: Mapping[str, Nanoseconds]) -> None:
    """Add to what is known, the oldest first to go. A cache that cannot be written costs the next launch a moment."""
    both = {**read_known(file), **{key: dict(each) for key, each in found.items()}}
    kept = dict(list(both.items())[-MOST_KEPT:])
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(file) as stream:
            stream.write(msgspec.json.encode(kept))


def _by_key(keys: Sequence[str], found: Sequence[Nanoseconds]) -> dict[str, dict[str, float]]:
    """For each key the median over its workers; a worker without rows found nothing, nor did an engine of one way."""
    by_key: dict[str, list[Nanoseconds]] = {}
    for key, each in zip(keys, found, strict=True):
        by_key.setdefault(key, []).extend([each] if each else [])
    return {key: {way: median(one[way] for one in each) for way in each[0]} for key, each in by_key.items() if each}


def _key(worker: Worker, workers: Sequence[Worker], plan: Plan) -> str:
    """All that decides which way is faster, as text; rows only by their power of two."""
    here, hardware, tables = [each.host for each in workers].count(worker.host), worker.hardware, plan.workload
    if isinstance(tables, SyntheticSpec):
        rows, shape = 2 * tables.rows, [str(tables.payload_columns), f"{tables.zipf:g}"]
    else:
        sides = tables.left, tables.right
        rows = sum(side.rows for side in sides)
        shape = [f"{field.type} {field.nullable}" for side in sides for field in side.fields]
    facts = [
        hardware.cpu_model, hardware.cpu_id, hardware.cache_bytes, hardware.cores, here, plan.workers, plan.engine,
        plan.keys, plan.distribution.name, (rows // plan.workers).bit_length(), shape, _code(),
    ]  # fmt: skip
    return json.dumps(facts)


@functools.cache
def _code() -> str:
    """A checksum of the code that was measured."""
    found = hashlib.sha256(importlib.metadata.version("numba").encode())
    for name in CODE:
        found.update((Path(stores.__file__).parent / name).read_bytes())
    return found.hexdigest()[:12]
