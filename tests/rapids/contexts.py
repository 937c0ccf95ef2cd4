"""Whether a CUDA context is bound before the first call that needs one, on a driver without a GPU (`libcuda.c`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.rapids.sources import ROOT

HERE = Path(__file__).resolve().parent
SECONDS = 120


class CannotCheck(Exception):
    """What the check needs is missing here."""


@dataclass(frozen=True)
class Call:
    """A call of the driver: by which thread, whether it needs a context, and the status that it gave."""

    thread: int
    name: str
    needs: bool
    status: int


@dataclass(frozen=True)
class Step:
    """What became of one step: its driver calls in order, and its failure, if any."""

    calls: tuple[Call, ...]
    kind: str | None
    error: str | None


def build(folder: Path, cuda: int) -> Path:
    """Compile the stub of a driver that supports CUDA `cuda`; gives the folder to load it from."""
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise CannotCheck("there is no C compiler (cc, gcc or clang) to build the stub of libcuda.so.1; install one")
    target = folder / "libcuda.so.1"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        f"-DVERSION={cuda * 1000}",
        "-o",
        str(target),
        str(HERE / "libcuda.c"),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise CannotCheck(f"{compiler} could not build the stub of libcuda.so.1: {done.stderr.strip()[-300:]}")
    return folder


def steps(stub: Path, *, root: Path = ROOT, fail: str = "") -> dict[str, Step]:
    """What set-up of the pool and the engine of `root`'s merge_bench do first on the stub.

    `fail`: ``call=status`` that the driver gives instead of success; then no thread has a context beforehand.
    """
    log = stub / "calls.txt"
    log.unlink(missing_ok=True)
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(stub), "PYTHONPATH": str(root), "STUB_LOG": str(log), "STUB_FAIL": fail,
    }  # fmt: skip
    # In a process of its own: without a working driver some calls end the process.
    command = [sys.executable, "-P", str(HERE / "first_calls.py"), *([] if fail else ["--bind"])]
    done = subprocess.run(
        command, env=environment, cwd=stub, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise CannotCheck(f"the process ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
    calls = [_call(line) for line in log.read_text().splitlines()]
    return {
        name: Step(tuple(call for call in calls if call.thread == found["thread"]), found["kind"], found["error"])
        for name, found in json.loads(done.stdout.splitlines()[-1]).items()
    }


def _call(line: str) -> Call:
    thread, name, kind, status = line.split()
    return Call(int(thread), name, kind == "needs", int(status))


def judge(step: Step) -> str:
    """Why a step does not bind a context first; "" if it does."""
    need = next((place for place, call in enumerate(step.calls) if call.needs), None)
    if need is None:
        return f"no call that needs a context was reached: {step.kind}: {step.error}"
    first, before = step.calls[need], step.calls[:need]
    if first.status:
        return f"{first.name} gave {first.status}, without a context in its thread: {step.kind}: {step.error}"
    if not any(call.name == "cuCtxSetCurrent" and call.status == 0 for call in before):
        return f"{first.name} came before cuCtxSetCurrent"
    return f"{step.kind}: {step.error}" if step.error else ""


def refused(step: Step, reason: str) -> bool:
    """Whether a step ended in a sentence of ours with this reason in it, and asked nothing that needs a context."""
    ours = step.kind in {"UsageError", "RunFailed"} and reason in (step.error or "")
    return ours and not any(call.needs for call in step.calls)


def call_names(step: Step) -> str:
    """The calls of a step in order, repetitions left out."""
    names = list(dict.fromkeys(call.name for call in step.calls))
    return ", ".join(names)


if __name__ == "__main__":  # for an older checkout: python -m tests.rapids.contexts FOLDER
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        for step_name, outcome in steps(build(Path(scratch), 13), root=Path(sys.argv[1]).resolve()).items():
            why = judge(outcome)
            print("FAIL" if why else "PASS", step_name, why or call_names(outcome))
