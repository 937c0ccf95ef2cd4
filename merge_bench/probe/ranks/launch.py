"""The ranks of one launch: they are started by mpirun, their messages are read, and they are ended in any case."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from merge_bench.campaign import ProgressDisplay
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import signals, supervisor
from merge_bench.cluster.dask_commands import default_ucx_settings, forwarded_variables
from merge_bench.cluster.host_check import check_ucx_folder, unusable_rdma_port_warnings
from merge_bench.cluster.launchers import launchers
from merge_bench.cluster.start_on_hosts import module_command
from merge_bench.cluster.supervisor import read_log_tail
from merge_bench.config.allowed_transports import transport_settings
from merge_bench.errors import Caution, LaunchFailed
from merge_bench.probe.ranks import messages, mpirun
from merge_bench.probe.ranks.messages import ExchangeRow, Message, RankDescription, Row
from merge_bench.probe.ranks.mpirun import MpirunProcess
from merge_bench.probe.shared.options import are_lanes_as_requested, placement_of_workers
from merge_bench.records.schema import Cluster, LaunchLine, ProbeLine, WarningLine, Worker
from merge_bench.records.writer import CampaignWriter

ReportedRow = TypeVar("ReportedRow", Row, ExchangeRow)
SILENCE_FACTOR = 2.0
"""Silence of this many times ``--timeout`` ends a launch. A loop reports progress once a second, but one operation on a
long vector over a slow network may take as long as an iteration of a merge."""


class RankSession:
    """One launch of MPI ranks: starts them, reads their messages, records their rows, and ends them.

    `hosts`: hosts as mpirun names them, with the number of ranks on each. `workers`: the ranks that were started last.
    `host_numbers`: for each of them a number; ranks with equal numbers are on one host. `doing`: what goes on, as the
    end of a sentence: part of error messages.
    """

    def __init__(self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch: int) -> None:
        self.job, self.writer, self.progress, self.launch = job, writer, progress, launch
        self.plan, self.settings = job.prepared.plan, job.prepared.settings
        self.hosts = mpirun.rank_counts_by_host(self.plan, self.settings)
        self.silence = SILENCE_FACTOR * self.plan.timeout
        self.doing = "while starting"
        self.workers: list[Worker] = []
        self.host_numbers: list[int] = []
        self._ranks: list[MpirunProcess] = []
        self._scratch: Path | None = None

    def start(self, mpi: mpirun.MpiInstallation) -> None:
        """Make the scratch folder of the launch; `mpi`: the MPI that later starts the ranks."""
        self.mpi, self._began = mpi, time.monotonic()
        self.progress.show_phase(f"starting ranks with {mpi.mpirun} ({mpi.name})")
        with signals.defer_interruption():
            self._scratch = supervisor.make_scratch_folder()

    def find_process_failure(self, error: Exception) -> None:
        """Return None: the end of a rank is always a `LaunchFailed`, which needs no other cause."""

    def end_processes(self, *, succeeded: bool) -> None:
        """End all ranks, and remove the scratch folder."""
        self.progress.show_phase("stopping the ranks")
        for ranks in self._ranks:
            ranks.stop()
        if self._scratch is not None:
            supervisor.remove_scratch_folder(self._scratch)

    def start_ranks(
        self,
        work: Mapping[str, Any],
        hosts: mpirun.Hosts | None = None,
        extra_variables: Mapping[str, str] | None = None,
        *,
        ucx: bool = True,
    ) -> MpirunProcess:
        """Start ranks with mpirun for a piece of work, and return the process of mpirun.

        `hosts`: their hosts, by default all; `extra_variables`: more variables for their environment; `ucx`: whether
        MPI sends over UCX only.
        """
        hosts = hosts or self.hosts
        extra_variables = {
            **(extra_variables or {}),
            **self.settings.ucx_variables({**os.environ, **self.settings.environment}),
        }
        environment = {**self.settings.environment, **extra_variables}
        spec = {
            **work,
            "limit": self.silence,
            "interface": self.settings.interface,
            "library": self.mpi.library,
            "peers": [name for name, _ in hosts] if len(hosts) > 1 else [],
            "names": sorted(self.settings.environment),
            "ucx": rank_ucx_settings({**os.environ, **environment}, hosts=len(hosts)),
        }
        argv = module_command("merge_bench.probe.ranks.rank", json.dumps(spec))
        words = mpirun.mpirun_command(
            self.mpi, hosts, self.settings, argv, str(self._scratch), extra_variables, ucx=ucx
        )
        with signals.defer_interruption():
            ranks = MpirunProcess(words, environment, self.writer.logs / f"launch-{self.launch:03d}-mpirun.log")
            self._ranks.append(ranks)
        return ranks

    def run_ranks(
        self, work: Mapping[str, Any], row_type: type[ReportedRow], hosts: mpirun.Hosts | None = None
    ) -> Iterator[ReportedRow]:
        """Start ranks for a piece of work, wait until all have started, and return the rows that they report.

        `row_type`: the type of these rows.

        Their warnings are recorded, and so is the launch when its first ranks are up. Raises LaunchFailed, also while
        the rows are read, if ranks fail, fall silent, or end before they are done.
        """
        reported = self._reported_messages(self.start_ranks(work, hosts), hosts or self.hosts)
        next(reported, None)
        return (row for row in reported if isinstance(row, row_type))

    def _reported_messages(self, ranks: MpirunProcess, hosts: mpirun.Hosts) -> Iterator[Message]:
        """Yield the message that the ranks have started, then the rows that they report."""
        done = False
        try:
            for message in self.read_messages(ranks, self.settings.start_timeout, self.silence):
                match message:
                    case messages.Hello():
                        self._record_started_ranks(message.ranks, hosts)
                        ranks.pids = {worker.rank: worker.pid for worker in self.workers}
                        yield message
                    case Row() | ExchangeRow():
                        yield message
                    case messages.Warn():
                        self.warn(message.caution)
                    case messages.Done():
                        done = True
        except LaunchFailed as error:
            if done and error.rank is None:  # every result has arrived
                return
            raise
        if not done:
            # mpirun may end with 0 although it lost a host: PRRTE does, if its daemon there was killed.
            raise ranks.end_error(0, self.silence)

    def read_messages(self, ranks: MpirunProcess, first: float, silence: float) -> Iterator[str | Message]:
        """Yield the messages that `ranks` print, and all their other lines, which are also logged.

        `first`, `silence`: as of `MpirunProcess.lines`. Raises LaunchFailed if a rank reports an error, nothing comes
        in time, or mpirun fails; the error says what was being done.
        """
        try:
            for line in ranks.lines(first, silence):
                message = messages.parse_message(line)
                if message is None or isinstance(message, messages.Error):
                    ranks.log_line(line)
                if isinstance(message, messages.Error):
                    break
                yield line if message is None else message
            else:
                return
        except LaunchFailed as error:
            error.args = (f"{error}, {self.doing}{self._transport_settings() if error.code == mpirun.NO_UCX else ''}",)
            raise
        host, rank = message.host, message.rank
        text = f"{host if rank is None else f'rank {rank} on {host}'}: {message.message}"
        raise LaunchFailed(
            text, host=host, rank=rank, log_tail=read_log_tail(ranks.log), code=message.code or "run-failed"
        )

    def warn(self, caution: Caution) -> None:
        """Write a warning about this launch to the records."""
        self.writer.write(WarningLine.from_caution(caution, self.launch))

    def make_line(
        self, method: str, selected: Sequence[str], extra_settings: Mapping[str, str] | None = None, **figures: Any
    ) -> ProbeLine:
        """Return a line of the records for a row that the last started ranks measured.

        `selected`: UCX's lanes; `extra_settings`: settings besides the environment's; `figures`: other fields.
        """
        settings = transport_settings(self.workers[0].environment)
        fields = {
            "placement": placement_of_workers(self.workers),
            "ranks": [worker.rank for worker in self.workers],
            "hosts": [worker.host for worker in self.workers],
            "requested": {**settings, **(extra_settings or {})},
            "as_requested": are_lanes_as_requested(settings.get("UCX_TLS"), selected),
        }
        return ProbeLine(launch=self.launch, method=method, selected=list(selected), **{**fields, **figures})

    def describe_method(self) -> str:
        """Return a text that names the MPI and the UCX that the first rank has loaded, and the mpirun."""
        versions, ucx = self.workers[0].versions, self.workers[0].ucx
        loaded = f"{versions['mpi']} ({self.mpi.mpirun}), mpi4py {versions['mpi4py']} with loops in numba"
        return f"{loaded}, UCX {ucx.version or 'of unknown version'} ({ucx.origin})" if ucx.lanes else loaded

    def _transport_settings(self) -> str:
        """Return the environment's settings that choose transports, as the end of a sentence."""
        listed = transport_settings({**os.environ, **self.settings.environment})
        return ", with " + ", ".join(f"{name}={value}" for name, value in listed.items()) if listed else ""

    def _record_started_ranks(self, reports: Sequence[RankDescription], hosts: mpirun.Hosts) -> None:
        """Keep the ranks' descriptions; for the first ranks of the launch also write the launch to the records."""
        first = not self.workers
        self.workers = [report.worker for report in reports]
        self.host_numbers = [report.host_number for report in reports]
        if first:
            scheduler = self.settings.launcher if launchers()[self.settings.launcher].batch is not None else None
            self.writer.write(
                LaunchLine(
                    launch=self.launch,
                    config=self.job.config,
                    plan=self.job.plan,
                    block=self.job.block,
                    cluster=Cluster(launcher="mpirun", protocol="mpi", scheduler=scheduler, mpirun=self.mpi.mpirun),
                    workers=self.workers,
                    data_bytes=0,
                    rows=0,
                    startup_seconds=time.monotonic() - self._began,
                )
            )
            variables = {**forwarded_variables(os.environ), **self.settings.environment}
            check_ucx_folder(self.workers, self.settings.ucx_origin)
            for caution in unused_rdma_warnings(reports, hosts, variables):
                self.warn(caution)
        for worker in self.workers if self.mpi.kind == mpirun.OPEN_MPI else ():
            if not worker.ucx.lanes:
                message = (
                    f"on rank {worker.rank} ({worker.host}), MPI does not use UCX: OMPI_MCA_pml is {worker.ucx.pml};"
                    " set OMPI_MCA_pml=ucx, and check UCX_TLS"
                )
                raise LaunchFailed(message, host=worker.host, rank=worker.rank, code=mpirun.NO_UCX)


def rank_ucx_settings(variables: Mapping[str, str], *, hosts: int) -> dict[str, str]:
    """Return the UCX settings that ranks on this number of hosts get, as workers do; on one host never tcp.

    `variables`: the environment with the config, which have precedence.
    """
    settings = default_ucx_settings(variables, hosts=hosts, exchange="ucx", protocol="mpi", error_handling=False)
    return settings if hosts > 1 else {"UCX_TLS": "^tcp", **settings}


def unused_rdma_warnings(
    reports: Sequence[RankDescription], hosts: mpirun.Hosts, config: Mapping[str, str]
) -> list[Caution]:
    """Return warnings about RDMA ports that the ranks do not use; `reports`: of each rank, host by host."""
    names = [name for name, count in hosts for _ in range(count)]
    networks = {name: each.network for name, each in zip(names, reports, strict=True) if each.network}
    return unusable_rdma_port_warnings(networks, config)
