"""What becomes of ucc_perftest's lines: `probe reduce-scatter` over one that prints what recorded ones do.

The first of two ranks runs in this process, without MPI; `test_ucc_runs` has whole campaigns.
"""

from __future__ import annotations

import io
import os
import runpy
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from merge_bench.config.options import RunOptions
from merge_bench.errors import LaunchFailed, WarningMessage
from merge_bench.probe.ranks.launch import RankSession
from merge_bench.probe.ranks.mpirun import OPEN_MPI, MpiInstallation
from merge_bench.probe.reduce_scatter import ReduceScatterOptions, make_probe
from merge_bench.records.schema import ProbeLine, Worker
from tests.probe.fake_ucc import fake_ucc


class FirstRank(RankSession):
    """A session that runs the first rank in this process, and keeps what is recorded."""

    def __init__(self) -> None:
        self.rows: list[ProbeLine] = []
        self.warnings: list[WarningMessage] = []
        given: Any = SimpleNamespace(
            plan=SimpleNamespace(workers=2),
            settings=SimpleNamespace(start_timeout=60.0),
            progress=SimpleNamespace(show_phase=lambda text: None),
            writer=SimpleNamespace(write=self.rows.append),
        )
        self.plan, self.settings, self.progress, self.writer = given.plan, given.settings, given.progress, given.writer
        self.mpi, self.launch, self.silence = MpiInstallation(OPEN_MPI, "5.0.11", "/env/bin/mpirun"), 0, 60.0
        self.workers = [Worker(rank=rank, host="node0", pid=1, name="") for rank in range(2)]

    def run_ranks(self, work: Mapping[str, Any], hosts: Any = None) -> Iterator[Any]:
        assert work["algorithms"] == []
        return iter(())

    def start_ranks(self, work: Mapping[str, Any], hosts: Any = None, extra_variables: Any = None, **more: bool) -> Any:
        environ, printed = {**extra_variables, "OMPI_COMM_WORLD_RANK": "0"}, io.StringIO()
        with patch.dict(os.environ, environ), patch.object(sys, "argv", work["execute"]), redirect_stdout(printed):
            runpy.run_path(work["execute"][0])
        return printed.getvalue()

    def read_rank_output(self, ranks: Any, first: float, silence: float) -> Iterator[str]:
        yield from ranks.splitlines()

    def record_warning(self, caution: WarningMessage) -> None:
        self.warnings.append(caution)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FirstRank:
    monkeypatch.delenv("OMPI_MCA_pml", raising=False)
    return FirstRank()


def measure(session: FirstRank, monkeypatch: pytest.MonkeyPatch, folder: Path, asked: dict[str, str], **fake: Any):
    """Measure on two ranks with an ucc_perftest as of `fake_ucc`."""
    monkeypatch.setenv("PATH", fake_ucc(folder / "bin", **fake)["PATH"])
    probe = make_probe(ReduceScatterOptions(**{"algorithms": "ucc-ucp", "iterations": 7, **asked}), RunOptions())
    probe.measure_and_record(session)


def test_rows_are_called_what_carried_them(session: FirstRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"counts": "16Ki..64Ki", "algorithms": "ucc-sharp,ucc-ucp"}
    measure(session, monkeypatch, tmp_path, asked, sharp_from=16384)
    assert [(row.test, row.count, row.protocol, row.as_requested) for row in session.rows] == [
        ("ucc-ucp (sharp asked for)", 16384, "TL_UCP", False),
        ("ucc-sharp", 32768, "TL_SHARP", None),
        ("ucc-sharp", 65536, "TL_SHARP", None),
        ("ucc-ucp", 16384, "TL_UCP", None),
        ("ucc-ucp", 32768, "TL_UCP", None),
        ("ucc-ucp", 65536, "TL_UCP", None),
    ]
    (warning,) = session.warnings
    assert warning.code == "sharp-missing"
    assert "UCC reports no reason" in warning.message


def test_that_sharp_is_missing_is_one_warning(
    session: FirstRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(session, monkeypatch, tmp_path, {"counts": "32Ki..256Ki", "algorithms": "ucc-sharp"})
    assert {row.test for row in session.rows} == {"ucc-ucp (sharp asked for)"}
    (warning,) = session.warnings
    assert warning.code == "sharp-missing"
    assert "UCC reports “tl sharp is not available”" in warning.message


def test_a_line_that_contradicts_itself_is_an_error_and_the_others_are_kept(
    session: FirstRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LaunchFailed, match=r"ucc_perftest: its bandwidth for 128 elements.* does not match its"):
        measure(session, monkeypatch, tmp_path, {"counts": "2..64Ki"}, wrong_at=64)
    assert [row.count for row in session.rows] == [2 << n for n in range(16) if n != 6]


def test_an_early_end_is_an_error(session: FirstRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchFailed, match="ucc_perftest: it ended before the line for 32,768 elements"):
        measure(session, monkeypatch, tmp_path, {"counts": "16Ki..64Ki"}, most=1)
    assert [row.count for row in session.rows] == [16384]
