"""The benchmarks whose tables `--workload` generates, by name."""

from __future__ import annotations

from merge_bench.merge.workload import h2o, tpch

BENCHMARKS = {each.name: each for each in (tpch.BENCHMARK, h2o.BENCHMARK)}
