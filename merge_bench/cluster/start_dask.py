"""Starts Dask's scheduler or worker: ``python -P -m merge_bench.cluster.start_dask dask_worker OPTION…``.

Not ``dask worker``: that program imports every package that adds a command to it, among them this one and dask-cuda. On
CPUs this one keeps out RMM, which Dask loads to show memory of GPUs, and SciPy, which numba loads for linear algebra,
wherever they are installed; and while libraries are imported, garbage collections would only look through their
objects. All that is a third of a worker's start.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec


def main() -> None:
    """Run the program of `distributed.cli` that the first argument names, with the arguments after it."""
    gc.disable()
    if find_spec("cudf") is None:  # not tried beside the libraries of GPUs
        for name in ("rmm", "scipy"):
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    program = import_module(f"distributed.cli.{sys.argv.pop(1)}")
    gc.enable()
    program.main()


if __name__ == "__main__":
    main()
