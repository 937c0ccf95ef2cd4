"""The package's version, whether this Python can run the package, and how to install what the package needs.

Nothing else is imported before this check. This file, `__init__.py` and `__main__.py` use the syntax of Python 3.6,
which some systems still call python3: a Python can only report that it is too old if it can read them. Therefore they
have no ``from __future__ import annotations``.
"""

import importlib.util
import os
import shlex
import site
import sys
from collections.abc import Mapping
from pathlib import Path

__version__ = "0.1.0"
PACKAGE = Path(__file__).resolve().parent.parent
LEAST = (3, 11)
REQUIRED = tuple(
    """
    click cryptography dask distributed duckdb jinja2 msgspec numba numpy pandas polars psutil pyarrow rich
    """.split()  # noqa: SIM905
)
"""The modules of the dependencies in `pyproject.toml`, without programs."""


def checkout_folder() -> "Path | None":
    """The folder of the repository; None if the package was installed without it."""
    root = PACKAGE.parent
    return root if (root / "run-cluster.sh").is_file() else None


def block_imports(*modules: str) -> None:
    """Keep other libraries from importing these `modules` into this process, unless cuDF is installed.

    Dask imports RMM wherever it is installed, to show memory of GPUs, and numba SciPy, for linear algebra, and cffi, to
    call C. cuDF may need them.
    """
    if importlib.util.find_spec("cudf") is None:
        for name in modules:
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def python_path_variables(environ: "Mapping[str, str]") -> "dict[str, str]":
    """The environment variables with which a new Python process finds this package, whatever its working folder.

    Empty if the package is installed, else ``PYTHONPATH`` with its folder before those of `environ`.
    """
    folder = str(PACKAGE.parent)
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    return {"PYTHONPATH": os.pathsep.join([folder, *filter(None, [environ.get("PYTHONPATH")])])}


def setup_command(stack: "str | None" = None, *, replace_present: bool = False) -> str:
    """The shell command that installs the packages that a run needs.

    `stack`: the set of packages, ``cpu``, ``cu12`` or ``cu13``; None: any. `replace_present`: delete the present
    environment first.
    """
    root = checkout_folder()
    if root is None:
        pip = f"pip install 'merge-bench[{stack or 'cpu'}]'" + ("" if stack else " (with GPUs: cu12 or cu13)")
        return f"python -m venv NEW; NEW/bin/{pip}" if replace_present else pip
    command = f"{quote_path_for_shell(root / 'run-cluster.sh')} --setup-only" + (f" --stack {stack}" if stack else "")
    return f"rm -r {quote_path_for_shell(root / '.venv')}; {command}" if replace_present else command


def quote_path_for_shell(path: Path) -> str:
    """A path as text for a shell command: quoted, and relative if it is below the working folder."""
    try:
        short = os.path.relpath(str(path))
    except OSError:  # the working folder was deleted
        return shlex.quote(str(path))
    if short.startswith(os.pardir):
        return shlex.quote(str(path))
    return shlex.quote(short if os.sep in short else os.path.join(os.curdir, short))


def unusable_python_message(
    command_words: "list[str]", python_version: "tuple[int, ...]" = sys.version_info[:2]
) -> "str | None":
    """A sentence that says why this Python cannot run merge_bench, and what to type instead; None if it can.

    `command_words`: the words of the command that was typed; `python_version`: of this Python.
    """
    here = sys.executable or "this Python"
    if python_version < LEAST:
        present, needed = (".".join(map(str, numbers)) for numbers in (python_version, LEAST))
        advice = _usable_python_advice(command_words)
        return f"{here} is Python {present}, but merge_bench needs {needed} or newer; {advice}"
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        more = f" and {len(missing) - 1} more packages" if missing[1:] else ""
        return f"{here} lacks {missing[0]}{more} that merge_bench needs; {_usable_python_advice(command_words)}"
    return None


def _usable_python_advice(command_words: "list[str]") -> str:
    """Advice on what to type instead: the same command with the checkout's Python, or the one that sets it up."""
    root = checkout_folder()
    if root is None:
        return f"install merge_bench into its own environment: {setup_command()}"
    python = root / ".venv" / "bin" / "python"
    if os.path.realpath(sys.prefix) == os.path.realpath(str(root / ".venv")):
        return f"set the environment up again: {setup_command(replace_present=True)}"
    if not python.exists():
        return f"set .venv up first: {setup_command()}"
    typed = " ".join(shlex.quote(word) for word in command_words)
    return f"run: {quote_path_for_shell(python)} -m merge_bench {typed}".rstrip()
