"""The notebooks are committed without outputs; `python_api.ipynb` runs from top to bottom in a fresh clone.

`tests/browser/test_pages.py` runs `dashboard.ipynb`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.helpers.runs import ROOT, environment

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
    """What an export to HTML holds. Without a result it is the command that makes one, as in `test_live_tab.py`."""
    import nbformat
    from nbclient import NotebookClient

    folder = shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    book = nbformat.read(folder / "dashboard.ipynb", 4)
    client = NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    shutil.copytree(ROOT / "tests" / "data" / "campaigns" / "run", tmp_path / "results" / "run")
    client.execute()
    (page,) = [
        output.data["text/html"]
        for cell in book.cells
        for output in cell.get("outputs", [])
        if output.output_type == "execute_result"
    ]
    assert "python -m merge_bench run --chunk 1e6" not in page
    assert "20261122T105951Z-tcp-e0a9d0" in page


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
    sweep.source = sweep.source.replace("workers=2, iterations=5,", "workers=1, iterations=5, blocks=1, link_rounds=0,")
    assert "blocks=1" in sweep.source  # two small launches are enough here
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    errors = [output.get("text", "") for output in outputs if output.get("name") == "stderr"]
    assert not [output for output in outputs if output.output_type == "error"]
    said = re.compile(r"busy-host|quiet host|launches take about|left, as the first launch took|\d:\d\d \d of \d: ")
    assert not [line for text in errors for line in text.splitlines() if not said.search(line)]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert not (tmp_path / "results").exists()
