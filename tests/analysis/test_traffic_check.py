"""Lanes beside counters: what is a contradiction, and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from merge_bench.analysis.transports import carriers_of_pair, traffic_contradiction_warnings
from merge_bench.records import schema as s
from merge_bench.records.campaign import Launch
from merge_bench.records.reader import read_campaign
from tests.helpers.documents import summarized
from tests.helpers.synthetic_campaigns import write_campaign

MIB = 1 << 20
EACH = 100 * MIB  # what either rank sends to the other, in all timed iterations


def launch(
    lanes: list[str],
    sent: Mapping[str, int],
    *,
    each: int = EACH,
    hosts: tuple[str, str] = ("a", "a"),
    ranges: list[s.UcxProtocolRange] | None = None,
) -> Launch:
    """Two ranks that sent `each` to the other; `sent`: what the devices of every host counted."""
    placement = "same host" if hosts[0] == hosts[1] else "between hosts"
    cluster = s.Cluster(launcher="local", protocol="tcp")
    workers = [s.Worker(rank=rank, host=host, pid=1, name=str(rank)) for rank, host in enumerate(hosts)]
    iterations = [
        s.IterationLine(launch=0, index=0, warmup=True, wall_seconds=1, pairs=_pairs(999 * EACH)),
        s.IterationLine(launch=0, index=0, wall_seconds=1, pairs=_pairs(each // 2)),
        s.IterationLine(launch=0, index=1, wall_seconds=1, pairs=_pairs(each // 2)),
    ]
    index = None if ranges is None else 0
    lines = s.LanesLine(
        launch=0,
        pairs=[
            s.WorkerPairLanes(from_rank=a, to_rank=1 - a, placement=placement, transports=lanes, protocols=index)
            for a in range(2)
        ],
        protocols=[] if ranges is None else [ranges],
    )
    devices = [s.DeviceTraffic(device=name, sent_bytes=size, received_bytes=size) for name, size in sent.items()]
    counted = s.TrafficLine(
        launch=0,
        during="iterations",
        hosts=[s.HostTraffic(host=host, devices=devices) for host in dict.fromkeys(hosts)],
    )
    line = s.LaunchLine(launch=0, config="c", plan=0, cluster=cluster, workers=workers, data_bytes=1, rows=1)
    return Launch(0, line, tuple(iterations), (), None, lines, None, (), (), None, (counted,))


def _pairs(size: int) -> list[s.PairTraffic]:
    return [s.PairTraffic(from_rank=a, to_rank=1 - a, bytes=size) for a in range(2)]


def test_shared_memory_selected_but_the_loopback_counted_the_bytes() -> None:
    (found,) = traffic_contradiction_warnings(launch(["sysv/memory", "cma/memory"], {"lo": 190 * MIB, "eth0": 5}))
    for part in ("on a", "cma/memory, sysv/memory for 200.00 MiB", "lo counted 190.00 MiB"):
        assert part in found.message


def test_tcp_selected_but_the_loopback_stood_still() -> None:
    (found,) = traffic_contradiction_warnings(launch(["tcp/lo"], {"lo": MIB, "eth0": 300 * MIB}))
    for part in ("tcp/lo to carry 200.00 MiB", "lo counted 1.00 MiB"):
        assert part in found.message


@pytest.mark.parametrize(
    ("lanes", "sent"),
    [
        (["sysv/memory", "cma/memory"], {"lo": 20 * MIB, "eth0": 1000}),  # control messages
        (["tcp/lo"], {"lo": 215 * MIB}),  # headers and acknowledgements
        (["tcp/lo"], {"lo": 600 * MIB}),  # another program's bytes as well
        (["tcp/eth0"], {"lo": 210 * MIB, "eth0": 0}),  # the kernel sends what stays on the host through lo
        (["sysv/memory", "tcp/lo"], {"lo": 0}),  # either may carry
        (["sysv/memory", "tcp/lo"], {"lo": 210 * MIB}),
        (["srd/rdmap0:1"], {"lo": 0}),  # its device is not counted
        (["cuda_ipc/cuda", "cuda_copy/cuda"], {"lo": 0, "nvlink 0": 210 * MIB}),
    ],
)
def test_no_contradiction(lanes: list[str], sent: dict[str, int]) -> None:
    assert not list(traffic_contradiction_warnings(launch(lanes, sent)))


def test_between_hosts_the_loopback_is_no_substitute() -> None:
    far = launch(["tcp/eth0"], {"lo": 210 * MIB, "eth0": 3 * MIB}, hosts=("a", "b"))
    assert ["on a " in each.message for each in traffic_contradiction_warnings(far)] == [True, False]
    assert not list(
        traffic_contradiction_warnings(launch(["tcp/eth0"], {"lo": 0, "eth0": 105 * MIB}, hosts=("a", "b")))
    )


def test_rdma_is_judged_by_its_port() -> None:
    lanes = ["rc_mlx5/mlx5_0:1", "cuda_copy/cuda"]
    assert not list(traffic_contradiction_warnings(launch(lanes, {"eth0": 0, "mlx5_0:1": 101 * MIB}, hosts=("a", "b"))))
    found = traffic_contradiction_warnings(launch(lanes, {"eth0": 105 * MIB, "mlx5_0:1": 4096}, hosts=("a", "b")))
    assert ["mlx5_0:1 counted 4.00 KiB" in each.message for each in found] == [True, True]


def test_little_data_is_not_judged() -> None:
    assert not list(traffic_contradiction_warnings(launch(["sysv/memory"], {"lo": 100 * MIB}, each=MIB)))
    assert len(list(traffic_contradiction_warnings(launch(["sysv/memory"], {"lo": 100 * MIB}, each=2 * MIB)))) == 1


def test_protocols_are_believed_before_lanes() -> None:
    ranges = [s.UcxProtocolRange(memory="host", first_bytes=0, protocol="rendezvous", transports="100% on cma/memory")]
    lanes = ["cma/memory", "tcp/lo"]
    assert len(list(traffic_contradiction_warnings(launch(lanes, {"lo": 190 * MIB}, ranges=ranges)))) == 1
    untold = [s.UcxProtocolRange(memory="host", first_bytes=0, protocol="rendezvous", transports="")]
    line = launch(lanes, {}, ranges=untold).lanes
    assert line is not None
    assert carriers_of_pair(line.pairs[0], line) == {("cma", "memory"), ("tcp", "lo")}


@pytest.mark.parametrize("missing", ["line", "lanes", "traffic"])
def test_without_lanes_or_counters_there_is_nothing_to_say(missing: str) -> None:
    whole = launch(["tcp/lo"], {"lo": 0})
    assert list(traffic_contradiction_warnings(whole))
    assert not list(traffic_contradiction_warnings(replace(whole, **{missing: () if missing == "traffic" else None})))


def test_it_is_a_warning_with_both_figures(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    text = (folder / "records.jsonl").read_text()
    (folder / "records.jsonl").write_text(text.replace("sysv/memory", "tcp/lo").replace(str(73 * MIB), "1000"))
    warnings = summarized(read_campaign(folder))["warnings"]
    (warning,) = [each for each in warnings if each["code"] == "not-carried"]
    # 2 ranks send 12 MB in each of 3 timed iterations.
    assert "68.66 MiB" in warning["message"]
    assert "1000 B" in warning["message"] or "1,000 B" in warning["message"]
    assert warning["remedy"]
