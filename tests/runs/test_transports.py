"""What a run says of transports, beside what UCX itself logs; and the command that only looks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from merge_bench.config import allowed_transports
from merge_bench.config.shipped import find_shipped_file
from merge_bench.config.ucx_info import find_ucx_info, read_installed_ucx
from merge_bench.records.schema import IterationLine, LanesLine, LaunchLine, TrafficLine, WarningLine
from tests.helpers.runs import SMALL, Finished, command

pytestmark = pytest.mark.cluster

# UCX's own line about an endpoint; several of one endpoint are steps of its wiring, and the last one holds.
_LOGGED = re.compile(r"(intra|inter)-node cfg#\d+ tag\(([^)]*)\)")
SHIPPED = ("tcp", "optimized")


@dataclass(frozen=True)
class OfConfig:
    """What the campaign below has of one config: the document, the records of the launch, and the workers' logs."""

    document: dict[str, Any]
    records: list[Any]
    logs: list[Path]

    def of(self, *kinds: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kinds)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OfConfig]:
    """The same merge under two shipped configs, UCX logging what it selects."""
    configs = ("--configs", ",".join(f"{name}.cfg" for name in SHIPPED))
    one = command(
        tmp_path_factory.mktemp("shipped"), *SMALL, "--workers", "2", *configs, environ={"UCX_LOG_LEVEL": "info"}
    ).check_ended(0)
    numbers = {line.config: line.launch for line in one.of(LaunchLine)}
    return {
        document["config"]["name"]: OfConfig(
            document,
            [record for record in one.records if getattr(record, "launch", None) == number],
            list((one.folder / "logs").glob(f"launch-{number:03d}-*worker-*.log")),
        )
        for document in one.document["runs"]
        for number in [numbers[document["config"]["name"]]]
    }


def logged(one: OfConfig) -> dict[str, set[str]]:
    """The lanes in each worker's log, by the worker's name."""
    found = {}
    for log in one.logs:
        (*_, last) = _LOGGED.findall(log.read_text(errors="replace"))
        name = re.search(r"worker-\d+", log.name)
        assert name is not None
        found[name[0]] = set(last[1].split())
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_recorded_lanes_are_those_that_ucx_logs(finished: dict[str, OfConfig], name: str) -> None:
    one = finished[name]
    (launch,) = one.of(LaunchLine)
    seen = logged(one)
    assert set(seen) == {worker.name for worker in launch.workers}
    names = {worker.rank: worker.name for worker in launch.workers}
    line = one.of(LanesLine)[-1]
    assert [(pair.from_rank, pair.to_rank) for pair in line.pairs] == [(0, 1), (1, 0)]
    for pair in line.pairs:
        assert set(pair.transports) == seen[names[pair.from_rank]]
        assert pair.placement == "same host"
    assert one.document["lanes"] == [
        {"from": a, "to": 1 - a, "placement": "same host", "transports": line.pairs[a].transports} for a in range(2)
    ]


def test_what_is_configured_decides_what_is_selected(finished: dict[str, OfConfig]) -> None:
    def used(name: str) -> set[str]:
        return {lane.partition("/")[0] for lane in finished[name].document["link"]["transports"]}

    assert used("tcp") == {"tcp"}
    assert used("optimized") & allowed_transports.SHARED_MEMORY
    assert finished["tcp"].document["requested_transports"]["UCX_TLS"].startswith("^sm")
    assert finished["optimized"].document["requested_transports"]["UCX_TLS"] == "^tcp"


def test_protocols_cover_every_size_and_use_the_lanes(finished: dict[str, OfConfig]) -> None:
    for one in finished.values():
        line = one.of(LanesLine)[-1]
        for pair in line.pairs:
            assert pair.protocols is not None
            ranges = line.protocols[pair.protocols]
            assert ranges[0].first_bytes == 0
            assert ranges[-1].last_bytes is None
            assert all(any(lane in each.transports for lane in pair.transports) for each in ranges)


def test_counters_stand_beside_the_lanes(finished: dict[str, OfConfig]) -> None:
    for name, one in finished.items():
        lines = one.of(TrafficLine)
        assert [line.during for line in lines] == ["iterations", "link"]
        during = {each["during"]: each for each in one.document["traffic"]}
        sent = sum(
            worker.sent_bytes.left + worker.sent_bytes.right
            for line in one.of(IterationLine)
            if not line.warmup
            for worker in line.workers
        )
        assert during["iterations"]["sent"] == sent
        if name == "tcp":
            assert during["iterations"]["devices"]["lo"]["sent"] >= sent
            assert during["link"]["devices"]["lo"]["sent"] >= during["link"]["sent"] > 0


def test_no_setting_differs_under_the_shipped_configs(finished: dict[str, OfConfig]) -> None:
    for one in finished.values():
        assert [line for line in one.of(WarningLine) if line.code == "environment-differs"] == []


def test_effective_settings_are_in_the_records(finished: dict[str, OfConfig]) -> None:
    for one in finished.values():
        (launch,) = one.of(LaunchLine)
        for worker in launch.workers:
            assert worker.ucx.config["UCX_NET_DEVICES"] == "lo"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """What `transports` shows with ethernet.cfg over TCP, and a setting that loses against one of UCXX's."""
    folder = tmp_path_factory.mktemp("shown")
    lines = ("UCX_TLS=tcp", "UCX_MAX_RNDV_LANES=2", "MERGE_BENCH_CHUNK=90e9")
    config = folder / "mine.cfg"
    config.write_text(find_shipped_file("ethernet").read_text() + "\n".join(lines) + "\n")
    return command(folder, "--config", config, "--workers", "2", verb=("transports",))


def test_ethernet_cfg_leaves_no_rendezvous_over_tcp(finished: dict[str, OfConfig], shown: Finished) -> None:
    """Its comment says so, and that nothing is read from remote memory."""
    usual = [each.protocol for ranges in finished["tcp"].of(LanesLine)[-1].protocols for each in ranges]
    assert any("rendezvous" in each for each in usual)
    found = [each["protocol"] for pair in shown.document["pairs"] for each in pair["protocols"]]
    assert found
    assert all("eager" in each for each in found)


def test_a_setting_that_lost_is_told_with_what_was_found(shown: Finished) -> None:
    (warning,) = [each for each in shown.document["warnings"] if each["code"] == "environment-differs"]
    assert warning["message"] == "UCX_MAX_RNDV_LANES=2 was requested, but ranks 0, 1 have UCX_MAX_RNDV_RAILS=1"
    assert warning["remedy"]


def test_the_command_says_what_a_run_would_and_leaves_nothing_behind(shown: Finished) -> None:
    assert shown.status == 0, shown.shown()
    document = shown.document
    assert document["requested"]["UCX_TLS"] == "tcp"
    assert [(pair["from"], pair["to"]) for pair in document["pairs"]] == [(0, 1), (1, 0)]
    assert [each["rank"] for each in document["bindings"]] == [0, 1]
    assert all(pair["transports"] == ["tcp/lo"] for pair in document["pairs"])
    assert all(pair["placement"] == "same host" for pair in document["pairs"])
    (found,) = document["available"].values()
    assert found == {name: list(devices) for name, devices in read_installed_ucx(find_ucx_info()).transports.items()}
    assert sorted(path.name for path in shown.results.parent.iterdir()) == ["mine.cfg", "tmp"]
    shown.check_clean()
