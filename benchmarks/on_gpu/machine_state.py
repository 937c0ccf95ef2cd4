"""How this machine's GPU is set up, as `nvidia-smi -q` prints it: driver, power limit, clocks, MIG and MPS."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import run_limited, surroundings

LIMIT = 15.0
MOST_BYTES = 60_000
MPS = "nvidia-cuda-mps-control"
FIELDS = {
    "driver": ("Driver Version",),
    "cuda": ("CUDA Version",),
    "product": ("Product Name",),
    "persistence_mode": ("Persistence Mode",),
    "compute_mode": ("Compute Mode",),
    "mig_mode": ("MIG Mode", "Current"),
    "ecc_mode": ("ECC Mode", "Current"),
    "power_limit": ("Current Power Limit",),
    "power_draw": ("Power Draw",),
    "sm_clock": ("Clocks", "SM"),
    "memory_clock": ("Clocks", "Memory"),
    "most_sm_clock": ("Max Clocks", "SM"),
    "most_memory_clock": ("Max Clocks", "Memory"),
}
"""Each field's line, and before it the heading that the line follows where its name alone does not say enough."""


def machine_state(logs: Path) -> dict[str, Any]:
    """The state of the first GPU, and whether MPS runs. What nvidia-smi prints is kept in ``<logs>/nvidia-smi.out``.

    A field that nvidia-smi does not print is None; all are where there is no nvidia-smi.
    """
    found = {"mps_running": mps_is_running(), "nvidia_smi": "nvidia-smi was not found", **read_query("")}
    program = shutil.which("nvidia-smi")
    if program is None:
        return found
    logs.mkdir(parents=True, exist_ok=True)
    ended = run_limited([program, "-q"], surroundings(), logs / "nvidia-smi", LIMIT)
    text = ended.output.read_text(errors="replace")
    if len(text) > MOST_BYTES:
        ended.output.write_text(text[:MOST_BYTES])
    return {**found, "nvidia_smi": ended.failure, **read_query(text)}


def read_query(text: str) -> dict[str, str | None]:
    """The fields in the output of ``nvidia-smi -q``, each as it first occurs."""
    lines = text.splitlines()
    return {name: _value(lines, words) for name, words in FIELDS.items()}


def _value(lines: list[str], words: tuple[str, ...]) -> str | None:
    indent = -1
    for heading in words[:-1]:
        for number, line in enumerate(lines):
            if line.strip() == heading:
                lines, indent = lines[number + 1 :], len(line) - len(line.lstrip())
                break
        else:
            return None
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return None
        name, colon, value = line.partition(":")
        if colon and re.fullmatch(r"\s*" + re.escape(words[-1]) + r"\s*", name):
            return value.strip()
    return None


def mps_is_running() -> bool:
    """Whether a control daemon of MPS runs on this machine."""
    # The kernel cuts names of processes to 15 characters.
    return any((process.info["name"] or "").startswith(MPS[:15]) for process in psutil.process_iter(["name"]))
