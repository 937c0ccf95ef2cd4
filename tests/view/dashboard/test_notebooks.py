"""The notebooks are committed without outputs; `python_api.ipynb` runs from top to bottom in a fresh clone.

`tests/browser/test_jupyterlab.py` runs `dashboard.ipynb`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.runs import ROOT, environment

if TYPE_CHECKING:
    from nbclient import NotebookClient

NOTEBOOKS = ROOT / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_both_notebooks_are_there() -> None:
    assert NAMES == ["dashboard.ipynb", "python_api.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    for cell in json.loads((NOTEBOOKS / name).read_bytes())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_the_dashboard_that_was_executed_without_a_page_shows_the_newest_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an export to HTML holds: the command that makes a result; once there is one, that."""
    import nbformat
    from nbclient import NotebookClient

    folder = shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    book = nbformat.read(folder / "dashboard.ipynb", 4)
    client = NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():  # one for both, because it takes seconds to start
        empty = page_of(client)
        shutil.copytree(ROOT / "tests" / "data" / "campaigns" / "run", tmp_path / "results" / "run")
        filled = page_of(client)
    for page, result in ((empty, False), (filled, True)):
        assert ("python -m merge_bench run --chunk 1e6" in page) != result
        assert ("This folder contains no run yet" in page) != result
        assert ("20261122T105951Z-tcp-e0a9d0" in page) == result


def page_of(client: NotebookClient) -> str:
    """The one result that the cells have, as HTML."""
    cells = [client.execute_cell(cell, number) for number, cell in enumerate(client.nb.cells)]
    (page,) = [
        output.data["text/html"]
        for cell in cells for output in cell.get("outputs", []) if output.output_type == "execute_result"
    ]  # fmt: skip
    return str(page)


@pytest.mark.cluster
def test_the_notebook_of_the_functions_runs_where_no_run_was_made_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat  # which take long to import
    from nbclient import NotebookClient

    folder = shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    for key in [key for key in os.environ if key.startswith(("MERGE_BENCH_", "UCX", "DASK_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    book = nbformat.read(folder / "python_api.ipynb", 4)
    (sweep,) = (cell for cell in book.cells if "merge_bench.run(" in cell.source)
    sweep.source = sweep.source.replace("iterations=5,", "iterations=5, blocks=1,")  # two launches are enough here
    assert "blocks=1" in sweep.source
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    errors = [output.get("text", "") for output in outputs if output.get("name") == "stderr"]
    assert not [output for output in outputs if output.output_type == "error"]
    said = re.compile("busy-host|quiet host|launches take about|left, as the first launch took")
    assert not [line for text in errors for line in text.splitlines() if not said.search(line)]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert not (tmp_path / "results").exists()
