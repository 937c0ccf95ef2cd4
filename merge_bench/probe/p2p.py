"""`probe p2p`: latency and bandwidth between two workers' places over message size, with UCX's own ``ucx_perftest``.

Each launch runs every test once for every pair: a process pair a test, with all sizes in it, under the environment of
the workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.cluster.launchers import launchers
from merge_bench.config.names import UCXX_OVERRIDES
from merge_bench.errors import UsageError
from merge_bench.probe.shared import options
from merge_bench.probe.shared.base import ProbeKind
from merge_bench.probe.shared.options import Option
from merge_bench.probe.shared.placements import as_requested, pairs, placements_of, places
from merge_bench.probe.shared.sizes import sizes_of
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.campaign.jobs import Job
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.campaign.progress import Progress
    from merge_bench.campaign.session import Session
    from merge_bench.cluster.perftest import Kind
    from merge_bench.records.schema import ProbeLine
    from merge_bench.records.writer import CampaignWriter

SIZES = "1..4M"
SETTINGS = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH", "UCX_MAX_RNDV_RAILS")


def make(values: Mapping[str, Any]) -> P2P:
    """The measurement that these options describe."""
    from merge_bench.cluster.perftest import BANDWIDTH, KINDS, LATENCY, Kind

    kinds = tuple(dict.fromkeys(word.strip() for word in str(values["tests"]).split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--tests {values['tests']}: {kind!r} is none of {', '.join(KINDS)}")
    tests = tuple(Kind(kind, measures) for kind in kinds for measures in (LATENCY, BANDWIDTH))
    return P2P(
        tests, sizes_of(values["sizes"], SIZES), placements_of(values["placement"]), values["memory"],
        values["iterations"],
    )  # fmt: skip


@dataclass(frozen=True)
class P2P:
    """`placements` None: two-hosts where there are two, else one-host. `count`: iterations, None for the defaults."""

    tests: tuple[Kind, ...]
    sizes: tuple[int, ...]
    placements: tuple[str, ...] | None
    memory: str = "host"
    count: int | None = None
    name: str = "p2p"

    @property
    def device_memory(self) -> bool:
        """Whether messages lie in the memory of GPUs."""
        return self.memory == "cuda"

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        from merge_bench.cluster import perftest

        return {
            "tests": [test.name for test in self.tests], "sizes": list(self.sizes), "memory": self.memory,
            "placements": list(self.placements or ()), "iterations": self.count, "window": perftest.WINDOW,
        }  # fmt: skip

    def prepare(self, prepared: Prepared) -> Prepared:
        """Two places, or what `placements` asks for."""
        from merge_bench.cluster import perftest

        if launchers()[prepared.settings.launcher].starts_here:
            perftest.find()
        return places(prepared, self._placements(prepared))

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """A cluster, in which every test runs between every pair."""
        from merge_bench.campaign.launch import make_launch

        return make_launch(job, writer, progress, index, self._measure, modules=())

    def _placements(self, prepared: Prepared) -> tuple[str, ...]:
        if self.placements is not None:
            return self.placements
        return (TWO_HOSTS,) if len(prepared.settings.hosts) > 1 else (ONE_HOST,)

    def _measure(self, session: Session) -> None:
        from merge_bench.cluster import children

        session.record_launch()
        origin = session.workers.on_all(children.ready)[0]["origin"]
        hosts = [member.host for member in session.members]
        for first, second, placement in pairs(self._placements(session.job.prepared), hosts):
            for test in self.tests:
                session.progress.phase(f"{test.name}, {placement}, ranks {first} and {second}")
                for line in self._test(session, test, (first, second), placement, origin):
                    session.writer.write(line)

    def _test(
        self, session: Session, test: Kind, ranks: tuple[int, int], placement: str, origin: str
    ) -> list[ProbeLine]:
        """One process pair; the sender is the first rank."""
        from merge_bench.cluster import children, perftest
        from merge_bench.records.schema import ProbeLine

        client, server = ranks
        text = perftest.batch(test, self.sizes, memory=self.memory, count=self.count, error_handling=False)
        limits = self._limits(test, session.plan.timeout)
        cores = cores_of(*(session.facts[rank]["hardware"]["affinity"] for rank in ranks), placement=placement)
        opened = session.workers.on_one(server, children.listen, text, cores[1])
        asked, _ = session.workers.on_some(
            {client: (children.ask, opened, text, limits, cores[0]), server: (children.serve, opened)}
        )  # fmt: skip
        log = perftest.parse_log(asked.log, test)
        environment = {**UCXX_OVERRIDES, **session.facts[client]["environment"]}
        requested = {name: environment[name] for name in SETTINGS if name in environment}
        fits = as_requested(environment.get("UCX_TLS"), log.lanes)
        return [
            ProbeLine(
                launch=session.launch, probe=self.name, test=test.name, method=_method(test, log.version, origin),
                placement=placement, ranks=list(ranks), hosts=[session.members[rank].host for rank in ranks],
                memory=self.memory, size=each.size, iterations=each.iterations, seconds=each.seconds,
                bandwidth_bytes_per_second=each.bandwidth, messages_per_second=each.messages, requested=requested,
                selected=list(log.lanes), protocol=log.protocol(each.size), as_requested=fits and not log.missing,
            )
            for each in perftest.parse_all(asked.text, self.sizes)
        ]  # fmt: skip

    def _limits(self, test: Kind, timeout: float) -> list[float]:
        from merge_bench.cluster import perftest
        from merge_bench.cluster.children import SLOWEST_BYTES_PER_SECOND

        def seconds(size: int) -> float:
            timed, warm = perftest.iterations(size, test.measures)
            round_trips = 2 if test.measures == perftest.LATENCY else 1
            return 2 * timeout + ((self.count or timed) + warm) * size * round_trips / SLOWEST_BYTES_PER_SECOND

        return [seconds(size) for size in self.sizes for _ in range(perftest.RUNS)]


def cores_of(client: str, server: str, *, placement: str) -> tuple[int, int] | tuple[None, None]:
    """The cores that the two sides are bound to: one each where they share a host's cores, else none.

    Both poll. On one core they would take turns of milliseconds, which the kernel may well let them do on a host that
    has other work. `client`, `server`: the cores of their workers, as ``0-3``.
    """
    from merge_bench.host.memory import parse_cores

    shared = sorted(parse_cores(client) & parse_cores(server))
    return (shared[0], shared[1]) if placement == ONE_HOST and len(shared) > 1 else (None, None)


def _method(test: Kind, version: str | None, origin: str) -> str:
    from merge_bench.cluster import perftest

    window = f", window {perftest.WINDOW}" if test.measures == perftest.BANDWIDTH else ", half the round trip"
    return f"ucx_perftest of UCX {version or 'unknown'} ({origin}){window}, median of {perftest.RUNS} runs"


PROBE = ProbeKind(
    name=P2P.name,
    help="Latency and bandwidth between two workers' places over message size, with UCX's own ucx_perftest.",
    options=(
        options.SIZES,
        options.PLACEMENT,
        options.ITERATIONS,
        Option("tests", "tag, am, stream.", "KIND[,KIND]", default="tag"),
        Option("memory", "Memory that holds the messages.", default="host", choices=("host", "cuda")),
    ),
    make=make,
)
