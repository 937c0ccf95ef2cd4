"""Memory bandwidths of GPUs, as their vendor publishes them: what `--what-if gpu=NAME` scales computing by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from merge_bench.errors import UsageError


@dataclass(frozen=True)
class Gpu:
    """A GPU: `bandwidth` of its memory (B/s), and the words that its driver's name for it holds, in lower case."""

    bandwidth: float
    words: tuple[str, ...]
    source: str


GPUS: Mapping[str, Gpu] = {
    "t4": Gpu(320e9, ("t4",), "NVIDIA T4 data sheet"),
    "v100": Gpu(900e9, ("v100",), "NVIDIA V100 data sheet"),
    "a100-40gb": Gpu(1555e9, ("a100", "40gb"), "NVIDIA A100 data sheet"),
    "a100-80gb": Gpu(2039e9, ("a100", "80gb"), "NVIDIA A100 data sheet, SXM"),
    "a100-80gb-pcie": Gpu(1935e9, ("a100", "80gb", "pcie"), "NVIDIA A100 data sheet, PCIe"),
    "h100": Gpu(3350e9, ("h100",), "NVIDIA H100 data sheet, SXM"),
    "h100-pcie": Gpu(2000e9, ("h100", "pcie"), "NVIDIA H100 data sheet, PCIe"),
    "h200": Gpu(4800e9, ("h200",), "NVIDIA H200 data sheet"),
}


def named(name: str) -> Gpu:
    """The GPU that people call so.

    Raises
    ------
    UsageError
        If it is not in the table.
    """
    found = GPUS.get(name.lower())
    if found is None:
        raise UsageError(f"--what-if gpu={name}: unknown GPU; choose from {', '.join(GPUS)}")
    return found


def recognised(driver_name: str) -> Gpu | None:
    """The GPU that the driver calls so, as ``Tesla V100-SXM2-32GB``; None if it is not in the table."""
    words = set(re.split(r"[^a-z0-9]+", driver_name.lower()))
    fitting = [gpu for gpu in GPUS.values() if words.issuperset(gpu.words)]
    return max(fitting, key=lambda gpu: len(gpu.words), default=None)
