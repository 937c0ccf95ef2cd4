"""Types of the checks: a `Machine` to look at, and the `Finding` that each check returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from merge_bench.host.description import BusyGpu
from merge_bench.host.other_load import OtherLoad

OK, WARN, BAD = "ok", "warn", "bad"
STATES = (OK, WARN, BAD)
"""From harmless to harmful: with `BAD` a run fails, or its results mean nothing."""


@dataclass(frozen=True)
class Finding:
    """The result of one check. `found`: the fact; `spoils`: its effect on a run; `remedy`: what to do."""

    check: str
    state: str
    found: str
    spoils: str = ""
    remedy: str = ""
    host: str = ""


@dataclass(frozen=True)
class Ucx:
    """The UCX that workers load. `origin`: ``wheel`` or ``system``; `transports`: those available on this host."""

    version: str
    origin: str
    transports: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.version} ({self.origin})"


@dataclass(frozen=True)
class Disk:
    """A folder that a run writes `what` to. `free`: bytes, None if unknown; `named_by`: what chooses another folder."""

    what: str
    folder: Path
    free: int | None
    named_by: str


@dataclass(frozen=True)
class Machine:
    """One host, as checks see it.

    `root`: where its file systems are mounted. `cores`: those that a process may use. `load`: what
    other processes use of them. `limits`: soft limits of a process by name, None for unlimited. `shared_memory`:
    size and free bytes of /dev/shm, None if it does not exist; `segment_problem`: why no segment can be created
    there, empty if one can. `disks`: folders that a run writes to. `ucx`: None if none can be
    loaded; `ucx_error`: why. `packages`: versions by name.
    """

    root: Path = Path("/")
    cores: int = 1
    load: OtherLoad = field(default_factory=OtherLoad)
    available_bytes: int = 0
    total_bytes: int = 0
    limits: Mapping[str, int | None] = field(default_factory=dict)
    shared_memory: tuple[int, int] | None = None
    segment_problem: str = ""
    disks: Sequence[Disk] = ()
    gpus: Sequence[BusyGpu] = ()
    ucx: Ucx | None = None
    ucx_error: str = ""
    packages: Mapping[str, str | None] = field(default_factory=dict)


Check: TypeAlias = Callable[[Machine], Finding]

# A check makes its finding with one of these: `warn(found, spoils, remedy)`. `examine` adds its name and the host's.
ok, warn, bad = (functools.partial(Finding, "", state) for state in STATES)


def worst(findings: Iterable[Finding]) -> str:
    """The worst state among `findings`."""
    return max((finding.state for finding in findings), key=STATES.index, default=OK)
