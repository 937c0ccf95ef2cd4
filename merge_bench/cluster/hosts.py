"""Hosts: how people list them for mpirun, SLURM or pdsh, with their slots, and how many workers each one gets."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from merge_bench.config.files import read_regular_file
from merge_bench.errors import UsageError

MOST_HOSTS = 4096
MOST_NAMES = 65_536
"""How often hosts may be listed; each time is a slot."""
_DIGITS = 9
"""The most digits of a number; Python reads a few thousand."""
FORM = "write one host per line: NAME [slots=N] [gpus=N]"
_SSH_CONFIG = "name the user, port or address of a host in the ssh configuration (--ssh-config)"
# A name that begins with a dash would be an option of ssh or srun.
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RANGES = re.compile(rf"(\d{{1,{_DIGITS}}})(?:-(\d{{1,{_DIGITS}}}))?")
_LOOPBACK = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


@dataclass(frozen=True)
class HostSpec:
    """One host of a hosts file or of a batch job, with its numbers of slots and GPUs.

    `slots`, `gpus`: how many workers it takes and how many GPUs it has; None if not given. `assumed`: whether `gpus`
    was not given and is the number of another host. `most`: the largest number of workers that it may get.
    """

    name: str
    slots: int | None = None
    gpus: int | None = None
    assumed: bool = False
    most: int | None = None


class HostPlacement(NamedTuple):
    """A host, and the numbers of the workers that run on it."""

    host: HostSpec
    workers: tuple[int, ...]


def default_worker_count(hosts: Sequence[HostSpec], workers_per_gpu: int = 1) -> int:
    """Return the default number of workers on these hosts: one per slot, else per GPU, else one per host."""
    return sum(_default_worker_count_of_host(host, workers_per_gpu) for host in hosts)


def place_workers(hosts: Sequence[HostSpec], worker_count: int, workers_per_gpu: int = 1) -> tuple[HostPlacement, ...]:
    """Distribute workers over hosts: each gets its default number if these sum to `worker_count`, else an equal share.

    A host without a worker is left out. Raises UsageError if a host would get more than its largest number.
    """
    shares = [_default_worker_count_of_host(host, workers_per_gpu) for host in hosts]
    if hosts and sum(shares) != worker_count:
        share, more = divmod(worker_count, len(hosts))
        shares = [share + (number < more) for number in range(len(hosts))]
    placed, first = [], 0
    for host, share in zip(hosts, shares, strict=True):
        if host.most is not None and share > host.most:
            most = f"its max_slots is {host.most}"
            raise UsageError(f"{host.name} would get {share} workers, but {most}; lower --workers")
        if share:
            placed.append(HostPlacement(host, tuple(range(first, first + share))))
        first += share
    return tuple(placed)


def _default_worker_count_of_host(host: HostSpec, workers_per_gpu: int) -> int:
    if host.slots is not None:
        return host.slots
    return host.gpus * workers_per_gpu if host.gpus else 1


def read_hosts_file(path: Path) -> tuple[HostSpec, ...]:
    """Return the hosts in a file with lines ``NAME [slots=N] [max_slots=N] [gpus=N]``; ``#`` begins a comment.

    NAME may be a list such as ``node[01-04,07],gpu-a[1-3]``, or ``NAME:SLOTS``. A host that is listed again gets the
    slots of all its lines, one for each line without a number. Raises UsageError, naming file and line.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not text in UTF-8"
        raise UsageError(f"--hosts {path}: {reason}; it takes the path of a file: {FORM}") from error
    hosts: dict[str, HostSpec] = {}
    names_by_host: dict[str, str] = {}  # the name by which each host was listed first
    names_by_short_host: dict[str, str] = {}  # of those with a domain, by their first part
    times_listed = 0
    for number, line in enumerate(text.splitlines(), 1):
        try:
            for host in parse_hosts_line(line):
                _refuse_other_name_of_host(host.name, names_by_host, names_by_short_host)
                times_listed += 1
                hosts[host.name] = _add_slots_of_repeated_host(hosts[host.name], host) if host.name in hosts else host
                if len(hosts) > MOST_HOSTS or times_listed > MOST_NAMES:
                    raise ValueError(f"the file lists more than {MOST_HOSTS:,} hosts, or {MOST_NAMES:,} names")
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from error
    if not hosts:
        raise UsageError(f"--hosts {path}: the file lists no host")
    return tuple(hosts.values())


def is_host_name(text: str) -> bool:
    """Return whether `text` can be passed to ssh or srun as the name of a host."""
    return _NAME.fullmatch(text) is not None


def parse_hosts_line(line: str) -> Iterator[HostSpec]:
    """Return the hosts that one line of a hosts file names; raises ValueError if the line has another form."""
    words = re.sub(r"\s*([,=])\s*", r"\1", line.partition("#")[0]).split()
    if not words:
        return
    _refuse_other_file_formats(words)
    numbers = _parse_slot_and_gpu_counts(words[1:])
    for word in split_host_list(words[0]):
        names, slots = _split_host_and_slots(word)
        if slots is not None and "slots" in numbers:
            raise ValueError(f"{word!r} and slots={numbers['slots']} both give a number of slots; leave one out")
        mine = numbers if slots is None else {**numbers, "slots": slots}
        most = mine.get("max_slots")
        if mine.get("slots", 0) > (MOST_HOSTS if most is None else most):
            limit = f"{MOST_HOSTS:,}, the most of a host" if most is None else f"max_slots={most}"
            raise ValueError(f"slots={mine['slots']} is more than {limit}")
        for name in expand_host_list(names):
            yield HostSpec(_parse_host_name(name), slots=mine.get("slots"), gpus=mine.get("gpus"), most=most)


def split_host_list(text: str) -> list[str]:
    """Split a host list such as ``n[1,3],m2`` at the commas outside brackets."""
    parts = re.split(r",(?![^\[\]]*\])", text)
    if not all(parts):
        raise ValueError(f"{text!r} contains an empty name; write names like node1,node2")
    return parts


def expand_host_list(text: str) -> Iterator[str]:
    """Return the host names that one bracketed name stands for: ``n[08-10]`` → ``n08``, ``n09``, ``n10``.

    Several brackets are combined, the last one running fastest, as ``scontrol show hostnames`` does.
    """
    if _parse_ip_address(text.partition("@")[2] or text) is not None or "[" not in text:
        yield text
        return
    if text.count("[") > 8:
        raise ValueError(f"{text[:60]!r}… has more than 8 brackets; list the hosts by name")
    before, _, rest = text.partition("[")
    inside, closed, after = rest.partition("]")
    if not closed:
        raise ValueError(f"{text!r} has no closing bracket")
    for number in _expand_number_ranges(inside, text):
        for end in expand_host_list(after) if "[" in after else (after,):
            yield before + number + end


def _expand_number_ranges(ranges: str, host_list: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGES.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first:
            raise ValueError(f"{host_list!r} is not a host list: [{part}] is no range of numbers such as [01-04,07]")
        if last - first >= MOST_HOSTS:
            raise ValueError(f"{host_list!r} names more than {MOST_HOSTS:,} hosts")
        for number in range(first, last + 1):
            yield f"{number:0{len(match[1])}d}"


def _split_host_and_slots(word: str) -> tuple[str, int | None]:
    """Split ``node1:4`` into ``node1`` and 4, as MPICH and ``mpirun -H`` write the slots of a host."""
    name, colon, number = word.rpartition(":")
    if not colon or _parse_ip_address(word.rpartition("@")[2]) is not None:
        return word, None
    if not _is_whole_number(number) or int(number) < 1:
        raise ValueError(f"{word!r} is not a host name; {FORM}")
    if "@" in word or _parse_ip_address(name) is not None:
        slots = f"{name.strip('[]')} slots={number}"
        raise ValueError(f"{word!r} may mean a port or a number of slots; write {slots}, or, for a port, {_SSH_CONFIG}")
    return name, int(number)


def _parse_host_name(text: str) -> str:
    """Return the host name as ssh takes it, with a user if there is one, and an IPv6 address without brackets."""
    user, at, name = text.rpartition("@")
    address = _parse_ip_address(name)
    if (at and not re.fullmatch(_USER, user)) or (address is None and not _NAME.fullmatch(name)):
        raise ValueError(f"{text!r} is not a host name; {FORM}")
    return user + at + (name if address is None else str(address))


def _parse_ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not re.fullmatch(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9_.-]+)?", bare):
        return None
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        return None


def _parse_slot_and_gpu_counts(words: Iterable[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        key = name.lower().replace("-", "_")
        if (
            key not in ("slots", "max_slots", "gpus")
            or not _is_whole_number(value)
            or (key != "gpus" and int(value) < 1)
        ):
            raise ValueError(f"{word!r} is not valid; write slots=N or max_slots=N (at least 1), or gpus=N")
        numbers[key] = int(value)
    return numbers


def _refuse_other_file_formats(words: list[str]) -> None:
    first, rest = words[0], words[1:]
    section = re.fullmatch(r"\[[A-Za-z_][^\]]*\]", first) and _parse_ip_address(first) is None
    if section or any(word.lower().startswith("ansible_") for word in rest):
        raise ValueError(f"{' '.join(words)!r} is in the form of Ansible's inventory; {FORM}, and {_SSH_CONFIG}")
    names = [word for word in rest if "=" not in word]
    if names and _parse_ip_address(first) is not None:
        raise ValueError(f"{' '.join(words)!r} is in the form of /etc/hosts; write {first} or {names[0]} alone")
    if names and _NAME.fullmatch(names[0]) and names[0].lower() not in ("slots", "max_slots", "gpus"):
        raise ValueError(f"{' '.join(words)!r} has more than one name; {FORM}, or a list such as {first},{names[0]}")


def _add_slots_of_repeated_host(host: HostSpec, repeated_host: HostSpec) -> HostSpec:
    if host.gpus is not None or repeated_host.gpus is not None:
        raise ValueError(
            f"{repeated_host.name} is listed twice with gpus=; list it once, with the number of all its GPUs"
        )
    return replace(host, slots=(host.slots or 1) + (repeated_host.slots or 1), most=host.most or repeated_host.most)


def _is_whole_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS


def _refuse_other_name_of_host(name: str, names_by_host: dict[str, str], names_by_short_host: dict[str, str]) -> None:
    """Raise ValueError if a host was already listed by another name; else record its name in both mappings.

    `names_by_host`: the listed name of each host, by its address or lower-case name; `names_by_short_host`: the listed
    name of each host with a domain, by the part before the first dot.
    """
    host = name.rpartition("@")[2].rstrip(".").lower()
    address = _parse_ip_address(host)
    local = host in _LOOPBACK or (address is not None and address.is_loopback) or host == socket.gethostname().lower()
    key = "localhost" if local else str(address or host)
    short = key.partition(".")[0]
    other = names_by_host.get(key, name)
    if other == name and address is None:
        other = (names_by_host if short != key else names_by_short_host).get(short, name)
    if other != name:
        raise ValueError(f"{other} and {name} are names of one host; list it by one name (a slot for each time)")
    names_by_host[key] = name
    if short != key and address is None:
        names_by_short_host.setdefault(short, name)
