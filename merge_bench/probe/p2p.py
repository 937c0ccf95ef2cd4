"""`probe p2p`: latency and bandwidth between two workers' places over message size, with UCX's own ``ucx_perftest``.

Each launch runs every test once for every pair: a process pair a test, with all sizes in it, under the environment of
the workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config.check import UCXX_OVERRIDES
from merge_bench.errors import UsageError
from merge_bench.launching import Job, make_launch
from merge_bench.memory import parse_cores
from merge_bench.probe import perftest
from merge_bench.probe.base import EVERY_PAIR, ONE_HOST, TWO_HOSTS, as_requested, pairs, places
from merge_bench.probe.perftest import BANDWIDTH, KINDS, LATENCY, Kind
from merge_bench.probe.sizes import parse_sizes
from merge_bench.record.schema import ProbeLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun

SIZES = "1..4M"
PLACEMENTS = (ONE_HOST, TWO_HOSTS, EVERY_PAIR)
SETTINGS = ("UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH", "UCX_MAX_RNDV_RAILS")


def sizes_of(text: str | None, default: str) -> tuple[int, ...]:
    """The sizes of ``--sizes``."""
    try:
        return parse_sizes(text or default)
    except ValueError as error:
        raise UsageError(f"--sizes {text}: {error}") from None


def placements_of(text: str | None) -> tuple[str, ...] | None:
    """The placements of ``--placement``; None where nothing was said."""
    if text is None:
        return None
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    wrong = [word for word in words if word not in PLACEMENTS]
    if wrong or not words:
        raise UsageError(f"--placement {text}: write {', '.join(PLACEMENTS)}, or two of them with a comma")
    return words


def make(values: Mapping[str, Any]) -> P2P:
    """The measurement that these options describe."""
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
    def engine(self) -> str:
        """Workers of GPUs where messages lie there."""
        return "cudf" if self.memory == "cuda" else "polars"

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        return {
            "tests": [test.name for test in self.tests], "sizes": list(self.sizes), "memory": self.memory,
            "placements": list(self.placements or ()), "iterations": self.count, "window": perftest.WINDOW,
        }  # fmt: skip

    def prepare(self, prepared: Prepared) -> Prepared:
        """Two places, or what `placements` asks for."""
        if prepared.settings.launcher == "local":
            perftest.find()
        return places(prepared, self._placements(prepared))

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """A cluster, in which every test runs between every pair."""

        def talk(run: LaunchRun) -> None:
            self._measure(run, job, writer)

        return make_launch(job, writer, progress, index, talk, modules=())

    def _placements(self, prepared: Prepared) -> tuple[str, ...]:
        if self.placements is not None:
            return self.placements
        return (TWO_HOSTS,) if len(prepared.settings.hosts) > 1 else (ONE_HOST,)

    def _measure(self, run: LaunchRun, job: Job, writer: CampaignWriter) -> None:
        from merge_bench.probe import children

        run.record_launch(job.config, job.plan, job.block)
        origin = run.on_all(children.ready)[0]["origin"]
        hosts = [member.host for member in run.members]
        for first, second, placement in pairs(self._placements(job.prepared), hosts):
            for test in self.tests:
                run.progress.phase(f"{test.name}, {placement}, ranks {first} and {second}")
                for line in self._test(run, test, (first, second), placement, origin):
                    writer.write(line)

    def _test(self, run: LaunchRun, test: Kind, ranks: tuple[int, int], placement: str, origin: str) -> list[ProbeLine]:
        """One process pair; the sender is the first rank."""
        from merge_bench.probe import children

        client, server = ranks
        text = perftest.batch(test, self.sizes, memory=self.memory, count=self.count, error_handling=False)
        limits = self._limits(test, run.plan.timeout)
        cores = cores_of(*(run.facts[rank]["hardware"]["affinity"] for rank in ranks), placement=placement)
        opened = run.on_one(server, children.listen, text, cores[1])
        asked, _ = run.on_some(
            {client: (children.ask, opened, text, limits, cores[0]), server: (children.serve, opened)}
        )  # fmt: skip
        log = perftest.parse_log(asked.log, test)
        environment = {**UCXX_OVERRIDES, **run.facts[client]["environment"]}
        requested = {name: environment[name] for name in SETTINGS if name in environment}
        fits = as_requested(environment.get("UCX_TLS"), log.lanes)
        return [
            ProbeLine(
                launch=run.launch, probe=self.name, test=test.name, method=_method(test, log.version, origin),
                placement=placement, ranks=list(ranks), hosts=[run.members[rank].host for rank in ranks],
                memory=self.memory, size=each.size, iterations=each.iterations, seconds=each.seconds,
                bandwidth_bytes_per_second=each.bandwidth, messages_per_second=each.messages, requested=requested,
                selected=list(log.lanes), protocol=log.protocol(each.size), as_requested=fits and not log.missing,
            )
            for each in perftest.parse_all(asked.text, self.sizes)
        ]  # fmt: skip

    def _limits(self, test: Kind, timeout: float) -> list[float]:
        from merge_bench.probe.children import SLOWEST_BYTES_PER_SECOND

        def seconds(size: int) -> float:
            timed, warm = perftest.iterations(size, test.measures)
            round_trips = 2 if test.measures == LATENCY else 1
            return 2 * timeout + ((self.count or timed) + warm) * size * round_trips / SLOWEST_BYTES_PER_SECOND

        return [seconds(size) for size in self.sizes for _ in range(perftest.RUNS)]


def cores_of(client: str, server: str, *, placement: str) -> tuple[int, int] | tuple[None, None]:
    """The cores that the two sides are bound to: one each where they share a host's cores, else none.

    Both poll. On one core they would take turns of milliseconds, which the kernel may well let them do on a host that
    has other work. `client`, `server`: the cores of their workers, as ``0-3``.
    """
    shared = sorted(parse_cores(client) & parse_cores(server))
    return (shared[0], shared[1]) if placement == ONE_HOST and len(shared) > 1 else (None, None)


def _method(test: Kind, version: str | None, origin: str) -> str:
    window = f", window {perftest.WINDOW}" if test.measures == BANDWIDTH else ", half the round trip"
    return f"ucx_perftest of UCX {version or 'unknown'} ({origin}){window}, median of {perftest.RUNS} runs"
