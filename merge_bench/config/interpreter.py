"""Whether this Python can run the package. Nothing else is imported before this check.

This file, `installation.py`, `version.py`, `__init__.py` and `__main__.py` use the syntax of Python 3.6, which some
systems still call python3: a Python can only report that it is too old if it can read them. Therefore they have no
``from __future__ import annotations``.
"""

import importlib.util
import os
import shlex
import sys

from merge_bench.config.installation import checkout, how_to_set_up, shown

LEAST = (3, 11)
REQUIRED = (
    "click", "cryptography", "dask", "distributed", "duckdb", "jinja2", "msgspec", "numba", "numpy", "pandas", "polars",
    "psutil", "pyarrow", "rich",
)  # fmt: skip
"""The modules of the dependencies in `pyproject.toml`, without programs."""


def refusal(words: "list[str]") -> "str | None":
    """Why this Python cannot run the command `words`, and what to type instead; None if it can."""
    here = sys.executable or "this Python"
    if sys.version_info < LEAST:
        found, needed = (".".join(map(str, version)) for version in (sys.version_info[:2], LEAST))
        return f"{here} is Python {found}, but merge_bench needs {needed} or newer; {_instead(words)}"
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        more = f" and {len(missing) - 1} more packages" if missing[1:] else ""
        return f"{here} lacks {missing[0]}{more} that merge_bench needs; {_instead(words)}"
    return None


def _instead(words: "list[str]") -> str:
    """What to type: the command with the Python of the checkout's environment, or the set-up of an environment."""
    root = checkout()
    if root is None:
        return f"install merge_bench into its own environment: {how_to_set_up()}"
    python = root / ".venv" / "bin" / "python"
    if os.path.realpath(sys.prefix) == os.path.realpath(str(root / ".venv")):
        return f"set the environment up again: {how_to_set_up(anew=True)}"
    if not python.exists():
        return f"set .venv up first: {how_to_set_up()}"
    typed = " ".join(shlex.quote(word) for word in words)
    return f"run: {shown(python)} -m merge_bench {typed}".rstrip()
