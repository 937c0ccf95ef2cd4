"""The notebooks run from top to bottom in a fresh clone, and are committed without outputs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.runs import ROOT, environment

NOTEBOOKS = ROOT / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_both_notebooks_are_there() -> None:
    assert NAMES == ["dashboard.ipynb", "python_api.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    for cell in nbformat.read(NOTEBOOKS / name, 4).cells:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.cluster
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_top_to_bottom_where_no_run_was_made_yet(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    for key in [key for key in os.environ if key.startswith(("MERGE_BENCH_", "UCX", "DASK_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    book = nbformat.read(folder / name, 4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    if name == "dashboard.ipynb":
        assert any("application/vnd.holoviews_exec.v0+json" in output.get("data", {}) for output in outputs)
        assert "https://cdn." not in "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    else:
        assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert not (tmp_path / "results").exists()
