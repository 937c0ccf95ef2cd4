"""A hundred faults, each in a campaign of its own: nothing is left, and the records say what happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from tests.command.test_run_command import processes_with

COMMANDS = {
    "hangs": ("sleep MARK", "command-timeout"),
    "ignores TERM": ("trap '' TERM INT HUP; while :; do sleep MARK; done", "command-timeout"),
    "stops itself": ("kill -STOP $$", "command-timeout"),
    "forks away": ("(setsid sh -c 'sleep MARK & sleep MARK' &) ; setsid sleep MARK & exit 0", None),
    "forks away and ignores signals": (
        "(setsid sh -c \"trap '' TERM HUP; sleep MARK; sleep MARK\" &) ; exit 3",
        "command-failed",
    ),
    "prints much": ("yes | head -c 100M; yes | head -c 20M >&2", None),
    "prints for ever": ("yes MARK", "command-timeout"),
    "closes its output": ("exec >&- 2>&-; sleep 0.1", None),
    "is killed": ("sleep MARK & kill -9 $$", "command-failed"),
    "kills its group": ("sleep MARK & sleep 0.1; kill -9 0", "command-failed"),
}
"""Lines of a shell, and the code of the failure that is recorded, None for a launch that is complete."""
PROGRAM_FAULTS = ("warden is killed", "driver is killed", "driver gets SIGINT", "driver gets SIGTERM")


def wardens_of(driver: int) -> list[int]:
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    return [int(pid) for pid in children if b"command.warden" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wait_until_gone(mark: str) -> None:
    deadline = time.monotonic() + 30.0
    while left := processes_with(mark):
        assert time.monotonic() < deadline, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
        time.sleep(0.02)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.chdir(tmp_path)
    mark = f"300.{number:03}{os.getpid():07}"
    kinds = [*COMMANDS, *PROGRAM_FAULTS]
    kind = kinds[number % len(kinds)]
    line, code = COMMANDS.get(kind, ("(setsid sleep MARK &); sleep MARK & touch started; sleep MARK", None))
    words = [sys.executable, "-m", "merge_bench", "exec", "--launches", "2"]
    words += ["--timeout", "700ms" if code == "command-timeout" else "5m"]
    words += ["--", "sh", "-c", line.replace("MARK", mark)]
    driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if kind in PROGRAM_FAULTS:
        while not Path("started").exists():
            time.sleep(0.01)
        time.sleep(random.Random(number).uniform(0.0, 0.3))
        if kind == "warden is killed":
            Path("started").unlink()
            os.kill(wardens_of(driver.pid)[0], signal.SIGKILL)
            while not Path("started").exists():
                time.sleep(0.01)
        name = {"driver is killed": signal.SIGKILL, "driver gets SIGTERM": signal.SIGTERM}
        driver.send_signal(name.get(kind, signal.SIGINT))
    said = driver.communicate(timeout=120)[1]
    wait_until_gone(mark)
    assert not wardens_of(os.getpid())
    assert "Traceback" not in said
    (entry,) = ResultsFolder("results").entries()
    campaign = read_campaign(entry.folder)
    if kind in PROGRAM_FAULTS:
        assert campaign.launches[-1].interrupted
        assert driver.returncode == (-signal.SIGKILL if kind == "driver is killed" else 3)
        assert [each.failures[0].code for each in campaign.launches[:-1]] == ["command-failed"] * (
            kind == "warden is killed"
        )
        return
    assert [[failure.code for failure in each.failures] for each in campaign.launches] == [[code] if code else []] * 2
    assert driver.returncode == (3 if code else 0)
    assert campaign.end is not None
