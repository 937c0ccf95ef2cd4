"""The command that a conclusion proposes next."""

from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest

from merge_bench.analysis.documents import Failure, RunDocument
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.config.options import OPTIONS
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.next_step import next_step_after_run
from merge_bench.report.run import COLUMNS, print_campaign_report
from merge_bench.view.suggested_command import WHEN_QUIET, ProgramInvocation, typed_program_text
from tests.helpers.synthetic_campaigns import (
    Script,
    interleaved,
    plan,
    write_campaign,
    write_head,
)
from tests.view.report.test_conclusion import SLOW_EXCHANGE, conclusion, is_copied, next_of, with_command
from tests.view.report.test_text import Terminal


def test_a_path_and_a_command_can_be_copied_from_a_narrow_terminal(tmp_path: Path) -> None:
    folder = with_command(write_campaign(tmp_path / "a folder with spaces"), "--left", "one table.parquet " * 6)
    file = Terminal()
    print_campaign_report(read_campaign(folder), details=False, file=file, width=80)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert f"Records: {folder / 'records.jsonl'}" in lines
    assert f"Next: {next_of(folder)}" in lines
    assert max(len(line) for line in lines if is_copied(line)) > 80


@pytest.mark.parametrize(
    ("script", "command"),
    [
        (Script(plan=plan(verify="off")), "--chunk 2e6 --hosts h.txt --verify ends"),
        (Script(plan=plan(exchange="dask")), "report FOLDER"),
        (Script(plan=plan(1)), "--chunk 2e6 --hosts h.txt --verify off --engine native"),
        (
            Script(
                worker=lambda worker: msgspec.structs.replace(
                    worker, phases_seconds=s.PhaseSeconds(partition=0.02, exchange=0.06, join=0.03)
                )
            ),
            "transports --available --hosts h.txt",
        ),
        (Script(one_row_merge_seconds=(0.1, 0.1)), "--hosts h.txt --verify off --chunk 10000000"),
        (
            Script(
                worker=lambda worker: msgspec.structs.replace(
                    worker, phases_cpu_seconds=s.PhaseSeconds(partition=0.01, exchange=0.01, join=0.02)
                )
            ),
            "doctor",
        ),
    ],
    ids=["unverified", "dask", "one worker", "link", "fixed costs", "host"],
)
def test_the_next_command_follows_from_what_was_found(tmp_path: Path, script: Script, command: str) -> None:
    folder = with_command(write_campaign(tmp_path, script), "--chunk=2e6", "--hosts", "h.txt", "--verify", "off")
    assert next_of(folder) == f"python -m merge_bench {command.replace('FOLDER', str(folder))}"


def test_nobody_is_told_to_tune_a_cluster_that_runs_already(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, SLOW_EXCHANGE)
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"launcher":"local"', b'"launcher":"existing"'))
    assert next_of(with_command(folder, "--scheduler-file", "s.json")) == f"python -m merge_bench report {folder}"


def failed_sweep(results: Path, code: str) -> Path:
    """Two configs, two blocks; the second config's first launch ended everything."""
    with CampaignWriter.create(results, "sweep") as writer:
        keys = [("one", 0), ("two", 0), ("one", 0), ("two", 0)]
        write_head(writer, keys, [plan(4)])
        writer.write(s.FailureLine(launch=1, config="two", plan=0, code=code, message="something was wrong"))
        writer.write(s.LaunchEndLine(launch=1, status=5, seconds=3.0))
    return with_command(writer.folder, "--configs", "one,two", "--workers", "2,4", "--blocks", "2")


def test_the_worst_failure_of_a_sweep_decides_what_comes_next(tmp_path: Path) -> None:
    wrong = next_of(failed_sweep(tmp_path / "wrong", "wrong-result"))
    assert wrong == "python -m merge_bench --configs one,two --workers 2,4 --launches 2 --verify full"


def test_the_transports_of_the_run_that_missed_its_gate_are_shown(tmp_path: Path) -> None:
    gate = next_of(failed_sweep(tmp_path / "gate", "gate-not-met"))
    assert re.fullmatch(r"python -m merge_bench transports --available --config \S*two(\.cfg)? --workers 4", gate)


def test_an_error_that_names_its_remedy_has_no_next_step(tmp_path: Path) -> None:
    assert "Next:" in conclusion(failed_sweep(tmp_path / "failed", "run-failed"))
    assert "Next:" not in conclusion(failed_sweep(tmp_path / "usage", "usage"))


def test_launches_are_named_once_however_they_were_asked_for(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *interleaved({"one": [0.200, 0.202, 0.201], "two": [0.190, 0.194, 0.189]}))
    command = next_of(with_command(folder, "--configs", "one,two", "--blocks", "3"))
    assert command.count("--launches") == 1
    assert "--blocks" not in command


def test_a_merge_that_waits_for_its_exchange_is_tuned(tmp_path: Path) -> None:
    folder = with_command(write_campaign(tmp_path, SLOW_EXCHANGE), "--chunk", "1e6")
    assert next_of(folder) == "python -m merge_bench tune --budget 10m --chunk 1e6"


@pytest.mark.parametrize("limit", ["exchange", "slow-link", "straggler"])
@pytest.mark.parametrize("code", ["few-row-groups", "empty-table"])
def test_neither_settings_nor_hosts_are_looked_at_where_a_worker_has_no_rows_and_the_others_wait_for_it(
    tmp_path: Path, limit: str, code: str
) -> None:
    folder = with_command(write_campaign(tmp_path, SLOW_EXCHANGE), "--left", "a.parquet")
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(s.WarningLine(code=code, message="…", remedy="…")) + b"\n")
    if limit != "exchange":
        campaign = read_campaign(folder)
        document = summarize_campaign(campaign)
        assert isinstance(document, RunDocument)
        assert document.bottleneck is not None
        changed = msgspec.structs.replace(document.bottleneck, what=limit, besides=None)
        step = next_step_after_run(campaign, msgspec.structs.replace(document, bottleneck=changed))
        assert step is not None
        assert step.words[0] == "report"
        return
    assert next_of(folder) == f"python -m merge_bench report {folder}"


@pytest.mark.parametrize("limit", ["partition", "join"])
@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"engine": "pandas"}, "--left a.parquet --right b.parquet --engine native"),
        ({"engine": "native"}, "report FOLDER"),
        ({"engine": "cudf"}, "report FOLDER"),
    ],
    ids=["another engine", "fastest engine", "GPUs"],
)
def test_settings_of_the_network_are_not_tuned_for_a_merge_that_computes(
    tmp_path: Path, limit: str, changes: dict[str, str], command: str
) -> None:
    seconds = {"partition": 0.03, "exchange": 0.03, "join": 0.03} | {limit: 0.05}

    def phases(worker: s.WorkerIteration) -> s.WorkerIteration:
        return msgspec.structs.replace(worker, phases_seconds=s.PhaseSeconds(**seconds))

    folder = write_campaign(tmp_path, Script(plan=plan(**changes), worker=phases))
    with_command(folder, "--left", "a.parquet", "--right", "b.parquet", "--engine", changes["engine"])
    assert next_of(folder) == f"python -m merge_bench {command.replace('FOLDER', str(folder))}"
    helps = "      (draws everything on one page; docs/slow-merge.md says what helps)"
    assert (helps in conclusion(folder).splitlines()) == command.startswith("report")
    assert len(helps) <= COLUMNS


@pytest.mark.parametrize(
    ("how", "command"),
    [("inner", "predict FOLDER --workers 16 --hosts 4"), ("left", "report FOLDER")],  # of which there is no forecast
)
def test_a_merge_across_hosts_that_computes_is_forecast_on_more_of_them(tmp_path: Path, how: str, command: str) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(8, engine="native", how=how)))  # four workers on each host
    assert next_of(folder) == f"python -m merge_bench {command.replace('FOLDER', str(folder))}"


def on_busy_host(folder: Path) -> Path:
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(s.WarningLine(code="busy-host", message="…", remedy="wait")) + b"\n")
    return folder


@pytest.mark.parametrize(
    ("script", "words", "command", "quietly"),
    [
        (Script(), [], "--chunk 1e6 --engine native", True),
        (Script(), ["--wait-for-quiet", "1m"], "--chunk 1e6 --wait-for-quiet 1m --engine native", False),
        (SLOW_EXCHANGE, [], "tune --budget 10m --chunk 1e6", True),
        (Script(plan=plan(engine="native")), [], "report FOLDER", False),
    ],
    ids=["engine", "waited", "tune", "report"],
)
def test_a_busy_host_adds_a_line_to_a_command_that_measures_and_changes_none(
    tmp_path: Path, script: Script, words: list[str], command: str, quietly: bool
) -> None:
    folder = with_command(write_campaign(tmp_path, script), "--chunk", "1e6", *words)
    assert next_of(on_busy_host(folder)) == f"python -m merge_bench {command.replace('FOLDER', str(folder))}"
    assert (f"      ({WHEN_QUIET})" in conclusion(folder).splitlines()) == quietly


def next_after_gate(folder: Path, code: str) -> str:
    campaign, file, message = read_campaign(folder), io.StringIO(), "why it did not pass"
    document = msgspec.structs.replace(summarize_campaign(campaign), error=Failure(code, message))
    print_campaign_report(campaign, document, details=False, file=file, text_below=message)
    assert message not in file.getvalue()  # as it is printed below
    return next(line for line in file.getvalue().splitlines() if line.startswith("Next: "))


@pytest.mark.parametrize(
    ("words", "code", "command"),
    [
        (["--against", "A"], "gate-not-met", "report FOLDER"),
        (["--against", "history", "--results", "R"], "gate-not-met", "history --config optimized --results R"),
        (
            ["--against", "history"],
            "nothing-compared",
            "--against history --fail-on slower --allow-no-baseline",
        ),
    ],
)
def test_a_gate_that_failed_on_a_busy_host_has_the_next_step_of_its_own_matter(
    tmp_path: Path, words: list[str], code: str, command: str
) -> None:
    folder = on_busy_host(with_command(write_campaign(tmp_path), *words, "--fail-on", "slower"))
    found = next_after_gate(folder, code)
    assert found == f"Next: python -m merge_bench {command}".replace("FOLDER", str(folder))


def test_a_gate_between_configs_on_a_busy_host_is_reported(tmp_path: Path) -> None:
    walls = {"base": [0.20, 0.21, 0.20, 0.22, 0.21, 0.20], "slow": [0.40, 0.41, 0.40, 0.42, 0.41, 0.40]}
    words = ["--configs", "base,slow", "--fail-on", "slower"]
    folder = on_busy_host(with_command(write_campaign(tmp_path, *interleaved(walls)), *words))
    assert next_of(folder) == f"python -m merge_bench report {folder}"


def test_of_several_comparisons_one_that_noise_hides_does_not_keep_the_others_from_more_blocks(tmp_path: Path) -> None:
    walls = {"one": [0.200, 0.202, 0.201], "two": [0.190, 0.194, 0.189], "three": [0.2, 0.6, 0.12]}
    folder = with_command(write_campaign(tmp_path, *interleaved(walls)), "--configs", "one,two,three", "--blocks", "3")
    assert f"--extend {folder}" in next_of(on_busy_host(folder))


def test_nobody_waits_for_the_quiet_of_other_hosts(tmp_path: Path) -> None:
    folder = with_command(write_campaign(tmp_path), "--chunk", "1e6", "--hosts", "h.txt")
    path = folder / "records.jsonl"
    warning = s.WarningLine(launch=0, code="busy-host", message="a: …", remedy="wait")
    path.write_bytes(
        path.read_bytes().replace(b'"launcher":"local"', b'"launcher":"ssh"') + msgspec.json.encode(warning) + b"\n"
    )
    assert next_of(folder) == "python -m merge_bench --chunk 1e6 --hosts h.txt --engine native"


@pytest.mark.parametrize("words", [["--config", "mine.cfg"], ["--configs", "mine.cfg"], ["mine.cfg"]])
def test_a_tuning_begins_with_the_config_and_the_rows_of_the_run(tmp_path: Path, words: list[str]) -> None:
    command = next_of(with_command(write_campaign(tmp_path, SLOW_EXCHANGE), *words)).split()
    assert {"tune", "mine.cfg"} <= set(command)
    assert command[-2:] == ["--chunk", "1000000"]


def test_another_python_than_the_one_on_the_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python").touch(0o755)
    monkeypatch.setenv("PATH", str(other))
    own = tmp_path / "environment" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch(0o755)
    started = ProgramInvocation(Path("merge_bench/__main__.py"), str(own), own)
    monkeypatch.chdir(other)
    assert typed_program_text(started) == f"{own} -m merge_bench"
    monkeypatch.chdir(own.parents[2])
    assert typed_program_text(started) == "environment/bin/python -m merge_bench"


@pytest.mark.parametrize(
    ("typed", "on_path", "program"),
    [
        ("bin/merge-bench", ("merge-bench",), "merge-bench"),
        ("bin/merge-bench", (), "bin/merge-bench"),
        ("python", ("python",), "python -m merge_bench"),
        ("python3", ("python3",), "python3 -m merge_bench"),
        ("/a/python", ("python",), "/a/python -m merge_bench"),
    ],
    ids=["script on the path", "script by its path", "python", "another name", "another python"],
)
def test_the_next_command_begins_as_this_one_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, on_path: tuple[str, ...], program: str
) -> None:
    script = tmp_path / "bin" / "merge-bench"
    script.parent.mkdir()
    path = tmp_path / "path"
    path.mkdir()
    for name in ("merge-bench", "python", "python3"):
        (script.parent / name).touch(0o755)
    for name in on_path:
        (path / name).symlink_to(script.parent / name)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.chdir(tmp_path)
    started = script if typed.endswith("bench") else Path("/b/merge_bench/__main__.py")
    assert typed_program_text(ProgramInvocation(started, typed, Path("/a/python"))) == program


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("gate-not-met", "transports --available --workers 2"),
        ("wrong-result", "--workers 2 --require-transport rc --verify full"),
        ("not-recorded", "--workers 2 --require-transport rc"),
        ("run-failed", "doctor"),
    ],
)
def test_what_failed_decides_what_comes_next(tmp_path: Path, code: str, command: str) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        writer.write(s.FailureLine(launch=0, config="optimized", plan=0, code=code, message="something was wrong"))
        writer.write(s.LaunchEndLine(launch=0, status=5, seconds=3.0))
    folder = with_command(writer.folder, "--workers", "2", "--require-transport", "rc")
    assert next_of(folder) == f"python -m merge_bench {command}"


def test_recorded_options_count_and_not_the_command_line(tmp_path: Path) -> None:
    folder = with_command(write_campaign(tmp_path, Script(plan=plan(verify="off"))), "--chunk", "3e6")
    path = folder / "records.jsonl"
    head, *rest = path.read_bytes().splitlines(keepends=True)
    options = {"config": "mine.cfg", "chunk": "2e6", "on": ["a,b", "c"], "insecure": True, "json": True}
    line = msgspec.json.encode(msgspec.json.decode(head) | {"options": options})
    path.write_bytes(line + b"\n" + b"".join(rest))
    command = "--config mine.cfg --chunk 2e6 --on a,b --on c --insecure --verify ends"
    assert next_of(folder) == f"python -m merge_bench {command}"


def test_every_option_of_a_command_line_is_kept_with_its_value(tmp_path: Path) -> None:
    script = Script(plan=plan(verify="off"))
    words = [
        word
        for option in OPTIONS
        for word in ([f"--{option.command_line_name}"] if option.flag else [f"--{option.command_line_name}", "x"])
    ]
    kept = next_of(with_command(write_campaign(tmp_path, script), *words)).split()[3:]
    dropped = {"--json", "--dry-run", "--details", "--extend", "--write-result"}
    assert [word for word in kept if word.startswith("--")] == [
        *(
            f"--{option.command_line_name}"
            for option in OPTIONS
            if option.key != "verify" and f"--{option.command_line_name}" not in dropped
        ),
        "--verify",
    ]


def of_a_job(folder: Path, *words: str, mark: str = "abc-7") -> Path:
    """The result as a service's job made it, in folders of the service."""
    with_command(folder, "--config=mine.cfg", *words, "--results=/var/lib/service/results")
    head, *rest = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    line = msgspec.json.decode(head) | {"surroundings": {"environment": {"MERGE_BENCH_JOB": mark}}}
    (folder / "records.jsonl").write_bytes(msgspec.json.encode(line) + b"\n" + b"".join(rest))
    return folder


@pytest.mark.parametrize(
    ("script", "command", "says"),
    [
        (Script(plan=plan(verify="off")), "--config mine.cfg --verify ends", "add --service with its address"),
        (Script(failure="rank 0 died"), "doctor", "type it on the service's machine"),
        (Script(plan=plan(exchange="dask")), "report FOLDER", ""),
    ],
)
def test_what_a_service_made_names_nothing_that_only_the_service_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script, command: str, says: str
) -> None:
    folder = of_a_job(write_campaign(tmp_path, script))
    found = conclusion(folder)
    assert next_of(folder) == f"python -m merge_bench {command}".replace("FOLDER", str(folder))
    assert says in found
    assert "/var/lib/service" not in found
    monkeypatch.setenv("MERGE_BENCH_JOB", "abc-7")  # in the job itself
    printed = io.StringIO()
    print_campaign_report(read_campaign(folder), details=False, file=printed)
    assert "Next: " not in printed.getvalue()
    assert "records.jsonl, on the service's machine\n" in printed.getvalue()


def test_the_history_of_a_service_is_read_in_its_own_folder(tmp_path: Path) -> None:
    words = ["--against=history", "--fail-on=slower"]
    step = next_after_gate(of_a_job(write_campaign(tmp_path / "R"), *words), "gate-not-met")
    assert step == "Next: python -m merge_bench history --config optimized"
    folder = with_command(write_campaign(tmp_path / "home"), *words, f"--results={tmp_path / 'home'}")
    path = folder / "records.jsonl"
    head, *rest = path.read_bytes().splitlines(keepends=True)  # as a client stores it, with its own command
    line = msgspec.json.decode(head) | {"surroundings": {"environment": {"MERGE_BENCH_JOB": "abc-7"}}}
    path.write_bytes(msgspec.json.encode(line) + b"\n" + b"".join(rest))
    assert next_after_gate(folder, "gate-not-met") == "Next: python -m merge_bench history --config optimized"


def test_what_a_person_s_dashboard_made_is_not_said_to_lie_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = of_a_job(write_campaign(tmp_path, Script(failure="rank 0 died")), mark="abc-7-own")
    assert "service" not in conclusion(folder)
    assert next_of(folder) == "python -m merge_bench doctor"
    monkeypatch.setenv("MERGE_BENCH_JOB", "abc-7-own")  # in the job itself; the page shows the next command
    printed = io.StringIO()
    print_campaign_report(read_campaign(folder), details=False, file=printed)
    assert "Next: " not in printed.getvalue()
    assert "records.jsonl\n" in printed.getvalue()
    assert "service's machine" not in printed.getvalue()
