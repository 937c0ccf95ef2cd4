"""The command line before any command does something."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", [[], ["run"], ["tune"], ["probe", "p2p"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    heavy = "numpy|pyarrow|numba|msgspec|rich|distributed|dask|polars|pandas|ucxx"
    code = (
        "import atexit, sys, re\n"
        f"atexit.register(lambda: print([m for m in sys.modules if re.fullmatch({heavy!r}, m)]))\n"
        f"sys.argv = ['merge_bench', *{words!r}, '--help']\n"
        "from merge_bench.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ")
    assert done.stdout.splitlines()[-1] == "[]"
