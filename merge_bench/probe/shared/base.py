"""What a network measurement is, and what its file declares of it; light, as the command line imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from merge_bench.probe.shared.measures import ONE_WAY, Measure, by_name
from merge_bench.probe.shared.options import Option

if TYPE_CHECKING:
    from merge_bench.campaign.jobs import Job
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.campaign.progress import Progress
    from merge_bench.probe.ranks.rank import Rank
    from merge_bench.records.writer import CampaignWriter


class Probe(Protocol):
    """One kind of network measurement."""

    @property
    def name(self) -> str:
        """Its kind's."""

    @property
    def device_memory(self) -> bool:
        """Whether messages lie in the memory of GPUs, which the workers then need."""

    def describe(self) -> dict[str, Any]:
        """What is asked for, as plain data: the plan in the records."""

    def prepare(self, prepared: Prepared) -> Prepared:
        """The same hosts and settings, with the workers that this measurement needs.

        Raises
        ------
        UsageError
            If the hosts do not suffice, or a tool is missing.
        """

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Make one launch, write its lines, take down what was started; gives the exit status."""


@dataclass(frozen=True)
class ProbeKind:
    """What a file of `probe` declares of its measurement.

    Attributes
    ----------
    name, help
        The command's, and the name in the records.
    make
        The measurement that the command's options, by their keys, describe. Raises UsageError.
    options
        Those that other probes need not have.
    test_kind
        Which kind of test a name is of (see `measures`): tables and drawings go by it.
    latency
        What its tests of latency measure.
    in_rank
        What runs in each rank that mpirun starts for it, if it has ranks.
    """

    name: str
    help: str
    make: Callable[[Mapping[str, Any]], Probe]
    options: tuple[Option, ...] = ()
    test_kind: Callable[[str], str] = by_name
    latency: Measure = ONE_WAY
    in_rank: Callable[[Rank], None] | None = None
