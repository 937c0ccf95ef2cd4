"""Runs of merge_bench for the goals: as a user runs them, here or between hosts made of namespaces."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.peer.children import run_limited
from merge_bench.cluster.supervisor import tail
from merge_bench.config.options import BY_KEY
from merge_bench.errors import RunFailed
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

ROOT = Path(__file__).resolve().parents[2]
RATE = "2gbit"
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """A run that ended well. `began`: the wall-clock time at which its process was started, in seconds."""

    document: Document
    began: float
    folder: Path

    @cached_property
    def campaign(self) -> Campaign:
        """Its records."""
        return read_campaign(self.folder)


@dataclass
class Bench:
    """Where runs are made. `limit`: seconds for one of them; `seed`: of the tables and of random orders.

    `details`: what a measure tells beside a goal's value, by the goal's name, as plain data.
    """

    folder: Path
    limit: float = 900.0
    seed: int = 0
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    _count: int = field(default=0, init=False)

    def merge(self, *options: str, hosts: Any = None) -> Ran:
        """One run with these options; `hosts`: those to run on, which are reached from their switch.

        Raises
        ------
        RunFailed
            If it did not end well, or its result is not proved right.
        """
        self._count += 1
        stem = self.folder / f"{self._count:03d}"
        results, output, errors = stem.with_suffix(".results"), stem.with_suffix(".out"), stem.with_suffix(".err")
        argv = [
            sys.executable, "-P", "-m", "merge_bench", "run", "--json", "--results", str(results), "--seed",
            str(self.seed), *options,
        ]  # fmt: skip
        if hosts is not None:
            argv = hosts.command(*argv, "--hosts", str(hosts.hosts_file), "--ssh-config", str(hosts.ssh_config))
        began = time.time()
        ended = run_limited(argv, surroundings(), ROOT, output, errors, self.limit)
        if ended.timed_out:
            raise RunFailed(f"a run was not done after {self.limit:.0f} s")
        try:
            document = json.loads(output.read_text())
        except ValueError:
            raise RunFailed(f"status {ended.status}: {tail(errors, 1) or 'a run said nothing'}") from None
        if document.get("error") or ended.status:
            raise RunFailed((document.get("error") or {}).get("message") or f"a run ended with status {ended.status}")
        if not document["verified"]:
            raise RunFailed("a run's result was not verified")
        return Ran(document, began, Path(document["records"]).parent)


def pipeline(state: str) -> list[str]:
    """The option that overlaps the phases or keeps them apart, where `run` has it; without it they are apart."""
    return ["--pipeline", state] if "pipeline" in BY_KEY else []


def surroundings() -> dict[str, str]:
    """This process's environment without settings of UCX and merge_bench, and with this checkout's packages first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UCX", "MERGE_BENCH_", "DASK_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])}


@contextmanager
def two_hosts(rate: str = RATE, *, one_core: bool = False) -> Iterator[Any]:
    """Two hosts with a link of `rate` between them; with `one_core` each has one core, its own where there are two.

    Raises
    ------
    RunFailed
        If they cannot be made here.
    """
    from tests.hosts.make_hosts import Hosts, why_not

    reason = why_not()
    if reason:
        raise RunFailed(f"no hosts with a shaped link can be made here: {reason}")
    with Hosts(2, rate) as hosts:
        cores = sorted(os.sched_getaffinity(0))
        for host in hosts.hosts if one_core else ():
            assert host.namespaces is not None
            os.sched_setaffinity(host.namespaces.pid, {cores[host.number % len(cores)]})
        yield hosts


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one block's runs, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="goals-") as folder:
        yield Path(folder)
