"""The list of campaigns: read from heads and ends, kept for unchanged files, whatever lies in the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from merge_bench.analysis.published import published_beside
from merge_bench.dashboard.live_tab import find_campaign_to_show
from merge_bench.records import schema as s
from merge_bench.records.campaign import INTERRUPTED
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.campaign_figures import CampaignCache
from tests.helpers.rights import without_passing_over_permissions
from tests.helpers.runs import ROOT
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign, write_head, write_launch


def test_an_entry_tells_what_a_campaign_is(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, config="tcp", plan_index=1, plan=plan(4)))
    (entry,) = ResultsFolder(tmp_path).entries()
    assert entry.folder == folder
    assert entry.configs == ("optimized", "tcp")
    assert [plan.workers for plan in entry.plans] == [2, 4]
    assert (entry.kind, entry.status) == ("merge", "done")


def test_the_kinds_of_recorded_campaigns() -> None:
    kinds = {entry.folder.name: entry.kind for entry in ResultsFolder(ROOT / "tests" / "data" / "campaigns").entries()}
    merges = dict.fromkeys(
        ("baseline", "failed", "gpu", "interrupted", "one-sender", "run", "sweep", "tables"), "merge"
    )
    probes = {name: f"probe {name}" for name in ("mpi", "p2p", "reduce-scatter")}
    assert kinds == merges | probes | {"import": "import", "tune": "tune"}


@pytest.mark.parametrize(("status", "word"), [(0, "done"), (3, "failed"), (4, "wrong result"), (9, "status 9")])
def test_the_exit_status_of_the_last_line_is_the_campaigns(tmp_path: Path, status: int, word: str) -> None:
    write_campaign(tmp_path, end=status)
    (entry,) = ResultsFolder(tmp_path).entries()
    assert entry.status == word


@pytest.mark.parametrize(("name", "word"), [("interrupted", "interrupted"), ("failed", "failed"), ("run", "done")])
def test_a_run_that_was_stopped_did_not_fail(name: str, word: str) -> None:
    found = {entry.folder.name: entry for entry in ResultsFolder(ROOT / "tests" / "data" / "campaigns").entries()}
    assert found[name].status == word


def test_a_launch_that_failed_before_the_interruption_does_not_count(tmp_path: Path) -> None:
    """How the campaign ended stands in its last failure."""
    with CampaignWriter.create(tmp_path, "tcp") as writer:
        write_head(writer, [("tcp", 0)], [plan()])
        for index, code in enumerate(("run-failed", INTERRUPTED)):
            writer.write(s.FailureLine(launch=index, config="tcp", plan=0, block=index, code=code, message="…"))
            writer.write(s.LaunchEndLine(launch=index, status=3, seconds=1.0))
        writer.write(s.CampaignEndLine(status=3))
    (entry,) = ResultsFolder(tmp_path).entries()
    assert entry.status == "interrupted"


def test_a_campaign_runs_while_its_writer_lives_and_is_unfinished_when_it_is_gone(tmp_path: Path) -> None:
    index = ResultsFolder(tmp_path)
    with CampaignWriter.create(tmp_path, "tcp") as writer:
        write_head(writer, [("tcp", 0)], [plan()])
        write_launch(writer, Script(config="tcp", end_status=None))
        (running,) = index.entries()
        assert running.status == "running"
        assert find_campaign_to_show(index.entries()) == running
    (left,) = index.entries()
    assert left.status == "unfinished"


def test_a_tuning_that_was_interrupted_is_called_so_until_it_is_resumed(tmp_path: Path) -> None:
    """Its records have no end line, because the same command resumes it."""
    index = ResultsFolder(tmp_path)
    folder = write_campaign(tmp_path, Script(index=0, end_status=None), end=None)
    with opened(folder) as writer:
        writer.write(s.FailureLine(launch=0, code="interrupted", message="interrupted by SIGINT"))
        writer.write(s.LaunchEndLine(launch=0, status=3, seconds=1.0))
    assert [entry.status for entry in index.entries()] == ["interrupted"]
    with opened(folder) as writer:
        assert [entry.status for entry in index.entries()] == ["running"]
        write_launch(writer, Script(index=1, end_status=None))
    assert [entry.status for entry in index.entries()] == ["unfinished"]


def opened(folder: Path) -> CampaignWriter:
    writer = CampaignWriter.resume(folder)
    assert writer is not None
    return writer


def test_the_newest_campaign_comes_first(tmp_path: Path) -> None:
    for name, time in (("old", 100.0), ("new", 300.0), ("middle", 200.0)):
        folder = write_campaign(tmp_path, Script(config=name))
        lines = (folder / "records.jsonl").read_bytes().split(b"\n", 1)
        head = json.loads(lines[0]) | {"time": time}
        (folder / "records.jsonl").write_bytes(json.dumps(head).encode() + b"\n" + lines[1])
    assert [entry.configs[0] for entry in ResultsFolder(tmp_path).entries()] == ["new", "middle", "old"]


def test_a_file_is_read_again_only_after_it_has_changed(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, end=3)
    records, results = folder / "records.jsonl", ResultsFolder(tmp_path)
    before, content, times = results.entries(), records.read_bytes(), records.stat()
    records.write_bytes(b"x" * len(content))
    os.utime(records, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert results.entries() == before
    records.write_bytes(content + b'{"schema":1,"kind":"something new"}\n')
    assert [entry.status for entry in results.entries()] == ["unfinished"]


def test_of_a_result_that_has_ended_well_only_the_folder_is_looked_at(tmp_path: Path) -> None:
    """As is an index on disk, which may be of another run of this program."""
    folder = write_campaign(tmp_path, end=0)
    results = ResultsFolder(tmp_path)
    before = results.entries()
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(b'{"schema":1,"kind":"extension","launches":9}\n')
    assert results.entries() == before
    os.utime(folder)  # as launches are added
    assert [entry.status for entry in results.entries()] == ["unfinished"]


def test_changes_are_what_is_new_or_gone_since_a_state_was_known(tmp_path: Path) -> None:
    first, second = (write_campaign(tmp_path, end=end).name for end in (0, 3))
    results = ResultsFolder(tmp_path)
    found = {change.name: change for change in results.find_changed_results({})}
    assert found.keys() == {first, second}
    known = {first: found[first].final, second: str(found[second].state), "gone": "…"}
    assert [(change.name, change.state) for change in results.find_changed_results(known)] == [("gone", None)]
    assert [change.name for change in results.find_changed_results({}, [second, "nowhere"])] == [second]


def test_results_are_found_by_their_first_line_the_newest_name_first(tmp_path: Path) -> None:
    folders = [write_campaign(tmp_path, Script(config=name)) for name in ("tcp", "tcp", "other")]
    (tmp_path / "99990101T000000Z-damaged").mkdir()
    (tmp_path / "99990101T000000Z-damaged" / "records.jsonl").write_bytes(b"half a li")
    results = ResultsFolder(tmp_path)

    def tcp(head: s.CampaignLine) -> bool:
        return head.configs[0].name == "tcp"

    newest = sorted(folders[:2], reverse=True)
    assert [folder for folder, _ in results.find_newest_results(tcp)] == newest
    assert [
        folder for folder, _ in results.find_newest_results(tcp, is_wanted_name=lambda name: name > newest[1].name)
    ] == newest[:1]
    assert list(ResultsFolder(tmp_path / "nowhere").find_newest_results(tcp)) == []


def test_a_campaign_that_has_just_ended_is_soon_no_longer_written(tmp_path: Path) -> None:
    index = ResultsFolder(tmp_path)
    with CampaignWriter.create(tmp_path, "tcp") as writer:
        write_head(writer, [("tcp", 0)], [plan()], {"tcp": {}})
        writer.write(s.CampaignEndLine(status=0))
        (entry,) = index.entries()
        assert (entry.end_status, entry.written) == (0, True)
    (entry,) = index.entries()
    assert (entry.end_status, entry.written) == (0, False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "first line is incomplete"),
        (b"half a li", "first line is incomplete"),
        (b"x" * (2 << 20), "first line is incomplete"),
        (b"GIF89a\n", "not a campaign"),
        (b'{"schema":1,"kind":"campaign"}\n', "not a campaign"),
        (b'{"schema":1,"kind":"end","status":0}\n', "not a campaign"),
        (b'{"schema":99,"kind":"campaign"}\n', "has schema 99"),
        (b"[" * 100_000 + b"\n", "not a campaign"),
    ],
)
def test_what_is_no_campaign_is_listed_with_the_reason(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "records.jsonl").write_bytes(content)
    (entry,) = ResultsFolder(tmp_path).entries()
    assert entry.status == "unreadable"
    assert why in (CampaignCache().load([entry])[0].problem or "")
    assert (entry.kind, entry.configs, entry.started) == ("", (), None)


def test_folders_without_records_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "README.md").write_text("hello")
    assert ResultsFolder(tmp_path).entries() == ()


def test_pipes_folders_and_dangling_links_in_the_place_of_records_do_no_harm(tmp_path: Path) -> None:
    for name in ("pipe", "folder", "dangling", "loop"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "records.jsonl")
    (tmp_path / "folder" / "records.jsonl").mkdir()
    (tmp_path / "dangling" / "records.jsonl").symlink_to("nowhere")
    (tmp_path / "loop" / "records.jsonl").symlink_to("records.jsonl")
    loaded = CampaignCache().load(ResultsFolder(tmp_path).entries())
    problems = {each.entry.folder.name: each.problem for each in loaded}
    assert set(problems) == {"pipe", "folder", "loop"}
    assert {each.entry.status for each in loaded} == {"unreadable"}
    assert "is not a regular file" in (problems["pipe"] or "")


def test_a_folder_that_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir(mode=0o000)
    index = ResultsFolder(results)
    with without_passing_over_permissions():
        index.entries()
    assert "Permission denied" in (index.problem or "")


def test_published_results_are_there_before_any_run(tmp_path: Path) -> None:
    results = tmp_path / "not-yet"
    entries = ResultsFolder(results, other_folders=published_beside(results)).entries()
    assert {entry.origin for entry in entries} == {"published"}
    assert {entry.kind for entry in entries} == {"import"}
    assert find_campaign_to_show(entries) is None
