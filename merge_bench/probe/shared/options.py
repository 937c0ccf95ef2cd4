"""Options of a probe's command besides those that all probes share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One option of a probe's command. Its value is text, or a whole number if it has a `least` value.

    `name`: kebab case, without dashes; `placeholder`: the word for the value in the help; `choices`: all values that
    are allowed; `least`: the smallest number; `default`: None means that the probe decides, as `help` says.
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
    "one-host, two-hosts, both separated by a comma, or every-pair. [one-host; two-hosts where there are two]",
    "WHERE",
)
MPIRUN = Option(
    "mpirun",
    "The mpirun that starts the ranks. [default: that of ucc_perftest's MPI if ucc_perftest is measured, else this"
    " environment's, else the first on PATH]",
    "PATH",
)
ITERATIONS = Option("iterations", "Iterations of each size. [default: fewer for large sizes]", "N", least=1)
