"""Whether the package is used from a checkout of its repository, and how to install what it needs.

Readable by Python 3.6, like `interpreter.py`.
"""

import os
import shlex
import site
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def checkout() -> "Path | None":
    """The folder of the repository; None if the package was installed without it."""
    root = PACKAGE.parent
    return root if (root / "run-cluster.sh").is_file() else None


def search_path(environ: "Mapping[str, str]") -> "dict[str, str]":
    """The variables that a new Python process needs to find this package, in any working folder.

    Empty if the package is installed in its environment, else ``PYTHONPATH`` with its folder before those of `environ`.
    """
    folder = str(PACKAGE.parent)
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    return {"PYTHONPATH": os.pathsep.join([folder, *filter(None, [environ.get("PYTHONPATH")])])}


def how_to_set_up(stack: "str | None" = None, *, anew: bool = False) -> str:
    """The command that installs the packages that a run needs.

    `stack`: ``cpu``, ``cu12`` or ``cu13``; by default any. `anew`: replace the environment.
    """
    root = checkout()
    if root is None:
        pip = f"pip install 'merge-bench[{stack or 'cpu'}]'" + ("" if stack else " (with GPUs: cu12 or cu13)")
        return f"python -m venv NEW; NEW/bin/{pip}" if anew else pip
    command = f"{shown(root / 'run-cluster.sh')} --setup-only" + (f" --stack {stack}" if stack else "")
    return f"rm -r {shown(root / '.venv')}; {command}" if anew else command


def shown(path: Path) -> str:
    """A path for a command line: relative if it is below the working folder."""
    try:
        short = os.path.relpath(str(path))
    except OSError:  # the working folder was deleted
        return shlex.quote(str(path))
    if short.startswith(os.pardir):
        return shlex.quote(str(path))
    return shlex.quote(short if os.sep in short else os.path.join(os.curdir, short))
