"""The command itself, with few rows and the peers that are quick."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.processes import run_limited

ROOT = Path(__file__).resolve().parents[2]
QUICK = "polars-streaming,duckdb-t*"


def command(results: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--chunk",
        "5e3",
        "--iterations",
        "2",
        "--blocks",
        "1",
        "--settle",
        "0",
        "--time-limit",
        "120",
        "--results",
        str(results),
        *more,
    ]


def lines(results: Path) -> list[dict]:
    (folder,) = results.iterdir()
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


@pytest.mark.soak
@pytest.mark.cluster
def test_compares_the_quick_peers_and_keeps_everything(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "--only", QUICK, "--workers", "1"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = lines(tmp_path)
    head, launches = records[0], [line for line in records if line["kind"] == "launch"]
    assert head["kind"] == "comparison"
    assert {"argv", "git", "versions", "hardware", "seed", "job"} <= head.keys()
    names = {"merge_bench", "polars-streaming", "duckdb-table"}
    assert {line["contender"] for line in launches} == names
    for line in launches:
        outcome = line["outcome"]
        assert outcome["verified"] is True
        assert outcome["rows"] == 1500
        assert len(outcome["wall_seconds"]) == 2
        assert outcome["peak_rss_bytes"] > 0
        assert line["left_over"] == 0
    order = next(line["order"] for line in records if line["kind"] == "block")
    assert order == [line["contender"] for line in launches]
    summary = {line["contender"]: line for line in records if line["kind"] == "summary"}
    assert summary["merge_bench"]["ratio"] is None
    assert summary["duckdb-table"]["ratio"]["blocks"] == 1
    assert records[-1]["status"] == 0
    table = next(tmp_path.iterdir()) / "table.md"
    assert all(name in table.read_text() for name in names)
    assert all(name in done.stdout for name in names)


def test_refuses_a_chunk_that_cannot_fit(tmp_path: Path) -> None:
    argv = command(tmp_path / "none", "--chunk", "1e13")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "the largest --chunk that fits" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.cluster
def test_interrupted_it_shows_what_there_is_and_leaves_nothing_running(tmp_path: Path) -> None:
    argv = command(tmp_path, "--only", "pandas", "--chunk", "1e5", "--iterations", "1000000")
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    me = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while not (started := me.children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    started = me.children(recursive=True) or started
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "interrupted" in err
    assert "merge_bench" in out
    assert started
    assert not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert lines(tmp_path)[-1]["kind"] == "end"


def test_a_command_past_its_limit_is_ended_with_all_it_started(tmp_path: Path) -> None:
    # In a process of its own: adopting orphans is not undone.
    program = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from benchmarks.processes import adopt_orphans, run_limited
        adopt_orphans()
        stubborn = ("import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
                    "subprocess.Popen(['sleep', '61.25'], start_new_session=True); time.sleep(60)")
        import benchmarks.processes as processes
        processes.GRACE_SECONDS = 0.5
        folder = Path(sys.argv[1])
        ended = run_limited([sys.executable, "-c", stubborn], os.environ, folder / "it", 2.0)
        print(ended.timed_out, ended.left_over)
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.stdout.split() == ["True", "1"], done.stderr
    alive = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "61.25"]]
    assert not alive


def test_what_a_command_says_is_kept(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"]
    ended = run_limited(argv, os.environ, tmp_path / "it", 30.0)
    assert (ended.status, ended.timed_out) == (7, False)
    assert ended.output.read_text() == "out\n"
    assert ended.errors.read_text() == "err\n"
    assert ended.failure == "status 7: err"
