"""Breaks the exchange from outside: Python loads this file by itself where PYTHONPATH names its folder.

The package under test knows nothing of it. `SABOTAGE` names a file that holds one of the words in `broken.BREAKS`;
while there is no such file, nothing is broken.
"""

import importlib.abc
import importlib.util
import os
import sys

TARGET = "merge_bench.merge.engines.cpu_base"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Changes the module that partitions and joins right after it was loaded."""

    def find_spec(self, name, path, target=None):
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_break(module):
            load(module)
            import broken

            broken.install(module.HostEngine)

        spec.loader.exec_module = load_and_break
        return spec


if os.environ.get("SABOTAGE"):
    sys.meta_path.insert(0, _AfterImport())
