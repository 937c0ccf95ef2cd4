"""Jobs run one at a time and are ended with everything that they started, also after the service was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from merge_bench.records.campaign import JOB, OWN_JOB
from merge_bench.records.schema import CampaignEndLine, CampaignLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.service.documents import StoredJob
from merge_bench.service.runner import LOG, JobRunner, end_job_processes, job_environment_value, job_process_ids
from merge_bench.service.store import ServiceStore

POLITE = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(3)); print(1, flush=True); time.sleep(600)"
DEAF = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; print(1, flush=True); time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}], start_new_session=True); print(1)"
"""Ends at once, and leaves a process in a session of its own."""
ALONE = """import os, sys
from merge_bench.service.runner import job_process_ids
sys.exit(job_process_ids(sys.argv[1]) != [os.getpid()])
"""
"""Fails if another process of a job is there."""
TIMED = "import sys, time; open(sys.argv[1], 'a').write('('); time.sleep(0.05); open(sys.argv[1], 'a').write(')')"


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Service:
    """A store, and a runner whose jobs are Python programs: the words are their arguments."""

    def __init__(self, folder: Path, *, own: bool = False, **given: float) -> None:
        (folder / "results").mkdir(exist_ok=True)
        self.store = ServiceStore(folder / "service.sqlite")
        limits = {"job_seconds": 600.0, "grace_seconds": 0.5, "retry_seconds": 0.05, **given}
        self.runner = JobRunner(
            self.store,
            folder / "jobs",
            folder / "results",
            command=lambda words, _: [sys.executable, "-c", *words],
            own=own,
            **limits,
        )

    def add(self, *words: str, resume: bool = False) -> int:
        row, _ = self.store.add_job("ci", words, {}, most_queued=100, resume=resume)
        self.runner.look_for_jobs_now()
        return row.id

    def job(self, number: int) -> StoredJob:
        found = self.store.find_job(number)
        assert found is not None
        return found

    def running(self, number: int) -> bool:
        """Whether it runs and is ready for signals."""
        log = self.runner.job_folder(number) / LOG
        return self.job(number).state == "running" and log.exists() and log.read_text() != ""

    def members(self) -> list[int]:
        return job_process_ids(self.store.instance)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(tmp_path)
    found.runner.start()
    yield found
    found.runner.close()
    assert found.members() == []


@pytest.mark.slow
def test_jobs_run_one_after_the_other(service: Service, tmp_path: Path) -> None:
    for _ in range(10):
        last = service.add(TIMED, str(tmp_path / "times"))
    until(lambda: service.job(last).state == "done")
    assert (tmp_path / "times").read_text() == "()" * 10
    assert {row.state for row in service.store.list_jobs()} == {"done"}


def test_the_exit_status_is_kept_and_the_output(service: Service) -> None:
    number = service.add("import os, sys; print(os.getcwd(), os.environ.get('MERGE_BENCH_TOKEN')); sys.exit(4)")
    until(lambda: service.job(number).state == "failed")
    assert service.job(number).status == 4
    folder = service.runner.job_folder(number)
    assert (folder / LOG).read_text() == f"{folder} None\n"
    assert folder.stat().st_mode & 0o077 == 0


def test_a_client_s_token_and_service_do_not_reach_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MERGE_BENCH_TOKEN", "MERGE_BENCH_TOKEN_FILE", "MERGE_BENCH_SERVICE"):
        monkeypatch.setenv(name, "secret")
    service = Service(tmp_path)
    service.runner.start()
    number = service.add("import os; print([name for name, value in os.environ.items() if value == 'secret'])")
    until(lambda: service.job(number).state == "done")
    service.runner.close()
    assert (service.runner.job_folder(number) / LOG).read_text() == "[]\n"


@pytest.mark.parametrize(("program", "status"), [(POLITE, 3), (DEAF, -signal.SIGKILL)])
def test_a_running_job_is_cancelled_as_by_ctrl_c_and_killed_if_it_does_not_end(
    service: Service, program: str, status: int
) -> None:
    number, after = service.add(program), service.add("pass")
    until(lambda: service.running(number))
    service.store.cancel_job(number)
    service.runner.look_for_jobs_now()
    until(lambda: service.job(after).state == "done")
    job = service.job(number)
    assert (job.state, job.status, job.message) == ("cancelled", status, "cancelled")


@pytest.mark.slow
def test_what_a_job_leaves_is_ended_before_the_next_begins(service: Service) -> None:
    number, after = service.add(PARENT), service.add(ALONE, service.store.instance)
    until(lambda: service.job(after).state != "queued" and service.job(after).ended)
    assert service.job(after).state == "done"
    assert service.job(number).state == "done"


def test_a_job_that_takes_too_long_fails(tmp_path: Path) -> None:
    service = Service(tmp_path, job_seconds=0.5)
    service.runner.start()
    number = service.add(POLITE)
    until(lambda: service.job(number).state == "failed")
    service.runner.close()
    assert service.job(number).message == "ended at the time limit of 0.5 seconds"


@pytest.mark.parametrize(("resume", "state"), [(False, "interrupted"), (True, "queued")])
def test_the_end_of_the_service_interrupts_the_job(tmp_path: Path, resume: bool, state: str) -> None:
    service = Service(tmp_path)
    service.runner.start()
    number = service.add(POLITE, resume=resume)
    until(lambda: service.running(number))
    service.runner.close()
    assert not service.runner.can_run_jobs
    assert service.job(number).state == state
    assert service.members() == []


KILLED = """
import sys, time
from pathlib import Path
from tests.service.test_runner import Service
service = Service(Path(sys.argv[1]))
service.runner.start()
service.add(sys.argv[2], resume=sys.argv[3] == "True")
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "resume"), [(POLITE, False), (DEAF, False), (PARENT + "; import time; time.sleep(9)", True)]
)
def test_a_service_that_is_started_again_ends_what_a_killed_one_left(
    tmp_path: Path, program: str, resume: bool
) -> None:
    words = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), program, str(resume)]
    killed = subprocess.Popen(words, start_new_session=True)
    service = Service(tmp_path)
    until(lambda: service.store.list_jobs() and service.running(1))
    assert service.members() != []
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert service.job(1).state == "running"
    after = service.add(ALONE, service.store.instance)
    service.runner.start()
    until(lambda: service.job(after).ended or resume)
    assert resume or service.job(after).state == "done"
    if resume:
        until(lambda: service.job(1).attempts == 2)
    else:
        assert service.job(1).state == "interrupted"
    service.runner.close()
    assert service.members() == []


def test_a_job_of_a_person_s_dashboard_is_found_by_its_mark_as_one_of_a_service(tmp_path: Path) -> None:
    service = Service(tmp_path, own=True)
    number = service.add(f"import os, time; print(os.environ[{JOB!r}], flush=True); time.sleep(600)")
    service.runner.start()
    until(lambda: service.running(number))
    mark = (service.runner.job_folder(number) / LOG).read_text().strip()
    assert mark == job_environment_value(service.store.instance, number) + OWN_JOB
    assert len(service.members()) == 1
    with CampaignWriter.create(tmp_path / "results", "x") as writer:
        head = CampaignLine(campaign_id="x", argv=[], version="0", configs=[], plans=[], runs=[])
        writer.write(msgspec.structs.replace(head, surroundings={"environment": {JOB: mark}}))
    assert service.runner.find_result_name(service.job(number)) == writer.folder.name
    service.runner.close()
    assert service.members() == []


def test_processes_of_another_service_are_left_alone(tmp_path: Path) -> None:
    mark = {**os.environ, JOB: job_environment_value("another", 1)}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=mark) as other:
        until(lambda: job_process_ids("another") == [other.pid])
        end_job_processes("anothe", 0.0)
        assert other.poll() is None
        end_job_processes("another", 0.0)
        assert other.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("status", "state", "attempts"), [(0, "done", 1), (5, "failed", 1), (3, "done", 2)])
def test_a_job_that_was_over_when_its_service_was_killed_does_not_run_again(
    tmp_path: Path, status: int, state: str, attempts: int
) -> None:
    service = Service(tmp_path)
    number = service.add("pass", resume=True)
    service.store.start_next_job()
    mark = job_environment_value(service.store.instance, number)
    with_mark = {"environment": {JOB: mark}}
    head = CampaignLine(campaign_id="x", argv=[], version="0", configs=[], plans=[], runs=[], surroundings=with_mark)
    writer = CampaignWriter.create(tmp_path / "results", "x")
    writer.write(head)
    writer.write(CampaignEndLine(status=status))
    writer.close()
    service.runner.start()
    until(lambda: service.job(number).state not in ("queued", "running"))
    service.runner.close()
    assert (service.job(number).state, service.job(number).attempts) == (state, attempts)
    assert service.job(number).result == writer.campaign_id


def test_a_job_that_cannot_be_started_stays_in_the_queue(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.runner.folder.write_text("a file where folders of jobs should be made")
    first, second = service.add("print(1)"), service.add("print(2)")
    until(lambda: caplog.text.count("it tries again") >= 3)
    assert not service.runner.can_run_jobs
    service.runner.folder.unlink()
    until(lambda: service.job(second).state == "done")
    assert [(each.state, each.attempts) for each in map(service.job, (first, second))] == [("done", 1)] * 2
    assert service.runner.can_run_jobs


def test_the_campaign_of_a_job_is_found_though_the_clock_was_set_back(tmp_path: Path) -> None:
    service = Service(tmp_path)
    job = service.job(service.add("print(1)"))
    mark = job_environment_value(service.store.instance, job.id)
    with CampaignWriter.create(tmp_path / "results", "tcp") as writer:
        head = CampaignLine(
            campaign_id="x",
            argv=[],
            version="0",
            configs=[],
            plans=[],
            runs=[],
            surroundings={"environment": {JOB: mark}},
        )
        writer.write(head)
    queued_later = msgspec.structs.replace(job, created=job.created + 3600)
    assert service.runner.find_result_name(queued_later) == writer.folder.name
