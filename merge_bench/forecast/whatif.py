"""Reads `--what-if` and `--link`: values that replace measured ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from merge_bench.errors import UsageError
from merge_bench.forecast.model import Given
from merge_bench.units import parse_duration, parse_rate


@dataclass(frozen=True)
class Gpu:
    """A GPU: `bandwidth` of its memory (B/s), and the words that its driver's name for it holds, in lower case."""

    bandwidth: float
    words: tuple[str, ...]
    source: str


GPUS: Mapping[str, Gpu] = {  # memory bandwidths, as their vendor publishes them
    "t4": Gpu(320e9, ("t4",), "NVIDIA T4 data sheet"),
    "v100": Gpu(900e9, ("v100",), "NVIDIA V100 data sheet"),
    "a100-40gb": Gpu(1555e9, ("a100", "40gb"), "NVIDIA A100 data sheet"),
    "a100-80gb": Gpu(2039e9, ("a100", "80gb"), "NVIDIA A100 data sheet, SXM"),
    "a100-80gb-pcie": Gpu(1935e9, ("a100", "80gb", "pcie"), "NVIDIA A100 data sheet, PCIe"),
    "h100": Gpu(3350e9, ("h100",), "NVIDIA H100 data sheet, SXM"),
    "h100-pcie": Gpu(2000e9, ("h100", "pcie"), "NVIDIA H100 data sheet, PCIe"),
    "h200": Gpu(4800e9, ("h200",), "NVIDIA H200 data sheet"),
}


def find_gpu(name: str) -> Gpu:
    """The GPU with this name in `GPUS`.

    Raises UsageError if there is none.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise UsageError(f"--what-if gpu={name}: unknown GPU; choose from {', '.join(GPUS)}")
    return gpu


def recognised_gpu(driver_name: str) -> Gpu | None:
    """The GPU with this name by its driver, as ``Tesla V100-SXM2-32GB``; None if it is not in `GPUS`."""
    words = set(re.split(r"[^a-z0-9]+", driver_name.lower()))
    fitting = [gpu for gpu in GPUS.values() if words.issuperset(gpu.words)]
    return max(fitting, key=lambda gpu: len(gpu.words), default=None)


_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)\s*"
_FACTOR = re.compile(_NUMBER + "[x×]", re.IGNORECASE)
_MICROSECONDS = re.compile(_NUMBER + "[uµ]s", re.IGNORECASE)

MULTIPLIED: Mapping[str, tuple[str, ...]] = {
    "nic": ("nic_rate",),
    "local": ("local_rate",),
    "partition": ("partition_rate",),
    "join": ("join_rate",),
    "compute": ("partition_rate", "join_rate"),
    "latency": ("nic_latency", "nic_overhead", "local_latency", "local_overhead"),
    "spread": ("partition_spread", "join_spread"),
}
"""The parameters that a factor of each name multiplies: rates (more is better), seconds and spreads (less is)."""

LINKS = ("local", "nic")


@dataclass(frozen=True)
class WhatIf:
    """A parsed ``--what-if``: `factors` by parameter, the new `overlap`, the named `gpu`, the `words` as written."""

    factors: Mapping[str, float] = field(default_factory=dict)
    overlap: float | None = None
    gpu: str | None = None
    words: tuple[str, ...] = ()

    def apply(self, values: Mapping[str, float], scale: float = 1.0) -> dict[str, float]:
        """The changed `values`; `scale`: the factor for the rates of partition and join, for another GPU."""
        changed = {name: value * self.factors.get(name, 1.0) for name, value in values.items()}
        for name in MULTIPLIED["compute"]:
            if name in changed:
                changed[name] *= scale
        if self.overlap is not None:
            changed["overlap"] = self.overlap
        return changed


def parse_what_if(texts: Iterable[str]) -> WhatIf:
    """Parse words such as ``nic=4x,gpu=h200,overlap=0.9``.

    Raises UsageError if a name is not known or given twice, or its value is not of its kind.
    """
    factors: dict[str, float] = {}
    overlap: float | None = None
    gpu: str | None = None
    words = tuple(word.strip() for text in texts for word in text.split(",") if word.strip())
    names = [word.partition("=")[0].strip().lower() for word in words]
    for name, word in zip(names, words, strict=True):
        value = word.partition("=")[2].strip()
        if names.count(name) > 1:
            raise UsageError(f"--what-if sets {name} twice")
        if name == "gpu":
            find_gpu(value)
            gpu = value.lower()
        elif name == "overlap":
            overlap = _parse_share(word, value)
        elif name in MULTIPLIED:
            for parameter in MULTIPLIED[name]:
                factors[parameter] = factors.get(parameter, 1.0) * _parse_factor(word, value)
        else:
            forms = ", ".join(f"{each}=4x" for each in MULTIPLIED)
            raise UsageError(f"--what-if {word} is not valid; use a form such as {forms}, overlap=0.9 or gpu=h200")
    return WhatIf(factors, overlap, gpu, words)


def parse_links(texts: Sequence[str]) -> dict[str, Given]:
    """The parameters that words such as ``nic=12.5GB/s,2us`` give: a link's rate, and its latency if it is there.

    Raises UsageError if it is not of this form.
    """
    parameters: dict[str, Given] = {}
    for text in texts:
        link, equals, words = text.partition("=")
        rate, _, latency = (word.strip() for word in words.partition(","))
        name = link.strip().lower()
        if name not in LINKS or not equals:
            raise UsageError(f"--link {text} is not valid; use a form such as nic=12.5GB/s,2us or local=20GB/s")
        if f"{name}_rate" in parameters:
            raise UsageError(f"--link sets {name} twice")
        parameters[f"{name}_rate"] = Given(_parse_link_rate(text, rate), f"--link {text}")
        if latency:
            parameters[f"{name}_latency"] = Given(_parse_latency_seconds(text, latency), f"--link {text}")
    return parameters


def _parse_factor(word: str, value: str) -> float:
    match = _FACTOR.fullmatch(value)
    factor = float(match[1]) if match else 0.0
    if not 0 < factor < math.inf:
        raise UsageError(f"--what-if {word}: {value!r} is not a factor above 0; use a form such as 4x or 0.5x")
    return factor


def _parse_share(word: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"--what-if {word}: {value!r} is not a number from 0 to 1")
    return share


def _parse_link_rate(text: str, value: str) -> float:
    try:
        rate = parse_rate(value)
    except ValueError as error:
        raise UsageError(f"--link {text}: {error}") from None
    if rate <= 0:
        raise UsageError(f"--link {text}: {value!r} is not a rate above 0")
    return rate


def _parse_latency_seconds(text: str, value: str) -> float:
    match = _MICROSECONDS.fullmatch(value)
    try:
        if value[-1:].isdigit():
            raise ValueError
        return float(match[1]) * 1e-6 if match else parse_duration(value)
    except ValueError:
        raise UsageError(
            f"--link {text}: {value!r} is not a latency with its unit; use a form such as 2us or 0.1ms"
        ) from None
