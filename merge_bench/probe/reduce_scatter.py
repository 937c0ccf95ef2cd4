"""`probe reduce-scatter`: time and bus bandwidth by the number of elements, every result verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from merge_bench.errors import LaunchFailed, UsageError, WrongResult
from merge_bench.launching import Job
from merge_bench.probe import mpirun, ucc, ucx_log
from merge_bench.probe.base import ONE_HOST, TWO_HOSTS, as_requested
from merge_bench.probe.mpi import method, transports_asked
from merge_bench.probe.mpi_rules import ELEMENT, LARGEST_MESSAGE, REDUCE_SCATTER, block_of, bus_bandwidth
from merge_bench.probe.ranks import Launch, Message, make_launch, program
from merge_bench.probe.sizes import parse_counts
from merge_bench.record.schema import ProbeLine, WarningLine, Worker
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared
from merge_bench.units import format_count

COUNTS = "16Ki..128Mi"
MPI_CALLS = {"mpi": "MPI_Reduce_scatter_block", "reduces": "one MPI_Ireduce to each rank, MPI_Waitall"}
ALGORITHMS = (*MPI_CALLS, ucc.UCP, ucc.SHARP)
UCC_SILENCE_FACTOR = 4.0
"""ucc_perftest says nothing while it repeats an operation."""


@dataclass(frozen=True)
class ReduceScatterProbe:
    """Algorithms over counts. `workers`: as given on the command line."""

    counts: tuple[int, ...]
    algorithms: tuple[str, ...]
    iterations: int | None
    workers: int | None
    name: str = REDUCE_SCATTER
    engine: str = "polars"

    def describe(self) -> dict[str, Any]:
        """What is asked for."""
        return {"counts": list(self.counts), "algorithms": list(self.algorithms), "iterations": self.iterations}

    def prepare(self, prepared: Prepared) -> Prepared:
        """At least two ranks, and the tools that the algorithms need."""
        mpirun.check_hosts(mpirun.find_mpi(), prepared.settings)
        if self._of_ucc:
            ucc.find_tool()
        ranks = prepared.plan.workers
        if ranks < 2 and (self.workers is not None or prepared.settings.hosts):
            raise UsageError("reduce-scatter needs at least two ranks: --workers 2")
        ranks = max(ranks, 2)
        if self.counts[-1] // ranks > LARGEST_MESSAGE:
            raise UsageError(f"--counts: MPI counts elements with an int; {format_count(self.counts[-1])} are too many")
        rounded = [count for count in self.counts if count % ranks]
        told = tuple(
            ("count-rounded", f"{format_count(n)} elements are rounded up to {format_count(block_of(n, ranks) * ranks)}"
             f", so that each of {ranks} ranks gets as many", None)
            for n in rounded
        )  # fmt: skip
        return replace(
            prepared, plan=replace(prepared.plan, workers=ranks), warnings=(*prepared.warnings, *told)
        )  # fmt: skip

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Measure every algorithm at every count."""
        return make_launch(job, writer, progress, index, self._talk)

    @property
    def _of_ucc(self) -> tuple[str, ...]:
        return tuple(name for name in self.algorithms if name in ucc.ENVIRONMENT)

    def _talk(self, launch: Launch) -> None:
        ours = [name for name in self.algorithms if name in MPI_CALLS]
        asked = {"counts": self.counts, "algorithms": ours, "iterations": self.iterations}
        for message in launch.run({"pattern": REDUCE_SCATTER, **asked}):
            if message["merge_bench"] == "warning":
                launch.writer.write(
                    WarningLine(launch=launch.index, code=message["code"], message=message["message"],
                                remedy=message["remedy"])
                )  # fmt: skip
            elif message["merge_bench"] == "row":
                line = row(message, launch.index, launch.workers)
                launch.writer.write(line)
                launch.doing = f"after {line.test} of {format_count(line.count or 0)} elements"
                launch.progress.phase(f"{line.test}: {format_count(line.count or 0)} elements")
                if line.wrong:
                    raise WrongResult(
                        f"{line.test} of {format_count(line.count or 0)} elements: {format_count(line.wrong)} of them"
                        " came out wrong"
                    )
        for name in self._of_ucc:
            self._with_ucc(launch, name)

    def _with_ucc(self, launch: Launch, name: str) -> None:
        tool, ranks = ucc.find_tool(), launch.plan.workers
        for chain in ucc.chains(self.counts, ranks, self.iterations):
            traced = self._run_ucc(launch, name, ucc.command(tool, chain, trace=True), ucc.TRACE)
            layers = ucc.carried_by(traced)
            text = self._run_ucc(launch, name, ucc.command(tool, chain, trace=False), {})
            lanes = ucx_log.to_others(traced)
            try:
                printed = ucc.parse_table(text)
                counts = [ucc.source_count(each, ranks, tool.version) for each in printed]
            except ValueError as error:
                raise LaunchFailed(f"{tool.path}: {error}") from error
            for each, count in zip(printed, counts, strict=True):
                line = ucc_row(name, each, count, layers.get(count), chain.iterations, lanes, launch, tool)
                launch.writer.write(line)
            missing = [block * ranks for block in chain.blocks if block * ranks not in counts]
            if missing:
                raise LaunchFailed(f"{tool.path} ended before {format_count(missing[0])} elements")

    def _run_ucc(self, launch: Launch, name: str, argv: Sequence[str], more: Mapping[str, str]) -> str:
        launch.doing = f"with {ucc.TOOL} for {name}"
        launch.progress.phase(f"{name}: {' '.join(argv[-8:])}")
        ranks = launch.start(program(launch.spec({"execute": list(argv)})), also={**ucc.ENVIRONMENT[name], **more})
        limit = UCC_SILENCE_FACTOR * launch.silence
        lines = []
        for line in launch.listen(ranks, max(limit, launch.settings.start_timeout), limit):
            ranks.note(line)
            lines.append(line)
        text = "\n".join(lines)
        ucc.check_one_job(text, launch.plan.workers)
        return text


def row(message: Message, launch: int, workers: Sequence[Worker]) -> ProbeLine:
    """A rank's ``row`` as the records keep it; `message` has the mean seconds of each rank."""
    seconds, size, ranks = message["seconds"], message["size"], len(workers)
    average, least, most = sum(seconds) / ranks, min(seconds), max(seconds)
    requested = transports_asked(workers[0].environment)
    return ProbeLine(
        launch=launch, probe=REDUCE_SCATTER, test=message["test"],
        placement=placement(workers),
        method=f"{method(workers[0].versions, workers[0].ucx)}, {MPI_CALLS[message['test']]}",
        ranks=list(range(ranks)), hosts=[worker.host for worker in workers], size=size, count=message["count"],
        iterations=message["iterations"], seconds=average, seconds_min=least, seconds_max=most,
        bandwidth_bytes_per_second=bus_bandwidth(size, average, ranks),
        bandwidth_min=bus_bandwidth(size, most, ranks), bandwidth_max=bus_bandwidth(size, least, ranks),
        wrong=message["wrong"], requested=requested, selected=message["selected"],
        as_requested=as_requested(requested.get("UCX_TLS"), message["selected"]),
    )  # fmt: skip


def ucc_row(
    name: str, printed: ucc.Printed, count: int, layers: str | None, iterations: int, lanes: Sequence[str],
    launch: Launch, tool: ucc.Tool,
) -> ProbeLine:  # fmt: skip
    """A line of ucc_perftest as the records keep it.

    It is called ``ucc-sharp`` only if the trace shows that SHARP carried it: UCC falls back to UCP without a word.
    """
    workers = launch.workers
    requested = transports_asked(workers[0].environment)
    as_asked = as_requested(requested.get("UCX_TLS"), lanes)
    test = name
    if name == ucc.SHARP and "TL_SHARP" not in (layers or ""):
        test = f"{ucc.UCP} (sharp asked for)" if layers else "ucc (sharp asked for)"
        as_asked = False if layers else None
    average, least, most = printed.seconds
    rate, greatest, smallest = (value or None for value in printed.bandwidth)
    return ProbeLine(
        launch=launch.index, probe=REDUCE_SCATTER, test=test, placement=placement(workers),
        method=f"{ucc.TOOL} of UCC {tool.release}, started by {launch.mpi.name}, results not verified",
        ranks=list(range(len(workers))), hosts=[worker.host for worker in workers], size=count * ELEMENT, count=count,
        iterations=iterations, seconds=average, seconds_min=least, seconds_max=most, bandwidth_bytes_per_second=rate,
        bandwidth_min=smallest, bandwidth_max=greatest, requested={**requested, **ucc.ENVIRONMENT[name]},
        selected=list(lanes), protocol=layers, as_requested=as_asked,
    )  # fmt: skip


def placement(workers: Sequence[Worker]) -> str:
    """``one-host``, ``two-hosts``, or ``4-hosts``."""
    hosts = len({worker.host for worker in workers})
    return {1: ONE_HOST, 2: TWO_HOSTS}.get(hosts, f"{hosts}-hosts")


def make(values: Mapping[str, Any]) -> ReduceScatterProbe:
    """The probe that these options ask for.

    Raises
    ------
    UsageError
        If counts or algorithms are none.
    """
    try:
        counts = parse_counts(values["counts"] or COUNTS)
    except ValueError as error:
        raise UsageError(f"--counts: {error}") from None
    algorithms = tuple(dict.fromkeys(word.strip() for word in values["algorithms"].split(",")))
    unknown = [word for word in algorithms if word not in ALGORITHMS]
    if unknown:
        raise UsageError(f"--algorithms: {unknown[0]!r} is none of {', '.join(ALGORITHMS)}")
    return ReduceScatterProbe(
        counts=counts, algorithms=algorithms, iterations=values["iterations"], workers=values.get("workers")
    )
