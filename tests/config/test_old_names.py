"""The names of 2022 and of UCX-Py."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.config.old_names import no_effect, translate_config
from merge_bench.config.options import BY_VARIABLE
from merge_bench.config.reader import read_config
from merge_bench.errors import UsageError


def translated(folder: Path, text: str):  # type: ignore[no-untyped-def]
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
    assert no_effect("JOB_DIR")


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
