"""The state of a GPU's machine, the multi-process service, and the packed result. nvidia-smi's text is synthetic."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from benchmarks.on_gpu import machine_state, mps, packing
from benchmarks.on_gpu.runs import Merge
from benchmarks.processes import Document
from merge_bench.errors import RunFailed
from tests.benchmarks.test_on_gpu import document

QUERY = """
==============NVSMI LOG==============

Driver Version                            : 580.159.04
CUDA Version                              : 13.0

GPU 00000000:00:06.0
    Product Name                          : NVIDIA H200
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Compute Mode                          : Default
    ECC Mode
        Current                           : Enabled
    GPU Power Readings
        Power Draw                        : 76.20 W
        Current Power Limit               : 700.00 W
    Clocks
        Graphics                          : 345 MHz
        SM                                : 345 MHz
        Memory                            : 3201 MHz
    Max Clocks
        SM                                : 1980 MHz
"""


def test_the_state_is_read_from_what_nvidia_smi_prints() -> None:
    found = machine_state.read_query(QUERY)
    assert found == {
        "driver": "580.159.04",
        "cuda": "13.0",
        "product": "NVIDIA H200",
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "mig_mode": "Disabled",
        "ecc_mode": "Enabled",
        "power_limit": "700.00 W",
        "power_draw": "76.20 W",
        "sm_clock": "345 MHz",
        "memory_clock": "3201 MHz",
        "most_sm_clock": "1980 MHz",
        "most_memory_clock": None,
    }
    assert set(machine_state.read_query("").values()) == {None}


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_the_text_is_kept_and_a_machine_without_nvidia_smi_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "query").write_text(QUERY + "x" * 100_000)
    script(tmp_path, "nvidia-smi", f"cat {tmp_path}/query")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = machine_state.machine_state(tmp_path / "logs")
    assert (found["driver"], found["nvidia_smi"]) == ("580.159.04", None)
    assert (tmp_path / "logs" / "nvidia-smi.out").stat().st_size == machine_state.MOST_BYTES
    monkeypatch.setenv("PATH", str(tmp_path / "logs"))
    assert machine_state.machine_state(tmp_path / "logs")["nvidia_smi"] == "nvidia-smi was not found"


# --- MPS -------------------------------------------------------------------------------------------------------------

DAEMON = """
if [ "$1" = -d ]; then
    sleep 60 &
    echo $! > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
    echo start "$CUDA_MPS_LOG_DIRECTORY" >> CALLS
else
    read word
    echo "$word" >> CALLS
    QUIT
fi
"""


def daemons(folder: Path, monkeypatch: pytest.MonkeyPatch, quits: str) -> Path:
    calls = folder / "calls"
    kill = 'kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid")"' if quits else ":"
    script(folder, mps.CONTROL, DAEMON.replace("CALLS", str(calls)).replace("QUIT", kill))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return calls


@pytest.mark.parametrize("quits", ["at once", ""])
def test_the_daemon_is_ended_also_when_it_does_not_quit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quits: str
) -> None:
    calls = daemons(tmp_path, monkeypatch, quits)
    with mps.daemon(tmp_path / "logs") as variables:
        pipes = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        number = int((pipes / "nvidia-cuda-mps-control.pid").read_text())
        os.kill(number, 0)
    assert calls.read_text().splitlines() == [f"start {tmp_path / 'logs'}", "quit -t 5"]
    state = Path(f"/proc/{number}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
    assert not pipes.exists()


def test_a_daemon_that_runs_is_seen(tmp_path: Path) -> None:
    script(tmp_path, mps.CONTROL, "read word")
    with subprocess.Popen([tmp_path / mps.CONTROL], stdin=subprocess.PIPE) as daemon:
        assert machine_state.mps_is_running()
        daemon.communicate(b"quit\n")


def test_two_workers_are_measured_off_on_on_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemons(tmp_path, monkeypatch, "at once")
    seen: list[tuple[str, bool]] = []

    def run(merge: Merge, name: str, folder: Path, limit: float, variables: dict[str, str]) -> Document:
        seen.append((name, "CUDA_MPS_PIPE_DIRECTORY" in variables))
        return document(wall_seconds={"median": 0.010 if variables else 0.020})

    found = mps.compare(Merge(2, 2, 1_000_000), "mps", tmp_path, 100, None, run=run, running=lambda: False)
    assert seen == [("mps-0-off", False), ("mps-1-on", True), ("mps-2-on", True), ("mps-3-off", False)]
    assert found.figures["ratio"] == 2.0
    assert found.sentence == "without MPS 20.00 ms per merge, with MPS 10.00 ms: 2.00 times as fast"


def test_mps_that_is_missing_or_runs_already_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mps.compare(Merge(2, 2, 10), "mps", tmp_path, 9, None).skipped
    script(tmp_path, mps.CONTROL, "exit 1")
    assert mps.compare(Merge(2, 2, 10), "mps", tmp_path, 9, None, running=lambda: True).skipped
    with pytest.raises(RunFailed, match="-d ended with status 1"), mps.daemon(tmp_path / "logs"):
        pass


# --- the packed result -----------------------------------------------------------------------------------------------


def packed(target: Path) -> dict[str, int]:
    with tarfile.open(target) as archive:
        return {entry.name: entry.size for entry in archive.getmembers()}


def test_logs_are_cut_and_timelines_and_cores_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-1"
    (folder / "logs").mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    (folder / "logs" / "long.err").write_bytes(b"old" * 200_000 + b"the end")
    (folder / "timeline-0.json").write_text("[]")
    (folder / "core.77").write_bytes(b"\0" * 10)
    (folder / "records.jsonl").write_bytes(b"x" * (packing.MOST_FILE_BYTES + 1))
    target = folder / "packed.tar.gz"
    left_out = packing.pack(folder, target)
    assert sorted(left_out) == ["core.77", "records.jsonl", "timeline-0.json"]
    assert packed(target) == {"gpu-1/summary.json": 2, "gpu-1/logs/long.err": packing.MOST_LOG_BYTES}
    with tarfile.open(target) as archive:
        cut = archive.extractfile("gpu-1/logs/long.err")
        assert cut is not None
        assert cut.read().endswith(b"the end")
    packing.pack(folder, target)  # again: the packed file does not contain itself
    assert "gpu-1/packed.tar.gz" not in packed(target)


def test_the_packed_file_stays_small_and_records_come_before_logs(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-1"
    folder.mkdir()
    (folder / "a.log").write_bytes(os.urandom(60_000))
    (folder / "b.log").write_bytes(b"short")
    (folder / "records.jsonl").write_bytes(os.urandom(20_000))
    target = tmp_path / "packed.tar.gz"
    assert packing.pack(folder, target, most=40_000) == ["a.log"]
    assert target.stat().st_size <= 40_000
    assert set(packed(target)) == {"gpu-1/records.jsonl", "gpu-1/b.log"}
