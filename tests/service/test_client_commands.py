"""Commands on a service: what they ask it for, what they print, and the status with which they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.writer import RECORDS
from merge_bench.regressions.gates import NO_BASELINE_REMEDY
from tests.helpers.runs import LIMIT, Finished, command, environment
from tests.helpers.synthetic_campaigns import write_campaign
from tests.service.conftest import JOB, TOKEN, Answer, Fake
from tests.service.services import RealService
from tests.tune.clusters import TRUTH, Cluster, begin, evaluator_of, search

RECORDED = Path(__file__).parents[1] / "data" / "campaigns"


def on_fake(server: Fake, folder: Path, *words: str, **surroundings: str) -> Any:
    environ = {"MERGE_BENCH_TOKEN": TOKEN, **surroundings}
    verb = ("tune",) if words[:1] == ("tune",) else ("run",)
    return command(
        folder, *words[words[:1] == verb :], "--service", server.url, environ=environ, json_output=False, verb=verb
    )


def test_exactly_the_options_that_were_given_are_sent_as_they_were_typed(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()
    server = fake(records=records)
    words = ("tcp", "--chunk", "25e6", "--threshold", "3%", "--check-link", "--details", "--left-on", "a,b")
    on_fake(server, tmp_path / "1", *words, "--left-on", "c", MERGE_BENCH_WARMUP="0", MERGE_BENCH_CHUNK="7")
    asked, _, body = server.asked[0]
    key = body.pop("key")
    assert (asked, len(key)) == ("POST /api/jobs", 32)
    assert body == {
        "command": "run",
        "configs": ["tcp.cfg"],
        "settings": {},
        "name": None,
        "resume": True,
        "options": {"chunk": "25e6", "threshold": "3%", "check_link": True, "left_on": ["a,b", "c"], "warmup": "0"},
    }
    config = tmp_path / "my.cfg"
    config.write_text("export UCX_TLS=tcp\nCHUNK_SIZE=1000\n")
    on_fake(server, tmp_path / "2", "--config", str(config))
    body = server.asked[-3][2]
    assert (body["configs"], body["settings"]) == ([], {"UCX_TLS": "tcp", "MERGE_BENCH_CHUNK": "1000"})
    assert body["name"] == "my"
    (tmp_path / "optimized.cfg").write_text("export UCX_TLS=tcp\n")
    pretends = on_fake(server, tmp_path / "2", "--config", str(tmp_path / "optimized.cfg"))
    pretends.check_refused("is a shipped config with other settings")
    on_fake(server, tmp_path / "3", "--configs", f"{config},tcp").check_refused("shipped configs")
    on_fake(server, tmp_path / "4", "--dry-run").check_refused("--dry-run")
    on_fake(server, tmp_path / "5", "--left", "a", "--right", "b", "--on", "key")
    assert server.asked[-3][2]["options"]["on"] == ["key"]
    assert on_fake(server, tmp_path / "6", "--service", "key", MERGE_BENCH_SERVICE="http://127.0.0.1:1").status != 2


def test_the_old_form_of_the_address_works_with_a_warning(fake: Callable[..., Fake], tmp_path: Path) -> None:
    server = fake(records=(write_campaign(tmp_path) / RECORDS).read_bytes())
    environ = {"MERGE_BENCH_TOKEN": TOKEN, "MERGE_BENCH_ON": "id"}  # the variable has key columns, as for any run
    done = command(tmp_path, "--on", server.url, environ=environ, json_output=False, verb=("run",))
    assert (done.status, done.errors.count("--service")) == (0, 1)
    assert server.asked[-3][2]["options"]["on"] == "id"


@pytest.mark.parametrize(
    ("verb", "environ", "words"),
    [
        ("jobs list", {"MERGE_BENCH_SERVICE": "id"}, ("environment variable MERGE_BENCH_SERVICE: 'id'",)),
        ("run", {"MERGE_BENCH_SERVICE": "id"}, ("environment variable MERGE_BENCH_SERVICE: 'id'",)),
        ("jobs list", {"MERGE_BENCH_ON": "id"}, ("Missing option '--service'", "MERGE_BENCH_SERVICE")),
        ("run", {"MERGE_BENCH_ON": "http://127.0.0.1:1"}, ("environment MERGE_BENCH_ON", "MERGE_BENCH_SERVICE")),
        ("probe p2p", {"MERGE_BENCH_ON": "http://127.0.0.1:1"}, ("environment MERGE_BENCH_ON",)),
    ],
)
def test_a_wrong_value_of_a_variable_is_refused_with_the_name_of_the_variable(
    tmp_path: Path, verb: str, environ: dict[str, str], words: tuple[str, ...]
) -> None:
    command(tmp_path, environ=environ, json_output=False, verb=verb.split()).check_refused(*words)


@pytest.mark.parametrize(
    ("before", "after", "requests", "sentence"),
    [
        ({"state": "done"}, {}, 1, "job 7 has already ended: done"),
        ({"state": "failed", "status": 5}, {}, 1, "job 7 has already ended: gate not met"),
        (
            {"state": "running", "ended": None},
            {"state": "running", "cancelled": True, "ended": None},
            2,
            "job 7 is being cancelled; what it measured is kept",
        ),
        (
            {"state": "queued", "ended": None},
            {"state": "cancelled", "cancelled": True},
            2,
            "job 7 is cancelled; it had not begun",
        ),
        (
            {"state": "running", "ended": None},  # it ends between the two requests
            {"state": "failed", "status": 3, "message": "ended at the time limit of 4 h"},
            2,
            "job 7 has already ended: failed (ended at the time limit of 4 h)",
        ),
    ],
)
def test_cancelling_a_job_says_what_becomes_of_it(
    fake: Callable[..., Fake],
    tmp_path: Path,
    before: dict[str, Any],
    after: dict[str, Any],
    requests: int,
    sentence: str,
) -> None:
    def answer(method: str, path: str) -> Answer:
        return 200, json.dumps({**JOB, **(after if method == "DELETE" else before)}).encode(), {}

    server = fake(answer=answer)
    finished = typed(server, tmp_path, "jobs cancel", "7")
    assert (finished.status, finished.output, len(server.asked)) == (0, f"{sentence}\n", requests)


def test_a_job_that_is_being_cancelled_is_listed_as_such(fake: Callable[..., Fake], tmp_path: Path) -> None:
    jobs = [{**JOB, "state": "running", "cancelled": True, "ended": None}]
    server = fake(answer=lambda method, path: (200, json.dumps({"jobs": jobs}).encode(), {}))
    assert typed(server, tmp_path, "jobs list").output.splitlines()[1].split()[:2] == ["7", "cancelling"]


def test_what_is_no_number_of_a_job_is_named(fake: Callable[..., Fake], tmp_path: Path) -> None:
    typed(fake(), tmp_path, "jobs show", "abc").check_refused("'abc' is not the number of a job")


@pytest.mark.parametrize(
    ("job", "status"),
    [
        ({"state": "cancelled", "message": "\x1b[2J cancelled"}, 3),
        ({"state": "interrupted", "status": None}, 3),
        ({"state": "failed", "status": 5}, 5),
        ({"state": "failed", "status": -9}, 3),
        ({"state": "failed", "status": 0}, 3),
        ({"log": "\x1b[2J\n\rx\x07\n"}, 0),
    ],
)
def test_every_end_of_a_job_has_its_status_and_no_control_character_is_printed(
    fake: Callable[..., Fake], tmp_path: Path, job: dict[str, Any], status: int
) -> None:
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()
    for more in ({}, {"result": None} if job.get("state") else {}):
        finished = on_fake(fake({**job, **more}, records), tmp_path / f"run{len(more)}")
        assert finished.status == status, finished.errors
        assert {each for each in finished.output + finished.errors if not each.isprintable()} <= {"\n"}
        assert "Traceback" not in finished.errors


def test_output_is_printed_once_as_it_grows(fake: Callable[..., Fake], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("merge_bench.cli.service._POLL_SECONDS", 0.0)
    lines = [f"line {number}\n" for number in range(40)]
    text = "".join(lines)
    ends = iter([*range(0, len(text), 37), len(text)])
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()

    def answer(method: str, path: str) -> Answer:
        if path.endswith("/records"):
            return 200, records, {}
        end = next(ends, len(text))
        state = "done" if end == len(text) else "running"
        return 200, json.dumps({**JOB, "state": state, "log": text[max(0, end - 90) : end]}).encode(), {}

    finished = on_fake(fake(answer=answer), tmp_path / "run")
    assert [line for line in finished.errors.splitlines(keepends=True) if line.startswith("line")] == lines


@pytest.mark.cluster
def test_a_second_ctrl_c_leaves_at_once_and_names_the_command_that_cancels(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    server = fake({"state": "running"})
    (tmp_path / "tmp").mkdir()
    surroundings = environment(tmp_path / "tmp", {"MERGE_BENCH_TOKEN": TOKEN})
    words = [sys.executable, "-P", "-m", "merge_bench", "run", "--service", server.url]
    process = subprocess.Popen(words, env=surroundings, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LIMIT
    for asked in ("GET /api/jobs/7", "DELETE /api/jobs/7"):
        while not any(each == asked for each, _, _ in server.asked):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGINT
    assert f"jobs cancel 7 --service {server.url}" in errors


@pytest.mark.slow
def test_a_tuning_comes_home_with_the_config_that_it_found(
    fake: Callable[..., Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(tmp_path) as writer:
        search(evaluator_of(writer, Cluster(writer).launch))
    server, config = fake(records=writer.records.read_bytes()), tmp_path / "found.cfg"
    words = ("tune", "--only", "rails", "--output", str(config), "--json")
    finished = on_fake(server, tmp_path / "other", *words)
    assert (finished.status, config.exists()) == (3, False)
    assert "another tuning space" in finished.errors
    monkeypatch.setattr("merge_bench.tune.space.read_tuning_space", lambda path: TRUTH.space)
    finished = on_fake(server, tmp_path / "same", *words)
    assert finished.status == 0, finished.errors
    assert (finished.document["config"], finished.document["winner"]["settings"]) == (str(config), ["a=y", "b=y"])
    assert "export UCX_" in config.read_text()
    assert server.asked[0][2]["options"] == {"only": ["rails"]}


def test_the_gate_of_several_configs_is_shown_from_their_records(fake: Callable[..., Fake], tmp_path: Path) -> None:
    server = fake({"state": "failed", "status": 5}, (RECORDED / "sweep" / RECORDS).read_bytes())
    words = ("--configs", "default,tcp", "--fail-on", "slower", "--json")
    finished = on_fake(server, tmp_path / "run", *words)
    assert finished.status == 5
    assert finished.document["comparisons"] != []
    assert server.asked[0][2]["configs"] == ["default.cfg", "tcp.cfg"]


def test_a_gate_against_a_result_that_was_never_brought_home_is_that_of_the_job(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    job = {"state": "failed", "status": 5, "log": "throughput: INCONCLUSIVE\n"}
    server = fake(job, (RECORDED / "run" / RECORDS).read_bytes())
    gate = ("--against", "20200101T000000Z-x-000000", "--fail-on", "inconclusive", "--json")
    finished = on_fake(server, tmp_path / "run", *gate)
    assert finished.status == 5
    document = finished.document
    assert (document["error"]["code"], document.get("comparisons")) == ("gate-not-met", None)
    assert "INCONCLUSIVE" in finished.errors


@pytest.mark.parametrize(
    ("message", "code", "next_command"),
    [
        (
            f"nothing was compared: 3 earlier results are needed; {NO_BASELINE_REMEDY}",
            "nothing-compared",
            "--against history --fail-on slower --allow-no-baseline",
        ),
        ("--fail-on slower: mine is SLOWER in throughput", "gate-not-met", "history --config tcp"),
    ],
)
def test_a_gate_of_the_service_s_history_names_the_next_command_of_its_kind(
    fake: Callable[..., Fake], tmp_path: Path, message: str, code: str, next_command: str
) -> None:
    job = {"state": "failed", "status": 5, "log": f"merge_bench: {message}\n"}
    server = fake(job, (RECORDED / "run" / RECORDS).read_bytes())
    gate = ("--against", "history", "--fail-on", "slower")
    finished = on_fake(server, tmp_path / "run", *gate)
    assert finished.status == 5
    step = next(line for line in finished.output.splitlines() if line.startswith("Next: "))
    assert next_command in step.replace(f"--service {server.url} ", "")
    assert ("--accept" in finished.output) == (code == "gate-not-met")
    assert f"job 7 of {server.url}: gate not met\n" in finished.errors
    document = on_fake(server, tmp_path / "json", *gate, "--json").document
    assert document["error"]["code"] == code


@pytest.mark.parametrize(("verb", "words", "tries"), [("jobs list", (), 1), ("jobs show", ("7",), 1), ("run", (), 2)])
def test_only_a_command_that_follows_a_job_waits_for_a_service_that_is_away(
    fake: Callable[..., Fake], tmp_path: Path, verb: str, words: tuple[str], tries: int
) -> None:
    answers = iter([(503, b"<html>", {})])
    gone = (404, b'{"error":{"code":"no-such-job","message":"there is no job with this number"}}', {})
    server = fake(answer=lambda method, path: next(answers, gone), patience=60.0)
    finished = typed(server, tmp_path, verb, *words)
    assert (finished.status, len(server.asked)) == (3 if tries == 1 else 2, tries)
    assert ("trying again" in finished.errors) == (tries > 1)


def typed(server: Fake | RealService, folder: Path, verb: str, *words: str, token: str = TOKEN) -> Finished:
    words = (*words, "--service", server.url)
    return command(folder, *words, environ={"MERGE_BENCH_TOKEN": token}, json_output=False, verb=verb.split())


BARE = {"schema": 1, "kind": "campaign", "time": 1.0, "campaign_id": "x", "argv": [], "version": "0", "runs": []}
STRANGE = {
    "newer": {**BARE, "schema": 999},
    "damaged": [],
    "nothing run": {**BARE, "configs": [], "plans": []},
    "nothing tuned": {**BARE, "configs": [], "plans": [{"tune": {}}]},
    "nothing measured": {**BARE, "configs": [], "plans": [{"probe": "p2p"}]},
}


@pytest.mark.parametrize("verb", ["run", "tune", "probe p2p"])
@pytest.mark.parametrize("sent", ["run", "tune", "p2p", "mpi", *STRANGE])
def test_records_of_another_kind_and_strange_ones_end_the_command_with_one_sentence(
    fake: Callable[..., Fake], tmp_path: Path, verb: str, sent: str
) -> None:
    records = (
        json.dumps(STRANGE[sent]).encode() + b"\n" if sent in STRANGE else (RECORDED / sent / RECORDS).read_bytes()
    )
    finished = typed(fake(records=records), tmp_path, verb)
    if sent == verb.split()[-1]:
        assert (finished.status, finished.errors) == (0, "")
        return
    assert (finished.status, finished.output) == (3, "")
    assert finished.errors.startswith("merge_bench: ")
    assert finished.errors.count("\n") == 1


@pytest.mark.parametrize("columns", [80, 200])
def test_a_job_of_a_schedule_is_listed_with_its_name(
    columns: int, fake: Callable[..., Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = "run --config=" + "x" * 80
    listed = {
        "jobs": [
            {**JOB, "ended": 99.0, "schedule": "nightly", "command": f"merge-bench {command}"},
            {**JOB, "ended": 9.0},
        ]
    }
    server = fake(answer=lambda method, path: (200, json.dumps(listed).encode(), {}))
    head, first, second = typed(server, tmp_path, "jobs list").output.splitlines()
    place = head.index("Queued by")
    assert (first[place:].split("  ")[0], second[place:].split()[0]) == ("schedule nightly", "ci")
    assert max(map(len, (head, first, second))) <= columns
    assert (command in first) == (columns == 200)


@pytest.mark.parametrize(("status", "shown"), [(5, "7  gate not met "), (3, "7  failed ")])
def test_a_gate_that_was_not_met_is_listed_as_such(
    fake: Callable[..., Fake], tmp_path: Path, status: int, shown: str
) -> None:
    jobs = [{**JOB, "state": "failed", "status": status}]
    server = fake(answer=lambda method, path: (200, json.dumps({"jobs": jobs, "total": 1}).encode(), {}))
    assert typed(server, tmp_path, "jobs list").output.splitlines()[1].strip().startswith(shown)
