"""Where this package is imported from: a checkout of its repository, or an environment that it was installed into."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> Path | None:
    """The repository's folder, if the package is used from one; None if it was installed without it."""
    root = PACKAGE.parent
    return root if (root / "run-cluster.sh").is_file() else None


def search_path(environ: Mapping[str, str]) -> dict[str, str]:
    """What a Python started by this one needs in its environment to find this very package, wherever it is started.

    Nothing where the package lies with the others of its environment; else ``PYTHONPATH``, before that of `environ`.
    """
    folder = str(PACKAGE.parent)
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    return {"PYTHONPATH": os.pathsep.join([folder, *filter(None, [environ.get("PYTHONPATH")])])}


def how_to_set_up(stack: str | None = None, *, anew: bool = False) -> str:
    """What to type to get the packages that a run needs.

    `stack`: ``cpu``, ``cu12`` or ``cu13``; by default any. `anew`: for an environment that is spoilt.
    """
    if checkout() is None:
        pip = f"pip install 'merge-bench[{stack or 'cpu'}]'" + ("" if stack else " (with GPUs: cu12 or cu13)")
        return f"python -m venv NEW; NEW/bin/{pip}" if anew else pip
    command = "./run-cluster.sh --setup-only" + (f" --stack {stack}" if stack else "")
    return f"rm -r .venv; {command}" if anew else command
