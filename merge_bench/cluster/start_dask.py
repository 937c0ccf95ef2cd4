"""Starts Dask's scheduler or worker: ``python -P -m merge_bench.cluster.start_dask dask_worker OPTION…``.

Not ``dask worker``: that program imports every package that adds a command to it, among them this one and dask-cuda. On
CPUs this one keeps out RMM, which Dask loads to show memory of GPUs, and SciPy, which numba loads for linear algebra,
wherever they are installed; and while libraries are imported, garbage collections would only look through their
objects. All that is a third of a worker's start.
"""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the program of `distributed.cli` that the first argument names, with the arguments after it."""
    gc.disable()
    if find_spec("cudf") is None:  # not tried beside the libraries of GPUs
        for name in ("rmm", "scipy"):
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    if sys.argv.pop(1) == "dask_scheduler":
        from distributed.cli.dask_scheduler import main as run
    else:
        from distributed.cli.dask_worker import main as run
    gc.enable()
    run()


if __name__ == "__main__":
    main()
