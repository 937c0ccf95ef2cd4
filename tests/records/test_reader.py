"""Reading back whole, killed, damaged and foreign results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign, write_head, write_launch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_campaign(tmp_path)


def test_a_result_is_a_folder_or_its_records(folder: Path) -> None:
    campaign = read_campaign(folder)
    assert campaign == read_campaign(folder / "records.jsonl")
    assert campaign == read_campaign(str(folder))
    assert campaign.folder == folder


def test_everything_that_was_written_is_there(folder: Path) -> None:
    campaign = read_campaign(folder)
    (launch,) = campaign.launches
    assert [iteration.wall_seconds for iteration in launch.iterations] == [0.5, 0.10, 0.11, 0.12]
    assert [iteration.index for iteration in launch.timed_iterations] == [0, 1, 2]
    assert [check.after for check in launch.verifications] == [None, 2]
    assert launch.link is not None
    assert launch.lanes is not None
    assert launch.memory is not None
    assert launch.complete
    assert campaign.end == s.CampaignEndLine(status=0, time=campaign.end.time if campaign.end else 0)
    assert not campaign.truncated


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(share=st.floats(0.0, 1.0))
def test_a_killed_run_is_readable_up_to_its_last_whole_line(folder: Path, share: float) -> None:
    whole = (folder / "records.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    first = len(lines[0])
    size = first + round(share * (len(whole) - first))
    cut = folder / "cut.jsonl"
    cut.write_bytes(whole[:size])
    campaign = read_campaign(cut)
    kept = whole[:size].splitlines(keepends=True)
    half = not kept[-1].endswith(b"\n")
    readable = kept[:-1] if half and kept[-1] + b"\n" != lines[len(kept) - 1] else kept
    kinds = [json.loads(line)["kind"] for line in readable]
    found = [iteration for launch in campaign.launches for iteration in launch.iterations]
    assert len(found) == kinds.count("iteration")
    assert campaign.truncated == (len(readable) < len(kept))


def test_zeros_that_a_crash_left_at_the_end_are_a_half_written_line(folder: Path) -> None:
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(b"\0" * 100)
    assert read_campaign(folder).truncated


def replace_line(number: int, change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "records.jsonl"
        lines = path.read_text().splitlines()
        lines[number - 1] = json.dumps(change(json.loads(lines[number - 1])))
        path.write_text("\n".join(lines) + "\n")

    return apply


def append(text: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        with (folder / "records.jsonl").open("a") as stream:
            stream.write(text)

    return apply


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            replace_line(3, lambda line: line | {"wall_seconds": "long"}),
            r"line 3 of .*records\.jsonl is damaged: .*wall",
        ),
        (replace_line(3, lambda line: [1, 2]), r"line 3 of .* is damaged"),
        (
            replace_line(3, lambda line: line | {"schema": 2}),
            r"line 3 of .* has schema 2, but .* reads only 1; use a newer merge_bench",
        ),
        (replace_line(3, lambda line: {"schema": 9, "kind": "moon"}), r"line 3 of .* has schema 9"),
        (replace_line(1, lambda line: line | {"schema": 2}), r"line 1 of .* has schema 2"),
        (replace_line(3, lambda line: line | {"launch": 5}), r"line 3 of .* is damaged: its launch has no launch line"),
        (replace_line(2, lambda line: line | {"config": "other"}), r"line 2 of .* config 'other' with plan 0"),
        (replace_line(2, lambda line: line | {"plan": 1}), r"line 2 of .* config 'optimized' with plan 1"),
        (
            append(
                '{"schema":1,"kind":"lanes","launch":0,"pairs":[{"from":0,"to":1,"transports":[],"protocols":0}]}\n'
            ),
            r"line \d+ of .* is damaged: a pair refers to protocols that are not in this line",
        ),
        (
            append(
                '{"schema":1,"kind":"tune","phase":"screen","config":"a","against":"b","plan":1,"decision":"kept",'
                '"reason":"r"}\n'
            ),
            r"line \d+ of .* is damaged: plan 1 is not in the campaign's first line",
        ),
        (append("{nonsense\n"), r"line \d+ of .* is damaged"),
        (append('{"schema":1,"kind":"end","status":0,"x":' + "[" * 100_000 + "\n"), r"line \d+ of .* is damaged"),
        (append('{"schema":1,"kind":"moon","x":' + "[" * 100_000 + "\n"), r"line \d+ of .* is damaged"),
    ],
)
def test_damage_is_one_sentence_with_the_line(folder: Path, damage: Callable[[Path], None], sentence: str) -> None:
    damage(folder)
    with pytest.raises(UsageError, match=sentence):
        read_campaign(folder)


def test_repeated_first_lines_are_damage(folder: Path) -> None:
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    for copied, sentence in ((lines[0], "second campaign"), (lines[1], "launch 0 appears twice")):
        (folder / "twice.jsonl").write_text("".join([*lines, copied]))
        with pytest.raises(UsageError, match=sentence):
            read_campaign(folder / "twice.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n",
        b"\x89PNG\r\n\x1a\n\0\0",
        b'{"some": "json"}\n',
        b"[1, 2]\n",
        b'{"schema":1,"kind":"end","status":0}\n',
        b'{"schema":1,"kind":"moon"}\n',
        b'{"schema":1,"kind":"campaign"',
        b"\xff\xfe\n",
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(UsageError, match="foreign is not a campaign of merge_bench"):
        read_campaign(tmp_path / "foreign")


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(UsageError, match="is empty"):
        read_campaign(tmp_path)


def test_a_missing_result_says_what_a_result_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*/nowhere; give the path of a campaign folder"):
        read_campaign(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"the folder .* contains no records\.jsonl"):
        read_campaign(tmp_path)


def test_records_that_are_no_file_are_refused(folder: Path) -> None:
    (folder / "records.jsonl").unlink()
    (folder / "records.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"cannot read .*records\.jsonl"):
        read_campaign(folder)


def test_kinds_of_a_later_version_are_passed_over_and_counted(folder: Path) -> None:
    append('{"schema":1,"kind":"verdict","x":1}\n{"schema":1,"kind":"verdict"}\n')(folder)
    assert read_campaign(folder).skipped == {"verdict": 2}


def test_a_copied_result_reads_the_same(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert read_campaign(tmp_path / "copy").launches == read_campaign(folder).launches


def test_runs_are_the_planned_ones_in_their_order(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "sweep") as writer:
        write_head(writer, [("a", 0), ("b", 0), ("b", 1)], [plan(), plan(iterations=2)])
        for index, config in enumerate(["b", "a", "b"]):
            write_launch(writer, Script(index=index, config=config))
    runs = read_campaign(writer.folder).runs
    assert [(run.config.name, run.plan.iterations, [x.index for x in run.launches]) for run in runs] == [
        ("a", 3, [1]),
        ("b", 3, [0, 2]),
        ("b", 2, []),
    ]


def test_a_launch_that_never_came_up_belongs_to_the_run_its_failure_names(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "sweep") as writer:
        write_head(writer, [("a", 0), ("b", 0)], [plan()])
        writer.write(s.FailureLine(launch=0, config="b", plan=0, code="run-failed", message="no workers"))
        writer.write(s.LaunchEndLine(launch=0, status=3, seconds=30.0))
        writer.write(s.FailureLine(launch=1, code="run-failed", message="whose?"))
    campaign = read_campaign(writer.folder)
    assert [[launch.index for launch in run.launches] for run in campaign.runs] == [[], [0]]
    assert [failure.message for failure in campaign.unattributed_failures] == ["whose?"]
    assert not campaign.launches[0].complete
