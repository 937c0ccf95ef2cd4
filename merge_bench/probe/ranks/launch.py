"""Ranks of one launch: started by mpirun, listened to while they live, and ended whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.campaign.jobs import Job
from merge_bench.campaign.launch import recorded
from merge_bench.campaign.progress import Progress
from merge_bench.cluster import node, scratch, signals
from merge_bench.cluster.environment import forwarded
from merge_bench.cluster.launchers import launchers
from merge_bench.cluster.supervisor import Child, tail
from merge_bench.cluster.unused_rdma import unused_rdma
from merge_bench.config.tls import REQUESTED
from merge_bench.errors import LaunchFailed
from merge_bench.probe.ranks import last_words, mpirun
from merge_bench.probe.ranks.rank import KEY
from merge_bench.records.schema import Cluster, LaunchLine, WarningLine, Worker
from merge_bench.records.writer import CampaignWriter

SILENCE_FACTOR = 2.0
"""Silence of so many times ``--timeout`` ends a launch: a loop tells of itself once a second, but one operation on a
long vector over a slow network may take as long as a whole iteration of a merge."""
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.2
_LAST_WORDS_SECONDS = 1.0
Message = dict[str, Any]


def program(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The command of every rank: this Python and this package, at the paths they have here; `spec` as JSON."""
    path = f"import sys; sys.path.insert(0, {str(node.ROOT)!r})"
    code = f"{path}; from merge_bench.probe.ranks.program import main; main()"
    return (sys.executable, "-P", "-c", code, json.dumps(spec))


class Ranks:
    """One mpirun in a session of its own; what its ranks print comes as lines.

    `pids`: processes of the ranks, once they are known.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.pids: dict[int, int] = {}
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with log.open("ab") as errors:
            self._start = errors.tell()
        surroundings = {**os.environ, **mpirun.as_root(), **environment}
        self._process = Child(argv, environment=surroundings, log=log, stdout=subprocess.PIPE)
        threading.Thread(target=self._read, name="mpirun", daemon=True).start()

    def lines(self, first: float, silence: float) -> Iterator[str]:
        """Every line until mpirun ends; the first within `first` seconds, others within `silence` of the one before.

        Raises
        ------
        LaunchFailed
            For silence, or if mpirun ends with another status than 0.
        """
        limit = first
        heard = time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # Its output stays open if a process that it started has outlived it.
                line = "" if self._process.poll() is None or time.monotonic() - heard < _LAST_WORDS_SECONDS else None
            if line is None:
                break
            if line:
                heard, limit = time.monotonic(), silence
                yield line
            elif time.monotonic() - heard > limit:
                raise LaunchFailed(f"nothing was heard of the ranks for {limit:g} s", log_tail=tail(self.log))
        status = self._status()
        if status:
            raise self.explained(status, silence)

    def explained(self, status: int, silence: float) -> LaunchFailed:
        """What mpirun said at its end, as a sentence."""
        error = last_words.explain(self._said(), status, silence, self.pids)
        error.log_tail = tail(self.log)
        return error

    def stop(self) -> None:
        """End mpirun, which ends the ranks on every host; what is left of its session here is killed."""
        self._process.end(signal.SIGTERM, STOP_SECONDS)

    def note(self, line: str) -> None:
        """Keep a line that is no message, with mpirun's own words."""
        with contextlib.suppress(OSError), self.log.open("a") as log:
            log.write(line + "\n")

    def _said(self) -> str:
        return self.log.read_bytes()[self._start :].decode(errors="replace")

    def _status(self) -> int:
        status = self._process.wait(STOP_SECONDS)
        if status is None:
            raise LaunchFailed("the ranks have ended, and mpirun has not", log_tail=tail(self.log))
        return status

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.decode(errors="replace").strip())
        self._lines.put(None)


class RankSession:
    """One life of a launch by mpirun: between `start` and `end` its ranks measure."""

    mpi: mpirun.Mpi

    def __init__(self, job: Job, writer: CampaignWriter, progress: Progress, launch: int) -> None:
        self.job, self.writer, self.progress, self.launch = job, writer, progress, launch
        self.plan, self.settings = job.prepared.plan, job.prepared.settings
        self.hosts = mpirun.placed(self.plan, self.settings)
        """Hosts as mpirun names them, with the number of ranks of each."""
        self.silence = SILENCE_FACTOR * self.plan.timeout
        self.doing = "while starting"
        self.workers: list[Worker] = []
        self._ranks: list[Ranks] = []
        self._scratch: Path | None = None
        self._began = time.monotonic()

    def start(self, find: Callable[[], mpirun.Mpi]) -> None:
        """Take the MPI that `find` gives; it starts ranks for each piece of work."""
        self.progress.phase("launching")
        self.mpi = find()
        self.progress.phase(f"starting ranks with {self.mpi.mpirun} ({self.mpi.name})")
        self._began = time.monotonic()
        with signals.deferred():
            self._scratch = scratch.make()

    def cause(self, problem: Exception) -> None:
        """None: what is known of a rank's end is an error of this program already."""

    def end(self, *, well: bool) -> None:
        """End all ranks, and remove the scratch folder."""
        self.progress.phase("ending the ranks")
        for ranks in self._ranks:
            ranks.stop()
        if self._scratch is not None:
            scratch.remove(self._scratch)

    def spec(self, work: Mapping[str, Any], hosts: mpirun.Hosts | None = None) -> dict[str, Any]:
        """What every rank has to know, and its work; `hosts`: where ranks run, if not on all."""
        names = [name for name, _ in hosts or self.hosts]
        return {
            **work, "limit": self.silence, "interface": self.settings.interface, "library": self.mpi.library,
            "peers": names if len(names) > 1 else [], "names": sorted(self.settings.environment),
        }  # fmt: skip

    def execute(
        self, argv: Sequence[str], hosts: mpirun.Hosts | None = None, also: Mapping[str, str] | None = None,
        *, ucx: bool = True,
    ) -> Ranks:  # fmt: skip
        """Start `argv` in every rank; `also`: more variables for their environment; `ucx`: as of `mpirun.command`."""
        words = mpirun.command(self.mpi, hosts or self.hosts, self.settings, argv, str(self._scratch), also, ucx=ucx)
        environment = {**self.settings.environment, **(also or {})}
        with signals.deferred():
            ranks = Ranks(words, environment, self.writer.logs / f"launch-{self.launch:03d}-mpirun.log")
            self._ranks.append(ranks)
        return ranks

    def run(self, work: Mapping[str, Any], hosts: mpirun.Hosts | None = None) -> Iterator[Message]:
        """Start ranks for this work, and give what they tell; the launch is recorded once they are up.

        Raises
        ------
        LaunchFailed
            If they fail, fall silent, or end before they are done.
        """
        ranks = self.execute(program(self.spec(work, hosts)), hosts)
        done = False
        try:
            for line in self.listen(ranks, self.settings.start_timeout, self.silence):
                message = _message(line)
                if message is None:
                    ranks.note(line)
                elif message[KEY] != "progress":
                    if message[KEY] == "hello":
                        ranks.pids = {each["rank"]: each["pid"] for each in message["ranks"]}
                        self._up(message["ranks"], hosts or self.hosts)
                    done = done or message[KEY] == "done"
                    yield message
        except LaunchFailed as error:
            if done and error.rank is None:  # all that was asked for is there
                return
            raise
        if not done:
            # mpirun may end with 0 although it lost a host: PRRTE does, if its daemon there was killed.
            raise ranks.explained(0, self.silence)

    def listen(self, ranks: Ranks, first: float, silence: float) -> Iterator[str]:
        """The lines of `ranks` until one of them tells of an error; mpirun's failures say what was being done."""
        try:
            for line in ranks.lines(first, silence):
                message = _message(line)
                if message is not None and message[KEY] == "error":
                    break
                yield line
            else:
                return
        except LaunchFailed as error:
            error.args = (f"{error}, {self.doing}{self._settings() if error.code == last_words.NO_UCX else ''}",)
            raise
        ranks.note(line)
        raise self._error(message, ranks)

    def _settings(self) -> str:
        """What was asked of UCX, as the end of a sentence."""
        asked = {**os.environ, **self.settings.environment}
        listed = ", ".join(f"{name}={asked[name]}" for name in REQUESTED if name in asked)
        return f", under {listed}" if listed else ""

    def _up(self, told: Sequence[Mapping[str, Any]], hosts: mpirun.Hosts) -> None:
        if not self.workers:
            fields = ("rank", "host", "pid", "name", "environment", "versions", "ucx", "hardware")
            self.workers = [Worker(**{name: each[name] for name in fields}) for each in told]
            scheduler = self.settings.launcher if launchers()[self.settings.launcher].batch is not None else None
            self.writer.write(
                LaunchLine(
                    launch=self.launch, config=self.job.config, plan=self.job.plan, block=self.job.block,
                    cluster=Cluster(launcher="mpirun", protocol="mpi", scheduler=scheduler, mpirun=self.mpi.mpirun),
                    workers=self.workers, data_bytes=0, rows=0, startup_seconds=time.monotonic() - self._began,
                )
            )  # fmt: skip
            for line in cautions(told, hosts, {**forwarded(os.environ), **self.settings.environment}, self.launch):
                self.writer.write(line)
        without = next((each for each in told if self.mpi.kind == mpirun.OPEN_MPI and not each["ucx"]["lanes"]), None)
        if without is not None:
            raise LaunchFailed(
                f"rank {without['rank']} on {without['host']} did not get UCX (pml {without['ucx']['pml']})",
                host=without["host"], rank=without["rank"], code=last_words.NO_UCX,
            )  # fmt: skip

    def _error(self, message: Message, ranks: Ranks) -> LaunchFailed:
        rank, host = message["rank"], message["host"]
        who = f"rank {rank} on {host}" if rank is not None else host
        return LaunchFailed(
            f"{who}: {message['message']}", host=host, rank=rank, log_tail=tail(ranks.log),
            code=message["code"] or "run-failed",
        )  # fmt: skip


def cautions(
    told: Sequence[Mapping[str, Any]], hosts: mpirun.Hosts, config: Mapping[str, str], launch: int
) -> list[WarningLine]:
    """RDMA devices that the ranks' interfaces leave out, as a merge says it; `told`: by rank, host by host."""
    names = [name for name, count in hosts for _ in range(count)]
    networks = {name: each["network"] for name, each in zip(names, told, strict=True) if each["network"]}
    return [
        WarningLine(launch=launch, code=each.code, message=each.message, remedy=each.remedy)
        for each in unused_rdma(networks, config)
    ]


def _message(line: str) -> Message | None:
    if not line.startswith(f'{{"{KEY}"'):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def make_launch(
    job: Job, writer: CampaignWriter, progress: Progress, launch: int, use: Callable[[RankSession], None],
    find: Callable[[], mpirun.Mpi],
) -> int:  # fmt: skip
    """As `campaign.launch.make_launch`, with ranks of the MPI that `find` gives in place of a Dask cluster."""
    session = RankSession(job, writer, progress, launch)
    with recorded(job, writer, launch, session) as outcome:
        session.start(find)
        use(session)
    return outcome.status
