"""Random joins of every kind, on every engine and exchange, against DuckDB; `-s` prints the counts.

The seed is printed; `SOAK_SEED` repeats it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest

from tests.helpers.runs import ROOT

SECONDS = 480


@pytest.mark.soak
def test_thousands_of_random_joins() -> None:
    seed = os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(10**6)))
    argv = [sys.executable, "-m", "tests.soak.joins", "--seconds", str(SECONDS), "--seed", seed]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS * 3)
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    results = re.search(r"([\d,]+) results with seed", done.stdout)
    assert results
    assert int(results[1].replace(",", "")) > 1000, done.stdout
