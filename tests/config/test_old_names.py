"""The names of 2022 and of UCX-Py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from merge_bench.config.options import BY_VARIABLE
from merge_bench.config.reader import read_config
from merge_bench.config.variables import NO_EFFECT, OLD_NAMES, translate_config
from merge_bench.errors import UsageError


def translated(folder: Path, text: str):
    path = folder / "cluster.cfg"
    path.write_text(text)
    return translate_config(read_config(path, {}))


def test_the_problem_of_a_2022_cluster_cfg(tmp_path: Path) -> None:
    text = "NUM_ITERATIONS=100\nCHUNK_SIZE=25_000_000\nLISTEN_INTERFACE=ib0\nVERIFY_RESULTS=true\nJOB_DIR=/scratch\n"
    found = translated(tmp_path, text)
    assert {name: variable.value for name, variable in found.options.items()} == {
        "MERGE_BENCH_ITERATIONS": "100",
        "MERGE_BENCH_CHUNK": "25_000_000",
        "MERGE_BENCH_INTERFACE": "ib0",
        "MERGE_BENCH_VERIFY": "ends",
    }
    assert found.options["MERGE_BENCH_CHUNK"].line == 2
    assert set(found.options) <= set(BY_VARIABLE)
    assert NO_EFFECT["JOB_DIR"]


def test_polling_of_ucx_py_whatever_its_value(tmp_path: Path) -> None:
    found = translated(tmp_path, "UCXPY_NON_BLOCKING_MODE=0\nUCX_TLS=tcp\n")
    assert {name: variable.value for name, variable in found.environment.items()} == {
        "UCXPY_PROGRESS_MODE": "polling",
        "UCX_TLS": "tcp",
    }


def test_a_new_name_beside_an_old_one_counts(tmp_path: Path) -> None:
    found = translated(tmp_path, "MERGE_BENCH_CHUNK=1e6\nCHUNK_SIZE=2e6\n")
    assert found.options["MERGE_BENCH_CHUNK"].value == "1e6"
    assert found.shadowed == {"CHUNK_SIZE": "MERGE_BENCH_CHUNK"}


def test_a_value_without_counterpart_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cluster\.cfg:2: VERIFY_RESULTS: 'maybe' is not yes or no"):
        translated(tmp_path, "\nVERIFY_RESULTS=maybe\n")


READ_BY_DASK = """
import json, sys
import distributed
from distributed_ucxx.config import get_ucx_config, setup_config
setup_config()
print(json.dumps({name: get_ucx_config(name.rpartition("__")[2].lower().replace("_", "-")) for name in sys.argv[1:]}))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("distributed_ucxx") is None, reason="needs distributed-ucxx")
def test_retired_names_of_dask_are_read_by_nothing_and_their_successors_are() -> None:
    def read(names: list[str]) -> dict[str, object]:
        """What distributed-ucxx makes of a process's environment with these variables."""
        command = [sys.executable, "-W", "ignore", "-c", READ_BY_DASK, *names]
        environment = {**os.environ, **dict.fromkeys(names, "True")}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        values: dict[str, object] = json.loads(found.stdout)
        return values

    retired = [name for name in OLD_NAMES if re.match("DASK_(DISTRIBUTED__)?UCX__", name)]
    successors = [re.search(r"write (DASK_\w+),", NO_EFFECT.get(name, "")) for name in retired]
    present = sorted({each[1] for each in successors if each})
    assert len(retired) == 14
    assert read(retired) == dict.fromkeys(retired)
    assert len(present) == 5
    assert read(present) == dict.fromkeys(present, True)
