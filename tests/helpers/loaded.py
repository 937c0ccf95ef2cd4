"""Loaded by the processes of a test's cluster (`--preload`): what merges need beside UCX, out of the collector's sight.

A run calls Python's garbage collector several times, which looks through all that numba and the engines brought along:
half of what a small run costs its workers.
"""

import gc

import merge_bench.merge.engines.native
import merge_bench.merge.engines.polars
import merge_bench.merge.partition_loops
import merge_bench.merge.workload.synthetic  # noqa: F401

gc.collect()
gc.freeze()
