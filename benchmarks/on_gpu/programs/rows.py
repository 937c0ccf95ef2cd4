"""The rows that every program here joins, the timing of its calls, and the check of its results.

The tables are those that merge_bench joins with one worker: 30 % of the right rows match, seed 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from merge_bench.errors import MergeBenchError, WrongResult
from merge_bench.merge.frame import Frame
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks

FRACTION = 0.3
ITERATIONS, WARM_UPS = 10, 2
SKEW = 1.0  # exponent of the Zipf law


@dataclass(frozen=True)
class Problem:
    """Both tables in host memory, and the rows and the checksum of their inner join."""

    spec: SyntheticSpec
    left: Frame
    right: Frame
    rows: int
    checksum: int

    @classmethod
    def of(cls, rows: int, skew: float = 0.0) -> Problem:
        """The problem of so many rows of each table. `skew`: exponent of the Zipf law, 0: none."""
        spec = SyntheticSpec(rows, FRACTION, 0, zipf=skew)
        left, right, expected = generate_chunks(spec, 0, 1)
        return cls(spec, left, right, expected.rows, expected.checksum)

    def verify(self, pieces: Iterable[pa.Table]) -> None:
        """Check every row of a result, in pieces with the columns of the merge.

        Raises
        ------
        WrongResult
            If a row is wrong, or rows are missing or there twice.
        """
        counts = np.zeros(3, np.uint64)
        for piece in pieces:
            counts += np.array(check_result_rows(self.spec, piece), np.uint64)
        if (int(counts[0]), int(counts[1]), int(counts[2])) != (self.rows, self.checksum, 0):
            raise WrongResult(
                f"{int(counts[0]):,} rows instead of {self.rows:,}, {int(counts[2]):,} of them wrong"
                f", checksum {int(counts[1])} instead of {self.checksum}"
            )


def timed(
    call: Callable[[], Any], wait: Callable[[], object], iterations: int = ITERATIONS, warm_ups: int = WARM_UPS
) -> list[float]:
    """Seconds of each call until `wait` returns, after warm-ups; what a call returns is dropped before the next one."""
    walls = []
    for iteration in range(warm_ups + iterations):
        wait()
        began = time.perf_counter()
        result = call()
        wait()
        if iteration >= warm_ups:
            walls.append(time.perf_counter() - began)
        del result
    return walls


def report(name: str, rows: int, walls: list[float], **more: Any) -> None:
    """Print one figure: the median, the least and the greatest seconds."""
    spread = {"median": statistics.median(walls), "min": min(walls), "max": max(walls), "iterations": len(walls)}
    print(json.dumps({"name": name, "rows": rows, "seconds": spread, **more}), flush=True)


def absent(name: str, reason: str) -> None:
    """Print why there is no figure of this name."""
    print(json.dumps({"name": name, "absent": reason}), flush=True)


def sizes() -> list[int]:
    """The rows that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    return list(parser.parse_args().rows)


def run(measure: Callable[[int], None], set_up: Callable[[], object]) -> None:
    """Measure each size of the command line; an error ends this process with its sentence and its status."""
    try:
        set_up()
        for rows in sizes():
            measure(rows)
    except MergeBenchError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
