"""TPC-H: its tables, which `tpchgen-cli` makes; its questions are the joins of queries 3 and 5.

The merge of `orders` and `lineitem` on the order key has as many rows as `lineitem`: 6,001,215 at scale 1.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from merge_bench.config.files import user_cache_folder
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.workload import Workload
from merge_bench.merge.workload.benchmarks import Benchmark, BenchmarkQuestion, make_tables_once

WORKLOAD = Workload(
    name="tpch",
    help="TPC-H at --scale",
    place=3,
    attribute="TPCH",
    questions="joins of TPC-H's queries 3 and 5: orders-lineitem, customer-orders, supplier-lineitem, nation-supplier,"
    " nation-customer, region-nation",
    default="orders-lineitem",
)

SMALLEST_SCALE = 0.001
TPCH_BYTES_PER_SCALE = 360_000_000  # on disk: all tables at scale 1, Snappy-compressed
ROW_GROUP_BYTES_PER_SCALE = 900_000  # makes about 126 row groups of orders and 430 of lineitem, so that shares are even
LARGEST_ROW_GROUP_BYTES = 7 << 20


def tpch_tables(
    scale: float,
    names: Sequence[str] = ("orders", "lineitem"),
    folder: Path | None = None,
    program: str | None = None,
) -> tuple[Path, ...]:
    """Return the Parquet files of these TPC-H tables at a scale, in `folder`/sf<scale>-<version of the generator>/.

    They are made if they do not exist: see `make_tables_once`. `program`: the generator; None: that of this
    environment.

    Raises `UsageError` if the generator does not support the scale or is not installed, or if the disk is too small,
    and `RunFailed` if the generator fails.
    """
    if not math.isfinite(scale) or scale < SMALLEST_SCALE:
        raise UsageError(f"--scale must be finite and at least {SMALLEST_SCALE}, not {scale:g}")
    generator = program or find_tpch_generator()

    def make_missing_tables(folder: Path, names: Sequence[str]) -> None:
        generate_tpch(generator, scale, folder, names)

    target = (folder or user_cache_folder() / "tpch") / f"sf{scale:g}-{tpch_generator_version(generator)}"
    return make_tables_once(
        f"TPC-H at scale {scale:g}", target, names, make_missing_tables, int(scale * TPCH_BYTES_PER_SCALE), "--scale"
    )


def find_tpch_generator(folders: Sequence[Path] | None = None) -> str:
    """Find the program `tpchgen-cli` in `folders` (None: those of this environment), else in the search path.

    Raises `UsageError` if it is not installed.
    """
    if folders is None:
        folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if (folder / "tpchgen-cli").is_file():
            return str(folder / "tpchgen-cli")
    program = shutil.which("tpchgen-cli")
    if program is None:
        raise UsageError(
            "--workload tpch needs the package tpchgen-cli, which is not installed; run: pip install tpchgen-cli"
        )
    return program


def tpch_generator_version(program: str) -> str:
    """Return the version that the generator prints.

    Raises `UsageError` if it prints none.
    """
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    words = answer.stdout.split()
    if answer.returncode != 0 or not words:
        raise UsageError(f"{program} did not print its version: {answer.stderr.strip()}")
    return words[-1]


def generate_tpch(program: str, scale: float, folder: Path, names: Sequence[str]) -> None:
    """Write the files of these tables to a folder; raises `RunFailed` if the generator fails."""
    row_group = min(LARGEST_ROW_GROUP_BYTES, max(1024, int(scale * ROW_GROUP_BYTES_PER_SCALE)))
    options = [f"--tables={','.join(names)}", f"--row-group-bytes={row_group}", "--quiet", f"--output-dir={folder}"]
    command = [program, "parquet", f"--scale-factor={scale:g}", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RunFailed(f"tpchgen-cli failed with status {done.returncode}: {lines[-1]}")


def _tpch_question(name: str, left_key: str, right_key: str) -> BenchmarkQuestion:
    left, right = name.split("-")
    return BenchmarkQuestion(name, left, right, (left_key,), (right_key,))


TPCH = Benchmark(
    "tpch",
    (
        _tpch_question("orders-lineitem", "o_orderkey", "l_orderkey"),  # Q3 and Q5
        _tpch_question("customer-orders", "c_custkey", "o_custkey"),  # Q3 and Q5
        _tpch_question("supplier-lineitem", "s_suppkey", "l_suppkey"),  # this and the next ones: Q5
        _tpch_question("nation-supplier", "n_nationkey", "s_nationkey"),
        _tpch_question("nation-customer", "n_nationkey", "c_nationkey"),
        _tpch_question("region-nation", "r_regionkey", "n_regionkey"),
    ),
    default=("orders-lineitem",),
    make=lambda options, names: tpch_tables(options.scale, names),
)
