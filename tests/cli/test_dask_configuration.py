"""A Dask configuration that cannot be read or does not fit: one sentence, status 2, for every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ("run", "--chunk", "1e4", "--workers", "2", "--dry-run")


def merge_bench(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-m", "merge_bench", *words],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [SMALL, ("check", "default.cfg"), ("probe", "p2p", "--dry-run"), ("tune", "--dry-run")]
)
def test_a_broken_file_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "dask" / "jobqueue.yaml"
    file.parent.mkdir()
    file.write_text("jobqueue:\n  slurm:\n    cores: [1\n")
    done = merge_bench(tmp_path, *words, DASK_CONFIG=str(file.parent))
    assert done.returncode == 2, done.stderr
    assert [line for line in done.stderr.splitlines() if "warning" not in line] == [done.stderr.splitlines()[-1]]
    assert f"{file}: Dask cannot read this configuration" in done.stderr
    assert "line 4" in done.stderr


@pytest.mark.slow
def test_encryption_that_is_required(tmp_path: Path) -> None:
    file = tmp_path / "dask" / "distributed.yaml"
    file.parent.mkdir()
    file.write_text("distributed:\n  comm:\n    require-encryption: true\n")
    asked = (*SMALL, "--protocol", "tcp")
    refused = merge_bench(tmp_path, *asked, DASK_CONFIG=str(file.parent))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"{file} sets distributed.comm.require-encryption" in refused.stderr
    named = merge_bench(tmp_path, *asked, DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION="True")
    assert "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION sets" in named.stderr
    obeyed = merge_bench(tmp_path, *SMALL, DASK_CONFIG=str(file.parent))
    assert obeyed.returncode == 0
    assert "--protocol tls" in obeyed.stdout or "tls" in obeyed.stdout


@pytest.mark.slow
def test_query_planning_that_is_off(tmp_path: Path) -> None:
    off = {"DASK_DATAFRAME__QUERY_PLANNING": "False"}
    refused = merge_bench(tmp_path, *SMALL, "--exchange", "dask", **off)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "DASK_DATAFRAME__QUERY_PLANNING sets dataframe.query-planning to False" in refused.stderr
    assert merge_bench(tmp_path, *SMALL, **off).returncode == 0
