"""Going on with a campaign that was interrupted: no launch lost, none made twice, and none under other conditions."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merge_bench import campaign as campaigns
from merge_bench import resuming, setup
from merge_bench.campaign import first_line, make_campaign
from merge_bench.config.resolve import expand, resolve
from merge_bench.errors import GateNotMet, LaunchFailed, MergeBenchError, RunFailed, WrongResult
from merge_bench.launch.hosts import HostSpec
from merge_bench.launching import Head, Job, recorded
from merge_bench.probe.rows import rows_of
from merge_bench.record import schema as s
from merge_bench.record.campaign import Campaign
from merge_bench.record.codec import encode
from merge_bench.record.reader import read_campaign
from merge_bench.record.writer import CampaignWriter
from merge_bench.summary import summarize
from merge_bench.sweep import Sweep
from tests import synthetic_campaigns as synthetic

KEYS = [("a", 0), ("b", 0)]


class Killed(BaseException):
    """Ends the driver in the middle of whatever it does, as kill -9 would; only the lock is let go as by the kernel."""


def sweep(*, blocks: int = 2, configs: Sequence[str] = "ab", **options: Any) -> Sweep:
    made = Sweep([], [], {}, {})
    values = {"chunk": 1000, "workers": 2, "iterations": 1, "warmup": 0, "verify": "off", "blocks": blocks, **options}
    for name in configs:
        found = [setup.prepare(each, None) for each in expand(resolve(values, None, {}))]
        made.add(found, s.Config(name=name, path=f"{name}.cfg"))
    return made


def script(job: Job, index: int) -> synthetic.Script:
    plan = job.prepared.plan.to_json()
    return synthetic.Script(index=index, config=job.config, plan_index=job.plan, plan=plan, walls=(0.1,))


def begin(writer: CampaignWriter, job: Job, index: int) -> None:
    """The launch line and one iteration."""
    line = s.LaunchLine(
        launch=index, config=job.config, plan=job.plan, block=job.block, workers=[],
        cluster=s.Cluster(launcher="local", protocol="tcp"), data_bytes=1000, rows=1000, startup_seconds=1.0,
    )  # fmt: skip
    writer.write(line)
    writer.write(synthetic.iteration(script(job, index), 0, 0.1))


def half_a_line(writer: CampaignWriter, index: int) -> None:
    line = encode(s.MemoryLine(launch=index, workers=[]))
    with writer.records.open("ab") as file:
        file.write(line[: len(line) // 2])


Event = Callable[[Job, CampaignWriter, int], int]


def _launched(work: Callable[[Job, CampaignWriter, int], None]) -> Event:
    def event(job: Job, writer: CampaignWriter, index: int) -> int:
        def explain(problem: Exception) -> MergeBenchError:
            raise problem

        return recorded(job, writer, index, lambda: work(job, writer, index), explain=explain, end=lambda well: None)

    return event


def _well(job: Job, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)


def _fails(job: Job, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)
    raise LaunchFailed("a worker died", rank=1)


def _fails_early(job: Job, writer: CampaignWriter, index: int) -> None:
    raise LaunchFailed("the scheduler did not come up")


def _interrupted(job: Job, writer: CampaignWriter, index: int) -> None:
    begin(writer, job, index)
    os.kill(os.getpid(), signal.SIGINT)


def _interrupted_early(job: Job, writer: CampaignWriter, index: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupted_at_the_end(job: Job, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)

    def end(well: bool) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    return recorded(job, writer, index, lambda: None, explain=lambda problem: RunFailed(str(problem)), end=end)


def _between(job: Job, writer: CampaignWriter, index: int) -> int:
    os.kill(os.getpid(), signal.SIGHUP)
    raise AssertionError("the signal did not end the campaign")


def _killed_early(job: Job, writer: CampaignWriter, index: int) -> int:
    raise Killed


def _killed(job: Job, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    raise Killed


def _killed_writing(job: Job, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    half_a_line(writer, index)
    raise Killed


def _killed_after_a_failure(job: Job, writer: CampaignWriter, index: int) -> int:
    begin(writer, job, index)
    failure = s.FailureLine(
        launch=index, config=job.config, plan=job.plan, block=job.block, code="worker-died", message="it died"
    )
    writer.write(failure)
    raise Killed


WELL, FAILS = _launched(_well), _launched(_fails)
MADE: dict[str, Event] = {
    "well": WELL, "fails": FAILS, "fails early": _launched(_fails_early),
    "interrupted at the end": _interrupted_at_the_end, "killed after a failure": _killed_after_a_failure,
}  # fmt: skip
CUT: dict[str, Event] = {
    "interrupted": _launched(_interrupted), "interrupted early": _launched(_interrupted_early), "between": _between,
    "killed": _killed, "killed early": _killed_early, "killed writing": _killed_writing,
}  # fmt: skip
EVENTS = MADE | CUT


def make(results: Path, made: Sweep, events: list[Event], *, resume: bool = True) -> tuple[int | None, list[Job]]:
    """Run the sweep; each launch is the next of `events`, then all go well. Exit status (None: killed), and the jobs
    in the order in which they were begun.
    """
    begun = []

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        begun.append(job)
        return (events.pop(0) if events else WELL)(job, writer, index)

    try:
        return make_campaign(results, "x", made.head(), made.jobs(), launch, resume=resume)[1], begun
    except Killed:
        return None, begun


def the(results: Path) -> Campaign:
    (folder,) = results.iterdir()
    return read_campaign(folder)


def standing(campaign: Campaign) -> list[tuple[str, int, int | None]]:
    return [(*launch.key, launch.block) for launch in campaign.standing if launch.key is not None]


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking git takes longer than everything else here."""
    monkeypatch.setattr(campaigns, "git_state", lambda: {"commit": "c", "dirty": False, "host": "h"})


@given(names=st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_every_launch_counts_once(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    results, made = tmp_path_factory.mktemp("r") / "results", sweep()
    events = [EVENTS[name] for name in names]
    while True:
        status, _ = make(results, made, events)
        campaign = the(results)
        whole = len(standing(campaign)) == 4 and not any(launch.interrupted for launch in campaign.standing)
        if whole and campaign.end is not None:
            break
    wanted = [(job.config, job.plan, job.block) for job in made.jobs()]
    assert Counter(standing(campaign)) == Counter(wanted)
    assert standing(campaign) == wanted  # in the planned order, although with pauses
    indices = [launch.index for launch in campaign.launches]
    assert indices == sorted(set(indices))
    assert all(launch.end is not None for launch in campaign.launches)
    used = names[: len(names) - len(events)]
    failed = sum(name in ("fails", "fails early", "killed after a failure") for name in used)
    assert sum(launch.failed for launch in campaign.launches) == failed
    assert status == (3 if failed else 0)
    assert campaign.end.status == status


@pytest.mark.parametrize("name", sorted(CUT))
def test_a_launch_that_was_cut_short_is_made_again_at_once(tmp_path: Path, name: str) -> None:
    made = sweep()
    jobs = made.jobs()
    make(tmp_path, made, [WELL, CUT[name]])
    status, begun = make(tmp_path, made, [CUT[name]])
    assert begun == jobs[1:2]
    status, begun = make(tmp_path, made, [])
    assert (status, begun) == (0, jobs[1:])


@pytest.mark.parametrize("name", sorted(set(MADE) - {"well"}))
def test_a_launch_that_failed_is_not_made_again(tmp_path: Path, name: str) -> None:
    made = sweep()
    status, begun = make(tmp_path, made, [MADE[name], _killed])
    if len(begun) == 1:  # it ended the command
        make(tmp_path, made, [_killed])
    status, begun = make(tmp_path, made, [])
    assert begun == made.jobs()[1:]
    assert status == (0 if name == "interrupted at the end" else 3)


def test_a_config_that_always_fails_stops_no_other_and_is_counted(tmp_path: Path) -> None:
    made = sweep(blocks=3)

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        return (FAILS if job.config == "a" else WELL)(job, writer, index)

    folder, status = make_campaign(tmp_path, "x", made.head(), made.jobs(), launch)
    assert status == 3
    broken, whole = summarize(read_campaign(folder))["runs"]
    assert broken["error"]["message"] == "a worker died"
    assert [w["message"][:26] for w in broken["warnings"] if w["code"] == "failed-launches"] == [
        "3 of 3 launches failed; th"
    ]
    assert whole["error"] is None
    assert [launch.failed for run in read_campaign(folder).runs for launch in run.launches] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("error", [WrongResult("the merge result is wrong"), GateNotMet("no pair uses it")])
def test_a_wrong_result_and_a_gate_end_the_campaign_for_good(tmp_path: Path, error: MergeBenchError) -> None:
    def wrong(job: Job, writer: CampaignWriter, index: int) -> None:
        begin(writer, job, index)
        raise error

    def killed_then(job: Job, writer: CampaignWriter, index: int) -> int:
        _launched(wrong)(job, writer, index)
        raise Killed

    made = sweep()
    status, begun = make(tmp_path / "ended", made, [WELL, _launched(wrong)])
    assert (status, len(begun)) == (error.exit_status, 2)
    make(tmp_path / "killed", made, [WELL, killed_then])
    for results in (tmp_path / "ended", tmp_path / "killed"):
        status, begun = make(results, made, [])
        assert (status, len(begun)) == (0, 4)
        assert len(list(results.iterdir())) == 2


def test_a_finished_campaign_is_begun_anew(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [])
    assert len(make(tmp_path, made, [])[1]) == 4
    assert len(list(tmp_path.iterdir())) == 2


def test_a_single_launch_is_never_gone_on_with(tmp_path: Path) -> None:
    made = sweep(blocks=1, configs="a")
    make(tmp_path, made, [_killed])
    assert make(tmp_path, made, [])[0] == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_fresh_begins_anew(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    assert len(make(tmp_path, made, [], resume=False)[1]) == 4


def test_the_newest_of_several_is_gone_on_with(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    (old,) = tmp_path.iterdir()
    old.rename(tmp_path / "20200101T000000Z-x-000000")
    make(tmp_path, made, [WELL, WELL, _killed], resume=False)
    assert len(make(tmp_path, made, [])[1]) == 2


def test_a_campaign_that_is_being_written_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    (folder,) = tmp_path.iterdir()
    with (folder / "records.jsonl").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert len(make(tmp_path, made, [])[1]) == 4
    assert f"{folder} is left alone: another process is writing it" in capsys.readouterr().err


def test_a_campaign_under_way_holds_its_lock(tmp_path: Path) -> None:
    made = sweep()
    nested: list[int] = []

    def another(job: Job, writer: CampaignWriter, index: int) -> int:
        nested.append(len(make(tmp_path, made, [_killed])[1]))
        return WELL(job, writer, index)

    make(tmp_path, made, [another])
    assert nested == [1]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_system_without_locks_is_written_but_nothing_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    assert len(make(tmp_path, made, [])[1]) == 4
    assert "it cannot be written (No locks available)" in capsys.readouterr().err


def test_damaged_records_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    records = the(tmp_path).records
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(lines[0] + b"{}\n" + b"".join(lines[1:]))
    assert len(make(tmp_path, made, [])[1]) == 4
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\n", b"\0" * 100, b'{"kind":"campaign","schema":99}\n'])
def test_strange_folders_beside_it_do_not_matter(tmp_path: Path, content: bytes) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    strange = tmp_path / "99990101T000000Z-x-ffffff"
    strange.mkdir()
    (strange / "records.jsonl").write_bytes(content)
    assert len(make(tmp_path, made, [])[1]) == 3
    assert (strange / "records.jsonl").read_bytes() == content


def test_a_block_in_two_parts_is_told(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    make(tmp_path, made, [])
    (warning,) = the(tmp_path).warnings
    assert warning.code == "torn-block"
    assert "block 0" in warning.message


@pytest.mark.parametrize(("configs", "events"), [("ab", [WELL, WELL, _killed]), ("a", [WELL, _killed])])
def test_a_pause_between_blocks_needs_no_telling(tmp_path: Path, configs: str, events: list[Event]) -> None:
    made = sweep(configs=configs, blocks=3)
    make(tmp_path, made, list(events))
    make(tmp_path, made, [])
    assert the(tmp_path).warnings == ()


def changed(made: Sweep, **settings: Any) -> list[Job]:
    return [
        dataclasses.replace(
            job,
            prepared=dataclasses.replace(job.prepared, settings=dataclasses.replace(job.prepared.settings, **settings)),
        )
        for job in made.jobs()
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"hosts": (HostSpec("other", 2),)},
        {"interface": "eth1"},
        {"launcher": "ssh"},
        {"workers_per_gpu": 2},
        {"rmm_pool_bytes": 1 << 30},
    ],
)
def test_another_cluster_is_another_campaign(settings: dict[str, Any]) -> None:
    made = sweep()
    line = first_line(made.head(), made.jobs())
    assert resuming.differences(line, first_line(made.head(), made.jobs())) == []
    assert resuming.differences(line, first_line(made.head(), changed(made, **settings))) == ["surroundings"]


def test_where_records_go_makes_no_difference() -> None:
    made = sweep()
    other = changed(made, results=Path("elsewhere"), sources={"chunk": "default"})
    assert resuming.differences(first_line(made.head(), made.jobs()), first_line(made.head(), other)) == []


@pytest.mark.parametrize(
    ("name", "value"), [("UCX_TLS", "tcp"), ("DASK_X", "1"), ("OMP_NUM_THREADS", "3"), ("MERGE_BENCH_UCX", "system")]
)
def test_another_environment_is_another_campaign(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv(name, raising=False)
    made = sweep()
    line = first_line(made.head(), made.jobs())
    monkeypatch.setenv(name, value)
    assert resuming.differences(line, first_line(made.head(), made.jobs())) == ["surroundings"]


def test_options_in_the_environment_are_in_the_plans_already(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sweep()
    line = first_line(made.head(), made.jobs())
    monkeypatch.setenv("MERGE_BENCH_RESULTS", "elsewhere")
    monkeypatch.setenv("TERM_PROGRAM", "x")
    assert resuming.differences(line, first_line(made.head(), made.jobs())) == []


def test_other_code_or_another_commit_is_another_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sweep()
    line = first_line(made.head(), made.jobs())
    monkeypatch.setattr(campaigns, "git_state", lambda: {"commit": "c", "dirty": True, "host": "h"})
    assert resuming.differences(line, first_line(made.head(), made.jobs())) == ["git"]
    monkeypatch.setattr(resuming.node, "fingerprint", lambda package: "0123")
    assert resuming.differences(line, first_line(made.head(), made.jobs())) == ["git", "surroundings"]


def test_other_sizes_seeds_and_settings_are_other_campaigns() -> None:
    made = sweep()
    line = first_line(made.head(), made.jobs())
    for other in (sweep(chunk=2000), sweep(blocks=3), sweep(iterations=2), sweep(seed=1), sweep(configs="ba")):
        assert resuming.differences(line, first_line(other.head(), other.jobs()))
    head = made.head()
    variables = [s.Config(name=each.name, path=each.path, variables={"UCX_TLS": "tcp"}) for each in head.configs]
    other_head = Head(variables, head.plans, head.runs, head.seed)
    assert resuming.differences(line, first_line(other_head, made.jobs())) == ["configs"]


def test_a_config_may_lie_elsewhere_now() -> None:
    made = sweep()
    head = made.head()
    moved = Head([s.Config(name=each.name, path="/else/where.cfg") for each in head.configs], head.plans, head.runs, 0)
    assert resuming.differences(first_line(head, made.jobs()), first_line(moved, made.jobs())) == []


def test_a_half_written_line_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed_writing])
    records = the(tmp_path).records
    before = records.read_bytes()
    whole = before[: before.rindex(b"\n") + 1]
    assert whole != before
    with CampaignWriter.go_on(records.parent):
        assert records.read_bytes() == whole
    records.write_bytes(whole + b"x" * 200_000)
    with CampaignWriter.go_on(records.parent) as writer:
        assert records.read_bytes() == whole
        writer.write(s.WarningLine(code="c", message="m"))
    assert records.read_bytes().startswith(whole)
    assert json.loads(records.read_bytes().splitlines()[-1])["code"] == "c"


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No such file"):
        CampaignWriter.go_on(tmp_path)


def test_an_end_counts_only_if_nothing_follows(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, CUT["interrupted"]])
    ended = the(tmp_path).end
    assert ended is not None
    assert ended.status == 3
    make(tmp_path, made, [_killed])
    assert the(tmp_path).end is None


def test_an_unfinished_campaign_says_how_far_it_came(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, _killed])
    first, second = (job.config for job in made.jobs()[:2])
    errors = {run["config"]["name"]: run["error"] for run in summarize(the(tmp_path))["runs"]}
    assert {config: error["code"] for config, error in errors.items()} == {first: "unfinished", second: "unfinished"}
    make(tmp_path, made, [CUT["interrupted"]])
    errors = {run["config"]["name"]: run["error"] for run in summarize(the(tmp_path))["runs"]}
    assert errors[second]["code"] == "interrupted"
    warned = [w["code"] for run in summarize(the(tmp_path))["runs"] for w in run["warnings"]]
    assert "failed-launches" not in warned


def test_an_interrupted_campaign_says_what_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, CUT["interrupted"]])
    assert "1 of 4 launches are made; the same command goes on" in capsys.readouterr().err
    make(tmp_path, made, [_interrupted_at_the_end])
    assert "2 of 4 launches are made; the same command goes on" in capsys.readouterr().err
    make(tmp_path, made, [])
    (folder,) = tmp_path.iterdir()
    assert f"going on with {folder}: 2 of 4 launches are there" in capsys.readouterr().err


def test_a_signal_while_a_failure_is_explained_does_not_make_it_a_success(tmp_path: Path) -> None:
    def broken(job: Job, writer: CampaignWriter, index: int) -> int:
        def work() -> None:
            begin(writer, job, index)
            raise ValueError("something broke")

        def explain(problem: Exception) -> MergeBenchError:
            os.kill(os.getpid(), signal.SIGINT)
            return LaunchFailed("a worker died")

        return recorded(job, writer, index, work, explain=explain, end=lambda well: None)

    made = sweep()
    assert make(tmp_path, made, [broken])[0] == 3
    (launch,) = the(tmp_path).launches
    assert launch.failed
    assert [failure.message for failure in launch.failures] == ["a worker died"]
    assert make(tmp_path, made, [])[1] == made.jobs()[1:]


def test_rows_of_a_probe_that_was_cut_short_do_not_count_twice(tmp_path: Path) -> None:
    head = Head([s.Config(name="a")], [{"probe": "p2p", "launches": 2}], [s.RunKey(config="a", plan=0)], 0)
    jobs = [dataclasses.replace(job, plan=0) for job in sweep(configs="a").jobs()]

    def row(index: int) -> s.ProbeLine:
        return s.ProbeLine(
            launch=index, probe="p2p", test="tag_lat", method="m", placement="one-host", ranks=[0, 1], size=8,
            iterations=1, seconds=1e-6,
        )  # fmt: skip

    def make_probe(events: list[bool]) -> None:
        def launch(job: Job, writer: CampaignWriter, index: int) -> int:
            begin(writer, job, index)
            writer.write(row(index))
            if events and events.pop(0):
                raise Killed
            writer.write(s.LaunchEndLine(launch=index, status=0, seconds=1.0))
            return 0

        make_campaign(tmp_path, "p", head, jobs, launch)

    with pytest.raises(Killed):
        make_probe([False, True])
    make_probe([])
    assert len(the(tmp_path).launches) == 3
    assert [found.launches for found in rows_of(the(tmp_path))] == [2]
