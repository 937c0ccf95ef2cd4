"""The check of the link limit: when nothing is measured, what the report says then, and a warning's possible causes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from merge_bench.analysis import aggregate
from merge_bench.analysis.summary import summarize_run
from merge_bench.campaign.measure_launch import (
    TURNS,
    check_link_with_perftest,
    link_difference_causes,
    link_difference_remedy,
)
from merge_bench.host.description import Hardware
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.documents import plain
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

SM, TCP = ("cma/memory", "sysv/memory"), ("tcp/lo",)
MIB = 1 << 20


def test_a_reason_is_given_only_where_it_holds() -> None:
    eager, rendezvous = {"multi-frag eager copy-in copy-out [tcp/lo]"}, {"rendezvous zero-copy read from remote"}
    assert (
        link_difference_causes(
            {SM}, {SM}, workers=2, message_bytes=MIB, cache_bytes=None, perftest_protocols=rendezvous
        )
        == []
    )
    assert (
        link_difference_causes({TCP}, {TCP}, workers=2, message_bytes=MIB, cache_bytes=None, perftest_protocols=eager)
        == []
    )
    assert link_difference_causes(
        {TCP}, {TCP}, workers=2, message_bytes=MIB, cache_bytes=None, perftest_protocols=rendezvous
    ) == [TURNS]
    assert (
        link_difference_causes(
            {SM}, None, workers=2, message_bytes=64 * MIB, cache_bytes=32 * MIB, perftest_protocols=eager
        )
        == []
    )
    (lanes,) = link_difference_causes(
        {TCP}, {SM}, workers=2, message_bytes=64 * MIB, cache_bytes=32 * MIB, perftest_protocols=eager
    )
    assert "other transports" in lanes
    (peers,) = link_difference_causes(
        {SM}, {SM}, workers=3, message_bytes=64 * MIB, cache_bytes=32 * MIB, perftest_protocols=rendezvous
    )
    assert "one peer" in peers
    (buffer,) = link_difference_causes(
        {SM}, {SM}, workers=2, message_bytes=MIB, cache_bytes=32 * MIB, perftest_protocols=rendezvous
    )
    assert buffer.startswith(
        "ucx_perftest sends the same buffer of 1.00 MiB repeatedly, which fits into the processor cache (32.0"
    )


def test_a_difference_that_is_no_difference_of_methods_has_a_remedy() -> None:
    assert "ethernet.cfg" in (link_difference_remedy(["another", TURNS]) or "")
    assert "--link-rounds" in (link_difference_remedy([]) or "")
    assert link_difference_remedy(["ucx_perftest sends to one peer, but the merge sends to all"]) is None


def test_nothing_is_started_or_written_where_more_processes_would_poll_than_there_are_cores() -> None:
    worker = SimpleNamespace(host="a", hardware=Hardware(affinity="0-1", cores=2))
    session: Any = SimpleNamespace(descriptions=[worker, worker])  # neither a cluster nor a writer
    link = s.LinkLimitLine(launch=0, bytes=[1, 1], rounds=[[1.0, 1.0]], limit_bytes_per_second=1e9)
    assert check_link_with_perftest(session, link) is None


def link_of(tmp_path: Path, affinity: str, cores: int, **planned: Any) -> dict[str, Any]:
    def machine(worker: s.Worker) -> s.Worker:
        return msgspec.structs.replace(worker, hardware=Hardware(affinity=affinity, cores=cores))

    campaign = read_campaign(write_campaign(tmp_path, Script(machine=machine, plan=plan(**planned))))
    link: dict[str, Any] = plain(summarize_run(campaign, campaign.runs[0], "run"))["link"]
    return link


@pytest.mark.parametrize(
    ("planned", "affinity", "cores", "said"),
    [
        ({}, "0-1", 2, "not checked against ucx_perftest; use --check-link"),
        (
            {"check_link": True},
            "0-1",
            2,
            "cannot be checked against ucx_perftest: 4 polling processes on 2 cores of node0",
        ),
        ({"check_link": True}, "0-3", 4, "the check against ucx_perftest gave no result"),
    ],
)
def test_the_summary_says_why_there_is_no_ratio(
    tmp_path: Path, planned: dict[str, Any], affinity: str, cores: int, said: str
) -> None:
    link = link_of(tmp_path, affinity, cores, **planned)
    assert link["check_bytes_per_second"] is None
    assert link["not_checked"] == said


@pytest.mark.parametrize(("affinity", "counted"), [("0-3", 2e9), ("0-1", None)])
def test_rates_of_processes_that_took_turns_are_shown_nowhere(affinity: str, counted: float | None) -> None:
    workers = [SimpleNamespace(host="a", hardware=Hardware(affinity=affinity))] * 2
    rows = [SimpleNamespace(probe="link", bandwidth_bytes_per_second=2e9)] * 2
    launch: Any = SimpleNamespace(line=SimpleNamespace(workers=workers), probes=rows)
    assert aggregate.perftest_link_limit([launch]) == counted
