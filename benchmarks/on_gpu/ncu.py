"""Which share of the GPU each kernel of a merge uses, by Nsight Compute (`ncu`): memory, multiprocessors and L2."""

from __future__ import annotations

import csv
import glob
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.steps import Finding
from benchmarks.processes import run_limited, surroundings
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.units import format_count

FAILED, WRONG = RunFailed.exit_status, WrongResult.exit_status
PLACES = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu", "/usr/local/cuda*/nsight-compute*/ncu")
DURATION = "gpu__time_duration.sum"
BYTES = "dram__bytes.sum"
SHARES = {
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "multiprocessors": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
}
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0, "second": 1.0}
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
DENIED = "ERR_NVGPUCTRPERM"
Metrics = dict[str, tuple[str, str]]
"""Of a launch: value and unit by name."""
MOST_SHOWN = 60  # characters of a kernel's name


def find_ncu() -> str | None:
    """The program: of `PATH`, or of the usual folders."""
    return shutil.which("ncu") or next(
        (path for place in PLACES for path in sorted(glob.glob(place), reverse=True)), None
    )


def command(ncu: str, rows: int, log: Path) -> list[str]:
    """What is run: the kernels of one iteration, each measured; ncu's table goes to `log`."""
    metrics = ",".join([DURATION, *SHARES.values(), BYTES])
    return [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--clock-control",
        "none",
        "--target-processes",
        "all",
        "--profile-from-start",
        "off",
        "--metrics",
        metrics,
        "--log-file",
        str(log),
        sys.executable,
        "-m",
        "benchmarks.on_gpu.programs.profiled_merge",
        "--rows",
        str(rows),
    ]


def profile(rows: int, name: str, folder: Path, limit: float, find: Callable[[], str | None] = find_ncu) -> Finding:
    """One profiled iteration of a merge by one worker. Without ncu, or without its permission, the step is skipped."""
    ncu = find()
    if ncu is None:
        return Finding("Nsight Compute (ncu) was not found", skipped=True)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.ncu.txt"
    ended = run_limited(command(ncu, rows, log), surroundings(), logs / name, limit)
    printed = log.read_text(errors="replace") if log.exists() else ""
    said = printed + "".join(path.read_text(errors="replace") for path in (ended.output, ended.errors))
    if DENIED in said:
        return Finding(f"the driver lets only administrators read performance counters ({DENIED})", skipped=True)
    try:
        kernels = read_kernels(printed)
    except (ValueError, KeyError) as error:
        return Finding(ended.failure or f"cannot read the output of ncu: {error}", status=FAILED)
    if ended.failure or not kernels:
        wrong = ended.status == WRONG
        return Finding(ended.failure or "ncu profiled no kernel", {"kernels": kernels}, WRONG if wrong else FAILED)
    return judge(kernels, rows)


def judge(kernels: Sequence[Mapping[str, Any]], rows: int) -> Finding:
    """The kernels that take most, and the table of all."""
    whole = sum(kernel["seconds"] for kernel in kernels)
    parts = [
        f"{kernel['shown']} {kernel['seconds'] / whole:.0%} of the time ({_percent(kernel['memory'])} of memory)"
        for kernel in kernels[:3]
    ]
    sentence = f"{format_count(rows)} rows, {len(kernels)} kernels, {1e3 * whole:.2f} ms: {', '.join(parts)}"
    return Finding(sentence, {"rows": rows, "kernels": list(kernels), "table": table(kernels)})


def read_kernels(text: str) -> list[dict[str, Any]]:
    """The kernels in what ``ncu --csv`` printed, longest first: launches, seconds, bytes and shares in %.

    Shares are means, weighted by time; None where ncu could not measure them.

    Raises
    ------
    ValueError, KeyError
        If there is a table, and it has other columns or values.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, metrics in _launches(text):
        kernel = found.setdefault(
            name, {"name": name, "shown": short(name), "launches": 0, "seconds": 0.0, "bytes": 0.0, "weighted": {}}
        )
        value, unit = metrics[DURATION]
        seconds = (_number(value) or 0.0) * UNITS[unit]
        kernel["launches"] += 1
        kernel["seconds"] += seconds
        value, unit = metrics[BYTES]
        kernel["bytes"] += (_number(value) or 0.0) * _scale(unit)
        for share, metric in SHARES.items():
            if (percent := _number(metrics[metric][0])) is not None:
                kernel["weighted"].setdefault(share, []).append((percent, seconds))
    for kernel in found.values():
        weighted = kernel.pop("weighted")
        for share in SHARES:
            whole = sum(seconds for _, seconds in weighted.get(share, ()))
            kernel[share] = sum(percent * seconds for percent, seconds in weighted[share]) / whole if whole else None
    return sorted(found.values(), key=lambda kernel: -float(kernel["seconds"]))


def _launches(text: str) -> Iterator[tuple[str, Metrics]]:
    """Each launch's kernel and metrics, in either form of ncu's table.

    ``--page raw`` has a row of names, a row of units, and a row for each launch; another page, or an older ncu, has a
    row for each metric of a launch.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        return
    end = next((n for n in range(start, len(lines)) if not lines[n].startswith('"')), len(lines))
    rows = list(csv.DictReader(lines[start:end]))
    if rows and "Metric Name" in rows[0]:
        launches: dict[str, tuple[str, Metrics]] = {}
        for row in rows:
            metrics = launches.setdefault(row["ID"], (row["Kernel Name"], {}))[1]
            metrics[row["Metric Name"]] = (row["Metric Value"], row["Metric Unit"])
        yield from launches.values()
        return
    for row in rows[1:]:
        yield row["Kernel Name"], {name: (value, rows[0][name]) for name, value in row.items()}


def short(name: str) -> str:
    """A kernel's name for people: its function without return type, arguments and template parameters.

    A kernel of CUB that runs another library's function is named after both.
    """
    plain, depth = [], 0
    for character in name.replace("(anonymous namespace)::", "").replace("operator()", "operator"):
        if character == "(" and not depth:
            break
        depth += {"<": 1, ">": -1}.get(character, 0)
        if not depth and character != ">":
            plain.append(character)
    words = "".join(plain).split()
    function = words[-1] if words else name
    shown = "::".join(part for part in function.split("::") if not re.fullmatch(r"CUB_\w+|v\d+|detail|_V_\w+", part))
    inside = (
        re.search(r"cudf::(?:\w+::)*(\w+)", name[len(function) :]) if shown.startswith(("cub::", "thrust::")) else None
    )
    shown += f" of {inside[1]}" if inside else ""
    return shown if len(shown) <= MOST_SHOWN else f"…{shown[1 - MOST_SHOWN :]}"


def table(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Text: a line for each kernel."""
    lines = [f"{'kernel':<{MOST_SHOWN}} launches        ms  memory    SMs     L2        GB"]
    for kernel in kernels:
        shares = ["-" if kernel[share] is None else f"{kernel[share]:.1f}%" for share in SHARES]
        lines.append(
            f"{kernel['shown']:<{MOST_SHOWN}} {kernel['launches']:>8} {1e3 * kernel['seconds']:>9.4f}"
            f" {shares[0]:>7} {shares[1]:>6} {shares[2]:>6} {kernel['bytes'] / 1e9:>9.3f}"
        )
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "unknown share" if share is None else f"{share:.0f} %"


def _number(text: str) -> float | None:
    """A number with commas between thousands; None for ``n/a``."""
    return None if text.strip().lower() in ("n/a", "") else float(text.replace(",", ""))


def _scale(unit: str) -> float:
    """Bytes of ``byte``, ``Kbyte``, ``Mbyte`` and so on."""
    if not unit.lower().endswith("byte"):
        raise ValueError(f"{unit} is no unit of bytes")
    return PREFIXES[unit[:-4].lower()]
