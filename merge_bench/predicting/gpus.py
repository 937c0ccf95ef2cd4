"""Memory bandwidths of GPUs, as their vendor publishes them: what `--what-if gpu=NAME` scales computing by."""

from __future__ import annotations

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
    "t4": Gpu(320e9, ("t4",), "NVIDIA T4 data sheet: 320+ GB/s"),
    "v100": Gpu(900e9, ("v100",), "NVIDIA V100 data sheet: 900 GB/s"),
    "a100-40gb": Gpu(1555e9, ("a100", "40gb"), "NVIDIA A100 data sheet: 1,555 GB/s"),
    "a100-80gb": Gpu(2039e9, ("a100", "80gb"), "NVIDIA A100 data sheet, SXM: 2,039 GB/s"),
    "h100": Gpu(3350e9, ("h100",), "NVIDIA H100 data sheet, SXM: 3.35 TB/s"),
    "h200": Gpu(4800e9, ("h200",), "NVIDIA H200 data sheet: 4.8 TB/s"),
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
        raise UsageError(f"--what-if gpu={name}: its memory bandwidth is not known here; known are {', '.join(GPUS)}")
    return found


def recognised(driver_name: str) -> Gpu | None:
    """The GPU that the driver calls so, as ``Tesla V100-SXM2-32GB``; None if it is not in the table."""
    words = driver_name.lower()
    return next((gpu for gpu in GPUS.values() if all(word in words for word in gpu.words)), None)
