"""Measures the link limit again, with one ``ucx_perftest`` from every worker to the next, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.campaign.cluster_session import Session
from merge_bench.cluster import ucx_perftest, worker_programs
from merge_bench.cluster.ucx_perftest import BANDWIDTH, WINDOW, Perftest
from merge_bench.config.allowed_transports import transport_settings
from merge_bench.errors import Caution
from merge_bench.host import machine
from merge_bench.merge.exchange.base import longest_message_bytes
from merge_bench.records.schema import LinkLine, ProbeLine
from merge_bench.units import format_bytes, format_rate

NAME = "link"
TOLERANCE = 0.10
SECONDS = 2.0
LINK_CHECK = "link-check"
TURNS = "with UCX's rendezvous over TCP, workers that send to each other take turns"


def check_link(session: Session, link: LinkLine) -> None:
    """Measure the link limit again with ``ucx_perftest``.

    Every worker sends messages of the merge's own size to the next rank while it receives from the previous one: with
    two workers, these are two opposite tests at once. Each worker's result is recorded; a difference of more than a
    tenth is a warning that names possible causes. If a host has fewer cores than polling processes, nothing is
    measured: the rate would show how the kernel schedules them, not what the link carries.
    """
    if machine.crowding((each.host, each.hardware) for each in session.descriptions):
        return  # the report says so, from the same data
    limit = link.limit_bytes_per_second
    if limit is None:
        session.warn(Caution(LINK_CHECK, "--check-link was skipped, because the link measurement sent no data"))
        return
    test = Perftest("tag", BANDWIDTH)
    ranks = range(len(session.members))
    after = {rank: (rank + 1) % len(ranks) for rank in ranks}
    size = _message_bytes(session, link)
    memory = "cuda" if session.plan.device_memory else "host"
    count = max(8, int(limit * SECONDS / size))
    text = ucx_perftest.batch_file(test, [size], memory=memory, count=count, error_handling=session.plan.error_handling)
    limits = [2 * session.plan.timeout + 20 * SECONDS]
    servers = session.workers.on_all(worker_programs.start_server, text)
    outputs = session.workers.on_some(
        {rank: (worker_programs.run_client, servers[after[rank]], text, limits) for rank in ranks}
    )
    session.workers.on_some({rank: (worker_programs.wait_for_server, servers[rank]) for rank in ranks})
    rates, lanes, protocols = [], set(), set()
    for rank, output in enumerate(outputs):
        log = ucx_perftest.parse_log(output.log, test)
        (figures,) = ucx_perftest.median_figures(output.text, [size])
        rates.append(figures.bandwidth)
        lanes.add(log.lanes)
        protocols.add(log.protocol(size) or "")
        hosts = [session.members[each].host for each in (rank, after[rank])]
        session.writer.write(
            ProbeLine(
                launch=session.launch,
                probe=NAME,
                test=test.name,
                ranks=[rank, after[rank]],
                method=f"ucx_perftest of UCX {log.version}, window {WINDOW}, every worker to the next at once",
                placement="one-host" if len(set(hosts)) == 1 else "two-hosts",
                hosts=hosts,
                memory=memory,
                size=size,
                iterations=figures.iterations,
                seconds=figures.seconds,
                bandwidth_bytes_per_second=figures.bandwidth,
                messages_per_second=figures.messages,
                requested=transport_settings(session.descriptions[rank].ucx.config),
                selected=list(log.lanes),
                protocol=log.protocol(size),
            )
        )
    mean_rate = len(rates) / sum(1 / rate for rate in rates)
    if abs(mean_rate / limit - 1) > TOLERANCE:
        causes = _causes_here(session, lanes, protocols, size, memory)
        shown = f"possible causes: {'; '.join(causes)}" if causes else "the cause is unknown"
        measured = f"ucx_perftest measured {format_rate(mean_rate)} per worker with messages of {format_bytes(size)}"
        message = f"{measured}, but the link limit is {format_rate(limit)}; {shown}"
        session.warn(Caution(LINK_CHECK, message, remedy_for(causes)))


def _message_bytes(session: Session, link: LinkLine) -> int:
    parcel = max(link.bytes) // (2 * max(1, len(session.members) - 1))
    longest = session.plan.message_bytes
    if session.plan.pipeline:
        longest = longest_message_bytes(len(session.members), longest)
    return max(1, min(parcel, longest or parcel))


def _causes_here(
    session: Session, lanes: set[tuple[str, ...]], protocols: set[str], size: int, memory: str
) -> list[str]:
    selected = {tuple(pair.transports) for pair in session.lanes.pairs} if session.lanes is not None else None
    one_host = len({member.host for member in session.members}) == 1
    cache = session.descriptions[0].hardware.cache_bytes if memory == "host" and one_host else None
    workers = len(session.members)
    return possible_causes(lanes, selected, workers=workers, size=size, cache=cache, protocols=protocols)


def remedy_for(causes: Sequence[str]) -> str | None:
    """A remedy for a difference with these `causes`; None if the two measurements differ by design."""
    if TURNS in causes:
        return "add UCX_RNDV_SCHEME=get_zcopy to the config, or use ethernet.cfg: over TCP, UCX then uses no rendezvous"
    return None if causes else "run again on a quiet machine, with --link-rounds 20"


def possible_causes(
    lanes: set[tuple[str, ...]],
    selected: set[tuple[str, ...]] | None,
    *,
    workers: int,
    size: int,
    cache: int | None,
    protocols: set[str],
) -> list[str]:
    """The causes for which ``ucx_perftest`` and the link measurement can differ in a launch, a phrase each.

    `lanes`: those of ``ucx_perftest``; `selected`: those of the data plane, None if unknown; `size`: bytes of a
    message; `cache`: bytes of the processor's cache, None where messages do not stay in it (GPUs, several hosts);
    `protocols`: those of ``ucx_perftest``, as UCX names them.
    """
    causes = []
    only_tcp = all(lane.startswith("tcp/") for each in lanes for lane in each)
    if only_tcp and any("rendezvous" in protocol for protocol in protocols):
        causes.append(TURNS)
    if selected is not None and selected != lanes:
        causes.append("ucx_perftest used other transports than the merge")
    if workers > 2:
        causes.append("ucx_perftest sends to one peer, but the merge sends to all")
    if cache is not None and size <= cache:
        fits = f"which fits into the processor cache ({format_bytes(cache)}), but the merge sends new data"
        causes.append(f"ucx_perftest sends the same buffer of {format_bytes(size)} repeatedly, {fits}")
    return causes
