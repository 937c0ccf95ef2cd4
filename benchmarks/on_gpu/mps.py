"""Workers that share a GPU, without and with CUDA's multi-process service (MPS), in the order off, on, on, off."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.on_gpu import runs
from benchmarks.on_gpu.machine_state import mps_is_running
from benchmarks.on_gpu.runs import Merge
from benchmarks.on_gpu.steps import Finding
from benchmarks.processes import Document
from merge_bench.errors import RunFailed
from merge_bench.units import format_seconds

CONTROL = "nvidia-cuda-mps-control"
ORDER = (False, True, True, False)
QUIT_SECONDS = 15.0
KILL_SECONDS = 5.0  # until a killed process is gone


def compare(
    merge: Merge,
    name: str,
    folder: Path,
    limit: float,
    bandwidth: int | None,
    *,
    run: Callable[[Merge, str, Path, float, dict[str, str]], Document] = runs.run,
    running: Callable[[], bool] = mps_is_running,
) -> Finding:
    """Medians without and with MPS. It is started by this step and ended again; one that runs already is left alone.

    `run`: makes a run of the merge, as `runs.run`; `running`: whether MPS runs already.
    """
    if shutil.which(CONTROL) is None:
        return Finding(f"{CONTROL} was not found", skipped=True)
    if running():
        return Finding("MPS is already running, so that nothing can be measured without it", skipped=True)
    until, findings = time.monotonic() + limit - QUIT_SECONDS, []
    for number, on in enumerate(ORDER):
        service: contextlib.AbstractContextManager[dict[str, str]] = (
            daemon(folder / "logs" / "mps") if on else contextlib.nullcontext({})
        )
        with service as variables:
            launch = f"{name}-{number}-{'on' if on else 'off'}"
            document = run(merge, launch, folder, max(until - time.monotonic(), 1.0), variables)
        findings.append((on, runs.judge(merge, document, bandwidth)))
    walls = {
        word: [each.figures["wall_seconds"]["median"] for on, each in findings if on is wanted and each.figures]
        for word, wanted in (("off", False), ("on", True))
    }
    status = max(each.status for _, each in findings)
    if not all(walls.values()):
        return Finding(next(each.sentence for _, each in findings if each.status), status=status)
    off, on_median = statistics.median(walls["off"]), statistics.median(walls["on"])
    sentence = f"without MPS {format_seconds(off)} per merge, with MPS {format_seconds(on_median)}"
    sentence += f": {off / on_median:.2f} times as fast"
    sentence += "".join(f"; {each.sentence}" for _, each in findings if each.status)
    launches = [{"mps": on, **each.figures} for on, each in findings]
    return Finding(sentence, {"wall_seconds": walls, "ratio": off / on_median, "launches": launches}, status)


@contextlib.contextmanager
def daemon(logs: Path) -> Iterator[dict[str, str]]:
    """A control daemon of our own; gives the variables by which programs find it. It has ended afterwards.

    Raises
    ------
    RunFailed
        If it does not start.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mps-") as pipes:  # a short path: it holds a socket
        variables = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        environment = {**os.environ, **variables}
        try:
            _start(environment, logs)
            yield variables
        finally:
            _quit(environment, Path(pipes))


def _start(environment: dict[str, str], logs: Path) -> None:
    # Files and not pipes for its output: a daemon that kept a pipe would keep this call waiting.
    try:
        with (logs / "start.log").open("wb") as log:
            started = subprocess.run(
                [CONTROL, "-d"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=QUIT_SECONDS,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"{CONTROL} did not start: {error}") from error
    if started.returncode:
        raise RunFailed(f"{CONTROL} -d ended with status {started.returncode}")


def _quit(environment: dict[str, str], pipes: Path) -> None:
    """Ask the daemon to end, and kill it by its process id if it does not."""
    number = None
    with contextlib.suppress(OSError, ValueError):
        number = int((pipes / f"{CONTROL}.pid").read_text())
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [CONTROL],
            env=environment,
            input=b"quit -t 5\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=QUIT_SECONDS,
            check=False,
        )
    deadline = time.monotonic() + 3.0
    while number is not None and time.monotonic() < deadline and _alive(number):
        time.sleep(0.1)
    if number is not None and _alive(number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
        until = time.monotonic() + KILL_SECONDS
        while _alive(number) and time.monotonic() < until:
            time.sleep(0.05)


def _alive(number: int) -> bool:
    """Whether the process still runs; one of our own that has ended is reaped here."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(number, os.WNOHANG)[0]:
            return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
