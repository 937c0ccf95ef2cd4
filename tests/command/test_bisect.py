"""`bisect`: which releases it ends with, on made-up numbers and with a command that some releases slow down."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from merge_bench.analysis.statistics import Effect, paired_effect
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.command.bisect import (
    ALIKE,
    FAILED,
    LEAST,
    NO_TIME,
    BisectionResult,
    Measure,
    ReleaseLaunchFailed,
    bisect_releases,
    planned_interim_looks,
)
from merge_bench.command.bisect_campaign import changed_setting_defaults, expand_release_range
from merge_bench.config.parsers import parse_ucx_releases
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from tests.helpers.command_line import exit_status
from tests.helpers.ucx_wheels import put_into_cache

RELEASES = ["1.19.0", "1.19.1", "1.20.0", "1.20.1", "1.21.0", "1.22.0"]
NOISE = 0.04
SEEDS = range(20)


def measured(seed: int, seconds: Callable[[str], float]) -> Callable[[str, str, int], tuple[Effect, str]]:
    """Measures as a campaign would: more launches of a pair are added to those that it has."""
    numbers = random.Random(seed)

    @functools.cache
    def log_ratio(baseline: str, candidate: str, block: int) -> float:
        noise = numbers.gauss(0.0, NOISE) - numbers.gauss(0.0, NOISE)
        return math.log(seconds(baseline) / seconds(candidate)) + noise

    def measure(baseline: str, candidate: str, launches: int) -> tuple[Effect, str]:
        effect = paired_effect([log_ratio(baseline, candidate, block) for block in range(launches)])
        return effect, f"{baseline}-{candidate}"

    return measure


def bisect(seed: int, seconds: Callable[[str], float], releases: list[str] = RELEASES) -> BisectionResult:
    return bisect_releases(releases, measured(seed, seconds), threshold=0.02, most_launches=24)


@pytest.mark.parametrize("ratio", [1.2, 0.8], ids=["slower", "faster"])
def test_a_step_between_two_of_six_releases_is_found_in_20_of_20(ratio: float) -> None:
    found, launches = 0, 0
    for seed in SEEDS:
        last_before = seed % 5
        slow = RELEASES[last_before + 1 :]
        result = bisect(seed, lambda release, slow=slow: ratio if release in slow else 1.0)
        found += result.decisive_step is not None and result.between == (RELEASES[last_before], slow[0])
        launches += sum(step.launches for step in result.steps)
    print(f"found {found} of {len(SEEDS)}, with {launches / len(SEEDS):.0f} launches of each release")
    assert found == len(SEEDS)


def test_no_step_is_found_where_there_is_none_in_19_of_20() -> None:
    results = [bisect(seed, lambda release: 1.0) for seed in SEEDS]
    right = sum(result.between is None for result in results)
    print(f"no difference in {right} of {len(SEEDS)}")
    assert right >= 19
    assert all(len(result.steps) == 1 for result in results if result.between is None)


def test_all_looks_together_have_the_level_of_one() -> None:
    for most, counts in ((6, [6]), (8, [6, 8]), (24, [6, 12, 24])):
        looks = planned_interim_looks(most)
        assert [count for count, _ in looks] == counts
        assert math.isclose(sum(level for _, level in looks), ALPHA)


def test_without_noise_two_releases_need_six_launches_and_one_comparison() -> None:
    result = bisect_releases(
        ["a", "b"], lambda *_: (paired_effect([0.3] * LEAST), "x"), threshold=0.02, most_launches=24
    )
    assert (result.verdict, result.between, len(result.steps)) == ("FASTER", ("a", "b"), 1)
    alike = bisect_releases(
        ["a", "b"], lambda *_: (paired_effect([0.001] * LEAST), "x"), threshold=0.02, most_launches=24
    )
    assert (alike.verdict, alike.between, alike.reason) == ("EQUIVALENT", None, ALIKE)


def test_a_spent_budget_leaves_the_releases_that_are_certain() -> None:
    asked: list[tuple[str, str]] = []

    def measure(baseline: str, candidate: str, launches: int) -> tuple[Effect, str] | None:
        asked.append((baseline, candidate))
        if len(asked) > 2:
            return None
        return paired_effect([-0.3 if candidate >= "1.20.0" else 0.0] * launches), "x"

    result = bisect_releases(RELEASES, measure, threshold=0.02, most_launches=24)
    assert (result.between, result.decisive_step, result.reason) == (("1.19.0", "1.20.0"), None, NO_TIME)


def failing(measure: Measure, broken: Collection[str]) -> Measure:
    """`measure`, but launches with some releases fail."""

    def measure_or_fail(baseline: str, candidate: str, launches: int) -> tuple[Effect, str] | None:
        for release in (baseline, candidate):
            if release in broken:
                raise ReleaseLaunchFailed(release, "6 of 6 launches failed: it crashed", "folder", "its last line")
        return measure(baseline, candidate, launches)

    return measure_or_fail


@pytest.mark.parametrize(
    ("broken", "between"),
    [
        (["1.20.0"], ("1.20.1", "1.21.0")),
        (["1.20.1"], ("1.20.0", "1.21.0")),
        (["1.21.0", "1.20.0"], ("1.20.1", "1.22.0")),
        (["1.20.1", "1.20.0", "1.19.1"], ("1.19.0", "1.21.0")),
        (RELEASES[1:-1], ("1.19.0", "1.22.0")),
    ],
)
def test_releases_between_the_ends_with_which_launches_fail_are_left_out(
    broken: list[str], between: tuple[str, str]
) -> None:
    measure = measured(1, lambda release: 1.2 if release >= "1.21" else 1.0)
    result = bisect_releases(RELEASES, failing(measure, broken), threshold=0.02, most_launches=24)
    assert (result.verdict, result.between, result.failure) == ("SLOWER", between, None)
    assert result.decisive_step is not None
    assert (result.decisive_step.baseline, result.decisive_step.candidate) == between
    failed = [step for step in result.steps if step.verdict == FAILED]
    assert [step.candidate for step in failed] == result.left_out
    assert set(result.left_out) <= set(broken)
    assert [(step.ratio, step.records) for step in failed] == [(None, "folder")] * len(failed)
    assert failed[0].failure == f"UCX {failed[0].candidate}: 6 of 6 launches failed: it crashed"


def test_a_release_that_fails_only_in_the_last_comparison_is_left_out_there() -> None:
    measure = measured(2, lambda release: 1.2 if release >= "1.21" else 1.0)

    def fail_beside_its_neighbour(baseline: str, candidate: str, launches: int) -> tuple[Effect, str] | None:
        if (baseline, candidate) == ("1.20.1", "1.21.0"):
            raise ReleaseLaunchFailed(baseline, "1 of 6 launches failed: it crashed", "folder")
        return measure(baseline, candidate, launches)

    result = bisect_releases(RELEASES, fail_beside_its_neighbour, threshold=0.02, most_launches=24)
    assert (result.between, result.left_out) == (("1.20.0", "1.21.0"), ["1.20.1"])
    pairs = [(step.baseline, step.candidate, step.beyond_half) for step in result.steps]
    assert len(set(pairs)) == len(pairs)  # nothing was measured twice


@pytest.mark.parametrize("end", [0, -1], ids=["first", "last"])
def test_a_failure_of_an_end_says_which_release_and_why(end: int) -> None:
    measure = failing(measured(3, lambda release: 1.0), [RELEASES[end]])
    result = bisect_releases(RELEASES, measure, threshold=0.02, most_launches=24)
    assert (result.verdict, result.between, result.left_out) == (FAILED, None, [])
    assert result.reason == f"UCX {RELEASES[end]}: 6 of 6 launches failed: it crashed"
    assert result.failure is not None
    assert result.failure.log_tail == "its last line"
    assert [step.verdict for step in result.steps] == [FAILED]


@pytest.mark.slow
def test_releases_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for version in ("1.18.0", "1.19.0", "1.20.1", "1.22.0"):
        put_into_cache(tmp_path, version)
    assert expand_release_range(parse_ucx_releases("1.19.0..1.22.0")) == ["1.19.0", "1.20.1", "1.22.0"]
    assert expand_release_range(parse_ucx_releases("1.22.0,/opt/ucx")) == ["1.22.0", "/opt/ucx"]
    with pytest.raises(UsageError, match=r"no release 1\.19\.1"):
        expand_release_range(parse_ucx_releases("1.19.1..1.22.0"))
    for wrong in ("1.19.0", "1.19.0,wheel"):
        with pytest.raises(ValueError, match="no list of releases or folders"):
            parse_ucx_releases(wrong)


def test_defaults_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    put_into_cache(tmp_path, "1.19.0", more_settings="UCX_A=1\nUCX_B=2\nUCX_C=3\n")
    newer = put_into_cache(tmp_path, "1.22.0", more_settings="UCX_A=8\nUCX_B=2\nUCX_D=4\n")
    with (newer / "bin/ucx_info").open("a") as program:  # as UCX prints a time that it measures at its start
        program.write('printf "#\\n# syntax:    time value: <number>\\n#\\nUCX_TIME=%sns\\n" $(date +%N)\n')
    (changed, gone, new) = changed_setting_defaults("1.19.0", "1.22.0")
    assert (changed.name, changed.baseline, changed.candidate) == ("UCX_A", "1", "8")
    assert (gone.name, gone.candidate, new.name, new.baseline) == ("UCX_C", None, "UCX_D", None)
    (newer / "bin/ucx_info").unlink()
    assert changed_setting_defaults("1.19.0", "1.22.0") == []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache of four small releases, and a command that sleeps longer with the last two."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.chdir(tmp_path)
    for version in ("1.19.0", "1.20.1", "1.21.0", "1.22.0"):
        put_into_cache(tmp_path / "cache", version, more_settings=f"UCX_RNDV_THRESH={version[2:4]}k\n")
    (tmp_path / "program").write_text(
        'case "$LD_LIBRARY_PATH" in */1.2[12].0/*) echo rate 0.5; sleep 0.01 ;; *) echo rate 2 ;; esac\n'
    )
    return tmp_path


COMMAND = ("--metric", r"rate=re:rate (\S+)", "--better", "more", "--", "sh", "program")


@pytest.mark.slow
def test_the_release_that_slows_a_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bisect", "--ucx", "1.19.0..1.22.0", "--json", *COMMAND)
    assert exit_status(*words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["between"] == ["1.20.1", "1.21.0"]
    assert (document["verdict"], document["decisive_step"]["ratio"]) == ("SLOWER", pytest.approx(0.25))
    assert document["settings"] == [{"name": "UCX_RNDV_THRESH", "baseline": "20k", "candidate": "21k"}]
    folders = {step["records"] for step in document["steps"]}
    for folder in folders:
        campaign = read_campaign(Path(folder))
        assert campaign.command is not None
        assert [len(run.launches) for run in campaign.runs] == [6, 6]
        assert exit_status("compare", folder) == 0
        assert exit_status("show", folder) == 0
    capsys.readouterr()

    before = {path: path.stat().st_mtime_ns for path in place.glob("results/*/records.jsonl")}
    assert exit_status(*words) == 0  # nothing is measured again
    assert json.loads(capsys.readouterr().out) == document
    assert {path: path.stat().st_mtime_ns for path in place.glob("results/*/records.jsonl")} == before
    assert exit_status("bisect", "--ucx", "1.19.0..1.22.0", *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "UCX 1.21.0 is worse than 1.20.1: speed-up 0.250" in printed
    assert "UCX_RNDV_THRESH" in printed


@pytest.mark.slow
def test_a_failure_of_an_end_is_explained_and_tried_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = 'case "$LD_LIBRARY_PATH" in */1.22.0/*) [ -e mended ] || { echo no luck >&2; exit 7; } ;; esac; '
    words = ("--ucx", "1.19.0,1.22.0", *COMMAND[:-2], "sh", "-c", broken + ". ./program")
    records = "results/*/records.jsonl"
    for options in ((), ("--json",)):  # the second time, launches are made again
        before = set(Path().glob(records))
        assert exit_status("bisect", *options, *words) == 3
        printed = capsys.readouterr()
        assert "UCX 1.22.0: 6 of 6 launches failed: the command ended with status 7; run the same" in printed.err
        assert "  | no luck\n" in printed.err
        (new,) = set(Path().glob(records)) - before
    document = json.loads(printed.out)
    assert (document["verdict"], document["between"], document["steps"][0]["ratio"]) == ("FAILED", None, None)
    assert document["error"]["message"] == "UCX 1.22.0: 6 of 6 launches failed: the command ended with status 7"
    Path("mended").touch()
    assert exit_status("bisect", *words) == 0
    printed = capsys.readouterr()
    assert f"launches of 1.19.0 and 1.22.0 failed before, and are made again: {new.parent}" in printed.err
    assert "UCX 1.22.0 is worse than 1.19.0: speed-up 0.250" in printed.out
    assert exit_status("bisect", *words) == 0
    assert "measured before: 1.19.0 and 1.22.0" in capsys.readouterr().err


@pytest.mark.slow
def test_a_release_between_the_ends_with_which_the_command_fails(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = 'case "$LD_LIBRARY_PATH" in */1.20.1/*) exit 7 ;; esac; . ./program'
    words = ("bisect", "--ucx", "1.19.0..1.22.0", *COMMAND[:-2], "sh", "-c", broken)
    assert exit_status(*words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1.19.0 → 1.20.1: UCX 1.20.1: 6 of 6 launches failed: the command ended with status 7" in printed
    assert "UCX 1.21.0 is worse than 1.19.0: speed-up 0.250" in printed
    assert "Left out, because launches failed: 1.20.1" in printed
    assert exit_status("bisect", "--json", *words[1:]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["between"], document["left_out"], document["error"]) == (["1.19.0", "1.21.0"], ["1.20.1"], None)
    verdicts = [(step["candidate"], step["verdict"], step["ratio"]) for step in document["steps"]]
    assert ("1.20.1", "FAILED", None) in verdicts


def test_a_dry_run_and_what_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("bisect", "--ucx", "1.19.0..1.22.0", "--dry-run", *COMMAND) == 0
    printed = capsys.readouterr().out
    assert "## releases: 1.19.0, 1.20.1, 1.21.0, 1.22.0\n" in printed
    assert "until they tell: 6, 12, 24\n" in printed
    assert not Path("results").exists()
    for words, message in (
        (("--", "true"), "name the releases"),
        (("--ucx", "1.19.0,1.20.1", "--launches", "5", "--", "true"), "at least 6"),
        (("--ucx", "1.19.0,1.20.1", "--chunk", "1e6", "--", "true"), "--chunk is an option of the merge"),
        (("--ucx", "1.19.0,1.20.1", "--preset", "osu"), "--preset is an option of a command"),
    ):
        assert exit_status("bisect", *words) == 2
        assert message in capsys.readouterr().err
