"""Ways for rank 0 to spoil one row on its way to rank 1: a matching row of the right frame unless another is asked for.

And ways for rank 1 to join less than it has.

They expect an int64 key in the first column and 8 bytes of payload in the second, and that keys from 0 up to the number
of right rows match.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from merge_bench.merge import partition
from merge_bench.merge.engines import cpu_base
from merge_bench.merge.engines.base import Side
from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.partition import BucketReader, Parcel, Partitioner


def matching(keys: np.ndarray, engine: Any) -> np.ndarray:
    """Where keys have a partner."""
    keys = keys.view(np.int64)
    return np.flatnonzero((keys >= 0) & (keys < engine.shape.rows // 2))


def matchless(side: Side, keys: np.ndarray, engine: Any) -> np.ndarray:
    """Where keys of the synthetic tables have no partner: with `--frac-match 0.3` left ones from 0.3 N on."""
    keys, rows = keys.view(np.int64), engine.shape.rows // 2
    return np.flatnonzero(keys >= (rows if side is Side.RIGHT else rows * 3 // 10))


Split = Callable[[Frame], list[list[Parcel]]]
"""Splits a chunk as an honest worker does: for each part of the frame a parcel per worker."""


def routed(
    how: str, engine: Any, chunk: Frame, split: Split, choose: Callable[..., np.ndarray] = matching
) -> list[list[Parcel]]:
    """Forget a row's bucket, or take the same bucket of another worker."""
    from merge_bench.merge import partition_loops

    honest = partition_loops.assign_buckets_one_key

    def assign(keys: np.ndarray, total: int, ids: np.ndarray, counts: np.ndarray) -> None:
        honest(keys, total, ids, counts)
        buckets = total // engine.shape.workers
        victim = next(row for row in choose(keys, engine) if ids[row] // buckets == 1)
        bucket = ids[victim]
        other = total if how == "drop" else (bucket + buckets) % total
        ids[victim] = other
        counts[0, bucket] -= 1
        counts[0, other] += 1

    with mock.patch.object(partition_loops, "assign_buckets_one_key", assign):
        return split(chunk)


def doubled(
    engine: Any, chunk: Frame, split: Split, choose: Callable[..., np.ndarray] = matching
) -> list[list[Parcel]]:
    """Send a row twice."""
    row = int(choose(chunk.columns[0].values, engine)[0])
    table = chunk.to_arrow()
    longer = Frame.from_arrow(pa.concat_tables([table, table.slice(row, 1)]))
    return split(longer.with_nullable_fields({field.name: field.nullable for field in chunk.fields}))


def changed(how: str, engine: Any, chunk: Frame, split: Split) -> list[list[Parcel]]:
    """Change bytes that are on their way to rank 1: in the first parcel that has two rows which match."""
    made = split(chunk)
    for parcels in made:
        starts, size = parcels[1].layout.starts, 8 * parcels[1].rows
        keys, payload = (parcels[1].data[start : start + size].view(np.int64) for start, _, _ in starts[:2])
        found = matching(keys, engine)
        if found.size > 1:
            break
    one, two = found[:2]
    if how == "flip":
        payload[one] ^= 1
    elif how == "swap":
        payload[[one, two]] = payload[[two, one]]
    else:
        keys[two], payload[two] = keys[one], payload[one]
    return made


BREAKS = {
    "drop": functools.partial(routed, "drop"),
    "misroute": functools.partial(routed, "misroute"),
    "double": doubled,
    "flip": functools.partial(changed, "flip"),
    "swap": functools.partial(changed, "swap"),
    "replace": functools.partial(changed, "replace"),
}

"""Of a matching row of the right frame."""


def side_of(how: str) -> Side:
    """The frame that is spoiled: the right one, or the one that the file names, as in ``drop matchless left``."""
    return Side.LEFT if how.endswith("left") else Side.RIGHT


def of_matchless(how: str, engine: Any, chunk: Frame, split: Split) -> list[list[Parcel]]:
    """``drop matchless left``: a row without a match."""
    choose = functools.partial(matchless, side_of(how))
    if how.startswith("double"):
        return doubled(engine, chunk, split, choose)
    return routed(how.split()[0], engine, chunk, split, choose)


def incomplete(engine: Any, join: Callable[[], int]) -> int:
    """Lose what rank 0 sent of the frame that is sent whole, and join the rest."""
    fields = engine.shape.fields(engine.shape.sent)

    class Forgetful(BucketReader):
        def __init__(self, fields_read: tuple[Field, ...], parcels: Sequence[Parcel]) -> None:
            super().__init__(fields_read, parcels[:1] if fields_read == fields else parcels)

    with (
        mock.patch.object(partition, "BucketReader", Forgetful),
        mock.patch.object(cpu_base, "BucketReader", Forgetful),
    ):
        return join()


def idle(engine: Any, join: Callable[[], int]) -> int:
    """Join nothing."""
    return 0


JOINS = {"incomplete": incomplete, "idle": idle}


def asked() -> str:
    """What the file says at the time; empty without a file."""
    file = Path(os.environ["SABOTAGE"])
    return file.read_text() if file.exists() else ""


def install(engine_class: Any) -> None:
    """Break how an engine class splits a chunk, or how it joins."""
    honest_partition, honest_split = engine_class.partition_chunks, engine_class.partition_pieces
    honest_join = engine_class.join_received_rows

    def partition_rows(self: Any) -> Any:
        with broken_partition(self):
            return honest_partition(self)

    def split_rows(self: Any) -> Iterator[Any]:
        with broken_partition(self):
            yield from honest_split(self)

    def join_rows(self: Any) -> int:
        broken = JOINS.get(asked()) if self.shape.rank == 1 else None
        rows: int = honest_join(self) if broken is None else broken(self, lambda: honest_join(self))
        return rows

    engine_class.partition_chunks, engine_class.partition_pieces = partition_rows, split_rows
    engine_class.join_received_rows = join_rows


@contextlib.contextmanager
def broken_partition(engine: Any) -> Iterator[None]:
    """Have rank 0 spoil how it splits the chunk of one side, if the file says so."""
    how = asked()
    if not how or how in JOINS or engine.shape.rank != 0:
        yield
        return
    spoil = functools.partial(of_matchless, how) if "matchless" in how else BREAKS[how]
    fields, honest = engine.shape.fields(side_of(how)), Partitioner.split_into_parcels

    def split(self: Partitioner, chunk: Frame, *arguments: Any, **named: Any) -> list[list[Parcel]]:
        if self.fields != fields:
            return honest(self, chunk, *arguments, **named)
        return spoil(engine, chunk, lambda frame: honest(self, frame, *arguments, **named))

    with mock.patch.object(Partitioner, "split_into_parcels", split):
        yield
