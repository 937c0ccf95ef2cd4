"""The Queue tab: what waits and for how long, what ran, and how jobs are cancelled."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import panel as pn
import pytest

from merge_bench.errors import UsageError
from merge_bench.service.documents import Job, Jobs
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.runner import Runner
from tests.probe.samples import EVIL
from tests.view.dashboard.boards import texts, update

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def job(number: int, state: str, command: str = "merge-bench run", **more: object) -> Job:
    """A job; one that has ended took 100 seconds."""
    ended = None if state in ("queued", "running") else 1200.0
    values = {
        "who": "ci", "key": None, "words": [], "settings": {}, "resume": False, "attempts": 0, "cancelled": False,
        "status": None, "result": None, "message": None, "created": 1000.0,
        "started": None if state == "queued" else 1100.0, "ended": ended,
    }  # fmt: skip
    stored = {"key": None, "words": [], "resume": False, "attempts": 1, "cancelled": False}
    return msgspec.convert(stored | values | {"id": number, "state": state, "command": command} | more, Job)


@dataclass
class FakeQueue:
    """Jobs as a service has them."""

    found: list[Job]
    cancelled: list[int] = field(default_factory=list)

    def jobs(self) -> Jobs:
        return Jobs(jobs=self.found)

    def job(self, number: int) -> Job:
        return msgspec.structs.replace(next(each for each in self.found if each.id == number), log=f"log of {number}")

    def cancel(self, number: int) -> None:
        if number != 3:
            raise UsageError("this job belongs to another token")
        self.cancelled.append(number)


def board(results: Path, *jobs: Job) -> tuple[Dashboard, FakeQueue]:
    queue = FakeQueue(list(jobs))
    return Dashboard(results, runner=Runner(results), queue=queue), queue


def test_with_a_queue_there_is_a_tab_for_it_instead_of_that_for_runs(tmp_path: Path) -> None:
    view, _ = board(tmp_path)
    assert "Queue" in view.tabs.options
    assert "Run" not in view.tabs.options
    update(view.queue)
    assert "No job is running, none waits." in texts(view.queue.layout)
    assert "--service URL" in texts(view.queue.layout)
    without = Dashboard(tmp_path, runner=Runner(tmp_path))
    assert "Queue" not in without.tabs.options


def test_how_long_jobs_wait_and_take_is_what_the_same_commands_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1140.0)
    view, queue = board(
        tmp_path, job(5, "queued", ahead=2), job(4, "queued", "merge-bench tune", ahead=1), job(3, "running"),
        job(2, "done", "merge-bench tune", ended=1700.0), job(1, "done"), job(0, "failed", ended=9000.0),
    )  # fmt: skip
    update(view.queue)
    running, tuning, waiting, *ended = [row[0].value for row in view.queue.jobs]
    assert "about 60 seconds left" in running
    assert "1 job before it, about 60 seconds until it begins, about 10 minutes to run" in tuning
    assert "2 jobs before it, about 11 minutes until it begins, about 1.7 minutes to run" in waiting
    assert len(ended) == 3
    assert "took 2.2 hours" in ended[2]
    assert "Job 3 is running, 2 jobs wait; about 13 minutes in total." in texts(view.queue.layout)
    queue.found[:2] = [job(5, "queued", "merge-bench probe p2p"), job(4, "queued", "merge-bench tune")]
    update(view.queue)
    assert "in total" not in texts(view.queue.layout)  # nobody knows how long the probe takes


def test_the_progress_of_the_running_job_comes_from_its_records(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "sweep", tmp_path / "sweep")
    records = tmp_path / "sweep" / "records.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:-2]))
    view, _ = board(tmp_path, job(3, "running", result="sweep"))
    update(view.queue)
    assert "<progress" in texts(view.queue.jobs)


def test_the_output_and_the_result_of_each_job_can_be_shown(tmp_path: Path) -> None:
    view, _ = board(
        tmp_path, job(3, "running"), job(1, "done", result="mine", message="ended at the time limit", schedule="n")
    )
    update(view.queue)
    shutil.copytree(CAMPAIGNS / "run", tmp_path / "mine")  # after the last listing
    assert "log of 3" in texts(view.queue.layout)
    assert "ended at the time limit" in texts(view.queue.layout)
    assert "ci, schedule n · " in texts(view.queue.layout)
    click(view, "Output 1")
    update(view.queue)
    assert "log of 1" in texts(view.queue.layout)
    click(view, "Result 1")
    assert view.tabs.value == "Results"
    assert [entry.folder.name for entry in view.results.chosen] == ["mine"]


def test_only_what_the_service_says_can_be_cancelled_and_a_refusal_is_a_sentence(tmp_path: Path) -> None:
    view, queue = board(
        tmp_path, job(4, "queued", cancellable=True), job(3, "running", cancellable=True), job(2, "queued")
    )
    update(view.queue)
    assert [each.label for each in view.queue.jobs.select(pn.widgets.Button) if "Cancel" in each.label] == [
        "Cancel 3", "Cancel 4",
    ]  # fmt: skip
    click(view, "Cancel 3")
    assert queue.cancelled == [3]
    click(view, "Cancel 4")
    assert "this job belongs to another token" in texts(view.queue.layout)


def click(view: Dashboard, label: str) -> None:
    (button,) = [each for each in view.queue.jobs.select(pn.widgets.Button) if each.label == label]
    button.clicks += 1


def test_a_service_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Jobs:
        raise UsageError("no service <there>")

    view, queue = board(tmp_path)
    monkeypatch.setattr(queue, "jobs", gone)
    update(view.queue)
    assert "no service &lt;there&gt;" in texts(view.queue.layout)


def test_everything_that_clients_wrote_is_text(tmp_path: Path) -> None:
    evil = {"who": EVIL, "command": EVIL, "settings": {"UCX_TLS": EVIL}, "message": EVIL, "result": EVIL}
    view, queue = board(tmp_path, *(job(number, state, **evil) for number, state in ((3, "running"), (2, "done"))))
    queue.job = lambda number: msgspec.structs.replace(queue.found[0], log=EVIL)
    update(view.queue)
    shown = texts(view.queue.layout)
    assert "&lt;" in shown
    assert "<img" not in shown
    assert "<script" not in shown
