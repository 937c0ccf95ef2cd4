"""An independent check of the link limit: one ``ucx_perftest`` from every worker to the next, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.campaign.cluster_session import Session
from merge_bench.cluster import ucx_perftest, worker_programs
from merge_bench.cluster.ucx_perftest import BANDWIDTH, WINDOW, Kind
from merge_bench.config.allowed_transports import requested
from merge_bench.errors import Caution
from merge_bench.host import machine
from merge_bench.merge.exchange.in_flight import longest_message
from merge_bench.records.schema import LinkLine, ProbeLine
from merge_bench.units import format_bytes, format_rate

NAME = "link"
TOLERANCE = 0.10
SECONDS = 2.0
CODE = "link-check"
TURNS = "with UCX's rendezvous over TCP, workers that send to each other take turns"


def check_link(session: Session, link: LinkLine) -> None:
    """Measure the link limit again with ``ucx_perftest``.

    Every worker sends messages of the merge's own size to the next rank while it receives from the one before: with
    two workers, two opposite tests at once. Rows are recorded; a difference of more than a tenth is a warning that
    names possible causes. If a host has fewer cores than polling processes, nothing is measured: the rate would show
    how the kernel schedules them, not what the link carries.
    """
    if machine.crowded((each.host, each.hardware) for each in session.descriptions):
        return  # the report says so, from the same data
    limit = link.limit_bytes_per_second
    if limit is None:
        caution = Caution(
            CODE,
            "--check-link was skipped, because the link measurement sent no data",
        )
        session.warn(caution)
        return
    test = Kind("tag", BANDWIDTH)
    ranks = range(len(session.members))
    after = {rank: (rank + 1) % len(ranks) for rank in ranks}
    size = _message(session, link)
    memory = "cuda" if session.plan.device_memory else "host"
    count = max(8, int(limit * SECONDS / size))
    text = ucx_perftest.batch(test, [size], memory=memory, count=count, error_handling=session.plan.error_handling)
    limits = [2 * session.plan.timeout + 20 * SECONDS]
    servers = session.workers.on_all(worker_programs.listen, text)
    asked = session.workers.on_some({rank: (worker_programs.ask, servers[after[rank]], text, limits) for rank in ranks})
    session.workers.on_some({rank: (worker_programs.serve, servers[rank]) for rank in ranks})
    rates, lanes, protocols = [], [], []
    for rank, output in enumerate(asked):
        log = ucx_perftest.parse_log(output.log, test)
        (figures,) = ucx_perftest.parse_all(output.text, [size])
        rates.append(figures.bandwidth)
        lanes.append(log.lanes)
        protocols.append(log.protocol(size) or "")
        to = after[rank]
        session.writer.write(
            ProbeLine(
                launch=session.launch, probe=NAME, test=test.name, ranks=[rank, to],
                method=f"ucx_perftest of UCX {log.version}, window {WINDOW}, every worker to the next at once",
                placement="one-host" if session.members[rank].host == session.members[to].host else "two-hosts",
                hosts=[session.members[rank].host, session.members[to].host], memory=memory, size=size,
                iterations=figures.iterations, seconds=figures.seconds,
                bandwidth_bytes_per_second=figures.bandwidth,
                messages_per_second=figures.messages, requested=requested(session.descriptions[rank].ucx.config),
                selected=list(log.lanes), protocol=log.protocol(size),
            )
        )  # fmt: skip
    found = len(rates) / sum(1 / rate for rate in rates)
    if abs(found / limit - 1) > TOLERANCE:
        causes = _reasons(session, lanes, protocols, size, memory)
        shown = f"possible causes: {'; '.join(causes)}" if causes else "the cause is unknown"
        message = (
            f"ucx_perftest measured {format_rate(found)} per worker with messages of {format_bytes(size)}, but the link"
            f" limit is {format_rate(limit)}; {shown}"
        )
        session.warn(Caution(CODE, message, remedy_for(causes)))


def _message(session: Session, link: LinkLine) -> int:
    """The length of most of the merge's messages."""
    parcel = max(link.bytes) // (2 * max(1, len(session.members) - 1))
    longest = session.plan.message_bytes
    if session.plan.pipeline:
        longest = longest_message(len(session.members), longest)
    return max(1, min(parcel, longest or parcel))


def _reasons(session: Session, lanes: list[tuple[str, ...]], protocols: list[str], size: int, memory: str) -> list[str]:
    selected = {tuple(pair.transports) for pair in session.lanes.pairs} if session.lanes is not None else None
    one_host = len({member.host for member in session.members}) == 1
    cache = session.descriptions[0].hardware.cache_bytes if memory == "host" and one_host else None
    return reasons(set(lanes), selected, workers=len(session.members), size=size, cache=cache, protocols=set(protocols))


def remedy_for(causes: Sequence[str]) -> str | None:
    """What to do about a difference with these `causes`; None if nothing is wrong, because the two differ by design."""
    if TURNS in causes:
        return "add UCX_RNDV_SCHEME=get_zcopy to the config, or use ethernet.cfg: over TCP, UCX then uses no rendezvous"
    return None if causes else "run again on a quiet machine, with --link-rounds 20"


def reasons(
    lanes: set[tuple[str, ...]], selected: set[tuple[str, ...]] | None, *, workers: int, size: int, cache: int | None,
    protocols: set[str],
) -> list[str]:  # fmt: skip
    """What makes the two differ, as far as it holds in a launch.

    `lanes` are the tool's and `selected` the data plane's, None where they are not known; `cache` is the processor's
    in bytes, None where messages do not stay in it: on GPUs, between hosts. `protocols`: the tool's, as UCX names them.
    """
    found = []
    if all(lane.startswith("tcp/") for each in lanes for lane in each) and any(
        "rendezvous" in each for each in protocols
    ):
        found.append(TURNS)
    if selected is not None and selected != lanes:
        found.append("ucx_perftest used other transports than the merge")
    if workers > 2:
        found.append("ucx_perftest sends to one peer, but the merge sends to all")
    if cache is not None and size <= cache:
        found.append(
            f"ucx_perftest sends the same buffer of {format_bytes(size)} repeatedly, which fits into the processor "
            f"cache ({format_bytes(cache)}), but the merge sends new data"
        )
    return found
