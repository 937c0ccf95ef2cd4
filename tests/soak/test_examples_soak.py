"""Every command of the docs that can be run here, with smaller sizes, in a folder with the files that it names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.config.shipped import find_shipped_file
from tests.campaign.importing.texts import text
from tests.helpers.runs import environment
from tests.project.examples import Example, all_examples, read_table

pytestmark = [pytest.mark.soak, pytest.mark.cluster]

RUNS = read_table().runs
EXAMPLES = {example.key: example for example in all_examples() if example.key in RUNS}
CAMPAIGNS = {"TCP": "run", "SWEEP": "sweep", "BEFORE": "baseline", "P2P": "p2p", "MPI": "mpi"}
BASELINE = "--config optimized.cfg --launches 2 --results results/baseline --chunk 2e4 --iterations 2"
SECONDS = 660.0  # a tuning on a busy host takes all of its ten minutes


def execute(folder: Path, program: str, words: str) -> subprocess.CompletedProcess[str]:
    """A command as a user types it, in `folder`; its shell makes names of the stars."""
    temp = folder / "temp"
    temp.mkdir(exist_ok=True)
    shell = ["bash", "-c", f"{sys.executable} -m {program} {words}"]
    return subprocess.run(
        shell, cwd=folder, env=environment(temp), capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name in ("mine", "known", "new", "SERVER"):
        shutil.copy(find_shipped_file("tcp"), folder / f"{name}.cfg")
    keys = pa.array(np.arange(2000))
    for name in ("ORDERS", "LINES"):
        (folder / name).mkdir()
        pq.write_table(pa.table({"ID": keys, f"{name}_number": keys}), folder / name / "0.parquet", row_group_size=500)
    pq.write_table(pa.table({"ORDER_ID": keys, "number": keys}), folder / "LINES-1.parquet", row_group_size=500)
    (folder / "cudf-merge.out").write_text(text())
    recorded = Path(__file__).parents[1] / "data" / "campaigns"
    for name, kind in CAMPAIGNS.items():
        (folder / "results" / name).mkdir(parents=True)
        shutil.copy(recorded / kind / "records.jsonl", folder / "results" / name)
    done = execute(folder, "merge_bench", BASELINE)
    assert done.returncode == 0, done.stderr
    for name in ("main", "change"):
        shutil.copytree(folder / "results" / "baseline", folder / "results" / name)
    return folder


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))
def test_an_example_of_the_docs_runs(prepared: Path, tmp_path: Path, example: Example) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    done = execute(folder, example.program, RUNS[example.key].removeprefix(example.program))
    assert done.returncode == 0, f"{RUNS[example.key]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.stdout.strip()
