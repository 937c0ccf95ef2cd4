"""Finds variables with which a library ends a worker, such as ``NUMBA_CPU_FEATURES``, before any worker is started.

A child process uses the libraries as a worker does first. That takes a second, so it is done only if one of these
libraries has a variable.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Mapping

from merge_bench.cluster.base import how_ended
from merge_bench.cluster.dask_commands import THREAD_COUNTS
from merge_bench.config.files import TOKENS
from merge_bench.errors import UsageError

SECONDS = 60.0
_READ = re.compile(r"(NUMBA|POLARS|ARROW|OPENBLAS|MKL|OMP|GOMP|KMP|RAYON|MALLOC|GLIBC|_RJEM)_\w+|PYTHON\w+")


def check_libraries(config: Mapping[str, str], surroundings: Mapping[str, str]) -> None:
    """Refuse variables with which the libraries of a worker end its process.

    Parameters
    ----------
    config
        The variables of the config that processes get.
    surroundings
        This process's environment. Python's own variables there have not ended this process either, and Polars sets
        that of its allocator itself when it is imported.

    Raises
    ------
    UsageError
        If the process ends so; names the variables and the last line that the process printed.
    """
    outside = {name: value for name, value in surroundings.items() if not name.startswith(("PYTHON", "_RJEM"))}
    suspects = {
        name: value
        for name, value in sorted({**outside, **config}.items())
        if _READ.fullmatch(name) and not (name in THREAD_COUNTS and value.isdecimal() and int(value) > 0)
    }
    if suspects:
        environment = {**surroundings, **config}
        problem = _worker_start_problem(tuple((name, environment[name]) for name in environment if name not in TOKENS))
        if problem:
            names = ", ".join(f"{name}={value}" for name, value in suspects.items())
            raise UsageError(f"a worker would end at its start with {names}: {problem}; correct or leave out")


@functools.cache
def _worker_start_problem(environment: tuple[tuple[str, str], ...]) -> str:
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode == 0:
        return ""
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    telling = [line for line in lines if re.search(r"rror|ssertion|Exception", line)] or lines
    return (
        f"its process {how_ended(done.returncode)} ({telling[-1].strip()[-160:] if telling else 'it printed nothing'})"
    )


def main() -> None:
    """Use the libraries as a worker does first: compile a loop with numba, and join two frames with polars."""
    import numba
    import numpy as np
    import polars as pl

    frame = pl.DataFrame({"key": np.arange(9)})
    total = numba.njit(nogil=True)(lambda values: values.sum())
    assert total(frame.join(frame, on="key")["key"].to_numpy()) == 36


if __name__ == "__main__":
    main()
