"""`--wait-for-quiet` on a host that is kept busy: Ctrl-C ends the wait at once, and nothing was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from merge_bench.records.schema import CampaignEndLine, LaunchLine
from tests.helpers.runs import SMALL, start


def test_ctrl_c_ends_the_wait_at_once(tmp_path: Path) -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range((len(os.sched_getaffinity(0)) + 1) // 2)]
    try:
        running = start(tmp_path, *SMALL, "--wait-for-quiet", "10m")
        running.until(lambda: "waiting" in (running.temp / "stderr").read_text(), "the wait")
        began = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        finished = running.finish()
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert time.monotonic() - began < 20.0
    assert finished.status == 3, finished.shown()
    assert "Traceback" not in finished.errors
    assert "cores busy (pid " in finished.errors  # on a busy machine these may be others
    assert finished.of(LaunchLine) == []
    assert [line.status for line in finished.of(CampaignEndLine)] == [3]
    finished.check_clean()
