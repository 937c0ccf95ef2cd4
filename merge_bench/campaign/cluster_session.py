"""The cluster of one launch: starts it, connects its workers, hands them work, and ends it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from merge_bench.analysis.diagnostics import BUSY, BUSY_HOST
from merge_bench.campaign import ProgressDisplay
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import dask_scheduler_functions, scheduler_client, signals
from merge_bench.cluster.base import ClusterSettings, Launcher
from merge_bench.cluster.host_check import check_same_ucx_release, check_ucx_folder, check_worker_variables
from merge_bench.cluster.launchers import launchers_by_name, make_launcher
from merge_bench.cluster.worker_calls import LaunchedWorker, WorkerStepRunner
from merge_bench.errors import LaunchFailed, MergeBenchError, WarningMessage, print_warning
from merge_bench.host import other_load
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import GpuMemoryUsage, pool_bytes_per_worker
from merge_bench.merge.plan import PROCESS_BYTES, Plan, check_memory_fits
from merge_bench.records.schema import Cluster, HostLoad, LanesLine, LaunchLine, WarningLine, Worker
from merge_bench.records.writer import CampaignWriter

if TYPE_CHECKING:
    from distributed import Client

    from merge_bench.merge import worker


class Session:
    """The Dask cluster of one launch: starts its processes, calls functions on its workers, and ends the processes.

    `descriptions`: each worker and its machine, by rank. `topic`: the Dask topic to which workers send events. `lanes`:
    the latest record of the UCX lanes between workers.
    """

    def __init__(self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch: int = 0) -> None:
        self.job, self.writer, self.progress, self.launch = job, writer, progress, launch
        self.plan, self.settings = job.prepared.plan, job.prepared.settings
        self.launcher = make_launcher(self.settings)
        self.topic = f"merge-bench-{secrets.token_hex(8)}"
        self.descriptions: list[Worker] = []
        self.lanes: LanesLine | None = None
        self._client: Client | None = None
        self._workers: WorkerStepRunner | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        self._other_load: HostLoad | None = None
        self._began = self._part_began = time.monotonic()
        self._startup_parts: dict[str, float] = {}

    @property
    def workers(self) -> WorkerStepRunner:
        """The object that calls functions on the workers; available once the cluster has started."""
        assert self._workers is not None, "the cluster was not started"
        return self._workers

    @property
    def members(self) -> list[LaunchedWorker]:
        """The workers of the launch, by rank."""
        return self.workers.members

    # -- starting and ending the cluster

    def start_cluster(self, *, load_merge_libraries: bool = True, exchange: str | None = None) -> None:
        """Start the processes, wait for the workers, give them ranks, and have them load their libraries.

        `load_merge_libraries`: whether workers load the libraries of the plan's merge; `exchange`: the data plane whose
        libraries they load otherwise.
        """
        self.progress.show_phase("launching")
        here = launchers_by_name()[self.settings.launcher].starts_here
        look = other_load.begin_load_measurement() if here else None
        self.launcher.workers_merge = load_merge_libraries
        access = self.launcher.start_processes(self.plan, self.settings, self.writer.logs, f"launch-{self.launch:03d}-")
        for host, load in self.launcher.busy_hosts.items():
            caution = WarningMessage(BUSY_HOST, f"{host}: {BUSY.format(load)}", "run again while this host is quiet")
            print_warning(caution)
            self.record_warning(caution)
        up_by = time.monotonic() + self.settings.start_timeout
        self.end_startup_part("processes")
        # Half a second, in which the processes start. A signal waits for one import, as no module may be half imported.
        with signals.defer_interruption():
            scheduler_client.import_dask()
        with signals.defer_interruption():
            from merge_bench.merge import worker as worker  # what it runs on workers
        self._client = scheduler_client.connect_client(access, self.launcher, self.settings, up_by)
        self._workers = WorkerStepRunner(self._client, self.launcher, self.plan.timeout)
        self.end_startup_part("scheduler")
        self.progress.show_phase("waiting for workers")
        self._wait_for_workers(up_by)
        self.end_startup_part("workers")
        self.progress.show_phase("loading libraries")
        if load_merge_libraries and self.plan.data_plane.workers_exchange_rows:
            exchange = self.plan.exchange
        self._load_worker_libraries(self.plan.engine if load_merge_libraries else None, exchange)
        check_ucx_folder(self.descriptions, self.settings.ucx_origin)
        check_same_ucx_release(self.descriptions)
        for caution in slow_host_warnings(self.launcher, self.plan, self.settings):
            self.record_warning(caution)
        if not self.launcher.owns_processes:
            check_worker_variables(self.descriptions, self.settings.environment)
        check_data_fits_in_memory(self.plan, self.descriptions)
        if self.plan.device_memory:
            set_up_gpu_memory_pools(self.workers, self.descriptions, self.settings.rmm_pool_bytes)
        self._client.subscribe_topic(self.topic, self._handle_worker_event)
        if look is not None:
            other = look()
            processes = [f"pid {process.pid} {process.name}" for process in other.processes]
            self._other_load = HostLoad(busy=other.busy, cores=other.cores, processes=processes)
        self.end_startup_part("libraries")

    def find_process_failure(self, error: Exception) -> MergeBenchError | None:
        """Return the failure of the process whose end caused an `error` that Dask raised; None if no process ended."""
        try:
            if self._workers is not None:
                # An OSError, as Dask's CommClosedError is, means that the connection to the scheduler closed.
                self._workers.watch.wait_for_loss(scheduler_connection_lost=isinstance(error, OSError))
            scheduler_client.raise_for_ended_process(self.launcher)
        except LaunchFailed as reason:
            return reason
        return None

    def end_processes(self, *, succeeded: bool) -> None:
        """Close the client and end the processes; if the launch did not succeed, end the processes first."""
        self.progress.show_phase("stopping the cluster")
        if self._workers is not None:
            self._workers.watch.stop_watching()
            if not succeeded and not self.launcher.owns_processes:
                self._workers.abort_workers("the run is ending")
        if succeeded and self._client is not None:
            scheduler_client.close_client(self._client)
        self.launcher.stop_processes()
        if not succeeded and self._client is not None:
            scheduler_client.close_client(self._client)

    # -- between start and end

    def register_event_handler(self, name: str, handler: Callable[[Mapping[str, Any]], None]) -> None:
        """Have `handler` called with every event of this name that a worker sends.

        It is called in a thread of the Dask client; an error that it raises ends the wait for the workers.
        """
        self._handlers[name] = handler

    def connect_workers(self, ucx_addresses: Sequence[bytes]) -> float:
        """Connect every worker with every other; returns the longest round trip of a barrier, in seconds.

        `ucx_addresses`: the UCX address of each rank. The settings of each worker's UCX are added to its description.
        """
        from merge_bench.merge import worker

        connected: list[worker.ConnectionReport] = self.workers.run_on_all_workers(worker.connect_peers, ucx_addresses)
        self.descriptions = [
            replace(each, ucx=replace(each.ucx, config=connection.ucx_config))
            for each, connection in zip(self.descriptions, connected, strict=True)
        ]
        return float(max(connection.round_trip_seconds for connection in connected))

    def record_warning(self, caution: WarningMessage) -> None:
        """Write a warning about this launch to the records."""
        self.writer.write(WarningLine.from_caution(caution, self.launch))

    def end_startup_part(self, name: str) -> None:
        """Note for the launch line the seconds since the previous part of the start ended."""
        now = time.monotonic()
        self._startup_parts[name] = now - self._part_began
        self._part_began = now

    def record_launch(self, *, data_bytes: int = 0, rows: int = 0) -> None:
        """Write the launch line to the records, after which the campaign's folder can be read as a result.

        `data_bytes`, `rows`: the size of both input frames, summed over all workers.
        """
        line = LaunchLine(
            launch=self.launch,
            config=self.job.config,
            plan=self.job.plan,
            block=self.job.block,
            cluster=self._make_cluster_record(),
            workers=self.descriptions,
            data_bytes=data_bytes,
            rows=rows,
            startup_seconds=time.monotonic() - self._began,
            startup_parts=self._startup_parts,
            other_load=self._other_load,
        )
        self.writer.write(line)

    def _make_cluster_record(self) -> Cluster:
        client = self.workers.client
        port = self.workers.wait_for_coroutine(client._run_on_scheduler(dask_scheduler_functions.dashboard_port))
        address = client.scheduler.address if client.scheduler else None
        link = scheduler_client.dashboard_link(address, port)
        return Cluster(launcher=self.launcher.name, protocol=self.plan.protocol, scheduler=address, dashboard=link)

    # -- the steps of a start

    def _wait_for_workers(self, deadline: float) -> None:
        """Wait until all workers have connected, give them ranks, and install the plugin that merges on them."""
        from merge_bench.merge import worker

        calls = self.workers
        calls.watch.start_watching([])
        places = scheduler_client.wait_for_workers(
            lambda: calls.wait_for_coroutine(
                calls.client._run_on_scheduler(dask_scheduler_functions.worker_hosts_and_names)
            ),
            self.launcher,
            self.settings,
            self.plan.workers,
            deadline,
        )
        # Workers that we start are numbered host by host; those of a running cluster are grouped by host.
        owned = self.launcher.owns_processes

        def address_sort_key(address: str) -> tuple[str, int, str]:
            host, name = places[address]
            digits = "".join(character for character in name if character.isdigit())
            return "" if owned else host, int(digits or 0), name

        chosen = sorted(places, key=address_sort_key)
        placed = self.launcher.hosts_by_process_role()
        for rank, address in enumerate(chosen[: self.plan.workers]):
            host, name = places[address]
            calls.members.append(LaunchedWorker(rank, address, name, placed.get(name, host), 0))
        calls.watch.start_watching(calls.members)
        calls.wait_for_coroutine(calls.client._register_worker_plugin(worker.MergeWorker(), worker.PLUGIN, True))

    def _load_worker_libraries(self, engine: str | None, exchange: str | None) -> None:
        """Have the workers load libraries and describe their machines; adds their process ids to `members`."""
        from merge_bench.merge import worker

        calls = self.workers
        facts = calls.run_on_all_workers(worker.describe_process, engine, exchange, tuple(self.settings.environment))
        self.descriptions = [
            Worker.from_process_facts(m.rank, m.name, each) for m, each in zip(calls.members, facts, strict=True)
        ]
        calls.members = [
            LaunchedWorker(m.rank, m.address, m.name, each.host, each.pid)
            for m, each in zip(calls.members, self.descriptions, strict=True)
        ]
        calls.watch.start_watching(calls.members)

    def _handle_worker_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        message = event[1]
        match message["event"]:
            case "out-of-memory":
                self.workers.watch.record_worker_report(message["message"])
            case "stuck":
                self.workers.report_stuck_worker(message["rank"], message["how"])
            case name:
                try:
                    if name in self._handlers:
                        self._handlers[name](message)
                except MergeBenchError as error:
                    self.workers.wake_waiting_call(error)
                else:
                    self.workers.wake_waiting_call()


def slow_host_warnings(launcher: Launcher, plan: Plan, settings: ClusterSettings) -> list[WarningMessage]:
    """Warnings about conditions on hosts that make UCX slower; none if neither data plane nor Dask uses UCX."""
    if not plan.data_plane.ucx and plan.protocol != "ucx":
        return []
    return launcher.host_warnings(settings)


def check_data_fits_in_memory(plan: Plan, workers: Sequence[Worker]) -> None:
    """Raise UsageError if the plan's data does not fit into the memory that the workers left available on a host."""
    for host in {each.host for each in workers}:
        here = [each.hardware.available_bytes or 0 for each in workers if each.host == host]
        check_memory_fits(plan, min(here) + len(here) * PROCESS_BYTES, len(here), host)


def set_up_gpu_memory_pools(workers: WorkerStepRunner, descriptions: Sequence[Worker], pool_bytes: int | None) -> None:
    """Make a pool of GPU memory on every worker, of `pool_bytes`; None: an equal part of its GPU's memory."""
    from merge_bench.merge import worker

    workers.run_on_all_workers(
        worker.make_cuda_context
    )  # each context takes some of the memory that the next step looks at
    memories = workers.run_on_all_workers(gpu_memory.inspect_gpu_memory)
    places = [(each.host, str(each.environment.get("CUDA_VISIBLE_DEVICES")).partition(",")[0]) for each in descriptions]
    on_gpu: dict[tuple[str, str], list[GpuMemoryUsage]] = {}
    for place, memory in zip(places, memories, strict=True):
        on_gpu.setdefault(place, []).extend([memory] if memory else [])
    sizes = {place: pool_bytes_per_worker(pool_bytes, each) for place, each in on_gpu.items() if each}
    workers.wait_for_results(
        workers.submit_to_all_workers(gpu_memory.set_up_memory_pool, [(sizes.get(place),) for place in places])
    )
