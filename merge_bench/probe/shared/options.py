"""Options that several probes have besides those of all probes, and what their values mean: sizes, and pairs of ranks.

Sizes and counts are lists (``8,65536``) of numbers, doubling ranges (``1..4M``), and ranges in steps (``1K..100K+1K``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from merge_bench.config import parsers
from merge_bench.config.allowed_transports import WITHIN_A_PROCESS, find_allowed_transports
from merge_bench.config.option import Options, value_option
from merge_bench.errors import UsageError, WarningMessage
from merge_bench.records import EVERY_PAIR, ONE_HOST, TWO_HOSTS
from merge_bench.units import parse_bytes, parse_count

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.records.schema import Worker

CROWDED = WarningMessage(
    "more-ranks-than-cores",
    "a host has more ranks than cores, so the measured times include waiting for a core",
    "lower --workers",
)
PLACEMENTS = (ONE_HOST, TWO_HOSTS, EVERY_PAIR)
LARGEST = 1 << 34
MOST = 10_000


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """Options of a probe that sends messages.

    sizes: Message sizes in bytes: a list (8,65536), a doubling range (1..4M), or a range with a step (1K..100K+1K).
    """

    sizes: str | None = value_option(parsers.parse_nonblank_text, None, "SIZES")


@dataclass(frozen=True, kw_only=True)
class IterationOptions(Options):
    """Options of a probe that times each size several times.

    iterations: Timed iterations per size. [default: fewer for larger sizes]
    """

    iterations: int | None = value_option(parsers.count_parser(1), None, "N")


@dataclass(frozen=True, kw_only=True)
class PairOptions(IterationOptions, SizeOptions):
    """Options of a probe that measures pairs of workers.

    placement: Pairs of workers to measure: one-host, two-hosts or every-pair; several are separated by commas.
        [default: by the number of hosts]
    """

    placement: str | None = value_option(parsers.parse_nonblank_text, None, "WHERE")


@dataclass(frozen=True, kw_only=True)
class MpirunOptions(Options):
    """Options of a probe that uses MPI.

    mpirun: The mpirun that starts the ranks; it must belong to the MPI that mpi4py uses. [default: found automatically]
    """

    mpirun: str | None = value_option(parsers.parse_path, None, "PATH")


def parse_allowed_names(option: str, text: str, allowed: Collection[str]) -> tuple[str, ...]:
    """Return the names in the comma-separated value of an option; raises UsageError if one is not in `allowed`.

    `option`, `text`: the option's name, for the message, and its value.
    """
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise UsageError(f"{option} {text}: {', '.join(unknown)!r} is not one of {', '.join(allowed)}")
    return names


def parse_message_sizes(text: str) -> tuple[int, ...]:
    """Return the message sizes in bytes in the value of ``--sizes``, ascending and without repeats.

    Raises UsageError if `text` has another form, or a value that is out of range.
    """
    return _parse_number_list("--sizes", text, parse_bytes, "1 byte to 16 GiB")


def parse_element_counts(text: str) -> tuple[int, ...]:
    """Return the numbers of elements in the value of ``--counts``, such as ``16Ki..128Mi``; raises UsageError."""
    return _parse_number_list("--counts", text, parse_count, "1 to 16Gi")


def _parse_number_list(
    option: str, text: str, parse_number: Callable[[str], int], allowed_range: str
) -> tuple[int, ...]:
    values: set[int] = set()
    try:
        for value in itertools.chain.from_iterable(
            _expand_number_range(part.strip(), parse_number) for part in text.split(",")
        ):
            if not 1 <= value <= LARGEST:
                raise ValueError(f"{value} is out of range ({allowed_range})")
            values.add(value)
            if len(values) > MOST:
                raise ValueError(f"the list has more than {MOST:,} values")
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    return tuple(sorted(values))


def _expand_number_range(text: str, parse_number: Callable[[str], int]) -> Iterator[int]:
    first, dots, rest = text.partition("..")
    if not dots:
        yield parse_number(text)
        return
    last, plus, step = rest.partition("+")
    value, end, stride = parse_number(first), parse_number(last), parse_number(step) if plus else 0
    if value < 1 or end < value or (plus and stride < 1):
        raise ValueError(f"{text!r} is not a valid range; write 1..4M (doubling) or 1K..100K+1K (steps of 1K)")
    while value <= end:
        yield value
        value = value + stride if plus else value * 2


@dataclass(frozen=True)
class PairPlacements:
    """The placements of the two ranks of a measured pair that ``--placement`` requests: on one host, or on two.

    `requested`: () stands for two-hosts where there are two hosts, else one-host. `one_host_always`: whether () also
    stands for one-host where there are two hosts.
    """

    requested: tuple[str, ...] = ()
    one_host_always: bool = False

    @classmethod
    def parse_placements(cls, text: str | None, *, one_host_always: bool = False) -> PairPlacements:
        """Return the placements in the value of ``--placement``; raises UsageError if it has another word."""
        return cls(() if text is None else parse_allowed_names("--placement", text, PLACEMENTS), one_host_always)

    def _placements_to_measure(self, planned_run: PlannedRun) -> tuple[str, ...]:
        """Return the requested placements, or without a request those that the run's hosts allow."""
        two = len(planned_run.settings.hosts) > 1
        return self.requested or (
            *((ONE_HOST,) if self.one_host_always or not two else ()),
            *((TWO_HOSTS,) if two else ()),
        )

    def adapt_run_to_placements(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the planned run with the workers that the placements need: one or two on a host, and one on another.

        Raises UsageError if there are too few hosts or workers.
        """
        placements, hosts = self._placements_to_measure(planned_run), planned_run.settings.hosts
        if EVERY_PAIR in placements:
            if planned_run.plan.workers < 2:
                raise UsageError("--placement every-pair needs at least two workers; use --workers 2 or more")
            return planned_run
        slots = [2 if ONE_HOST in placements else 1]
        if TWO_HOSTS in placements:
            if len(hosts) < 2:
                raise UsageError(
                    "--placement two-hosts needs two hosts; name them with --hosts, or run in a batch job with two"
                    " hosts"
                )
            slots.append(1)
        hosts = tuple(replace(host, slots=count) for host, count in zip(hosts, slots, strict=False))
        plan = replace(planned_run.plan, workers=sum(slots))
        return replace(planned_run, plan=plan, settings=replace(planned_run.settings, hosts=hosts))

    def rank_pairs(self, planned_run: PlannedRun, hosts: list[str]) -> list[tuple[tuple[int, int], str]]:
        """Return each pair of ranks to measure, with its placement; raises UsageError if a placement has no pair.

        `hosts`: the host of each rank, by rank.
        """
        placements = self._placements_to_measure(planned_run)
        every = [
            (pair, ONE_HOST if hosts[pair[0]] == hosts[pair[1]] else TWO_HOSTS)
            for pair in itertools.combinations(range(len(hosts)), 2)
        ]
        if EVERY_PAIR in placements:
            return every
        first_pairs = {placement: pair for pair, placement in reversed(every)}
        for placement in placements:
            if placement not in first_pairs:
                where = "on one host" if placement == ONE_HOST else "on different hosts"
                raise UsageError(
                    f"--placement {placement} needs two workers {where}, but the cluster has no such pair; choose"
                    " another --placement"
                )
        return [(first_pairs[placement], placement) for placement in placements]

    def rank_pair_count(self, planned_run: PlannedRun) -> int:
        """Return the number of pairs of ranks to measure."""
        placements, workers = self._placements_to_measure(planned_run), planned_run.plan.workers
        return workers * (workers - 1) // 2 if EVERY_PAIR in placements else len(placements)


def placement_of_workers(workers: Sequence[Worker]) -> str:
    """Return the placement of workers by their number of hosts: ``one-host``, ``two-hosts``, or ``4-hosts``."""
    hosts = len({worker.host for worker in workers})
    return {1: ONE_HOST, 2: TWO_HOSTS}.get(hosts, f"{hosts}-hosts")


def are_lanes_as_requested(requested_transports: str | None, lanes: Sequence[str]) -> bool | None:
    """Return whether the value `requested_transports` of ``UCX_TLS`` allows the transport of every lane (``tcp/eth0``).

    None if ``UCX_TLS`` is not set, or no lane is known.
    """
    if not lanes or requested_transports is None:
        return None
    return {lane.partition("/")[0] for lane in lanes} <= find_allowed_transports(
        requested_transports
    ) | WITHIN_A_PROCESS
