"""Starts a cluster on several hosts through their host agents; launchers differ only in how they reach a host."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.cluster import dask_commands, host_check
from merge_bench.cluster.base import SCHEDULER_FILE, Access, ClusterSettings, Command, Exited, OwningLauncher, Reach
from merge_bench.cluster.environment import forwarded
from merge_bench.cluster.host_agent import ROOT
from merge_bench.cluster.host_agent_client import HostAgentClient, agent_argv
from merge_bench.cluster.hosts import Placement, place
from merge_bench.config.option import DEFAULT
from merge_bench.errors import Caution, LaunchFailed
from merge_bench.host import network, pinning
from merge_bench.host.description import Node
from merge_bench.merge.plan import Plan
from merge_bench.records.outputs import replacing

PING_SECONDS = 1.0
SHORTEST_SILENCE = 5.0  # of the driver, seconds, before a host agent ends everything on its host
STOP_SECONDS = 5.0


class RemoteLauncher(OwningLauncher):
    """Scheduler on the first host, workers on all, bound to one interface of each host.

    `reach`: how a host's agent is started.
    """

    def __init__(self, name: str, reach: Reach) -> None:
        self.name = name
        self._reach = reach
        self._agents: dict[str, HostAgentClient] = {}
        self._placed: dict[str, str] = {}
        self._hosts: Mapping[str, Node] = {}
        self._logs = (Path(), "")
        self._stopping = threading.Event()

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """What `start` would start, or has started: on each host an agent, and the processes that the agent starts.

        Before the start, words in capitals stand for what only a host can report: folders, interfaces with their
        addresses and RDMA devices, a worker's share of the cores, the names of GPUs.
        """
        found = []
        for placement in _placements(plan, settings):
            name = placement.host.name
            found.append(Command("agent", name, self._reach(placement.host, agent_argv(), settings)))
            found += _processes(plan, settings, placement, self._hosts.get(name) or _unknown(settings, plan))
        return found

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Reach every host at once, compare them, then start everything on all of them.

        Raises
        ------
        LaunchFailed
            If a host cannot be reached, or a process cannot be started there.
        UsageError
            If hosts differ in what a run depends on, or workers do not fit their GPUs.
        """
        access = self.make_scratch(plan)
        self._logs = (logs, prefix)
        deadline = time.monotonic() + settings.start_timeout
        placements = _placements(plan, settings)
        for host in (placement.host for placement in placements):
            argv = self._reach(host, agent_argv(), settings)
            self._agents[host.name] = HostAgentClient(
                host.name, argv, logs / f"{prefix}agent-{host.name}.log", self._on_event
            )
        threading.Thread(target=self._ping, name="ping-agents", daemon=True).start()
        try:
            hosts = self._hosts = self._describe(placements, settings, plan, deadline)
            if settings.sources.get("hosts", DEFAULT) != DEFAULT:
                host_check.check_distinct(hosts)
            host_check.check_alike(hosts)
            host_check.check_reachable(hosts, network.stack())
            if plan.device_memory:
                gpus = {name: host.gpus for name, host in hosts.items()}
                chosen = settings.sources.get("workers", DEFAULT) != DEFAULT
                host_check.check_gpus(placements, gpus, settings.workers_per_gpu, chosen=chosen)
            if self.looks:
                self.busy = self._look(deadline)
            self._start_processes(plan, settings, placements, access, deadline)
        except LaunchFailed as error:
            for placement in placements:
                if placement.host.name == error.host:
                    error.rank = placement.workers[0]
                    error.args = (f"{error} (host of rank {', '.join(map(str, placement.workers))})",)
            raise
        return access

    def placed(self) -> Mapping[str, str]:
        """Host of each process."""
        return self._placed

    def cautions(self, settings: ClusterSettings) -> list[Caution]:
        """RDMA devices that UCX cannot use because of the chosen interfaces."""
        return host_check.unused_rdma(self._hosts, _variables(settings))

    def exited(self) -> list[Exited]:
        """Processes that ended on their own, the scheduler first: without it workers end too."""
        found = [ended for agent in self._agents.values() for ended in agent.exits]
        return sorted(found, key=lambda ended: ended.role != "scheduler")

    def tail(self, role: str) -> str:
        """The last lines of a process's log; if its host does not answer, those that its agent sent last."""
        agent = self._agents.get(self._placed.get(role, ""))
        if agent is None:
            return ""
        try:
            return str(agent.send("tail", role=role)(2.0)["text"])
        except LaunchFailed:
            return agent.tails.get(role, "")

    def stop(self) -> None:
        """End every process on every host, fetch the logs, and close the connections.

        The agent of a host that is out of reach ends its processes itself.
        """
        self._stopping.set()
        deadline = time.monotonic() + STOP_SECONDS
        threads = [
            threading.Thread(target=self._stop_host, args=(agent, deadline), daemon=True)
            for agent in self._agents.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._agents, self._placed, self._hosts = {}, {}, {}
        super().stop()

    # -- the steps of a start

    def _describe(
        self, placements: Sequence[Placement], settings: ClusterSettings, plan: Plan, deadline: float
    ) -> dict[str, Node]:
        names = [placement.host.name for placement in placements]
        silence = max(plan.timeout, SHORTEST_SILENCE)
        answers = {}
        for name in names:
            # Without --interface: the one that leads to the other hosts, or from a single host to the driver.
            peer = next((other.rpartition("@")[2] for other in names if other != name), None)
            answers[name] = self._agents[name].send(
                "describe", interface=settings.interface, peer=peer, silence=silence, driver=network.stack()
            )
        return {name: host_check.node_of(name, answer(deadline - time.monotonic())) for name, answer in answers.items()}

    def _look(self, deadline: float) -> dict[str, str]:
        """What other processes use of the cores of hosts that are busy; all agents look at once, and wait."""
        answers = {name: agent.send("load") for name, agent in self._agents.items()}
        found = {name: answer(deadline - time.monotonic())["busy"] for name, answer in answers.items()}
        return {name: load for name, load in found.items() if load}

    def _start_processes(
        self, plan: Plan, settings: ClusterSettings, placements: Sequence[Placement], access: Access, deadline: float
    ) -> None:
        files = [Path(file) for file in access.tls.values()]
        written, started = [], []
        for placement in placements:
            name = placement.host.name
            agent = self._agents[name]
            written += [agent.send("write", name=file.name, text=file.read_text()) for file in files]
            for each in _processes(plan, settings, placement, self._hosts[name]):
                self._placed[each.role] = name
                answer = agent.send(
                    "start", role=each.role, argv=each.argv, environment=dict(each.environment), cores=each.cores
                )
                started.append((agent, each.role, answer))
        for answer in written:
            answer(deadline - time.monotonic())
        for agent, role, answer in started:
            agent.started[role] = answer(deadline - time.monotonic())["pid"]

    # -- while it runs

    def _on_event(self, agent: HostAgentClient, event: Mapping[str, Any]) -> None:
        if event.get("event") != "scheduler" or self.scratch is None:
            return
        draft = self.scratch / "scheduler.part"
        with contextlib.suppress(OSError):
            draft.write_text(event["text"])
            draft.rename(self.scratch / SCHEDULER_FILE)
        for other in list(self._agents.values()):
            if other is not agent:
                other.send("write", name=SCHEDULER_FILE, text=event["text"])

    def _ping(self) -> None:
        while not self._stopping.wait(PING_SECONDS):
            for agent in list(self._agents.values()):
                agent.notify("ping")

    def _stop_host(self, agent: HostAgentClient, deadline: float) -> None:
        folder, prefix = self._logs
        try:
            agent.send("stop")(deadline - time.monotonic())
            for role in [role for role, host in self._placed.items() if host == agent.host]:
                text = agent.send("log", role=role)(deadline - time.monotonic())["text"]
                with contextlib.suppress(OSError), replacing(folder / f"{prefix}{role}.log") as stream:
                    stream.write(text.encode("utf-8", "replace"))
        except LaunchFailed:
            pass  # out of reach: its agent ends everything when it has received nothing for a while
        agent.close(max(deadline, time.monotonic() + 1.0))


def _placements(plan: Plan, settings: ClusterSettings) -> tuple[Placement, ...]:
    return place(settings.hosts, plan.workers, settings.workers_per_gpu)


def _processes(
    plan: Plan, settings: ClusterSettings, placement: Placement, host: Node
) -> list[Command]:  # fmt: skip
    """The processes of one host; `host`: its description by `host_agent.HostAgent.describe`, or `_unknown`."""
    where = dask_commands.Place(placement.host.name, host.scratch, host.interface, host.address, tuple(host.rdma))
    count = len(placement.workers)
    found = pinning.pins(host, count, gpus=plan.device_memory, workers_per_gpu=settings.workers_per_gpu)
    pins = dict(zip(placement.workers, found, strict=True))
    threads = max(1, len(host.cores) // count) if host.cores else "THREADS"
    return dask_commands.processes(plan, settings, where, pins, _variables(settings), {}, threads)


def _variables(settings: ClusterSettings) -> dict[str, str]:
    """What processes on the hosts get of the driver's environment and the config."""
    found = {**forwarded(os.environ), **settings.environment}
    if "PYTHONPATH" in found:  # of a config that is trusted; this package must still be found
        found["PYTHONPATH"] = os.pathsep.join((str(ROOT), found["PYTHONPATH"]))
    return found


def _unknown(settings: ClusterSettings, plan: Plan) -> Node:
    """The description of a host that was not asked yet: no cores, and words in capitals for what only it can report."""
    interface = settings.interface or "INTERFACE"
    return Node(
        scratch="SCRATCH", interface=interface, address=f"ADDRESS-OF-{interface}", rdma=[f"RDMA-OF-{interface}"],
        gpu_names=[f"VISIBLE-GPU-{number}" for number in range(plan.workers)],
    )  # fmt: skip
