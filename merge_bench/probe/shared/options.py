"""Options that several probes have besides those of all probes."""

from __future__ import annotations

from merge_bench.config import parsers
from merge_bench.config.options import Option

SIZES = Option(
    "sizes",
    parsers.text,
    None,
    "Message sizes in bytes: a list (8,65536), a doubling range (1..4M), or a range with a step (1K..100K+1K).",
    "SIZES",
)
PLACEMENT = Option(
    "placement",
    parsers.text,
    None,
    "Workers to measure: a pair on one host (one-host), a pair on two hosts (two-hosts), both (one-host,two-hosts), or"
    " every-pair. [default: with one host one-host; with several two-hosts, and for probe mpi both]",
    "WHERE",
)
MPIRUN = Option(
    "mpirun",
    parsers.text,
    None,
    "The mpirun that starts the ranks. It must belong to the MPI that mpi4py uses. [default: the first suitable one"
    " from: the MPI of ucc_perftest (if used), this Python environment, PATH]",
    "PATH",
)
ITERATIONS = Option(
    "iterations",
    parsers.count(1),
    None,
    "Timed iterations per size. [default: depends on the size; fewer for larger sizes]",
    "N",
)
