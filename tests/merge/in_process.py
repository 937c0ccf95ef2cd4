"""Whole merges of W ranks in one process: parcels are handed over by copying."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import Engine, JoinKind, JoinShape, ParcelWritingEngine, Side
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.frame import Frame


def engine_type(
    engine: str | Callable[[JoinShape], Engine], join_rows: int | None = None
) -> Callable[[JoinShape], Engine]:
    """The class of an engine; `join_rows`: as if so few were quickest, and short pieces: small tables have several."""
    whole = import_engine_class(engine) if isinstance(engine, str) else engine
    if join_rows is None:
        return whole
    assert isinstance(whole, type)
    assert issubclass(whole, HostEngine)
    return type(whole.__name__, (whole,), {"join_rows": join_rows, "piece_bytes": 64})


def engines_of(
    engine: str | Callable[[JoinShape], Engine],
    lefts: Sequence[Frame],
    rights: Sequence[Frame],
    keys: tuple[str, ...],
    threads: int = 1,
    stores: tuple[str, int] | None = None,
    how: JoinKind = JoinKind.INNER,
    sent: Side | None = None,
    join_rows: int | None = None,
) -> list[Engine]:
    """An engine for each rank, with its chunks.

    `engine`: its name or its class; `stores`: the way of writing parcels, and most buckets in all; `sent`: the side
    that every rank is given whole; `join_rows`: see `engine_type`.
    """
    make = engine_type(engine, join_rows)
    rows, sides = sum(frame.rows for frame in (*lefts, *rights)), {Side.LEFT: lefts, Side.RIGHT: rights}
    sent_rows = sum(frame.rows for frame in sides[sent]) if sent else 0
    engines: list[Engine] = []
    for rank, chunk in enumerate(zip(lefts, rights, strict=True)):
        shape = JoinShape(
            lefts[0].fields, rights[0].fields, keys, len(lefts), rank, rows, threads, how, sent, sent_rows
        )
        engines.append(make(shape))
        engines[rank].load_chunks(*chunk)
        if stores:
            made = engines[rank]
            assert isinstance(made, ParcelWritingEngine)
            made.use_parcel_writer(*stores)
    return engines


def run_once(engines: Sequence[Engine], then: Callable[[Sequence[Engine]], None] | None = None) -> int:
    """Partition, hand over in the order in which ranks exchange, join; returns the number of rows.

    `then`: called when all engines have begun.
    """
    for one in engines:
        one.begin_iteration()
    if then is not None:
        then(engines)
    outgoing = [one.partition_chunks() for one in engines]
    for rank, one in enumerate(engines):
        for side in Side:
            sources = [(rank - step) % len(engines) for step in range(1, len(engines))]
            sent = {source: outgoing[source][side][rank] for source in sources}
            boxes = one.make_receive_buffers(side, {source: each.header.copy() for source, each in sent.items()})
            for source, each in sent.items():
                boxes[source][:] = each.data
    return sum(one.join_received_rows() for one in engines)


def result(engines: Sequence[Engine]) -> pa.Table:
    """All rows of the last merge."""
    return pa.concat_tables([piece for one in engines for piece in one.result_tables()])


def simulate(
    engine: str | Callable[[JoinShape], Engine],
    lefts: Sequence[Frame],
    rights: Sequence[Frame],
    keys: tuple[str, ...],
    iterations: int = 1,
    threads: int = 1,
    stores: tuple[str, int] | None = None,
    how: JoinKind = JoinKind.INNER,
    sent: Side | None = None,
    join_rows: int | None = None,
) -> pa.Table:
    """The result of merging chunks, one of each side for every rank; see `engines_of`."""
    engines = engines_of(engine, lefts, rights, keys, threads, stores, how, sent, join_rows)
    for _ in range(iterations):
        run_once(engines)
    return result(engines)
