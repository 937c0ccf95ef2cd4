"""Faults at random moments: no hang, nothing left, and records that can be read every time.

The seed is printed; `SOAK_SEED` repeats it, as far as moments can be the same.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.helpers.runs import ROOT

RUNS = 40


@pytest.mark.soak
@pytest.mark.cluster
def test_random_faults() -> None:
    seed = os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(10**6)))
    argv = [sys.executable, "-m", "tests.soak.faults", "--runs", str(RUNS), "--seed", seed]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=RUNS * 120)
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
