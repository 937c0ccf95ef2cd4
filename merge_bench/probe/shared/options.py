"""Options that several probes have besides those of all probes."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.config import parsers
from merge_bench.config.option import Options, option


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """Options of a probe that sends messages."""

    sizes: str | None = option(
        parsers.text,
        None,
        "Message sizes in bytes: a list (8,65536), a doubling range (1..4M), or a range with a step (1K..100K+1K).",
        "SIZES",
    )


@dataclass(frozen=True, kw_only=True)
class IterationOptions(Options):
    """Options of a probe that times each size several times."""

    iterations: int | None = option(
        parsers.count(1), None, "Timed iterations per size. [default: fewer for larger sizes]", "N"
    )


@dataclass(frozen=True, kw_only=True)
class PairOptions(IterationOptions, SizeOptions):
    """Options of a probe that measures pairs of workers."""

    placement: str | None = option(
        parsers.text,
        None,
        "Pairs of workers to measure: one-host, two-hosts or every-pair; several are separated by commas. [default: by"
        " the number of hosts]",
        "WHERE",
    )


@dataclass(frozen=True, kw_only=True)
class MpirunOptions(Options):
    """Options of a probe that uses MPI."""

    mpirun: str | None = option(
        parsers.path,
        None,
        "The mpirun that starts the ranks; it must belong to the MPI that mpi4py uses. [default: found automatically]",
        "PATH",
    )
