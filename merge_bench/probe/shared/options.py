"""Options that a probe has beside those of all probes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One option of a probe's command; its value is text, or a number where it has a `least` one.

    `name`: kebab case, without dashes; `placeholder`: what stands for the value in the help; `choices`: all values,
    where those are few; `least`: the smallest whole number; `default`: None means that the probe decides (`help` says
    what).
    """

    name: str
    help: str
    placeholder: str | None = None
    default: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None


SIZES = Option(
    "sizes", "Message sizes in bytes: a list (8,65536), doubling (1..4M) or in steps (1K..100K+1K).", "SIZES"
)
PLACEMENT = Option(
    "placement",
    "one-host, two-hosts, both with a comma between, or every-pair. [one-host; two-hosts where there are two]",
    "WHERE",
)
MPIRUN = Option(
    "mpirun",
    "The mpirun that starts the ranks. [default: that of ucc_perftest's MPI if that tool runs, else this environment's,"
    " else the first on PATH]",
    "PATH",
)
ITERATIONS = Option("iterations", "Iterations of each size; by default fewer for large sizes.", "N", least=1)
