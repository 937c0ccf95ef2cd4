"""Whether a process polls, however little time a busy machine gives it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path


def polls(pid: int) -> bool:
    """Whether a thread of the process hardly ever sleeps: it is ready to run in eight of ten looks within 0.2 s."""
    ready: Counter[str] = Counter()
    for _ in range(10):
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                ready[thread.name] += (thread / "stat").read_text().rpartition(") ")[2].startswith("R")
        time.sleep(0.02)
    return max(ready.values(), default=0) >= 8
