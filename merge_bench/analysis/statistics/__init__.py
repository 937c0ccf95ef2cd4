"""Pure functions on small samples. Nothing is assumed normal and nothing is dropped.

The unit of inference is the launch: iterations of one launch share a cluster and are no independent samples.
`sample` describes one sample and is what this package gives under its own name; `ranks`, `effect`, `verdict` and
`power` compare two. `docs/compare.md` has the formulas.
"""

from __future__ import annotations

from merge_bench.analysis.statistics.sample import (
    FAR_OUT,
    Interval,
    harmonic_mean,
    median,
    median_interval,
    outliers,
    quantile,
    quartiles,
)

__all__ = [
    "FAR_OUT",
    "Interval",
    "harmonic_mean",
    "median",
    "median_interval",
    "outliers",
    "quantile",
    "quartiles",
]
