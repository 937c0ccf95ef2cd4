"""One library's join of two Parquet tables that lie in its memory, in a process of its own; prints one line of JSON.

python -m benchmarks.goal.table_join polars|duckdb LEFT RIGHT KEY[,KEY] ITERATIONS THREADS
"""

from __future__ import annotations

import gc
import json
import sys
import time

import pyarrow.parquet as pq

from benchmarks.peer.inprocess import Joiner


def joiner(library: str, on: tuple[str, ...], threads: int) -> Joiner:
    """The library's, as `benchmarks/peers.py` has it."""
    if library == "polars":
        from benchmarks.peer.polars_streaming import PolarsJoin

        return PolarsJoin("streaming", on)
    from benchmarks.peer.duckdb_join import DuckDBJoin

    return DuckDBJoin(threads, to_arrow=False, on=on, columns=(*on, "left_payload", "right_payload"))


def main(library: str, left: str, right: str, on: str, iterations: str, threads: str) -> None:
    """Load, warm up once, time, answer."""
    joins = joiner(library, tuple(on.split(",")), int(threads))
    joins.load(pq.read_table(left).combine_chunks(), pq.read_table(right).combine_chunks())
    walls = []
    for _ in range(1 + int(iterations)):
        joins.release()
        gc.collect()
        start = time.perf_counter()
        joins.merge()
        walls.append(time.perf_counter() - start)
    print(json.dumps({"wall_seconds": walls[1:], "rows": joins.result().num_rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
