"""Loaded by the processes of a test's cluster (`--preload`): what merges need beside UCX, out of the collector's sight.

A run calls Python's garbage collector several times, which looks through all that numba and the engines brought along:
half of what a small run costs its workers. SciPy stays out, as of workers that a launcher starts.
"""

import gc
import sys

sys.modules.setdefault("scipy", None)

import merge_bench.merge.engines.native  # noqa: E402
import merge_bench.merge.engines.polars  # noqa: E402
import merge_bench.merge.partition_loops  # noqa: E402
import merge_bench.merge.workload.synthetic  # noqa: E402, F401

gc.collect()
gc.freeze()
