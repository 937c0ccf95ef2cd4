"""RAPIDS' shuffle alone: its rounds with a fake of rapidsmpf, the summary, and how it ends without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.on_gpu import rapidsmpf_shuffle as program
from merge_bench.merge.engines import gpu_memory
from tests.helpers import fake_rapidsmpf
from tests.helpers.runs import ROOT


def rounds_of_one_process(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The lines of one process that shuffles with itself."""
    for name, module in fake_rapidsmpf.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    gpu_memory.bind_cuda_context()
    words = ["--rows", "500,1e3", "--rounds", "2", "--processes", "1", "--pool", "1e6", "--output", str(file)]
    arguments = program.parse([*words, "--progress", "thread-polling"])
    rank = program.Rank(0, arguments, program.Log(str(file), 0))
    rank.connect([], arguments.progress)
    for rows in arguments.rows:
        rank.measure(rows, arguments.rounds)
    rank.finish()
    return program.read_lines(str(file))


@pytest.mark.usefixtures("rapids")
def test_rounds_are_timed_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = rounds_of_one_process(tmp_path / "lines.jsonl", monkeypatch)
    assert [line["warmup"] for line in lines if line["what"] == "round"] == [True, False, False] * 2
    assert lines[-1]["what"] == "done"
    for found, rows in zip(program.summarise(lines, 1), (500, 1000), strict=True):
        assert (found["rows"], found["rounds"], found["right"]) == (rows, 2, True)
        assert 0 < found["shuffle_seconds"] < found["seconds"]


@pytest.mark.usefixtures("rapids")
@pytest.mark.parametrize("change", [{"received": 499}, {"received_sum": 1}, {"payloads_right": False}])
def test_wrong_rows_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]) -> None:
    lines = rounds_of_one_process(tmp_path / "lines.jsonl", monkeypatch)
    next(line for line in lines if line["what"] == "checked").update(change)
    assert [each["right"] for each in program.summarise(lines, 1)] == [False, True]


def test_what_a_summary_is_of() -> None:
    def line(rank: int, number: int, shuffle: float) -> dict[str, Any]:
        seconds = {"partition_seconds": 1.0, "shuffle_seconds": shuffle, "unpack_seconds": 1.0}
        return {
            "what": "round",
            "rows": 10,
            "rank": rank,
            "number": number,
            "warmup": number == 0,
            "sent_bytes": 80,
            **seconds,
        }

    lines = [line(rank, number, rank + number) for rank in range(2) for number in range(4)]
    lines.append(line(0, 4, 100.0))  # the other process did not end this round
    (found,) = program.summarise(lines, 2)
    assert (found["rounds"], found["shuffle_seconds"], found["seconds"]) == (3, 3.0, 5.0)
    assert found["gigabytes_per_second"] == pytest.approx(80 / 3.0 / 1e9)
    assert not found["right"]


def test_without_the_package_it_ends_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    words = ["--rows", "100", "--seconds", "40", "--pool", "1e6", "--output", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", program.__name__, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    failed = [line for line in program.read_lines(str(file)) if line["what"] == "failed"]
    assert {line["rank"] for line in failed} <= {0, 1}
    assert failed
