"""Versions of packages: those of a lock, those that are installed."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path

from packaging.markers import Marker

from tests.rapids.sources import ROOT

LOCK = ROOT / "cluster/locks/cu13/requirements.lock"
# What the GPU path stands on; cupy and the rest of CUDA come along and are not called.
RECORDED = (
    "cuda",
    "cudf",
    "cudf_streaming",
    "dask_cuda",
    "dask_cudf",
    "libcudf",
    "libcudf_streaming",
    "librapidsmpf",
    "librmm",
    "libucx",
    "nvtx",
    "pylibcudf",
    "pynvml",
    "rapidsmpf",
    "rmm",
    "ucxx",
)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.+?))?(?: \\)?$", re.MULTILINE)


def locked(lock: Path = LOCK) -> dict[str, str]:
    """Versions for this platform and Python, by name of package as names are normalised."""
    pins = _PIN.findall(lock.read_text())
    return {_normal(name): version for name, version, marker in pins if not marker or Marker(marker).evaluate()}


def installed(names: Mapping[str, str]) -> dict[str, str]:
    """Installed versions of those of these packages that are here."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def recorded(names: Mapping[str, str]) -> dict[str, str]:
    """Of these packages, those that the GPU path stands on."""
    owners = importlib.metadata.packages_distributions()
    wanted = {_normal(owner) for module in RECORDED for owner in owners.get(module, ())}
    return {name: version for name, version in names.items() if name in wanted}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
