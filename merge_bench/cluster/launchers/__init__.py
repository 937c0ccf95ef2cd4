"""Ways to start a cluster, one file each: the files of this folder are the values of ``--launcher``.

To add one: a file that declares a `LauncherKind` as ``LAUNCHER`` and imports slow libraries inside functions, a test,
and a row in docs/first-cluster.md.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from merge_bench.cluster.base import LauncherKind


@functools.cache
def launchers() -> Mapping[str, LauncherKind]:
    """Every launcher by its name, in the order in which they are shown."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    found: list[LauncherKind] = [module.LAUNCHER for module in modules]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: (kind.place, kind.name))}
