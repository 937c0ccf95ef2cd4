"""Runs of merge_bench for the benchmarks: as a user runs them, here or between hosts made of namespaces."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.processes import Document, options, run_merge_bench, surroundings
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

RATE = "2gbit"
SETTINGS = ("UCX", "MERGE_BENCH_", "DASK_")


@dataclass(frozen=True)
class Ran:
    """A run that ended well. `began`: wall-clock time at which its process started; `seconds`: how long it ran."""

    document: Document
    began: float
    folder: Path
    seconds: float

    @cached_property
    def campaign(self) -> Campaign:
        """Its records."""
        return read_campaign(self.folder)


@dataclass
class Bench:
    """Where runs are made. `limit`: seconds for one of them; `seed`: of the tables and of random orders.

    `details`: what a measure found beside a goal's value, by the goal's name, as plain data.
    """

    folder: Path
    limit: float = 900.0
    seed: int = 0
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    _count: int = field(default=0, init=False)

    @property
    def next_results_folder(self) -> Path:
        """The folder of results that the next run will write."""
        return self.folder / f"{self._count + 1:03d}.results"

    def merge(self, *, hosts: Any = None, **chosen: object) -> Ran:
        """One run with these options of `run`; `hosts`: test hosts to run on.

        Raises
        ------
        RunFailed
            If it did not end well, or its result was not verified.
        """
        self._count += 1
        stem = self.folder / f"{self._count:03d}"
        words = options(results=f"{stem}.results", seed=self.seed, **chosen)
        began = time.time()
        document, ended = run_merge_bench(words, surroundings(*SETTINGS), stem, self.limit, hosts=hosts)
        runs = document.get("runs", [document])
        if not all(run["verified"] for run in runs):
            raise RunFailed("the merge result of a run was not verified")
        return Ran(document, began, Path(document["records"]).parent, ended.seconds)


def need_hosts() -> None:
    """Check that hosts with shaped links can be made here.

    Raises
    ------
    UsageError
        If not.
    """
    from tests.hosts.make_hosts import why_not

    if reason := why_not():
        raise UsageError(f"cannot create test hosts with shaped links: {reason}")


@contextmanager
def two_hosts(rate: str = RATE, *, one_core: bool = False) -> Iterator[Any]:
    """Two hosts with a link of `rate` between them; with `one_core` each has one core, its own where there are two.

    Raises
    ------
    UsageError
        If they cannot be made here.
    """
    from tests.hosts.make_hosts import Hosts

    need_hosts()
    with Hosts(2, rate) as hosts:
        cores = sorted(os.sched_getaffinity(0))
        for host in hosts.hosts if one_core else ():
            assert host.namespaces is not None
            os.sched_setaffinity(host.namespaces.pid, {cores[host.number % len(cores)]})
        yield hosts


@contextmanager
def scratch(limit: float = 900.0, seed: int = 0) -> Iterator[Bench]:
    """A `Bench` in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        yield Bench(Path(folder), limit, seed)
