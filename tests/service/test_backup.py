"""A copy of the results folder of a service that runs: it has every job that was accepted before, and can be served."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from merge_bench.service.serve import ServiceSettings, check_service_start
from merge_bench.service.store import FOLDER, open_service_store
from tests.helpers.runs import LIMIT, ROOT
from tests.service.services import RealService, started
from tests.service.test_runner import until
from tests.service.test_serve import problem_of

PAGE = (ROOT / "docs/nightly.md").read_text()
LONG = {
    "command": "run",
    "options": {"chunk": "1e4", "iterations": 1_000_000, "workers": 1, "verify": "off", "link-rounds": 0},
}
REFUSED = {"command": "run", "options": {"exchange": "dask", "pipeline": "on"}}
"""A job that ends at once."""
COMMANDS = re.findall(r"^    ((?:sqlite3|cp|rm|mv) .*)$", PAGE.partition("## Back up")[2], re.MULTILINE)
"""Those of the page, which copy results/ to copy/ and make the copy one that can be served."""


def copy(service: RealService, folder: Path) -> Path:
    """Copy it as the page says."""
    (folder / "results").symlink_to(service.results)
    for command in COMMANDS:
        command = command.replace("-a results ", "-a results/. ")  # through the link
        subprocess.run(command, shell=True, cwd=folder, check=True, timeout=60)
    return folder / "copy"


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed")
@pytest.mark.soak
@pytest.mark.cluster
def test_a_copy_made_while_jobs_are_added_has_all_that_were_accepted_before(tmp_path: Path) -> None:
    assert [command.split()[0] for command in COMMANDS] == ["sqlite3", "cp", "rm", "mv"]
    service = RealService(tmp_path / "service")
    copied = None
    accepted: list[int] = []
    stop = threading.Event()

    def add() -> None:
        while not stop.wait(0.03):
            accepted.append(service.add(REFUSED))

    adding = threading.Thread(target=add)
    try:
        running = service.add(LONG)
        until_measured(service, running)
        adding.start()
        until(lambda: accepted)
        for number in range(5):  # a copy that is torn by chance is not torn each time
            time.sleep(0.1)
            before = accepted[-1]
            (tmp_path / str(number)).mkdir()
            results = copy(service, tmp_path / str(number))
            # While the service runs: --check takes nothing from it.
            assert int(check_service_start(ServiceSettings(results, 0, "127.0.0.1")).removeprefix("job ")) >= before
            with_all = open_service_store(results)
            assert {job.id for job in with_all.list_jobs(limit=10**6)} >= set(range(1, before + 1))
            with_all.close()
        stop.set()
        adding.join()
        # A service of a copy beside the first one would end the first one's job as its own.
        with pytest.raises(UsageError, match="or of a copy, is running already"), started(results):
            pass
        assert service.ask("GET", f"/api/jobs/{running}")[1]["state"] == "running"

        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
        copied = RealService(tmp_path / "copied", results=results)
        assert copied.token == service.token
        result = copied.until(running, "interrupted")["result"]
        records = (service.results / result / RECORDS).read_bytes()
        copy_of_them = (results / result / RECORDS).read_bytes()
        assert records.startswith(copy_of_them[: copy_of_them.rindex(b"\n") + 1])
        assert copied.until(running + 1, "failed")["status"] == 2
        assert copied.stop() == 0
        assert service.before.left_after(service.pids, 30) == []
    finally:
        stop.set()
        for each in filter(None, (service, copied)):
            each.close()


def until_measured(service: RealService, number: int) -> None:
    """Wait until the job has recorded an iteration."""
    deadline = time.monotonic() + LIMIT
    while True:
        job = service.until(number, "running")
        if job["result"] is not None and any(
            launch.iterations for launch in read_campaign(service.results / job["result"]).launches
        ):
            return
        assert time.monotonic() < deadline, job
        time.sleep(0.1)


@pytest.mark.slow
def test_a_damaged_copy_is_found(tmp_path: Path) -> None:
    with_jobs = open_service_store(tmp_path)
    for number in range(2000):
        with_jobs.add_job("ci", ["run"], {}, most_queued=10**6, key=str(number))
    with_jobs.close()
    file = tmp_path / FOLDER / "service.sqlite"
    assert check_service_start(ServiceSettings(tmp_path, 0, "127.0.0.1")) == "job 2000"
    whole = file.read_bytes()
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        assert str(tmp_path) in problem_of(ServiceSettings(tmp_path, 0, "127.0.0.1"))
