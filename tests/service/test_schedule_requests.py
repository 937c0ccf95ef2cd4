"""Schedules over HTTP and on the command line; `test_serve.py` has a service that finds one in its folder."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from merge_bench.cli import cli
from merge_bench.cli.service import parse_job_request
from merge_bench.errors import UsageError
from merge_bench.service.api import ServiceLimits
from merge_bench.service.documents import JobRequest
from merge_bench.service.job_rules import JobRules
from merge_bench.service.schedules import queue_due_scheduled_jobs
from merge_bench.service.store import FOLDER, LOCAL, open_service_store
from tests.helpers.examples import examples
from tests.service.in_process import Running, running
from tests.service.schemas import ANYTHING, HOSTILE

RUN = {"command": "run", "options": {"chunk": "1e4"}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "run optimized.cfg --chunk 25e6 --launches=8 --fail-on slower --check-link --question 1 --question 2,3",
            JobRequest(
                command="run",
                configs=["optimized.cfg"],
                options={
                    "chunk": "25e6",
                    "launches": "8",
                    "fail_on": ["slower"],
                    "check_link": True,
                    "question": ["1", "2,3"],
                },
            ),
        ),
        ("run --configs tcp,default", JobRequest(command="run", configs=["tcp", "default"])),
        (
            "probe p2p --config tcp --baseline default --config ethernet --config default --sizes 8,1M",
            JobRequest(command="probe p2p", configs=["default", "tcp", "ethernet"], options={"sizes": "8,1M"}),
        ),
        (
            "tune tcp --only UCX_TLS --only UCX_RNDV_THRESH --budget 5m",
            JobRequest(
                command="tune", configs=["tcp"], options={"only": ["UCX_TLS", "UCX_RNDV_THRESH"], "budget": "5m"}
            ),
        ),
        ("probe", JobRequest(command="probe")),
        ("serve token list", JobRequest(command="serve token list")),
    ],
)
def test_words_become_a_request(words: str, expected: JobRequest) -> None:
    assert parse_job_request(cli, words.split()) == msgspec.structs.replace(expected, resume=True)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), ServiceLimits(queue=10**6, requests=10**9)) as found:
        yield found


def test_the_interface_adds_lists_and_removes(service: Running) -> None:
    body = {"name": "api", "at": "02:30", "zone": "Europe/Berlin", "days": "mon-fri", "missed": "run", "job": RUN}
    assert service.refused(403, "POST", "/api/schedules", body, token="reader")["code"] == "read-only"
    status, added = service.ask("POST", "/api/schedules", body)
    assert (status, added["who"], added["command"]) == (201, "ci", "merge-bench run --chunk=1e4")
    assert added["next"] > added["created"]
    assert service.refused(400, "POST", "/api/schedules", body)["code"] == "refused"
    for wrong in ({"missed": "never"}, {"more": 1}, {"job": {}}, {"name": "x" * 61}, {"at": 230}):
        assert service.refused(400, "POST", "/api/schedules", {**body, **wrong})["code"] == "invalid"
    assert service.ask("GET", "/api/schedules", token="reader") == (200, {"schedules": [added]})
    for token in ("reader", "other"):
        assert service.refused(403 if token == "reader" else 404, "DELETE", "/api/schedules/api", token=token)
    assert service.ask("DELETE", "/api/schedules/api") == (200, {"schedules": []})
    assert service.refused(404, "DELETE", "/api/schedules/api")["code"] == "no-such-schedule"
    assert service.ask("POST", "/api/schedules", body)[0] == 201
    assert service.ask("DELETE", "/api/schedules/api", token=LOCAL)[0] == 200
    for path in ("", "/", "/..", "/a/b", "/-a", "/%61", "/" + "a" * 61):
        found, _ = service.ask("DELETE", f"/api/schedules{path}")
        assert found == (405 if path == "" else 404)


@pytest.mark.slow
@examples(300)
@hypothesis.given(
    st.sampled_from(["name", "at", "days", "zone", "missed", "job"]), ANYTHING | HOSTILE, st.integers(0, 10**10)
)
def test_no_schedule_is_a_mistake_of_the_service(service: Running, field: str, value: object, now: int) -> None:
    body = {"name": "fuzz", "at": "02:30", "job": RUN, field: value}
    status, answer = service.ask("POST", "/api/schedules", body)
    assert status in (201, 400), answer
    assert service.mistakes == []
    if status == 201:
        queue_due_scheduled_jobs(service.store, JobRules(service.folder), 1000, lambda: None, clock=lambda: now)
        assert service.ask("DELETE", f"/api/schedules/{answer['name']}") == (200, {"schedules": []})


def test_what_is_removed_and_an_empty_list_are_one_line(tmp_path: Path) -> None:
    def serve(*words: str) -> tuple[str, str]:
        found = CliRunner().invoke(cli, ["serve", "--results", str(tmp_path), *words])
        assert found.exit_code == 0, found.output
        return found.stdout, found.stderr

    for what in ("token", "schedule"):
        assert serve(what, "list") == ("", f"There is no {what} yet.\n")
    serve("token", "add", "--name", "ci", "--anyway")
    serve("schedule", "add", "--name", "nightly", "--at", "02:30", "--anyway", "--", "run")
    assert serve("schedule", "list")[0].startswith("nightly  02:30 daily UTC, next 20")
    removed = "The schedule nightly is removed; a job that it has queued stays.\n"
    assert serve("schedule", "remove", "nightly") == (removed, "")
    assert serve("token", "remove", "ci") == ("The token ci and its schedules are removed.\n", "")


def test_nothing_is_added_where_no_service_would_see_it(tmp_path: Path) -> None:
    added = {
        "token": ("token", "add", "--name", "ci"),
        "schedule": ("schedule", "add", "--name", "nightly", "--at", "02:30", "--", "run"),
    }
    folder = tmp_path / "results"
    for words in added.values():
        found = CliRunner().invoke(cli, ["serve", "--results", str(folder), *words])
        assert isinstance(found.exception, UsageError) or found.exit_code == 2
        assert not folder.exists()
    with contextlib.closing(open_service_store(folder)), open(folder / FOLDER / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a service does
        for words in added.values():
            assert CliRunner().invoke(cli, ["serve", "--results", str(folder), *words]).exit_code == 0
