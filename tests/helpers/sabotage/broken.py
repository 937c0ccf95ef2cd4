"""Ways for rank 0 to spoil one row on its way to rank 1: a matching row of the right frame unless another is asked for.

And ways for rank 1 to join less than it has.

They expect an int64 key in the first column and 8 bytes of payload in the second, and that keys from 0 up to the number
of right rows match.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pyarrow as pa

from merge_bench.merge.engines.base import WHOLE, Side
from merge_bench.merge.frame import Frame


def matching(keys: np.ndarray, engine: Any) -> np.ndarray:
    """Where keys have a partner."""
    keys = keys.view(np.int64)
    return np.flatnonzero((keys >= 0) & (keys < engine.shape.rows // 2))


def matchless(side: Side, keys: np.ndarray, engine: Any) -> np.ndarray:
    """Where keys of the synthetic tables have no partner: with `--frac-match 0.3` left ones from 0.3 N on."""
    keys, rows = keys.view(np.int64), engine.shape.rows // 2
    return np.flatnonzero(keys >= (rows if side is Side.RIGHT else rows * 3 // 10))


def routed(
    how: str, engine: Any, split: Any, side: Side = Side.RIGHT, choose: Callable[..., np.ndarray] = matching
) -> list[Any]:
    """Forget a row's bucket, or take the same bucket of another worker."""
    partitioner = engine._partitioners[side]
    honest = type(partitioner)._assign_rows

    def assign(self: Any, frame: Frame, span: tuple[int, int]) -> Any:
        counts, total = honest(self, frame, span), self.workers * self.buckets
        rows = choose(frame.columns[0].values, engine)
        victim = next(row for row in rows if span[0] <= row < span[1] and self._ids[row] // self.buckets == 1)
        bucket = self._ids[victim]
        other = total if how == "drop" else (bucket + self.buckets) % total
        self._ids[victim] = other
        counts[bucket] -= 1
        counts[other] += 1
        return counts

    partitioner._assign_rows = MethodType(assign, partitioner)
    try:
        return split()
    finally:
        del partitioner._assign_rows


def doubled(
    engine: Any, split: Any, side: Side = Side.RIGHT, choose: Callable[..., np.ndarray] = matching
) -> list[Any]:
    """Send a row twice."""
    frame = engine._chunks[side]
    row = int(choose(frame.columns[0].values, engine)[0])
    table = frame.to_arrow()
    longer = Frame.from_arrow(pa.concat_tables([table, table.slice(row, 1)]))
    engine._chunks[side] = longer.with_nullable({field.name: field.nullable for field in frame.fields})
    try:
        return split()
    finally:
        engine._chunks[side] = frame


def changed(how: str, engine: Any, split: Any) -> list[Any]:
    """Change bytes that are on their way to rank 1: in the first parcel that has two rows which match."""
    made = split()
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


def of_matchless(how: str, engine: Any, split: Any) -> list[Any]:
    """``drop matchless left``: a row without a match."""
    side = side_of(how)
    choose = functools.partial(matchless, side)
    if how.startswith("double"):
        return doubled(engine, split, side, choose)
    return routed(how.split()[0], engine, split, side, choose)


def incomplete(engine: Any) -> bool:
    """Lose what rank 0 sent of the frame that is sent whole, and join the rest."""
    del engine._parcels[engine.shape.sent][WHOLE][1:]
    return True


def idle(engine: Any) -> bool:
    """Join nothing."""
    return False


JOINS = {"incomplete": incomplete, "idle": idle}


def asked() -> str:
    """What the file says at the time; empty without a file."""
    file = Path(os.environ["SABOTAGE"])
    return file.read_text() if file.exists() else ""


def install(engine_class: Any) -> None:
    """Break how an engine class splits a chunk, or how it joins."""
    honest, honest_join = engine_class._split_chunk, engine_class.join

    def join(self: Any) -> int:
        goes_on = JOINS.get(asked()) if self.shape.rank == 1 else None
        rows: int = honest_join(self) if goes_on is None or goes_on(self) else 0
        return rows

    def split(self: Any, side: Side, *arguments: Any, **named: Any) -> list[list[Any]]:
        how = asked()
        if not how or how in JOINS or self.shape.rank != 0 or side is not side_of(how):
            return honest(self, side, *arguments, **named)
        if "matchless" in how:
            return of_matchless(how, self, lambda: honest(self, side, *arguments, **named))
        return BREAKS[how](self, lambda: honest(self, side, *arguments, **named))

    engine_class._split_chunk, engine_class.join = split, join
