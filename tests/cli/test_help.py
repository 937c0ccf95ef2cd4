"""What is imported, and when: the command line is quick, and processes load only what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from merge_bench.probe import probes

COMMANDS = [[], ["run"], ["submit"], ["tune"], ["probe"], ["probe", "show"], *(["probe", name] for name in probes())]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    heavy = (
        "numpy|pyarrow|numba|msgspec|rich|distributed|dask|polars|pandas|ucxx|scipy|mpi4py|psutil|jinja2|cryptography"
    )
    code = (
        "import atexit, sys, re\n"
        f"atexit.register(lambda: print([m for m in sys.modules if re.fullmatch({heavy!r}, m)]))\n"
        f"sys.argv = ['merge_bench', *{words!r}, '--help']\n"
        "from merge_bench.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ")
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("merge_bench.campaign.run", "distributed|numba|pandas|polars"),  # until a launch begins: refusals are quick
        ("merge_bench.probe.ranks.launch", "distributed|numba|pandas|polars"),
        ("merge_bench.campaign.measurement", "numba|pandas|polars"),  # in the driver
        ("merge_bench.merge.steps", "numba|pandas|polars"),  # in Dask's scheduler, which answers nobody meanwhile
    ],
)
def test_drivers_and_schedulers_load_no_library_of_workers(module: str, heavy: str) -> None:
    code = f"import {module}, sys, re; print([m for m in sys.modules if re.fullmatch({heavy!r}, m)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_checking_a_synthetic_result_loads_no_pandas() -> None:
    code = (
        "import sys\n"
        "from merge_bench.merge.workload.synthetic import SyntheticSpec, check, generate\n"
        "spec = SyntheticSpec(100, 1.0, 0)\n"
        "left = generate(spec, 0, 1)[0].to_arrow()\n"
        "assert check(spec, left.append_column('right_payload_0', left['left_payload_0']))[0] == 100\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
