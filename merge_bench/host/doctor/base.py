"""What checks are made of: a `Machine` to look at, and the `Finding` that each returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

OK, WARN, BAD = "ok", "warn", "bad"
STATES = (OK, WARN, BAD)
"""From harmless to: a run would fail, or its numbers would mean nothing."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check. `found`: what there is; `spoils`: what that does to a run; `remedy`: what helps."""

    check: str
    state: str
    found: str
    spoils: str = ""
    remedy: str = ""
    host: str = ""

    def to_json(self) -> dict[str, str]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Ucx:
    """The UCX that workers load: `origin` is ``wheel`` or ``system``; `transports` those it could use on this host."""

    version: str
    origin: str
    transports: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Machine:
    """One host as the checks see it.

    `root`: where its file systems are. `cores`: that a process may run on. `load`: processes that ran or waited to run,
    on average over a minute. `limits`: soft limits of a process by name, None for unlimited. `shared_memory`: size and
    free bytes of /dev/shm, None if there is none. `ucx`: None if none can be loaded, and then `ucx_error` says why.
    `packages`: versions by name.
    """

    root: Path = Path("/")
    cores: int = 1
    load: float = 0.0
    available_bytes: int = 0
    total_bytes: int = 0
    limits: Mapping[str, int | None] = field(default_factory=dict)
    shared_memory: tuple[int, int] | None = None
    gpus: Sequence[Mapping[str, Any]] = ()
    ucx: Ucx | None = None
    ucx_error: str = ""
    packages: Mapping[str, str | None] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        """Text of a file below `root`, stripped; None if it cannot be read."""
        try:
            return (self.root / path).read_text().strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file's only number."""
        text = self.read(path)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def names(self, folder: str) -> list[str]:
        """What a folder below `root` holds, sorted; [] if there is no such folder."""
        try:
            return sorted(entry.name for entry in (self.root / folder).iterdir())
        except OSError:
            return []


Check: TypeAlias = Callable[[Machine], Finding]


def worst(findings: Iterable[Finding]) -> str:
    """The worst state among `findings`."""
    return max((finding.state for finding in findings), key=STATES.index, default=OK)
