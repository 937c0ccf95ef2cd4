"""Starts a cluster on several hosts through their host agents; launchers differ only in how they reach a host."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from merge_bench.cluster import dask_commands, host_agent, host_check, signals
from merge_bench.cluster.base import (
    SCHEDULER_FILE,
    ClusterSettings,
    EndedProcess,
    HostCommandMaker,
    Launcher,
    ProcessCommand,
    SchedulerAccess,
)
from merge_bench.cluster.dask_commands import variables_for_other_hosts
from merge_bench.cluster.host_agent import ROOT
from merge_bench.cluster.hosts import HostPlacement, place_workers
from merge_bench.cluster.supervisor import ChildProcess, read_log_tail
from merge_bench.config.files import replace_file
from merge_bench.config.option import DEFAULT
from merge_bench.errors import LaunchFailed, WarningMessage
from merge_bench.host import network, pinning
from merge_bench.host.description import HostReport
from merge_bench.host.pinning import WorkerPin
from merge_bench.merge.plan import Plan

PING_SECONDS = 1.0
SHORTEST_SILENCE = 5.0  # of the driver, seconds, before a host agent ends everything on its host
STOP_SECONDS = 5.0
STDERR_LINES = 3


class RemoteLauncher(Launcher):
    """Starts the scheduler on the first host and workers on all hosts, through an agent on each host.

    `reach`: returns the command line that runs a command, such as the agent, on a host.
    """

    def __init__(self, name: str, reach: HostCommandMaker) -> None:
        self.name = name
        self._reach = reach
        self._agents: dict[str, HostAgentClient] = {}
        self._placed: dict[str, str] = {}
        self._hosts: Mapping[str, HostReport] = {}
        self._pins: Mapping[str, Sequence[WorkerPin]] = {}
        self._logs = (Path(), "")
        self._stopping = threading.Event()

    def process_commands(self, plan: Plan, settings: ClusterSettings) -> list[ProcessCommand]:
        """Return the commands of `start_processes`: on each host an agent, and the processes that the agent starts.

        Before the start, words in capitals stand for what only a host can report: folders, interfaces with their
        addresses and RDMA devices, a worker's share of the cores, the names of GPUs.
        """
        commands = []
        for placement in _host_placements(plan, settings):
            name = placement.host.name
            commands.append(ProcessCommand("agent", name, self._reach(placement.host, host_agent_command(), settings)))
            host = self._hosts.get(name) or _placeholder_host_report(settings, plan)
            commands += _host_commands(plan, settings, placement, host)
        return commands

    def start_processes(
        self, plan: Plan, settings: ClusterSettings, log_folder: Path, log_prefix: str
    ) -> SchedulerAccess:
        """Start an agent on every host, compare the hosts, then start all processes; return how to reach the scheduler.

        Raises LaunchFailed if a host cannot be reached, or a process cannot be started there; UsageError if hosts
        differ in what a run depends on, or workers do not fit their GPUs.
        """
        access = self.prepare_scheduler_access(plan)
        self._logs = (log_folder, log_prefix)
        deadline = time.monotonic() + settings.start_timeout
        placements = _host_placements(plan, settings)
        for host in (placement.host for placement in placements):
            argv, log = (
                self._reach(host, host_agent_command(), settings),
                log_folder / f"{log_prefix}agent-{host.name}.log",
            )
            self._agents[host.name] = HostAgentClient(host.name, argv, log, self._distribute_scheduler_file)
        threading.Thread(target=self._ping_agents_repeatedly, name="ping-agents", daemon=True).start()
        try:
            hosts = self._hosts = self._describe_hosts(placements, settings, plan, deadline)
            if settings.sources.get("hosts", DEFAULT) != DEFAULT:
                host_check.check_distinct_hosts(hosts)
            host_check.check_same_software(hosts)
            host_check.check_no_remote_loopback(hosts, network.network_stack_id())
            if plan.device_memory:
                gpus = {name: host.gpus for name, host in hosts.items()}
                chosen = settings.sources.get("workers", DEFAULT) != DEFAULT
                host_check.check_gpu_counts(placements, gpus, settings.workers_per_gpu, worker_count_given=chosen)
            self._pins = {
                each.host.name: _worker_pins(plan, settings, each, hosts[each.host.name]) for each in placements
            }
            if plan.device_memory and (plan.data_plane.endpoints or plan.protocol == "ucx"):
                host_check.check_mig_instances(hosts, self._pins)
            if self.checks_host_load:
                answers = {name: agent.send_request("load") for name, agent in self._agents.items()}
                loads = {name: answer(deadline - time.monotonic())["busy"] for name, answer in answers.items()}
                self.busy_hosts = {name: load for name, load in loads.items() if load}
            self._start_dask_processes(plan, settings, placements, access, deadline)
        except LaunchFailed as error:
            for placement in placements:
                if placement.host.name == error.host:
                    error.rank = placement.workers[0]
                    error.args = (f"{error} (host of rank {', '.join(map(str, placement.workers))})",)
            raise
        return access

    def hosts_by_process_role(self) -> Mapping[str, str]:
        return self._placed

    def host_warnings(self, settings: ClusterSettings) -> list[WarningMessage]:
        """Return warnings about RDMA ports that UCX cannot use with the chosen interfaces, or that no worker uses."""
        variables = _worker_variables(settings)
        idle = host_check.idle_rdma_port_warnings(self._hosts, self._pins, variables)
        return [*host_check.unusable_rdma_port_warnings(self._hosts, variables), *idle]

    def ended_processes(self) -> list[EndedProcess]:
        """Return the processes that ended on their own, the scheduler first: without a scheduler, workers end too."""
        processes = [ended for agent in self._agents.values() for ended in agent.exits]
        return sorted(processes, key=lambda ended: ended.role != "scheduler")

    def read_log_tail(self, role: str) -> str:
        """Return the last lines of a process's log; if its host does not answer, the lines that its agent sent last."""
        agent = self._agents.get(self._placed.get(role, ""))
        if agent is None:
            return ""
        try:
            return str(agent.send_request("tail", role=role)(2.0)["text"])
        except LaunchFailed:
            return agent.tails.get(role, "")

    def stop_processes(self) -> None:
        """End every process on every host, fetch the logs, and close the connections to the host agents.

        The agent of a host that is out of reach ends its processes itself.
        """
        self._stopping.set()
        deadline = time.monotonic() + STOP_SECONDS
        threads = [
            threading.Thread(target=self._stop_host_processes, args=(agent, deadline), daemon=True)
            for agent in self._agents.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._agents, self._placed, self._hosts, self._pins = {}, {}, {}, {}
        super().stop_processes()

    # -- the steps of a start

    def _describe_hosts(
        self, placements: Sequence[HostPlacement], settings: ClusterSettings, plan: Plan, deadline: float
    ) -> dict[str, HostReport]:
        names, answers, hosts = [placement.host.name for placement in placements], {}, {}
        common = {"interface": settings.interface, "silence": max(plan.timeout, SHORTEST_SILENCE)}
        for name in names:
            # Without --interface: the one that leads to the other hosts, or from a single host to the driver.
            peer = next((other.rpartition("@")[2] for other in names if other != name), None)
            driver = network.network_stack_id()
            answers[name] = self._agents[name].send_request("describe", peer=peer, driver=driver, **common)
        for name, answer in answers.items():
            hosts[name] = host_check.parse_host_description(name, answer(deadline - time.monotonic()))
        return hosts

    def _start_dask_processes(
        self,
        plan: Plan,
        settings: ClusterSettings,
        placements: Sequence[HostPlacement],
        access: SchedulerAccess,
        deadline: float,
    ) -> None:
        files = [Path(file) for file in access.tls.values()]
        written, started = [], []
        for placement in placements:
            name = placement.host.name
            agent = self._agents[name]
            written += [agent.send_request("write", name=file.name, text=file.read_text()) for file in files]
            for command in _host_commands(plan, settings, placement, self._hosts[name]):
                self._placed[command.role] = name
                role, argv, environment = command.role, command.argv, dict(command.environment)
                answer = agent.send_request("start", role=role, argv=argv, environment=environment, cores=command.cores)
                started.append((agent, role, answer))
        for answer in written:
            answer(deadline - time.monotonic())
        for agent, role, answer in started:
            agent.started[role] = answer(deadline - time.monotonic())["pid"]

    # -- while it runs

    def _distribute_scheduler_file(self, agent: HostAgentClient, event: Mapping[str, Any]) -> None:
        if event.get("event") != "scheduler" or self.scratch is None:
            return
        draft = self.scratch / "scheduler.part"
        with contextlib.suppress(OSError):
            draft.write_text(event["text"])
            draft.rename(self.scratch / SCHEDULER_FILE)
        for other in list(self._agents.values()):
            if other is not agent:
                other.send_request("write", name=SCHEDULER_FILE, text=event["text"])

    def _ping_agents_repeatedly(self) -> None:
        while not self._stopping.wait(PING_SECONDS):
            for agent in list(self._agents.values()):
                agent.send_notification("ping")

    def _stop_host_processes(self, agent: HostAgentClient, deadline: float) -> None:
        folder, prefix = self._logs
        try:
            agent.send_request("stop")(deadline - time.monotonic())
            for role in [role for role, host in self._placed.items() if host == agent.host]:
                text = agent.send_request("log", role=role)(deadline - time.monotonic())["text"]
                with contextlib.suppress(OSError), replace_file(folder / f"{prefix}{role}.log") as stream:
                    stream.write(text.encode("utf-8", "replace"))
        except LaunchFailed:
            pass  # out of reach: its agent ends everything when it has received nothing for a while
        agent.close(max(deadline, time.monotonic() + 1.0))


def _host_placements(plan: Plan, settings: ClusterSettings) -> tuple[HostPlacement, ...]:
    return place_workers(settings.hosts, plan.workers, settings.workers_per_gpu)


def _host_commands(
    plan: Plan, settings: ClusterSettings, placement: HostPlacement, host: HostReport
) -> list[ProcessCommand]:
    where = dask_commands.ProcessLocation(
        placement.host.name, host.scratch, host.interface, host.address, tuple(host.rdma)
    )
    count = len(placement.workers)
    pins = dict(zip(placement.workers, _worker_pins(plan, settings, placement, host), strict=True))
    threads = max(1, len(host.cores) // count) if host.cores else "THREADS"
    return dask_commands.dask_process_commands(plan, settings, where, pins, _worker_variables(settings), {}, threads)


def _worker_pins(plan: Plan, settings: ClusterSettings, placement: HostPlacement, host: HostReport) -> list[WorkerPin]:
    count = len(placement.workers)
    return pinning.pin_workers(host, count, use_gpus=plan.device_memory, workers_per_gpu=settings.workers_per_gpu)


def _worker_variables(settings: ClusterSettings) -> dict[str, str]:
    variables = {**variables_for_other_hosts(os.environ), **settings.environment}
    if "PYTHONPATH" in variables:  # of a config that is trusted; this package must still be found
        variables["PYTHONPATH"] = os.pathsep.join((str(ROOT), variables["PYTHONPATH"]))
    return variables


def _placeholder_host_report(settings: ClusterSettings, plan: Plan) -> HostReport:
    """Return a stand-in for the report of a host that was not asked: no cores, and words in capitals for names."""
    interface = settings.interface or "INTERFACE"
    return HostReport(
        scratch="SCRATCH",
        interface=interface,
        address=f"ADDRESS-OF-{interface}",
        rdma=[f"RDMA-OF-{interface}"],
        gpu_names=[f"VISIBLE-GPU-{number}" for number in range(plan.workers)],
    )


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs the `main` of a module with this Python and this package, at their paths here."""
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    return (sys.executable, "-P", "-c", f"{path}; from {module} import main; main()", *arguments)


def host_agent_command() -> tuple[str, ...]:
    """Return the command that runs a host agent."""
    return module_command(host_agent.__name__)


class HostAgentClient:
    """Starts the agent on a host, and exchanges messages with it.

    `argv`: the agent's command behind ssh or srun. `log`: the file for the standard error of ssh or srun. `on_event` is
    called from the reading thread with every event of the agent. Raises LaunchFailed if there is no such command.
    """

    def __init__(
        self, host: str, argv: Sequence[str], log: Path, on_event: Callable[[HostAgentClient, dict[str, Any]], None]
    ) -> None:
        self.host, self._log, self._handle_event = host, log, on_event
        self.exits: list[EndedProcess] = []
        self.started: dict[str, int] = {}
        self.tails: dict[str, str] = {}  # the last lines of each process's log, as the agent sent them last
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._closing = False
        self.lost: str | None = None
        with signals.defer_interruption():
            # Its input ends when this process does: then the agent ends what it started, and the connection after that.
            pipe = subprocess.PIPE
            try:
                self._process = ChildProcess(
                    argv, environment=os.environ, log=log, stdin=pipe, stdout=pipe, death_signal=None
                )
            except OSError as error:
                why = f"{argv[0]} cannot be run here: {error.strerror}"
                raise LaunchFailed(f"{host} cannot be reached: {why}", host=host) from error
        threading.Thread(target=self._read_messages, name=f"agent-{host}", daemon=True).start()

    def send_request(self, request: str, **fields: Any) -> Callable[[float], dict[str, Any]]:
        """Send a request to the agent, and return a function that waits at most so many seconds for the answer.

        That function raises `LaunchFailed` if the agent refuses the request or is out of reach.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = answer
        if self.lost is None:
            self._write_message({"id": number, "do": request, **fields})
        else:
            answer.cancel()

        def wait_for_answer(seconds: float) -> dict[str, Any]:
            try:
                message = answer.result(max(seconds, 0.001))
            except CancelledError:
                raise self._host_unreachable_error(self.lost or "") from None
            except TimeoutError:
                silent = f"{self.host} did not answer within {seconds:.0f} s"
                raise self._host_unreachable_error(f"{silent}{self._connection_error_text()}") from None
            finally:
                self._answers.pop(number, None)
            if "error" in message:
                raise LaunchFailed(f"{self.host}: {message['error']}", host=self.host, code="start-failed")
            return message

        return wait_for_answer

    def send_notification(self, request: str) -> None:
        """Send the agent a request that it does not answer."""
        if self.lost is None:
            self._write_message({"do": request})

    def close(self, deadline: float) -> None:
        """Close the connection by `deadline`, so that the agent ends its processes and removes its files.

        The program that connects is killed at `deadline`, if it has not ended by then.
        """
        self._closing = True
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        self._process.wait(max(deadline - time.monotonic(), 0.05))
        self._process.end_session()

    def _write_message(self, message: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # `_read` notices that too, and reports it
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read_messages(self) -> None:
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # a login message of the host's shell
                continue
            if "id" in message:
                answer = self._answers.get(message["id"])
                if answer is not None:
                    answer.set_result(message)
                continue
            if message.get("event") == "exited":
                role = message["role"]
                self.exits.append(EndedProcess(role, self.host, message["pid"], message["status"], message["tail"]))
            if message.get("event") == "log":
                self.tails[message["role"]] = message["tail"]
            self._handle_event(self, message)
        status = self._process.wait(math.inf)
        self.lost = f"{self.host} cannot be reached{self._connection_error_text() or f' (status {status})'}"
        if not self._closing:
            ended_roles = {ended.role for ended in self.exits}
            for role, pid in self.started.items():
                if role not in ended_roles:
                    self.exits.append(
                        EndedProcess(role, self.host, pid, None, self.tails.get(role) or read_log_tail(self._log))
                    )
        for answer in list(self._answers.values()):
            answer.cancel()

    def _host_unreachable_error(self, message: str) -> LaunchFailed:
        return LaunchFailed(message, host=self.host, log_tail=read_log_tail(self._log) or None, code="host-unreachable")

    def _connection_error_text(self) -> str:
        """Return what ssh or srun printed about the failed connection, after a colon; empty if nothing."""
        lines = [line.strip() for line in read_log_tail(self._log, STDERR_LINES + 20).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("@", "Warning: Permanently"))]
        chosen = next((line for line in lines if "verification failed" in line.lower()), lines[-1] if lines else "")
        return f": {chosen}" if chosen else ""
