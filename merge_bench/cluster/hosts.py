"""Which hosts, and how many workers on each: the hosts file, and how workers are distributed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from merge_bench.config.files import read_regular
from merge_bench.errors import UsageError

# A name that begins with a dash would be an option of ssh or srun.
_NAME = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_\[][A-Za-z0-9_.:\]-]*"


@dataclass(frozen=True)
class HostSpec:
    """One host as a hosts file or a batch system names it.

    `slots`, `gpus`: how many workers it takes and how many GPUs it has; None if not given. `assumed`: whether `gpus`
    was not given and is the number of another host.
    """

    name: str
    slots: int | None = None
    gpus: int | None = None
    assumed: bool = False


class Placement(NamedTuple):
    """A host and the numbers of its workers."""

    host: HostSpec
    workers: tuple[int, ...]


def is_host_name(text: str) -> bool:
    """Whether `text` can be passed to ssh or srun as the name of a host."""
    return re.fullmatch(_NAME, text) is not None


def read_hosts(path: Path) -> tuple[HostSpec, ...]:
    """The hosts of a file with one host per line: ``NAME [slots=N] [gpus=N]``; ``#`` begins a comment.

    Raises
    ------
    UsageError
        Naming file and line.
    """
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text"
        raise UsageError(f"--hosts {path}: {reason}") from error
    found: dict[str, HostSpec] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}:{number}"
        if not is_host_name(words[0]):
            raise UsageError(f"{where}: {words[0]!r} is not a host name")
        if words[0] in found:
            raise UsageError(f"{where}: {words[0]} is listed twice; to start several workers on a host, write slots=N")
        numbers = _settings(words[1:], where)
        found[words[0]] = HostSpec(words[0], slots=numbers.get("slots"), gpus=numbers.get("gpus"))
    if not found:
        raise UsageError(f"--hosts {path}: the file lists no host")
    return tuple(found.values())


def _settings(words: Sequence[str], where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in ("slots", "gpus") or not value.isdecimal() or (name == "slots" and int(value) < 1):
            raise UsageError(f"{where}: {word!r} is not valid; write slots=N (at least 1) or gpus=N")
        found[name] = int(value)
    return found


def count_workers(hosts: Sequence[HostSpec], workers_per_gpu: int = 1) -> int:
    """The default number of workers on these hosts: one per slot, else one per GPU, else one per host."""
    return sum(_capacity(host, workers_per_gpu) for host in hosts)


def place(hosts: Sequence[HostSpec], workers: int, workers_per_gpu: int = 1) -> tuple[Placement, ...]:
    """Distribute workers over hosts: each host gets its default number if these add up to `workers`, else equal shares.

    A host without a worker is left out.
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


def _capacity(host: HostSpec, workers_per_gpu: int) -> int:
    if host.slots is not None:
        return host.slots
    return host.gpus * workers_per_gpu if host.gpus else 1
