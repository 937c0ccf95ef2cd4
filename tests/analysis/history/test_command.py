"""The command, the document and the data frame; what the index reads again, and what it does not."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import merge_bench
from merge_bench.errors import UsageError
from merge_bench.records.writer import RECORDS
from merge_bench.regressions.accepted_levels import ACCEPTED_FILE
from merge_bench.regressions.document import HistoryDocument, load_history
from merge_bench.regressions.view import history_charts, print_history
from tests.analysis.history.made_up import FIRST_NIGHT, Nights, dated, write
from tests.helpers.command_line import exit_status
from tests.helpers.synthetic_campaigns import Script, interleaved, write_campaign


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def kept_index(tmp_path: Path) -> Path:
    """The file of the index."""
    return tmp_path / "cache" / "merge_bench" / "history.sqlite"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty results; from the thirtieth on merges take 5 % longer."""
    folder = tmp_path_factory.mktemp("kept")
    write(folder, Nights())
    return folder


@pytest.fixture
def results(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "results"))


def document(*folders: Path, **options: Any) -> HistoryDocument:
    return load_history(folders, **options)


def ended(*words: str | Path) -> int:
    """The exit status of the command."""
    return exit_status("history", *words)


def printed(found: HistoryDocument, **options: Any) -> str:
    page = io.StringIO()
    print_history(found, file=page, **options)
    return page.getvalue()


def test_the_shift_names_its_result_and_what_differs(results: Path) -> None:
    (series,) = document(results).series
    (shift,) = series.shifts
    assert (shift.result, shift.path, shift.better) == (30, str(results / "0030-tcp"), False)
    assert shift.change == pytest.approx(1 / 1.05 - 1, abs=0.01)
    assert series.since == 30
    assert {(each.name, each.before, each.after) for each in shift.differences} == {
        ("version", "1.20.0", "1.21.0"),
        ("kernel", "6.1", "6.8"),
        ("GPU driver", "570", "580"),
    }
    assert {each.result for each in shift.differences} == {30}


def test_the_conclusion_comes_first(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(results.parent)
    assert ended("results") == 0
    _, _, first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first.startswith("throughput of tcp: 1,000,000 rows per chunk, 2 workers over 40 results: level 0.5")
    assert first.endswith("1 shift")
    assert second.endswith("% on 8 Nov at results/0030-tcp")
    assert "UCX version 1.20.0 → 1.21.0" in third
    assert fourth.endswith("until somebody accepts the loss: history --accept REASON")


def test_details_list_every_result(results: Path) -> None:
    lines = printed(document(results), details=True).splitlines()
    assert sum("-tcp" in line and line[:1].isdigit() for line in lines) == 40
    assert sum(line.split()[-1] == "0030-tcp" for line in lines if line) == 4


def test_series_that_are_too_short_for_a_shift_have_a_line_each(results: Path, tmp_path: Path) -> None:
    write(tmp_path / "more", Nights(count=3, config="shm"))
    found = document(results, tmp_path / "more")
    counted = "1 more series with fewer than 15 results, too few to find a shift:"
    line = f"\n{counted}\n  shm: 1,000,000 rows per chunk, 2 workers: 3 results, throughput 0.5"
    assert line in printed(found)
    details = printed(found, details=True)
    assert line in details
    assert sum("-shm" in row and row[:1].isdigit() for row in details.splitlines()) == 3


def test_series_without_a_judged_one_are_all_listed_the_longest_first(tmp_path: Path) -> None:
    for count, config in ((6, "tcp"), (1, "shm")):
        write(tmp_path, Nights(count=count, config=config))
    lines = printed(document(tmp_path)).splitlines()
    assert "2 series with fewer than 15 results, too few to find a shift:" in lines
    short = [line.split(", throughput")[0].split() for line in lines if ", throughput" in line]
    assert [(words[0], *words[-2:]) for words in short] == [("tcp:", "6", "results"), ("shm:", "1", "result")]


def test_of_many_short_series_the_longest_are_listed(tmp_path: Path) -> None:
    for number in range(22):
        write(tmp_path, Nights(count=2 if number == 3 else 1, config=f"c{number}", launches=1))
    found = document(tmp_path)
    lines = printed(found).splitlines()
    listed = [line.split(":")[0].strip() for line in lines if ", throughput" in line]
    assert (len(listed), listed[0]) == (20, "c3")
    assert lines[-1].strip() == "2 more series with `history --details`"
    assert sum(", throughput" in line for line in printed(found, details=True).splitlines()) == 22


@pytest.mark.parametrize(
    ("floor", "shown"), [(0.012, "1.2 %"), (15.35, "above 100 %: launches differ too much to judge")]
)
def test_a_noise_floor_that_says_nothing_is_no_percentage(results: Path, floor: float, shown: str) -> None:
    found = document(results)
    series = [msgspec.structs.replace(each, noise_floor=floor) for each in found.series]
    text = printed(msgspec.structs.replace(found, series=series), width=1000)
    assert f"; 1 shift; A/A noise floor {shown}\n" in text


def test_results_of_one_day_have_their_times_in_the_picture(results: Path) -> None:
    def ends(folder: Path) -> tuple[str, str]:
        (chart,) = history_charts(document(folder))
        first, *_, last = (chart.x.ticks or {}).values()
        return first, last

    assert ends(results) == ("9 Oct", "17 Nov")
    for night, folder in enumerate(sorted(results.iterdir())):
        dated(folder, FIRST_NIGHT + 60 * night)
    assert ends(results.rename(results.with_name("one-day"))) == ("9 Oct 08:53", "9 Oct 09:32")


def test_a_time_gets_better_when_it_gets_shorter(results: Path) -> None:
    (shift,) = document(results, metric="wall").series[0].shifts
    assert shift.change > 0
    assert not shift.better


def test_the_document_is_that_of_the_structures(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(results, "--json", "--config", "tcp", "--chunk", "1e6", "--workers", "2") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metric"], found["unit"], found["error"]) == ("throughput", "B/s", None)
    assert [len(each["results"]) for each in found["series"]] == [40]


@pytest.mark.slow
def test_pictures(results: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"history.{end}" for end in ("png", "svg", "html")]
    assert ended(results, *(word for file in files for word in ("--plot", file))) == 0
    assert all(file.stat().st_size > 1000 for file in files)


def test_a_data_frame_has_a_row_for_every_result(results: Path) -> None:
    frame = merge_bench.history(results, chunk=1e6)
    assert len(frame) == 40
    assert list(frame["shift"].notna().to_numpy().nonzero()[0]) == [30]
    assert frame["level"].nunique() == 2
    assert set(frame["unit"]) == {"B/s"}
    assert (frame["rows_per_chunk"][0], frame["workers"][0]) == (1_000_000, 2)
    assert frame["started"][0] == datetime.fromtimestamp(FIRST_NIGHT, UTC)
    assert "UCX version 1.20.0 → 1.21.0" in frame["differs"][30]


def test_several_folders_and_configs_are_several_series(results: Path, tmp_path: Path) -> None:
    write(tmp_path / "more", Nights(count=3, config="shm"))
    assert [each.series["config"] for each in document(results, tmp_path / "more").series] == ["tcp", "shm"]
    (only,) = document(results, tmp_path / "more", config="shm").series
    assert not only.judged


def test_a_result_that_ended_is_not_read_again(results: Path) -> None:
    """Whoever did would find that there is nothing in them any more; only sizes and times are as before."""
    before = document(results)
    for records in results.glob(f"*/{RECORDS}"):
        status = records.stat()
        records.write_bytes(bytes(status.st_size))
        os.utime(records, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert document(results) == before
    shutil.rmtree(results / "0039-tcp")
    assert len(document(results).series[0].results) == 39


def test_a_result_that_grows_is_read_again(results: Path) -> None:
    records = results / "0039-tcp" / RECORDS
    whole = records.read_text()
    head, *lines = whole.splitlines(keepends=True)
    second = next(at for at, line in enumerate(lines) if '"launch":1' in line)
    records.write_text(head + "".join(lines[:second]))
    assert len(document(results).series[0].results[-1].launches) == 1
    records.write_text(whole)
    assert len(document(results).series[0].results[-1].launches) == 3


def in_index(file: Path, query: str) -> list[Any]:
    """The first column of the rows that a query gives of the index, which is then in its file."""
    with contextlib.closing(sqlite3.connect(file)) as base:
        return [row[0] for row in base.execute(query)]


def test_an_index_of_another_version_is_made_anew(results: Path, kept_index: Path) -> None:
    before = document(results)
    version = in_index(kept_index, "pragma user_version")
    with contextlib.closing(sqlite3.connect(kept_index)) as base:
        base.executescript("pragma user_version = 99; drop table runs; create table runs (another text)")
    assert document(results) == before
    assert in_index(kept_index, "pragma user_version") == version
    assert in_index(kept_index, "select count(entry) from runs") == [40]


def test_an_index_that_another_process_makes_meanwhile_keeps_what_that_wrote(results: Path, kept_index: Path) -> None:
    before = document(results)
    (version,) = in_index(kept_index, "pragma user_version")
    tables = in_index(kept_index, "select sql from sqlite_schema where sql is not null")
    kept_index.unlink()
    other = sqlite3.connect(kept_index, timeout=60, isolation_level=None)
    other.execute("pragma journal_mode = wal")
    other.execute("begin immediate")
    for statement in (*tables, f"pragma user_version = {version}"):
        other.execute(statement)
    other.execute("insert into results values ('root', 'name', 'ended')")
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(document, results)
        time.sleep(0.5)  # it has seen no version, and waits
        other.execute("commit")
        assert found.result(60) == before
    other.close()
    assert in_index(kept_index, "select count(*) from results where root = 'root'") == [1]
    assert in_index(kept_index, "select count(*) from results") == [41]


def test_without_a_cache_folder_all_is_read(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert len(document(results).series[0].results) == 40


def test_a_damaged_index_is_not_used(results: Path, kept_index: Path) -> None:
    kept_index.parent.mkdir(parents=True)
    kept_index.write_text("no database\n" * 1000)
    assert len(document(results).series[0].results) == 40


def test_an_index_that_is_damaged_later_is_made_anew(results: Path, kept_index: Path) -> None:
    before = document(results)
    content = bytearray(kept_index.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)  # all but the first page
    kept_index.write_bytes(content)
    assert document(results) == before
    assert document(results) == before


def test_an_index_that_cannot_grow_ends_nothing(results: Path, kept_index: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    try:
        assert len(document(results).series[0].results) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(in_index(kept_index, "select name from results")) < 40


def test_a_result_that_was_replaced_is_read_again(results: Path) -> None:
    before = document(results).series[0].results[0].value
    shutil.copytree(results / "0039-tcp", results / "new")
    shutil.rmtree(results / "0000-tcp")
    (results / "new").rename(results / "0000-tcp")
    dated(results / "0000-tcp", FIRST_NIGHT)
    assert document(results).series[0].results[0].value != before


def test_options_of_the_data_plane_make_another_series(results: Path) -> None:
    records = results / "0000-tcp" / RECORDS
    records.write_text(records.read_text().replace('"exchange":', '"error_handling":true,"exchange":'))
    assert sorted(len(each.results) for each in document(results).series) == [1, 39]


def test_a_wrong_result_has_no_value(tmp_path: Path) -> None:
    write_campaign(tmp_path / "few", Script())
    write_campaign(tmp_path / "few", Script(check=lambda check: msgspec.structs.replace(check, ok=False)), end=4)
    (series,) = document(tmp_path / "few").series
    assert (series.wrong_results, len(series.results)) == (1, 1)


def test_an_a_a_comparison_gives_the_noise_floor(tmp_path: Path) -> None:
    walls = {"a": [0.1, 0.11, 0.1, 0.11, 0.1, 0.11], "b": [0.11, 0.1, 0.11, 0.1, 0.11, 0.1]}
    scripts = [replace(script, variables={}) for script in interleaved(walls)]
    write_campaign(tmp_path / "aa", *scripts)
    floors = [each.noise_floor for each in document(tmp_path / "aa").series]
    assert floors == [pytest.approx(0.1, abs=0.01)] * 2


def test_a_floor_that_is_shown_later_undoes_no_shift(results: Path) -> None:
    (before,) = document(results).series
    walls = {"tcp": [0.105, 0.2] * 3, "twin": [0.2, 0.105] * 3}
    like = json.loads((results / "0039-tcp" / RECORDS).read_text().splitlines()[1])["workers"]
    scripts = [replace(script, variables={}) for script in interleaved(walls)]
    folder = write_campaign(results, *scripts)
    lines = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    changed = [line | {"workers": like} if line["kind"] == "launch" else line for line in lines]
    (folder / RECORDS).write_text("".join(json.dumps(line) + "\n" for line in changed))
    after = document(results, config="tcp").series[0]
    assert after.noise_floor is not None
    assert after.noise_floor > 0.5
    assert [shift.result for shift in after.shifts] == [shift.result for shift in before.shifts] == [30]


def test_what_is_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the folder .*nowhere"):
        document(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no result in .* with config shm has a throughput"):
        document(results, config="shm")
    with pytest.raises(UsageError, match="'speed' is none of throughput, bandwidth"):
        document(results, metric="speed")


def test_a_level_is_accepted_by_somebody_for_a_reason(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before,) = document(results).series
    assert before.reference_results == list(range(30))
    assert ended(results, "--accept", "the new driver stays", "--by", "ann") == 0
    (after,) = document(results).series
    assert after.reference_results == list(range(30, 40))
    (shift,) = after.shifts
    assert shift.accepted is not None
    assert (shift.accepted.by, shift.accepted.reason) == ("ann", "the new driver stays")
    (line,) = (results / ACCEPTED_FILE).read_text().splitlines()
    assert json.loads(line)["by"] == "ann"
    assert ended(results, "--accept", "again") == 2
    assert "nothing to accept" in capsys.readouterr().err


def test_what_no_gate_would_look_at_is_not_accepted(results: Path) -> None:
    assert ended(results, "--metric", "wall", "--accept", "why", "--by", "ann") == 2
    assert not (results / ACCEPTED_FILE).exists()


def test_a_user_without_a_name_says_who_accepts(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert ended(results, "--accept", "why") == 2
    assert "--by NAME" in capsys.readouterr().err
    assert ended(results, "--accept", "why", "--by", "ann") == 0


def test_accepting_follows_no_link_and_adds_to_no_half_line(
    results: Path,
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    (results / ACCEPTED_FILE).symlink_to(other)
    assert ended(results, "--accept", "why") == 2
    assert not other.exists()
    (results / ACCEPTED_FILE).unlink()
    (results / ACCEPTED_FILE).write_text('{"half')
    assert ended(results, "--accept", "why") == 0
    found = document(results)
    assert found.series[0].shifts[0].accepted is not None
    assert len(found.notes) == 1


def test_only_one_series_is_accepted(results: Path, tmp_path: Path) -> None:
    write(tmp_path / "more", Nights(count=3, config="shm"))
    assert ended(results, tmp_path / "more", "--accept", "why") == 2
    assert ended(results, "--by", "ann") == 2
