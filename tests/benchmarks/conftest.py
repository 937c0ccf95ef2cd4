"""What tests of benchmarks share: launches of programs that are made up, and RAPIDS' libraries as fakes."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from benchmarks.peer import comparison
from benchmarks.peer.protocol import Job
from benchmarks.processes import Ended
from tests.helpers import fake_rapids


@dataclass(frozen=True)
class Launch:
    """One launch of a contender: the job as its process would read it, its environment, its limit in seconds."""

    contender: str
    job: Job
    environment: Mapping[str, str]
    limit: float


@dataclass
class Clock:
    """The functions of `time` that comparisons use; only they and the launches move it."""

    now: float = field(default_factory=time.monotonic)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Launches:
    """Programs of a comparison that end as the test says, and take no time but that of `clock`.

    `wall`: seconds of a merge in a launch; None: the launch fails at once; infinity: it reaches its limit. All others
    take a second. `all`: the launches so far.
    """

    wall: Callable[[Launch], float | None] = lambda launch: 1.0
    all: list[Launch] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def names(self) -> list[str]:
        """The contenders in the order of their launches."""
        return [launch.contender for launch in self.all]

    def run(self, argv: Sequence[str], environment: Mapping[str, str], stem: Path, limit: float) -> Ended:
        job = msgspec.json.decode(argv[-1], type=Job)
        launch = Launch(stem.name.split("-", 1)[1], job, environment, limit)
        self.all.append(launch)
        wall = self.wall(launch)
        late = wall == math.inf
        seconds = limit if late else 1.0
        self.clock.now += seconds
        output, errors = stem.with_suffix(".out"), stem.with_suffix(".err")
        errors.touch()
        if wall is None or late:
            output.touch()
            return Ended(-15 if late else 1, seconds, late, 0, output, errors)
        answer = {"name": launch.contender, "version": "1", "wall_seconds": [wall] * job.iterations, "rows": 600}
        output.write_text(json.dumps({**answer, "verified": True, "peak_rss_bytes": None}))
        return Ended(0, seconds, False, 0, output, errors)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Comparisons launch nothing, and nothing waits; the test sets how each launch ends."""
    made_up = Launches()
    monkeypatch.setattr(comparison, "run_limited", made_up.run)
    monkeypatch.setattr(comparison, "time", made_up.clock)
    return made_up


@pytest.fixture
def rapids(monkeypatch: pytest.MonkeyPatch) -> None:
    """pylibcudf, RMM and CUDA are their fakes, with memory of which nothing is in use yet."""
    for name, module in fake_rapids.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(fake_rapids.Device, "resource", fake_rapids.CudaMemoryResource())
