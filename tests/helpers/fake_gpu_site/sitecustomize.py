"""First on PYTHONPATH, this makes every process of a run believe that there are two GPUs and RAPIDS' libraries.

Everything else is real: launcher, `dask cuda worker`, Dask, UCX. What plays the libraries is put in place when the
engine is imported, because dask-cuda needs the real ones of those names before.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

PACKAGES = ("pylibcudf", "cudf", "rapidsmpf", "cudf_streaming")


class TwoGpus(importlib.abc.Loader):
    """Loads what plays NVIDIA's management library."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        from tests.helpers.fake_nvml import library

        return library(count=2)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing more to do."""


class Pretence(importlib.abc.MetaPathFinder):
    """Looks on as modules are found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in PACKAGES:
            return importlib.machinery.ModuleSpec(name, None)
        if name == "merge_bench.merge.engines.gpu_memory":
            from tests.helpers import fake_rapidsmpf

            fake_rapidsmpf.install()
        return importlib.machinery.ModuleSpec(name, TwoGpus()) if name == "pynvml" else None


sys.meta_path.insert(0, Pretence())
