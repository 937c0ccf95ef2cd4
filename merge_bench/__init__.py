"""Measure, explain and tune distributed dataframe merges over UCX.

`run`, `load`, `compare`, `history`, `predict`, `published` and `Result` are for Python; `docs/results.md` shows them at
work. They are loaded when first asked for, so that importing the package stays quick. Readable for Python 3.6, as
`config/installation.py` says.
"""

from typing import TYPE_CHECKING, Any

from merge_bench.config.installation import __version__

if TYPE_CHECKING:
    from merge_bench.analysis import published
    from merge_bench.api import Result, compare, history, load, predict, run

__all__ = ["Result", "__version__", "compare", "history", "load", "predict", "published", "run"]


def __getattr__(name: str) -> Any:
    if name in ("Result", "compare", "history", "load", "predict", "run"):
        from merge_bench import api

        return getattr(api, name)
    if name == "published":
        from merge_bench.analysis import published

        return published
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return __all__
