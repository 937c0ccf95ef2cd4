"""Steps that run a program of their own and read the JSON lines that it prints: libraries alone, and `join_limit`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.steps import Finding
from benchmarks.processes import Ended, run_limited, surroundings
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.units import format_count, format_seconds

FAILED, WRONG = RunFailed.exit_status, WrongResult.exit_status
POLARS_SITE, POLARS_FOLDER = "CUDF_POLARS_SITE", Path("/tmp/polars-site")


def run_program(
    module: str, words: Sequence[str], name: str, folder: Path, limit: float, more: Mapping[str, str] | None = None
) -> Ended:
    """Run a module of this checkout; its output is in ``logs/<name>``. `more`: variables of its environment."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", module, *words]
    return run_limited(argv, {**surroundings(), **(more or {})}, folder / "logs" / name, limit)


def measure(
    module: str, rows: Sequence[int], name: str, folder: Path, limit: float, more: Mapping[str, str] | None = None
) -> Finding:
    """What a program of `programs` measured for these sizes."""
    words = ["--rows", *map(str, rows)]
    ended = run_program(f"benchmarks.on_gpu.programs.{module}", words, name, folder, limit, more)
    return judge(ended.output.read_text(errors="replace"), ended.status, ended.failure)


def judge(printed: str, status: int, failure: str | None) -> Finding:
    """The lines that a program printed; what it printed before it failed counts, and the step failed all the same."""
    lines = json_lines(printed)
    measured = [
        f"{line['name']} {format_seconds(line['seconds']['median'])} at {format_count(line['rows'])} rows"
        for line in lines
        if "seconds" in line
    ]
    absent = [f"{line['name']}: {line['absent']}" for line in lines if "absent" in line]
    figures = {"lines": lines, "table": "\n".join(["", *measured, *dict.fromkeys(absent)])}
    parts = [*([failure] if failure else []), *measured[:2]]
    parts += [f"{len(measured) - 2} more in the table below"] if len(measured) > 2 else []
    if failure is not None:
        return Finding("; ".join(parts), figures, WRONG if status == WRONG else FAILED)
    if not lines:
        return Finding("the program printed no figures", status=FAILED)
    return Finding("; ".join(parts or absent), figures)


def json_lines(printed: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines that a program printed."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                found.append(dict(json.loads(line)))
            except ValueError:  # the program was stopped while it wrote this line
                continue
    return found


def polars_join(rows: Sequence[int], name: str, folder: Path, limit: float) -> Finding:
    """The join of cudf-polars, whose packages are in a folder of their own because they need another Polars."""
    site = Path(os.environ.get(POLARS_SITE, POLARS_FOLDER))
    if not (site / "cudf_polars").is_dir() and importlib.util.find_spec("cudf_polars") is None:
        return Finding(f"cudf-polars is installed neither here nor in {site} (${POLARS_SITE})", skipped=True)
    path = os.pathsep.join([str(site), surroundings()["PYTHONPATH"]])
    return measure("polars_join", rows, name, folder, limit, {"PYTHONPATH": path})


def join_limit(folder: Path, limit: float) -> Finding:
    """What a join could take without RAPIDS (`join_limit.py`)."""
    output = folder / "join-limit.json"
    ended = run_program("benchmarks.on_gpu.join_limit", ["--output", str(output)], "join-limit", folder, limit)
    if not output.exists():
        return Finding(ended.failure or "join_limit wrote no figures", status=FAILED)
    return judge_join_limit(json.loads(output.read_text()), ended.failure if ended.timed_out else None)


def judge_join_limit(found: Mapping[str, Any], failure: str | None) -> Finding:
    """The fastest verified join of each size, beside what copies and random reads allow."""
    if found.get("nvcc") is None and not found["sizes"] and found.get("error"):
        return Finding(found["error"], dict(found), skipped=True)
    parts = [failure] if failure else []
    parts += [found["error"]] if found.get("error") else []
    for size in found["sizes"]:
        rows = format_count(size["rows"])
        right = [join for join in size.get("joins", []) if join["verified"]]
        if "error" in size or not right:
            parts.append(f"{rows} rows: {size.get('error', 'WRONG result')}")
            continue
        best = min(right, key=lambda join: float(join["join_ms"]))
        radix = size["radix_pass_ms"]
        parts.append(
            f"{rows} rows: join {best['join_ms']:.3f} ms"
            f" ({best['probe']}, {best['slots'] / size['rows']:.1f} slots a row)"
            f"{'' if size['verified'] else ', another one WRONG'}, copy {size['copy_bytes_per_second'] / 1e12:.2f} TB/s"
            f", {size['random_32_byte_reads_per_second'] / 1e9:.1f}e9 random reads/s"
            + ("" if radix is None else f", radix pass {radix:.3f} ms")
        )
    status = max(int(found["status"]), FAILED if failure else 0)
    return Finding("; ".join(parts) or "join_limit measured nothing", dict(found), status)
