"""The TPC-H tables `orders` and `lineitem`, made by `tpchgen-cli` and cached.

Their merge on the order key has as many rows as `lineitem`: 6,001,215 at scale 1.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from merge_bench.errors import RunFailed, UsageError
from merge_bench.host import files
from merge_bench.units import format_bytes

SMALLEST_SCALE = 0.001
DISK_BYTES_PER_SCALE = 340_000_000  # both tables at scale 1, Snappy-compressed
ROW_GROUP_BYTES_PER_SCALE = 900_000  # makes about 126 row groups of orders and 430 of lineitem, so that shares are even
LARGEST_ROW_GROUP_BYTES = 7 << 20


def cache_folder() -> Path:
    """The default folder of the tables."""
    return files.cache_folder() / "tpch"


def ensure_tables(scale: float, folder: Path | None = None) -> tuple[Path, Path]:
    """The Parquet files of `orders` and `lineitem` at a scale; makes them if they do not exist.

    They are in `folder`/sf<scale>-<version of the generator>/, which exists only when it is complete: an interrupted
    generation is repeated, and of several processes at once one makes the tables and the others wait.

    Raises
    ------
    UsageError
        If the generator does not support the scale or is not installed, or if the disk is too small.
    RunFailed
        If the generator fails.
    """
    if not math.isfinite(scale) or scale < SMALLEST_SCALE:
        raise UsageError(f"--scale must be finite and at least {SMALLEST_SCALE}, not {scale:g}")
    program = find_generator()
    folder = cache_folder() if folder is None else folder
    target = folder / f"sf{scale:g}-{_version(program)}"
    tables = target / "orders.parquet", target / "lineitem.parquet"
    if _complete(tables):
        return tables
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f".{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
            if not _complete(tables):
                for stale in folder.glob(f".{target.name}.tmp-*"):
                    shutil.rmtree(stale, ignore_errors=True)
                _check_disk(scale, folder)
                _generate(program, scale, folder / f".{target.name}.tmp-{os.getpid()}", target)
    except OSError as error:
        raise UsageError(f"cannot write TPC-H tables to {folder}: {error.strerror or error}") from None
    return tables


def _complete(tables: tuple[Path, Path]) -> bool:
    return all(table.is_file() for table in tables)


def find_generator() -> str:
    """The path of `tpchgen-cli` in this environment, else in the search path.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    for beside in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (beside / "tpchgen-cli").is_file():
            return str(beside / "tpchgen-cli")
    found = shutil.which("tpchgen-cli")
    if found is None:
        raise UsageError(
            "--workload tpch needs the package tpchgen-cli, which is not installed; run: pip install tpchgen-cli"
        )
    return found


def _version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    words = answer.stdout.split()
    if answer.returncode != 0 or not words:
        raise UsageError(f"{program} did not print its version: {answer.stderr.strip()}")
    return words[-1]


def _check_disk(scale: float, folder: Path) -> None:
    needed, free = scale * DISK_BYTES_PER_SCALE, shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"TPC-H at scale {scale:g} needs about {format_bytes(needed)}, but {folder} has {format_bytes(free)}"
            " free; use a smaller --scale, or set XDG_CACHE_HOME to another folder"
        )


def _generate(program: str, scale: float, temporary: Path, target: Path) -> None:
    row_group = min(LARGEST_ROW_GROUP_BYTES, max(1024, int(scale * ROW_GROUP_BYTES_PER_SCALE)))
    temporary.mkdir()
    try:
        options = ["--tables=orders,lineitem", f"--row-group-bytes={row_group}", "--quiet", f"--output-dir={temporary}"]
        done = subprocess.run(
            [program, "parquet", f"--scale-factor={scale:g}", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RunFailed(f"tpchgen-cli failed with status {done.returncode}: {lines[-1]}")
        shutil.rmtree(target, ignore_errors=True)  # exists only if someone removed a table from it
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
