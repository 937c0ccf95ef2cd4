"""`tune -- COMMAND`: the command line, what can be tried, and the search with launches that a test makes."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from merge_bench.campaign import ProgressDisplay
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import signals
from merge_bench.cluster.worker_programs import find_free_tcp_port
from merge_bench.command.metrics import CHECK_FAILED
from merge_bench.command.run_command import COMMAND_FAILED
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import CommandPlan
from merge_bench.records.results_folder import TUNE, ResultsFolder
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.tune import command_tuning, tune_campaign, view
from merge_bench.tune.result import tuning_result_of
from tests.helpers.command_campaigns import CommandLaunch, write_run
from tests.helpers.command_line import exit_status
from tests.helpers.strict_records import validate

ONLY = "mutex,keepalive,rendezvous-threshold=1m"
FASTER = "UCX_USE_MT_MUTEX"
"""The variable that makes the made-up command faster."""
WORDS = ("--only", ONLY, "--output", "tuned.cfg")
COMMAND = ("--", "sleep", "0.01")
RATE = ("--metric", r"rate=re:rate ([\d.]+)", "--unit", "MB/s")
Launch = Callable[[CommandPlan, PlannedLaunch, CampaignWriter, ProgressDisplay, int], int]


class FakeCommand:
    """Launches of a command that write what real ones write: 1 s, less by the share `gain` under `FASTER`.

    `failures`: by variable, the code of a failure in the launches with these numbers.
    """

    def __init__(self, gain: float = 0.2, failures: dict[str, tuple[str, Sequence[int]]] | None = None) -> None:
        self.gain, self.failures = gain, failures or {}
        self.random = random.Random(7)
        self.made: dict[str, int] = {}

    def launch(
        self, plan: CommandPlan, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, index: int
    ) -> int:
        variables = dict(job.prepared.settings.environment)
        wall = (1.0 - self.gain * (variables.get(FASTER) == "y")) * self.random.uniform(0.99, 1.01)
        failure = None
        for name, (code, numbers) in self.failures.items():
            if name in variables and self.made.get(name, 0) in numbers:
                failure = code
        self.made |= {name: self.made.get(name, 0) + 1 for name in variables}
        values = {metric.name: 100.0 / wall for metric in plan.metrics if metric.name != "wall"}
        write_run(writer, index, CommandLaunch(job.config, job.block, wall, values, failure), variables, "1.21.0")
        return 0 if failure is None else 3


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the command runs."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("UCX")]:
        monkeypatch.delenv(name)
    return tmp_path


def tune(monkeypatch: pytest.MonkeyPatch, *words: str, launch: Launch | None = None) -> int:
    monkeypatch.setattr(tune_campaign, "launch_command", launch or FakeCommand().launch)
    monkeypatch.setattr(view, "FILES", ())
    return exit_status("tune", *words)


def the_campaign() -> Campaign:
    (entry,) = ResultsFolder("results").entries()
    assert entry.kind == TUNE
    campaign = read_campaign(entry.folder)
    for line in campaign.records.read_bytes().splitlines():
        validate(line)
    return campaign


# -- the command line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sleep", "1"), "Got unexpected extra argument (1); to tune a command, write -- before it"),
        (("--",), "there is no COMMAND behind --"),
        (("--", "no-such-program"), "no-such-program: there is no such program"),
        (("--check", "re:ok"), "--check needs a COMMAND behind --"),
        (("--metric", "rate=re:x"), "--metric: 'rate=re:x' is not one of throughput, bandwidth"),
        (("--metric", "throughput", *COMMAND), "write NAME=re:REGEX, NAME=json:PATH or NAME=PRESET"),
        (("--chunk", "1e5", *COMMAND), "--chunk has no effect on a COMMAND; omit it"),
        (("--exchange", "ucx", *COMMAND), "--exchange has no effect on a COMMAND; omit it"),
        (("--service", "http://x", *COMMAND), "--service has no effect on a COMMAND; omit it"),
        (("--only", "message-size", *COMMAND), "message-size=1m: MERGE_BENCH_MESSAGE_SIZE is an option of merges"),
        (("--confirm", "5", *COMMAND), "--confirm"),
        (("nowhere.cfg", *COMMAND), "nowhere.cfg"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_starts(
    place: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], says: str
) -> None:
    assert exit_status("tune", *words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert says in line
    assert not (place / "results").exists()


def test_a_dry_run_lists_what_is_tried_and_what_is_left_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("tune", "--dry-run", *RATE, *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "\nmutex=y: UCX_USE_MT_MUTEX=y\n" in printed
    assert "# rmm-pool=20GB: MERGE_BENCH_RMM_POOL_SIZE is an option of merges\n" in printed
    assert "# endpoint-error-handling=none: MERGE_BENCH_ERROR_HANDLING is an option of merges\n" in printed
    assert "## measured: rate (MB/s), more is better, wall (s), less is better\n" in printed
    assert "## a launch is ended after 10 times the slowest launch of the baseline but at least 30 seconds" in printed
    assert "## how long a launch takes is not known before the first has ended\n" in printed
    assert not (place / "results").exists()


def test_a_space_of_ones_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "own.toml").write_text(
        '[[setting]]\nname = "own"\nvalues = [{ label = "1m", set = { UCX_RNDV_THRESH = "1m" } }]\n'
    )
    assert exit_status("tune", "--dry-run", "--space", "own.toml", *COMMAND) == 0
    assert capsys.readouterr().out.splitlines()[0] == "own=1m: UCX_RNDV_THRESH=1m"


def test_a_warning_where_nothing_gives_the_candidates_settings_to_other_hosts(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun = place / "mpirun"
    mpirun.write_text("#!/bin/sh\n")
    mpirun.chmod(mpirun.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    assert exit_status("tune", "--dry-run", "--only", "mutex", "--", "mpirun", "true") == 0
    assert "do not get UCX_USE_MT_MUTEX of the candidates" in capsys.readouterr().err
    assert exit_status("tune", "--dry-run", "--only", "mutex", "--", "mpirun", "{x}", "true") == 0
    assert capsys.readouterr().err == ""


# -- what can be tried


def test_the_conditions_that_hold_for_a_command() -> None:
    here = command_tuning.tuning_conditions_of_command(["./bench"], {})
    assert {"one-host", "tcp", "peer-error-handling"} <= here
    assert not {"several-hosts", "data-plane", "dask-over-ucx"} & here
    assert "tcp" not in command_tuning.tuning_conditions_of_command(["./bench"], {"UCX_TLS": "sysv,self"})


@pytest.mark.parametrize("line", ["srun -N 2 osu_bw", "mpirun -H a,b x", "mpirun --hostfile h x", "sh -c 'ssh b x'"])
def test_a_command_whose_words_name_hosts_runs_on_several(line: str) -> None:
    conditions = command_tuning.tuning_conditions_of_command(line.replace("'", "").split(), {})
    assert "several-hosts" in conditions
    assert "one-host" not in conditions


@pytest.mark.parametrize(
    ("variables", "unused"),
    [
        (["UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"], "tcp"),
        (["UCX_POSIX_SEG_SIZE", "UCX_SYSV_SEG_SIZE"], None),
        (["UCX_POSIX_SEG_SIZE"], "posix"),
        (["UCX_POSIX_ERROR_HANDLING"], None),
        (["UCX_RC_TM_ENABLE", "UCX_DC_TM_ENABLE"], "rc"),
        (["UCX_RNDV_THRESH"], None),
        (["UCX_TCP_SNDBUF", "UCX_RNDV_THRESH"], None),
    ],
)
def test_settings_of_transports_that_a_command_does_not_use(variables: Sequence[str], unused: str | None) -> None:
    assert command_tuning.find_unused_transport(variables, frozenset({"sysv", "cma"})) == unused
    assert command_tuning.find_unused_transport(variables, frozenset({"tcp", "posix", "sysv", "rc_mlx5"})) is None


def test_lanes_need_a_command_that_uses_ucx(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("tune", "--lanes", "--only", "mutex", *COMMAND) == 2
    assert "--lanes: UCX logged no lanes" in capsys.readouterr().err
    assert not (place / "results").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ucx_perftest") is None, reason="needs ucx_perftest")
def test_settings_of_tcp_are_left_out_where_a_real_command_uses_shared_memory(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = find_free_tcp_port("127.0.0.1")
    pair = f"ucx_perftest -p {port} & sleep 0.5; ucx_perftest -p {port} 127.0.0.1 -t tag_bw -s 65536 -n 20; wait"
    words = ("--lanes", "--timeout", "60s", "--only", "tcp-segments", "--", "sh", "-c", pair)
    assert exit_status("tune", *words) == 2
    assert "tcp-segments=large: the command does not use tcp, only " in capsys.readouterr().err


# -- the time limit of a launch


@pytest.mark.parametrize(
    ("baseline_seconds", "budget_left", "limit"),
    [
        ([], None, None),
        ([], 300.0, 300.0),
        ([1.0, 2.0], None, 30.0),
        ([4.0, 5.0], None, 50.0),
        ([4.0, 5.0], 300.0, 50.0),
        ([4.0, 5.0], 40.0, 40.0),
        ([4.0, 5.0], 1.0, 10.0),  # a launch that began before the end of the budget may end
    ],
)
def test_the_default_time_limit(baseline_seconds: Sequence[float], budget_left: float | None, limit: float) -> None:
    assert command_tuning.default_time_limit(baseline_seconds, budget_left) == limit


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [((), None, 30.0), (("--budget", "10m"), 600.0, 30.0), (("--timeout", "9s"), 9.0, 9.0)],
)
def test_launches_get_the_time_limit_that_follows_from_the_baseline(
    place: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str], first: float | None, later: float
) -> None:
    limits = []
    command = FakeCommand()

    def launch(
        plan: CommandPlan, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, index: int
    ) -> int:
        limits.append(plan.timeout)
        return command.launch(plan, job, writer, progress, index)

    assert tune(monkeypatch, *WORDS, *options, *COMMAND, launch=launch) == 0
    assert (limits[0], set(limits[1:])) == (first, {later})


@pytest.mark.slow
def test_a_candidate_with_which_the_command_hangs_is_ended_and_has_failed(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_tuning, "LEAST_LIMIT_SECONDS", 3.0)
    monkeypatch.setattr(command_tuning, "LIMIT_FACTOR", 1.0)
    script = 'case "$UCX_USE_MT_MUTEX" in y) exec sleep 600;; esac'
    assert exit_status("tune", "--only", "mutex", "--output", "tuned.cfg", "--details", "--", "sh", "-c", script) == 0
    printed = capsys.readouterr()
    assert "a launch is ended after 3 seconds, 1 times the slowest launch" in printed.err
    assert "the command was ended at the time limit of 3 seconds" in " ".join(printed.out.split())
    assert tuning_result_of(the_campaign()).winner is None


def test_a_baseline_that_hangs_ends_with_the_budget(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("tune", "--only", "mutex", "--budget", "2s", "--", "sleep", "600") == 3
    assert "the baseline failed once: the command was ended at the time limit of 2 seconds" in capsys.readouterr().err


def test_a_transport_that_the_baseline_requires_is_checked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "cma.cfg").write_text("MERGE_BENCH_REQUIRE_TRANSPORT=cma\n")
    assert exit_status("tune", "cma.cfg", "--only", "mutex", *COMMAND) == 3
    assert "--require-transport cma is not met: UCX logged no lanes" in capsys.readouterr().err


# -- the search


@pytest.mark.parametrize("metric", [(), RATE], ids=["a time", "a rate"])
def test_a_planted_better_value_is_found_confirmed_and_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], metric: Sequence[str]
) -> None:
    name = "rate" if metric else "wall"
    assert tune(monkeypatch, *WORDS, *metric, *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "Found: mutex=y (UCX_USE_MT_MUTEX=y)\n" in printed
    assert f"\nspeed-up in {name} of sleep 0.01: 1.2" in printed
    assert "Next: " in printed
    assert "-- sleep 0.01\n" in printed
    result = tuning_result_of(the_campaign())
    assert result.winner is not None
    assert result.winner.settings == ["mutex=y"]
    (confirmed,) = result.confirmation_steps
    assert confirmed.ratio == pytest.approx(1.25, abs=0.02)
    written = (place / "tuned.cfg").read_text()
    assert f"# speed-up in {name} of sleep 0.01: 1.2" in written
    assert written.endswith("export UCX_USE_MT_MUTEX=y\n")
    assert exit_status("show", str(the_campaign().folder)) == 0
    assert f"\nspeed-up in {name} of sleep 0.01: 1.2" in capsys.readouterr().out
    if metric:
        return
    page = place / "report.html"
    assert exit_status("report", str(the_campaign().folder), "--output", str(page)) == 0
    assert "Found: mutex=y" in page.read_text()
    assert "of 1 launch" not in page.read_text()


def test_the_next_command_measures_what_was_found_with_the_same_options(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --trust-config it measured the command without the setting that was found."""
    (place / "base.cfg").write_text(f"{FASTER}=n\nOWN=1\n")
    kept = ("--trust-config", "--allow-unknown", *RATE, "--check", "command:true", "--timeout", "1m", "--results", "r")
    assert tune(monkeypatch, "base.cfg", *WORDS, *kept, "--budget", "1h", "--fresh", *COMMAND) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: ")]
    words = shlex.split(line)
    at = words.index("exec")
    assert words[at + 1 : at + 3] == ["--config", "tuned.cfg"]
    assert words[at + 3 : -3] == list(kept)
    assert words[-3:] == list(COMMAND)
    assert exit_status(*words[at : at + 3], *words[at + 3 : -3], "--dry-run", *COMMAND) == 0
    printed = capsys.readouterr()
    assert f"OWN=1 {FASTER}=y sleep 0.01" in printed.out
    assert printed.err == ""


def test_a_command_that_ignores_the_settings_gets_no_config(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(monkeypatch, *WORDS, "--json", *COMMAND, launch=FakeCommand(gain=0.0).launch) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["winner"] is None
    assert document["config"] is None
    assert not (place / "tuned.cfg").exists()
    step = next_step_after_recorded_tuning(the_campaign())
    assert step.words[0] in ("tune", "report")


@pytest.mark.parametrize("code", [COMMAND_FAILED, CHECK_FAILED])
@pytest.mark.parametrize("number", [1, 3, 5], ids=["in the search", "in the confirmation", "later in it"])
def test_a_faster_candidate_with_a_failure_does_not_win(
    place: Path, monkeypatch: pytest.MonkeyPatch, code: str, number: int
) -> None:
    command = FakeCommand(failures={FASTER: (code, [number])})
    assert tune(monkeypatch, *WORDS, *COMMAND, launch=command.launch) == 0
    campaign = the_campaign()
    assert any(launch.failures for launch in campaign.launches)
    assert tuning_result_of(campaign).winner is None
    assert not (place / "tuned.cfg").exists()


def test_a_baseline_that_always_fails_ends_the_tuning(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "base.cfg").write_text("UCX_RNDV_THRESH=2k\n")
    command = FakeCommand(failures={"UCX_RNDV_THRESH": (COMMAND_FAILED, range(100))})
    assert tune(monkeypatch, "base.cfg", *WORDS, *COMMAND, launch=command.launch) == 3
    assert "the baseline failed 2 times in a row: the command ended with status 1" in capsys.readouterr().err
    campaign = the_campaign()
    assert len(campaign.launches) == 2
    assert campaign.end is not None  # so the same command begins anew, once it is mended


def test_a_budget_that_is_too_short_advises_one(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(monkeypatch, *WORDS, "--budget", "5s", *COMMAND) == 3
    printed, messages = capsys.readouterr()
    assert "a launch is ended after 3 seconds, which is what the budget has left, " in messages
    assert "is too short to judge and confirm even one setting" in printed
    assert "; for one, use --budget " in " ".join(printed.split())
    assert "(searches anew, with time for 3 candidates" in printed
    assert exit_status("results") == 0
    assert "Tuning of default: wall of sleep 0.01" in capsys.readouterr().out
    assert "or a smaller --confirm" in " ".join(printed.split())


def test_the_same_command_resumes_after_ctrl_c(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = FakeCommand()

    def cut(
        plan: CommandPlan, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, index: int
    ) -> int:
        if index < 7:
            return command.launch(plan, job, writer, progress, index)
        with signals.ignore_signals():  # as a launch does
            os.kill(os.getpid(), signal.SIGINT)
        writer.write(s.FailureLine(launch=index, code="interrupted", message="interrupted"))
        return signals.Interrupted.exit_status

    words = (*WORDS, *RATE, "--timeout", "9s", *COMMAND)
    assert tune(monkeypatch, *words, launch=cut) == signals.Interrupted.exit_status
    assert "run the same command to resume" in capsys.readouterr().err
    step = next_step_after_recorded_tuning(the_campaign())
    assert step.words == ("tune",)
    assert step.command_words == ("sleep", "0.01")
    assert {"metric": [RATE[1]], "unit": [RATE[3]], "timeout": "9s", "only": [ONLY]}.items() <= step.options.items()
    assert tune(monkeypatch, *words, launch=command.launch) == 0
    campaign = the_campaign()
    assert "8 launches are already recorded" in capsys.readouterr().err
    assert campaign.command is not None
    assert campaign.command.timeout == 9.0
    assert tuning_result_of(campaign).winner is not None


@pytest.mark.slow
def test_a_real_command_whose_time_depends_on_a_setting(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = 'case "$UCX_USE_MT_MUTEX" in y) sleep 0.1;; *) sleep 0.2;; esac; echo well'
    words = ("--only", "mutex,keepalive", "--check", "re:well", "--output", "tuned.cfg")
    assert exit_status("tune", *words, "--", "sh", "-c", script) == 0
    assert "Found: mutex=y" in capsys.readouterr().out
    assert "export UCX_USE_MT_MUTEX=y\n" in (place / "tuned.cfg").read_text()
