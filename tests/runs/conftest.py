"""Finished runs that several tests look at, and the real tables that they merge."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.runs import SMALL, Finished, run

CONFIG = """# a config of the tests
export UCX_RNDV_THRESH=16384
export UCX_TLS=sysv,cma
MERGE_BENCH_FRAC_MATCH=0.25
"""


class Tables:
    """Two Parquet files with duplicates on both sides, null keys and strings, and the rows their merge has."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(5)
        rows = 6000
        self.left, self.right = folder / "left.parquet", folder / "right.parquet"
        keys = rng.integers(0, 2500, rows)
        left = pa.table(
            {
                "id": pa.array(keys, pa.int64(), mask=rng.random(rows) < 0.02),
                "name": [None if n % 9 == 0 else "ö" * (n % 4) + f"name {n}" for n in range(rows)],
                "price": rng.random(rows),
            }
        )
        others = rng.integers(0, 2500, rows)
        right = pa.table(
            {
                "id": pa.array(others, pa.int32(), mask=rng.random(rows) < 0.02),
                "number": np.arange(rows),
                "day": pa.array(rng.integers(0, 20000, rows).astype(np.int32)).view(pa.date32()),
            }
        )
        pq.write_table(left, self.left, row_group_size=500)
        pq.write_table(right, self.right, row_group_size=700)
        with duckdb.connect() as connection:
            query = f"SELECT count(*) FROM '{self.left}' AS l JOIN '{self.right}' AS r ON l.id = r.id"
            ((self.rows,),) = connection.execute(query).fetchall()
        self.options = ("--left", self.left, "--right", self.right, "--on", "id", "--iterations", "2")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Polars under a config, every iteration verified."""
    folder = tmp_path_factory.mktemp("two")
    config = folder / "mine.cfg"
    config.write_text(CONFIG)
    return run(
        folder,
        *SMALL,
        "--config",
        config,
        "--verify",
        "every",
        "--seed",
        "3",
        "--workers",
        "2",
        "--require-transport",
        "sysv",
    )


@pytest.fixture(scope="session")
def two_launches(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """pandas over encrypted control messages, two lives of a cluster of one worker, a setting that loses."""
    folder = tmp_path_factory.mktemp("launches")
    config = folder / "loses.cfg"
    config.write_text("UCX_MAX_RNDV_LANES=2\n")
    return run(
        folder,
        *SMALL,
        "--engine",
        "pandas",
        "--protocol",
        "tls",
        "--launches",
        "2",
        "--payload-columns",
        "3",
        "--workers",
        "1",
        "--config",
        config,
    )
