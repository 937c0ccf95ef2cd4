"""Network measurements on this machine, as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from merge_bench.records.reader import read_campaign
from tests.helpers.runs import LIMIT, command, environment
from tests.probe.polling import polls

pytestmark = pytest.mark.cluster

SILENCE = 120  # seconds after which a worker that says nothing is given up, if nobody has noticed that it was killed


def start(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "merge_bench", "probe", *arguments, "--results", str(tmp_path / "results")],
        env=environment(tmp_path / "tmp", variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )


def config(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / f"{name}.cfg"
    path.write_text(text)
    return str(path)


def test_p2p_measures_configs_in_turn_and_names_the_transports(tmp_path: Path) -> None:
    """The second config does not get all that it asks for, and its rows are marked."""
    asked = {"shared": "sysv,cma", "unmet": "tcp,rc"}
    selected = {"shared": {"sysv/memory", "cma/memory"}, "unmet": {"tcp/lo"}}
    shared, unmet = (config(tmp_path, name, f"UCX_TLS={tls}\n") for name, tls in asked.items())
    options = ("--baseline", shared, "--config", unmet, "--sizes", "8,65536", "--repetitions", "1")
    finished = command(tmp_path, *options, "--iterations", "50", "--allow-unknown", verb=("probe", "p2p"))
    document = finished.check_ended(0).document
    rows = document["rows"]
    assert document["error"] is None
    assert {(r["config"], r["test"], r["size"]) for r in rows} == {
        (c, t, s) for c in asked for t in ("tag_lat", "tag_bw") for s in (8, 65536)
    }
    for row in rows:
        assert row["launches"] == 1
        assert 0 < row["seconds_range"][0] <= row["seconds"] <= row["seconds_range"][1]
        assert row["bandwidth_bytes_per_second"] > 0
        assert row["as_requested"] is (row["config"] != "unmet")
        assert row["placement"] == "one-host"
        assert set(row["selected_transports"]) == selected[row["config"]]
        assert row["requested_transports"]["UCX_TLS"] == asked[row["config"]]
        assert ("window 32" in row["method"]) == (row["test"] == "tag_bw")
        assert row["protocol"]
    campaign = read_campaign(document["records"])
    assert campaign.probe == "p2p"
    assert {launch.line.config for launch in campaign.launches if launch.line} == set(asked)


def _client(process: subprocess.Popen[str]) -> psutil.Process:
    """The side of ucx_perftest that sends."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                line = child.cmdline()
            except psutil.Error:
                continue
            if line and line[0].endswith("ucx_perftest") and line[1] != "-p" and len(line) > 2:
                return child
        time.sleep(0.01)
    raise AssertionError("no ucx_perftest was started")


def test_a_killed_worker_takes_its_tool_along(tmp_path: Path) -> None:
    slow = config(tmp_path, "tcp", "UCX_TLS=tcp\n")
    options = ("--sizes", "4M", "--iterations", "100000", "--repetitions", "1", "--json")
    process = start(tmp_path, "p2p", "--config", slow, *options)
    tool = _client(process)
    os.kill(tool.ppid(), signal.SIGKILL)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 3
    assert "killed by signal 9" in errors
    deadline = time.monotonic() + LIMIT
    while tool.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not tool.is_running()


def _workers(tmp_path: Path, process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The workers by rank, once they are recorded and both poll, as they do while one puts into the other."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        for records in (tmp_path / "results").glob("*/records.jsonl"):
            if '"kind":"launch"' not in records.read_text():
                continue
            for launch in read_campaign(records).launches:
                found = [psutil.Process(worker.pid) for worker in launch.line.workers] if launch.line else []
                if found and all(polls(each.pid) for each in [*found, *found]):
                    return found
        time.sleep(0.05)
    process.terminate()
    raise AssertionError(f"nothing was put: {process.communicate(timeout=LIMIT)}")


# Over tcp the end of a worker is also noticed by its peers, as tests/hosts/test_faults.py has it.
@pytest.mark.parametrize("transports", [pytest.param("tcp", marks=pytest.mark.soak), "sysv,cma"])
def test_a_killed_target_of_puts_is_named_in_time_and_nothing_is_left(tmp_path: Path, transports: str) -> None:
    asked = config(tmp_path, "asked", f"UCX_TLS={transports}\n")
    options = ("--sizes", "4M", "--iterations", "1000000", "--repetitions", "1", "--json", "--timeout", str(SILENCE))
    process = start(tmp_path, "rma", "--config", asked, *options)
    source, target = _workers(tmp_path, process)
    started = [source, target, *psutil.Process(process.pid).children(recursive=True)]
    target.kill()
    killed = time.monotonic()
    output, errors = process.communicate(timeout=LIMIT)
    assert time.monotonic() - killed < SILENCE / 2
    assert process.returncode == 3, errors
    assert "Traceback" not in errors
    error = json.loads(output)["error"]
    assert (error["code"], error["rank"]) == ("worker-died", 1)
    assert "rank 1" in error["message"]
    assert not [each for each in started if each.is_running()]
    assert not list((tmp_path / "tmp").glob("merge-bench-*"))
