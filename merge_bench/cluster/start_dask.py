"""Starts Dask's scheduler or worker: ``python -P -m merge_bench.cluster.start_dask dask_worker OPTION…``.

Not ``dask worker``: that program imports every package that adds a command to it, among them this one and dask-cuda.
This one leaves out RMM and SciPy on CPUs, Jinja2 where there is no dashboard, and collects no garbage while it imports:
to import Dask's worker takes 0.32 s of CPU instead of 0.40 (AMD EPYC; Jinja2 not counted).
"""

from __future__ import annotations

import gc
import sys

from merge_bench.config.installation import block_imports


def main() -> None:
    """Run the program of `distributed.cli` that the first argument names, with the arguments after it."""
    gc.disable()
    block_imports("rmm", "scipy", *(["jinja2"] if "--no-dashboard" in sys.argv else []))
    if sys.argv.pop(1) == "dask_scheduler":
        from distributed.cli.dask_scheduler import main as run
    else:
        from distributed.cli.dask_worker import main as run
    gc.enable()
    run()


if __name__ == "__main__":
    main()
