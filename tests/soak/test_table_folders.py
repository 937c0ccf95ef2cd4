"""Random pairs of folders as Spark, Dask, pandas, Polars, DuckDB, Arrow, Impala, Hive and table formats lay them out.

Each pair ends as `pyarrow.dataset` and DuckDB read it, or with one sentence. `SOAK_SEED` repeats a seed; `-s` prints.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.helpers.table_folders import check_pairs, summary


def check(pairs: int, seed: int, folder: Path) -> None:
    found = check_pairs(range(pairs), seed, folder)
    print("\n".join(summary(found)))
    assert [name for name in found if name.startswith("WRONG")] == []
    assert sum(count for name, count in found.items() if name.startswith("equal")) > pairs / 2
    assert any(name.startswith("refused") for name in found)


@pytest.mark.slow
def test_some_random_folders(tmp_path: Path) -> None:
    check(20, 3, tmp_path)  # in pair 2 NaN would match NaN if the proof believed the statistics in the files


@pytest.mark.soak
def test_thousands_of_random_folders(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED", str(random.SystemRandom().randrange(10**6))))
    print(f"seed {seed}")
    check(3000, seed, tmp_path)
