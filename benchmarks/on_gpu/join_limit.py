"""What a join could take on this GPU, without RAPIDS: compiles and runs `join_limit.cu`, and writes its figures.

    python3 -m benchmarks.on_gpu.join_limit --output join-limit.json

Needs Python, `nvcc` and a C++ compiler, and no package: it can run before anything is installed. The file is complete
after each size. Exit status: 0 every result was right; 3 a size could not be measured; 4 a result was wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cu")
ROWS = (10_000_000, 25_000_000, 200_000_000)
COMPILE_SECONDS, RUN_SECONDS = 60.0, 40.0
FAILED, WRONG = 3, 4
CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
Figures = dict[str, Any]


def find_nvcc() -> str | None:
    """The compiler: of `PATH`, of CUDA_HOME, of the usual folders, or of NVIDIA's package among Python's folders."""
    usual = [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")]
    usual += sorted(glob.glob("/usr/local/cuda*/bin/nvcc"), reverse=True)
    usual += [found for folder in sys.path for found in glob.glob(os.path.join(folder, "nvidia", "cu*", "bin", "nvcc"))]
    return shutil.which("nvcc") or next((path for path in usual if os.access(path, os.X_OK)), None)


def architecture() -> str:
    """The option of the first GPU's compute capability, by CUDA's driver; ``native`` leaves the choice to nvcc."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device, parts = ctypes.c_int(), [ctypes.c_int(), ctypes.c_int()]
        statuses = [driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0)]
        statuses += [
            driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
            for part, attribute in zip(parts, CAPABILITY, strict=True)
        ]
    except OSError:
        return "-arch=native"
    return "-arch=native" if any(statuses) else f"-arch=sm_{parts[0].value}{parts[1].value}"


def compile_program(nvcc: str, folder: Path) -> tuple[Path | None, str]:
    """The program, and what the compiler printed. If it does not compile with CUB, it is compiled without it.

    Without CUB, the time of a pass of its radix sort is missing.
    """
    program, printed = folder / "join_limit", ""
    for more in (["-DWITH_RADIX_PASS"], []):
        command = [nvcc, "-O3", "-std=c++17", architecture(), "-w", *more, str(SOURCE), "-o", str(program)]
        status, output, errors = run(command, COMPILE_SECONDS)
        printed += output + errors
        if status == 0 and program.exists():
            return program, printed
    return None, printed


def run(command: Sequence[str], limit: float) -> tuple[int, str, str]:
    """Status and output of a command; `FAILED` if it cannot start or takes longer than `limit` seconds."""
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", process_group=0
        )
    except OSError as error:
        return FAILED, "", str(error)
    try:
        output, errors = started.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # the compiler's own processes, too
        started.communicate()
        return FAILED, "", f"stopped after {limit:.0f} s because it had not finished"
    return started.returncode, output, errors


def read(status: int, output: str, errors: str, rows: int) -> Figures:
    """The figures of one size in what the program printed; `error` and `status` if there are none."""
    try:
        found = dict(json.loads(output.strip().splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        last = (errors.strip() or output.strip() or "it printed nothing").splitlines()[-1]
        found = {"error": f"join_limit ended with status {status}: {last}"}
    failed = FAILED if "error" in found else (0 if found.get("verified") is True else WRONG)
    return {"rows": rows, **found, "status": failed}


def measure(
    rows: Sequence[int],
    program: Path | None,
    note: Callable[[Figures], object] = lambda _: None,
    *,
    limit: float = RUN_SECONDS,
    compiler: Callable[[], str | None] = find_nvcc,
) -> Figures:
    """All sizes, by `program` or by one that is compiled here; `note` gets what there is after each of them.

    `limit`: seconds of one size; `compiler`: gives nvcc, or None where there is none.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="join-limit-") as scratch:
        found: Figures = {"nvcc": None, "compile_seconds": None, "sizes": [], "error": None, "status": 0}
        if program is None:
            nvcc = found["nvcc"] = compiler()
            if nvcc is None:
                return {**found, "error": "nvcc, the compiler of the CUDA toolkit, was not found", "status": FAILED}
            program, printed = compile_program(nvcc, Path(scratch))
            found["compile_seconds"] = time.monotonic() - began
            if program is None:
                return {**found, "error": f"join_limit.cu does not compile: {printed[-1500:]}", "status": FAILED}
        for size in rows:
            one = read(*run([str(program), str(size)], limit), size)
            found["sizes"].append(one)
            found["status"] = max(found["status"], one["status"])
            note(found)
    return found


def replace(path: Path, figures: Figures) -> None:
    """Write the file at once, so that it is never half written."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(figures, indent=1) + "\n")
    os.replace(temporary, path)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="join_limit", description="Measure what a join could take on this GPU.")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json", help="file for the figures")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="rows of each table")
    parser.add_argument("--program", type=Path, help="run this compiled program instead of compiling join_limit.cu")
    chosen = parser.parse_args()
    figures = measure(chosen.rows, chosen.program, lambda found: replace(chosen.output, found))
    replace(chosen.output, figures)
    print(json.dumps(figures))
    return int(figures["status"])


if __name__ == "__main__":
    sys.exit(main())
