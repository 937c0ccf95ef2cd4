"""Runs queued jobs, one at a time: the next one starts when no process of the last is left.

Processes of jobs are found by a variable of their environment, which every process of a job inherits. So they are
found by a service that did not start them, whatever sessions they lead, and nobody else's is touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from merge_bench.cluster.supervisor import ChildProcess
from merge_bench.config.files import replace_file
from merge_bench.config.options import BY_KEY
from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.records.campaign import JOB, OWN_JOB
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.service.documents import StoredJob
from merge_bench.service.job_rules import find_settings_file_name, settings_file_text
from merge_bench.service.named_commands import END_OF_OPTIONS, append_named_command
from merge_bench.service.store import ServiceStore
from merge_bench.units import format_limit

LOG = "log"
_POLL_SECONDS, _END_POLL_SECONDS = 0.2, 0.05
_CLOCK_SECONDS = 86400.0
"""By so many seconds the clock may have been set back since a job was queued."""
_SERVICE_ENDED = "the service ended during this job"
_LONGEST_LOG = 256 << 20
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "COLUMNS": "110", "NO_COLOR": "1"}
_LOGGER = logging.getLogger(__name__)


def job_environment_value(service_instance: str, number: int) -> str:
    """The value of the variable `JOB` in processes of job `number` of the service named `service_instance`."""
    return f"{service_instance}-{number}"


def job_process_ids(service_instance: str) -> list[int]:
    """The ids of processes on this machine that belong to a job of the service named `service_instance`."""
    wanted = f"{JOB}={service_instance}-".encode()
    pids = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if b"\0" + wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                pids.append(pid)
    return pids


def end_job_processes(service_instance: str, seconds: float) -> None:
    """Wait until no process of a job is left; kill those that are still there after `seconds`.

    `service_instance`: the name of the service whose jobs are meant.
    """
    deadline = time.monotonic() + seconds
    while left := job_process_ids(service_instance):
        if time.monotonic() >= deadline:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_END_POLL_SECONDS)


def _job_command_line(job_arguments: Sequence[str], results: Path) -> list[str]:
    # -P: modules of the working folder are not imported. Behind a command's own words, an option would be one of them.
    end = job_arguments.index(END_OF_OPTIONS) if END_OF_OPTIONS in job_arguments else len(job_arguments)
    return [
        sys.executable,
        "-P",
        "-m",
        "merge_bench",
        *job_arguments[:end],
        f"--results={results}",
        *job_arguments[end:],
    ]


@dataclass(eq=False)
class JobRunner:
    """A thread that runs the queued jobs of a service, one at a time.

    `folder`: has a folder for each job; `job_seconds`: the longest time of a job; `grace_seconds`: for which a job that
    was interrupted may clean up before it is killed; `retry_seconds`: the pause after which a job that could not be
    started is tried again; `own`: jobs are those of a person's dashboard; `command`: makes the command line of a job
    from its words; `named_commands`: the words of the commands that the operator named; `current`: the job that runs.
    """

    store: ServiceStore
    folder: Path
    results: Path
    job_seconds: float
    grace_seconds: float = 15.0
    retry_seconds: float = 2.0
    own: bool = False
    command: Callable[[Sequence[str], Path], list[str]] = _job_command_line
    named_commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    current: StoredJob | None = None

    def __post_init__(self) -> None:
        self._result_names: dict[tuple[int, int], str] = {}
        self._failing = self._stopping = False
        self._event = threading.Event()
        self._thread = threading.Thread(target=self._run_jobs, name="jobs", daemon=True)

    def start(self) -> None:
        """Start the thread: it ends what an earlier service left, then runs jobs."""
        self._thread.start()

    def look_for_jobs_now(self) -> None:
        """Make the thread look at once for jobs that were queued or cancelled."""
        self._event.set()

    def close(self) -> None:
        """Interrupt the running job, and wait until its processes are gone."""
        self._stopping = True
        self._event.set()
        self._thread.join()

    @property
    def can_run_jobs(self) -> bool:
        """Whether the thread of jobs runs, and could start the last job."""
        return self._thread.is_alive() and not self._stopping and not self._failing

    def job_folder(self, number: int) -> Path:
        """The folder of a job, with its log."""
        return self.folder / str(number)

    def find_result_name(self, job: StoredJob) -> str | None:
        """Find the newest campaign that a job has written, by the variable in its first line; returns its name."""
        if (name := self._result_names.get((job.id, job.attempts))) is not None:
            return name
        since = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(job.created - _CLOCK_SECONDS))
        mark = job_environment_value(self.store.instance, job.id)
        marks, results = (mark, mark + OWN_JOB), ResultsFolder(self.results)
        marked = results.find_newest_results(
            lambda head: head.environment_variable(JOB) in marks, is_wanted_name=lambda name: name >= since
        )
        for folder, _ in marked:
            self._result_names = {(job.id, job.attempts): folder.name}  # for those who ask again while it runs
            return folder.name
        return None

    def _run_jobs(self) -> None:
        while True:
            self._event.clear()
            if self._stopping:
                break
            try:
                self._end_leftover_jobs()
                self.current = job = self.store.start_next_job()
                if job is None:
                    self._failing = False
                    self._event.wait()
                else:
                    self._run_job(job)
            except Exception:  # A full disk, for example. A job that has begun is found again as interrupted.
                self._failing = True
                _LOGGER.exception("the service cannot run jobs now; it tries again")
                time.sleep(self.retry_seconds)

    def _end_leftover_jobs(self) -> None:
        """End the processes of jobs whose service was killed, and store how these jobs ended."""
        end_job_processes(self.store.instance, self.grace_seconds)
        if (job := self.store.find_running_job()) is not None:
            result = self.find_result_name(job)
            status = self._recorded_exit_status(result)
            message = None if status is not None else _SERVICE_ENDED
            self.store.finish_job(job.id, status, result=result, message=message, interrupted=status is None)

    def _recorded_exit_status(self, result: str | None) -> int | None:
        """Read the exit status from the records of a job whose service was killed; None if unknown, or if it failed."""
        try:
            end = read_campaign(self.results / result).end if result else None
        except MergeBenchError:
            return None
        return end.status if end is not None and end.status != RunFailed.exit_status else None

    def _run_job(self, job: StoredJob) -> None:
        """Start a job and wait until its last process is gone; then store how it ended."""
        try:
            words = append_named_command(job.words, self.named_commands)
        except UsageError as error:
            self._failing = False
            self.store.finish_job(job.id, error.exit_status, message=str(error))
            return
        try:
            child = self._start_process(job, words)
        except Exception:
            self.store.requeue_job(job.id)
            raise
        self._failing = False
        try:
            message = self._wait_for_end(job, child)
        finally:
            status = child.end_session(signal.SIGINT, self.grace_seconds)
            end_job_processes(self.store.instance, 0.0)
        interrupted = self._stopping and message is not None
        self._result_names.clear()  # an earlier attempt may have left another campaign
        self.store.finish_job(
            job.id, status, result=self.find_result_name(job), message=message, interrupted=interrupted
        )

    def _start_process(self, job: StoredJob, arguments: Sequence[str]) -> ChildProcess:
        """Start the process of a job with the arguments of its command, in the job's folder."""
        folder = self.job_folder(job.id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (config := find_settings_file_name(job.words)) is not None:
            with replace_file(folder / config) as stream:
                stream.write(settings_file_text(job.settings).encode("ascii"))
        mark = job_environment_value(self.store.instance, job.id) + (OWN_JOB if self.own else "")
        environment = {**os.environ, JOB: mark, **_ENVIRONMENT}
        environment.pop(BY_KEY["service"].environment_variable, None)  # a job runs here, and queues no other one
        # SIGTERM, so that a job whose service is killed ends its own processes. The kernel sends it when this thread
        # ends.
        argv = self.command(arguments, self.results)
        return ChildProcess(argv, environment=environment, log=folder / LOG, cwd=folder, death_signal=signal.SIGTERM)

    def _wait_for_end(self, job: StoredJob, child: ChildProcess) -> str | None:
        """Wait until the process of a job ends, and return None; or return why it has to be ended before."""
        deadline = time.monotonic() + self.job_seconds
        log = self.job_folder(job.id) / LOG
        while child.poll() is None:
            reasons = {
                "cancelled": job.cancelled,
                _SERVICE_ENDED: self._stopping,
                f"ended at the time limit of {format_limit(self.job_seconds)}": time.monotonic() > deadline,
                "ended because its output was too long": log.stat().st_size > _LONGEST_LOG,
            }
            if (message := next((why for why, holds in reasons.items() if holds), None)) is not None:
                return message
            if self._event.wait(_POLL_SECONDS):
                self._event.clear()
                job = self.store.find_job(job.id) or job
        return None
