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
    "Pairs of workers to measure: one-host, two-hosts or every-pair; several are separated by commas. [default: by"
    " the number of hosts]",
    "WHERE",
)
MPIRUN = Option(
    "mpirun",
    parsers.path,
    None,
    "The mpirun that starts the ranks; it must belong to the MPI that mpi4py uses. [default: found automatically]",
    "PATH",
)
DETAILS = Option("details", parsers.switch, False, "Print the tables of all sizes instead of a summary.", "", flag=True)
ITERATIONS = Option(
    "iterations",
    parsers.count(1),
    None,
    "Timed iterations per size. [default: fewer for larger sizes]",
    "N",
)
