"""The tables that are merged: synthetic ones, real ones in Parquet files, and those of benchmarks, by name."""

from __future__ import annotations

from merge_bench.merge.workload import h2o, tpch

BENCHMARKS = {benchmark.name: benchmark for benchmark in (tpch.BENCHMARK, h2o.BENCHMARK)}
