"""Going on with a campaign that was interrupted: no launch lost, none made twice."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merge_bench.campaign.planned_launches import PlannedLaunch, Sweep, make_campaign_line
from merge_bench.campaign.run_campaign import run_launches
from merge_bench.dashboard.live_data import campaign_progress
from merge_bench.errors import GateNotMet, LaunchFailed, MergeBenchError, UsageError, WrongResult
from merge_bench.records import schema as s
from merge_bench.records.probe_rows import make_probe_rows
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.writer import CampaignWriter
from tests.helpers.documents import summarized
from tests.helpers.interruptions import (
    CUT,
    EVENTS,
    FAILS,
    HEARS_SIGNALS,
    MADE,
    SOFTWARE,
    WELL,
    Event,
    Killed,
    Nothing,
    begin,
    interrupted_at_the_end,
    killed,
    launched,
    make,
    standing,
    sweep,
    the,
)


@given(names=st.lists(st.sampled_from(sorted(EVENTS)), max_size=12))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_every_launch_counts_once(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    results, made = tmp_path_factory.mktemp("r") / "results", sweep()
    events = [EVENTS[name] for name in names]
    while True:
        status, _ = make(results, made, events)
        campaign = the(results)
        whole = len(standing(campaign)) == 4 and not any(
            launch.interrupted for launch in campaign.launches_not_replaced
        )
        if whole and campaign.end is not None:
            break
    wanted = [(job.config, job.plan, job.block) for job in made.ordered_launches()]
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
    jobs = made.ordered_launches()
    make(tmp_path, made, [WELL, CUT[name]])
    status, begun = make(tmp_path, made, [CUT[name]])
    assert begun == jobs[1:2]
    status, begun = make(tmp_path, made, [])
    assert (status, begun) == (0, jobs[1:])


def test_a_signal_that_a_library_turned_into_its_own_error_is_recorded_as_one(tmp_path: Path) -> None:
    status, _ = make(tmp_path, sweep(), [CUT["interrupted in a library"]])
    assert status == 3
    (failure,) = the(tmp_path).launches[0].failures
    assert (failure.code, failure.message) == ("interrupted", "interrupted by SIGINT")


def test_a_signal_outside_of_a_launch_is_recorded_until_the_command_is_repeated(tmp_path: Path) -> None:
    made = sweep()
    for events, message in (
        ([CUT["between"]], "interrupted by SIGHUP before the first launch, so nothing was measured"),
        ([WELL, CUT["between"]], "interrupted by SIGHUP"),
        ([interrupted_at_the_end], "interrupted by SIGINT"),
    ):
        assert make(tmp_path, made, events)[0] == 3
        campaign = the(tmp_path)
        (*_, run) = summarized(campaign)["runs"]
        assert (run["error"]["code"], run["error"]["message"]) == ("interrupted", message)
        entries = ResultsFolder(tmp_path).refresh_entries([campaign.folder.name])
        assert [entry.status for entry in entries if entry.folder == campaign.folder] == ["interrupted"]
        assert campaign_progress(campaign, running=False).doing == "interrupted"
    assert make(tmp_path, made, [])[0] == 0
    assert the(tmp_path).failures == ()


@pytest.mark.parametrize("name", sorted(set(MADE) - {"well"}))
def test_a_launch_that_failed_is_not_made_again(tmp_path: Path, name: str) -> None:
    made = sweep()
    status, begun = make(tmp_path, made, [MADE[name], killed])
    if len(begun) == 1:  # it ended the command
        make(tmp_path, made, [killed])
    status, begun = make(tmp_path, made, [])
    assert begun == made.ordered_launches()[1:]
    assert status == (0 if name == "interrupted at the end" else 3)


def test_a_config_that_always_fails_stops_no_other_and_is_counted(tmp_path: Path) -> None:
    made = sweep(blocks=3)

    def launch(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        return (FAILS if job.config == "a" else WELL)(job, writer, index)

    folder, status = run_launches(
        tmp_path, "x", made.campaign_line(), made.ordered_launches(), launch, software=SOFTWARE
    )
    assert status == 3
    broken, whole = summarized(read_campaign(folder))["runs"]
    assert broken["error"]["message"] == "a worker died"
    assert [w["message"][:26] for w in broken["warnings"] if w["code"] == "failed-launches"] == [
        "3 of 3 launches failed; th"
    ]
    assert whole["error"] is None
    assert [launch.failed for run in read_campaign(folder).runs for launch in run.launches] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("error", [WrongResult("the merge result is wrong"), GateNotMet("no pair uses it")])
def test_a_wrong_result_and_a_gate_end_the_campaign_for_good(tmp_path: Path, error: MergeBenchError) -> None:
    def wrong(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
        begin(writer, job, index)
        raise error

    def killed_then(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        launched(wrong)(job, writer, index)
        raise Killed

    made = sweep()
    status, begun = make(tmp_path / "ended", made, [WELL, launched(wrong)])
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
    make(tmp_path, made, [killed])
    assert make(tmp_path, made, [])[0] == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_fresh_begins_anew(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    assert len(make(tmp_path, made, [], resume=False)[1]) == 4


def test_the_newest_of_several_is_gone_on_with(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    (old,) = tmp_path.iterdir()
    old.rename(tmp_path / "20200101T000000Z-x-000000")
    make(tmp_path, made, [WELL, WELL, killed], resume=False)
    assert len(make(tmp_path, made, [])[1]) == 2


def test_a_block_in_two_parts_is_told(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    make(tmp_path, made, [])
    (warning,) = the(tmp_path).warnings
    assert warning.code == "torn-block"
    assert "block 0" in warning.message


@pytest.mark.parametrize(("configs", "events"), [("ab", [WELL, WELL, killed]), ("a", [WELL, killed])])
def test_a_pause_between_blocks_needs_no_telling(tmp_path: Path, configs: str, events: list[Event]) -> None:
    made = sweep(configs=configs, blocks=3)
    make(tmp_path, made, list(events))
    make(tmp_path, made, [])
    assert the(tmp_path).warnings == ()


def test_an_end_counts_only_if_nothing_follows(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, CUT["interrupted"]])
    ended = the(tmp_path).end
    assert ended is not None
    assert ended.status == 3
    make(tmp_path, made, [killed])
    assert the(tmp_path).end is None


def test_an_unfinished_campaign_says_how_far_it_came(tmp_path: Path) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, killed])
    first, second = (job.config for job in made.ordered_launches()[:2])
    errors = {run["config"]["name"]: run["error"] for run in summarized(the(tmp_path))["runs"]}
    assert {config: error["code"] for config, error in errors.items()} == {first: "unfinished", second: "unfinished"}
    make(tmp_path, made, [CUT["interrupted"]])
    errors = {run["config"]["name"]: run["error"] for run in summarized(the(tmp_path))["runs"]}
    assert errors[second]["code"] == "interrupted"
    warned = [w["code"] for run in summarized(the(tmp_path))["runs"] for w in run["warnings"]]
    assert "failed-launches" not in warned


def test_an_interrupted_campaign_says_what_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = sweep()
    make(tmp_path, made, [WELL, CUT["interrupted"]])
    assert "1 of 4 launches finished; run the same command to resume" in capsys.readouterr().err
    make(tmp_path, made, [interrupted_at_the_end])
    assert "2 of 4 launches finished; run the same command to resume" in capsys.readouterr().err
    make(tmp_path, made, [])
    (folder,) = tmp_path.iterdir()
    assert f"resuming {folder}: 2 of 4 launches finished" in capsys.readouterr().err


def test_a_signal_while_a_failure_is_explained_does_not_make_it_a_success(tmp_path: Path) -> None:
    def work(job: PlannedLaunch, writer: CampaignWriter, index: int) -> None:
        begin(writer, job, index)
        raise ValueError("something broke")

    def cause() -> MergeBenchError:
        os.kill(os.getpid(), signal.SIGINT)
        return LaunchFailed("a worker died")

    made = sweep()
    assert make(tmp_path, made, [launched(work, Nothing(cause=cause))])[0] == 3
    (launch,) = the(tmp_path).launches
    assert launch.failed
    assert [failure.message for failure in launch.failures] == ["a worker died"]
    assert make(tmp_path, made, [])[1] == made.ordered_launches()[1:]


def test_rows_of_a_probe_that_was_cut_short_do_not_count_twice(tmp_path: Path) -> None:
    head = make_campaign_line(
        [s.Config(name="a")], [{"probe": "p2p", "launches": 2}], [s.RunKey(config="a", plan=0)], 0
    )
    jobs = [dataclasses.replace(job, plan=0) for job in sweep(configs="a").ordered_launches()]

    def row(index: int) -> s.ProbeLine:
        return s.ProbeLine(
            launch=index,
            probe="p2p",
            test="tag_lat",
            method="m",
            placement="one-host",
            ranks=[0, 1],
            size=8,
            iterations=1,
            seconds=1e-6,
        )

    def make_probe(events: list[bool]) -> None:
        def launch(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
            begin(writer, job, index)
            writer.write(row(index))
            if events and events.pop(0):
                raise Killed
            writer.write(s.LaunchEndLine(launch=index, status=0, seconds=1.0))
            return 0

        run_launches(tmp_path, "p", head, jobs, launch, software=SOFTWARE)

    with pytest.raises(Killed):
        make_probe([False, True])
    make_probe([])
    assert len(the(tmp_path).launches) == 3
    assert [found.launches for found in make_probe_rows(the(tmp_path))] == [2]


def extended(results: Path, made: Sweep, folder: Path, events: list[Event]) -> tuple[int, list[PlannedLaunch]]:
    """Add the launches that `folder` lacks; gives the status, and what was launched."""
    begun: list[PlannedLaunch] = []

    def launch(job: PlannedLaunch, writer: CampaignWriter, index: int) -> int:
        begun.append(job)
        return (events.pop(0) if events else WELL)(job, writer, index)

    _, status = run_launches(
        results,
        "x",
        made.campaign_line(),
        made.ordered_launches(),
        launch,
        extend=folder,
        caller=HEARS_SIGNALS,
        software=SOFTWARE,
    )
    return status, begun


def test_a_campaign_is_extended_by_the_blocks_that_would_have_come_next(tmp_path: Path) -> None:
    made, more = sweep(blocks=2), sweep(blocks=5)
    assert make(tmp_path, made, [])[0] == 0
    folder = the(tmp_path).folder
    before = (folder / "records.jsonl").read_bytes()
    status, begun = extended(tmp_path, more, folder, [])
    assert (status, begun) == (0, more.ordered_launches()[4:])
    campaign = the(tmp_path)
    assert campaign.records.read_bytes().startswith(before)
    assert [run.planned_launches for run in campaign.runs] == [5, 5]
    assert [plan["launches"] for plan in campaign.head.plans] == [5]
    assert standing(campaign) == [(job.config, job.plan, job.block) for job in more.ordered_launches()]
    assert [launch.index for launch in campaign.launches] == list(range(10))
    assert all(one["error"] is None for one in summarized(campaign)["runs"])


def test_an_extension_that_was_interrupted_is_continued_by_the_same_command(tmp_path: Path) -> None:
    more = sweep(blocks=5)
    make(tmp_path, sweep(blocks=2), [])
    folder = the(tmp_path).folder
    status, begun = extended(tmp_path, more, folder, [WELL, CUT["interrupted"]])
    assert (status, len(begun)) == (3, 2)
    assert (
        make(tmp_path, sweep(blocks=2), [])[1] == sweep(blocks=2).ordered_launches()
    )  # another campaign, not a part of this one
    status, begun = extended(tmp_path, more, folder, [])
    assert (status, begun) == (0, more.ordered_launches()[5:])
    assert len(standing(read_campaign(folder))) == 10


def test_nothing_is_added_to_what_differs_or_has_as_many_launches(tmp_path: Path) -> None:
    made = sweep(blocks=2)
    make(tmp_path, made, [])
    folder = the(tmp_path).folder
    before = (folder / "records.jsonl").read_bytes()
    for other, sentence in (
        (made, "has 2 launches already"),
        (sweep(blocks=1), "has 2 launches already"),
        (sweep(blocks=3, seed=9), r"seed \(\d+ and 9\)"),
    ):
        with pytest.raises(UsageError, match=sentence):
            extended(tmp_path, other, folder, [])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("UCX_TLS", "tcp")
        with pytest.raises(UsageError, match=r"environment UCX_TLS \(None and tcp\)"):
            extended(tmp_path, sweep(blocks=3), folder, [])
    with pytest.raises(UsageError, match=r"contains no records\.jsonl"):
        extended(tmp_path, sweep(blocks=3), tmp_path, [])
    assert (folder / "records.jsonl").read_bytes() == before
