"""Compares merge_bench with DuckDB, Polars, pandas and Dask on the join task of the db-benchmark.

    python -m benchmarks.h2o --rows 1e7 --blocks 6 --output FILE.json

Each question is a comparison of its own, in randomised blocks. All programs have the same tables in memory and produce
the whole result of a question, whose rows and checksum over all columns are compared with DuckDB's.
`docs/measurements.md` has results. Run it alone on the machine. Exit status: 0 done; 2 wrong usage; 3 a launch failed,
or it was interrupted; 4 a result was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.peer import tables
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import REFERENCE, refuse_unfit
from benchmarks.peer.protocol import Job
from benchmarks.peer.ratios import Standing
from merge_bench.errors import UsageError
from merge_bench.host.machine import available_memory_bytes, usable_core_count
from merge_bench.merge.workload.benchmarks import BenchmarkQuestion
from merge_bench.merge.workload.h2o import H2O, h2o_tables

SCHEMA = 1
FAMILIES = {
    "DuckDB": ("duckdb-table", "duckdb-arrow"),
    "Polars": ("polars-streaming", "polars-in-memory"),
    "pandas": ("pandas",),
    "Dask": ("dask-tasks", "dask-p2p"),
}
HEADINGS = ("question", "result", "ours (ms)", *(f"{name} (ms, ÷ ours)" for name in FAMILIES))


def named(question: BenchmarkQuestion) -> str:
    """``q1: x ⋈ small on id1``, with the kind of the join unless it is an inner one."""
    how = f", {question.how}" if question.how != "inner" else ""
    return f"{question.name}: {question.left} ⋈ {question.right} on {question.left_on[0]}{how}"


def row(question: BenchmarkQuestion, found: Mapping[str, Any]) -> list[str]:
    """A line of the table: of each family the fastest variant, with how many times as long it took."""
    standings = {each["contender"]: each for each in found["standings"]}
    ours = standings[REFERENCE]["wall"]
    cells = [named(question), f"{found['rows']:,} × {found['columns']}", _milliseconds(ours)]
    for variants in FAMILIES.values():
        measured = [standings[name] for name in variants if name in standings]
        done = [each for each in measured if each["wall"] is not None]
        fastest = min(done, key=lambda each: each["wall"], default=None)
        if fastest is None:
            cells.append("failed" if measured else "-")
        else:
            ratio = fastest["ratio"]
            spread = f", {ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})" if ratio else ""
            cells.append(_milliseconds(fastest["wall"]) + spread)
    return cells


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f}"


def chosen_contenders(only: Sequence[str] | None) -> list[str]:
    """The variants of the families named, with merge_bench."""
    names = command.chosen(only, FAMILIES)
    return [REFERENCE, *(variant for name, variants in FAMILIES.items() if name in names for variant in variants)]


@click.command(context_settings=command.CONTEXT)
@command.option("--rows", command.ROWS, "1e7", "Rows of table x.")
@command.option("--question", command.NAMES, None, "Only these questions: 1 to 5. [all]")
@command.option("--workers", click.IntRange(1), 2, "Number of workers of merge_bench and of Dask.")
@command.option("--blocks", click.IntRange(1), 6, "Launches of each program per question.")
@command.option("--iterations", click.IntRange(1), 3, "Timed merges per launch.")
@command.option("--only", command.NAMES, None, f"Beside merge_bench only these: {', '.join(FAMILIES)}. [all]")
@command.OUTPUT
@command.time_limit(1800)
@command.SEED
@command.option("--results", command.FOLDER, command.ROOT / "results", "Folder for the results of each question.")
def h2o(
    rows: int,
    question: list[str] | None,
    workers: int,
    blocks: int,
    iterations: int,
    only: list[str] | None,
    output: Path | None,
    time_limit: float,
    seed: int,
    results: Path,
) -> None:
    """Compare merge_bench with other programs on the join task of the db-benchmark."""
    if usable_core_count() < workers:
        raise UsageError(f"--workers {workers} needs {workers} cores, but only {usable_core_count()} may be used here")
    contenders = chosen_contenders(only)
    questions = [H2O.find_question(name) for name in H2O.choose_questions(question or ())]
    base = Job(rows // workers, workers, usable_core_count() // workers * workers, iterations, 1, 0.9, seed)
    document: dict[str, Any] = command.head(SCHEMA, job=asdict(base), rows=rows, blocks=blocks, questions={})
    statuses = [0]

    def measure_all() -> None:
        for asked in questions:
            command.say(named(asked))
            made = tables.of_question(asked, *h2o_tables(rows, (asked.left, asked.right)))
            job = replace(base, tables=made)
            comparison = Comparison.of(contenders, job, results, time_limit)
            refuse_unfit(comparison.contenders, job, available_memory_bytes())
            comparison.run(blocks, seed)
            lines: list[Standing] = comparison.standings()
            comparison.finish()
            statuses.append(comparison.status)
            document["questions"][asked.name] = {
                "rows": made.rows,
                "columns": len(made.columns),
                "data_bytes": made.data_bytes,
                "standings": [asdict(line) for line in lines],
                "results": comparison.store.folder.name,
                "versions": comparison.versions,
            }
            command.write(output, document)

    statuses.append(command.until_interrupted(measure_all))
    found = document["questions"]
    click.echo(
        command.table(HEADINGS, [row(each, found[each.name]) for each in questions if each.name in found], (0, 1))
    )
    sys.exit(max(statuses))


if __name__ == "__main__":
    command.run(h2o, "h2o")
