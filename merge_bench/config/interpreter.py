"""Whether this Python can run the package, asked before anything else is imported.

The syntax of this file, of `__init__.py` and of `__main__.py` is that of Python 3.6, which some systems still call
python3: only what can be read can say that it is too old. Hence no ``from __future__ import annotations``, either.
"""

import importlib.util
import os
import shlex
import sys

LEAST = (3, 11)
REQUIRED = (
    "click", "cryptography", "dask", "distributed", "duckdb", "jinja2", "msgspec", "numba", "numpy", "pandas", "polars",
    "psutil", "pyarrow", "rich", "scipy",
)  # fmt: skip
"""The modules of the dependencies in `pyproject.toml`, but for programs."""

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def refusal(words: "list[str]") -> "str | None":
    """Why this Python cannot run the command `words`, and what to type instead; None if it can."""
    here = sys.executable or "this Python"
    if sys.version_info < LEAST:
        found, needed = (".".join(map(str, version)) for version in (sys.version_info[:2], LEAST))
        return f"{here} is Python {found}, and merge_bench needs {needed} or newer; {_instead(words)}"
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        more = f" and {len(missing) - 1} more packages" if missing[1:] else ""
        return f"{here} lacks {missing[0]}{more} that merge_bench needs; {_instead(words)}"
    return None


def _instead(words: "list[str]") -> str:
    """What to type: the Python of the checkout's own environment, or how to get one."""
    if not os.path.isfile(os.path.join(_ROOT, "run-cluster.sh")):
        return "install it into an environment of its own: pip install 'merge-bench[cpu]', or cu12 or cu13 with GPUs"
    venv = os.path.join(_ROOT, ".venv")
    python, setup = os.path.join(venv, "bin", "python"), _shown(os.path.join(_ROOT, "run-cluster.sh"))
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        return f"make its environment anew: rm -r {_shown(venv)}; {setup} --setup-only"
    if not os.path.exists(python):
        return f"set .venv up first: {setup} --setup-only"
    typed = " ".join(shlex.quote(word) for word in words)
    return f"type: {_shown(python)} -m merge_bench {typed}".rstrip()


def _shown(path: str) -> str:
    """A path as one types it: relative to the working folder where it lies in there."""
    short = os.path.relpath(path)
    if short.startswith(os.pardir):
        return shlex.quote(path)
    return shlex.quote(short if os.sep in short else os.path.join(os.curdir, short))
