"""An independent check of the link limit: one ``ucx_perftest`` from every worker to the next, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from merge_bench import evidence
from merge_bench.probe import perftest
from merge_bench.probe.perftest import BANDWIDTH, Kind
from merge_bench.record.schema import LinkLine, ProbeLine, WarningLine
from merge_bench.units import format_bytes, format_rate

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun

NAME = "link"
TOLERANCE = 0.10
SECONDS = 2.0
CODE = "link-check"


def check_link(run: LaunchRun, link: LinkLine) -> float | None:
    """Measure the link limit again with ``ucx_perftest``; gives its bytes per second for a worker, if any were.

    Every worker sends messages of the merge's own size to the next rank while it receives from the one before: with
    two workers, two opposite tests at once. Rows are recorded; a difference of more than a tenth is a warning that
    says what may be behind it.
    """
    from merge_bench.probe import children

    limit = link.limit_bytes_per_second
    if limit is None:
        message = "the link limit was not checked: nothing was sent while it was measured"
        run.writer.write(WarningLine(launch=run.launch, code=CODE, message=message))
        return None
    test = Kind("tag", BANDWIDTH)
    workers = len(run.members)
    size = _message(run, link)
    memory = "cuda" if run.plan.engine == "cudf" else "host"
    count = max(8, int(limit * SECONDS / size))
    text = perftest.batch(test, [size], memory=memory, count=count, error_handling=run.plan.error_handling)
    limits = [2 * run.plan.timeout + 20 * SECONDS]
    servers = run.on_all(children.listen, text)
    asked = run.on_some({rank: (children.ask, servers[(rank + 1) % workers], text, limits) for rank in range(workers)})
    run.on_some({rank: (children.serve, servers[rank]) for rank in range(workers)})
    rates, lanes = [], []
    for rank, output in enumerate(asked):
        log = perftest.parse_log(output.log, test)
        (figures,) = perftest.parse_all(output.text, [size])
        rates.append(figures.bandwidth)
        lanes.append(log.lanes)
        to = (rank + 1) % workers
        run.writer.write(
            ProbeLine(
                launch=run.launch, probe=NAME, test=test.name, ranks=[rank, to],
                method=f"ucx_perftest of UCX {log.version}, window {perftest.WINDOW}, every worker to the next at once",
                placement="one-host" if run.members[rank].host == run.members[to].host else "two-hosts",
                hosts=[run.members[rank].host, run.members[to].host], memory=memory, size=size,
                iterations=figures.iterations, seconds=figures.seconds,
                bandwidth_bytes_per_second=figures.bandwidth,
                messages_per_second=figures.messages, requested=evidence.requested(run.facts[rank]),
                selected=list(log.lanes), protocol=log.protocol(size),
            )
        )  # fmt: skip
    found = len(rates) / sum(1 / rate for rate in rates)
    if abs(found / limit - 1) > TOLERANCE:
        reasons = _reasons(run, lanes)
        run.writer.write(
            WarningLine(
                launch=run.launch, code=CODE,
                message=f"ucx_perftest gives {format_rate(found)} a worker where the link limit is {format_rate(limit)}"
                f" ({found / limit:.2f} of it, messages of {format_bytes(size)}): {reasons}",
            )
        )  # fmt: skip
    return found


def _message(run: LaunchRun, link: LinkLine) -> int:
    """The length of most of the merge's messages."""
    parcel = max(link.bytes) // (2 * max(1, len(run.members) - 1))
    return max(1, min(parcel, run.plan.message_bytes or parcel))


def _reasons(run: LaunchRun, lanes: list[tuple[str, ...]]) -> str:
    """What may make the two differ, from what is known of this launch."""
    found = []
    here: dict[str, int] = {}
    cores: Mapping[str, int] = {m.host: f["hardware"]["cores"] for m, f in zip(run.members, run.facts, strict=True)}
    for member in run.members:
        here[member.host] = here.get(member.host, 0) + 2
    for host, processes in here.items():
        if processes > cores[host]:
            found.append(f"its {processes} processes on {host} poll on {cores[host]} cores, where the merge has half")
    if run.lanes is not None:
        selected = {tuple(pair.transports) for pair in run.lanes.pairs}
        if selected != set(lanes):
            found.append("it selected other lanes than the data plane")
    if len(run.members) > 2:
        found.append("it sends to one peer, and the merge to all")
    found.append("it sends one buffer again and again, which caches may hold, and the merge sends new memory")
    return "; ".join(found)
