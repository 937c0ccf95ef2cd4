"""What Dask's processes are started with, and what they leave out."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
from merge_bench.cluster import start_dask
sys.argv[1:] = [sys.argv[1], "--no-dashboard", "--version"]
try:
    start_dask.main()
except SystemExit:
    print(sorted(name for name in ("rmm", "scipy", "jinja2", "distributed") if sys.modules.get(name)), gc.isenabled())
"""


@pytest.mark.parametrize("program", ["dask_scheduler", "dask_worker"])
def test_dask_s_processes_import_no_library_that_only_gpus_or_nobody_needs(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['distributed'] True"
