"""What is imported, and when: the command line is quick, and processes load only what they need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import start
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


RUNS = """
import json, sys
from merge_bench.cli import main
imported = {{}}
for name, words in {commands!r}:
    sys.argv = ["merge_bench", *words]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code, name
    imported[name] = [package for package in {heavy!r} if package in sys.modules]
print(json.dumps(imported))
"""
MAY_IMPORT = {
    "history": {"numpy"},
    "report": {"bokeh", "numpy"},
    "doctor": {"dask", "numpy", "ucxx"},  # it loads the UCX that a worker would load, which brings the others along
}
"""Heavy packages that commands without workers import, because they use them; all others import none."""


def python(code: str, folder: Path | None = None) -> list[str]:
    """What a new interpreter prints, run in `folder`."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()


def packages_imported(folder: Path, names: list[str]) -> dict[str, set[str]]:
    """Run commands of `start.COMMANDS` one after the other in a new process; gives what was imported after each."""
    start.make_results(folder)
    commands = [(name, start.COMMANDS[name]) for name in names]
    last = python(RUNS.format(commands=commands, heavy=start.HEAVY), folder)[-1]
    return {name: set(packages) for name, packages in json.loads(last).items()}


def test_commands_that_start_no_worker_import_no_heavy_package(tmp_path: Path) -> None:
    names = [name for name in start.COMMANDS if name not in MAY_IMPORT]
    assert len(names) > 10
    assert packages_imported(tmp_path, names) == {name: set() for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAY_IMPORT)
def test_commands_that_use_heavy_packages_import_no_others(tmp_path: Path, name: str) -> None:
    assert packages_imported(tmp_path, [name])[name] <= MAY_IMPORT[name]


def test_help_imports_nothing_heavy_cuts_no_sentence_and_lists_other_options_last() -> None:
    lines = python(HELP.format(commands=COMMANDS, heavy=HEAVY))
    usages = [number for number, line in enumerate(lines) if line.startswith("Usage: ")]
    for words, first, end in zip(COMMANDS, usages, [*usages[1:], len(lines)], strict=True):
        *page, imported = lines[first:end]
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
            "dask|distributed|numba|numpy|pandas|polars|pyarrow",
        ),  # until a launch begins: refusals are quick
        (
            "merge_bench.campaign.cluster_session",
            "dask|distributed|numba|numpy|pandas|polars|pyarrow",
        ),  # until Dask's processes start, which the driver would keep waiting
        ("merge_bench.probe.ranks.launch", "distributed|numba|pandas|polars"),
        ("merge_bench.campaign.measure_launch", "numba|pandas|polars"),  # in the driver
        ("merge_bench.merge.worker", "numba|pandas|polars"),  # in Dask's scheduler, which answers nobody meanwhile
        ("merge_bench.merge.engines.native", "pandas|polars"),  # in workers, unless their keys need Polars
    ]
    assert python(IMPORTS.format(steps=steps)) == [*(f"{module} []" for module, _ in steps), "False"]
