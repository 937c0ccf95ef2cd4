"""Commands that an operator names: what jobs may ask of them, and a gate for one through HTTP."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from merge_bench.cli import cli
from merge_bench.cli.service import parse_job_request
from merge_bench.command.options import ExecOptions, NamedCommandOptions
from merge_bench.config.shipped import FOLDER
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from merge_bench.service.api import ServiceLimits
from merge_bench.service.documents import JobRequest, ScheduleRequest
from merge_bench.service.job_rules import EXEC_TEXT, JobRules
from merge_bench.service.named_commands import append_named_command, check_command_programs, parse_named_commands
from merge_bench.service.runner import JobRunner
from merge_bench.service.schedules import add_schedule, queue_due_scheduled_jobs
from merge_bench.service.store import ServiceStore
from tests.helpers.command_campaigns import interleaved_runs, write_commands
from tests.helpers.examples import examples
from tests.helpers.runs import LIMIT, command
from tests.service.conftest import Fake
from tests.service.in_process import running
from tests.service.services import RealService, ends_well
from tests.service.test_client_commands import typed

COMMANDS = {"osu": ["mpirun", "{x}", "-n", "2", "osu_bw"], "touch": ["sh", "-c", "echo > {workdir}/out"]}
PROGRAM = """#!/bin/sh
echo >> "$1"
lag=20
test $(wc -l < "$1") -le 18 || lag=30
echo "lag $lag us with $UCX_TLS"
echo "{\\"lag\\": $lag}" > "$2/lag.json"
"""
"""Is slower from its 19th launch on."""


def words(options: Mapping[str, Any], commands: Mapping[str, Sequence[str]] = COMMANDS, **given: Any) -> list[str]:
    return JobRules(Path("/nonexistent"), (), commands).command_arguments(
        JobRequest(command="exec", options={**options}, **given)
    )


def test_an_operator_names_commands() -> None:
    texts = ["osu=mpirun {x} -n 2 osu_bw", "quoted=sh -c 'a=1; echo $a'", "a.b-c=true"]
    assert parse_named_commands(texts) == {
        "osu": ["mpirun", "{x}", "-n", "2", "osu_bw"],
        "quoted": ["sh", "-c", "a=1; echo $a"],
        "a.b-c": ["true"],
    }


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["osu_bw"], "write NAME=COMMAND"),
        (["=true"], "write NAME=COMMAND"),
        (["a b=true"], "write NAME=COMMAND"),
        (["../a=true"], "write NAME=COMMAND"),
        (["a=true\nfalse"], "in one line"),
        (["a="], "the command is empty"),
        (["a=sh -c 'x"], "no closing quotation"),
        (["a=true", "a=false"], "two commands have the name a"),
    ],
)
def test_a_wrong_name_or_text_is_refused(texts: Sequence[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as found:
        parse_named_commands(texts)
    assert "\n" not in str(found.value)


def test_the_program_of_each_command_has_to_be_there() -> None:
    check_command_programs({"a": ["true"], "b": [shutil.which("true") or ""]})
    with pytest.raises(UsageError, match="--command a: there is no program no-such-program"):
        check_command_programs({"a": ["no-such-program"]})
    with pytest.raises(UsageError, match="--command a: give the whole path of bin/a"):
        check_command_programs({"a": ["bin/a"]})


def test_a_job_has_the_name_and_gets_the_words_when_it_starts() -> None:
    options = {
        "metric": ["speed=re:speed ([0-9,]+)", "lag=json:lag"],
        "better": ["speed=more", "lag=less"],
        "check": "re:^OK, all$",
        "metric-file": "{workdir}/sub/out.json",
        "launches": 8,
        "named": "osu",
        "against": "history",
        "fail_on": "slower",
        "timeout": "10m",
    }
    found = words(options, configs=["default", "tcp"])
    assert found == [
        "exec",
        "--named=osu",
        f"--configs={FOLDER}/default.cfg,{FOLDER}/tcp.cfg",
        "--metric=speed=re:speed ([0-9,]+)",
        "--metric=lag=json:lag",
        "--better=speed=more",
        "--better=lag=less",
        "--check=re:^OK, all$",
        "--metric-file={workdir}/sub/out.json",
        "--launches=8",
        "--against=history",
        "--fail-on=slower",
        "--timeout=10m",
    ]
    assert append_named_command(found, COMMANDS) == [*found, "--", *COMMANDS["osu"]]
    assert append_named_command(["run", "--chunk=1e4"], COMMANDS) == ["run", "--chunk=1e4"]
    with pytest.raises(UsageError, match="has removed the command osu"):
        append_named_command(found, {"touch": COMMANDS["touch"]})
    assert words({"named": "osu", "preset": "osu"}, settings={"UCX_TLS": "tcp"}, name="mine")[2] == "--config=mine.cfg"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "named must be one of this service's commands: osu, touch$"),
        ({"named": "other"}, "named must be one of this service's commands"),
        ({"named": "mpirun"}, "named must be one of this service's commands"),
        ({"named": ["osu", "touch"]}, "named must be one of this service's commands"),
        ({"named": ""}, "named: the value is empty"),
        ({"named": True}, "named needs a number or text"),
        ({"words": "id"}, "exec has no option 'words'"),
        ({"argv": ["id"]}, "exec has no option 'argv'"),
        ({"shell": True}, "exec has no option 'shell'"),
        ({"--": "id"}, "exec has no option"),
        ({"command": "id"}, "exec has no option"),
        ({"check": "command: id"}, "check can only be re:REGEX in a job"),
        ({"check": ["re:OK", "command: id"]}, "check can only be re:REGEX in a job"),
        ({"check": " command: id"}, "--check  command: id: write re:REGEX"),
        ({"check": "re:("}, "--check re:"),
        ({"check": "re:" + "(" * 900}, "--check re:"),
        ({"check": "re:a{99999999999999999999}"}, "--check re:"),
        ({"check": "re:a\nb"}, "check can contain only printable characters"),
        ({"metric": "speed"}, "--metric speed: write NAME=re:REGEX"),
        ({"metric": ["a=re:(.)", None]}, "metric needs a number or text"),
        ({"metric": "a=re:(.)"}, "whether more or less of it is better"),
        ({"preset": "nothing"}, "there is no such preset"),
        ({"unit": "GB/s"}, "--unit GB/s needs --metric or --preset"),
        ({"metric_file": "{workdir}/out"}, "--metric-file needs --metric or --preset"),
        *(
            ({"metric": "a=json:us", "better": "less", "metric_file": name}, "metric_file must be a file in the folder")
            for name in (
                "/etc/passwd",
                "out.json",
                "../out.json",
                "{workdir}",
                "{workdir}/",
                "{workdir}/../../service.sqlite",
                "{workdir}/a/../../b",
                "{workdir}//etc/passwd",
                "{workdir}x/a",
                "{config}/a",
                "{workdir}/a/{workdir}",
                "~/a",
            )
        ),
        ({"results": "/tmp"}, "a job cannot have the option results"),
        ({"extend": "x"}, "a job cannot have the option extend"),
        ({"trust_config": True}, "a job cannot have the option trust_config"),
        ({"service": "http://x"}, "a job cannot have the option service"),
        ({"insecure": True}, "a job cannot have the option insecure"),
        ({"config": "/etc/a.cfg"}, "a job cannot have the option config"),
        ({"against": "/etc"}, "against must be history"),
        ({"expect_status": 256}, "expect_status: "),
        ({"launches": 10**6}, "launches is at most 10,000"),
        ({"chunk": "1e6"}, "exec has no option 'chunk'"),
        ({"workers": 2}, "exec has no option 'workers'"),
    ],
)
def test_a_job_brings_no_command_file_or_wrong_metric(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as found:
        words(options if "named" in options or not options else {"named": "osu", **options})
    assert "\n" not in str(found.value)


def test_a_config_of_a_client_is_checked_as_for_a_merge() -> None:
    for settings in ({"LD_PRELOAD": "a.so"}, {"UCX_MODULE_DIR": "a"}, {"UCX_TLS": "$(id)"}, {"PATH": "a"}):
        with pytest.raises(UsageError, match=next(iter(settings))):
            words({"named": "osu"}, settings=settings)
    with pytest.raises(UsageError, match="no shipped config"):
        words({"named": "osu"}, configs=["/etc/passwd"])


def test_a_service_without_commands_runs_none() -> None:
    with pytest.raises(UsageError, match="this service has no commands for exec"):
        words({"named": "osu"}, {})


def test_every_option_with_free_text_was_decided_about() -> None:
    """A new option of `exec` that takes any text is refused until it is listed."""
    accepted = set()
    for option in (*ExecOptions.declared_options(), *NamedCommandOptions.declared_options()):
        try:
            words({"named": "osu", option.key: "/etc/passwd"})
        except UsageError as error:
            if "it takes any text" in str(error):
                continue
        accepted.add(option.key)
    assert accepted >= EXEC_TEXT
    assert accepted - EXEC_TEXT <= {"preset", "expect_status", "timeout", "lanes"}


@examples(100)
@hypothesis.given(st.text(max_size=40), st.sampled_from([*sorted(EXEC_TEXT - {"named"}), "preset", "timeout"]))
def test_no_text_becomes_a_word_of_its_own(text: str, key: str) -> None:
    for value in (text, f"re:{text}", f"a=re:{text}", f"a=json:{text}", f"{{workdir}}/{text}"):
        with contextlib.suppress(UsageError):
            found = words({"named": "osu", "preset": "osu", key: value})
            assert len(found) <= 4
            assert found[-1] == f"--{key.replace('_', '-')}={value}"


def test_an_operator_adds_a_schedule_of_a_command(tmp_path: Path) -> None:
    add = ("schedule", "add", "--name", "osu", "--at", "02:30", "--anyway", "--", "exec", "--named", "osu")
    serve = ("serve", "--results", str(tmp_path))
    refused = CliRunner().invoke(cli, [*serve, *add])
    assert "its operator names them with serve --command" in refused.stderr
    added = CliRunner().invoke(cli, [*serve, "--command", "osu=mpirun {x} -n 2 osu_bw", *add])
    assert added.exit_code == 0, added.output
    assert "merge-bench exec --named=osu" in CliRunner().invoke(cli, [*serve, "schedule", "list"]).stdout


def test_the_commands_are_listed_for_those_who_may_run_them(tmp_path: Path) -> None:
    with running(tmp_path, ServiceLimits(), commands=COMMANDS) as service:
        status, answer = service.ask("GET", "/api/commands")
        assert (status, answer["commands"][0]) == (200, {"name": "osu", "command": "mpirun '{x}' -n 2 osu_bw"})
        assert [each["name"] for each in answer["commands"]] == ["osu", "touch"]
        assert service.refused(403, "GET", "/api/commands", token="reader")["code"] == "read-only"
        status, job = service.ask("POST", "/api/jobs", {"command": "exec", "options": {"named": "osu"}})
        assert (status, job["command"]) == (201, "merge-bench exec --named=osu")
        body = {"command": "exec", "options": {"named": "osu", "check": "command: id"}}
        assert "check can only be re:REGEX" in service.refused(400, "POST", "/api/jobs", body)["message"]


def test_a_schedule_of_a_command_queues_jobs_until_the_operator_removes_it(tmp_path: Path) -> None:
    store, now = ServiceStore(tmp_path / "service.sqlite"), dt.datetime.fromisoformat("2026-11-25T00:00+00:00")
    request = ScheduleRequest(
        name="nightly", at="02:30", job=parse_job_request(cli, ["exec", "--named", "osu", "--preset", "osu"])
    )
    named, removed = (JobRules(tmp_path, (), commands) for commands in (COMMANDS, {"touch": ["true"]}))
    added = add_schedule(store, named, "ci", request, clock=now.timestamp)
    assert added.command == "merge-bench exec --named=osu --preset=osu"
    for night, rules in ((1, named), (2, removed)):
        due = now + dt.timedelta(days=night - 1, hours=2, minutes=31)
        queue_due_scheduled_jobs(store, rules, 10, lambda: None, clock=due.timestamp)
        job = store.start_next_job()
        assert (job is not None) == (night == 1)
        if job is not None:
            store.finish_job(job.id, 0)
    (schedule,) = store.list_schedules()
    assert schedule.message == "named must be one of this service's commands: touch"
    with pytest.raises(UsageError, match="--named NAME instead of COMMAND"):
        parse_job_request(cli, ["exec", "--", "id"])
    store.close()


@pytest.mark.cluster
def test_a_queued_job_whose_command_was_removed_fails_with_the_reason(tmp_path: Path) -> None:
    store = ServiceStore(tmp_path / "service.sqlite")
    job, _ = store.add_job("ci", words({"named": "osu"}), {}, most_queued=10)
    runner = JobRunner(store, tmp_path / "jobs", tmp_path, job_seconds=60)
    runner.start()
    deadline = time.monotonic() + LIMIT
    while (row := store.find_job(job.id)) is None or row.ended is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (row.state, row.status) == ("failed", 2)
    assert row.message == "the operator of this service has removed the command osu"
    assert runner.can_run_jobs
    runner.close()
    store.close()


def test_the_client_sends_the_name_and_shows_the_records(fake: Callable[..., Fake], tmp_path: Path) -> None:
    folder = write_commands(tmp_path, interleaved_runs({"tcp": [1.0] * 6}, {"busbw": {"tcp": [9.0] * 6}}))
    server = fake(records=(folder / RECORDS).read_bytes())
    metric = "lag=re:lag ([0-9]+), ok"
    finished = typed(server, tmp_path / "1", "exec", "--named", "osu", "--metric", metric, "--json", "--config", "tcp")
    assert finished.status == 0, finished.errors
    assert finished.document["plan"]["command"]["argv"]
    body = server.asked[0][2]
    assert (body["command"], body["configs"]) == ("exec", ["tcp.cfg"])
    assert body["options"] == {"named": "osu", "metric": [metric]}
    few = write_commands(tmp_path / "few", interleaved_runs({"tcp": [1.0] * 2}, {"busbw": {"tcp": [9.0] * 2}}))
    shown = typed(fake(records=(few / RECORDS).read_bytes()), tmp_path / "5", "exec", "--named", "osu").output
    (step,) = (line for line in shown.splitlines() if line.startswith("Next: "))
    assert " --named osu " in step
    assert "--launches 6" in step
    assert "./bench" not in step  # the service has the command
    environ = {"MERGE_BENCH_SERVICE": server.url}
    refused = command(tmp_path / "2", "true", environ=environ, json_output=False, verb=("exec",))
    refused.check_refused("--named NAME instead of COMMAND", "unset MERGE_BENCH_SERVICE")
    assert "add --named NAME" in typed(server, tmp_path / "3", "exec").errors
    assert "has records of `exec`, not of `run`" in typed(server, tmp_path / "4", "run").errors


@pytest.mark.cluster
def test_a_schedule_of_a_named_command_is_a_gate_for_it(tmp_path: Path) -> None:
    """Three good nights, then the program gets slower: the job of the schedule ends with 5, and says so."""
    program, count = tmp_path / "program.sh", tmp_path / "count"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    named = ("--command", f"ping={program} {count} {{workdir}}")
    options = {
        "named": "ping",
        "metric": "lag=json:lag",
        "unit": "us",
        "metric_file": "{workdir}/lag.json",
        "check": "re:^lag \\d+ us with tcp$",
        "launches": 6,
        "against": "history",
        "fail_on": "slower",
    }
    job = {"command": "exec", "settings": {"UCX_TLS": "tcp"}, "name": "mine", "options": options}
    (tmp_path / "mine.cfg").write_text("UCX_TLS=tcp\n")
    with ends_well(RealService(tmp_path / "service", *named)) as service:
        assert service.ask("GET", "/api/commands")[1]["commands"][0]["name"] == "ping"
        first = {**job, "options": {**options, "allow_no_baseline": True}}
        nights = [service.add(first) for _ in range(3)]
        soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=65)
        schedule = {"name": "nightly", "at": f"{soon:%H:%M}", "job": job}
        assert service.ask("POST", "/api/schedules", schedule)[0] == 201
        for number in nights:
            done = service.until(number, "done", "failed")
            assert done["state"] == "done", done["log"]
        deadline = time.monotonic() + LIMIT
        while (last := service.ask("GET", "/api/schedules")[1]["schedules"][0]["last_job"]) is None:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        ended = service.until(last, "done", "failed")
        assert (ended["state"], ended["status"], ended["schedule"]) == ("failed", 5, "nightly"), ended["log"]
        (series,) = service.ask("GET", "/api/history")[1]["series"]
        assert len(series["results"]) == 4
        campaign = read_campaign(service.results / ended["result"])
        assert campaign.command is not None
        assert campaign.command.main_metric.name == "lag"
        assert [each.iterations[0].values for each in campaign.launches] == [{"lag": 30.0}] * 6
        listed = typed(service, tmp_path / "list", "jobs list", token=service.token).output
        assert "gate not met" in listed
        assert "exec --named=ping" in listed
        shutil.rmtree(service.results / ended["result"])  # it would count as one of the level
        gate: tuple[str, ...] = ("--launches", "6", "--against", "history", "--fail-on", "slower")
        gate += ("--metric", "lag=json:lag", "--unit", "us", "--metric-file", "{workdir}/lag.json")
        gate += ("--named", "ping", "--check", "re:^lag \\d+ us with tcp$")
        gate = ("--config", str(tmp_path / "mine.cfg"), *gate, "--json")
        client = typed(service, tmp_path / "client", "exec", *gate, token=service.token)
        assert client.status == 5, client.errors
        assert json.loads(client.output)["error"]["code"] == "gate-not-met"
