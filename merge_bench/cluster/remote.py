"""A cluster over several hosts, each behind a guard; launchers differ only in how a guard is reached."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.cluster import commands, scratch, tls
from merge_bench.cluster.agreement import check_alike, check_reachable
from merge_bench.cluster.base import Access, Caution, ClusterSettings, Command, Exited
from merge_bench.cluster.environment import forwarded, launcher_defaults
from merge_bench.cluster.guard import GuardLine, guard_argv
from merge_bench.cluster.hosts import Placement, check_gpus, place
from merge_bench.cluster.kind import Reach
from merge_bench.cluster.node import ROOT, SCHEDULER_FILE
from merge_bench.cluster.supervisor import TAIL_LINES
from merge_bench.cluster.unused_rdma import unused_rdma
from merge_bench.config.resolve import DEFAULT
from merge_bench.errors import LaunchFailed
from merge_bench.host import network, pinning
from merge_bench.merge.plan import Plan

PING_SECONDS = 1.0
SHORTEST_SILENCE = 5.0  # of the driver, seconds, before a guard ends everything on its host
STOP_SECONDS = 5.0


class RemoteLauncher:
    """Scheduler on the first host, workers on all, bound to one interface of each host.

    `reach`: how the guard of a host is started there.
    """

    owns_processes = True

    def __init__(self, name: str, reach: Reach) -> None:
        self.name = name
        self._reach = reach
        self._lines: dict[str, GuardLine] = {}
        self._placed: dict[str, str] = {}
        self._certificate: tls.RunCertificate | None = None
        self._hosts: Mapping[str, dict[str, Any]] = {}
        self._scratch: Path | None = None
        self._logs: tuple[Path, str] | None = None
        self._hung_up = threading.Event()

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """What `start` would start, or has started: on each host a guard, and what it is told to run.

        Before the start, what only the hosts know is words in capitals: folders, interfaces and their addresses and
        RDMA devices, a worker's share of the cores, the names of GPUs.
        """
        found = []
        for placement in _placements(plan, settings):
            found.append(Command("guard", placement.host.name, self._reach(placement.host, guard_argv(), settings)))
            host = self._hosts.get(placement.host.name) or _unknown(settings, plan)
            found += self._on_host(plan, settings, placement, host)
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
        self._scratch = scratch.make()
        self._logs = (logs, prefix)
        if plan.protocol == "tls":
            self._certificate = tls.RunCertificate()
        deadline = time.monotonic() + settings.start_timeout
        placements = _placements(plan, settings)
        for placement in placements:
            argv = self._reach(placement.host, guard_argv(), settings)
            log = logs / f"{prefix}guard-{placement.host.name}.log"
            self._lines[placement.host.name] = GuardLine(placement.host.name, argv, log, self._on_news)
        threading.Thread(target=self._ping, name="ping-guards", daemon=True).start()
        hosts = self._hosts = self._describe(placements, settings, plan, deadline)
        check_alike(hosts)
        check_reachable(hosts, network.stack())
        if plan.device_memory:
            gpus = {name: host["gpus"] for name, host in hosts.items()}
            chosen = settings.sources.get("workers", DEFAULT) != DEFAULT
            check_gpus(placements, gpus, settings.workers_per_gpu, chosen=chosen)
        try:
            self._start_processes(plan, settings, placements, hosts, deadline)
        except LaunchFailed as error:
            raise self._with_rank(error, placements) from error
        files = self._certificate.files if self._certificate else {}
        return Access(scheduler_file=self._scratch / SCHEDULER_FILE, tls=files)

    def placed(self) -> Mapping[str, str]:
        """Host of each process."""
        return self._placed

    def cautions(self, settings: ClusterSettings) -> list[Caution]:
        """RDMA devices that the chosen interfaces leave out."""
        return unused_rdma(self._hosts, _told(settings))

    def exited(self) -> list[Exited]:
        """Processes that ended on their own, the scheduler first: without it workers end too."""
        found = [ended for line in self._lines.values() for ended in line.exits]
        return sorted(found, key=lambda ended: ended.role != "scheduler")

    def tail(self, role: str) -> str:
        """The last lines of a process's log; of a host that does not answer, those that it last told."""
        line = self._lines.get(self._placed.get(role, ""))
        if line is None:
            return ""
        try:
            return str(line.send("tail", role=role, lines=TAIL_LINES)(2.0)["text"])
        except LaunchFailed:
            return line.tails.get(role, "")

    def stop(self) -> None:
        """End every process on every host, fetch the logs, and hang up. A host that is out of reach ends its own."""
        self._hung_up.set()
        deadline = time.monotonic() + STOP_SECONDS
        threads = [
            threading.Thread(target=self._stop_host, args=(line, deadline), daemon=True)
            for line in self._lines.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._lines, self._placed, self._hosts = {}, {}, {}
        if self._certificate:
            self._certificate.remove()
            self._certificate = None
        if self._scratch:
            scratch.remove(self._scratch)
            self._scratch = None

    # -- the steps of a start

    def _describe(
        self, placements: Sequence[Placement], settings: ClusterSettings, plan: Plan, deadline: float
    ) -> dict[str, dict[str, Any]]:
        names = [placement.host.name.rpartition("@")[2] for placement in placements]
        asked = []
        for number, placement in enumerate(placements):
            # Without --interface: the one that leads to the others, or from a single host to the driver.
            peer = None if len(names) == 1 else names[0 if number else 1]
            silence = max(plan.timeout, SHORTEST_SILENCE)
            line = self._lines[placement.host.name]
            answer = line.send(
                "describe", interface=settings.interface, peer=peer, silence=silence, driver=network.stack()
            )
            asked.append((placement.host.name, answer))
        try:
            return {name: answer(deadline - time.monotonic()) for name, answer in asked}
        except LaunchFailed as error:
            raise self._with_rank(error, placements) from error

    def _start_processes(
        self, plan: Plan, settings: ClusterSettings, placements: Sequence[Placement],
        hosts: Mapping[str, dict[str, Any]], deadline: float,
    ) -> None:  # fmt: skip
        asked = []
        for placement in placements:
            name = placement.host.name
            line = self._lines[name]
            for file, text in self._certificate.texts.items() if self._certificate else ():
                asked.append((line, "", line.send("write", name=file, text=text)))
            pins = self._pins(plan, settings, placement, hosts[name])
            for command in self._on_host(plan, settings, placement, hosts[name]):
                self._placed[command.role] = name
                pin = pins.get(command.role)
                answer = line.send(
                    "start", role=command.role, argv=command.argv, environment=dict(command.environment),
                    cores=list(pin.cores) if pin else [],
                )  # fmt: skip
                asked.append((line, command.role, answer))
        for line, role, answer in asked:
            started = answer(deadline - time.monotonic())
            if role:
                line.started[role] = started["pid"]

    def _on_host(
        self, plan: Plan, settings: ClusterSettings, placement: Placement, host: dict[str, Any]
    ) -> list[Command]:
        first = placement.workers[0] == 0
        secure = tls.options(host["scratch"]) if plan.protocol == "tls" else ()
        where = commands.Place(placement.host.name, host["scratch"], host["interface"], host["address"], secure)
        pins = self._pins(plan, settings, placement, host)
        config = _told(settings)
        threads = host.get("threads") or max(1, len(host["cores"]) // len(placement.workers))

        def environment(devices: Sequence[str]) -> dict[str, str]:
            net = ",".join([*devices, host["interface"]])
            return {**launcher_defaults(config, {}, threads=threads, net_devices=net), **config}

        found = [commands.scheduler(plan, settings, where, environment(host["rdma"]))] if first else []
        for number in placement.workers:
            pin = pins[f"worker-{number}"]
            ours = environment(pin.devices)
            found.append(commands.worker(plan, settings, where, number, ours, pin.gpu, own_memory=pin.own_memory))
        return found

    def _pins(
        self, plan: Plan, settings: ClusterSettings, placement: Placement, host: dict[str, Any]
    ) -> dict[str, pinning.Pin]:
        found = pinning.pins(
            host, len(placement.workers), gpus=plan.device_memory, workers_per_gpu=settings.workers_per_gpu
        )
        return {f"worker-{number}": pin for number, pin in zip(placement.workers, found, strict=True)}

    @staticmethod
    def _with_rank(error: LaunchFailed, placements: Sequence[Placement]) -> LaunchFailed:
        for placement in placements:
            if placement.host.name == error.host:
                ranks = ", ".join(str(number) for number in placement.workers)
                error.rank = placement.workers[0]
                error.args = (f"{error} (of rank {ranks})",)
        return error

    # -- while it runs

    def _on_news(self, line: GuardLine, news: Mapping[str, Any]) -> None:
        if news.get("event") != "scheduler" or self._scratch is None:
            return
        draft = self._scratch / "scheduler.part"
        with contextlib.suppress(OSError):
            draft.write_text(news["text"])
            draft.rename(self._scratch / SCHEDULER_FILE)
        for other in list(self._lines.values()):
            if other is not line:
                other.send("write", name=SCHEDULER_FILE, text=news["text"])

    def _ping(self) -> None:
        while not self._hung_up.wait(PING_SECONDS):
            for line in list(self._lines.values()):
                line.notify("ping")

    def _stop_host(self, line: GuardLine, deadline: float) -> None:
        try:
            line.send("stop")(deadline - time.monotonic())
            if self._logs is not None:
                folder, prefix = self._logs
                for role in [role for role, host in self._placed.items() if host == line.host]:
                    text = line.send("log", role=role)(deadline - time.monotonic())["text"]
                    with contextlib.suppress(OSError):
                        (folder / f"{prefix}{role}.log").write_text(text)
        except LaunchFailed:
            pass  # out of reach: its guard ends everything when it has heard nothing for a while
        line.close(max(deadline, time.monotonic() + 1.0))


def _placements(plan: Plan, settings: ClusterSettings) -> tuple[Placement, ...]:
    return place(settings.hosts, plan.workers, settings.workers_per_gpu)


def _told(settings: ClusterSettings) -> dict[str, str]:
    """What processes on the hosts get of the driver's environment and the config."""
    told = {**forwarded(os.environ), **settings.environment}
    if "PYTHONPATH" in told:  # of a config that is trusted; this package must still be found
        told["PYTHONPATH"] = os.pathsep.join((str(ROOT), told["PYTHONPATH"]))
    return told


def _unknown(settings: ClusterSettings, plan: Plan) -> dict[str, Any]:
    """A host that nobody has asked yet."""
    interface = settings.interface or "INTERFACE"
    return {
        "scratch": "SCRATCH", "interface": interface, "address": f"ADDRESS-OF-{interface}", "threads": "THREADS",
        "rdma": [f"RDMA-OF-{interface}"], "rdma_nodes": {}, "cores": [], "node_cores": {}, "gpu_nodes": [],
        "gpu_names": [f"VISIBLE-GPU-{number}" for number in range(plan.workers)],
    }  # fmt: skip
