"""The runs of a sweep, among them the questions of a benchmark: `--workload tpch` and `h2o`."""

from __future__ import annotations

from dataclasses import replace

from merge_bench.config.option import DEFAULT
from merge_bench.config.options import RunOptions
from merge_bench.config.resolve import expand
from merge_bench.errors import UsageError
from merge_bench.merge.workload import BENCHMARKS
from merge_bench.merge.workload.benchmark import Benchmark
from merge_bench.merge.workload.tables import TableSpec, plan_tables


def runs_of(options: RunOptions) -> list[RunOptions]:
    """The options of each run of a sweep: those of `expand`, and each question of a benchmark with its kind of join.

    Raises
    ------
    UsageError
        If the workload has no such question, or none at all, or an option has no effect.
    """
    if options.rows is not None and options.workload != "h2o":
        raise UsageError("--rows needs --workload h2o; the size of synthetic tables is set with --chunk")
    benchmark = BENCHMARKS.get(options.workload)
    if benchmark is None:
        if options.question is not None:
            raise UsageError(f"--question needs --workload {' or '.join(BENCHMARKS)}")
        return expand(options)
    named = options.several.get("question", (options.question,) if options.question else ())
    chosen = options.updated({"question": benchmark.choose(named)}, {})
    return [_with_join(each, benchmark) for each in expand(chosen)]


def _with_join(options: RunOptions, benchmark: Benchmark) -> RunOptions:
    how = benchmark.question(options.question or "").how
    if how is None:
        return options
    if options.source("how") != DEFAULT:
        raise UsageError(
            f"--how cannot be used with --workload {benchmark.name}, whose questions define it; omit --how"
        )
    return replace(options, how=how)


def plan_question(benchmark: Benchmark, options: RunOptions, workers: int, engine: str) -> TableSpec:
    """Plan the merge of a question's tables, which are generated if they do not exist.

    There is no warning of few row groups: only tables of a few rows have them, which the generator decides. The tables
    have no fingerprint: their paths name benchmark, size and version, and another release of Arrow writes other bytes.

    Raises
    ------
    UsageError
        If they cannot be generated, or not merged by `engine`.
    """
    asked = benchmark.question(options.question or "")
    left, right = map(str, benchmark.make(options, (asked.left, asked.right)))
    spec = plan_tables(left, right, asked.left_on, asked.right_on, workers, engine, options.columns)
    left_side, right_side = (replace(side, fingerprint="") for side in (spec.left, spec.right))
    return replace(spec, left=left_side, right=right_side, warnings=(), benchmark=benchmark.name, question=asked.name)
