"""Which hosts, and how many workers on each: the hosts file, and how workers are dealt out. Data, never evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.errors import UsageError

# A name that begins with a dash would be an option of ssh or srun.
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[][A-Za-z0-9_.:\]-]*")


@dataclass(frozen=True)
class HostSpec:
    """One host as it is named in a hosts file or by a batch system.

    `slots`: workers that it takes, None where nothing says so; `gpus`: that it has, None where nothing says so;
    `assumed`: whether `gpus` is what another host has.
    """

    name: str
    slots: int | None = None
    gpus: int | None = None
    assumed: bool = False


@dataclass(frozen=True)
class Placement:
    """A host and the numbers of its workers."""

    host: HostSpec
    workers: tuple[int, ...]


def read_hosts(path: Path) -> tuple[HostSpec, ...]:
    """The hosts of a file with one a line: ``NAME [slots=N] [gpus=N]``; ``#`` begins a comment.

    Raises
    ------
    UsageError
        Naming file and line.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"--hosts {path}: {reason}") from error
    found: dict[str, HostSpec] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}:{number}"
        if not _NAME.fullmatch(words[0]):
            raise UsageError(f"{where}: {words[0]!r} is not the name of a host")
        if words[0] in found:
            raise UsageError(f"{where}: {words[0]} stands here a second time; write slots=N for several workers")
        said = _settings(words[1:], where)
        found[words[0]] = HostSpec(words[0], slots=said.get("slots"), gpus=said.get("gpus"))
    if not found:
        raise UsageError(f"--hosts {path}: it names no host")
    return tuple(found.values())


def _settings(words: Sequence[str], where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in ("slots", "gpus") or not value.isdecimal() or (name == "slots" and int(value) < 1):
            raise UsageError(f"{where}: {word!r} is neither slots=N nor gpus=N")
        found[name] = int(value)
    return found


def count_workers(hosts: Sequence[HostSpec], workers_per_gpu: int = 1) -> int:
    """How many workers these hosts take if nobody says: one a slot, else one a GPU, else one a host."""
    return sum(_capacity(host, workers_per_gpu) for host in hosts)


def place(hosts: Sequence[HostSpec], workers: int, workers_per_gpu: int = 1) -> tuple[Placement, ...]:
    """Deal workers out, host by host: each its own number if that makes `workers` in all, else evenly.

    A host that would get none is left out.
    """
    shares = [_capacity(host, workers_per_gpu) for host in hosts]
    if hosts and sum(shares) != workers:
        each, more = divmod(workers, len(hosts))
        shares = [each + (number < more) for number in range(len(hosts))]
    placed, first = [], 0
    for host, share in zip(hosts, shares, strict=True):
        if share:
            placed.append(Placement(host, tuple(range(first, first + share))))
        first += share
    return tuple(placed)


def check_gpus(
    placements: Sequence[Placement], gpus: Mapping[str, int], workers_per_gpu: int, *, chosen: bool
) -> None:  # fmt: skip
    """Refuse workers on GPUs that do not fit the hosts; `gpus`: how many each host has, as it told itself.

    `chosen`: whether somebody gave the number of workers. Otherwise a host of which nothing was said got one worker,
    or as many as another, and that is refused where it has room for more.

    Raises
    ------
    UsageError
        Naming the host, or all that nothing was said of.
    """
    for placement in placements:
        needed = -(-len(placement.workers) // workers_per_gpu)
        found = gpus[placement.host.name]
        if found < needed:
            raise UsageError(
                f"{placement.host.name} has {_gpus(found)}, and {len(placement.workers)} workers were to run on"
                f" {needed} there; change --workers, --workers-per-gpu, or its slots"
            )
    unsaid = [p for p in placements if p.host.slots is None and (p.host.gpus is None or p.host.assumed)]
    if not chosen and any(gpus[p.host.name] * workers_per_gpu > len(p.workers) for p in unsaid):
        lines = ", ".join(f"{p.host.name} gpus={gpus[p.host.name]}" for p in unsaid)
        raise UsageError(
            "nobody said how many GPUs these hosts have, and there is room for more workers than were planned: give"
            f" --workers, or with --hosts write the numbers into its file ({lines})"
        )


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _capacity(host: HostSpec, workers_per_gpu: int) -> int:
    if host.slots is not None:
        return host.slots
    return host.gpus * workers_per_gpu if host.gpus else 1
