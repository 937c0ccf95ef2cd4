"""The Run tab: the form queues a job; what waits and for how long, what ran, and how jobs are cancelled."""

from __future__ import annotations

import shutil
from pathlib import Path

import panel as pn
import pytest

from merge_bench.config.shipped import shipped_files
from merge_bench.dashboard.app import Dashboard
from merge_bench.dashboard.run_tab import RunForm
from merge_bench.probe import probes
from merge_bench.service.documents import Job
from merge_bench.view.text import as_html
from tests.probe.samples import EVIL
from tests.view.dashboard.boards import texts, update
from tests.view.dashboard.queues import FakeQueue, job

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def board(results: Path, *jobs: Job, refusal: str = "") -> tuple[Dashboard, FakeQueue]:
    queue = FakeQueue(list(jobs), refusal)
    return Dashboard(results, queue=queue), queue


@pytest.fixture
def form_and_queue(tmp_path: Path) -> tuple[RunForm, FakeQueue]:
    view, queue = board(tmp_path)
    return view.run.form, queue


def test_the_form_becomes_a_job_and_shows_its_command_line(form_and_queue: tuple[RunForm, FakeQueue]) -> None:
    form, queue = form_and_queue
    form.configs.value, form.fields["chunk"].value, form.fields["workers"].value = ["tcp.cfg"], "2e6", "3"
    assert "merge-bench run --config=tcp.cfg --chunk=2e6 --workers=3" in texts(form.layout)
    form.start.clicks += 1
    assert queue.asked == [("run", ["tcp.cfg"], {"chunk": "2e6", "workers": "3"})]
    form.configs.value, form.fields["blocks"].value = ["default.cfg", "tcp.cfg"], "6"
    form.fields["engine"].value, form.fields["how"].value = "duckdb", "left"
    form.start.clicks += 1
    options = {"chunk": "2e6", "workers": "3", "blocks": "6", "engine": "duckdb", "how": "left"}
    assert queue.asked[1] == ("run", ["default.cfg", "tcp.cfg"], options)


def test_each_config_says_what_it_does_and_ones_own_can_be_run(form_and_queue: tuple[RunForm, FakeQueue]) -> None:
    form, _ = form_and_queue
    about = {each.name: each.about for each in shipped_files()}
    assert as_html(about["tcp.cfg"]) not in texts(form.layout)
    form.configs.value = ["tcp.cfg"]
    assert as_html(f"tcp.cfg: {about['tcp.cfg']}") in texts(form.layout)
    assert "<code>merge-bench run --config FILE.cfg</code>" in texts(form.layout)


def test_a_tuning_and_every_probe_can_be_started_with_the_fields_they_take(
    form_and_queue: tuple[RunForm, FakeQueue],
) -> None:
    form, queue = form_and_queue
    assert set(form.command.options) == {"run", "tune", *(f"probe {name}" for name in probes())}
    form.command.value, form.configs.value = "tune", ["tcp.cfg"]
    form.start.clicks += 1
    form.command.value = "probe p2p"
    assert [name for name, field in form.fields.items() if field.visible] == ["workers", "iterations", "blocks"]
    form.start.clicks += 1
    assert queue.asked == [("tune", ["tcp.cfg"], {"chunk": "1e6", "budget": "10m"}), ("probe p2p", ["tcp.cfg"], {})]


def test_tables_are_merged_on_a_key_with_one_name_or_two(form_and_queue: tuple[RunForm, FakeQueue]) -> None:
    form, queue = form_and_queue
    keys = ("on", "left_on", "right_on")
    assert not any(form.fields[name].visible for name in keys)
    tables = {"left": "orders.parquet", "right": "my lines", "left_on": "o_key", "right_on": "l_key"}
    for name, text in tables.items():
        form.fields[name].value = text
    assert all(form.fields[name].visible for name in keys)
    form.start.clicks += 1
    form.fields["left_on"].value = form.fields["right_on"].value = ""
    form.fields["on"].param.update(value="id,a=b", value_input="id,a=b")  # together, as a browser sends them
    form.start.clicks += 1
    files = {"left": "orders.parquet", "right": "my lines"}
    assert [options for *_, options in queue.asked] == [tables, {**files, "on": "id,a=b"}]


def test_what_the_service_refuses_is_shown(tmp_path: Path) -> None:
    view, queue = board(tmp_path)
    view.run.form.fields["chunk"].value = "taken"
    view.run.form.start.clicks += 1
    assert queue.asked == []
    assert "the queue is full" in texts(view.run.layout)


def test_where_runs_are_refused_there_is_the_queue_but_no_form(tmp_path: Path) -> None:
    view, _ = board(tmp_path, refusal="Not <here>.")
    assert "Not &lt;here&gt;." in texts(view.run.layout)
    assert view.run.layout.select(pn.widgets.Button) == []
    update(view.run)
    assert "No job is running, none waits." in texts(view.run.layout)


def test_without_a_queue_there_is_no_tab_for_runs(tmp_path: Path) -> None:
    assert "Run" not in Dashboard(tmp_path).tabs.options


@pytest.mark.parametrize(("status", "shown"), [(5, "gate not met"), (2, "failed"), (3, "failed")])
def test_a_gate_that_was_not_met_is_no_failure(tmp_path: Path, status: int, shown: str) -> None:
    view, _ = board(tmp_path, job(1, "failed", status=status))
    update(view.run)
    assert f">{shown}</span>" in texts(view.run.jobs)


@pytest.mark.slow
def test_how_long_jobs_wait_and_take_is_what_the_same_commands_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1140.0)
    view, queue = board(
        tmp_path,
        job(5, "queued", ahead=2),
        job(4, "queued", "merge-bench tune", ahead=1),
        job(3, "running"),
        job(2, "done", "merge-bench tune", ended=1700.0),
        job(1, "done"),
        job(0, "failed", ended=9000.0),
    )
    update(view.run)
    running, tuning, waiting, *ended = [row[0].value for row in view.run.jobs]
    assert "about 60 seconds left" in running
    assert "1 job before it, about 60 seconds until it begins, about 10 minutes to run" in tuning
    assert "2 jobs before it, about 11 minutes until it begins, about 1.7 minutes to run" in waiting
    assert len(ended) == 3
    assert "took 2.2 hours" in ended[2]
    assert "Job 3 is running, 2 jobs wait; about 13 minutes in total." in texts(view.run.layout)
    queue.found[:2] = [job(5, "queued", "merge-bench probe p2p"), job(4, "queued", "merge-bench tune")]
    update(view.run)
    assert "in total" not in texts(view.run.layout)  # nobody knows how long the probe takes


def test_the_progress_of_the_running_job_comes_from_its_records(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "sweep", tmp_path / "sweep")
    records = tmp_path / "sweep" / "records.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:-2]))
    view, _ = board(tmp_path, job(3, "running", result="sweep"))
    update(view.run)
    assert "<progress" in texts(view.run.jobs)


def test_the_output_and_the_result_of_each_job_can_be_shown(tmp_path: Path) -> None:
    view, _ = board(
        tmp_path, job(3, "running"), job(1, "done", result="mine", message="ended at the time limit", schedule="n")
    )
    update(view.run)
    shutil.copytree(CAMPAIGNS / "run", tmp_path / "mine")  # after the last listing
    assert "log of 3" in texts(view.run.layout)
    assert "ended at the time limit" in texts(view.run.layout)
    assert "ci, schedule n<" in texts(view.run.layout)
    click(view, "Output 1")
    update(view.run)
    assert "log of 1" in texts(view.run.layout)
    click(view, "Result 1")
    assert view.tabs.value == "Results"
    assert [entry.folder.name for entry in view.results.chosen_entries] == ["mine"]


def test_only_what_the_service_says_can_be_cancelled_and_a_refusal_is_a_sentence(tmp_path: Path) -> None:
    view, queue = board(
        tmp_path, job(4, "queued", cancellable=True), job(3, "running", cancellable=True), job(2, "queued")
    )
    update(view.run)
    assert [each.label for each in view.run.jobs.select(pn.widgets.Button) if "Cancel" in each.label] == [
        "Cancel 3",
        "Cancel 4",
    ]
    click(view, "Cancel 3")
    assert queue.cancelled == [3]
    click(view, "Cancel 4")
    assert "this job belongs to another token" in texts(view.run.layout)


def click(view: Dashboard, label: str) -> None:
    (button,) = [each for each in view.run.jobs.select(pn.widgets.Button) if each.label == label]
    button.clicks += 1


def test_a_service_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    view, queue = board(tmp_path)
    queue.problem = "no service <there>"
    update(view.run)
    assert "no service &lt;there&gt;" in texts(view.run.layout)


def test_everything_that_clients_wrote_is_text(tmp_path: Path) -> None:
    evil = {"who": EVIL, "command": EVIL, "settings": {"UCX_TLS": EVIL}, "message": EVIL, "result": EVIL}
    view, queue = board(tmp_path, *(job(number, state, **evil) for number, state in ((3, "running"), (2, "done"))))
    queue.log = EVIL
    update(view.run)
    shown = texts(view.run.layout)
    assert "&lt;" in shown
    assert "<img" not in shown
    assert "<script" not in shown
