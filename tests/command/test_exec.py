"""`exec` as a whole: its campaign in the records, failures that are counted, and what resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from merge_bench.analysis.aggregate import VerificationState, complete_launches, verification_state
from merge_bench.analysis.comparable_runs import select_run_pairs
from merge_bench.command.command_campaign import uses_overstating_perftest
from merge_bench.config.ucx_info import libucx_wheel_folder
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import CommandMetric, CommandPlan
from merge_bench.records.results_folder import ResultsFolder
from tests.helpers.command_line import exit_status
from tests.helpers.strict_records import validate
from tests.helpers.ucx_wheels import put_into_cache

SLEEP = ("--", "sleep", "0.01")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two configs, in which commands run."""
    (tmp_path / "a.cfg").write_text("UCX_TLS=self,sysv,posix\n")
    (tmp_path / "b.cfg").write_text("UCX_TLS=tcp,self\nUCX_RNDV_THRESH=64k\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UCX_TLS", raising=False)
    return tmp_path


def run(*words: str, status: int = 0) -> Campaign:
    """Run `exec` with these words; returns the campaign in its records."""
    assert exit_status("exec", *words) == status
    (entry, *_) = ResultsFolder("results").entries()
    campaign = read_campaign(entry.folder)
    for line in campaign.records.read_bytes().splitlines():
        validate(line)
    return campaign


def run_script(script: str, *options: str, launches: int = 1, status: int = 0) -> Campaign:
    """Run `exec` with a line of a shell as the command."""
    return run("--launches", str(launches), *options, "--", "sh", "-c", script, status=status)


def failure_code(campaign: Campaign) -> str:
    (failure,) = campaign.launches[0].failures
    return failure.code


def test_releases_of_ucx_are_runs_of_a_command(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    folders = {version: put_into_cache(place / "cache", version) for version in ("1.18.0", "1.22.0")}
    script = ("--", "sh", "-c", "echo path $LD_LIBRARY_PATH")
    campaign = run("--ucx", "1.18.0,1.22.0", "--launches", "2", "--config", "a.cfg", *script)
    assert campaign.run_labels == ["UCX 1.18.0", "UCX 1.22.0"]
    for each in campaign.runs:
        folder = folders[each.plan.ucx or ""]
        assert [launch.block_index for launch in each.launches] == [0, 1]
        for launch in each.launches:
            printed = (campaign.folder / f"logs/launch-{launch.index:03d}-command.out").read_text()
            assert printed == f"path {folder}/lib:/mine\n"
            assert launch.line is not None
            assert launch.line.workers[0].environment["LD_LIBRARY_PATH"] == f"{folder}/lib:/mine"
            assert launch.line.workers[0].environment["UCX_TLS"] == "self,sysv,posix"
    (pair,) = select_run_pairs([campaign], allow_incomparable=False).pairs
    assert (pair.baseline.label, pair.candidate.label) == ("UCX 1.18.0", "UCX 1.22.0")
    assert not pair.is_aa_comparison
    assert "config a; 2 launches of each" in capsys.readouterr().out
    assert exit_status("exec", "--ucx", "1.18.0,1.22.0", "--dry-run", "--", "mpirun", "{x}", "true") == 0
    printed = capsys.readouterr().out
    assert f"LD_LIBRARY_PATH={folders['1.22.0']}/lib:/mine mpirun -x " in printed
    assert "-x LD_LIBRARY_PATH" in printed


def test_the_ucx_of_the_package_comes_first_if_it_is_asked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = libucx_wheel_folder()
    if folder is None:
        pytest.skip("needs the libucx wheel")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    for options, path in (((), "/mine"), (("--ucx", "wheel"), f"{folder}/lib:/mine")):
        campaign = run_script("echo $LD_LIBRARY_PATH", "--fresh", *options)
        assert (campaign.folder / "logs/launch-000-command.out").read_text() == f"{path}\n"


@pytest.mark.parametrize(
    ("words", "ucx", "overstated"),
    [
        (("ucx_perftest", "-t", "tag_bw"), "1.13.1", True),
        (("mpirun", "-n", "2", "/opt/ucx/bin/ucx_perftest"), "1.18.0", True),
        (("ucx_perftest", "-t", "tag_bw"), "1.19.0", False),
        (("ucx_perftest", "-t", "tag_bw"), None, False),
        (("osu_bw",), "1.13.1", False),
    ],
)
def test_a_bandwidth_of_an_old_perftest_gets_a_warning(
    words: tuple[str, ...], ucx: str | None, *, overstated: bool
) -> None:
    metrics = [CommandMetric(name="bandwidth", unit="MB/s", better="more"), CommandMetric(name="wall", unit="s")]
    plan = CommandPlan(argv=list(words), metrics=metrics)
    assert uses_overstating_perftest(plan, ucx) is overstated
    assert not uses_overstating_perftest(CommandPlan(argv=list(words), metrics=metrics[1:]), ucx)


def test_a_campaign_of_two_configs(place: Path) -> None:
    campaign = run("--configs", "a.cfg,b.cfg", "--launches", "3", *SLEEP)
    command = campaign.command
    assert command is not None
    assert (command.argv, command.shell_line, command.expect_status) == (["sleep", "0.01"], "sleep 0.01", 0)
    assert command.metrics == [CommandMetric(name="wall", unit="s", better="less")]
    assert ResultsFolder("results").entries()[0].kind == "command"
    assert campaign.end is not None
    assert [(each.config.name, len(each.launches), each.planned_launches) for each in campaign.runs] == [
        ("a", 3, 3),
        ("b", 3, 3),
    ]
    blocks = [launch.run_key[0] for launch in campaign.launches if launch.run_key]
    assert all(sorted(blocks[at : at + 2]) == ["a", "b"] for at in (0, 2, 4))
    for launch in campaign.launches:
        line, (iteration,) = launch.line, launch.iterations
        assert line is not None
        assert 0.01 <= iteration.wall_seconds < 1.0
        assert (iteration.values, iteration.index, iteration.warmup) == ({}, 0, False)
        assert [check.how for check in launch.verifications] == ["exit status 0"]
        (worker,) = line.workers
        assert worker.environment["UCX_TLS"] == ("tcp,self" if line.config == "b" else "self,sysv,posix")
        assert worker.hardware.memory_bytes
        assert line.other_load is not None
    for measured in campaign.runs:
        assert verification_state(measured, complete_launches(measured)) is VerificationState.VERIFIED


def test_the_environment_and_placeholders_reach_the_command(place: Path) -> None:
    line = "echo $UCX_TLS {config} {launch} {x} >> out.txt; test -d {workdir}; echo {workdir} >> out.txt"
    run_script(line, "--config", "b.cfg", launches=2)
    first, folder, second, _ = Path("out.txt").read_text().splitlines()
    assert first == "tcp,self b 0 -x UCX_TLS -x UCX_RNDV_THRESH"
    assert second.startswith("tcp,self b 1 ")
    assert not Path(folder).exists()


def test_metrics_of_what_is_printed(place: Path) -> None:
    campaign = run_script(
        "echo speed 5 GB/s; echo speed 7 GB/s; echo '{\"lag\": 3.5}' >&2",
        *("--metric", r"speed=re:speed (\d+)", "--metric", "json:lag"),
        *("--unit", "speed=GB/s", "--unit", "lag=us", "--pick", "speed=max"),
    )
    assert campaign.command is not None
    assert [each.name for each in campaign.command.metrics] == ["speed", "lag", "wall"]
    assert campaign.command.main_metric.name == "speed"
    assert campaign.launches[0].iterations[0].values == {"speed": 7.0, "lag": 3.5}


def test_a_metric_file_has_to_be_of_this_launch(place: Path) -> None:
    options = ("--metric", "speed=json:speed", "--better", "more", "--metric-file", "out.json")
    campaign = run_script("echo '{\"speed\": 4}' > out.json", *options)
    assert campaign.launches[0].iterations[0].values == {"speed": 4.0}
    old = time.time() - 60
    os.utime("out.json", (old, old))
    assert failure_code(run_script("true", *options, status=3)) == "metric-missing"
    options = (*options[:-1], "{workdir}/out.json")
    campaign = run_script("echo '{\"speed\": 6}' > {workdir}/out.json", *options)
    assert campaign.launches[0].iterations[0].values == {"speed": 6.0}


@pytest.mark.parametrize(
    ("script", "options", "code", "iterations"),
    [
        ("echo said; exit 3", (), "command-failed", 1),
        ("kill -9 $$", (), "command-failed", 1),
        ("sleep 30", ("--timeout", "200ms"), "command-timeout", 0),
        ("echo FAILED", ("--check", "re:PASSED"), "check-failed", 1),
        ("echo FAILED", ("--check", "command: grep PASSED"), "check-failed", 1),
        ("echo fast", ("--metric", r"speed=re:speed (\d+)", "--better", "more"), "metric-missing", 1),
    ],
)
def test_a_launch_that_fails(place: Path, script: str, options: tuple[str, ...], code: str, iterations: int) -> None:
    campaign = run_script(script, *options, launches=2, status=3)
    assert len(campaign.launches) == 2
    for launch in campaign.launches:
        (failure,) = launch.failures
        assert failure.code == code
        assert failure.message.endswith("limit of 0.2 seconds") is (code == "command-timeout")
        assert launch.failed
        assert len(launch.iterations) == iterations
        assert launch.verifications == ()
        assert launch.end is not None
    assert campaign.end is not None
    assert campaign.end.status == 3


def test_a_failure_has_the_end_of_the_output(place: Path) -> None:
    (failure,) = run_script("echo to out; echo out of luck >&2; exit 1", status=3).launches[0].failures
    assert failure.log_tail == "out of luck"


def test_expected_status_and_checks_that_pass(place: Path) -> None:
    checks = ("--check", r"re:^PASSED$", "--check", "command: grep -c PASSED")
    campaign = run_script("echo PASSED; exit 3", "--expect-status", "3", *checks)
    (verification,) = campaign.launches[0].verifications
    assert verification.how == "exit status 3; re:^PASSED$; command: grep -c PASSED"
    logs = campaign.folder / "logs"
    assert (logs / "launch-000-command.out").read_text() == "PASSED\n"
    assert (logs / "launch-000-check-1.out").read_text() == "1\n"


def test_output_that_was_cut_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merge_bench.command.run_command.HEAD_BYTES", 100)
    monkeypatch.setattr("merge_bench.command.run_command.TAIL_BYTES", 1000)
    campaign = run_script("yes | head -c 5000; echo speed 3", "--metric", r"speed=re:speed (\d)", "--better=more")
    (warning,) = campaign.launches[0].warnings
    assert warning.code == "output-cut"
    assert campaign.launches[0].iterations[0].values == {"speed": 3.0}


def test_lanes_of_a_command_without_ucx(place: Path) -> None:
    campaign = run_script("mkdir {workdir}/new; echo $UCX_LOG_LEVEL >> levels", "--lanes", launches=2)
    assert [launch.complete for launch in campaign.launches] == [True, True]  # each run has a folder of its own
    assert [[warning.code for warning in launch.warnings] for launch in campaign.launches] == [["no-lanes"], []]
    assert Path("levels").read_text() == "info\n\n\n"
    required = run_script("true", "--require-transport", "tcp", launches=2, status=5)
    assert failure_code(required) == "gate-not-met"
    assert exit_status("exec", "--require-transport", "tcpip", "--", "true") == 2


LOGGED = Path(__file__).parents[1] / "data" / "ucx-logs" / "1.21.0-tcp.log"
"""What UCX logged in a process with lanes over tcp."""
LOGS = f'[ -z "$UCX_LOG_FILE" ] || for rank in 0 1; do cp {LOGGED} "${{UCX_LOG_FILE%/*}}/vm-$rank.log"; done'
"""A script that leaves logs like a program of two processes that use UCX."""


def test_the_number_of_processes_with_lanes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = run_script(LOGS, "--lanes", "--details")
    assert "selected: tcp/lo (same host, in the UCX logs of 2 processes)" in " ".join(capsys.readouterr().out.split())
    assert exit_status("show", str(campaign.folder), "--json") == 0
    (lanes,) = json.loads(capsys.readouterr().out)["lanes"]
    assert (lanes["from"], lanes["to"], lanes["processes"]) == (0, 0, 2)
    assert exit_status("report", str(campaign.folder), "--output", "report.md") == 0
    report = Path("report.md").read_text()
    assert "in the UCX logs of 2 processes" in report
    assert "pairs" not in report


@pytest.mark.slow
def test_a_config_can_require_transports(place: Path) -> None:
    Path("tcp.cfg").write_text("UCX_TLS=tcp,self\nMERGE_BENCH_REQUIRE_TRANSPORT=tcp\n")
    Path("cma.cfg").write_text("MERGE_BENCH_REQUIRE_TRANSPORT=cma\n")
    campaign = run_script(LOGS, "--configs", "b.cfg,tcp.cfg", launches=2)
    assert [each.plan.require_transport for each in campaign.runs] == [None, ["tcp"]]
    assert [launch.lanes is not None for each in campaign.runs for launch in each.launches] == [True, False] * 2
    assert select_run_pairs([campaign], allow_incomparable=False).pairs
    unmet = run_script(LOGS, "--config", "cma.cfg", launches=2, status=5)
    assert failure_code(unmet) == "gate-not-met"
    assert run_script(LOGS, "--config", "cma.cfg", "--require-transport", "tcp").launches[0].complete
    Path("cma.cfg").write_text("MERGE_BENCH_REQUIRE_TRANSPORT=cmaa\n")
    assert exit_status("exec", "--config", "cma.cfg", "--", "true") == 2


def test_warnings_about_settings_speak_of_processes(place: Path) -> None:
    Path("odd.cfg").write_text("UCX_TLS=tcp,self\nUCX_RNDV_SCHEME=am\nUCX_NET_DEVICES=nowhere0\n")
    warnings = run_script("true", "--config", "odd.cfg").warnings
    assert {"no-shared-memory", "am-scheme-with-protocol-v2"} <= {warning.code for warning in warnings}
    for warning in warnings:
        assert not {"worker", "workers", "merge"} & set(f"{warning.message} {warning.remedy}".split()), warning


def test_the_help_is_about_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("exec", "--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "all results of this command in --results" in printed
    for words in ("this merge", "a merge", "workers"):
        assert words not in printed
    assert exit_status("run", "--help") == 0
    assert "all results of this merge in --results" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "words",
    [
        ("--", "no-such-program"),
        ("--", "echo hello"),
        ("--metric", "speed=re:(", "--", "true"),
        ("--check", "PASSED", "--", "true"),
        ("--metric-file", "out.json", "--", "true"),
        ("--configs", "a.cfg,a.cfg", "--", "true"),
        ("--config", "missing.cfg", "--", "true"),
        ("--preset", "hpl", "--", "true"),
        (),
    ],
)
def test_wrong_usage_starts_nothing(place: Path, words: tuple[str, ...]) -> None:
    assert exit_status("exec", *words) == 2
    assert not Path("results").exists()


def test_a_config_that_brings_code_is_refused(place: Path) -> None:
    Path("code.cfg").write_text("LD_PRELOAD=/tmp/evil.so\n")
    assert exit_status("exec", "--config", "code.cfg", "--", "true") == 2


SAME_LAUNCHES = "a.cfg and b.cfg make the same launches: they differ only in "


@pytest.mark.parametrize(
    ("texts", "words", "names"),
    [
        (("OWN=1\n", "OWN=2\n"), (), "OWN, which has no effect here; if your program reads it, add --trust-config"),
        (("UCX_TLS=tcp\nOWN=1\n", "UCX_TLS=tcp\n"), (), "OWN"),
        (("MERGE_BENCH_CHUNK=1e5\n", "CHUNK_SIZE=2e5\n"), (), "MERGE_BENCH_CHUNK, CHUNK_SIZE, which has no effect"),
        (("OWN=1\n", "OWN=2\n"), ("--trust-config",), None),
        (("NIC=eth0\nUCX_TLS=$NIC\n", "NIC=eth1\nUCX_TLS=$NIC\n"), ("--allow-unknown",), None),
        (("OWN=1\n", "OWN=1 # a copy\n"), (), None),
        (("MERGE_BENCH_REQUIRE_TRANSPORT=tcp\n", "UCX_TLS=tcp\n"), (), None),
        (("OWN=1\n", "OWN=2\n"), ("--check", "command:test {config} = a"), None),
    ],
)
def test_configs_that_give_a_command_the_same_environment_are_refused_before_the_first_launch(
    place: Path, capsys: pytest.CaptureFixture[str], texts: tuple[str, str], words: tuple[str, ...], names: str | None
) -> None:
    """They were measured 12 times, and the verdict was INCONCLUSIVE."""
    for name, text in zip(("a.cfg", "b.cfg"), texts, strict=True):
        Path(name).write_text(text)
    status = exit_status("exec", "--configs", "a.cfg,b.cfg", *words, "--dry-run", "--", "true")
    error = capsys.readouterr().err
    assert status == (0 if names is None else 2)
    assert (SAME_LAUNCHES + str(names) in error) is (names is not None)


def test_the_warning_about_a_variable_that_no_process_gets_names_the_option_that_passes_it(place: Path) -> None:
    Path("own.cfg").write_text("OWN=1\n")
    (warning,) = run_script("true", "--config", "own.cfg").warnings
    assert warning.code == "config-no-effect"
    assert "--trust-config" in str(warning.remedy)


def test_options_of_the_command_are_its_own(place: Path) -> None:
    campaign = run("--launches", "1", "echo", "--launches", "7", "--json")
    assert (campaign.folder / "logs/launch-000-command.out").read_text() == "--launches 7 --json\n"


def test_dry_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("exec", "--configs", "a.cfg,b.cfg", "--launches=2", "--dry-run", "--", "mpirun", "{x}", "p") == 0
    out = capsys.readouterr().out
    assert "UCX_TLS=tcp,self UCX_RNDV_THRESH=64k mpirun -x UCX_TLS -x UCX_RNDV_THRESH p" in out
    marks = [line.partition(" ")[0] for line in out.splitlines() if line.startswith("#")]
    assert marks == sorted(marks, reverse=True)  # launches, time and order stand above the commands
    assert not Path("results").exists()


def test_settings_that_stay_here_are_warned_about(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = "true # mpirun -n 2 prog"
    campaign = run_script(script, "--config", "a.cfg")
    assert [warning.code for warning in campaign.warnings] == ["settings-stay-here"]
    assert "settings-stay-here" in capsys.readouterr().err


def test_json_names_records_and_metrics(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = run_script("true", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["records"] == str(campaign.records)
    assert document["error"] is None
    assert document["plan"]["command"]["metrics"][0]["name"] == "wall"


def test_extend_adds_launches(place: Path) -> None:
    campaign = run("--launches", "1", *SLEEP)
    extended = run("--launches", "3", "--extend", str(campaign.folder), *SLEEP)
    assert extended.folder == campaign.folder
    assert [launch.block_index for launch in extended.launches] == [0, 1, 2]


@pytest.mark.slow
def test_gates(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metric = ("--metric", r"speed=re:speed (\d+)", "--unit", "GB/s", "--fail-on", "slower", "--launches", "6")
    script = "case {config} in a) echo speed $((1000 + {launch}));; *) echo speed $((500 + {launch}));; esac"
    slower = run("--configs", "a.cfg,b.cfg", *metric, "--", "sh", "-c", script, status=5)
    assert "b is SLOWER in speed" in capsys.readouterr().err
    faster = run("--configs", "b.cfg,a.cfg", *metric, "--", "sh", "-c", script)
    against = ("--against", str(slower.folder), "--config", "b.cfg")
    run(*against, *metric, "--", "sh", "-c", script)
    assert "b against A: b" in capsys.readouterr().out
    assert faster.end is not None


@pytest.mark.slow
def test_an_interrupted_campaign_is_resumed(place: Path) -> None:
    words = [sys.executable, "-m", "merge_bench", "exec", "--configs", "a.cfg,b.cfg", "--launches", "4"]
    words += ["--", "sh", "-c", "touch started-{launch}; sleep 0.2"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not Path("started-2").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    assert first.wait(30) == 3
    (entry,) = ResultsFolder("results").entries()
    interrupted = read_campaign(entry.folder)
    assert len(interrupted.launches) == 3
    assert interrupted.launches[-1].interrupted
    again = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "resuming" in again.stderr
    (entry,) = ResultsFolder("results").entries()
    campaign = read_campaign(entry.folder)
    assert [len(each.launches) for each in campaign.runs] == [4, 4]
    assert all(launch.complete for launch in campaign.launches_not_replaced)
    assert campaign.launches[:2] == interrupted.launches[:2]


@pytest.mark.slow
def test_a_killed_campaign_is_resumed_and_leaves_nothing(place: Path) -> None:
    script = f"touch started-{{launch}}; (setsid sleep 301.{os.getpid()} &); sleep 0.3"
    words = [sys.executable, "-m", "merge_bench", "exec", "--launches", "3", "--", "sh", "-c", script]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not Path("started-1").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.kill()
    first.wait()
    while subprocess.run(["pgrep", "-f", f"sleep 301.{os.getpid()}"], capture_output=True).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    subprocess.run(words, capture_output=True, timeout=120, check=True)
    (entry,) = ResultsFolder("results").entries()
    campaign = read_campaign(entry.folder)
    assert [_outcome(launch) for launch in campaign.launches] == ["complete", "interrupted", "complete", "complete"]
    assert len(campaign.runs[0].launches) == 3


def _outcome(launch: Launch) -> str:
    return "complete" if launch.complete else "interrupted" if launch.interrupted else "failed"


@pytest.mark.cluster
def test_mpirun_gives_its_ranks_the_settings(place: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    bench = [sys.executable, "-m", "mpi4py.bench", "pingpong", "-n", "1024", "-l", "50"]
    words = ["mpirun", *root, "--oversubscribe", "-n", "2", "{x}", *bench]
    campaign = run("--configs", "a.cfg,b.cfg", "--launches", "2", "--preset", "mpi4py.bench", "--", *words)
    assert "settings-stay-here" not in [each.code for each in campaign.warnings]
    for launch in campaign.launches:
        assert launch.complete
        assert launch.iterations[0].values["bandwidth"] > 0.0
    shown = ["mpirun", *root, "-n", "1", "{x}", "sh", "-c", "echo $UCX_RNDV_THRESH"]
    campaign = run("--config", "b.cfg", "--launches", "1", "--check", "re:^64k$", "--", *shown)
    assert campaign.launches[0].complete


@pytest.mark.cluster
def test_ucx_perftest_on_this_host(place: Path) -> None:
    if shutil.which("ucx_perftest") is None:
        pytest.skip("there is no ucx_perftest")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = f"ucx_perftest -p {port} localhost -t tag_bw -s 65536 -n 500"
    line = f"ucx_perftest -p {port} >/dev/null & until {client}; do sleep 0.1; done"
    campaign = run("--config", "a.cfg", "--launches", "2", "--preset", "ucx_perftest", "--", "sh", "-c", line)
    for launch in campaign.launches:
        assert launch.complete, launch.failures
        assert launch.lanes is None
        assert set(launch.iterations[0].values) == {"bandwidth", "latency", "messages"}
    options = ("--config", "b.cfg", "--launches", "2", "--preset", "ucx_perftest")
    first, second = run(*options, "--lanes", "--", "sh", "-c", line).launches
    assert first.lanes is not None
    assert second.lanes is None
    assert first.lanes.requested == {"UCX_TLS": "tcp,self"}
    assert {lane.partition("/")[0] for pair in first.lanes.pairs for lane in pair.transports} == {"tcp"}
    assert [pair.processes for pair in first.lanes.pairs] == [2]
    assert run(*options, "--require-transport", "tcp", "--", "sh", "-c", line).launches[0].complete
    unmet = run(*options, "--require-transport", "cma", "--", "sh", "-c", line, status=5)
    assert [failure.code for failure in unmet.launches[0].failures] == ["gate-not-met"]
    assert len(unmet.launches) == 1
