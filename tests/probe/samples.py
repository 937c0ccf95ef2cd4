"""Rows and campaigns of network measurements with numbers that can be checked by eye."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merge_bench.records import schema as s
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.records.writer import CampaignWriter

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> $x$ $$y$$ @{z}"


def spread(name: str, value: float, share: float = 0.0) -> dict[str, Any]:
    """Fields of a row: `value`, and launches that gave up to `share` less and more."""
    return {f"{name}_median": value, f"{name}_range": ((1 - share) * value, (1 + share) * value)}


def latency(config: str = "default", size: int = 8, micros: float = 2.0, **changes: Any) -> ProbeRow:
    """A row of tag_lat: `micros`, a tenth less and a tenth more over three launches."""
    seconds = micros * 1e-6
    known: dict[str, Any] = {
        "probe": "p2p",
        "test": "tag_lat",
        "method": "ucx_perftest",
        "config": config,
        "placement": "one-host",
        "size": size,
        "ranks": (0, 1),
        "hosts": ("node0", "node0"),
        "launches": 3,
        **spread("seconds", seconds, 0.1),
        "requested": {"UCX_TLS": "sm"},
        "selected": ("sysv/memory",),
        "protocol": "eager",
        "as_requested": True,
    }
    return ProbeRow(**{**known, **changes})


def rate(config: str = "default", size: int = 8, megabytes: float = 500.0, **changes: Any) -> ProbeRow:
    """A row of tag_bw in MB/s."""
    value = megabytes * 1e6
    return latency(config, size, **{"test": "tag_bw", **spread("bandwidth", value, 0.1), **changes})


def ping_pong(test: str, size: int, micros: float, placement: str = "one-host", **changes: Any) -> ProbeRow:
    """A row of standard or buffered sends."""
    value = size / micros * 1e6
    known = {"probe": "mpi", "test": test, "method": "mpi4py", **spread("bandwidth", value)}
    return latency("default", size, micros, **{**known, "placement": placement, **changes})


def collective(test: str, count: int, micros: float, **changes: Any) -> ProbeRow:
    """A row of reduce-scatter over four ranks; the bus bandwidth of its own formula."""
    seconds, size = micros * 1e-6, 4 * count
    bus = size / seconds * 3 / 4
    known: dict[str, Any] = {
        "probe": "reduce-scatter",
        "test": test,
        "ranks": (0, 1, 2, 3),
        "hosts": ("node0",) * 4,
        "count": count,
        "seconds_ranks": (0.5 * seconds, 2 * seconds),
        **spread("bandwidth", bus),
        "bandwidth_ranks": (bus / 2, bus * 2),
        "wrong": 0,
    }
    return latency("default", size, micros, **{**known, **changes})


def published(config: str = "their cluster", size: int = 8, micros: float = 4.0, **changes: Any) -> ProbeRow:
    """A row of somebody else's."""
    known: dict[str, Any] = {
        "launches": 1,
        "ranks": (),
        "hosts": (),
        "selected": (),
        "requested": {},
        "as_requested": None,
        "protocol": None,
        "source": "a report",
        **spread("seconds", micros * 1e-6),
    }
    return latency(config, size, **{**known, **changes})


def write_campaign(
    folder: Path,
    configs: Sequence[str] = ("default", "tuned"),
    *,
    micros: Sequence[float] = (2.0, 1.0),
    launches: int = 1,
    finished: bool = True,
    failure: str | None = None,
    warning: tuple[str, str, str | None] | None = None,
    test: str = "tag_lat",
    method: str = "ucx_perftest",
) -> Path:
    """A campaign of `probe p2p` with one size; the config `configs[i]` takes `micros[i]`. Gives its folder.

    Every launch has the `failure` (its message), and the `warning` (code, message, remedy).
    """
    with CampaignWriter.create(folder, "probe-p2p") as writer:
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=["probe"],
                version="0",
                configs=[s.Config(name=name, path=None, variables={}) for name in configs],
                plans=[{"probe": "p2p"}],
                runs=[s.RunKey(config=name, plan=0) for name in configs],
            )
        )
        # The last config is measured first, as random order may have it.
        order = [pair for _ in range(launches) for pair in reversed(list(zip(configs, micros, strict=True)))]
        for index, (name, value) in enumerate(order):
            cluster = s.Cluster(launcher="local", protocol="tcp", scheduler=None)
            writer.write(
                s.LaunchLine(launch=index, config=name, plan=0, cluster=cluster, workers=[], data_bytes=0, rows=0)
            )
            writer.write(
                s.ProbeLine(
                    launch=index,
                    probe="p2p",
                    test=test,
                    method=method,
                    placement="one-host",
                    ranks=[0, 1],
                    hosts=["node0", "node0"],
                    size=8,
                    iterations=10,
                    seconds=value * 1e-6,
                    bandwidth_bytes_per_second=8e6 / value,
                    requested={"UCX_TLS": "sm"},
                    selected=["sysv/memory"],
                    protocol="eager",
                    as_requested=True,
                )
            )
            if warning:
                code, message, remedy = warning
                writer.write(s.WarningLine(launch=index, code=code, message=message, remedy=remedy))
            if failure:
                writer.write(s.FailureLine(launch=index, code="run-failed", message=failure))
            writer.write(s.LaunchEndLine(launch=index, status=3 if failure else 0, seconds=1.0))
        if finished:
            writer.write(s.CampaignEndLine(status=3 if failure else 0))
        return writer.folder
