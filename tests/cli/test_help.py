"""What is imported, and when: the command line is quick, and processes load only what they need."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from merge_bench.probe import probes

COMMANDS = [[], *(words.split() for words in ("run", "submit", "tune", "configs", "probe show", "jobs", "jobs list"))]
COMMANDS += [["probe"], *(["probe", name] for name in probes())]


HEAVY = "numpy|pyarrow|numba|msgspec|rich|distributed|dask|polars|pandas|ucxx|scipy|mpi4py|psutil|jinja2|cryptography"
HELP = """
import re, sys
from merge_bench.cli import main
for words in {commands!r}:
    sys.argv = ["merge_bench", *words, "--help"]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code, words
    print(words, [m for m in sys.modules if re.fullmatch({heavy!r}, m)])
"""
IMPORTS = """
import importlib, re, sys
for module, heavy in {steps!r}:
    importlib.import_module(module)
    print(module, [m for m in sys.modules if re.fullmatch(heavy, m)])
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks
spec = SyntheticSpec(100, 1.0, 0)
left = generate_chunks(spec, 0, 1)[0].to_arrow()
assert check_result_rows(spec, left.append_column("right_payload_0", left["left_payload_0"]))[0] == 100
print("pandas" in sys.modules)
"""


def python(code: str) -> list[str]:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_help_imports_nothing_heavy_cuts_no_sentence_and_lists_other_options_last() -> None:
    lines = python(HELP.format(commands=COMMANDS, heavy=HEAVY))
    usages = [number for number, line in enumerate(lines) if line.startswith("Usage: ")]
    for words, start, end in zip(COMMANDS, usages, [*usages[1:], len(lines)], strict=True):
        *page, imported = lines[start:end]
        assert imported == f"{words} []"
        assert not [line for line in page[1:] if line.endswith("...")]  # a sentence that was cut
        headings = [line for line in page if re.fullmatch(r"\w[\w ]*:", line)]
        assert "Other:" not in headings[:-1]
        if words in (["run"], ["tune"], ["probe", "p2p"]):
            assert headings[-1] == "Other:"


@pytest.mark.slow
def test_drivers_and_schedulers_load_no_library_of_workers_and_checking_a_synthetic_result_loads_no_pandas() -> None:
    steps = [
        (
            "merge_bench.campaign.run_campaign",
            "distributed|numba|pandas|polars",
        ),  # until a launch begins: refusals are quick
        ("merge_bench.probe.ranks.launch", "distributed|numba|pandas|polars"),
        ("merge_bench.campaign.measure_launch", "numba|pandas|polars"),  # in the driver
        ("merge_bench.merge.worker", "numba|pandas|polars"),  # in Dask's scheduler, which answers nobody meanwhile
        ("merge_bench.merge.engines.native", "pandas|polars"),  # in workers, unless their keys need Polars
    ]
    assert python(IMPORTS.format(steps=steps)) == [*(f"{module} []" for module, _ in steps), "False"]
