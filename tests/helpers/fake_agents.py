"""A cluster on several hosts that are not there: their agents are programs on this one, and start nothing."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from merge_bench.cluster import host_agent
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.hosts import HostSpec
from merge_bench.cluster.start_on_hosts import RemoteLauncher
from merge_bench.config.installation import __version__
from merge_bench.host import machine
from merge_bench.host.description import HostReport, InstalledMergeBench
from merge_bench.merge.plan import Plan

AGENT = """
import json, sys

def send(**message):
    print(json.dumps(message), flush=True)

for request in map(json.loads, sys.stdin):
    if request["do"] == "tail":
        break  # the connection is lost
    if request["do"] == "describe":
        send(id=request["id"], **json.loads(sys.argv[1]))
    elif request["do"] == "start":
        send(event="log", role=request["role"], tail="last words of " + request["role"])
        send(id=request["id"], pid=1)
    elif "id" in request:
        send(id=request["id"], text="", busy=None)
"""
"""It gives the description that it was started with, and the last lines of a log only without being asked."""


@contextlib.contextmanager
def started(
    nodes: Mapping[str, HostReport], plan: Plan, settings: ClusterSettings, logs: Path
) -> Iterator[RemoteLauncher]:
    """A launcher that has started a cluster on the hosts of `settings`; `nodes`: what they report, by name."""
    sources = host_agent.source_checksum(host_agent.ROOT / "merge_bench")
    versions, project = (
        dict(machine.installed_package_versions()),
        InstalledMergeBench(version=__version__, sources=sources),
    )
    reports = {name: replace(node, versions=versions, project=project) for name, node in nodes.items()}

    def reach(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", AGENT, json.dumps(msgspec.to_builtins(reports[host.name])))

    launcher = RemoteLauncher("fake", reach)
    try:
        launcher.start_processes(plan, settings, logs, "")
        yield launcher
    finally:
        launcher.stop_processes()
