"""The joins of the engines cudf and cuda on one GPU, in turn: ``python -m benchmarks.on_gpu.join_kernels``.

One worker joins rows that lie on its GPU; the time is that of `join`, until its stream is drained. The results of both
are compared by their number of rows and a checksum that does not depend on order. Prints a JSON object a line, as soon
as a case is done. The cases run in another process, which is started again where one brings it down, or takes too long.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merge_bench.merge.engines import cuda, cuda_join, cuda_kernels
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.cudf import CudfEngine
from merge_bench.merge.frame import Frame

FRACTION = 0.3  # of the right rows have a match
ROUNDS, WARM_UPS = 9, 2
PIECE = 1 << 18  # rows that a thread makes at once


@dataclass(frozen=True)
class Case:
    """Two frames of `rows` rows with one key of 8 bytes.

    `columns`: payloads of 8 bytes on each side. `repeats`: how often each key occurs on each side. `hot`: the share of
    rows that have one key, on the left (`hot_left`) or the right side. `variants`: rows that a thread looks up at once,
    to try with the kernels, beside their own number.
    """

    rows: int
    columns: int = 1
    repeats: int = 1
    hot: float = 0.0
    hot_left: bool = True
    variants: tuple[int, ...] = ()


CASES = {
    "1e6": Case(1_000_000),
    "10e6": Case(10_000_000),
    "25e6": Case(25_000_000, variants=(1, 2, 4)),
    "25e6, one key on 10 % of the left rows": Case(25_000_000, hot=0.1),
    "25e6, every key twice on both sides": Case(25_000_000, repeats=2),
    "25e6, one key on 1 % of the right rows": Case(25_000_000, hot=0.01, hot_left=False),
    "10e6, three payload columns a side": Case(10_000_000, columns=3),
    "100e6": Case(100_000_000),
}


def scattered(rows: int, step: int) -> npt.NDArray[np.int64]:
    """The numbers below `rows`, a product of twos and fives, in an order without a stride that memory could follow.

    Made in pieces, on all cores, since to shuffle 1e8 numbers takes too long. `step`: ends in 1, 3, 7 or 9.
    """
    result = np.empty(rows, np.int64)

    def fill(start: int) -> None:
        found = np.arange(start, min(start + PIECE, rows), dtype=np.int64) * step % rows
        bits = (found >> 16) * 0x1E3779B97F4A7C15 >> 40 & 0xFFFF  # the product wraps around
        bits[found >= rows - rows % 2**16] = 0
        result[start : start + PIECE] = (found ^ bits) * 961748941 % rows  # mixed within blocks of 2^16 numbers

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, rows, PIECE)))
    return result


def frames(case: Case) -> tuple[Frame, Frame]:
    """The frames of a case; keys in no order."""
    distinct = case.rows // case.repeats
    left, right = (scattered(case.rows, step) % distinct for step in (982451653, 899809343))
    right[right >= int(FRACTION * distinct)] += distinct
    if case.hot:
        (left if case.hot_left else right)[: int(case.hot * case.rows)] = 1 if case.hot_left else 4 * case.rows
    numbers = np.arange(case.rows)
    return tuple(
        Frame.from_arrow(pa.table({"key": key, **{f"{name}{at}": numbers * (at + 3) for at in range(case.columns)}}))
        for key, name in ((left, "l"), (right, "r"))
    )  # type: ignore[return-value]


def checksum(engine: Any) -> tuple[int, int]:
    """The number of rows of a result, and a sum over all rows of a hash of their values."""
    rows, total = 0, np.uint64(0)
    for piece in engine.results():
        mixed = np.zeros(piece.num_rows, np.uint64)
        for at, column in enumerate(piece.columns):
            values = column.to_numpy().view(np.uint64)
            mixed = (mixed ^ (values + np.uint64(at))) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        rows, total = rows + piece.num_rows, total + mixed.sum(dtype=np.uint64)
    return rows, int(total)


def join(engine: Any) -> float:
    """Milliseconds of one join; the result stays."""
    engine.begin()
    engine.partition()
    start = time.perf_counter()
    engine.join()
    return 1e3 * (time.perf_counter() - start)


def measure(name: str) -> dict[str, Any]:
    """What one case takes with both engines."""
    case, began = CASES[name], time.perf_counter()
    left, right = frames(case)
    shape = JoinShape(left.fields, right.fields, ("key",), 1, 0, 2 * case.rows)
    engines: dict[str, Any] = {"cudf": CudfEngine(shape), "cuda": cuda.CudaEngine(shape)}
    engines["cudf"].load(left, right)
    engines["cuda"]._chunks = engines["cudf"]._chunks
    del left, right
    prepared = time.perf_counter()
    found, times = {}, {key: list[float]() for key in engines}
    for key, engine in engines.items():
        times[key].append(join(engine))  # the first: kernels are compiled and loaded
        found[key] = checksum(engine)
        engine.begin()
    first = {key: round(values.pop(), 3) for key, values in times.items()}
    for number in range(WARM_UPS + ROUNDS):
        for key, engine in engines.items():
            took = join(engine)
            engine.begin()
            times[key] += [took] if number >= WARM_UPS else []
    medians = {key: statistics.median(values) for key, values in times.items()}
    rows, _ = found["cudf"]
    expected = None if case.hot else int(FRACTION * (case.rows // case.repeats)) * case.repeats**2
    return {
        "case": name,
        "rows": case.rows,
        "result_rows": rows,
        "verified": found["cudf"] == found["cuda"] and expected in (None, rows),
        "by_kernels": engines["cuda"]._own_join,
        **{f"{key}_ms": round(value, 3) for key, value in medians.items()},
        "times_as_fast": round(medians["cudf"] / medians["cuda"], 2),
        "rows_per_second": {key: round(2e3 * case.rows / value) for key, value in medians.items()},
        "first_ms": first,
        "all_ms": {key: [round(each, 3) for each in values] for key, values in times.items()},
        "kernels_ms": by_kernel(engines["cuda"]),
        "variants_ms": {str(number): variant(engines["cuda"], number) for number in case.variants},
        "prepared_s": round(prepared - began, 1),
        "whole_s": round(time.perf_counter() - began, 1),
    }


def by_kernel(engine: Any) -> dict[str, float]:
    """Milliseconds of each kernel, waited for one after the other: the least of five joins."""
    kind: Any = cuda_kernels.Kernels
    original, least = kind.launch, dict[str, float]()

    def timed(kernels: Any, name: str, *arguments: Any) -> None:
        engine._stream.synchronize()
        start = time.perf_counter()
        original(kernels, name, *arguments)
        engine._stream.synchronize()
        least[name] = min(least.get(name, 1e9), 1e3 * (time.perf_counter() - start))

    kind.launch = timed
    try:
        for _ in range(5):
            join(engine)
            engine.begin()
    finally:
        kind.launch = original
    return {name: round(value, 3) for name, value in least.items()}


def variant(engine: Any, number: int) -> float:
    """The median milliseconds of a join where a thread looks up so many rows at once."""
    usual = cuda_join.PROBE_ROWS
    cuda_join.PROBE_ROWS = number
    try:
        times = []
        for _ in range(1 + ROUNDS):
            times.append(join(engine))
            engine.begin()
    finally:
        cuda_join.PROBE_ROWS = usual
    return round(statistics.median(times[1:]), 3)


def run_cases(names: Sequence[str]) -> None:
    """In a process that has the GPU: print what each case takes."""
    from merge_bench.merge.engines.gpu_memory import set_up_pool

    set_up_pool(None)
    for name in names:
        print(f"begin {name}", file=sys.stderr, flush=True)
        print(json.dumps(measure(name)), flush=True)


def watch(names: Sequence[str], seconds: float, each: float, program: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What each case of another process prints; `error` for those that brought it down, or were not done in time.

    `seconds`: for all cases; `each`: from one line to the next.
    """
    left, deadline = list(names), time.monotonic() + seconds
    while left:
        process = subprocess.Popen([*program, *left], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        words: list[str | None] = []
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=forward, args=(process.stdout, lines.put)),
            threading.Thread(target=forward, args=(process.stderr, words.append)),
        ]
        for reader in readers:
            reader.start()
        why = None
        while left and why is None:
            try:
                line = lines.get(timeout=max(min(each, deadline - time.monotonic()), 0.01))
            except queue.Empty:
                why = "not done in time"
            else:
                if line is None:
                    why = f"ended with status {process.wait()}"
                else:
                    yield json.loads(line)
                    left.pop(0)
        if why is not None:
            process.kill()
        process.wait()
        for reader in readers:
            reader.join()
        if why is not None:
            said = [word.strip() for word in words if word and word.strip() and not word.startswith("begin ")]
            yield {"case": left.pop(0), "verified": False, "error": " · ".join([why, *said[-3:]])}
        if time.monotonic() >= deadline:
            yield from ({"case": name, "verified": False, "error": "no time was left"} for name in left)
            return


def forward(stream: IO[str], to: Any) -> None:
    """Hand on every line of a stream, and None at its end."""
    for line in stream:
        to(line)
    to(None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"which of: {'; '.join(CASES)}; all if none is given")
    parser.add_argument("--seconds", type=float, default=40.0, help="for all cases together")
    parser.add_argument("--each", type=float, default=20.0, help="for one case")
    parser.add_argument("--out", type=Path, help="a file for the lines as well")
    parser.add_argument("--here", action="store_true", help="in this process, without a time limit")
    asked = parser.parse_args()
    names = asked.cases or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; the cases are {'; '.join(CASES)}")
    if asked.here:
        run_cases(names)
        return 0
    right = True
    program = [sys.executable, "-m", "benchmarks.on_gpu.join_kernels", "--here"]
    for line in watch(names, asked.seconds, asked.each, program):
        text = json.dumps(line)
        print(text, flush=True)
        if asked.out is not None:
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
        right = right and line["verified"]
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
