"""Following a campaign while it is written: only what is new, never more than a limit, and never an exception."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merge_bench.records import schema as s
from merge_bench.records.reader import CampaignFollower, read_campaign
from merge_bench.records.writer import encode_record
from tests.helpers.synthetic_campaigns import Script, iteration, launches, plan, write_campaign


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_campaign(tmp_path, *launches(3))


def read_all(follower: CampaignFollower) -> list[s.Record]:
    records = follower.read()
    while follower.has_more:
        records += follower.read()
    return records


def test_a_follower_ends_up_with_what_a_reader_reads(folder: Path) -> None:
    follower = CampaignFollower(folder, block=700)
    records = read_all(follower)
    assert follower.campaign == read_campaign(folder)
    assert len(records) == len((folder / "records.jsonl").read_bytes().splitlines())
    assert follower.offset == follower.size
    assert follower.problem is None


def test_only_new_lines_are_read_and_a_half_written_one_waits_for_its_end(folder: Path) -> None:
    records = folder / "records.jsonl"
    whole = records.read_bytes()
    cut = len(whole) - 30
    records.write_bytes(whole[:cut])
    follower = CampaignFollower(folder)
    read_all(follower)
    before = follower.offset
    assert before == whole[:cut].rindex(b"\n") + 1
    assert follower.read() == []
    with records.open("ab") as stream:
        stream.write(whole[cut:])
    (end,) = follower.read()
    assert isinstance(end, s.CampaignEndLine)
    assert follower.campaign == read_campaign(folder)


def test_a_half_line_that_a_resumed_run_cuts_off_costs_nothing(folder: Path) -> None:
    records = folder / "records.jsonl"
    whole = records.read_bytes()
    records.write_bytes(whole + b'{"schema":1,"kind":"ite')
    follower = CampaignFollower(folder)
    read_all(follower)
    os.truncate(records, len(whole))
    with records.open("ab") as stream:
        stream.write(encode_record(s.CampaignEndLine(status=3)) + b"\n")
    assert [type(record) for record in follower.read()] == [s.CampaignEndLine]


def test_a_file_that_was_replaced_is_read_anew(folder: Path, tmp_path: Path) -> None:
    follower = CampaignFollower(folder)
    read_all(follower)
    other = write_campaign(tmp_path / "other", Script(config="other", plan=plan(4)))
    os.replace(other / "records.jsonl", folder / "records.jsonl")
    read_all(follower)
    assert follower.campaign is not None
    assert follower.campaign.head.configs[0].name == "other"


def test_reading_stops_at_the_limit_with_a_sentence(folder: Path) -> None:
    follower = CampaignFollower(folder, limit=3000)
    read_all(follower)
    assert follower.problem is not None
    assert "only the first" in follower.problem
    assert 3000 < follower.offset < follower.size
    assert not follower.has_more
    assert follower.campaign is not None
    assert follower.read() == []


def test_a_lean_follower_keeps_the_pairs_of_the_last_iteration_only(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(8)))
    follower = CampaignFollower(folder, lean=True)
    read_all(follower)
    assert follower.campaign is not None
    (launch,) = follower.campaign.launches
    assert [len(each.pairs) for each in launch.iterations] == [0, 0, 0, 56]
    assert [len(each.workers) for each in launch.iterations] == [8, 8, 8, 8]


def test_what_is_damaged_is_said_and_what_was_before_it_stays(folder: Path) -> None:
    records = folder / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join([*lines[:4], b"\x00\xff<script>\n", *lines[4:]]))
    follower = CampaignFollower(folder)
    read_all(follower)
    assert follower.problem is not None
    assert "line 5" in follower.problem
    assert follower.campaign is not None
    assert len(follower.campaign.launches[0].iterations) == 1


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", b"[]\n", b'{"kind":"campaign"}\n', b"\n\n\n", b'{"schema":9,"kind":"x"}\n']
)
def test_a_foreign_file_gives_no_campaign_and_no_exception(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "records.jsonl").write_bytes(content)
    follower = CampaignFollower(tmp_path)
    read_all(follower)
    assert follower.campaign is None
    assert (follower.problem is None) == (b"\n" not in content)


def test_a_pipe_in_the_place_of_the_records_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "records.jsonl")
    follower = CampaignFollower(tmp_path)
    assert follower.read() == []
    assert follower.problem is not None
    assert "is not a regular file" in follower.problem


def test_a_missing_file_is_said_and_read_once_it_is_there(folder: Path) -> None:
    records = folder / "records.jsonl"
    hidden = records.rename(folder / "hidden")
    follower = CampaignFollower(folder)
    assert follower.read() == []
    assert follower.problem is not None
    assert "No such file" in follower.problem
    hidden.rename(records)
    read_all(follower)
    assert follower.problem is None
    assert follower.campaign == read_campaign(folder)


def test_a_line_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(32), walls=(), end_status=None), end=None)
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(encode_record(iteration(Script(plan=plan(32)), 0, 0.1)) + b"\n")
    follower = CampaignFollower(folder, block=512)
    read_all(follower)
    assert follower.offset == follower.size
    assert follower.campaign is not None
    assert len(follower.campaign.launches[0].timed_iterations[0].pairs) == 32 * 31


def test_a_line_without_end_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(b"x" * (3 << 20))
    follower = CampaignFollower(tmp_path, block=1024, longest_line=1 << 20)
    read_all(follower)
    assert follower.problem is not None
    assert "longer than 1 MiB" in follower.problem
