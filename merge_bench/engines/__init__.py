"""The dataframe libraries that partition and join on a worker; one file each.

To add one: a file with a class of the protocol in `base.py`, a line in `ENGINES`, a test, a row in docs/engines.md.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from merge_bench.engines.base import Engine, JoinShape, Side
from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from merge_bench.engines.cudf import CudfEngine
    from merge_bench.engines.pandas import PandasEngine
    from merge_bench.engines.polars import PolarsEngine

    # They are made by name, so that only this tells the type checker that each has every method.
    _COMPLETE: tuple[type[Engine], ...] = (CudfEngine, PandasEngine, PolarsEngine)

ENGINES = {
    "native": ("merge_bench.engines.native", "NativeEngine", "polars"),
    "polars": ("merge_bench.engines.polars", "PolarsEngine", "polars"),
    "pandas": ("merge_bench.engines.pandas", "PandasEngine", "pandas"),
    "cudf": ("merge_bench.engines.cudf", "CudfEngine", "pylibcudf"),
}


def make_engine(name: str, shape: JoinShape) -> Engine:
    """The engine called `name` for a join of this shape.

    Raises
    ------
    UsageError
        If its library is not installed here, or it cannot work on this machine.
    """
    module, attribute, package = ENGINES[name]
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"engine {name} needs the package {package}, which is not installed in this environment")
    engine: Engine = getattr(importlib.import_module(module), attribute)(shape)
    return engine


__all__ = ["ENGINES", "Engine", "JoinShape", "Side", "make_engine"]
