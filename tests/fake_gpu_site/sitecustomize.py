"""First on PYTHONPATH, this makes every process of a run believe that there are two GPUs and RAPIDS' libraries.

Everything else is real: launcher, `dask cuda worker`, Dask, UCX. What plays the libraries is put in place when the
engine is imported, because dask-cuda needs the real ones of those names before.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

PACKAGES = ("pylibcudf", "cudf")


def _two_gpus() -> AbstractContextManager[ModuleType]:
    from tests.test_gpu_facts import library

    return nullcontext(library(count=2))


class Pretence(importlib.abc.MetaPathFinder):
    """Looks on as modules are found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in PACKAGES:
            return importlib.machinery.ModuleSpec(name, None)
        if name == "merge_bench.cuda_context":
            from tests import fake_rapids

            fake_rapids.install()
        if name != "merge_bench.gpu":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None
        assert found.loader is not None
        run = found.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            module._nvml = _two_gpus  # type: ignore[attr-defined]

        found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


sys.meta_path.insert(0, Pretence())
