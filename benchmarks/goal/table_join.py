"""One library's join of two Parquet tables that lie in its memory, in a process of its own; prints one line of JSON.

python -m benchmarks.goal.table_join polars|duckdb LEFT RIGHT KEY[,KEY] ITERATIONS THREADS
"""

from __future__ import annotations

import gc
import json
import sys
import time

import numpy as np
import pyarrow.parquet as pq

from benchmarks.peer.inprocess import Joiner


def joiner(library: str, on: tuple[str, ...], threads: int) -> Joiner:
    """The library's, as `benchmarks/peers.py` has it."""
    if library == "polars":
        from benchmarks.peer.polars_streaming import PolarsJoin

        return PolarsJoin("streaming", on)
    from benchmarks.peer.duckdb_join import DuckDBJoin

    return DuckDBJoin(threads, to_arrow=False, on=on, columns=(*on, "left_payload", "right_payload"))


def checksum(left: np.ndarray, right: np.ndarray) -> int:
    """Σ left payload · right payload modulo 2⁶⁴ over the rows of a result: their order does not matter."""
    return int((left.astype(np.uint64) * right.astype(np.uint64)).sum())


def main(library: str, left: str, right: str, on: str, iterations: str, threads: str) -> None:
    """Load, warm up once, time, answer."""
    joins = joiner(library, tuple(on.split(",")), int(threads))
    joins.load(*(pq.read_table(path).combine_chunks() for path in (left, right)))
    walls = []
    for _ in range(1 + int(iterations)):
        joins.release()
        gc.collect()
        start = time.perf_counter()
        joins.merge()
        walls.append(time.perf_counter() - start)
    found = joins.result()
    pairs = checksum(*(found[f"{side}_payload"].to_numpy() for side in ("left", "right")))
    print(json.dumps({"wall_seconds": walls[1:], "rows": found.num_rows, "checksum": pairs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
