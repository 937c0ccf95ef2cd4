"""Network measurements without a merge, with the launchers and the records of merges.

Each file of this folder is one probe: its name, help and options, how it measures, and what runs in the ranks that
mpirun starts for it. The folders contain what probes share.

To add one: a file that declares a `ProbeKind` as ``PROBE`` and imports slow libraries inside functions, a test, and a
section in docs.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from merge_bench.probe.shared import ProbeKind


@functools.cache
def probes() -> Mapping[str, ProbeKind[Any]]:
    """Return the declarations of all probes by name, in alphabetical order."""
    files = (each.name for each in pkgutil.iter_modules(__path__) if not each.ispkg)
    kinds: list[ProbeKind[Any]] = [importlib.import_module(f"{__name__}.{name}").PROBE for name in files]
    return {probe.name: probe for probe in sorted(kinds, key=lambda probe: probe.name)}
