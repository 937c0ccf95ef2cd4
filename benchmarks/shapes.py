"""Compares merge_bench with DuckDB and Polars on joins of several shapes: same rows, same cores, interleaved.

    python -m benchmarks.shapes --blocks 6 --output FILE.json

The peer that counts is the fastest of DuckDB (into a table or Arrow) and Polars (streaming). merge_bench runs twice: as
it is, and where there are no GPUs also with `--runtime-filter on`. `docs/measurements.md` has the tables.
Run it alone on the machine. Exit status: 0 done; 2 wrong usage; 3 a launch failed, or it was interrupted; 4 a result
was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import scratch
from benchmarks.goal.tables import COLUMNS, STRINGS, Keys, make
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import FILTERED, REFERENCE, refuse_unfit
from benchmarks.peer.protocol import Job
from benchmarks.peer.ratios import Standing
from merge_bench.errors import UsageError
from merge_bench.host.gpu import count_visible_gpus
from merge_bench.host.machine import available_memory_bytes, usable_core_count

SCHEMA = 1
PEERS = ("duckdb-table", "duckdb-arrow", "polars-streaming")
HEADINGS = (
    "shape",
    "rows per chunk",
    "ours (ms)",
    "fastest peer",
    "peer (ms)",
    "peer / ours",
    "interval",
    "ours, filter (ms)",
    "peer / filter",
)
INTEGERS, SPREAD = Keys("integers", ("key",)), Keys("spread", ("key",))


@dataclass(frozen=True)
class Shape:
    """A join: what differs from one int64 key, one int64 payload column, unique keys, and 30 % of matches.

    `rows`: of a chunk, if it is part of the shape. `keys`: of Parquet tables; None for synthetic rows.
    """

    name: str
    rows: int | None = None
    fraction: float = 0.3
    payload_columns: int = 1
    zipf: float = 0.0
    keys: Keys | None = None
    repeats: int = 1

    def job(self, base: Job, folder: Path) -> Job:
        """The job of every peer; makes the tables in `folder`, if the shape has some."""
        rows = self.rows or base.rows_per_chunk
        tables = None
        if self.keys:
            tables = make(folder, self.keys, rows * base.workers, base.seed, self.repeats, self.fraction)
        return replace(
            base,
            rows_per_chunk=rows,
            fraction=self.fraction,
            payload_columns=self.payload_columns,
            zipf=self.zipf,
            tables=tables,
        )


SHAPES = {
    "plain": Shape("one int64 key, 30 % match"),
    "strings": Shape("string keys of 18 characters", keys=STRINGS),
    "columns": Shape("two keys, int32 and int64", keys=COLUMNS),
    "payloads": Shape("eight payload columns", payload_columns=8),
    "few": Shape("1 % match", fraction=0.01),
    "few-spread": Shape("1 % match, all keys in one range", fraction=0.01, keys=SPREAD),
    "all": Shape("100 % match", fraction=1.0),
    "repeated": Shape("each key four times on each side", keys=INTEGERS, repeats=4),
    "zipf": Shape("right keys by Zipf 1.2", zipf=1.2),
    "tiny": Shape("small chunks", rows=200_000),
    "small": Shape("small chunks", rows=1_000_000),
}


def fastest_peer(lines: Sequence[Standing]) -> Standing | None:
    """The peer with the least median wall, if merge_bench was measured beside it."""
    peers = [line for line in lines if line.contender in PEERS and line.wall is not None and line.ratio]
    return min(peers, key=lambda line: line.wall or 0.0, default=None)


def row(shape: Shape, rows: int, lines: Sequence[Standing]) -> tuple[str, ...]:
    """One line of the table."""
    walls = {line.contender: line.wall for line in lines}
    peer = fastest_peer(lines)
    cells = (shape.name, f"{rows:,}", _milliseconds(walls[REFERENCE]))
    filtered = walls.get(FILTERED)
    if peer is None or peer.wall is None or peer.ratio is None:
        return (*cells, "-", "-", "-", "-", _milliseconds(filtered), "-")
    ratio = peer.ratio
    beside = "-" if filtered is None else f"{peer.wall / filtered:.2f}"
    return (
        *cells,
        peer.contender,
        _milliseconds(peer.wall),
        f"{ratio.median:.2f}",
        str(ratio),
        _milliseconds(filtered),
        beside,
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"


@click.command(context_settings=command.CONTEXT)
@command.option("--chunk", command.ROWS, "4e6", "Rows per chunk of the shapes that do not fix them.")
@command.option("--workers", click.IntRange(1), 2, "Chunks of each frame.")
@command.option("--blocks", click.IntRange(1), 6, "Launches of each program per shape.")
@command.option("--iterations", click.IntRange(1), 5, "Timed merges per launch.")
@command.option("--only", command.NAMES, None, f"Only these shapes: {', '.join(SHAPES)}. [all]")
@command.OUTPUT
@command.time_limit(900)
@command.SEED
@command.option("--results", command.FOLDER, command.ROOT / "results", "Folder for the results of each shape.")
def shapes(
    chunk: int,
    workers: int,
    blocks: int,
    iterations: int,
    only: list[str] | None,
    output: Path | None,
    time_limit: float,
    seed: int,
    results: Path,
) -> None:
    """Compare merge_bench with DuckDB and Polars on joins of several shapes."""
    if usable_core_count() < workers:
        raise UsageError(f"--workers {workers} needs {workers} cores, but only {usable_core_count()} may be used here")
    names = command.chosen(only, SHAPES)
    beside = PEERS if count_visible_gpus() else (*PEERS, FILTERED)
    base = Job(chunk, workers, usable_core_count() // workers * workers, iterations, 1, 0.3, seed)
    document: dict[str, Any] = command.head(SCHEMA, job=asdict(base), blocks=blocks, shapes={})
    rows, statuses = [], [0]

    def measure_all() -> None:
        for name, shape in SHAPES.items():
            if name not in names:
                continue
            command.say(f"{name}: {shape.name}")
            with scratch(time_limit, seed) as bench:
                comparison = Comparison.of(beside, shape.job(base, bench.folder), results, time_limit)
                refuse_unfit(comparison.contenders, comparison.job, available_memory_bytes())
                comparison.run(blocks, seed)
            lines = comparison.standings()
            comparison.finish()
            statuses.append(comparison.status)
            rows.append(row(shape, comparison.job.rows_per_chunk, lines))
            document["shapes"][name] = {
                "rows_per_chunk": comparison.job.rows_per_chunk,
                "standings": [asdict(line) for line in lines],
                "results": comparison.store.folder.name,
            }
            command.write(output, document)

    statuses.append(command.until_interrupted(measure_all))
    click.echo(command.table(HEADINGS, rows, (0, 3, 6)))
    sys.exit(max(statuses))


if __name__ == "__main__":
    command.run(shapes, "shapes")
