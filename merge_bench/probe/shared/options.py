"""Options that several probes have besides those of all probes."""

from __future__ import annotations

from merge_bench.config import parsers
from merge_bench.config.options import Option

SIZES = Option(
    "sizes",
    parsers.text,
    None,
    "Message sizes in bytes: a list (8,65536), doubling (1..4M) or in steps (1K..100K+1K).",
    "SIZES",
)
PLACEMENT = Option(
    "placement",
    parsers.text,
    None,
    "one-host, two-hosts, both separated by a comma, or every-pair. [one-host; two-hosts where there are two]",
    "WHERE",
)
MPIRUN = Option(
    "mpirun",
    parsers.text,
    None,
    "The mpirun that starts the ranks. [default: that of ucc_perftest's MPI if ucc_perftest is measured, else this"
    " environment's, else the first on PATH]",
    "PATH",
)
ITERATIONS = Option(
    "iterations", parsers.count(1), None, "Iterations of each size. [default: fewer for large sizes]", "N"
)
