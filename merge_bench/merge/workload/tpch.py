"""The TPC-H tables `orders` and `lineitem`, made by `tpchgen-cli` and kept for the next time.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from merge_bench.errors import RunFailed, UsageError
from merge_bench.units import format_bytes

LEFT_KEY, RIGHT_KEY = "o_orderkey", "l_orderkey"
SMALLEST_SCALE = 0.001
DISK_BYTES_PER_SCALE = 340_000_000  # both tables at scale 1, Snappy-compressed
ROW_GROUP_BYTES_PER_SCALE = 900_000  # makes about 126 row groups of orders and 430 of lineitem, so that shares are even
LARGEST_ROW_GROUP_BYTES = 7 << 20


def cache_folder() -> Path:
    """Where tables are kept unless a folder is given: below `$XDG_CACHE_HOME`, or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "merge_bench" / "tpch"


def ensure_tables(
    scale: float, folder: Path | None = None, announce: Callable[[str], None] = lambda _: None
) -> tuple[Path, Path]:
    """The Parquet files of `orders` and `lineitem` at a scale, made if they are not there yet.

    They lie in `folder`/sf<scale>-<version of the generator>/, which appears only when it is complete: a generation
    that was interrupted is done again, and of several processes at once one makes them and the others wait. `announce`
    is called with a sentence before anything is made.

    Raises
    ------
    UsageError
        If the scale is not a number the generator takes, if it is not installed, or if the disk is too small.
    RunFailed
        If the generator fails.
    """
    if not math.isfinite(scale) or scale < SMALLEST_SCALE:
        raise UsageError(f"--scale {scale:g} is not a TPC-H scale; the smallest is {SMALLEST_SCALE}")
    program = find_generator()
    folder = cache_folder() if folder is None else folder
    target = folder / f"sf{scale:g}-{_version(program)}"
    tables = target / "orders.parquet", target / "lineitem.parquet"
    if _complete(tables):
        return tables
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".{target.name}.lock"):
            if not _complete(tables):
                for stale in folder.glob(f".{target.name}.tmp-*"):
                    shutil.rmtree(stale, ignore_errors=True)
                _check_disk(scale, folder)
                announce(f"making the TPC-H tables at scale {scale:g} in {target}")
                _generate(program, scale, folder / f".{target.name}.tmp-{os.getpid()}", target)
    except OSError as error:
        raise UsageError(f"cannot write TPC-H tables to {folder}: {error.strerror or error}") from None
    return tables


def _complete(tables: tuple[Path, Path]) -> bool:
    return all(table.is_file() for table in tables)


def find_generator() -> str:
    """The path of `tpchgen-cli`: of this environment, else of the search path.

    Raises
    ------
    UsageError
        If there is none.
    """
    for beside in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (beside / "tpchgen-cli").is_file():
            return str(beside / "tpchgen-cli")
    found = shutil.which("tpchgen-cli")
    if found is None:
        raise UsageError("the TPC-H workload needs the package tpchgen-cli, which is not installed in this environment")
    return found


def _version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    words = answer.stdout.split()
    if answer.returncode != 0 or not words:
        raise UsageError(f"{program} does not tell its version: {answer.stderr.strip()}")
    return words[-1]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process that holds it, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_disk(scale: float, folder: Path) -> None:
    needed, free = scale * DISK_BYTES_PER_SCALE, shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"TPC-H at scale {scale:g} takes about {format_bytes(needed)} and {folder} has {format_bytes(free)} free;"
            " take a smaller --scale, or set XDG_CACHE_HOME to a larger disk"
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
            lines = done.stderr.strip().splitlines() or ["it gave no reason"]
            raise RunFailed(f"tpchgen-cli failed with status {done.returncode}: {lines[-1]}")
        shutil.rmtree(target, ignore_errors=True)  # there only if someone took a table out of it
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
